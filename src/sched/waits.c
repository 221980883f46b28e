/* SPDX-License-Identifier: Apache-2.0
 * What a consumer's waits were for. While it waits, the time of the active workers is put down to
 * what they do: work for this feed, work for others, or nothing, and then why: bytes are on their
 * way from the source or the remote tier, there is no room in the budget, or nothing more may be
 * begun. Counted at every change while some consumer waits, and not at all otherwise. Also the
 * facts beside it from which the engine says what would help. Under pool->lock. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sched/sched_priv.h"

static const uint64_t QUEUED_NS = 10000000; /* how old a look at the threads may be */

/* ---- while a consumer waits ------------------------------------------------------------------ */

static int idle_for(const psti_feed *feed)
{
    if (feed->asks_now > 0)
        return PSTI_WAIT_REMOTE;
    if (feed->reads_now > 0 || atomic_load_explicit(&feed->fetches_now, memory_order_relaxed) > 0)
        return PSTI_WAIT_SOURCE;
    return feed->refused_room ? PSTI_WAIT_ROOM : PSTI_WAIT_REST;
}

/* As it stands from now on. */
static void look_locked(psti_feed *feed, uint64_t now)
{
    const psti_pool *pool = feed->pool;
    waits *w = &feed->waits_for;
    w->since_ns = now;
    w->own = 0;
    for (int i = 0; i < pool->worker_count; i++)
        w->own += pool->works_for[i] == feed;
    const int without = (int)(pool->tickets_given - pool->tickets_served);
    w->without = without < w->own ? without : w->own;
    w->busy = pool->tuner.busy;
    w->active = pool->tuner.active > w->busy ? pool->tuner.active : w->busy;
    w->idle_for = idle_for(feed);
}

static void settle_locked(psti_feed *feed, uint64_t now)
{
    waits *w = &feed->waits_for;
    if (now <= w->since_ns)
        return;
    const double seconds = 1e-9 * (double)(now - w->since_ns);
    if (w->active > 0) {
        const double each = seconds / w->active;
        w->spent_s[PSTI_WAIT_WORK] += each * (w->own - w->without);
        w->spent_s[PSTI_WAIT_ROOM] += each * w->without;
        w->spent_s[PSTI_WAIT_TURN] += each * (w->busy > w->own ? w->busy - w->own : 0);
        w->spent_s[w->idle_for] += each * (w->active - w->busy);
    }
    look_locked(feed, now);
}

void waits_begin_locked(psti_feed *feed, uint64_t since)
{
    if (!feed->asked_ns)
        feed->asked_ns = since;
    if (feed->waits_for.on || !feed->pool->worker_count)
        return;
    feed->waits_for.on = true;
    feed->pool->waiting++;
    look_locked(feed, psti_now_ns());
}

void waits_end_locked(psti_feed *feed)
{
    feed->asked_ns = 0;
    if (!feed->waits_for.on)
        return;
    settle_locked(feed, psti_now_ns());
    feed->waits_for.on = false;
    feed->pool->waiting--;
}

void waits_first_locked(psti_feed *feed)
{
    memset(feed->waits_for.spent_s, 0, sizeof feed->waits_for.spent_s);
}

void waits_moved_locked(psti_pool *pool, uint64_t now)
{
    if (!pool->waiting)
        return;
    if (!now)
        now = psti_now_ns();
    for (psti_feed *feed = pool->feeds; feed; feed = feed->next)
        if (feed->waits_for.on)
            settle_locked(feed, now);
}

/* ---- facts ----------------------------------------------------------------------------------- */

/* Seconds that a thread could have run and had no core. 0 where the system does not tell. */
static double queued_s(int tid)
{
    char path[64], text[96];
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *second = strchr(text, ' ');
    return second ? 1e-9 * strtod(second, NULL) : 0;
}

/* Who looks at all jobs asks for each of them: the files are read once for all. */
static double all_queued_s(psti_pool *pool)
{
    const uint64_t now = psti_now_ns();
    if (now - atomic_load(&pool->queued_ns) < QUEUED_NS)
        return atomic_load(&pool->queued_s);
    double sum = 0;
    for (int i = 0; i < pool->worker_count; i++) {
        const int tid = atomic_load_explicit(&pool->workers[i].tid, memory_order_relaxed);
        sum += tid ? queued_s(tid) : 0;
    }
    atomic_store(&pool->queued_s, sum);
    atomic_store(&pool->queued_ns, now);
    return sum;
}

static void fill_workers(psti_pool *pool, psti_feed_facts *out)
{
    psti_pool_times times;
    psti_pool_times_get(pool, &times);
    out->cpu_s = times.cpu_s;
    out->queued_s = all_queued_s(pool);
    out->workers = pool->worker_count;
}

