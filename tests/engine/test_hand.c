/* SPDX-License-Identifier: Apache-2.0
 * What is handed to the caller besides plain batches: batches kept for any time, the ring's memory,
 * and images before finish with what finish would have done. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "core/memory.h"
#include "engine_kit.h"

enum { IMAGES = 96, BATCH = 8, KEPT = 1000 };
static const int64_t patience = 20000000000;

static char *folder;
static pst_dataset *data;

static pst_job_options options(const char *pipeline)
{
    pst_job_options o = kit_options(pipeline, BATCH, 3, 0);
    o.ready_depth = 4; /* left open, the ring may grow */
    return o;
}

static int said;
static void count_notices(int level, const char *text, void *user)
{
    (void)user;
    said += level == 1 && strstr(text, "fresh memory") != NULL;
}

static uint64_t fresh_of(const pst_job *job)
{
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(job, &s);
    return s.fresh_batches;
}

/* The next batch, across epochs; NULL on an error. */
static pst_batch *next(pst_job *job)
{
    pst_batch *b;
    int rc;
    while ((rc = pst_job_next(job, patience, &b)) == 0)
        ;
    return rc == 1 ? b : NULL;
}

static uint32_t crc_of(const pst_batch *b)
{
    const pst_batch_desc *desc = pst_batch_get(b);
    return pst_crc32c(0, desc, desc->total_bytes);
}

static void a_thousand_batches_may_be_kept(void)
{
    static pst_batch *kept[KEPT];
    static uint32_t crc[KEPT];
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        said = 0;
        pst_engine *engine = kit_engine(2, 32 << 20);
        pst_job_options o = options(KIT_PIPELINE);
        o.order = order;
        pst_job *job = kit_job(engine, data, &o);
        pst_job *plain = kit_job(engine, data, &o);
        int count = 0;
        for (; count < KEPT && (kept[count] = next(job)); count++)
            crc[count] = crc_of(kept[count]);
        CHECKF(count == KEPT, "only %d came", count);
        int changed = 0, other = 0;
        for (int i = 0; i < count; i++) {
            pst_batch *b = order == PST_ORDER_STRICT ? next(plain) : NULL;
            changed += crc_of(kept[i]) != crc[i];
            other += b && crc_of(b) != crc[i];
            pst_batch_release(b);
        }
        CHECKF(changed == 0, "%d changed while they were kept", changed);
        CHECKF(other == 0, "%d differ from those that were not kept", other);
        CHECK(fresh_of(job) >= KEPT - 16 && fresh_of(job) <= KEPT + 8);
        CHECKF(said == 1, "said %d times", said);
        pst_job_close(job);
        for (int i = 0; i < count; i++) /* also after the job is gone */
            changed += crc_of(kept[i]) != crc[i], pst_batch_release(kept[i]);
        CHECK(changed == 0);
        pst_job_close(plain);
        pst_engine_free(engine);
    }
}

/* A loop that holds one batch while it asks for the next stays in the ring. */
static void the_batch_before_may_be_held(void)
{
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        pst_engine *engine = kit_engine(2, 32 << 20);
        pst_job_options o = options(KIT_PIPELINE);
        o.order = order;
        pst_job *job = kit_job(engine, data, &o);
        pst_batch *before = NULL;
        for (int i = 0; i < 100; i++) {
            pst_batch *b = next(job);
            CHECK(b != NULL);
            pst_batch_release(before);
            before = b;
        }
        CHECKF(fresh_of(job) == 0, "%llu fresh", (unsigned long long)fresh_of(job));
        pst_batch_release(before);
        pst_job_close(job);
        pst_engine_free(engine);
    }
}

/* With as many leases as the caller holds, all of it comes out of the ring. */
static void leases_make_the_ring_larger(void)
{
    enum { HELD = 6 };
    for (int leases = 1; leases <= HELD; leases += HELD - 1) {
        pst_engine *engine = kit_engine(2, 32 << 20);
        pst_job_options o = options(KIT_PIPELINE);
        o.leases = leases;
        pst_job *job = kit_job(engine, data, &o);
        pst_batch *held[HELD] = {0};
        for (int i = 0; i < 60; i++) {
            pst_batch *b = next(job);
            pst_batch_release(held[i % HELD]);
            held[i % HELD] = b;
        }
        CHECKF((fresh_of(job) == 0) == (leases == HELD), "%d leases: %llu fresh", leases,
               (unsigned long long)fresh_of(job));
        for (int i = 0; i < HELD; i++)
            pst_batch_release(held[i]);
        pst_job_close(job);
        pst_engine_free(engine);
    }
}

