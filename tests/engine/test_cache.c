/* SPDX-License-Identifier: Apache-2.0
 * The cache of decoded samples: it changes speed and nothing else. Ledgers with and without it, of
 * any size, are the same; what it holds is not read again; jobs share what is the same and nothing
 * else; damaged files, want of memory and resumes come out as without it. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "core/memory.h"
#include "engine_kit.h"

enum { IMAGES = 60, BATCH = 7, EPOCHS = 3 };
#define MIB ((uint64_t)1 << 20)

static pst_job_options options(const char *pipeline)
{
    return kit_options(pipeline, BATCH, 5, EPOCHS);
}

static pst_job_stats stats_of(const pst_job *job)
{
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(job, &s);
    return s;
}

/* A run on an engine of its own; its ledger and figures. The answer of the last pst_job_next. */
static int run(pst_dataset *data, const pst_job_options *o, int workers, uint64_t cache,
               ledger *out, pst_job_stats *stats)
{
    pst_engine *engine = kit_cached_engine(workers, 192 * MIB, cache);
    pst_job *job = kit_job(engine, data, o);
    const int rc = kit_collect(job, 0, o->epochs, SIZE_MAX, out);
    *stats = stats_of(job);
    pst_job_close(job);
    pst_engine_free(engine);
    return rc;
}

/* ---- the same bytes -------------------------------------------------------------------------- */

static void the_cache_changes_no_byte_and_no_order(void)
{
    static const char *const pipelines[] = {
        KIT_PIPELINE,
        "decode | resize(20) | random_crop(16, padding=2) | hflip | normalize(imagenet)",
        "decode | resize(24) | center_crop(16) | hflip(0.5) | to(u8, nchw)",
        "decode | resize(24) | center_crop(16)",
        "decode | hflip | vflip",
    };
    static const uint64_t sizes[] = {64 * 1024, 80 * 1024, 110 * 1024, 16 * MIB, PST_CACHE_AUTO};
    char *folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    for (size_t p = 0; p < sizeof pipelines / sizeof *pipelines; p++) {
        ledger plain = {0};
        pst_job_stats stats;
        pst_job_options o = options(pipelines[p]);
        CHECK(run(data, &o, 2, 0, &plain, &stats) == 0);
        CHECK(stats.cache_hits == 0 && stats.cache_misses == 0 && stats.cache_bytes == 0);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (int workers = 1; workers <= 4; workers += 3) {
                ledger cached = {0};
                CHECK(run(data, &o, workers, sizes[s], &cached, &stats) == 0);
                CHECKF(ledger_same_order(&plain, &cached), "%s with a cache of %llu", pipelines[p],
                       (unsigned long long)sizes[s]);
                CHECKF(stats.cache_hits + stats.cache_misses == EPOCHS * IMAGES, "%llu + %llu",
                       (unsigned long long)stats.cache_hits,
                       (unsigned long long)stats.cache_misses);
                if (s >= 3) /* all of it fits: only the first epoch decodes, and what of the
                               second was begun meanwhile */
                    CHECKF(stats.cache_misses <= IMAGES + 4 && stats.cache_entries == IMAGES,
                           "%llu misses", (unsigned long long)stats.cache_misses);
                if (s < 3)
                    CHECKF(stats.cache_bytes <= sizes[s], "%llu bytes",
                           (unsigned long long)stats.cache_bytes);
                ledger_free(&cached);
            }
        }
        ledger_free(&plain);
    }
    pst_dataset_close(data);
    kit_remove(folder);
}

static void part_of_the_samples_fit(void)
{
    char *folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    pst_job_options o = options(KIT_PIPELINE);
    ledger l = {0};
    pst_job_stats all, half;
    CHECK(run(data, &o, 2, 16 * MIB, &l, &all) == 0);
    CHECK(run(data, &o, 2, 110 * 1024, &l, &half) == 0);
    CHECKF(half.cache_entries > IMAGES / 4 && half.cache_entries < IMAGES, "%llu of %d",
           (unsigned long long)half.cache_entries, IMAGES);
    CHECK(half.cache_hits > IMAGES / 2 && half.cache_hits <= (EPOCHS - 1) * half.cache_entries);
    CHECK(all.bytes_read < half.bytes_read);
    ledger_free(&l);
    pst_dataset_close(data);
    kit_remove(folder);
}

