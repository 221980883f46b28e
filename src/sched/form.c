/* SPDX-License-Identifier: Apache-2.0
 * Decoded forms of samples: what the cache may take of the budget, finding a sample's form when it
 * is aimed at, making it when there is room. Whatever happens here, the sample comes out as without
 * the cache; only the way there differs. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

/* ---- what the cache may take ----------------------------------------------------------------- */

enum { CACHE_LEAST = 64 << 10, MEASURE_EACH = 32 };
static const uint64_t AUTO_WORK_LEAST = 64ull << 20, AUTO_WORK_MOST = 2ull << 30;

uint64_t psti_cache_auto_work(uint64_t memory_bytes)
{
    const uint64_t half = memory_bytes / 2;
    return half < AUTO_WORK_LEAST ? AUTO_WORK_LEAST : half > AUTO_WORK_MOST ? AUTO_WORK_MOST : half;
}

/* Volumes are far larger than pictures, and a worker has one of them in hand at a time: where there
 * is much memory they have more of it. */
static uint64_t auto_work(const psti_pool *pool)
{
    const uint64_t usual = psti_cache_auto_work(pool->budget.limit);
    const uint64_t most = pool->budget.limit / 4;
    return pool->voluminous && most > usual ? most : usual;
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
    return pool->cache_auto ? atomic_load_explicit(&pool->cache_taken, memory_order_relaxed)
                            : pool->cache_limit;
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
    if (pool->voluminous && rest > AUTO_WORK_MOST)
        return 4 * rest;
    return rest > AUTO_WORK_LEAST && rest > fixed ? 2 * rest : fixed + rest;
}

/* What the cache may have with so many bytes more in the fixed part. */
static uint64_t allowed_locked(const psti_pool *pool, uint64_t coming)
{
    if (!pool->cache_auto)
        return pool->cache_limit;
    const uint64_t off = pool->fixed + coming + auto_work(pool) + auto_later_locked(pool);
    return pool->budget.limit > off ? pool->budget.limit - off : 0;
}

void pool_cache_yield_locked(psti_pool *pool, uint64_t coming)
{
    const uint64_t allowed = allowed_locked(pool, coming);
    const uint64_t before = atomic_load_explicit(&pool->cache_allowed, memory_order_relaxed);
    if (!pool->cache || allowed == before)
        return;
    atomic_store_explicit(&pool->cache_allowed, allowed, memory_order_relaxed);
    if (atomic_load_explicit(&pool->cache_taken, memory_order_relaxed) > allowed)
        psti_cache_shrink(pool->cache, allowed);
    else
        psti_cache_retry(pool->cache);
}

