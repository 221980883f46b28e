/* SPDX-License-Identifier: Apache-2.0
 * Reading through io_uring. One I/O thread owns the ring; others hand reads over through a list.
 * What the kernel has at hand (the path in its cache, the bytes in the page cache) is taken by
 * plain calls that cannot wait, which is cheaper than going round the ring; everything that would
 * wait for a disk goes through the ring, up to `depth` at a time. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/memory.h"
#include "source/crew.h"
#include "source/paths.h"
#include "source/reader_priv.h"

/* A read that is under way in the ring: opening first, if it has no fd, then reading until all is
 * there. */
typedef struct slot {
    psti_read *read;
    int fd; /* -1 while it is being opened */
    uint64_t got;
    struct open_how how;
    char *path; /* room for one of a list of files; the kernel reads it when the entry is sent */
    psti_frame frame; /* its edges stay the slot's */
    struct iovec piece[3];
    struct slot *next_free;
} slot;

enum { WAIT_NOT, WAIT_COND, WAIT_RING };
enum { BURST = 32 }; /* reads begun before completions are looked at */

typedef struct ring {
    pthread_mutex_t lock; /* guards queue, waiting, closed */
    pthread_cond_t more;
    psti_read_list queue;
    int waiting; /* how the I/O thread sleeps, so that it is woken the right way */
    bool closed;

    /* The I/O thread's own. */
    struct io_uring uring;
    psti_read_list backlog; /* taken from the queue, not begun */
    slot *slots, *free_slots;
    char *paths; /* of the slots */
    int depth;
    int busy;   /* slots in the ring */
    bool armed; /* a read of the eventfd is in the ring */
    uint64_t wakeups;

    int wake; /* eventfd */
    pthread_t thread;
} ring;

/* Set by tests before reads are submitted; stands alone. Pieces are small then, so that going on
 * after one is tested, too. */
static atomic_bool ring_only;
enum { TEST_PIECE = 64 * 1024 };

void psti_reader_uring_ring_only(bool only)
{
    atomic_store(&ring_only, only);
}

/* ---- one read ------------------------------------------------------------------------------- */

/* As many bytes as can be had without waiting. 1 = all, 0 = the rest needs the ring, or a negative
 * code. */
static int read_cached(const psti_frame *f, int fd, uint64_t *got)
{
    const uint64_t all = psti_frame_bytes(f);
    struct iovec piece[3];
    while (*got < all) {
        const int pieces = psti_frame_rest(f, *got, PSTI_READ_PIECE, piece);
        const ssize_t n = preadv2(fd, piece, pieces, (off_t)(f->at + *got), RWF_NOWAIT);
        if (n == 0)
            return PST_ECHANGED;
        if (n < 0)
            return errno == EAGAIN || errno == EOPNOTSUPP || errno == EINTR ? 0 : -errno;
        *got += (uint64_t)n;
    }
    return 1;
}

static slot *take_slot(ring *r, psti_read *read, int fd, uint64_t got)
{
    slot *s = r->free_slots;
    r->free_slots = s->next_free;
    r->busy++;
    *s = (slot){.read = read, .fd = fd, .got = got, .path = s->path, .frame = s->frame};
    return s;
}

/* What is to be read, in the slot that is taken next. Room for edges is made once it is needed. */
static psti_frame *frame_next(const ring *r, const psti_read *read)
{
    psti_frame *f = &r->free_slots->frame;
    uint8_t *edges = f->edges;
    psti_frame_set(f, &read->at, read->at.offset, read->at.length, read->buf);
    f->edges = edges;
    if (!edges && f->lead_bytes + f->trail_bytes > 0)
        f->edges = psti_malloc(PSTI_MEM_SOURCE, PSTI_EDGES_BYTES);
    return f->edges || f->lead_bytes + f->trail_bytes == 0 ? f : NULL;
}

static void finish(ring *r, slot *s, int status)
{
    psti_read *read = s->read;
    if (s->fd >= 0)
        psti_extent_close(&read->at, s->fd);
    s->next_free = r->free_slots;
    r->free_slots = s;
    r->busy--;
    read->done(read, status);
}

