/* SPDX-License-Identifier: Apache-2.0
 * Opportunistic sampling in the engine: jobs that do each other's work still get every sample once
 * an epoch, no preparation twice, and the right bytes. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine_kit.h"

enum { IMAGES = 120, CLASSES = 3, JOBS = 4, EPOCHS = 5, BATCH = 8 };
#define MIB (1024ull * 1024)

static char *folder;
static pst_dataset *data;

typedef struct consumer {
    pst_job *job;
    int pace; /* batches between two short rests: how fast it is beside others */
    uint64_t epochs;
    kit_sample *got;
    size_t count;
    int answer;
} consumer;

static void consumer_init(consumer *c, pst_job *job, int pace, uint64_t epochs)
{
    *c = (consumer){.job = job, .pace = pace, .epochs = epochs};
    c->got = calloc(IMAGES * (epochs + 1), sizeof *c->got);
}

static void consumer_fini(consumer *c)
{
    pst_job_close(c->job);
    free(c->got);
}

static void *consume(void *arg)
{
    consumer *c = arg;
    uint64_t ended = 0;
    pst_batch *batch;
    while (ended < c->epochs && (c->answer = pst_job_next(c->job, -1, &batch)) >= 0) {
        if (c->answer == 0) {
            ended++;
            continue;
        }
        c->count += kit_samples(pst_batch_get(batch), &c->got[c->count]);
        for (volatile int spin = 0; spin < 20000 * c->pace; spin++)
            continue;
        pst_batch_release(batch);
    }
    return NULL;
}

/* Every sample once an epoch, no preparation twice. */
static void check_whole(const consumer *c)
{
    int seen[IMAGES];
    CHECK(c->answer == 0 && c->count == IMAGES * c->epochs);
    for (uint64_t e = 0; e < c->epochs; e++) {
        memset(seen, 0, sizeof seen);
        for (size_t i = 0; i < c->count; i++)
            if (c->got[i].epoch == e)
                seen[c->got[i].id]++;
        int wrong = 0;
        for (int i = 0; i < IMAGES; i++)
            wrong += seen[i] != 1;
        CHECKF(wrong == 0, "epoch %d: %d samples not exactly once", (int)e, wrong);
    }
    size_t twice = 0;
    for (size_t i = 0; i < c->count; i++)
        for (size_t j = 0; j < i; j++)
            twice += c->got[i].number == c->got[j].number;
    CHECKF(twice == 0, "%zu preparations came twice", twice);
}

/* The same preparation has the same sample and the same bytes for everybody. */
static int check_alike(const consumer *a, const consumer *b)
{
    int shared = 0;
    for (size_t i = 0; i < a->count; i++)
        for (size_t j = 0; j < b->count; j++)
            if (a->got[i].number == b->got[j].number) {
                shared++;
                CHECK(a->got[i].id == b->got[j].id && a->got[i].crc == b->got[j].crc);
            }
    return shared;
}

static void check_engine(pst_engine *engine)
{
    char *text = NULL;
    CHECK(pst_engine_check(engine, &text) == 0);
    if (text && *text)
        fputs(text, stderr);
    pst_free(text);
}

static void jobs_of_different_speed_share(void)
{
    static const int paces[JOBS] = {1, 2, 3, 5};
    static const int cached[] = {5, 20, 40, 100}; /* percent of the samples */
    for (size_t k = 0; k < sizeof cached / sizeof *cached; k++) {
        pst_engine *engine = kit_sharing_engine(3, IMAGES * cached[k] / 100);
        consumer c[JOBS];
        pthread_t threads[JOBS];
        for (int i = 0; i < JOBS; i++) {
            const pst_job_options o = kit_sharing_options(BATCH, (uint64_t)i + 1, EPOCHS);
            consumer_init(&c[i], kit_job(engine, data, &o), paces[i], EPOCHS);
        }
        for (int i = 0; i < JOBS; i++)
            CHECK(pthread_create(&threads[i], NULL, consume, &c[i]) == 0);
        uint64_t prepared = 0, hits = 0;
        for (int i = 0; i < JOBS; i++) {
            pthread_join(threads[i], NULL);
            pst_job_stats s = {.size = sizeof s};
            pst_job_stats_get(c[i].job, &s);
            prepared += s.preparations;
            hits += s.shared_hits;
            check_whole(&c[i]);
        }
        int shared = 0;
        for (int i = 0; i < JOBS; i++)
            for (int j = 0; j < i; j++)
                shared += check_alike(&c[i], &c[j]);
        CHECKF(hits > 0 && shared > 0, "%d %% cached: nothing was shared", cached[k]);
        CHECK(prepared + hits >= (uint64_t)JOBS * EPOCHS * IMAGES);
        check_engine(engine);
        for (int i = 0; i < JOBS; i++)
            consumer_fini(&c[i]);
        check_engine(engine);
        pst_engine_free(engine);
    }
}

