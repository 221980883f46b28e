/* SPDX-License-Identifier: Apache-2.0
 * Runs: one epoch of a feed in progress. A run knows its order and deal, how far it was dispatched,
 * which batches are ready, and what was consumed. A run is made without a lock; once it has begun,
 * everything is under pool->lock. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

static void run_free(run *r)
{
    psti_epoch_close(r->epoch);
    psti_deal_free(r->deal);
    for (int64_t i = 0; r->cells && i < r->cell_count; i++) {
        if (r->cells[i].record)
            record_drop_locked(r->feed, r->cells[i].record);
        psti_free(r->cells[i].error);
    }
    shelf_clear_locked(r);
    psti_free(r->shelf);
    psti_free(r->cells);
    psti_free(r->base);
    psti_free(r->used);
    psti_free(r->skipped);
    psti_free(r->skipped_share);
    psti_free(r->rest);
    psti_free(r->others);
    psti_free(r->early);
    psti_free(r);
}

static int run_tables(run *r, const psti_state *from)
{
    const psti_feed *feed = r->feed;
    if (feed->way == QUEUE) {
        r->cell_count = feed->outstanding_max + 1;
        r->cells = psti_calloc(PSTI_MEM_SCHED, (size_t)r->cell_count, sizeof *r->cells);
        if (!r->cells)
            return -ENOMEM;
    }
    if (shelf_open(r) < 0)
        return -ENOMEM;
    const size_t bytes = (size_t)(psti_order_length(feed->spec.order) + 7) / 8;
    if (from && from->used) {
        r->base = psti_malloc(PSTI_MEM_SCHED, bytes);
        if (!r->base)
            return -ENOMEM;
        memcpy(r->base, from->used, bytes);
    }
    if (feed->spec.mode == PST_ORDER_READY) {
        r->used = psti_calloc(PSTI_MEM_SCHED, bytes, 1);
        if (!r->used)
            return -ENOMEM;
    }
    return 0;
}

static int run_deal(run *r, const psti_state *from, pst_error *err)
{
    const psti_feed_spec *s = &r->feed->spec;
    const psti_deal_spec deal = {
        .length = psti_order_length(s->order),
        .batch = s->batch,
        .rank = s->rank,
        .world = s->world,
        .ends = s->ends,
        .prefix = from && !from->used ? from->prefix : 0,
        .used = from ? from->used : NULL,
    };
    const int rc = psti_deal_new(&deal, &r->deal, err);
    if (rc < 0)
        return rc;
    r->base_prefix = deal.prefix;
    int64_t before = deal.prefix;
    for (int64_t i = 0; deal.used && i < (deal.length + 7) / 8; i++)
        before += __builtin_popcount(deal.used[i]);
    if (from) /* they took no slot */
        before -= from->skipped_count < before ? from->skipped_count : before;
    r->first_step = before / ((int64_t)s->batch * s->world);
    r->steps = psti_deal_steps(r->deal);
    r->share = psti_deal_share(r->deal);
    r->slots = s->ends == PST_ENDS_SHORT ? r->share : r->steps * s->batch;
    if (r->slots < r->share) /* drop: what is beyond the last step is nobody's */
        r->share = r->slots;
    return 0;
}

static int no_memory(uint64_t number, pst_error *err)
{
    return psti_fail(err, -ENOMEM, "epoch", NULL, "out of memory while starting epoch %llu",
                     (unsigned long long)number);
}

run *run_new(psti_feed *feed, uint64_t number, const psti_state *from, pst_error *err)
{
    run *r = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *r);
    if (!r) {
        no_memory(number, err);
        return NULL;
    }
    r->feed = feed;
    r->number = number;
    r->refs = 1;
    int rc = run_deal(r, from, err);
    if (rc == 0)
        rc = psti_epoch_open(feed->spec.order, number, &r->epoch, err);
    if (rc == 0 && feed->group && group_others(r, &r->others) < 0)
        rc = no_memory(number, err);
    if (rc == 0 && run_tables(r, from) < 0)
        rc = no_memory(number, err);
    for (int64_t i = 0; rc == 0 && from && i < from->skipped_count; i++)
        if (run_note_skip_locked(r, from->skipped[i], -1) < 0)
            rc = no_memory(number, err);
    if (rc < 0) {
        run_free(r);
        return NULL;
    }
    foresight_begin(r);
    return r;
}

void run_begin_locked(run *r)
{
    r->serial = ++r->feed->run_serial;
    if (r->feed->group)
        group_epoch_locked(r);
}

void run_unref_locked(run *r)
{
    assert(r->refs > 0);
    if (--r->refs == 0)
        run_free(r);
}

