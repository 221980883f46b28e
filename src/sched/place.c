/* SPDX-License-Identifier: Apache-2.0
 * How finished samples get their slots, in the four ways of sched_priv.h. Called by workers without
 * the lock; bookkeeping is done under it, pixels are written outside it. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

static const double STRAGGLES = 4; /* times what samples take on average */

/* Makes a complete batch ready. The caller is the one that completed it, so nobody else writes to
 * it. */
static void seal_and_publish(worker *w, psti_feed *feed, pst_batch *block)
{
    pst_error err;
    psti_error_clear(&err);
    int rc = block->error.code;
    if (rc == 0) {
        if (feed->layout.dense)
            block_seal(block, feed, NULL);
        else
            rc = gather_seal(block, feed, w, &err);
    }
    const int mix = psti_plan_mix_stage(feed->spec.plan);
    const uint64_t since = mix >= 0 ? psti_now_ns() : 0;
    if (rc == 0 && mix >= 0)
        mix_batch(feed, block);
    pthread_mutex_lock(&feed->pool->lock);
    task_count_stages_locked(w, feed);
    if (err.code)
        block->error = err;
    if (rc == 0 && mix >= 0) {
        const uint64_t took = psti_now_ns() - since;
        feed->stage_ns[mix] += took;
        feed->stage_runs[mix]++;
        psti_bars_add(&feed->stage_bars[mix], took, 1);
        trace_slice(w, mix, -1, since, since + took);
    }
    if (!feed->layout.dense)
        feed->pool->staged += block->cap;
    for (int i = 0; block->records && i < feed->spec.batch; i++) {
        if (block->records[i])
            record_drop_locked(feed, block->records[i]);
        block->records[i] = NULL;
    }
    batch_publish_locked(block, w->at_id);
    pthread_mutex_unlock(&feed->pool->lock);
}

/* Counts slots as written; returns the block if that completed it. */
static pst_batch *filled_locked(pst_batch *block, int slots)
{
    block->filled += slots;
    if (block->run->cancelled && block->filled == block->placed) {
        if (block->run->open == block)
            block->run->open = NULL;
        block_drop_locked(block->run->feed, block);
        return NULL;
    }
    return block->filled == block->slots ? block : NULL;
}

/* The next free slot of the run's open batch; opens one if need be. NULL when out of memory. */
static pst_batch *claim_locked(run *r, int *slot)
{
    psti_feed *feed = r->feed;
    if (!r->open) {
        const int64_t left = r->slots - r->placed;
        const int slots = left < feed->spec.batch && left > 0 ? (int)left : feed->spec.batch;
        r->open = block_take_locked(feed, r, r->opened, slots);
        if (!r->open)
            return NULL;
        r->opened++;
    }
    pst_batch *block = r->open;
    *slot = block->placed++;
    r->placed++;
    if (block->placed == block->slots)
        r->open = NULL;
    return block;
}

static void note_slot(pst_batch *block, int slot, int64_t id, int64_t position, uint64_t start,
                      uint64_t number, bool valid)
{
    block->numbers[slot] = number;
    block->ids[slot] = id;
    block->positions[slot] = position;
    block->starts[slot] = start;
    block->valid[slot] = valid;
}

/* A finished sample could not be staged. */
static void not_staged_locked(run *r, int rc)
{
    const psti_pool *pool = r->feed->pool;
    pst_error err;
    if (rc == PST_EBUDGET)
        psti_fail(
            &err, rc, "memory", NULL,
            "one finished sample takes more than the %.1f MiB that the budget of %.1f MiB leaves "
            "for samples waiting for their batch; give at least %.0f MiB",
            (double)pool_staged_max_locked(pool) / 0x1p20, (double)pool->budget.limit / 0x1p20,
            2 * (double)pool->budget.limit / 0x1p20);
    else
        psti_fail(&err, rc, "batch", NULL, "out of memory for a finished sample");
    run_fail_locked(r, &err);
}

static void out_of_memory_locked(run *r)
{
    pst_error err;
    psti_fail(&err, -ENOMEM, "batch", NULL, "out of memory for a batch");
    run_fail_locked(r, &err);
}

static void nothing_good_locked(run *r, const pst_error *err)
{
    pst_error all = *err;
    psti_fail(&all, PST_ETOOMANYBAD, "epoch", NULL, "every sample of the epoch is bad");
    run_fail_locked(r, &all);
}

