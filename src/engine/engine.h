/* SPDX-License-Identifier: Apache-2.0
 * What the room serve needs of the engine, in both directions: opening jobs whose batches go to
 * another process, and being the other process. The second goes through a table that serve fills
 * in, since this room may not know it. */
#ifndef PSTI_ENGINE_ENGINE_H
#define PSTI_ENGINE_ENGINE_H

#include "sched/sched.h"

/* ---- for the daemon -------------------------------------------------------------------------- */

/* pst_job_open with hooks for the feed; they are copied. */
int psti_job_open_hooked(pst_engine *engine, pst_dataset *data, const pst_job_options *opts,
                         const psti_feed_hooks *hooks, pst_job **out, pst_error *err);
/* As psti_dataset_open_at: if a pull made the folder, it is held and checked as pst_dataset_open
 * does it. */
int psti_pulled_open_at(const psti_place *at, const pst_dataset_options *given, psti_dataset **out,
                        pst_error *err);
/* A revision of a depot as it can be read at this moment: its files, or its bucket with what is
 * there of it already. */
struct psti_depot_choice;
int psti_pulled_open_revision(const struct psti_depot_choice *choice,
                              const pst_dataset_options *given, psti_dataset **out, pst_error *err);
/* A public handle; data is taken over, also on failure. */
int psti_dataset_wrap(psti_dataset *data, pst_dataset **out, pst_error *err);
psti_dataset *psti_dataset_unwrap(const pst_dataset *data);
/* What the job's client waited for a batch: its verdict goes by that instead of its own waits. And
 * what goes to the client for its own verdict. Any thread. */
void psti_job_client_waited(pst_job *job, uint64_t wait_ns);
void psti_job_facts(pst_job *job, psti_feed_facts *out);
psti_budget *psti_engine_budget(pst_engine *engine);
psti_cache *psti_engine_cache(pst_engine *engine); /* NULL = none */
psti_disk *psti_engine_disk(pst_engine *engine);   /* NULL = none */
psti_pool *psti_engine_pool(pst_engine *engine);
/* A job with hooks: its consumer waited so long for a batch, see psti_feed_waited. */
void psti_job_waited(pst_job *job, int64_t batch, uint64_t wait_ns);

/* ---- for those who look on (view.c) ---------------------------------------------------------- */

/* Everything but what is now; 0 or -ENOMEM. Then, with the now filled in, what the model says. */
int psti_engine_look(pst_engine *engine, psti_view *out);
void psti_engine_model(pst_engine *engine, psti_view *out);
/* The verdicts of the engine and of those of its jobs that the view has. */
void psti_engine_judge(pst_engine *engine, psti_view *view);

/* Showing an engine of this process. The room serve fills the table in, if it can. */
typedef struct psti_watch_ops {
    /* where: as in pst_engine_options.watch. It is looked at until close, which joins threads. */
    int (*open)(pst_engine *engine, const char *where, void **out, pst_error *err);
    void (*close)(void *watch);
} psti_watch_ops;
void psti_watch_register(const psti_watch_ops *ops);

/* ---- for the client -------------------------------------------------------------------------- */

/* The daemon is gone, or was never there. Never seen by users. */
#define PSTI_LINK_GONE (-2001)
/* The daemon will not serve this job, for a reason that need not stop it; err says why. */
#define PSTI_LINK_ELSEWHERE (-2002)

typedef enum psti_link_kind { PSTI_LINK_BATCH = 1, PSTI_LINK_END, PSTI_LINK_SKIP } psti_link_kind;

typedef struct psti_link_event {
    psti_link_kind kind;
    pst_batch *batch;        /* BATCH: the caller's */
    psti_receipt receipt;    /* BATCH: valid until the batch is released */
    uint64_t epoch;          /* END, SKIP */
    int64_t position, share; /* SKIP */
    pst_error error;         /* SKIP: why; and of an answer that is negative */
} psti_link_event;

/* One connection a job. Called by the job's one consumer, except abort (any thread, also a signal
 * handler) and stats. */
typedef struct psti_link_ops {
    /* address as in pst_engine_options. 1: *out is a daemon; 0: there is none, and none is needed
     * (auto), or none that can be talked to. settings: the daemon's. */
    int (*engine_open)(const char *address, void **out, pst_settings *settings, pst_error *err);
    void (*engine_close)(void *engine);
    /* What is in the open folder of a pulled dataset, as the daemon at that address sees it;
     * revision: the one that is meant, or "". PSTI_LINK_GONE, PSTI_LINK_ELSEWHERE, or why not. */
    int (*dataset_open)(const char *address, int set, const char *path, const char *revision,
                        psti_dataset **out, pst_error *err);
    int (*job_open)(void *engine, psti_dataset *data, const pst_job_options *opts, void **out,
                    pst_error *err);
    void (*job_close)(void *job);
    /* 0 and an event, -ETIMEDOUT, -ECANCELED, PSTI_LINK_GONE, or the job's error. */
    int (*next)(void *job, int64_t timeout_ns, psti_link_event *out);
    void (*handed)(void *job, uint64_t wait_ns); /* the caller has the batch: send another */
    void (*abort)(void *job);
    /* Drops what is under way and begins epoch anew, or where the state (NULL = none) stands. */
    int (*restart)(void *job, uint64_t epoch, const void *state, size_t bytes);
    /* What only the daemon can count; the rest is left as it is. */
    void (*stats)(void *job, pst_job_stats *out);
    bool (*facts)(void *job, psti_feed_facts *out); /* false: none came yet */
    int (*memory)(void *job, int index, void **base, size_t *bytes);
} psti_link_ops;
void psti_link_register(const psti_link_ops *ops);

#endif
