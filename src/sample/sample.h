/* SPDX-License-Identifier: Apache-2.0
 * What comes next. An order says which sample stands at each position of an epoch; a deal says
 * which rank, step and slot a position belongs to; a state records what was consumed. All are pure
 * functions of their inputs, in caller's memory where possible; objects may be read by any number
 * of threads, and changed by one. */
#ifndef PSTI_SAMPLE_SAMPLE_H
#define PSTI_SAMPLE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/hash.h"
#include "penstock.h"
#include "sample/share.h" /* sharing work between jobs */

/* ---- keyed permutation of [0, n): computed, not stored, both ways ------------------------- */

enum { PSTI_PERMUTATION_ROUNDS = 132 };

typedef struct psti_permutation {
    uint64_t n;
    uint64_t key[2];
    int rounds;
    uint64_t turn[PSTI_PERMUTATION_ROUNDS]; /* the K of each round, in [0, n) */
} psti_permutation;
/* n in 1..2^63 - 1; positions and values in 0..n - 1. Which permutation belongs to (n, seed, epoch)
 * never changes. */
void psti_permutation_init(psti_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch);
uint64_t psti_permutation_at(const psti_permutation *p, uint64_t position); /* position -> value */
uint64_t psti_permutation_find(const psti_permutation *p, uint64_t value);  /* value -> position */

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct psti_order_spec {
    int sampler;        /* pst_sampler */
    int64_t dataset;    /* samples in the dataset */
    const int64_t *ids; /* to draw from, or the order itself (PST_GIVEN); NULL = all */
    int64_t ids_count;
    const double *weights; /* one per sample of the dataset; weighted samplers */
    int64_t weights_count;
    int64_t draws; /* weighted: positions an epoch; 0 = as many as are drawn from */
    int repeat;    /* >= 1 */
    uint64_t seed;
    const int32_t *buckets; /* one per sample of the dataset, 0..PSTI_BUCKETS - 1: a batch holds
                               samples of one; NULL = none */
    int64_t buckets_count;
    int batch; /* with buckets: samples that stand together */
    int run;   /* shuffle: neighbours that stay together; 0 = 1 */
} psti_order_spec;
enum { PSTI_BUCKETS = 63 };

typedef struct psti_order psti_order;
/* Copies what it needs; checks ids (in range) and weights (finite, >= 0, enough positive ones). */
int psti_order_new(const psti_order_spec *spec, psti_order **out, pst_error *err);
void psti_order_free(psti_order *order);
int64_t psti_order_length(const psti_order *order); /* positions an epoch: L */
/* Hash over everything that defines the order but the seed: kind, ids, weights, draws, repeat,
 * runs, buckets (not the batch that these are cut by). */
psti_id128 psti_order_source(const psti_order *order);
int psti_order_sampler(const psti_order *order);
bool psti_order_bucketed(const psti_order *order);
/* The ids of a given order, which become the caller's; NULL where there are none. 0 or -ENOMEM. */
int psti_order_given(const psti_order *order, int64_t **out, int64_t *count);

/* The order of one epoch. Weighted samplers make a table here, the others compute. The order must
 * outlive it. */
typedef struct psti_epoch psti_epoch;
int psti_epoch_open(const psti_order *order, uint64_t epoch, psti_epoch **out, pst_error *err);
void psti_epoch_close(psti_epoch *epoch);
/* Position 0..L-1 to sample id and how often that id stood at an earlier position of this epoch. */
void psti_epoch_at(const psti_epoch *epoch, int64_t position, int64_t *id, uint32_t *occurrence);
/* Whether the sample with the next id comes next, and not by chance. */
bool psti_epoch_goes_on(const psti_epoch *epoch, int64_t position);
/* The bucket of what stands there; PSTI_BUCKETS in the epoch's tail, where they are mixed, and 0
 * where there are none. */
int psti_epoch_bucket(const psti_epoch *epoch, int64_t position);

/* The other way round, for orders in which a sample stands at most once and not by weight
 * (psti_order_invertible): the position of a sample, or -1 when it has none. Orders over a list of
 * ids are inverted once, by psti_order_invert. */
