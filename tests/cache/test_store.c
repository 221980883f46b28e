/* SPDX-License-Identifier: Apache-2.0
 * The cache by itself: what is found, what makes way, what is charged, and that nothing of it
 * drifts while sizes come and go. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/cache.h"
#include "check.h"
#include "core/hash.h"
#include "core/memory.h"

typedef struct purse {
    uint64_t limit, taken, most;
} purse;

static bool take(void *user, uint64_t bytes)
{
    purse *p = user;
    if (p->taken + bytes > p->limit)
        return false;
    p->taken += bytes;
    p->most = p->taken > p->most ? p->taken : p->most;
    return true;
}

static void give(void *user, uint64_t bytes)
{
    purse *p = user;
    CHECK(p->taken >= bytes);
    p->taken -= bytes;
}

static psti_cache *cache_of(purse *p)
{
    const psti_cache_spec spec = {p->limit, take, give, p};
    psti_cache *cache = NULL;
    CHECK(psti_cache_new(&spec, &cache) == 0);
    return cache;
}

static psti_cache_owner *owner_of(psti_cache *cache, psti_form form, uint64_t name, double density)
{
    const psti_cache_owner_spec spec = {.form = form, .name = {name, 0}};
    psti_cache_owner *owner = psti_cache_owner_open(cache, &spec);
    psti_cache_owner_value(owner, density);
    return owner;
}

static psti_cache_key key_of(uint64_t sample, uint64_t form)
{
    return (psti_cache_key){{psti_mix64(sample + 1), sample}, {form, form}};
}

/* An entry whose bytes say whose they are. */
static bool put(psti_cache *cache, psti_cache_owner *owner, uint64_t sample, uint64_t form,
                size_t bytes)
{
    const psti_cache_key key = key_of(sample, form);
    const psti_cache_content content = {.bytes = bytes};
    psti_cache_entry *e = psti_cache_reserve(cache, owner, &key, &content, 1);
    if (!e)
        return false;
    memset(psti_cache_fill_bytes(e), (int)(sample * 7 + form) & 255, bytes);
    psti_cache_publish(cache, e);
    psti_cache_unpin(cache, e);
    return true;
}

/* 1: there and right; 0: not there; -1: wrong bytes. */
static int look(psti_cache *cache, uint64_t sample, uint64_t form)
{
    bool open;
    const psti_cache_key key = key_of(sample, form);
    psti_cache_entry *e = psti_cache_find(cache, &key, &open);
    if (!e)
        return 0;
    size_t bytes;
    const uint8_t *data = psti_cache_bytes(e, &bytes);
    const uint8_t want = (uint8_t)(sample * 7 + form);
    int found = 1;
    for (size_t i = 0; i < bytes; i += 61)
        found = data[i] == want ? found : -1;
    found = data[bytes - 1] == want ? found : -1;
    psti_cache_unpin(cache, e);
    return found;
}

static void entries_are_found_until_something_worth_more_comes(void)
{
    purse p = {.limit = 1 << 20};
    psti_cache *cache = cache_of(&p);
    psti_cache_owner *low = owner_of(cache, PSTI_ENCODED, 1, 1);
    psti_cache_owner *high = owner_of(cache, PSTI_DECODED, 2, 2);
    int there = 0, kept = 0;
    for (uint64_t i = 0; i < 40; i++)
        there += put(cache, low, i, 1, 50000);
    CHECKF(there >= 18 && there <= 20, "%d of 40 fit", there);
    for (uint64_t i = 0; i < 40; i++)
        kept += look(cache, i, 1);
    CHECK(kept == there); /* equals do not displace each other */
    CHECK(look(cache, 0, 1) == 1 && look(cache, 39, 1) == 0);
    int came = 0;
    for (uint64_t i = 0; i < 40; i++)
        came += put(cache, high, i, 2, 50000);
    CHECKF(came == there, "%d came for %d", came, there);
    for (uint64_t i = 0; i < 40; i++)
        CHECK(look(cache, i, 1) == 0);
    psti_cache_stats s;
    psti_cache_stats_get(cache, &s);
    CHECK(s.entries == (uint64_t)came && s.form_entries[PSTI_DECODED] == (uint64_t)came);
    CHECK(s.evictions == (uint64_t)there && s.bytes == p.taken);
    CHECK(psti_cache_check(cache, stderr) == 0);
    psti_cache_owner_close(cache, low);
    psti_cache_owner_close(cache, high);
    psti_cache_free(cache);
    CHECK(p.taken == 0 && p.most <= p.limit);
}

