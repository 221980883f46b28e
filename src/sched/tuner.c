/* SPDX-License-Identifier: Apache-2.0
 * The tuner: how many workers are active, how many reads are under way, how many batches a feed has
 * ready. It is driven by one thing, the time that consumers waited.
 *
 * A consumer that waits, or has less than half of it ready, brings all workers back at once;
 * workers that are not needed are given back, most of them soon, down to what the work at hand
 * needs and a little more, and not below what was too few a short while ago. A feed whose consumer
 * waited although everything had been ready shortly before takes its batches in bursts: it gets a
 * deeper ring, if the budget has room. More reads are sent out while workers have nothing to do but
 * wait for bytes, as long as that brings more bytes. Looked at when a batch is handed over; nothing
 * runs by itself. Under pool->lock. */
#include "sched/sched_priv.h"

static const uint64_t LOOK_NS = 100000000;
static const uint64_t CALM_NS = 300000000; /* with enough ready, before workers are given back */
static const uint64_t MEMORY_NS = 10000000000; /* how long a number of workers was too few */
static const double BUSY = 0.75;               /* of the active workers' time: all are needed */
static const double STARVED = 0.05;            /* of their time, waiting for bytes */
static const double FASTER = 1.03;             /* worth more reads under way */
static const int READS_MORE = 16, DEPTH_MOST = 16;

void tuner_open(psti_pool *pool)
{
    pool->tuner.active = pool->worker_count;
    pool->tuner.least = 1;
}

static bool is_off_locked(const psti_pool *pool)
{
    bool off = false;
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        off |=
            (f->spec.without & PST_WITHOUT_TUNER) != 0 || f->spec.schedule != PST_SCHEDULE_PENSTOCK;
    return off;
}

bool tuner_lets_work_locked(const psti_pool *pool)
{
    return pool->tuner.busy < pool->tuner.active;
}

/* Workers' time up to now, that of samples under way included: they may take long. */
static void count_busy_locked(tuner *t, uint64_t now)
{
    if (now <= t->busy_since_ns) /* read by another before the lock was had */
        return;
    t->busy_ns += (uint64_t)t->busy * (now - t->busy_since_ns);
    t->busy_since_ns = now;
}

void tuner_begins_locked(psti_pool *pool, uint64_t now)
{
    count_busy_locked(&pool->tuner, now);
    pool->tuner.busy++;
}

void tuner_ends_locked(psti_pool *pool, uint64_t now)
{
    count_busy_locked(&pool->tuner, now);
    pool->tuner.busy--;
}

/* ---- workers --------------------------------------------------------------------------------- */

static void all_back_locked(psti_pool *pool, uint64_t now)
{
    tuner *t = &pool->tuner;
    t->short_ns = now;
    if (t->active < pool->worker_count) {
        t->least = t->active + 1;
        t->least_ns = now;
        t->active = pool->worker_count;
        pool_pump_locked(pool);
    }
}

/* Where slow samples come and go, what is busy now says little of what will be needed, and a worker
 * that is called back too late is late by a slow sample. */
static bool is_uneven_locked(const psti_pool *pool)
{
    bool uneven = pool->feeds && pool->feeds->next; /* jobs come and go, too */
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        uneven |= f->lanes.uneven;
    return uneven;
}

/* What was busy on average, and a part more. */
static void give_back_locked(psti_pool *pool, uint64_t now, uint64_t elapsed)
{
    tuner *t = &pool->tuner;
    const double busy = (double)(t->busy_ns - t->seen_busy_ns) / (double)elapsed;
    if (is_uneven_locked(pool)) {
        t->active = pool->worker_count;
        return;
    }
    if (now - t->least_ns > MEMORY_NS)
        t->least = 1;
    if (now - t->short_ns < CALM_NS || busy > BUSY * t->active || t->active <= t->least)
        return;
    const int needed = (int)(busy / BUSY) + 1;
    const int step = (t->active - needed) * 3 / 4;
    t->active -= step > 1 ? step : 1;
    if (t->active < t->least)
        t->active = t->least;
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void tune_reads_locked(psti_pool *pool, uint64_t elapsed)
{
    tuner *t = &pool->tuner;
    const double rate = (double)(pool->read_bytes - t->seen_read_bytes) / (double)elapsed;
    const double starved =
        (double)(pool->starved_ns - t->seen_starved_ns) / ((double)elapsed * pool->worker_count);
    if (t->tried_reads) { /* did it help? */
        if (rate < FASTER * t->rate_before)
            pool->aim_max -= READS_MORE;
        t->rest = rate < FASTER * t->rate_before ? 50 : 0;
        t->tried_reads = false;
    } else if (t->rest > 0) {
        t->rest--;
    } else if (starved > STARVED && pool->reading > 0 &&
               pool->aim_max + READS_MORE <= pool->aim_most) {
        pool->aim_max += READS_MORE;
        t->rate_before = rate;
        t->tried_reads = true;
    }
}

/* ---- batches ready --------------------------------------------------------------------------- */

/* One batch more in the ring, if the budget has it to spare now. */
static bool deepen_locked(psti_feed *feed)
{
    psti_pool *pool = feed->pool;
    const uint64_t bytes = feed->layout.bytes;
    const uint64_t all = pool->budget.limit - pool_cache_held_locked(pool);
    if (feed->blocks_max >= RING_MOST || feed->fixed_bytes + bytes > all / 4 ||
        pool->fixed + bytes > all / 8 * 5 || !psti_budget_try(&pool->budget, bytes))
        return false;
    pool->fixed += bytes;
    feed->fixed_bytes += bytes;
    feed->blocks_max++;
    feed->depth++;
    feed->outstanding_max += feed->spec.batch;
    return true;
}

/* It had everything ready a moment ago, and ran out of it. */
static void tune_depth_locked(psti_feed *feed, uint64_t now)
{
    if (!feed->spec.depth_free || feed->listed || !feed->layout.dense || !feed->full_ns ||
        now - feed->full_ns > CALM_NS)
        return;
    const int most = feed->depth + (feed->depth + 1) / 2;
    while (feed->depth < most && feed->depth < DEPTH_MOST && deepen_locked(feed))
        continue;
    feed->full_ns = 0; /* once for each time that it was full */
}

/* ---- what happens ---------------------------------------------------------------------------- */

void tuner_waits_locked(psti_feed *feed)
{
    psti_pool *pool = feed->pool;
    if (is_off_locked(pool))
        return;
    const uint64_t now = psti_now_ns();
    all_back_locked(pool, now);
    ahead_waits_locked(feed, now);
    if (feed->batches > 0)
        tune_depth_locked(feed, now);
}

void tuner_look_locked(psti_feed *feed)
{
    psti_pool *pool = feed->pool;
    tuner *t = &pool->tuner;
    const uint64_t now = psti_now_ns(), elapsed = now - t->looked_ns;
    if (2 * feed_ready(feed) < block_samples_max_locked(feed))
        all_back_locked(pool, now); /* before it has to wait */
    ahead_look_locked(feed, now);
    if (elapsed < LOOK_NS)
        return;
    count_busy_locked(t, now);
    if (is_off_locked(pool)) {
        t->active = pool->worker_count;
    } else if (t->looked_ns) {
        give_back_locked(pool, now, elapsed);
        tune_reads_locked(pool, elapsed);
    }
    t->looked_ns = now;
    t->seen_busy_ns = t->busy_ns;
    t->seen_read_bytes = pool->read_bytes;
    t->seen_starved_ns = pool->starved_ns;
}