static void ready_order_with_skips_delivers_the_same_samples(void)
{
    char *folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    kit_break(folder, 11, 3);
    pst_dataset *data = kit_dataset(folder);
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        pst_job_options o = options(KIT_PIPELINE);
        o.order = order;
        o.on_error = PST_SKIP;
        o.skip_limit = 5;
        ledger plain = {0}, cached = {0};
        pst_job_stats a, b;
        CHECK(run(data, &o, 3, 0, &plain, &a) == 0);
        CHECK(run(data, &o, 3, PST_CACHE_AUTO, &cached, &b) == 0);
        ledger_sort(&plain);
        ledger_sort(&cached);
        CHECK(ledger_same(&plain, &cached));
        CHECK(a.skipped == b.skipped && b.cache_hits >= (EPOCHS - 1) * (IMAGES - 1) - 4);
        ledger_free(&plain);
        ledger_free(&cached);
    }
    pst_dataset_close(data);
    kit_remove(folder);
}

/* ---- stored bytes
 * --------------------------------------------------------------------------------- */

static pst_engine *engine_of_stored(uint64_t memory, uint64_t cache)
{
    pst_engine_options o;
    pst_engine_options_init(&o);
    o.workers = 2;
    o.memory_bytes = memory;
    o.cache_bytes = cache;
    o.forms[0] = 1;
    pst_engine *engine = NULL;
    CHECK(pst_engine_new(&o, &engine, NULL) == 0);
    return engine;
}

/* Kept as they are stored, they give the same batches, and the files are not needed any more. */
static void stored_bytes_are_not_read_again(void)
{
    char *folder = kit_folder(), command[600];
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    pst_job_options o = options(KIT_PIPELINE);
    ledger plain = {0}, kept = {0};
    pst_job_stats s = {.size = sizeof s};
    CHECK(run(data, &o, 2, 0, &plain, &s) == 0);
    pst_engine *engine = engine_of_stored(192 * MIB, 64 * MIB);
    o.epochs = 0;
    pst_job *job = kit_job(engine, data, &o);
    for (int pass = 0; pass < 50 && s.form_entries[0] < IMAGES; pass++) {
        ledger l = {0}; /* bytes are kept once rates are known */
        CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
        ledger_free(&l);
        pst_job_stats_get(job, &s);
    }
    CHECK(s.form_entries[0] == IMAGES && s.form_entries[1] == 0);
    pst_job_close(job);
    snprintf(command, sizeof command, "rm -r '%s'/c*", folder);
    CHECK(system(command) == 0);
    o.epochs = EPOCHS;
    job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, EPOCHS, SIZE_MAX, &kept) == 0);
    pst_job_stats_get(job, &s);
    CHECK(s.encoded_hits == EPOCHS * IMAGES && s.bytes_read == 0);
    CHECK(ledger_same_order(&plain, &kept));
    CHECK(pst_engine_check(engine, NULL) == 0);
    pst_job_close(job);
    pst_engine_free(engine);
    ledger_free(&plain);
    ledger_free(&kept);
    pst_dataset_close(data);
    kit_remove(folder);
}

/* ---- nothing is read twice ------------------------------------------------------------------- */

static void what_is_cached_is_not_opened_again(void)
{
    char *folder = kit_folder(), command[600];
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_cached_engine(2, 192 * MIB, PST_CACHE_AUTO);
    pst_job_options o = options(KIT_PIPELINE);
    o.epochs = 1;
    pst_job *first = kit_job(engine, data, &o);
    ledger l = {0};
    CHECK(kit_collect(first, 0, 1, SIZE_MAX, &l) == 0);
    pst_job_close(first);
    snprintf(command, sizeof command, "rm -r '%s'/c*", folder);
    CHECK(system(command) == 0);
    o.first_epoch = 1;
    o.epochs = 2;
    pst_job *job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, 2, SIZE_MAX, &l) == 0);
    CHECK(l.count == 3 * IMAGES && stats_of(job).bytes_read == 0);
    /* One that leaves the cache alone misses them. */
    o.no_cache = 1;
    pst_job *alone = kit_job(engine, data, &o);
    CHECK(kit_collect(alone, 0, 1, SIZE_MAX, &l) == -ENOENT);
    CHECK(stats_of(alone).cache_hits == 0 && stats_of(alone).cache_misses == 0);
    pst_job_close(alone);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(data);
    ledger_free(&l);
    kit_remove(folder);
}

