/* SPDX-License-Identifier: Apache-2.0
 * Traces: the file, the rings, and the thread that empties them.
 *
 * The file is whole JSON at every moment: each write ends with the closing bracket, and the next
 * one begins on top of it. So a process that is killed leaves a trace that lacks its last moments
 * and nothing else. What cannot be written ends the trace, with one message; whoever is traced goes
 * on.
 *
 * Rings and jobs are added under the lock and never go before the trace does.
 *
 * A process that ends without closing its engine (a script that just ends) ends its traces all the
 * same: they stand in a list that is gone through at exit. */
#include "watch/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "watch/trace_priv.h"

/* FIRST_TRACK: Perfetto shows the number behind the name, so it is none that counts workers. */
enum { FIRST_TRACK = 100 };
enum { RING_EVENTS = 32768, TEXT_BYTES = 256 << 10, GIVE_BACK = 256, JOBS_MOST = 65536 };
static const uint64_t PAUSE_NS = 50000000;
static const char CLOSING[] = "\n]\n";
enum { CLOSING_BYTES = sizeof CLOSING - 1 };

/* Leaf lock; all of it: traces that are open in this process. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static psti_trace *open_ones;
static bool at_exit;

struct psti_trace {
    psti_trace *next_open; /* open_lock's */
    pthread_mutex_t lock;
    psti_trace_ring *rings; /* newest first */
    int tracks;             /* given out */
    trace_job **jobs;
    uint32_t job_count, job_room;
    bool stopping, ended;
    pthread_cond_t wake, end; /* something of the two changed */
    /* The writer's own until it has ended: */
    trace_text text;
    uint64_t size; /* of the file without its closing bracket */
    bool seeks;    /* it is a file, not a device */
    uint64_t events, dropped;
    uint32_t jobs_told;
    int tracks_told, failure;
    uint32_t last_number; /* of the job that was looked up last */
    const trace_job *last;
    /* Fixed: */
    int fd;
    char *path;
    uint32_t ring_events;
    uint64_t pause_ns;
    pthread_t thread;
    bool started;
};