static void a_job_alone_prepares_everything_and_keeps_nothing(void)
{
    pst_engine *engine = kit_sharing_engine(2, IMAGES);
    const pst_job_options o = kit_sharing_options(BATCH, 1, 2);
    consumer c;
    consumer_init(&c, kit_job(engine, data, &o), 1, 2);
    consume(&c);
    check_whole(&c);
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(c.job, &s);
    CHECK(s.shared_hits == 0 && s.form_entries[2] == 0 && s.preparations >= 2 * IMAGES);
    consumer_fini(&c);
    pst_engine_free(engine);
}

/* One job leaves in mid-epoch, another joins; the third goes on. */
static void joining_and_leaving_in_mid_epoch(void)
{
    pst_engine *engine = kit_sharing_engine(3, IMAGES);
    const pst_job_options o = kit_sharing_options(BATCH, 1, 3),
                          p = kit_sharing_options(BATCH, 2, 0);
    consumer stays, comes;
    pthread_t a, b;
    consumer_init(&stays, kit_job(engine, data, &o), 2, 3);
    pst_job *leaves = kit_job(engine, data, &p);
    CHECK(pthread_create(&a, NULL, consume, &stays) == 0);
    for (int i = 0; i < 20; i++) {
        pst_batch *batch;
        if (pst_job_next(leaves, -1, &batch) == 1)
            pst_batch_release(batch);
    }
    consumer_init(&comes, kit_job(engine, data, &o), 1, 3);
    CHECK(pthread_create(&b, NULL, consume, &comes) == 0);
    pst_job_close(leaves);
    check_engine(engine);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    check_whole(&stays);
    check_whole(&comes);
    check_alike(&stays, &comes);
    check_engine(engine);
    consumer_fini(&stays);
    consumer_fini(&comes);
    pst_engine_free(engine);
}

/* Turn by turn; what both prepared. */
static uint64_t take_turns(pst_job *const jobs[2], int batches)
{
    pst_job_stats before[2], after = {.size = sizeof after};
    uint64_t prepared = 0;
    for (int j = 0; j < 2; j++) {
        before[j].size = sizeof before[j];
        pst_job_stats_get(jobs[j], &before[j]);
    }
    for (int i = 0; i < 2 * batches; i++) {
        pst_batch *batch;
        while (pst_job_next(jobs[i % 2], -1, &batch) != 1)
            continue;
        pst_batch_release(batch);
    }
    for (int j = 0; j < 2; j++) {
        pst_job_stats_get(jobs[j], &after);
        prepared += after.preparations - before[j].preparations;
    }
    return prepared;
}

/* Samples of one job, to the end of the epoch if that is sooner. */
static void take(pst_job *job, int samples)
{
    pst_batch *batch;
    for (int answer; samples > 0 && (answer = pst_job_next(job, -1, &batch)) == 1;) {
        samples -= (int)pst_batch_get(batch)->slots;
        pst_batch_release(batch);
    }
}

/* While a job is alone, decoded samples drive augmented ones out. Who comes to it then still takes
 * its order, and they split the work: 0.59 of what they get, up to 0.71 where the machine is busy
 * and entries are valued late. With orders of their own they prepare 0.87, so little is cached. */
