/* SPDX-License-Identifier: Apache-2.0
 * The feed's report on standard output. Main thread, after the last batch. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "report.h"
#include "verdict.h"

enum { BAD_SHOWN = 20 };

static double share_of(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static double stall_share(const report *r)
{
    const double share = share_of((double)r->stats.wait_ns * 1e-9, r->seconds);
    return share > 1 ? 1 : share;
}

static const char *io_name(int io)
{
    return io == PST_IO_URING ? "uring" : io == PST_IO_THREADS ? "threads" : "auto";
}

/* ---- for people ----------------------------------------------------------------------------- */

static void print_tiers(const report *r)
{
    char a[TEXT_SHORT], b[TEXT_SHORT], c[TEXT_SHORT], d[TEXT_SHORT];
    const pst_job_stats *s = &r->stats;
    if (r->settings.disk_bytes > 0)
        printf("  disk         %s entries in %s of %s; %.1f %% came from it, %s%s\n",
               text_count(a, s->disk_entries), text_bytes(b, s->disk_bytes),
               text_bytes(c, r->settings.disk_bytes),
               100 * share_of((double)s->disk_hits, (double)(s->disk_hits + s->disk_misses)),
               text_bytes(d, s->disk_read_bytes), s->disk_off ? "; it is off" : "");
    if (s->disk_damaged + s->disk_errors + s->disk_dropped > 0)
        printf("               %s damaged, %s not written, %s errors\n",
               text_count(a, s->disk_damaged), text_count(b, s->disk_dropped),
               text_count(c, s->disk_errors));
    if (r->settings.remote)
        printf("  remote       %.1f %% came from it, %s at %s/s; %s errors%s\n",
               100 * share_of((double)s->remote_hits, (double)(s->remote_hits + s->remote_misses)),
               text_bytes(a, s->remote_read_bytes), text_bytes(c, s->remote_bytes_s),
               text_count(b, s->remote_errors),
               s->remote_left ? "; decoded samples are dearer to get than to make" : "");
}

static void print_rate(const report *r)
{
    char a[TEXT_SHORT], b[TEXT_SHORT], c[TEXT_SHORT];
    printf("%s samples in %s batches, %s%s\n", text_count(a, r->samples), text_count(b, r->batches),
           text_seconds(c, r->seconds),
           r->interrupted       ? ", interrupted"
           : r->error.code != 0 ? ", stopped by an error"
                                : "");
    printf("  rate         %.1f samples/s; %.2f CPUs busy, %d workers of %d CPUs\n",
           share_of((double)r->samples, r->seconds), share_of(r->cpu_s, clock_since_start()),
           r->settings.workers, r->settings.cpus);
    if (r->first_batch_s >= 0)
        printf("  first batch  %s after the start\n", text_seconds(a, r->first_batch_s));
    printf("  waits        p50 %s, p99 %s; %.1f %% of the time\n",
           text_seconds(a, (double)r->stats.wait_p50_ns * 1e-9),
           text_seconds(b, (double)r->stats.wait_p99_ns * 1e-9), 100 * stall_share(r));
    printf("  memory       peak %s of %s; process %s\n", text_bytes(a, r->stats.peak_bytes),
           text_bytes(b, r->settings.memory_bytes), text_bytes(c, memory_peak_rss()));
    printf("  read         %s by %s, %d deep\n", text_bytes(a, r->stats.bytes_read),
           io_name(r->settings.io), r->settings.io_depth);
    if (r->settings.cache_bytes > 0)
        printf("  cache        %s samples in %s; %.1f %% came from it\n",
               text_count(a, r->stats.cache_entries), text_bytes(b, r->stats.cache_bytes),
               100 * share_of((double)(r->stats.cache_hits + r->stats.shared_hits),
                              (double)(r->stats.preparations + r->stats.shared_hits)));
    print_tiers(r);
    if (r->stats.shared_hits > 0)
        printf("  shared       %s samples came as other jobs had prepared them\n",
               text_count(a, r->stats.shared_hits));
    if (r->stats.adopted > 0)
        printf("  adopted      %s samples came as other engines had prepared them\n",
               text_count(a, r->stats.adopted));
    if (r->pads > 0)
        printf("  padding      %s slots\n", text_count(a, r->pads));
    if (r->stats.warnings > 0)
        printf("  warnings     %s harmless ones from decoders\n", text_count(a, r->stats.warnings));
}

