/* SPDX-License-Identifier: Apache-2.0
 * Making room: a few entries drawn at random are asked for their worth, and the least goes, if it
 * is worth less than what is to come. Under the cache's lock. */
#include <math.h>

#include "cache/cache_priv.h"

enum {
    PROBES = 32,
    VICTIMS = 256 /* at most for one entry: a large one among many small */
};
/* What stands is left standing unless the new one is worth clearly more: a form costs something to
 * make. Entries whose worth runs out by itself need no such care. */
static const double STAND = 1.25;

double entry_density(const psti_cache_entry *entry)
{
    const psti_cache_owner *o = entry->owner;
    const double density = atomic_load_explicit(&o->density, memory_order_relaxed);
    return o->spec.weight ? density * o->spec.weight(o->spec.user, entry) : density;
}

static bool may_go(const psti_cache_entry *entry)
{
    return entry->pins == 0 && entry->state == ENTRY_READY;
}

static size_t draw(psti_cache *cache, size_t below)
{
    cache->random += 0x9e3779b97f4a7c15u;
    return (size_t)(((unsigned __int128)psti_mix64(cache->random) * below) >> 64);
}

enum {
    STATIC_FORMS = 1 << PSTI_ENCODED | 1 << PSTI_DECODED,
    AUGMENTED_FORM = 1 << PSTI_AUGMENTED,
    ALL_FORMS = STATIC_FORMS | AUGMENTED_FORM
};

/* A few entries drawn at random; a list that is not longer than that, as a whole. They lie all over
 * memory, so they are asked for at once before the first is looked at. */
static size_t draw_few(psti_cache *cache, psti_cache_entry *entries[PROBES])
{
    size_t at[PROBES];
    const bool few = cache->all_count <= PROBES;
    const size_t count = few ? cache->all_count : PROBES;
    for (size_t i = 0; i < count; i++) {
        at[i] = few ? i : draw(cache, cache->all_count);
        __builtin_prefetch(&cache->all[at[i]]);
    }
    for (size_t i = 0; i < count; i++) {
        entries[i] = cache->all[at[i]];
        __builtin_prefetch(entries[i]);
        __builtin_prefetch(&entries[i]->state);
    }
    return count;
}

/* The least worth of a few, among entries of these forms. */
static psti_cache_entry *least(psti_cache *cache, unsigned forms, double *density)
{
    psti_cache_entry *entries[PROBES], *found = NULL;
    const size_t count = draw_few(cache, entries);
    *density = INFINITY;
    for (size_t i = 0; i < count; i++) {
        psti_cache_entry *e = entries[i];
        if (!may_go(e) || !(forms & 1u << e->owner->spec.form))
            continue;
        const double d = entry_density(e) * (e->owner->spec.weight ? 1 : STAND);
        if (d < *density) {
            *density = d;
            found = e;
        }
    }
    return found;
}

void entry_drop(psti_cache *cache, psti_cache_entry *entry)
{
    psti_cache_owner *owner = entry->owner;
    const psti_form form = owner->spec.form;
    if (entry->state == ENTRY_MAKING)
        cache->form_making[form] -= entry->block.bytes;
    if (entry->state == ENTRY_READY) {
        cache->form_entries[form]--;
        cache->form_bytes[form] -= entry->block.bytes;
        if (owner->spec.evicted && owner->users)
            owner->spec.evicted(owner->spec.user, entry);
    }
    books_remove(cache, entry);
    arena_free(&cache->arena, &entry->block);
}

static void count_eviction(psti_cache *cache, const psti_cache_entry *victim)
{
    cache->evictions++;
    cache->form_evictions[victim->owner->spec.form]++;
}

bool evict_least(psti_cache *cache)
{
    double worth;
    psti_cache_entry *victim = least(cache, ALL_FORMS, &worth);
    for (size_t i = 0; !victim && i < cache->all_count; i++) /* nearly all are pinned */
        victim = may_go(cache->all[i]) ? cache->all[i] : NULL;
    if (victim) {
        count_eviction(cache, victim);
        entry_drop(cache, victim);
    }
    return victim != NULL;
}

/* Evicts one that is worth less than `density`, if a few looks find one. */
static bool evict_below(psti_cache *cache, unsigned forms, double density)
{
    double worth;
    psti_cache_entry *victim = least(cache, forms, &worth);
    if (!victim || worth >= density) {
        if (victim)
            atomic_store_explicit(&cache->floor, worth, memory_order_relaxed);
        return false;
    }
    count_eviction(cache, victim);
    entry_drop(cache, victim);
    return true;
}

static uint64_t has(const psti_cache *cache, psti_form form)
{
    return cache->form_bytes[form] + cache->form_making[form];
}

/* Room is made by one of the others first while augmented entries are below their target, then
 * among equals. */
static bool make_way(psti_cache *cache, psti_form form, size_t bytes, double density)
{
    if (form != PSTI_AUGMENTED) {
        const bool beyond = has(cache, PSTI_AUGMENTED) > cache->augmented_target;
        return evict_below(cache, beyond ? ALL_FORMS : STATIC_FORMS, density);
    }
    if (has(cache, form) + bytes <= cache->augmented_target &&
        evict_below(cache, STATIC_FORMS, INFINITY))
        return true;
    return evict_below(cache, AUGMENTED_FORM, density);
}

block *evict_for(psti_cache *cache, psti_form form, size_t bytes, double density)
{
    int left = VICTIMS;
    while (has(cache, form) + bytes > cache->form_cap[form])
        if (left-- == 0 || !evict_below(cache, 1u << form, density))
            return NULL;
    block *b = arena_alloc(&cache->arena, bytes);
    while (!b && left-- > 0 && make_way(cache, form, bytes, density))
        b = arena_alloc(&cache->arena, bytes);
    return b;
}
