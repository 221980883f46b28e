/* SPDX-License-Identifier: Apache-2.0
 * A view as JSON: what GET /v1/watch and the stream answer. docs/watching.md lists every name.
 * Pure functions. */
#include "core/memory.h"
#include "watch/history.h"

static double seconds(uint64_t ns)
{
    return 1e-9 * (double)ns;
}

static void put_verdict(psti_json *j, const pst_verdict *v)
{
    psti_json_key(j, "verdict");
    psti_json_open(j, '{');
    psti_json_ks(j, "kind", pst_verdict_name(v->kind));
    psti_json_ks(j, "text", v->text);
    psti_json_kr(j, "stall", v->stall);
    psti_json_key(j, "numbers");
    psti_json_open(j, '{');
    for (int i = 0; i < v->number_count; i++)
        psti_json_kr(j, v->numbers[i].name, v->numbers[i].value);
    psti_json_close(j, '}');
    psti_json_key(j, "help");
    psti_json_open(j, '[');
    for (int i = 0; i < v->help_count; i++) {
        psti_json_open(j, '{');
        psti_json_ks(j, "what", v->help[i].what);
        psti_json_kr(j, "amount", v->help[i].amount);
        psti_json_ks(j, "unit", v->help[i].unit);
        psti_json_kr(j, "rate", v->help[i].rate);
        psti_json_kr(j, "stall", v->help[i].stall);
        psti_json_close(j, '}');
    }
    psti_json_close(j, ']');
    psti_json_close(j, '}');
}

static void put_bars(psti_json *j, const char *name, const psti_bars *bars, bool cumulative)
{
    uint64_t sum = 0;
    psti_json_key(j, name);
    psti_json_open(j, '[');
    for (int i = 0; i < PSTI_VIEW_BOUNDS + !cumulative; i++) {
        sum += bars->count[i];
        psti_json_u64(j, cumulative ? sum : bars->count[i]);
    }
    psti_json_close(j, ']');
}

static void put_stages(psti_json *j, const psti_view_job *job)
{
    psti_json_key(j, "stages");
    psti_json_open(j, '[');
    for (int i = 0; i < job->stage_count; i++) {
        const psti_view_stage *s = &job->stage[i];
        psti_json_open(j, '{');
        psti_json_ks(j, "name", s->name);
        psti_json_ku(j, "runs", s->runs);
        psti_json_kr(j, "seconds", seconds(s->total_ns));
        psti_json_kr(j, "away_seconds", seconds(s->away_ns));
        put_bars(j, "buckets", &s->took, true);
        psti_json_close(j, '}');
    }
    psti_json_close(j, ']');
}

static void put_lanes(psti_json *j, const psti_view_lanes *l)
{
    psti_json_key(j, "lanes");
    psti_json_open(j, '{');
    psti_json_ku(j, "slow", l->slow);
    psti_json_ku(j, "parked", l->parked);
    psti_json_ku(j, "early", l->early);
    psti_json_ku(j, "stragglers", l->stragglers);
    psti_json_kr(j, "cutoff_seconds", seconds(l->cutoff_ns));
    psti_json_kr(j, "prediction_error", l->prediction_error);
    put_bars(j, "cost_buckets", &l->costs, false);
    psti_json_close(j, '}');
}

static void put_sums(psti_json *j, const psti_view_sums *s)
{
    psti_json_ku(j, "samples", s->samples);
    psti_json_ku(j, "batches", s->batches);
    psti_json_ku(j, "skipped", s->skipped);
    psti_json_ku(j, "warnings", s->warnings);
    psti_json_ku(j, "bytes_read", s->bytes_read);
    psti_json_ku(j, "bytes_delivered", s->bytes_delivered);
    psti_json_ku(j, "waits", s->waits);
    psti_json_kr(j, "wait_seconds", seconds(s->wait_ns));
    psti_json_ku(j, "preparations", s->preparations);
    psti_json_ku(j, "shared", s->shared);
    psti_json_ku(j, "adopted", s->adopted);
    psti_json_ku(j, "substitutions", s->substitutions);
    psti_json_key(j, "hits");
    psti_json_open(j, '{');
    for (int f = 0; f < PSTI_VIEW_FORMS; f++)
        psti_json_ku(j, psti_view_form_names[f], s->hits[f]);
    psti_json_ku(j, "disk", s->disk_hits);
    psti_json_ku(j, "remote", s->remote_hits);
    psti_json_close(j, '}');
    psti_json_ku(j, "misses", s->misses);
}

