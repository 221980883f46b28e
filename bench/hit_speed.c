/* SPDX-License-Identifier: Apache-2.0
 * How fast samples that another job prepared are delivered as u8, beside memcpy of as many bytes
 * with as many threads. One job does a whole epoch while another of its group has barely begun and
 * wants all of it; then the second takes the rest of its epoch, which is hits alone.
 *
 *   hit_speed DATA [--workers N] [--batch B]
 *
 * DATA has some thousand samples at most: all are kept. Prints one line of JSON. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clocks.h"
#include "penstock.h"

enum { SIDE = 224, BYTES = SIDE * SIDE * 3, THREADS_MOST = 64, REPEATS = 5 };

static void fail(const char *what)
{
    fprintf(stderr, "hit_speed: %s\n", what);
    exit(1);
}

static pst_job *job_of(pst_engine *engine, pst_dataset *data, int batch, uint64_t seed)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = "decode | random_resized_crop(224) | hflip";
    o.fields = "image";
    o.batch = batch;
    o.seed = seed;
    o.epochs = 1;
    o.order = PST_ORDER_READY;
    o.sampling = PST_SAMPLING_OPPORTUNISTIC;
    pst_job *job;
    pst_error err;
    if (pst_job_open(engine, data, &o, &job, &err) < 0)
        fail(err.message);
    return job;
}

/* The next batch's samples; 0 at the end of the epoch. */
static uint64_t take(pst_job *job)
{
    pst_batch *batch;
    const int rc = pst_job_next(job, -1, &batch);
    if (rc < 0)
        fail(pst_strerror(rc));
    if (rc == 0)
        return 0;
    const pst_batch_desc *desc = pst_batch_get(batch);
    const uint64_t samples = desc->valid_slots;
    if (pst_batch_find(desc, "image")->dtype != PST_U8)
        fail("the pipeline does not deliver u8");
    pst_batch_release(batch);
    return samples;
}

static uint64_t prepared(pst_job *job)
{
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(job, &s);
    return s.preparations;
}

/* ---- memcpy ---------------------------------------------------------------------------------- */

typedef struct copier {
    pthread_t thread;
    uint8_t *from;
    uint64_t first, count, step, batch;
} copier;

/* From samples that lie all over memory into batches that are written again and again. */
static void *copy(void *arg)
{
    const copier *c = arg;
    uint8_t *to = malloc(4 * c->batch * BYTES);
    if (!to)
        fail("out of memory");
    memset(to, 1, 4 * c->batch * BYTES);
    for (int r = 0; r < REPEATS; r++)
        for (uint64_t i = c->first; i < c->count; i += c->step)
            memcpy(to + i / c->step % (4 * c->batch) * BYTES, c->from + i * 7919 % c->count * BYTES,
                   BYTES);
    free(to);
    return NULL;
}

/* Bytes a second. */
static double copy_speed(uint64_t samples, int threads, int batch)
{
    uint8_t *from = malloc(samples * BYTES);
    copier c[THREADS_MOST];
    if (!from)
        fail("out of memory");
    memset(from, 7, samples * BYTES);
    const double start = wall_seconds();
    for (int i = 0; i < threads; i++) {
        c[i] = (copier){.from = from, .first = (uint64_t)i, .count = samples};
        c[i].step = (uint64_t)threads;
        c[i].batch = (uint64_t)batch;
        if (pthread_create(&c[i].thread, NULL, copy, &c[i]))
            fail("cannot start a thread");
    }
    for (int i = 0; i < threads; i++)
        pthread_join(c[i].thread, NULL);
    const double seconds = wall_seconds() - start;
    free(from);
    return (double)samples * BYTES * REPEATS / seconds;
}

int main(int argc, char **argv)
{
    int workers = 2, batch = 32;
    pst_dataset *data;
    pst_engine *engine;
    pst_error err;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--workers") == 0)
            workers = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--batch") == 0)
            batch = atoi(argv[i + 1]);
    }
    if (argc < 2 || workers < 1 || workers > THREADS_MOST || batch < 1)
        fail("usage: hit_speed DATA [--workers N] [--batch B]");
    if (pst_dataset_open(argv[1], NULL, &data, &err) < 0)
        fail(err.message);
    const uint64_t count = (uint64_t)pst_dataset_count(data);
    pst_engine_options o;
    pst_engine_options_init(&o);
    o.workers = workers;
    o.cache_bytes = count * (BYTES + 2048) * 5 / 4 + (1 << 20);
    o.memory_bytes = o.cache_bytes + (512 << 20);
    o.forms[2] = 1;
    if (pst_engine_new(&o, &engine, &err) < 0)
        fail(err.message);
    pst_job *first = job_of(engine, data, batch, 1), *second = job_of(engine, data, batch, 2);
    while (take(first))
        continue;
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(second, &s);
    for (uint32_t i = 0; i < s.ready_depth + 2; i++) /* what it had prepared itself */
        take(second);
    const uint64_t before = prepared(second);
    uint64_t samples = 0, more;
    const double start = wall_seconds(), used = cpu_seconds();
    while ((more = take(second)) > 0)
        samples += more;
    const double seconds = wall_seconds() - start, cpu_s = cpu_seconds() - used;
    const uint64_t made = prepared(second) - before;
    pst_job_close(first);
    pst_job_close(second);
    pst_engine_free(engine);
    pst_dataset_close(data);
    double copied = 0;
    for (int i = 0; i < 3; i++) {
        const double speed = copy_speed(count, workers, batch);
        copied = speed > copied ? speed : copied;
    }
    const double hits = (double)samples * BYTES / seconds;
    printf("{\"samples\": %llu, \"prepared\": %llu, \"rate\": %.0f, \"gb_s\": %.3f, "
           "\"memcpy_gb_s\": %.3f, \"of_memcpy\": %.3f, \"cpu_s_per_1000\": %.4f}\n",
           (unsigned long long)samples, (unsigned long long)made, (double)samples / seconds,
           1e-9 * hits, 1e-9 * copied, hits / copied, 1000 * cpu_s / (double)samples);
    return 0;
}