/* A bad sample under skip: told to the engine, noted with the run. */
static void skip_locked(run *r, int64_t position, int64_t share, bool valid, pst_error *err)
{
    psti_feed *feed = r->feed;
    run_settled_locked(r, 1);
    if (err->code == PST_EBUDGET || err->code == -ENOMEM) { /* not the sample's fault */
        run_fail_locked(r, err);
        return;
    }
    if (!valid) {
        if (++r->bad_pads >= r->share + psti_order_length(feed->spec.order))
            nothing_good_locked(r, err);
        return;
    }
    r->bad++;
    feed->skipped++;
    look_bad_locked(feed, err);
    if (feed->spec.bad(feed->spec.user, err) < 0) {
        run_fail_locked(r, err);
        return;
    }
    if (r->bad >= psti_order_length(feed->spec.order) && feed->spec.ends != PST_ENDS_SHORT)
        nothing_good_locked(r, err);
    if (run_note_skip_locked(r, position, share) < 0)
        out_of_memory_locked(r);
    if (feed->spec.hooks.skipped)
        feed->spec.hooks.skipped(feed->spec.hooks.user, r->number, position, share, err);
}

/* In strict order a sample may take longer than all that may be prepared meanwhile: the consumer
 * waits, everything else is ready, and no other sample is under way. */
static void note_straggler_locked(const task *t)
{
    psti_feed *feed = t->feed;
    const run *r = t->run;
    if (feed->wanted && r == feed->runs && r->inflight == 0 && !feed->runnable &&
        1e-9 * (double)t->took_ns > STRAGGLES * feed->took_s &&
        feed->outstanding + feed->spec.batch > block_samples_max_locked(feed))
        feed->stragglers++;
}

/* ---- QUEUE: in share order
 * ------------------------------------------------------------------------ */

/* What a worker has to do once it let go of the lock. */
typedef struct errands {
    record *write;   /* records whose slot is known */
    pst_batch *seal; /* complete batches */
} errands;

static void seal_later(errands *todo, pst_batch *complete)
{
    if (!complete)
        return;
    complete->next = todo->seal;
    todo->seal = complete;
}

/* The records of one batch alone are more than may be staged. */
static void too_large_locked(run *r, const pst_batch *block)
{
    const psti_pool *pool = r->feed->pool;
    const double whole = (double)block->gathered / block->placed * block->slots;
    const uint64_t most = pool_staged_max_locked(pool);
    pst_error err;
    psti_fail(
        &err, PST_EBUDGET, "memory", NULL,
        "a batch of these samples takes about %.0f MiB, the budget of %.1f MiB leaves %.1f MiB for "
        "batches of varying shape; give at least %.0f MiB, or use a smaller batch",
        whole / 0x1p20, (double)pool->budget.limit / 0x1p20, (double)most / 0x1p20,
        (double)pool->budget.limit / 0x1p20 + 5 * (whole - (double)most) / 0x1p20 + 1);
    run_fail_locked(r, &err);
}

static void give_slot_locked(run *r, record *rec, errands *todo)
{
    int slot;
    pst_batch *block = claim_locked(r, &slot);
    if (!block) {
        record_drop_locked(r->feed, rec);
        out_of_memory_locked(r);
        return;
    }
    note_slot(block, slot, rec->id, rec->position, rec->start, rec->number, rec->valid);
    block->share_end = rec->share + 1;
    if (r->feed->layout.dense) {
        rec->block = block;
        rec->slot = slot;
        rec->next = todo->write;
        todo->write = rec;
    } else {
        block->records[slot] = rec;
        block->gathered += rec->charged;
        if (block->gathered > pool_staged_max_locked(r->feed->pool))
            too_large_locked(r, block);
        seal_later(todo, filled_locked(block, 1));
    }
}

/* Walks over share indices whose fate is known. */
static void advance_locked(run *r, errands *todo)
{
    while (!r->error.code && !r->cancelled) {
        cell *c = &r->cells[r->frontier % r->cell_count];
        if (c->fate == FATE_OPEN)
            return;
        const fate known = c->fate;
        record *rec = c->record;
        pst_error *err = c->error;
        c->fate = FATE_OPEN;
        c->record = NULL;
        c->error = NULL;
        r->inflight--;
        if (known == FATE_STAGED) {
            give_slot_locked(r, rec, todo);
        } else if (!r->feed->spec.skip) {
            run_settled_locked(r, 1);
            run_fail_locked(r, err);
        } else {
            skip_locked(r, c->position, r->frontier, c->valid, err);
        }
        psti_free(err);
        r->frontier++;
    }
}

