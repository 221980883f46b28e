/* SPDX-License-Identifier: Apache-2.0
 * A view as OpenMetrics 1.0. A family is written once, with all its samples behind it, in the order
 * of the tables below. Numbers of a job go with it; those of a dataset are sums over its jobs,
 * running and ended, and only ever grow. Pure functions. */
#include "watch/metrics.h"

#include <stdio.h>
#include <string.h>

#include "core/keys.h"
#include "core/memory.h"

static double seconds(uint64_t ns)
{
    return 1e-9 * (double)ns;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void family(psti_writ *out, const char *name, const char *type, const char *help)
{
    psti_writ_add(out, "# TYPE ");
    psti_writ_add(out, name);
    psti_writ_add(out, " ");
    psti_writ_add(out, type);
    psti_writ_add(out, "\n# HELP ");
    psti_writ_add(out, name);
    psti_writ_add(out, " ");
    psti_writ_add(out, help);
    psti_writ_add(out, "\n");
}

/* Labels of a sample, at most five. */
typedef struct labels {
    int count;
    struct {
        const char *name, *value;
    } at[5];
} labels;

static labels with(const labels *base, const char *name, const char *value)
{
    labels all = *base;
    all.at[all.count].name = name;
    all.at[all.count++].value = value;
    return all;
}

static void put_value(psti_writ *out, const char *value)
{
    for (size_t left = strlen(value); left > 0;) {
        const size_t len = psti_utf8_length(value, left);
        if (len == 0)
            psti_writ_add(out, "\xef\xbf\xbd");
        else if (*value == '\\' || *value == '"')
            psti_writ_add(out, *value == '"' ? "\\\"" : "\\\\");
        else if (*value == '\n')
            psti_writ_add(out, "\\n");
        else
            psti_writ_put(out, value, len);
        value += len ? len : 1;
        left -= len ? len : 1;
    }
}

static void put_name(psti_writ *out, const char *name, const char *suffix, const labels *l)
{
    psti_writ_add(out, name);
    psti_writ_add(out, suffix);
    for (int i = 0; i < l->count; i++) {
        psti_writ_add(out, i ? "," : "{");
        psti_writ_add(out, l->at[i].name);
        psti_writ_add(out, "=\"");
        put_value(out, l->at[i].value);
        psti_writ_add(out, "\"");
    }
    psti_writ_add(out, l->count ? "} " : " ");
}

static void put_count(psti_writ *out, const char *name, const char *suffix, const labels *l,
                      uint64_t value)
{
    put_name(out, name, suffix, l);
    psti_writ_u64(out, value);
    psti_writ_add(out, "\n");
}

static void put_real(psti_writ *out, const char *name, const char *suffix, const labels *l,
                     double value)
{
    put_name(out, name, suffix, l);
    psti_writ_real(out, value);
    psti_writ_add(out, "\n");
}

/* ---- jobs and datasets ----------------------------------------------------------------------- */

typedef struct job_label {
    char id[24];
    labels labels;
} job_label;

static const labels *label_job(const psti_view_job *job, job_label *l)
{
    snprintf(l->id, sizeof l->id, "%llu", (unsigned long long)job->id);
    l->labels = (labels){2, {{"job", l->id}, {"dataset", job->name}}};
    return &l->labels;
}

typedef struct count_row {
    const char *name, *help;
    size_t offset; /* in psti_view_sums */
    bool ns;       /* shown in seconds */
} count_row;

#define SUM(field) offsetof(psti_view_sums, field)
static const count_row counts[] = {
    {"samples", "Samples handed over.", SUM(samples), false},
    {"batches", "Batches handed over.", SUM(batches), false},
    {"skipped", "Bad samples that were skipped.", SUM(skipped), false},
    {"waits", "Times that the consumer asked for a batch.", SUM(waits), false},
    {"wait_seconds", "Time that the consumer waited for batches.", SUM(wait_ns), true},
    {"preparations", "Samples prepared for the job.", SUM(preparations), false},
    {"shared", "Samples taken as another job had prepared them.", SUM(shared), false},
    {"adopted", "Samples taken as another engine had prepared them.", SUM(adopted), false},
    {"substitutions", "Shared samples taken ahead of their place.", SUM(substitutions), false},
    {"misses", "Samples whose decoded form was not in the cache.", SUM(misses), false},
};

static void put_sum(psti_writ *out, const char *name, const labels *l, const count_row *row,
                    const psti_view_sums *sums)
{
    uint64_t value;
    memcpy(&value, (const char *)sums + row->offset, sizeof value);
    if (row->ns)
        put_real(out, name, "_total", l, seconds(value));
    else
        put_count(out, name, "_total", l, value);
}

static void put_bytes(psti_writ *out, const char *name, const labels *l, const psti_view_sums *sums)
{
    const labels read = with(l, "direction", "read"), delivered = with(l, "direction", "delivered");
    put_count(out, name, "_total", &read, sums->bytes_read);
    put_count(out, name, "_total", &delivered, sums->bytes_delivered);
}

static void put_hits(psti_writ *out, const char *name, const labels *l, const psti_view_sums *sums)
{
    for (int f = 0; f < PSTI_VIEW_FORMS; f++) {
        const labels form = with(l, "form", psti_view_form_names[f]);
        put_count(out, name, "_total", &form, sums->hits[f]);
    }
    const labels disk = with(l, "form", "disk"), remote = with(l, "form", "remote");
    put_count(out, name, "_total", &disk, sums->disk_hits);
    put_count(out, name, "_total", &remote, sums->remote_hits);
}

/* Sums of a job or of a dataset, whoever they belong to. */
typedef struct owner {
    labels labels;
    const psti_view_sums *sums;
} owner;

static void put_owners(psti_writ *out, const char *prefix, const owner *owners, int count)
{
    char name[64];
    for (size_t r = 0; r < sizeof counts / sizeof *counts; r++) {
        snprintf(name, sizeof name, "penstock_%s_%s", prefix, counts[r].name);
        family(out, name, "counter", counts[r].help);
        for (int i = 0; i < count; i++)
            put_sum(out, name, &owners[i].labels, &counts[r], owners[i].sums);
    }
    snprintf(name, sizeof name, "penstock_%s_bytes", prefix);
    family(out, name, "counter", "Bytes read from the source, and bytes of batches handed over.");
    for (int i = 0; i < count; i++)
        put_bytes(out, name, &owners[i].labels, owners[i].sums);
    snprintf(name, sizeof name, "penstock_%s_hits", prefix);
    family(out, name, "counter", "Samples that began from a form that was kept, by form or tier.");
    for (int i = 0; i < count; i++)
        put_hits(out, name, &owners[i].labels, owners[i].sums);
}

/* ---- jobs: what is now, stages, lanes -------------------------------------------------------- */

typedef struct gauge_row {
    const char *name, *help;
    double (*value)(const psti_view_job *job);
} gauge_row;

static double stall_of(const psti_view_job *j)
{
    return j->stall_now;
}

static double rate_of(const psti_view_job *j)
{
    return j->rate_now;
}

static double ready_of(const psti_view_job *j)
{
    return (double)j->ready;
}

static double depth_of(const psti_view_job *j)
{
    return (double)j->ready_depth;
}

static double cutoff_of(const psti_view_job *j)
{
    return seconds(j->lanes.cutoff_ns);
}

static double error_of(const psti_view_job *j)
{
    return j->lanes.prediction_error;
}

static const gauge_row gauges[] = {
    {"penstock_job_stall_ratio", "Share of the last two seconds that the consumer waited.",
     stall_of},
    {"penstock_job_samples_per_second", "Samples handed over in the last two seconds, a second.",
     rate_of},
    {"penstock_job_ready_batches", "Batches that are ready now.", ready_of},
    {"penstock_job_ready_depth_batches", "Batches that may be ready.", depth_of},
    {"penstock_lane_cutoff_seconds", "Work after which a sample is slow; 0 = there is none.",
     cutoff_of},
    {"penstock_prediction_error_ratio", "Mean error of predicted work, of the mean work.",
     error_of},
};

static void put_lane(psti_writ *out, const psti_view *v, const char *name, const char *help,
                     size_t offset)
{
    family(out, name, "counter", help);
    for (int i = v->job_count - 1; i >= 0; i--) {
        job_label l;
        uint64_t value;
        memcpy(&value, (const char *)&v->jobs[i].lanes + offset, sizeof value);
        put_count(out, name, "_total", label_job(&v->jobs[i], &l), value);
    }
}

static void put_now(psti_writ *out, const psti_view *v)
{
    for (size_t g = 0; g < sizeof gauges / sizeof *gauges; g++) {
        family(out, gauges[g].name, "gauge", gauges[g].help);
        for (int i = v->job_count - 1; i >= 0; i--) {
            job_label l;
            put_real(out, gauges[g].name, "", label_job(&v->jobs[i], &l),
                     gauges[g].value(&v->jobs[i]));
        }
    }
    put_lane(out, v, "penstock_lane_slow", "Samples whose work passed the cut-off.",
             offsetof(psti_view_lanes, slow));
    put_lane(out, v, "penstock_lane_parked", "Times that a slow sample was put aside.",
             offsetof(psti_view_lanes, parked));
    put_lane(out, v, "penstock_lane_early", "Slow samples begun before their turn.",
             offsetof(psti_view_lanes, early));
    put_lane(out, v, "penstock_lane_stragglers",
             "Strict order: samples that all that may be ready waited for.",
             offsetof(psti_view_lanes, stragglers));
}

/* psti_view_bounds as the format writes them, whatever the locale. */
static const char *const bounds[PSTI_VIEW_BOUNDS + 1] = {
    "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025",
    "0.05",   "0.1",     "0.25",   "0.5",   "1.0",    "2.5",   "10.0", "+Inf"};

static void put_histogram(psti_writ *out, const labels *l, const psti_view_stage *s)
{
    static const char name[] = "penstock_stage_seconds";
    uint64_t sum = 0;
    for (int i = 0; i <= PSTI_VIEW_BOUNDS; i++) {
        sum += s->took.count[i];
        const labels le = with(l, "le", bounds[i]);
        put_count(out, name, "_bucket", &le, sum);
    }
    put_count(out, name, "_count", l, sum);
    put_real(out, name, "_sum", l, seconds(s->total_ns));
}

/* A pipeline may have an op twice: its second one is resize_2. */
static const char *stage_label(const psti_view_job *job, int at, char room[40])
{
    int same = 1;
    for (int i = 0; i < at; i++)
        same += strcmp(job->stage[i].name, job->stage[at].name) == 0;
    if (same == 1)
        return job->stage[at].name;
    snprintf(room, 40, "%s_%d", job->stage[at].name, same);
    return room;
}

static void put_stages(psti_writ *out, const psti_view *v)
{
    family(out, "penstock_stage_seconds", "histogram",
           "Time of a sample in a stage; wait is the consumer's, for a batch.");
    for (int i = v->job_count - 1; i >= 0; i--) {
        job_label l;
        char room[40];
        label_job(&v->jobs[i], &l);
        for (int s = 0; s < v->jobs[i].stage_count; s++) {
            const labels stage = with(&l.labels, "stage", stage_label(&v->jobs[i], s, room));
            put_histogram(out, &stage, &v->jobs[i].stage[s]);
        }
    }
}

static void put_jobs(psti_writ *out, const psti_view *v, owner *room, job_label *names)
{
    for (int i = 0; i < v->job_count; i++) {
        const psti_view_job *job = &v->jobs[v->job_count - 1 - i];
        room[i] = (owner){*label_job(job, &names[i]), &job->sums};
    }
    put_owners(out, "job", room, v->job_count);
    put_now(out, v);
    put_stages(out, v);
}

/* Those that ended and those that run, by name. */
static void put_datasets(psti_writ *out, const psti_view *v, psti_view_ended *sets, owner *room)
{
    int count = v->ended_count;
    if (count)
        memcpy(sets, v->ended, (size_t)count * sizeof *sets);
    for (int i = v->job_count - 1; i >= 0; i--)
        psti_view_end(&sets[psti_view_place(sets, &count, v->jobs[i].name)], &v->jobs[i].sums);
    for (int i = 0; i < count; i++)
        room[i] = (owner){{1, {{"dataset", sets[i].name}}}, &sets[i].sums};
    put_owners(out, "dataset", room, count);
    family(out, "penstock_dataset_jobs", "counter", "Jobs that were opened.");
    for (int i = 0; i < count; i++)
        put_count(out, "penstock_dataset_jobs", "_total", &room[i].labels, sets[i].jobs);
}

/* ---- the engine ------------------------------------------------------------------------------ */

static const labels none;

static void gauge(psti_writ *out, const char *name, const char *help, double value)
{
    family(out, name, "gauge", help);
    put_real(out, name, "", &none, value);
}

static void gauge_count(psti_writ *out, const char *name, const char *help, uint64_t value)
{
    family(out, name, "gauge", help);
    put_count(out, name, "", &none, value);
}

static void put_engine(psti_writ *out, const psti_view *v)
{
    const labels build = {1, {{"version", v->version}}};
    family(out, "penstock_build", "info", "The version that runs.");
    put_count(out, "penstock_build", "_info", &build, 1);
    gauge(out, "penstock_engine_uptime_seconds", "Since the engine was started.", v->seconds);
    gauge_count(out, "penstock_engine_jobs", "Jobs that are open.", (uint64_t)v->job_count);
    gauge_count(out, "penstock_engine_workers", "Worker threads.", (uint64_t)v->workers);
    gauge_count(out, "penstock_engine_active_workers", "Workers that may work at once.",
                (uint64_t)v->active_workers);
    gauge_count(out, "penstock_engine_cpus", "Processors that the engine may use.",
                (uint64_t)v->cpus);
    family(out, "penstock_engine_cpu_seconds", "counter", "CPU time of the workers.");
    put_real(out, "penstock_engine_cpu_seconds", "_total", &none, v->cpu_seconds);
    gauge_count(out, "penstock_engine_memory_limit_bytes", "The budget.", v->memory_bytes);
    gauge_count(out, "penstock_engine_memory_used_bytes", "Used of the budget.", v->used_bytes);
    gauge_count(out, "penstock_engine_memory_peak_bytes", "Most that was used.", v->peak_bytes);
}

typedef struct cache_row {
    const char *name, *type, *help, *suffix;
    int field;
} cache_row;

static void put_cache(psti_writ *out, const psti_view_cache *c)
{
    static const cache_row rows[] = {
        {"penstock_cache_entries", "gauge", "Samples in the cache.", "", 0},
        {"penstock_cache_bytes", "gauge", "Bytes of samples in the cache.", "", 1},
        {"penstock_cache_hits", "counter", "Samples that began from a cached form.", "_total", 2},
        {"penstock_cache_inserts", "counter", "Entries that were made.", "_total", 3},
        {"penstock_cache_evictions", "counter", "Entries that made way.", "_total", 4},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        family(out, rows[r].name, rows[r].type, rows[r].help);
        for (int f = 0; f < PSTI_VIEW_FORMS; f++) {
            const uint64_t values[] = {c->form[f].entries, c->form[f].bytes, c->form[f].hits,
                                       c->form[f].inserts, c->form[f].evictions};
            const labels form = {1, {{"form", psti_view_form_names[f]}}};
            put_count(out, rows[r].name, rows[r].suffix, &form, values[rows[r].field]);
        }
    }
    gauge_count(out, "penstock_cache_limit_bytes", "What the cache may have.", c->limit);
}

static void put_sources(psti_writ *out, const psti_view *v)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } rows[] = {
        {"penstock_source_requests", "Reads of files, requests to servers.",
         offsetof(psti_view_traffic, requests)},
        {"penstock_source_bytes", "Bytes that came.", offsetof(psti_view_traffic, bytes)},
        {"penstock_source_retries", "Reads and requests made again.",
         offsetof(psti_view_traffic, retries)},
        {"penstock_source_errors", "Reads and requests that failed for good.",
         offsetof(psti_view_traffic, errors)},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        family(out, rows[r].name, "counter", rows[r].help);
        for (int i = 0; i < PSTI_VIEW_SOURCES; i++) {
            uint64_t value;
            const labels kind = {1, {{"kind", psti_view_source_names[i]}}};
            memcpy(&value, (const char *)&v->source[i] + rows[r].offset, sizeof value);
            put_count(out, rows[r].name, "_total", &kind, value);
        }
    }
}

