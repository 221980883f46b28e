/* SPDX-License-Identifier: Apache-2.0
 * Datasets whose samples a function of the caller's fetches: the same batches as from files,
 * values that come with the samples, errors and the policies for them, resuming, budget, ends. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "core/memory.h"
#include "engine_kit.h"

enum { SAMPLES = 40, CLASSES = 3 };
static const int64_t patience = 20000000000;
static char *folder;
static pst_dataset *files;

/* Reads from the folder's dataset. */
typedef struct source {
    atomic_int reads, open, ends, threads;
    int fail_id, fail_times; /* this sample fails so often; -1 = always */
    atomic_int failed;
    bool take, late;   /* bytes are handed over, not copied; labels come with the samples */
    int more;          /* further fields */
    size_t blow;       /* bytes to append */
    atomic_bool *gate; /* reads wait until it is set */
    int wrong_field;
} source;

typedef struct held {
    source *from;
    void *bytes;
} held;

static void let_go(void *arg)
{
    held *h = arg;
    atomic_fetch_sub(&h->from->open, 1);
    pst_free(h->bytes);
    free(h);
}

static void give_image(source *s, pst_sink *sink, void *bytes, size_t size)
{
    if (!s->take) {
        CHECK(pst_sink_bytes(sink, 0, bytes, size) == 0);
        pst_free(bytes);
        return;
    }
    held *h = malloc(sizeof *h);
    *h = (held){s, bytes};
    atomic_fetch_add(&s->open, 1);
    CHECK(pst_sink_take(sink, 0, bytes, size, let_go, h) == 0);
}

static void give_more(pst_sink *sink, int64_t id)
{
    char text[32];
    const int len = snprintf(text, sizeof text, "text %d", (int)id);
    const float pair[2] = {(float)id, -(float)id};
    CHECK(pst_sink_real(sink, 2, (double)id / 4) == 0);
    CHECK(pst_sink_bytes(sink, 3, text, (size_t)(id % 5 ? len : 0)) == 0);
    CHECK(pst_sink_bytes(sink, 4, pair, sizeof pair) == 0);
}

static int read_sample(void *user, int64_t id, pst_sink *sink, pst_error *err)
{
    source *s = user;
    atomic_fetch_add(&s->reads, 1);
    while (s->gate && !*s->gate)
        sched_yield();
    if (s->fail_id == id &&
        (s->fail_times < 0 || atomic_fetch_add(&s->failed, 1) < s->fail_times)) {
        snprintf(err->message, sizeof err->message, "sample %d went wrong", (int)id);
        err->code = PST_ECALL;
        return PST_ECALL;
    }
    void *bytes;
    size_t size;
    const int rc = pst_dataset_read(files, id, "image", &bytes, &size, err);
    if (rc < 0)
        return rc;
    give_image(s, sink, bytes, size);
    if (s->blow) {
        uint8_t *large = calloc(1, s->blow);
        pst_sink_bytes(sink, 0, large, s->blow);
        free(large);
    }
    pst_sample_info info;
    pst_dataset_sample(files, id, &info);
    if (s->late)
        CHECK(pst_sink_int(sink, 1, info.label) == 0);
    if (s->more)
        give_more(sink, id);
    if (s->wrong_field)
        CHECK(pst_sink_real(sink, 1, 1.5) == PST_EFIELD && pst_sink_int(sink, 7, 1) == PST_EFIELD);
    return 0;
}

static void destroy(void *user)
{
    source *s = user;
    CHECK(s->threads == 0);
    s->ends++;
}

static void *begin(void *user)
{
    source *s = user;
    s->threads++;
    return s;
}

static void end(void *user, void *thread)
{
    source *s = user;
    CHECK(thread == user);
    s->threads--;
}

static int key_of(void *user, int64_t id, char *buf, size_t cap)
{
    (void)user;
    return snprintf(buf, cap, "sample://%d", (int)id);
}

static pst_custom spec_of(source *s)
{
    pst_custom spec;
    pst_custom_init(&spec);
    spec.count = SAMPLES;
    spec.name = "kit";
    spec.threads = 3;
    spec.read = read_sample;
    spec.key = key_of;
    spec.thread_begin = begin;
    spec.thread_end = end;
    spec.destroy = destroy;
    spec.user = s;
    return spec;
}