static void no_fresh_memory_is_a_clean_error(void)
{
    pst_engine *engine = kit_engine(1, 32 << 20);
    pst_job_options o = options(KIT_PIPELINE);
    pst_job *job = kit_job(engine, data, &o);
    enum { MOST = 64 };
    pst_batch *kept[MOST];
    int count = 0, rc = 1;
    for (; count < 8; count++)
        kept[count] = next(job);
    psti_mem_fail_at(1, true);
    for (; count < MOST && (rc = pst_job_next(job, patience, &kept[count])) == 1; count++)
        ;
    psti_mem_fail_at(0, false);
    pst_error err;
    pst_job_error(job, &err);
    CHECKF(rc == -ENOMEM && strstr(err.message, "MiB"), "%d after %d: %s", rc, count, err.message);
    for (int i = 0; i < count; i++)
        pst_batch_release(kept[i]);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* ---- ring memory ----------------------------------------------------------------------------- */

static int ring_of(const pst_job *job, void **base, size_t *bytes, int most)
{
    int count = 0;
    while (count < most && pst_job_memory(job, count, &base[count], &bytes[count]) == 0)
        count++;
    return count;
}

static void every_batch_lies_in_the_listed_memory(void)
{
    enum { MOST = 80 };
    void *base[MOST], *again[MOST];
    size_t bytes[MOST];
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        pst_engine *engine = kit_engine(2, 32 << 20);
        pst_job_options o = options(KIT_PIPELINE);
        o.order = order;
        pst_job *job = kit_job(engine, data, &o);
        const int count = ring_of(job, base, bytes, MOST);
        CHECKF(count == (order == PST_ORDER_STRICT ? 6 : 7), "%d blocks", count);
        CHECK(pst_job_memory(job, -1, &base[count], &bytes[count]) == -ENOENT);
        for (int i = 0; i < count; i++)
            CHECK((uintptr_t)base[i] % (uintptr_t)sysconf(_SC_PAGESIZE) == 0);
        pst_batch *b = NULL;
        int strays = 0;
        for (int n = 0; n < 50 && (b = next(job)); n++) {
            const pst_batch_desc *desc = pst_batch_get(b);
            int in = 0;
            for (int i = 0; i < count; i++)
                in += (const void *)desc == base[i] && desc->total_bytes <= bytes[i];
            strays += in != 1;
            pst_batch_release(b);
        }
        CHECKF(b && strays == 0, "%d lie elsewhere", strays);
        CHECK(ring_of(job, again, bytes, MOST) == count);
        CHECK(memcmp(base, again, (size_t)count * sizeof *base) == 0);
        pst_job_close(job);
        pst_engine_free(engine);
    }
}

