/* SPDX-License-Identifier: Apache-2.0
 * What traces are told of workers, batches, reads, lanes and consumers. What a worker does goes to
 * its own ring, everything else to one ring under the pool's lock, which its tellers hold anyway:
 * tracing takes no lock of its own. */
#include <stdio.h>

#include "sched/sched_priv.h"

/* ---- workers --------------------------------------------------------------------------------- */

void trace_slice(worker *w, int stage, int64_t id, uint64_t since_ns, uint64_t until_ns)
{
    if (!w->ring)
        return;
    const psti_trace_event event = {.at_ns = since_ns,
                                    .span = until_ns - since_ns,
                                    .id = id,
                                    .job = w->at_job,
                                    .kind = PSTI_TRACE_STAGE,
                                    .what = (uint8_t)stage};
    psti_trace_put(w->ring, &event);
}

/* Of psti_kit. */
static void stage_told(void *user, int stage, uint64_t since_ns, uint64_t until_ns)
{
    worker *w = user;
    trace_slice(w, stage, w->at_id, since_ns, until_ns);
}

int trace_open_worker(worker *w, int number)
{
    psti_trace *trace = w->pool->trace;
    char name[32];
    if (!trace)
        return 0;
    snprintf(name, sizeof name, "worker %d", number);
    w->ring = psti_trace_ring_add(trace, name);
    w->kit.told = stage_told;
    w->kit.told_user = w;
    w->at_id = -1;
    return w->ring ? 0 : -1;
}

static psti_trace_form form_of(const task *t)
{
    if (t->augmented)
        return t->adopted ? PSTI_FROM_REMOTE : PSTI_FROM_AUGMENTED;
    if (t->cached)
        return PSTI_FROM_DECODED;
    if (t->form_from != TIER_NONE)
        return t->form_from == TIER_DISK ? PSTI_FROM_DISK : PSTI_FROM_REMOTE;
    if (t->stored_count > 0)
        return PSTI_FROM_ENCODED;
    for (int i = 0; i < t->read_count; i++)
        if (read_from_tier(t, i))
            return PSTI_FROM_DISK;
    return PSTI_FROM_SOURCE;
}

/* ended: the task is still this worker's, else another may have it by now. */
void trace_visit(worker *w, const task *t, bool ended, uint64_t since_ns, uint64_t until_ns)
{
    if (!w->ring)
        return;
    const psti_trace_end end = !ended       ? PSTI_END_LEFT
                               : w->at_bad  ? PSTI_END_BAD
                               : t->took_ns ? PSTI_END_PLACED
                                            : PSTI_END_UNWANTED;
    const psti_trace_event event = {.at_ns = since_ns,
                                    .span = until_ns - since_ns,
                                    .id = w->at_id,
                                    .job = w->at_job,
                                    .kind = PSTI_TRACE_SAMPLE,
                                    .what = (uint8_t)end,
                                    .form = (uint8_t)(ended ? form_of(t) : PSTI_FROM_UNKNOWN)};
    psti_trace_put(w->ring, &event);
    w->at_id = -1;
}

/* ---- the rest -------------------------------------------------------------------------------- */

void trace_open_feed(psti_feed *feed)
{
    const psti_plan *plan = feed->spec.plan;
    psti_trace_job job = {.id = feed->spec.label.id,
                          .dataset = feed->spec.label.dataset,
                          .pipeline = feed->spec.label.pipeline};
    if (!feed->pool->trace)
        return;
    for (; job.stages < psti_plan_stage_count(plan) && job.stages < PST_STAGES_MAX; job.stages++)
        job.stage[job.stages] = psti_plan_stage_name(plan, job.stages);
    feed->trace_job = psti_trace_job_add(feed->pool->trace, &job);
}

void trace_put_at_locked(const psti_feed *feed, psti_trace_event *event)
{
    if (!feed->pool->book)
        return;
    event->job = feed->trace_job;
    psti_trace_put(feed->pool->book, event);
}

void trace_put_locked(const psti_feed *feed, psti_trace_kind kind, int what, int64_t id,
                      uint64_t span)
{
    if (!feed->pool->book)
        return;
    psti_trace_event event = {.at_ns = psti_now_ns(),
                              .span = span,
                              .id = id,
                              .kind = (uint8_t)kind,
                              .what = (uint8_t)what};
    trace_put_at_locked(feed, &event);
}

static void count_locked(const psti_feed *feed, const run *r)
{
    const psti_pool *pool = feed->pool;
    const int64_t ready = r->published - r->delivered;
    trace_put_locked(feed, PSTI_TRACE_COUNT, PSTI_COUNT_READY, 0,
                     (uint64_t)(ready > 0 ? ready : 0));
    trace_put_locked(feed, PSTI_TRACE_COUNT, PSTI_COUNT_BUSY, 0, (uint64_t)pool->tuner.busy);
    trace_put_locked(feed, PSTI_TRACE_COUNT, PSTI_COUNT_ACTIVE, 0, (uint64_t)pool->tuner.active);
    trace_put_locked(feed, PSTI_TRACE_COUNT, PSTI_COUNT_CACHE, 0,
                     atomic_load_explicit(&pool->cache_taken, memory_order_relaxed));
}

/* While it has its run. */
void trace_batch_locked(const pst_batch *block, psti_trace_kind kind, uint64_t span)
{
    const run *r = block->run;
    if (!r || !r->feed->pool->book)
        return;
    const bool was_ready = kind == PSTI_TRACE_TAKEN || block->state == BLOCK_READY;
    trace_put_locked(r->feed, kind, was_ready, psti_trace_step(r->number, block->step), span);
    if (kind == PSTI_TRACE_READY || kind == PSTI_TRACE_TAKEN)
        count_locked(r->feed, r);
}

/* One consumer's waits come one after the other. What is heard of them from another process may be
 * late, by more one time than the next: none begins before the one before it has ended, since
 * Perfetto leaves out slices that overlap. */
void trace_wait_locked(psti_feed *feed, int64_t batch, uint64_t wait_ns)
{
    if (!feed->pool->book)
        return;
    const uint64_t since_ns = psti_now_ns() - wait_ns;
    psti_trace_event event = {.at_ns =
                                  since_ns > feed->traced_wait_ns ? since_ns : feed->traced_wait_ns,
                              .span = wait_ns,
                              .id = batch,
                              .kind = PSTI_TRACE_WAIT};
    feed->traced_wait_ns = event.at_ns + wait_ns;
    trace_put_at_locked(feed, &event);
}

/* What others than its worker read for it. */
void trace_reads_locked(const task *t)
{
    if (!t->feed->pool->book || !t->read_away || t->read_ns <= t->part_ns)
        return;
    psti_trace_event event = {.at_ns = t->submitted_ns,
                              .span = t->read_ns - t->part_ns,
                              .id = t->id,
                              .kind = PSTI_TRACE_READ};
    trace_put_at_locked(t->feed, &event);
}
