/* SPDX-License-Identifier: Apache-2.0
 * The engine as an object: settings, budget, aborting, fork, kept batches, allocations, shapes that
 * vary. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "core/clock.h"
#include "core/memory.h"
#include "engine_kit.h"

enum { SAMPLES = 40, CLASSES = 4 };

static char *folder;
static pst_dataset *data;

static pst_job_options options(const char *pipeline, int batch)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = pipeline;
    o.batch = batch;
    return o;
}

static void a_budget_too_small_is_refused_with_the_figure(void)
{
    pst_engine *engine = kit_engine(2, 16 << 20);
    pst_job_options o = options("decode | random_resized_crop(224) | normalize(imagenet)", 64);
    pst_job *job;
    pst_error err;
    CHECK(pst_job_open(engine, data, &o, &job, &err) == PST_EBUDGET);
    CHECKF(strstr(err.message, "at least"), "%s", err.message);
    const char *figure = strstr(err.message, "at least");
    const unsigned long needed = figure ? strtoul(figure + 9, NULL, 10) : 0;
    pst_engine_free(engine);
    engine = kit_engine(2, (uint64_t)needed << 20);
    CHECKF(pst_job_open(engine, data, &o, &job, &err) == 0, "%lu MiB: %s", needed, err.message);
    pst_job_close(job);
    pst_engine_free(engine);
    pst_engine_options e;
    pst_engine_options_init(&e);
    e.memory_bytes = 1 << 20;
    CHECK(pst_engine_new(&e, &engine, &err) == PST_EBUDGET);
}

static void *abort_soon(void *job)
{
    pst_job_abort(job);
    return NULL;
}

static void abort_wakes_the_consumer(void)
{
    pst_engine *engine = kit_engine(1, 64 << 20);
    pst_job_options o = options(KIT_PIPELINE, 4);
    o.epochs = 1;
    pst_job *job = kit_job(engine, data, &o);
    ledger l = {0};
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
    pst_batch *batch;
    CHECK(pst_job_next(job, 0, &batch) == 0); /* past the last epoch */
    pthread_t t;
    pthread_create(&t, NULL, abort_soon, job);
    pthread_join(t, NULL);
    CHECK(pst_job_next(job, -1, &batch) == -ECANCELED);
    ledger_free(&l);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void after_fork_only_free_is_legal(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(KIT_PIPELINE, 4);
    pst_job *job = kit_job(engine, data, &o);
    const pid_t child = fork();
    if (child == 0) {
        pst_batch *batch;
        pst_job *other;
        const bool ok = pst_job_next(job, 0, &batch) == PST_EFORK &&
                        pst_job_open(engine, data, &o, &other, NULL) == PST_EFORK;
        pst_job_close(job);
        pst_engine_free(engine);
        _exit(ok ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void kept_batches_stay_valid(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(KIT_PIPELINE, 2);
    o.epochs = 1;
    pst_job *job = kit_job(engine, data, &o);
    pst_batch *kept[SAMPLES / 2];
    int count = 0;
    uint32_t crcs[SAMPLES / 2];
    for (pst_batch *batch; count < SAMPLES / 2 && pst_job_next(job, -1, &batch) == 1; count++) {
        const pst_batch_desc *d = pst_batch_get(batch);
        const pst_field *f = pst_batch_find(d, "image");
        crcs[count] = pst_crc32c(0, pst_batch_data(d, f), f->data_bytes);
        kept[count] = batch;
    }
    CHECK(count == SAMPLES / 2);
    pst_job_close(job);
    pst_engine_free(engine);
    for (int i = 0; i < count; i++) {
        const pst_batch_desc *d = pst_batch_get(kept[i]);
        const pst_field *f = pst_batch_find(d, "image");
        CHECK(crcs[i] == pst_crc32c(0, pst_batch_data(d, f), f->data_bytes));
        pst_batch_release(kept[i]);
    }
}

static void the_descriptor_is_position_independent(void)
{
    pst_engine *engine = kit_engine(1, 64 << 20);
    pst_job_options o = options(KIT_PIPELINE, 4);
    pst_job *job = kit_job(engine, data, &o);
    pst_batch *batch;
    CHECK(pst_job_next(job, -1, &batch) == 1);
    const pst_batch_desc *d = pst_batch_get(batch);
    CHECK(d->magic == PST_BATCH_MAGIC && d->slots == 4 && d->valid_slots == 4 && d->fields == 5);
    uint8_t *moved = aligned_alloc(64, (d->total_bytes + 63) & ~(size_t)63);
    memcpy(moved, d, d->total_bytes);
    pst_batch_release(batch);
    d = (const pst_batch_desc *)moved;
    const pst_field *image = pst_batch_find(d, "image"), *key = pst_batch_find(d, "key"),
                    *label = pst_batch_find(d, "label");
    CHECK(image->dtype == PST_F32 && image->layout == PST_NCHW && image->shape[0] == 3 &&
          image->shape[2] == 16);
    CHECK(label->dtype == PST_I64 && label->rank == 0 && label->kind == PST_LABEL);
    for (uint32_t i = 0; i < d->slots; i++) {
        size_t bytes;
        const char *text = pst_batch_slot(d, key, i, &bytes);
        const int64_t id = ((const int64_t *)pst_batch_data(d, pst_batch_find(d, "id")))[i];
        pst_sample_info info;
        pst_dataset_sample(data, id, &info);
        CHECK(strlen(info.key) == bytes && memcmp(text, info.key, bytes) == 0);
        CHECK(((const int64_t *)pst_batch_data(d, label))[i] == info.label);
    }
    free(moved);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* Pictures of their own sizes: padded and ragged hold the same pixels. */
static void varying_shapes_are_padded_or_ragged(void)
{
    for (int order = 0; order < 2; order++) {
        pst_engine *engine = kit_engine(2, 64 << 20);
        pst_job_options o = options("decode", 7);
        o.sampler = PST_SEQUENTIAL;
        o.order = order;
        o.epochs = 1;
        o.fields = "image=padded,label";
        pst_job *padded = kit_job(engine, data, &o);
        o.fields = "image,label";
        pst_job *ragged = kit_job(engine, data, &o);
        uint32_t crc[2][SAMPLES] = {{0}};
        for (int which = 0; which < 2; which++) {
            pst_batch *batch;
            int seen = 0;
            while (pst_job_next(which ? ragged : padded, -1, &batch) == 1) {
                const pst_batch_desc *d = pst_batch_get(batch);
                const pst_field *f = pst_batch_find(d, "image");
                const int64_t *ids = pst_batch_data(d, pst_batch_find(d, "id"));
                const int64_t *shapes = (const int64_t *)((const uint8_t *)d + f->shapes_offset);
                CHECK(f->packing == (which ? PST_RAGGED : PST_PADDED) && f->rank == 3);
                for (uint32_t i = 0; i < d->slots; i++, seen++) {
                    size_t bytes;
                    const uint8_t *slot = pst_batch_slot(d, f, i, &bytes);
                    const int64_t rows = shapes[i * 3], cols = shapes[i * 3 + 1];
                    const size_t step = (size_t)(which ? cols : f->shape[1]) * 3;
                    for (int64_t r = 0; r < rows; r++)
                        crc[which][ids[i]] = pst_crc32c(crc[which][ids[i]], slot + (size_t)r * step,
                                                        (size_t)cols * 3);
                }
                pst_batch_release(batch);
            }
            CHECK(seen == SAMPLES);
        }
        CHECK(memcmp(crc[0], crc[1], sizeof crc[0]) == 0 && crc[0][0] && crc[0][0] != crc[0][1]);
        pst_job_close(padded);
        pst_job_close(ragged);
        pst_engine_free(engine);
    }
}

static void set_epoch_begins_anew(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(KIT_PIPELINE, 4);
    pst_job *job = kit_job(engine, data, &o);
    ledger a = {0}, b = {0}, c = {0};
    CHECK(kit_collect(job, 0, 1, 3, &a) == 0);
    CHECK(pst_job_set_epoch(job, 0) == 0);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &b) == 0);
    CHECK(b.count == SAMPLES && b.at[0].epoch == 0 && b.at[0].crc == a.at[0].crc);
    CHECK(pst_job_set_epoch(job, 9) == 0);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &c) == 0);
    CHECK(c.count == SAMPLES && c.at[0].epoch == 9 && pst_job_epoch(job) == 10);
    ledger_free(&a);
    ledger_free(&b);
    ledger_free(&c);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void nothing_is_allocated_per_sample(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o = options(KIT_PIPELINE, 4);
    pst_job *job = kit_job(engine, data, &o);
    ledger l = {0};
    /* Buffers grow to the sizes they meet, so the first epochs allocate; then five epochs in a row
     * must do with the handful of objects that an epoch itself takes. */
    uint64_t worst = UINT64_MAX;
    for (int tries = 0; tries < 12 && worst > 5 * 8; tries++) {
        psti_mem_stats before, after;
        psti_mem_stats_total(&before);
        CHECK(kit_collect(job, 0, 5, SIZE_MAX, &l) == 0);
        psti_mem_stats_total(&after);
        worst = after.allocs - before.allocs;
    }
    CHECKF(worst <= 5 * 8, "%llu allocations in 200 samples", (unsigned long long)worst);
    ledger_free(&l);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* Larger than what a worker keeps in any case. */
static pst_dataset *large_pictures(char **where)
{
    *where = kit_folder();
    for (int i = 0; i < 4; i++) {
        char name[64];
        size_t size;
        uint8_t *bytes = kit_jpeg(1700, 1300, (unsigned)i + 1, false, &size);
        kit_name(i, 1, name);
        kit_write(*where, name, bytes, size);
        free(bytes);
    }
    return kit_dataset(*where);
}

static pst_job_stats stats_of(const pst_job *job)
{
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(job, &s);
    return s;
}

static void memory_of_large_samples_is_held(void)
{
    char *where;
    pst_dataset *large = large_pictures(&where);
    pst_engine *engine = kit_engine(2, 192 << 20);
    pst_job_options o = options("decode | resize(32) | center_crop(24)", 2);
    pst_job *job = kit_job(engine, large, &o);
    ledger l = {0};
    uint64_t worst = UINT64_MAX;
    for (int tries = 0; tries < 12 && worst > 5 * 8; tries++) {
        psti_mem_stats before, after;
        psti_mem_stats_total(&before);
        CHECK(kit_collect(job, 0, 5, SIZE_MAX, &l) == 0);
        psti_mem_stats_total(&after);
        worst = after.allocs - before.allocs;
    }
    CHECKF(worst <= 5 * 8, "%llu allocations in 20 samples", (unsigned long long)worst);
    /* Who needs the bytes has them: idle workers give back what they hold. */
    pst_job_options wide = options("decode | resize((1000, 1000)) | normalize(imagenet)", 2);
    wide.ready_depth = 1;
    pst_job *other = kit_job(engine, large, &wide);
    CHECK(kit_collect(other, 0, 1, SIZE_MAX, &l) == 0);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
    CHECKF(stats_of(other).peak_bytes <= 192 << 20, "%llu bytes",
           (unsigned long long)stats_of(other).peak_bytes);
    ledger_free(&l);
    pst_job_close(job);
    pst_job_close(other);
    pst_engine_free(engine);
    pst_dataset_close(large);
    kit_remove(where);
}

/* One whole life: engine, dataset, job, an epoch, a state, closing. */
static int whole_life(uint64_t *allocs, int order, bool skip)
{
    psti_mem_stats start, end;
    psti_mem_stats_total(&start);
    pst_engine_options e;
    pst_engine_options_init(&e);
    e.workers = 2;
    e.memory_bytes = 64 << 20;
    pst_dataset_options d;
    pst_dataset_options_init(&d);
    d.index_dir = "";
    pst_engine *engine = NULL;
    pst_dataset *set = NULL;
    pst_job *job = NULL;
    pst_error err;
    ledger l = {0};
    int rc = pst_engine_new(&e, &engine, &err);
    if (rc == 0)
        rc = pst_dataset_open(folder, &d, &set, &err);
    pst_job_options o = options(KIT_PIPELINE, 4);
    o.epochs = 2;
    o.order = order;
    o.on_error = skip ? PST_SKIP : PST_RAISE;
    if (rc == 0)
        rc = pst_job_open(engine, set, &o, &job, &err);
    if (rc == 0) {
        rc = kit_collect(job, 0, 2, SIZE_MAX, &l);
        pst_job_error(job, &err);
        size_t size;
        if (rc == 0 && (pst_job_state(job, NULL, 0, &size) != -ENOSPC))
            rc = -ENOMEM;
    }
    CHECKF(rc == 0 || rc == -ENOMEM || rc == PST_ETOOMANYBAD || rc == -EIO, "%d %s: %s", rc,
           pst_strerror(rc), err.message);
    CHECK(rc < 0 || l.count == 2 * SAMPLES);
    pst_job_close(job);
    pst_dataset_close(set);
    pst_engine_free(engine);
    ledger_free(&l);
    psti_mem_stats_total(&end);
    CHECKF(end.live == start.live, "%lld blocks leaked", (long long)(end.live - start.live));
    *allocs = end.allocs - start.allocs;
    return rc;
}

static void every_failed_allocation_is_an_error(void)
{
    for (int c = 0; c < 4; c++) {
        uint64_t allocs;
        CHECK(whole_life(&allocs, c & 1, c > 1) == 0);
        for (int persistent = 0; persistent < 2; persistent++)
            for (uint64_t n = 1; n <= allocs + 8; n++) {
                uint64_t ignored;
                psti_mem_fail_at(n, persistent);
                const int before = check_in_behaviour;
                whole_life(&ignored, c & 1, c > 1);
                psti_mem_fail_at(0, false);
                CHECKF(check_in_behaviour == before, "case %d, allocation %d, persistent %d", c,
                       (int)n, persistent);
            }
    }
}

static void silence(int level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

int main(void)
{
    pst_log_set(silence, NULL);
    folder = kit_folder();
    kit_images(folder, SAMPLES, CLASSES);
    data = kit_dataset(folder);
    RUN(a_budget_too_small_is_refused_with_the_figure);
    RUN(abort_wakes_the_consumer);
    RUN(after_fork_only_free_is_legal);
    RUN(kept_batches_stay_valid);
    RUN(the_descriptor_is_position_independent);
    RUN(varying_shapes_are_padded_or_ragged);
    RUN(set_epoch_begins_anew);
    RUN(nothing_is_allocated_per_sample);
    RUN(memory_of_large_samples_is_held);
    RUN(every_failed_allocation_is_an_error);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
