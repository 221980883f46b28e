/* SPDX-License-Identifier: Apache-2.0
 * What those who look on are shown: numbers that workers and consumers count as they go, copied out
 * under the pool's lock so that one look is one moment. A job that ends is added to the totals of
 * its dataset in the same moment in which it leaves the list, so sums over both never miss a
 * sample and never count one twice. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "model/model.h"
#include "sched/sched_priv.h"

/* ---- counting -------------------------------------------------------------------------------- */

void look_open(psti_feed *feed)
{
    const bool tar = strcmp(psti_dataset_kind(feed->spec.data), "tar") == 0;
    feed->source_kind = feed->far || feed->fetches ? -1 : tar ? PSTI_VIEW_TAR : PSTI_VIEW_FILES;
}

void look_waited_locked(psti_feed *feed, int64_t batch, uint64_t wait_ns)
{
    trace_wait_locked(feed, batch, wait_ns);
    feed->waits++;
    feed->wait_ns += wait_ns;
    psti_hist_add(&feed->wait_hist, wait_ns);
    psti_bars_add(&feed->wait_bars, wait_ns, 1);
}

void psti_feed_waited(psti_feed *feed, int64_t batch, uint64_t wait_ns)
{
    pthread_mutex_lock(&feed->pool->lock);
    look_waited_locked(feed, batch, wait_ns);
    pthread_mutex_unlock(&feed->pool->lock);
}

void look_task_locked(psti_feed *feed, const task *t)
{
    if (!t->cached)
        psti_bars_add(&feed->read_bars, t->read_ns, 1);
    if (t->took_ns)
        psti_bars_add(&feed->cost_bars, t->took_ns, 1);
    feed->substitutions += t->augmented && !t->adopted && t->pick.substitute;
    if (feed->source_kind < 0)
        return;
    psti_view_traffic *traffic = &feed->pool->traffic[feed->source_kind];
    for (int i = 0; i < t->read_count; i++) {
        if (read_from_tier(t, i))
            continue;
        traffic->requests++;
        traffic->bytes += t->reads[i].at.length;
    }
    traffic->requests += (uint64_t)t->part_count;
    traffic->bytes += t->part_bytes;
    traffic->retries += (uint64_t)t->tries;
    traffic->errors += atomic_load_explicit(&t->read_status, memory_order_relaxed) < 0;
}

static double wall_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void look_bad_locked(psti_feed *feed, const pst_error *err)
{
    psti_pool *pool = feed->pool;
    if (err->id < 0)
        return; /* not a sample's */
    if (!pool->bad)
        pool->bad = psti_calloc(PSTI_MEM_SCHED, PSTI_VIEW_BAD, sizeof *pool->bad);
    if (!pool->bad)
        return;
    psti_view_bad *bad = &pool->bad[pool->bad_count++ % PSTI_VIEW_BAD];
    bad->time = wall_clock();
    bad->job = feed->spec.label.id;
    memcpy(bad->key, err->key, sizeof bad->key);
    memcpy(bad->stage, err->stage, sizeof bad->stage);
    memcpy(bad->message, err->message, sizeof bad->message);
}

/* ---- a job ----------------------------------------------------------------------------------- */

static void sum_locked(const psti_feed *feed, psti_view_sums *out)
{
    *out = (psti_view_sums){
        .samples = feed->samples,
        .batches = feed->batches,
        .pads = feed->pads,
        .skipped = feed->skipped,
        .warnings = feed->warnings,
        .bytes_read = feed->bytes_read,
        .bytes_delivered = feed->delivered_bytes,
        .waits = feed->waits,
        .wait_ns = feed->wait_ns,
        .preparations = feed->prepared,
        .shared = feed->shared_hits,
        .adopted = feed->adopted,
        .substitutions = feed->substitutions,
        .hits = {feed->stored_hits, feed->cache_hits, feed->shared_hits},
        .disk_hits = feed->disk_hits,
        .remote_hits = feed->remote_hits,
        .misses = feed->cache_misses,
        .remote_misses = feed->remote_misses,
    };
}

/* From the beginning on: were the place chosen at the end, totals could pass from the one for all
 * the others to one of their own, and what only grows would shrink. */
void look_begin_locked(psti_feed *feed)
{
    psti_pool *pool = feed->pool;
    feed->total = -1;
    if (pool->ended_count == pool->ended_room && pool->ended_room <= PSTI_VIEW_DATASETS) {
        int room = pool->ended_room ? 2 * pool->ended_room : 8;
        room = room > PSTI_VIEW_DATASETS ? PSTI_VIEW_DATASETS + 1 : room;
        psti_view_ended *larger =
            psti_realloc(PSTI_MEM_SCHED, pool->ended, (size_t)room, sizeof *larger);
        if (!larger)
            return; /* its totals will be lost; there is no memory for anything */
        pool->ended = larger;
        pool->ended_room = room;
    }
    feed->total = psti_view_place(pool->ended, &pool->ended_count, feed->spec.label.name);
}

