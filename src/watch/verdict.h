/* SPDX-License-Identifier: Apache-2.0
 * The verdict: what is slow, and what would help, in one sentence. Pure arithmetic on figures of
 * one stretch of time, which the engine gathers: no memory, no locks, no clock; any thread. */
#ifndef PSTI_WATCH_VERDICT_H
#define PSTI_WATCH_VERDICT_H

#include <stdbool.h>

#include "penstock.h"

/* Why the consumer waited, by what the workers' time went into meanwhile. */
enum {
    PSTI_FOR_WORK,   /* this job's samples */
    PSTI_FOR_TURN,   /* other jobs' samples */
    PSTI_FOR_SOURCE, /* nothing: bytes are on their way */
    PSTI_FOR_REMOTE, /* nothing: the remote tier is asked */
    PSTI_FOR_ROOM,   /* nothing: the budget has no room for another sample */
    PSTI_FOR_REST,   /* nothing: as much as may be is begun */
    PSTI_FORS
};

typedef enum psti_work_part {
    PSTI_PART_READ,
    PSTI_PART_DECODE,
    PSTI_PART_AUGMENT,
    PSTI_PART_FINISH,
    PSTI_PARTS
} psti_work_part;

typedef enum psti_tier_state { PSTI_STATE_NONE, PSTI_STATE_UP, PSTI_STATE_DOWN } psti_tier_state;

/* Below it the consumer is as good as never waiting. */
static const double PSTI_NO_STALL = 0.02;
/* Costs that were measured at one rate are not believed at more than so many times of it. */
static const double PSTI_TIMES_TOLD = 10;

/* What the model foretells of a change; amount 0: it would not help. */
typedef struct psti_whatif {
    double amount, rate;
} psti_whatif;

typedef struct psti_verdict_input {
    /* The stretch of time, the wait for the first batch not in it; since the job was opened; since
     * the consumer took a batch or began to wait; of one step. */
    double seconds, open_s, quiet_s, step_s;
    double batches_ever; /* since the job was opened */
    bool finished;       /* all epochs were handed over */
    double samples, batches, skipped;
    double wait_s, for_s[PSTI_FORS];
    double demand; /* samples/s that the consumer would take (0 = all it gets) */

    double workers, cpus;
    double busy;                /* workers with a sample in hand, on average */
    double cpu;                 /* cores that these kept busy */
    double queued;              /* workers that could have run and had no core */
    double part_s[PSTI_PARTS];  /* seconds of a worker for a delivered sample */
    double form_s;              /* of these, what a decoded form at hand would save */
    char stage[PST_NAME_BYTES]; /* that took most, and its part of the workers' time */
    double stage_share;
    bool stage_is_call; /* a function of the caller's */
    bool ready_order;

    /* Samples that wait for bytes on average; how long one does, once its turn came. */
    double source_bytes_s, reads, read_s;
    bool reads_at_most; /* as many as may be, and each addition had helped */

    double cache_bytes, found; /* that the cache may have; share of samples that came from it */
    bool filling;              /* it is not full, and will do once it is */
    double budget_bytes;
    double depth, depth_wanted; /* batches ready at most; that were asked for */
    int disk, remote;           /* psti_tier_state */
    double disk_errors, remote_errors;
    double jobs;

    psti_whatif more_cores, more_cache, faster_source, more_workers, more_memory;
} psti_verdict_input;

/* Everything but size. */
void psti_verdict_make(const psti_verdict_input *in, pst_verdict *out);

#endif
