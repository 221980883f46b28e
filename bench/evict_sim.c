/* SPDX-License-Identifier: Apache-2.0
 * Which datasets make way, simulated with the depot's own rule (psti_depot_choose) on the schedules
 * of DLCache's evaluation: 6 capacities x 3 x 4 x 4 mixes of jobs x 50 shuffles = 14,400. Jobs:
 * ILSVRC 1, 3 or 5 times; LibriSpeech 1, 3, 5 or 7 times, each time by as many trainings; windows
 * of 2, 4, 6 or 8 days of IDS2018 that slide over it; Inrix once. Preparation time is the seconds
 * of what has to be fetched, by eight at a time.
 *
 * Two ways to let objects in. `each`: one after the other, whatever is there may go, also what the
 * same job has just fetched: DLCache's simulation. `whole`: room for everything a job lacks is made
 * before it starts, and what it needs stays, as the depot does it: more is promised, so it costs
 * more.
 *
 *   evict_sim [--shuffles N] [--gap SECONDS] [--seed N] [--json]
 *
 * Exit code 1 when the depot's rule takes longer than DLCache's. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "depot/depot.h"
#include "evict_objects.h"

enum { OBJECTS = sizeof measured / sizeof *measured, JOBS_MOST = 32, PARALLEL = 8 };

typedef struct sim_job {
    bool wants[OBJECTS];
    int times; /* references to each */
} sim_job;

typedef enum rule { DEPOT, DLCACHE, GREEDY, LFU, LRU, RULES } rule;
static const char *const rule_names[RULES] = {"depot: decayed uses x seconds",
                                              "DLCache: (count, seconds)", "greedy: seconds",
                                              "LFU: decayed uses", "LRU"};

typedef struct shelf {
    psti_depot_unit units[OBJECTS]; /* held = not there, or must stay */
    bool there[OBJECTS];
    double count[OBJECTS];
    uint64_t used, touched[OBJECTS], turn;
    double fetched_s;
} shelf;

static uint64_t random_state;

