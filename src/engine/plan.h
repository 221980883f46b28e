/* SPDX-License-Identifier: Apache-2.0
 * How fast a dataset's source is, measured apart from everything else. */
#ifndef PSTI_ENGINE_PLAN_H
#define PSTI_ENGINE_PLAN_H

#include "engine/fields.h"

typedef struct source_rate {
    double bytes_s;
    bool cold; /* the bytes came from where they lie, not from memory */
} source_rate;

/* Reads samples spread over the dataset, many at a time, for at most so many seconds. Calling
 * thread, besides the reader's own. */
int source_measure(psti_dataset *data, const field_choice *choice, uint64_t seed, double seconds,
                   source_rate *out, pst_error *err);
/* Fills in what a disk tier, DIR:BYTES, would do for samples that were measured. */
int plan_disk(psti_dataset *data, const psti_plan *plan, const char *text, pst_plan_inputs *in,
              pst_error *err);
/* CPU seconds that an engine with so many workers takes for a sample beside what is done to the
 * sample itself, measured by running one for so many seconds; 0 = that cannot be said.
 * decoded_bytes: of a sample in that form, 0 = none. */
double own_work(pst_dataset *data, const pst_plan_options *opts, double decoded_bytes, int workers,
                double seconds);
/* The n-th of the samples to be looked at: spread over the dataset, none twice before all were
 * there once. */
int64_t plan_pick(int64_t count, uint64_t seed, int64_t n);

#endif