static void what_nobody_uses_any_more_makes_way_and_is_found_until_then(void)
{
    purse p = {.limit = 1 << 20};
    psti_cache *cache = cache_of(&p);
    psti_cache_owner *first = owner_of(cache, PSTI_DECODED, 1, 5);
    for (uint64_t i = 0; i < 40; i++)
        put(cache, first, i, 1, 50000);
    psti_cache_owner_close(cache, first);
    CHECK(look(cache, 3, 1) == 1);
    psti_cache_owner *second = owner_of(cache, PSTI_DECODED, 2, 0.001);
    CHECK(put(cache, second, 1, 2, 200000) && put(cache, second, 2, 2, 200000));
    CHECK(psti_cache_check(cache, stderr) == 0);
    psti_cache_owner_close(cache, second);
    psti_cache_free(cache);
}

static void a_pinned_entry_stays_whatever_comes(void)
{
    purse p = {.limit = 1 << 20};
    psti_cache *cache = cache_of(&p);
    psti_cache_owner *low = owner_of(cache, PSTI_ENCODED, 1, 1);
    psti_cache_owner *high = owner_of(cache, PSTI_DECODED, 2, 9);
    for (uint64_t i = 0; i < 40; i++)
        put(cache, low, i, 1, 50000);
    bool open;
    const psti_cache_key key = key_of(5, 1);
    psti_cache_entry *held = psti_cache_find(cache, &key, &open);
    CHECK(held != NULL);
    for (uint64_t i = 0; i < 60; i++)
        put(cache, high, i, 2, 30000);
    psti_cache_clear(cache);
    size_t bytes;
    const uint8_t *data = psti_cache_bytes(held, &bytes);
    CHECK(bytes == 50000 && data[0] == (uint8_t)(5 * 7 + 1) && data[49999] == data[0]);
    psti_cache_unpin(cache, held);
    CHECK(look(cache, 5, 1) == 1 && look(cache, 6, 1) == 0);
    psti_cache_clear(cache);
    CHECK(look(cache, 5, 1) == 0);
    CHECK(psti_cache_check(cache, stderr) == 0);
    psti_cache_owner_close(cache, low);
    psti_cache_owner_close(cache, high);
    psti_cache_free(cache);
}

static void one_makes_an_entry_and_what_is_unfit_is_not_tried_again(void)
{
    purse p = {.limit = 1 << 20};
    psti_cache *cache = cache_of(&p);
    psti_cache_owner *owner = owner_of(cache, PSTI_DECODED, 1, 1);
    const psti_cache_key key = key_of(1, 1), other = key_of(2, 1);
    const psti_cache_content content = {.bytes = 100000};
    bool open;
    psti_cache_entry *e = psti_cache_reserve(cache, owner, &key, &content, 1);
    CHECK(e && !psti_cache_reserve(cache, owner, &key, &content, 1));
    CHECK(!psti_cache_find(cache, &key, &open) && !open);
    psti_cache_abandon(cache, e, true);
    CHECK(!psti_cache_find(cache, &key, &open) && !open);
    e = psti_cache_reserve(cache, owner, &other, &content, 1);
    CHECK(e != NULL);
    psti_cache_abandon(cache, e, false);
    CHECK(!psti_cache_find(cache, &other, &open) && open);
    CHECK(psti_cache_check(cache, stderr) == 0);
    psti_cache_owner_close(cache, owner);
    psti_cache_free(cache);
    CHECK(p.taken == 0);
}

/* ---- weights and owners' books --------------------------------------------------------------- */

static uint64_t evicted_sum;

static double weight(void *user, const psti_cache_entry *entry)
{
    const double *worth = user;
    return worth[psti_cache_note(entry)];
}

static void evicted(void *user, psti_cache_entry *entry)
{
    (void)user;
    evicted_sum += psti_cache_note(entry);
}

static psti_cache_entry *put_loose(psti_cache *cache, psti_cache_owner *owner, uint64_t note,
                                   double worth)
{
    const psti_cache_content content = {.bytes = 100000};
    psti_cache_entry *e = psti_cache_reserve(cache, owner, NULL, &content, worth);
    if (!e)
        return NULL;
    memset(psti_cache_fill_bytes(e), (int)note, 100000);
    psti_cache_lock(cache);
    psti_cache_set_note(e, note);
    psti_cache_publish_locked(cache, e);
    psti_cache_unlock(cache);
    psti_cache_unpin(cache, e);
    return e;
}

