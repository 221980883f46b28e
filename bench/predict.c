/* SPDX-License-Identifier: Apache-2.0
 * How well the time of a sample is known before it is run: the rank correlation (Spearman) of
 * predicted and measured time, where each sample is predicted before it was ever run and learned
 * afterwards, as the scheduler does it. Measured is what preparing it takes on one thread, in CPU
 * seconds, the median of three runs; learned is the first of them.
 *
 *   predict [PHOTOS] [PIPELINE]
 *
 * Without PHOTOS, or behind it: synthetic photos of widely varying size. Prints a table and, last,
 * JSON. */
#include <sys/stat.h>
#include <sys/types.h>

#include <fts.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline/pictures.h"
#include "pipeline/pipeline.h"
#include "sched/predict.h"

enum { PHOTOS_MOST = 4096, SYNTHETIC = 400, PASSES = 4, RUNS = 3, WAYS = 3 };
static const char usual[] = "decode | random_resized_crop(224) | hflip";
static const char *const ways[WAYS] = {"bytes", "size", "header"};

typedef struct photo {
    uint8_t *bytes;
    size_t size;
    int64_t rows, cols;
} photo;

typedef struct bench {
    photo photos[PHOTOS_MOST];
    int count;
    psti_kit kit;
    psti_work *work;
    psti_plan *plan;
    uint8_t *out;
    size_t out_bytes;
} bench;

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- photos ---------------------------------------------------------------------------------- */

static void read_photo(bench *b, const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(size + 1);
    if (file && bytes && b->count < PHOTOS_MOST && fread(bytes, 1, size, file) == size)
        b->photos[b->count++] = (photo){.bytes = bytes, .size = size};
    else
        free(bytes);
    if (file)
        fclose(file);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void read_photos(bench *b, char *folder)
{
    char *const roots[] = {folder, NULL};
    FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *at; tree && (at = fts_read(tree));) {
        const char *dot = strrchr(at->fts_name, '.');
        if (at->fts_info == FTS_F && dot && (!strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".jpg")))
            read_photo(b, at->fts_path, (size_t)at->fts_statp->st_size);
    }
    if (tree)
        fts_close(tree);
}

/* Sides from 64 to 1600, spread evenly by their logarithm. */
static void make_photos(bench *b)
{
    const psti_rng_key key = {.seed = 5};
    psti_rng rng;
    psti_rng_init(&rng, &key, 0);
    for (int i = 0; i < SYNTHETIC; i++) {
        photo *p = &b->photos[b->count++];
        const double side = 64 * exp(log(25) * psti_rng_unit(&rng));
        const double shape = 0.75 + 0.6 * psti_rng_unit(&rng);
        p->bytes = jpeg_make((int)(side * shape), (int)side, (uint32_t)i, false, &p->size);
    }
}

static void drop_photos(bench *b)
{
    for (int i = 0; i < b->count; i++)
        free(b->photos[i].bytes);
    b->count = 0;
}

/* In an order that has nothing to do with their names. */
static void shuffle(bench *b)
{
    const psti_rng_key key = {.seed = 6};
    psti_rng rng;
    psti_rng_init(&rng, &key, 0);
    for (int i = b->count - 1; i > 0; i--) {
        const int j = (int)psti_rng_below(&rng, (uint64_t)i + 1);
        const photo keep = b->photos[i];
        b->photos[i] = b->photos[j];
        b->photos[j] = keep;
    }
}

/* ---- one sample ------------------------------------------------------------------------------ */

static psti_rng_key key_of(int pass, int id)
{
    return (psti_rng_key){.seed = 1, .epoch = (uint64_t)pass, .id = (uint64_t)id};
}

/* Seconds, or below 0 where the sample is bad. */
static double run_once(bench *b, const photo *p, const psti_rng_key *key)
{
    const psti_input input = {p->bytes, p->size, -1};
    int64_t shape[PST_MAX_RANK];
    const double since = thread_seconds();
    int rc = psti_work_start(b->work, &b->kit, b->plan, key, &input, NULL);
    if (rc == 0)
        while ((rc = psti_work_step(b->work, &b->kit, NULL)) > 0)
            ;
    if (rc < 0)
        return -1;
    const size_t bytes = psti_work_shape(b->work, 0, shape);
    if (bytes > b->out_bytes) {
        free(b->out);
        b->out = malloc(bytes);
        b->out_bytes = bytes;
    }
    psti_work_finish(b->work, &b->kit, 0, b->out);
    return thread_seconds() - since;
}

static double middle(const double *t)
{
    const double low = fmin(t[0], t[1]), high = fmax(t[0], t[1]);
    return t[2] < low ? low : t[2] > high ? high : t[2];
}

