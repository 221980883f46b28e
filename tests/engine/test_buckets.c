/* SPDX-License-Identifier: Apache-2.0
 * Batches of samples that are alike: one bucket each but for the last of an epoch, and all that is
 * promised otherwise: every sample once, ranks and ends, slow and bad samples, the window, resumes,
 * a consumer that keeps what it gets. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "lanes_kit.h"

enum { SAMPLES = 331, BUCKETS = 5, BATCH = 4, EPOCHS = 2, WINDOW = 48, BAD = 3 };
#define PIPELINE "decode | resize(20) | hflip"

static char *folder, *broken;
static pst_dataset *data, *damaged;
static int32_t bucket_of[SAMPLES];
static const int bad_ids[BAD] = {5, 100, 101};

/* ---- kit ------------------------------------------------------------------------------------- */

static pst_job_options options(int order, const char *pipeline)
{
    pst_job_options o = kit_options(pipeline, BATCH, 9, EPOCHS);
    o.fields = "image=padded,label";
    o.order = order;
    o.ends = PST_ENDS_SHORT;
    o.buckets = bucket_of;
    o.buckets_count = SAMPLES;
    return o;
}

static ledger collect(pst_engine *engine, pst_dataset *from, const pst_job_options *like, int world)
{
    ledger all = {0};
    for (int rank = 0; rank < world; rank++) {
        pst_job_options o = *like;
        o.rank = rank;
        o.world = world;
        pst_job *job = kit_job(engine, from, &o);
        const int rc = kit_collect(job, rank, EPOCHS, SIZE_MAX, &all);
        pst_error err = {0};
        if (rc < 0)
            pst_job_error(job, &err);
        CHECKF(rc == 0, "%s", err.message);
        pst_job_close(job);
    }
    return all;
}

/* Batches with samples of several buckets; pads do not count. */
static int mixed_batches(const ledger *l)
{
    int mixed = 0, odd = 0;
    int32_t bucket = -1;
    for (size_t i = 0; i < l->count; i++) {
        const line *at = &l->at[i];
        if (at->slot == 0) {
            mixed += odd;
            odd = 0;
            bucket = at->valid ? bucket_of[at->id] : -1;
        }
        odd |= at->valid && bucket_of[at->id] != bucket;
    }
    return mixed + odd;
}

static void check_once(const ledger *sorted, int without)
{
    CHECKF(sorted->count == (size_t)(EPOCHS * (SAMPLES - without)), "%zu lines", sorted->count);
    for (size_t i = 1; i < sorted->count; i++)
        CHECK(sorted->at[i].epoch != sorted->at[i - 1].epoch ||
              sorted->at[i].id > sorted->at[i - 1].id);
}

/* ---- promises -------------------------------------------------------------------------------- */

static void every_sample_comes_once_in_batches_of_one_bucket(void)
{
    ledger plain;
    for (int c = 0; c < 16; c++) {
        const int world = c & 1 ? 3 : 1, workers = c & 8 ? 4 : 1;
        pst_job_options o = options(c & 2 ? PST_ORDER_READY : PST_ORDER_STRICT, PIPELINE);
        o.ends = c & 4 ? PST_ENDS_PAD : PST_ENDS_SHORT;
        pst_engine *engine = kit_engine(workers, 64 << 20);
        if (c == 0) {
            pst_job_options without = o;
            without.buckets = NULL;
            plain = collect(engine, data, &without, 1);
            CHECK(mixed_batches(&plain) > 100);
            ledger_sort(&plain);
        }
        ledger l = collect(engine, data, &o, world);
        /* An epoch's tail has fewer than a batch of each bucket. With ranks it is spread over more
         * batches; in ready order a rank may have to mix where its window is narrow. */
        const int most = EPOCHS * BUCKETS * (c & 2 ? 4 : 1);
        CHECKF(mixed_batches(&l) <= most, "case %d: %d of %zu are mixed", c, mixed_batches(&l),
               l.batches);
        ledger_sort(&l);
        check_once(&l, 0);
        CHECKF(ledger_same(&plain, &l), "case %d", c);
        ledger_free(&l);
        pst_engine_free(engine);
    }
    ledger_free(&plain);
}

static void the_sequence_is_the_same_whatever_the_workers(void)
{
    const pst_job_options o = options(PST_ORDER_STRICT, PIPELINE);
    pst_engine *one = kit_engine(1, 64 << 20), *four = kit_engine(4, 64 << 20);
    ledger a = collect(one, data, &o, 1), b = collect(four, data, &o, 1);
    CHECK(ledger_same_order(&a, &b));
    ledger_free(&a);
    ledger_free(&b);
    pst_engine_free(one);
    pst_engine_free(four);
}