/* A tier that there is not has no samples. */
static void put_tier(psti_writ *out, const psti_view *v, const char *name, const char *help,
                     const uint64_t *disk, const uint64_t *remote)
{
    static const labels on_disk = {1, {{"tier", "disk"}}}, far = {1, {{"tier", "remote"}}};
    family(out, name, "counter", help);
    if (v->disk.there && disk)
        put_count(out, name, "_total", &on_disk, *disk);
    if (v->remote.there && remote)
        put_count(out, name, "_total", &far, *remote);
}

static void put_tiers(psti_writ *out, const psti_view *v)
{
    static const labels on_disk = {1, {{"tier", "disk"}}}, far = {1, {{"tier", "remote"}}};
    family(out, "penstock_tier_up", "gauge", "1 = the tier is in use, 0 = it is off or away.");
    if (v->disk.there)
        put_count(out, "penstock_tier_up", "", &on_disk, !v->disk.off);
    if (v->remote.there)
        put_count(out, "penstock_tier_up", "", &far, !v->remote.open);
    family(out, "penstock_tier_bytes", "gauge", "Bytes that the tier holds.");
    if (v->disk.there)
        put_count(out, "penstock_tier_bytes", "", &on_disk, v->disk.bytes);
    family(out, "penstock_tier_entries", "gauge", "Entries that the tier holds.");
    if (v->disk.there)
        put_count(out, "penstock_tier_entries", "", &on_disk, v->disk.entries);
    put_tier(out, v, "penstock_tier_hits", "Entries that were found.", NULL, &v->remote.hits);
    put_tier(out, v, "penstock_tier_misses", "Entries that were not there.", NULL,
             &v->remote.misses);
    put_tier(out, v, "penstock_tier_errors", "Errors of the tier.", &v->disk.errors,
             &v->remote.errors);
    put_tier(out, v, "penstock_tier_written", "Entries that were written.", &v->disk.written, NULL);
    put_tier(out, v, "penstock_tier_evicted", "Entries that made way.", &v->disk.evicted, NULL);
    put_tier(out, v, "penstock_tier_damaged", "Entries found damaged.", &v->disk.damaged, NULL);
    put_tier(out, v, "penstock_tier_dropped", "Entries that were not written.", &v->disk.dropped,
             NULL);
}

