/* SPDX-License-Identifier: Apache-2.0
 * Samples that the caller's function brings instead of the reader: sent ahead to the dataset's own
 * threads, always. How large one is shows when it is there, so what feeds have met before is
 * reserved, and the difference settled when it comes: the encoded part of the budget may be passed
 * by what samples in flight are larger than usual. Values that come with the sample stay with its
 * task until it is placed. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

enum { FIRST_GUESS = 128 << 10 };

/* Counts `bytes` for the task instead of what it has. */
static void charge_locked(task *t, uint64_t bytes)
{
    psti_pool *pool = t->feed->pool;
    if (bytes > t->fetch_charged)
        psti_budget_force(&pool->budget, bytes - t->fetch_charged);
    else
        psti_budget_give(&pool->budget, t->fetch_charged - bytes);
    pool->encoded += bytes - t->fetch_charged;
    t->fetch_charged = bytes;
}

/* A sample of an epoch that was given up is not fetched any more. From a thread of the dataset. */
static bool fetch_wanted(psti_fetch *fetch)
{
    const task *t = fetch->user;
    psti_pool *pool = t->feed->pool;
    pthread_mutex_lock(&pool->lock);
    const bool wanted = !t->run->cancelled && !t->feed->closing;
    pthread_mutex_unlock(&pool->lock);
    return wanted;
}

static uint64_t size_of(const psti_fetch *fetch)
{
    uint64_t total = 0;
    for (int i = 0; i < PSTI_FIELDS_MAX; i++)
        total += fetch->sink.part[i].size;
    return total;
}

/* From a thread of the dataset. */
static void fetch_done(psti_fetch *fetch, int status)
{
    task *t = fetch->user;
    psti_feed *feed = t->feed;
    const uint64_t bytes = size_of(fetch);
    pthread_mutex_lock(&feed->pool->lock);
    t->read_ns = fetch->took_ns; /* not what it waited for its turn: it was sent well ahead */
    t->read_away = true;
    t->submitted_ns = psti_now_ns() - t->read_ns;
    charge_locked(t, status == 0 ? bytes : 0);
    if (status == 0) {
        feed->fetch_bytes += ((double)bytes - feed->fetch_bytes) / 8;
        if (bytes > pool_encoded_max_locked(feed->pool))
            status = PST_EBUDGET;
    }
    for (int i = 0; i < feed->spec.field_count; i++) {
        const int field = feed->spec.fields[i].source;
        const psti_part *part = &fetch->sink.part[field];
        t->inputs[i] = (psti_input){NULL, 0, -1};
        if (feed->source[field].member && part->there)
            t->inputs[i] = (psti_input){part->bytes, part->size, -1};
    }
    atomic_store(&t->read_status, status);
    atomic_fetch_sub_explicit(&feed->fetches_now, 1, memory_order_relaxed);
    task_runnable_locked(t);
    waits_moved_locked(feed->pool, 0);
    pthread_mutex_unlock(&feed->pool->lock);
}

static bool make_fetch(task *t)
{
    if (!t->fetch)
        t->fetch = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *t->fetch);
    if (!t->fetch)
        return false;
    t->fetch->id = t->id;
    t->fetch->wanted = fetch_wanted;
    t->fetch->done = fetch_done;
    t->fetch->user = t;
    return true;
}

int fetch_aim_locked(task *t)
{
    psti_feed *feed = t->feed;
    psti_pool *pool = feed->pool;
    if (feed->fetch_bytes == 0)
        feed->fetch_bytes = FIRST_GUESS;
    t->read_count = 0;
    if (!make_fetch(t))
        return -ENOMEM;
    const uint64_t most = pool_encoded_max_locked(pool);
    const uint64_t want = feed->fetch_bytes < (double)most ? (uint64_t)feed->fetch_bytes : most;
    if (pool->encoded + want > most || !psti_budget_try(&pool->budget, want)) {
        if (pool_moves_locked(pool))
            return 0;
        task_shed_locked(pool, t);
        psti_budget_force(&pool->budget, want);
    }
    pool->encoded += want;
    t->fetch_charged = want;
    return 1;
}

void fetch_send(task *t)
{
    t->submitted_ns = psti_now_ns();
    atomic_fetch_add_explicit(&t->feed->fetches_now, 1, memory_order_relaxed);
    psti_fetch_submit(t->feed->spec.data, t->fetch);
}

/* Whether another try may help is for the caller's function to say; these are not its own. */
bool fetch_worth_retrying(int status)
{
    return status != PST_EFIELD && status != PST_EBUDGET && status != -ENOMEM &&
           status != -ECANCELED;
}

void fetch_again(task *t)
{
    psti_fetch_clear(t->fetch);
    fetch_send(t);
}

void fetch_drop(task *t)
{
    if (t->feed->fetches && t->fetch)
        psti_fetch_clear(t->fetch);
}

void fetch_drop_locked(task *t)
{
    if (t->fetch_charged)
        charge_locked(t, 0);
}

void fetch_free(task *t)
{
    psti_free(t->fetch);
    t->fetch = NULL;
}

bool fetch_value(const psti_feed *feed, int field, const task *t, const void **value, size_t *bytes)
{
    if (!feed->fetches || t->cached)
        return false;
    const psti_part *part = &t->fetch->sink.part[feed->spec.fields[field].source];
    if (!part->there)
        return false;
    *value = part->bytes;
    *bytes = part->size;
    return true;
}
