/* SPDX-License-Identifier: Apache-2.0
 * The notice that no batch came: what it says of a function that does not return, of memory that
 * another job holds, of workers that others have; and that nobody is told of a slow consumer or at
 * the end of a job. The wait is half a second instead of 30 (PENSTOCK_NOTICE_S). */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "engine_kit.h"

enum { IMAGES = 12, BATCH = 4 };
#define MIB       ((uint64_t)1 << 20)
#define FOREVER   (60 * INT64_C(1000000000))
#define NOTICE_MS 500
static char *folder;
static pst_dataset *data;

/* ---- what was said --------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards these */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char said[8][1024];
static int said_count;
static bool gate_open;
static int inside; /* samples that came to the gate */

static void on_log(int level, const char *text, void *user)
{
    (void)user;
    pthread_mutex_lock(&lock);
    if (level == 1 && said_count < 8)
        snprintf(said[said_count++], sizeof said[0], "%s", text);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void begin(void)
{
    pthread_mutex_lock(&lock);
    said_count = inside = 0;
    gate_open = false;
    pthread_mutex_unlock(&lock);
}

static void open_gate(void)
{
    pthread_mutex_lock(&lock);
    gate_open = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static int count_said(void)
{
    pthread_mutex_lock(&lock);
    const int count = said_count;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Whether some notice has all the words. */
static bool was_said(const char *one, const char *other)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < said_count; i++)
        found |= strstr(said[i], one) && strstr(said[i], other);
    for (int i = 0; !found && i < said_count; i++)
        fprintf(stderr, "said: %s\n", said[i]);
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- a function that waits ------------------------------------------------------------------- */

static int run_gate(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    (void)user;
    (void)err;
    pthread_mutex_lock(&lock);
    inside++;
    pthread_cond_broadcast(&changed);
    while (!gate_open)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    uint8_t *to = pst_call_size(out, in->rows, in->cols, in->channels);
    if (!to)
        return -EINVAL;
    for (int64_t y = 0; y < in->rows; y++)
        memcpy(to + y * in->cols * in->channels, in->data + (size_t)y * in->stride,
               (size_t)(in->cols * in->channels));
    return 0;
}

static const pst_call gate = {.name = "gate", .run = run_gate};

static pst_job *gated_job(pst_engine *engine, pst_dataset *from, const char *pipeline)
{
    pst_job_options opts = kit_options(pipeline, BATCH, 1, 1);
    opts.calls = &gate;
    opts.call_count = 1;
    return kit_job(engine, from, &opts);
}

/* Waits until that many notices were given; the batch does not come. */
static void wait_for_notices(pst_job *job, int count)
{
    pst_batch *batch = NULL;
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &now);
    end = now;
    end.tv_sec += 60;
    int rc = -ETIMEDOUT;
    while (rc == -ETIMEDOUT && count_said() < count && now.tv_sec < end.tv_sec) {
        rc = pst_job_next(job, NOTICE_MS * 1000000 / 4, &batch);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    pst_error err = {0};
    pst_job_error(job, &err);
    CHECKF(rc == -ETIMEDOUT, "%d: %s", rc, err.message);
    CHECK(count_said() >= count);
}

/* Until so many samples came to the gate: from then on nothing moves. */
static void wait_inside(int count)
{
    pthread_mutex_lock(&lock);
    while (inside < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* One of the two notices says so: a loaded machine may not be that far at the first. */
static void expect_said(pst_job *job, const char *words)
{
    for (int count = 1; count <= 2; count++) {
        wait_for_notices(job, count);
        if (was_said("no batch came for", words))
            return;
    }
    CHECKF(false, "nobody said: %s", words);
}

static void take_all(pst_job *job)
{
    pst_batch *batch = NULL;
    int rc;
    while ((rc = pst_job_next(job, FOREVER, &batch)) == 1)
        pst_batch_release(batch);
    CHECK(rc == 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_a_function_that_does_not_return(void)
{
    pst_engine *engine = kit_engine(2, 64 * MIB);
    begin();
    pst_job *job = gated_job(engine, data, "decode | call(gate) | resize(16) | center_crop(16)");
    wait_inside(2);
    wait_for_notices(job, 1);
    CHECK(was_said("no batch came for", "is in stage gate"));
    CHECK(was_said("sample ", ".jpg"));
    /* Told again after ten times as long, and then no more. */
    wait_for_notices(job, 2);
    pst_batch *batch = NULL;
    CHECK(pst_job_next(job, 3 * NOTICE_MS * INT64_C(1000000), &batch) == -ETIMEDOUT);
    CHECK(count_said() == 2);
    open_gate();
    take_all(job);
    CHECK(count_said() == 2);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* A consumer that waits without end is told as well as one that waits in slices. */
static void *wait_without_end(void *job)
{
    pst_batch *batch = NULL;
    const int rc = pst_job_next(job, -1, &batch);
    CHECK(rc == 1);
    pst_batch_release(batch);
    return NULL;
}

static void test_a_wait_without_end(void)
{
    pst_engine *engine = kit_engine(2, 64 * MIB);
    pthread_t thread;
    begin();
    pst_job *job = gated_job(engine, data, "decode | call(gate) | resize(16) | center_crop(16)");
    wait_inside(2);
    CHECK(pthread_create(&thread, NULL, wait_without_end, job) == 0);
    pthread_mutex_lock(&lock);
    while (said_count == 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    CHECK(was_said("no batch came for", "is in stage gate"));
    open_gate();
    pthread_join(thread, NULL);
    take_all(job);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* One worker, which another job has. */
static void test_workers_that_others_have(void)
{
    pst_engine *engine = kit_engine(1, 64 * MIB);
    begin();
    pst_job *other = gated_job(engine, data, "decode | call(gate) | resize(16) | center_crop(16)");
    wait_inside(1);
    pst_job_options opts = kit_options("decode | resize(16) | center_crop(16)", BATCH, 1, 1);
    pst_job *job = kit_job(engine, data, &opts);
    expect_said(job, "waits for a worker");
    open_gate();
    take_all(job);
    take_all(other);
    pst_job_close(job);
    pst_job_close(other);
    pst_engine_free(engine);
}

/* A picture that takes most of the part for large samples is held by a job that does not go on. */
static void test_memory_that_another_job_has(void)
{
    enum { SIDE = 3000 };
    char *large = kit_folder();
    size_t size;
    uint8_t *bytes = kit_jpeg(SIDE, SIDE, 3, true, &size);
    kit_write(large, "a.jpg", bytes, size);
    free(bytes);
    pst_dataset *one = kit_dataset(large);
    pst_engine *engine = kit_engine(2, 160 * MIB);
    begin();
    pst_job *other = gated_job(engine, one, "decode | call(gate) | resize(16) | center_crop(16)");
    wait_inside(1);
    pst_job_options opts = kit_options("decode | resize(16) | center_crop(16)", 1, 1, 1);
    pst_job *job = kit_job(engine, one, &opts);
    expect_said(job, "waits for memory");
    open_gate();
    take_all(job);
    take_all(other);
    pst_job_close(job);
    pst_job_close(other);
    pst_engine_free(engine);
    pst_dataset_close(one);
    kit_remove(large);
}

/* Nobody waits: the consumer is busy for longer than the notice takes, also after it asked once
 * and found nothing; and at the end of a job there is nothing to wait for. */
static void test_no_false_alarm(void)
{
    const struct timespec busy = {.tv_nsec = 2 * NOTICE_MS * 1000000L};
    pst_engine *engine = kit_engine(2, 64 * MIB);
    pst_batch *batch = NULL;
    begin();
    pst_job *job = gated_job(engine, data, "decode | resize(16) | center_crop(16) | call(gate)");
    CHECK(pst_job_next(job, 0, &batch) == -ETIMEDOUT);
    open_gate();
    wait_inside(IMAGES);
    for (int i = 0; i < IMAGES / BATCH; i++) {
        nanosleep(&busy, NULL); /* the time itself is what is tested */
        const int rc = pst_job_next(job, FOREVER, &batch);
        CHECK(rc == 1);
        pst_batch_release(batch);
    }
    nanosleep(&busy, NULL);
    CHECK(pst_job_next(job, FOREVER, &batch) == 0);
    nanosleep(&busy, NULL);
    CHECK(pst_job_next(job, FOREVER, &batch) == 0);
    CHECK(count_said() == 0);
    pst_job_close(job);
    pst_engine_free(engine);
}

int main(void)
{
    setenv("PENSTOCK_NOTICE_S", "0.5", 1);
    pst_log_set(on_log, NULL);
    folder = kit_folder();
    kit_images(folder, IMAGES, 2);
    data = kit_dataset(folder);
    RUN(test_a_function_that_does_not_return);
    RUN(test_a_wait_without_end);
    RUN(test_workers_that_others_have);
    RUN(test_memory_that_another_job_has);
    RUN(test_no_false_alarm);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
