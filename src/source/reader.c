/* SPDX-License-Identifier: Apache-2.0
 * The reader's front: chooses a backend, and the one way to open and compare a file that both of
 * them use. submit is called from any thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "source/listed.h"
#include "source/reader_priv.h"

struct psti_reader {
    int kind; /* PST_IO_URING or PST_IO_THREADS */
    const psti_reader_ops *ops;
    void *self;
    struct psti_far_reader *far;
    pid_t pid;
};

/* ---- opening and comparing ---------------------------------------------------------------------
 */

int psti_extent_check(const psti_extent *at, int fd)
{
    psti_stamp now;
    const int rc = psti_stamp_fd(fd, &now);
    if (rc)
        return rc;
    if (!S_ISREG(now.mode) || now.size != at->file_size)
        return PST_ECHANGED;
    if (at->loose)
        return 0;
    const bool same = at->list ? !at->version || at->version == psti_stamp_version(&now)
                               : now.mtime_ns == at->mtime_ns && now.inode == at->inode;
    return same ? 0 : PST_ECHANGED;
}

int psti_extent_open_error(int rc)
{
    return rc == -ELOOP || rc == -EXDEV || rc == -ENOTDIR || rc == -ENXIO ? PST_ECHANGED : rc;
}

int psti_extent_open_path(const psti_extent *at, bool cached_only)
{
    if (!at->list)
        return psti_open_beneath(at->root, at->path, PSTI_OPEN_FLAGS, cached_only);
    char path[PSTI_PATH_ROOM];
    psti_paths_get(at->list, at->number, path);
    return psti_open_anywhere(at->root, path, PSTI_OPEN_FLAGS, cached_only);
}

int psti_extent_open(const psti_extent *at, bool cached_only, int *fd)
{
    *fd = at->shard_fd >= 0 ? at->shard_fd : psti_extent_open_path(at, cached_only);
    if (*fd < 0)
        return psti_extent_open_error(*fd);
    const int rc = psti_extent_check(at, *fd);
    if (rc)
        psti_extent_close(at, *fd);
    return rc;
}

void psti_extent_close(const psti_extent *at, int fd)
{
    if (at->shard_fd < 0)
        close(fd);
}

int psti_read_frame(const psti_extent *at, int fd, psti_frame *f, bool cached_only)
{
    uint8_t edges[PSTI_EDGES_BYTES];
    struct iovec piece[3];
    const uint64_t all = psti_frame_bytes(f);
    f->edges = edges;
    for (uint64_t got = 0; got < all;) {
        const int pieces = psti_frame_rest(f, got, PSTI_READ_PIECE, piece);
        const ssize_t n =
            preadv2(fd, piece, pieces, (off_t)(f->at + got), cached_only ? RWF_NOWAIT : 0);
        if (n > 0)
            got += (uint64_t)n;
        else if (n == 0)
            return PST_ECHANGED; /* it became shorter after the comparison */
        else if (errno != EINTR)
            return cached_only && errno == EOPNOTSUPP ? -EAGAIN : -errno;
    }
    return psti_frame_compare(f, at);
}

int psti_read_spans(const psti_extent *at, const psti_span *span, bool try, uint8_t *buf)
{
    int fd;
    if (at->bucket)
        return try ? -EAGAIN : psti_far_spans(at, span, buf);
    int rc = psti_extent_open(at, try, &fd);
    if (rc)
        return rc;
    for (int64_t i = 0; i < span->count && !rc; i++) {
        const uint64_t first = span->offset + (uint64_t)i * span->step;
        if (first > at->length || span->length > at->length - first) {
            rc = -ERANGE;
            break;
        }
        psti_frame f;
        psti_frame_set(&f, at, at->offset + first, span->length, buf + first);
        rc = psti_read_frame(at, fd, &f, try);
    }
    psti_extent_close(at, fd);
    return rc;
}

static int read_whole(const psti_extent *at, bool cached_only, uint8_t *buf)
{
    const psti_span all = {.length = at->length, .count = 1};
    return psti_read_spans(at, &all, cached_only, buf);
}

int psti_read_now(const psti_extent *at, uint8_t *buf)
{
    return read_whole(at, false, buf);
}

