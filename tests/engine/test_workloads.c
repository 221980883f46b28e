/* SPDX-License-Identifier: Apache-2.0
 * The promises, for every workload: each sample once an epoch with the same bytes, whatever the
 * workers, the order, the ranks and the ends; stopping and going on; slow samples put aside; any
 * cache; any instruction set (the program runs itself once for each). */
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "lanes_kit.h"
#include "workloads.h"

enum { SAMPLES = 23, EPOCHS = 2, REPEAT = 14, TRIES = 5 };
#define MIB    ((uint64_t)1 << 20)
#define DELAYS "delay(0.4) | delay(16, 0.1, 2, 10, hidden)" /* two of every twenty are slow */

static const workload *row;
static pst_dataset *data;
static const char *program;

/* ---- kit ------------------------------------------------------------------------------------- */

/* The row's pipeline, with or without slow samples. */
static const char *pipeline(bool slow)
{
    static char text[2][1024];
    const char *at = strchr(row->pipeline, '@');
    const int head = at ? (int)(at - row->pipeline) : 0;
    snprintf(text[slow], sizeof text[slow], "%.*s%s%s", head, row->pipeline,
             slow ? "| " DELAYS : "", at ? at + 1 : row->pipeline);
    return text[slow];
}

static pst_job_options options(int order)
{
    pst_job_options o = kit_options(pipeline(false), row->batch, 9, EPOCHS);
    o.fields = row->fields;
    o.order = order;
    o.ends = PST_ENDS_SHORT;
    return o;
}

/* All ranks of a world, one after the other. */
static ledger collect(pst_engine *engine, const pst_job_options *like, int world)
{
    ledger all = {0};
    for (int rank = 0; rank < world; rank++) {
        pst_job_options o = *like;
        o.rank = rank;
        o.world = world;
        pst_job *job = kit_job(engine, data, &o);
        const int rc = kit_collect(job, rank, o.epochs, SIZE_MAX, &all);
        pst_error err = {0};
        if (rc < 0)
            pst_job_error(job, &err);
        CHECKF(rc == 0, "%s: %s", row->name, err.message);
        pst_job_close(job);
    }
    return all;
}

static ledger alone(const pst_job_options *o, int workers, uint64_t cache, pst_job_stats *stats)
{
    pst_engine *engine = kit_cached_engine(workers, 256 * MIB, cache);
    pst_job *job = kit_job(engine, data, o);
    ledger l = {0};
    CHECKF(kit_collect(job, 0, o->epochs, SIZE_MAX, &l) == 0, "%s", row->name);
    *stats = (pst_job_stats){.size = sizeof *stats};
    pst_job_stats_get(job, stats);
    pst_job_close(job);
    pst_engine_free(engine);
    return l;
}

/* ---- promises -------------------------------------------------------------------------------- */

/* Each id once an epoch, and another draw in another epoch for most. */
static void check_golden(const ledger *sorted)
{
    int same = 0;
    CHECKF(sorted->count == EPOCHS * SAMPLES, "%s: %zu lines", row->name, sorted->count);
    for (size_t i = 0; i < sorted->count; i++) {
        CHECK(sorted->at[i].id == (int64_t)(i % SAMPLES));
        same += i >= SAMPLES && sorted->at[i].crc == sorted->at[i - SAMPLES].crc;
    }
    CHECKF(same < SAMPLES, "%s: nothing was drawn", row->name);
}

static void every_sample_comes_once_with_its_bytes(void)
{
    const pst_job_options strict = options(PST_ORDER_STRICT);
    ledger first = {0}, golden = {0};
    for (int workers = 1; workers <= 4; workers += 3) {
        pst_engine *engine = kit_engine(workers, 256 * MIB);
        ledger l = collect(engine, &strict, 1);
        if (workers > 1)
            CHECKF(ledger_same_order(&first, &l), "%s with %d workers", row->name, workers);
        else
            first = l;
        for (int c = 0; c < 8; c++) {
            pst_job_options o = options(c & 1 ? PST_ORDER_READY : PST_ORDER_STRICT);
            o.ends = c & 4 ? PST_ENDS_PAD : PST_ENDS_SHORT;
            const int world = c & 2 ? 3 : 1;
            ledger got = collect(engine, &o, world);
            ledger_sort(&got);
            if (!golden.count) {
                golden = got;
                check_golden(&golden);
                continue;
            }
            CHECKF(ledger_same(&golden, &got), "%s, %d workers, world %d, case %d", row->name,
                   workers, world, c);
            ledger_free(&got);
        }
        if (workers > 1)
            ledger_free(&l);
        pst_engine_free(engine);
    }
    ledger_free(&first);
    ledger_free(&golden);
}

/* Takes `batches` on one engine, the rest on another. */
static ledger cut_at(const pst_job_options *o, size_t batches)
{
    pst_engine *engines[2] = {kit_engine(2, 256 * MIB), kit_engine(3, 256 * MIB)};
    ledger l = {0};
    pst_job *job = kit_job(engines[0], data, o);
    CHECK(kit_collect(job, 0, EPOCHS, batches, &l) == 0);
    size_t size = 0;
    pst_job_state(job, NULL, 0, &size);
    void *state = malloc(size);
    CHECK(pst_job_state(job, state, size, &size) == 0);
    pst_job_close(job);
    job = kit_job(engines[1], data, o);
    pst_error err = {0};
    CHECKF(pst_job_load_state(job, state, size, &err) == 0, "%s: %s", row->name, err.message);
    do {
        CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
    } while (pst_job_epoch(job) < EPOCHS);
    pst_job_close(job);
    free(state);
    pst_engine_free(engines[0]);
    pst_engine_free(engines[1]);
    return l;
}

