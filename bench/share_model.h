/* SPDX-License-Identifier: Apache-2.0
 * A model of jobs that share one cache: the sharing of src/sample itself, driven by consumers (a
 * batch at a fixed rate), ready queues (a quarter of the cached entries together, at most) and
 * workers that take time to prepare. */
#ifndef BENCH_SHARE_MODEL_H
#define BENCH_SHARE_MODEL_H

#include "sample/share.h"
#include "share_cases.h"

typedef struct model_set {
    uint32_t samples;
    int epochs; /* of the slowest job */
    uint64_t seed;
    int batch;
    bool keep;  /* never evict */
    bool check; /* walk through every invariant now and then */
    psti_share_spec spec;
} model_set;

typedef struct model_out {
    double ratio, window; /* preparations per delivery; the widest of any job, at the end */
    order_verdict order;
} model_out;

void model_set_init(model_set *set);
void model_run(const share_case *sc, const model_set *set, model_out *out);
/* Plain substitution over a cache that keeps what it has (decoded entries): whenever the next of
 * its order is not cached, a job takes any cached one it has not seen. Hits are the cached share,
 * whatever it does, and the cached samples come first in every epoch: one job tells all. */
void model_static(const share_case *sc, const model_set *set, model_out *out);

#endif
