/* SPDX-License-Identifier: Apache-2.0
 * Packets to events, segments to batches: see channel.h for who calls what. */
#include "serve/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/status.h"

/* ---- waiting for packets --------------------------------------------------------------------- */

/* 0: something came; -ETIMEDOUT, -ECANCELED. */
static int wait_for(const channel *ch, int64_t timeout_ns)
{
    struct pollfd fds[2] = {{ch->sock, POLLIN, 0}, {ch->event, POLLIN, 0}};
    const struct timespec limit = psti_timespec_ns(timeout_ns < 0 ? 0 : (uint64_t)timeout_ns);
    const int n = ppoll(fds, 2, timeout_ns < 0 ? NULL : &limit, NULL);
    if (atomic_load(&ch->aborted))
        return -ECANCELED;
    return n == 0 ? -ETIMEDOUT : 0;
}

int channel_receive(channel *ch, int64_t timeout_ns, wire_mail *mail)
{
    const uint64_t begun = psti_now_ns();
    for (;;) {
        if (atomic_load(&ch->aborted))
            return -ECANCELED;
        int rc = ch->sock < 0 ? -EPIPE : wire_receive(ch->sock, ch->version, mail);
        if (rc == 0)
            return 0;
        if (rc != -EAGAIN)
            return PSTI_LINK_GONE;
        int64_t left = -1;
        if (timeout_ns >= 0) {
            const uint64_t spent = psti_now_ns() - begun;
            left = spent < (uint64_t)timeout_ns ? timeout_ns - (int64_t)spent : 0;
        }
        rc = wait_for(ch, left);
        if (rc < 0)
            return rc;
    }
}

/* ---- segments and batches -------------------------------------------------------------------- */

int channel_map(channel *ch, uint32_t id, int fd, size_t bytes, bool once)
{
    enum { IDS_MOST = 1 << 16 };
    struct stat st;
    if (fd < 0 || id >= IDS_MOST || fstat(fd, &st) || (uint64_t)st.st_size < bytes || bytes == 0)
        return -EPROTO;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    int rc = 0;
    pthread_mutex_lock(&ch->lock);
    if (id >= ch->segment_cap) {
        const uint32_t cap = id < 16 ? 32 : 2 * id;
        mapped *larger = psti_realloc(PSTI_MEM_SERVE, ch->segments, cap, sizeof *larger);
        if (larger) {
            memset(larger + ch->segment_cap, 0, (cap - ch->segment_cap) * sizeof *larger);
            ch->segments = larger;
            ch->segment_cap = cap;
        } else {
            rc = -ENOMEM;
        }
    }
    if (rc == 0 && ch->segments[id].base)
        rc = -EPROTO;
    if (rc == 0)
        ch->segments[id] = (mapped){base, bytes, once};
    pthread_mutex_unlock(&ch->lock);
    if (rc < 0)
        munmap(base, bytes);
    return rc;
}

void channel_free(channel *ch)
{
    psti_fork_guard_remove(&ch->forks);
    if (ch->sock >= 0)
        close(ch->sock);
    if (ch->event >= 0)
        close(ch->event);
    for (uint32_t i = 0; i < ch->segment_cap; i++)
        if (ch->segments[i].base)
            munmap(ch->segments[i].base, ch->segments[i].bytes);
    psti_free(ch->segments);
    psti_free(ch->unsent);
    psti_free(ch->positions);
    psti_free(ch->valid);
    pthread_mutex_destroy(&ch->lock);
    psti_free(ch);
}

static void keep_unsent_locked(channel *ch, uint32_t id)
{
    if (ch->unsent_count == ch->unsent_cap) {
        const uint32_t cap = ch->unsent_cap ? 2 * ch->unsent_cap : 16;
        uint32_t *larger = psti_realloc(PSTI_MEM_SERVE, ch->unsent, cap, sizeof *larger);
        if (!larger) {
            ch->gone = true; /* the daemon would wait for the segment for ever */
            shutdown(ch->sock, SHUT_RDWR);
            return;
        }
        ch->unsent = larger;
        ch->unsent_cap = cap;
    }
    ch->unsent[ch->unsent_count++] = id;
}