static void whoever_comes_at_the_beginning_of_anothers_epoch_takes_its_order(void)
{
    enum { MANY = 900, PAIR = 2, STEPS = MANY / PAIR };
    char *many = kit_folder();
    kit_images(many, MANY, CLASSES);
    pst_dataset *set = kit_dataset(many);
    pst_engine_options small;
    pst_engine_options_init(&small);
    small.workers = 2;
    small.cache_bytes = 64 * 1024;
    small.memory_bytes = 64 * MIB;
    pst_engine *engine = kit_engine_with(&small);
    const pst_job_options o = kit_sharing_options(PAIR, 1, 0);
    pst_job *first = kit_job(engine, set, &o), *leaves = kit_job(engine, set, &o);
    take_turns((pst_job *const[]){first, leaves}, STEPS);
    pst_job_close(leaves);
    pst_job_stats s = {.size = sizeof s};
    for (int epoch = 0; epoch < 1000; epoch++) {
        take(first, MANY + 1); /* and it has been told of its end */
        pst_job_stats_get(first, &s);
        if (s.form_entries[2] < 24)
            break;
    }
    CHECKF(s.form_entries[2] < 24, "%lu are kept for nobody", (unsigned long)s.form_entries[2]);
    take(first, 20);
    pst_job *comes = kit_job(engine, set, &o);
    const uint64_t prepared = take_turns((pst_job *const[]){first, comes}, STEPS - 8);
#if !defined(__SANITIZE_THREAD__) &&                                                               \
    !defined(__SANITIZE_ADDRESS__) /* they change what things cost */
    CHECKF(prepared < 0.79 * 2 * MANY, "%lu of %d were prepared", (unsigned long)prepared,
           2 * MANY);
#else
    (void)prepared;
#endif
    pst_job_close(first);
    pst_job_close(comes);
    pst_engine_free(engine);
    pst_dataset_close(set);
    kit_remove(many);
}

static void a_state_goes_on_with_what_is_left(void)
{
    pst_engine *engine = kit_sharing_engine(3, IMAGES);
    const pst_job_options o = kit_sharing_options(BATCH, 1, 2);
    pst_job *other = kit_job(engine, data, &o);
    pst_job *job = kit_job(engine, data, &o);
    consumer c;
    consumer_init(&c, job, 1, 2);
    for (int i = 0; i < 7; i++) {
        pst_batch *batch;
        CHECK(pst_job_next(job, -1, &batch) == 1);
        c.count += kit_samples(pst_batch_get(batch), &c.got[c.count]);
        pst_batch_release(batch);
    }
    uint8_t state[16384];
    size_t bytes;
    CHECK(pst_job_state(job, state, sizeof state, &bytes) == 0);
    pst_job_close(job);
    c.job = kit_job(engine, data, &o);
    pst_error err;
    CHECKF(pst_job_load_state(c.job, state, bytes, &err) == 0, "%s", err.message);
    consume(&c);
    check_whole(&c);
    pst_job_close(other);
    consumer_fini(&c);
    check_engine(engine);
    pst_engine_free(engine);
}

/* Two ranks and a job of one: each rank gets its part, both together every sample once an epoch. */
static void ranks_that_share_get_their_parts(void)
{
    enum { WORLD = 2, ALL = WORLD + 1 };
    pst_engine *engine = kit_sharing_engine(3, IMAGES / 2);
    consumer c[ALL];
    pthread_t threads[ALL];
    for (int i = 0; i < ALL; i++) {
        pst_job_options o = kit_sharing_options(BATCH, 5, 3);
        o.rank = i < WORLD ? i : 0;
        o.world = i < WORLD ? WORLD : 1;
        o.ends = PST_ENDS_SHORT;
        consumer_init(&c[i], kit_job(engine, data, &o), 1, 3);
    }
    for (int i = 0; i < ALL; i++)
        CHECK(pthread_create(&threads[i], NULL, consume, &c[i]) == 0);
    for (int i = 0; i < ALL; i++)
        pthread_join(threads[i], NULL);
    check_whole(&c[WORLD]);
    int seen[3][IMAGES] = {0}, wrong = 0;
    for (int i = 0; i < WORLD; i++) {
        CHECK(c[i].count >= 3 * (IMAGES / WORLD - BATCH));
        for (size_t k = 0; k < c[i].count; k++)
            seen[c[i].got[k].epoch][c[i].got[k].id]++;
    }
    for (int e = 0; e < 3; e++)
        for (int i = 0; i < IMAGES; i++)
            wrong += seen[e][i] != 1;
    CHECKF(wrong == 0, "%d samples not exactly once", wrong);
    CHECK(check_alike(&c[0], &c[WORLD]) > 0 && check_alike(&c[1], &c[WORLD]) > 0);
    check_engine(engine);
    for (int i = 0; i < ALL; i++)
        consumer_fini(&c[i]);
    pst_engine_free(engine);
}

