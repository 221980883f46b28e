/* SPDX-License-Identifier: Apache-2.0
 * A cache of three forms under different rules, and the jobs that read through it. */
#ifndef BENCH_CACHE_RULES_H
#define BENCH_CACHE_RULES_H

#include <stdbool.h>
#include <stddef.h>

enum { E, D, A, FORMS, NONE = FORMS, ANY, STATIC, JOBS_MOST = 4, PROBES = 32, CORES = 2 };

/* What is not the limit today is not worth nothing: it may be tomorrow. */
#define PRICE_LEAST 0.05

typedef struct cost {
    double bytes[FORMS];
    double read_s, crop_s, full_s, augment_s, keep_s, finish_s; /* CPU seconds */
} cost;

typedef enum rule { KEEP, LRU, VALUE } rule;

typedef struct policy {
    const char *name;
    enum { PARTITIONS, SHARED, TARGET } budget;
    rule rule;     /* of static entries in partitions */
    bool adaptive; /* prices follow what was measured; else the model's */
    double margin; /* a new static entry must be worth so much more than the one it replaces */
    double cross;  /* the same between a static and an augmented one */
    bool now;      /* augmented entries are worth what they save beside the static ones */
} policy;

typedef struct scene {
    int jobs;
    double rate[JOBS_MOST], offset[JOBS_MOST];
    bool common;   /* one permutation for all jobs */
    double source; /* source seconds of a mean sample over its CPU seconds / cores; 0 = no limit */
    double share;  /* cache bytes / encoded bytes of the dataset */
    double window; /* substitution window, a share of the dataset */
} scene;

typedef struct job {
    double rate, clock;
    int *order, *place; /* position to sample and back; shared when common */
    unsigned char *seen;
    int cursor, delivered;
    long epochs;
    unsigned long shuffle; /* seed of its permutation; with epochs */
} job;

typedef struct sim {
    const scene *sc;
    const policy *po;
    int n;
    const cost *costs;
    double source_s_byte, limit[FORMS], limit_all;
    /* By sample and form: place in the list of residents, or -1. */
    int *at[FORMS], *list[FORMS], count[FORMS];
    double used[FORMS], peak, price_cpu, price_source, lambda;
    double *last;         /* of static entries: when used */
    unsigned char *taken; /* of augmented entries: which jobs consumed it */
    job jobs[JOBS_MOST];
    unsigned long random;
    double now, uses_s;
    /* Added up over the measured part. */
    double cpu, source, first_cpu, first_source;
    long deliveries, preparations, hits[FORMS + 1], inserts[FORMS];
} sim;

/* Fills *s with an empty cache and jobs at their start; prices, limits and the source are the
 * caller's to set. */
void sim_begin(sim *s, const scene *sc, const policy *po, const cost *costs, int n);
/* Until the slowest job has finished warm + measured epochs; sums are those of the latter. */
void sim_run(sim *s, int warm, int measured);
void sim_end(sim *s);
unsigned long sim_draw(unsigned long *state);
void *sim_need(size_t count, size_t size); /* zeroed; ends the process when there is none */

#endif
