/* SPDX-License-Identifier: Apache-2.0
 * Feeds, seen from the consumer: opening, taking batches, moving between epochs, what was consumed,
 * closing. */
#include <errno.h>
#include <string.h>

#include "core/futex.h"
#include "sched/sched_priv.h"

/* ---- small helpers --------------------------------------------------------------------------- */

void feed_wake(psti_feed *feed)
{
    atomic_fetch_add(&feed->wake, 1);
    psti_futex_wake_all(&feed->wake);
    if (feed->spec.hooks.wake)
        feed->spec.hooks.wake(feed->spec.hooks.user);
}

void psti_feed_abort(psti_feed *feed)
{
    atomic_store(&feed->aborted, true);
    feed_wake(feed);
}

static size_t damage_slot(const damage_map *map, int64_t id, int field)
{
    size_t i = (size_t)psti_mix64((uint64_t)id * 32 + (uint64_t)field) & (map->cap - 1);
    while (map->at[i].used && (map->at[i].id != id || map->at[i].field != field))
        i = (i + 1) & (map->cap - 1);
    return i;
}

int64_t damage_get(const damage_map *map, int64_t id, int field)
{
    if (!map->count)
        return -1;
    const size_t i = damage_slot(map, id, field);
    return map->at[i].used ? map->at[i].row : -1;
}

void damage_put(damage_map *map, int64_t id, int field, int64_t row)
{
    if (2 * (map->count + 1) > map->cap) {
        damage_map larger = {.cap = map->cap ? 2 * map->cap : 64, .count = map->count};
        larger.at = psti_calloc(PSTI_MEM_SCHED, larger.cap, sizeof *larger.at);
        if (!larger.at)
            return; /* it is only remembered for speed */
        for (size_t i = 0; i < map->cap; i++)
            if (map->at[i].used)
                larger.at[damage_slot(&larger, map->at[i].id, map->at[i].field)] = map->at[i];
        psti_free(map->at);
        *map = larger;
    }
    struct damage *d = &map->at[damage_slot(map, id, field)];
    map->count += !d->used;
    *d = (struct damage){id, field, 1, row};
}