static void put_model(psti_writ *out, const psti_view_model *m)
{
    family(out, "penstock_model_predicted_samples_per_second", "gauge",
           "What the model says for the cache as it is.");
    if (m->known)
        put_real(out, "penstock_model_predicted_samples_per_second", "", &none, m->predicted);
    gauge(out, "penstock_model_measured_samples_per_second", "All jobs, the last two seconds.",
          m->measured_now);
}

void psti_metrics(const psti_view *view, psti_writ *out)
{
    const size_t sets = (size_t)PSTI_VIEW_DATASETS + 1;
    const size_t most = (size_t)view->job_count > sets ? (size_t)view->job_count : sets;
    owner *room = psti_calloc(PSTI_MEM_ENGINE, most, sizeof *room);
    job_label *names = psti_calloc(PSTI_MEM_ENGINE, most, sizeof *names);
    psti_view_ended *all = psti_calloc(PSTI_MEM_ENGINE, sets, sizeof *all);
    if (room && names && all) {
        put_engine(out, view);
        put_jobs(out, view, room, names);
        put_datasets(out, view, all, room);
        put_cache(out, &view->cache);
        put_sources(out, view);
        put_tiers(out, view);
        put_model(out, &view->model);
        psti_writ_add(out, "# EOF\n");
    }
    out->failed = out->failed || !room || !names || !all;
    psti_free(room);
    psti_free(names);
    psti_free(all);
}
