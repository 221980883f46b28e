/* SPDX-License-Identifier: Apache-2.0
 * Corners of the scheduler that random driving seldom reaches: budgets that samples of unknown size
 * fill, slow samples in ready order, ranks that have nothing good left, states after skips. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine_kit.h"

static const int64_t patience = 20000000000;

static pst_job_options options(const char *pipeline, int batch)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = pipeline;
    o.batch = batch;
    o.seed = 1;
    o.epochs = 1;
    return o;
}

/* Takes at most `most` batches; the last answer of pst_job_next. */
static int drain(pst_job *job, size_t most, size_t *taken)
{
    for (*taken = 0; *taken < most;) {
        pst_batch *b;
        const int rc = pst_job_next(job, patience, &b);
        if (rc <= 0)
            return rc;
        ++*taken;
        pst_batch_release(b);
    }
    return 1;
}

static void write_images(const char *folder, int count, int width, int height)
{
    for (int i = 0; i < count; i++) {
        char name[64];
        size_t size;
        uint8_t *bytes = kit_jpeg(width, height, (unsigned)i + 1, i % 2, &size);
        kit_name(i, 1, name);
        kit_write(folder, name, bytes, size);
        free(bytes);
    }
}

/* Decoded pictures of one batch alone are more than the budget: it goes on all the same, a batch at
 * a time. */
static void large_samples_of_any_shape_do_not_stop_the_engine(void)
{
    char *folder = kit_folder();
    write_images(folder, 12, 1500, 1300);
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_engine(2, 128 << 20);
    for (int order = 0; order < 2; order++) {
        pst_job_options o = options("decode", 4);
        o.fields = "image,label";
        o.order = order;
        pst_job *job = kit_job(engine, data, &o);
        size_t taken;
        const int rc = drain(job, SIZE_MAX, &taken);
        CHECKF(rc == 0 && taken == 3, "order %d: %d after %zu batches", order, rc, taken);
        pst_job_close(job);
    }
    pst_engine_free(engine);
    pst_dataset_close(data);
    kit_remove(folder);
}

/* Large pictures at the front of strict order with skips: what overtook them must not take the
 * bytes that they wait for. */
static void what_overtakes_large_samples_leaves_them_room(void)
{
    char *folder = kit_folder(), name[64];
    kit_images(folder, 60, 1);
    size_t size, taken;
    uint8_t *large = kit_jpeg(2400, 1600, 7, true, &size);
    for (int i = 0; i < 6; i++) {
        kit_name(2 * i, 1, name);
        kit_write(folder, name, large, size);
    }
    free(large);
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_engine(3, 96 << 20);
    pst_job_options o = options("decode | random_resized_crop(224) | normalize(imagenet)", 8);
    o.sampler = PST_SEQUENTIAL;
    o.on_error = PST_SKIP;
    pst_job *job = kit_job(engine, data, &o);
    const int rc = drain(job, SIZE_MAX, &taken);
    CHECKF(rc == 0 && taken == 8, "%d after %zu batches", rc, taken);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(data);
    kit_remove(folder);
}

/* The first job's waiting samples hold budget that only its consumer could free, who is opening
 * another job. */
static void a_second_job_opens_beside_a_full_one(void)
{
    char *folder = kit_folder();
    write_images(folder, 60, 420, 300);
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_engine(1, 48 << 20);
    pst_job_options o = options("decode", 12);
    o.fields = "image,label";
    o.epochs = 0;
    pst_job *first = kit_job(engine, data, &o), *second;
    size_t taken;
    CHECK(drain(first, 4, &taken) == 1);
    o = options("decode | random_resized_crop(224)", 20);
    o.ready_depth = 1;
    alarm(60);
    second = kit_job(engine, data, &o);
    alarm(0);
    CHECK(drain(second, SIZE_MAX, &taken) == 0 && taken == 3);
    CHECK(drain(first, 1, &taken) == 1);
    pst_job_close(first);
    pst_job_close(second);
    pst_engine_free(engine);
    pst_dataset_close(data);
    kit_remove(folder);
}

/* How many samples overtook the slow one. */
static int overtaken(const char *folder, int slow)
{
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_engine(3, 256 << 20);
    pst_job_options o = options("decode | random_resized_crop(8)", 4);
    o.order = PST_ORDER_READY;
    o.sampler = PST_SEQUENTIAL;
    o.ready_depth = 16;
    o.reorder_window = 24;
    pst_job *job = kit_job(engine, data, &o);
    ledger l = {0};
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
    int at = -1;
    for (size_t i = 0; i < l.count; i++)
        if (l.at[i].id == slow)
            at = (int)i;
    CHECK(at >= 0);
    ledger_free(&l);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(data);
    return at - slow;
}

static void a_slow_sample_stays_within_the_reorder_window(void)
{
    char *folder = kit_folder(), name[64];
    kit_images(folder, 300, 1);
    size_t size, small_size;
    uint8_t *large = kit_jpeg(3000, 2500, 7, true, &size);
    for (int slow = 20; slow < 44; slow += 6) {
        kit_name(slow, 1, name);
        kit_write(folder, name, large, size);
        const int by = overtaken(folder, slow);
        CHECKF(by <= 24, "sample %d was overtaken by %d", slow, by);
        uint8_t *small = kit_jpeg(30, 30, 9, false, &small_size);
        kit_write(folder, name, small, small_size);
        free(small);
    }
    free(large);
    kit_remove(folder);
}

static atomic_bool hogs_end;

static void *hog(void *unused)
{
    (void)unused;
    while (!atomic_load_explicit(&hogs_end, memory_order_relaxed))
        ;
    return NULL;
}

