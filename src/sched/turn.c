/* SPDX-License-Identifier: Apache-2.0
 * Whose turn it is. Jobs take turns, sample by sample. Ranks of one job step together, so where it
 * is the turn of one, the rank that has least ready comes first: a rank with more slow samples than
 * the others gets more of the workers, and holds nobody up. Under pool->lock. */
#include "sched/sched_priv.h"

/* ---- ranks of one job ------------------------------------------------------------------------ */

static bool same_job(const psti_feed *a, const psti_feed *b)
{
    return a == b ||
           (a->spec.world > 1 && a->spec.world == b->spec.world && a->spec.rank != b->spec.rank &&
            a->spec.data == b->spec.data && a->spec.seed == b->spec.seed &&
            a->spec.batch == b->spec.batch && a->spec.mode == b->spec.mode);
}

static bool needs_more(const psti_feed *a, const psti_feed *b)
{
    const int64_t one = feed_ready(a), other = feed_ready(b);
    return one != other ? one < other : a->inflight < b->inflight;
}

static psti_feed *neediest_locked(psti_feed *feed)
{
    psti_feed *best = feed;
    for (psti_feed *f = feed->pool->feeds; feed->spec.world > 1 && f; f = f->next)
        if (same_job(f, feed) && needs_more(f, best))
            best = f;
    return best;
}

/* ---- what a worker takes --------------------------------------------------------------------- */

static task *take_runnable_locked(psti_feed *feed)
{
    task *t = feed->runnable;
    if (t)
        feed->runnable = t->next;
    return t;
}

/* What a worker looks for, in this order: see lane_turn; a task that is runnable; the next sample,
 * to be read on the spot. */
typedef enum look { LOOK_ENDS, LOOK_SLOW_FIRST, LOOK_RUNNABLE, LOOK_NEXT, LOOK_SLOW, LOOKS } look;

static task *take_of_locked(psti_feed *feed, look at, worker *w)
{
    switch (at) {
    case LOOK_ENDS:
        return lane_take_locked(feed, LANE_ENDS);
    case LOOK_SLOW_FIRST:
        return lane_take_locked(feed, LANE_FIRST);
    case LOOK_RUNNABLE:
        return take_runnable_locked(feed);
    case LOOK_NEXT:
        return feed_sends_ahead(feed) ? NULL : task_aim_locked(feed, w);
    default:
        return lane_take_locked(feed, LANE_LAST);
    }
}

static task *take_at_locked(psti_pool *pool, look at, worker *w)
{
    psti_feed *feed = pool->turn ? pool->turn : pool->feeds;
    for (psti_feed *first = feed; feed;) {
        psti_feed *after = feed->next ? feed->next : pool->feeds;
        psti_feed *needy = neediest_locked(feed);
        task *t = take_of_locked(needy, at, w);
        if (!t && needy != feed)
            t = take_of_locked(feed, at, w);
        if (t) {
            pool->turn = after;
            return t;
        }
        feed = after == first ? NULL : after;
    }
    return NULL;
}

task *turn_take_locked(psti_pool *pool, worker *w)
{
    task *t = NULL;
    for (look at = LOOK_ENDS; !t && at < LOOKS; at++)
        if (pool->parked || at == LOOK_RUNNABLE || at == LOOK_NEXT)
            t = take_at_locked(pool, at, w);
    return t;
}