static void put_job(psti_json *j, const psti_view_job *job)
{
    psti_json_open(j, '{');
    psti_json_ku(j, "id", job->id);
    psti_json_ks(j, "state", job->state);
    psti_json_ku(j, "pid", job->pid);
    psti_json_ku(j, "uid", job->uid);
    psti_json_ks(j, "dataset", job->dataset);
    psti_json_ks(j, "pipeline", job->pipeline);
    psti_json_ku(j, "batch", (uint64_t)job->batch);
    psti_json_ku(j, "rank", (uint64_t)job->rank);
    psti_json_ku(j, "world", (uint64_t)job->world);
    psti_json_ks(j, "order", job->ready_order ? "ready" : "strict");
    psti_json_ks(j, "sampling", job->opportunistic ? "opportunistic" : "plain");
    psti_json_ks(j, "group", job->group);
    psti_json_ku(j, "epoch", job->epoch);
    psti_json_ku(j, "epoch_samples", job->epoch_samples);
    psti_json_ku(j, "epoch_done", job->epoch_done);
    psti_json_kr(j, "seconds", job->seconds);
    put_sums(j, &job->sums);
    psti_json_kr(j, "wait_p50_seconds", seconds(job->wait_p50_ns));
    psti_json_kr(j, "wait_p99_seconds", seconds(job->wait_p99_ns));
    psti_json_kr(j, "rate_now", job->rate_now);
    psti_json_kr(j, "stall_now", job->stall_now);
    psti_json_kr(j, "waiting_seconds", seconds(job->waiting_ns));
    psti_json_ku(j, "ready", job->ready);
    psti_json_ku(j, "ready_depth", job->ready_depth);
    put_stages(j, job);
    put_lanes(j, &job->lanes);
    put_verdict(j, &job->verdict);
    psti_json_close(j, '}');
}

static void put_engine(psti_json *j, const psti_view *v)
{
    psti_json_key(j, "engine");
    psti_json_open(j, '{');
    psti_json_kr(j, "seconds", v->seconds);
    psti_json_ku(j, "workers", (uint64_t)v->workers);
    psti_json_ku(j, "active_workers", (uint64_t)v->active_workers);
    psti_json_ku(j, "cpus", (uint64_t)v->cpus);
    psti_json_kr(j, "cpu_seconds", v->cpu_seconds);
    psti_json_kr(j, "cpu_share_now", v->cpu_share_now);
    psti_json_ku(j, "memory_bytes", v->memory_bytes);
    psti_json_ku(j, "used_bytes", v->used_bytes);
    psti_json_ku(j, "peak_bytes", v->peak_bytes);
    psti_json_close(j, '}');
}

static void put_cache(psti_json *j, const psti_view_cache *c)
{
    psti_json_key(j, "cache");
    psti_json_open(j, '{');
    psti_json_ku(j, "limit_bytes", c->limit);
    psti_json_ku(j, "bytes", c->bytes);
    psti_json_ku(j, "evictions", c->evictions);
    psti_json_key(j, "forms");
    psti_json_open(j, '{');
    for (int f = 0; f < PSTI_VIEW_FORMS; f++) {
        psti_json_key(j, psti_view_form_names[f]);
        psti_json_open(j, '{');
        psti_json_ku(j, "entries", c->form[f].entries);
        psti_json_ku(j, "bytes", c->form[f].bytes);
        psti_json_ku(j, "hits", c->form[f].hits);
        psti_json_ku(j, "inserts", c->form[f].inserts);
        psti_json_ku(j, "evictions", c->form[f].evictions);
        psti_json_close(j, '}');
    }
    psti_json_close(j, '}');
    psti_json_close(j, '}');
}

static void put_model(psti_json *j, const psti_view_model *m)
{
    psti_json_key(j, "model");
    if (!m->known) {
        psti_json_null(j);
        return;
    }
    psti_json_open(j, '{');
    psti_json_kr(j, "predicted", m->predicted);
    psti_json_kr(j, "measured_now", m->measured_now);
    psti_json_ks(j, "binding", m->binding);
    psti_json_key(j, "split");
    psti_json_open(j, '{');
    for (int f = 0; f < PSTI_VIEW_FORMS; f++)
        psti_json_kr(j, psti_view_form_names[f], m->split[f]);
    psti_json_close(j, '}');
    psti_json_key(j, "triangle");
    psti_json_open(j, '[');
    for (int i = 0; i < PSTI_VIEW_TRIANGLE; i++) {
        psti_json_open(j, '[');
        for (int k = 0; k <= PSTI_VIEW_FORMS; k++)
            psti_json_real(j, m->triangle[i][k]);
        psti_json_close(j, ']');
    }
    psti_json_close(j, ']');
    psti_json_close(j, '}');
}