int psti_read_try(const psti_extent *at, uint8_t *buf)
{
    return read_whole(at, true, buf);
}

int psti_read_forget(const psti_extent *at)
{
    int fd;
    if (at->bucket)
        return -ENOTSUP;
    const int rc = psti_extent_open(at, false, &fd);
    if (rc)
        return rc;
    const int error = posix_fadvise(fd, (off_t)at->offset, (off_t)at->length, POSIX_FADV_DONTNEED);
    psti_extent_close(at, fd);
    return -error;
}

/* ---- the front ---------------------------------------------------------------------------------
 */

static int wanted_io(int io)
{
    const char *text = getenv("PENSTOCK_IO");
    if (io != PST_IO_AUTO || !text || !*text)
        return io;
    if (strcmp(text, "threads") == 0)
        return PST_IO_THREADS;
    if (strcmp(text, "uring") == 0)
        return PST_IO_URING;
    psti_log(PSTI_LOG_WARN, "PENSTOCK_IO=%s is neither threads nor uring; ignored", text);
    return PST_IO_AUTO;
}

static int open_uring(psti_reader *reader, int depth)
{
    int rc = -ENOSYS;
#ifdef PSTI_HAVE_URING
    reader->ops = &psti_reader_uring;
    reader->self = reader->ops->open(depth, &rc);
    reader->kind = PST_IO_URING;
#else
    (void)reader;
    (void)depth;
#endif
    return rc;
}

static int open_threads(psti_reader *reader, int depth)
{
    int rc = 0;
    reader->ops = &psti_reader_threads;
    reader->self = reader->ops->open(depth, &rc);
    reader->kind = PST_IO_THREADS;
    return rc;
}

/* What cannot be sent is refused by an I/O thread: the caller must not be called back here. */
static void hand_over(void *arg, psti_read *read)
{
    psti_reader *reader = arg;
    reader->ops->submit(reader->self, read);
}

int psti_reader_open(int io, int depth, psti_reader **out, pst_error *err)
{
    const int want = wanted_io(io);
    if (depth < 1 || depth > 1024)
        return psti_fail(err, -EINVAL, "read", NULL, "reads in flight must be 1 to 1024, not %d",
                         depth);
    psti_reader *reader = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *reader);
    if (!reader)
        return psti_fail(err, -ENOMEM, "read", NULL, "out of memory");
    reader->pid = getpid();
    reader->far = psti_far_reader_new(hand_over, reader);
    if (!reader->far) {
        psti_free(reader);
        return psti_fail(err, -ENOMEM, "read", NULL, "out of memory");
    }
    int rc = want == PST_IO_THREADS ? -ENOSYS : open_uring(reader, depth);
    if (rc && want == PST_IO_URING) {
        psti_far_reader_free(reader->far, false);
        psti_free(reader);
        return psti_fail(
            err, rc, "read", NULL,
            "io_uring was demanded but cannot be had here (%s); use io=auto or io=threads",
            pst_strerror(rc));
    }
    if (rc)
        rc = open_threads(reader, depth);
    if (rc) {
        psti_far_reader_free(reader->far, false);
        psti_free(reader);
        return psti_fail(err, rc, "read", NULL, "reading threads cannot be started: %s",
                         pst_strerror(rc));
    }
    *out = reader;
    return 0;
}

int psti_reader_kind(const psti_reader *reader)
{
    return reader->kind;
}

void psti_reader_submit(psti_reader *reader, psti_read *read)
{
    if (read->at.bucket && read->at.length)
        psti_far_submit(reader->far, read);
    else
        reader->ops->submit(reader->self, read);
}

void psti_reader_plug(psti_reader *reader)
{
    if (reader)
        psti_far_plug(reader->far);
}

void psti_reader_unplug(psti_reader *reader, bool calm)
{
    if (reader)
        psti_far_unplug(reader->far, calm);
}

void psti_reader_cancel(psti_reader *reader, psti_read *read)
{
    if (read->at.bucket)
        psti_far_cancel(reader->far, read);
}

void psti_reader_close(psti_reader *reader)
{
    if (!reader)
        return;
    psti_far_reader_free(reader->far, reader->pid != getpid());
    reader->ops->close(reader->self, reader->pid != getpid());
    psti_free(reader);
}
