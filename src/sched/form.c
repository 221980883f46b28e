/* SPDX-License-Identifier: Apache-2.0
 * Decoded forms of samples: what the cache may take of the budget, finding a sample's form when it
 * is aimed at, making it when there is room. Whatever happens here, the sample comes out as without
 * the cache; only the way there differs. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

/* ---- what the cache may take ----------------------------------------------------------------- */

enum { CACHE_LEAST = 64 << 10, SLAB_LEAST = 256 << 10, SLAB_MOST = 64 << 20 };
static const uint64_t AUTO_WORK_LEAST = 64ull << 20, AUTO_WORK_MOST = 2ull << 30;

uint64_t psti_cache_auto_work(uint64_t memory_bytes)
{
    const uint64_t half = memory_bytes / 2;
    return half < AUTO_WORK_LEAST ? AUTO_WORK_LEAST : half > AUTO_WORK_MOST ? AUTO_WORK_MOST : half;
}

static uint64_t auto_work(const psti_pool *pool)
{
    return psti_cache_auto_work(pool->budget.limit);
}

/* auto: kept back for jobs that are opened later; as much again as those open now have. */
static uint64_t auto_later_locked(const psti_pool *pool)
{
    uint64_t rings = 0;
    for (const psti_feed *feed = pool->feeds; feed; feed = feed->next)
        rings += feed->fixed_bytes;
    return rings > pool->budget.limit / 16 ? rings : pool->budget.limit / 16;
}

uint64_t pool_cache_held_locked(const psti_pool *pool)
{
    return pool->cache_auto ? pool->cache_taken : pool->cache_limit;
}

uint64_t pool_rest_locked(const psti_pool *pool)
{
    const uint64_t limit = pool->budget.limit;
    const uint64_t off = pool->fixed + pool_cache_held_locked(pool);
    const uint64_t rest = limit > off ? limit - off : 0;
    return pool->cache_auto && rest > auto_work(pool) ? auto_work(pool) : rest;
}

uint64_t pool_budget_for(const psti_pool *pool, uint64_t fixed, uint64_t rest)
{
    if (!pool->cache_auto)
        return fixed + rest + pool->cache_limit;
    return rest > AUTO_WORK_LEAST && rest > fixed ? 2 * rest : fixed + rest;
}

static uint64_t room_locked(const psti_pool *pool)
{
    if (!pool->cache_auto)
        return pool->cache_limit - pool->cache_taken;
    const uint64_t off =
        pool->fixed + auto_work(pool) + auto_later_locked(pool) + pool->cache_taken;
    return pool->budget.limit > off ? pool->budget.limit - off : 0;
}

static uint64_t take(void *user, uint64_t least, uint64_t most)
{
    psti_pool *pool = user;
    pthread_mutex_lock(&pool->lock);
    const uint64_t room = room_locked(pool);
    uint64_t granted = room < least ? 0 : room < most ? room & ~(uint64_t)4095 : most;
    granted = granted < least ? 0 : granted;
    pool->cache_taken += granted;
    psti_budget_force(&pool->budget, granted); /* the parts add up to the limit */
    pthread_mutex_unlock(&pool->lock);
    return granted;
}

static void give(void *user, uint64_t bytes)
{
    psti_pool *pool = user;
    pthread_mutex_lock(&pool->lock);
    pool->cache_taken -= bytes;
    psti_budget_give(&pool->budget, bytes);
    pthread_mutex_unlock(&pool->lock);
}

