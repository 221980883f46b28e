/* SPDX-License-Identifier: Apache-2.0
 * Preps: single samples on the calling thread give the bytes that a job gives, errors tell where
 * they came from and spoil nothing, batches outlive their prep. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "engine_kit.h"

enum { SAMPLES = 12, SEED = 77 };
static char *folder;
static pst_dataset *data;

static pst_prep *prep_of(const char *pipeline)
{
    pst_prep *prep = NULL;
    pst_error err;
    if (pst_prep_new(pipeline, SEED, &prep, &err) < 0) {
        fprintf(stderr, "prep: %s\n", err.message);
        exit(99);
    }
    return prep;
}

/* Whether one slot of a job's batch and a batch of one slot hold the same picture. */
static bool same_picture(const pst_batch_desc *a, uint32_t slot, const pst_batch *single)
{
    const pst_batch_desc *b = pst_batch_get(single);
    const pst_field *fa = pst_batch_find(a, "image"), *fb = pst_batch_find(b, "image");
    size_t na, nb;
    const void *da = pst_batch_slot(a, fa, slot, &na), *db = pst_batch_slot(b, fb, 0, &nb);
    const int64_t *shape =
        fa->packing == PST_RAGGED
            ? (const int64_t *)((const char *)a + fa->shapes_offset) + (size_t)slot * fa->rank
            : fa->shape;
    return na == nb && memcmp(da, db, na) == 0 && fa->dtype == fb->dtype &&
           fa->layout == fb->layout && fa->kind == fb->kind && fa->rank == fb->rank &&
           memcmp(shape, fb->shape, fa->rank * sizeof *shape) == 0 && b->slots == 1 &&
           fb->packing == PST_DENSE && fb->data_offset % 64 == 0 &&
           (uintptr_t)pst_batch_data(b, fb) % 64 == 0;
}

static void check_slot(pst_prep *prep, const pst_batch_desc *d, uint32_t slot, int *seen)
{
    const int64_t id = ((const int64_t *)pst_batch_data(d, pst_batch_find(d, "id")))[slot];
    const uint64_t occurrence = (uint64_t)seen[id]++;
    void *bytes;
    size_t size;
    pst_batch *one = NULL;
    CHECK(pst_dataset_read(data, id, "image", &bytes, &size, NULL) == 0);
    CHECK(pst_prep_run(prep, bytes, size, d->epoch, id, occurrence, &one, NULL) == 0);
    CHECKF(one && same_picture(d, slot, one), "epoch %d id %d occurrence %d", (int)d->epoch,
           (int)id, (int)occurrence);
    pst_batch_release(one);
    pst_free(bytes);
    pst_sample_info info;
    char path[512];
    pst_dataset_sample(data, id, &info);
    snprintf(path, sizeof path, "%s/%s", folder, info.key);
    CHECK(pst_prep_run_file(prep, path, d->epoch, id, occurrence, &one, NULL) == 0);
    CHECK(same_picture(d, slot, one));
    const pst_batch_desc *desc = pst_batch_get(one);
    const char *key = pst_batch_slot(desc, pst_batch_find(desc, "key"), 0, &size);
    CHECK(size == strlen(path) && memcmp(key, path, size) == 0);
    CHECK(*(const int64_t *)pst_batch_data(desc, pst_batch_find(desc, "id")) == id);
    pst_batch_release(one);
}

static void against_a_job(const char *pipeline)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_prep *prep = prep_of(pipeline);
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = pipeline;
    o.batch = 5;
    o.seed = SEED;
    o.repeat = 2;
    o.epochs = 2;
    pst_job *job = kit_job(engine, data, &o);
    int checked = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[SAMPLES] = {0};
        pst_batch *batch;
        while (pst_job_next(job, -1, &batch) == 1) {
            const pst_batch_desc *d = pst_batch_get(batch);
            for (uint32_t slot = 0; slot < d->slots; slot++, checked++)
                check_slot(prep, d, slot, seen);
            pst_batch_release(batch);
        }
    }
    CHECKF(checked == 2 * 2 * SAMPLES, "%s: %d slots", pipeline, checked);
    pst_prep_free(prep);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void the_bytes_are_those_of_a_job(void)
{
    against_a_job(KIT_PIPELINE);
    against_a_job("decode | resize(20) | center_crop(16)");
    against_a_job("decode | hflip");
    against_a_job("decode | random_crop(8) | to(f16, nchw)");
    against_a_job("bytes");
}

static void a_bad_sample_says_where_and_spoils_nothing(void)
{
    pst_prep *prep = prep_of(KIT_PIPELINE);
    pst_batch *good = NULL, *again = NULL, *bad = NULL;
    pst_error err;
    void *bytes;
    size_t size;
    CHECK(pst_dataset_read(data, 3, "image", &bytes, &size, NULL) == 0);
    CHECK(pst_prep_run(prep, bytes, size, 1, 3, 0, &good, NULL) == 0);
    CHECK(pst_prep_run(prep, bytes, size / 3, 1, 3, 0, &bad, &err) == PST_ECORRUPT);
    CHECK(err.id == 3 && strcmp(err.stage, "decode") == 0 && !bad);
    CHECK(pst_prep_run(prep, NULL, 0, 1, 4, 0, &bad, &err) < 0 && err.id == 4);
    CHECK(pst_prep_run(prep, bytes, size, 1, 3, 0, &again, NULL) == 0);
    CHECK(same_picture(pst_batch_get(good), 0, again));
    CHECK(pst_prep_run_file(prep, folder, 0, 5, 0, &bad, &err) == -EISDIR && err.id == 5);
    CHECK(strcmp(err.key, folder) == 0 && strcmp(err.stage, "read") == 0);
    CHECK(pst_prep_run_file(prep, "/nowhere/at/all", 0, 5, 0, &bad, &err) == -ENOENT);
    CHECK(pst_prep_run(prep, bytes, size, 1ull << 32, 3, 0, &bad, &err) == -EINVAL);
    CHECK(pst_prep_run(prep, bytes, size, 0, -1, 0, &bad, &err) == -EINVAL);
    CHECK(pst_prep_run(prep, bytes, size, 0, 0, 1ull << 32, &bad, &err) == -EINVAL);
    pst_free(bytes);
    pst_prep_free(prep);
    CHECK(same_picture(pst_batch_get(good), 0, again)); /* they outlive it */
    pst_batch_release(good);
    pst_batch_release(again);
}

static void a_wrong_pipeline_is_refused(void)
{
    pst_prep *prep = NULL;
    pst_error err;
    CHECK(pst_prep_new("decode | nonsense", 0, &prep, &err) == PST_EPIPELINE && err.offset == 9);
    CHECK(pst_prep_new(NULL, 0, &prep, &err) == -EINVAL);
    CHECK(pst_prep_new("decode | resize(8) | center_crop(8) || mixup(0.2)", 0, &prep, &err) < 0);
    CHECK(pst_prep_new("mask: decode", 0, &prep, &err) < 0 && !prep);
    pst_prep_free(NULL);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, SAMPLES, 3);
    data = kit_dataset(folder);
    RUN(the_bytes_are_those_of_a_job);
    RUN(a_bad_sample_says_where_and_spoils_nothing);
    RUN(a_wrong_pipeline_is_refused);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
