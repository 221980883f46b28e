/* SPDX-License-Identifier: Apache-2.0
 * What the engine's own work costs a sample: choosing it, looking for its forms, counting, pinning,
 * placing, sealing batches, handing them over, waking one another. An engine on the caller's data
 * and pipeline runs for a moment; from the CPU time of its threads and of the one that takes the
 * batches goes what the samples themselves took. So few samples take part that the cache holds all
 * of them: a sample is then done soonest, and most are seen. Calling thread, besides the engine's
 * own. */
#include <errno.h>

#include "core/clock.h"
#include "engine/engine_priv.h"
#include "engine/plan.h"

enum {
    PATIENT = 6,
    SAMPLES_MOST = 1024, /* that take part */
    WARM = 256,          /* before what counts: threads start, rings are touched */
    SAMPLES_LEAST = 128  /* fewer say nothing */
};
static const uint64_t CACHE = 64u << 20;
static const int64_t PATIENCE_NS = 50000000;

typedef struct look {
    double cpu_s; /* of the workers */
    double own_s; /* CPU seconds beside those of samples */
} look;

static look look_at(const pst_engine *engine)
{
    psti_pool_times times;
    psti_pool_times_get(engine->pool, &times);
    return (look){times.cpu_s, times.cpu_s - times.samples_s + psti_cpu_s()};
}

/* So many seconds of the workers' time after the first `warm` samples; on a busy machine at most
 * PATIENT times as long by the clock, with them. */
static double take(const pst_engine *engine, pst_job *job, int64_t warm, double seconds)
{
    const uint64_t end = psti_now_ns() + (uint64_t)(PATIENT * seconds * 1e9);
    const double work_s = seconds * engine->settings.workers;
    look from = {0}, to = {0};
    int64_t before = 0, samples = 0;
    while (psti_now_ns() < end && to.cpu_s - from.cpu_s < work_s) {
        pst_batch *batch;
        const int rc = pst_job_next(job, PATIENCE_NS, &batch);
        if (rc < 0 && rc != -ETIMEDOUT)
            return 0;
        if (rc != 1)
            continue;
        samples += pst_batch_get(batch)->valid_slots;
        pst_batch_release(batch);
        to = look_at(engine);
        if (samples < warm) {
            from = to;
            before = samples;
        }
    }
    if (samples - before < SAMPLES_LEAST || samples < warm || to.own_s <= from.own_s)
        return 0;
    return (to.own_s - from.own_s) / (double)(samples - before);
}

/* Samples spread over the dataset, as many as the cache holds in decoded form. */
static int64_t choose(const psti_dataset *data, uint64_t seed, double bytes,
                      int64_t ids[SAMPLES_MOST])
{
    const int64_t count = psti_dataset_count(data);
    const double fit = bytes > 0 ? 0.75 * (double)CACHE / bytes : SAMPLES_MOST;
    int64_t chosen = fit < 1 ? 1 : fit > SAMPLES_MOST ? SAMPLES_MOST : (int64_t)fit;
    chosen = chosen < count ? chosen : count;
    for (int64_t i = 0; i < chosen; i++)
        ids[i] = plan_pick(count, seed, i);
    return chosen;
}

double own_work(pst_dataset *data, const pst_plan_options *opts, double decoded_bytes, int workers,
                double seconds)
{
    int64_t ids[SAMPLES_MOST];
    pst_engine_options eo;
    pst_job_options jo;
    pst_engine *engine;
    pst_job *job;
    pst_error err;
    pst_engine_options_init(&eo);
    eo.workers = workers;
    eo.cache_bytes = CACHE;
    eo.trace = ""; /* that of the run that is planned goes there */
    pst_job_options_init(&jo);
    jo.pipeline = opts->pipeline;
    jo.fields = opts->fields;
    jo.seed = opts->seed;
    jo.order = PST_ORDER_READY;
    jo.on_error = PST_SKIP;
    jo.skip_limit = INT64_MAX;
    jo.ids = ids;
    jo.ids_count = choose(data->data, opts->seed, decoded_bytes, ids);
    if (pst_engine_new(&eo, &engine, &err) < 0)
        return 0;
    double found = 0;
    psti_pool_clock(engine->pool);
    if (pst_job_open(engine, data, &jo, &job, &err) == 0) {
        found = take(engine, job, 2 * jo.ids_count + WARM, seconds);
        pst_job_close(job);
    }
    pst_engine_free(engine);
    return found;
}
