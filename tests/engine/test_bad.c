/* SPDX-License-Identifier: Apache-2.0
 * Bad samples: the error that travels with the sample, raise, skip under ranks, limits, retries of
 * reads. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine_kit.h"

enum { SAMPLES = 90, CLASSES = 3, BATCH = 5, WORLD = 3 };

static char *folder;
static pst_dataset *data;

static pst_job_options options(int order, int rank, int world, int ends)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = KIT_PIPELINE;
    o.batch = BATCH;
    o.seed = 3;
    o.epochs = 1;
    o.order = order;
    o.rank = rank;
    o.world = world;
    o.ends = ends;
    return o;
}

/* Ids are in key order: class folder, then number. */
static int index_of_id(int64_t id)
{
    const int per_class = SAMPLES / CLASSES;
    return (int)(id % per_class) * CLASSES + (int)(id / per_class);
}

static void a_bad_sample_raises_with_its_key(void)
{
    for (int order = 0; order < 2; order++) {
        pst_engine *engine = kit_engine(2, 64 << 20);
        pst_job_options o = options(order, 0, 1, PST_ENDS_SHORT);
        ledger l = {0};
        pst_job *job = kit_job(engine, data, &o);
        const int rc = kit_collect(job, 0, 1, SIZE_MAX, &l);
        CHECKF(rc == PST_ECORRUPT || rc == PST_EFORMAT, "%d", rc);
        pst_error err;
        pst_job_error(job, &err);
        CHECK(err.code == rc && strstr(err.key, ".jpg") && err.id >= 0 &&
              strcmp(err.stage, "decode") == 0);
        CHECK(kit_collect(job, 0, 1, 1, &l) == rc); /* it stays */
        ledger_free(&l);
        pst_job_close(job);
        pst_engine_free(engine);
    }
}

/* The rank that the k-th position belongs to decides which files are broken, so that seven are on
 * one rank. */
static void skip_keeps_steps_equal(void)
{
    for (int c = 0; c < 4; c++) {
        const int order = c & 1, ends = c / 2 ? PST_ENDS_PAD : PST_ENDS_DROP;
        pst_engine *engine = kit_engine(3, 64 << 20);
        size_t steps[WORLD], good = 0, pads = 0;
        int seen[SAMPLES] = {0};
        for (int rank = 0; rank < WORLD; rank++) {
            pst_job_options o = options(order, rank, WORLD, ends);
            o.on_error = PST_SKIP;
            o.skip_limit = 7;
            ledger l = {0};
            pst_job *job = kit_job(engine, data, &o);
            const int rc = kit_collect(job, rank, 1, SIZE_MAX, &l);
            pst_error err;
            pst_job_error(job, &err);
            CHECKF(rc == 0, "order %d ends %d rank %d: %s", order, ends, rank,
                   rc < 0 ? err.message : "");
            steps[rank] = l.batches;
            size_t padded = 0;
            for (size_t i = 0; i < l.count; i++) {
                if (!l.at[i].valid) {
                    padded++;
                    continue;
                }
                seen[l.at[i].id]++;
                good++;
                CHECKF(order == PST_ORDER_READY || padded == 0, "full batches come first");
            }
            pads += padded;
            CHECK(l.count == l.batches * BATCH);
            ledger_free(&l);
            pst_job_close(job);
        }
        CHECK(steps[0] == steps[1] && steps[1] == steps[2] && steps[0] == SAMPLES / WORLD / BATCH);
        CHECKF(good == SAMPLES - 7 && pads == 7, "%zu good, %zu padded", good, pads);
        for (int i = 0; i < SAMPLES; i++)
            CHECK(seen[i] <= 1);
        CHECK(pst_engine_bad_count(engine) == 7);
        pst_error err;
        CHECK(pst_engine_bad_get(engine, 6, &err) == 0 && err.code < 0 && err.key[0]);
        CHECK(pst_engine_bad_get(engine, 7, &err) == -ENOENT);
        pst_engine_free(engine);
    }
}

static void skip_order_does_not_depend_on_workers(void)
{
    static const int workers[] = {1, 2, 7};
    ledger first = {0};
    for (int w = 0; w < 3; w++) {
        pst_engine *engine = kit_engine(workers[w], 64 << 20);
        pst_job_options o = options(PST_ORDER_STRICT, 0, 1, PST_ENDS_SHORT);
        o.on_error = PST_SKIP;
        o.skip_limit = 7;
        o.epochs = 2;
        ledger l = {0};
        pst_job *job = kit_job(engine, data, &o);
        CHECK(kit_collect(job, 0, 2, SIZE_MAX, &l) == 0);
        CHECK(l.count == 2 * (SAMPLES - 7));
        pst_job_stats stats = {.size = sizeof stats};
        pst_job_stats_get(job, &stats);
        CHECK(stats.skipped == 14 && pst_engine_bad_count(engine) == 7);
        pst_job_close(job);
        pst_engine_free(engine);
        if (w == 0)
            first = l;
        else {
            CHECK(ledger_same_order(&first, &l));
            ledger_free(&l);
        }
    }
    ledger_free(&first);
}

