/* SPDX-License-Identifier: Apache-2.0
 * Which entries there are: a table by key, and a list of all of them to draw from at random. Both
 * are charged to the budget like the entries. Under the cache's lock. */
#include <errno.h>
#include <string.h>

#include "cache/cache_priv.h"
#include "core/memory.h"

enum { TABLE_LEAST = 512, LIST_LEAST = 512 };

/* ---- memory of the books --------------------------------------------------------------------- */

static void *books_alloc(psti_cache *cache, size_t bytes)
{
    if (!cache->spec.take(cache->spec.user, bytes)) {
        arena_purge(&cache->arena, bytes);
        if (!cache->spec.take(cache->spec.user, bytes))
            return NULL;
    }
    void *memory = psti_pages_alloc(PSTI_MEM_CACHE, bytes);
    if (!memory) {
        cache->spec.give(cache->spec.user, bytes);
        return NULL;
    }
    cache->books += bytes;
    return memory;
}

static void books_release(psti_cache *cache, void *memory, size_t bytes)
{
    if (!memory)
        return;
    psti_pages_free(PSTI_MEM_CACHE, memory, bytes);
    cache->spec.give(cache->spec.user, bytes);
    cache->books -= bytes;
}

/* ---- by key ---------------------------------------------------------------------------------- */

static bool same_key(const psti_cache_key *a, const psti_cache_key *b)
{
    return a->sample.lo == b->sample.lo && a->sample.hi == b->sample.hi &&
           a->form.lo == b->form.lo && a->form.hi == b->form.hi;
}

static size_t home(const psti_cache *cache, const psti_cache_key *key)
{
    return (size_t)(key->sample.lo ^ psti_mix64(key->form.lo)) & (cache->table_slots - 1);
}

/* Its place, or the free one where it belongs. There is always a free one. */
static size_t place(const psti_cache *cache, const psti_cache_key *key)
{
    size_t i = home(cache, key);
    while (cache->table[i] && !same_key(&cache->table[i]->key, key))
        i = (i + 1) & (cache->table_slots - 1);
    return i;
}

psti_cache_entry *books_find(const psti_cache *cache, const psti_cache_key *key)
{
    return cache->table[place(cache, key)];
}

static bool grow_table(psti_cache *cache)
{
    psti_cache_entry **old = cache->table;
    const size_t slots = cache->table_slots;
    psti_cache_entry **larger = books_alloc(cache, 2 * slots * sizeof *larger);
    if (!larger)
        return false;
    cache->table = larger;
    cache->table_slots = 2 * slots;
    for (size_t i = 0; i < slots; i++)
        if (old[i])
            larger[place(cache, &old[i]->key)] = old[i];
    books_release(cache, old, slots * sizeof *old);
    return true;
}

/* Those behind it that would no longer be found move up. */
static void unlink_key(psti_cache *cache, const psti_cache_entry *entry)
{
    const size_t mask = cache->table_slots - 1;
    size_t hole = place(cache, &entry->key);
    cache->table[hole] = NULL;
    cache->table_used--;
    for (size_t i = (hole + 1) & mask; cache->table[i]; i = (i + 1) & mask) {
        const size_t from = home(cache, &cache->table[i]->key);
        if (((i - from) & mask) < ((i - hole) & mask))
            continue;
        cache->table[hole] = cache->table[i];
        cache->table[i] = NULL;
        hole = i;
    }
}

/* ---- the list -------------------------------------------------------------------------------- */

static bool grow_list(psti_cache *cache)
{
    psti_cache_entry **larger = books_alloc(cache, 2 * cache->all_cap * sizeof *larger);
    if (!larger)
        return false;
    memcpy(larger, cache->all, cache->all_count * sizeof *larger);
    books_release(cache, cache->all, cache->all_cap * sizeof *larger);
    cache->all = larger;
    cache->all_cap *= 2;
    return true;
}

bool books_make_room(psti_cache *cache)
{
    if (2 * (cache->table_used + 1) > cache->table_slots && !grow_table(cache))
        return false;
    return (cache->all_count < cache->all_cap && cache->all_count < UINT32_MAX) || grow_list(cache);
}

void books_add(psti_cache *cache, psti_cache_entry *entry)
{
    if (entry->keyed) {
        cache->table[place(cache, &entry->key)] = entry;
        cache->table_used++;
    }
    entry->index = (uint32_t)cache->all_count;
    cache->all[cache->all_count++] = entry;
    entry->owner->entries++;
}

void books_unlist(psti_cache *cache, psti_cache_entry *entry)
{
    psti_cache_entry *last = cache->all[--cache->all_count];
    cache->all[entry->index] = last;
    last->index = entry->index;
    entry->owner->entries--;
}

void books_remove(psti_cache *cache, psti_cache_entry *entry)
{
    if (entry->keyed)
        unlink_key(cache, entry);
    books_unlist(cache, entry);
}

int books_init(psti_cache *cache)
{
    cache->table = books_alloc(cache, TABLE_LEAST * sizeof *cache->table);
    cache->table_slots = cache->table ? TABLE_LEAST : 0;
    cache->all = books_alloc(cache, LIST_LEAST * sizeof *cache->all);
    cache->all_cap = cache->all ? LIST_LEAST : 0;
    return cache->table && cache->all ? 0 : -ENOMEM;
}

void books_fini(psti_cache *cache)
{
    books_release(cache, cache->table, cache->table_slots * sizeof *cache->table);
    books_release(cache, cache->all, cache->all_cap * sizeof *cache->all);
}

/* ---- checking -------------------------------------------------------------------------------- */

static int complain(FILE *out, const char *what, size_t at)
{
    if (out)
        fprintf(out, "cache: entry %zu: %s\n", at, what);
    return 1;
}

static int check_figures(const psti_cache *cache, FILE *out)
{
    uint64_t entries[PSTI_FORMS] = {0}, bytes[PSTI_FORMS] = {0};
    int wrong = 0;
    for (size_t i = 0; i < cache->all_count; i++) {
        const psti_cache_entry *e = cache->all[i];
        if (e->state != ENTRY_READY)
            continue;
        entries[e->owner->spec.form]++;
        bytes[e->owner->spec.form] += e->block.bytes;
    }
    for (int f = 0; f < PSTI_FORMS; f++)
        if (entries[f] != cache->form_entries[f] || bytes[f] != cache->form_bytes[f])
            wrong += complain(out, "a form's figures are not those of its entries", (size_t)f);
    return wrong;
}

int books_check(const psti_cache *cache, FILE *out)
{
    size_t keyed = 0, owned = 0;
    int wrong = 0;
    for (size_t i = 0; i < cache->all_count; i++) {
        const psti_cache_entry *e = cache->all[i];
        if (e->index != i)
            wrong += complain(out, "it stands elsewhere than it says", i);
        if (e->keyed && books_find(cache, &e->key) != e)
            wrong += complain(out, "its key does not lead to it", i);
        if (e->pins < 0 || e->block.free)
            wrong += complain(out, "pins or memory that cannot be", i);
    }
    for (size_t i = 0; i < cache->table_slots; i++)
        keyed += cache->table[i] != NULL;
    for (const psti_cache_owner *o = cache->owners; o; o = o->next)
        owned += o->entries;
    if (keyed != cache->table_used || owned != cache->all_count)
        wrong += complain(out, "counts of keys or of owners' entries are off", cache->all_count);
    return wrong + check_figures(cache, out);
}
