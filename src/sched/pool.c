/* SPDX-License-Identifier: Apache-2.0
 * The pool: worker threads, the reader, the byte budget and its three parts. Workers take the
 * oldest runnable task of the feed whose turn it is, or start its next sample and read it
 * themselves. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sched/sched_priv.h"

enum { HEAP_MMAP = 1 << 20, HEAP_TRIM = 1 << 20 };
enum { SLOW_MOST = 256 }; /* samples in slow lanes */

/* ---- budget ---------------------------------------------------------------------------------- */

uint64_t pool_encoded_max_locked(const psti_pool *pool)
{
    return pool_rest_locked(pool) / 4;
}

uint64_t pool_staged_max_locked(const psti_pool *pool)
{
    return pool->stagers ? pool_encoded_max_locked(pool) : 0;
}

uint64_t pool_extra_max_locked(const psti_pool *pool)
{
    return pool_rest_locked(pool) - pool_encoded_max_locked(pool) - pool_staged_max_locked(pool);
}

bool pool_fixed_take_locked(psti_pool *pool, uint64_t bytes)
{
    pool_cache_yield_locked(pool, bytes);
    /* An eighth stays for reading and for samples at work. */
    const uint64_t all = pool->budget.limit - pool_cache_held_locked(pool);
    const uint64_t most = all - all / 8;
    bool there = false;
    pool->opening++;
    while (!there && pool->fixed <= most && bytes <= most - pool->fixed) {
        there = psti_budget_try(&pool->budget, bytes);
        if (!there) {
            task_shed_locked(pool, NULL);
            there = psti_budget_try(&pool->budget, bytes);
        }
        if (!there && pool->extra_held)
            pthread_cond_broadcast(&pool->work); /* idle workers hold it */
        else if (!there && !pool_moves_locked(pool) && !pool->ahead_ending) {
            /* What waits for its consumer is in the way, and that may be this thread. */
            psti_budget_force(&pool->budget, bytes);
            there = true;
        }
        if (!there)
            pthread_cond_wait(&pool->room, &pool->lock);
    }
    pool->opening--;
    if (there)
        pool->fixed += bytes;
    pool_cache_yield_locked(pool, 0);
    return there;
}

void pool_fixed_give_locked(psti_pool *pool, uint64_t bytes)
{
    pool->fixed -= bytes;
    psti_budget_give(&pool->budget, bytes);
    pool_cache_yield_locked(pool, 0);
    pthread_cond_broadcast(&pool->room);
}

/* What the fixed part comes to with a larger budget: deeper rings, more for each worker to keep. */
static uint64_t fixed_most_locked(const psti_pool *pool)
{
    uint64_t most = (uint64_t)pool->worker_count * KEEP_MOST;
    for (const psti_feed *feed = pool->feeds; feed; feed = feed->next)
        most += feed->fixed_most;
    return most > pool->fixed ? most : pool->fixed;
}

static int extra_refused(const psti_pool *pool, uint64_t bytes, uint64_t most, pst_error *err)
{
    const uint64_t rest = (pool->stagers ? 2 * bytes : bytes + bytes / 3) + 1;
    const uint64_t needed = pool_budget_for(pool, fixed_most_locked(pool), rest);
    return psti_fail(
        err, PST_EBUDGET, "memory", NULL,
        "preparing this sample takes %.1f MiB, the budget of %.1f MiB leaves %.1f MiB; give at "
        "least %.0f MiB",
        (double)(bytes + pool->keep) / 0x1p20, (double)pool->budget.limit / 0x1p20,
        (double)(most + pool->keep) / 0x1p20, (double)needed / 0x1p20 + 1.0);
}

