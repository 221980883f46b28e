/* SPDX-License-Identifier: Apache-2.0
 * Runs a case of sharing on the engine, on pictures so small that preparing them is nearly free.
 * One thread takes batches for all jobs in the order in which consumers of the given rates would,
 * counted in deliveries, so the speed of the machine plays no part; the engine's workers run free.
 * Ready queues together hold at most a quarter of the cached entries.
 *
 * The engine has no switch for worse rules, and needs none: this program is linked so that its
 * calls of psti_share_new and psti_share_value pass through here (--wrap, see meson.build), where
 * the settings of a group and the worth of its entries are changed. All else is the engine as it
 * is. */
#include "share_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include "sample/share.h"

enum {
    BATCH_MOST = 16,
    DEPTH = 1,
    ENTRY_BYTES = 1152, /* of the cache, for 16 x 16 in RGB; what it came to is printed */
    NOTICE = 256        /* batches between two looks at the counters */
};

typedef struct consumer {
    pst_job *job;
    double next; /* when it takes its next batch, in deliveries of a job of rate 1 */
    case_log log;
} consumer;

static void fail(const char *what)
{
    fprintf(stderr, "share_engine: %s\n", what);
    exit(2);
}

/* ---- the rules of a group -------------------------------------------------------------------- */

/* Of the case that runs, from before its engine is made until it is gone; RULES: none does, and
 * whoever else calls, the simulator, is let alone. */
static share_rule rule_now = RULES;
static uint64_t seed_now;

int __real_psti_share_new(const psti_share_spec *spec, psti_share **out, pst_error *err);
int __wrap_psti_share_new(const psti_share_spec *spec, psti_share **out, pst_error *err);
double __real_psti_share_value(const psti_share *share, uint32_t entry);
double __wrap_psti_share_value(const psti_share *share, uint32_t entry);

int __wrap_psti_share_new(const psti_share_spec *spec, psti_share **out, pst_error *err)
{
    psti_share_spec mine = *spec;
    if (rule_now == RULES)
        return __real_psti_share_new(spec, out, err);
    mine.key[0] = seed_now; /* all choices of the group follow from it */
    mine.key[1] = 0;
    if (rule_now == RULE_ANY) {
        mine.window = mine.window_max = 1;
        mine.flags = PSTI_SHARE_ALONE;
    } else if (rule_now == RULE_LOWEST) {
        mine.flags = PSTI_SHARE_LOWEST_ID;
    }
    return __real_psti_share_new(&mine, out, err);
}

/* What is worth more than anything is not evicted for anything. */
double __wrap_psti_share_value(const psti_share *share, uint32_t entry)
{
    return rule_now == RULE_KEPT ? INFINITY : __real_psti_share_value(share, entry);
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
pst_dataset *run_data(const char *folder, int samples)
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

/* ---- running --------------------------------------------------------------------------------- */

/* The cache is a little larger than its augmented part, which is exactly what was asked for. */
static pst_engine *engine_of(const share_case *sc, const run_set *set)
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
static int batch_of(const share_case *sc, const run_set *set)
{
    const int part = (int)(sc->cached * set->samples / 4 / sc->jobs / (DEPTH + 1));
    return part < 1 ? 1 : part > BATCH_MOST ? BATCH_MOST : part;
}

static pst_job *job_of(pst_engine *engine, pst_dataset *data, uint64_t seed, int batch)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = "decode | random_resized_crop(16) | hflip | normalize(imagenet)";
    o.fields = "image";
    o.batch = batch;
    o.seed = seed;
    o.order = PST_ORDER_READY;
    o.sampling = rule_now == RULE_APART ? PST_SAMPLING_PLAIN : PST_SAMPLING_OPPORTUNISTIC;
    o.ready_depth = DEPTH;
    pst_job *job;
    pst_error err;
    if (pst_job_open(engine, data, &o, &job, &err) < 0)
        fail(err.message);
    return job;
}

static void take(consumer *c, double rate, const run_set *set)
{
    pst_batch *batch;
    int rc;
    while ((rc = pst_job_next(c->job, -1, &batch)) == 0) {
        if (c->log.delivered != (uint32_t)set->samples)
            fail("an epoch is not complete");
        c->log.epoch++;
        c->log.delivered = 0;
    }
    if (rc < 0)
        fail(pst_strerror(rc));
    const pst_batch_desc *desc = pst_batch_get(batch);
    const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
    for (uint32_t i = 0; i < desc->slots; i++)
        if (!case_note(&c->log, (uint32_t)set->samples, set->epochs, ids[i]))
            fail("out of memory");
    c->next += desc->slots / rate;
    pst_batch_release(batch);
}

static void count(const share_case *sc, const consumer *c, run_out *out)
{
    uint64_t prepared = 0, all = 0, hits = 0;
    for (int i = 0; i < sc->jobs; i++) {
        pst_job_stats s = {.size = sizeof s};
        if (!c[i].job)
            continue;
        pst_job_stats_get(c[i].job, &s);
        prepared += s.preparations;
        all += s.preparations + s.shared_hits;
        hits += s.shared_hits + s.cache_hits + s.encoded_hits;
        if (s.form_entries[2] > out->entries)
            out->entries = s.form_entries[2];
    }
    out->deliveries = all;
    out->ratio = (double)prepared / (double)all;
    out->hit_rate = (double)hits / (double)all;
}

/* Whose turn it is; -1 when all have done their epochs. */
static int whose_turn(const share_case *sc, const consumer *c, int epochs)
{
    int soonest = 0;
    bool more = false;
    for (int i = 0; i < sc->jobs; i++) {
        more |= c[i].log.epoch < epochs;
        if (c[i].next < c[soonest].next)
            soonest = i;
    }
    return more ? soonest : -1;
}

void run_case(const share_case *sc, const run_set *set, share_rule rule, pst_dataset *data,
              run_out *out)
{
    *out = (run_out){.batch = batch_of(sc, set)};
    out->queued = (DEPTH + 1) * out->batch * sc->jobs;
    order_begin(&out->order);
    rule_now = rule;
    seed_now = set->seed;
    pst_engine *engine = engine_of(sc, set);
    consumer c[CASE_JOBS] = {0};
    for (int i = 0; i < sc->jobs; i++)
        c[i].next = sc->offset[i] * set->samples / sc->rate[i];
    int at;
    for (uint64_t batches = 0; (at = whose_turn(sc, c, set->epochs)) >= 0; batches++) {
        if (!c[at].job)
            c[at].job = job_of(engine, data, set->seed * CASE_JOBS + (uint64_t)at, out->batch);
        take(&c[at], sc->rate[at], set);
        if (batches % NOTICE == 0)
            count(sc, c, out);
    }
    count(sc, c, out);
    for (int i = 0; i < sc->jobs; i++) {
        case_judge(&c[i].log, (uint32_t)set->samples, set->epochs, &out->order);
        pst_job_close(c[i].job);
        free(c[i].log.place);
    }
    pst_engine_free(engine);
    rule_now = RULES;
}
