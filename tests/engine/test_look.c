/* SPDX-License-Identifier: Apache-2.0
 * Engines that are looked at: totals that only grow, names of long paths, waits that are over, and
 * looks while jobs come and go. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine/engine.h"
#include "engine_kit.h"
#include "watch/metrics.h"

enum { IMAGES = 6 };
#define MIB ((uint64_t)1 << 20)
static const int64_t patience = 60 * INT64_C(1000000000);
static char *folder;
static pst_dataset *data;

static pst_job *open_deep(pst_engine *engine, const char *path, const char *pipeline, int depth,
                          uint64_t epochs)
{
    pst_error err = {0};
    pst_job *job = NULL;
    pst_job_options o = kit_options(pipeline, 1, 1, epochs);
    const psti_feed_hooks hooks = {.path = path};
    o.ready_depth = depth;
    if (psti_job_open_hooked(engine, data, &o, &hooks, &job, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return job;
}

static pst_job *open_named(pst_engine *engine, const char *path, const char *pipeline)
{
    return open_deep(engine, path, pipeline, 1, 1);
}

static void take_one(pst_job *job)
{
    pst_batch *batch = NULL;
    CHECK(pst_job_next(job, patience, &batch) == 1);
    pst_batch_release(batch);
}

/* Samples of a dataset as the metrics say; -1 = it is not among them. */
static int samples_of(pst_engine *engine, psti_view *view, const char *name)
{
    char key[128];
    psti_writ text = {0};
    CHECK(psti_engine_look(engine, view) == 0);
    psti_metrics(view, &text);
    psti_writ_put(&text, "", 1);
    snprintf(key, sizeof key, "penstock_dataset_samples_total{dataset=\"%s\"} ", name);
    const char *at = text.failed ? NULL : strstr(text.data, key);
    const int samples = at ? atoi(at + strlen(key)) : -1;
    psti_writ_fini(&text);
    return samples;
}

/* Whoever ends first: a job that had to be counted among the others stays there. */
static void totals_only_grow_when_names_run_out(void)
{
    pst_engine *engine = kit_engine(1, 64 * MIB);
    psti_view *view = psti_view_new();
    char path[32];
    for (int i = 0; i < PSTI_VIEW_DATASETS - 1; i++) {
        snprintf(path, sizeof path, "/sets/set%d", i);
        pst_job_close(open_named(engine, path, "decode"));
    }
    pst_job *last = open_named(engine, "/sets/last", "decode");
    pst_job *beyond = open_named(engine, "/sets/beyond", "decode");
    take_one(last);
    take_one(beyond);
    CHECK(samples_of(engine, view, "last") == 1 && samples_of(engine, view, "") == 1);
    CHECK(samples_of(engine, view, "beyond") == -1);
    pst_job_close(beyond);
    CHECKF(samples_of(engine, view, "") == 1, "%d", samples_of(engine, view, ""));
    pst_job_close(last);
    CHECK(samples_of(engine, view, "last") == 1 && samples_of(engine, view, "") == 1);
    CHECK(samples_of(engine, view, "set7") == 0 && view->job_count == 0);
    psti_view_free(view);
    pst_engine_free(engine);
}

static void a_long_path_keeps_its_last_part(void)
{
    pst_engine *engine = kit_engine(1, 64 * MIB);
    psti_view *view = psti_view_new();
    char path[400] = "/";
    memset(path + 1, 'a', 300);
    memcpy(path + 301, "/photos", 8);
    pst_job *job = open_named(engine, path, "decode");
    CHECK(psti_engine_look(engine, view) == 0 && view->job_count == 1);
    CHECKF(strcmp(view->jobs[0].name, "photos") == 0, "%s", view->jobs[0].name);
    CHECK(strncmp(view->jobs[0].dataset, path, sizeof view->jobs[0].dataset - 1) == 0);
    pst_job_close(job);
    psti_view_free(view);
    pst_engine_free(engine);
}

