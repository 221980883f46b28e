/* SPDX-License-Identifier: Apache-2.0
 * What a feed has handed over, as the state blob needs it, and going on from there. Positions count
 * when their batch was handed to the caller; what is prepared ahead does not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/sched_priv.h"

static void set_bit(uint8_t *bits, int64_t p)
{
    bits[p >> 3] |= (uint8_t)(1u << (p & 7));
}

static int new_bitmap(psti_state *out)
{
    const size_t bytes = (size_t)(out->length + 7) / 8;
    out->used = psti_calloc(PSTI_MEM_SAMPLE, bytes ? bytes : 1, 1);
    return out->used ? 0 : -ENOMEM;
}

/* Adds where a resumed epoch began. */
static void add_base(const run *r, psti_state *out)
{
    for (int64_t i = 0; r->base && i < (out->length + 7) / 8; i++)
        out->used[i] |= r->base[i];
    for (int64_t p = 0; p < r->base_prefix; p++)
        set_bit(out->used, p);
}

/* Strict order that began from a bitmap: marks what the ranks of this world took since, `shares` of
 * each. */
static int mark_since(const run *r, int64_t shares, psti_state *out)
{
    const psti_feed_spec *s = &r->feed->spec;
    for (int rank = 0; rank < s->world; rank++) {
        const psti_deal_spec spec = {.length = out->length,
                                     .batch = s->batch,
                                     .rank = rank,
                                     .world = s->world,
                                     .ends = s->ends,
                                     .used = r->base};
        psti_deal *deal;
        if (psti_deal_new(&spec, &deal, NULL) < 0)
            return -ENOMEM;
        const int64_t real = psti_deal_share(deal);
        for (int64_t i = 0; i < shares && i < real; i++) {
            bool valid;
            set_bit(out->used, psti_deal_position(deal, i, &valid));
        }
        psti_deal_free(deal);
    }
    return 0;
}

static int strict_progress(const run *r, psti_state *out)
{
    const psti_feed_spec *s = &r->feed->spec;
    const int64_t real = r->consumed_share < r->share ? r->consumed_share : r->share;
    const bool alone = s->world == 1;
    /* With ends = short other ranks may have a step left. */
    const bool finished = r->delivered >= r->steps && (alone || s->ends != PST_ENDS_SHORT);
    out->per_rank = s->skip && !alone;
    out->share = out->per_rank ? real : 0;
    if (r->base) {
        const int rc = new_bitmap(out);
        if (rc < 0)
            return rc;
        add_base(r, out);
        return out->per_rank ? 0 : mark_since(r, alone ? real : r->delivered * s->batch, out);
    }
    out->prefix = r->base_prefix;
    if (out->per_rank)
        return 0;
    out->prefix += alone ? real : r->delivered * s->batch * s->world;
    if (out->prefix > out->length || finished)
        out->prefix = out->length;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Positions skipped so far; in strict order only those before what was handed over last. */
static int skipped_progress(const run *r, psti_state *out)
{
    if (!r->skipped_count)
        return 0;
    out->skipped = psti_calloc(PSTI_MEM_SAMPLE, (size_t)r->skipped_count, sizeof *out->skipped);
    if (!out->skipped)
        return -ENOMEM;
    const bool strict = r->feed->spec.mode == PST_ORDER_STRICT;
    for (int64_t i = 0; i < r->skipped_count; i++)
        if (!strict || r->skipped_share[i] < r->consumed_share)
            out->skipped[out->skipped_count++] = r->skipped[i];
    qsort(out->skipped, (size_t)out->skipped_count, sizeof *out->skipped, by_value);
    return 0;
}

static int run_progress(const run *r, psti_state *out)
{
    out->epoch = r->number;
    int rc = skipped_progress(r, out);
    if (rc < 0)
        return rc;
    if (r->feed->spec.mode == PST_ORDER_STRICT)
        return strict_progress(r, out);
    out->per_rank = r->feed->spec.world > 1;
    if ((rc = new_bitmap(out)) < 0)
        return rc;
    memcpy(out->used, r->used, (size_t)(out->length + 7) / 8);
    /* What was consumed before the resume belongs to one rank's state, so that a join finds every
     * position once. */
    if (r->feed->spec.rank == 0)
        add_base(r, out);
    /* A skipped sample is dealt with: a resume does not try it again. Those that came with the
     * state are part of where the epoch began. */
    for (int64_t i = 0; i < r->skipped_count; i++)
        if (r->skipped_share[i] >= 0)
            set_bit(out->used, r->skipped[i]);
    return 0;
}

int psti_feed_progress(psti_feed *feed, psti_state *out)
{
    memset(out, 0, sizeof *out);
    const psti_feed_spec *s = &feed->spec;
    out->seed = s->seed;
    out->length = psti_order_length(s->order);
    out->order = s->mode;
    out->ends = s->ends;
    out->batch = s->batch;
    out->world = s->world;
    out->rank = s->rank;
    int rc = 0;
    pthread_mutex_lock(&feed->pool->lock);
    if (feed->runs) {
        rc = run_progress(feed->runs, out);
    } else {
        /* Between epochs: as the next run, which may be made at any moment, would say. */
        out->epoch = feed->next_epoch;
        out->per_rank = s->world > 1 && (s->skip || s->mode == PST_ORDER_READY);
        if (s->mode == PST_ORDER_READY)
            rc = new_bitmap(out);
    }
    pthread_mutex_unlock(&feed->pool->lock);
    if (rc == 0)
        rc = psti_order_given(s->order, &out->given, &out->given_count);
    if (rc < 0)
        psti_state_fini(out);
    return rc;
}

/* r: NULL if everything was handed over. */
static void resume_locked(psti_feed *feed, uint64_t epoch, run *r)
{
    cancel_all_locked(feed);
    feed->error.code = 0;
    feed->resumed = true;
    feed->runs = r;
    feed->run_count = r != NULL;
    feed->next_epoch = epoch + (r != NULL);
    if (r)
        run_begin_locked(r);
}

int psti_feed_resume(psti_feed *feed, const psti_state *state, pst_error *err)
{
    psti_pool *pool = feed->pool;
    /* A strict state of one rank with skips names its own share. */
    psti_state from = *state;
    if (!from.used)
        from.prefix += from.share;
    pst_error why;
    psti_error_clear(&why);
    run *r = from.epoch < feed->end_epoch ? run_new(feed, from.epoch, &from, &why) : NULL;
    pthread_mutex_lock(&pool->lock);
    if (!why.code && feed->batches > 0)
        psti_fail(&why, -EBUSY, "state", NULL,
                  "a state can only be loaded before the first batch is taken");
    if (!why.code)
        group_return_locked(feed, &why);
    if (!why.code) {
        resume_locked(feed, from.epoch, r);
        pool_pump_locked(pool);
    } else if (r) {
        run_unref_locked(r);
    }
    pthread_mutex_unlock(&pool->lock);
    if (why.code && err)
        *err = why;
    return why.code;
}
