/* SPDX-License-Identifier: Apache-2.0
 * Stop after k batches, go on elsewhere: the same samples, the same bytes. What does not fit is
 * refused. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine_kit.h"

enum { SAMPLES = 67, CLASSES = 3, BATCH = 5, EPOCHS = 3, TRIES = 50 };

static char *folder;
static pst_dataset *data;
static double weights[SAMPLES];

typedef struct blob {
    uint8_t *bytes;
    size_t size;
} blob;

static pst_job_options options(int order, int rank, int world, int ends)
{
    pst_job_options o = kit_options(KIT_PIPELINE, BATCH, 11, EPOCHS);
    o.order = order;
    o.rank = rank;
    o.world = world;
    o.ends = ends;
    return o;
}

static void set_kind(pst_job_options *o, int kind)
{
    static int64_t given[80];
    if (kind == 1) {
        o->sampler = PST_WEIGHTED;
        o->weights = weights;
        o->weights_count = SAMPLES;
    } else if (kind == 2) {
        o->repeat = 2;
    } else if (kind == 3) {
        o->sampler = PST_WEIGHTED_ONCE;
        o->weights = weights;
        o->weights_count = SAMPLES;
    } else if (kind == 4) {
        for (int i = 0; i < 80; i++)
            given[i] = i * 13 % SAMPLES;
        o->sampler = PST_GIVEN;
        o->ids = given;
        o->ids_count = 80;
    }
}

static blob save(pst_job *job)
{
    blob b = {0};
    CHECK(pst_job_state(job, NULL, 0, &b.size) == -ENOSPC);
    b.bytes = malloc(b.size);
    CHECK(pst_job_state(job, b.bytes, b.size, &b.size) == 0);
    return b;
}

static void load(pst_job *job, const blob *b)
{
    pst_error err;
    const int rc = pst_job_load_state(job, b->bytes, b->size, &err);
    CHECKF(rc == 0, "%s", rc < 0 ? err.message : "");
}

/* Collects to the end of the last epoch. */
static void rest(pst_job *job, int rank, ledger *out)
{
    for (;;) {
        const int rc = kit_collect(job, rank, 1, SIZE_MAX, out);
        CHECKF(rc == 0, "%s", pst_strerror(rc));
        if (rc < 0 || pst_job_epoch(job) >= EPOCHS)
            return;
    }
}

static void same_world(int order, int kind)
{
    pst_engine *first = kit_engine(2, 64 << 20), *second = kit_engine(3, 64 << 20);
    pst_job_options o = options(order, 0, 1, PST_ENDS_SHORT);
    set_kind(&o, kind);
    ledger whole = {0};
    pst_job *job = kit_job(first, data, &o);
    CHECK(kit_collect(job, 0, EPOCHS, SIZE_MAX, &whole) == 0);
    pst_job_close(job);
    ledger sorted = whole;
    sorted.at = malloc(whole.count * sizeof *whole.at);
    memcpy(sorted.at, whole.at, whole.count * sizeof *whole.at);
    ledger_sort(&sorted);
    for (int i = 0; i < TRIES; i++) {
        const size_t k = (size_t)(i * 7919 + kind) % (whole.batches + 1);
        ledger l = {0};
        job = kit_job(first, data, &o);
        CHECK(kit_collect(job, 0, EPOCHS, k, &l) == 0);
        blob b = save(job);
        CHECKF(b.size <= (size_t)SAMPLES * 2 / 8 + 8192 + 80 * 8, "%zu bytes", b.size);
        pst_job_close(job);
        job = kit_job(second, data, &o);
        load(job, &b);
        rest(job, 0, &l);
        pst_job_close(job);
        free(b.bytes);
        if (order == PST_ORDER_STRICT) {
            CHECKF(ledger_same_order(&whole, &l), "kind %d after %zu batches: %zu lines of %zu",
                   kind, k, l.count, whole.count);
        } else {
            ledger_sort(&l);
            CHECKF(ledger_same(&sorted, &l), "kind %d after %zu batches: %zu lines of %zu", kind, k,
                   l.count, sorted.count);
        }
        ledger_free(&l);
    }
    ledger_free(&whole);
    ledger_free(&sorted);
    pst_engine_free(first);
    pst_engine_free(second);
}

static void strict_resume_is_identical(void)
{
    for (int kind = 0; kind < 5; kind++)
        same_world(PST_ORDER_STRICT, kind);
}