void damage_forget(damage_map *map, int64_t id)
{
    for (int field = 0; field < PSTI_FIELDS_MAX && map->count; field++) {
        const size_t i = damage_slot(map, id, field);
        if (map->at[i].used)
            map->at[i].row = -1;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static way choose_way(const psti_feed *feed)
{
    const bool fixed = feed->layout.dense && !feed->spec.skip;
    /* Samples that are fetched come to whichever worker is free. */
    if (fixed && !feed->group && !feed->fetches && !feed->far &&
        feed->spec.schedule == PST_SCHEDULE_BATCH_PER_WORKER)
        return FIXED;
    if (feed->spec.mode == PST_ORDER_READY)
        return feed->layout.dense ? CLAIM : HEAP;
    return fixed ? FIXED : QUEUE;
}

/* Ready ones, what the consumer holds, one being filled; where slots are not fixed one more. */
static int ring_blocks(const psti_feed *feed, int depth)
{
    const int own = own_batches(feed) ? feed->pool->worker_count : 0;
    const int blocks = depth + feed->spec.leases + own + (feed->way == FIXED ? 1 : 2);
    return blocks < RING_MOST ? blocks : RING_MOST;
}

static uint64_t ring_bytes(const psti_feed *feed, int depth)
{
    return feed->layout.bytes * (uint64_t)ring_blocks(feed, depth);
}

static bool has_volumes(const psti_feed *feed)
{
    for (int i = 0; i < feed->outputs; i++)
        if (feed->out[i].kind == PST_VOLUME)
            return true;
    return false;
}

/* As deep a ring as asked for, less if bytes are short. */
static int open_ring_locked(psti_feed *feed, pst_error *err)
{
    psti_pool *pool = feed->pool;
    feed->voluminous = has_volumes(feed);
    pool->voluminous += feed->voluminous;
    const uint64_t listing = psti_dataset_bytes(feed->spec.data);
    feed->fixed_most = ring_bytes(feed, feed->spec.ready_depth) + listing;
    for (int depth = feed->spec.ready_depth; depth >= 1; depth--) {
        /* Prefer a shallower ring to one that takes more than half of the budget. */
        const uint64_t bytes = ring_bytes(feed, depth) + listing;
        if (depth > 1 && bytes > (pool->budget.limit - pool->cache_limit) / 2)
            continue;
        if (!pool_fixed_take_locked(pool, bytes))
            continue;
        feed->depth = depth;
        feed->fixed_bytes = bytes;
        feed->stages = feed->way == QUEUE || feed->way == HEAP;
        pool->stagers += feed->stages;
        feed->blocks_max = ring_blocks(feed, depth);
        feed->outstanding_max = (int64_t)(depth + 1) * feed->spec.batch;
        return 0;
    }
    const uint64_t kept =
        (uint64_t)pool->worker_count * (KEEP_MOST - pool->keep); /* more, with a larger budget */
    const uint64_t held = pool_cache_held_locked(pool);
    const uint64_t needed =
        (pool->fixed + kept + ring_bytes(feed, 1) + listing) / 7 * 8 + held + (1u << 20);
    return psti_fail(err, PST_EBUDGET, "memory", NULL,
                     "batches of %.1f MiB and the listing of %.1f MiB need a budget of at least "
                     "%.0f MiB; it is %.1f MiB, of which the cache has %.1f MiB. Give more memory, "
                     "or use a smaller batch",
                     (double)feed->layout.bytes / 0x1p20, (double)listing / 0x1p20,
                     (double)needed / 0x1p20 + 1.0, (double)pool->budget.limit / 0x1p20,
                     (double)held / 0x1p20);
}

static int feed_prepare(psti_feed *feed, pst_error *err)
{
    psti_dataset_fields(feed->spec.data, &feed->source);
    feed->outputs = psti_plan_outputs(feed->spec.plan, &feed->out);
    feed->fetches = psti_dataset_fetches(feed->spec.data);
    feed->far = psti_dataset_is_far(feed->spec.data);
    look_open(feed);
    stall_open(feed);
    int rc = psti_dataset_start(feed->spec.data, err);
    if (rc < 0)
        return rc;
    if (feed->spec.shares && (rc = group_join(feed, err)) < 0)
        return rc;
    rc = layout_make(feed, &feed->layout, err);
    if (rc < 0)
        return rc;
    feed->way = choose_way(feed);
    parts_open(feed);
    ahead_open(feed);
    lane_open(feed);
    feed->cached =
        feed->spec.cache && feed->pool->cache && psti_plan_decoded_pictures(feed->spec.plan) > 0;
    const bool keeps = feed->spec.cache && feed->pool->cache;
    const bool tiers = feed->spec.cache && (feed->pool->disk || feed->pool->asker);
    if ((keeps || tiers) && psti_dataset_keep_versions(feed->spec.data) < 0)
        return psti_fail(err, -ENOMEM, "job", NULL, "out of memory while opening the job");
    if ((feed->cached && form_owner(feed) < 0) ||
        (keeps && !feed->fetches && stored_owner(feed) < 0))
        return psti_fail(err, -ENOMEM, "job", NULL, "out of memory while opening the job");
    tiers_open_feed(feed);
    feed->next_epoch = feed->spec.first_epoch;
    feed->end_epoch = feed->spec.epochs ? feed->spec.first_epoch + feed->spec.epochs : UINT64_MAX;
    feed->opened_ns = psti_now_ns();
    if (ring_new(feed, &feed->ring) < 0 || window_open(feed) < 0)
        return psti_fail(err, -ENOMEM, "job", NULL, "out of memory while opening the job");
    foresight_open(feed);
    trace_open_feed(feed);
    return 0;
}

int psti_feed_open(psti_pool *pool, const psti_feed_spec *spec, psti_feed **out, pst_error *err)
{
    psti_feed *feed = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *feed);
    if (!feed) {
        psti_plan_free(spec->plan);
        psti_order_free(spec->order);
        return psti_fail(err, -ENOMEM, "job", NULL, "out of memory while opening the job");
    }
    feed->pool = pool;
    feed->spec = *spec;
    psti_dataset_ref(spec->data);
    int rc = feed_prepare(feed, err);
    pthread_mutex_lock(&pool->lock);
    if (rc == 0)
        rc = open_ring_locked(feed, err);
    feed->next = pool->feeds;
    pool->feeds = feed;
    feed->started = rc == 0;
    if (rc == 0)
        look_begin_locked(feed);
    tiers_feeds_changed_locked(pool);
    pool_pump_locked(pool);
    pthread_mutex_unlock(&pool->lock);
    if (rc < 0) {
        psti_feed_close(feed);
        return rc;
    }
    *out = feed;
    return 0;
}

/* ---- closing --------------------------------------------------------------------------------- */

void cancel_all_locked(psti_feed *feed)
{
    while (feed->runs) {
        run *r = feed->runs;
        feed->runs = r->next;
        feed->run_count--;
        run_cancel_locked(r);
        run_unref_locked(r);
    }
    feed->start_base = feed->start_next;
}

static void unlink_locked(psti_feed *feed)
{
    psti_pool *pool = feed->pool;
    psti_feed **at = &pool->feeds;
    while (*at != feed)
        at = &(*at)->next;
    *at = feed->next;
    if (pool->turn == feed)
        pool->turn = NULL;
}

void psti_feed_close(psti_feed *feed)
{
    if (!feed)
        return;
    psti_pool *pool = feed->pool;
    ring_detach(feed->ring);
    pthread_mutex_lock(&pool->lock);
    feed->closing = true;
    waits_end_locked(feed);
    cancel_all_locked(feed);
    pool_pump_locked(pool); /* what was put aside is for workers to end, and they may be idle */
    while (feed->inflight > 0 || feed->epoch_making || feed->shelf_busy || feed->ahead.reading)
        pthread_cond_wait(&pool->room, &pool->lock);
    look_end_locked(feed);
    unlink_locked(feed);
    group_leave_locked(feed);
    ahead_close_locked(feed);
    while (feed->free_blocks) {
        pst_batch *block = feed->free_blocks;
        feed->free_blocks = block->next;
        block_free(block);
    }
    record_free_all(feed);
    pages_free_all_locked(feed);
    pool->stagers -= feed->stages;
    pool->voluminous -= feed->voluminous;
    tiers_feeds_changed_locked(pool);
    pool_fixed_give_locked(pool, feed->fixed_bytes);
    pool_pump_locked(pool); /* others may have waited for what it had chosen */
    if (!pool->feeds && pool->extra_held)
        pthread_cond_broadcast(&pool->work); /* nobody needs it any more */
    pthread_mutex_unlock(&pool->lock);
    tiers_close_feed(feed);
    if (feed->ring)
        ring_unref(feed->ring);
    if (feed->decoded)
        psti_cache_owner_close(pool->cache, feed->decoded);
    if (feed->encoded)
        psti_cache_owner_close(pool->cache, feed->encoded);
    psti_plan_free(feed->spec.plan);
    psti_order_free(feed->spec.order);
    psti_dataset_unref(feed->spec.data);
    foresight_close(feed);
    psti_free(feed->born);
    psti_free(feed->damage.at);
    findings_fini(&feed->findings);
    psti_free(feed);
}

/* ---- taking batches ----------------------------------------------------------------------------
 */

enum { WAIT = 2 };

static void lease_locked(psti_feed *feed, run *r, pst_batch *block)
{
    r->ready = block->next;
    block->next = NULL;
    block->state = BLOCK_LEASED;
    feed->leased++;
    if (!feed->layout.dense)
        feed->pool->staged -= block->cap; /* the caller's now */
    atomic_fetch_add_explicit(&block->ring->refs, 1, memory_order_relaxed);
    r->delivered++;
    r->consumed_share = block->share_end;
    run_settled_locked(r, block->slots);
    for (int i = 0; i < block->slots; i++) {
        const int64_t p = block->positions[i];
        if (feed->spec.mode == PST_ORDER_READY) {
            window_done_locked(feed, block->starts[i]);
            if (block->valid[i])
                r->used[p >> 3] |= (uint8_t)(1u << (p & 7));
        }
        feed->samples += block->valid[i];
        feed->pads += !block->valid[i];
    }
    feed->batches++;
    feed->delivered_bytes += block->bytes;
    lane_pace_locked(feed);
    tuner_look_locked(feed);
    worth_update_locked(feed->pool);
    if (!feed->first_batch_ns)
        feed->first_batch_ns = psti_now_ns() - feed->opened_ns;
    trace_batch_locked(block, PSTI_TRACE_TAKEN, 0);
    block->epoch = r->number;
    block->steps = r->steps;
    block->run = NULL;
    run_unref_locked(r);
}

/* A sample that timed out, at a server or on a network file system, must not be taken for a call
 * that did: to the caller that one only says that nothing is there yet. */
static int fail_locked(psti_feed *feed, const pst_error *err)
{
    feed->error = *err;
    look_bad_locked(feed, err);
    if (err->code == -ETIMEDOUT || err->code == -ECANCELED)
        feed->error.code = -EIO;
    return feed->error.code;
}

/* 1 and a batch, 0 at an epoch's end, a negative code, or WAIT. */
static int take_locked(psti_feed *feed, pst_batch **out)
{
    if (feed->error.code)
        return feed->error.code;
    run *r = feed->runs;
    if (!r)
        return feed->next_epoch >= feed->end_epoch ? 0 : WAIT;
    if (r->delivered >= r->steps && !r->error.code) {
        feed->runs = r->next;
        feed->run_count--;
        run_unref_locked(r);
        return 0;
    }
    pst_batch *block = r->ready;
    if (block && (feed->spec.mode == PST_ORDER_READY || block->step == r->delivered)) {
        if (block->error.code)
            return fail_locked(feed, &block->error);
        *out = block;
        lease_locked(feed, r, block);
        return 1;
    }
    /* An error ends the run, but what was complete before it comes first. */
    const int64_t complete = r->opened - (r->open != NULL);
    if (r->error.code && (feed->way == FIXED || r->published >= complete))
        return fail_locked(feed, &r->error);
    shelf_ask_locked(feed);
    return WAIT;
}

static void note_wait_locked(psti_feed *feed, const pst_batch *block, uint64_t since)
{
    const uint64_t waited = psti_now_ns() - since;
    feed->wait_since = 0;
    feed->last_batch_ns = since + waited;
    if (feed->batches == 1) {
        feed->first_wait_ns = waited;
        waits_first_locked(feed);
    }
    if (!feed->spec.hooks.wake) /* else its owner tells, psti_feed_waited */
        look_waited_locked(feed, block ? psti_trace_step(block->epoch, block->step) : -1, waited);
}

/* Once a feed, and only when it is the consumer's doing. How many it holds, or 0. */
static int tell_fresh_locked(psti_feed *feed)
{
    if (feed->fresh_told || !feed->fresh || feed->leased <= feed->spec.leases ||
        feed->spec.hooks.take) /* whose owner sees to it */
        return 0;
    feed->fresh_told = true;
    return feed->leased;
}

static void tell_fresh(const psti_feed *feed, int kept)
{
    if (kept)
        psti_log(PSTI_LOG_WARN,
                 "%d batches are kept, more than the ring holds: further ones are written to fresh "
                 "memory beyond the budget, %.1f MiB each, until batches are released",
                 kept, (double)feed->layout.bytes / 0x1p20);
}

static int wait_no_more(psti_feed *feed)
{
    pthread_mutex_lock(&feed->pool->lock);
    waits_end_locked(feed);
    pthread_mutex_unlock(&feed->pool->lock);
    return -ECANCELED;
}

int psti_feed_next(psti_feed *feed, int64_t timeout_ns, pst_batch **out)
{
    psti_pool *pool = feed->pool;
    const uint64_t called = psti_now_ns();
    const uint64_t until = timeout_ns < 0 ? 0 : called + (uint64_t)timeout_ns;
    for (;;) {
        /* Before looking at anything that a wake-up tells of, psti_feed_abort's flag included. */
        const unsigned seen = atomic_load(&feed->wake);
        if (atomic_load(&feed->aborted))
            return wait_no_more(feed);
        pthread_mutex_lock(&pool->lock);
        const int rc = take_locked(feed, out);
        feed->wanted = rc == WAIT;
        if (rc == WAIT) {
            tuner_waits_locked(feed);
            waits_begin_locked(feed, called);
        } else {
            waits_end_locked(feed);
        }
        if (rc == 1)
            note_wait_locked(feed, *out, feed->wait_since ? feed->wait_since : called);
        const bool first = rc == 1 && feed->batches == 1;
        const int kept = tell_fresh_locked(feed);
        pool_pump_unlock(pool);
        tell_fresh(feed, kept);
        if (first)
            psti_dataset_verify(feed->spec.data);
        if (rc != WAIT) {
            feed->wait_since = 0;
            feed->stall_told = 0;
            return rc;
        }
        const uint64_t look = stall_look(feed);
        if (timeout_ns >= 0 && psti_now_ns() >= until) {
            /* The wait goes on with the next call: a consumer that waits in slices waits all the
             * same. */
            if (!feed->wait_since)
                feed->wait_since = called;
            return -ETIMEDOUT;
        }
        const uint64_t wake = timeout_ns < 0 || (look && look < until) ? look : until;
        const struct timespec deadline = psti_timespec_ns(wake);
        psti_futex_wait(&feed->wake, seen, wake ? &deadline : NULL);
    }
}

/* ---- epochs ---------------------------------------------------------------------------------- */

int psti_feed_set_epoch(psti_feed *feed, uint64_t epoch)
{
    psti_pool *pool = feed->pool;
    pthread_mutex_lock(&pool->lock);
    const bool next_anyway = !feed->runs && feed->next_epoch == epoch;
    while (feed->runs) {
        run *r = feed->runs;
        if (r->number == epoch && r->delivered == 0 && !r->base_prefix && !r->base &&
            !r->error.code && !feed->error.code)
            break;
        feed->runs = r->next;
        feed->run_count--;
        run_cancel_locked(r);
        run_unref_locked(r);
    }
    if (!feed->runs && !next_anyway) {
        feed->start_base = feed->start_next;
        feed->next_epoch = epoch;
    }
    feed->error.code = 0;
    feed_wake(feed);
    pool_pump_locked(pool);
    pthread_mutex_unlock(&pool->lock);
    return 0;
}

uint64_t psti_feed_epoch(psti_feed *feed)
{
    pthread_mutex_lock(&feed->pool->lock);
    const uint64_t epoch = feed->runs ? feed->runs->number : feed->next_epoch;
    pthread_mutex_unlock(&feed->pool->lock);
    return epoch;
}

int64_t psti_feed_steps(psti_feed *feed)
{
    const psti_feed_spec *s = &feed->spec;
    const psti_deal_spec whole = {.length = psti_order_length(s->order),
                                  .batch = s->batch,
                                  .rank = s->rank,
                                  .world = s->world,
                                  .ends = s->ends};
    psti_deal *deal;
    if (psti_deal_new(&whole, &deal, NULL) < 0)
        return -ENOMEM;
    const int64_t steps = psti_deal_steps(deal);
    psti_deal_free(deal);
    return steps;
}

void psti_feed_error(psti_feed *feed, pst_error *out)
{
    pthread_mutex_lock(&feed->pool->lock);
    *out = feed->error;
    pthread_mutex_unlock(&feed->pool->lock);
}

void psti_feed_stats(psti_feed *feed, pst_job_stats *out)
{
    psti_pool *pool = feed->pool;
    pthread_mutex_lock(&pool->lock);
    out->samples = feed->samples;
    out->batches = feed->batches;
    out->skipped = feed->skipped;
    out->pads = feed->pads;
    out->warnings = feed->warnings;
    out->waits = feed->waits;
    out->wait_ns = feed->wait_ns;
    out->wait_p50_ns = psti_hist_quantile(&feed->wait_hist, 0.5);
    out->wait_p99_ns = psti_hist_quantile(&feed->wait_hist, 0.99);
    out->first_batch_ns = feed->first_batch_ns;
    out->bytes_read = feed->bytes_read;
    out->peak_bytes = psti_budget_peak(&pool->budget);
    out->ready_depth = (uint32_t)feed->depth;
    out->fresh_batches = feed->fresh;
    out->read_away_ns = feed->read_away_ns;
    out->cache_hits = feed->cache_hits;
    out->cache_misses = feed->cache_misses;
    out->preparations = feed->prepared;
    out->shared_hits = feed->shared_hits;
    out->encoded_hits = feed->stored_hits;
    out->slow_samples = feed->lanes.slow;
    out->slow_parked = feed->lanes.parks;
    out->active_workers = (uint64_t)pool->tuner.active;
    out->stragglers = feed->stragglers;
    out->slow_early = feed->foresight.started_early;
    out->prediction_error_ppm = (uint64_t)(1e6 * predict_error(&feed->foresight.predictor));
    const uint64_t cutoff = atomic_load_explicit(&feed->lanes.cutoff_ns, memory_order_relaxed);
    out->slow_cutoff_ns = cutoff == UINT64_MAX ? 0 : cutoff;
    if (pool->cache) {
        psti_cache_stats cache;
        psti_cache_stats_get(pool->cache, &cache);
        out->cache_bytes = cache.bytes;
        out->cache_entries = cache.entries;
        memcpy(out->form_entries, cache.form_entries, sizeof out->form_entries);
        memcpy(out->form_bytes, cache.form_bytes, sizeof out->form_bytes);
        out->evictions = cache.evictions;
    }
    tiers_stats_locked(feed, out);
    int count = 0;
    pst_stage_stats *s = out->stages;
    memcpy(s[count].name, "read", 5);
    s[count].runs = feed->read_runs;
    s[count++].total_ns = feed->read_ns;
    const int stages = psti_plan_stage_count(feed->spec.plan);
    for (int i = 0; i < stages && count < PST_STAGES_MAX; i++, count++) {
        const char *name = psti_plan_stage_name(feed->spec.plan, i);
        memset(s[count].name, 0, sizeof s[count].name);
        strncpy(s[count].name, name, sizeof s[count].name - 1);
        s[count].runs = feed->stage_runs[i];
        s[count].total_ns = feed->stage_ns[i];
    }
    out->stage_count = (uint32_t)count;
    pthread_mutex_unlock(&pool->lock);
}

const psti_plan *psti_feed_plan(const psti_feed *feed)
{
    return feed->spec.plan;
}

int psti_feed_memory(psti_feed *feed, int index, void **base, size_t *bytes)
{
    pthread_mutex_lock(&feed->pool->lock);
    const bool there = feed->layout.dense && index >= 0 && index < feed->blocks_max;
    feed->listed = true;
    const int rc = there ? block_ring_locked(feed) : -ENOENT;
    if (rc == 0) {
        *base = feed->members[index]->base;
        *bytes = feed->members[index]->bytes;
    }
    pthread_mutex_unlock(&feed->pool->lock);
    return rc;
}
