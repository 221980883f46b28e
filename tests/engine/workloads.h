/* SPDX-License-Identifier: Apache-2.0
 * What the engine is used for, a row each: a small dataset and a pipeline on it. Whatever is
 * promised of samples is tested on every row (test_workloads.c). */
#ifndef PSTI_TESTS_ENGINE_WORKLOADS_H
#define PSTI_TESTS_ENGINE_WORKLOADS_H

#include "engine_kit.h"

typedef struct workload {
    const char *name;
    /* A dataset of so many samples that differ. */
    void (*make)(const char *folder, int count);
    /* Random, so that two epochs differ. A "@" stands where slow samples take their time. */
    const char *pipeline;
    const char *fields; /* as in pst_job_options */
    int batch;
    bool decoded; /* there is a decoded form, which all samples find in the second epoch */
} workload;

extern const workload workloads[];
extern const int workload_count;

#endif
