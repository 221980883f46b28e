/* SPDX-License-Identifier: Apache-2.0
 * Measuring what single samples cost, piece by piece, on the calling thread. */
#ifndef PSTI_ENGINE_PROBE_H
#define PSTI_ENGINE_PROBE_H

#include "engine/fields.h"
#include "sched/sched.h"

/* Of one sample. Seconds are CPU seconds of the calling thread. */
typedef struct probe_cost {
    int rc; /* 0, or why the sample is bad: the rest is not set then */
    double encoded, decoded, augmented, out; /* bytes; decoded 0: not kept in that form */
    double read_s, crop_s, full_s, augment_s, keep_s, finish_s;
} probe_cost;

typedef struct probe probe;

/* data, choice and plan stay the caller's and valid. One thread at a time per probe. ring: bytes
 * that results are written to in turn; more than the processor's caches hold, as batches are. */
int probe_new(psti_dataset *data, const field_choice *choice, const psti_plan *plan, uint64_t seed,
              size_t ring, probe **out);
void probe_free(probe *p); /* NULL is fine */
/* Measures so many samples, at most PROBE_GROUP. All are prepared from encoded bytes first, then
 * decoded whole and kept, then prepared from what was kept: so that a kept picture has left the
 * processor's caches when it is used, as in a cache that is worth having. */
enum { PROBE_GROUP = 64 };
void probe_run(probe *p, const int64_t *ids, int count, uint64_t epoch, probe_cost *out);

#endif
