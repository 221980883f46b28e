/* SPDX-License-Identifier: Apache-2.0
 * Engines and jobs that a daemon serves. The connection is the room serve's, behind a table of
 * functions; here is what makes a served job the same as one of this process: a record of what was
 * handed over, from which states are made and from which the job goes on in this process when the
 * daemon dies or will not serve it. Called by a job's consumer, statistics and abort by anyone. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "engine/engine_priv.h"

static const psti_link_ops *ops; /* set before main, by a constructor of the room serve */

void psti_link_register(const psti_link_ops *table)
{
    ops = table;
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

static const uint64_t AGAIN_NS = 1000000000ull, PATIENCE_NS = 300 * 1000000000ull;

/* Nobody tells that a socket is there again. */
static void pause_a_little(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    const struct timespec until = psti_timespec_ns(psti_now_ns() + AGAIN_NS / 20);
    pthread_mutex_lock(&lock);
    pthread_cond_clockwait(&never, &lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&lock);
}

/* A daemon that was started a moment ago may not know yet where a dataset comes from. */
static bool waits_more(uint64_t begun)
{
    const bool more = psti_now_ns() - begun < PATIENCE_NS / 5;
    if (more)
        pause_a_little();
    return more;
}

/* ---- engines --------------------------------------------------------------------------------- */

static int join(pst_engine *engine, const char *address, const psti_pool_spec *spec, pst_error *err)
{
    if (!ops)
        return psti_fail(err, -ENOTSUP, "engine", address,
                         "this library was built without the client of a served engine");
    pst_settings settings = engine->settings;
    const int rc = ops->engine_open(address, &engine->link, &settings, err);
    if (rc <= 0)
        return rc;
    engine->address = psti_strdup(PSTI_MEM_ENGINE, address);
    engine->settings = settings;
    engine->settings.served = 1;
    engine->local_spec = *spec;
    /* Records take no memory that a budget should know. */
    const psti_pool_spec records = {.memory_bytes = UINT64_MAX / 4};
    const int made = psti_pool_new(&records, &engine->pool, err);
    return made < 0 ? made : 1;
}

/* 0: the engine is to be one of this process; 1: it is served. */
int remote_engine(pst_engine *engine, const pst_engine_options *opts, const psti_pool_spec *spec,
                  pst_error *err)
{
    const char *address = opts ? opts->address : NULL;
    const char *usual = getenv("PENSTOCK_ENGINE");
    if (address && *address)
        return strcmp(address, "embedded") == 0 ? 0 : join(engine, address, spec, err);
    if (!usual || !*usual || strcmp(usual, "embedded") == 0)
        return 0;
    pst_error why;
    psti_error_clear(&why);
    const int rc = join(engine, usual, spec, &why);
    if (rc >= 0)
        return rc;
    /* Who did not ask for it himself need not have it. */
    psti_log(PSTI_LOG_WARN, "PENSTOCK_ENGINE: %s; jobs are prepared in this process", why.message);
    return 0;
}

int remote_dataset(const char *path, int set, psti_dataset **out, pst_error *err)
{
    const char *address = getenv("PENSTOCK_ENGINE"), *revision = getenv("PENSTOCK_REVISION");
    pst_error why;
    psti_error_clear(&why);
    if (!ops || strcmp(address, "embedded") == 0)
        return 0;
    const uint64_t begun = psti_now_ns();
    int rc;
    do
        rc = ops->dataset_open(address, set, path, revision ? revision : "", out, &why);
    while (rc == -EAGAIN && waits_more(begun));
    if (rc == 0)
        return 1;
    if (rc == PSTI_LINK_GONE)
        return 0;
    if (rc == PSTI_LINK_ELSEWHERE) {
        psti_log(PSTI_LOG_WARN, "%s is listed in this process instead of %s: %s", path, address,
                 why.message);
        return 0;
    }
    if (err)
        *err = why;
    return rc;
}

void remote_engine_free(pst_engine *engine)
{
    if (engine->link)
        ops->engine_close(engine->link);
    psti_pool_free(engine->local);
    psti_free(engine->address);
}

/* The pool of this process, made when the first job needs it. */
static int local_pool(pst_engine *engine, psti_pool **out, pst_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&engine->local_lock);
    if (!engine->local)
        rc = psti_pool_new(&engine->local_spec, &engine->local, err);
    *out = engine->local;
    pthread_mutex_unlock(&engine->local_lock);
    return rc;
}

/* ---- going on in this process ---------------------------------------------------------------- */

