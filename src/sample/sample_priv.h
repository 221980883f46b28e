/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room share: an order as it is kept, streams of random words, lists of ids.
 * Orders and epochs are not changed after they are made, so any thread may read them. */
#ifndef PSTI_SAMPLE_SAMPLE_PRIV_H
#define PSTI_SAMPLE_SAMPLE_PRIV_H

#include "core/memory.h"
#include "sample/sample.h"

/* Each use of randomness in this room draws from a stream of its own. Part of the byte promise. */
enum { PSTI_STREAM_SHUFFLE = 1, PSTI_STREAM_WEIGHTED = 2, PSTI_STREAM_WEIGHTED_ONCE = 3 };

typedef struct psti_stream {
    uint32_t word[4];
} psti_stream;

/* (seed, epoch, kind) -> stream; then (stream, counter) -> 128 bits. */
psti_stream psti_stream_of(uint64_t seed, uint64_t epoch, uint32_t kind);
void psti_stream_at(const psti_stream *stream, uint64_t counter, uint32_t out[4]);
/* Uniform in (0, 1), 52 bits and a half: never 0, never 1. */
double psti_stream_unit(const psti_stream *stream, uint64_t counter);

/* Ids to draw from, 4 bytes each where the dataset allows it. data = NULL: every id is its own
 * index. */
typedef struct psti_id_list {
    void *data;
    bool wide;
} psti_id_list;

static inline int64_t psti_id_list_at(const psti_id_list *list, int64_t index)
{
    if (!list->data)
        return index;
    return list->wide ? ((const int64_t *)list->data)[index]
                      : (int64_t)((const uint32_t *)list->data)[index];
}

/* Cumulated weights with a guide: the answer of a search lies between two neighbours of the guide.
 */
typedef struct psti_weights {
    double *value; /* cumulated (with replacement) or scaled (without) */
    int64_t count;
    double total;    /* with replacement */
    uint32_t *guide; /* with replacement: (1 << guide_bits) + 1 entries */
    int guide_bits;
} psti_weights;

/* scaled: weights >= 0 of which the largest is in [0.5, 1). Takes over `scaled`, on failure too. */
int psti_weights_cumulate(psti_weights *w, double *scaled, int64_t count);
/* Index for a draw u in [0, 1 - 2^-53]; never one whose weight is zero. */
int64_t psti_weights_find(const psti_weights *w, double u);
void psti_weights_fini(psti_weights *w);

struct psti_order {
    int sampler;
    int repeat;
    int64_t run; /* shuffle: neighbours that stay together */
    int64_t dataset;
    int64_t count; /* samples drawn from; PST_GIVEN: entries of the order */
    int64_t base;  /* positions before repeating */
    bool listed;   /* the caller gave the ids, which may count up from 0 */
    uint64_t seed;
    psti_id128 source;
    psti_id_list ids;
    psti_weights weights;
    uint32_t *index_of; /* psti_order_invert: place in ids by id, plus 1; 0 = not in it */
    uint8_t *buckets;   /* by id; NULL: none */
    int bucket_batch;
    uint32_t *earlier; /* PST_GIVEN with an id that comes twice: how often before, per entry */
};

/* How often the value of each position came at an earlier one; values are in [0, values). 0 or
 * -ENOMEM. */
int psti_count_earlier(int64_t positions, int64_t values,
                       int64_t (*value_at)(const void *user, int64_t position), const void *user,
                       uint32_t *earlier);
/* Copies the buckets of the spec; the order's length is known (bucketed.c). */
int psti_buckets_take(psti_order *order, const psti_order_spec *spec, pst_error *err);
void psti_buckets_hash(const psti_order *order, psti_hash *h);
/* For each position of an epoch, which position of the order without buckets stands there. *out
 * becomes the caller's; *tail: the first position of what made no full batch. 0 or -ENOMEM. */
int psti_buckets_deal(const psti_order *order, int (*bucket_at)(const void *, int64_t),
                      const void *user, uint32_t **out, int64_t *tail);
/* The first order->base indices in order of arrival; *out becomes the caller's. 0 or -ENOMEM. */
int psti_weights_race(const psti_order *order, const psti_stream *stream, uint32_t **out);

#endif
