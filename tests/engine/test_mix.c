/* SPDX-License-Identifier: Apache-2.0
 * Batch ops as a job delivers them: the same pipeline without one gives what is to be mixed, and
 * the formula gives the rest. Any number of workers, ends with padding, ready order, resume,
 * batches of varying shape. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine_kit.h"

enum { SAMPLES = 41, CLASSES = 3, BATCH = 6, SIDE = 16, VALUES = 3 * SIDE * SIDE };
#define MIXED KIT_PIPELINE " || choice(1: mixup(0.4), 2: cutmix)"

static char *folder;
static pst_dataset *data;
static pst_engine *engine;

static pst_job_options options(const char *pipeline)
{
    return kit_options(pipeline, BATCH, 17, 2);
}

/* Every sample as it is before mixing, by epoch and id. */
static float plain[2][SAMPLES][VALUES];
static int64_t labels[SAMPLES];

static void learn_plain(void)
{
    const pst_job_options o = options(KIT_PIPELINE);
    pst_job *job = kit_job(engine, data, &o);
    for (int ended = 0; ended < 2;) {
        pst_batch *batch;
        const int rc = pst_job_next(job, -1, &batch);
        CHECK(rc >= 0);
        ended += rc == 0;
        if (rc != 1)
            continue;
        const pst_batch_desc *desc = pst_batch_get(batch);
        const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
        const int64_t *label = pst_batch_data(desc, pst_batch_find(desc, "label"));
        const float *image = pst_batch_data(desc, pst_batch_find(desc, "image"));
        pst_mix mix;
        CHECK(pst_batch_mix(batch, &mix) == 0 && mix.kind == PST_MIX_NONE && mix.lam == 1);
        for (uint32_t i = 0; i < desc->slots; i++) {
            memcpy(plain[desc->epoch][ids[i]], image + i * VALUES, sizeof plain[0][0]);
            labels[ids[i]] = label[i];
        }
        pst_batch_release(batch);
    }
    pst_job_close(job);
}

/* ---- the formula ----------------------------------------------------------------------------- */

static int other_of(const uint8_t *valid, int slots, int slot)
{
    do
        slot = (slot + slots - 1) % slots;
    while (!valid[slot]);
    return slot;
}

static float mixed(const pst_mix *mix, float own, float other)
{
    const volatile float a = (float)mix->lam * own, b = (float)(1 - mix->lam) * other;
    return a + b;
}

static float value_of(const pst_mix *mix, int i, float own, float other)
{
    const int y = i / SIDE % SIDE, x = i % SIDE;
    if (mix->kind == PST_MIXUP)
        return mixed(mix, own, other);
    const bool inside = y >= mix->y1 && y < mix->y2 && x >= mix->x1 && x < mix->x2;
    return inside ? other : own;
}

static void check_slot(const pst_batch_desc *desc, const pst_mix *mix, uint32_t slot)
{
    const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
    const uint8_t *valid = pst_batch_data(desc, pst_batch_find(desc, "valid"));
    const pst_field *soft = pst_batch_find(desc, "label");
    const float *label = (const float *)pst_batch_data(desc, soft) + slot * CLASSES;
    const float *image =
        (const float *)pst_batch_data(desc, pst_batch_find(desc, "image")) + slot * VALUES;
    const int64_t id = ids[slot];
    const int64_t other = valid[slot] ? ids[other_of(valid, (int)desc->slots, (int)slot)] : id;
    CHECK(soft->dtype == PST_F32 && soft->rank == 1 && soft->shape[0] == CLASSES);
    CHECK(soft->kind == PST_LABEL);
    int wrong = 0;
    for (int i = 0; i < VALUES; i++) {
        const float own = plain[desc->epoch][id][i];
        const float want =
            valid[slot] && mix->kind ? value_of(mix, i, own, plain[desc->epoch][other][i]) : own;
        wrong += image[i] != want;
    }
    CHECKF(wrong == 0, "step %d slot %u: %d values", (int)desc->step, slot, wrong);
    for (int c = 0; c < CLASSES; c++) {
        const float own = labels[id] == c, from = labels[other] == c;
        CHECK(label[c] == (valid[slot] && mix->kind ? mixed(mix, own, from) : own));
    }
}

/* Runs the job to its end; counts batches by what was done to them. */
static void check_job(pst_job *job, uint64_t epochs, int kinds[3])
{
    for (uint64_t ended = 0; ended < epochs;) {
        pst_batch *batch;
        pst_mix mix;
        const int rc = pst_job_next(job, -1, &batch);
        CHECK(rc >= 0);
        if (rc < 0)
            return;
        ended += rc == 0;
        if (rc == 0)
            continue;
        const pst_batch_desc *desc = pst_batch_get(batch);
        CHECK(pst_batch_mix(batch, &mix) == (mix.kind != PST_MIX_NONE));
        CHECK(mix.done == (mix.kind != PST_MIX_NONE));
        kinds[mix.kind]++;
        for (uint32_t i = 0; i < desc->slots; i++)
            check_slot(desc, &mix, i);
        pst_batch_release(batch);
    }
}

