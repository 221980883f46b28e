/* SPDX-License-Identifier: Apache-2.0
 * Orders with buckets: every sample once, batches of one bucket, few mixed ones at the end, all
 * samplers, and settings that are refused. */
#include <stdlib.h>

#include "sample/sample_priv.h"
#include "sample_check.h"

enum { N = 503, BATCH = 8 };

static int32_t bucket_of[N];

/* Five buckets; the last one has three samples. */
static void set_buckets(void)
{
    for (int i = 0; i < N; i++)
        bucket_of[i] = i % 167 == 3 ? 4 : (i * 7919 % 100) / 25;
}

static psti_order *make(psti_order_spec spec)
{
    psti_order *order = NULL;
    pst_error err = {0};
    spec.dataset = N;
    spec.repeat = spec.repeat ? spec.repeat : 1;
    spec.seed = 5;
    spec.buckets = bucket_of;
    spec.buckets_count = N;
    spec.batch = BATCH;
    CHECKF(psti_order_new(&spec, &order, &err) == 0, "%s", err.message);
    return order;
}

/* Batches of one bucket up to the tail, which is shorter than a batch of each. */
static void check_batches(const psti_order *order, uint64_t number)
{
    psti_epoch *epoch = NULL;
    CHECK(psti_epoch_open(order, number, &epoch, NULL) == 0);
    const int64_t length = psti_order_length(order);
    int64_t tail = -1;
    for (int64_t p = 0; p < length; p++) {
        int64_t id, first;
        uint32_t occurrence;
        psti_epoch_at(epoch, p, &id, &occurrence);
        psti_epoch_at(epoch, p / BATCH * BATCH, &first, &occurrence);
        const int bucket = psti_epoch_bucket(epoch, p);
        if (bucket == PSTI_BUCKETS && tail < 0)
            tail = p;
        CHECK((bucket == PSTI_BUCKETS) == (tail >= 0));
        if (tail < 0)
            CHECKF(bucket == bucket_of[id] && bucket_of[id] == bucket_of[first],
                   "position %lld is of bucket %d, not %d", (long long)p, bucket_of[id], bucket);
    }
    CHECK(tail < 0 || (tail % BATCH == 0 && length - tail <= 5 * (BATCH - 1)));
    psti_epoch_close(epoch);
}

static void check_multiset(const psti_order *order, uint64_t number, const psti_order *without)
{
    static int seen[N];
    psti_epoch *epochs[2] = {NULL, NULL};
    memset(seen, 0, sizeof seen);
    CHECK(psti_epoch_open(order, number, &epochs[0], NULL) == 0);
    CHECK(psti_epoch_open(without, number, &epochs[1], NULL) == 0);
    for (int e = 0; e < 2; e++)
        for (int64_t p = 0; p < psti_order_length(order); p++) {
            int64_t id;
            uint32_t occurrence;
            psti_epoch_at(epochs[e], p, &id, &occurrence);
            if (e == 0)
                CHECK(occurrence == (uint32_t)seen[id]);
            seen[id] += e ? -1 : 1;
        }
    for (int i = 0; i < N; i++)
        CHECKF(seen[i] == 0, "sample %d comes %d times too often", i, seen[i]);
    psti_epoch_close(epochs[0]);
    psti_epoch_close(epochs[1]);
}

static void every_sampler_gives_what_it_gives_without(void)
{
    static double weights[N];
    static int64_t ids[200];
    for (int i = 0; i < N; i++)
        weights[i] = 1 + i % 3;
    for (int i = 0; i < 200; i++)
        ids[i] = i * 5 % N;
    const psti_order_spec specs[] = {
        {.sampler = PST_SHUFFLE},
        {.sampler = PST_SHUFFLE, .repeat = 3},
        {.sampler = PST_SHUFFLE, .ids = ids, .ids_count = 200},
        {.sampler = PST_SEQUENTIAL},
        {.sampler = PST_WEIGHTED, .weights = weights, .weights_count = N, .draws = 901},
        {.sampler = PST_WEIGHTED_ONCE, .weights = weights, .weights_count = N, .draws = 100},
        {.sampler = PST_GIVEN, .ids = ids, .ids_count = 100},
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        psti_order *order = make(specs[i]), *without = NULL;
        psti_order_spec plain = specs[i];
        plain.dataset = N;
        plain.repeat = plain.repeat ? plain.repeat : 1;
        plain.seed = 5;
        CHECK(psti_order_new(&plain, &without, NULL) == 0);
        CHECK(psti_order_bucketed(order) && !psti_order_bucketed(without));
        CHECK(!psti_order_invertible(order));
        const psti_id128 a = psti_order_source(order), b = psti_order_source(without);
        CHECK(a.lo != b.lo);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            check_batches(order, epoch);
            check_multiset(order, epoch, without);
        }
        psti_order_free(order);
        psti_order_free(without);
    }
}

/* Full batches come in the order in which the epoch fills them, so no bucket comes first. */
static void buckets_take_turns_by_chance(void)
{
    int64_t first[4] = {0};
    psti_order *order = make((psti_order_spec){.sampler = PST_SHUFFLE});
    for (uint64_t e = 0; e < 400; e++) {
        psti_epoch *epoch = NULL;
        int64_t id;
        uint32_t occurrence;
        CHECK(psti_epoch_open(order, e, &epoch, NULL) == 0);
        psti_epoch_at(epoch, 0, &id, &occurrence);
        first[bucket_of[id]]++;
        psti_epoch_close(epoch);
    }
    CHECKF(chi_excess_even(first, 4) < 5, "%lld %lld %lld %lld", (long long)first[0],
           (long long)first[1], (long long)first[2], (long long)first[3]);
    psti_order_free(order);
}

static void what_does_not_fit_is_refused(void)
{
    psti_order *order = NULL;
    pst_error err = {0};
    psti_order_spec spec = {.sampler = PST_SHUFFLE,
                            .dataset = N,
                            .repeat = 1,
                            .buckets = bucket_of,
                            .buckets_count = N - 1,
                            .batch = BATCH};
    CHECK(psti_order_new(&spec, &order, &err) == -EINVAL && strstr(err.message, "502 buckets"));
    spec.buckets_count = N;
    bucket_of[77] = PSTI_BUCKETS;
    CHECK(psti_order_new(&spec, &order, &err) == -EINVAL &&
          strstr(err.message, "sample 77 is in bucket 63"));
    bucket_of[77] = -1;
    CHECK(psti_order_new(&spec, &order, &err) == -EINVAL && !order);
    set_buckets();
}

static void nothing_is_left_behind(void)
{
    psti_mem_stats stats;
    psti_mem_stats_total(&stats);
    CHECKF(stats.live == 0, "%llu blocks", (unsigned long long)stats.live);
}

int main(void)
{
    set_buckets();
    RUN(every_sampler_gives_what_it_gives_without);
    RUN(buckets_take_turns_by_chance);
    RUN(what_does_not_fit_is_refused);
    RUN(nothing_is_left_behind);
    return check_report();
}
