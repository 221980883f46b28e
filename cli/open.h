/* SPDX-License-Identifier: Apache-2.0
 * Opening what several commands open, with progress, Ctrl-C and messages. */
#ifndef CLI_OPEN_H
#define CLI_OPEN_H

#include "penstock.h"

/* index_dir: NULL = the usual place, "none" = nowhere. Prints its own message; returns an exit
 * code. */
int open_data(const char *path, const char *index_dir, pst_dataset **out);
/* The first field of a kind, or NULL. The name is copied into out. */
const char *find_field(const pst_dataset *data, int kind, char out[PST_NAME_BYTES]);
/* One more than the largest label, or the number of class names if that is more; 0 without labels.
 * Labels beyond LABELS_MAX are left out of account. */
enum { LABELS_MAX = 1 << 24 };
int64_t label_count(const pst_dataset *data);
/* After pst_job_open failed: where the pipeline is at fault, shows the place in its text. Returns
 * CLI_FAIL. */
int fail_open(const char *pipeline, const pst_error *err);
/* After pst_job_next gave rc < 0: says why, unless Ctrl-C was the reason. Returns CLI_FAIL. */
int fail_job(const pst_job *job, int rc);
/* Checks a pipeline's text before anything slow is done; canonical (2048 bytes) may be NULL. */
enum { PIPELINE_BYTES = 2048 };
int check_pipeline(const char *text, char *canonical);
/* Words for field kinds and value types, as shown by inspect. */
const char *kind_name(int kind);
const char *dtype_name(int dtype);

#endif
