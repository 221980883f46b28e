/* SPDX-License-Identifier: Apache-2.0
 * The record of batches that another process prepares. Such a feed belongs to a pool without
 * workers: it makes the same runs and counts the same way as one that prepares, so that its state
 * is the same, byte for byte. Also batches in somebody else's memory, and what tells of a batch
 * that was handed over. One consumer thread. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

/* ---- batches --------------------------------------------------------------------------------- */

void psti_batch_receipt(const pst_batch *batch, psti_receipt *out)
{
    *out = (psti_receipt){.epoch = batch->epoch,
                          .step = batch->step,
                          .steps = batch->steps,
                          .share_end = batch->share_end,
                          .slots = batch->slots,
                          .positions = batch->positions,
                          .valid = batch->valid};
}

int psti_batch_guest(const psti_guest *from, pst_batch **out)
{
    pst_batch *batch = psti_calloc(PSTI_MEM_BATCH, 1, sizeof *batch);
    if (!batch)
        return -ENOMEM;
    batch->base = from->base;
    batch->bytes = from->bytes;
    batch->release = from->release;
    batch->user = from->user;
    *out = batch;
    return 0;
}

/* ---- the record ------------------------------------------------------------------------------ */

/* The run of the epoch, which is the open one or the next. */
static run *run_of_locked(psti_feed *feed, uint64_t epoch, int *rc)
{
    run *r = feed->runs;
    *rc = 0;
    if (!r && epoch == feed->next_epoch && epoch < feed->end_epoch) {
        pst_error err;
        r = run_new(feed, epoch, NULL, &err);
        if (!r) {
            *rc = err.code;
            return NULL;
        }
        feed->runs = r;
        feed->run_count = 1;
        feed->next_epoch++;
    }
    if (!r || r->number != epoch)
        *rc = -EPROTO;
    return *rc < 0 ? NULL : r;
}

/* Only what the epoch's order has may be noted. */
static bool is_sound(const psti_feed *feed, const psti_receipt *receipt)
{
    const int64_t length = psti_order_length(feed->spec.order);
    if (receipt->slots < 0 || receipt->slots > feed->spec.batch || receipt->share_end < 0 ||
        receipt->steps < 0)
        return false;
    for (int i = 0; receipt->positions && i < receipt->slots; i++)
        if (receipt->positions[i] < 0 || receipt->positions[i] >= length)
            return false;
    return receipt->positions || feed->spec.mode != PST_ORDER_READY;
}

static void count_locked(psti_feed *feed, run *r, const psti_receipt *receipt, uint64_t wait_ns)
{
    r->steps = receipt->steps;
    r->delivered++;
    r->consumed_share = receipt->share_end;
    for (int i = 0; i < receipt->slots; i++) {
        const bool valid = !receipt->valid || receipt->valid[i];
        if (feed->spec.mode == PST_ORDER_READY && valid)
            r->used[receipt->positions[i] >> 3] |= (uint8_t)(1u << (receipt->positions[i] & 7));
        feed->samples += valid;
        feed->pads += !valid;
    }
    feed->batches++;
    if (!feed->first_batch_ns)
        feed->first_batch_ns = psti_now_ns() - feed->opened_ns;
    feed->last_batch_ns = psti_now_ns();
    if (feed->batches == 1)
        feed->first_wait_ns = wait_ns;
    look_waited_locked(feed, -1, wait_ns);
}

int psti_feed_note(psti_feed *feed, const psti_receipt *receipt, uint64_t wait_ns)
{
    if (!is_sound(feed, receipt))
        return -EPROTO;
    int rc;
    pthread_mutex_lock(&feed->pool->lock);
    run *r = run_of_locked(feed, receipt->epoch, &rc);
    if (r)
        count_locked(feed, r, receipt, wait_ns);
    pthread_mutex_unlock(&feed->pool->lock);
    return rc;
}

void psti_feed_note_end(psti_feed *feed, uint64_t epoch)
{
    pthread_mutex_lock(&feed->pool->lock);
    run *r = feed->runs;
    if (r) {
        feed->runs = r->next;
        feed->run_count--;
        run_unref_locked(r);
    } else if (feed->next_epoch == epoch) { /* one without a batch */
        feed->next_epoch++;
    }
    pthread_mutex_unlock(&feed->pool->lock);
}

int psti_feed_note_skip(psti_feed *feed, uint64_t epoch, int64_t position, int64_t share)
{
    if (position < 0 || position >= psti_order_length(feed->spec.order) || share < 0)
        return -EPROTO;
    int rc;
    pthread_mutex_lock(&feed->pool->lock);
    run *r = run_of_locked(feed, epoch, &rc);
    if (r && (rc = run_note_skip_locked(r, position, share)) == 0)
        feed->skipped++;
    pthread_mutex_unlock(&feed->pool->lock);
    return rc;
}