static void a_changed_file_is_another_sample(void)
{
    char *folder = kit_folder(), name[64];
    kit_images(folder, 8, 1);
    pst_engine *engine = kit_cached_engine(1, 192 * MIB, PST_CACHE_AUTO);
    pst_job_options o = options(KIT_PIPELINE);
    o.epochs = 1;
    ledger before = {0}, after = {0}, plain = {0};
    pst_dataset *data = kit_dataset(folder);
    pst_job *job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &before) == 0);
    pst_job_close(job);
    pst_dataset_close(data);
    size_t size;
    uint8_t *other = kit_jpeg(40, 40, 99, false, &size);
    kit_name(3, 1, name);
    kit_write(folder, name, other, size);
    free(other);
    data = kit_dataset(folder);
    job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &after) == 0);
    CHECK(stats_of(job).cache_hits == 7 && stats_of(job).cache_misses == 1);
    pst_job_close(job);
    pst_job_stats stats;
    CHECK(run(data, &o, 1, 0, &plain, &stats) == 0);
    CHECK(ledger_same_order(&after, &plain) && !ledger_same_order(&before, &after));
    pst_dataset_close(data);
    pst_engine_free(engine);
    ledger_free(&before);
    ledger_free(&after);
    ledger_free(&plain);
    kit_remove(folder);
}

/* ---- several jobs ---------------------------------------------------------------------------- */

static void jobs_share_the_same_form_and_nothing_else(void)
{
    static const struct {
        const char *pipeline;
        bool shares;
    } others[] = {
        {"decode | random_crop(16, pad_if_needed=true) | vflip", true},
        {"decode | random_resized_crop(8) | normalize(half)", true},
        {"decode(gray) | random_resized_crop(16) | hflip | normalize(half)", false},
        {"decode | resize(20) | random_crop(16)", false},
        {"decode | resize(22) | random_crop(16)", false},
    };
    char *folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_cached_engine(2, 192 * MIB, PST_CACHE_AUTO);
    pst_job_options o = options(KIT_PIPELINE);
    o.epochs = 1;
    ledger l = {0};
    pst_job *job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ledger mine = {0}, plain = {0};
        pst_job_stats stats;
        o.pipeline = others[i].pipeline;
        pst_job *other = kit_job(engine, data, &o);
        CHECK(kit_collect(other, 0, 1, SIZE_MAX, &mine) == 0);
        CHECKF(stats_of(other).cache_hits == (others[i].shares ? IMAGES : 0), "%s: %llu hits",
               o.pipeline, (unsigned long long)stats_of(other).cache_hits);
        CHECK(run(data, &o, 2, 0, &plain, &stats) == 0);
        CHECKF(ledger_same_order(&mine, &plain), "%s", o.pipeline);
        pst_job_close(other);
        ledger_free(&mine);
        ledger_free(&plain);
    }
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(data);
    ledger_free(&l);
    kit_remove(folder);
}

/* The same sample several times in a row: only one worker makes its form. */
static void repeats_are_kept_once(void)
{
    char *folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    pst_job_options o = options(KIT_PIPELINE);
    o.repeat = 4;
    ledger plain = {0}, cached = {0};
    pst_job_stats stats;
    CHECK(run(data, &o, 4, 0, &plain, &stats) == 0);
    CHECK(run(data, &o, 4, PST_CACHE_AUTO, &cached, &stats) == 0);
    CHECK(ledger_same_order(&plain, &cached));
    CHECK(stats.cache_entries == IMAGES);
    ledger_free(&plain);
    ledger_free(&cached);
    pst_dataset_close(data);
    kit_remove(folder);
}

