/* SPDX-License-Identifier: Apache-2.0
 * Looking at samples with a few threads: each takes the next sample, reads its fields, looks at
 * their headers and notes the result in its own survey; they are joined at the end. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "interrupt.h"
#include "open.h"
#include "progress.h"
#include "survey.h"

enum { FIELDS_MAX = 32, THREADS_MAX = 16 };

/* What all threads read, and the counter they share. */
typedef struct tour {
    const pst_dataset *data;
    int64_t count, most;
    pst_field_info fields[FIELDS_MAX]; /* those that have a header to look at, the main one first */
    int field_count;
    atomic_int_fast64_t next;
} tour;

typedef struct guide {
    tour *tour;
    survey found;
    int64_t capacity, bad_capacity;
    bool shows;
} guide;

/* ---- collecting ----------------------------------------------------------------------------- */

static void count_word(word_counts *w, const char *word, int64_t by)
{
    if (word[0] == '\0')
        return;
    int i = 0;
    while (i < w->used && strcmp(w->word[i], word) != 0)
        i++;
    if (i == SURVEY_WORDS)
        i--;
    if (i == w->used) {
        snprintf(w->word[i], sizeof w->word[i], "%s", i == SURVEY_WORDS - 1 ? "other" : word);
        w->used++;
    }
    w->count[i] += by;
}

static void add_number(numbers *n, int64_t *capacity, double value)
{
    if (n->count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 1024;
        n->values = cli_realloc(n->values, (size_t)*capacity, sizeof *n->values);
    }
    n->values[n->count++] = value;
}

static void add_bad(survey *s, int64_t *capacity, const pst_error *err)
{
    s->bad_count++;
    if (s->bad_kept >= SURVEY_BAD_KEPT) /* enough to know that the data is broken */
        return;
    if (s->bad_kept == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 64;
        s->bad = cli_realloc(s->bad, (size_t)*capacity, sizeof *s->bad);
    }
    s->bad[s->bad_kept++] = *err;
}

static void join_numbers(numbers *into, const numbers *from)
{
    into->values =
        cli_realloc(into->values, (size_t)(into->count + from->count), sizeof *into->values);
    if (from->count > 0)
        memcpy(into->values + into->count, from->values,
               (size_t)from->count * sizeof *from->values);
    into->count += from->count;
}

static void join(survey *into, const survey *from)
{
    into->probed += from->probed;
    into->bytes += from->bytes;
    join_numbers(&into->width, &from->width);
    join_numbers(&into->height, &from->height);
    join_numbers(&into->size, &from->size);
    for (int i = 0; i < from->formats.used; i++)
        count_word(&into->formats, from->formats.word[i], from->formats.count[i]);
    for (int i = 0; i < from->details.used; i++)
        count_word(&into->details, from->details.word[i], from->details.count[i]);
    int64_t capacity = into->bad_kept;
    for (int64_t i = 0; i < from->bad_kept; i++)
        add_bad(into, &capacity, &from->bad[i]);
    into->bad_count += from->bad_count - from->bad_kept;
}

/* Most frequent first, then by name: the threads found them in any order. */
static void sort_words(word_counts *w)
{
    for (int i = 1; i < w->used; i++) {
        for (int k = i; k > 0; k--) {
            const int64_t more = w->count[k] - w->count[k - 1];
            if (more < 0 || (more == 0 && strcmp(w->word[k], w->word[k - 1]) > 0))
                break;
            char word[sizeof w->word[0]];
            memcpy(word, w->word[k], sizeof word);
            memcpy(w->word[k], w->word[k - 1], sizeof word);
            memcpy(w->word[k - 1], word, sizeof word);
            w->count[k] -= more;
            w->count[k - 1] += more;
        }
    }
}

/* ---- one sample ----------------------------------------------------------------------------- */

static void note_picture(guide *g, const pst_probe *probe)
{
    int64_t capacity = g->capacity; /* width and height grow together */
    count_word(&g->found.formats, probe->format, 1);
    const int kind = g->tour->fields[0].kind;
    char detail[sizeof probe->detail];
    snprintf(detail, sizeof detail, "%s", probe->detail);
    /* The type of a volume; how many planes it has is nearly always another number. */
    if (kind == PST_VOLUME)
        detail[strcspn(detail, ",")] = 0;
    count_word(&g->found.details, detail, 1);
    const bool array = strcmp(probe->format, "npy") == 0; /* its first dimensions may be any */
    if (array || kind == PST_ARRAY || kind == PST_AUDIO || probe->width <= 0 || probe->height <= 0)
        return;
    add_number(&g->found.width, &capacity, (double)probe->width);
    add_number(&g->found.height, &g->capacity, (double)probe->height);
}

