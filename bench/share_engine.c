/* SPDX-License-Identifier: Apache-2.0
 * What sharing saves on the engine itself, and what it does to the order of each job: the cases of
 * bench/share_sim.c through the public API, on pictures so small that preparing them is nearly
 * free. One thread takes batches for all jobs in the order in which consumers of the given rates
 * would, counted in deliveries, so the speed of the machine plays no part; the engine's workers run
 * free. Ready queues together hold at most a quarter of the cached entries.
 *
 *   share_engine [--samples N] [--epochs E] [--order-samples N] [--order-epochs E] [--case I]
 *                [--workers W]
 *
 * Prints a line for each case to standard error and JSON to standard output. Epochs are those of
 * the slowest job; every job's deliveries count from its first on. Exit status 1 when a target is
 * missed. */
#include <ftw.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include "order_stats.h"
#include "penstock.h"

enum {
    MAX_JOBS = 4,
    LAGS = 5,
    BATCH_MOST = 16,
    DEPTH = 1,
    ENTRY_BYTES = 1152, /* of the cache, for 16 x 16 in RGB; what it came to is printed */
    NOTICE = 256        /* batches between two looks at the counters */
};

typedef struct scenario {
    const char *name;
    int jobs;
    double rate[MAX_JOBS], offset[MAX_JOBS]; /* offset: epochs of its own */
    double cached, target;                   /* preparations per delivery */
} scenario;

static const scenario scenarios[] = {
    {"3 equal, within 2 %", 3, {1, 1, 1}, {0, .01, .02}, .05, 1.05 / 3},
    {"3 equal, within 15 %", 3, {1, 1, 1}, {0, .1, .15}, .20, 1.10 / 3},
    {"1 : 2 : 3 : 5", 4, {1, 2, 3, 5}, {0}, .20, 1.25 * 5 / 11},
    {"1 : 2 : 3 : 5", 4, {1, 2, 3, 5}, {0}, .05, 1.60 * 5 / 11},
    {"4 equal at 0, .3, .7, .1", 4, {1, 1, 1, 1}, {0, .3, .7, .1}, .20, .52},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

typedef struct settings {
    int samples, epochs, workers;
} settings;

typedef struct consumer {
    pst_job *job;
    double next;                /* when it takes its next batch, in deliveries of a job of rate 1 */
    int ended;                  /* epochs */
    int rows;                   /* epochs there is room for */
    uint32_t delivered, *place; /* of the open epoch; [epoch][id] */
} consumer;

typedef struct outcome {
    double ratio, bound, seconds;
    uint64_t deliveries, entries; /* entries: most that were seen */
    int batch;
    double worst[LAGS], position_p, class_p, holm_p;
} outcome;

static void fail(const char *what)
{
    fprintf(stderr, "share_engine: %s\n", what);
    exit(2);
}

/* ---- data ------------------------------------------------------------------------------------ */

static void write_picture(const char *path)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    FILE *out = fopen(path, "wb");
    if (!out)
        fail(path);
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, out);
    c.image_width = c.image_height = 16;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    JSAMPLE row[48];
    for (int y = 0; y < 16; y++) {
        for (int x = 0; x < 48; x++)
            row[x] = (JSAMPLE)(x * 5 + y * 7);
        JSAMPROW rows[1] = {row};
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    fclose(out);
}

/* One picture under many names: each name is a sample of its own. Ten classes, runs of ids. */
static pst_dataset *make_data(const char *folder, int samples)
{
    char first[512], path[512];
    snprintf(first, sizeof first, "%s.jpg", folder);
    if (mkdir(folder, 0755))
        fail(folder);
    write_picture(first);
    for (int i = 0; i < samples; i++) {
        const int label = (int)((int64_t)i * ORDER_CLASSES / samples);
        snprintf(path, sizeof path, "%s/%02d", folder, label);
        mkdir(path, 0755);
        snprintf(path, sizeof path, "%s/%02d/%07d.jpg", folder, label, i);
        if (link(first, path))
            fail(path);
    }
    pst_dataset_options o;
    pst_dataset_options_init(&o);
    o.index_dir = "";
    pst_dataset *data;
    pst_error err;
    if (pst_dataset_open(folder, &o, &data, &err) < 0)
        fail(err.message);
    return data;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

/* ---- running --------------------------------------------------------------------------------- */

/* The cache is a little larger than its augmented part, which is exactly what was asked for. */
static pst_engine *engine_of(const scenario *sc, const settings *set)
{
    const double bytes = floor(sc->cached * set->samples) * ENTRY_BYTES;
    pst_engine_options o;
    pst_engine_options_init(&o);
    o.workers = set->workers;
    o.cache_bytes = (uint64_t)(1.1 * bytes) + (128 << 10);
    o.memory_bytes = o.cache_bytes + (128 << 20);
    o.forms[2] = bytes / (double)o.cache_bytes;
    pst_engine *engine;
    pst_error err;
    if (pst_engine_new(&o, &engine, &err) < 0)
        fail(err.message);
    return engine;
}

/* A job has at most depth + 1 batches that are ready or on their way. */
static int batch_of(const scenario *sc, const settings *set)
{
    const int part = (int)(sc->cached * set->samples / 4 / sc->jobs / (DEPTH + 1));
    return part < 1 ? 1 : part > BATCH_MOST ? BATCH_MOST : part;
}

static pst_job *job_of(pst_engine *engine, pst_dataset *data, int number, int batch)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = "decode | random_resized_crop(16) | hflip | normalize(imagenet)";
    o.fields = "image";
    o.batch = batch;
    o.seed = (uint64_t)number;
    o.order = PST_ORDER_READY;
    o.sampling = PST_SAMPLING_OPPORTUNISTIC;
    o.ready_depth = DEPTH;
    pst_job *job;
    pst_error err;
    if (pst_job_open(engine, data, &o, &job, &err) < 0)
        fail(err.message);
    return job;
}