static void a_resumed_run_goes_on_the_same(void)
{
    char *folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    pst_job_options o = options(KIT_PIPELINE);
    ledger plain = {0}, cut = {0};
    pst_job_stats stats;
    CHECK(run(data, &o, 2, 0, &plain, &stats) == 0);
    pst_engine *engine = kit_cached_engine(2, 192 * MIB, PST_CACHE_AUTO);
    pst_job *job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, EPOCHS, 13, &cut) == 0);
    char state[16384];
    size_t bytes;
    CHECK(pst_job_state(job, state, sizeof state, &bytes) == 0);
    pst_job_close(job);
    pst_error err;
    job = kit_job(engine, data, &o);
    CHECK(pst_job_load_state(job, state, bytes, &err) == 0);
    CHECK(kit_collect(job, 0, EPOCHS - 1, SIZE_MAX, &cut) == 0);
    CHECK(ledger_same_order(&plain, &cut) && stats_of(job).cache_hits > 0);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(data);
    ledger_free(&plain);
    ledger_free(&cut);
    kit_remove(folder);
}

/* ---- trouble --------------------------------------------------------------------------------- */

/* Files cut off or overwritten at some point: what comes of them hangs on the rows that the draw
 * uses, with the cache as without. */
static void damaged_files_come_out_the_same(void)
{
    char *folder = kit_folder(), name[64];
    size_t size;
    for (int i = 0; i < 40; i++) {
        uint8_t *bytes = kit_jpeg(64, 96, (unsigned)i + 1, i % 4 == 3, &size);
        const size_t at = 700 + (size - 700) * (size_t)(i % 10) / 10;
        if (i % 2)
            memset(bytes + at, i % 3 ? 0x5a : 0xff, size - at < 40 ? size - at : 40);
        kit_name(i, 2, name);
        kit_write(folder, name, bytes, i % 2 ? size : at);
        free(bytes);
    }
    pst_dataset *data = kit_dataset(folder);
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        pst_job_options o = options("decode | random_crop(16) | hflip");
        o.on_error = PST_SKIP;
        o.skip_limit = 1000;
        o.order = order;
        o.epochs = 8;
        ledger plain = {0}, cached = {0};
        pst_job_stats a, b;
        CHECK(run(data, &o, 2, 0, &plain, &a) == 0);
        CHECK(run(data, &o, 2, PST_CACHE_AUTO, &cached, &b) == 0);
        CHECKF(a.skipped > 20 && a.samples > 100, "%llu skipped, %llu good: a poor test",
               (unsigned long long)a.skipped, (unsigned long long)a.samples);
        CHECKF(a.skipped == b.skipped, "%llu, %llu", (unsigned long long)a.skipped,
               (unsigned long long)b.skipped);
        CHECK(order == PST_ORDER_READY || ledger_same_order(&plain, &cached));
        ledger_sort(&plain);
        ledger_sort(&cached);
        CHECK(ledger_same(&plain, &cached));
        ledger_free(&plain);
        ledger_free(&cached);
    }
    pst_dataset_close(data);
    kit_remove(folder);
}

/* A form that does not fit beside the budget for samples at work is not made, and no error. */
static void pictures_too_large_to_be_kept_are_served(void)
{
    char *folder = kit_folder();
    size_t size;
    for (int i = 0; i < 6; i++) {
        char name[64];
        uint8_t *bytes = kit_jpeg(2600, 1900, (unsigned)i + 1, false, &size);
        kit_name(i, 1, name);
        kit_write(folder, name, bytes, size);
        free(bytes);
    }
    pst_dataset *data = kit_dataset(folder);
    pst_job_options o = options("decode | random_crop(64)");
    o.batch = 2;
    ledger plain = {0};
    pst_job_stats stats;
    CHECK(run(data, &o, 2, 0, &plain, &stats) == 0);
    static const uint64_t memory[] = {32, 64, 128, 192, 256};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        ledger cached = {0};
        pst_engine *engine = kit_cached_engine(2, memory[i] * MIB, PST_CACHE_AUTO);
        pst_job *job = kit_job(engine, data, &o);
        const int rc = kit_collect(job, 0, EPOCHS, SIZE_MAX, &cached);
        pst_error err;
        pst_job_error(job, &err);
        CHECKF(rc == 0 && ledger_same_order(&plain, &cached), "%llu MiB: %s",
               (unsigned long long)memory[i], err.message);
        const pst_job_stats now = stats_of(job);
        CHECK(now.peak_bytes <= memory[i] * MIB && now.cache_entries >= most);
        most = now.cache_entries;
        pst_job_close(job);
        pst_engine_free(engine);
        ledger_free(&cached);
    }
    CHECK(most == 6);
    /* The cache would have room, but not the whole picture while it is decoded. */
    ledger tight = {0};
    pst_engine *engine = kit_cached_engine(2, 38 * MIB, 18 * MIB);
    pst_job *job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, EPOCHS, SIZE_MAX, &tight) == 0);
    CHECK(ledger_same_order(&plain, &tight) && stats_of(job).cache_entries == 0);
    pst_job_close(job);
    pst_engine_free(engine);
    ledger_free(&tight);
    pst_dataset_close(data);
    ledger_free(&plain);
    kit_remove(folder);
}

