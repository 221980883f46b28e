/* SPDX-License-Identifier: Apache-2.0
 * The tuner, as its users see it: a consumer that takes batches in bursts gets more of them ready,
 * workers that nobody needs are given back and come again when somebody waits, and what the caller
 * fixed stays; and what no tuning helps against, samples that hold up all others in strict order,
 * is counted. */
#include <time.h>

#include "check.h"
#include "engine_kit.h"

enum { IMAGES = 96, BATCH = 4, WORKERS = 6 };
static const int64_t patience = 60000000000;
static char *folder;
static pst_dataset *data;

static void rest_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static pst_job_stats stats_of(const pst_job *job)
{
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(job, &s);
    return s;
}

static void take(pst_job *job, int batches)
{
    while (batches > 0) {
        pst_batch *batch;
        const int rc = pst_job_next(job, patience, &batch);
        CHECKF(rc >= 0, "pst_job_next: %d", rc);
        batches -= rc;
        if (rc == 1)
            pst_batch_release(batch);
    }
}

/* Twelve batches at once, then a rest in which everything gets ready: how deep the ring is. */
static unsigned depth_after_bursts(const pst_job_options *o, uint64_t memory)
{
    pst_engine *engine = kit_engine(WORKERS, memory);
    pst_job *job = kit_job(engine, data, o);
    for (int i = 0; i < 6; i++) {
        take(job, 20);
        rest_ms(80);
    }
    const pst_job_stats s = stats_of(job);
    CHECK(s.peak_bytes <= memory);
    pst_job_close(job);
    pst_engine_free(engine);
    return s.ready_depth;
}

static void bursts_get_a_deeper_ring(void)
{
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        pst_job_options o = kit_options("decode | center_crop(8) | delay(3)", BATCH, 3, 0);
        o.order = order;
        const unsigned depth = depth_after_bursts(&o, 64 << 20);
        CHECKF(depth > 4 && depth <= 16, "order %d: %u batches", order, depth);
    }
}

static void what_the_caller_fixed_stays(void)
{
    pst_job_options o = kit_options("decode | center_crop(8) | delay(3)", BATCH, 3, 0);
    o.ready_depth = 4;
    CHECK(depth_after_bursts(&o, 64 << 20) == 4);
    o.ready_depth = 0;
    o.without = PST_WITHOUT_TUNER;
    CHECK(depth_after_bursts(&o, 64 << 20) == 4);
}

/* Batches of 3 MiB: a ring of more than four of them would be more than a quarter of the budget. */
static void a_tight_budget_keeps_the_ring(void)
{
    pst_job_options o = kit_options("decode | resize((512, 512)) | delay(3)", BATCH, 3, 0);
    CHECK(depth_after_bursts(&o, 72 << 20) == 4);
}

/* The ring was registered with a device: batches must stay in it. */
static void a_ring_that_was_listed_stays(void)
{
    pst_engine *engine = kit_engine(WORKERS, 64 << 20);
    pst_job_options o = kit_options("decode | center_crop(8) | delay(3)", BATCH, 3, 0);
    pst_job *job = kit_job(engine, data, &o);
    void *base;
    size_t bytes;
    CHECK(pst_job_memory(job, 0, &base, &bytes) == 0);
    for (int i = 0; i < 6; i++) {
        take(job, 20);
        rest_ms(80);
    }
    CHECK(stats_of(job).ready_depth == 4);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void workers_are_given_back_and_come_again(void)
{
    pst_engine *engine = kit_engine(WORKERS, 64 << 20);
    pst_job_options o = kit_options("decode | center_crop(8) | delay(2)", BATCH, 3, 0);
    pst_job *job = kit_job(engine, data, &o);
    CHECK(stats_of(job).active_workers == WORKERS);
    uint64_t least = WORKERS;
    for (int i = 0; i < 600 && least > 2; i++) { /* 8 ms of work every 20 ms, for six workers */
        take(job, 1);
        rest_ms(20);
        const uint64_t active = stats_of(job).active_workers;
        least = active < least ? active : least;
    }
    CHECKF(least <= 2, "%llu of %d workers are left", (unsigned long long)least, WORKERS);
    take(job, 100); /* as fast as it goes: somebody waits */
    CHECK(stats_of(job).active_workers == WORKERS);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* Two samples of an epoch take longer than all that may be prepared meanwhile. */
static void stragglers_are_counted(void)
{
    for (int skip = 0; skip < 2; skip++) {
        pst_engine *engine = kit_engine(3, 64 << 20);
        pst_job_options o =
            kit_options("decode | center_crop(8) | delay(200, share=0.02083, runs=1)", BATCH, 3, 1);
        o.sampler = PST_SEQUENTIAL;
        o.ready_depth = 2;
        o.on_error = skip ? PST_SKIP : PST_RAISE;
        pst_job *job = kit_job(engine, data, &o);
        take(job, IMAGES / BATCH);
        CHECKF(stats_of(job).stragglers == 2, "%llu", (unsigned long long)stats_of(job).stragglers);
        pst_job_close(job);
        pst_engine_free(engine);
    }
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, IMAGES, 2);
    data = kit_dataset(folder);
    RUN(bursts_get_a_deeper_ring);
    RUN(what_the_caller_fixed_stays);
    RUN(a_tight_budget_keeps_the_ring);
    RUN(a_ring_that_was_listed_stays);
    RUN(workers_are_given_back_and_come_again);
    RUN(stragglers_are_counted);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
