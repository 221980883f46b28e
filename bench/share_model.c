/* SPDX-License-Identifier: Apache-2.0
 * The model of share_model.h, event by event. Everything follows from the settings: the same seed
 * gives the same figures on any machine. Meant for benches: it gives up by exit(2). */
#include "share_model.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/hash.h"
#include "sample/sample.h"

enum { WORKERS = 8 };

void model_set_init(model_set *set)
{
    *set = (model_set){.samples = 20000, .epochs = 10, .seed = 1, .batch = 16};
    psti_share_spec_init(&set->spec);
}

typedef struct job {
    int member;
    double rate, next_time;
    bool started;
    uint32_t queue, batch;  /* most that may be picked and not consumed; consumed at once */
    uint32_t picked, ready; /* picked and not consumed; of these, ready */
    uint32_t making;        /* picked and not ready */
    case_log log;           /* epoch -1: none begun */
} job;

typedef struct task {
    double end;
    int job;
    psti_share_pick pick;
} task;

typedef struct sim {
    const share_case *sc;
    const model_set *set;
    psti_share *share;
    job job[CASE_JOBS];
    task worker[WORKERS];
    bool busy[WORKERS];
    task *queue; /* ring of tasks no worker has yet */
    uint32_t queued, queue_at, queue_cap;
    uint64_t random, capacity;
    double prepare_time, now;
} sim;

static double unit(sim *s)
{
    s->random += 0x9e3779b97f4a7c15u;
    return (double)(psti_mix64(s->random) >> 11) * 0x1p-53;
}

static void ready_one(sim *s, job *j, uint32_t id)
{
    if (!case_note(&j->log, s->set->samples, s->set->epochs, id))
        exit(2);
    j->ready++;
}

static void start_tasks(sim *s)
{
    for (int w = 0; w < WORKERS && s->queued; w++) {
        if (s->busy[w])
            continue;
        s->worker[w] = s->queue[s->queue_at];
        s->queue_at = (s->queue_at + 1) % s->queue_cap;
        s->queued--;
        s->worker[w].end = s->now + s->prepare_time * (0.5 + unit(s));
        s->busy[w] = true;
    }
}

static void begin_epoch(sim *s, job *j)
{
    j->log.epoch++;
    j->log.delivered = 0;
    psti_share_epoch(s->share, j->member, NULL);
}

static void fill_queue(sim *s, int at)
{
    job *j = &s->job[at];
    while (j->started && j->picked < j->queue) {
        psti_share_pick pick;
        psti_share_next(s->share, j->member, &pick);
        if (pick.kind == PSTI_SHARE_WAIT)
            return;
        if (pick.kind == PSTI_SHARE_NONE) {
            if (j->making)
                return;
            begin_epoch(s, j);
            continue;
        }
        j->picked++;
        if (pick.kind == PSTI_SHARE_HIT) {
            ready_one(s, j, pick.id);
            continue;
        }
        j->making++;
        s->queue[(s->queue_at + s->queued++) % s->queue_cap] = (task){.job = at, .pick = pick};
        start_tasks(s);
    }
}

static void offer(sim *s, const psti_share_pick *pick)
{
    const double worth = psti_share_wanted(s->share, pick);
    psti_share_counts counts;
    psti_share_counts_get(s->share, &counts);
    uint32_t victim, entry;
    double value;
    void *replaced;
    bool room = counts.resident < s->capacity;
    if (worth > 0 && !room && !s->set->keep && s->capacity &&
        psti_share_victim(s->share, NULL, &victim, &value) && value < worth) {
        psti_share_remove(s->share, victim);
        room = true;
    }
    if (worth > 0 && room)
        psti_share_insert(s->share, pick, NULL, &entry, &replaced);
    else
        psti_share_finish(s->share, pick);
}

static void consume(sim *s, job *j)
{
    j->ready -= j->batch;
    j->picked -= j->batch;
    j->next_time = s->now + j->batch / j->rate;
}

static void consumers(sim *s)
{
    bool again = true;
    while (again) {
        again = false;
        for (int i = 0; i < s->sc->jobs; i++) {
            job *j = &s->job[i];
            if (!j->started && j->next_time <= s->now) {
                j->started = true;
                begin_epoch(s, j);
            }
            if (!j->started)
                continue;
            fill_queue(s, i);
            if (j->next_time <= s->now && j->ready >= j->batch) {
                consume(s, j);
                again = true;
            }
        }
    }
}

