/* SPDX-License-Identifier: Apache-2.0
 * Fetching the objects of a revision: each thread takes the next one, goes on with its part or
 * begins it, compares what lies on the disk with what the bucket promised, and gives it its name.
 * The bytes of an object are written on the thread that fetches it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "depot/depot_priv.h"

#if defined(PSTI_HAVE_BUCKET)
#include <openssl/evp.h>
#endif

enum { PIECE = 256 << 10, TELL_NS = 100000000 };

/* ---- what a file holds -------------------------------------------------------------------------
 */

#if defined(PSTI_HAVE_BUCKET)
typedef EVP_MD_CTX md5_state;
static md5_state *md5_begin(void)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (c && EVP_DigestInit_ex(c, EVP_md5(), NULL) == 1)
        return c;
    EVP_MD_CTX_free(c);
    return NULL;
}
static void md5_add(md5_state *c, const void *bytes, size_t count)
{
    EVP_DigestUpdate(c, bytes, count);
}
static void md5_end(md5_state *c, char hex[33])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    hex[0] = 0;
    if (EVP_DigestFinal_ex(c, sum, &len) == 1 && len == 16)
        for (int i = 0; i < 16; i++)
            snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    EVP_MD_CTX_free(c);
}
#else
typedef int md5_state;
static md5_state *md5_begin(void)
{
    return NULL;
}
static void md5_add(md5_state *c, const void *bytes, size_t count)
{
    (void)c;
    (void)bytes;
    (void)count;
}
static void md5_end(md5_state *c, char hex[33])
{
    (void)c;
    hex[0] = 0;
}
#endif

