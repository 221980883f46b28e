/* SPDX-License-Identifier: Apache-2.0
 * Engines of one group that lend each other preparations through the remote tier, for
 * test_adopt.py: adopt_tool URL WHAT. All of a run's jobs are read by one thread, turn by turn, so
 * that none gets far ahead of the others. Prints what was met as a line of JSON; what must hold
 * however late the server answers is checked here.
 *
 *     two      an engine with a job and another, no decoded samples in memory
 *     cached   the same with decoded samples in memory
 *     three    two jobs in one engine and one in another
 *     own      an engine alone
 *     moved    a job that goes on in another engine from its state */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine_kit.h"

/* Of such pictures no two crops are alike by chance. */
enum { IMAGES = 128, CLASSES = 2, EPOCHS = 3, BATCH = 8, SIDE = 240, JOBS_MAX = 3 };
#define PIPELINE "decode | random_resized_crop(16) | delay(3) | hflip | normalize(imagenet)"

typedef struct reader {
    pst_job *job;
    int engine;
    kit_sample got[IMAGES * EPOCHS];
    size_t count;
    uint64_t ended; /* epochs */
} reader;

static const char *url;
static pst_dataset *data;
static reader readers[JOBS_MAX];

static pst_engine *engine_new(uint64_t decoded)
{
    pst_engine_options o;
    pst_engine_options_init(&o);
    o.workers = 3;
    o.cache_bytes = 4 << 20;
    o.memory_bytes = 128 << 20;
    o.forms[1] = decoded ? 0.75 : 0;
    o.forms[2] = 0.25;
    o.remote = url;
    return kit_engine_with(&o);
}

static pst_job *job_new(pst_engine *engine)
{
    pst_job_options o = kit_sharing_options(BATCH, 1, EPOCHS);
    o.pipeline = PIPELINE;
    return kit_job(engine, data, &o);
}

/* One batch, or the end of an epoch. */
static void turn(reader *r)
{
    pst_batch *batch;
    const int answer = pst_job_next(r->job, -1, &batch);
    CHECKF(answer >= 0, "a job ended with %d", answer);
    r->ended = answer < 0 ? EPOCHS : r->ended + (answer == 0);
    if (answer != 1)
        return;
    r->count += kit_samples(pst_batch_get(batch), &r->got[r->count]);
    pst_batch_release(batch);
}

static void read_all(int jobs)
{
    bool more = true;
    while (more) {
        more = false;
        for (int j = 0; j < jobs; j++)
            if (readers[j].ended < EPOCHS) {
                turn(&readers[j]);
                more = true;
            }
    }
}

static bool same(const kit_sample *a, const kit_sample *b)
{
    return a->id == b->id && a->crc == b->crc;
}

/* Every sample once an epoch, and never the same bytes again. */
static void check_whole(const reader *r)
{
    int seen[EPOCHS][IMAGES] = {0}, wrong = 0, twice = 0;
    for (size_t i = 0; i < r->count; i++) {
        seen[r->got[i].epoch][r->got[i].id]++;
        for (size_t j = 0; j < i; j++)
            twice += same(&r->got[i], &r->got[j]);
    }
    for (int e = 0; e < EPOCHS; e++)
        for (int i = 0; i < IMAGES; i++)
            wrong += seen[e][i] != 1;
    CHECKF(wrong == 0, "%d samples not exactly once", wrong);
    CHECKF(twice == 0, "%d preparations came to one job twice", twice);
}

/* Whether any job of the engine that comes before that place got it. */
static bool met_before(int engine, const reader *until, size_t place, const kit_sample *what)
{
    for (const reader *r = readers; r <= until; r++)
        for (size_t i = 0; r->engine == engine && i < (r == until ? place : r->count); i++)
            if (same(&r->got[i], what))
                return true;
    return false;
}

/* Preparations that jobs of both engines got. */
static uint64_t met_by_both(int jobs)
{
    uint64_t both = 0;
    for (const reader *r = readers; r < readers + jobs; r++)
        for (size_t i = 0; r->engine == 0 && i < r->count; i++) {
            const reader *last = &readers[jobs - 1];
            both +=
                !met_before(0, r, i, &r->got[i]) && met_before(1, last, last->count, &r->got[i]);
        }
    return both;
}