/* Each allocation fails in turn: an error, or the same bytes. */
static void failed_allocations_change_nothing_else(void)
{
    char *folder = kit_folder();
    kit_images(folder, 12, 1);
    pst_dataset *data = kit_dataset(folder);
    pst_job_options o = options(KIT_PIPELINE);
    ledger plain = {0};
    pst_job_stats stats;
    CHECK(run(data, &o, 1, 0, &plain, &stats) == 0);
    int whole = 0;
    for (uint64_t n = 1; n < 120 && whole < 10; n++) {
        pst_engine_options e;
        pst_engine_options_init(&e);
        e.workers = 1;
        e.memory_bytes = 64 * MIB;
        e.cache_bytes = 1 * MIB;
        pst_engine *engine;
        pst_job *job;
        pst_error err;
        psti_mem_fail_at(n, false);
        if (pst_engine_new(&e, &engine, &err) < 0) {
            psti_mem_fail_at(0, false);
            continue;
        }
        ledger l = {0};
        int rc = pst_job_open(engine, data, &o, &job, &err);
        if (rc == 0) {
            rc = kit_collect(job, 0, EPOCHS, SIZE_MAX, &l);
            CHECKF(rc < 0 || ledger_same_order(&plain, &l), "allocation %llu",
                   (unsigned long long)n);
            pst_job_close(job);
        }
        psti_mem_fail_at(0, false);
        whole = rc == 0 ? whole + 1 : 0;
        CHECKF(rc == 0 || rc == -ENOMEM, "allocation %llu: %d", (unsigned long long)n, rc);
        pst_engine_free(engine);
        ledger_free(&l);
    }
    pst_dataset_close(data);
    ledger_free(&plain);
    kit_remove(folder);
}

static void settings_are_checked(void)
{
    pst_engine_options o;
    pst_engine_options_init(&o);
    o.memory_bytes = 64 * MIB;
    o.cache_bytes = 60 * MIB;
    pst_settings s;
    pst_error err;
    CHECK(pst_settings_resolve(&o, &s, &err) == PST_EBUDGET && strstr(err.message, "cache"));
    o.cache_bytes = 1;
    CHECK(pst_settings_resolve(&o, &s, &err) == -EINVAL);
    o.cache_bytes = 48 * MIB;
    CHECK(pst_settings_resolve(&o, &s, &err) == 0 && s.cache_bytes == 48 * MIB);
    o.cache_bytes = PST_CACHE_AUTO;
    CHECK(pst_settings_resolve(&o, &s, &err) == 0 && s.cache_bytes == 0);
    o.memory_bytes = 512 * MIB;
    CHECK(pst_settings_resolve(&o, &s, &err) == 0 && s.cache_bytes == 224 * MIB);
}

int main(void)
{
    RUN(the_cache_changes_no_byte_and_no_order);
    RUN(part_of_the_samples_fit);
    RUN(ready_order_with_skips_delivers_the_same_samples);
    RUN(stored_bytes_are_not_read_again);
    RUN(what_is_cached_is_not_opened_again);
    RUN(a_changed_file_is_another_sample);
    RUN(jobs_share_the_same_form_and_nothing_else);
    RUN(repeats_are_kept_once);
    RUN(a_resumed_run_goes_on_the_same);
    RUN(damaged_files_come_out_the_same);
    RUN(pictures_too_large_to_be_kept_are_served);
    RUN(failed_allocations_change_nothing_else);
    RUN(settings_are_checked);
    return check_report();
}