/* There are more entries than slots, so there is always one free. */
static void queue_open(ring *r, slot *s)
{
    const psti_extent *at = &s->read->at;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    s->how = (struct open_how){.flags = PSTI_OPEN_FLAGS | O_CLOEXEC,
                               .resolve = at->list ? 0 : RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    if (at->list)
        psti_paths_get(at->list, at->number, s->path);
    io_uring_prep_openat2(sqe, at->root, at->list ? s->path : at->path, &s->how);
    io_uring_sqe_set_data(sqe, s);
}

static void queue_read(ring *r, slot *s)
{
    const uint64_t most =
        atomic_load_explicit(&ring_only, memory_order_relaxed) ? TEST_PIECE : PSTI_READ_PIECE;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    const int pieces = psti_frame_rest(&s->frame, s->got, most, s->piece);
    if (pieces == 1)
        io_uring_prep_read(sqe, s->fd, s->piece[0].iov_base, (unsigned)s->piece[0].iov_len,
                           s->frame.at + s->got);
    else
        io_uring_prep_readv(sqe, s->fd, s->piece, (unsigned)pieces, s->frame.at + s->got);
    io_uring_sqe_set_data(sqe, s);
}

/* A file opened without blocking would be read without waiting, too: from here on waiting is what
 * we want. */
static void start_reading(ring *r, slot *s)
{
    if (s->read->at.shard_fd < 0)
        fcntl(s->fd, F_SETFL, 0);
    queue_read(r, s);
}

/* Begins a read; it is either done at once or in a slot afterwards. */
static void begin(ring *r, psti_read *read)
{
    int fd;
    uint64_t got = 0;
    if (read->at.bucket) { /* there is nothing to ask for, or it could not be sent */
        read->done(read, read->at.length ? -ENOMEM : 0);
        return;
    }
    const psti_frame *f = frame_next(r, read);
    if (!f) {
        read->done(read, -ENOMEM);
        return;
    }
    const bool shortcut = !atomic_load_explicit(&ring_only, memory_order_relaxed);
    int rc = shortcut || read->at.shard_fd >= 0 ? psti_extent_open(&read->at, true, &fd) : -EAGAIN;
    if (rc == -EAGAIN && psti_have_openat2()) {
        /* The path is checked before it is handed to the kernel, as psti_open_beneath does. */
        if (!read->at.list && psti_key_fault(read->at.path, strlen(read->at.path)))
            read->done(read, -EINVAL);
        else
            queue_open(r, take_slot(r, read, -1, 0));
        return;
    }
    if (rc == -EAGAIN || rc == -EINVAL) /* no openat2, or none that knows RESOLVE_CACHED */
        rc = psti_extent_open(&read->at, false, &fd);
    if (!rc) {
        rc = shortcut || read->at.length == 0 ? read_cached(f, fd, &got) : 0;
        if (rc == 0) {
            start_reading(r, take_slot(r, read, fd, got));
            return;
        }
        psti_extent_close(&read->at, fd);
    }
    read->done(read, rc < 0 ? rc : psti_frame_compare(f, &read->at));
}

static void opened(ring *r, slot *s, int res)
{
    if (res == -EAGAIN ||
        res == -EINTR) /* a rename in the way, or a signal: once more, patiently */
        res = psti_extent_open_path(&s->read->at, false);
    if (res < 0) {
        finish(r, s, psti_extent_open_error(res));
        return;
    }
    s->fd = res;
    const int rc = psti_extent_check(&s->read->at, s->fd);
    if (rc || s->read->at.length == 0)
        finish(r, s, rc);
    else
        start_reading(r, s);
}

static void completed(ring *r, slot *s, int res)
{
    if (s->fd < 0) {
        opened(r, s, res);
        return;
    }
    if (res == 0 || (res < 0 && res != -EINTR && res != -EAGAIN)) {
        finish(r, s, res ? res : PST_ECHANGED);
        return;
    }
    s->got += res > 0 ? (uint64_t)res : 0;
    if (s->got == psti_frame_bytes(&s->frame))
        finish(r, s, psti_frame_compare(&s->frame, &s->read->at));
    else
        queue_read(r, s);
}

/* ---- the I/O thread ---------------------------------------------------------------------------
 */

static void arm(ring *r)
{
    if (r->armed)
        return;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    io_uring_prep_read(sqe, r->wake, &r->wakeups, sizeof r->wakeups, 0);
    io_uring_sqe_set_data(sqe, NULL);
    r->armed = true;
}

static void reap(ring *r)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&r->uring, &cqe) == 0) {
        slot *s = io_uring_cqe_get_data(cqe);
        const int res = cqe->res;
        io_uring_cqe_seen(&r->uring, cqe);
        if (s)
            completed(r, s, res);
        else
            r->armed = false;
    }
}

/* Takes over what was submitted; sleeps when there is nothing to do at all. *wait: nothing can be
 * begun before something in the ring completes. *wakeable: unless it is submitted now. false:
 * closed, and everything is done. */
