/* SPDX-License-Identifier: Apache-2.0
 * Randomness belongs to the sample: every draw is a pure function of (seed, epoch, id, occurrence,
 * view, op, n). Philox4x32-10 twice: the first turns (seed; id, epoch, occurrence) into a 128-bit
 * stream key, the second gives the draws (stream key; view, op, n). Part of the byte promise: it
 * never changes. Pure functions, caller's storage. */
#ifndef PSTI_CORE_RNG_H
#define PSTI_CORE_RNG_H

#include <stdint.h>

typedef struct psti_rng_key {
    uint64_t seed, epoch, id;
    uint32_t occurrence, view;
} psti_rng_key;

typedef struct psti_rng {
    uint32_t stream[4]; /* stream key */
    uint32_t place;     /* view << 16 | op */
    uint32_t n;         /* blocks drawn so far */
    uint32_t block[4];
    int left;   /* words of block not used yet */
    int64_t id; /* of the sample it is for; no draw depends on it, only on the key's */
} psti_rng;

void psti_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A generator for the op at place `op` (0..65535) of the pipeline. */
void psti_rng_init(psti_rng *rng, const psti_rng_key *key, uint32_t op);
uint32_t psti_rng_u32(psti_rng *rng);
uint64_t psti_rng_u64(psti_rng *rng);
/* Uniform in [0, 1): 53 bits. */
double psti_rng_unit(psti_rng *rng);
/* Uniform in [low, high). */
double psti_rng_range(psti_rng *rng, double low, double high);
/* Uniform in [0, n), unbiased; n >= 1. */
uint64_t psti_rng_below(psti_rng *rng, uint64_t n);
/* The normal distribution of mean 0 and deviation 1; and Beta(a, b), in [0, 1], 0.001 <= a, b <=
 * 1000. How many words they draw depends on what is drawn. */
double psti_rng_normal(psti_rng *rng);
double psti_rng_beta(psti_rng *rng, double a, double b);

#endif
