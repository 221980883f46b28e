/* SPDX-License-Identifier: Apache-2.0
 * What the files of the model share. */
#ifndef PSTI_MODEL_MODEL_PRIV_H
#define PSTI_MODEL_MODEL_PRIV_H

#include "model/model.h"

enum { E = PSTI_MODEL_ENCODED, D = PSTI_MODEL_DECODED, A = PSTI_MODEL_AUGMENTED };

/* What it takes to make a sample up to its augmented form, before anything is shared. */
typedef struct prep_cost {
    double cpu_s;    /* of one core */
    double source_s; /* of the source */
    double disk_s;   /* of the disk tier */
    double remote_s; /* of the remote tier's line */
    double bytes;    /* moved through the memory */
} prep_cost;

/* Seconds that the source needs for one sample. */
double model_source_s(const psti_model_input *in);
/* Part of the samples that the disk tier holds. */
double model_on_disk(const psti_model_input *in);
/* The mean preparation when so many samples are there in encoded and in decoded form. */
prep_cost model_prep(const psti_model_input *in, double encoded, double decoded);
/* CPU seconds of one core for a delivery, with q preparations of this kind. */
double model_delivery_s(const psti_model_input *in, const prep_cost *prep, double q);
/* Entries of the static forms that bytes would hold; decoded ones count first. */
double model_entries(const psti_model_input *in, int form, double share);

#endif