/* Finished samples of one bucket that make a batch, or have to go. */
static void empty_shelf_locked(run *r, errands *todo)
{
    record *rec;
    while ((rec = shelf_take_locked(r)))
        give_slot_locked(r, rec, todo);
}

/* Writes records into their slots. Their blocks stay, since they are not filled yet. */
static void write_records(worker *w, psti_feed *feed, errands *todo)
{
    if (!todo->write)
        return;
    for (record *rec = todo->write; rec; rec = rec->next)
        record_write(rec, feed, w, rec->block, rec->slot);
    pthread_mutex_lock(&feed->pool->lock);
    while (todo->write) {
        record *rec = todo->write;
        todo->write = rec->next;
        seal_later(todo, filled_locked(rec->block, 1));
        record_drop_locked(feed, rec);
    }
    pthread_mutex_unlock(&feed->pool->lock);
}

/* Ends the bookkeeping and does the errands; lets go of the lock. */
static void settle(worker *w, run *r, errands *todo)
{
    psti_feed *feed = r->feed;
    empty_shelf_locked(r, todo);
    seal_later(todo, run_check_end_locked(r));
    pthread_mutex_unlock(&feed->pool->lock);
    write_records(w, feed, todo);
    while (todo->seal) {
        pst_batch *block = todo->seal;
        todo->seal = block->next;
        block->next = NULL;
        seal_and_publish(w, feed, block);
    }
}

/* The common case: every earlier sample is settled, so the slot is known now and the sample goes
 * straight into it. */
static bool queue_direct(worker *w, task *t)
{
    psti_feed *feed = t->feed;
    run *r = t->run;
    if (!feed->layout.dense)
        return false;
    pthread_mutex_lock(&feed->pool->lock);
    if (r->frontier != t->share || r->cancelled || r->error.code) {
        pthread_mutex_unlock(&feed->pool->lock);
        return false;
    }
    int slot;
    pst_batch *block = claim_locked(r, &slot);
    if (!block) {
        pthread_mutex_unlock(&feed->pool->lock);
        return false;
    }
    note_slot(block, slot, t->id, t->position, t->start, t->number, t->valid);
    block->share_end = t->share + 1;
    r->inflight--;
    r->frontier++;
    errands todo = {0};
    advance_locked(r, &todo);
    note_straggler_locked(t);
    pthread_mutex_unlock(&feed->pool->lock);
    write_outputs(feed, t, w, block, slot);
    pthread_mutex_lock(&feed->pool->lock);
    task_count_locked(w, t);
    seal_later(&todo, filled_locked(block, 1));
    settle(w, r, &todo);
    return true;
}

static void queue_sample(worker *w, task *t)
{
    psti_feed *feed = t->feed;
    run *r = t->run;
    if (queue_direct(w, t))
        return;
    pthread_mutex_lock(&feed->pool->lock);
    record *rec = record_take_locked(feed);
    const uint64_t most = pool_staged_max_locked(feed->pool);
    pthread_mutex_unlock(&feed->pool->lock);
    const int rc = rec ? record_fill(rec, feed, t, w, most) : -ENOMEM;
    errands todo = {0};
    pthread_mutex_lock(&feed->pool->lock);
    task_count_locked(w, t);
    if (rc < 0) {
        if (rec)
            record_drop_locked(feed, rec);
        r->inflight--;
        not_staged_locked(r, rc);
    } else {
        record_count_locked(feed, rec);
        r->cells[t->share % r->cell_count] = (cell){.fate = FATE_STAGED, .record = rec};
        advance_locked(r, &todo);
    }
    settle(w, r, &todo);
}

static void queue_bad(worker *w, task *t, const pst_error *err)
{
    psti_feed *feed = t->feed;
    run *r = t->run;
    pst_error *copy = psti_malloc(PSTI_MEM_SCHED, sizeof *copy);
    errands todo = {0};
    pthread_mutex_lock(&feed->pool->lock);
    task_count_locked(w, t);
    if (!copy) {
        r->inflight--;
        out_of_memory_locked(r);
    } else {
        *copy = *err;
        r->cells[t->share % r->cell_count] =
            (cell){.fate = FATE_BAD, .error = copy, .position = t->position, .valid = t->valid};
        advance_locked(r, &todo);
    }
    settle(w, r, &todo);
}

/* ---- FIXED, CLAIM, HEAP
 * ------------------------------------------------------------------------------ */

