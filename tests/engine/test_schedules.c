/* SPDX-License-Identifier: Apache-2.0
 * The schedules to compare with, plain, inorder and batch-per-worker: each sample once, strict ones
 * with the sequence of strict order, and resumes, other epochs and ends in mid-batch. */
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "lanes_kit.h"

enum { EPOCHS = 2 };
#define PIPELINE                                                                                   \
    "decode | random_resized_crop(16) | hflip | delay(0.1) | delay(2, 0.2, 16, 4, hidden) | "      \
    "normalize(imagenet)"
static char *folder;
static pst_dataset *data;

static pst_job_options options(int schedule, int order)
{
    pst_job_options o = lanes_options(PIPELINE, EPOCHS);
    o.sampler = PST_SHUFFLE;
    o.schedule = schedule;
    o.order = order;
    o.batch = 7;
    return o;
}

static void drive_epochs(const pst_job_options *o, int world, ledger *out)
{
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    pst_job *jobs[LANES_RANKS];
    lanes_open(engine, data, o, world, jobs);
    for (int e = 0; e < EPOCHS; e++)
        CHECK(lanes_drive(jobs, world, 0, 0, out) == 0);
    for (int rank = 0; rank < world; rank++) {
        CHECK(lanes_parks(jobs[rank]) == 0);
        pst_job_close(jobs[rank]);
    }
    pst_engine_free(engine);
}

static bool is_strict(const pst_job_options *o)
{
    return o->order == PST_ORDER_STRICT || o->schedule == PST_SCHEDULE_INORDER;
}

/* Against strict order as ever, with the same ends and ranks. */
static void check_schedule(int schedule, int order, int world, int ends)
{
    pst_job_options o = options(schedule, order), usual = options(0, PST_ORDER_STRICT);
    o.ends = usual.ends = ends;
    ledger got = {0}, want = {0};
    drive_epochs(&o, world, &got);
    drive_epochs(&usual, world, &want);
    if (is_strict(&o))
        CHECKF(ledger_same_order(&got, &want), "schedule %d, world %d, ends %d: another sequence",
               schedule, world, ends);
    const size_t slots = got.count;
    CHECK(slots == want.count && got.batches == want.batches);
    ledger_sort(&got);
    ledger_sort(&want);
    /* What is dropped at the end of an epoch hangs on the order of delivery. */
    CHECKF((ends == PST_ENDS_DROP && !is_strict(&o)) || ledger_same(&got, &want),
           "schedule %d, order %d, world %d, ends %d: %zu and %zu samples", schedule, order, world,
           ends, got.count, want.count);
    ledger_free(&got);
    ledger_free(&want);
}

static void every_schedule_delivers_what_was_asked(void)
{
    for (int schedule = PST_SCHEDULE_PLAIN; schedule <= PST_SCHEDULE_BATCH_PER_WORKER; schedule++)
        for (int order = 0; order < 2; order++) {
            check_schedule(schedule, order, 1, PST_ENDS_SHORT);
            check_schedule(schedule, order, 3, PST_ENDS_PAD);
        }
    check_schedule(PST_SCHEDULE_BATCH_PER_WORKER, PST_ORDER_STRICT, 3, PST_ENDS_SHORT);
    check_schedule(PST_SCHEDULE_BATCH_PER_WORKER, PST_ORDER_READY, 3, PST_ENDS_SHORT);
    check_schedule(PST_SCHEDULE_BATCH_PER_WORKER, PST_ORDER_STRICT, 3, PST_ENDS_DROP);
    check_schedule(PST_SCHEDULE_BATCH_PER_WORKER, PST_ORDER_READY, 1, PST_ENDS_DROP);
}