static pst_dataset *open_custom(const pst_custom *spec)
{
    pst_dataset *data = NULL;
    pst_error err;
    if (pst_dataset_custom(spec, &data, &err) < 0) {
        fprintf(stderr, "custom: %s\n", err.message);
        exit(99);
    }
    return data;
}

static pst_job_options options(int batch)
{
    return kit_options(KIT_PIPELINE, batch, 21, 2);
}

static int run_job(pst_dataset *data, const pst_job_options *o, uint64_t memory, ledger *l,
                   pst_error *err)
{
    pst_engine *engine = kit_engine(2, memory);
    pst_job *job = kit_job(engine, data, o);
    const int rc = kit_collect(job, 0, o->epochs, SIZE_MAX, l);
    if (err)
        pst_job_error(job, err);
    pst_job_close(job);
    pst_engine_free(engine);
    return rc;
}

static void same_as_files(bool take, bool late, int order)
{
    source s = {.fail_id = -1, .take = take, .late = late};
    int64_t labels[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        pst_sample_info info;
        pst_dataset_sample(files, i, &info);
        labels[i] = info.label;
    }
    pst_custom spec = spec_of(&s);
    spec.labels = late ? NULL : labels;
    pst_dataset *data = open_custom(&spec);
    pst_job_options o = options(7);
    o.order = order;
    ledger want = {0}, got = {0};
    CHECK(run_job(files, &o, 64 << 20, &want, NULL) == 0);
    CHECK(run_job(data, &o, 64 << 20, &got, NULL) == 0);
    if (order == PST_ORDER_READY) {
        ledger_sort(&want);
        ledger_sort(&got);
    }
    CHECKF(order ? ledger_same(&want, &got) : ledger_same_order(&want, &got), "take %d late %d",
           take, late);
    CHECK(got.count == 2 * SAMPLES && s.reads == 2 * SAMPLES && s.open == 0 && s.ends == 0);
    pst_sample_info info;
    CHECK(pst_dataset_sample(data, 5, &info) == 0 && info.label == labels[5]);
    CHECK(strcmp(info.key, "sample://5") == 0 && strcmp(pst_dataset_kind(data), "custom") == 0);
    pst_dataset_close(data);
    CHECK(s.ends == 1);
    ledger_free(&want);
    ledger_free(&got);
}

static void batches_are_those_of_files(void)
{
    for (int take = 0; take < 2; take++)
        for (int late = 0; late < 2; late++)
            for (int order = 0; order < 2; order++)
                same_as_files(take, late, order);
}

static const pst_field_info more_fields[] = {
    {.name = "image", .kind = PST_IMAGE},
    {.name = "label", .kind = PST_LABEL, .dtype = PST_I64},
    {.name = "weight", .kind = PST_META, .dtype = PST_F32},
    {.name = "caption", .kind = PST_TEXT},
    {.name = "pair", .kind = PST_ARRAY, .dtype = PST_F32, .rank = 1, .shape = {2}},
};

static void check_more(const pst_batch_desc *d, uint32_t slot)
{
    const int64_t id = ((const int64_t *)pst_batch_data(d, pst_batch_find(d, "id")))[slot];
    size_t bytes;
    char text[32];
    snprintf(text, sizeof text, "text %d", (int)id);
    const float *weight = pst_batch_slot(d, pst_batch_find(d, "weight"), slot, &bytes);
    CHECK(*weight == (float)id / 4 && bytes == 4);
    const char *caption = pst_batch_slot(d, pst_batch_find(d, "caption"), slot, &bytes);
    CHECK(bytes == (id % 5 ? strlen(text) : 0) && memcmp(caption, text, bytes) == 0);
    const float *pair = pst_batch_slot(d, pst_batch_find(d, "pair"), slot, &bytes);
    CHECK(bytes == 8 && pair[0] == (float)id && pair[1] == -(float)id);
}

static void further_fields_come_with_the_samples(void)
{
    source s = {.fail_id = -1, .late = true, .more = 1};
    pst_custom spec = spec_of(&s);
    spec.fields = more_fields;
    spec.field_count = 5;
    pst_dataset *data = open_custom(&spec);
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(8);
    o.epochs = 1;
    pst_job *job = kit_job(engine, data, &o);
    pst_batch *batch;
    int slots = 0;
    while (pst_job_next(job, patience, &batch) == 1) {
        const pst_batch_desc *d = pst_batch_get(batch);
        for (uint32_t i = 0; i < d->slots; i++, slots++)
            check_more(d, i);
        pst_batch_release(batch);
    }
    CHECK(slots == SAMPLES);
    void *bytes;
    size_t size;
    CHECK(pst_dataset_read(data, 3, "caption", &bytes, &size, NULL) == 0 && size == 6);
    pst_free(bytes);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(data);
}

