/* SPDX-License-Identifier: Apache-2.0
 * The verdict of an engine with several jobs, and asking while jobs come and go. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "check.h"
#include "engine/engine_kit.h"

static char *folder;
static pst_dataset *data;

static void take(pst_job *job, int batches)
{
    pst_batch *batch;
    for (int i = 0; i < batches; i++)
        if (pst_job_next(job, -1, &batch) == 1)
            pst_batch_release(batch);
}

static void an_engine_without_jobs_is_idle(void)
{
    pst_engine *engine = kit_engine(1, 64 << 20);
    pst_verdict v = {.size = sizeof v};
    CHECK(pst_engine_verdict(engine, &v) == 0 && v.kind == PST_VERDICT_IDLE);
    CHECKF(strstr(v.text, "no job") != NULL, "%s", v.text);
    v.size = 1;
    CHECK(pst_engine_verdict(engine, &v) == -EINVAL);
    pst_engine_free(engine);
}

/* 80 ms a sample for the one, nothing asked for by the other. */
static void the_job_that_waits_speaks_for_the_engine(void)
{
    pst_engine *engine = kit_engine(1, 128 << 20);
    pst_job_options slow = kit_options("decode | random_resized_crop(16) | delay(80)", 2, 1, 0);
    pst_job_options fast = kit_options("decode | random_resized_crop(16)", 2, 1, 0);
    pst_job *waits = kit_job(engine, data, &slow), *rests = kit_job(engine, data, &fast);
    pst_verdict v = {.size = sizeof v}, one = {.size = sizeof one};
    CHECK(pst_engine_verdict(engine, &v) == 0 && v.kind == PST_VERDICT_STARTING);
    take(waits, 10);
    CHECK(pst_job_verdict(waits, &one) == 0 && pst_engine_verdict(engine, &v) == 0);
    CHECKF(v.kind == one.kind && v.stall > 0.5, "%s; of the job: %s", v.text, one.text);
    CHECKF(strstr(v.text, "1 of 2 jobs wait") != NULL, "%s", v.text);
    one.size = 1;
    CHECK(pst_job_verdict(waits, &one) == -EINVAL);
    pst_job_close(rests);
    pst_engine_free(engine);
    one.size = sizeof one;
    CHECK(pst_job_verdict(waits, &one) == PST_ECLOSED);
    pst_job_close(waits);
}

static atomic_bool over;

static void *ask(void *engine)
{
    while (!atomic_load(&over)) {
        pst_verdict v = {.size = sizeof v};
        if (pst_engine_verdict(engine, &v) != 0 || !v.text[0])
            return engine;
    }
    return NULL;
}

static void jobs_come_and_go_while_it_is_asked(void)
{
    pst_engine *engine = kit_engine(2, 128 << 20);
    pst_job_options o = kit_options(KIT_PIPELINE, 4, 1, 0);
    pthread_t asker;
    void *wrong = engine;
    atomic_store(&over, false);
    CHECK(pthread_create(&asker, NULL, ask, engine) == 0);
    for (int i = 0; i < 60; i++) {
        pst_job *job = kit_job(engine, data, &o);
        take(job, i % 4);
        pst_job_close(job);
    }
    atomic_store(&over, true);
    pthread_join(asker, &wrong);
    CHECK(wrong == NULL);
    pst_engine_free(engine);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, 40, 2);
    data = kit_dataset(folder);
    RUN(an_engine_without_jobs_is_idle);
    RUN(the_job_that_waits_speaks_for_the_engine);
    RUN(jobs_come_and_go_while_it_is_asked);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