static void the_least_weight_goes_and_its_owner_is_told(void)
{
    double worth[16] = {9, 8, 3, 7, 6, 5, 8, 9, 7, 5};
    purse p = {.limit = 1000000};
    psti_cache *cache = cache_of(&p);
    const psti_cache_owner_spec spec = {
        .form = PSTI_AUGMENTED, .weight = weight, .evicted = evicted, .user = worth};
    psti_cache_owner *owner = psti_cache_owner_open(cache, &spec);
    psti_cache_owner_value(owner, 1);
    evicted_sum = 0;
    uint64_t note = 0;
    while (note < 9 && put_loose(cache, owner, note, worth[note]))
        note++;
    CHECK(note == 9);
    CHECK(!put_loose(cache, owner, 10, 2.5)); /* worth less than all */
    worth[10] = 4;
    CHECK(put_loose(cache, owner, 10, 4) && evicted_sum == 2);
    worth[11] = 100;
    CHECK(put_loose(cache, owner, 11, 100) && evicted_sum == 2 + 10);
    /* Closing: those in use go with their last pin, and nobody is told. */
    worth[12] = 200;
    psti_cache_entry *held = put_loose(cache, owner, 12, 200);
    const uint64_t told = evicted_sum;
    psti_cache_lock(cache);
    psti_cache_pin_locked(held);
    psti_cache_unlock(cache);
    psti_cache_owner_close(cache, owner);
    psti_cache_stats s;
    psti_cache_stats_get(cache, &s);
    size_t bytes;
    CHECK(s.entries == 0 && psti_cache_bytes(held, &bytes)[99999] == 12);
    CHECK(psti_cache_check(cache, stderr) == 0);
    psti_cache_unpin(cache, held);
    CHECK(psti_cache_check(cache, stderr) == 0 && evicted_sum == told);
    psti_cache_shrink(cache, s.books);
    psti_cache_stats_get(cache, &s);
    CHECK(s.bytes <= s.books + 2 * 4096); /* the ends of what is free */
    psti_cache_free(cache);
    CHECK(p.taken == 0);
}

/* ---- churn ----------------------------------------------------------------------------------- */

static uint64_t resident(void)
{
    unsigned long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu %lu", &all, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Sizes change their kind again and again; each newcomer is worth more than what stands. */
static void what_fits_does_not_shrink_with_time(void)
{
    enum { ROUNDS = 30, EACH = 600 };
    purse p = {.limit = 24 << 20};
    psti_cache *cache = cache_of(&p);
    double worth[1] = {0};
    const psti_cache_owner_spec spec = {.form = PSTI_AUGMENTED, .weight = weight, .user = worth};
    psti_cache_owner *owner = psti_cache_owner_open(cache, &spec);
    psti_cache_owner_value(owner, 1);
    const uint64_t before = resident();
    uint64_t random = 1, live[2] = {0};
    /* A large one may take the place of 256 small ones, or find no room after as many are gone:
     * single rounds end with less. */
    int refused = 0, rounds[2] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        const size_t scale = (size_t)1 << (10 + round * 3 % 8); /* 1 to 128 KiB */
        for (int i = 0; i < EACH; i++) {
            random = psti_mix64(random + 1);
            const psti_cache_content content = {.bytes = scale + random % (4 * scale)};
            psti_cache_entry *e = psti_cache_reserve(cache, owner, NULL, &content, 1);
            if (!e) {
                refused++;
                continue;
            }
            memset(psti_cache_fill_bytes(e), 1, content.bytes);
            psti_cache_publish(cache, e);
            psti_cache_unpin(cache, e);
        }
        psti_cache_stats s;
        psti_cache_stats_get(cache, &s);
        if (round > 4 && s.evictions && scale >= 16384) {
            live[round > ROUNDS / 2] += s.form_bytes[PSTI_AUGMENTED];
            rounds[round > ROUNDS / 2]++;
        }
        CHECK(psti_cache_check(cache, stderr) == 0);
        CHECK(s.bytes == p.taken && s.bytes <= p.limit);
    }
    CHECKF(refused <= 10, "%d of %d found no room", refused, ROUNDS * EACH);
    for (int half = 0; half < 2; half++) {
        const double share = (double)live[half] / rounds[half] / (double)p.limit;
        CHECKF(share > 0.85, "%.3f of the budget held entries in half %d", share, half);
    }
    const uint64_t grown = resident() - before;
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    CHECKF(grown < p.limit + (4 << 20), "%.1f MiB resident", (double)grown / 0x1p20);
#else
    (void)grown; /* the sanitizer's own memory is in it */
#endif
    psti_cache_owner_close(cache, owner);
    psti_cache_free(cache);
    CHECK(p.taken == 0);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, SAMPLES = 300, STEPS = 4000 };
