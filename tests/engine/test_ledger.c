/* SPDX-License-Identifier: Apache-2.0
 * Exactly what was asked, whatever the workers, order, ranks, ends and sampler; the same bytes in
 * every run. */
#include <stdlib.h>

#include "check.h"
#include "engine_kit.h"

enum { SAMPLES = 53, CLASSES = 4, BATCH = 6, EPOCHS = 3, SUBSET = 20, DRAWS = 90 };

static char *folder;
static pst_dataset *data;
static int64_t subset[SUBSET], given[2 * SUBSET];
static double weights[SAMPLES];

typedef enum kind {
    SHUFFLE,
    SEQUENTIAL,
    SUBSET_IDS,
    WEIGHTED,
    WEIGHTED_ONCE,
    GIVEN,
    REPEAT,
    KINDS
} kind;
static const char *const kind_names[] = {"shuffle",       "sequential", "subset", "weighted",
                                         "weighted-once", "given",      "repeat"};

static void set_sampler(pst_job_options *o, kind k)
{
    switch (k) {
    case SEQUENTIAL:
        o->sampler = PST_SEQUENTIAL;
        break;
    case SUBSET_IDS:
        o->ids = subset;
        o->ids_count = SUBSET;
        break;
    case WEIGHTED:
    case WEIGHTED_ONCE:
        o->sampler = k == WEIGHTED ? PST_WEIGHTED : PST_WEIGHTED_ONCE;
        o->weights = weights;
        o->weights_count = SAMPLES;
        o->draws = k == WEIGHTED ? DRAWS : 30;
        break;
    case GIVEN:
        o->sampler = PST_GIVEN;
        o->ids = given;
        o->ids_count = 2 * SUBSET;
        break;
    case REPEAT:
        o->repeat = 3;
        break;
    default:
        break;
    }
}

/* All ranks of a world, one after the other, in one ledger. */
static ledger collect(pst_engine *engine, kind k, int order, int world, int ends)
{
    ledger all = {0};
    for (int rank = 0; rank < world; rank++) {
        pst_job_options o = kit_options(KIT_PIPELINE, BATCH, 7, EPOCHS);
        o.order = order;
        o.rank = rank;
        o.world = world;
        o.ends = ends;
        set_sampler(&o, k);
        pst_job *job = kit_job(engine, data, &o);
        const int rc = kit_collect(job, rank, EPOCHS, SIZE_MAX, &all);
        CHECKF(rc == 0, "%s: %s", kind_names[k], pst_strerror(rc));
        pst_job_close(job);
    }
    return all;
}

static int64_t epoch_length(kind k)
{
    const int64_t lengths[] = {SAMPLES, SAMPLES, SUBSET, DRAWS, 30, 2 * SUBSET, 3 * SAMPLES};
    return lengths[k];
}

/* How often the sampler asks for an id in one epoch; -1 where chance decides. */
static int asked(kind k, int64_t id)
{
    int count = 0;
    switch (k) {
    case SUBSET_IDS:
        for (int i = 0; i < SUBSET; i++)
            count += subset[i] == id;
        return count;
    case GIVEN:
        for (int i = 0; i < 2 * SUBSET; i++)
            count += given[i] == id;
        return count;
    case REPEAT:
        return 3;
    case WEIGHTED:
    case WEIGHTED_ONCE:
        return -1;
    default:
        return 1;
    }
}

static void check_multiset(const ledger *sorted, kind k, int world, int ends)
{
    const int64_t length = epoch_length(k);
    const int64_t left_out = ends == PST_ENDS_DROP ? length % (world * BATCH) : 0;
    for (uint64_t e = 0; e < EPOCHS; e++) {
        int64_t total = 0, counts[SAMPLES] = {0};
        for (size_t i = 0; i < sorted->count; i++)
            if (sorted->at[i].epoch == e) {
                total++;
                counts[sorted->at[i].id]++;
            }
        CHECKF(total == length - left_out, "%s epoch %d: %d of %d", kind_names[k], (int)e,
               (int)total, (int)length);
        for (int64_t id = 0; id < SAMPLES; id++) {
            const int want = asked(k, id);
            if (want < 0)
                CHECK(k != WEIGHTED_ONCE || counts[id] <= 1);
            else if (ends == PST_ENDS_DROP)
                CHECK(counts[id] <= want);
            else
                CHECKF(counts[id] == want, "%s id %d: %d times", kind_names[k], (int)id,
                       (int)counts[id]);
        }
    }
}

