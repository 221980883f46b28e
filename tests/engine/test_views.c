/* SPDX-License-Identifier: Apache-2.0
 * Views through the engine: several fields of one picture. Worker count, cache, order, resumes and
 * how samples get their slots change no byte; a prep makes the same views; shapes that vary are
 * packed; what finish and batch ops do, they do to each view. */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "engine_kit.h"

enum { IMAGES = 45, CLASSES = 3, BATCH = 7, EPOCHS = 2, VIEWS = 4 };
#define MIB ((uint64_t)1 << 20)
#define CHAINS                                                                                     \
    "views(2: random_resized_crop(16) | hflip, 2: random_resized_crop(8, scale=(0.05, 0.25)))"
#define PIPELINE "decode | " CHAINS " | normalize(imagenet)"

static char *folder;
static pst_dataset *data;

static pst_job_options options(const char *pipeline)
{
    return kit_options(pipeline, BATCH, 5, EPOCHS);
}

static ledger run(const pst_job_options *o, int workers, uint64_t cache, pst_job_stats *stats)
{
    ledger l = {0};
    pst_engine *engine = kit_cached_engine(workers, 192 * MIB, cache);
    pst_job *job = kit_job(engine, data, o);
    CHECK(kit_collect(job, 0, o->epochs, SIZE_MAX, &l) == 0);
    *stats = (pst_job_stats){.size = sizeof *stats};
    pst_job_stats_get(job, stats);
    pst_job_close(job);
    pst_engine_free(engine);
    return l;
}

/* ---- what a batch has ------------------------------------------------------------------------ */

static const char *const names[] = {"image_0", "image_1", "image_2", "image_3", "label"};

static void every_view_is_a_field(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(PIPELINE);
    pst_job *job = kit_job(engine, data, &o);
    pst_field_info info;
    pst_finish_info finish = {.size = sizeof finish};
    for (int i = 0; i <= VIEWS; i++) {
        CHECK(pst_job_field(job, i, &info) == 0);
        CHECKF(strcmp(info.name, names[i]) == 0, "%s", info.name);
    }
    CHECK(pst_job_field(job, VIEWS + 1, &info) == -ENOENT);
    CHECK(pst_job_finish(job, "image_3", &finish) == 0 && finish.normalize && !finish.raw);
    CHECK(pst_job_finish(job, "image", &finish) == -ENOENT);
    pst_batch *batch;
    CHECK(pst_job_next(job, -1, &batch) == 1);
    const pst_batch_desc *desc = pst_batch_get(batch);
    CHECK(desc->fields == VIEWS + 1 + 3 && pst_batch_find(desc, "image") == NULL);
    for (uint32_t i = 0; i < VIEWS; i++) {
        const pst_field *field = pst_batch_field(desc, i);
        const int64_t side = i < 2 ? 16 : 8;
        CHECK(strcmp(field->name, names[i]) == 0 && field->kind == PST_IMAGE);
        CHECK(field->packing == PST_DENSE && field->shape[1] == side && field->shape[2] == side);
        CHECK(field->slot_bytes == (uint64_t)(3 * side * side) * sizeof(float));
    }
    pst_batch_release(batch);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void the_listing_of_stages_tells_views_apart(void)
{
    static const char *const stages[] = {"read",      "decode",
                                         "views",     "random_resized_crop 0-1",
                                         "hflip 0-1", "random_resized_crop 2-3",
                                         "finish"};
    pst_job_stats stats;
    pst_job_options o = options(PIPELINE);
    ledger l = run(&o, 2, 0, &stats);
    CHECK(stats.stage_count == 7);
    for (uint32_t i = 0; i < 7 && i < stats.stage_count; i++) {
        CHECKF(strcmp(stats.stages[i].name, stages[i]) == 0, "%s", stats.stages[i].name);
        CHECK(stats.stages[i].runs == EPOCHS * IMAGES);
    }
    ledger_free(&l);
}

/* ---- the same bytes -------------------------------------------------------------------------- */

static void workers_and_cache_change_no_byte(void)
{
    static const char *const pipelines[] = {
        PIPELINE, "decode | resize(20) | " CHAINS " | color_jitter(0.3)",
        "decode | views(1: resize((9, 9)), 2: random_crop(12, pad_if_needed=true) | invert)",
        "decode | views(2: hflip, 1: resize(10))" /* no one shape: gathered from records */};
    static const uint64_t sizes[] = {0, 80 * 1024, 16 * MIB};
    for (size_t p = 0; p < sizeof pipelines / sizeof *pipelines; p++) {
        pst_job_options o = options(pipelines[p]);
        pst_job_stats stats;
        ledger plain = run(&o, 1, 0, &stats);
        CHECK(plain.count == EPOCHS * IMAGES);
        for (int i = 0; i < 6; i++) {
            ledger other = run(&o, i % 2 ? 4 : 2, sizes[i / 2], &stats);
            CHECKF(ledger_same_order(&plain, &other), "%s, case %d", pipelines[p], i);
            if (i / 2 == 2)
                CHECKF(stats.cache_entries == IMAGES && stats.cache_hits >= IMAGES - 4,
                       "%d entries, %d hits", (int)stats.cache_entries, (int)stats.cache_hits);
            ledger_free(&other);
        }
        o.order = PST_ORDER_READY;
        ledger ready = run(&o, 3, 16 * MIB, &stats);
        ledger_sort(&plain);
        ledger_sort(&ready);
        CHECKF(ledger_same(&plain, &ready), "%s", pipelines[p]);
        ledger_free(&ready);
        ledger_free(&plain);
    }
}

/* The decoded picture is the same with and without views, so one job finds what another made. */
static void jobs_share_what_is_decoded(void)
{
    pst_engine *engine = kit_cached_engine(2, 192 * MIB, 16 * MIB);
    pst_job_options plain = options(KIT_PIPELINE), views = options(PIPELINE);
    pst_job_stats stats = {.size = sizeof stats}, unused;
    plain.epochs = views.epochs = 1;
    ledger first = {0}, second = {0}, alone = run(&views, 1, 0, &unused);
    pst_job *job = kit_job(engine, data, &plain);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &first) == 0);
    pst_job_close(job);
    job = kit_job(engine, data, &views);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &second) == 0);
    pst_job_stats_get(job, &stats);
    CHECKF(stats.cache_hits == IMAGES && stats.bytes_read == 0, "%d hits", (int)stats.cache_hits);
    CHECK(ledger_same_order(&alone, &second));
    pst_job_close(job);
    pst_engine_free(engine);
    ledger_free(&first);
    ledger_free(&second);
    ledger_free(&alone);
}