static int remote_take_over(pst_job *job, pst_error *err)
{
    psti_pool *pool;
    psti_feed *feed = NULL;
    int rc = local_pool(job->engine, &pool, err);
    if (rc == 0)
        rc = job_open_feed(job, pool, job->options, NULL, &feed, err);
    if (rc == 0)
        rc = psti_feed_adopt(feed, job->record, err);
    if (rc < 0) {
        psti_feed_close(feed);
        return rc;
    }
    atomic_store(&job->feed, feed);
    atomic_store(&job->served, false);
    if (atomic_load(&job->aborted))
        psti_feed_abort(feed);
    return 0;
}

static void tell_gone(pst_engine *engine)
{
    pthread_mutex_lock(&engine->local_lock);
    const bool told = engine->told;
    engine->told = true;
    pthread_mutex_unlock(&engine->local_lock);
    if (!told)
        psti_log(PSTI_LOG_WARN,
                 "the served engine at %s is gone; its jobs go on in this process, where they were",
                 engine->address ? engine->address : "its address");
}

static int not_here(pst_error *err)
{
    return psti_fail(err, -ENOENT, "job", NULL,
                     "the dataset is not complete here, and the engine that reads what is missing "
                     "from its bucket is gone or will not; a later start goes on from a state");
}

/* ---- back to the daemon ------------------------------------------------------------------------
 */

/* Where the job stands; *bytes is psti_malloc'ed. */
static int save_state(const pst_job *job, void **bytes, size_t *size)
{
    size_t cap = 0;
    int rc = pst_job_state(job, NULL, 0, &cap);
    *bytes = rc == -ENOSPC ? psti_malloc(PSTI_MEM_ENGINE, cap) : NULL;
    return *bytes ? pst_job_state(job, *bytes, cap, size) : -ENOMEM;
}

/* A record that stands where the job does. */
static int new_record(pst_job *job, const void *bytes, size_t size, psti_feed **out,
                      uint64_t *epoch)
{
    psti_state state = {0};
    int rc = psti_state_decode(bytes, size, &state, NULL);
    if (rc == 0)
        rc = job_open_feed(job, job->engine->pool, job->options, NULL, out, NULL);
    if (rc == 0)
        rc = psti_feed_resume(*out, &state, NULL);
    *epoch = state.epoch;
    psti_state_fini(&state);
    return rc;
}

static void drop_old(pst_job *job)
{
    if (job->old_link)
        ops->job_close(job->old_link);
    psti_feed_close(job->old_feed);
    psti_feed_close(job->old_record);
    job->old_link = NULL;
    job->old_feed = job->old_record = NULL;
}

/* From now on batches come from that link. */
static void swap(pst_job *job, void *link, psti_feed *record)
{
    psti_feed *feed = atomic_exchange(&job->feed, record);
    drop_old(job);
    job->old_link = job->link;
    job->old_record = job->record;
    job->old_feed = feed == job->record ? NULL : feed;
    if (job->old_feed)
        psti_feed_abort(job->old_feed); /* what it has ready is the daemon's to prepare again */
    job->record = record;
    job->link = link;
    job->missed_ns = 0;
    atomic_store(&job->served, true);
    if (atomic_load(&job->aborted)) /* meanwhile: it was the old one that was told */
        ops->abort(link);
}

/* Opens the job there again where it stands. True: it is the daemon's. In ready order the state of
 * one rank of several means something only together with the others'. */
static bool try_rejoin(pst_job *job)
{
    void *link = NULL, *state = NULL;
    size_t size = 0;
    uint64_t epoch = 0;
    psti_feed *record = NULL;
    pst_error why;
    const pst_job_options *o = job->options;
    if (!o || (o->order == PST_ORDER_READY && o->world > 1) || atomic_load(&job->aborted) ||
        psti_feed_finished(job->feed) ||
        ops->job_open(job->engine->link, job->data, o, &link, &why) != 0)
        return false;
    int rc = save_state(job, &state, &size);
    if (rc == 0)
        rc = new_record(job, state, size, &record, &epoch);
    if (rc == 0)
        rc = ops->restart(link, epoch, state, size);
    psti_free(state);
    if (rc != 0) {
        ops->job_close(link);
        psti_feed_close(record);
        return false;
    }
    swap(job, link, record);
    psti_log(PSTI_LOG_INFO, "the served engine at %s is back", job->engine->address);
    return true;
}

/* A daemon that takes long to say no, or says nothing, holds the job up a fifth of the time. */
static bool rejoin(pst_job *job)
{
    const uint64_t begun = psti_now_ns();
    const bool back = try_rejoin(job);
    job->tried_ns = psti_now_ns();
    const uint64_t spent = job->tried_ns - begun;
    job->pause_ns = 4 * spent < AGAIN_NS ? AGAIN_NS : 4 * spent;
    return back;
}

