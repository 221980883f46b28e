/* SPDX-License-Identifier: Apache-2.0
 * What `penstock top` knows of an engine: its /v1/watch as plain numbers and texts that are safe to
 * show. Whatever is missing or makes no sense is 0 or empty. */
#ifndef CLI_TOP_VIEW_H
#define CLI_TOP_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    VIEW_FORMS = 3, /* encoded, decoded, augmented */
    VIEW_STAGES = 32,
    VIEW_SOURCES = 8,
    VIEW_JOBS = 512,
    VIEW_BAD = 8
};

typedef struct view_verdict {
    char kind[24], text[400];
    double stall;
} view_verdict;

typedef struct view_stage {
    char name[40];
    double runs, seconds, away;
} view_stage;

typedef struct view_job {
    double id, pid, batch, rank, world, epoch, epoch_samples, epoch_done, seconds, samples, skipped;
    double wait_p99, rate, stall, ready, ready_depth, prepared, shared, adopted, bytes_read;
    double hits[VIEW_FORMS], disk_hits, remote_hits;
    double slow, parked, early, cutoff, prediction_error;
    char state[16], order[16], dataset[300], pipeline[400];
    view_stage stages[VIEW_STAGES];
    int stage_count;
    view_verdict verdict;
} view_job;

typedef struct view_form {
    double entries, bytes, hits, evictions;
} view_form;

typedef struct view_source {
    char kind[16];
    double requests, bytes, retries, errors, rate;
} view_source;

typedef struct view_bad {
    char key[200], stage[40], message[300];
    double job;
} view_bad;

typedef struct top_view {
    char version[24], instance[24];
    double seconds, workers, active, cpus, cpu_share, memory, used, peak;
    double cache_limit, cache_bytes, evictions;
    view_form forms[VIEW_FORMS];
    view_verdict verdict;
    view_job *jobs;
    int job_count;
    view_source sources[VIEW_SOURCES];
    int source_count;
    bool disk, disk_off, remote, remote_open, model;
    double disk_entries, disk_bytes, disk_limit, disk_damaged, disk_errors;
    double remote_hits, remote_misses, remote_errors, remote_rate;
    double predicted, measured;
    char binding[16];
    view_bad bad[VIEW_BAD];
    int bad_count;
} top_view;

/* False: it is no view of an engine, and *out is as it was. Frees what was in *out otherwise. */
bool view_read(const json_t *answer, top_view *out);
void view_fini(top_view *view);

#endif