int pool_extra_take(psti_pool *pool, uint64_t bytes, pst_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&pool->lock);
    const uint64_t ticket = pool->tickets_given++;
    while (pool->tickets_served != ticket)
        pthread_cond_wait(&pool->room, &pool->lock);
    for (;;) {
        const uint64_t most = pool_extra_max_locked(pool);
        if (bytes > most) {
            rc = extra_refused(pool, bytes, most, err);
            break;
        }
        /* What was put aside may wait for this very worker: where nothing else is in the way, it
         * does not count. */
        if (pool->extra + bytes <= most || pool->extra == pool->extra_aside) {
            psti_budget_force(&pool->budget, bytes); /* the parts add up to the limit */
            pool->extra += bytes;
            break;
        }
        if (pool->extra_held)
            pthread_cond_broadcast(&pool->work); /* idle workers hold it */
        pthread_cond_wait(&pool->room, &pool->lock);
    }
    pool->tickets_served++;
    pthread_cond_broadcast(&pool->room);
    pthread_mutex_unlock(&pool->lock);
    return rc;
}

bool pool_extra_try_locked(psti_pool *pool, uint64_t bytes)
{
    if (pool->tickets_served != pool->tickets_given ||
        pool->extra + bytes > pool_extra_max_locked(pool))
        return false;
    psti_budget_force(&pool->budget, bytes);
    pool->extra += bytes;
    return true;
}

int pool_extra_force(psti_pool *pool, uint64_t held, uint64_t more, pst_error *err)
{
    pthread_mutex_lock(&pool->lock);
    const uint64_t most = pool_extra_max_locked(pool);
    const bool fits = held + more <= most;
    if (fits) {
        psti_budget_force(&pool->budget, more);
        pool->extra += more;
    }
    const int rc = fits ? 0 : extra_refused(pool, held + more, most, err);
    pthread_mutex_unlock(&pool->lock);
    return rc;
}

void pool_extra_give(psti_pool *pool, uint64_t bytes)
{
    /* The C library may keep what a decoder freed: give it back before others are told that it is
     * free. */
    if (bytes >= (4u << 20))
        malloc_trim(0);
    pthread_mutex_lock(&pool->lock);
    pool->extra -= bytes;
    psti_budget_give(&pool->budget, bytes);
    pthread_cond_broadcast(&pool->room);
    pthread_mutex_unlock(&pool->lock);
}

/* ---- work ------------------------------------------------------------------------------------ */

void pool_signal_locked(psti_pool *pool)
{
    if (pool->idle > 0)
        pthread_cond_signal(&pool->work);
}

/* The tier is asked for a sample while workers are busy with others, as long as no more than half
 * of the tasks are under way: beyond that more batches are begun, and the memory of each is written
 * to for the first time once. */
static bool asks_ahead_locked(const psti_feed *feed)
{
    const psti_pool *pool = feed->pool;
    return feed->asks_ahead && 2 * (pool->inflight - pool->aside) < pool->aim_max;
}

/* Of the feeds whose reads are sent ahead, or whose samples are asked for ahead, and that have not
 * been refused in this round, the one with fewest samples on their way: tasks and bytes are short
 * where reading is slow, and who has them has the source. */
static psti_feed *next_ahead_locked(psti_pool *pool, uint64_t round)
{
    psti_feed *best = NULL;
    for (psti_feed *feed = pool->feeds; feed; feed = feed->next)
        if ((feed_sends_ahead(feed) || asks_ahead_locked(feed) || pool->cold > 0) &&
            feed->refused != round && (!best || feed->inflight < best->inflight))
            best = feed;
    return best;
}

/* Whether workers have samples to go on with wherever some are on their way: each that ends comes
 * here again. */
static bool is_calm_locked(const psti_pool *pool)
{
    for (const psti_feed *feed = pool->feeds; feed; feed = feed->next)
        if (feed->far && feed->inflight &&
            (feed->closing || feed->error.code || !feed->runnable || !feed->runnable->next))
            return false;
    return !pool->stopping;
}

