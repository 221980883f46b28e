/* SPDX-License-Identifier: Apache-2.0
 * What workers hold of large samples' memory from one sample to the next. Fresh pages are given by
 * the kernel one by one and zeroed; where every sample needs a hundred megabytes, as volumes do,
 * that is a fifth of all work. What is held stays counted in the part of the budget for large
 * samples, and goes as soon as anybody waits for bytes. Each worker for itself; pool->lock for the
 * sums. */
#include "sched/sched_priv.h"

enum { LEAST = 1 << 20 };

/* Somebody needs bytes, or nobody needs samples. */
static bool unwelcome_locked(const psti_pool *pool)
{
    return pool->opening || pool->tickets_served != pool->tickets_given || !pool->feeds ||
           pool->stopping;
}

/* As much as samples needed of late, so that a single large one leaves little behind. */
static uint64_t wanted(worker *w, uint64_t extra)
{
    w->large += ((double)extra - w->large) / 4;
    const double most = 2 * w->large;
    return most < (double)extra ? (uint64_t)most : extra;
}

static uint64_t allowed_locked(const psti_pool *pool)
{
    if (unwelcome_locked(pool))
        return 0;
    return pool_extra_max_locked(pool) / 2 / (uint64_t)pool->worker_count;
}

void held_settle(worker *w, uint64_t extra)
{
    psti_pool *pool = w->pool;
    if (!extra && !w->held) {
        psti_work_clear(w->work, &w->kit, pool->keep);
        return;
    }
    const uint64_t has = extra + w->held, want = wanted(w, has);
    pthread_mutex_lock(&pool->lock);
    const uint64_t most = allowed_locked(pool);
    pthread_mutex_unlock(&pool->lock);
    const uint64_t hold = want < most ? want : most;
    psti_work_clear(w->work, &w->kit, pool->keep + (hold < LEAST ? 0 : hold));
    const uint64_t bytes = psti_work_bytes(w->work, &w->kit);
    const uint64_t beyond = bytes > pool->keep ? bytes - pool->keep : 0;
    const uint64_t held = beyond < has ? beyond : has;
    pthread_mutex_lock(&pool->lock);
    pool->extra_held += held - w->held;
    pthread_mutex_unlock(&pool->lock);
    w->held = held;
    if (has > held)
        pool_extra_give(pool, has - held);
}

void held_drop(worker *w)
{
    const uint64_t held = w->held;
    if (!held)
        return;
    psti_work_trim(w->work, &w->kit, w->pool->keep);
    w->held = 0;
    pthread_mutex_lock(&w->pool->lock);
    w->pool->extra_held -= held;
    pthread_mutex_unlock(&w->pool->lock);
    pool_extra_give(w->pool, held);
}

/* The pool's lock is held, and let go of meanwhile. */
bool held_drop_unwelcome_locked(worker *w)
{
    if (!w->held || !unwelcome_locked(w->pool))
        return false;
    pthread_mutex_unlock(&w->pool->lock);
    held_drop(w);
    pthread_mutex_lock(&w->pool->lock);
    return true;
}

uint64_t held_pass_locked(worker *w)
{
    const uint64_t held = w->held;
    w->pool->extra_held -= held;
    w->held = 0;
    return held;
}

bool held_cover(worker *w, uint64_t bytes, uint64_t *extra)
{
    psti_pool *pool = w->pool;
    if (!w->held)
        return false;
    pthread_mutex_lock(&pool->lock);
    const uint64_t more = bytes > w->held ? bytes - w->held : 0;
    const bool there = !more || pool_extra_try_locked(pool, more);
    if (there)
        *extra = held_pass_locked(w) + more;
    pthread_mutex_unlock(&pool->lock);
    if (!there) /* who waits holds nothing */
        held_drop(w);
    return there;
}