static void a_resume_goes_on(void)
{
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    for (int schedule = PST_SCHEDULE_PLAIN; schedule <= PST_SCHEDULE_BATCH_PER_WORKER; schedule++)
        for (int order = 0; order < 2; order++)
            for (size_t taken = 0; taken < 12; taken += 11) {
                const pst_job_options o = options(schedule, order);
                uint8_t state[9000];
                size_t size;
                pst_error err;
                ledger got = {0}, want = {0};
                pst_job *job = kit_job(engine, data, &o);
                CHECK(kit_collect(job, 0, 1, taken, &got) == 0);
                CHECK(pst_job_state(job, state, sizeof state, &size) == 0);
                pst_job_close(job);
                job = kit_job(engine, data, &o);
                CHECK(pst_job_load_state(job, state, size, &err) == 0);
                CHECK(kit_collect(job, 0, EPOCHS, SIZE_MAX, &got) == 0);
                pst_job_close(job);
                const pst_job_options usual = options(0, PST_ORDER_STRICT);
                drive_epochs(&usual, 1, &want);
                CHECK(!is_strict(&o) || ledger_same_order(&got, &want));
                ledger_sort(&got);
                ledger_sort(&want);
                CHECKF(ledger_same(&got, &want), "schedule %d, order %d: %zu and %zu", schedule,
                       order, got.count, want.count);
                ledger_free(&got);
                ledger_free(&want);
            }
    pst_engine_free(engine);
}

/* Workers are in the middle of batches whenever this happens. */
static void batches_of_workers_are_given_up(void)
{
    const pst_job_options usual = options(0, PST_ORDER_STRICT);
    ledger want = {0};
    drive_epochs(&usual, 1, &want);
    ledger_sort(&want);
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    for (int order = 0; order < 2; order++)
        for (size_t taken = 0; taken < 30; taken += 7) {
            pst_job_options o = options(PST_SCHEDULE_BATCH_PER_WORKER, order);
            o.epochs = 0;
            ledger got = {0}, rest = {0};
            pst_job *job = kit_job(engine, data, &o), *other = kit_job(engine, data, &o);
            CHECK(kit_collect(job, 0, 1, taken, &rest) == 0);
            CHECK(pst_job_set_epoch(job, 1) == 0 && pst_job_set_epoch(job, 0) == 0);
            CHECK(kit_collect(other, 0, 1, taken, &rest) == 0);
            pst_job_close(other);
            CHECK(kit_collect(job, 0, EPOCHS, SIZE_MAX, &got) == 0);
            pst_job_close(job);
            ledger_sort(&got);
            CHECKF(ledger_same(&got, &want), "order %d, after %zu: %zu and %zu", order, taken,
                   got.count, want.count);
            ledger_free(&got);
            ledger_free(&rest);
        }
    pst_engine_free(engine);
    ledger_free(&want);
}

static void a_bad_sample_is_told_in_its_batch(void)
{
    char *to = lanes_folder();
    kit_break(to, 100, 1);
    pst_dataset *from = kit_dataset(to);
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    for (int schedule = 0; schedule <= PST_SCHEDULE_BATCH_PER_WORKER; schedule++) {
        pst_job_options o = options(schedule, PST_ORDER_STRICT);
        o.sampler = PST_SEQUENTIAL;
        ledger got = {0};
        pst_job *job = kit_job(engine, from, &o);
        const int rc = kit_collect(job, 0, 1, SIZE_MAX, &got);
        CHECKF(rc < 0 && got.count == 98, "schedule %d: %s after %zu", schedule, pst_strerror(rc),
               got.count);
        pst_job_close(job);
        got.count = 0;
        o.on_error = PST_SKIP;
        o.skip_limit = 1;
        job = kit_job(engine, from, &o);
        CHECK(kit_collect(job, 0, 1, SIZE_MAX, &got) == 0 && got.count == LANES_SAMPLES - 1);
        pst_job_close(job);
        ledger_free(&got);
    }
    pst_engine_free(engine);
    pst_dataset_close(from);
    kit_remove(to);
}

int main(void)
{
    folder = lanes_folder();
    data = kit_dataset(folder);
    RUN(every_schedule_delivers_what_was_asked);
    RUN(a_resume_goes_on);
    RUN(batches_of_workers_are_given_up);
    RUN(a_bad_sample_is_told_in_its_batch);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
