/* SPDX-License-Identifier: Apache-2.0
 * penstock bench: throughput by worker count and time per stage, beside the decode limit on the
 * same files. Main thread.
 *
 * Limit and feed take turns in short slices, so that a machine that slows down does so for both.
 * Before a slice of the feed is timed the batches that were prepared during the other's slice are
 * thrown away. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "declimit.h"
#include "interrupt.h"
#include "json.h"
#include "open.h"
#include "outfile.h"
#include "progress.h"
#include "runs.h"
#include "verdict.h"

enum { SLICES = 3, COUNTS_MAX = 16, FILES_MAX = 4000 };
static const uint64_t files_bytes_max = 256 << 20;

typedef struct bench_values {
    const char *data, *pipeline, *index_dir, *disk, *remote, *watch, *trace, *report;
    int64_t batch, workers;
    double seconds;
    uint64_t seed, memory, cache;
    bool quiet, json;
} bench_values;

/* The measurement for one worker count. */
typedef struct row {
    int workers;
    uint64_t samples, limit_images;
    double seconds, cpu_s, limit_seconds, limit_cpu_s;
    pst_job_stats stats;
    pst_verdict verdict; /* of the last slice */
} row;

typedef struct bench {
    const bench_values *v;
    pst_dataset *data;
    char pipeline[PIPELINE_BYTES];
    declimit_file *files; /* JPEGs in memory; the bytes are ours to pst_free */
    size_t file_count;
    row rows[COUNTS_MAX];
    int row_count;
    int64_t begin_ns; /* of the first measurement, and seconds that all of them take */
    double expected_s;
} bench;

/* ---- files for the limit -------------------------------------------------------------------- */

static bool is_jpeg(const uint8_t *bytes, size_t size)
{
    return size > 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF;
}

