/* SPDX-License-Identifier: Apache-2.0
 * Several jobs on one dataset: together on one engine, sharing preparations or not, or each on an
 * engine of its own with its part of workers and memory.
 *
 *   jobs DATA [--jobs N] [--how shared|plain|apart] [--samples-cached SHARE] [--workers N]
 *        [--seconds S] [--skip S] [--batch B] [--pipeline TEXT] [--paces 1,2,3,5] [--forms E:D:A]
 *        [--cache BYTES] [--skip-samples N] [--samples N] [--take each|turn]
 *
 * Prints one line of JSON: samples a second together and of each job, CPU seconds per 1,000, how
 * many samples were prepared for each one delivered. What comes before --skip seconds does not
 * count; --skip-samples and --samples count deliveries to all jobs instead of seconds, so that a
 * busy machine measures the same part of the run as a quiet one. --take turn: one thread takes a
 * batch of each job in turn, so that jobs are equal however busy the machine is. Paces: job i waits
 * so long after each batch that its rate is in that proportion; 0: as fast as it can. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clocks.h"
#include "penstock.h"

enum { JOBS_MOST = 16 };

typedef struct setup {
    const char *data, *how, *pipeline;
    int jobs, workers, batch;
    bool turn; /* one thread takes of all jobs */
    double cached, seconds, skip, pace[JOBS_MOST], forms[3];
    double memory, cache;         /* bytes; cache: in place of `cached`, if not 0 */
    double skip_samples, samples; /* in place of skip and seconds, if not 0 */
} setup;

typedef struct runner {
    pst_job *job;
    double pace; /* seconds a batch at least; 0 = none */
    atomic_uint_fast64_t samples;
    atomic_bool *stop;
    pthread_t thread;
    struct runner *next;
} runner;

static void rest(double seconds)
{
    const struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    if (seconds > 0)
        nanosleep(&t, NULL);
}

static void fail(const pst_error *err)
{
    fprintf(stderr, "jobs: %s\n", err->message);
    exit(1);
}

static bool take_one(runner *r)
{
    pst_batch *batch;
    if (pst_job_next(r->job, 100000000, &batch) != 1)
        return false;
    atomic_fetch_add(&r->samples, pst_batch_get(batch)->valid_slots);
    pst_batch_release(batch);
    return true;
}

static void *take(void *arg)
{
    runner *r = arg;
    double due = wall_seconds();
    while (!atomic_load(r->stop)) {
        if (!take_one(r))
            continue;
        due += r->pace;
        rest(due - wall_seconds());
    }
    return NULL;
}

/* An epoch's end is nobody's batch, but it comes to all jobs alike. */
static void *take_in_turn(void *arg)
{
    runner *first = arg;
    while (!atomic_load(first->stop))
        for (runner *r = first; r; r = r->next)
            while (!take_one(r) && !atomic_load(r->stop))
                ;
    return NULL;
}

static pst_engine *engine_of(const setup *s, int share, uint64_t cache)
{
    pst_engine_options o;
    pst_engine_options_init(&o);
    o.workers = s->workers / share > 0 ? s->workers / share : 1;
    o.cache_bytes = cache / (uint64_t)share;
    o.memory_bytes = o.cache_bytes + (uint64_t)(s->memory / share);
    memcpy(o.forms, s->forms, sizeof o.forms);
    pst_engine *engine;
    pst_error err;
    if (pst_engine_new(&o, &engine, &err) < 0)
        fail(&err);
    return engine;
}

static pst_job *job_of(const setup *s, pst_engine *engine, pst_dataset *data, int number)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = s->pipeline;
    o.batch = s->batch;
    o.seed = (uint64_t)number;
    o.order = PST_ORDER_READY;
    if (strcmp(s->how, "shared") == 0)
        o.sampling = PST_SAMPLING_OPPORTUNISTIC;
    pst_job *job;
    pst_error err;
    if (pst_job_open(engine, data, &o, &job, &err) < 0)
        fail(&err);
    return job;
}

typedef struct reading {
    double at, cpu;
    uint64_t samples[JOBS_MOST], prepared, shared, decoded;
} reading;

static reading read_all(const setup *s, runner *r)
{
    reading x = {.at = wall_seconds(), .cpu = cpu_seconds()};
    for (int i = 0; i < s->jobs; i++) {
        pst_job_stats stats = {.size = sizeof stats};
        pst_job_stats_get(r[i].job, &stats);
        x.samples[i] = atomic_load(&r[i].samples);
        x.prepared += stats.preparations;
        x.shared += stats.shared_hits;
        x.decoded += stats.cache_hits;
    }
    return x;
}