/* Where bytes have to be fetched, reads are sent ahead. */
static void send_ahead_locked(psti_pool *pool)
{
    const uint64_t round = ++pool->ahead_rounds;
    psti_feed *feed;
    psti_reader_plug(pool->reader);
    while (!pool->stopping && (feed = next_ahead_locked(pool, round))) {
        task *t = task_aim_locked(feed, NULL);
        if (!t) {
            feed->refused = round;
            continue;
        }
        const bool asks = t->asks;
        if (feed_sends_ahead(feed) || pool->cold > 0 || asks)
            task_send_locked(t);
        else /* for a worker to read; from now on they begin the next one themselves */
            task_runnable_locked(t);
        feed->asks_ahead &= asks;
        pool->cold -= !feed_sends_ahead(feed) && pool->cold > 0;
    }
    for (feed = pool->feeds; feed && !pool->stopping; feed = feed->next)
        ahead_pump_locked(feed);
    psti_reader_unplug(pool->reader, is_calm_locked(pool));
}

typedef enum waking { WAKE_NONE, WAKE_ONE, WAKE_ALL } waking;

/* Something changed that may let samples start. One worker is woken; each that finds something
 * wakes the next, so that what little there is to do does not wake them all. Where workers have
 * batches of their own, one finds nothing where another might. */
static waking pump_locked(psti_pool *pool)
{
    send_ahead_locked(pool);
    if (pool->idle == 0 || !tuner_lets_work_locked(pool))
        return WAKE_NONE;
    pool->waking = true;
    for (const psti_feed *feed = pool->feeds; feed; feed = feed->next)
        if (own_batches(feed))
            return WAKE_ALL;
    return WAKE_ONE;
}

static void wake(psti_pool *pool, waking who)
{
    if (who == WAKE_ONE)
        pthread_cond_signal(&pool->work);
    else if (who == WAKE_ALL)
        pthread_cond_broadcast(&pool->work);
}

void pool_pump_locked(psti_pool *pool)
{
    wake(pool, pump_locked(pool));
}

/* Who is woken while the lock is held takes a core to wait for it, this one perhaps. */
void pool_pump_unlock(psti_pool *pool)
{
    const waking who = pump_locked(pool);
    pthread_mutex_unlock(&pool->lock);
    wake(pool, who);
}

