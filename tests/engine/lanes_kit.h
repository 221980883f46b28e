/* SPDX-License-Identifier: Apache-2.0
 * What the tests of slow samples share: a dataset and a pipeline with slow samples in runs, jobs on
 * it, and consumers with a pace, so that samples really are put aside. */
#ifndef PSTI_TESTS_LANES_KIT_H
#define PSTI_TESTS_LANES_KIT_H

#include "engine_kit.h"

/* Twelve of every eighty samples, by number, take forty times as long as the others. */
#define LANES_DELAYS "delay(0.4) | delay(16, 0.15, 12, 10, hidden)"
#define LANES_PIPELINE                                                                             \
    "decode | random_resized_crop(16) | hflip | " LANES_DELAYS " | normalize(imagenet)"
enum { LANES_SAMPLES = 331, LANES_WORKERS = 6, LANES_RANKS = 3, LANES_RUN = 12, LANES_EVERY = 80 };
static const int64_t LANES_PACE = 3000000; /* nanoseconds for a batch of four */

/* The folder with LANES_SAMPLES small pictures; the caller removes it. */
char *lanes_folder(void);
/* Ready order, batches of four, numbers in sequence. */
pst_job_options lanes_options(const char *pipeline, uint64_t epochs);
void lanes_pause(int64_t ns);
/* Opens a job for each of `world` ranks. */
void lanes_open(pst_engine *engine, pst_dataset *data, const pst_job_options *o, int world,
                pst_job **jobs);
/* Takes from the ranks in turn, with so long a pause for each batch, several at once, until each
 * came to the end of an epoch, or, where `parks` is not 0, until samples were put aside so often.
 * The first answer below 0, or 0. */
int lanes_drive(pst_job **jobs, int world, int64_t pause_ns, uint64_t parks, ledger *out);
uint64_t lanes_parks(const pst_job *job);
/* What a strict job without lanes delivers of the same pipeline, sorted. */
ledger lanes_model(pst_dataset *data, const pst_job_options *like, uint64_t epochs);

#endif