/* Until every job has done its epochs: the faster ones go on. */
static bool step(sim *s)
{
    double soonest = INFINITY;
    int worker = -1;
    bool more = false;
    for (int w = 0; w < WORKERS; w++)
        if (s->busy[w] && s->worker[w].end < soonest) {
            soonest = s->worker[w].end;
            worker = w;
        }
    for (int i = 0; i < s->sc->jobs; i++) {
        more |= s->job[i].log.epoch < s->set->epochs;
        if (s->job[i].next_time > s->now && s->job[i].next_time < soonest) {
            soonest = s->job[i].next_time;
            worker = -1;
        }
    }
    s->now = soonest;
    if (worker >= 0) {
        const task t = s->worker[worker];
        s->busy[worker] = false;
        s->job[t.job].making--;
        ready_one(s, &s->job[t.job], t.pick.id);
        offer(s, &t.pick);
        start_tasks(s);
    }
    consumers(s);
    return more;
}

/* Most that a job may have picked and not consumed: four batches, or its part of what the queues
 * may hold together. */
static void setup_job(sim *s, job *j, int i)
{
    const uint32_t part = (uint32_t)(s->capacity / 4) / (uint32_t)s->sc->jobs;
    const uint32_t batch = (uint32_t)s->set->batch;
    psti_share_join(s->share, false, &j->member, NULL);
    j->rate = s->sc->rate[i];
    j->next_time = s->sc->offset[i] * s->set->samples / j->rate;
    j->log.epoch = -1;
    j->queue = part < 2 ? 2 : part > 4 * batch ? 4 * batch : part;
    j->batch = j->queue / 2 < batch ? j->queue / 2 : batch;
    s->queue_cap += j->queue;
}

static void setup(sim *s)
{
    const uint32_t n = s->set->samples;
    double sum = 0;
    s->capacity = (uint64_t)(s->sc->cached * n);
    psti_share_spec spec = s->set->spec;
    spec.samples = n;
    spec.key[0] = s->set->seed;
    spec.key[1] = 77;
    spec.room = s->capacity;
    if (psti_share_new(&spec, &s->share, NULL))
        exit(2);
    for (int i = 0; i < s->sc->jobs; i++) {
        setup_job(s, &s->job[i], i);
        sum += s->sc->rate[i];
    }
    s->queue = calloc(s->queue_cap, sizeof *s->queue);
    s->prepare_time = WORKERS / (1.05 * sum); /* just enough for jobs that do not share */
    s->random = s->set->seed * 31 + 5;
}

static void tell_counts(const sim *s, model_out *out)
{
    psti_share_counts counts;
    psti_share_counts_get(s->share, &counts);
    for (int i = 0; i < s->sc->jobs; i++) {
        psti_share_member m;
        psti_share_member_get(s->share, s->job[i].member, &m);
        out->window = fmax(out->window, m.window);
        case_judge(&s->job[i].log, s->set->samples, s->set->epochs, &out->order);
    }
    out->ratio = (double)counts.preparations / (double)counts.deliveries;
}

void model_run(const share_case *sc, const model_set *set, model_out *out)
{
    sim s = {.sc = sc, .set = set};
    *out = (model_out){0};
    order_begin(&out->order);
    setup(&s);
    consumers(&s);
    for (uint64_t steps = 1; step(&s); steps++) {
        const char *wrong = set->check && steps % 1000 == 0 ? psti_share_check(s.share) : NULL;
        if (wrong) {
            puts(wrong);
            exit(2);
        }
    }
    tell_counts(&s, out);
    for (int i = 0; i < sc->jobs; i++)
        free(s.job[i].log.place);
    free(s.queue);
    psti_share_free(s.share);
}

/* One epoch: what is cached (ids below `held`) in a random order, then the rest in the job's. */
static uint64_t static_epoch(const model_set *set, uint32_t held, case_log *log)
{
    psti_permutation order, among;
    psti_permutation_init(&order, set->samples, set->seed, (uint64_t)log->epoch);
    psti_permutation_init(&among, held, set->seed + 1, (uint64_t)log->epoch);
    uint64_t made = 0;
    bool good = true;
    for (uint32_t i = 0; i < held; i++)
        good &= case_note(log, set->samples, set->epochs, (int64_t)psti_permutation_at(&among, i));
    for (uint32_t i = 0; i < set->samples; i++) {
        const int64_t id = (int64_t)psti_permutation_at(&order, i);
        if (id < held)
            continue;
        good &= case_note(log, set->samples, set->epochs, id);
        made++;
    }
    if (!good)
        exit(2);
    log->epoch++;
    log->delivered = 0;
    return made;
}

void model_static(const share_case *sc, const model_set *set, model_out *out)
{
    case_log log = {0};
    uint64_t made = 0;
    *out = (model_out){0};
    order_begin(&out->order);
    for (int e = 0; e < set->epochs; e++)
        made += static_epoch(set, (uint32_t)(sc->cached * set->samples), &log);
    case_judge(&log, set->samples, set->epochs, &out->order);
    out->ratio = (double)made / ((double)set->epochs * set->samples);
    free(log.place);
}
