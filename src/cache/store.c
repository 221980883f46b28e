/* SPDX-License-Identifier: Apache-2.0
 * Entries by key. Finding walks a table that is only added to; reserving, publishing and growing
 * are under one lock, a few times a sample in the first epoch and not at all afterwards. Worker
 * threads; pixels are copied by the caller, outside the lock. */
#include <errno.h>
#include <string.h>

#include "cache/cache_priv.h"
#include "core/memory.h"

enum { TABLE_LEAST = 1024 };

static bool same_key(const psti_cache_key *a, const psti_cache_key *b)
{
    return a->sample.lo == b->sample.lo && a->sample.hi == b->sample.hi &&
           a->form.lo == b->form.lo && a->form.hi == b->form.hi;
}

static size_t slot_of(const table *t, const psti_cache_key *key)
{
    return (size_t)(key->sample.lo ^ psti_mix64(key->form.lo)) & t->mask;
}

/* Its place, or the free one where it belongs. There is always a free one. */
static size_t probe(const table *t, const psti_cache_key *key, psti_cache_entry **found)
{
    for (size_t i = slot_of(t, key);; i = (i + 1) & t->mask) {
        *found = atomic_load_explicit(&t->at[i], memory_order_acquire);
        if (!*found || same_key(&(*found)->key, key))
            return i;
    }
}

const psti_cache_entry *psti_cache_find(const psti_cache *cache, const psti_cache_key *key,
                                        bool *open)
{
    psti_cache_entry *entry;
    probe(atomic_load_explicit(&cache->table, memory_order_acquire), key, &entry);
    *open = !entry;
    if (!entry || atomic_load_explicit(&entry->state, memory_order_acquire) != ENTRY_READY)
        return NULL;
    return entry;
}

const psti_decoded *psti_cache_pictures(const psti_cache_entry *entry, int *count)
{
    *count = entry->count;
    return entry->pictures;
}

psti_decoded *psti_cache_fill(psti_cache_entry *entry)
{
    return entry->pictures;
}

/* ---- the table ---------------------------------------------------------------------------------
 */

static table *table_new(psti_cache *cache, size_t slots, table *before)
{
    const size_t bytes = sizeof(table) + slots * sizeof(psti_cache_entry *);
    if (cache->spec.take(cache->spec.user, bytes, bytes) != bytes)
        return NULL;
    table *t = psti_pages_alloc(PSTI_MEM_CACHE, bytes);
    if (!t) {
        cache->spec.give(cache->spec.user, bytes);
        return NULL;
    }
    t->before = before;
    t->mask = slots - 1;
    t->bytes = bytes;
    atomic_fetch_add_explicit(&cache->taken, bytes, memory_order_relaxed);
    return t;
}

/* Room for one more at half load; false when there is none. */
static bool grow_locked(psti_cache *cache)
{
    table *now = atomic_load_explicit(&cache->table, memory_order_relaxed);
    if (2 * (now->used + 1) <= now->mask + 1)
        return true;
    table *larger = table_new(cache, 2 * (now->mask + 1), now);
    if (!larger) { /* then there is no room for anything */
        atomic_store_explicit(&cache->refused, 0, memory_order_relaxed);
        atomic_store_explicit(&cache->largest, 0, memory_order_relaxed);
        return false;
    }
    for (size_t i = 0; i <= now->mask; i++) {
        psti_cache_entry *entry = atomic_load_explicit(&now->at[i], memory_order_relaxed), *there;
        if (entry)
            atomic_store_explicit(&larger->at[probe(larger, &entry->key, &there)], entry,
                                  memory_order_relaxed);
    }
    larger->used = now->used;
    atomic_store_explicit(&cache->table, larger, memory_order_release);
    return true;
}

/* ---- filling ------------------------------------------------------------------------------------
 */

/* Bytes of header and pixels; false when they pass what a size can hold. */
static bool measure(const psti_decoded *pictures, int count, size_t *out)
{
    size_t total = cache_align(sizeof(psti_cache_entry) + (size_t)count * sizeof *pictures);
    for (int i = 0; i < count; i++) {
        const psti_field *f = &pictures[i].field;
        size_t bytes = psti_dtype_bytes(f->dtype);
        for (int d = 0; d < f->rank; d++)
            if (f->shape[d] < 0 || !psti_mul(bytes, (size_t)f->shape[d], &bytes))
                return false;
        if (!psti_add(bytes, 2 * ALIGN, &bytes) || !psti_add(total, cache_align(bytes), &total))
            return false;
    }
    *out = total;
    return true;
}

