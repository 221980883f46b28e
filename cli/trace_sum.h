/* SPDX-License-Identifier: Apache-2.0
 * What a trace comes to: sums, distributions, and the longest waits with what they were for. */
#ifndef CLI_TRACE_SUM_H
#define CLI_TRACE_SUM_H

#include "trace_read.h"

enum {
    SUM_STAGES = 64,
    SUM_WORKERS = 1024,
    SUM_LONGEST = 10,
    SUM_FORMS = 7,
    SUM_JOBS = 64,
    HIST_BINS = 64 * 32
};

/* Counts by size, 32 to each doubling: quantiles are right to 3 %. */
typedef struct sum_hist {
    uint64_t count, bin[HIST_BINS];
} sum_hist;
void sum_hist_add(sum_hist *h, int64_t ns);
double sum_hist_s(const sum_hist *h, double part); /* seconds; 0 of nothing */

typedef struct sum_stage {
    char name[TRACE_WORD];
    int64_t ns;
    sum_hist took; /* of one visit of a worker to a sample */
} sum_stage;

typedef struct sum_worker {
    int64_t track, busy_ns, samples;
    char name[TRACE_WORD];
    int64_t stage_ns[SUM_STAGES]; /* of the visit that is being read */
} sum_worker;

/* Why a batch was waited for, by the sample that came last. */
typedef enum sum_why { WHY_UNKNOWN, WHY_STAGE, WHY_READ, WHY_ASIDE, WHY_QUEUED } sum_why;

typedef struct sum_wait {
    int64_t at_ns, span_ns, job, epoch, step;
    int64_t last; /* sample; -1 = not known */
    /* Of that sample, as far as it lies inside the wait: */
    int64_t stage_ns[SUM_STAGES], read_ns, aside_ns;
    int64_t first_ns; /* when anything was first done for it, in or before the wait; -1 = never */
    int64_t aside_since;
    char aside_number[TRACE_WORD];
} sum_wait;

typedef struct sums {
    int64_t from_ns, to_ns, events, dropped;
    bool complete;     /* the writer ended it */
    uint64_t cut_line; /* where the file ends too early; 0 = nowhere */
    struct {
        int64_t id, from_ns, to_ns; /* its first event, its last */
    } job[SUM_JOBS];                /* the last one: all that are beyond */
    int jobs;
    int64_t samples, bad, visits, batches, dropped_batches;
    int64_t slow, foreseen, parked, held, put_off; /* put_off: foreseen, not begun */
    int64_t from[SUM_FORMS];
    sum_stage *stage; /* SUM_STAGES */
    int stages;
    sum_worker *worker; /* SUM_WORKERS */
    int workers;
    int64_t wait_ns, read_ns;
    sum_hist *waits, *reads;
    char read_number[TRACE_WORD]; /* the read that was begun last */
    int64_t read_since;
    sum_wait longest[SUM_LONGEST]; /* longest first */
    int longest_count;
} sums;

extern const char *const sum_forms[SUM_FORMS];

/* Reads all of it, thrice. Prints its own message; returns an exit code. */
int sums_read(trace_reader *r, sums *s);
/* What the last sample of a wait spent most of it on; *ns: how long, *stage: which, -1 = none. */
sum_why sums_why(const sum_wait *w, int64_t *ns, int *stage);
void sums_fini(sums *s);

#endif