/* Whether the field could be read; what is wrong goes into err. */
static bool look_at_field(guide *g, int64_t id, int index, pst_error *err)
{
    const pst_field_info *field = &g->tour->fields[index];
    void *bytes = NULL;
    size_t size = 0;
    pst_probe probe = {0};
    int rc = pst_dataset_read(g->tour->data, id, field->name, &bytes, &size, err);
    if (rc == -ENOENT && field->optional)
        return true;
    if (rc >= 0)
        rc = pst_probe_bytes(bytes, size, &probe, err);
    pst_free(bytes);
    if (rc >= 0 && index == 0)
        note_picture(g, &probe);
    return rc >= 0;
}

static void look_at_sample(guide *g, int64_t id)
{
    pst_error err = {.id = id, .offset = -1};
    for (int i = 0; i < g->tour->field_count; i++) {
        if (look_at_field(g, id, i, &err))
            continue;
        pst_sample_info info = {0};
        if (err.key[0] == '\0' && pst_dataset_sample(g->tour->data, id, &info) == 0 &&
            info.key != NULL)
            snprintf(err.key, sizeof err.key, "%s", info.key);
        err.id = id;
        add_bad(&g->found, &g->bad_capacity, &err);
        break;
    }
    g->found.probed++;
}

static void *walk(void *guide_arg)
{
    guide *g = guide_arg;
    tour *t = g->tour;
    for (;;) {
        const int64_t turn = atomic_fetch_add(&t->next, 1);
        if (turn >= t->most || interrupt_signal() != 0)
            break;
        /* 128 bits: count and turn may both be large. */
        look_at_sample(g, (int64_t)((__int128)turn * t->count / t->most));
        if (g->shows)
            progress_step(&(progress_at){.what = "inspect",
                                         .things = "samples",
                                         .done = (uint64_t)turn,
                                         .all = (uint64_t)t->most});
    }
    return NULL;
}

/* ---- all samples ---------------------------------------------------------------------------- */

/* Arrays that stand in the listing itself have no file to look at. */
static bool has_file(const pst_field_info *info)
{
    return info->kind != PST_ARRAY ||
           (strcmp(info->format, "json") != 0 && strcmp(info->format, "tsv") != 0);
}

static void find_fields(tour *t)
{
    static const int kinds[] = {PST_IMAGE, PST_VOLUME, PST_AUDIO, PST_MASK, PST_ARRAY};
    const int count = pst_dataset_field_count(t->data);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int i = 0; i < count && t->field_count < FIELDS_MAX; i++) {
            pst_field_info info = {0};
            if (pst_dataset_field(t->data, i, &info) == 0 && info.kind == kinds[k] &&
                has_file(&info))
                t->fields[t->field_count++] = info;
        }
    }
}

static void sum_sizes(const pst_dataset *data, int64_t count, survey *out)
{
    int64_t capacity = 0;
    for (int64_t id = 0; id < count; id++) {
        pst_sample_info info = {0};
        if (pst_dataset_sample(data, id, &info) != 0)
            continue;
        out->bytes += info.bytes;
        add_number(&out->size, &capacity, (double)info.bytes);
    }
}

static int compare_bad(const void *a, const void *b)
{
    const int64_t left = ((const pst_error *)a)->id, right = ((const pst_error *)b)->id;
    return left < right ? -1 : left > right;
}

static void sort_bad(survey *s)
{
    if (s->bad_kept > 1)
        qsort(s->bad, (size_t)s->bad_kept, sizeof *s->bad, compare_bad);
}

void survey_run(const pst_dataset *data, int64_t most, survey *out)
{
    tour t = {.data = data, .count = pst_dataset_count(data)};
    t.most = most > 0 && most < t.count ? most : t.count;
    find_fields(&t);
    sum_sizes(data, t.count, out);
    guide *guides = cli_alloc(THREADS_MAX * sizeof *guides);
    pthread_t threads[THREADS_MAX];
    int wanted = 2 * machine_cpus(), started = 0; /* twice: they wait for the disk as well */
    wanted = wanted > THREADS_MAX ? THREADS_MAX : wanted;
    for (int i = 0; i < THREADS_MAX; i++)
        guides[i] = (guide){.tour = &t, .shows = i == 0};
    while (t.field_count > 0 && started < wanted - 1 &&
           pthread_create(&threads[started], NULL, walk, &guides[started + 1]) == 0)
        started++;
    if (t.field_count > 0)
        walk(&guides[0]);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i <= started; i++) {
        join(out, &guides[i].found);
        survey_fini(&guides[i].found);
    }
    free(guides);
    sort_words(&out->formats);
    sort_words(&out->details);
    progress_clear();
    sort_bad(out);
}