static void send_locked(channel *ch, const wire_packet *p)
{
    const int rc = ch->gone || ch->sock < 0 ? 0 : wire_send(ch->sock, p, NULL, 0);
    if (rc == -EAGAIN && p->head.kind == WIRE_RELEASE)
        keep_unsent_locked(ch, p->release.segment);
    else if (rc < 0)
        ch->gone = true;
}

static void release_locked(channel *ch, uint32_t id)
{
    wire_packet p;
    if (ch->segments[id].once) {
        munmap(ch->segments[id].base, ch->segments[id].bytes);
        ch->segments[id] = (mapped){0};
    }
    wire_init(&p, ch->version, WIRE_RELEASE, ch->generation);
    p.release.segment = id;
    send_locked(ch, &p);
}

static void send_unsent(channel *ch)
{
    pthread_mutex_lock(&ch->lock);
    const uint32_t count = ch->unsent_count;
    ch->unsent_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        wire_packet p;
        wire_init(&p, ch->version, WIRE_RELEASE, ch->generation);
        p.release.segment = ch->unsent[i];
        send_locked(ch, &p);
    }
    pthread_mutex_unlock(&ch->lock);
}

/* A batch of the ring or of a segment for once: its place is its segment's. */
static void on_release(void *user, void *base, size_t bytes)
{
    (void)bytes;
    channel *ch = user;
    if (ch->pid != getpid())
        return;
    pthread_mutex_lock(&ch->lock);
    uint32_t id = 0;
    while (id < ch->segment_cap && ch->segments[id].base != base)
        id++;
    if (id < ch->segment_cap)
        release_locked(ch, id);
    const bool last = --ch->refs == 0;
    pthread_mutex_unlock(&ch->lock);
    if (last)
        channel_free(ch);
}

static void on_release_copy(void *user, void *base, size_t bytes)
{
    (void)user;
    psti_pages_free(PSTI_MEM_SERVE, base, bytes);
}

/* The daemon holds no more for us: the batch goes to memory of our own. */
static int copy_out(channel *ch, const wire_batch *b, uint8_t *base, pst_batch **out)
{
    void *copy = psti_pages_alloc(PSTI_MEM_SERVE, b->bytes);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, base, b->bytes);
    const psti_guest guest = {copy, b->bytes, on_release_copy, NULL};
    const int rc = psti_batch_guest(&guest, out);
    if (rc < 0)
        psti_pages_free(PSTI_MEM_SERVE, copy, b->bytes);
    pthread_mutex_lock(&ch->lock);
    release_locked(ch, b->segment);
    pthread_mutex_unlock(&ch->lock);
    return rc;
}

static int hand_out(channel *ch, const wire_batch *b, uint8_t *base, pst_batch **out)
{
    const psti_guest guest = {base, b->bytes, on_release, ch};
    const int rc = psti_batch_guest(&guest, out);
    pthread_mutex_lock(&ch->lock);
    if (rc == 0)
        ch->refs++;
    else
        release_locked(ch, b->segment);
    pthread_mutex_unlock(&ch->lock);
    return rc;
}

/* ---- events ---------------------------------------------------------------------------------- */

static int read_receipt(channel *ch, const wire_batch *b, const uint8_t *base, psti_receipt *out)
{
    if (b->slots < 0 || b->slots > ch->batch || b->pads < 0 || b->pads > b->slots)
        return -EPROTO;
    *out = (psti_receipt){
        .epoch = b->epoch, .steps = b->steps, .share_end = b->share_end, .slots = b->slots};
    out->positions = ch->positions;
    out->valid = ch->valid;
    for (int i = 0; !ch->ready && i < b->slots; i++) {
        ch->positions[i] = 0; /* strict: only their number counts */
        ch->valid[i] = i < b->slots - b->pads;
    }
    for (int i = 0; ch->ready && i < b->slots; i++) {
        int64_t p;
        memcpy(&p, base + b->positions + (size_t)i * sizeof p, sizeof p);
        ch->valid[i] = p >= 0;
        ch->positions[i] = p >= 0 ? p : -1 - p;
    }
    return 0;
}