static void report(const setup *s, runner *r, const reading *a, const reading *b)
{
    const double seconds = b->at - a->at;
    uint64_t all = 0;
    for (int i = 0; i < s->jobs; i++)
        all += b->samples[i] - a->samples[i];
    pst_job_stats stats = {.size = sizeof stats};
    pst_job_stats_get(r[0].job, &stats);
    printf("{\"how\": \"%s\", \"jobs\": %d, \"rate\": %.1f, \"rates\": [", s->how, s->jobs,
           (double)all / seconds);
    for (int i = 0; i < s->jobs; i++)
        printf("%s%.1f", i ? ", " : "", (double)(b->samples[i] - a->samples[i]) / seconds);
    const uint64_t prepared = b->prepared - a->prepared, shared = b->shared - a->shared;
    printf("], \"cpu_s_per_1000\": %.4f, \"prepared\": %.4f, \"from_decoded\": %.4f, "
           "\"entries\": [%llu, %llu, %llu], \"evictions\": %llu}\n",
           1000 * (b->cpu - a->cpu) / (double)all, (double)prepared / (double)(prepared + shared),
           (double)(b->decoded - a->decoded) / (double)(prepared + shared),
           (unsigned long long)stats.form_entries[0], (unsigned long long)stats.form_entries[1],
           (unsigned long long)stats.form_entries[2], (unsigned long long)stats.evictions);
}

/* So many seconds, or until so many samples were delivered. */
static void wait_for(const setup *s, runner *r, double seconds, double samples)
{
    double seen = 0;
    while (samples > 0 && seen < samples) {
        rest(0.005);
        seen = 0;
        for (int i = 0; i < s->jobs; i++)
            seen += (double)atomic_load(&r[i].samples);
    }
    if (samples <= 0)
        rest(seconds);
}

static void run(const setup *s)
{
    pst_error err;
    pst_dataset *data;
    if (pst_dataset_open(s->data, NULL, &data, &err) < 0)
        fail(&err);
    const bool apart = strcmp(s->how, "apart") == 0;
    /* An entry of 224 x 224 bytes in RGB and what goes with it. */
    const double wanted = s->cached * (double)pst_dataset_count(data) * (224 * 224 * 3 + 700);
    const uint64_t cache = s->cache > 0 ? (uint64_t)s->cache : (uint64_t)wanted + (1 << 20);
    pst_engine *engines[JOBS_MOST] = {0};
    runner r[JOBS_MOST] = {0};
    atomic_bool stop = false;
    for (int i = 0; i < s->jobs; i++) {
        if (i == 0 || apart)
            engines[i] =
                engine_of(s, apart ? s->jobs : 1, s->cached > 0 || s->cache > 0 ? cache : 0);
        r[i].job = job_of(s, engines[apart ? i : 0], data, i);
        r[i].pace = s->pace[i];
        r[i].stop = &stop;
    }
    for (int i = 0; i + 1 < s->jobs; i++)
        r[i].next = &r[i + 1];
    const int threads = s->turn ? 1 : s->jobs;
    for (int i = 0; i < threads; i++)
        pthread_create(&r[i].thread, NULL, s->turn ? take_in_turn : take, &r[i]);
    wait_for(s, r, s->skip, s->skip_samples);
    const reading a = read_all(s, r);
    wait_for(s, r, s->seconds, s->samples > 0 ? s->skip_samples + s->samples : 0);
    const reading b = read_all(s, r);
    report(s, r, &a, &b);
    atomic_store(&stop, true);
    for (int i = 0; i < threads; i++)
        pthread_join(r[i].thread, NULL);
    for (int i = 0; i < s->jobs; i++)
        pst_job_close(r[i].job);
    for (int i = 0; i < s->jobs; i++)
        pst_engine_free(engines[i]);
    pst_dataset_close(data);
}

static void list_of(const char *text, double *out, int most)
{
    char *end;
    for (int i = 0; i < most; i++) {
        out[i] = strtod(text, &end);
        if (end == text || !*end)
            return;
        text = end + 1;
    }
}

int main(int argc, char **argv)
{
    setup s = {.how = "shared",
               .pipeline = "decode | random_resized_crop(224) | hflip | normalize(imagenet)",
               .jobs = 4,
               .workers = 2,
               .batch = 32,
               .cached = 0.2,
               .seconds = 15,
               .skip = 10,
               .memory = 1.2e9};
    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: jobs DATA [--how shared|plain|apart] [--jobs N] …\n");
        return 2;
    }
    s.data = argv[1];
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--how") == 0)
            s.how = value;
        else if (strcmp(name, "--pipeline") == 0)
            s.pipeline = value;
        else if (strcmp(name, "--jobs") == 0)
            s.jobs = atoi(value);
        else if (strcmp(name, "--workers") == 0)
            s.workers = atoi(value);
        else if (strcmp(name, "--batch") == 0)
            s.batch = atoi(value);
        else if (strcmp(name, "--samples-cached") == 0)
            s.cached = atof(value);
        else if (strcmp(name, "--cache") == 0)
            s.cache = atof(value);
        else if (strcmp(name, "--seconds") == 0)
            s.seconds = atof(value);
        else if (strcmp(name, "--skip") == 0)
            s.skip = atof(value);
        else if (strcmp(name, "--skip-samples") == 0)
            s.skip_samples = atof(value);
        else if (strcmp(name, "--samples") == 0)
            s.samples = atof(value);
        else if (strcmp(name, "--take") == 0)
            s.turn = strcmp(value, "turn") == 0;
        else if (strcmp(name, "--paces") == 0)
            list_of(value, s.pace, JOBS_MOST);
        else if (strcmp(name, "--forms") == 0)
            list_of(value, s.forms, 3);
    }
    s.jobs = s.jobs < 1 ? 1 : s.jobs > JOBS_MOST ? JOBS_MOST : s.jobs;
    run(&s);
    return 0;
}
