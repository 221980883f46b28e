/* SPDX-License-Identifier: Apache-2.0
 * call(name): functions of the caller's inside a pipeline. The right bytes and sizes, seeds that
 * belong to the sample, what a fixed one leaves in the cache, failures and the policies for them,
 * masks, missing functions. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "check.h"
#include "engine_kit.h"

enum { IMAGES = 30, BATCH = 4, EPOCHS = 2 };
#define MIB ((uint64_t)1 << 20)
static char *folder;
static pst_dataset *data;

/* What a function does, and what it saw. */
typedef struct behaviour {
    int64_t rows, cols, channels; /* of the result; 0 = as it came */
    int64_t fail_id;              /* -1 = none */
    bool silent, no_result, ignore_refusal;
    atomic_int runs;
    int epoch; /* that is run just now: epochs of one job overlap */
    _Atomic uint64_t seeds[EPOCHS][IMAGES];
} behaviour;

/* Each byte plus the seed's low byte plus 1, cut or repeated to the size that is asked for. */
static void shift(const pst_call_in *in, uint8_t *to, int64_t rows, int64_t cols, int64_t channels)
{
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < cols * channels; x++)
            *to++ = (uint8_t)(in->data[(size_t)(y % in->rows) * in->stride +
                                       (size_t)(x % (in->cols * in->channels))] +
                              (uint8_t)in->seed + 1);
}

static int run_shift(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    behaviour *b = user;
    atomic_fetch_add(&b->runs, 1);
    /* Epochs of one job overlap: the same sample may run twice at once. */
    atomic_store_explicit(&b->seeds[b->epoch][in->id], in->seed, memory_order_relaxed);
    if (b->fail_id == in->id) {
        if (!b->silent)
            snprintf(err->message, sizeof err->message, "sample %d is not liked", (int)in->id);
        return -EIO;
    }
    if (b->no_result)
        return 0;
    const int64_t rows = b->rows > 0 ? b->rows : b->rows < 0 ? in->rows / 2 : in->rows;
    const int64_t cols = b->cols ? b->cols : in->cols;
    const int64_t channels = b->channels ? b->channels : in->channels;
    uint8_t *to = pst_call_size(out, rows, cols, channels);
    if (!to)
        return b->ignore_refusal ? 0 : PST_ECALL;
    if (rows * cols < 1 << 16)
        shift(in, to, rows, cols, channels);
    else
        memset(to, 1, (size_t)(rows * cols * channels));
    return 0;
}

static pst_job_options options(const char *pipeline, const pst_call *calls, int count)
{
    pst_job_options o = kit_options(pipeline, BATCH, 3, EPOCHS);
    o.fields = "image";
    o.calls = calls;
    o.call_count = count;
    return o;
}

static int run(const pst_job_options *o, int workers, uint64_t cache, ledger *out, pst_error *err)
{
    pst_engine *engine = kit_cached_engine(workers, 64 * MIB, cache);
    pst_job *job = kit_job(engine, data, o);
    const int rc = kit_collect(job, 0, o->epochs, SIZE_MAX, out);
    if (err)
        pst_job_error(job, err);
    pst_job_close(job);
    pst_engine_free(engine);
    return rc;
}

