/* SPDX-License-Identifier: Apache-2.0
 * What putting slow samples aside does to the make-up of batches: over one epoch of cheap samples,
 * a tenth of them slow and spread at random, how many slow ones each batch holds beside what
 * drawing without replacement gives, and the share of slow ones in each tenth of the epoch. With a
 * consumer that takes what comes, and with one that takes nine tenths of that.
 *
 *     composition [--batches N] [--workers burning sleeping]
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

#include "clocks.h"
#include "penstock.h"

enum { BATCH = 16, EVERY = 10, FILES = 32, TENTHS = 10 };

typedef struct setting {
    const char *name, *pipeline;
    int workers;
} setting;

typedef struct outcome {
    double rate; /* batches a second */
    double distance, drift;
    double histogram[BATCH + 1];
    uint64_t slow, parked;
} outcome;

static int64_t batches = 20000;

static void die(const char *what, const pst_error *err)
{
    fprintf(stderr, "composition: %s: %s\n", what, err ? err->message : strerror(errno));
    exit(1);
}

static void wait_until(double when)
{
    const struct timespec t = {(time_t)when, (long)((when - floor(when)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* ---- data: the same few small pictures, over and over ---------------------------------------- */

typedef struct list {
    char paths[FILES][64];
    int64_t at;
} list;

static int next_path(void *user, const char **path, int64_t *label)
{
    (void)label;
    list *l = user;
    *path = l->paths[l->at % FILES];
    return l->at++ < batches * BATCH;
}

static const char folder_template[] = "/tmp/penstock-composition-XXXXXX";
static char folder[sizeof folder_template];
static list pictures;

static void make_picture(const char *path, int seed)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        die(path, NULL);
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = c.image_height = 16;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    uint8_t row[16 * 3];
    while (c.next_scanline < c.image_height) {
        for (int i = 0; i < 16 * 3; i++)
            row[i] = (uint8_t)(i * seed + (int)c.next_scanline * 5);
        JSAMPROW rows[1] = {row};
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    fclose(f);
}

static pst_dataset *make_data(void)
{
    memcpy(folder, folder_template, sizeof folder);
    if (!mkdtemp(folder))
        die(folder, NULL);
    for (int i = 0; i < FILES; i++) {
        snprintf(pictures.paths[i], sizeof pictures.paths[i], "%s/%02d.jpg", folder, i);
        make_picture(pictures.paths[i], i + 1);
    }
    pst_files spec;
    pst_files_init(&spec);
    spec.next = next_path;
    spec.user = &pictures;
    pst_dataset *data;
    pst_error err;
    if (pst_dataset_files(&spec, &data, &err) < 0)
        die("dataset", &err);
    return data;
}

static void remove_data(void)
{
    for (int i = 0; i < FILES; i++)
        unlink(pictures.paths[i]);
    rmdir(folder);
}

/* ---- what chance gives ----------------------------------------------------------------------- */

static double log_choose(double n, double k)
{
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1);
}

/* Of `all` samples `slow` are slow; so many in a batch. */
static double by_chance(double all, double slow, int in_batch)
{
    return exp(log_choose(slow, in_batch) + log_choose(all - slow, BATCH - in_batch) -
               log_choose(all, BATCH));
}

static double distance_from_chance(const double *histogram)
{
    const double all = (double)(batches * BATCH), slow = ceil(all / EVERY);
    double sum = 0;
    for (int k = 0; k <= BATCH; k++)
        sum += fabs(histogram[k] - by_chance(all, slow, k));
    return sum / 2;
}

/* ---- one epoch ------------------------------------------------------------------------------- */

static pst_job *open_job(pst_engine *engine, pst_dataset *data, const setting *s, int schedule)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = s->pipeline;
    o.fields = "image";
    o.batch = BATCH;
    o.seed = 1;
    o.epochs = 1;
    o.order = PST_ORDER_READY;
    o.schedule = schedule;
    pst_job *job;
    pst_error err;
    if (pst_job_open(engine, data, &o, &job, &err) < 0)
        die("job", &err);
    return job;
}

static int slow_in(const pst_batch *batch)
{
    const pst_batch_desc *desc = pst_batch_get(batch);
    const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
    int slow = 0;
    for (uint32_t i = 0; i < desc->slots; i++)
        slow += ids[i] % EVERY == 0;
    return slow;
}

/* step_s: the consumer's time for a batch; 0: it takes what comes. */
static outcome drive(pst_dataset *data, const setting *s, int schedule, double step_s)
{
    pst_engine_options e;
    pst_engine_options_init(&e);
    e.workers = s->workers;
    e.memory_bytes = 256 << 20;
    pst_engine *engine;
    pst_error err;
    if (pst_engine_new(&e, &engine, &err) < 0)
        die("engine", &err);
    pst_job *job = open_job(engine, data, s, schedule);
    outcome out = {0};
    double tenth[TENTHS] = {0};
    const double since = wall_seconds();
    pst_batch *batch;
    int64_t taken = 0;
    int rc;
    while ((rc = pst_job_next(job, -1, &batch)) == 1) {
        const double got = wall_seconds();
        const int slow = slow_in(batch);
        out.histogram[slow] += 1.0 / (double)batches;
        tenth[taken++ * TENTHS / batches] += (double)slow * TENTHS / (double)(batches * BATCH);
        pst_batch_release(batch);
        if (step_s > 0)
            wait_until(got + step_s);
    }
    if (rc < 0) {
        pst_job_error(job, &err);
        die("batch", &err);
    }
    out.rate = (double)taken / (wall_seconds() - since);
    out.distance = distance_from_chance(out.histogram);
    for (int i = 0; i < TENTHS; i++)
        out.drift = fmax(out.drift, fabs(tenth[i] - 1.0 / EVERY));
    pst_job_stats stats = {.size = sizeof stats};
    pst_job_stats_get(job, &stats);
    out.slow = stats.slow_samples;
    out.parked = stats.slow_parked;
    pst_job_close(job);
    pst_engine_free(engine);
    return out;
}

static void print_outcome(const setting *s, const char *schedule, const char *consumer,
                          const outcome *o)
{
    printf("%-12s %-9s %-11s %9.0f %9.4f %9.4f %8llu %8llu  ", s->name, schedule, consumer, o->rate,
           o->distance, o->drift, (unsigned long long)o->slow, (unsigned long long)o->parked);
    for (int k = 0; k <= 6; k++)
        printf(" %.3f", o->histogram[k]);
    putchar('\n');
    fflush(stdout);
}

int main(int argc, char **argv)
{
    setting settings[] = {
        {"burning",
         "decode | center_crop(16) | delay(0.05, burn) | delay(0.5, 0.1, 1, 10, hidden, burn)", 2},
        {"sleeping", "decode | center_crop(16) | delay(0.5) | delay(5, 0.1, 1, 10, hidden)", 12},
    };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--batches") == 0 && i + 1 < argc) {
            batches = atoll(argv[++i]);
        } else if (strcmp(argv[i], "--workers") == 0 && i + 2 < argc) {
            settings[0].workers = atoi(argv[++i]);
            settings[1].workers = atoi(argv[++i]);
        } else {
            fprintf(stderr, "usage: composition [--batches N] [--workers burning sleeping]\n");
            return 2;
        }
    }
    if (batches < TENTHS)
        return 2;
    pst_dataset *data = make_data();
    printf("%lld batches of %d, a tenth of the samples slow; distance: total variation from the "
           "hypergeometric histogram; tenths: the largest difference of a tenth's slow share\n",
           (long long)batches, BATCH);
    printf("%-12s %-9s %-11s %9s %9s %9s %8s %8s   0..6 slow ones in a batch\n", "", "schedule",
           "consumer", "batches/s", "distance", "tenths", "slow", "aside");
    for (int s = 0; s < 2; s++) {
        if (settings[s].workers < 1)
            continue;
        const outcome plain = drive(data, &settings[s], PST_SCHEDULE_PLAIN, 0);
        print_outcome(&settings[s], "plain", "all it gets", &plain);
        const outcome all = drive(data, &settings[s], PST_SCHEDULE_PENSTOCK, 0);
        print_outcome(&settings[s], "penstock", "all it gets", &all);
        const double step = 1 / (0.9 * plain.rate);
        const outcome paced_plain = drive(data, &settings[s], PST_SCHEDULE_PLAIN, step);
        print_outcome(&settings[s], "plain", "90 %", &paced_plain);
        const outcome paced = drive(data, &settings[s], PST_SCHEDULE_PENSTOCK, step);
        print_outcome(&settings[s], "penstock", "90 %", &paced);
    }
    const double samples = (double)(batches * BATCH);
    printf("%-78s  ", "by chance");
    for (int k = 0; k <= 6; k++)
        printf(" %.3f", by_chance(samples, ceil(samples / EVERY), k));
    putchar('\n');
    pst_dataset_close(data);
    remove_data();
    return 0;
}
