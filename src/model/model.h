/* SPDX-License-Identifier: Apache-2.0
 * The throughput model: what a machine, a dataset and a pipeline can deliver with a cache of a
 * given size, how the cache is best used, and what would help. Pure arithmetic on measured numbers:
 * no memory is taken, nothing blocks, any thread. A solve takes a fraction of a millisecond, so
 * that a running engine can ask again whenever a rate or the number of jobs moves.
 *
 * Two models live here. psti_model_… is the one that is acted on: it adds up what a delivered
 * sample costs of each resource. psti_paper_… is the published one, which averages rates; it is
 * kept for comparison. */
#ifndef PSTI_MODEL_MODEL_H
#define PSTI_MODEL_MODEL_H

#include <stdbool.h>

/* ---- what goes in ---------------------------------------------------------------------------- */

/* How far a cached sample has travelled. */
enum { PSTI_MODEL_ENCODED, PSTI_MODEL_DECODED, PSTI_MODEL_AUGMENTED, PSTI_MODEL_FORMS };
enum { PSTI_MODEL_JOBS = 64 };

/* How well jobs find each other's augmented samples. Preparations per delivery lie between the
 * bound (rate of the fastest job / sum of rates) and 1; these say how far down a cached share a
 * takes them. Zeroes stand for the figures of the sampler's own simulation. */
typedef struct psti_model_sharing {
    double spread; /* equal jobs on one permutation: how far the last is behind the first, as a
                      share of an epoch (0 = 0.02); the bound is reached at a = spread. A running
                      engine knows it */
    double reach;  /* other jobs: the cached share at which half of the possible gain is reached
                      (0 = 0.035) */
    /* Measured by an engine while it ran with this share of the samples cached in augmented form;
     * replaces both (preparations 0 = not measured). */
    double cached, preparations;
} psti_model_sharing;

/* Seconds are CPU seconds of one core for one sample, measured while all cores are busy. */
typedef struct psti_model_input {
    double samples; /* of the dataset */
    double cache_bytes;
    double cores;
    double bytes[PSTI_MODEL_FORMS]; /* of one entry, with everything it takes of the budget; 0 =
                                       there is no such form */
    double out_bytes;               /* of one delivered sample */
    double read_s;                  /* fetching the encoded bytes */
    double crop_s;                  /* encoded to augmented, decoding no more than the draw needs */
    double full_s;                  /* encoded to decoded, kept */
    double augment_s;               /* decoded to augmented */
    double keep_s;                  /* copying an augmented sample into the cache */
    double finish_s;                /* augmented to its place in the batch */
    double other_s;                 /* everything else: looking up, counting, handing over */
    double source_bytes_s;          /* bytes/s of all readers together (0 = no limit) */
    double source_request_s; /* seconds that the source is taken by a request beyond its bytes */
    double memory_bytes_s;   /* bytes/s that all cores move together (0 = no limit) */
    /* A disk tier: what is not in the cache comes from there as far as it reaches. It keeps one of
     * the first two forms; what it holds has nothing to do with what the cache holds. */
    double disk_bytes;       /* (0 = there is none) */
    int disk_form;           /* ENCODED or DECODED */
    double disk_entry_bytes; /* of one entry there */
    double disk_read_s;      /* CPU seconds to get one back */
    double disk_bytes_s;     /* bytes/s (0 = no limit) */
    /* A remote tier: the share of what is neither in the cache nor on the disk that it has, in
     * decoded form if there is one and remote_decoded, else encoded; bytes/s that it brings (0 = no
     * limit); CPU seconds of getting one. */
    double remote_found, remote_bytes_s, remote_s;
    bool remote_decoded;
    int jobs;                         /* (1..PSTI_MODEL_JOBS) */
    double consumer[PSTI_MODEL_JOBS]; /* samples/s that a job takes at most (0 = all it gets) */
    psti_model_sharing sharing;
} psti_model_input;

/* Shares of cache_bytes, by form; what they leave of 1 is not used. */
typedef struct psti_model_split {
    double share[PSTI_MODEL_FORMS];
} psti_model_split;

/* ---- what comes out -------------------------------------------------------------------------- */

