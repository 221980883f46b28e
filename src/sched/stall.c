/* SPDX-License-Identifier: Apache-2.0
 * The notice that no batch came for long, and what is waited for: once after 30 s, once more after
 * 5 minutes, and again when batches came in between. Told by the consumer that waits, on its own
 * thread; nobody else spends time on it but for two stores a stage that say what a worker does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched/sched_priv.h"

enum { NOTICES = 2, AGAIN_TIMES = 10, SENTENCE = 320 };
static const double usual_s = 30, most_s = 1e9;

/* What the notice says, gathered under the lock. */
typedef struct stall {
    uint64_t now;
    int64_t id; /* of the sample that is missing; -1 = none is on its way */
    char what[SENTENCE];
} stall;

/* ---- when ------------------------------------------------------------------------------------ */

void stall_open(psti_feed *feed)
{
    const char *text = getenv("PENSTOCK_NOTICE_S");
    const double seconds = text && *text ? strtod(text, NULL) : usual_s;
    const bool on = seconds > 0 && seconds < most_s;
    feed->notice_ns = on ? (uint64_t)(seconds * 1e9) : 0;
}

uint64_t psti_feed_notice_ns(const psti_feed *feed, int told)
{
    return told >= NOTICES ? 0 : feed->notice_ns * (told ? AGAIN_TIMES : 1);
}

/* ---- what one sample is doing ---------------------------------------------------------------- */

static double seconds_since(const stall *s, uint64_t since)
{
    return since && since < s->now ? 1e-9 * (double)(s->now - since) : 0;
}

static const char *source_word(const psti_feed *feed)
{
    const char *path = psti_dataset_path(feed->spec.data);
    if (feed->far)
        return path && strncmp(path, "s3:", 3) == 0 ? "its bucket (s3)" : "its server (http)";
    return strcmp(psti_dataset_kind(feed->spec.data), "tar") == 0 ? "a tar shard" : "a file";
}

/* Nobody of the pool has it: whoever brings its bytes. */
static void say_away_locked(stall *s, const task *t)
{
    const double seconds = seconds_since(s, t->submitted_ns);
    const bool disk = t->read_count > 0 && t->tier_reads == t->read_count;
    if (t->feed->fetches)
        snprintf(s->what, SENTENCE, "is being fetched by the dataset's own function, for %.1f s",
                 seconds);
    else if (atomic_load(&t->reads_left) > 0)
        snprintf(s->what, SENTENCE, "is being read from %s, for %.1f s",
                 disk ? "the disk tier" : source_word(t->feed), seconds);
    else
        snprintf(s->what, SENTENCE, "was asked for at the remote tier, %.1f s ago", seconds);
}

static void say_memory_locked(stall *s, const psti_pool *pool, double seconds)
{
    snprintf(s->what, SENTENCE,
             "waits for memory, for %.1f s: %.1f of the %.1f MiB for large samples are taken; "
             "give more memory, or fewer workers",
             seconds, (double)pool->extra / 0x1p20, (double)pool_extra_max_locked(pool) / 0x1p20);
}

/* The task is the worker's own: nothing of it is looked at but what is fixed. */
static void say_worker_locked(stall *s, const worker *w, const task *t)
{
    const int doing = atomic_load_explicit(&w->doing, memory_order_relaxed);
    const double seconds =
        seconds_since(s, atomic_load_explicit(&w->doing_ns, memory_order_relaxed));
    if (doing >= DOING_STAGE)
        snprintf(s->what, SENTENCE, "is in stage %s, for %.1f s",
                 psti_plan_stage_name(t->feed->spec.plan, doing - DOING_STAGE), seconds);
    else if (doing == DOING_MEMORY)
        say_memory_locked(s, w->pool, seconds);
    else if (doing == DOING_PLACE)
        snprintf(s->what, SENTENCE, "is being written into its batch");
    else
        snprintf(s->what, SENTENCE, "is being read by a worker from %s", source_word(t->feed));
}

static bool is_listed(const task *list, const task *t)
{
    while (list && list != t)
        list = list->next;
    return list != NULL;
}