static uint64_t draw(void)
{
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t x = random_state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- schedules ----------------------------------------------------------------------------------
 */

static int members(int dataset, int out[OBJECTS])
{
    int count = 0;
    for (int i = 0; i < OBJECTS; i++)
        if (measured[i].dataset == dataset)
            out[count++] = i;
    return count;
}

static int make_schedule(int reuse, int share, int last, sim_job jobs[JOBS_MOST])
{
    int kinds[JOBS_MOST], count = 0, days[OBJECTS], window = 0;
    const int day_count = members(IDS2018, days);
    for (int i = 0; i < reuse; i++)
        kinds[count++] = ILSVRC;
    for (int i = 0; i < share; i++)
        kinds[count++] = LIBRISPEECH;
    for (int i = last; i < day_count; i++)
        kinds[count++] = IDS2018;
    kinds[count++] = INRIX;
    for (int i = count - 1; i > 0; i--) {
        const int k = (int)(draw() % (uint64_t)(i + 1)), kept = kinds[i];
        kinds[i] = kinds[k];
        kinds[k] = kept;
    }
    for (int j = 0; j < count; j++) {
        memset(&jobs[j], 0, sizeof jobs[j]);
        jobs[j].times = kinds[j] == LIBRISPEECH ? share : 1;
        for (int i = 0; i < OBJECTS; i++)
            jobs[j].wants[i] = kinds[j] != IDS2018 && measured[i].dataset == kinds[j];
        for (int d = window; kinds[j] == IDS2018 && d <= window + last; d++)
            jobs[j].wants[days[d]] = true;
        window += kinds[j] == IDS2018;
    }
    return count;
}

/* ---- a shelf of some capacity
 * -------------------------------------------------------------------- */

static void drop(shelf *s, int i)
{
    s->there[i] = false;
    s->units[i].held = true;
    s->used -= measured[i].bytes;
}

/* The rules that it is compared with take the lowest of their own order until there is room. */
static bool before(const shelf *s, rule by, int64_t now, int a, int b)
{
    const double x = psti_depot_decayed(s->units[a].uses, s->units[a].last_s, now);
    const double y = psti_depot_decayed(s->units[b].uses, s->units[b].last_s, now);
    switch (by) {
    case DLCACHE:
        return s->count[a] != s->count[b] ? s->count[a] < s->count[b]
                                          : measured[a].seconds < measured[b].seconds;
    case GREEDY:
        return measured[a].seconds < measured[b].seconds;
    case LFU:
        return x != y ? x < y : s->touched[a] < s->touched[b];
    default:
        return s->touched[a] < s->touched[b];
    }
}

static void make_room(shelf *s, rule by, uint64_t need, int64_t now)
{
    bool goes[OBJECTS];
    uint32_t order[OBJECTS];
    if (by == DEPOT) {
        if (psti_depot_choose(s->units, OBJECTS, need, now, order, goes) < need)
            abort();
        for (int i = 0; i < OBJECTS; i++)
            if (goes[i])
                drop(s, i);
        return;
    }
    for (uint64_t freed = 0; freed < need;) {
        int lowest = -1;
        for (int i = 0; i < OBJECTS; i++)
            if (!s->units[i].held && (lowest < 0 || before(s, by, now, i, lowest)))
                lowest = i;
        if (lowest < 0)
            abort();
        freed += measured[lowest].bytes;
        drop(s, lowest);
    }
}

static void touch(shelf *s, int i, int times, int64_t now)
{
    psti_depot_unit *u = &s->units[i];
    for (int k = 0; k < times; k++) {
        u->uses = psti_depot_used(u->uses, u->last_s, now);
        u->last_s = now;
    }
    s->count[i] += times;
    s->touched[i] = ++s->turn;
}

static void take_in(shelf *s, int i)
{
    if (s->there[i])
        return;
    s->there[i] = true;
    s->units[i].held = false;
    s->used += measured[i].bytes;
    s->fetched_s += measured[i].seconds / PARALLEL;
}

static void run_each(shelf *s, rule by, const sim_job *job, uint64_t capacity, int64_t now)
{
    for (int i = 0; i < OBJECTS; i++) {
        if (!job->wants[i])
            continue;
        if (!s->there[i] && s->used + measured[i].bytes > capacity)
            make_room(s, by, s->used + measured[i].bytes - capacity, now);
        touch(s, i, job->times, now);
        take_in(s, i);
    }
}

static void run_whole(shelf *s, rule by, const sim_job *job, uint64_t capacity, int64_t now)
{
    uint64_t lacks = 0;
    for (int i = 0; i < OBJECTS; i++)
        lacks += job->wants[i] && !s->there[i] ? measured[i].bytes : 0;
    for (int i = 0; i < OBJECTS; i++)
        s->units[i].held = !s->there[i] || job->wants[i];
    if (s->used + lacks > capacity)
        make_room(s, by, s->used + lacks - capacity, now);
    for (int i = 0; i < OBJECTS; i++) {
        if (!job->wants[i])
            continue;
        touch(s, i, job->times, now);
        take_in(s, i);
    }
}

static double simulate(rule by, bool whole, const sim_job *jobs, int count, uint64_t capacity,
                       int64_t gap_s)
{
    shelf s = {0};
    int64_t now = 0;
    for (int i = 0; i < OBJECTS; i++)
        s.units[i] = (psti_depot_unit){
            .bytes = measured[i].bytes, .refetch_s = measured[i].seconds / PARALLEL, .held = true};
    for (int j = 0; j < count; j++) {
        now += gap_s;
        (whole ? run_whole : run_each)(&s, by, &jobs[j], capacity, now);
        if (s.used > capacity)
            abort();
        for (int i = 0; i < OBJECTS; i++)
            s.units[i].held = !s.there[i];
    }
    return s.fetched_s;
}

/* ---- all of them
 * --------------------------------------------------------------------------------- */

typedef struct totals {
    double sum[2][RULES];
    long count;
} totals;

static void run_grid(int shuffles, int64_t gap_s, totals *t)
{
    sim_job jobs[JOBS_MOST];
    for (int capacity = 160; capacity <= 260; capacity += 20)
        for (int reuse = 1; reuse < 6; reuse += 2)
            for (int share = 1; share < 8; share += 2)
                for (int last = 1; last < 8; last += 2)
                    for (int k = 0; k < shuffles; k++) {
                        const int count = make_schedule(reuse, share, last, jobs);
                        for (int whole = 0; whole < 2; whole++)
                            for (int r = 0; r < RULES; r++)
                                t->sum[whole][r] += simulate(
                                    r, whole, jobs, count, (uint64_t)capacity * 1000000000u, gap_s);
                        t->count++;
                    }
}

int main(int argc, char **argv)
{
    int shuffles = 50;
    long long gap_s = 3600;
    bool as_json = false;
    random_state = 12345;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (strcmp(argv[i], "--shuffles") == 0 && i + 1 < argc)
            shuffles = (int)strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--gap") == 0 && i + 1 < argc)
            gap_s = strtoll(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            random_state = strtoull(argv[++i], NULL, 10);
        else
            return fprintf(stderr,
                           "evict_sim [--shuffles N] [--gap SECONDS] [--seed N] [--json]\n"),
                   2;
    }
    totals t = {0};
    run_grid(shuffles, gap_s, &t);
    if (as_json) {
        printf("{\"schedules\": %ld, \"gap_s\": %lld", t.count, gap_s);
        for (int whole = 0; whole < 2; whole++)
            for (int r = 0; r < RULES; r++)
                printf(", \"%s %s\": %.1f", whole ? "whole" : "each", rule_names[r],
                       t.sum[whole][r] / (double)t.count);
        printf("}\n");
    } else {
        printf("%ld schedules, %lld s between jobs; mean preparation time in seconds\n", t.count,
               gap_s);
        printf("%-32s %10s %10s\n", "", "each", "whole");
        for (int r = 0; r < RULES; r++)
            printf("%-32s %10.0f %10.0f\n", rule_names[r], t.sum[0][r] / (double)t.count,
                   t.sum[1][r] / (double)t.count);
    }
    return t.sum[0][DEPOT] > t.sum[0][DLCACHE] || t.sum[1][DEPOT] > t.sum[1][DLCACHE];
}