static uint8_t *picture;
static size_t picture_bytes;

static int read_picture(void *user, int64_t id, pst_sink *sink, pst_error *err)
{
    (void)user, (void)err;
    pst_sink_int(sink, 1, id % CLASSES);
    return pst_sink_bytes(sink, 0, picture, picture_bytes);
}

/* Workers open a rank's epochs without the lock, whatever happens to the job meanwhile. There are
 * so many samples that this takes a while. */
static void epochs_that_are_given_up_while_they_are_opened(void)
{
    pst_custom many;
    pst_dataset *pictures;
    pst_custom_init(&many);
    many.count = 20000;
    many.name = "many";
    many.read = read_picture;
    picture = kit_jpeg(20, 20, 1, false, &picture_bytes);
    CHECK(pst_dataset_custom(&many, &pictures, NULL) == 0);
    pst_engine *engine = kit_sharing_engine(3, IMAGES);
    pst_job_options o = kit_sharing_options(BATCH, 5, 0);
    o.world = 2;
    pst_job *job = kit_job(engine, pictures, &o);
    for (uint64_t i = 0; i < 30; i++) {
        pst_batch *batch;
        CHECK(pst_job_set_epoch(job, 100 + i) == 0); /* a worker begins with it */
        pst_job_close(kit_job(engine, pictures, &o));
        CHECK(pst_job_set_epoch(job, i) == 0);
        CHECK(pst_job_next(job, -1, &batch) == 1 && pst_batch_get(batch)->epoch == i);
        pst_batch_release(batch);
    }
    pst_job_close(job);
    check_engine(engine);
    pst_engine_free(engine);
    pst_dataset_close(pictures);
    free(picture);
}

static void what_it_cannot_go_with_is_said(void)
{
    pst_engine *engine = kit_sharing_engine(1, IMAGES);
    pst_engine *without = kit_engine(1, 64 * MIB);
    pst_job *job;
    pst_error err;
    pst_job_options o = kit_sharing_options(BATCH, 1, 1);
    o.order = PST_ORDER_STRICT;
    CHECK(pst_job_open(engine, data, &o, &job, &err) == -EINVAL && strstr(err.message, "ready"));
    o = kit_sharing_options(BATCH, 1, 1);
    o.repeat = 2;
    CHECK(pst_job_open(engine, data, &o, &job, &err) == -EINVAL && strstr(err.message, "once"));
    o = kit_sharing_options(BATCH, 1, 1);
    CHECK(pst_job_open(without, data, &o, &job, &err) == -EINVAL && strstr(err.message, "cache"));
    pst_engine_free(engine);
    pst_engine_free(without);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, IMAGES, CLASSES);
    data = kit_dataset(folder);
    RUN(a_job_alone_prepares_everything_and_keeps_nothing);
    RUN(jobs_of_different_speed_share);
    RUN(joining_and_leaving_in_mid_epoch);
    RUN(whoever_comes_at_the_beginning_of_anothers_epoch_takes_its_order);
    RUN(a_state_goes_on_with_what_is_left);
    RUN(ranks_that_share_get_their_parts);
    RUN(epochs_that_are_given_up_while_they_are_opened);
    RUN(what_it_cannot_go_with_is_said);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