/* ---- behaviours ------------------------------------------------------------------------------ */

static void batches_are_mixed_as_the_formula_says(void)
{
    int kinds[3] = {0};
    pst_job_options o = options(MIXED);
    pst_job *job = kit_job(engine, data, &o);
    check_job(job, 2, kinds);
    CHECKF(kinds[0] == 0 && kinds[1] > 0 && kinds[2] > 0, "%d mixup, %d cutmix", kinds[1],
           kinds[2]);
    pst_job_stats stats = {.size = sizeof stats};
    pst_job_stats_get(job, &stats);
    const pst_stage_stats *last = &stats.stages[stats.stage_count - 1];
    CHECKF(strcmp(last->name, "choice") == 0 && last->runs == 14, "%s %d", last->name,
           (int)last->runs);
    pst_job_close(job);
    o.pipeline = KIT_PIPELINE " || cutmix(p=0.5)";
    job = kit_job(engine, data, &o);
    memset(kinds, 0, sizeof kinds);
    check_job(job, 2, kinds);
    CHECK(kinds[0] > 0 && kinds[1] == 0 && kinds[2] > 0);
    pst_job_close(job);
}

/* Padded slots are left alone, with one real sample in the batch too. */
static void padded_ends_are_mixed_among_what_is_valid(void)
{
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++)
        for (int rank = 0; rank < 2; rank++) {
            int kinds[3] = {0};
            pst_job_options o = options(MIXED);
            o.order = order;
            o.world = 2;
            o.rank = rank;
            o.ends = PST_ENDS_PAD;
            pst_job *job = kit_job(engine, data, &o);
            check_job(job, 2, kinds);
            CHECK(kinds[1] + kinds[2] == 8);
            pst_job_close(job);
        }
}

static void ready_order_and_skips_are_mixed_alike(void)
{
    int kinds[3] = {0};
    pst_job_options o = options(MIXED);
    o.order = PST_ORDER_READY;
    pst_job *job = kit_job(engine, data, &o);
    check_job(job, 2, kinds);
    pst_job_close(job);
    o.order = PST_ORDER_STRICT;
    o.on_error = PST_SKIP;
    job = kit_job(engine, data, &o);
    check_job(job, 2, kinds);
    pst_job_close(job);
    CHECK(kinds[1] + kinds[2] == 28);
}

static void collect(pst_engine *by, const pst_job_options *o, ledger *out)
{
    pst_job *job = kit_job(by, data, o);
    CHECK(kit_collect(job, 0, o->epochs, SIZE_MAX, out) == 0);
    pst_job_close(job);
}

static void worker_count_changes_no_byte(void)
{
    const pst_job_options o = options(MIXED);
    ledger one = {0}, many = {0};
    pst_engine *alone = kit_engine(1, 64 << 20), *crowd = kit_engine(7, 64 << 20);
    collect(alone, &o, &one);
    collect(crowd, &o, &many);
    CHECK(one.count == 2 * SAMPLES && ledger_same_order(&one, &many));
    ledger_free(&one);
    ledger_free(&many);
    pst_engine_free(alone);
    pst_engine_free(crowd);
}

static void a_resumed_job_draws_what_was_to_come(void)
{
    const pst_job_options o = options(MIXED);
    ledger whole = {0};
    collect(engine, &o, &whole);
    for (size_t stop = 1; stop < 14; stop += stop == 6 ? 2 : 1) { /* an epoch has 7 */
        uint8_t state[8192];
        size_t size;
        ledger parts = {0};
        pst_job *job = kit_job(engine, data, &o);
        CHECK(kit_collect(job, 0, 2, stop, &parts) == 0);
        CHECK(pst_job_state(job, state, sizeof state, &size) == 0);
        pst_job_close(job);
        job = kit_job(engine, data, &o);
        pst_error err;
        CHECK(pst_job_load_state(job, state, size, &err) == 0);
        CHECK(kit_collect(job, 0, stop < 7 ? 2 : 1, SIZE_MAX, &parts) == 0);
        pst_job_close(job);
        CHECKF(ledger_same_order(&whole, &parts), "stopped after %zu", stop);
        ledger_free(&parts);
    }
    ledger_free(&whole);
}

