/* SPDX-License-Identifier: Apache-2.0
 * Samples of varying shape in batches: padded, padded to multiples, ragged, and alone. However they
 * are packed, and whatever waited in which form for it, the elements are the same. */
#include <stdlib.h>

#include "check.h"
#include "engine_kit.h"

enum { SAMPLES = 24, CLASSES = 3, FIELDS = 4 };

static char *folder;
static pst_dataset *data;

static const char *const packed[FIELDS] = {"image,label", "image=padded,label",
                                           "image=padded(32),label", "label,image=padded(1)"};

/* Rows, columns and channels as they lie in a batch. */
static int64_t multiple_of(int which, const pst_field *f, int d)
{
    const int channels = f->layout == PST_NCHW ? 0 : 2;
    return which == 2 && d != channels ? 32 : 1;
}

static void check_shape(const pst_batch_desc *desc, const pst_field *f, int which)
{
    const int64_t *shapes = (const int64_t *)((const uint8_t *)desc + f->shapes_offset);
    CHECK(f->packing == (which ? PST_PADDED : PST_RAGGED) && f->rank == 3);
    for (int d = 0; which && d < 3; d++) {
        int64_t largest = 0;
        for (uint32_t i = 0; i < desc->slots; i++)
            largest = shapes[i * 3 + d] > largest ? shapes[i * 3 + d] : largest;
        const int64_t m = multiple_of(which, f, d);
        CHECKF(f->shape[d] == (largest + m - 1) / m * m, "dimension %d is %lld for %lld", d,
               (long long)f->shape[d], (long long)largest);
    }
}

/* crc: of each sample. */
static void take(pst_engine *engine, pst_job_options o, int which, uint32_t *crc)
{
    o.fields = packed[which];
    pst_job *job = kit_job(engine, data, &o);
    pst_batch *batch;
    int seen = 0;
    while (pst_job_next(job, -1, &batch) == 1) {
        const pst_batch_desc *desc = pst_batch_get(batch);
        const pst_field *f = pst_batch_find(desc, "image");
        const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
        check_shape(desc, f, which);
        for (uint32_t i = 0; i < desc->slots; i++, seen++)
            crc[ids[i]] = kit_field_crc(0, desc, f, i);
        pst_batch_release(batch);
    }
    CHECKF(seen == SAMPLES, "%d samples", seen);
    pst_job_close(job);
}

static void check_pipeline(const char *pipeline, int order, int on_error)
{
    static const int batches[] = {7, 1};
    pst_engine *engine = kit_engine(3, 64 << 20);
    uint32_t first[SAMPLES] = {0};
    for (int b = 0; b < 2; b++) {
        for (int which = 0; which < FIELDS; which++) {
            pst_job_options o = kit_options(pipeline, batches[b], 5, 1);
            o.order = order;
            o.on_error = on_error;
            uint32_t crc[SAMPLES] = {0};
            take(engine, o, which, b == 0 && which == 0 ? first : crc);
            CHECKF((b == 0 && which == 0) || memcmp(first, crc, sizeof crc) == 0,
                   "%s, batch %d, %s", pipeline, batches[b], packed[which]);
        }
    }
    CHECK(first[0] && first[0] != first[1]);
    pst_engine_free(engine);
}

static void packing_changes_nothing(void)
{
    static const char *const pipelines[] = {
        "decode",
        "decode(keep) | vflip",
        "decode | hflip | to(u8, nchw)",
        "decode | normalize(imagenet)",
        "decode | normalize(imagenet) | to(f16, nhwc)",
        "decode | normalize(half) | random_erasing(p=0.6, value=random)",
    };
    for (size_t p = 0; p < sizeof pipelines / sizeof *pipelines; p++)
        for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++)
            check_pipeline(pipelines[p], order, p % 2 ? PST_SKIP : PST_RAISE);
}

/* Strict order with skips: a dense batch's samples wait as bytes and become floats in their slots,
 * the same ones as without waiting. */