/* Samples that wait in records for their slots. */
static void skipped_samples_leave_the_others_alone(void)
{
    char *broken = kit_folder();
    kit_images(broken, IMAGES, CLASSES);
    kit_break(broken, 11, CLASSES);
    pst_dataset *whole = data;
    data = kit_dataset(broken);
    pst_job_options o = options(PIPELINE);
    o.on_error = PST_SKIP;
    o.skip_limit = 20;
    pst_job_stats stats;
    ledger one = run(&o, 1, 0, &stats), four = run(&o, 4, 16 * MIB, &stats);
    CHECK(ledger_same_order(&one, &four) && one.count >= EPOCHS * (IMAGES - 1));
    ledger_free(&one);
    ledger_free(&four);
    pst_dataset_close(data);
    data = whole;
    kit_remove(broken);
}

static void a_resumed_job_goes_on_with_the_same_views(void)
{
    pst_job_options o = options(PIPELINE);
    pst_job_stats stats;
    ledger whole = run(&o, 2, 0, &stats);
    for (size_t k = 0; k <= whole.batches; k += 3) {
        pst_engine *engine = kit_engine(2, 64 << 20);
        ledger l = {0};
        uint8_t state[8192];
        size_t size;
        pst_job *job = kit_job(engine, data, &o);
        CHECK(kit_collect(job, 0, EPOCHS, k, &l) == 0);
        CHECK(pst_job_state(job, state, sizeof state, &size) == 0);
        pst_job_close(job);
        job = kit_job(engine, data, &o);
        CHECK(pst_job_load_state(job, state, size, NULL) == 0);
        while (pst_job_epoch(job) < EPOCHS)
            if (kit_collect(job, 0, 1, SIZE_MAX, &l) < 0)
                break;
        CHECKF(ledger_same_order(&whole, &l), "after %d", (int)k);
        ledger_free(&l);
        pst_job_close(job);
        pst_engine_free(engine);
    }
    ledger_free(&whole);
}