static void note(consumer *c, const pst_batch_desc *desc, const settings *set)
{
    const size_t n = (size_t)set->samples;
    const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
    if (c->ended == c->rows) {
        c->rows += set->epochs;
        c->place = realloc(c->place, (size_t)c->rows * n * sizeof *c->place);
        if (!c->place)
            fail("out of memory");
    }
    for (uint32_t i = 0; i < desc->slots; i++)
        c->place[(size_t)c->ended * n + (size_t)ids[i]] = c->delivered++;
}

static void take(consumer *c, double rate, const settings *set)
{
    pst_batch *batch;
    int rc;
    while ((rc = pst_job_next(c->job, -1, &batch)) == 0) {
        if (c->delivered != (uint32_t)set->samples)
            fail("an epoch is not complete");
        c->ended++;
        c->delivered = 0;
    }
    if (rc < 0)
        fail(pst_strerror(rc));
    const pst_batch_desc *desc = pst_batch_get(batch);
    note(c, desc, set);
    c->next += desc->slots / rate;
    pst_batch_release(batch);
}

static void count(const scenario *sc, const consumer *c, outcome *out)
{
    uint64_t prepared = 0, all = 0;
    for (int i = 0; i < sc->jobs; i++) {
        pst_job_stats s = {.size = sizeof s};
        if (!c[i].job)
            continue;
        pst_job_stats_get(c[i].job, &s);
        prepared += s.preparations;
        all += s.preparations + s.shared_hits;
        if (s.form_entries[2] > out->entries)
            out->entries = s.form_entries[2];
    }
    out->deliveries = all;
    out->ratio = (double)prepared / (double)all;
}

/* Whose turn it is; -1 when all have done their epochs. */
static int whose_turn(const scenario *sc, const consumer *c, int epochs)
{
    int soonest = 0;
    bool more = false;
    for (int i = 0; i < sc->jobs; i++) {
        more |= c[i].ended < epochs;
        if (c[i].next < c[soonest].next)
            soonest = i;
    }
    return more ? soonest : -1;
}

static void judge(const scenario *sc, const settings *set, const consumer *c, outcome *out)
{
    double p[2 * MAX_JOBS];
    int tests = 0;
    const uint32_t n = (uint32_t)set->samples;
    out->position_p = out->class_p = 1;
    for (int i = 0; i < sc->jobs; i++) {
        const uint32_t *place = c[i].place + (size_t)(c[i].ended - set->epochs) * n;
        for (int lag = 1; lag <= LAGS && lag < set->epochs; lag++) {
            const double r = order_correlation(place, n, set->epochs, lag);
            if (fabs(r) > fabs(out->worst[lag - 1]))
                out->worst[lag - 1] = r;
        }
        p[tests++] = order_position_p(place, n, set->epochs);
        out->position_p = fmin(out->position_p, p[tests - 1]);
        p[tests++] = order_class_p(place, n, set->epochs);
        out->class_p = fmin(out->class_p, p[tests - 1]);
    }
    out->holm_p = order_holm(p, tests);
}

static void run(const scenario *sc, const settings *set, pst_dataset *data, outcome *out)
{
    *out = (outcome){.batch = batch_of(sc, set)};
    pst_engine *engine = engine_of(sc, set);
    consumer c[MAX_JOBS] = {0};
    double sum = 0, most = 0;
    for (int i = 0; i < sc->jobs; i++) {
        c[i].next = sc->offset[i] * set->samples / sc->rate[i];
        sum += sc->rate[i];
        most = fmax(most, sc->rate[i]);
    }
    int at;
    for (uint64_t batches = 0; (at = whose_turn(sc, c, set->epochs)) >= 0; batches++) {
        if (!c[at].job)
            c[at].job = job_of(engine, data, at + 1, out->batch);
        take(&c[at], sc->rate[at], set);
        if (batches % NOTICE == 0)
            count(sc, c, out);
    }
    count(sc, c, out);
    out->bound = most / sum;
    judge(sc, set, c, out);
    for (int i = 0; i < sc->jobs; i++) {
        pst_job_close(c[i].job);
        free(c[i].place);
    }
    pst_engine_free(engine);
}

