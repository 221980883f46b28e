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
#include "engine/engine.h"

/* A bad sample that was skipped. */
typedef struct bad_sample {
    pst_error error;
    const psti_dataset *data;
} bad_sample;

struct pst_engine {
    pid_t pid; /* of the process that made it */
    pst_settings settings;
    psti_pool *pool; /* with a link: one without workers, for records; see remote.c */
    void *link;      /* the daemon behind this engine; NULL = none */
    char *address;
    char *disk, *remote;        /* tiers, as they were given; NULL = none */
    psti_pool_spec local_spec;  /* with a link: of the pool that is made when it is needed */
    pthread_mutex_t local_lock; /* guards local and told; taken before the pool's locks */
    psti_pool *local;
    bool told;
    pthread_mutex_t
        lock; /* guards jobs and bad*; innermost but the budget's (taken under the pool's lock) */
    pst_job *jobs;
    uint64_t started_ns;
    void *watch;                    /* who shows it; NULL = nobody */
    psti_trace *trace;              /* NULL = none */
    atomic_uint_fast64_t job_count; /* ever opened: the last one's number */
    bad_sample *bad;
    size_t bad_count, bad_cap;
    int64_t bad_unlisted;
    /* Held while all jobs are looked at, which need other locks meanwhile: none leaves until then.
     * Taken before every other lock. */
    pthread_mutex_t leave_lock;
};

struct pst_dataset {
    psti_dataset *data;
};

struct pst_job {
    pst_engine *engine;
    uint64_t id; /* for those who look on */
    pst_job *next;
    /* NULL once the engine was freed. Served: a record, until the job goes on in this process;
     * partner: remote_take_over, which stores it while others may look at statistics. */
    _Atomic(psti_feed *) feed;
    psti_feed *record;        /* served: the feed that keeps the record; lives until the end */
    _Atomic(void *) link;     /* served: the connection; lives until the end */
    pst_job_options *options; /* served: a copy, for going on in this process */
    atomic_bool served;       /* batches come from the daemon */
    /* What was in use before the daemon came back, until that happens again: others may be looking
     * at statistics. And when it was last tried, how long that waits, when it was missed first. */
    psti_feed *old_feed, *old_record;
    void *old_link;
    uint64_t tried_ns, pause_ns, missed_ns;
    uint64_t
        wanted_ns;  /* the consumer's own: since when it waits for the daemon; 0 = it does not */
    int stall_told; /* the same: how often it was told so since then */
    atomic_bool aborted; /* partner: remote_take_over */
    psti_dataset *data;
    psti_pipeline *pipeline;
    psti_id128 order_source;
    bool bucketed; /* its order has buckets */
    int64_t skip_limit;
    pst_error error; /* of the job itself: closed, forked */
    /* Served: since when the consumer waits; 0 = it does not. In a daemon: what the client waited
     * in all and for its first batch, and whether that is known. Counters. */
    atomic_uint_fast64_t asked_ns, client_wait_ns, client_first_ns;
    atomic_bool has_client;
    psti_feed_facts birth;      /* when it was opened; for the verdict */
    pthread_mutex_t looks_lock; /* guards looks */
    struct job_looks *looks;    /* earlier ones; NULL = none yet */
};

/* pulled.c: as psti_dataset_open, also what was pulled */
int pulled_open(const char *path, const pst_dataset_options *given, psti_dataset **out,
                pst_error *err);
/* job.c */
void job_detach(pst_job *job);
int job_open_feed(pst_job *job, psti_pool *pool, const pst_job_options *o,
                  const psti_feed_hooks *hooks, psti_feed **out, pst_error *err);
/* remote.c: engines and jobs that a daemon serves */
int remote_engine(pst_engine *engine, const pst_engine_options *opts, const psti_pool_spec *spec,
                  pst_error *err);
/* The listing of a pulled dataset's folder by the daemon that $PENSTOCK_ENGINE names. 1: *out; 0:
 * there is none that would. */
int remote_dataset(const char *path, int set, psti_dataset **out, pst_error *err);
void remote_engine_free(pst_engine *engine);
int remote_open(pst_job *job, const pst_job_options *opts, pst_error *err);
/* Whoever went on in this process looks now and then whether the daemon is back. */
void remote_look(pst_job *job);
int remote_next(pst_job *job, int64_t timeout_ns, pst_batch **out);
int remote_set_epoch(pst_job *job, uint64_t epoch);
int remote_state_loaded(pst_job *job, uint64_t epoch, const void *state, size_t bytes,
                        pst_error *err);
void remote_abort(pst_job *job);
void remote_stats(const pst_job *job, pst_job_stats *out);
int remote_memory(const pst_job *job, int index, void **base, size_t *bytes);
void remote_detach(pst_job *job);
/* What the daemon knows of it, with this process's own times; false: nothing came yet. */
bool remote_facts(const pst_job *job, psti_feed_facts *out);
/* verdict.c */
void verdict_open(pst_job *job);
void verdict_close(pst_job *job);
/* watch.c: NULL is fine for opts */
int watch_open(pst_engine *engine, const pst_engine_options *opts, pst_error *err);
void watch_close(pst_engine *engine);
/* tracing.c: the same, into engine->trace */
int trace_open(pst_engine *engine, const pst_engine_options *opts, pst_error *err);
/* options.c */
pst_job_options *options_copy(const pst_job_options *o);
void options_free(pst_job_options *o);
/* engine.c */
int engine_note_bad(pst_engine *engine, const psti_dataset *data, int64_t limit, pst_error *err);

#endif
