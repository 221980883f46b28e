/* SPDX-License-Identifier: Apache-2.0
 * What sharing costs: eight members at different speeds on 1.3 million samples, a fifth of them
 * cached, 64 preparations under way. Times every psti_share_next by its answer, and what a
 * preparation costs when it ends, in the cache that the engine has and as the engine does it: its
 * value, room among entries of less worth, insertion; without the copying of pixels. Prints mean
 * and p99, and the memory of the group against its limit. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "core/clock.h"
#include "core/hash.h"
#include "sample/sample.h"

enum { SAMPLES = 1300000, ROOM = 260000, MEMBERS = 8, FLIGHT = 64, KINDS = 6 };
enum { NEXT_ALL = 4, REPLACE = 5, ENTRY_BYTES = 192 };

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

/* ---- the cache ------------------------------------------------------------------------------- */

static psti_cache *cache;
static psti_cache_owner *owner;

/* As much as the entries that there is room for take. */
static bool take(void *user, uint64_t bytes)
{
    psti_share_counts counts;
    (void)bytes;
    psti_share_counts_get(user, &counts);
    return counts.resident < ROOM;
}

static void give(void *user, uint64_t bytes)
{
    (void)user;
    (void)bytes;
}

static double weight_of(void *user, const psti_cache_entry *entry)
{
    return psti_share_value(user, (uint32_t)psti_cache_note(entry));
}

static void evicted(void *user, psti_cache_entry *entry)
{
    psti_share_remove(user, (uint32_t)psti_cache_note(entry));
}

static bool open_cache(psti_share *share)
{
    const psti_cache_spec spec = {(uint64_t)4 << 30, take, give, share};
    const psti_cache_owner_spec augmented = {
        .form = PSTI_AUGMENTED, .weight = weight_of, .evicted = evicted, .user = share};
    if (psti_cache_new(&spec, &cache) || !(owner = psti_cache_owner_open(cache, &augmented)))
        return false;
    psti_cache_owner_value(owner, 1);
    return true;
}

static void insert(psti_share *share, const psti_share_pick *pick, psti_cache_entry *entry)
{
    uint32_t number;
    void *replaced;
    psti_cache_lock(cache);
    if (psti_share_insert(share, pick, entry, &number, &replaced) == 0) {
        psti_cache_set_note(entry, number);
        psti_cache_publish_locked(cache, entry);
        if (replaced)
            psti_cache_retire_locked(cache, replaced);
    }
    psti_cache_unlock(cache);
    psti_cache_unpin(cache, entry);
}

static void end_preparation(psti_share *share, const psti_share_pick *pick)
{
    const uint64_t start = psti_now_ns();
    const psti_cache_content content = {.bytes = ENTRY_BYTES};
    const psti_cache_key key = {{(uint64_t)pick->id, 0}, {pick->number, 0}};
    psti_cache_lock(cache);
    const double worth = psti_share_wanted(share, pick);
    psti_cache_unlock(cache);
    psti_cache_entry *entry =
        worth > 0 ? psti_cache_reserve(cache, owner, &key, &content, worth) : NULL;
    if (entry)
        insert(share, pick, entry);
    else
        psti_share_finish(share, pick);
    note(REPLACE, psti_now_ns() - start);
}

/* ---- members --------------------------------------------------------------------------------- */

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
    if (psti_share_new(&spec, &share, NULL) || !open_cache(share))
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
    psti_cache_owner_close(cache, owner);
    psti_cache_free(cache);
    psti_share_free(share);
    return 0;
}