static void bad_samples_are_skipped(void)
{
    for (int c = 0; c < 8; c++) {
        pst_job_options o = options(c & 1 ? PST_ORDER_READY : PST_ORDER_STRICT, PIPELINE);
        o.ends = c & 2 ? PST_ENDS_PAD : PST_ENDS_SHORT;
        o.on_error = PST_SKIP;
        o.skip_limit = EPOCHS * BAD;
        pst_engine *engine = kit_engine(c & 4 ? 4 : 1, 64 << 20);
        ledger l = collect(engine, damaged, &o, 1);
        ledger_sort(&l);
        check_once(&l, BAD);
        ledger_free(&l);
        pst_engine_free(engine);
    }
}

/* ---- the window ------------------------------------------------------------------------------ */

typedef struct marks {
    atomic_int_fast64_t handed_over;
    atomic_int_fast64_t at[SAMPLES];
} marks;

static int mark(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    (void)err;
    marks *m = user;
    atomic_store(&m->at[in->id], atomic_load(&m->handed_over));
    const size_t row = (size_t)(in->cols * in->channels);
    uint8_t *to = pst_call_size(out, in->rows, in->cols, in->channels);
    for (int64_t y = 0; to && y < in->rows; y++)
        memcpy(to + (size_t)y * row, in->data + (size_t)y * in->stride, row);
    return to ? 0 : PST_ECALL;
}

/* Runs of slow samples leave batches short, and a bucket may not come round again for long. */
static void nobody_is_overtaken_by_more_than_the_window(void)
{
    marks *m = calloc(1, sizeof *m);
    const pst_call calls[] = {{"mark", mark, m}};
    pst_job_options o =
        options(PST_ORDER_READY, "decode | call(mark) | resize(20) | " LANES_DELAYS " | hflip");
    o.calls = calls;
    o.call_count = 1;
    o.epochs = 1;
    o.reorder_window = WINDOW;
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    pst_job *job = kit_job(engine, data, &o);
    int64_t most = 0, handed_over = 0;
    pst_batch *b;
    int rc;
    while ((rc = pst_job_next(job, 20000000000, &b)) == 1) {
        const pst_batch_desc *desc = pst_batch_get(b);
        const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
        for (uint32_t i = 0; i < desc->slots; i++) {
            const int64_t age = handed_over - atomic_load(&m->at[ids[i]]);
            most = age > most ? age : most;
        }
        handed_over += desc->slots;
        atomic_store(&m->handed_over, handed_over);
        pst_batch_release(b);
    }
    CHECKF(rc == 0 && handed_over == SAMPLES, "%d, %d handed over", rc, (int)handed_over);
    CHECKF(most <= WINDOW, "one was overtaken by %d", (int)most);
    pst_job_close(job);
    pst_engine_free(engine);
    free(m);
}

/* What is kept is missing from the ring, down to two batches, and more buckets than that are begun.
 */
static void a_consumer_may_keep_what_it_gets(void)
{
    enum { KEPT = 40 };
    pst_job_options o = options(PST_ORDER_READY, PIPELINE);
    o.epochs = 1;
    o.ready_depth = 4;
    pst_engine *engine = kit_engine(4, 64 << 20);
    pst_job *job = kit_job(engine, data, &o);
    pst_batch *kept[KEPT], *b;
    int count = 0, rc;
    uint32_t seen = 0;
    while ((rc = pst_job_next(job, 20000000000, &b)) == 1) {
        seen += pst_batch_get(b)->slots;
        if (count < KEPT)
            kept[count++] = b;
        else
            pst_batch_release(b);
    }
    CHECKF(rc == 0 && seen == SAMPLES, "%d after %u", rc, seen);
    while (count > 0)
        pst_batch_release(kept[--count]);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void stopping_and_going_on_changes_nothing(void)
{
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        const pst_job_options o = options(order, PIPELINE);
        pst_engine *engine = kit_engine(3, 64 << 20);
        ledger whole = collect(engine, data, &o, 1);
        for (size_t k = 3; k < 160; k += 52) {
            uint8_t bytes[16384];
            size_t size;
            ledger l = {0};
            pst_error err = {0};
            pst_job *job = kit_job(engine, data, &o);
            CHECK(kit_collect(job, 0, EPOCHS, k, &l) == 0);
            CHECK(pst_job_state(job, bytes, sizeof bytes, &size) == 0);
            pst_job_close(job);
            job = kit_job(engine, data, &o);
            CHECKF(pst_job_load_state(job, bytes, size, &err) == 0, "%s", err.message);
            CHECK(kit_collect(job, 0, EPOCHS - pst_job_epoch(job), SIZE_MAX, &l) == 0);
            pst_job_close(job);
            if (order == PST_ORDER_STRICT)
                CHECKF(ledger_same_order(&whole, &l), "after %zu batches", k);
            ledger_sort(&l);
            check_once(&l, 0);
            ledger_free(&l);
        }
        ledger_free(&whole);
        pst_engine_free(engine);
    }
}