void psti_trace_drop(psti_trace_ring *ring)
{
    atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_all(const psti_trace *t, const char *bytes, size_t count, uint64_t at)
{
    while (count > 0) {
        const ssize_t n =
            t->seeks ? pwrite(t->fd, bytes, count, (off_t)at) : write(t->fd, bytes, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        bytes += n;
        at += (uint64_t)n;
        count -= (size_t)n;
    }
    return 0;
}

/* The text has room for the bracket, see room_for_line. */
static void flush(psti_trace *t)
{
    trace_text *x = &t->text;
    if (x->size == 0 || t->failure)
        return;
    memcpy(x->data + x->size, CLOSING, CLOSING_BYTES);
    t->failure = write_all(t, x->data, x->size + (t->seeks ? CLOSING_BYTES : 0), t->size);
    t->size += x->size;
    x->size = 0;
    if (t->failure)
        psti_log(PSTI_LOG_WARN, "the trace ends here: cannot write %s: %s", t->path,
                 pst_strerror(t->failure));
}

static void room_for_line(psti_trace *t)
{
    if (t->text.cap - t->text.size < LINE_MOST + CLOSING_BYTES)
        flush(t);
}

static const trace_job *job_of(psti_trace *t, uint32_t number)
{
    if (number == t->last_number)
        return t->last;
    pthread_mutex_lock(&t->lock);
    t->last_number = number;
    t->last = number > 0 && number <= t->job_count ? t->jobs[number - 1] : NULL;
    pthread_mutex_unlock(&t->lock);
    return t->last;
}

static void empty(psti_trace *t, psti_trace_ring *ring)
{
    const uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    while (tail < head && !t->failure) {
        const psti_trace_event *e = &ring->at[tail & ring->mask];
        room_for_line(t);
        text_event(&t->text, ring, e, job_of(t, e->job));
        t->events++;
        if (++tail % GIVE_BACK == 0)
            atomic_store_explicit(&ring->tail, tail, memory_order_release);
    }
    atomic_store_explicit(&ring->tail, tail, memory_order_release);
    const uint64_t dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    t->dropped += dropped - ring->told;
    ring->told = dropped;
}

/* Names of what is new. Returns the rings as they are now; none of them goes. */
static psti_trace_ring *tell_new(psti_trace *t)
{
    pthread_mutex_lock(&t->lock);
    psti_trace_ring *rings = t->rings;
    const uint32_t jobs = t->job_count;
    const int tracks = t->tracks;
    pthread_mutex_unlock(&t->lock);
    for (const psti_trace_ring *r = rings; r; r = r->next)
        if (r->track >= FIRST_TRACK + t->tracks_told) {
            room_for_line(t);
            text_track(&t->text, r->track, r->name);
        }
    t->tracks_told = tracks;
    while (t->jobs_told < jobs) {
        room_for_line(t);
        const uint32_t number = ++t->jobs_told;
        text_job(&t->text, number, job_of(t, number));
    }
    return rings;
}

static void *write_loop(void *arg)
{
    psti_trace *t = arg;
    bool last = false;
    while (!last && !t->failure) {
        pthread_mutex_lock(&t->lock);
        const struct timespec until = psti_timespec_ns(psti_now_ns() + t->pause_ns);
        if (!t->stopping)
            pthread_cond_clockwait(&t->wake, &t->lock, CLOCK_MONOTONIC, &until);
        last = t->stopping;
        pthread_mutex_unlock(&t->lock);
        for (psti_trace_ring *r = tell_new(t); r; r = r->next)
            empty(t, r);
        if (last) {
            room_for_line(t);
            text_ends(&t->text, t->events, t->dropped);
        }
        flush(t);
    }
    if (!t->seeks && !t->failure)
        t->failure = write_all(t, CLOSING, CLOSING_BYTES, 0);
    pthread_mutex_lock(&t->lock);
    t->ended = true;
    pthread_cond_broadcast(&t->end);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- at exit ----------------------------------------------------------------------------------
 */

/* A forked child has neither the writers nor the right to end its parent's files. */
static void stop_all(void)
{
    if (pthread_mutex_trylock(&open_lock)) /* somebody opens or closes one, or did so at the fork */
        return;
    for (psti_trace *t = open_ones; t; t = t->next_open)
        if (t->text.pid == (int)getpid())
            psti_trace_stop(t);
    pthread_mutex_unlock(&open_lock);
}

static void list_add(psti_trace *t)
{
    pthread_mutex_lock(&open_lock);
    at_exit = at_exit || atexit(stop_all) == 0;
    t->next_open = open_ones;
    open_ones = t;
    pthread_mutex_unlock(&open_lock);
}

static void list_remove(psti_trace *t)
{
    pthread_mutex_lock(&open_lock);
    for (psti_trace **at = &open_ones; *at; at = &(*at)->next_open)
        if (*at == t) {
            *at = t->next_open;
            break;
        }
    pthread_mutex_unlock(&open_lock);
}

/* ---- rings and jobs -------------------------------------------------------------------------- */

/* Pages are taken as they are first written to. */
static size_t ring_bytes(const psti_trace *t)
{
    return sizeof(psti_trace_ring) + t->ring_events * sizeof(psti_trace_event);
}

psti_trace_ring *psti_trace_ring_add(psti_trace *t, const char *name)
{
    psti_trace_ring *ring = psti_pages_alloc(PSTI_MEM_ENGINE, ring_bytes(t));
    if (!ring)
        return NULL;
    ring->at = (psti_trace_event *)(ring + 1);
    ring->mask = t->ring_events - 1;
    ring->room_until = t->ring_events;
    if (name)
        snprintf(ring->name, sizeof ring->name, "%s", name);
    pthread_mutex_lock(&t->lock);
    ring->track = name ? FIRST_TRACK + t->tracks++ : 0;
    ring->next = t->rings;
    t->rings = ring;
    pthread_mutex_unlock(&t->lock);
    return ring;
}

static bool job_room_locked(psti_trace *t)
{
    if (t->job_count < t->job_room)
        return true;
    const uint32_t room = t->job_room ? 2 * t->job_room : 16;
    trace_job **more =
        room > JOBS_MOST ? NULL : psti_realloc(PSTI_MEM_ENGINE, t->jobs, room, sizeof(trace_job *));
    if (!more)
        return false;
    t->jobs = more;
    t->job_room = room;
    return true;
}

uint32_t psti_trace_job_add(psti_trace *t, const psti_trace_job *from)
{
    trace_job *job = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *job);
    if (!job)
        return 0;
    job->id = from->id;
    job->stages = from->stages;
    text_escape(from->dataset, job->dataset, sizeof job->dataset);
    text_escape(from->pipeline, job->pipeline, sizeof job->pipeline);
    for (int i = 0; i < from->stages; i++)
        text_escape(from->stage[i], job->stage[i], sizeof job->stage[i]);
    pthread_mutex_lock(&t->lock);
    const bool room = job_room_locked(t);
    if (room)
        t->jobs[t->job_count++] = job;
    const uint32_t number = room ? t->job_count : 0;
    pthread_mutex_unlock(&t->lock);
    if (!room)
        psti_free(job);
    return number;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* -EBUSY: somebody else writes there. */
static int open_file(psti_trace *t, const char *path)
{
    struct stat st;
    t->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (t->fd < 0 || fstat(t->fd, &st) < 0)
        return -errno;
    t->seeks = S_ISREG(st.st_mode);
    if (!t->seeks && !S_ISCHR(st.st_mode))
        return -ENOTSUP;
    if (t->seeks && flock(t->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return -EBUSY;
    return t->seeks && ftruncate(t->fd, 0) < 0 ? -errno : 0;
}

static int take_place(psti_trace *t, const psti_trace_spec *spec, pst_error *err)
{
    const size_t room = strlen(spec->path) + 32;
    t->path = psti_malloc(PSTI_MEM_ENGINE, room);
    if (!t->path)
        return psti_fail(err, -ENOMEM, "trace", NULL, "out of memory for a trace");
    memcpy(t->path, spec->path, strlen(spec->path) + 1);
    int rc = open_file(t, t->path);
    for (int i = 1; rc == -EBUSY && spec->elsewhere && i < 1000; i++) {
        close(t->fd);
        snprintf(t->path, room, "%s.%d.%d", spec->path, (int)getpid(), i);
        rc = open_file(t, t->path);
    }
    if (rc == -EBUSY)
        return psti_fail(err, rc, "trace", NULL, "another engine writes its trace to %s", t->path);
    if (rc == -ENOTSUP)
        return psti_fail(err, rc, "trace", NULL, "a trace goes to a file; %s is none", t->path);
    return rc < 0 ? psti_fail(err, rc, "trace", NULL, "cannot write the trace %s: %s", t->path,
                              pst_strerror(rc))
                  : 0;
}

static int start_writer(psti_trace *t, pst_error *err)
{
    struct timespec wall;
    t->text.data = psti_malloc(PSTI_MEM_ENGINE, TEXT_BYTES);
    if (!t->text.data)
        return psti_fail(err, -ENOMEM, "trace", NULL, "out of memory for a trace");
    t->text.cap = TEXT_BYTES;
    t->text.pid = (int)getpid();
    t->text.zero_ns = psti_now_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    text_begins(&t->text, (double)wall.tv_sec + 1e-9 * (double)wall.tv_nsec);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int rc = pthread_create(&t->thread, NULL, write_loop, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    t->started = rc == 0;
    if (rc)
        return psti_fail(err, -rc, "trace", NULL, "cannot start the thread that writes traces: %s",
                         pst_strerror(-rc));
    pthread_setname_np(t->thread, "pst-trace");
    return 0;
}

int psti_trace_open(const psti_trace_spec *spec, psti_trace **out, pst_error *err)
{
    psti_trace *t = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *t);
    if (!t)
        return psti_fail(err, -ENOMEM, "trace", NULL, "out of memory for a trace");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->end, NULL);
    t->fd = -1;
    t->ring_events = spec->ring_events ? spec->ring_events : RING_EVENTS;
    t->pause_ns = spec->pause_ns ? spec->pause_ns : PAUSE_NS;
    int rc = take_place(t, spec, err);
    if (rc == 0)
        rc = start_writer(t, err);
    if (rc < 0) {
        psti_trace_close(t);
        return rc;
    }
    list_add(t);
    *out = t;
    return 0;
}

void psti_trace_stop(psti_trace *t)
{
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    pthread_cond_broadcast(&t->wake);
    while (t->started && !t->ended)
        pthread_cond_wait(&t->end, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void psti_trace_close(psti_trace *t)
{
    if (!t)
        return;
    list_remove(t);
    psti_trace_stop(t);
    if (t->started)
        pthread_join(t->thread, NULL);
    if (t->dropped && !t->failure)
        psti_log(PSTI_LOG_WARN, "the trace %s lacks %llu of %llu events: they came too fast",
                 t->path, (unsigned long long)t->dropped,
                 (unsigned long long)(t->dropped + t->events));
    while (t->rings) {
        psti_trace_ring *ring = t->rings;
        t->rings = ring->next;
        psti_pages_free(PSTI_MEM_ENGINE, ring, ring_bytes(t));
    }
    for (uint32_t i = 0; i < t->job_count; i++)
        psti_free(t->jobs[i]);
    psti_free(t->jobs);
    if (t->fd >= 0)
        close(t->fd);
    psti_free(t->text.data);
    psti_free(t->path);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->end);
    pthread_mutex_destroy(&t->lock);
    psti_free(t);
}
