/* SPDX-License-Identifier: Apache-2.0
 * Reading /v1/watch. Texts come from whoever opened a job or wrote a file, so they are made plain
 * here, once; numbers are bounded, so that no width of a column and no share goes wild. */
#include "top_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static double number(const json_t *from, const char *name)
{
    const double value = json_number_value(json_object_get(from, name));
    return isfinite(value) && value > 0 ? fmin(value, 1e15) : 0;
}

static double share(const json_t *from, const char *name)
{
    return fmin(number(from, name), 1);
}

static void text(const json_t *from, const char *name, char *out, size_t cap)
{
    const char *value = json_string_value(json_object_get(from, name));
    text_plain(out, cap, value ? value : "");
}

#define TEXT(from, name, out) text(from, name, out, sizeof(out))

static void read_verdict(const json_t *from, view_verdict *out)
{
    TEXT(from, "kind", out->kind);
    TEXT(from, "text", out->text);
    out->stall = share(from, "stall");
}

static const char *const forms[VIEW_FORMS] = {"encoded", "decoded", "augmented"};

static void read_stages(const json_t *list, view_job *out)
{
    const size_t count = json_array_size(list);
    for (size_t i = 0; i < count && out->stage_count < VIEW_STAGES; i++) {
        const json_t *from = json_array_get(list, i);
        view_stage *stage = &out->stages[out->stage_count];
        if (!json_is_object(from))
            continue;
        TEXT(from, "name", stage->name);
        stage->runs = number(from, "runs");
        stage->seconds = number(from, "seconds");
        stage->away = fmin(number(from, "away_seconds"), stage->seconds);
        /* The consumer's, which the stall says: no sample spends time there. */
        out->stage_count += strcmp(stage->name, "wait") != 0;
    }
}

static void read_job(const json_t *from, view_job *out)
{
    const json_t *hits = json_object_get(from, "hits"), *lanes = json_object_get(from, "lanes");
    const struct {
        const char *name;
        double *to;
    } numbers[] = {{"id", &out->id},
                   {"pid", &out->pid},
                   {"batch", &out->batch},
                   {"rank", &out->rank},
                   {"world", &out->world},
                   {"epoch", &out->epoch},
                   {"epoch_samples", &out->epoch_samples},
                   {"epoch_done", &out->epoch_done},
                   {"seconds", &out->seconds},
                   {"samples", &out->samples},
                   {"skipped", &out->skipped},
                   {"wait_p99_seconds", &out->wait_p99},
                   {"rate_now", &out->rate},
                   {"ready", &out->ready},
                   {"ready_depth", &out->ready_depth},
                   {"preparations", &out->prepared},
                   {"shared", &out->shared},
                   {"adopted", &out->adopted},
                   {"bytes_read", &out->bytes_read}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i].to = number(from, numbers[i].name);
    out->stall = share(from, "stall_now");
    for (int f = 0; f < VIEW_FORMS; f++)
        out->hits[f] = number(hits, forms[f]);
    out->disk_hits = number(hits, "disk");
    out->remote_hits = number(hits, "remote");
    out->slow = number(lanes, "slow");
    out->parked = number(lanes, "parked");
    out->early = number(lanes, "early");
    out->cutoff = number(lanes, "cutoff_seconds");
    out->prediction_error = number(lanes, "prediction_error");
    TEXT(from, "state", out->state);
    TEXT(from, "order", out->order);
    TEXT(from, "dataset", out->dataset);
    TEXT(from, "pipeline", out->pipeline);
    read_stages(json_object_get(from, "stages"), out);
    read_verdict(json_object_get(from, "verdict"), &out->verdict);
}

static void read_jobs(const json_t *list, top_view *out)
{
    const size_t count = json_array_size(list);
    const size_t most = count < VIEW_JOBS ? count : VIEW_JOBS;
    out->jobs = cli_alloc((most ? most : 1) * sizeof *out->jobs);
    for (size_t i = 0; i < most; i++) {
        const json_t *from = json_array_get(list, i);
        if (json_is_object(from))
            read_job(from, &out->jobs[out->job_count++]);
    }
}