static void stopping_and_going_on_changes_nothing(void)
{
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        const pst_job_options o = options(order);
        pst_job_stats stats;
        ledger whole = alone(&o, 2, 0, &stats), sorted = {0};
        for (size_t i = 0; i < whole.count; i++)
            ledger_push(&sorted, &whole.at[i]);
        ledger_sort(&sorted);
        for (int i = 0; i < 4; i++) {
            const size_t k = 1 + (size_t)(i * 7919) % (whole.batches - 1);
            ledger l = cut_at(&o, k);
            if (order == PST_ORDER_STRICT) {
                CHECKF(ledger_same_order(&whole, &l), "%s after %zu batches", row->name, k);
            } else {
                ledger_sort(&l);
                CHECKF(ledger_same(&sorted, &l), "%s after %zu batches", row->name, k);
            }
            ledger_free(&l);
        }
        ledger_free(&whole);
        ledger_free(&sorted);
    }
}

static void slow_samples_are_put_aside(void)
{
    pst_job_options o = options(PST_ORDER_READY);
    o.pipeline = pipeline(true);
    o.sampler = PST_SEQUENTIAL;
    o.repeat = REPEAT;
    o.reorder_window = 160;
    o.epochs = 1;
    ledger want = lanes_model(data, &o, 1);
    uint64_t parks = 0;
    CHECK(want.count == SAMPLES * REPEAT);
    for (int i = 0; i < TRIES && !parks; i++) {
        pst_engine *engine = kit_engine(LANES_WORKERS, 256 * MIB);
        pst_job *job = kit_job(engine, data, &o);
        ledger got = {0};
        CHECK(lanes_drive(&job, 1, o.batch * LANES_PACE / 4, 0, &got) == 0);
        ledger_sort(&got);
        CHECKF(ledger_same(&want, &got), "%s: %zu of %zu", row->name, got.count, want.count);
        parks = lanes_parks(job);
        ledger_free(&got);
        pst_job_close(job);
        pst_engine_free(engine);
    }
    CHECKF(parks > 0, "%s: nothing was put aside", row->name);
    ledger_free(&want);
}

static void a_cache_changes_no_byte(void)
{
    static const uint64_t sizes[] = {64 * 1024, 200 * 1024, 64 * MIB, PST_CACHE_AUTO};
    const pst_job_options o = options(PST_ORDER_STRICT);
    pst_job_stats stats;
    ledger plain = alone(&o, 2, 0, &stats);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        ledger cached = alone(&o, 2, sizes[s], &stats);
        CHECKF(ledger_same_order(&plain, &cached), "%s with a cache of %llu", row->name,
               (unsigned long long)sizes[s]);
        if (s >= 2 && row->decoded) /* but for what of the second epoch was begun early */
            CHECKF(stats.cache_hits >= SAMPLES - 6, "%s: %llu hits", row->name,
                   (unsigned long long)stats.cache_hits);
        ledger_free(&cached);
    }
    ledger_free(&plain);
}

/* ---- instruction sets ------------------------------------------------------------------------ */

static uint32_t digest(void)
{
    const pst_job_options o = options(PST_ORDER_STRICT);
    pst_job_stats stats;
    ledger l = alone(&o, 2, 0, &stats);
    uint32_t crc = 0;
    for (size_t i = 0; i < l.count; i++)
        crc = pst_crc32c(crc, &l.at[i].crc, sizeof l.at[i].crc);
    ledger_free(&l);
    return crc;
}

static uint32_t digest_at(const char *level, const char *folder)
{
    char command[2048], answer[64] = "";
    snprintf(command, sizeof command, "PENSTOCK_CPU=%s '%s' %d '%s'", level, program,
             (int)(row - workloads), folder);
    FILE *child = popen(command, "r");
    CHECK(child && fgets(answer, sizeof answer, child));
    if (child)
        CHECKF(pclose(child) == 0, "%s at %s", row->name, level);
    return (uint32_t)strtoul(answer, NULL, 16);
}

static char *folder;

static void instruction_sets_give_the_same_bytes(void)
{
    static const char *const levels[] = {"avx2", "avx512"};
    const uint32_t plain = digest_at("c", folder);
    CHECK(plain != 0);
    for (int i = 0; i < 2; i++) /* what the machine lacks falls back to what it has */
        CHECKF(digest_at(levels[i], folder) == plain, "%s at %s", row->name, levels[i]);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3) {
        row = &workloads[atoi(argv[1])];
        data = kit_dataset(argv[2]);
        printf("%08x\n", digest());
        pst_dataset_close(data);
        return 0;
    }
    for (row = workloads; row < workloads + workload_count; row++) {
        folder = kit_folder();
        row->make(folder, SAMPLES);
        data = kit_dataset(folder);
        printf("%s\n", row->name);
        CHECKF(pst_dataset_count(data) == SAMPLES, "%s: %lld samples", row->name,
               (long long)pst_dataset_count(data));
        RUN(every_sample_comes_once_with_its_bytes);
        RUN(stopping_and_going_on_changes_nothing);
        RUN(slow_samples_are_put_aside);
        RUN(a_cache_changes_no_byte);
        RUN(instruction_sets_give_the_same_bytes);
        pst_dataset_close(data);
        kit_remove(folder);
    }
    return check_report();
}
