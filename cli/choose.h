/* SPDX-License-Identifier: Apache-2.0
 * What the feed's option texts mean: --sampler, --rank, --forms, --without, --on-error. */
#ifndef CLI_CHOOSE_H
#define CLI_CHOOSE_H

#include "penstock.h"

/* What a job's options point to; lives as long as they do. Zeroed storage is valid. */
typedef struct choice {
    int64_t *ids;
    double *weights;
} choice;

/* Each fills its part of opts, prints its own message and returns an exit code. text may be NULL:
 * nothing is changed. */
int choose_sampler(const char *text, const pst_dataset *data, pst_job_options *opts, choice *out);
int choose_rank(const char *text, pst_job_options *opts);
/* Percent of the cache for each form, as in 0:60:40. */
int choose_forms(const char *text, double forms[3]);
/* Parts of the schedule that are left out, as in lanes,early. */
int choose_without(const char *text, pst_job_options *opts);
int choose_on_error(const char *text, pst_job_options *opts);
void choice_fini(choice *c);

#endif
