/* SPDX-License-Identifier: Apache-2.0
 * Memory of batches of varying shape. A batch takes what an earlier one left behind where that is
 * large enough and not much larger: fresh pages come from the kernel one by one and zeroed, which
 * takes as long as writing a picture. What waits here for the next batch counts as staged. Not for
 * feeds whose owner brings the memory: it goes to others with its batch. */
#include <errno.h>

#include "sched/sched_priv.h"

enum { SLACK_FROM = 1 << 20 }; /* smaller ones have no room to spare: they are cheap to make */

static pages fresh(const psti_feed *feed, size_t bytes)
{
    const psti_feed_hooks *hooks = &feed->ring->hooks;
    pages p = {.cap = bytes};
    if (!hooks->take && bytes >= SLACK_FROM)
        p.cap += bytes / 8;
    p.base = hooks->take ? hooks->take(hooks->user, bytes, false)
                         : psti_pages_alloc(PSTI_MEM_BATCH, p.cap);
    return p;
}

/* The smallest that will do. */
static pages *find_locked(psti_feed *feed, size_t bytes)
{
    pages *best = NULL;
    for (int i = 0; i < PAGES_KEPT; i++) {
        pages *p = &feed->pages[i];
        if (p->base && p->cap >= bytes && p->cap / 2 <= bytes && (!best || p->cap < best->cap))
            best = p;
    }
    return best;
}

int pages_take(psti_feed *feed, size_t bytes, pages *out)
{
    pthread_mutex_lock(&feed->pool->lock);
    pages *found = find_locked(feed, bytes);
    *out = found ? *found : (pages){0};
    if (found) {
        feed->pool->staged -= found->cap;
        *found = (pages){0};
    }
    pthread_mutex_unlock(&feed->pool->lock);
    if (!found)
        *out = fresh(feed, bytes);
    return out->base ? 0 : -ENOMEM;
}

void pages_give(const psti_feed_hooks *hooks, pages *p)
{
    if (p->base && hooks->give)
        hooks->give(hooks->user, p->base, p->cap);
    else if (p->base)
        psti_pages_free(PSTI_MEM_BATCH, p->base, p->cap);
    *p = (pages){0};
}

/* An empty place; else that of the smallest, which is the least use. */
static pages *place_locked(psti_feed *feed)
{
    pages *least = &feed->pages[0];
    for (int i = 1; i < PAGES_KEPT; i++)
        if (least->base && feed->pages[i].cap < least->cap)
            least = &feed->pages[i];
    return least;
}

void pages_keep_locked(psti_feed *feed, pages *p)
{
    const psti_pool *pool = feed->pool;
    const bool room = pool->staged + p->cap <= pool_staged_max_locked(pool) / 2;
    if (!p->base || feed->closing || feed->ring->hooks.take || p->cap < SLACK_FROM || !room) {
        pages_give(&feed->ring->hooks, p);
        return;
    }
    pages *at = place_locked(feed);
    feed->pool->staged += p->cap - at->cap;
    pages_give(&feed->ring->hooks, at);
    *at = (pages){p->base, p->cap, true};
    *p = (pages){0};
}

void pages_free_all_locked(psti_feed *feed)
{
    for (int i = 0; feed->ring && i < PAGES_KEPT; i++) {
        feed->pool->staged -= feed->pages[i].cap;
        pages_give(&feed->ring->hooks, &feed->pages[i]);
    }
}
