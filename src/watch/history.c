/* SPDX-License-Identifier: Apache-2.0
 * Readings of an engine, a second apart. What is now is the difference to the reading of two
 * seconds ago; of a job that is younger, to its beginning; after a gap in which nobody looked to
 * the last one before it, if that is not too old. */
#include "watch/history.h"

#include <stdio.h>

#include "core/memory.h"

static const uint64_t SPAN_NS = 1900000000, GAP_NS = 5000000000, OLD_NS = 120000000000;

typedef struct job_reading {
    uint64_t id, samples, wait_ns;
    float rate, stall, ready;
} job_reading;

typedef struct reading {
    uint64_t taken_ns;
    double time, cpu_seconds;
    float cpu_share;
    uint64_t bytes[PSTI_VIEW_SOURCES];
    int jobs, room;
    job_reading *job;
} reading;

struct psti_history {
    int first, count;
    reading at[PSTI_HISTORY_MOST];
};

psti_history *psti_history_new(void)
{
    return psti_calloc(PSTI_MEM_ENGINE, 1, sizeof(psti_history));
}

void psti_history_free(psti_history *h)
{
    if (!h)
        return;
    for (int i = 0; i < PSTI_HISTORY_MOST; i++)
        psti_free(h->at[i].job);
    psti_free(h);
}

/* From the newest, which is 0. */
static const reading *ago(const psti_history *h, int back)
{
    return &h->at[(h->first + h->count - 1 - back) % PSTI_HISTORY_MOST];
}

uint64_t psti_history_last_ns(const psti_history *h)
{
    return h->count ? ago(h, 0)->taken_ns : 0;
}

/* What to compare with: two seconds old if there is one, else the oldest; NULL = none will do. */
static const reading *before(const psti_history *h, uint64_t now_ns)
{
    const reading *best = NULL;
    for (int back = 0; back < h->count; back++) {
        const reading *r = ago(h, back);
        const uint64_t age = now_ns - r->taken_ns;
        if (age > (best ? GAP_NS : OLD_NS))
            break;
        if (now_ns > r->taken_ns)
            best = r;
        if (age >= SPAN_NS)
            break;
    }
    return best;
}

static const job_reading *find_job(const reading *r, uint64_t id)
{
    for (int i = 0; r && i < r->jobs; i++)
        if (r->job[i].id == id)
            return &r->job[i];
    return NULL;
}

/* What is less than before is not the same any more, as of a job that goes on elsewhere. */
static double grown(uint64_t now, uint64_t before)
{
    return now > before ? (double)(now - before) : 0;
}

static void job_now(psti_view_job *job, const job_reading *was, double seconds)
{
    const double samples = grown(job->sums.samples, was ? was->samples : 0);
    const double wait = grown(job->sums.wait_ns + job->waiting_ns, was ? was->wait_ns : 0);
    job->rate_now = seconds > 0 ? samples / seconds : 0;
    const double stall = seconds > 0 ? 1e-9 * wait / seconds : 0;
    job->stall_now = stall > 1 ? 1 : stall;
}

void psti_history_now(const psti_history *h, psti_view *view)
{
    const reading *was = before(h, view->taken_ns);
    const double seconds = was ? 1e-9 * (double)(view->taken_ns - was->taken_ns) : view->seconds;
    const double cpu = view->cpu_seconds - (was ? was->cpu_seconds : 0);
    view->cpu_share_now = cpu > 0 && seconds > 0 && view->cpus > 0 ? cpu / seconds / view->cpus : 0;
    view->model.measured_now = 0;
    for (int i = 0; i < PSTI_VIEW_SOURCES; i++) {
        psti_view_traffic *s = &view->source[i];
        const double bytes = grown(s->bytes, was ? was->bytes[i] : 0);
        s->bytes_per_second_now = seconds > 0 ? bytes / seconds : 0;
    }
    for (int i = 0; i < view->job_count; i++) {
        psti_view_job *job = &view->jobs[i];
        const job_reading *then = find_job(was, job->id);
        job_now(job, then, then ? seconds : job->seconds);
        view->model.measured_now += job->rate_now;
    }
}

void psti_history_add(psti_history *h, const psti_view *view)
{
    if (h->count == PSTI_HISTORY_MOST) {
        h->first = (h->first + 1) % PSTI_HISTORY_MOST;
        h->count--;
    }
    reading *r = &h->at[(h->first + h->count) % PSTI_HISTORY_MOST];
    const int jobs = view->job_count < PSTI_HISTORY_JOBS ? view->job_count : PSTI_HISTORY_JOBS;
    if (jobs > r->room) {
        psti_free(r->job);
        r->job = psti_calloc(PSTI_MEM_ENGINE, (size_t)jobs, sizeof *r->job);
        r->room = r->job ? jobs : 0;
    }
    r->taken_ns = view->taken_ns;
    r->time = view->time;
    r->cpu_seconds = view->cpu_seconds;
    r->cpu_share = (float)view->cpu_share_now;
    r->jobs = jobs < r->room ? jobs : r->room;
    for (int i = 0; i < PSTI_VIEW_SOURCES; i++)
        r->bytes[i] = view->source[i].bytes;
    for (int i = 0; i < r->jobs; i++) {
        const psti_view_job *job = &view->jobs[i];
        r->job[i] = (job_reading){job->id,
                                  job->sums.samples,
                                  job->sums.wait_ns + job->waiting_ns,
                                  (float)job->rate_now,
                                  (float)job->stall_now,
                                  (float)job->ready};
    }
    h->count++;
}

void psti_history_json(const psti_history *h, psti_json *j)
{
    psti_json_open(j, '[');
    for (int back = h->count - 1; back >= 0; back--) {
        const reading *r = ago(h, back);
        char id[24];
        psti_json_open(j, '{');
        psti_json_kr(j, "time", r->time);
        psti_json_kr(j, "cpu_share", r->cpu_share);
        psti_json_key(j, "jobs");
        psti_json_open(j, '{');
        for (int i = 0; i < r->jobs; i++) {
            snprintf(id, sizeof id, "%llu", (unsigned long long)r->job[i].id);
            psti_json_key(j, id);
            psti_json_open(j, '[');
            psti_json_real(j, r->job[i].rate);
            psti_json_real(j, r->job[i].stall);
            psti_json_real(j, r->job[i].ready);
            psti_json_close(j, ']');
        }
        psti_json_close(j, '}');
        psti_json_close(j, '}');
    }
    psti_json_close(j, ']');
}