/* Seconds that a second-hand look would show too late: the samples under way. */
static double busy_s_locked(const psti_pool *pool, uint64_t now)
{
    const tuner *t = &pool->tuner;
    const uint64_t late = now > t->busy_since_ns ? now - t->busy_since_ns : 0;
    return 1e-9 * ((double)t->busy_ns + (double)t->busy * (double)late);
}

static void fill_pool_locked(const psti_pool *pool, uint64_t now, psti_feed_facts *out)
{
    out->busy_s = busy_s_locked(pool, now);
    out->active = pool->tuner.active;
    out->reads_most = pool->aim_max;
    out->reads_limit = pool->aim_most;
    out->reads_tried = pool->tuner.rest > 0;
    out->budget_bytes = (double)pool->budget.limit;
    out->cache_bytes =
        pool->cache ? (double)atomic_load_explicit(&pool->cache_allowed, memory_order_relaxed) : 0;
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        out->feeds += f->started && !f->closing;
    out->remote = ask_health(pool);
    if (pool->disk) {
        psti_disk_stats disk;
        psti_disk_stats_get(pool->disk, &disk);
        out->disk = disk.off || disk.crowded ? PSTI_TIER_DOWN : PSTI_TIER_UP;
    }
}

static void fill_costs_locked(const psti_feed *feed, psti_feed_facts *out)
{
    const int stages = psti_plan_stage_count(feed->spec.plan);
    const int decoded = psti_plan_decoded_stages(feed->spec.plan);
    double all = 0, first = 0;
    out->decoded_stages = psti_plan_decoded_pictures(feed->spec.plan) > 0 ? decoded : 0;
    for (int i = 0; i < stages && i < PST_STAGES_MAX; i++) {
        out->calls |= psti_plan_stage_is_call(feed->spec.plan, i) ? (uint32_t)1 << i : 0;
        all += (double)feed->stage_ns[i];
        first += i < decoded ? (double)feed->stage_ns[i] : 0;
    }
    const bool form = psti_plan_decoded_pictures(feed->spec.plan) > 0;
    out->whole_s = feed->from_encoded_s > 0 ? feed->from_encoded_s : feed->made_decoded_s;
    /* Not yet begun from a decoded form: what is behind it took the rest of the time. */
    out->part_s = feed->from_decoded_s > 0 ? feed->from_decoded_s
                  : all > 0                ? out->whole_s * (1 - first / all)
                                           : 0;
    out->made_s = feed->made_decoded_s;
    out->encoded_bytes = feed->fetches ? feed->fetch_bytes : feed->encoded_bytes;
    out->decoded_bytes =
        form ? atomic_load_explicit(&feed->decoded_bytes, memory_order_relaxed) : 0;
    out->out_bytes = (double)feed->layout.bytes / feed->spec.batch;
    out->keeps = feed->spec.cache;
    out->keeps_encoded = feed->spec.cache && !feed->fetches;
}

void psti_feed_facts_get(psti_feed *feed, psti_feed_facts *out)
{
    psti_pool *pool = feed->pool;
    *out = (psti_feed_facts){0};
    fill_workers(pool, out);
    pthread_mutex_lock(&pool->lock);
    const uint64_t now = psti_now_ns();
    if (feed->waits_for.on)
        settle_locked(feed, now);
    out->now_s = 1e-9 * (double)now;
    out->opened_s = 1e-9 * (double)feed->opened_ns;
    out->first_s =
        feed->first_batch_ns ? 1e-9 * (double)(feed->opened_ns + feed->first_batch_ns) : 0;
    out->last_s = 1e-9 * (double)feed->last_batch_ns;
    out->first_wait_s = 1e-9 * (double)feed->first_wait_ns;
    out->waiting_s =
        feed->asked_ns && now > feed->asked_ns ? 1e-9 * (double)(now - feed->asked_ns) : 0;
    memcpy(out->waited_for_s, feed->waits_for.spent_s, sizeof out->waited_for_s);
    out->samples = (double)psti_order_length(feed->spec.order);
    out->batch = feed->spec.batch;
    out->ready = feed->spec.mode == PST_ORDER_READY;
    out->depth = feed->depth;
    out->depth_wanted = feed->spec.ready_depth;
    out->fixed_bytes = (double)feed->fixed_bytes;
    out->fixed_most = (double)feed->fixed_most;
    out->finished = !feed->runs && feed->next_epoch >= feed->end_epoch;
    fill_pool_locked(pool, now, out);
    fill_costs_locked(feed, out);
    pthread_mutex_unlock(&pool->lock);
}