static void ready_resume_is_the_exact_multiset(void)
{
    for (int kind = 0; kind < 5; kind++)
        same_world(PST_ORDER_READY, kind);
}

/* Lines of all ranks of the first epoch by position: step, rank, slot. */
static int by_place(const void *a, const void *b)
{
    const line *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    return x->slot - y->slot;
}

static void another_world_continues_by_position(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(PST_ORDER_STRICT, 0, 1, PST_ENDS_SHORT);
    o.epochs = 1;
    ledger golden = {0};
    pst_job *job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &golden) == 0);
    pst_job_close(job);
    for (int from = 1; from <= 3; from++)
        for (int to = 1; to <= 4; to++)
            for (size_t k = 0; k <= 4; k++) {
                ledger l = {0};
                blob b = {0};
                for (int rank = 0; rank < from; rank++) {
                    pst_job_options p = options(PST_ORDER_STRICT, rank, from, PST_ENDS_SHORT);
                    p.epochs = 1;
                    job = kit_job(engine, data, &p);
                    CHECK(kit_collect(job, rank, 1, k, &l) == 0);
                    free(b.bytes);
                    b = save(job); /* any one rank's state will do */
                    pst_job_close(job);
                }
                if (l.count)
                    qsort(l.at, l.count, sizeof *l.at, by_place);
                ledger more = {0};
                for (int rank = 0; rank < to; rank++) {
                    pst_job_options p = options(PST_ORDER_STRICT, rank, to, PST_ENDS_SHORT);
                    p.epochs = 1;
                    p.batch = BATCH + to - 1;
                    job = kit_job(engine, data, &p);
                    load(job, &b);
                    CHECK(kit_collect(job, rank, 1, SIZE_MAX, &more) == 0);
                    pst_job_close(job);
                }
                if (more.count)
                    qsort(more.at, more.count, sizeof *more.at, by_place);
                CHECKF(l.count + more.count == golden.count, "%d to %d after %zu: %zu + %zu", from,
                       to, k, l.count, more.count);
                for (size_t i = 0; i < golden.count; i++) {
                    const line *got = i < l.count ? &l.at[i] : &more.at[i - l.count];
                    CHECK(got->id == golden.at[i].id && got->crc == golden.at[i].crc);
                }
                ledger_free(&l);
                ledger_free(&more);
                free(b.bytes);
            }
    ledger_free(&golden);
    pst_engine_free(engine);
}

static void ready_ranks_are_merged(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    ledger l = {0};
    blob b[3];
    for (int rank = 0; rank < 3; rank++) {
        pst_job_options o = options(PST_ORDER_READY, rank, 3, PST_ENDS_SHORT);
        o.epochs = 1;
        pst_job *job = kit_job(engine, data, &o);
        CHECK(kit_collect(job, rank, 1, 1 + (size_t)rank, &l) == 0);
        b[rank] = save(job);
        pst_job_close(job);
    }
    pst_job_options o = options(PST_ORDER_READY, 0, 2, PST_ENDS_SHORT);
    o.epochs = 1;
    pst_error err;
    pst_job *job = kit_job(engine, data, &o);
    CHECK(pst_job_load_state(job, b[1].bytes, b[1].size, &err) ==
          PST_ESTATE); /* one rank's alone */
    pst_job_close(job);
    const void *parts[] = {b[2].bytes, b[0].bytes, b[1].bytes};
    const size_t sizes[] = {b[2].size, b[0].size, b[1].size};
    void *joined;
    size_t size;
    CHECK(pst_state_merge(parts, sizes, 2, &joined, &size, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "1"), "names the missing rank: %s", err.message);
    CHECK(pst_state_merge(parts, sizes, 3, &joined, &size, &err) == 0);
    for (int rank = 0; rank < 2; rank++) {
        o = options(PST_ORDER_READY, rank, 2, PST_ENDS_SHORT);
        o.epochs = 1;
        job = kit_job(engine, data, &o);
        const blob whole = {joined, size};
        load(job, &whole);
        CHECK(kit_collect(job, rank, 1, SIZE_MAX, &l) == 0);
        pst_job_close(job);
    }
    ledger_sort(&l);
    CHECK(l.count == SAMPLES);
    for (size_t i = 0; i < l.count; i++)
        CHECK(l.at[i].id == (int64_t)i);
    pst_free(joined);
    for (int rank = 0; rank < 3; rank++)
        free(b[rank].bytes);
    ledger_free(&l);
    pst_engine_free(engine);
}

