/* SPDX-License-Identifier: Apache-2.0
 * The listing crew. Work goes last in, first out, so that a deep tree keeps a short queue. After
 * the first failure the rest of the queue is dropped unrun. */
#include "source/crew.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "core/quota.h"
#include "core/status.h"
#include "net/net.h"

int psti_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

/* Stat calls wait for disks more than for cores, so twice the cores; beyond 16 nothing was gained.
 */
static int usual_threads(void)
{
    const int twice = 2 * psti_quota_cpus("");
    return twice < 2 ? 2 : twice > 16 ? 16 : twice;
}

void psti_crew_init(psti_crew *crew, int threads)
{
    memset(crew, 0, sizeof *crew);
    crew->limit = threads <= 0              ? usual_threads()
                  : threads > PSTI_CREW_MAX ? PSTI_CREW_MAX
                                            : threads;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->more, NULL);
    pthread_cond_init(&crew->done, &attr);
    pthread_condattr_destroy(&attr);
}

static void stop_locked(psti_crew *crew, int rc)
{
    if (!crew->rc)
        crew->rc = rc;
    while (crew->queue) {
        crew->queue = crew->queue->next;
        crew->queued--;
        crew->pending--;
    }
    if (!crew->pending)
        pthread_cond_broadcast(&crew->done);
}

/* Runs one queued piece; the lock is given up meanwhile. */
static void run_one_locked(psti_crew *crew)
{
    psti_work *work = crew->queue;
    crew->queue = work->next;
    crew->queued--;
    pthread_mutex_unlock(&crew->lock);
    pst_error err;
    psti_error_clear(&err);
    const int rc = work->run(work, crew, &err);
    pthread_mutex_lock(&crew->lock);
    if (rc < 0 && !crew->rc)
        crew->err = err;
    crew->pending--;
    if (rc < 0)
        stop_locked(crew, rc);
    else if (!crew->pending)
        pthread_cond_broadcast(&crew->done);
}

/* What a member of the crew waits for is not needed any more. */
static bool is_stopped(void *arg)
{
    psti_crew *crew = arg;
    pthread_mutex_lock(&crew->lock);
    const bool stopped = crew->rc != 0;
    pthread_mutex_unlock(&crew->lock);
    return stopped;
}

static void *crew_main(void *arg)
{
    psti_crew *crew = arg;
    psti_net_watch_set((psti_net_watch){is_stopped, crew});
    pthread_mutex_lock(&crew->lock);
    for (;;) {
        while (!crew->queue && !crew->closed) {
            crew->idle++;
            pthread_cond_wait(&crew->more, &crew->lock);
            crew->idle--;
        }
        if (!crew->queue)
            break;
        run_one_locked(crew);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

void psti_crew_push(psti_crew *crew, psti_work *work)
{
    pthread_mutex_lock(&crew->lock);
    if (!crew->rc) {
        work->next = crew->queue;
        crew->queue = work;
        crew->queued++;
        crew->pending++;
        pthread_cond_signal(&crew->more);
        if ((size_t)crew->idle < crew->queued && crew->threads < crew->limit &&
            psti_thread_start(&crew->thread[crew->threads], crew_main, crew) == 0)
            crew->threads++;
    }
    pthread_mutex_unlock(&crew->lock);
}

static void wait_a_little_locked(psti_crew *crew)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&crew->done, &crew->lock, &until);
}

static bool wants_stop(psti_crew *crew, const pst_dataset_options *opts)
{
    return opts->progress && opts->progress(atomic_load(&crew->found), opts->user);
}

int psti_crew_run(psti_crew *crew, const pst_dataset_options *opts, pst_error *err)
{
    pthread_mutex_lock(&crew->lock);
    while (crew->pending) {
        if (!crew->threads) { /* no thread could be had: do it here */
            run_one_locked(crew);
            continue;
        }
        wait_a_little_locked(crew);
        pthread_mutex_unlock(&crew->lock);
        const bool stop = wants_stop(crew, opts);
        pthread_mutex_lock(&crew->lock);
        if (stop && !crew->rc) {
            psti_fail(&crew->err, -ECANCELED, "list", NULL, "listing was stopped by the caller");
            stop_locked(crew, -ECANCELED);
        }
    }
    const int rc = crew->rc;
    if (rc && err)
        *err = crew->err;
    pthread_mutex_unlock(&crew->lock);
    return rc;
}

void psti_crew_fini(psti_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    crew->closed = true;
    pthread_cond_broadcast(&crew->more);
    pthread_mutex_unlock(&crew->lock);
    for (int i = 0; i < crew->threads; i++)
        pthread_join(crew->thread[i], NULL);
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->more);
    pthread_mutex_destroy(&crew->lock);
}
