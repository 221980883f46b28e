/* SPDX-License-Identifier: Apache-2.0
 * Forking at any moment while an engine runs at full speed: the child closes what it inherited,
 * makes objects of its own, reads, and goes. Nobody hangs. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "engine_kit.h"

enum { SAMPLES = 64, FORKS = 200, PATIENCE_S = 60 };
static char *folder;
static pst_dataset *data, *mine_to_read;
static uint8_t *picture;
static size_t picture_bytes;
static pst_engine *engine;
static pst_job *job;
static atomic_bool stop;
static atomic_ulong taken;

static pst_job_options options(int batch)
{
    return kit_options(KIT_PIPELINE, batch, 5, 0);
}

static int read_picture(void *user, int64_t id, pst_sink *sink, pst_error *err)
{
    (void)user, (void)err;
    pst_sink_int(sink, 1, id);
    return pst_sink_bytes(sink, 0, picture, picture_bytes);
}

static void *consume(void *arg)
{
    (void)arg;
    while (!stop) {
        pst_batch *batch;
        if (pst_job_next(job, -1, &batch) == 1) {
            taken++;
            pst_batch_release(batch);
        }
    }
    return NULL;
}

/* Keeps the two locks busy that belong to no engine. */
static void *ask(void *arg)
{
    (void)arg;
    pst_sample_info info;
    for (int64_t id = 0; !stop; id++) {
        pst_log_set(NULL, NULL);
        pst_dataset_sample(data, id % SAMPLES, &info);
    }
    return NULL;
}

static bool two_batches(pst_engine *mine, pst_dataset *from)
{
    const pst_job_options o = options(4);
    pst_job *own;
    bool ok = pst_job_open(mine, from, &o, &own, NULL) == 0;
    for (int i = 0; ok && i < 2; i++) {
        pst_batch *batch;
        ok = pst_job_next(own, -1, &batch) == 1;
        if (ok)
            pst_batch_release(batch);
    }
    if (ok)
        pst_job_close(own);
    return ok;
}

static bool prep_works(void)
{
    pst_prep *prep;
    pst_batch *batch;
    char name[64], path[512];
    kit_name(0, 3, name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (pst_prep_new(KIT_PIPELINE, 0, &prep, NULL) < 0)
        return false;
    const bool ok = pst_prep_run_file(prep, path, 0, 0, 0, &batch, NULL) == 0;
    if (ok)
        pst_batch_release(batch);
    pst_prep_free(prep);
    return ok;
}

/* What is wrong, or 0. */
static int child_main(pst_batch *held)
{
    pst_batch *batch;
    pst_error err;
    pst_dataset *own;
    pst_dataset_options opts;
    pst_engine *mine;
    pst_engine_options e;
    alarm(PATIENCE_S);
    if (pst_job_next(job, 0, &batch) != PST_EFORK ||
        pst_job_load_state(job, "", 0, &err) != PST_EFORK)
        return 2;
    pst_log_set(NULL, NULL);
    pst_engine_options_init(&e);
    e.workers = 1;
    e.memory_bytes = 32 << 20;
    if (pst_engine_new(&e, &mine, NULL) < 0)
        return 3;
    pst_dataset_options_init(&opts);
    opts.index_dir = "";
    pst_error why = {0};
    if (pst_dataset_open(folder, &opts, &own, &why) < 0) {
        fprintf(stderr, "child: %d %s\n", why.code, why.message);
        return 4;
    }
    if (!two_batches(mine, own))
        return 5;
    if (!two_batches(mine, data))
        return 6;
    if (!two_batches(mine, mine_to_read))
        return 7;
    if (!prep_works())
        return 8;
    pst_batch_release(held);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(data);
    pst_dataset_close(mine_to_read);
    pst_dataset_close(own);
    pst_engine_free(mine);
    return 0;
}

static void two_hundred_children_of_a_busy_engine(void)
{
    engine = kit_engine(4, 64 << 20);
    const pst_job_options o = options(4);
    job = kit_job(engine, mine_to_read, &o);
    pst_job *other = kit_job(engine, data, &o); /* fills its ring and waits */
    pst_batch *held;
    CHECK(pst_job_next(job, -1, &held) == 1);
    pthread_t consumer, asker;
    pthread_create(&consumer, NULL, consume, NULL);
    pthread_create(&asker, NULL, ask, NULL);
    int failed = 0;
    for (int i = 0; i < FORKS && !failed; i++) {
        const unsigned long before = taken;
        const pid_t child = fork();
        if (child == 0)
            _exit(child_main(held));
        int status;
        waitpid(child, &status, 0);
        failed = !WIFEXITED(status) || WEXITSTATUS(status);
        CHECKF(!failed, "child %d: %s %d", i, WIFEXITED(status) ? "answer" : "signal",
               WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        while (taken == before) /* the parent's engine goes on */
            sched_yield();
    }
    stop = true;
    pst_job_abort(job);
    pthread_join(consumer, NULL);
    pthread_join(asker, NULL);
    pst_batch_release(held);
    pst_job_close(job);
    pst_job_close(other);
    pst_engine_free(engine);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, SAMPLES, 3);
    data = kit_dataset(folder);
    picture = kit_jpeg(40, 30, 1, false, &picture_bytes);
    pst_custom spec;
    pst_custom_init(&spec);
    spec.name = "one";
    spec.count = SAMPLES;
    spec.read = read_picture;
    spec.threads = 3;
    CHECK(pst_dataset_custom(&spec, &mine_to_read, NULL) == 0);
    RUN(two_hundred_children_of_a_busy_engine);
    pst_dataset_close(data);
    pst_dataset_close(mine_to_read);
    free(picture);
    kit_remove(folder);
    return check_report();
}