static void a_failing_read_is_a_bad_sample(void)
{
    source s = {.fail_id = 11, .fail_times = -1, .late = true, .take = true};
    const pst_custom spec = spec_of(&s);
    pst_dataset *data = open_custom(&spec);
    pst_job_options o = options(4);
    ledger l = {0};
    pst_error err;
    CHECK(run_job(data, &o, 64 << 20, &l, &err) == PST_ECALL);
    CHECK(err.id == 11 && strcmp(err.stage, "read") == 0 && strcmp(err.key, "sample://11") == 0);
    CHECK(strcmp(err.message, "sample 11 went wrong") == 0);
    ledger_free(&l);
    o.on_error = PST_SKIP;
    o.skip_limit = 1;
    CHECK(run_job(data, &o, 64 << 20, &l, NULL) == 0 && l.count == 2 * (SAMPLES - 1));
    for (size_t i = 0; i < l.count; i++)
        CHECK(l.at[i].id != 11);
    ledger_free(&l);
    void *bytes;
    size_t size;
    CHECK(pst_dataset_read(data, 11, "image", &bytes, &size, &err) == PST_ECALL && err.id == 11);
    CHECK(s.open == 0);
    pst_dataset_close(data);
}

static void a_read_is_tried_again_as_often_as_asked(void)
{
    for (int times = 2; times <= 3; times++) {
        source s = {.fail_id = 4, .fail_times = times, .late = true};
        const pst_custom spec = spec_of(&s);
        pst_dataset *data = open_custom(&spec);
        pst_job_options o = options(4);
        o.epochs = 1;
        o.read_retries = 2;
        ledger l = {0};
        const int rc = run_job(data, &o, 64 << 20, &l, NULL);
        CHECKF(rc == (times == 2 ? 0 : PST_ECALL), "%d failures: %d", times, rc);
        ledger_free(&l);
        pst_dataset_close(data);
    }
}

static void undeclared_fields_are_refused(void)
{
    source s = {.fail_id = -1, .wrong_field = 1};
    pst_custom spec = spec_of(&s);
    pst_dataset *data = open_custom(&spec), *none = NULL;
    const pst_job_options o = options(4);
    ledger l = {0};
    pst_error err;
    CHECK(run_job(data, &o, 64 << 20, &l, &err) == PST_EFIELD && strstr(err.message, "whole"));
    pst_dataset_close(data);
    ledger_free(&l);
    spec.fields = more_fields;
    const int ends = s.ends;
    spec.threads = 1000;
    CHECK(pst_dataset_custom(&spec, &none, &err) == -EINVAL && s.ends == ends);
    spec.threads = 1;
    spec.field_count = 0;
    CHECK(pst_dataset_custom(&spec, &none, &err) == -EINVAL);
    spec.fields = NULL;
    spec.name = "";
    CHECK(pst_dataset_custom(&spec, &none, &err) == -EINVAL);
    spec.size = 3;
    CHECK(pst_dataset_custom(&spec, &none, &err) == -EINVAL && !none);
}

static void a_resumed_epoch_goes_on(void)
{
    source s = {.fail_id = -1, .late = true, .take = true};
    const pst_custom spec = spec_of(&s);
    pst_dataset *data = open_custom(&spec);
    const pst_job_options o = options(4);
    ledger whole = {0}, parts = {0};
    CHECK(run_job(data, &o, 64 << 20, &whole, NULL) == 0);
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job *job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, 2, 3, &parts) == 0);
    uint8_t state[16384];
    size_t bytes;
    CHECK(pst_job_state(job, state, sizeof state, &bytes) == 0);
    pst_job_close(job);
    job = kit_job(engine, data, &o);
    CHECK(pst_job_load_state(job, state, bytes, NULL) == 0);
    CHECK(kit_collect(job, 0, 2, SIZE_MAX, &parts) == 0);
    CHECK(ledger_same_order(&whole, &parts));
    pst_job_close(job);
    pst_dataset_close(data);
    pst_custom other = spec; /* other data under another name: refused */
    other.name = "another";
    data = open_custom(&other);
    job = kit_job(engine, data, &o);
    CHECK(pst_job_load_state(job, state, bytes, NULL) == PST_ESTATE);
    pst_job_close(job);
    pst_dataset_close(data);
    pst_engine_free(engine);
    ledger_free(&whole);
    ledger_free(&parts);
}