void look_end_locked(psti_feed *feed)
{
    psti_view_sums sums;
    if (!feed->started || feed->total < 0)
        return;
    sum_locked(feed, &sums);
    psti_view_end(&feed->pool->ended[feed->total], &sums);
}

static void add_stage(psti_view_job *job, const char *name, uint64_t runs, uint64_t ns,
                      const psti_bars *took)
{
    if (job->stage_count == PSTI_VIEW_STAGES)
        return;
    psti_view_stage *s = &job->stage[job->stage_count++];
    memset(s->name, 0, sizeof s->name);
    strncpy(s->name, name, sizeof s->name - 1);
    s->runs = runs;
    s->total_ns = ns;
    s->away_ns = 0;
    s->took = *took;
}

static void stages_locked(const psti_feed *feed, psti_view_job *job)
{
    job->stage_count = 0;
    add_stage(job, "read", feed->read_runs, feed->read_ns, &feed->read_bars);
    job->stage[0].away_ns = feed->read_away_ns;
    const int stages = psti_plan_stage_count(feed->spec.plan);
    for (int i = 0; i < stages && i < PST_STAGES_MAX; i++)
        add_stage(job, psti_plan_stage_name(feed->spec.plan, i), feed->stage_runs[i],
                  feed->stage_ns[i], &feed->stage_bars[i]);
    add_stage(job, "wait", feed->waits, feed->wait_ns, &feed->wait_bars);
}

static void lanes_locked(const psti_feed *feed, psti_view_lanes *out)
{
    const uint64_t cutoff = atomic_load_explicit(&feed->lanes.cutoff_ns, memory_order_relaxed);
    *out = (psti_view_lanes){.slow = feed->lanes.slow,
                             .parked = feed->lanes.parks,
                             .early = feed->foresight.started_early,
                             .stragglers = feed->stragglers,
                             .cutoff_ns = cutoff == UINT64_MAX ? 0 : cutoff,
                             .prediction_error = predict_error(&feed->foresight.predictor),
                             .costs = feed->cost_bars};
}

static const char *state_word(const psti_feed *feed)
{
    if (feed->closing)
        return "closing";
    if (feed->error.code)
        return "failed";
    return !feed->runs && feed->next_epoch >= feed->end_epoch ? "finished" : "running";
}

static void epoch_locked(const psti_feed *feed, psti_view_job *job)
{
    const run *r = feed->runs;
    const bool over = !r && feed->next_epoch >= feed->end_epoch;
    job->epoch = r ? r->number : feed->next_epoch - (over && feed->next_epoch > 0);
    job->epoch_samples = r && r->share > 0 ? (uint64_t)r->share : 0;
    const int64_t taken = r ? r->delivered * feed->spec.batch : 0;
    job->epoch_done = r ? (uint64_t)(taken < r->share ? taken : r->share) : 0;
    job->ready = 0;
    for (; r; r = r->next)
        job->ready += r->published > r->delivered ? (uint64_t)(r->published - r->delivered) : 0;
    job->ready_depth = (uint64_t)feed->depth;
    if (job->ready > job->ready_depth) /* the next epoch's, in what the consumer has given back */
        job->ready = job->ready_depth;
}

/* A served job's consumer has batches on their way; with more than one in his hands he does not
 * wait, whatever the daemon does. */
static uint64_t waiting_ns(const psti_feed *feed, uint64_t now)
{
    const bool idle = feed->asked_ns && (!feed->spec.hooks.wake || feed->leased <= 1);
    return idle && now > feed->asked_ns ? now - feed->asked_ns : 0;
}