static void lay_out(psti_cache_entry *entry, const psti_decoded *pictures, int count)
{
    uint8_t *at = (uint8_t *)entry + cache_align(sizeof *entry + (size_t)count * sizeof *pictures);
    for (int i = 0; i < count; i++) {
        psti_decoded *mine = &entry->pictures[i];
        *mine = pictures[i];
        psti_field *f = &mine->field;
        f->stride = (size_t)f->shape[1] * (size_t)f->shape[2] * psti_dtype_bytes(f->dtype);
        f->bytes = (size_t)f->shape[0] * f->stride;
        f->data = at;
        at += cache_align(f->bytes + ALIGN);
    }
}

static bool has_room(const psti_cache *cache, uint64_t bytes)
{
    return bytes < atomic_load_explicit(&cache->refused, memory_order_relaxed) ||
           bytes <= atomic_load_explicit(&cache->largest, memory_order_relaxed);
}

bool psti_cache_has_room(const psti_cache *cache, const psti_decoded *pictures, int count)
{
    size_t bytes;
    return measure(pictures, count, &bytes) && has_room(cache, bytes);
}

static psti_cache_entry *add_locked(psti_cache *cache, const psti_cache_key *key, size_t bytes)
{
    psti_cache_entry *entry;
    if (!grow_locked(cache))
        return NULL;
    table *t = atomic_load_explicit(&cache->table, memory_order_relaxed);
    const size_t i = probe(t, key, &entry);
    if (entry)
        return NULL;
    entry = cache_alloc_locked(cache, bytes);
    if (!entry)
        return NULL;
    entry->key = *key;
    entry->count = 0;
    entry->bytes = cache_align(bytes);
    atomic_init(&entry->state, ENTRY_MAKING);
    atomic_store_explicit(&t->at[i], entry, memory_order_release);
    t->used++;
    return entry;
}

psti_cache_entry *psti_cache_reserve(psti_cache *cache, const psti_cache_key *key,
                                     const psti_decoded *pictures, int count)
{
    size_t bytes;
    if (!measure(pictures, count, &bytes) || !has_room(cache, bytes))
        return NULL;
    pthread_mutex_lock(&cache->lock);
    psti_cache_entry *entry = add_locked(cache, key, bytes);
    pthread_mutex_unlock(&cache->lock);
    if (!entry)
        return NULL;
    /* Others see the entry, but look no further than its key until it is ready. */
    entry->count = count;
    lay_out(entry, pictures, count);
    return entry;
}

void psti_cache_publish(psti_cache *cache, psti_cache_entry *entry)
{
    atomic_store_explicit(&entry->state, ENTRY_READY, memory_order_release);
    atomic_fetch_add_explicit(&cache->entries, 1, memory_order_relaxed);
}

void psti_cache_abandon(psti_cache *cache, psti_cache_entry *entry)
{
    const size_t head = cache_align(sizeof *entry);
    pthread_mutex_lock(&cache->lock);
    cache_return_locked(cache, (uint8_t *)entry + head, entry->bytes - head);
    entry->bytes = head;
    atomic_store_explicit(&entry->state, ENTRY_UNFIT, memory_order_release);
    pthread_mutex_unlock(&cache->lock);
}

void psti_cache_retry(psti_cache *cache)
{
    atomic_store_explicit(&cache->refused, UINT64_MAX, memory_order_relaxed);
}

void psti_cache_stats_get(const psti_cache *cache, psti_cache_stats *out)
{
    out->bytes = atomic_load_explicit(&cache->taken, memory_order_relaxed);
    out->entries = atomic_load_explicit(&cache->entries, memory_order_relaxed);
}

/* ---- making and freeing -------------------------------------------------------------------------
 */

int psti_cache_new(const psti_cache_spec *spec, psti_cache **out)
{
    psti_cache *cache = psti_calloc(PSTI_MEM_CACHE, 1, sizeof *cache);
    if (!cache)
        return -ENOMEM;
    pthread_mutex_init(&cache->lock, NULL);
    cache->spec = *spec;
    psti_cache_retry(cache);
    table *first = table_new(cache, TABLE_LEAST, NULL);
    atomic_init(&cache->table, first);
    if (!first) {
        psti_cache_free(cache);
        return -ENOMEM;
    }
    *out = cache;
    return 0;
}

void psti_cache_free(psti_cache *cache)
{
    if (!cache)
        return;
    cache_slabs_free(cache);
    for (table *t = atomic_load(&cache->table); t;) {
        table *before = t->before;
        const size_t bytes = t->bytes;
        psti_pages_free(PSTI_MEM_CACHE, t, bytes);
        cache->spec.give(cache->spec.user, bytes);
        t = before;
    }
    pthread_mutex_destroy(&cache->lock);
    psti_free(cache);
}
