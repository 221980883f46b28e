/* SPDX-License-Identifier: Apache-2.0
 * What `feed` says at the end, for people and for programs. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <stdbool.h>

#include "penstock.h"

typedef struct report {
    const pst_engine *engine;
    const char *pipeline;
    int order, batch, rank, world;
    double seconds;       /* from the first request to the end */
    double cpu_s;         /* of the whole process */
    double first_batch_s; /* from the start of the process; negative if there was none */
    uint64_t samples, pads, batches, epochs; /* as counted here; epochs: finished ones */
    bool interrupted;
    pst_error error; /* code 0 if all went well */
    pst_settings settings;
    pst_job_stats stats;
    pst_verdict verdict;
} report;

void report_print(const report *r);
void report_json(const report *r);

#endif