static void an_aborted_consumer_does_not_wait(void)
{
    pst_engine *engine = kit_engine(1, 64 * MIB);
    psti_view *view = psti_view_new();
    pst_batch *batch = NULL;
    pst_job *job = open_named(engine, "/a", "decode | delay(ms=1000)");
    CHECK(pst_job_next(job, 1000000, &batch) == -ETIMEDOUT);
    CHECK(psti_engine_look(engine, view) == 0 && view->jobs[0].waiting_ns > 0);
    pst_job_abort(job);
    CHECK(pst_job_next(job, patience, &batch) == -ECANCELED);
    CHECK(psti_engine_look(engine, view) == 0 && view->jobs[0].waiting_ns == 0);
    pst_job_close(job);
    psti_view_free(view);
    pst_engine_free(engine);
}

/* However much lies there of this epoch and of the next one. */
static void no_more_is_ready_than_may_be(void)
{
    enum { DEPTH = 2, LOOKS = 200 };
    pst_engine *engine = kit_engine(1, 64 * MIB);
    psti_view *view = psti_view_new();
    pst_batch *batch = NULL;
    pst_job *job = open_deep(engine, "/a", "decode", DEPTH, 3);
    for (int i = 0; i < 3 * (IMAGES + 1); i++) { /* an epoch's end is an answer, too */
        for (int k = 0; k < LOOKS; k++) {
            CHECK(psti_engine_look(engine, view) == 0 && view->jobs[0].ready_depth == DEPTH);
            CHECKF(view->jobs[0].ready <= DEPTH, "%d", (int)view->jobs[0].ready);
        }
        CHECK(pst_job_next(job, patience, &batch) >= 0);
        pst_batch_release(batch);
        batch = NULL;
    }
    pst_job_close(job);
    psti_view_free(view);
    pst_engine_free(engine);
}

/* ---- while jobs come and go ------------------------------------------------------------------ */

typedef struct onlooker {
    pst_engine *engine;
    atomic_bool end;
    uint64_t looks, samples;
} onlooker;

static uint64_t all_samples(const psti_view *view)
{
    psti_view_sums all = {0};
    for (int i = 0; i < view->job_count; i++)
        psti_view_add(&all, &view->jobs[i].sums);
    for (int i = 0; i < view->ended_count; i++)
        psti_view_add(&all, &view->ended[i].sums);
    return all.samples;
}

static void *look_on(void *arg)
{
    onlooker *o = arg;
    psti_view *view = psti_view_new();
    do {
        CHECK(psti_engine_look(o->engine, view) == 0);
        psti_engine_model(o->engine, view);
        psti_engine_judge(o->engine, view);
        const uint64_t samples = all_samples(view);
        CHECKF(samples >= o->samples, "%llu after %llu", (unsigned long long)samples,
               (unsigned long long)o->samples);
        o->samples = samples;
        o->looks++;
    } while (!atomic_load(&o->end));
    psti_view_free(view);
    return NULL;
}

static void jobs_come_and_go_while_others_look(void)
{
    pst_engine *engine = kit_engine(2, 64 * MIB);
    onlooker eyes[2] = {{.engine = engine}, {.engine = engine}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, look_on, &eyes[i]) == 0);
    for (int round = 0; round < 20; round++) {
        pst_job *one = open_named(engine, "/one", KIT_PIPELINE);
        pst_job *two = open_named(engine, "/two", KIT_PIPELINE);
        for (int i = 0; i < IMAGES; i++)
            take_one(i % 2 ? one : two);
        pst_job_close(one);
        take_one(two);
        pst_job_close(two);
    }
    for (int i = 0; i < 2; i++) {
        atomic_store(&eyes[i].end, true);
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(eyes[i].looks > 0);
    }
    psti_view *view = psti_view_new();
    CHECK(psti_engine_look(engine, view) == 0 && all_samples(view) == 20 * (IMAGES + 1));
    psti_view_free(view);
    pst_engine_free(engine);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, IMAGES, 2);
    data = kit_dataset(folder);
    RUN(totals_only_grow_when_names_run_out);
    RUN(a_long_path_keeps_its_last_part);
    RUN(an_aborted_consumer_does_not_wait);
    RUN(no_more_is_ready_than_may_be);
    RUN(jobs_come_and_go_while_others_look);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
