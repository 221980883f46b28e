/* SPDX-License-Identifier: Apache-2.0
 * Orders whose batches hold samples of one bucket: of about one length, or one shape. The epoch's
 * order is walked through, each position goes to its sample's bucket, and a bucket that has a batch
 * full of them is what comes next. What is left in the end comes last, bucket by bucket. So every
 * position stands somewhere exactly once, whatever the buckets, and a table of 4 bytes a position
 * says where. Called by epoch.c while an epoch is opened; no state. */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "sample/sample_priv.h"

int psti_buckets_take(psti_order *order, const psti_order_spec *spec, pst_error *err)
{
    if (!spec->buckets)
        return 0;
    if (spec->buckets_count != spec->dataset)
        return psti_fail(err, -EINVAL, "sampler", NULL,
                         "there are %lld buckets for %lld samples; give one for each sample of the "
                         "dataset",
                         (long long)spec->buckets_count, (long long)spec->dataset);
    if (psti_order_length(order) > UINT32_MAX)
        return psti_fail(err, -EINVAL, "sampler", NULL,
                         "buckets are for epochs of at most 2^32 - 1 positions");
    uint8_t *copy = psti_malloc(PSTI_MEM_SAMPLE, (size_t)spec->dataset);
    if (!copy)
        return psti_fail(err, -ENOMEM, "sampler", NULL, "out of memory for the buckets");
    order->buckets = copy;
    order->bucket_batch = spec->batch;
    for (int64_t i = 0; i < spec->dataset; i++) {
        if (spec->buckets[i] < 0 || spec->buckets[i] >= PSTI_BUCKETS)
            return psti_fail(err, -EINVAL, "sampler", NULL,
                             "sample %lld is in bucket %d; buckets are 0..%d", (long long)i,
                             spec->buckets[i], PSTI_BUCKETS - 1);
        copy[i] = (uint8_t)spec->buckets[i];
    }
    return 0;
}

void psti_buckets_hash(const psti_order *order, psti_hash *h)
{
    for (int64_t i = 0; order->buckets && i < order->dataset; i++)
        psti_hash_u64(h, order->buckets[i]);
}

/* Positions that wait until there are as many as a batch has. */
typedef struct waiting {
    uint32_t *at[PSTI_BUCKETS]; /* NULL: none came yet */
    int count[PSTI_BUCKETS];
} waiting;

static int put(waiting *w, int bucket, uint32_t position, int batch)
{
    if (!w->at[bucket])
        w->at[bucket] = psti_calloc(PSTI_MEM_SAMPLE, (size_t)batch, sizeof **w->at);
    if (!w->at[bucket])
        return -ENOMEM;
    w->at[bucket][w->count[bucket]++] = position;
    return 0;
}

static int64_t empty(waiting *w, int bucket, uint32_t *to)
{
    const int64_t n = w->count[bucket];
    if (n)
        memcpy(to, w->at[bucket], (size_t)n * sizeof *to);
    w->count[bucket] = 0;
    return n;
}

int psti_buckets_deal(const psti_order *order, int (*bucket_at)(const void *, int64_t),
                      const void *user, uint32_t **out, int64_t *tail)
{
    const int64_t length = psti_order_length(order);
    waiting w = {0};
    int64_t dealt = 0;
    int rc = 0;
    uint32_t *seats = psti_calloc(PSTI_MEM_SAMPLE, (size_t)length, sizeof *seats);
    if (!seats)
        return -ENOMEM;
    for (int64_t p = 0; p < length && rc == 0; p++) {
        const int bucket = bucket_at(user, p);
        rc = put(&w, bucket, (uint32_t)p, order->bucket_batch);
        if (rc == 0 && w.count[bucket] == order->bucket_batch)
            dealt += empty(&w, bucket, seats + dealt);
    }
    *tail = dealt;
    for (int b = 0; b < PSTI_BUCKETS; b++) {
        if (rc == 0)
            dealt += empty(&w, b, seats + dealt);
        psti_free(w.at[b]);
    }
    if (rc < 0)
        psti_free(seats);
    else
        *out = seats;
    return rc;
}