void remote_look(pst_job *job)
{
    if (psti_now_ns() - job->tried_ns >= job->pause_ns)
        rejoin(job);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

int remote_open(pst_job *job, const pst_job_options *opts, pst_error *err)
{
    pst_error why;
    void *link = NULL;
    const uint64_t begun = psti_now_ns();
    int rc = PSTI_LINK_ELSEWHERE;
    job->record = job->feed;
    if (opts->call_count > 0)
        psti_fail(&why, rc, "job", NULL, "its pipeline calls functions of this process");
    else if (opts->buckets)
        psti_fail(&why, rc, "job", NULL, "its buckets are an array (bucket_by goes over)");
    else
        do
            rc = ops->job_open(job->engine->link, job->data, opts, &link, &why);
        while (rc == -EAGAIN && waits_more(begun));
    job->link = link;
    if (rc == 0) {
        job->options = options_copy(opts);
        if (job->options) /* if the daemon goes there is nobody left to share with */
            job->options->sampling = PST_SAMPLING_PLAIN;
        atomic_store(&job->served, true);
        return job->options ? 0 : psti_fail(err, -ENOMEM, "job", NULL, "out of memory");
    }
    if (rc == PSTI_LINK_GONE)
        tell_gone(job->engine);
    else if (rc == PSTI_LINK_ELSEWHERE)
        psti_log(PSTI_LOG_WARN, "a job is prepared in this process instead of %s: %s",
                 job->engine->address ? job->engine->address : "the served engine", why.message);
    else if (err)
        *err = why;
    if (rc != PSTI_LINK_GONE && rc != PSTI_LINK_ELSEWHERE)
        return rc;
    if (!psti_dataset_is_here(job->data))
        return not_here(err);
    psti_pool *pool;
    psti_feed *feed = NULL;
    rc = local_pool(job->engine, &pool, err);
    if (rc == 0)
        rc = job_open_feed(job, pool, opts, NULL, &feed, err);
    if (rc == 0)
        atomic_store(&job->feed, feed);
    return rc;
}

void remote_detach(pst_job *job)
{
    psti_feed *feed = atomic_exchange(&job->feed, NULL);
    if (job->link)
        ops->job_close(job->link);
    drop_old(job);
    if (job->record && job->record != feed)
        psti_feed_close(job->record);
    psti_feed_close(feed);
    job->record = NULL;
    job->link = NULL;
}

void remote_abort(pst_job *job)
{
    atomic_store(&job->aborted, true);
    ops->abort(job->link);
}

/* Nanoseconds until the consumer is told what it waits for; 0 = now, -1 = not at all. */
static int64_t notice_in(pst_job *job)
{
    const uint64_t now = psti_now_ns();
    if (!job->wanted_ns)
        job->wanted_ns = now;
    const uint64_t after = psti_feed_notice_ns(job->record, job->stall_told);
    const uint64_t due = job->wanted_ns + after;
    return !after ? -1 : due > now ? (int64_t)(due - now) : 0;
}

/* Nothing came from the daemon: told as a job of this process tells what it waits for. */
static void tell_stalled(pst_job *job, const char *what)
{
    const char *address = job->engine->address ? job->engine->address : "its address";
    if (notice_in(job) != 0)
        return;
    job->stall_told++;
    psti_log(PSTI_LOG_WARN,
             "no batch came for %.0f s: the job waits for the served engine at %s%s; 'penstock top "
             "--engine %s' shows what that does",
             1e-9 * (double)(psti_now_ns() - job->wanted_ns), address, what, address);
}

static void came(pst_job *job)
{
    job->wanted_ns = 0;
    job->stall_told = 0;
}

/* What cannot be read here waits for the daemon, which may be replaced at this moment. 0: it is
 * back; -ETIMEDOUT: the caller's time is over. */
static int await_back(pst_job *job, int64_t timeout_ns)
{
    const uint64_t called = psti_now_ns();
    if (!job->missed_ns)
        job->missed_ns = called;
    for (;;) {
        if (rejoin(job))
            return 0;
        const uint64_t now = psti_now_ns();
        if (atomic_load(&job->aborted))
            return -ECANCELED;
        if (timeout_ns >= 0 && now - called >= (uint64_t)timeout_ns)
            return -ETIMEDOUT;
        if (now - job->missed_ns >= PATIENCE_NS)
            return not_here(&job->error);
        tell_stalled(job, ", which is gone, to come back");
        pause_a_little();
    }
}

static int on_gone(pst_job *job, int64_t timeout_ns, pst_batch **out)
{
    tell_gone(job->engine);
    if (!psti_dataset_is_here(job->data)) {
        const int back = await_back(job, timeout_ns);
        return back == 0 ? remote_next(job, timeout_ns, out) : back;
    }
    job->tried_ns = psti_now_ns();
    job->pause_ns = AGAIN_NS;
    const int rc = remote_take_over(job, &job->error);
    return rc < 0 ? rc : psti_feed_next(job->feed, timeout_ns, out);
}

/* A daemon that says what cannot be is as good as none. */
static int on_event(pst_job *job, psti_link_event *event, uint64_t wait_ns, pst_batch **out)
{
    if (event->kind == PSTI_LINK_END) {
        psti_feed_note_end(job->record, event->epoch);
        return 0;
    }
    if (event->kind == PSTI_LINK_SKIP) {
        engine_note_bad(job->engine, job->data, INT64_MAX, &event->error);
        const int rc =
            psti_feed_note_skip(job->record, event->epoch, event->position, event->share);
        return rc < 0 ? PSTI_LINK_GONE : 2;
    }
    const int rc = psti_feed_note(job->record, &event->receipt, wait_ns);
    if (rc < 0) {
        psti_batch_release(event->batch);
        return PSTI_LINK_GONE;
    }
    ops->handed(job->link, wait_ns);
    *out = event->batch;
    return 1;
}

/* A wait that timed out goes on with the next call: it is counted from its beginning. */
static int next_of(pst_job *job, int64_t timeout_ns, pst_batch **out)
{
    const uint64_t called = psti_now_ns();
    const uint64_t asked = atomic_load_explicit(&job->asked_ns, memory_order_relaxed);
    if (job->error.code)
        return job->error.code;
    if (psti_feed_finished(job->record) && !atomic_load(&job->aborted))
        return 0;
    for (;;) {
        psti_link_event event;
        const uint64_t spent = psti_now_ns() - called;
        const int64_t left = timeout_ns < 0                 ? -1
                             : (uint64_t)timeout_ns > spent ? timeout_ns - (int64_t)spent
                                                            : 0;
        const int64_t notice = notice_in(job);
        const bool slice = notice >= 0 && (left < 0 || notice < left);
        int rc = ops->next(job->link, slice ? notice : left, &event);
        if (rc == -ETIMEDOUT)
            tell_stalled(job, "");
        else if (rc != 0 || event.kind != PSTI_LINK_SKIP)
            came(job);
        if (rc == -ETIMEDOUT && slice)
            continue;
        if (rc == 0)
            rc = on_event(job, &event, psti_now_ns() - asked, out);
        if (rc == PSTI_LINK_GONE)
            return on_gone(job, left, out);
        if (rc == 2)
            continue;
        if (rc < 0 && rc != -ETIMEDOUT && rc != -ECANCELED)
            job->error = event.error;
        return rc;
    }
}

int remote_next(pst_job *job, int64_t timeout_ns, pst_batch **out)
{
    if (!atomic_load_explicit(&job->asked_ns, memory_order_relaxed))
        atomic_store_explicit(&job->asked_ns, psti_now_ns(), memory_order_relaxed);
    const int rc = next_of(job, timeout_ns, out);
    if (rc != -ETIMEDOUT)
        atomic_store_explicit(&job->asked_ns, 0, memory_order_relaxed);
    return rc;
}

int remote_set_epoch(pst_job *job, uint64_t epoch)
{
    const bool there = !job->error.code && psti_feed_at_start(job->record, epoch);
    const int rc = psti_feed_set_epoch(job->record, epoch);
    if (rc < 0 || there)
        return rc;
    job->error.code = 0;
    ops->restart(job->link, epoch, NULL, 0); /* where it is gone, next finds out */
    return 0;
}

int remote_state_loaded(pst_job *job, uint64_t epoch, const void *state, size_t bytes,
                        pst_error *err)
{
    const int rc = ops->restart(job->link, epoch, state, bytes);
    job->error.code = 0;
    return rc == 0 || rc == PSTI_LINK_GONE
               ? 0
               : psti_fail(err, rc, "state", NULL, "the state cannot be sent to the daemon: %s",
                           pst_strerror(rc));
}

bool remote_facts(const pst_job *job, psti_feed_facts *out)
{
    psti_feed_facts theirs;
    if (!ops->facts(job->link, &theirs))
        return false;
    const uint64_t asked = atomic_load_explicit(&job->asked_ns, memory_order_relaxed);
    theirs.now_s = out->now_s;
    theirs.opened_s = out->opened_s;
    theirs.first_s = out->first_s;
    theirs.last_s = out->last_s;
    theirs.first_wait_s = out->first_wait_s;
    theirs.finished = out->finished;
    theirs.waiting_s = asked ? out->now_s - 1e-9 * (double)asked : 0;
    *out = theirs;
    return true;
}

void remote_stats(const pst_job *job, pst_job_stats *out)
{
    if (atomic_load(&job->served))
        ops->stats(job->link, out);
}

int remote_memory(const pst_job *job, int index, void **base, size_t *bytes)
{
    return ops->memory(job->link, index, base, bytes);
}