bool psti_feed_at_start(psti_feed *feed, uint64_t epoch)
{
    pthread_mutex_lock(&feed->pool->lock);
    const run *r = feed->runs;
    const bool start = r ? r->number == epoch && r->delivered == 0 && !r->base_prefix && !r->base
                         : feed->next_epoch == epoch;
    pthread_mutex_unlock(&feed->pool->lock);
    return start;
}

bool psti_feed_finished(psti_feed *feed)
{
    pthread_mutex_lock(&feed->pool->lock);
    const bool finished = !feed->runs && feed->next_epoch >= feed->end_epoch;
    pthread_mutex_unlock(&feed->pool->lock);
    return finished;
}

/* ---- going on from a record ------------------------------------------------------------------ */

/* Pads are as good as one another: as many as came are left out. */
static bool came(const run *r, int64_t share, int64_t *pads)
{
    bool valid;
    const int64_t p = run_position(r, share, &valid);
    if (!valid)
        return (*pads)-- > 0;
    return r->used[p >> 3] & (1u << (p & 7));
}

static int list_rest(run *r)
{
    r->rest = psti_calloc(PSTI_MEM_SCHED, (size_t)r->slots + 1, sizeof *r->rest);
    if (!r->rest)
        return -ENOMEM;
    for (int64_t i = 0; i < r->skipped_count; i++) /* they are dealt with, too */
        r->used[r->skipped[i] >> 3] |= (uint8_t)(1u << (r->skipped[i] & 7));
    int64_t real = 0, pads = 0;
    for (int64_t i = 0; i < r->share; i++)
        real += came(r, i, &pads);
    pads = r->placed - (real - r->bad);
    for (int64_t i = 0; i < r->slots; i++)
        if (!came(r, i, &pads))
            r->rest[r->rest_count++] = i;
    return 0;
}

static int carry_over(run *r, const run *old)
{
    const psti_feed_spec *s = &r->feed->spec;
    r->first_step = old->first_step;
    r->steps = old->steps;
    r->delivered = r->opened = r->published = old->delivered;
    r->consumed_share = r->next_share = r->frontier = old->consumed_share;
    r->placed = old->delivered * s->batch;
    for (int64_t i = 0; i < old->skipped_count; i++) {
        const bool counts =
            s->mode == PST_ORDER_READY || old->skipped_share[i] < old->consumed_share;
        if (counts && run_note_skip_locked(r, old->skipped[i], old->skipped_share[i]) < 0)
            return -ENOMEM;
        r->bad += counts && old->skipped_share[i] >= 0;
    }
    if (s->mode != PST_ORDER_READY)
        return 0;
    memcpy(r->used, old->used, (size_t)(psti_order_length(s->order) + 7) / 8);
    r->next_share = 0;
    return list_rest(r);
}

static void carry_statistics(psti_feed *feed, const psti_feed *old_feed)
{
    feed->samples = old_feed->samples;
    feed->batches = old_feed->batches;
    feed->pads = old_feed->pads;
    feed->skipped = old_feed->skipped;
    feed->waits = old_feed->waits;
    feed->wait_ns = old_feed->wait_ns;
    feed->wait_hist = old_feed->wait_hist;
    feed->wait_bars = old_feed->wait_bars;
    feed->opened_ns = old_feed->opened_ns;
    feed->first_batch_ns = old_feed->first_batch_ns;
    feed->resumed = old_feed->resumed;
}

int psti_feed_adopt(psti_feed *feed, psti_feed *old_feed, pst_error *err)
{
    const run *old = old_feed->runs;
    run *r = NULL;
    pst_error why;
    psti_error_clear(&why);
    pthread_mutex_lock(&feed->pool->lock);
    if (old) {
        const psti_state from = {.prefix = old->base_prefix, .used = old->base};
        r = run_new(feed, old->number, &from, &why);
        if (r && carry_over(r, old) < 0) {
            psti_fail(&why, -ENOMEM, "job", NULL, "out of memory while going on with the epoch");
            run_unref_locked(r);
            r = NULL;
        }
    }
    if (!why.code) {
        cancel_all_locked(feed);
        if (r)
            r->serial = ++feed->run_serial;
        feed->runs = r;
        feed->run_count = r != NULL;
        feed->next_epoch = old_feed->next_epoch;
        carry_statistics(feed, old_feed);
        pool_pump_locked(feed->pool);
    }
    pthread_mutex_unlock(&feed->pool->lock);
    if (why.code && err)
        *err = why;
    return why.code;
}
