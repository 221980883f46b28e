/* SPDX-License-Identifier: Apache-2.0
 * Simulates jobs that share one cache: the sharing of src/sample itself, driven by a model of
 * consumers (a batch at a fixed rate), ready queues (a quarter of the cached entries together, at
 * most) and workers that take time to prepare. For each case it prints preparations per delivery
 * and how far that is from the bound max rate / sum of rates, beside what simpler rules give, and
 * from a second run whether each job's order stayed random. Exit status 1 when a target is missed.
 *
 *   share_sim [--samples N] [--epochs E] [--order-samples N] [--order-epochs E] [--seed S]
 *             [--case I] [--window W] [--window-max W] [--tolerance C] [--probes K] [--check 1]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "order_stats.h"
#include "sample/sample.h"
#include "sample/share.h"

enum { MAX_JOBS = 8, WORKERS = 8, LAGS = 5 };

typedef struct scenario {
    const char *name;
    int jobs;
    double rate[MAX_JOBS], offset[MAX_JOBS];
    double cached;
    double target; /* preparations per delivery */
} scenario;

typedef struct settings {
    uint32_t samples;
    int epochs;
    uint64_t seed;
    int batch;
    bool keep; /* never evict */
    bool check;
    psti_share_spec spec;
} settings;

typedef struct job {
    int member;
    double rate, next_time;
    bool started;
    uint32_t queue, batch;  /* most that may be picked and not consumed; consumed at once */
    uint32_t picked, ready; /* picked and not consumed; of these, ready */
    uint32_t making;        /* picked and not ready */
    uint32_t delivered;     /* in this epoch */
    int epoch;              /* -1: none begun */
    int rows;               /* epochs there is room for in place */
    uint32_t *place;        /* [epoch][id] */
} job;

typedef struct task {
    double end;
    int job;
    psti_share_pick pick;
} task;