static int place_of(channel *ch, wire_mail *mail, uint8_t **base)
{
    const wire_batch *b = &mail->packet.batch;
    const int fd = wire_take(mail, 0);
    if (fd >= 0) {
        const int rc = channel_map(ch, b->segment, fd, b->segment_bytes, b->flags & WIRE_ONCE);
        close(fd);
        if (rc < 0)
            return rc;
    }
    const mapped *m = b->segment < ch->segment_cap ? &ch->segments[b->segment] : NULL;
    const uint64_t tail = ch->ready ? (uint64_t)ch->batch * sizeof(int64_t) : 0;
    if (!m || !m->base || b->offset != 0 || b->bytes < sizeof(pst_batch_desc) ||
        b->bytes > m->bytes || b->positions > m->bytes || tail > m->bytes - b->positions)
        return -EPROTO;
    *base = m->base;
    return 0;
}

static int on_batch(channel *ch, wire_mail *mail, psti_link_event *out)
{
    const wire_batch *b = &mail->packet.batch;
    uint8_t *base;
    int rc = place_of(ch, mail, &base);
    if (rc < 0)
        return PSTI_LINK_GONE;
    if (b->head.generation != ch->generation) { /* void: it was on its way at a restart */
        pthread_mutex_lock(&ch->lock);
        release_locked(ch, b->segment);
        pthread_mutex_unlock(&ch->lock);
        return 1;
    }
    if (read_receipt(ch, b, base, &out->receipt) < 0)
        return PSTI_LINK_GONE;
    const pst_batch_desc *desc = (const pst_batch_desc *)base;
    if (desc->magic != PST_BATCH_MAGIC || desc->version != PST_BATCH_VERSION)
        return PSTI_LINK_GONE;
    rc = b->flags & WIRE_COPY ? copy_out(ch, b, base, &out->batch)
                              : hand_out(ch, b, base, &out->batch);
    if (rc < 0) {
        psti_fail(&out->error, rc, "batch", NULL, "no memory for a batch of %.1f MiB",
                  (double)b->bytes / 0x1p20);
        return rc;
    }
    pthread_mutex_lock(&ch->lock);
    ch->stats = b->stats;
    pthread_mutex_unlock(&ch->lock);
    out->kind = PSTI_LINK_BATCH;
    return 0;
}

/* 0: an event; 1: nothing for the consumer; negative: the end, or the job's error. */
static int on_mail(channel *ch, wire_mail *mail, psti_link_event *out)
{
    const wire_packet *p = &mail->packet;
    if (p->head.kind == WIRE_BATCH)
        return on_batch(ch, mail, out);
    if (p->head.generation != ch->generation)
        return 1;
    if (p->head.kind == WIRE_END) {
        out->kind = PSTI_LINK_END;
        out->epoch = p->end.epoch;
        return 0;
    }
    if (p->head.kind == WIRE_SKIP) {
        out->kind = PSTI_LINK_SKIP;
        out->epoch = p->skip.epoch;
        out->position = p->skip.position;
        out->share = p->skip.share;
        out->error = p->skip.error;
        return 0;
    }
    if (p->head.kind != WIRE_FAILED || p->failed.error.code >= 0)
        return PSTI_LINK_GONE;
    out->error = p->failed.error;
    return p->failed.error.code;
}

static void credit(channel *ch, uint32_t count, uint64_t wait_ns)
{
    wire_packet p;
    wire_init(&p, ch->version, WIRE_CREDIT, ch->generation);
    p.credit.count = count;
    p.credit.wait_ns = wait_ns;
    pthread_mutex_lock(&ch->lock);
    send_locked(ch, &p);
    pthread_mutex_unlock(&ch->lock);
}

