/* SPDX-License-Identifier: Apache-2.0
 * Whose turn it is. Jobs share the workers' time evenly, whatever their samples take: a worker goes
 * to a job that has had least of it. Ranks of one job step together, so they are one job here, and
 * within it the rank that has least ready comes first: a rank with more slow samples than the
 * others gets more of the workers, and holds nobody up. Under pool->lock. */
#include "sched/sched_priv.h"

static const uint64_t QUANTUM =
    2000000;                   /* two samples of the cheapest job, that one may be ahead */
static const double EQUAL = 3; /* times what the cheapest takes is about as cheap */

/* ---- ranks of one job ------------------------------------------------------------------------ */

static bool same_job(const psti_feed *a, const psti_feed *b)
{
    return a == b ||
           (a->spec.world > 1 && a->spec.world == b->spec.world && a->spec.rank != b->spec.rank &&
            a->spec.data == b->spec.data && a->spec.seed == b->spec.seed &&
            a->spec.batch == b->spec.batch && a->spec.mode == b->spec.mode);
}

/* The feed that counts for all ranks of its job. */
static psti_feed *head_locked(psti_feed *feed)
{
    psti_feed *head = feed->pool->feeds;
    while (feed->spec.world > 1 && head && !same_job(head, feed))
        head = head->next;
    return feed->spec.world > 1 && head ? head : feed;
}

static int64_t ready(const psti_feed *feed)
{
    return feed->outstanding - feed->inflight;
}

static bool needs_more(const psti_feed *a, const psti_feed *b)
{
    return ready(a) != ready(b) ? ready(a) < ready(b) : a->inflight < b->inflight;
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
        return feed->fetches ? NULL : task_aim_locked(feed, w);
    default:
        return lane_take_locked(feed, LANE_LAST);
    }
}

static uint64_t least_used_locked(const psti_pool *pool)
{
    uint64_t least = UINT64_MAX;
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        if (f->used < least)
            least = f->used;
    return least;
}

/* A job that has nothing to do saves nothing up. */
static void lift_locked(psti_feed *feed)
{
    if (feed->used < feed->pool->used)
        feed->used = feed->pool->used;
}

static task *took_locked(psti_feed *feed, task *t)
{
    psti_pool *pool = feed->pool;
    const psti_feed *head = head_locked(feed);
    if (head->used > pool->used)
        pool->used = head->used;
    pool->turn = feed->next ? feed->next : pool->feeds;
    return t;
}

/* One round over the feeds: those that have had little of the workers' time, or the others. */
static task *round_locked(psti_pool *pool, look at, worker *w, uint64_t most, bool others)
{
    psti_feed *feed = pool->turn ? pool->turn : pool->feeds;
    for (psti_feed *first = feed; feed;) {
        psti_feed *after = feed->next ? feed->next : pool->feeds;
        if ((head_locked(feed)->used > most) == others) {
            psti_feed *needy = neediest_locked(feed);
            task *t = take_of_locked(needy, at, w);
            if (!t && needy != feed)
                t = take_of_locked(needy = feed, at, w);
            if (t)
                return took_locked(needy, t);
            if (at == LOOK_NEXT)
                lift_locked(feed);
        }
        feed = after == first ? NULL : after;
    }
    return NULL;
}

static task *take_at_locked(psti_pool *pool, look at, worker *w)
{
    psti_feed *only = pool->feeds;
    if (only && !only->next)
        return take_of_locked(only, at, w);
    const uint64_t most = only ? least_used_locked(pool) + QUANTUM : 0;
    task *t = round_locked(pool, at, w, most, false);
    return t ? t : round_locked(pool, at, w, most, true);
}

task *turn_take_locked(psti_pool *pool, worker *w)
{
    task *t = NULL;
    for (look at = LOOK_ENDS; !t && at < LOOKS; at++)
        if (pool->parked || at == LOOK_RUNNABLE || at == LOOK_NEXT)
            t = take_at_locked(pool, at, w);
    return t;
}

/* What a sample of the feed takes, beside the cheapest job's. Jobs that are about equal take turns:
 * by the clock, the one that others interrupt would get less. */
static double dearness_locked(const psti_pool *pool, const psti_feed *feed)
{
    double least = feed->took_s;
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        if (f->took_s > 0 && f->took_s < least)
            least = f->took_s;
    return least > 0 && feed->took_s > EQUAL * least ? feed->took_s / least : 1;
}

void turn_used_locked(psti_pool *pool, psti_feed *feed)
{
    for (psti_feed *f = pool->feeds; f && pool->feeds->next; f = f->next)
        if (f == feed) /* it is still there */
            head_locked(feed)->used += (uint64_t)(1e6 * dearness_locked(pool, feed));
}

void turn_join_locked(psti_feed *feed)
{
    feed->used = feed->pool->used;
}
