/* SPDX-License-Identifier: Apache-2.0
 * Bytes on their way from the thread that receives them, which must not wait, to the one that
 * writes them: a ring of bounded size. The receiver's thread gives, the writer's takes. */
#include <errno.h>
#include <string.h>

#include "depot/depot_priv.h"

enum { LEAST = 1 << 20, TOGETHER = 128 << 20 };
size_t depot_relay_bytes = 8 << 20;

int relay_init(relay *r, uint64_t most, int others, bool waits)
{
    memset(r, 0, sizeof *r);
    size_t share = TOGETHER / (size_t)(others + 1);
    share = share < LEAST ? LEAST : share;
    r->cap = share < depot_relay_bytes ? share : depot_relay_bytes;
    r->cap = most < r->cap ? (size_t)most : r->cap;
    r->waits = waits;
    r->bytes = psti_malloc(PSTI_MEM_DEPOT, r->cap ? r->cap : 1);
    if (!r->bytes)
        return -ENOMEM;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->moved, NULL);
    return 0;
}

void relay_fini(relay *r)
{
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->moved);
    psti_free(r->bytes);
}

/* In one piece or two: the ring has an end. */
static void take_in(relay *r, const uint8_t *bytes, size_t count)
{
    if (r->held == 0) /* as little of the memory as need be is ever touched */
        r->taken = 0;
    const size_t at = (size_t)((r->taken + r->held) % r->cap);
    const size_t first = count < r->cap - at ? count : r->cap - at;
    memcpy(r->bytes + at, bytes, first);
    memcpy(r->bytes, bytes + first, count - first);
    r->held += count;
}

int relay_give(relay *r, const uint8_t *bytes, size_t count)
{
    pthread_mutex_lock(&r->lock);
    while (count > 0 && !r->stopped) {
        const size_t room = r->cap - r->held, now = count < room ? count : room;
        take_in(r, bytes, now);
        bytes += now;
        count -= now;
        pthread_cond_broadcast(&r->moved);
        if (count == 0)
            break;
        if (!r->waits) {
            r->full = true;
            break;
        }
        pthread_cond_wait(&r->moved, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return count > 0;
}

void relay_end(relay *r, int status)
{
    pthread_mutex_lock(&r->lock);
    r->ended = true;
    r->status = status;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

bool relay_take(relay *r, uint64_t *at, bucket_sink sink, void *user)
{
    bool going = true;
    pthread_mutex_lock(&r->lock);
    while (going) {
        while (r->held == 0 && !r->ended)
            pthread_cond_wait(&r->moved, &r->lock);
        if (r->held == 0)
            break;
        const size_t begin = (size_t)(r->taken % r->cap);
        const size_t count = r->held < r->cap - begin ? r->held : r->cap - begin;
        pthread_mutex_unlock(&r->lock);
        going = sink(user, *at, r->bytes + begin, count) == 0;
        pthread_mutex_lock(&r->lock);
        r->taken += count;
        r->held -= count;
        *at += going ? count : 0;
        r->stopped = !going;
        pthread_cond_broadcast(&r->moved);
    }
    pthread_mutex_unlock(&r->lock);
    return going;
}

int relay_wait(relay *r)
{
    pthread_mutex_lock(&r->lock);
    while (!r->ended)
        pthread_cond_wait(&r->moved, &r->lock);
    const int status = r->status;
    pthread_mutex_unlock(&r->lock);
    return status;
}

bool relay_again(relay *r)
{
    const bool full = r->full;
    r->full = r->ended = false;
    r->held = 0;
    return full;
}