static void what_waits_for_its_slot_is_the_same(void)
{
    ledger found[2] = {{0}};
    for (int skip = 0; skip < 2; skip++) {
        pst_engine *engine = kit_engine(4, 64 << 20);
        pst_job_options o =
            kit_options("decode | delay(0.1) | delay(2, 0.2) | random_resized_crop(16) | "
                        "normalize(imagenet)",
                        5, 3, 2);
        o.on_error = skip ? PST_SKIP : PST_RAISE;
        pst_job *job = kit_job(engine, data, &o);
        CHECK(kit_collect(job, 0, 2, SIZE_MAX, &found[skip]) == 0);
        pst_job_close(job);
        pst_engine_free(engine);
    }
    CHECK(found[0].count == 2 * SAMPLES && ledger_same_order(&found[0], &found[1]));
    ledger_free(&found[0]);
    ledger_free(&found[1]);
}

/* Batches large enough for their memory to be used again: what was there before does not show. */
static void memory_that_is_used_again_is_clean(void)
{
    static const int batches[] = {1, 3};
    uint32_t want[SAMPLES] = {0};
    pst_engine *engine = kit_engine(2, 512 << 20);
    pst_job_options o = kit_options("decode | resize(330) | normalize(imagenet)", 2, 0, 1);
    take(engine, o, 0, want);
    for (int c = 0; c < 4; c++) {
        o.fields = packed[2];
        o.batch = batches[c & 1];
        o.order = c & 2 ? PST_ORDER_READY : PST_ORDER_STRICT;
        o.epochs = 5;
        pst_job *job = kit_job(engine, data, &o);
        pst_batch *batch;
        int seen = 0, wrong = 0, again = 0;
        const void *at[5 * SAMPLES] = {NULL};
        for (int rc, n = 0; (rc = pst_job_next(job, -1, &batch)) == 1 || seen < 5 * SAMPLES;) {
            if (rc != 1)
                continue;
            const pst_batch_desc *desc = pst_batch_get(batch);
            const pst_field *f = pst_batch_find(desc, "image");
            const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
            for (uint32_t i = 0; i < desc->slots; i++, seen++)
                wrong += kit_field_crc(0, desc, f, i) != want[ids[i]];
            for (int i = 0; i < n; i++)
                again += at[i] == (const void *)desc;
            at[n++] = desc;
            pst_batch_release(batch);
        }
        CHECKF(wrong == 0 && again > 0, "case %d: %d wrong, %d used again", c, wrong, again);
        pst_job_close(job);
    }
    pst_engine_free(engine);
}

static void wrong_multiples_are_refused(void)
{
    static const char *const wrong[] = {"image=padded(0)", "image=padded()",      "image=padded(32",
                                        "image=padded(x)", "image=padded(99999)", "image=ragged(2)",
                                        "image=padded(8)x"};
    pst_engine *engine = kit_engine(1, 64 << 20);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pst_job_options o = kit_options("decode", 4, 0, 1);
        o.fields = wrong[i];
        pst_job *job = NULL;
        pst_error err;
        CHECKF(pst_job_open(engine, data, &o, &job, &err) == PST_EFIELD, "%s", wrong[i]);
        CHECKF(strstr(err.message, "padded(32)"), "%s", err.message);
        pst_job_close(job);
    }
    pst_engine_free(engine);
}

/* Closed with batches of one in every state: nothing is lost, see the sanitizers. */
static void batches_of_one_may_be_left_lying(void)
{
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        pst_engine *engine = kit_engine(3, 64 << 20);
        pst_job_options o = kit_options("decode | normalize(imagenet)", 1, 1, 0);
        o.fields = "image=padded(8)";
        o.order = order;
        pst_job *job = kit_job(engine, data, &o);
        pst_batch *kept[3];
        for (int i = 0; i < 3; i++)
            CHECK(pst_job_next(job, -1, &kept[i]) == 1);
        CHECK(pst_job_set_epoch(job, 7) == 0);
        pst_batch *batch;
        CHECK(pst_job_next(job, -1, &batch) == 1 && pst_batch_get(batch)->epoch == 7);
        pst_batch_release(batch);
        pst_job_close(job);
        for (int i = 0; i < 3; i++) {
            CHECK(pst_batch_get(kept[i])->slots == 1);
            pst_batch_release(kept[i]);
        }
        pst_engine_free(engine);
    }
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, SAMPLES, CLASSES);
    data = kit_dataset(folder);
    RUN(packing_changes_nothing);
    RUN(what_waits_for_its_slot_is_the_same);
    RUN(memory_that_is_used_again_is_clean);
    RUN(wrong_multiples_are_refused);
    RUN(batches_of_one_may_be_left_lying);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