static void print_stages(const report *r)
{
    double total = 0;
    for (uint32_t i = 0; i < r->stats.stage_count; i++)
        total += (double)r->stats.stages[i].total_ns * 1e-9;
    if (total > 0)
        printf("  %-24s %12s %12s %8s %12s\n", "stage", "runs", "time", "share", "per run");
    for (uint32_t i = 0; i < r->stats.stage_count && total > 0; i++) {
        const pst_stage_stats *s = &r->stats.stages[i];
        const double seconds = (double)s->total_ns * 1e-9;
        char runs[TEXT_SHORT], time[TEXT_SHORT], each[TEXT_SHORT];
        printf("  %-24s %12s %12s %6.1f %% %12s\n", s->name, text_count(runs, s->runs),
               text_seconds(time, seconds), 100 * seconds / total,
               text_seconds(each, share_of(seconds, (double)s->runs)));
    }
}

static void print_bad(const report *r)
{
    char text[1024], count[TEXT_SHORT];
    const size_t bad = pst_engine_bad_count(r->engine);
    if (bad > 0)
        printf("  skipped      %s samples\n", text_count(count, bad));
    for (size_t i = 0; i < bad && i < BAD_SHOWN; i++) {
        pst_error err = {0};
        if (pst_engine_bad_get(r->engine, i, &err) != 0)
            continue;
        pst_error_format(&err, text, sizeof text);
        printf("    id %" PRId64 ": %s\n", err.id, text);
    }
    if (bad > BAD_SHOWN)
        printf("    … and %zu more (all are in the ledger and in --json)\n", bad - BAD_SHOWN);
}

void report_print(const report *r)
{
    print_rate(r);
    print_stages(r);
    print_bad(r);
    if (r->verdict.text[0])
        printf("%s\n", r->verdict.text);
}

/* ---- for programs --------------------------------------------------------------------------- */

static void json_error(json *j, const char *key, const pst_error *err)
{
    json_object(j, key);
    json_int(j, "code", err->code);
    json_int(j, "id", err->id);
    json_text(j, "key", err->key);
    json_text(j, "stage", err->stage);
    json_int(j, "offset", err->offset);
    json_text(j, "message", err->message);
    json_object_end(j);
}

