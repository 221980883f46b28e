/* SPDX-License-Identifier: Apache-2.0
 * Everything that is shown of an engine, as plain numbers and text: nothing here points into the
 * engine. The room sched fills in jobs, cache and sources under its lock (psti_pool_look), the room
 * engine the rest (psti_engine_look), watch/history.h what is "now". A view belongs to whoever made
 * it; nobody else sees it. */
#ifndef PSTI_WATCH_VIEW_H
#define PSTI_WATCH_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

enum {
    PSTI_VIEW_BOUNDS = 15,
    PSTI_VIEW_FORMS = 3,
    PSTI_VIEW_STAGES = 26, /* read and wait, and those of the pipeline */
    PSTI_VIEW_BAD = 50,
    PSTI_VIEW_NAME = 65,      /* the last part of a dataset's path, shortened */
    PSTI_VIEW_DATASETS = 256, /* of which totals are kept by name; the rest is one more */
    PSTI_VIEW_TRIANGLE = 66
};

/* ---- how long something took ----------------------------------------------------------------- */

/* Upper bounds in seconds, the same for every histogram; and in nanoseconds. */
extern const double psti_view_bounds[PSTI_VIEW_BOUNDS];
extern const uint64_t psti_view_bounds_ns[PSTI_VIEW_BOUNDS];

/* Counts by bound, the last one of what took longer than all. Whoever owns it serialises access. */
typedef struct psti_bars {
    uint64_t count[PSTI_VIEW_BOUNDS + 1];
} psti_bars;

static inline void psti_bars_add(psti_bars *bars, uint64_t ns, uint64_t times)
{
    int i = ns > psti_view_bounds_ns[7] ? 8 : 0;
    while (i < PSTI_VIEW_BOUNDS && ns > psti_view_bounds_ns[i])
        i++;
    bars->count[i] += times;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef struct psti_view_stage {
    char name[32];
    uint64_t runs, total_ns, away_ns;
    psti_bars took; /* one entry a run */
} psti_view_stage;

typedef struct psti_view_lanes {
    uint64_t slow, parked, early, stragglers, cutoff_ns;
    double prediction_error;
    psti_bars costs; /* of all samples prepared */
} psti_view_lanes;

/* What a job counts: sums of these over jobs, running and ended, are what the engine did. */
typedef struct psti_view_sums {
    uint64_t samples, batches, pads, skipped, warnings, bytes_read, bytes_delivered, waits, wait_ns;
    uint64_t preparations, shared, adopted, substitutions;
    uint64_t hits[PSTI_VIEW_FORMS], disk_hits, remote_hits, misses, remote_misses;
} psti_view_sums;

typedef struct psti_view_job {
    uint64_t id;
    uint32_t pid, uid;
    char state[12];
    char dataset[256], name[PSTI_VIEW_NAME], pipeline[1024], group[32];
    int batch, rank, world;
    bool ready_order, opportunistic;
    uint64_t epoch, epoch_samples, epoch_done;
    double seconds;
    psti_view_sums sums;
    uint64_t wait_p50_ns, wait_p99_ns;
    uint64_t waiting_ns; /* of a wait that is not over, and not in sums; 0 = none */
    uint64_t ready, ready_depth;
    double rate_now, stall_now;
    int stage_count;
    psti_view_stage stage[PSTI_VIEW_STAGES];
    psti_view_lanes lanes;
    pst_verdict verdict;
} psti_view_job;

/* Jobs that ended, by the last part of their dataset's path; "" is all that had no room. Those that
 * run have their place already. */
typedef struct psti_view_ended {
    char name[PSTI_VIEW_NAME];
    uint64_t jobs;
    psti_view_sums sums;
} psti_view_ended;

/* ---- the engine ------------------------------------------------------------------------------ */

typedef enum psti_view_source {
    PSTI_VIEW_FILES,
    PSTI_VIEW_TAR,
    PSTI_VIEW_S3,
    PSTI_VIEW_HTTP,
    PSTI_VIEW_SOURCES
} psti_view_source;

typedef struct psti_view_traffic {
    uint64_t requests, bytes, retries, errors;
    double bytes_per_second_now;
} psti_view_traffic;

typedef struct psti_view_cache {
    uint64_t limit, bytes, evictions;
    struct {
        uint64_t entries, bytes, hits, inserts, evictions;
    } form[PSTI_VIEW_FORMS];
} psti_view_cache;

typedef struct psti_view_model {
    bool known;
    double predicted, measured_now;
    char binding[12];
    double split[PSTI_VIEW_FORMS];
    double triangle[PSTI_VIEW_TRIANGLE][PSTI_VIEW_FORMS + 1]; /* shares, then samples a second */
} psti_view_model;

typedef struct psti_view_disk {
    bool there, off;
    uint64_t entries, bytes, limit, written, evicted, damaged, dropped, errors;
} psti_view_disk;

typedef struct psti_view_remote {
    bool there, open; /* open: it is not asked now */
    uint64_t hits, misses, errors;
    double bytes_per_second;
} psti_view_remote;

typedef struct psti_view_bad {
    double time;
    uint64_t job;
    char key[256], stage[32], message[512];
} psti_view_bad;

typedef struct psti_view {
    double time; /* of the wall clock, seconds */
    uint64_t taken_ns;
    char instance[17], version[16];
    double seconds, cpu_seconds, cpu_share_now;
    int workers, active_workers, cpus;
    uint64_t memory_bytes, used_bytes, peak_bytes;
    pst_verdict verdict;
    int job_count, job_room;
    psti_view_job *jobs; /* newest first */
    int ended_count;
    psti_view_ended *ended; /* PSTI_VIEW_DATASETS + 1 of them */
    psti_view_cache cache;
    psti_view_model model;
    psti_view_traffic source[PSTI_VIEW_SOURCES];
    psti_view_disk disk;
    psti_view_remote remote;
    int bad_count;
    psti_view_bad *bad; /* PSTI_VIEW_BAD of them, newest first */
} psti_view;

/* NULL when there is no memory. */
psti_view *psti_view_new(void);
void psti_view_free(psti_view *view); /* NULL is fine */
/* Room for so many jobs; what was there is forgotten. 0 or -ENOMEM. */
int psti_view_room(psti_view *view, int jobs);
void psti_view_add(psti_view_sums *to, const psti_view_sums *from);
/* Where the totals of a name are; list has room for one more up to PSTI_VIEW_DATASETS + 1 places,
 * *count are in use. */
int psti_view_place(psti_view_ended *list, int *count, const char *name);
void psti_view_end(psti_view_ended *to, const psti_view_sums *sums); /* one job more */
/* The last part of a path or URL, at most 64 bytes of it and whole characters. */
void psti_view_name(const char *path, char name[PSTI_VIEW_NAME]);
extern const char *const psti_view_form_names[PSTI_VIEW_FORMS];
extern const char *const psti_view_source_names[PSTI_VIEW_SOURCES];

#endif