static int try_load(pst_engine *engine, pst_dataset *from, const pst_job_options *o, const blob *b,
                    pst_error *err)
{
    pst_job *job = kit_job(engine, from, o);
    const int rc = pst_job_load_state(job, b->bytes, b->size, err);
    pst_job_close(job);
    return rc;
}

static void what_does_not_fit_is_refused(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(PST_ORDER_STRICT, 0, 1, PST_ENDS_SHORT);
    ledger l = {0};
    pst_error err;
    pst_job *job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, 1, 3, &l) == 0);
    blob b = save(job);
    CHECK(pst_job_load_state(job, b.bytes, b.size, &err) == -EBUSY);
    pst_job_close(job);
    pst_job_options other = o;
    other.pipeline = "decode | random_resized_crop(18)";
    CHECK(try_load(engine, data, &other, &b, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "random_resized_crop(16)") &&
               strstr(err.message, "random_resized_crop(18)"),
           "%s", err.message);
    other = o;
    other.seed = 12;
    CHECK(try_load(engine, data, &other, &b, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "11") && strstr(err.message, "12"), "%s", err.message);
    other = o;
    other.repeat = 2;
    CHECK(try_load(engine, data, &other, &b, &err) == PST_ESTATE);
    other = o;
    other.order = PST_ORDER_READY;
    CHECK(try_load(engine, data, &other, &b, &err) == PST_ESTATE);
    for (size_t i = 0; i < b.size; i++) {
        const blob cut = {b.bytes, i};
        b.bytes[i] ^= 0x40;
        CHECKF(try_load(engine, data, &o, &b, &err) < 0, "byte %zu changed", i);
        b.bytes[i] ^= 0x40;
        if (i % 7 == 0)
            CHECKF(try_load(engine, data, &o, &cut, &err) < 0, "cut at %zu", i);
    }
    CHECK(try_load(engine, data, &o, &b, &err) == 0);
    size_t size;
    uint8_t *jpeg = kit_jpeg(33, 31, 999, false, &size);
    kit_write(folder, "c00/new.jpg", jpeg, size);
    free(jpeg);
    pst_dataset *changed = kit_dataset(folder);
    CHECK(try_load(engine, changed, &o, &b, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "dataset"), "%s", err.message);
    pst_dataset_close(changed);
    free(b.bytes);
    ledger_free(&l);
    pst_engine_free(engine);
}

/* A file that changes after the listing: served as what it is now; refused when resuming. */
static void a_changed_file_is_never_served_as_the_old_one(void)
{
    pst_engine *engine = kit_engine(1, 64 << 20);
    pst_dataset *fresh = kit_dataset(folder);
    pst_job_options o = options(PST_ORDER_STRICT, 0, 1, PST_ENDS_SHORT);
    o.epochs = 1;
    ledger before = {0}, after = {0};
    pst_job *job = kit_job(engine, fresh, &o);
    CHECK(kit_collect(job, 0, 1, 2, &before) == 0);
    blob b = save(job);
    pst_job_close(job);
    const size_t count = (size_t)pst_dataset_count(fresh);
    for (size_t i = 0; i < count; i++) {
        pst_sample_info info;
        size_t size;
        pst_dataset_sample(fresh, (int64_t)i, &info);
        uint8_t *jpeg = kit_jpeg(41, 40, 5000 + (unsigned)i, false, &size);
        kit_write(folder, info.key, jpeg, size);
        free(jpeg);
    }
    job = kit_job(engine, fresh, &o);
    load(job, &b);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &after) == PST_ECHANGED);
    pst_job_close(job);
    ledger_free(&after);
    job = kit_job(engine, fresh, &o);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &after) == 0);
    CHECK(after.count == count);
    for (size_t i = 0; i < before.count; i++)
        CHECK(before.at[i].id == after.at[i].id && before.at[i].crc != after.at[i].crc);
    pst_job_close(job);
    free(b.bytes);
    ledger_free(&before);
    ledger_free(&after);
    pst_dataset_close(fresh);
    pst_engine_free(engine);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, SAMPLES, CLASSES);
    data = kit_dataset(folder);
    for (int i = 0; i < SAMPLES; i++)
        weights[i] = 1.0 + i % 7;
    RUN(strict_resume_is_identical);
    RUN(ready_resume_is_the_exact_multiset);
    RUN(another_world_continues_by_position);
    RUN(ready_ranks_are_merged);
    RUN(what_does_not_fit_is_refused);
    RUN(a_changed_file_is_never_served_as_the_old_one);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