static void batches_of_any_size_have_no_ring(void)
{
    pst_engine *engine = kit_engine(1, 32 << 20);
    pst_job_options o = options("decode");
    pst_job *job = kit_job(engine, data, &o);
    void *base;
    size_t bytes;
    CHECK(pst_job_memory(job, 0, &base, &bytes) == -ENOENT);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* ---- finish elsewhere ------------------------------------------------------------------------ */

/* What a receiver would compute, next to what the job computes. */
static void compare_finish(const pst_batch_desc *raw, const pst_batch_desc *done,
                           const pst_finish_info *f)
{
    const pst_field *r = pst_batch_find(raw, "image"), *d = pst_batch_find(done, "image");
    CHECK(r->dtype == PST_U8 && r->layout == PST_NHWC && r->shape[2] == f->channels);
    CHECK(d->dtype == f->dtype && d->layout == f->layout);
    const int rows = (int)r->shape[0], cols = (int)r->shape[1], channels = f->channels;
    int wrong = 0;
    for (uint32_t slot = 0; slot < raw->slots; slot++) {
        size_t bytes;
        const uint8_t *x = pst_batch_slot(raw, r, slot, &bytes);
        const float *y = pst_batch_slot(done, d, slot, &bytes);
        for (int i = 0; i < rows * cols * channels; i++) {
            const int c = i % channels, p = i / channels;
            const int at = f->layout == PST_NCHW ? c * rows * cols + p : i;
            const float product = (float)x[i] * f->scale[c];
            wrong += y[at] != product - f->bias[c];
        }
    }
    CHECKF(wrong == 0, "%d values differ", wrong);
    CHECK(memcmp(pst_batch_data(raw, pst_batch_find(raw, "id")),
                 pst_batch_data(done, pst_batch_find(done, "id")), raw->slots * 8) == 0);
}

static void raw_images_and_finish_make_the_same_floats(void)
{
    static const char *const ends[] = {" | normalize(imagenet)", " | to(f32)",
                                       " | normalize(half) | to(f32, nhwc)"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char text[256];
        snprintf(text, sizeof text, "decode | random_resized_crop((16, 24)) | hflip%s", ends[i]);
        pst_engine *engine = kit_engine(2, 32 << 20);
        pst_job_options o = options(text);
        pst_job *done = kit_job(engine, data, &o);
        o.raw_finish = 1;
        pst_job *raw = kit_job(engine, data, &o);
        pst_finish_info f = {.size = sizeof f}, g = {.size = sizeof g};
        CHECK(pst_job_finish(raw, "image", &f) == 0 && f.raw == 1);
        CHECK(pst_job_finish(done, "image", &g) == 0 && g.raw == 0);
        CHECK(memcmp(f.scale, g.scale, sizeof f.scale) == 0 && f.dtype == g.dtype);
        CHECK(f.channels == 3 && g.channels == 3 && f.normalize == (i != 1));
        pst_field_info field;
        CHECK(pst_job_field(raw, 0, &field) == 0 && strcmp(field.name, "image") == 0);
        CHECK(field.dtype == PST_U8 && field.shape[0] == 16 && field.shape[2] == 3);
        CHECK(pst_job_field(raw, 1, &field) == 0 && field.kind == PST_LABEL);
        CHECK(pst_job_field(raw, 2, &field) == -ENOENT && pst_job_field(raw, -1, &field) < 0);
        CHECK(pst_job_finish(raw, "label", &g) == PST_EFIELD);
        CHECK(pst_job_finish(raw, "nothing", &g) == -ENOENT);
        g.size = 1;
        CHECK(pst_job_finish(raw, "image", &g) == -EINVAL);
        for (int n = 0; n < 3; n++) {
            pst_batch *a = next(raw), *b = next(done);
            compare_finish(pst_batch_get(a), pst_batch_get(b), &f);
            pst_batch_release(a);
            pst_batch_release(b);
        }
        pst_job_close(raw);
        pst_job_close(done);
        pst_engine_free(engine);
    }
}

/* A batch op mixes finished values, so it is left to the receiver too, with the same draw. */
static void a_raw_batch_is_not_mixed(void)
{
    pst_engine *engine = kit_engine(1, 32 << 20);
    pst_job_options o = options("decode | random_resized_crop(16) | normalize(half) || mixup(0.5)");
    pst_job *done = kit_job(engine, data, &o);
    o.raw_finish = 1;
    pst_job *raw = kit_job(engine, data, &o);
    int mixed = 0;
    for (int n = 0; n < 6; n++) {
        pst_batch *a = next(raw), *b = next(done);
        pst_mix left, carried;
        if (pst_batch_mix(b, &carried) == 1) {
            CHECK(pst_batch_mix(a, &left) == 1 && !left.done && carried.done);
            CHECK(left.kind == carried.kind && left.lam == carried.lam);
            mixed++;
        }
        const pst_field *image = pst_batch_find(pst_batch_get(a), "image");
        CHECK(image->dtype == PST_U8 && image->layout == PST_NHWC);
        pst_batch_release(a);
        pst_batch_release(b);
    }
    CHECK(mixed > 0);
    pst_job_close(raw);
    pst_job_close(done);
    pst_engine_free(engine);
}

static void a_state_fits_with_and_without_raw_finish(void)
{
    pst_engine *engine = kit_engine(2, 32 << 20);
    pst_job_options o = options(KIT_PIPELINE);
    pst_job *done = kit_job(engine, data, &o);
    pst_batch_release(next(done));
    char state[16384];
    size_t bytes;
    CHECK(pst_job_state(done, state, sizeof state, &bytes) == 0);
    o.raw_finish = 1;
    pst_job *raw = kit_job(engine, data, &o);
    pst_error err;
    const int rc = pst_job_load_state(raw, state, bytes, &err);
    CHECKF(rc == 0, "%s", err.message);
    pst_batch *a = next(raw), *b = next(done);
    pst_finish_info f = {.size = sizeof f};
    CHECK(pst_job_finish(raw, "image", &f) == 0);
    compare_finish(pst_batch_get(a), pst_batch_get(b), &f);
    pst_batch_release(a);
    pst_batch_release(b);
    pst_job_close(raw);
    pst_job_close(done);
    pst_engine_free(engine);
}

int main(void)
{
    pst_log_set(count_notices, NULL);
    folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    data = kit_dataset(folder);
    RUN(a_thousand_batches_may_be_kept);
    RUN(the_batch_before_may_be_held);
    RUN(leases_make_the_ring_larger);
    RUN(no_fresh_memory_is_a_clean_error);
    RUN(every_batch_lies_in_the_listed_memory);
    RUN(batches_of_any_size_have_no_ring);
    RUN(raw_images_and_finish_make_the_same_floats);
    RUN(a_raw_batch_is_not_mixed);
    RUN(a_state_fits_with_and_without_raw_finish);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
