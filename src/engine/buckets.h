/* SPDX-License-Identifier: Apache-2.0
 * Buckets from what a job says of them. Private to the room engine. */
#ifndef PSTI_ENGINE_BUCKETS_H
#define PSTI_ENGINE_BUCKETS_H

#include "engine/engine_priv.h"

typedef struct buckets_of {
    const char *by;     /* bucket_by */
    const int64_t *ids; /* that are drawn from; NULL: all */
    int64_t drawn;
} buckets_of;

/* A bucket for each sample of the dataset; *out becomes the caller's. */
int buckets_find(const psti_dataset *data, const buckets_of *how, int32_t **out, pst_error *err);

#endif
