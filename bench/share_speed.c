/* SPDX-License-Identifier: Apache-2.0
 * What sharing costs: eight members at different speeds on 1.3 million samples, a fifth of them
 * cached, 64 preparations under way. Times every psti_share_next by its answer, and what a
 * preparation costs when it ends (value, victim, removal, insertion); prints mean and p99, and the
 * memory of the group against its limit. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/hash.h"
#include "sample/share.h"

enum { SAMPLES = 1300000, ROOM = 260000, MEMBERS = 8, FLIGHT = 64, KINDS = 6 };
enum { NEXT_ALL = 4, REPLACE = 5 };

static const char *const names[KINDS] = {
    "none", "wait", "hit", "prepare", "next, all answers", "end of a preparation"};
/* What took longer than 50 us was interrupted by other processes: counted apart. */
typedef struct timings {
    uint64_t count, sum, longest, interrupted;
    uint32_t at[50001]; /* by nanosecond */
} timings;
static timings taken[KINDS];

static void note(int kind, uint64_t ns)
{
    timings *t = &taken[kind];
    if (ns > 50000) {
        t->interrupted++;
        return;
    }
    t->count++;
    t->sum += ns;
    t->longest = ns > t->longest ? ns : t->longest;
    t->at[ns]++;
}

static uint64_t quantile(const timings *t, double share)
{
    uint64_t below = 0;
    for (int ns = 0; ns <= 50000; ns++)
        if ((double)(below += t->at[ns]) >= share * (double)t->count)
            return (uint64_t)ns;
    return 50000;
}

static void end_preparation(psti_share *share, const psti_share_pick *pick)
{
    const uint64_t start = psti_now_ns();
    psti_share_counts counts;
    uint32_t entry;
    double value;
    void *old;
    const double worth = psti_share_wanted(share, pick);
    psti_share_counts_get(share, &counts);
    if (worth > 0 && counts.resident >= ROOM && psti_share_victim(share, NULL, &entry, &value))
        psti_share_remove(share, entry);
    if (worth > 0)
        psti_share_insert(share, pick, NULL, &entry, &old);
    else
        psti_share_finish(share, pick);
    note(REPLACE, psti_now_ns() - start);
}

static void call(psti_share *share, int member, psti_share_pick *flight, uint64_t *begun)
{
    psti_share_pick pick;
    const uint64_t start = psti_now_ns();
    psti_share_next(share, member, &pick);
    const uint64_t took = psti_now_ns() - start;
    note((int)pick.kind, took);
    note(NEXT_ALL, took);
    if (pick.kind == PSTI_SHARE_NONE)
        psti_share_epoch(share, member, NULL);
    if (pick.kind != PSTI_SHARE_PREPARE)
        return;
    psti_share_pick *slot = &flight[(*begun)++ % FLIGHT];
    if (*begun > FLIGHT)
        end_preparation(share, slot);
    *slot = pick;
}

static void report(psti_share *share)
{
    for (int i = 0; i < KINDS; i++)
        if (taken[i].count)
            printf("%-20s %8lu calls  mean %5lu ns  p50 %5lu  p99 %6lu  longest %5lu ns, %lu "
                   "interrupted\n",
                   names[i], (unsigned long)taken[i].count,
                   (unsigned long)(taken[i].sum / taken[i].count),
                   (unsigned long)quantile(&taken[i], .5), (unsigned long)quantile(&taken[i], .99),
                   (unsigned long)taken[i].longest, (unsigned long)taken[i].interrupted);
    psti_share_counts c;
    psti_share_counts_get(share, &c);
    const double limit = 24e6 + 4.0 * (double)c.resident * MEMBERS;
    printf("%lu deliveries, %.3f preparations each; %lu resident; %.1f MB of at most %.1f MB\n",
           (unsigned long)c.deliveries, (double)c.preparations / (double)c.deliveries,
           (unsigned long)c.resident, (double)c.bytes / 1e6, limit / 1e6);
}

int main(int argc, char **argv)
{
    const uint64_t calls = argc > 1 ? strtoull(argv[1], NULL, 10) : 4000000;
    static psti_share_pick flight[FLIGHT];
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    spec.samples = SAMPLES;
    spec.room = ROOM;
    spec.key[0] = 1;
    psti_share *share;
    if (psti_share_new(&spec, &share, NULL))
        return 1;
    for (int i = 0, member; i < MEMBERS; i++) {
        if (psti_share_join(share, false, &member, NULL))
            return 1;
        psti_share_epoch(share, member, NULL);
    }
    uint64_t begun = 0, random = 7;
    for (uint64_t i = 0; i < calls; i++) {
        random += 0x9e3779b97f4a7c15u;
        const uint64_t draw = psti_mix64(random) % 36; /* member j is drawn j + 1 times in 36 */
        int member = 0;
        for (uint64_t upto = 1; draw >= upto; upto += (uint64_t)++member + 1)
            continue;
        call(share, member, flight, &begun);
        if (i == calls / 3)
            memset(taken, 0, sizeof taken); /* the cache is full and the members are apart */
    }
    report(share);
    psti_share_free(share);
    return 0;
}