/* ---- telling --------------------------------------------------------------------------------- */

static bool tell(const scenario *sc, const settings *figures, const settings *order,
                 const outcome *f, const outcome *o)
{
    const bool few = f->ratio <= sc->target;
    bool random = o->holm_p > 0.01;
    for (int i = 0; i < LAGS; i++)
        random &= fabs(o->worst[i]) <= 0.04;
    fprintf(stderr,
            "%-25s %3.0f %%  %.3f (%.2f of the bound; at most %.3f)  hits %.2f   "
            "correlation %6.3f %6.3f %6.3f %6.3f %6.3f  p %.3f %.3f, Holm %.3f  %s\n",
            sc->name, 100 * sc->cached, f->ratio, f->ratio / f->bound, sc->target, 1 - f->ratio,
            o->worst[0], o->worst[1], o->worst[2], o->worst[3], o->worst[4], o->position_p,
            o->class_p, o->holm_p, few && random ? "met" : "MISSED");
    printf(
        "  {\"jobs\": \"%s\", \"cached\": %.2f, \"samples\": %d, \"epochs\": %d, \"batch\": %d,\n"
        "   \"preparations_per_delivery\": %.4f, \"times_bound\": %.3f, \"target\": %.4f, "
        "\"hit_rate\": %.4f,\n   \"deliveries\": %llu, \"most_entries\": %llu, "
        "\"ready_queues_at_most\": %d, \"few_enough\": %s,\n",
        sc->name, sc->cached, figures->samples, figures->epochs, f->batch, f->ratio,
        f->ratio / f->bound, sc->target, 1 - f->ratio, (unsigned long long)f->deliveries,
        (unsigned long long)f->entries, (DEPTH + 1) * f->batch * sc->jobs, few ? "true" : "false");
    printf("   \"order\": {\"samples\": %d, \"epochs\": %d, \"batch\": %d, "
           "\"preparations_per_delivery\": %.4f, \"correlation\": [%.4f, %.4f, %.4f, %.4f, %.4f],\n"
           "    \"position_p\": %.4f, \"class_p\": %.4f, \"holm_p\": %.4f, \"random\": %s}}",
           order->samples, order->epochs, o->batch, o->ratio, o->worst[0], o->worst[1], o->worst[2],
           o->worst[3], o->worst[4], o->position_p, o->class_p, o->holm_p,
           random ? "true" : "false");
    fflush(stdout);
    return few && random;
}

static bool option(const char *name, const char *value, settings *f, settings *o, int *only)
{
    const int number = atoi(value);
    if (strcmp(name, "--samples") == 0)
        f->samples = number;
    else if (strcmp(name, "--epochs") == 0)
        f->epochs = number;
    else if (strcmp(name, "--order-samples") == 0)
        o->samples = number;
    else if (strcmp(name, "--order-epochs") == 0)
        o->epochs = number;
    else if (strcmp(name, "--case") == 0)
        *only = number;
    else if (strcmp(name, "--workers") == 0)
        f->workers = o->workers = number;
    else
        return false;
    return number >= 0;
}

int main(int argc, char **argv)
{
    settings figures = {20000, 6, 2}, order = {2000, 60, 2};
    int only = -1;
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !option(argv[i], argv[i + 1], &figures, &order, &only))
            fail("an option is not known, or has no value; see the top of its source");
    const char *base = getenv("TMPDIR");
    char folder[400], path[500];
    snprintf(folder, sizeof folder, "%s/share-engine-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder))
        fail(folder);
    snprintf(path, sizeof path, "%s/figures", folder);
    pst_dataset *many = make_data(path, figures.samples);
    snprintf(path, sizeof path, "%s/order", folder);
    pst_dataset *few = make_data(path, order.samples);
    bool good = true, first = true;
    puts("[");
    for (int i = 0; i < SCENARIOS; i++) {
        if (only >= 0 && only != i)
            continue;
        outcome f, o;
        run(&scenarios[i], &figures, many, &f);
        run(&scenarios[i], &order, few, &o);
        if (!first)
            puts(",");
        first = false;
        good &= tell(&scenarios[i], &figures, &order, &f, &o);
    }
    puts("\n]");
    pst_dataset_close(many);
    pst_dataset_close(few);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return good ? 0 : 1;
}