static psti_cache *common;
static psti_cache_owner *owners[3];

static void *churn(void *arg)
{
    uint64_t random = (uint64_t)(uintptr_t)arg;
    long wrong = 0;
    for (int i = 0; i < STEPS; i++) {
        random = psti_mix64(random + 0x9e3779b97f4a7c15u);
        const uint64_t sample = random % SAMPLES, form = random >> 20 & 1;
        const int found = look(common, sample, form);
        wrong += found < 0;
        if (!found)
            put(common, owners[form], sample, form, 2000 + sample * 37 % 9000);
        if (i % 512 == 0)
            psti_cache_owner_value(owners[random >> 30 & 1], (double)(random >> 40 & 7));
        if (i % 1024 == 7)
            psti_cache_retry(common);
        if (i % 1500 == 9)
            psti_cache_shrink(common, 300000);
    }
    return (void *)wrong;
}

static void many_threads_see_only_whole_entries(void)
{
    purse p = {.limit = 700000};
    pthread_t threads[THREADS];
    common = cache_of(&p);
    owners[0] = owner_of(common, PSTI_ENCODED, 1, 1);
    owners[1] = owner_of(common, PSTI_DECODED, 2, 1);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        CHECK(!wrong);
    }
    CHECK(psti_cache_check(common, stderr) == 0 && p.most <= p.limit);
    psti_cache_owner_close(common, owners[0]);
    psti_cache_owner_close(common, owners[1]);
    psti_cache_free(common);
    CHECK(p.taken == 0);
}

static void running_out_of_memory_while_making_one(void)
{
    for (uint64_t n = 1; n < 8; n++) {
        purse p = {.limit = 1 << 20};
        const psti_cache_spec spec = {p.limit, take, give, &p};
        psti_cache *cache = NULL;
        psti_mem_fail_at(n, false);
        if (psti_cache_new(&spec, &cache) == 0)
            psti_cache_free(cache);
        psti_mem_fail_at(0, false);
        CHECK(p.taken == 0);
    }
    psti_mem_stats s;
    psti_mem_stats_get(PSTI_MEM_CACHE, &s);
    CHECK(s.live == 0);
}

/* Whatever view of memory a volume was, its place in the cache has no gaps. */
static void volumes_are_laid_out_without_gaps(void)
{
    purse p = {.limit = 1 << 20};
    psti_cache *cache = cache_of(&p);
    psti_cache_owner *owner = owner_of(cache, PSTI_DECODED, 1, 1);
    const psti_geom size = {10, 20, 2, 30, PST_I16, PSTI_AXES_VOLUME};
    psti_decoded pictures[2] = {{.header = size, .field = psti_field_of(PST_VOLUME, &size)},
                                {.header = size, .field = psti_field_of(PST_MASK, &size)}};
    pictures[0].field.step[3] = -2;
    pictures[0].field.step[1] = 4000;
    const psti_cache_content content = {.pictures = pictures, .count = 2};
    const psti_cache_key key = key_of(1, 1);
    psti_cache_entry *e = psti_cache_reserve(cache, owner, &key, &content, 1);
    psti_decoded *mine = psti_cache_fill(e);
    CHECK(psti_field_dense(&mine[0].field) && mine[0].field.bytes == 24000);
    CHECK(mine[0].field.data + 24000 <= mine[1].field.data);
    CHECK(mine[1].header.depth == 30 && mine[1].field.step[1] == 400);
    for (int i = 0; i < 2; i++)
        memset(mine[i].field.data, 7, mine[i].field.bytes);
    psti_cache_publish(cache, e);
    psti_cache_unpin(cache, e);
    CHECK(psti_cache_check(cache, stderr) == 0);
    psti_cache_owner_close(cache, owner);
    psti_cache_free(cache);
}

int main(void)
{
    RUN(entries_are_found_until_something_worth_more_comes);
    RUN(what_nobody_uses_any_more_makes_way_and_is_found_until_then);
    RUN(a_pinned_entry_stays_whatever_comes);
    RUN(one_makes_an_entry_and_what_is_unfit_is_not_tried_again);
    RUN(the_least_weight_goes_and_its_owner_is_told);
    RUN(what_fits_does_not_shrink_with_time);
    RUN(many_threads_see_only_whole_entries);
    RUN(running_out_of_memory_while_making_one);
    RUN(volumes_are_laid_out_without_gaps);
    return check_report();
}
