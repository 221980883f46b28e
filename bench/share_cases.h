/* SPDX-License-Identifier: Apache-2.0
 * What the benches of sharing have in common: the cases they run, by how much the jobs of a case
 * differ and how much of the dataset is cached, and what a run of one tells. */
#ifndef BENCH_SHARE_CASES_H
#define BENCH_SHARE_CASES_H

#include <math.h>
#include <stdint.h>

#include "order_stats.h"

enum { CASE_JOBS = 4 };

typedef struct share_case {
    const char *name;
    int jobs;
    double rate[CASE_JOBS], offset[CASE_JOBS]; /* offset: epochs of its own */
    double cached, target;                     /* preparations per delivery */
    bool substitutes; /* they stand too far apart to find each other's work in order */
} share_case;

static const share_case share_cases[] = {
    {"3 equal, within 2 %", 3, {1, 1, 1}, {0, .01, .02}, .05, 1.05 / 3, false},
    {"3 equal, within 15 %", 3, {1, 1, 1}, {0, .1, .15}, .20, 1.10 / 3, false},
    {"1 : 2 : 3 : 5", 4, {1, 2, 3, 5}, {0}, .20, 1.25 * 5 / 11, true},
    {"1 : 2 : 3 : 5", 4, {1, 2, 3, 5}, {0}, .05, 1.60 * 5 / 11, true},
    {"4 equal at 0, .3, .7, .1", 4, {1, 1, 1, 1}, {0, .3, .7, .1}, .20, .52, true},
};
enum { SHARE_CASES = sizeof share_cases / sizeof *share_cases };

/* A preparation serves each job at most once: no fewer are possible. */
static inline double case_bound(const share_case *sc)
{
    double sum = 0, most = 0;
    for (int i = 0; i < sc->jobs; i++) {
        sum += sc->rate[i];
        most = fmax(most, sc->rate[i]);
    }
    return most / sum;
}

/* What a job notes of its deliveries: where in its epoch each sample came. */
typedef struct case_log {
    int epoch, rows;            /* whole epochs; epochs there is room for */
    uint32_t delivered, *place; /* in the open epoch; [epoch][id] */
} case_log;

/* room: epochs to make room for when there is none. False when out of memory. */
static inline bool case_note(case_log *log, uint32_t samples, int room, int64_t id)
{
    if (log->epoch == log->rows) {
        log->rows += room;
        log->place = realloc(log->place, (size_t)log->rows * samples * sizeof *log->place);
    }
    if (log->place)
        log->place[(size_t)log->epoch * samples + (size_t)id] = log->delivered++;
    return log->place != NULL;
}

/* The last full epochs. */
static inline void case_judge(const case_log *log, uint32_t samples, int epochs, order_verdict *v)
{
    order_add(v, log->place + (size_t)(log->epoch - epochs) * samples, samples, epochs);
}

#endif