typedef struct sim {
    const scenario *sc;
    const settings *set;
    psti_share *share;
    job job[MAX_JOBS];
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
    if (j->epoch == j->rows) {
        j->rows += s->set->epochs;
        j->place = realloc(j->place, (size_t)j->rows * s->set->samples * sizeof *j->place);
    }
    j->place[(size_t)j->epoch * s->set->samples + id] = j->delivered;
    j->delivered++;
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
    j->epoch++;
    j->delivered = 0;
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
        more |= s->job[i].epoch < s->set->epochs;
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

/* ---- statistics ------------------------------------------------------------------------------ */

typedef struct outcome {
    double ratio, bound, window;
    double worst[LAGS]; /* mean correlation, of the job where it is largest */
    double position_p, class_p, holm_p;
} outcome;

static void judge(const sim *s, outcome *out)
{
    const uint32_t n = s->set->samples;
    double p[2 * MAX_JOBS];
    int count = 0;
    out->position_p = out->class_p = 1;
    for (int i = 0; i < s->sc->jobs; i++) {
        const job *j = &s->job[i];
        const int epochs = s->set->epochs; /* the last full ones */
        const uint32_t *place = j->place + (size_t)(j->epoch - epochs) * n;
        for (int lag = 1; lag <= LAGS; lag++) {
            const double c = order_correlation(place, n, epochs, lag);
            if (fabs(c) > fabs(out->worst[lag - 1]))
                out->worst[lag - 1] = c;
        }
        p[count++] = order_position_p(place, n, epochs);
        out->position_p = fmin(out->position_p, p[count - 1]);
        p[count++] = order_class_p(place, n, epochs);
        out->class_p = fmin(out->class_p, p[count - 1]);
    }
    out->holm_p = order_holm(p, count);
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
    j->epoch = -1;
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

static void tell_counts(const sim *s, outcome *out)
{
    psti_share_counts counts;
    psti_share_counts_get(s->share, &counts);
    double sum = 0, most = 0;
    for (int i = 0; i < s->sc->jobs; i++) {
        psti_share_member m;
        psti_share_member_get(s->share, s->job[i].member, &m);
        out->window = fmax(out->window, m.window);
        sum += s->sc->rate[i];
        most = fmax(most, s->sc->rate[i]);
    }
    out->ratio = (double)counts.preparations / (double)counts.deliveries;
    out->bound = most / sum;
}

static void simulate(const scenario *sc, const settings *set, outcome *out)
{
    sim s = {.sc = sc, .set = set};
    *out = (outcome){0};
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
    judge(&s, out);
    for (int i = 0; i < sc->jobs; i++)
        free(s.job[i].place);
    free(s.queue);
    psti_share_free(s.share);
}

/* Plain substitution over a cache that keeps what it has (decoded entries): whenever the next of
 * its order is not cached, a job takes any cached one it has not seen. Hits are the cached share,
 * whatever it does, and the cached samples come first in every epoch: one job tells all. */
static double plain_substitution(const settings *set, double cached, double *correlation)
{
    const uint32_t n = set->samples, held = (uint32_t)(cached * n); /* ids below `held` */
    uint32_t *place = calloc((size_t)set->epochs * n, sizeof *place);
    uint64_t made = 0;
    for (int e = 0; place && e < set->epochs; e++) {
        psti_permutation order, among;
        psti_permutation_init(&order, n, set->seed, (uint64_t)e);
        psti_permutation_init(&among, held, set->seed + 1, (uint64_t)e);
        uint32_t delivered = 0;
        for (uint32_t i = 0; i < held; i++)
            place[(size_t)e * n + psti_permutation_at(&among, i)] = delivered++;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t id = (uint32_t)psti_permutation_at(&order, i);
            if (id < held)
                continue;
            place[(size_t)e * n + id] = delivered++;
            made++;
        }
    }
    *correlation = place ? order_correlation(place, n, set->epochs, 1) : 0;
    free(place);
    return (double)made / ((double)set->epochs * n);
}

static const scenario scenarios[] = {
    {"3 equal, within 2 %", 3, {1, 1, 1}, {0, .01, .02}, .05, 1.05 / 3},
    {"3 equal, within 15 %", 3, {1, 1, 1}, {0, .1, .15}, .20, 1.10 / 3},
    {"1 : 2 : 3 : 5", 4, {1, 2, 3, 5}, {0}, .20, 1.25 * 5 / 11},
    {"1 : 2 : 3 : 5", 4, {1, 2, 3, 5}, {0}, .05, 1.60 * 5 / 11},
    {"4 equal at 0, .3, .7, .1", 4, {1, 1, 1, 1}, {0, .3, .7, .1}, .20, .52},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

/* Returns whether all targets are met. */
static bool tell(const scenario *sc, const settings *figures, const settings *order)
{
    outcome ours, kept, random;
    double plain_correlation;
    settings never = *figures;
    never.keep = true;
    simulate(sc, figures, &ours);
    simulate(sc, &never, &kept);
    simulate(sc, order, &random);
    const double plain = plain_substitution(order, sc->cached, &plain_correlation);
    bool good = ours.ratio <= sc->target && random.holm_p > 0.01;
    printf("%-25s %4.0f %%  %.3f (%.2f)  %.3f  %.2f   1.000  %.3f (%.2f)  %.3f   %.2f  ", sc->name,
           100 * sc->cached, ours.ratio, ours.ratio / ours.bound, sc->target, 1 - ours.ratio, plain,
           plain_correlation, kept.ratio, random.window);
    for (int i = 0; i < LAGS; i++) {
        printf(" %6.3f", random.worst[i]);
        good &= fabs(random.worst[i]) <= 0.04;
    }
    printf("  %.3f %.3f %.3f  %s\n", random.position_p, random.class_p, random.holm_p,
           good ? "met" : "MISSED");
    fflush(stdout);
    return good;
}

static int option(const char *name, const char *value, settings *f, settings *o)
{
    const double number = atof(value);
    if (!strcmp(name, "--samples"))
        f->samples = (uint32_t)number;
    else if (!strcmp(name, "--epochs"))
        f->epochs = (int)number;
    else if (!strcmp(name, "--order-samples"))
        o->samples = (uint32_t)number;
    else if (!strcmp(name, "--order-epochs"))
        o->epochs = (int)number;
    else if (!strcmp(name, "--seed"))
        f->seed = o->seed = (uint64_t)number;
    else if (!strcmp(name, "--check"))
        f->check = o->check = number > 0;
    else if (!strcmp(name, "--window"))
        f->spec.window = o->spec.window = number;
    else if (!strcmp(name, "--window-max"))
        f->spec.window_max = o->spec.window_max = number;
    else if (!strcmp(name, "--tolerance"))
        f->spec.tolerance = o->spec.tolerance = number;
    else if (!strcmp(name, "--probes"))
        f->spec.probes = o->spec.probes = (uint32_t)number;
    else if (!strcmp(name, "--flags"))
        f->spec.flags = o->spec.flags = (uint32_t)number;
    else
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    settings figures = {.samples = 20000, .epochs = 10, .seed = 1, .batch = 16};
    psti_share_spec_init(&figures.spec);
    settings order = figures;
    order.samples = 2000;
    order.epochs = 60;
    int only = -1;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && !strcmp(argv[i], "--case"))
            only = atoi(argv[i + 1]);
        else if (i + 1 == argc || option(argv[i], argv[i + 1], &figures, &order)) {
            fprintf(stderr, "share_sim: %s is no option, or has no value\n", argv[i]);
            return 2;
        }
    }
    printf("%-25s cached  ours (xbound)  target hits   none   plain (corr)   kept   window  "
           "correlation, lags 1 to 5           p: position class Holm\n",
           "jobs");
    bool good = true;
    for (int i = 0; i < SCENARIOS; i++)
        if (only < 0 || only == i)
            good &= tell(&scenarios[i], &figures, &order);
    return good ? 0 : 1;
}