/* Reads headers as well: what the third way knows. */
static bool look(bench *b, photo *p, const psti_rng_key *key, double features[][PSTI_FEATURES_MAX])
{
    const psti_input input = {p->bytes, p->size, -1};
    psti_known known = {.bytes = (double)p->size};
    psti_plan_foresee(b->plan, key, (int64_t)key->id, &known, features[0]);
    if (psti_work_start(b->work, &b->kit, b->plan, key, &input, NULL) < 0)
        return false;
    known.rows = p->rows = psti_work_decoded(b->work, 0).rows;
    known.cols = p->cols = psti_work_decoded(b->work, 0).cols;
    psti_plan_foresee(b->plan, key, (int64_t)key->id, &known, features[1]);
    psti_work_foresee(b->work, features[2]);
    return true;
}

/* ---- rank correlation ------------------------------------------------------------------------ */

static const double *sort_by;
static int by_value(const void *a, const void *b)
{
    const double x = sort_by[*(const int *)a], y = sort_by[*(const int *)b];
    return (x > y) - (x < y);
}

static void ranks_of(const double *values, int count, double *out)
{
    int order[PHOTOS_MOST];
    for (int i = 0; i < count; i++)
        order[i] = i;
    sort_by = values;
    qsort(order, (size_t)count, sizeof *order, by_value);
    for (int i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && values[order[end]] == values[order[i]]; end++)
            ;
        for (int k = i; k < end; k++)
            out[order[k]] = 0.5 * (i + end - 1);
    }
}