/* Without pool->lock: the cache's lock comes after it. */
static bool take(void *user, uint64_t bytes)
{
    psti_pool *pool = user;
    uint64_t taken = atomic_load_explicit(&pool->cache_taken, memory_order_relaxed);
    do {
        const uint64_t most = atomic_load_explicit(&pool->cache_allowed, memory_order_relaxed);
        if (taken > most || bytes > most - taken)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&pool->cache_taken, &taken, taken + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    psti_budget_force(&pool->budget, bytes); /* the parts add up to the limit */
    return true;
}

static void give(void *user, uint64_t bytes)
{
    psti_pool *pool = user;
    atomic_fetch_sub_explicit(&pool->cache_taken, bytes, memory_order_relaxed);
    psti_budget_give(&pool->budget, bytes);
}

static void set_caps(psti_pool *pool, const double forms[PSTI_FORMS], uint64_t bytes)
{
    uint64_t caps[PSTI_FORMS];
    if (forms[PSTI_ENCODED] + forms[PSTI_DECODED] + forms[PSTI_AUGMENTED] == 0)
        return;
    for (int f = 0; f < PSTI_FORMS; f++)
        caps[f] = forms[f] >= 1 ? UINT64_MAX : (uint64_t)(forms[f] * (double)bytes);
    psti_cache_caps(pool->cache, caps);
    pool->augmented_most = caps[PSTI_AUGMENTED];
    pool->keeps_encoded = forms[PSTI_ENCODED] > 0;
}

int pool_cache_open(psti_pool *pool, uint64_t bytes, const double forms[3])
{
    pool->cache_auto = bytes == PST_CACHE_AUTO;
    pool->cache_limit = pool->cache_auto ? 0 : bytes;
    const uint64_t allowed = allowed_locked(pool, 0);
    if (!bytes || allowed < CACHE_LEAST) /* auto in a small budget: none */
        return 0;
    atomic_store_explicit(&pool->cache_allowed, allowed, memory_order_relaxed);
    const psti_cache_spec spec = {pool->cache_auto ? pool->budget.limit : bytes, take, give, pool};
    const int rc = psti_cache_new(&spec, &pool->cache);
    pool->augmented_most = UINT64_MAX;
    if (rc == 0)
        set_caps(pool, forms, allowed);
    return rc;
}

/* Decoded samples of one form are worth the same per byte: larger ones cost more to decode. */
int form_owner(psti_feed *feed)
{
    const psti_cache_owner_spec spec = {.form = PSTI_DECODED, .name = feed->spec.form};
    feed->decoded = psti_cache_owner_open(feed->pool->cache, &spec);
    return feed->decoded ? 0 : -ENOMEM;
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

void form_drop(task *t)
{
    if (t->cached)
        psti_cache_unpin(t->feed->pool->cache, t->cached);
    t->cached = NULL;
    t->augmented = false;
    stored_drop(t);
}

void form_find(task *t)
{
    const psti_feed *feed = t->feed;
    if (t->augmented)
        return; /* it goes with the task, however often that is read */
    form_drop(t);
    t->may_cache = false;
    if (!feed->cached && !feed->encoded && !feed->tiered)
        return;
    t->form = (psti_cache_key){psti_dataset_identity(feed->spec.data, t->id), feed->spec.form};
    if (!feed->cached)
        return;
    t->cached = psti_cache_find(feed->pool->cache, &t->form, &t->may_cache);
    if (t->cached && feed->fetches && !rest_known(t))
        form_drop(t);
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

/* Where a form that is being made goes to. */
typedef struct making {
    psti_cache_entry *entry; /* of the cache, or NULL */
    bool tier;               /* to tiers */
} making;

/* The decoded form as far as it is known. */
static psti_cache_content form_of(const worker *w, const task *t, psti_decoded *pictures)
{
    const int count = psti_plan_decoded_parts(t->feed->spec.plan);
    for (int p = 0; p < count; p++) {
        pictures[p] = psti_work_decoded(w->work, p);
        /* As it will be found: a picture of its own, all of it sound. */
        psti_field *f = &pictures[p].field;
        const psti_geom size = psti_field_geom(f);
        f->x0 = f->y0 = f->z0 = 0;
        f->whole_rows = size.rows;
        f->whole_cols = size.cols;
        f->whole_depth = size.depth;
        f->first_damaged_row = PSTI_ROWS_SOUND;
    }
    return (psti_cache_content){.pictures = pictures, .count = count};
}

static bool cache_takes(const task *t, const psti_cache_content *content)
{
    const psti_feed *feed = t->feed;
    return t->may_cache && !atomic_load_explicit(&feed->keeps_encoded, memory_order_relaxed) &&
           psti_cache_has_room(feed->pool->cache, feed->decoded, content, 1);
}

/* Now and then, where there is no cache to keep it: how large the decoded form would be, for who
 * asks what a cache would bring. The work is started and nothing of it has run. */
void form_measure(const worker *w, const task *t)
{
    psti_feed *feed = t->feed;
    if (feed->cached || t->start % MEASURE_EACH != 0)
        return;
    size_t total = 0, bytes;
    for (int p = 0; p < psti_plan_decoded_pictures(feed->spec.plan); p++) {
        const psti_decoded picture = psti_work_decoded(w->work, p);
        const psti_geom size = psti_field_geom(&picture.field);
        total += psti_geom_bytes(&size, &bytes) ? bytes : 0;
    }
    const double before = atomic_load_explicit(&feed->decoded_bytes, memory_order_relaxed);
    const double mean = before > 0 ? before + ((double)total - before) / 8 : (double)total;
    atomic_store_explicit(&feed->decoded_bytes, mean, memory_order_relaxed);
}

/* Turns the work to whole pictures, with a place to put them into. False when there is no room for
 * either; then the work may have been turned. */
static bool reserve(worker *w, task *t, making *out)
{
    psti_decoded pictures[PSTI_FORM_PARTS];
    const psti_cache_content content = form_of(w, t, pictures);
    const bool cached = cache_takes(t, &content);
    *out = (making){.tier = tiers_want_form(t, &content)};
    if ((!cached && !out->tier) || !still_the_same(t))
        return false;
    if (psti_work_whole(w->work, &w->kit, true, NULL) < 0 || !fits(w))
        return false;
    if (cached)
        out->entry = psti_cache_reserve(w->pool->cache, t->feed->decoded, &t->form, &content, 1);
    return out->entry || out->tier;
}

static void abandon(worker *w, const making *m)
{
    if (m->entry)
        psti_cache_abandon(w->pool->cache, m->entry, true);
}

static void publish(worker *w, task *t, psti_cache_entry *entry, const psti_cache_content *content)
{
    size_t bytes = 0;
    psti_decoded *mine = psti_cache_fill(entry);
    for (int p = 0; p < content->count; p++) {
        psti_field_copy(&content->pictures[p].field, &mine[p].field);
        bytes += mine[p].field.bytes;
    }
    atomic_store_explicit(&t->feed->decoded_bytes, (double)bytes, memory_order_relaxed);
    psti_cache_publish(w->pool->cache, entry);
    psti_cache_unpin(w->pool->cache, entry);
    stored_retire(t);
}

/* Runs the decoded stages and keeps what they made, if it is sound as a whole. */
static int make(worker *w, task *t, const making *m, pst_error *err)
{
    int rc = 0;
    while (rc >= 0 && !psti_work_at_decoded(w->work)) {
        task_steps(w, t);
        rc = psti_work_step(w->work, &w->kit, err);
    }
    if (rc < 0 || !psti_work_sound(w->work)) {
        abandon(w, m);
        return rc < 0 ? rc : 0;
    }
    const uint64_t since = w->ring ? psti_now_ns() : 0;
    psti_decoded pictures[PSTI_FORM_PARTS];
    const psti_cache_content content = form_of(w, t, pictures);
    if (m->tier)
        tiers_keep_form(t, &content);
    if (m->entry)
        publish(w, t, m->entry, &content);
    if (w->ring)
        trace_slice(w, PSTI_TRACE_STAGE_KEEP, t->id, since, psti_now_ns());
    t->made = true;
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
    making m;
    if (!reserve(w, t, &m))
        return psti_work_whole(w->work, kit, false, err);
    memcpy(runs, kit->stage_runs, sizeof runs);
    int rc = task_take_extra(w, extra, err);
    if (rc < 0)
        abandon(w, &m);
    else
        rc = make(w, t, &m, err);
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