int channel_next(void *job, int64_t timeout_ns, psti_link_event *out)
{
    channel *ch = job;
    int rc = 1;
    if (!ch->begun)
        credit(ch, WIRE_AHEAD, 0);
    ch->begun = true;
    send_unsent(ch);
    while (rc == 1) {
        wire_mail mail;
        psti_error_clear(&out->error);
        rc = channel_receive(ch, timeout_ns, &mail);
        if (rc < 0)
            break;
        rc = on_mail(ch, &mail, out);
        wire_drop(&mail);
    }
    if (rc == PSTI_LINK_GONE) {
        pthread_mutex_lock(&ch->lock);
        ch->gone = true;
        pthread_mutex_unlock(&ch->lock);
    }
    return rc;
}

void channel_handed(void *job, uint64_t wait_ns)
{
    credit(job, 1, wait_ns);
}

void channel_abort(void *job)
{
    channel *ch = job;
    const uint64_t one = 1;
    atomic_store(&ch->aborted, true);
    const ssize_t n = write(ch->event, &one, sizeof one);
    (void)n;
}

int channel_restart(void *job, uint64_t epoch, const void *state, size_t bytes)
{
    channel *ch = job;
    const int fd = bytes ? wire_blob("penstock-state", state, bytes) : -1;
    if (bytes && fd < 0)
        return fd;
    wire_packet p;
    pthread_mutex_lock(&ch->lock);
    wire_init(&p, ch->version, WIRE_RESTART, ++ch->generation);
    p.restart.epoch = epoch;
    p.restart.bytes = bytes;
    int rc = ch->gone ? PSTI_LINK_GONE : wire_send(ch->sock, &p, &fd, fd >= 0);
    if (rc < 0) { /* also when the socket is full: then nobody reads it */
        ch->gone = true;
        shutdown(ch->sock, SHUT_RDWR);
        rc = PSTI_LINK_GONE;
    }
    ch->begun = false;
    pthread_mutex_unlock(&ch->lock);
    if (fd >= 0)
        close(fd);
    return rc;
}

void channel_stats(void *job, pst_job_stats *out)
{
    channel *ch = job;
    pthread_mutex_lock(&ch->lock);
    const wire_stats s = ch->stats;
    pthread_mutex_unlock(&ch->lock);
    wire_stats_get(&s, out);
}

bool channel_facts(void *job, psti_feed_facts *out)
{
    channel *ch = job;
    pthread_mutex_lock(&ch->lock);
    *out = ch->stats.facts;
    pthread_mutex_unlock(&ch->lock);
    return out->workers > 0;
}

int channel_memory(void *job, int index, void **base, size_t *bytes)
{
    channel *ch = job;
    int rc = -ENOENT;
    pthread_mutex_lock(&ch->lock);
    for (uint32_t i = 0; index >= 0 && i < ch->segment_cap; i++) {
        const mapped *m = &ch->segments[i];
        if (!m->base || m->once || index-- > 0)
            continue;
        *base = m->base;
        *bytes = m->bytes;
        rc = 0;
    }
    pthread_mutex_unlock(&ch->lock);
    return rc;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

/* In a forked child: the daemon must see the end of this process, not of its children. */
static void close_in_child(void *arg)
{
    channel *ch = arg;
    close(ch->sock);
    close(ch->event);
    ch->sock = ch->event = -1;
    ch->gone = true;
}

channel *channel_new(int sock)
{
    channel *ch = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *ch);
    if (!ch) {
        close(sock);
        return NULL;
    }
    ch->pid = getpid();
    ch->sock = sock;
    ch->refs = 1;
    pthread_mutex_init(&ch->lock, NULL);
    ch->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    psti_fork_guard_add(&ch->forks, &ch->lock, close_in_child, ch);
    return ch;
}

void channel_close(void *job)
{
    channel *ch = job;
    pthread_mutex_lock(&ch->lock);
    ch->gone = true;
    if (ch->sock >= 0)
        close(ch->sock); /* batches that are held stay mapped */
    ch->sock = -1;
    const bool last = --ch->refs == 0;
    pthread_mutex_unlock(&ch->lock);
    if (last)
        channel_free(ch);
}