static void job_locked(const psti_feed *feed, uint64_t now, psti_view_job *job)
{
    const psti_feed_spec *s = &feed->spec;
    job->id = s->label.id;
    job->pid = s->label.pid;
    job->uid = s->label.uid;
    snprintf(job->state, sizeof job->state, "%s", state_word(feed));
    memcpy(job->dataset, s->label.dataset, sizeof job->dataset);
    memcpy(job->pipeline, s->label.pipeline, sizeof job->pipeline);
    memcpy(job->name, s->label.name, sizeof job->name);
    snprintf(job->group, sizeof job->group, "%s", s->group);
    job->batch = s->batch;
    job->rank = s->rank;
    job->world = s->world;
    job->ready_order = s->mode == PST_ORDER_READY;
    job->opportunistic = s->shares;
    job->seconds = 1e-9 * (double)(now - feed->opened_ns);
    epoch_locked(feed, job);
    sum_locked(feed, &job->sums);
    job->wait_p50_ns = psti_hist_quantile(&feed->wait_hist, 0.5);
    job->wait_p99_ns = psti_hist_quantile(&feed->wait_hist, 0.99);
    job->waiting_ns = waiting_ns(feed, now);
    stages_locked(feed, job);
    lanes_locked(feed, &job->lanes);
    memset(&job->verdict, 0, sizeof job->verdict);
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void cache_locked(const psti_pool *pool, psti_view_cache *out)
{
    psti_cache_stats stats;
    memset(out, 0, sizeof *out);
    if (!pool->cache)
        return;
    psti_cache_stats_get(pool->cache, &stats);
    out->limit = atomic_load_explicit(&pool->cache_allowed, memory_order_relaxed);
    out->bytes = stats.bytes;
    out->evictions = stats.evictions;
    for (int f = 0; f < PSTI_VIEW_FORMS; f++) {
        out->form[f].entries = stats.form_entries[f];
        out->form[f].bytes = stats.form_bytes[f];
        out->form[f].inserts = stats.form_inserts[f];
        out->form[f].evictions = stats.form_evictions[f];
    }
}

static void tiers_locked(const psti_pool *pool, psti_view *out)
{
    psti_disk_stats d;
    out->disk = (psti_view_disk){.there = pool->disk != NULL};
    if (pool->disk) {
        psti_disk_stats_get(pool->disk, &d);
        out->disk.entries = d.entries;
        out->disk.bytes = d.bytes;
        out->disk.limit = d.limit;
        out->disk.written = d.written;
        out->disk.evicted = d.evicted;
        out->disk.damaged = d.damaged;
        out->disk.dropped = d.dropped;
        out->disk.errors = d.errors;
        out->disk.off = d.off;
    }
    ask_look(pool, &out->remote);
}

static void bad_locked(const psti_pool *pool, psti_view *out)
{
    const uint64_t kept = pool->bad_count < PSTI_VIEW_BAD ? pool->bad_count : PSTI_VIEW_BAD;
    out->bad_count = (int)kept;
    for (uint64_t i = 0; i < kept; i++)
        out->bad[i] = pool->bad[(pool->bad_count - 1 - i) % PSTI_VIEW_BAD];
}

static int count_locked(const psti_pool *pool)
{
    int count = 0;
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        count += f->started;
    return count;
}

int psti_pool_look(psti_pool *pool, psti_view *out)
{
    psti_pool_times times;
    psti_pool_times_get(pool, &times);
    out->cpu_seconds = times.cpu_s;
    out->used_bytes = psti_budget_used(&pool->budget);
    out->peak_bytes = psti_budget_peak(&pool->budget);
    pthread_mutex_lock(&pool->lock);
    int count;
    while ((count = count_locked(pool)) > out->job_room) { /* memory is taken without the lock */
        pthread_mutex_unlock(&pool->lock);
        if (psti_view_room(out, count + 4) < 0)
            return -ENOMEM;
        pthread_mutex_lock(&pool->lock);
    }
    out->taken_ns = psti_now_ns();
    out->time = wall_clock();
    out->job_count = 0;
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        if (f->started)
            job_locked(f, out->taken_ns, &out->jobs[out->job_count++]);
    out->ended_count = pool->ended_count;
    if (pool->ended_count)
        memcpy(out->ended, pool->ended, (size_t)pool->ended_count * sizeof *out->ended);
    memcpy(out->source, pool->traffic, sizeof out->source);
    out->active_workers = pool->tuner.active;
    cache_locked(pool, &out->cache);
    tiers_locked(pool, out);
    bad_locked(pool, out);
    pthread_mutex_unlock(&pool->lock);
    return 0;
}

bool psti_pool_model(psti_pool *pool, struct psti_model_input *out)
{
    const psti_feed *most = NULL;
    int jobs = 0;
    pthread_mutex_lock(&pool->lock);
    for (const psti_feed *f = pool->feeds; f; f = f->next) {
        if (!f->started || f->closing)
            continue;
        jobs += jobs < PSTI_MODEL_JOBS;
        if (!most || f->samples > most->samples)
            most = f;
    }
    if (most)
        worth_input_locked(pool, most, out);
    pthread_mutex_unlock(&pool->lock);
    if (most)
        out->jobs = jobs;
    return most != NULL;
}