int pool_cache_open(psti_pool *pool, uint64_t bytes)
{
    pool->cache_auto = bytes == PST_CACHE_AUTO;
    pool->cache_limit = pool->cache_auto ? 0 : bytes;
    if (!bytes || room_locked(pool) < CACHE_LEAST) /* auto in a small budget: none */
        return 0;
    uint64_t slab = (pool->cache_auto ? pool->budget.limit : bytes) / 16;
    slab = slab < SLAB_LEAST ? SLAB_LEAST : slab > SLAB_MOST ? SLAB_MOST : slab;
    const psti_cache_spec spec = {slab & ~(uint64_t)4095, take, give, pool};
    return psti_cache_new(&spec, &pool->cache);
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Whether everything but the pictures is at hand without asking the caller's function. */
static bool rest_known(const task *t)
{
    const psti_feed *feed = t->feed;
    const void *value;
    size_t bytes;
    for (int i = 0; i < feed->spec.field_count; i++) {
        const int source = feed->spec.fields[i].source;
        if (psti_plan_is_picture(feed->spec.plan, i))
            continue;
        if (feed->source[source].member ||
            psti_dataset_value(feed->spec.data, t->id, source, &value, &bytes) == -EAGAIN)
            return false;
    }
    return true;
}

void form_find(task *t)
{
    const psti_feed *feed = t->feed;
    t->cached = NULL;
    t->may_cache = false;
    if (!feed->cached)
        return;
    t->form = (psti_cache_key){psti_dataset_identity(feed->spec.data, t->id), feed->spec.form};
    t->cached = psti_cache_find(feed->pool->cache, &t->form, &t->may_cache);
    if (t->cached && feed->fetches && !rest_known(t))
        t->cached = NULL;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Whether the bytes that were read are those of the identity: the file may have changed between
 * naming and reading it. */
static bool still_the_same(const task *t)
{
    const psti_id128 now = psti_dataset_identity(t->feed->spec.data, t->id);
    return now.lo == t->form.sample.lo && now.hi == t->form.sample.hi;
}

/* Whether whole pictures fit into the part of the budget for large samples. */
static bool fits(worker *w)
{
    psti_pool *pool = w->pool;
    const size_t need = psti_work_need(w->work);
    if (need <= pool->keep)
        return true;
    pthread_mutex_lock(&pool->lock);
    const bool fit = need - pool->keep <= pool_extra_max_locked(pool);
    pthread_mutex_unlock(&pool->lock);
    return fit;
}

/* Turns the work to whole pictures, with an entry of the cache to put them into. NULL when there is
 * no room for either; then the work may have been turned. */
static psti_cache_entry *reserve(worker *w, const task *t)
{
    psti_decoded pictures[PSTI_FORM_PICTURES];
    psti_cache *cache = w->pool->cache;
    const int count = psti_plan_decoded_pictures(t->feed->spec.plan);
    for (int p = 0; p < count; p++)
        pictures[p] = psti_work_decoded(w->work, p);
    if (!psti_cache_has_room(cache, pictures, count) || !still_the_same(t))
        return NULL;
    if (psti_work_whole(w->work, &w->kit, true, NULL) < 0 || !fits(w))
        return NULL;
    return psti_cache_reserve(cache, &t->form, pictures, count);
}

static void copy_rows(const psti_field *from, psti_field *to)
{
    for (int64_t y = 0; y < to->shape[0]; y++)
        memcpy(to->data + (size_t)y * to->stride, from->data + (size_t)y * from->stride,
               to->stride);
}

/* Runs the decoded stages and keeps what they made, if it is sound as a whole. */
static int make(worker *w, const task *t, psti_cache_entry *entry, pst_error *err)
{
    int rc = 0;
    while (rc >= 0 && !psti_work_at_decoded(w->work))
        rc = psti_work_step(w->work, &w->kit, err);
    if (rc < 0 || !psti_work_sound(w->work)) {
        psti_cache_abandon(w->pool->cache, entry);
        return rc < 0 ? rc : 0;
    }
    psti_decoded *mine = psti_cache_fill(entry);
    const int count = psti_plan_decoded_pictures(t->feed->spec.plan);
    for (int p = 0; p < count; p++) {
        const psti_decoded made = psti_work_decoded(w->work, p);
        copy_rows(&made.field, &mine[p].field);
    }
    psti_cache_publish(w->pool->cache, entry);
    return 0;
}

/* The work is started and nothing of it has run. Makes the sample's decoded form if there is room
 * for it, and goes on from there; or leaves the work to be carried out as without a cache, started
 * anew where that is needed. */
int form_make(worker *w, task *t, uint64_t *extra, pst_error *err)
{
    psti_kit *kit = &w->kit;
    const uint64_t warnings = kit->warnings;
    uint64_t runs[PST_STAGES_MAX];
    psti_cache_entry *entry = reserve(w, t);
    if (!entry)
        return psti_work_whole(w->work, kit, false, err);
    memcpy(runs, kit->stage_runs, sizeof runs);
    int rc = task_take_extra(w, extra, err);
    if (rc < 0)
        psti_cache_abandon(w->pool->cache, entry);
    else
        rc = make(w, t, entry, err);
    if (rc == 0 || rc == PST_ECALL) /* the caller's function would fail on the part too */
        return rc;
    /* What is wrong with the whole need not be wrong with the part that is used. */
    psti_error_clear(err);
    kit->warnings = warnings;
    memcpy(kit->stage_runs, runs, sizeof runs);
    psti_work_clear(w->work, kit, w->pool->keep);
    if (*extra)
        pool_extra_give(w->pool, *extra);
    *extra = 0;
    return task_start_work(w, t, err);
}