static int refused(pst_dataset *from, const pst_job_options *o, pst_error *err)
{
    pst_engine *engine = kit_cached_engine(1, 64 * MIB, 0);
    pst_job *job = NULL;
    const int rc = pst_job_open(engine, from, o, &job, err);
    pst_job_close(job);
    pst_engine_free(engine);
    return rc;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Every byte of a slot is that of the other job plus what the function adds. */
static void check_slot(const pst_batch_desc *a, const pst_batch_desc *b, uint32_t slot,
                       const behaviour *one, const behaviour *two, int epoch)
{
    size_t want_bytes, got_bytes;
    const uint8_t *want = pst_batch_slot(a, pst_batch_find(a, "image"), slot, &want_bytes);
    const uint8_t *got = pst_batch_slot(b, pst_batch_find(b, "image"), slot, &got_bytes);
    const int64_t id = ((const int64_t *)pst_batch_data(b, pst_batch_find(b, "id")))[slot];
    const uint8_t add =
        (uint8_t)((uint8_t)one->seeds[epoch][id] + (uint8_t)two->seeds[epoch][id] + 2);
    CHECK(want_bytes == got_bytes && one->seeds[epoch][id] != two->seeds[epoch][id]);
    size_t wrong = 0;
    for (size_t i = 0; i < want_bytes && i < got_bytes; i++)
        wrong += got[i] != (uint8_t)(want[i] + add);
    CHECKF(wrong == 0, "sample %d: %zu of %zu bytes", (int)id, wrong, want_bytes);
}

/* One epoch of both. */
static void compare_epoch(pst_engine *engine, const pst_job_options *plain,
                          const pst_job_options *with, const behaviour *one, const behaviour *two)
{
    pst_job *a = kit_job(engine, data, plain), *b = kit_job(engine, data, with);
    pst_batch *x, *y;
    int rc;
    while ((rc = pst_job_next(a, -1, &x)) == 1) {
        CHECK(pst_job_next(b, -1, &y) == 1);
        for (uint32_t i = 0; i < pst_batch_get(x)->slots; i++)
            check_slot(pst_batch_get(x), pst_batch_get(y), i, one, two, one->epoch);
        pst_batch_release(x);
        pst_batch_release(y);
    }
    CHECK(rc == 0 && pst_job_next(b, -1, &y) == 0);
    pst_job_stats stats = {.size = sizeof stats};
    pst_job_stats_get(b, &stats);
    CHECK(strcmp(stats.stages[2].name, "one") == 0 && stats.stages[2].runs == IMAGES);
    pst_job_close(a);
    pst_job_close(b);
}

/* Two functions among ops that are random: the draws of both and of the ops are as they are. */
static void bytes_are_what_the_functions_make(void)
{
    behaviour *one = calloc(2, sizeof *one), *two = one + 1;
    one->fail_id = two->fail_id = -1;
    const pst_call calls[] = {{"one", run_shift, one}, {"two", run_shift, two}};
    /* invert stands where a function does, so that places and with them draws agree */
    pst_job_options plain = options("decode | invert | hflip | invert | random_crop(12)", NULL, 0);
    pst_job_options with =
        options("decode | call(one) | hflip | call(two) | random_crop(12)", calls, 2);
    pst_engine *engine = kit_cached_engine(2, 64 * MIB, 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        one->epoch = two->epoch = epoch;
        plain.first_epoch = with.first_epoch = (uint64_t)epoch;
        plain.epochs = with.epochs = 1;
        compare_epoch(engine, &plain, &with, one, two);
    }
    CHECK(one->runs == EPOCHS * IMAGES && two->runs == EPOCHS * IMAGES);
    pst_engine_free(engine);
    free(one);
}

static void seeds_belong_to_the_sample(void)
{
    behaviour *b = calloc(4, sizeof *b);
    ledger ledgers[4] = {{0}};
    for (int i = 0; i < 4; i++)
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            b[i].fail_id = -1;
            b[i].epoch = epoch;
            const pst_call call = {"f", run_shift, &b[i]};
            pst_job_options o = options("decode | call(f)", &call, 1);
            o.seed = i == 3 ? 4 : 3;
            o.order = i == 2 ? PST_ORDER_READY : PST_ORDER_STRICT;
            o.first_epoch = (uint64_t)epoch;
            o.epochs = 1;
            CHECK(run(&o, i == 0 ? 1 : 4, 0, &ledgers[i], NULL) == 0);
        }
    CHECK(memcmp(b[0].seeds, b[1].seeds, sizeof b->seeds) == 0);
    CHECK(memcmp(b[0].seeds, b[2].seeds, sizeof b->seeds) == 0);
    CHECK(memcmp(b[0].seeds, b[3].seeds, sizeof b->seeds) != 0);
    CHECK(memcmp(b[0].seeds[0], b[0].seeds[1], sizeof b->seeds[0]) != 0);
    CHECK(b[0].seeds[0][1] != b[0].seeds[0][2] && b[0].seeds[0][1] > UINT32_MAX);
    CHECK(ledger_same_order(&ledgers[0], &ledgers[1]));
    for (int i = 0; i < 4; i++)
        ledger_sort(&ledgers[i]);
    CHECK(ledger_same(&ledgers[0], &ledgers[2]) && !ledger_same(&ledgers[0], &ledgers[3]));
    for (int i = 0; i < 4; i++)
        ledger_free(&ledgers[i]);
    free(b);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void a_declared_size_makes_dense_batches(void)
{
    behaviour b = {.fail_id = -1, .rows = 9, .cols = 7, .channels = 1};
    const pst_call call = {"f", run_shift, &b};
    const pst_job_options o = options("decode | call(f, size=(9, 7, 1)) | vflip", &call, 1);
    pst_engine *engine = kit_cached_engine(2, 64 * MIB, 0);
    pst_job *job = kit_job(engine, data, &o);
    pst_batch *batch;
    CHECK(pst_job_next(job, -1, &batch) == 1);
    const pst_field *f = pst_batch_find(pst_batch_get(batch), "image");
    CHECK(f->packing == PST_DENSE && f->shape[0] == 9 && f->shape[1] == 7 && f->shape[2] == 1);
    pst_batch_release(batch);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void any_size_is_ragged_or_cropped_to_one(void)
{
    behaviour b = {.fail_id = -1, .rows = -1, .cols = 33};
    const pst_call call = {"f", run_shift, &b};
    const pst_job_options o = options("decode | call(f, any=true)", &call, 1);
    pst_engine *engine = kit_cached_engine(2, 64 * MIB, 0);
    pst_job *job = kit_job(engine, data, &o);
    pst_batch *batch;
    CHECK(pst_job_next(job, -1, &batch) == 1);
    const pst_batch_desc *d = pst_batch_get(batch);
    const pst_field *f = pst_batch_find(d, "image");
    CHECK(f->packing == PST_RAGGED);
    const int64_t *shapes = (const int64_t *)((const uint8_t *)d + f->shapes_offset);
    for (uint32_t i = 0; i < d->slots; i++)
        CHECK(shapes[3 * i] > 3 && shapes[3 * i + 1] == 33 && shapes[3 * i + 2] == 3);
    pst_batch_release(batch);
    pst_job_close(job);
    pst_engine_free(engine);
    /* What follows is decided from the size that came out, and drawn as ever. */
    const pst_job_options dense = options(
        "decode | call(f, any=true) | random_crop((5, 30)) | normalize(imagenet)", &call, 1);
    ledger one = {0}, four = {0};
    CHECK(run(&dense, 1, 0, &one, NULL) == 0 && run(&dense, 4, 0, &four, NULL) == 0);
    CHECK(one.count == EPOCHS * IMAGES && ledger_same_order(&one, &four));
    ledger_free(&one);
    ledger_free(&four);
    pst_error err;
    const pst_job_options narrow =
        options("decode | call(f, any=true) | random_crop(40)", &call, 1);
    CHECK(run(&narrow, 2, 0, &one, &err) == PST_EFIELD && strcmp(err.stage, "random_crop") == 0);
    ledger_free(&one);
}

static void another_size_than_declared_is_an_error(void)
{
    static const struct {
        const char *pipeline, *says;
        int64_t rows, cols, channels;
    } cases[] = {
        {"decode | call(f)", "a picture of 3 x ", 3, 0, 0},
        {"decode | call(f)", "x 4 (rows, columns, channels), and ", 0, 0, 4},
        {"decode | call(f, (8, 8))", "8 x 9 x 3 (rows, columns, channels), and 8 x 8 x 3", 8, 9, 0},
        {"decode | call(f, any=true)", "and 3 channels are expected", 8, 8, 2},
        {"decode | call(f, any=true)", "more than 512 MiB", 1 << 20, 1 << 20, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int ignore = 0; ignore < 2; ignore++) {
            behaviour b = {.fail_id = -1,
                           .rows = cases[i].rows,
                           .cols = cases[i].cols,
                           .channels = cases[i].channels,
                           .ignore_refusal = ignore};
            const pst_call call = {"f", run_shift, &b};
            const pst_job_options o = options(cases[i].pipeline, &call, 1);
            ledger l = {0};
            pst_error err;
            CHECK(run(&o, 2, 0, &l, &err) == PST_ECALL && strcmp(err.stage, "f") == 0);
            CHECKF(strstr(err.message, cases[i].says), "%s", err.message);
            ledger_free(&l);
        }
}

/* A result that is larger than what came is counted, and refused where it cannot fit. */
static void a_large_result_stays_within_the_budget(void)
{
    behaviour b = {.fail_id = -1, .rows = 1200, .cols = 1000};
    const pst_call call = {"f", run_shift, &b};
    pst_job_options o = options("decode | call(f, any=true) | center_crop(8)", &call, 1);
    ledger l = {0};
    pst_error err;
    CHECK(run(&o, 2, 0, &l, &err) == 0 && l.count == EPOCHS * IMAGES);
    ledger_free(&l);
    b.rows = 20000;
    CHECK(run(&o, 2, 0, &l, &err) == PST_EBUDGET && strcmp(err.stage, "memory") == 0);
    ledger_free(&l);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void a_failure_is_a_bad_sample(void)
{
    for (int silent = 0; silent < 2; silent++)
        for (int fixed = 0; fixed < 2; fixed++) {
            behaviour b = {.fail_id = 11, .silent = silent};
            const pst_call call = {"my fn", run_shift, &b};
            pst_job_options o =
                options(fixed ? "decode | call(\"my fn\", fixed=true)" : "decode | call(\"my fn\")",
                        &call, 1);
            ledger l = {0};
            pst_error err;
            CHECK(run(&o, 2, 16 * MIB, &l, &err) == PST_ECALL && err.id == 11);
            CHECK(strcmp(err.stage, "my fn") == 0 && strstr(err.key, ".jpg"));
            CHECK(strcmp(err.message, silent ? "the function failed with code -5"
                                             : "sample 11 is not liked") == 0);
            ledger_free(&l);
            b.runs = 0;
            o.on_error = PST_SKIP;
            o.skip_limit = 1;
            o.epochs = 1;
            CHECK(run(&o, 2, 16 * MIB, &l, NULL) == 0 && l.count == IMAGES - 1);
            CHECKF(b.runs == IMAGES, "%d runs", (int)b.runs);
            ledger_free(&l);
        }
    behaviour b = {.fail_id = -1, .no_result = true};
    const pst_call call = {"f", run_shift, &b};
    const pst_job_options o = options("decode | call(f)", &call, 1);
    ledger l = {0};
    pst_error err;
    CHECK(run(&o, 2, 0, &l, &err) == PST_ECALL && strstr(err.message, "gave no result"));
    ledger_free(&l);
}

static void what_cannot_be_is_refused_when_a_job_is_opened(void)
{
    behaviour b = {.fail_id = -1};
    pst_call calls[] = {{"f", run_shift, &b}, {"g", run_shift, &b}};
    pst_error err;
    pst_job_options o = options("decode | call(f) | call(h)", calls, 2);
    CHECK(refused(data, &o, &err) == PST_EPIPELINE && err.offset == 19);
    CHECK(strstr(err.message, "call(h) needs a program that provides it"));
    o.pipeline = "decode | call(f)";
    o.call_count = 257;
    CHECK(refused(data, &o, &err) == -EINVAL);
    o.call_count = 2;
    calls[1].name = "f";
    CHECK(refused(data, &o, &err) == -EINVAL && strstr(err.message, "two functions"));
    calls[1].name = "";
    CHECK(refused(data, &o, &err) == -EINVAL);
    calls[1] = (pst_call){"g", NULL, NULL};
    CHECK(refused(data, &o, &err) == -EINVAL);
    static const char *const wrong[] = {"decode | call",
                                        "decode | call(\"\")",
                                        "decode | call(7)",
                                        "decode | call(f, size=(1, 2, 5))",
                                        "decode | call(f, size=3)",
                                        "decode | call(f, size=(3, 3), any=true)",
                                        "decode | call(f, any=true, fixed=true)",
                                        "decode | normalize(imagenet) | call(f)",
                                        "decode | call(a_name_that_is_longer_than_a_stage_has)"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o = options(wrong[i], calls, 1);
        CHECKF(refused(data, &o, &err) == PST_EPIPELINE, "%s", wrong[i]);
    }
    pst_prep *prep = NULL;
    CHECK(pst_prep_new("decode | call(f)", 0, &prep, &err) == PST_EPIPELINE && !prep);
    CHECK(strstr(err.message, "needs a program"));
}

static void the_name_is_in_text_and_fingerprint(void)
{
    static const char *const texts[] = {
        "decode | call(f)", "decode | call( name = \"f\", any=false )", "decode | call(g)",
        "decode | call(\"g h\", (4, 5), fixed=true)"};
    static const char *const canonical[] = {"decode | call(f)", "decode | call(f)",
                                            "decode | call(g)",
                                            "decode | call(\"g h\", (4, 5), fixed=true)"};
    uint8_t prints[4][16];
    for (int i = 0; i < 4; i++) {
        char text[128];
        CHECK(pst_pipeline_check(texts[i], text, sizeof text, prints[i], NULL) == 0);
        CHECKF(strcmp(text, canonical[i]) == 0, "%s", text);
    }
    CHECK(memcmp(prints[0], prints[1], 16) == 0 && memcmp(prints[0], prints[2], 16) != 0);
}

/* ---- cache ----------------------------------------------------------------------------------- */

/* Epoch by epoch on one engine: in one job a sample may be on its way for two epochs at once. */
static void run_epochs(pst_job_options *o, uint64_t cache, ledger *out)
{
    pst_engine *engine = kit_cached_engine(2, 64 * MIB, cache);
    o->epochs = 1;
    for (o->first_epoch = 0; o->first_epoch < EPOCHS; o->first_epoch++) {
        pst_job *job = kit_job(engine, data, o);
        CHECK(kit_collect(job, 0, 1, SIZE_MAX, out) == 0);
        pst_job_close(job);
    }
    pst_engine_free(engine);
}

static void a_fixed_function_runs_once_a_sample(void)
{
    static const struct {
        const char *pipeline;
        int runs;
    } cases[] = {
        {"decode | call(f, fixed=true) | random_crop(12)", IMAGES},
        {"decode | center_crop(14) | call(f, fixed=true) | random_crop(12)", IMAGES},
        {"decode | call(f) | random_crop(12)", EPOCHS * IMAGES},
        {"decode | hflip | call(f, fixed=true) | random_crop(12)", EPOCHS * IMAGES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        behaviour b = {.fail_id = -1};
        const pst_call call = {"f", run_shift, &b};
        pst_job_options o = options(cases[i].pipeline, &call, 1);
        ledger plain = {0}, cached = {0};
        run_epochs(&o, 0, &plain);
        CHECK(b.runs == EPOCHS * IMAGES);
        b.runs = 0;
        run_epochs(&o, 16 * MIB, &cached);
        CHECKF(b.runs == cases[i].runs, "%s: %d runs", cases[i].pipeline, (int)b.runs);
        CHECK(ledger_same_order(&plain, &cached) && plain.count == EPOCHS * IMAGES);
        ledger_free(&plain);
        ledger_free(&cached);
    }
}

/* Jobs of one engine with functions of different names share nothing that they made. */
static void another_name_is_another_form(void)
{
    behaviour b[2] = {{.fail_id = -1}, {.fail_id = -1}};
    pst_engine *engine = kit_cached_engine(2, 64 * MIB, 16 * MIB);
    for (int i = 0; i < 2; i++) {
        const pst_call call = {i ? "f" : "g", run_shift, &b[i]};
        pst_job_options o =
            options(i ? "decode | call(f, fixed=true)" : "decode | call(g, fixed=true)", &call, 1);
        o.epochs = 1;
        pst_job *job = kit_job(engine, data, &o);
        ledger l = {0};
        CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0 && b[i].runs == IMAGES);
        ledger_free(&l);
        pst_job_close(job);
    }
    pst_engine_free(engine);
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* Image and mask of a sample from one source: JPEGs both. */
static int read_pair(void *user, int64_t id, pst_sink *sink, pst_error *err)
{
    (void)user;
    void *bytes;
    size_t size;
    const int rc = pst_dataset_read(data, id, "image", &bytes, &size, err);
    if (rc < 0)
        return rc;
    pst_sink_bytes(sink, 0, bytes, size);
    pst_sink_bytes(sink, 1, bytes, size);
    pst_free(bytes);
    return 0;
}

static int collect_pairs(const char *pipeline, const pst_call *call, pst_error *err)
{
    static const pst_field_info fields[] = {{.name = "image", .kind = PST_IMAGE},
                                            {.name = "mask", .kind = PST_MASK}};
    pst_custom spec;
    pst_custom_init(&spec);
    spec.count = IMAGES;
    spec.name = "pairs";
    spec.fields = fields;
    spec.field_count = 2;
    spec.read = read_pair;
    pst_dataset *pairs;
    if (pst_dataset_custom(&spec, &pairs, err) < 0)
        return -1;
    pst_job_options o = options(pipeline, call, 1);
    o.fields = "image,mask";
    pst_engine *engine = kit_cached_engine(2, 64 * MIB, 0);
    pst_job *job = NULL;
    ledger l = {0};
    int rc = pst_job_open(engine, pairs, &o, &job, err);
    if (rc == 0) {
        rc = kit_collect(job, 0, EPOCHS, SIZE_MAX, &l);
        pst_job_error(job, err);
    }
    ledger_free(&l);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(pairs);
    return rc;
}

static void masks_are_left_alone_and_must_keep_their_size(void)
{
    behaviour b = {.fail_id = -1};
    const pst_call call = {"f", run_shift, &b};
    pst_error err;
    CHECK(collect_pairs("decode | call(f) | random_crop(8)", &call, &err) == 0);
    CHECKF(b.runs == EPOCHS * IMAGES, "%d runs", (int)b.runs);
    CHECK(collect_pairs("decode | call(f, any=true) | random_crop(8)", &call, &err) == 0);
    CHECK(collect_pairs("decode | resize((9, 9)) | call(f, (9, 9))", &call, &err) == 0);
    b.rows = 5;
    CHECK(collect_pairs("decode | call(f, any=true)", &call, &err) == PST_EFIELD);
    CHECKF(strcmp(err.stage, "f") == 0 && strstr(err.message, "mask"), "%s", err.message);
    b.cols = 5;
    CHECK(collect_pairs("decode | call(f, (5, 5))", &call, &err) == PST_EFIELD);
    CHECK(collect_pairs("decode ; mask: call(f)", &call, &err) == PST_EPIPELINE);
    CHECK(strstr(err.message, "images only"));
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    data = kit_dataset(folder);
    RUN(bytes_are_what_the_functions_make);
    RUN(seeds_belong_to_the_sample);
    RUN(a_declared_size_makes_dense_batches);
    RUN(any_size_is_ragged_or_cropped_to_one);
    RUN(another_size_than_declared_is_an_error);
    RUN(a_large_result_stays_within_the_budget);
    RUN(a_failure_is_a_bad_sample);
    RUN(what_cannot_be_is_refused_when_a_job_is_opened);
    RUN(the_name_is_in_text_and_fingerprint);
    RUN(a_fixed_function_runs_once_a_sample);
    RUN(another_name_is_another_form);
    RUN(masks_are_left_alone_and_must_keep_their_size);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