static void *work_loop(void *arg)
{
    worker *w = arg;
    psti_pool *pool = w->pool;
    atomic_store_explicit(&w->tid, (int)gettid(), memory_order_relaxed);
    pthread_mutex_lock(&pool->lock);
    while (!pool->stopping) {
        if (task_make_epoch_locked(pool) || place_stuck_locked(pool, w))
            continue;
        send_ahead_locked(pool);
        task *t = tuner_lets_work_locked(pool) ? turn_take_locked(pool, w) : NULL;
        if (!t && task_make_epoch_locked(pool)) /* this very look may have asked for one */
            continue;
        if (!t && (held_drop_unwelcome_locked(w) || shelf_look_locked(pool)))
            continue;
        if (!t) {
            psti_reader_plug(pool->reader); /* nobody may sleep while reads wait for neighbours */
            psti_reader_unplug(pool->reader, false);
            uint64_t *idle = pool->reading ? &pool->starved_ns : &pool->ask_idle_ns;
            const uint64_t since = pool->reading || pool->asking ? psti_now_ns() : 0;
            pool->waking = false;
            pool->idle++;
            ask_hurry_locked(pool);
            pthread_cond_wait(&pool->work, &pool->lock);
            pool->idle--;
            *idle += since ? psti_now_ns() - since : 0;
            continue;
        }
        const uint64_t since = psti_now_ns();
        tuner_begins_locked(pool, since);
        pool->works_for[w - pool->workers] = t->feed;
        waits_moved_locked(pool, since);
        if (pool->waking && tuner_lets_work_locked(pool))
            pool_signal_locked(pool);
        w->task = t;
        pthread_mutex_unlock(&pool->lock);
        trace_about(w, t->feed, t->id);
        const bool ended = task_run(w, t);
        const uint64_t now = psti_now_ns();
        trace_visit(w, t, ended, since, now);
        pthread_mutex_lock(&pool->lock);
        w->task = NULL;
        tuner_ends_locked(pool, now);
        pool->works_for[w - pool->workers] = NULL;
        waits_moved_locked(pool, now);
        if (ended)
            task_done_locked(t);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* ---- measuring ------------------------------------------------------------------------------- */

double worker_begin(const worker *w)
{
    return atomic_load_explicit(&w->pool->clocked, memory_order_relaxed) ? psti_cpu_s() : 0;
}

void worker_end(worker *w, double since)
{
    if (since <= 0)
        return;
    const double before = atomic_load_explicit(&w->samples_s, memory_order_relaxed);
    atomic_store_explicit(&w->samples_s, before + psti_cpu_s() - since, memory_order_relaxed);
}

void psti_pool_clock(psti_pool *pool)
{
    atomic_store_explicit(&pool->clocked, true, memory_order_relaxed);
}

void psti_pool_times_get(const psti_pool *pool, psti_pool_times *out)
{
    *out = (psti_pool_times){0};
    for (int i = 0; i < pool->worker_count; i++) {
        const worker *w = &pool->workers[i];
        clockid_t clock;
        struct timespec t;
        if (!w->started || pthread_getcpuclockid(w->thread, &clock) || clock_gettime(clock, &t))
            continue;
        out->cpu_s += (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
        out->samples_s += atomic_load_explicit(&w->samples_s, memory_order_relaxed);
    }
}

/* ---- making and freeing ------------------------------------------------------------------------
 */

static int start_worker(psti_pool *pool, worker *w, pst_error *err)
{
    w->pool = pool;
    w->work = psti_work_new();
    if (!w->work || psti_kit_init(&w->kit) < 0 ||
        trace_open_worker(w, (int)(w - pool->workers)) < 0)
        return psti_fail(err, -ENOMEM, "engine", NULL, "out of memory while starting workers");
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int rc = pthread_create(&w->thread, NULL, work_loop, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return psti_fail(err, -rc, "engine", NULL, "cannot start a worker thread: %s",
                         pst_strerror(-rc));
    w->started = true;
    char name[16];
    snprintf(name, sizeof name, "pst-work-%d", (int)(w - pool->workers) % 100000);
    pthread_setname_np(w->thread, name);
    return 0;
}

static size_t keep_per_worker(uint64_t memory, int workers)
{
    const uint64_t share = memory / 4 / (uint64_t)workers;
    return (size_t)(share < KEEP_LEAST ? KEEP_LEAST : share > KEEP_MOST ? KEEP_MOST : share);
}

/* Left to itself the C library learns from the first large picture to keep such memory, up to
 * 64 MiB for each thread, where no budget sees it; malloc_trim does not reach the top of a thread's
 * heap. Fixed thresholds turn that off. They hold for the whole process; who set them in the
 * environment keeps them. */
void psti_heap_tame(void)
{
    if (getenv("GLIBC_TUNABLES") || getenv("MALLOC_MMAP_THRESHOLD_") ||
        getenv("MALLOC_TRIM_THRESHOLD_"))
        return;
    mallopt(M_MMAP_THRESHOLD, HEAP_MMAP);
    mallopt(M_TRIM_THRESHOLD, HEAP_TRIM);
}

static int start(psti_pool *pool, const psti_pool_spec *spec, pst_error *err)
{
    if (spec->workers == 0)
        return 0;
    psti_heap_tame();
    pool->trace = spec->trace;
    pool->book = pool->trace ? psti_trace_ring_add(pool->trace, NULL) : NULL;
    const uint64_t cache = spec->cache_bytes == PST_CACHE_AUTO ? 0 : spec->cache_bytes;
    const uint64_t memory = spec->memory_bytes - cache;
    pool->keep = keep_per_worker(memory, spec->workers);
    const uint64_t kept = (uint64_t)pool->keep * (uint64_t)spec->workers + tiers_memory(spec);
    if (kept > memory / 2)
        return psti_fail(err, PST_EBUDGET, "memory", NULL,
                         "%d workers need a budget of at least %.0f MiB beside the cache; it is "
                         "%.1f MiB",
                         spec->workers, (double)kept * 2 / 0x1p20, (double)memory / 0x1p20);
    psti_budget_force(&pool->budget, kept);
    pool->fixed = kept;
    const int reads = spec->io_most > spec->io_depth ? spec->io_most : spec->io_depth;
    pool->aim_max = spec->io_depth + 2 * spec->workers;
    pool->aim_most = reads + 2 * spec->workers;
    pool->task_count = pool->aim_most + SLOW_MOST;
    pool->tasks = psti_calloc(PSTI_MEM_SCHED, (size_t)pool->task_count, sizeof *pool->tasks);
    pool->spare = psti_calloc(PSTI_MEM_SCHED, (size_t)pool->task_count, sizeof *pool->spare);
    pool->workers = psti_calloc(PSTI_MEM_SCHED, (size_t)spec->workers, sizeof *pool->workers);
    pool->works_for = psti_calloc(PSTI_MEM_SCHED, (size_t)spec->workers, sizeof *pool->works_for);
    if (!pool->tasks || !pool->spare || !pool->workers || !pool->works_for ||
        pool_cache_open(pool, spec->cache_bytes, spec->forms) < 0)
        return psti_fail(err, -ENOMEM, "engine", NULL, "out of memory while starting the engine");
    for (int i = 0; i < pool->task_count; i++) {
        pool->tasks[i].next = pool->free_tasks;
        pool->free_tasks = &pool->tasks[i];
    }
    int rc = tiers_open_pool(pool, spec, err);
    if (rc == 0)
        rc = psti_reader_open(spec->io, reads, &pool->reader, err);
    pool->worker_count = spec->workers;
    tuner_open(pool);
    for (int i = 0; rc == 0 && i < spec->workers; i++)
        rc = start_worker(pool, &pool->workers[i], err);
    return rc;
}

int psti_pool_new(const psti_pool_spec *spec, psti_pool **out, pst_error *err)
{
    psti_pool *pool = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *pool);
    if (!pool)
        return psti_fail(err, -ENOMEM, "engine", NULL, "out of memory while starting the engine");
    /* Held for less than a microsecond, some ten thousand times a second: spinning is cheaper than
     * sleeping. */
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&pool->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->room, NULL);
    psti_budget_init(&pool->budget, spec->memory_bytes);
    const int rc = start(pool, spec, err);
    if (rc < 0) {
        psti_pool_free(pool);
        return rc;
    }
    *out = pool;
    return 0;
}

void psti_pool_free(psti_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; pool->workers && i < pool->worker_count; i++) {
        worker *w = &pool->workers[i];
        if (w->started)
            pthread_join(w->thread, NULL);
        psti_work_free(w->work);
        psti_kit_fini(&w->kit);
    }
    psti_reader_close(pool->reader);
    tiers_close_pool(pool);
    for (int i = 0; pool->tasks && i < pool->task_count; i++) {
        psti_free(pool->tasks[i].reads);
        psti_free(pool->tasks[i].read_error);
        psti_free(pool->tasks[i].part_reads);
        fetch_free(&pool->tasks[i]);
        tiers_free(&pool->tasks[i]);
        psti_buf_free(&pool->tasks[i].bytes);
    }
    for (int i = 0; i < pool->spare_count; i++)
        psti_work_free(pool->spare[i]);
    psti_cache_free(pool->cache);
    psti_free(pool->ended);
    psti_free(pool->bad);
    psti_free(pool->spare);
    psti_free(pool->tasks);
    psti_free(pool->works_for);
    psti_free(pool->workers);
    psti_budget_fini(&pool->budget);
    pthread_cond_destroy(&pool->room);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    psti_free(pool);
}

psti_budget *psti_pool_budget(psti_pool *pool)
{
    return &pool->budget;
}

int psti_pool_io(const psti_pool *pool)
{
    return pool->reader ? psti_reader_kind(pool->reader) : PST_IO_AUTO;
}
