/* SPDX-License-Identifier: Apache-2.0
 * A crew of threads that lists: pieces of work may push further pieces. Used while a dataset is
 * opened, then gone. */
#ifndef PSTI_SOURCE_CREW_H
#define PSTI_SOURCE_CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "penstock.h"

typedef struct psti_crew psti_crew;

/* Embedded in the caller's own struct, which outlives the crew. run is called once from a crew
 * thread; a negative answer, with err filled, stops the whole crew. */
typedef struct psti_work {
    struct psti_work *next;
    int (*run)(struct psti_work *work, psti_crew *crew, pst_error *err);
} psti_work;

enum { PSTI_CREW_MAX = 256 };

struct psti_crew {
    pthread_mutex_t lock; /* guards everything down to err */
    pthread_cond_t more;  /* work was pushed, or the end has come */
    pthread_cond_t done;  /* pending reached 0 */
    psti_work *queue;
    size_t queued, pending; /* pending: queued and running */
    int threads, idle;
    bool closed;
    int rc;
    pst_error err;
    pthread_t thread[PSTI_CREW_MAX];

    int limit;                  /* of threads; fixed after init */
    atomic_uint_fast64_t found; /* counter, for progress */
};

/* threads: 0 = as many as help. */
void psti_crew_init(psti_crew *crew, int threads);
void psti_crew_fini(psti_crew *crew);
/* From the owner before psti_crew_run, or from inside run. A thread is started when none is idle.
 */
void psti_crew_push(psti_crew *crew, psti_work *work);
/* Waits until all work is done, telling progress now and then from this thread. 0, the first
 * failure, or -ECANCELED. */
int psti_crew_run(psti_crew *crew, const pst_dataset_options *opts, pst_error *err);

/* A thread with every signal blocked. 0 or -errno. */
int psti_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

#endif