void survey_fini(survey *s)
{
    free(s->width.values);
    free(s->height.values);
    free(s->size.values);
    free(s->bad);
    *s = (survey){0};
}

/* ---- decoding everything -------------------------------------------------------------------- */

static int drain(pst_job *job, int64_t count)
{
    int64_t done = 0;
    for (;;) {
        pst_batch *batch = NULL;
        const int rc = pst_job_next(job, -1, &batch);
        if (rc == 0)
            return CLI_OK;
        if (rc < 0)
            return fail_job(job, rc);
        done += pst_batch_get(batch)->valid_slots;
        pst_batch_release(batch);
        progress_step(&(progress_at){.what = "inspect, decoding",
                                     .things = "samples",
                                     .done = (uint64_t)done,
                                     .all = (uint64_t)count});
    }
}

/* The first `known` of the list are in order. */
static bool is_known_bad(const survey *s, int64_t known, const pst_error *err)
{
    return known > 0 && bsearch(err, s->bad, (size_t)known, sizeof *err, compare_bad) != NULL;
}

/* Every picture, mask and array that all samples have, in one text; else the first of any. */
static bool deep_fields(const pst_dataset *data, char *out, size_t cap)
{
    tour t = {.data = data};
    size_t used = 0;
    find_fields(&t);
    for (int i = 0; i < t.field_count && used < cap; i++) {
        if (!t.fields[i].optional)
            used += (size_t)snprintf(out + used, cap - used, "%s%s=padded", used ? "," : "",
                                     t.fields[i].name);
    }
    if (used == 0 && t.field_count > 0)
        used = (size_t)snprintf(out, cap, "%s=padded", t.fields[0].name);
    return used > 0;
}

static int decode_all(pst_engine *engine, pst_dataset *data, const char *fields, survey *out)
{
    pst_job_options opts;
    pst_job *job = NULL;
    pst_error err = {0};
    pst_job_options_init(&opts);
    opts.pipeline = "decode";
    opts.fields = fields;
    opts.batch = 1;
    opts.epochs = 1;
    opts.sampler = PST_SEQUENTIAL;
    opts.on_error = PST_SKIP;
    opts.skip_limit = INT64_MAX;
    opts.ready_depth = 64;
    if (pst_job_open(engine, data, &opts, &job, &err) < 0)
        return fail_error(&err);
    interrupt_job(job);
    const int exit_code = drain(job, pst_dataset_count(data));
    progress_clear();
    int64_t capacity = out->bad_kept;
    const int64_t known = out->bad_kept;
    for (size_t i = 0; i < pst_engine_bad_count(engine); i++) {
        if (pst_engine_bad_get(engine, i, &err) == 0 && !is_known_bad(out, known, &err))
            add_bad(out, &capacity, &err);
    }
    interrupt_job(NULL);
    pst_job_close(job);
    return exit_code;
}

int survey_deep(pst_dataset *data, survey *out)
{
    char fields[FIELDS_MAX * (PST_NAME_BYTES + 8)];
    pst_engine *engine = NULL;
    pst_error err = {0};
    if (out->bad_count > out->bad_kept) /* what was left out could not be told from what is new */
        return CLI_OK;
    if (!deep_fields(data, fields, sizeof fields))
        return CLI_OK;
    if (pst_engine_new(NULL, &engine, &err) < 0)
        return fail_error(&err);
    const int exit_code = decode_all(engine, data, fields, out);
    pst_engine_free(engine);
    sort_bad(out);
    return exit_code;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static int compare_reals(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

void numbers_sort(numbers *n)
{
    if (n->count > 1)
        qsort(n->values, (size_t)n->count, sizeof *n->values, compare_reals);
}

double numbers_at(const numbers *n, double quantile)
{
    return n->count > 0 ? n->values[(int64_t)(quantile * (double)(n->count - 1) + 0.5)] : 0;
}

bins bins_of(const numbers *n, double unit)
{
    bins b = {.width = unit};
    if (n->count == 0)
        return b;
    const double low = n->values[0], high = n->values[n->count - 1];
    /* 1, 2, 5, 10, 20, 50, … units until everything fits. */
    for (int i = 0; floor(high / b.width) - floor(low / b.width) >= BINS_MAX - 4; i++)
        b.width *= i % 3 == 1 ? 2.5 : 2;
    b.from = floor(low / b.width) * b.width;
    for (int64_t i = 0; i < n->count; i++) {
        const int bin = (int)((n->values[i] - b.from) / b.width);
        b.count[bin]++;
        b.used = bin + 1 > b.used ? bin + 1 : b.used;
    }
    return b;
}
