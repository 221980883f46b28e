/* SPDX-License-Identifier: Apache-2.0
 * Memory for batches that the client maps, too: memfds that nobody can resize. The client may write
 * to what he has mapped; nothing here or in the scheduler reads it back. Hooks are called by
 * workers under the pool's lock, the rest by the loop. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "serve/server.h"

enum { SEGMENTS_MOST = 8192, EXTRA_MOST = 256 };

static bool grow_locked(conn *c)
{
    const uint32_t cap = c->segment_cap ? 2 * c->segment_cap : 16;
    if (cap > SEGMENTS_MOST)
        return false;
    segment **larger = psti_realloc(PSTI_MEM_SERVE, c->segments, cap, sizeof *larger);
    if (!larger)
        return false;
    memset(larger + c->segment_cap, 0, (cap - c->segment_cap) * sizeof *larger);
    c->segments = larger;
    c->segment_cap = cap;
    return true;
}

static bool put_locked(conn *c, segment *seg)
{
    uint32_t id = 0;
    while (id < c->segment_cap && c->segments[id])
        id++;
    if (id == c->segment_cap && !grow_locked(c))
        return false;
    c->extra_bytes += seg->once ? seg->bytes : 0;
    c->extra_count += seg->once;
    c->segments[id] = seg;
    return true;
}

static void segment_free(segment *seg)
{
    if (!seg)
        return;
    if (seg->base)
        munmap(seg->base, seg->bytes);
    if (seg->fd >= 0)
        close(seg->fd);
    psti_free(seg);
}

/* The pages are taken at once: later there would be nobody to tell that there are none. */
static int make(segment *seg)
{
    seg->fd = memfd_create("penstock-batch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (seg->fd < 0 || fallocate(seg->fd, 0, 0, (off_t)seg->bytes) ||
        fcntl(seg->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return -errno;
    void *base = mmap(NULL, seg->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, seg->fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    seg->base = base;
    return 0;
}

void *segment_take(void *user, size_t bytes, bool ring)
{
    conn *c = user;
    const bool ready = c->spec.options.order == PST_ORDER_READY;
    const size_t tail = ready ? (size_t)c->spec.options.batch * sizeof(int64_t) : 0;
    segment *seg = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *seg);
    if (!seg)
        return NULL;
    seg->fd = -1;
    seg->batch = bytes;
    seg->once = !ring;
    seg->bytes = (bytes + 7) / 8 * 8 + tail;
    bool ok = make(seg) == 0;
    if (ok) {
        pthread_mutex_lock(&c->lock);
        ok = put_locked(c, seg);
        pthread_mutex_unlock(&c->lock);
    }
    if (ok)
        return seg->base;
    segment_free(seg);
    return NULL;
}

static segment *find_locked(conn *c, const void *base, uint32_t *id)
{
    for (uint32_t i = 0; i < c->segment_cap; i++)
        if (c->segments[i] && c->segments[i]->base == base) {
            *id = i;
            return c->segments[i];
        }
    return NULL;
}

void segment_give(void *user, void *base, size_t bytes)
{
    (void)bytes;
    conn *c = user;
    uint32_t id;
    pthread_mutex_lock(&c->lock);
    segment *seg = find_locked(c, base, &id);
    if (seg) {
        if (seg->charged)
            psti_budget_give(psti_engine_budget(c->server->engine), seg->bytes);
        c->segments[id] = NULL;
        c->extra_bytes -= seg->once ? seg->bytes : 0;
        c->extra_count -= seg->once;
    }
    pthread_mutex_unlock(&c->lock);
    segment_free(seg);
}

segment *segment_find(conn *c, const void *base, uint32_t *id)
{
    pthread_mutex_lock(&c->lock);
    segment *seg = find_locked(c, base, id);
    pthread_mutex_unlock(&c->lock);
    return seg;
}

segment *segment_at(conn *c, uint32_t id)
{
    pthread_mutex_lock(&c->lock);
    segment *seg = id < c->segment_cap ? c->segments[id] : NULL;
    pthread_mutex_unlock(&c->lock);
    return seg;
}

uint32_t segment_count(conn *c)
{
    pthread_mutex_lock(&c->lock);
    const uint32_t count = c->segment_cap;
    pthread_mutex_unlock(&c->lock);
    return count;
}

bool segment_charge(conn *c, segment *seg)
{
    pthread_mutex_lock(&c->lock);
    const bool beyond = c->extra_bytes > c->server->client_cap || c->extra_count > EXTRA_MOST;
    seg->charged = !beyond && psti_budget_try(psti_engine_budget(c->server->engine), seg->bytes);
    pthread_mutex_unlock(&c->lock);
    return seg->charged;
}

void segment_free_all(conn *c)
{
    for (uint32_t i = 0; i < c->segment_cap; i++)
        segment_free(c->segments[i]);
    psti_free(c->segments);
    c->segments = NULL;
    c->segment_cap = 0;
}
