/* SPDX-License-Identifier: Apache-2.0
 * The public objects. An engine counts its owner and its jobs; the last one frees it. */
#ifndef PSTI_ENGINE_ENGINE_PRIV_H
#define PSTI_ENGINE_ENGINE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "sched/sched.h"

/* A bad sample that was skipped. */
typedef struct bad_sample {
    pst_error error;
    const psti_dataset *data;
} bad_sample;

struct pst_engine {
    pid_t pid; /* of the process that made it */
    pst_settings settings;
    psti_pool *pool;
    pthread_mutex_t
        lock; /* guards jobs and bad*; innermost but the budget's (taken under the pool's lock) */
    pst_job *jobs;
    bad_sample *bad;
    size_t bad_count, bad_cap;
    int64_t bad_unlisted;
};

struct pst_dataset {
    psti_dataset *data;
};

struct pst_job {
    pst_engine *engine;
    pst_job *next;
    psti_feed *feed; /* NULL once the engine was freed */
    psti_dataset *data;
    psti_pipeline *pipeline;
    psti_id128 order_source;
    int64_t skip_limit;
    pst_error error; /* of the job itself: closed, forked */
};

/* job.c */
void job_detach(pst_job *job);
/* engine.c */
int engine_note_bad(pst_engine *engine, const psti_dataset *data, int64_t limit, pst_error *err);

#endif