static void read_engine(const json_t *from, top_view *out)
{
    out->seconds = number(from, "seconds");
    out->workers = number(from, "workers");
    out->active = number(from, "active_workers");
    out->cpus = number(from, "cpus");
    out->cpu_share = share(from, "cpu_share_now");
    out->memory = number(from, "memory_bytes");
    out->used = number(from, "used_bytes");
    out->peak = number(from, "peak_bytes");
}

static void read_cache(const json_t *from, top_view *out)
{
    out->cache_limit = number(from, "limit_bytes");
    out->cache_bytes = number(from, "bytes");
    out->evictions = number(from, "evictions");
    for (int f = 0; f < VIEW_FORMS; f++) {
        const json_t *form = json_object_get(json_object_get(from, "forms"), forms[f]);
        out->forms[f] = (view_form){number(form, "entries"), number(form, "bytes"),
                                    number(form, "hits"), number(form, "evictions")};
    }
}

static void read_sources(const json_t *list, top_view *out)
{
    const size_t count = json_array_size(list);
    for (size_t i = 0; i < count && out->source_count < VIEW_SOURCES; i++) {
        const json_t *from = json_array_get(list, i);
        view_source *source = &out->sources[out->source_count];
        if (!json_is_object(from))
            continue;
        TEXT(from, "kind", source->kind);
        source->requests = number(from, "requests");
        source->bytes = number(from, "bytes");
        source->retries = number(from, "retries");
        source->errors = number(from, "errors");
        source->rate = number(from, "bytes_per_second_now");
        out->source_count++;
    }
}

static void read_tiers(const json_t *from, top_view *out)
{
    const json_t *disk = json_object_get(from, "disk"), *remote = json_object_get(from, "remote");
    out->disk = json_is_object(disk);
    out->disk_off = json_is_true(json_object_get(disk, "off"));
    out->disk_entries = number(disk, "entries");
    out->disk_bytes = number(disk, "bytes");
    out->disk_limit = number(disk, "limit_bytes");
    out->disk_damaged = number(disk, "damaged");
    out->disk_errors = number(disk, "errors");
    out->remote = json_is_object(remote);
    out->remote_open = json_is_true(json_object_get(remote, "open"));
    out->remote_hits = number(remote, "hits");
    out->remote_misses = number(remote, "misses");
    out->remote_errors = number(remote, "errors");
    out->remote_rate = number(remote, "bytes_per_second");
}

static void read_bad(const json_t *list, top_view *out)
{
    const size_t count = json_array_size(list);
    for (size_t i = 0; i < count && out->bad_count < VIEW_BAD; i++) {
        const json_t *from = json_array_get(list, i);
        view_bad *bad = &out->bad[out->bad_count];
        if (!json_is_object(from))
            continue;
        bad->job = number(from, "job");
        TEXT(from, "key", bad->key);
        TEXT(from, "stage", bad->stage);
        TEXT(from, "message", bad->message);
        out->bad_count++;
    }
}

bool view_read(const json_t *answer, top_view *out)
{
    const json_t *engine = json_object_get(answer, "engine"),
                 *jobs = json_object_get(answer, "jobs"), *model = json_object_get(answer, "model");
    if (!json_is_object(engine) || !json_is_array(jobs))
        return false;
    view_fini(out);
    TEXT(answer, "version", out->version);
    TEXT(answer, "instance", out->instance);
    read_engine(engine, out);
    read_jobs(jobs, out);
    read_verdict(json_object_get(answer, "verdict"), &out->verdict);
    read_cache(json_object_get(answer, "cache"), out);
    read_sources(json_object_get(answer, "sources"), out);
    read_tiers(json_object_get(answer, "tiers"), out);
    read_bad(json_object_get(answer, "bad"), out);
    out->model = json_is_object(model);
    out->predicted = number(model, "predicted");
    out->measured = number(model, "measured_now");
    TEXT(model, "binding", out->binding);
    return true;
}

void view_fini(top_view *view)
{
    free(view->jobs);
    memset(view, 0, sizeof *view);
}