static void json_measures(json *j, const report *r)
{
    json_uint(j, "samples", r->samples);
    json_real(j, "seconds", r->seconds);
    json_real(j, "samples_per_s", share_of((double)r->samples, r->seconds));
    json_real(j, "cpu_s", r->cpu_s);
    json_uint(j, "batches", r->batches);
    json_real(j, "stall_share", stall_share(r));
    json_real(j, "wait_p50_us", (double)r->stats.wait_p50_ns * 1e-3);
    json_real(j, "wait_p99_us", (double)r->stats.wait_p99_ns * 1e-3);
    json_real(j, "first_batch_s", r->first_batch_s >= 0 ? r->first_batch_s : NAN);
    json_uint(j, "peak_bytes", r->stats.peak_bytes);
    json_uint(j, "peak_rss_bytes", memory_peak_rss());
    json_uint(j, "bytes_read", r->stats.bytes_read);
    json_uint(j, "cache_hits", r->stats.cache_hits);
    json_uint(j, "cache_misses", r->stats.cache_misses);
    json_uint(j, "preparations", r->stats.preparations);
    json_uint(j, "encoded_hits", r->stats.encoded_hits);
    json_uint(j, "decoded_hits", r->stats.cache_hits);
    json_uint(j, "augmented_hits", r->stats.shared_hits);
    json_uint(j, "evictions", r->stats.evictions);
    json_uint(j, "slow_samples", r->stats.slow_samples);
    json_uint(j, "slow_parked", r->stats.slow_parked);
    json_uint(j, "stragglers", r->stats.stragglers);
    json_uint(j, "active_workers", r->stats.active_workers);
    json_uint(j, "slow_early", r->stats.slow_early);
    json_real(j, "prediction_error", (double)r->stats.prediction_error_ppm * 1e-6);
    json_real(j, "slow_cutoff_ms", (double)r->stats.slow_cutoff_ns * 1e-6);
    json_uint(j, "cache_bytes", r->stats.cache_bytes);
    json_uint(j, "cache_entries", r->stats.cache_entries);
    json_uint(j, "fresh_batches", r->stats.fresh_batches);
    json_uint(j, "disk_hits", r->stats.disk_hits);
    json_uint(j, "disk_misses", r->stats.disk_misses);
    json_uint(j, "disk_read_bytes", r->stats.disk_read_bytes);
    json_uint(j, "disk_entries", r->stats.disk_entries);
    json_uint(j, "disk_bytes", r->stats.disk_bytes);
    json_uint(j, "disk_written", r->stats.disk_written);
    json_uint(j, "disk_evicted", r->stats.disk_evicted);
    json_uint(j, "disk_dropped", r->stats.disk_dropped);
    json_uint(j, "disk_damaged", r->stats.disk_damaged);
    json_uint(j, "disk_errors", r->stats.disk_errors);
    json_bool(j, "disk_off", r->stats.disk_off != 0);
    json_uint(j, "remote_hits", r->stats.remote_hits);
    json_uint(j, "remote_misses", r->stats.remote_misses);
    json_uint(j, "remote_read_bytes", r->stats.remote_read_bytes);
    json_uint(j, "remote_errors", r->stats.remote_errors);
    json_uint(j, "remote_bytes_s", r->stats.remote_bytes_s);
    json_bool(j, "remote_left", r->stats.remote_left != 0);
    json_uint(j, "adopted", r->stats.adopted);
    json_uint(j, "pads", r->pads);
    json_uint(j, "warnings", r->stats.warnings);
    json_uint(j, "epochs", r->epochs);
}

static void json_stages(json *j, const report *r)
{
    json_array(j, "stages");
    for (uint32_t i = 0; i < r->stats.stage_count; i++) {
        json_object(j, NULL);
        json_text(j, "name", r->stats.stages[i].name);
        json_uint(j, "runs", r->stats.stages[i].runs);
        json_real(j, "seconds", (double)r->stats.stages[i].total_ns * 1e-9);
        json_object_end(j);
    }
    json_array_end(j);
}

static void json_skipped(json *j, const report *r)
{
    const size_t bad = pst_engine_bad_count(r->engine);
    json_uint(j, "skipped", bad);
    json_array(j, "skipped_samples");
    for (size_t i = 0; i < bad; i++) {
        pst_error err = {0};
        if (pst_engine_bad_get(r->engine, i, &err) == 0)
            json_error(j, NULL, &err);
    }
    json_array_end(j);
}

static void json_settings(json *j, const report *r)
{
    json_object(j, "settings");
    json_text(j, "pipeline", r->pipeline);
    json_text(j, "order", r->order == PST_ORDER_READY ? "ready" : "strict");
    json_int(j, "batch", r->batch);
    json_int(j, "rank", r->rank);
    json_int(j, "world", r->world);
    json_int(j, "workers", r->settings.workers);
    json_int(j, "cpus", r->settings.cpus);
    json_uint(j, "memory_bytes", r->settings.memory_bytes);
    json_uint(j, "cache_bytes", r->settings.cache_bytes);
    json_uint(j, "disk_limit_bytes", r->settings.disk_bytes);
    json_int(j, "io_depth", r->settings.io_depth);
    json_text(j, "io", io_name(r->settings.io));
    json_text(j, "kernels", r->settings.cpu);
    json_uint(j, "ready_depth", r->stats.ready_depth);
    json_object_end(j);
}

void report_json(const report *r)
{
    json j = {.out = stdout};
    json_object(&j, NULL);
    json_measures(&j, r);
    json_stages(&j, r);
    json_skipped(&j, r);
    verdict_json(&j, &r->verdict);
    json_bool(&j, "interrupted", r->interrupted);
    if (r->error.code != 0)
        json_error(&j, "error", &r->error);
    json_settings(&j, r);
    json_object_end(&j);
    putchar('\n');
}