static double spearman(const double *a, const double *b, int count)
{
    static double x[PHOTOS_MOST], y[PHOTOS_MOST];
    double xy = 0, xx = 0, yy = 0;
    const double mean = 0.5 * (count - 1);
    ranks_of(a, count, x);
    ranks_of(b, count, y);
    for (int i = 0; i < count; i++) {
        xy += (x[i] - mean) * (y[i] - mean);
        xx += (x[i] - mean) * (x[i] - mean);
        yy += (y[i] - mean) * (y[i] - mean);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

/* ---- passes ---------------------------------------------------------------------------------- */

typedef struct outcome {
    double first[WAYS], later[WAYS], past[WAYS]; /* rank correlations: first pass, last pass */
    double error[WAYS], error_past[WAYS];        /* mean absolute error by mean cost, at the end */
    double again;  /* of the first run with the median: what can be had at most, about */
    double mean_s; /* of a sample */
} outcome;

typedef struct pass_data {
    double guess[WAYS][2][PHOTOS_MOST]; /* from features; with the past */
    double cost[PHOTOS_MOST], once[PHOTOS_MOST];
    int count; /* of those that were predicted: the first 16 teach */
} pass_data;

static void one_sample(bench *b, int pass, int id, predictor p[WAYS][2], pass_data *d)
{
    double features[WAYS][PSTI_FEATURES_MAX], t[RUNS], guess[WAYS][2];
    const psti_rng_key key = key_of(pass, id);
    if (!look(b, &b->photos[id], &key, features))
        return;
    const bool ready = predict_ready(&p[0][0]);
    for (int w = 0; w < WAYS; w++)
        for (int k = 0; k < 2; k++)
            guess[w][k] = predict_seconds(&p[w][k], features[w], id);
    for (int i = 0; i < RUNS; i++)
        if ((t[i] = run_once(b, &b->photos[id], &key)) < 0)
            return;
    for (int w = 0; w < WAYS; w++)
        for (int k = 0; k < 2; k++) {
            predict_learn(&p[w][k], features[w], id, t[0]);
            d->guess[w][k][d->count] = guess[w][k];
        }
    d->cost[d->count] = middle(t);
    d->once[d->count] = t[0];
    d->count += ready;
}

static outcome measure(bench *b)
{
    static pass_data d;
    predictor p[WAYS][2];
    outcome o = {0};
    for (int w = 0; w < WAYS; w++)
        for (int k = 0; k < 2; k++)
            if (predict_init(&p[w][k], psti_plan_features(b->plan), k ? b->count : 0) < 0)
                exit(1);
    for (int pass = 0; pass < PASSES; pass++) {
        d.count = 0;
        for (int id = 0; id < b->count; id++)
            one_sample(b, pass, id, p, &d);
        for (int w = 0; w < WAYS; w++) {
            if (pass == 0)
                o.first[w] = spearman(d.guess[w][0], d.cost, d.count);
            o.later[w] = spearman(d.guess[w][0], d.cost, d.count);
            o.past[w] = spearman(d.guess[w][1], d.cost, d.count);
        }
        o.again = spearman(d.once, d.cost, d.count);
    }
    for (int i = 0; i < d.count; i++)
        o.mean_s += d.cost[i] / d.count;
    for (int w = 0; w < WAYS; w++) {
        o.error[w] = predict_error(&p[w][0]);
        o.error_past[w] = predict_error(&p[w][1]);
        predict_fini(&p[w][0]);
        predict_fini(&p[w][1]);
    }
    return o;
}

/* ---- what it costs --------------------------------------------------------------------------- */

enum { ROUNDS = 50 };

static double foresee_us(const bench *b)
{
    double features[PSTI_FEATURES_MAX], sum = 0;
    const double since = thread_seconds();
    for (int round = 0; round < ROUNDS; round++)
        for (int id = 0; id < b->count; id++) {
            const psti_rng_key key = key_of(round, id);
            const psti_known known = {.bytes = (double)b->photos[id].size};
            psti_plan_foresee(b->plan, &key, id, &known, features);
            sum += features[1];
        }
    return sum > 0 ? 1e6 * (thread_seconds() - since) / ROUNDS / b->count : 0;
}

static double learn_us(const bench *b)
{
    static double features[PHOTOS_MOST][PSTI_FEATURES_MAX];
    predictor p;
    if (predict_init(&p, psti_plan_features(b->plan), b->count) < 0)
        exit(1);
    for (int id = 0; id < b->count; id++) {
        const psti_rng_key key = key_of(0, id);
        const psti_known known = {.bytes = (double)b->photos[id].size};
        psti_plan_foresee(b->plan, &key, id, &known, features[id]);
    }
    const double since = thread_seconds();
    for (int round = 0; round < ROUNDS; round++)
        for (int id = 0; id < b->count; id++)
            predict_learn(&p, features[id], id, 1e-8 * features[id][1] * (1 + 0.1 * (id % 7)));
    const double us = 1e6 * (thread_seconds() - since) / ROUNDS / b->count;
    predict_fini(&p);
    return us;
}

/* ---- table ----------------------------------------------------------------------------------- */

static psti_plan *plan_of(const char *text)
{
    static const psti_plan_input image = {.name = "image", .kind = PST_IMAGE, .encoded = true};
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    pst_error err = {0};
    if (psti_pipeline_parse(text, &pipeline, &err) < 0 ||
        psti_plan_new(pipeline, &image, 1, &plan, &err) < 0) {
        fprintf(stderr, "predict: %s\n", err.message);
        exit(1);
    }
    psti_pipeline_free(pipeline);
    return plan;
}

static void bench_case(bench *b, const char *data, const char *text, bool last)
{
    b->plan = plan_of(text);
    const outcome o = measure(b);
    fprintf(stderr, "%s, %d samples, %.2f ms each: %s\n", data, b->count, 1e3 * o.mean_s, text);
    fprintf(stderr, "  known     first pass   last pass   with past   error   with past\n");
    for (int w = 0; w < WAYS; w++)
        fprintf(stderr, "  %-9s %10.3f %11.3f %11.3f %7.3f %11.3f\n", ways[w], o.first[w],
                o.later[w], o.past[w], o.error[w], o.error_past[w]);
    fprintf(stderr,
            "  one run against the median of three: %.3f; %d numbers, foresee %.2f us, "
            "learn %.2f us\n",
            o.again, psti_plan_features(b->plan), foresee_us(b), learn_us(b));
    printf("  {\"data\": \"%s\", \"pipeline\": \"%s\", \"samples\": %d, \"mean_ms\": %.3f,\n", data,
           text, b->count, 1e3 * o.mean_s);
    for (int w = 0; w < WAYS; w++)
        printf("   \"%s\": {\"first\": %.4f, \"last\": %.4f, \"past\": %.4f, \"error\": %.4f, "
               "\"error_past\": %.4f}%s\n",
               ways[w], o.first[w], o.later[w], o.past[w], o.error[w], o.error_past[w],
               w == WAYS - 1 ? last ? "}" : "}," : ",");
    psti_plan_free(b->plan);
}

int main(int argc, char **argv)
{
    static bench b;
    const char *text = argc > 2 ? argv[2] : usual;
    if (psti_kit_init(&b.kit) < 0 || !(b.work = psti_work_new()))
        return 1;
    printf("[\n");
    if (argc > 1 && argv[1][0]) {
        read_photos(&b, argv[1]);
        shuffle(&b);
        if (b.count > PREDICT_READY)
            bench_case(&b, "photos", text, false);
        drop_photos(&b);
    }
    make_photos(&b);
    bench_case(&b, "synthetic", text, false);
    bench_case(&b, "synthetic", "decode | resize((224, 224))", true);
    printf("]\n");
    drop_photos(&b);
    free(b.out);
    psti_work_free(b.work);
    psti_kit_fini(&b.kit);
    return 0;
}