bool psti_order_invertible(const psti_order *order);
int psti_order_invert(psti_order *order);
int64_t psti_epoch_find(const psti_epoch *epoch, int64_t id);

/* ---- deal: positions to ranks, steps and slots --------------------------------------------- */

/* What is left of an epoch, dealt in turn: the j-th remaining position belongs to rank (j / batch)
 * % world. Without a resume what is left is everything. Share = the rank's own positions in order;
 * the deal covers steps * batch share indices, of which those beyond the rank's real positions are
 * padding (ends = pad) or absent (ends = short). */
typedef struct psti_deal psti_deal;
typedef struct psti_deal_spec {
    int64_t length; /* L */
    int batch, rank, world, ends;
    int64_t prefix;      /* positions [0, prefix) are consumed (strict) */
    const uint8_t *used; /* or a bitmap of consumed positions, bit p & 7 of byte p / 8 (ready); NULL
                            = use prefix. Copied. */
} psti_deal_spec;
int psti_deal_new(const psti_deal_spec *spec, psti_deal **out, pst_error *err);
void psti_deal_free(psti_deal *deal);
int64_t psti_deal_steps(const psti_deal *deal); /* of this rank */
/* Share indices that hold a real position, in 0..count-1; beyond, up to steps * batch, padding
 * (ends = pad). */
int64_t psti_deal_share(const psti_deal *deal);
/* Position of a share index; for padding, and any index past the share, *valid = false and one of
 * the epoch's first positions (of those that were left, with a bitmap): the same after a resume. */
int64_t psti_deal_position(const psti_deal *deal, int64_t share_index, bool *valid);
/* Slots of a step: batch, or fewer in the last one of ends = short. */
int psti_deal_slots(const psti_deal *deal, int64_t step);

/* ---- state ----------------------------------------------------------------------------------- */

/* What a job had handed over. Arrays belong to the struct (psti_state_fini). */
typedef struct psti_state {
    psti_id128 revision, fingerprint, source; /* dataset, whole pipeline, psti_order_source */
    uint64_t seed, epoch;
    int64_t length; /* L */
    int order;      /* pst_order */
    int ends, batch;
    int world, rank; /* of the job that saved it */
    bool merged;     /* stands for all ranks */
    bool per_rank;   /* holds only what this rank consumed: must be merged when world > 1 */
    int64_t prefix;  /* strict: consumed positions are [0, prefix) … */
    int64_t share; /* … or, with skips under several ranks, the rank's first `share` share indices
                      of the deal that began at `prefix` */
    /* Bitmap of (length + 7) / 8 bytes, or NULL = prefix. Ready: what was consumed; with per_rank
     * only this rank's part (and in rank 0's what was consumed before a resume, so that parts never
     * overlap). Strict and not per_rank: what was consumed, after a merge. Strict and per_rank:
     * where the deal began, if not at `prefix`. */
    uint8_t *used;
    int64_t *skipped; /* positions skipped in this epoch, ascending */
    int64_t skipped_count;
    char *pipeline; /* canonical text, for messages; NULL if too long to keep */
    int64_t *given; /* PST_GIVEN: the order of the open epoch; NULL otherwise */
    int64_t given_count;
} psti_state;
void psti_state_fini(psti_state *state);
/* Size, then bytes: nothing is written when cap is less than the size that is returned. At most
 * length / 8 + 8 KiB (without given), if no more than some 1,500 samples were skipped. 0: a section
 * would be longer than 4 GiB. */
size_t psti_state_size(const psti_state *state);
size_t psti_state_encode(const psti_state *state, uint8_t *buf, size_t cap);
/* Refuses what is truncated, damaged, of another version or inconsistent, saying what. */
int psti_state_decode(const uint8_t *bytes, size_t size, psti_state *out, pst_error *err);
/* Joins the states of all ranks 0..world-1 of one job at one epoch; refuses an incomplete or mixed
 * set by name. */
int psti_state_join(const psti_state *states, size_t count, psti_state *out, pst_error *err);

#endif