static void too_many_bad_samples_end_the_job(void)
{
    for (int order = 0; order < 2; order++) {
        pst_engine *engine = kit_engine(2, 64 << 20);
        pst_job_options o = options(order, 0, 1, PST_ENDS_SHORT);
        o.on_error = PST_SKIP;
        o.skip_limit = 6;
        ledger l = {0};
        pst_job *job = kit_job(engine, data, &o);
        CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == PST_ETOOMANYBAD);
        pst_error err;
        pst_job_error(job, &err);
        CHECKF(strstr(err.message, "7 bad") && strstr(err.message, "6") && err.key[0], "%s",
               err.message);
        ledger_free(&l);
        pst_job_close(job);
        pst_engine_free(engine);
    }
}

static void skips_resume_exactly(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    for (int order = 0; order < 2; order++) {
        ledger whole = {0};
        pst_job_options o = options(order, 0, 1, PST_ENDS_SHORT);
        o.on_error = PST_SKIP;
        o.skip_limit = 7;
        pst_job *job = kit_job(engine, data, &o);
        CHECK(kit_collect(job, 0, 1, SIZE_MAX, &whole) == 0);
        pst_job_close(job);
        ledger_sort(&whole);
        for (size_t k = 0; k <= 17; k++) {
            ledger l = {0};
            job = kit_job(engine, data, &o);
            CHECK(kit_collect(job, 0, 1, k, &l) == 0);
            size_t size;
            pst_job_state(job, NULL, 0, &size);
            uint8_t *state = malloc(size);
            CHECK(pst_job_state(job, state, size, &size) == 0);
            pst_job_close(job);
            job = kit_job(engine, data, &o);
            pst_error err;
            const int rc = pst_job_load_state(job, state, size, &err);
            CHECKF(rc == 0, "%s", rc < 0 ? err.message : "");
            CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
            pst_job_close(job);
            ledger_sort(&l);
            CHECKF(ledger_same(&whole, &l), "order %d after %zu: %zu of %zu", order, k, l.count,
                   whole.count);
            ledger_free(&l);
            free(state);
        }
        ledger_free(&whole);
    }
    pst_engine_free(engine);
}

static void a_file_that_cannot_be_read_is_named(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    char *gone = kit_folder();
    kit_images(gone, 8, 1);
    pst_dataset *there = kit_dataset(gone);
    char path[512];
    snprintf(path, sizeof path, "%s/c00/img_0003.jpg", gone);
    unlink(path);
    pst_job_options o = options(PST_ORDER_STRICT, 0, 1, PST_ENDS_SHORT);
    o.read_retries = 2;
    ledger l = {0};
    pst_job *job = kit_job(engine, there, &o);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) < 0);
    pst_error err;
    pst_job_error(job, &err);
    CHECKF(strstr(err.key, "img_0003") && strcmp(err.stage, "read") == 0, "%s %s: %s", err.stage,
           err.key, err.message);
    pst_job_close(job);
    pst_dataset_close(there);
    ledger_free(&l);
    kit_remove(gone);
    pst_engine_free(engine);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, SAMPLES, CLASSES);
    /* Which ids rank 1 of 3 gets first decides which files are broken; see the order of the seed
     * above. */
    data = kit_dataset(folder);
    {
        pst_engine *engine = kit_engine(1, 64 << 20);
        pst_job_options o = options(PST_ORDER_STRICT, 1, WORLD, PST_ENDS_PAD);
        ledger l = {0};
        pst_job *job = kit_job(engine, data, &o);
        kit_collect(job, 1, 1, SIZE_MAX, &l);
        for (int i = 0; i < 7; i++)
            kit_break(folder, index_of_id(l.at[i * 4].id), CLASSES);
        ledger_free(&l);
        pst_job_close(job);
        pst_engine_free(engine);
    }
    pst_dataset_close(data);
    data = kit_dataset(folder);
    RUN(a_bad_sample_raises_with_its_key);
    RUN(skip_keeps_steps_equal);
    RUN(skip_order_does_not_depend_on_workers);
    RUN(too_many_bad_samples_end_the_job);
    RUN(skips_resume_exactly);
    RUN(a_file_that_cannot_be_read_is_named);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
