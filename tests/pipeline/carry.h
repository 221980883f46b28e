/* SPDX-License-Identifier: Apache-2.0
 * Taking one sample through a pipeline from start to finish, for tests. */
#ifndef PSTI_TESTS_PIPELINE_CARRY_H
#define PSTI_TESTS_PIPELINE_CARRY_H

#include "pipeline/pipeline.h"

typedef struct sample {
    const uint8_t *bytes[4];
    size_t size[4];
    int64_t known[4]; /* damage; set to -1 by sample_of */
} sample;

/* A delivered output; data is malloc'ed, NULL when the sample failed. */
typedef struct result {
    int rc;
    uint8_t *data;
    size_t bytes;
    int64_t shape[PST_MAX_RANK];
    int64_t damage;
    pst_error err;
} result;

/* NULL, with a CHECK failed, when the text or the plan is refused. full: see psti_plan_force_full.
 */
psti_plan *plan_make(const char *text, const psti_plan_input *inputs, int count, bool full);
sample sample_of(const uint8_t *bytes, size_t size);
/* Runs the sample with key id; kits: used in turn, one per step; finish goes to the last. Delivers
 * output 0 into results[0], and so on. */
void carry(const psti_plan *plan, psti_work *work, psti_kit *const *kits, int kit_count,
           const sample *in, uint64_t id, result *results, int count);
/* The same with one kit for one output. */
result carry_one(const psti_plan *plan, psti_work *work, psti_kit *kit, const sample *in,
                 uint64_t id);
bool result_equal(const result *a, const result *b);
void result_free(result *r);

#endif