static void load_files(bench *b)
{
    char field[PST_NAME_BYTES];
    const int64_t count = pst_dataset_count(b->data), most = count < FILES_MAX ? count : FILES_MAX;
    uint64_t total = 0;
    if (find_field(b->data, PST_IMAGE, field) == NULL)
        return;
    b->files = cli_alloc((size_t)most * sizeof *b->files);
    for (int64_t i = 0; i < most && total < files_bytes_max && interrupt_signal() == 0; i++) {
        void *bytes = NULL;
        size_t size = 0;
        const int64_t id = (int64_t)((__int128)i * count / most);
        if (pst_dataset_read(b->data, id, field, &bytes, &size, NULL) < 0)
            continue;
        if (is_jpeg(bytes, size))
            b->files[b->file_count++] = (declimit_file){.bytes = bytes, .size = size};
        else
            pst_free(bytes);
        total += size;
        progress_step(&(progress_at){.what = "bench, reading",
                                     .things = "files",
                                     .done = (uint64_t)i,
                                     .all = (uint64_t)most});
    }
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* How far all worker counts together are is a matter of time alone. */
static void show_progress(const bench *b, const char *note, const char *things, uint64_t count,
                          double seconds)
{
    const double spent = (double)(clock_ns() - b->begin_ns) * 1e-9, share = spent / b->expected_s;
    progress_step(&(progress_at){.what = "bench",
                                 .things = things,
                                 .note = note,
                                 .done = count,
                                 .share = share < 0.99 ? share : 0.99,
                                 .rate = seconds > 0 ? (double)count / seconds : 0});
}

/* The next batch, across epochs. Returns 1, or a negative code. */
static int next_batch(pst_job *job, uint64_t *samples)
{
    pst_batch *batch = NULL;
    int rc = 0, empty = 0;
    while ((rc = pst_job_next(job, -1, &batch)) == 0 && empty++ < 2)
        continue;
    if (rc == 1) {
        *samples += pst_batch_get(batch)->valid_slots;
        pst_batch_release(batch);
    }
    return rc == 0 ? -ENODATA : rc;
}

/* Throws away what is ready and waits until the workers are at full speed. */
static int warm_up(const bench *b, pst_job *job, double seconds)
{
    pst_job_stats stats = {.size = sizeof stats};
    uint64_t ignored = 0;
    pst_job_stats_get(job, &stats);
    const int64_t end_ns = clock_ns() + (int64_t)(seconds * 1e9);
    int rc = 1;
    for (uint32_t i = 0; rc == 1 && (i < 2 * stats.ready_depth + 1 || clock_ns() < end_ns); i++) {
        rc = next_batch(job, &ignored);
        show_progress(b, "warming up", NULL, 0, 0);
    }
    return rc;
}

static int feed_slice(const bench *b, pst_job *job, row *r)
{
    char note[TEXT_SHORT];
    const double slice = b->v->seconds / SLICES;
    snprintf(note, sizeof note, r->workers == 1 ? "%d worker" : "%d workers", r->workers);
    r->verdict.size = sizeof r->verdict;
    pst_job_verdict(job, &r->verdict); /* what follows is compared with this moment */
    int rc = warm_up(b, job, slice / 4);
    const int64_t begin_ns = clock_ns();
    const double cpu = clock_cpu();
    while (rc == 1 && (double)(clock_ns() - begin_ns) * 1e-9 < slice) {
        rc = next_batch(job, &r->samples);
        show_progress(b, note, "samples", r->samples,
                      r->seconds + (double)(clock_ns() - begin_ns) * 1e-9);
    }
    r->seconds += (double)(clock_ns() - begin_ns) * 1e-9;
    r->cpu_s += clock_cpu() - cpu;
    pst_job_verdict(job, &r->verdict);
    return rc;
}

/* The workers stand still meanwhile: all batches are ready and nobody takes them. Cut into short
 * parts, so that Ctrl-C need not wait long. */
static int limit_slice(const bench *b, int slice, row *r)
{
    const double seconds = b->v->seconds / SLICES, part = seconds < 0.5 ? seconds : 0.5;
    char note[TEXT_SHORT];
    double done = 0;
    int rc = 0;
    snprintf(note, sizeof note, r->workers == 1 ? "limit of %d thread" : "limit of %d threads",
             r->workers);
    while (b->file_count > 0 && rc == 0 && done < seconds && interrupt_signal() == 0) {
        declimit_result result = {0};
        const uint64_t seed = b->v->seed + (uint64_t)slice * 1000003 + (uint64_t)(done * 1e6);
        rc = declimit_run(b->files, b->file_count, r->workers, part, seed, &result);
        r->limit_images += result.images;
        r->limit_seconds += result.seconds;
        r->limit_cpu_s += result.cpu_s;
        done += part;
        show_progress(b, note, "images", r->limit_images, r->limit_seconds);
    }
    return rc;
}

static int measure_job(const bench *b, pst_job *job, row *r)
{
    int rc = warm_up(b, job, b->v->seconds / SLICES / 2);
    for (int slice = 0; slice < SLICES && rc >= 0 && interrupt_signal() == 0; slice++) {
        rc = limit_slice(b, slice, r);
        if (rc >= 0)
            rc = feed_slice(b, job, r);
    }
    r->stats.size = sizeof r->stats;
    pst_job_stats_get(job, &r->stats);
    progress_clear();
    return rc;
}

/* Why nothing came. With every sample left out as bad, the first one says it. */
static int fail_measure(const bench *b, const pst_engine *engine, const pst_job *job, int rc)
{
    pst_error first = {0};
    if (rc != -ENODATA || pst_engine_bad_get(engine, 0, &first) < 0)
        return fail_job(job, rc);
    fail_error(&first);
    return fail("no sample could be read; 'penstock inspect %s --deep' says why", b->v->data);
}

static int measure(bench *b, row *r)
{
    pst_engine_options engine_opts;
    pst_job_options opts;
    pst_engine *engine = NULL;
    pst_job *job = NULL;
    pst_error err = {0};
    pst_engine_options_init(&engine_opts);
    engine_opts.workers = r->workers;
    engine_opts.memory_bytes = b->v->memory;
    engine_opts.cache_bytes = b->v->cache;
    engine_opts.disk = b->v->disk;
    engine_opts.remote = b->v->remote;
    engine_opts.watch = b->v->watch;
    engine_opts.trace = b->v->trace;
    pst_job_options_init(&opts);
    opts.pipeline = b->pipeline;
    opts.batch = (int)b->v->batch;
    opts.seed = b->v->seed;
    opts.on_error = PST_SKIP;
    opts.skip_limit = INT64_MAX;
    int rc = pst_engine_new(&engine_opts, &engine, &err);
    if (rc >= 0)
        rc = pst_job_open(engine, b->data, &opts, &job, &err);
    int exit_code = rc < 0 ? fail_open(b->pipeline, &err) : CLI_OK;
    if (exit_code == CLI_OK) {
        interrupt_job(job);
        rc = measure_job(b, job, r);
        interrupt_job(NULL);
        exit_code = rc < 0 ? fail_measure(b, engine, job, rc) : CLI_OK;
    }
    pst_job_close(job);
    pst_engine_free(engine);
    return exit_code;
}

/* 1, 2, 4 … and the number of CPUs, or just the one asked for. */
static void plan_rows(bench *b, int cpus)
{
    if (b->v->workers > 0) {
        b->rows[b->row_count++].workers = (int)b->v->workers;
        return;
    }
    for (int n = 1; n < cpus && b->row_count < COUNTS_MAX - 1; n *= 2)
        b->rows[b->row_count++].workers = n;
    b->rows[b->row_count++].workers = cpus;
}

/* ---- results -------------------------------------------------------------------------------- */

static double rate(uint64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

static double limit_ratio(const row *r)
{
    const double limit = rate(r->limit_images, r->limit_seconds);
    return limit > 0 ? rate(r->samples, r->seconds) / limit : 0;
}

static void print_stages(const row *r)
{
    printf("\n  %-24s %16s\n", "stage", "per sample");
    for (uint32_t i = 0; i < r->stats.stage_count; i++) {
        char each[TEXT_SHORT];
        const pst_stage_stats *s = &r->stats.stages[i];
        const double seconds = (double)s->total_ns * 1e-9;
        printf("  %-24s %16s\n", s->name,
               text_seconds(each, r->stats.samples > 0 ? seconds / (double)r->stats.samples : 0));
    }
}

static void print_results(const bench *b)
{
    printf("pipeline: %s\n\n", b->pipeline);
    printf("  %7s %12s %14s %12s %12s %10s\n", "workers", "samples/s", "CPU ms/sample", "times one",
           "limit/s", "of limit");
    for (int i = 0; i < b->row_count; i++) {
        const row *r = &b->rows[i];
        printf("  %7d %12.1f %14.3f %12.2f", r->workers, rate(r->samples, r->seconds),
               r->samples > 0 ? 1e3 * r->cpu_s / (double)r->samples : 0,
               rate(r->samples, r->seconds) / rate(b->rows[0].samples, b->rows[0].seconds));
        if (r->limit_images > 0)
            printf(" %12.1f %10.2f\n", rate(r->limit_images, r->limit_seconds), limit_ratio(r));
        else
            printf(" %12s %10s\n", "-", "-");
    }
    print_stages(&b->rows[b->row_count - 1]);
    printf("\n%s\n", b->rows[b->row_count - 1].verdict.text);
    printf("\nlimit: a plain libjpeg loop, as many threads, on %zu of the files in memory, "
           "decoding only a random crop of each\n",
           b->file_count);
}

static void json_row(json *j, const row *r)
{
    json_object(j, NULL);
    json_int(j, "workers", r->workers);
    json_real(j, "samples_per_s", rate(r->samples, r->seconds));
    json_real(j, "cpu_s_per_sample", r->samples > 0 ? r->cpu_s / (double)r->samples : 0);
    json_real(j, "decode_limit_per_s", rate(r->limit_images, r->limit_seconds));
    json_real(j, "limit_cpu_s_per_image",
              r->limit_images > 0 ? r->limit_cpu_s / (double)r->limit_images : 0);
    json_real(j, "of_limit", limit_ratio(r));
    json_array(j, "stages");
    for (uint32_t i = 0; i < r->stats.stage_count; i++) {
        const pst_stage_stats *s = &r->stats.stages[i];
        json_object(j, NULL);
        json_text(j, "name", s->name);
        json_uint(j, "runs", s->runs);
        json_real(j, "seconds", (double)s->total_ns * 1e-9);
        json_object_end(j);
    }
    json_array_end(j);
    verdict_json(j, &r->verdict);
    json_object_end(j);
}

static void json_results(const bench *b, FILE *out)
{
    json j = {.out = out};
    json_object(&j, NULL);
    json_text(&j, "data", b->v->data);
    json_text(&j, "pipeline", b->pipeline);
    json_int(&j, "batch", b->v->batch);
    json_int(&j, "samples", pst_dataset_count(b->data));
    json_int(&j, "limit_files", (int64_t)b->file_count);
    json_array(&j, "results");
    for (int i = 0; i < b->row_count; i++)
        json_row(&j, &b->rows[i]);
    json_array_end(&j);
    json_object_end(&j);
    fputc('\n', out);
}

/* The page that penstock report makes of the same. */
static int report_results(const bench *b)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return fail_errno(errno, "write", b->v->report);
    json_results(b, out);
    fclose(out);
    runs *all = cli_alloc(sizeof *all);
    int exit_code = runs_take(all, b->v->data, text, size);
    if (exit_code == CLI_OK)
        exit_code = runs_page(all, b->v->report, "penstock bench");
    runs_fini(all);
    free(all);
    free(text);
    return exit_code;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int run_rows(bench *b)
{
    pst_settings settings = {0};
    pst_error err = {0};
    if (pst_settings_resolve(NULL, &settings, &err) < 0)
        return fail_error(&err);
    if (b->v->report != NULL && outfile_check(b->v->report) != CLI_OK)
        return CLI_FAIL;
    if (b->v->trace != NULL && b->v->workers == 0)
        return fail_usage("--trace is for one run: give --workers");
    load_files(b);
    plan_rows(b, settings.cpus > 0 ? settings.cpus : 1);
    /* A half, and for each slice a quarter, of a slice to warm up; the limit takes as long. */
    const double slices = SLICES * (b->file_count > 0 ? 2.25 : 1.25) + 0.5;
    b->expected_s = b->row_count * slices * b->v->seconds / SLICES;
    b->begin_ns = clock_ns();
    int exit_code = CLI_OK;
    for (int i = 0; i < b->row_count && exit_code == CLI_OK && interrupt_signal() == 0; i++)
        exit_code = measure(b, &b->rows[i]);
    if (exit_code != CLI_OK || interrupt_signal() != 0)
        return exit_code;
    if (b->v->json)
        json_results(b, stdout);
    else
        print_results(b);
    return b->v->report != NULL ? report_results(b) : CLI_OK;
}

static int run_bench(const void *values)
{
    bench *b = cli_alloc(sizeof *b);
    b->v = values;
    if (b->v->quiet)
        progress_quiet();
    int exit_code = check_pipeline(b->v->pipeline, b->pipeline);
    if (exit_code == CLI_OK)
        exit_code = open_data(b->v->data, b->v->index_dir, &b->data);
    if (exit_code == CLI_OK)
        exit_code = run_rows(b);
    for (size_t i = 0; i < b->file_count; i++)
        pst_free((void *)(uintptr_t)b->files[i].bytes);
    free(b->files);
    pst_dataset_close(b->data);
    free(b);
    return exit_code;
}

#define AT(field) offsetof(bench_values, field)
static const arg_operand operands[] = {
    {"DATA", AT(data), false, "folder, tar file, folder of tar shards, or manifest"},
    {NULL, 0, false, NULL},
};

static const arg_option options[] = {
    OPT_TEXT("pipeline", "TEXT", AT(pipeline),
             "decode | random_resized_crop(224) | hflip | normalize(imagenet)", "what is measured"),
    OPT_INT("batch", "B", AT(batch), 1, 1048576, "64", "samples in a batch"),
    OPT_REAL("seconds", "X", AT(seconds), 0.1, 3600, "3",
             "how long each worker count is measured, the limit as long again"),
    OPT_INT("workers", "N", AT(workers), 0, 1024, "0",
            "only this count; 0 = 1, 2, 4 … up to the CPUs"),
    OPT_BYTES("memory", "BYTES", AT(memory), "0", "memory budget, as for feed"),
    OPT_CACHE(AT(cache), "0", "decoded samples kept, as for feed"),
    OPT_DISK(AT(disk)),
    OPT_REMOTE(AT(remote)),
    OPT_WATCH(AT(watch)),
    OPT_TRACE(AT(trace)),
    OPT_U64("seed", "S", AT(seed), "0", "of order and random choices"),
    OPT_INDEX_DIR(AT(index_dir)),
    OPT_FLAG("quiet", AT(quiet), "no progress"),
    OPT_FLAG("json", AT(json), "one JSON object"),
    OPT_TEXT("report", "FILE", AT(report), NULL, "also a page that shows it, as penstock report's"),
    OPT_END,
};
#undef AT

const command command_bench = {
    .name = "bench",
    .summary = "throughput by worker count and time per stage, beside the decode limit",
    .about = "The limit is what libjpeg alone can do on the same files with the same number of "
             "threads, decoding only a random crop of "
             "each. It is meant for JPEG data and the default pipeline.",
    .examples = "penstock bench photos\npenstock bench photos --seconds 10 --report bench.html",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(bench_values),
    .run = run_bench,
};