static int read_piece(int fd, uint8_t *piece, size_t want, uint64_t at)
{
    for (size_t got = 0; got < want;) {
        const ssize_t n = pread(fd, piece + got, want - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : PST_ECORRUPT;
        got += (size_t)n;
    }
    return 0;
}

int digest_file(int fd, uint64_t size, uint32_t *crc, uint32_t *sums, char md5[33])
{
    uint8_t *piece = psti_malloc(PSTI_MEM_DEPOT, PIECE);
    md5_state *state = md5 ? md5_begin() : NULL;
    int rc = piece ? 0 : -ENOMEM;
    *crc = 0;
    for (uint64_t at = 0; rc == 0 && at < size;) {
        const size_t want = size - at < PIECE ? (size_t)(size - at) : PIECE;
        rc = read_piece(fd, piece, want, at);
        if (rc < 0)
            break;
        *crc = pst_crc32c(*crc, piece, want);
        for (size_t block = 0; sums && block < want; block += PSTI_DEPOT_BLOCK)
            *sums++ = pst_crc32c(0, piece + block,
                                 want - block < PSTI_DEPOT_BLOCK ? want - block : PSTI_DEPOT_BLOCK);
        if (state)
            md5_add(state, piece, want);
        at += want;
    }
    if (md5)
        md5[0] = 0;
    if (state)
        md5_end(state, md5);
    psti_free(piece);
    return rc;
}

/* The etag of an object that was uploaded in one piece is the MD5 of its bytes; one with a '-' is
 * something else. */
static bool etag_is_md5(const char *etag, char out[33])
{
    if (strlen(etag) != 34 || etag[0] != '"' || etag[33] != '"' ||
        strspn(etag + 1, "0123456789abcdefABCDEF") != 32)
        return false;
    for (int i = 0; i < 32; i++) {
        const char c = etag[1 + i];
        out[i] = c >= 'A' && c <= 'F' ? (char)(c + 'a' - 'A') : c;
    }
    out[32] = 0;
    return true;
}

/* ---- one object --------------------------------------------------------------------------------
 */

typedef struct filling {
    puller *p;
    int fd, failed; /* -errno of the disk */
} filling;

static int fill(void *user, uint64_t at, const uint8_t *bytes, size_t count)
{
    filling *f = user;
    if (atomic_load_explicit(&f->p->stop, memory_order_relaxed))
        return 1;
    f->failed = write_at(f->fd, bytes, count, at);
    if (f->failed)
        return 1;
    atomic_fetch_add_explicit(&f->p->bytes_fetched, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->p->bytes_done, count, memory_order_relaxed);
    return 0;
}

/* The rest of the object behind what is there. What it had counts as done. */
static int fill_part(puller *p, const object *o, int fd, pst_error *err)
{
    struct stat st;
    const char *key = object_key(&p->objects, o);
    if (fstat(fd, &st) != 0)
        return psti_fail(err, -errno, "pull", key, "%s", strerror(errno));
    uint64_t have = (uint64_t)st.st_size;
    if (have > o->size || !*object_etag(&p->objects, o)) { /* nothing says that it is the same */
        if (ftruncate(fd, 0) != 0)
            return psti_fail(err, -errno, "pull", key, "%s", strerror(errno));
        have = 0;
    }
    atomic_fetch_add(&p->bytes_done, have);
    filling f = {.p = p, .fd = fd};
    const stretch rest = {have, o->size};
    const int rc =
        have < o->size ? p->from->ops->get(p->from, &p->objects, o, rest, fill, &f, err) : 0;
    if (f.failed)
        return psti_fail(err, f.failed, "pull", key, "cannot be written: %s", strerror(-f.failed));
    if (rc == 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size != o->size)
        return psti_fail(err, PST_ECORRUPT, "pull", key, "%lld bytes came, not %llu",
                         (long long)st.st_size, (unsigned long long)o->size);
    return rc;
}

/* All of it is read again, so a part that another process began needs no checksums of its own. */
static int check_part(const puller *p, object *o, int fd, pst_error *err)
{
    char wanted[33], found[33] = "";
    const bool md5 = !p->opts.opaque_etags && etag_is_md5(object_etag(&p->objects, o), wanted);
    uint32_t *sums = blocks_room(o);
    int rc = sums ? digest_file(fd, o->size, &o->crc, sums, md5 ? found : NULL) : -ENOMEM;
    if (rc == 0 && blocks_put(p->blocks, o, sums) < 0)
        rc = -EIO;
    psti_free(sums);
    if (rc < 0)
        return psti_fail(err, rc, "pull", object_key(&p->objects, o), "cannot be read back");
    if (md5 && found[0] && strcmp(found, wanted) != 0)
        return psti_fail(err, PST_ECORRUPT, "pull", object_key(&p->objects, o),
                         "the bytes do not have the MD5 that the etag says; where etags are "
                         "something else, opaque_etags (--opaque-etags) says so");
    return 0;
}

/* From parts to its name, once its bytes are on the disk. */
static int place(puller *p, object *o, const char *part, int fd, pst_error *err)
{
    const char *key = object_key(&p->objects, o), *leaf;
    const int dir = dir_of_key(p->data, key, true, &leaf);
    int rc = dir < 0 ? dir : 0;
    if (rc == 0 &&
        (fchmod(fd, 0444) != 0 || fsync(fd) != 0 || renameat(p->parts, part, dir, leaf) != 0))
        rc = -errno;
    if (dir >= 0)
        close(dir);
    return rc < 0 ? psti_fail(err, rc, "pull", key, "cannot be placed: %s", strerror(-rc)) : 0;
}

static int fetch_once(puller *p, object *o, pst_error *err)
{
    char part[16];
    const uint64_t begin = psti_now_ns();
    snprintf(part, sizeof part, "%x", o->number);
    const int fd = openat(p->parts, part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return psti_fail(err, -errno, "pull", object_key(&p->objects, o), "%s", strerror(errno));
    int rc = fill_part(p, o, fd, err);
    if (rc == 0)
        rc = check_part(p, o, fd, err);
    if (rc == PST_ECORRUPT) {
        unlinkat(p->parts, part, 0);
        struct stat st;
        if (fstat(fd, &st) == 0)
            atomic_fetch_sub(&p->bytes_done, (uint64_t)st.st_size);
    }
    if (rc == 0)
        rc = place(p, o, part, fd, err);
    close(fd);
    if (rc < 0)
        return rc;
    const uint64_t us = (psti_now_ns() - begin) / 1000 / (uint64_t)p->opts.connections;
    o->took_us = us > UINT32_MAX ? UINT32_MAX : us ? (uint32_t)us : 1;
    rc = done_append(p->done, o);
    if (rc < 0)
        return psti_fail(err, rc, "pull", object_key(&p->objects, o), "%s", strerror(-rc));
    o->known = true;
    atomic_fetch_add(&p->objects_done, 1);
    return 0;
}

/* ---- threads -----------------------------------------------------------------------------------
 */

static void note_failure(puller *p, int rc, const pst_error *why)
{
    pthread_mutex_lock(&p->guard);
    if (p->rc == 0) {
        p->rc = rc;
        if (p->err)
            *p->err = *why;
    }
    pthread_mutex_unlock(&p->guard);
    atomic_store(&p->stop, true);
    p->from->ops->stop(p->from);
}

static void *fetch_thread(void *user)
{
    puller *p = user;
    pst_error why;
    while (!atomic_load(&p->stop)) {
        const size_t i = atomic_fetch_add(&p->next, 1);
        if (i >= p->objects.count)
            break;
        object *o = &p->objects.objects[i];
        if (o->known || o->left)
            continue;
        psti_error_clear(&why);
        int rc = fetch_once(p, o, &why);
        if (rc == PST_ECORRUPT && !atomic_load(&p->stop)) /* once more, from the first byte */
            rc = fetch_once(p, o, &why);
        if (rc < 0)
            note_failure(p, rc, &why);
    }
    pthread_mutex_lock(&p->guard);
    p->running--;
    pthread_cond_signal(&p->ended);
    pthread_mutex_unlock(&p->guard);
    return NULL;
}

static int start_threads(puller *p, pthread_t *threads, int most)
{
    sigset_t all, old;
    int started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_mutex_lock(&p->guard);
    while (started < most && pthread_create(&threads[started], NULL, fetch_thread, p) == 0)
        started++;
    p->running = started;
    pthread_mutex_unlock(&p->guard);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

/* The calling thread tells how it goes until the last one ends. */
static void wait_for_end(puller *p)
{
    pthread_mutex_lock(&p->guard);
    while (p->running > 0) {
        const struct timespec until = psti_timespec_ns(psti_now_ns() + TELL_NS);
        const int woken = pthread_cond_clockwait(&p->ended, &p->guard, CLOCK_MONOTONIC, &until);
        if (woken != ETIMEDOUT || atomic_load(&p->stop))
            continue;
        pthread_mutex_unlock(&p->guard);
        if (pull_tell(p) < 0) {
            pst_error why;
            psti_fail(&why, -ECANCELED, "pull", p->name, "stopped; what came stays");
            note_failure(p, -ECANCELED, &why);
        }
        pthread_mutex_lock(&p->guard);
    }
    pthread_mutex_unlock(&p->guard);
}

int fetch_all(puller *p, pst_error *err)
{
    pthread_t threads[CONNECTIONS_MOST];
    p->rc = 0;
    p->err = err;
    atomic_store(&p->next, 0);
    atomic_store(&p->stop, false);
    p->from->others = p->opts.connections - 1;
    const int count = start_threads(p, threads, p->opts.connections);
    if (count == 0)
        return psti_fail(err, -EAGAIN, "pull", p->name, "no thread can be started");
    wait_for_end(p);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return p->rc;
}
