/* SPDX-License-Identifier: Apache-2.0
 * A case of sharing on the engine itself, through the public API, under its own rules or under
 * simpler ones. */
#ifndef BENCH_SHARE_RUN_H
#define BENCH_SHARE_RUN_H

#include "penstock.h"
#include "share_cases.h"

typedef enum share_rule {
    RULE_OURS,
    RULE_APART,  /* no sharing: sampling = plain */
    RULE_ANY,    /* plain substitution: any resident entry the job has not had, orders of its own */
    RULE_KEPT,   /* never evict: what is resident stays */
    RULE_LOWEST, /* biased on purpose: of the entries a job may take, that of lowest id */
    RULES
} share_rule;

typedef struct run_set {
    int samples, epochs, workers; /* epochs of the slowest job */
    uint64_t seed;
} run_set;

typedef struct run_out {
    double ratio, hit_rate; /* preparations per delivery; deliveries that began from the cache */
    uint64_t deliveries, entries; /* entries: most that were seen */
    int batch, queued;            /* queued: most that wait in the ready queues together */
    order_verdict order;
} run_out;

/* A dataset of that many samples in a new folder; gives up by exit(2). */
pst_dataset *run_data(const char *folder, int samples);
void run_case(const share_case *sc, const run_set *set, share_rule rule, pst_dataset *data,
              run_out *out);

#endif