static void another_batch_or_other_buckets_do_not_go_on(void)
{
    uint8_t bytes[16384];
    size_t size;
    pst_error err = {0};
    pst_job_options o = options(PST_ORDER_STRICT, PIPELINE);
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job *job = kit_job(engine, data, &o);
    ledger l = {0};
    CHECK(kit_collect(job, 0, 1, 3, &l) == 0);
    CHECK(pst_job_state(job, bytes, sizeof bytes, &size) == 0);
    pst_job_close(job);
    o.batch = 5;
    job = kit_job(engine, data, &o);
    CHECK(pst_job_load_state(job, bytes, size, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "with 4 samples a batch, this job has 5"), "%s", err.message);
    pst_job_close(job);
    o = options(PST_ORDER_STRICT, PIPELINE);
    o.buckets = NULL;
    o.bucket_by = "bytes:5";
    job = kit_job(engine, data, &o);
    CHECK(pst_job_load_state(job, bytes, size, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "the sampler differs"), "%s", err.message);
    pst_job_close(job);
    ledger_free(&l);
    pst_engine_free(engine);
}

/* ---- bucket_by ------------------------------------------------------------------------------- */

static void buckets_by_size_are_about_equal(void)
{
    pst_job_options o = options(PST_ORDER_STRICT, PIPELINE);
    o.buckets = NULL;
    o.bucket_by = "bytes:4";
    o.epochs = 1;
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job *job = kit_job(engine, data, &o);
    ledger l = {0};
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
    /* All but the tail's batches have sizes that do not overlap with another quarter's. */
    uint64_t bounds[5], sizes[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        pst_sample_info info;
        CHECK(pst_dataset_sample(data, i, &info) == 0);
        sizes[i] = info.bytes;
    }
    for (int i = 1; i < SAMPLES; i++)
        for (int k = i; k > 0 && sizes[k] < sizes[k - 1]; k--) {
            const uint64_t swap = sizes[k];
            sizes[k] = sizes[k - 1];
            sizes[k - 1] = swap;
        }
    for (int q = 0; q < 4; q++)
        bounds[q] = q ? sizes[SAMPLES * q / 4] : 0;
    for (int i = 0; i < SAMPLES; i++) {
        pst_sample_info info;
        pst_dataset_sample(data, i, &info);
        bucket_of[i] = 0;
        for (int q = 1; q < 4; q++)
            bucket_of[i] += info.bytes >= bounds[q];
    }
    CHECKF(mixed_batches(&l) <= 4, "%d are mixed", mixed_batches(&l));
    ledger_free(&l);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void what_is_wrong_is_told(void)
{
    static const struct {
        const char *by, *words;
    } cases[] = {{"bytes", "how many"},          {"bytes:0", "K is 1..63"},
                 {"bytes:64", "K is 1..63"},     {"bytes:x", "K is 1..63"},
                 {"length:3", "no such field"},  {"image:3", "no such field"},
                 {"aspect", "width and height"}, {"aspect:9", "K is 1..8"}};
    pst_engine *engine = kit_engine(1, 64 << 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_job_options o = options(PST_ORDER_STRICT, PIPELINE);
        pst_job *job = NULL;
        pst_error err = {0};
        o.buckets = NULL;
        o.bucket_by = cases[i].by;
        CHECKF(pst_job_open(engine, data, &o, &job, &err) < 0, "%s", cases[i].by);
        CHECKF(strstr(err.message, cases[i].words), "%s: %s", cases[i].by, err.message);
        o.buckets = bucket_of;
        CHECK(pst_job_open(engine, data, &o, &job, &err) == -EINVAL);
    }
    pst_job_options o = options(PST_ORDER_READY, KIT_PIPELINE);
    o.sampling = PST_SAMPLING_OPPORTUNISTIC;
    pst_job *job = NULL;
    CHECK(pst_job_open(engine, data, &o, &job, NULL) == -EINVAL);
    pst_engine_free(engine);
}

int main(void)
{
    folder = kit_folder();
    broken = kit_folder();
    kit_images(folder, SAMPLES, 3);
    kit_images(broken, SAMPLES, 3);
    data = kit_dataset(folder);
    for (int i = 0; i < BAD; i++) {
        pst_sample_info info;
        pst_dataset_sample(data, bad_ids[i], &info);
        kit_write(broken, info.key, "\xff\xd8\xff\xe0 not a picture", 19);
    }
    damaged = kit_dataset(broken);
    for (int i = 0; i < SAMPLES; i++)
        bucket_of[i] = i % 110 == 7 ? 4 : i * 7919 % 100 / 25;
    RUN(every_sample_comes_once_in_batches_of_one_bucket);
    RUN(the_sequence_is_the_same_whatever_the_workers);
    RUN(bad_samples_are_skipped);
    RUN(nobody_is_overtaken_by_more_than_the_window);
    RUN(a_consumer_may_keep_what_it_gets);
    RUN(stopping_and_going_on_changes_nothing);
    RUN(another_batch_or_other_buckets_do_not_go_on);
    RUN(what_is_wrong_is_told);
    RUN(buckets_by_size_are_about_equal);
    pst_dataset_close(data);
    pst_dataset_close(damaged);
    kit_remove(folder);
    kit_remove(broken);
    return check_report();
}