/* A dataset whose samples have a second file, which is passed as bytes. */
static pst_dataset *with_other_files(void)
{
    enum { CAP = IMAGES * 160 };
    char *text = malloc(CAP), name[64], other[64], path[512];
    size_t at = (size_t)snprintf(text, CAP, "key\tother:file\tlabel\n");
    for (int i = 0; i < IMAGES; i++) {
        kit_name(i, CLASSES, name);
        kit_name((i + 1) % IMAGES, CLASSES, other);
        at += (size_t)snprintf(text + at, CAP - at, "%s\t%s\t%d\n", name, other, i % CLASSES);
    }
    kit_write(folder, "list.tsv", text, at);
    free(text);
    snprintf(path, sizeof path, "%s/list.tsv", folder);
    return kit_dataset(path);
}

static void check_packing(const pst_job_options *o)
{
    static const char *const wanted[] = {"image_0", "image_1", "image_2", "other", "label"};
    static const int packings[] = {PST_PADDED, PST_PADDED, PST_PADDED, PST_RAGGED, PST_DENSE};
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job *job = kit_job(engine, data, o);
    pst_batch *batch;
    CHECK(pst_job_next(job, -1, &batch) == 1);
    const pst_batch_desc *desc = pst_batch_get(batch);
    const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
    for (uint32_t i = 0; i < 5; i++) {
        const pst_field *field = pst_batch_field(desc, i);
        CHECKF(strcmp(field->name, wanted[i]) == 0 && field->packing == packings[i], "%s: %d",
               field->name, field->packing);
    }
    size_t a, b;
    void *stored;
    const void *got = pst_batch_slot(desc, pst_batch_field(desc, 3), 2, &a);
    CHECK(pst_dataset_read(data, ids[2], "other", &stored, &b, NULL) == 0);
    CHECK(a == b && memcmp(got, stored, a) == 0);
    pst_free(stored);
    pst_batch_release(batch);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* Fields behind the views keep their packing and their bytes, with the pictures cached too. */
static void fields_beside_views_are_left_alone(void)
{
    pst_dataset *whole = data;
    data = with_other_files();
    pst_job_options o = options("image: decode | views(2: hflip, 1: resize(10)) ; other: bytes");
    o.fields = "image=padded,other,label";
    check_packing(&o);
    pst_job_stats stats;
    ledger plain = run(&o, 1, 0, &stats), cached = run(&o, 3, 16 * MIB, &stats);
    CHECK(ledger_same_order(&plain, &cached) && plain.count == EPOCHS * IMAGES);
    CHECK(stats.cache_hits >= IMAGES - 4);
    ledger_free(&plain);
    ledger_free(&cached);
    pst_dataset_close(data);
    data = whole;
}

/* ---- single samples, finish elsewhere, batch ops -----------------------------------------------
 */

static void a_prep_makes_the_same_views(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(PIPELINE);
    pst_prep *prep = NULL;
    pst_batch *batch = NULL;
    CHECK(pst_prep_new(PIPELINE, o.seed, &prep, NULL) == 0);
    pst_job *job = kit_job(engine, data, &o);
    CHECK(pst_job_next(job, -1, &batch) == 1);
    const pst_batch_desc *desc = pst_batch_get(batch);
    const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
    for (uint32_t slot = 0; slot < desc->slots; slot++) {
        void *bytes;
        size_t size;
        pst_batch *one = NULL;
        CHECK(pst_dataset_read(data, ids[slot], "image", &bytes, &size, NULL) == 0);
        CHECK(pst_prep_run(prep, bytes, size, 0, ids[slot], 0, &one, NULL) == 0);
        for (int v = 0; one && v < VIEWS; v++) {
            const pst_batch_desc *single = pst_batch_get(one);
            size_t na, nb;
            const void *a = pst_batch_slot(desc, pst_batch_find(desc, names[v]), slot, &na),
                       *b = pst_batch_slot(single, pst_batch_find(single, names[v]), 0, &nb);
            CHECK(na == nb && memcmp(a, b, na) == 0);
        }
        pst_batch_release(one);
        pst_free(bytes);
    }
    pst_batch_release(batch);
    pst_job_close(job);
    pst_prep_free(prep);
    pst_engine_free(engine);
}

/* Left to the receiver: every view as u8, and what is to be done to it. */
static void raw_views_are_finished_by_the_receiver(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(PIPELINE), raw = o;
    raw.raw_finish = 1;
    pst_job *jobs[2] = {kit_job(engine, data, &o), kit_job(engine, data, &raw)};
    pst_batch *batches[2] = {NULL};
    pst_finish_info finish = {.size = sizeof finish};
    CHECK(pst_job_next(jobs[0], -1, &batches[0]) == 1 &&
          pst_job_next(jobs[1], -1, &batches[1]) == 1);
    const pst_batch_desc *done = pst_batch_get(batches[0]), *left = pst_batch_get(batches[1]);
    for (int v = 0; v < VIEWS; v++) {
        const float *x = pst_batch_data(done, pst_batch_find(done, names[v]));
        const pst_field *field = pst_batch_find(left, names[v]);
        const uint8_t *u = pst_batch_data(left, field);
        CHECK(pst_job_finish(jobs[1], names[v], &finish) == 0 && finish.raw);
        CHECK(field->dtype == PST_U8 && field->layout == PST_NHWC);
        const int pixels = v < 2 ? 256 : 64;
        int wrong = 0;
        for (int i = 0; i < 3 * pixels; i++) {
            const int c = i / pixels, p = i % pixels;
            const volatile float scaled = (float)u[3 * p + c] * finish.scale[c];
            wrong += x[i] != scaled - finish.bias[c];
        }
        CHECKF(wrong == 0, "%s: %d values", names[v], wrong);
    }
    for (int i = 0; i < 2; i++) {
        pst_batch_release(batches[i]);
        pst_job_close(jobs[i]);
    }
    pst_engine_free(engine);
}

static void a_batch_op_mixes_every_view(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(PIPELINE), mixed = options(PIPELINE " || mixup(1)");
    pst_job *jobs[2] = {kit_job(engine, data, &o), kit_job(engine, data, &mixed)};
    pst_batch *batches[2] = {NULL};
    pst_mix mix;
    CHECK(pst_job_next(jobs[0], -1, &batches[0]) == 1 &&
          pst_job_next(jobs[1], -1, &batches[1]) == 1);
    const pst_batch_desc *plain = pst_batch_get(batches[0]), *blend = pst_batch_get(batches[1]);
    CHECK(pst_batch_mix(batches[1], &mix) == 1);
    for (int v = 0; v < VIEWS; v++) {
        const pst_field *field = pst_batch_find(plain, names[v]);
        const size_t values = field->slot_bytes / sizeof(float), last = plain->slots - 1;
        const float *a = pst_batch_data(plain, field);
        const float *b = pst_batch_data(blend, pst_batch_find(blend, names[v]));
        int wrong = 0;
        for (size_t i = 0; i < values; i++) {
            const volatile float own = (float)mix.lam * a[i],
                                 other = (float)(1 - mix.lam) * a[last * values + i];
            wrong += b[i] != own + other;
        }
        CHECKF(wrong == 0, "%s: %d values", names[v], wrong);
    }
    for (int i = 0; i < 2; i++) {
        pst_batch_release(batches[i]);
        pst_job_close(jobs[i]);
    }
    mixed.pipeline = PIPELINE " || cutmix";
    pst_error err = {0};
    pst_job *job = NULL;
    CHECK(pst_job_open(engine, data, &mixed, &job, &err) == PST_EPIPELINE);
    CHECKF(strstr(err.message, "image_2 has another size"), "%s", err.message);
    pst_engine_free(engine);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, IMAGES, CLASSES);
    data = kit_dataset(folder);
    RUN(every_view_is_a_field);
    RUN(the_listing_of_stages_tells_views_apart);
    RUN(workers_and_cache_change_no_byte);
    RUN(jobs_share_what_is_decoded);
    RUN(skipped_samples_leave_the_others_alone);
    RUN(a_resumed_job_goes_on_with_the_same_views);
    RUN(fields_beside_views_are_left_alone);
    RUN(a_prep_makes_the_same_views);
    RUN(raw_views_are_finished_by_the_receiver);
    RUN(a_batch_op_mixes_every_view);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