static pst_job_stats stats_of(pst_job *job)
{
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(job, &s);
    return s;
}

/* What is adopted is what the other engine made, to the byte, and each is adopted once. */
static void tell(int jobs)
{
    uint64_t prepared = 0, adopted = 0, shared = 0, errors[2] = {0};
    for (int j = 0; j < jobs; j++) {
        const pst_job_stats s = stats_of(readers[j].job);
        prepared += s.preparations;
        adopted += s.adopted;
        shared += s.shared_hits;
        errors[readers[j].engine] = s.remote_errors;
    }
    const uint64_t both = met_by_both(jobs);
    CHECKF(both == adopted, "%lu were adopted, %lu are in both engines", adopted, both);
    CHECK(prepared + adopted + shared == (uint64_t)jobs * EPOCHS * IMAGES);
    printf("{\"samples\": %d, \"prepared\": %lu, \"adopted\": %lu, \"shared\": %lu, "
           "\"errors\": %lu}\n",
           jobs * EPOCHS * IMAGES, prepared, adopted, shared, errors[0] + errors[1]);
}

static void run(int jobs, int engines, bool decoded)
{
    pst_engine *both[2] = {engine_new(decoded), engines > 1 ? engine_new(decoded) : NULL};
    for (int j = 0; j < jobs; j++) {
        readers[j].engine = j % engines;
        readers[j].job = job_new(both[j % engines]);
    }
    read_all(jobs);
    for (int j = 0; j < jobs; j++)
        check_whole(&readers[j]);
    tell(jobs);
    for (int j = 0; j < jobs; j++)
        pst_job_close(readers[j].job);
    for (int e = 0; e < engines; e++) {
        CHECK(pst_engine_check(both[e], NULL) == 0);
        pst_engine_free(both[e]);
    }
}

/* What it had in its first engine still lies there when it comes to the second. */
static void moved(void)
{
    enum { FIRST = IMAGES / BATCH * 3 / 2 };
    uint8_t state[16384];
    size_t bytes;
    pst_error err;
    reader *r = &readers[0];
    pst_engine *first = engine_new(false), *second = engine_new(false);
    r->job = job_new(first);
    for (int i = 0; i < FIRST + 1; i++) /* and the end of an epoch */
        turn(r);
    CHECK(pst_job_state(r->job, state, sizeof state, &bytes) == 0);
    pst_job_close(r->job);
    pst_engine_free(first);
    r->job = job_new(second);
    CHECKF(pst_job_load_state(r->job, state, bytes, &err) == 0, "%s", err.message);
    read_all(1);
    check_whole(r);
    /* Work begins before the state is loaded: that much is adopted for nobody. */
    const pst_job_stats s = stats_of(r->job);
    CHECKF(s.adopted <= 6 * BATCH, "%lu were adopted", s.adopted);
    printf("{\"samples\": %d, \"prepared\": %lu, \"adopted\": %lu, \"errors\": %lu}\n",
           EPOCHS * IMAGES, s.preparations, s.adopted, s.remote_errors);
    pst_job_close(r->job);
    pst_engine_free(second);
}

static void make_images(const char *folder)
{
    kit_images(folder, 0, CLASSES);
    for (int i = 0; i < IMAGES; i++) {
        char name[64];
        size_t size;
        uint8_t *jpeg = kit_jpeg(SIDE, SIDE, (unsigned)i + 1, false, &size);
        kit_name(i, CLASSES, name);
        kit_write(folder, name, jpeg, size);
        free(jpeg);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    url = argv[1];
    const char *what = argv[2];
    char *folder = kit_folder();
    make_images(folder);
    data = kit_dataset(folder);
    if (strcmp(what, "two") == 0 || strcmp(what, "cached") == 0)
        run(2, 2, strcmp(what, "cached") == 0);
    else if (strcmp(what, "three") == 0)
        run(3, 2, false);
    else if (strcmp(what, "own") == 0)
        run(1, 1, false);
    else
        moved();
    pst_dataset_close(data);
    kit_remove(folder);
    return check_in_behaviour != 0;
}