/* Workers that share their cores with others stand still now and then, also while they write a
 * sample that has its place in a batch: batches behind that one may not pass it for long. */
static void a_batch_that_is_being_written_is_not_left_behind(void)
{
    char *folder = kit_folder();
    kit_images(folder, 600, 1);
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_engine(8, 256 << 20);
    pst_job_options o = options("decode | random_resized_crop(160) | to(f32, nchw)", 4);
    o.order = PST_ORDER_READY;
    o.sampler = PST_SEQUENTIAL;
    o.ready_depth = 8;
    o.reorder_window = 24;
    o.epochs = 4;
    pthread_t hogs[6];
    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(&hogs[i], NULL, hog, NULL) == 0);
    pst_job *job = kit_job(engine, data, &o);
    for (int epoch = 0; epoch < 4; epoch++) {
        ledger l = {0};
        CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
        for (size_t i = 0; i < l.count; i++)
            CHECKF((int)i - l.at[i].id <= 24, "sample %d came at %zu", (int)l.at[i].id, i);
        ledger_free(&l);
    }
    atomic_store(&hogs_end, true);
    for (int i = 0; i < 6; i++)
        pthread_join(hogs[i], NULL);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(data);
    kit_remove(folder);
}

/* A batch has room for what comes after any number of bad samples. */
static void a_batch_waits_out_many_bad_samples(void)
{
    char *folder = kit_folder();
    kit_images(folder, 400, 1);
    for (int i = 18; i < 352; i++)
        kit_break(folder, i, 1);
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(KIT_PIPELINE, 4);
    o.order = PST_ORDER_READY;
    o.sampler = PST_SEQUENTIAL;
    o.on_error = PST_SKIP;
    o.skip_limit = 400;
    o.reorder_window = 16;
    pst_job *job = kit_job(engine, data, &o);
    size_t taken;
    const int rc = drain(job, SIZE_MAX, &taken);
    CHECKF(rc == 0 && taken == 17, "%d, %zu batches", rc, taken);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(data);
    kit_remove(folder);
}

/* A rank without a share pads with others' samples, and stops when none is good. */
static void padding_from_bad_samples_ends(void)
{
    char *folder = kit_folder();
    kit_images(folder, 4, 1);
    kit_break(folder, 2, 1);
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_engine(2, 32 << 20);
    const int64_t ids[] = {2, 1};
    for (int c = 0; c < 4; c++) {
        pst_job_options o = options(KIT_PIPELINE, 1);
        o.order = c & 1;
        o.ids = ids;
        o.ids_count = 1 + c / 2;
        o.world = 3;
        o.rank = 2;
        o.on_error = PST_SKIP;
        o.skip_limit = 5;
        pst_job *job = kit_job(engine, data, &o);
        size_t taken;
        const int rc = drain(job, SIZE_MAX, &taken);
        CHECKF(rc == (c / 2 ? 0 : PST_ETOOMANYBAD) && taken == (size_t)c / 2, "%d: %d, %zu", c, rc,
               taken);
        pst_job_close(job);
    }
    pst_engine_free(engine);
    pst_dataset_close(data);
    kit_remove(folder);
}

/* Resumed where only bad samples are left, or after as many as fill a batch: steps as without. */
static void steps_after_skips_do_not_depend_on_a_resume(void)
{
    char *folder = kit_folder();
    kit_images(folder, 20, 1);
    for (int i = 0; i < 4; i++)
        kit_break(folder, i, 1);
    kit_break(folder, 18, 1);
    kit_break(folder, 19, 1);
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_engine(2, 32 << 20);
    for (size_t k = 0; k <= 7; k++) {
        pst_job_options o = options(KIT_PIPELINE, 2);
        o.sampler = PST_SEQUENTIAL;
        o.ends = PST_ENDS_PAD;
        o.on_error = PST_SKIP;
        o.skip_limit = 9;
        uint8_t state[9000];
        size_t size, taken;
        pst_job *job = kit_job(engine, data, &o);
        CHECK(drain(job, k, &taken) == 1 && taken == k);
        CHECK(pst_job_state(job, state, sizeof state, &size) == 0);
        pst_job_close(job);
        job = kit_job(engine, data, &o);
        pst_error err;
        CHECK(pst_job_load_state(job, state, size, &err) == 0);
        ledger l = {0};
        const int rc = kit_collect(job, 0, 1, SIZE_MAX, &l);
        CHECKF(rc == 0, "after %zu: %s", k, pst_strerror(rc));
        CHECKF(l.count && l.at[0].step == k, "after %zu: step %d", k,
               l.count ? (int)l.at[0].step : -1);
        size_t valid = 0;
        for (size_t i = 0; i < l.count; i++)
            valid += l.at[i].valid;
        CHECKF(valid == 14 - 2 * k, "after %zu: %zu valid", k, valid);
        ledger_free(&l);
        pst_job_close(job);
    }
    pst_engine_free(engine);
    pst_dataset_close(data);
    kit_remove(folder);
}

int main(void)
{
    RUN(padding_from_bad_samples_ends);
    RUN(steps_after_skips_do_not_depend_on_a_resume);
    RUN(a_slow_sample_stays_within_the_reorder_window);
    RUN(a_batch_that_is_being_written_is_not_left_behind);
    RUN(a_batch_waits_out_many_bad_samples);
    RUN(large_samples_of_any_shape_do_not_stop_the_engine);
    RUN(what_overtakes_large_samples_leaves_them_room);
    RUN(a_second_job_opens_beside_a_full_one);
    return check_report();
}