static void put_sources(psti_json *j, const psti_view *v)
{
    psti_json_key(j, "sources");
    psti_json_open(j, '[');
    for (int i = 0; i < PSTI_VIEW_SOURCES; i++) {
        const psti_view_traffic *s = &v->source[i];
        if (!s->requests && !s->errors)
            continue;
        psti_json_open(j, '{');
        psti_json_ks(j, "kind", psti_view_source_names[i]);
        psti_json_ku(j, "requests", s->requests);
        psti_json_ku(j, "bytes", s->bytes);
        psti_json_ku(j, "retries", s->retries);
        psti_json_ku(j, "errors", s->errors);
        psti_json_kr(j, "bytes_per_second_now", s->bytes_per_second_now);
        psti_json_close(j, '}');
    }
    psti_json_close(j, ']');
}

static void put_disk(psti_json *j, const psti_view_disk *d)
{
    psti_json_key(j, "disk");
    if (!d->there) {
        psti_json_null(j);
        return;
    }
    psti_json_open(j, '{');
    psti_json_ku(j, "entries", d->entries);
    psti_json_ku(j, "bytes", d->bytes);
    psti_json_ku(j, "limit_bytes", d->limit);
    psti_json_ku(j, "written", d->written);
    psti_json_ku(j, "evicted", d->evicted);
    psti_json_ku(j, "damaged", d->damaged);
    psti_json_ku(j, "dropped", d->dropped);
    psti_json_ku(j, "errors", d->errors);
    psti_json_key(j, "off");
    psti_json_bool(j, d->off);
    psti_json_close(j, '}');
}

static void put_remote(psti_json *j, const psti_view_remote *r)
{
    psti_json_key(j, "remote");
    if (!r->there) {
        psti_json_null(j);
        return;
    }
    psti_json_open(j, '{');
    psti_json_ku(j, "hits", r->hits);
    psti_json_ku(j, "misses", r->misses);
    psti_json_ku(j, "errors", r->errors);
    psti_json_key(j, "open");
    psti_json_bool(j, r->open);
    psti_json_kr(j, "bytes_per_second", r->bytes_per_second);
    psti_json_close(j, '}');
}

static void put_bad(psti_json *j, const psti_view *v)
{
    psti_json_key(j, "bad");
    psti_json_open(j, '[');
    for (int i = 0; i < v->bad_count; i++) {
        const psti_view_bad *b = &v->bad[i];
        psti_json_open(j, '{');
        psti_json_kr(j, "time", b->time);
        psti_json_ku(j, "job", b->job);
        psti_json_ks(j, "key", b->key);
        psti_json_ks(j, "stage", b->stage);
        psti_json_ks(j, "message", b->message);
        psti_json_close(j, '}');
    }
    psti_json_close(j, ']');
}

void psti_view_json(const psti_view *view, const psti_history *history, psti_json *j)
{
    psti_json_open(j, '{');
    psti_json_kr(j, "time", view->time);
    psti_json_ks(j, "instance", view->instance);
    psti_json_ks(j, "version", view->version);
    put_engine(j, view);
    put_verdict(j, &view->verdict);
    psti_json_key(j, "jobs");
    psti_json_open(j, '[');
    for (int i = view->job_count - 1; i >= 0; i--) /* oldest first */
        put_job(j, &view->jobs[i]);
    psti_json_close(j, ']');
    psti_json_key(j, "stage_bounds");
    psti_json_open(j, '[');
    for (int i = 0; i < PSTI_VIEW_BOUNDS; i++)
        psti_json_real(j, psti_view_bounds[i]);
    psti_json_close(j, ']');
    put_cache(j, &view->cache);
    put_model(j, &view->model);
    put_sources(j, view);
    psti_json_key(j, "tiers");
    psti_json_open(j, '{');
    put_disk(j, &view->disk);
    put_remote(j, &view->remote);
    psti_json_close(j, '}');
    put_bad(j, view);
    if (history) {
        psti_json_key(j, "history");
        psti_history_json(history, j);
    }
    psti_json_close(j, '}');
}
