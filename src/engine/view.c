/* SPDX-License-Identifier: Apache-2.0
 * An engine as those who look on see it: what its pool tells of one moment, the net, the settings,
 * and what the model makes of the measured figures. Any thread that may use the engine; takes the
 * pool's lock for a moment, holds none while the model computes. */
#include <string.h>

#include "core/clock.h"
#include "engine/engine_priv.h"
#include "model/model.h"
#include "net/net.h"

void psti_job_waited(pst_job *job, int64_t batch, uint64_t wait_ns)
{
    if (job && job->feed)
        psti_feed_waited(job->feed, batch, wait_ns);
}

/* A client's jobs are those of the daemon, until it goes on by itself. */
static psti_pool *pool_of(pst_engine *engine)
{
    pthread_mutex_lock(&engine->local_lock);
    psti_pool *pool = engine->local ? engine->local : engine->pool;
    pthread_mutex_unlock(&engine->local_lock);
    return pool;
}

static void add_net(psti_view *out, int kind, bool s3)
{
    psti_net_traffic net;
    psti_net_traffic_get(s3, &net);
    out->source[kind].requests += net.requests;
    out->source[kind].bytes += net.bytes;
    out->source[kind].retries += net.retries;
    out->source[kind].errors += net.errors;
}

/* Of the cache: what jobs found in it, those that ended too. */
static void add_hits(psti_view *out)
{
    psti_view_sums all = {0};
    for (int i = 0; i < out->job_count; i++)
        psti_view_add(&all, &out->jobs[i].sums);
    for (int i = 0; i < out->ended_count; i++)
        psti_view_add(&all, &out->ended[i].sums);
    for (int f = 0; f < PSTI_VIEW_FORMS; f++)
        out->cache.form[f].hits = all.hits[f];
}

int psti_engine_look(pst_engine *engine, psti_view *out)
{
    const int rc = psti_pool_look(pool_of(engine), out);
    if (rc < 0)
        return rc;
    out->seconds = 1e-9 * (double)(out->taken_ns - engine->started_ns);
    out->workers = engine->settings.workers;
    out->cpus = engine->settings.cpus;
    out->memory_bytes = engine->settings.memory_bytes;
    memcpy(out->version, PST_VERSION, sizeof PST_VERSION);
    add_net(out, PSTI_VIEW_S3, true);
    add_net(out, PSTI_VIEW_HTTP, false);
    add_hits(out);
    memset(&out->verdict, 0, sizeof out->verdict);
    return 0;
}

/* ---- the model ------------------------------------------------------------------------------- */

static const char *const bindings[] = {
    [PSTI_MODEL_CPU] = "cpu",       [PSTI_MODEL_SOURCE] = "source",
    [PSTI_MODEL_MEMORY] = "memory", [PSTI_MODEL_CONSUMER] = "consumer",
    [PSTI_MODEL_DISK] = "disk",     [PSTI_MODEL_REMOTE] = "remote"};

/* What a job would take if it never waited; 0 = all it gets, where it waits most of the time and
 * that cannot be told. */
static double demand(const psti_view_job *job)
{
    return job->stall_now < 0.9 ? job->rate_now / (1 - job->stall_now) : 0;
}

static void fill_demand(const psti_view *view, psti_model_input *in)
{
    int sharing = 0;
    const int jobs = view->job_count < in->jobs ? view->job_count : in->jobs;
    for (int i = 0; i < PSTI_MODEL_JOBS; i++)
        in->consumer[i] = i < jobs ? demand(&view->jobs[i]) : 0;
    for (int i = 0; i < view->job_count; i++)
        sharing += view->jobs[i].opportunistic;
    in->bytes[PSTI_MODEL_AUGMENTED] = sharing > 1 ? in->out_bytes : 0;
}

static void fill_triangle(const psti_model_input *in, psti_view_model *out)
{
    int row = 0;
    for (int e = 10; e >= 0; e--) {
        for (int d = 10 - e; d >= 0; d--, row++) {
            const psti_model_split split = {{e / 10.0, d / 10.0, (10 - e - d) / 10.0}};
            psti_model_rate rate;
            psti_model_evaluate(in, &split, true, &rate);
            memcpy(out->triangle[row], split.share, sizeof split.share);
            out->triangle[row][PSTI_VIEW_FORMS] = rate.total;
        }
    }
}

void psti_engine_model(pst_engine *engine, psti_view *out)
{
    psti_model_input in;
    psti_model_split split = {{0}};
    psti_model_rate rate;
    psti_view_model *m = &out->model;
    m->known = false;
    if (!psti_pool_model(pool_of(engine), &in) || engine->settings.workers < 1)
        return;
    if (out->cpus > 0 && in.cores > out->cpus)
        in.cores = out->cpus;
    fill_demand(out, &in);
    if (psti_model_check(&in))
        return; /* not measured yet */
    for (int f = 0; f < PSTI_VIEW_FORMS && out->cache.limit; f++)
        split.share[f] = (double)out->cache.form[f].bytes / (double)out->cache.limit;
    psti_model_evaluate(&in, &split, true, &rate);
    m->known = true;
    m->predicted = rate.total;
    memcpy(m->binding, bindings[rate.binding], strlen(bindings[rate.binding]) + 1);
    memcpy(m->split, split.share, sizeof m->split);
    fill_triangle(&in, m);
}