/* Every line of `part` stands in `whole` too, as often. Both sorted. */
static bool within(const ledger *part, const ledger *whole)
{
    size_t j = 0;
    for (size_t i = 0; i < part->count; i++) {
        const line *p = &part->at[i];
        while (j < whole->count && (whole->at[j].epoch != p->epoch || whole->at[j].id != p->id ||
                                    whole->at[j].crc != p->crc))
            j++;
        if (j == whole->count)
            return false;
        j++;
    }
    return true;
}

static void check_kind(kind k)
{
    static const int workers[] = {1, 2, 7};
    ledger golden = {0}; /* one rank, short, strict: everything */
    ledger strict_order[2][3] = {0};
    for (int w = 0; w < 3; w++) {
        pst_engine *engine = kit_engine(workers[w], 64 << 20);
        for (int c = 0; c < 12; c++) {
            const int order = c & 1 ? PST_ORDER_READY : PST_ORDER_STRICT;
            const int world = c / 2 % 2 ? 3 : 1, ends = PST_ENDS_DROP + c / 4;
            ledger l = collect(engine, k, order, world, ends);
            if (order == PST_ORDER_STRICT) {
                ledger *first = &strict_order[world == 3][ends - PST_ENDS_DROP];
                if (w == 0) {
                    *first = l;
                    first->at = malloc(l.count * sizeof *l.at);
                    memcpy(first->at, l.at, l.count * sizeof *l.at);
                } else {
                    CHECKF(ledger_same_order(first, &l), "%s workers %d world %d", kind_names[k],
                           workers[w], world);
                }
            }
            ledger_sort(&l);
            check_multiset(&l, k, world, ends);
            if (!golden.count && ends == PST_ENDS_SHORT)
                golden = l;
            else if (golden.count &&
                     (ends == PST_ENDS_DROP ? !within(&l, &golden) : !ledger_same(&l, &golden)))
                CHECKF(false, "%s workers %d world %d order %d ends %d: other bytes", kind_names[k],
                       workers[w], world, order, ends);
            if (l.at != golden.at)
                ledger_free(&l);
        }
        pst_engine_free(engine);
    }
    for (int i = 0; i < 6; i++)
        ledger_free(&strict_order[i / 3][i % 3]);
    ledger_free(&golden);
}

static void every_sampler_gives_exactly_what_it_asks_for(void)
{
    for (kind k = 0; k < KINDS; k++)
        check_kind(k);
}

static void fifty_occurrences_have_fifty_crops(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = KIT_PIPELINE;
    o.batch = 10;
    o.repeat = 50;
    int64_t one = 17;
    o.ids = &one;
    o.ids_count = 1;
    pst_job *job = kit_job(engine, data, &o);
    ledger l = {0};
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0);
    ledger_sort(&l);
    CHECK(l.count == 50);
    for (size_t i = 1; i < l.count; i++)
        CHECK(l.at[i].crc != l.at[i - 1].crc);
    ledger_free(&l);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void two_jobs_share_an_engine(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = KIT_PIPELINE;
    o.batch = BATCH;
    o.epochs = 2;
    pst_job *train = kit_job(engine, data, &o);
    o.pipeline = "decode | resize(20) | center_crop(16)";
    o.sampler = PST_SEQUENTIAL;
    pst_job *valid = kit_job(engine, data, &o);
    ledger a = {0}, b = {0};
    /* In turns, as a training loop with validation would. */
    for (int e = 0; e < 2; e++) {
        CHECK(kit_collect(train, 0, 1, SIZE_MAX, &a) == 0);
        CHECK(kit_collect(valid, 0, 1, SIZE_MAX, &b) == 0);
    }
    CHECK(a.count == 2 * SAMPLES && b.count == 2 * SAMPLES);
    for (size_t i = 0; i < b.count; i++)
        CHECK(b.at[i].id == (int64_t)(i % SAMPLES));
    ledger_free(&a);
    ledger_free(&b);
    pst_job_close(train);
    pst_engine_free(engine); /* closes the other one */
    pst_batch *batch;
    CHECK(pst_job_next(valid, 0, &batch) == PST_ECLOSED);
    pst_job_close(valid);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, SAMPLES, CLASSES);
    data = kit_dataset(folder);
    for (int i = 0; i < SUBSET; i++)
        subset[i] = i * 2 + 1;
    for (int i = 0; i < 2 * SUBSET; i++)
        given[i] = (i * 7) % 31;
    for (int i = 0; i < SAMPLES; i++)
        weights[i] = i % 3 ? 1.0 + i : 0.0;
    RUN(every_sampler_gives_exactly_what_it_asks_for);
    RUN(fifty_occurrences_have_fifty_crops);
    RUN(two_jobs_share_an_engine);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