/* Lets go of what nobody writes to; what is being written to goes when its tasks end. */
void run_cancel_locked(run *r)
{
    r->cancelled = true;
    read_cancel_locked(r);
    ahead_cancel_locked(r);
    group_unpick_locked(r);
    lane_cancel_locked(r);
    own_cancel_locked(r);
    shelf_clear_locked(r);
    r->feed->outstanding -= r->outstanding;
    r->outstanding = 0;
    while (r->ready) {
        pst_batch *block = r->ready;
        r->ready = block->next;
        block_drop_locked(r->feed, block);
    }
    if (r->open && r->open->placed == r->open->filled) {
        pst_batch *block = r->open;
        r->open = NULL;
        block_drop_locked(r->feed, block);
    }
}

void run_settled_locked(run *r, int64_t samples)
{
    if (r->cancelled)
        return;
    r->outstanding -= samples;
    r->feed->outstanding -= samples;
}

void run_fail_locked(run *r, const pst_error *err)
{
    if (!r->error.code)
        r->error = *err;
    feed_wake(r->feed);
}

/* Whether everything that may still be needed was sent out. Bad samples are made up for by later
 * ones, beyond the share by repeats marked invalid (not for ends = short). */
bool run_dispatched_all(const run *r)
{
    if (r->cancelled || r->error.code)
        return true;
    if (r->feed->spec.ends == PST_ENDS_SHORT || !r->feed->spec.skip)
        return r->next_share >= (r->rest ? r->rest_count : r->slots);
    return r->placed + r->inflight + shelf_count(r) >= r->slots;
}

int64_t run_next_share(const run *r)
{
    if (!r->rest)
        return r->next_share;
    return r->next_share < r->rest_count ? r->rest[r->next_share]
                                         : r->slots + (r->next_share - r->rest_count);
}

/* Under skip, what is past the share repeats the share once, then any sample of the epoch: the
 * share may be empty, or bad as a whole. */
int64_t run_position(const run *r, int64_t share, bool *valid)
{
    if (share < r->share || !r->feed->spec.skip)
        return psti_deal_position(r->deal, share, valid);
    int64_t position = share - r->share;
    if (position < r->share)
        position = psti_deal_position(r->deal, position, valid);
    else
        position = (position - r->share) % psti_order_length(r->feed->spec.order);
    *valid = false;
    return position;
}

/* Whether the sample with the next id comes next. */
bool run_goes_on(const run *r, int64_t share)
{
    bool valid;
    if (r->rest || r->feed->group || share + 1 >= r->share)
        return false;
    const int64_t here = run_position(r, share, &valid);
    return psti_epoch_goes_on(r->epoch, here) && run_position(r, share + 1, &valid) == here + 1;
}

/* With ends = short the last batch holds what is left. Returns it when it only needs sealing. */
pst_batch *run_check_end_locked(run *r)
{
    if (r->feed->way == FIXED || r->feed->spec.ends != PST_ENDS_SHORT || r->cancelled ||
        r->error.code)
        return NULL;
    if (r->next_share < (r->rest ? r->rest_count : r->slots) || r->inflight > 0)
        return NULL;
    pst_batch *last = r->open;
    r->open = NULL;
    r->steps = r->opened;
    feed_wake(r->feed);
    if (!last)
        return NULL;
    last->slots = last->placed;
    return last->filled == last->slots ? last : NULL;
}

void batch_publish_locked(pst_batch *block, int64_t last_id)
{
    run *r = block->run;
    block->state = BLOCK_READY;
    r->published += !r->cancelled;
    trace_batch_locked(block, PSTI_TRACE_READY, (uint64_t)(last_id + 1));
    if (r->cancelled) {
        block_drop_locked(r->feed, block);
        return;
    }
    pst_batch **at = &r->ready;
    while (*at && (*at)->step < block->step)
        at = &(*at)->next;
    block->next = *at;
    *at = block;
    feed_wake(r->feed);
}

int run_note_skip_locked(run *r, int64_t position, int64_t share)
{
    if (r->skipped_count == r->skipped_cap) {
        const int64_t cap = r->skipped_cap ? 2 * r->skipped_cap : 16;
        int64_t *a = psti_realloc(PSTI_MEM_SCHED, r->skipped, (size_t)cap, sizeof *a);
        if (a)
            r->skipped = a;
        int64_t *b = psti_realloc(PSTI_MEM_SCHED, r->skipped_share, (size_t)cap, sizeof *b);
        if (b)
            r->skipped_share = b;
        if (!a || !b)
            return -ENOMEM;
        r->skipped_cap = cap;
    }
    r->skipped[r->skipped_count] = position;
    r->skipped_share[r->skipped_count++] = share;
    return 0;
}