static bool collect(ring *r, bool *wait, bool *wakeable)
{
    pthread_mutex_lock(&r->lock);
    while (!r->queue.first && !r->busy && !r->backlog.first && !r->closed) {
        r->waiting = WAIT_COND;
        pthread_cond_wait(&r->more, &r->lock);
    }
    if (!r->backlog.first) {
        r->backlog = r->queue;
        r->queue = (psti_read_list){0};
    }
    *wait = r->busy && (!r->backlog.first || !r->free_slots);
    *wakeable = *wait && r->free_slots;
    r->waiting = *wakeable ? WAIT_RING : WAIT_NOT;
    const bool going = r->backlog.first || r->busy;
    pthread_mutex_unlock(&r->lock);
    return going;
}

/* The eventfd's read writes into the ring object: it must be over before that goes. */
static void disarm(ring *r)
{
    const uint64_t one = 1;
    while (r->armed && (write(r->wake, &one, sizeof one) > 0 || errno == EAGAIN)) {
        io_uring_submit_and_wait(&r->uring, 1);
        reap(r);
    }
}

static void *ring_main(void *arg)
{
    ring *r = arg;
    bool wait, wakeable;
    while (collect(r, &wait, &wakeable)) {
        for (int n = 0; n < BURST && r->backlog.first && r->free_slots; n++)
            begin(r, psti_read_list_pop(&r->backlog));
        if (wakeable)
            arm(r);
        if (r->busy || wait)
            io_uring_submit_and_wait(&r->uring, wait ? 1 : 0);
        reap(r);
    }
    disarm(r);
    return NULL;
}

/* ---- the front ------------------------------------------------------------------------------- */

static void ring_submit(void *self, psti_read *read)
{
    ring *r = self;
    const uint64_t one = 1;
    pthread_mutex_lock(&r->lock);
    psti_read_list_push(&r->queue, read);
    const int waiting = r->waiting;
    r->waiting = WAIT_NOT;
    if (waiting == WAIT_COND)
        pthread_cond_signal(&r->more);
    pthread_mutex_unlock(&r->lock);
    if (waiting == WAIT_RING && write(r->wake, &one, sizeof one) < 0)
        return; /* an eventfd that is full has been written to already */
}

static bool has_needed_ops(struct io_uring *uring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(uring);
    const bool ok = probe && io_uring_opcode_supported(probe, IORING_OP_OPENAT2) &&
                    io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    return ok;
}

static int set_up(ring *r, int depth)
{
    struct io_uring_params params = {.flags = IORING_SETUP_COOP_TASKRUN};
    const unsigned entries = (unsigned)depth + 1; /* and the eventfd */
    int rc = io_uring_queue_init_params(entries, &r->uring, &params);
    if (rc == -EINVAL) /* an older kernel */
        rc = io_uring_queue_init(entries, &r->uring, 0);
    if (rc)
        return rc;
    rc = has_needed_ops(&r->uring) ? 0 : -ENOSYS;
    if (!rc)
        rc = psti_thread_start(&r->thread, ring_main, r);
    if (rc)
        io_uring_queue_exit(&r->uring);
    return rc;
}

static void ring_free(ring *r)
{
    if (r->wake >= 0)
        close(r->wake);
    psti_free(r->paths);
    for (int i = 0; i < r->depth && r->slots; i++)
        psti_free(r->slots[i].frame.edges);
    psti_free(r->slots);
    psti_free(r);
}

static void *ring_open(int depth, int *rc)
{
    ring *r = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *r);
    *rc = -ENOMEM;
    if (!r)
        return NULL;
    r->depth = depth;
    r->wake = eventfd(0, EFD_CLOEXEC);
    r->slots = psti_calloc(PSTI_MEM_SOURCE, (size_t)depth, sizeof *r->slots);
    r->paths = psti_calloc(PSTI_MEM_SOURCE, (size_t)depth, PSTI_PATH_ROOM);
    if (r->slots && r->paths)
        *rc = r->wake < 0 ? -errno : 0;
    for (int i = 0; r->slots && r->paths && i < depth; i++) {
        r->slots[i].path = r->paths + (size_t)i * PSTI_PATH_ROOM;
        r->slots[i].next_free = r->free_slots;
        r->free_slots = &r->slots[i];
    }
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->more, NULL);
    if (!*rc)
        *rc = set_up(r, depth);
    if (*rc) {
        ring_free(r);
        return NULL;
    }
    return r;
}

static void ring_close(void *self, bool forked)
{
    ring *r = self;
    if (!forked) {
        pthread_mutex_lock(&r->lock);
        r->closed = true;
        pthread_cond_signal(&r->more);
        pthread_mutex_unlock(&r->lock);
        pthread_join(r->thread, NULL);
        pthread_cond_destroy(&r->more);
        pthread_mutex_destroy(&r->lock);
    }
    io_uring_queue_exit(&r->uring);
    ring_free(r);
}

const psti_reader_ops psti_reader_uring = {ring_open, ring_submit, ring_close};