static void a_sample_beyond_the_budget_says_so(void)
{
    source s = {.fail_id = -1, .blow = 30 << 20};
    const pst_custom spec = spec_of(&s);
    pst_dataset *data = open_custom(&spec);
    const pst_job_options o = options(4);
    ledger l = {0};
    pst_error err;
    CHECK(run_job(data, &o, 64 << 20, &l, &err) == PST_EBUDGET && strcmp(err.stage, "memory") == 0);
    ledger_free(&l);
    pst_dataset_close(data);
}

/* What waits behind slow reads when an epoch is given up is not read any more. */
static void an_epoch_given_up_is_not_read_on(void)
{
    atomic_bool gate = false;
    source s = {.fail_id = -1, .gate = &gate};
    const pst_custom spec = spec_of(&s);
    pst_dataset *data = open_custom(&spec);
    pst_engine *engine = kit_engine(2, 64 << 20);
    const pst_job_options o = options(4);
    pst_job *job = kit_job(engine, data, &o);
    ledger l = {0};
    while (s.reads < 3) /* as many as there are threads */
        sched_yield();
    CHECK(pst_job_set_epoch(job, 1) == 0);
    gate = true;
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0 && l.count == SAMPLES);
    CHECKF(s.reads == SAMPLES + 3, "%d reads", (int)s.reads);
    ledger_free(&l);
    pst_job_close(job);
    pst_dataset_close(data);
    CHECK(s.ends == 1);
    pst_engine_free(engine);
}

/* Identity is of name or revision, and id; nothing else. */
static void identity_follows_name_and_revision(void)
{
    source s = {.fail_id = -1};
    pst_custom spec = spec_of(&s);
    const uint8_t one[16] = {1}, two[16] = {2};
    const uint8_t *const revisions[] = {NULL, NULL, one, two};
    uint8_t seen[4][16], revision[4][16];
    for (int i = 0; i < 4; i++) {
        spec.revision = revisions[i];
        pst_dataset *data = open_custom(&spec);
        pst_sample_info info, other;
        pst_dataset_sample(data, 1, &info);
        pst_dataset_sample(data, 2, &other);
        CHECK(memcmp(info.identity, other.identity, 16) != 0);
        memcpy(seen[i], info.identity, 16);
        pst_dataset_revision(data, revision[i]);
        pst_dataset_close(data);
    }
    CHECK(memcmp(seen[0], seen[1], 16) == 0 && memcmp(revision[0], revision[1], 16) == 0);
    CHECK(memcmp(seen[1], seen[2], 16) != 0 && memcmp(seen[2], seen[3], 16) != 0);
    CHECK(memcmp(revision[3], two, 16) == 0);
}

static void making_one_survives_every_failed_allocation(void)
{
    source s = {.fail_id = -1};
    const pst_custom spec = spec_of(&s);
    psti_mem_stats before, after;
    psti_mem_stats_total(&before);
    int n = 1, rc = -ENOMEM;
    for (; rc < 0 && n < 200; n++) {
        pst_dataset *data = NULL;
        psti_mem_fail_at((uint64_t)n, false);
        rc = pst_dataset_custom(&spec, &data, NULL);
        psti_mem_fail_at(0, false);
        CHECK(rc == 0 || rc == -ENOMEM);
        pst_dataset_close(data);
        psti_mem_stats_total(&after);
        CHECKF(after.live == before.live, "allocation %d", n);
    }
    CHECK(rc == 0 && n > 8 && s.ends == 1);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, SAMPLES, CLASSES);
    files = kit_dataset(folder);
    RUN(batches_are_those_of_files);
    RUN(further_fields_come_with_the_samples);
    RUN(a_failing_read_is_a_bad_sample);
    RUN(a_read_is_tried_again_as_often_as_asked);
    RUN(undeclared_fields_are_refused);
    RUN(a_resumed_epoch_goes_on);
    RUN(a_sample_beyond_the_budget_says_so);
    RUN(an_epoch_given_up_is_not_read_on);
    RUN(identity_follows_name_and_revision);
    RUN(making_one_survives_every_failed_allocation);
    pst_dataset_close(files);
    kit_remove(folder);
    return check_report();
}