static void say_task_locked(stall *s, const task *t)
{
    const psti_pool *pool = t->feed->pool;
    s->id = t->id;
    for (int i = 0; i < pool->worker_count; i++)
        if (pool->workers[i].task == t) {
            say_worker_locked(s, &pool->workers[i], t);
            return;
        }
    if (is_listed(t->feed->runnable, t))
        snprintf(s->what, SENTENCE, "is read and waits for a worker: %d of %d are at work",
                 pool->tuner.busy, pool->worker_count);
    else if (is_listed(t->feed->lanes.parked, t))
        snprintf(s->what, SENTENCE, "was put aside as a slow one and waits for a worker");
    else if (is_listed(t->feed->lanes.held, t))
        snprintf(s->what, SENTENCE, "is finished and waits for room in a batch");
    else
        say_away_locked(s, t);
}

/* ---- what the consumer waits for ------------------------------------------------------------- */

/* The sample that the epoch at hand needs first. */
static const task *oldest_locked(const psti_feed *feed)
{
    const psti_pool *pool = feed->pool;
    const bool strict = feed->spec.mode == PST_ORDER_STRICT;
    const task *oldest = NULL;
    for (int i = 0; i < pool->task_count; i++) {
        const task *t = &pool->tasks[i];
        if (!t->busy || t->feed != feed || t->run != feed->runs)
            continue;
        if (!oldest || (strict ? t->share < oldest->share : t->order < oldest->order))
            oldest = t;
    }
    return oldest;
}

/* None of its samples is on its way: why the next one does not start. */
static void say_nothing_locked(stall *s, const psti_feed *feed)
{
    const psti_pool *pool = feed->pool;
    const uint64_t most = pool_encoded_max_locked(pool);
    if (feed->epoch_making)
        snprintf(s->what, SENTENCE, "the order of the next epoch is being made");
    else if (pool->opening)
        snprintf(s->what, SENTENCE, "another job is being opened and waits for memory");
    else if (feed->group)
        snprintf(s->what, SENTENCE, "other jobs of its group prepare the samples that are left");
    else if (pool->inflight - pool->aside >= pool->aim_max)
        snprintf(s->what, SENTENCE, "%d samples of other jobs are on their way before its own",
                 pool->inflight);
    else if (pool->encoded + pool->ahead_ending >= most - most / 4)
        snprintf(s->what, SENTENCE,
                 "its next sample waits for memory: %.1f of the %.1f MiB for samples that are read "
                 "are taken; give more memory",
                 (double)pool->encoded / 0x1p20, (double)most / 0x1p20);
    else if (pool->tuner.busy >= pool->tuner.active)
        snprintf(s->what, SENTENCE, "its next sample waits for a worker: all %d are at work",
                 pool->tuner.busy);
    else
        snprintf(s->what, SENTENCE, "none of its samples is on its way");
}

static void tell(const psti_feed *feed, const stall *s, double seconds)
{
    char room[PSTI_KEY_ROOM];
    size_t len;
    pst_error named = {0};
    const unsigned long long job = (unsigned long long)feed->spec.label.id;
    if (s->id < 0) {
        psti_log(PSTI_LOG_WARN, "job %llu: no batch came for %.0f s: %s", job, seconds, s->what);
        return;
    }
    /* As errors name samples: short, and without control characters. */
    psti_error_key(&named, psti_dataset_key_in(feed->spec.data, s->id, room, &len));
    psti_log(PSTI_LOG_WARN, "job %llu: no batch came for %.0f s: sample %lld (%s) %s", job, seconds,
             (long long)s->id, named.key, s->what);
}

uint64_t stall_look(psti_feed *feed)
{
    const uint64_t after = psti_feed_notice_ns(feed, feed->stall_told);
    if (!after || feed->spec.hooks.wake) /* whose consumer is elsewhere, and tells */
        return 0;
    stall s = {.now = psti_now_ns(), .id = -1};
    const uint64_t since = feed->asked_ns;
    if (s.now < since + after)
        return since + after;
    pthread_mutex_lock(&feed->pool->lock);
    const task *t = oldest_locked(feed);
    if (t)
        say_task_locked(&s, t);
    else
        say_nothing_locked(&s, feed);
    pthread_mutex_unlock(&feed->pool->lock);
    feed->stall_told++;
    tell(feed, &s, seconds_since(&s, since));
    const uint64_t next = psti_feed_notice_ns(feed, feed->stall_told);
    return next ? since + next : 0;
}