typedef enum psti_model_resource {
    PSTI_MODEL_CPU,
    PSTI_MODEL_SOURCE,
    PSTI_MODEL_MEMORY,
    PSTI_MODEL_CONSUMER, /* every job gets all it can take */
    PSTI_MODEL_DISK,
    PSTI_MODEL_REMOTE
} psti_model_resource;

typedef struct psti_model_rate {
    double total;                     /* samples/s of all jobs */
    double job[PSTI_MODEL_JOBS];      /* of each */
    double capacity;                  /* of all jobs if the consumers were as fast as need be */
    double preparations;              /* per delivery */
    double entries[PSTI_MODEL_FORMS]; /* that the split holds */
    /* Where deliveries begin: by form, from the tiers, and from the source. They add up to 1. */
    double from[PSTI_MODEL_FORMS], from_disk, from_remote, from_source;
    /* Seconds that a delivery takes of each resource: all cores, the source, the memory, the disk
     * tier, the remote tier's line. */
    double cpu_s, source_s, memory_s, disk_s, remote_s;
    psti_model_resource binding;
} psti_model_rate;

/* What a second of a resource is worth for the throughput at the best split, cpu + source = 1: when
 * the cores are the limit a saved read is worth nothing, and the other way round; between them
 * where the split balances both. */
typedef struct psti_model_prices {
    double cpu;    /* per CPU second / cores */
    double source; /* per second of the source */
} psti_model_prices;

typedef struct psti_model_answer {
    psti_model_split split;                   /* the best one */
    psti_model_rate rate, first;              /* in the steady state, and while the cache fills */
    psti_model_rate corner[PSTI_MODEL_FORMS]; /* all bytes to one form */
    psti_model_rate none;                     /* without a cache */
    psti_model_prices prices;
} psti_model_answer;

/* ---- the model that is acted on -------------------------------------------------------------- */

/* Whether every number is finite, not negative, and where it must be more than nothing it is: NULL,
 * or the name of the first that is not. */
const char *psti_model_check(const psti_model_input *in);
/* What a split gives. steady: the static forms are filled; otherwise the first epoch. */
void psti_model_evaluate(const psti_model_input *in, const psti_model_split *split, bool steady,
                         psti_model_rate *out);
void psti_model_solve(const psti_model_input *in, psti_model_answer *out);
/* Preparations per delivery for jobs of these rates, with a share of the samples cached in
 * augmented form. 1 for a single job. */
double psti_model_preparations(const psti_model_sharing *sharing, const double *rates, int jobs,
                               double cached);

/* Total rates after a change, solved anew; gain is new / old - 1. */
typedef enum psti_model_change {
    PSTI_MODEL_MORE_CACHE, /* amount: bytes */
    PSTI_MODEL_MORE_CORES, /* amount: cores */
    PSTI_MODEL_MORE_SOURCE /* amount: times as fast */
} psti_model_change;
double psti_model_gain(const psti_model_input *in, psti_model_change change, double amount);

/* ---- the published model --------------------------------------------------------------------- */

/* Seneca, equations (1) to (9). Rates in samples/s and per node, bandwidths in bytes/s; nic and
 * pcie per node, cache and storage of the whole. */
typedef struct psti_paper_input {
    double gpu, decode_augment, augment;
    double pcie, nic, cache, storage;
    double cache_bytes, sample_bytes, inflation, samples;
    double nodes;
    double overhead_nic, overhead_pcie; /* gradient bytes, as printed: added to a sample's */
} psti_paper_input;

typedef struct psti_paper_rate {
    double form[PSTI_MODEL_FORMS], storage;   /* DSI_E, DSI_D, DSI_A, DSI_S */
    double entries[PSTI_MODEL_FORMS], stored; /* N_E, N_D, N_A, N_storage */
    double overall;
} psti_paper_rate;

void psti_paper_evaluate(const psti_paper_input *in, const psti_model_split *split,
                         psti_paper_rate *out);
/* The best of the 5,151 splits in steps of 1 %, as published. Ties: most encoded, then most
 * decoded. */
double psti_paper_grid(const psti_paper_input *in, psti_model_split *best);
/* The best of all splits: the objective is piecewise linear, so it lies where lines meet. */
double psti_paper_solve(const psti_paper_input *in, psti_model_split *best);
/* The same machine and data in the paper's terms: one node, no network. */
void psti_paper_from(const psti_model_input *in, psti_paper_input *out);

#endif