static void fixed_sample(worker *w, task *t, const pst_error *err)
{
    psti_feed *feed = t->feed;
    if (!err)
        write_outputs(feed, t, w, t->batch, t->slot);
    pthread_mutex_lock(&feed->pool->lock);
    task_count_locked(w, t);
    pst_batch *block = t->batch;
    if (err && (block->error_slot < 0 || t->slot < block->error_slot)) {
        block->error = *err;
        block->error_slot = t->slot;
    }
    t->run->inflight--;
    note_straggler_locked(t);
    pst_batch *complete = filled_locked(block, 1);
    pthread_mutex_unlock(&feed->pool->lock);
    if (complete)
        seal_and_publish(w, feed, complete);
}

static void claim_sample(worker *w, task *t)
{
    psti_feed *feed = t->feed;
    run *r = t->run;
    int slot = 0;
    pthread_mutex_lock(&feed->pool->lock);
    pst_batch *block = r->cancelled || r->error.code ? NULL : claim_locked(r, &slot);
    if (block)
        note_slot(block, slot, t->id, t->position, t->start, t->number, t->valid);
    else if (!r->cancelled && !r->error.code)
        out_of_memory_locked(r);
    r->inflight--;
    if (!block) {
        window_done_locked(feed, t->start);
        task_count_locked(w, t);
    }
    pthread_mutex_unlock(&feed->pool->lock);
    if (!block)
        return;
    write_outputs(feed, t, w, block, slot);
    errands todo = {0};
    pthread_mutex_lock(&feed->pool->lock);
    task_count_locked(w, t);
    todo.seal = filled_locked(block, 1);
    settle(w, r, &todo);
}

static void heap_sample(worker *w, task *t)
{
    psti_feed *feed = t->feed;
    run *r = t->run;
    pthread_mutex_lock(&feed->pool->lock);
    record *rec = record_take_locked(feed);
    const uint64_t most = pool_staged_max_locked(feed->pool);
    pthread_mutex_unlock(&feed->pool->lock);
    const int rc = rec ? record_fill(rec, feed, t, w, most) : -ENOMEM;
    errands todo = {0};
    pthread_mutex_lock(&feed->pool->lock);
    task_count_locked(w, t);
    r->inflight--;
    if (rc == 0)
        record_count_locked(feed, rec);
    if (rc == 0 && !r->cancelled && !r->error.code) {
        if (r->shelf)
            shelf_put_locked(r, rec, t);
        else
            give_slot_locked(r, rec, &todo);
    } else {
        window_done_locked(feed, t->start);
        if (rec)
            record_drop_locked(feed, rec);
        if (rc < 0)
            not_staged_locked(r, rc);
    }
    settle(w, r, &todo);
}

static void unordered_bad(worker *w, task *t, pst_error *err)
{
    psti_feed *feed = t->feed;
    run *r = t->run;
    errands todo = {0};
    pthread_mutex_lock(&feed->pool->lock);
    task_count_locked(w, t);
    r->inflight--;
    window_done_locked(feed, t->start);
    if (r->cancelled) {
        pthread_mutex_unlock(&feed->pool->lock);
        return;
    }
    if (feed->spec.skip) {
        skip_locked(r, t->position, t->share, t->valid, err);
    } else {
        run_settled_locked(r, 1);
        run_fail_locked(r, err);
    }
    settle(w, r, &todo);
}

bool place_stuck_locked(psti_pool *pool, worker *w)
{
    for (psti_feed *feed = pool->feeds; feed; feed = feed->next) {
        run *r = feed->runs;
        const bool wanted = feed->shelf_wanted;
        feed->shelf_wanted = false;
        if (!wanted || !r || feed->closing)
            continue;
        errands todo = {0};
        feed->shelf_busy++;
        r->refs++;
        settle(w, r, &todo);
        pthread_mutex_lock(&pool->lock);
        run_unref_locked(r);
        if (--feed->shelf_busy == 0 && feed->closing)
            pthread_cond_broadcast(&pool->room);
        return true;
    }
    return false;
}

void place_sample(worker *w, task *t)
{
    switch (t->feed->way) {
    case FIXED:
        fixed_sample(w, t, NULL);
        break;
    case CLAIM:
        claim_sample(w, t);
        break;
    case QUEUE:
        queue_sample(w, t);
        break;
    case HEAP:
        heap_sample(w, t);
        break;
    }
}

void place_bad(worker *w, task *t, pst_error *err)
{
    if (t->feed->way == FIXED)
        fixed_sample(w, t, err);
    else if (t->feed->way == QUEUE)
        queue_bad(w, t, err);
    else
        unordered_bad(w, t, err);
}