static void what_is_left_to_the_caller_is_told(void)
{
    pst_job_options o = options(MIXED);
    pst_job *done = kit_job(engine, data, &o);
    o.leave_mix = 1;
    pst_job *left = kit_job(engine, data, &o);
    pst_batch *a, *b;
    while (pst_job_next(done, -1, &a) == 1 && pst_job_next(left, -1, &b) == 1) {
        const pst_batch_desc *desc = pst_batch_get(b);
        const pst_field *label = pst_batch_find(desc, "label");
        const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
        pst_mix drawn, told;
        CHECK(pst_batch_mix(a, &drawn) == 1 && pst_batch_mix(b, &told) == 1);
        CHECK(told.done == 0 && drawn.done == 1);
        told.done = 1;
        CHECK(memcmp(&drawn, &told, sizeof drawn) == 0);
        CHECK(label->dtype == PST_I64 && label->rank == 0);
        for (uint32_t i = 0; i < desc->slots; i++) {
            size_t bytes;
            const float *image = pst_batch_slot(desc, pst_batch_find(desc, "image"), i, &bytes);
            CHECK(memcmp(image, plain[desc->epoch][ids[i]], bytes) == 0);
            CHECK(((const int64_t *)pst_batch_data(desc, label))[i] == labels[ids[i]]);
        }
        pst_batch_release(a);
        pst_batch_release(b);
    }
    pst_job_close(done);
    pst_job_close(left);
}

static void batches_of_varying_shape_are_mixed_too(void)
{
    enum { CAP = SAMPLES * 128 };
    char *text = malloc(CAP), name[64];
    size_t at = (size_t)snprintf(text, CAP, "key\tlabel\tcaption\n");
    for (int i = 0; i < SAMPLES; i++) {
        kit_name(i, CLASSES, name);
        at += (size_t)snprintf(text + at, CAP - at, "%s\t%d\t%.*s\n", name, i % CLASSES, 1 + i % 9,
                               "some words");
    }
    kit_write(folder, "list.tsv", text, at);
    free(text);
    char path[512];
    snprintf(path, sizeof path, "%s/list.tsv", folder);
    pst_dataset *listed = kit_dataset(path);
    const int orders[] = {PST_ORDER_STRICT, PST_ORDER_READY};
    for (int k = 0; k < 2; k++) {
        pst_job_options o = options(KIT_PIPELINE " || mixup(0.4, classes=3)");
        o.order = orders[k];
        pst_job *job = kit_job(engine, listed, &o);
        pst_batch *batch;
        int batches = 0;
        while (pst_job_next(job, -1, &batch) == 1) {
            const pst_batch_desc *desc = pst_batch_get(batch);
            const pst_field *label = pst_batch_find(desc, "label");
            const float *soft = pst_batch_data(desc, label);
            pst_mix mix;
            CHECK(pst_batch_find(desc, "caption")->packing == PST_RAGGED);
            CHECK(pst_batch_mix(batch, &mix) == 1 && mix.done);
            const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
            for (uint32_t i = 0; i < desc->slots; i++) {
                const int64_t before = ids[(i + desc->slots - 1) % desc->slots];
                for (int c = 0; c < CLASSES; c++)
                    CHECK(soft[i * CLASSES + (uint32_t)c] ==
                          mixed(&mix, ids[i] % CLASSES == c, before % CLASSES == c));
            }
            batches++;
            pst_batch_release(batch);
        }
        CHECK(batches == 7);
        pst_job_close(job);
    }
    pst_dataset_close(listed);
}

static void what_cannot_be_mixed_is_refused(void)
{
    pst_job_options o = options(KIT_PIPELINE " || mixup");
    pst_error err;
    pst_job *job;
    o.fields = "image";
    CHECK(pst_job_open(engine, data, &o, &job, &err) == PST_EPIPELINE);
    CHECKF(strstr(err.message, "no label"), "%s", err.message);
    o.fields = "image=padded,label";
    CHECK(pst_job_open(engine, data, &o, &job, &err) == PST_EFIELD);
    CHECKF(strstr(err.message, "dense"), "%s", err.message);
    o = options(KIT_PIPELINE " || mixup(classes=2)"); /* there are 3 */
    CHECK(pst_job_open(engine, data, &o, &job, &err) == 0);
    pst_batch *batch;
    CHECK(pst_job_next(job, -1, &batch) == PST_EFIELD);
    pst_job_error(job, &err);
    CHECKF(strstr(err.message, "none of the 2 classes") && err.key[0], "%s", err.message);
    pst_job_close(job);
    o.leave_mix = 2;
    CHECK(pst_job_open(engine, data, &o, &job, &err) == -EINVAL);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, SAMPLES, CLASSES);
    data = kit_dataset(folder);
    engine = kit_engine(3, 64 << 20);
    learn_plain();
    RUN(batches_are_mixed_as_the_formula_says);
    RUN(padded_ends_are_mixed_among_what_is_valid);
    RUN(ready_order_and_skips_are_mixed_alike);
    RUN(worker_count_changes_no_byte);
    RUN(a_resumed_job_draws_what_was_to_come);
    RUN(what_is_left_to_the_caller_is_told);
    RUN(batches_of_varying_shape_are_mixed_too);
    RUN(what_cannot_be_mixed_is_refused);
    pst_engine_free(engine);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
