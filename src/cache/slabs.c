/* SPDX-License-Identifier: Apache-2.0
 * The cache's memory: slabs of pages, cut into entries from front to back, first piece that fits.
 * Everything here is under the cache's lock, but for freeing. */
#include <string.h>

#include "cache/cache_priv.h"
#include "core/memory.h"

enum { PAGE = 4096 };

/* The largest piece left, for those who only want to know whether it is worth asking. */
static void note_largest_locked(psti_cache *cache)
{
    size_t most = 0;
    for (int i = 0; i < cache->spare_count; i++)
        if (cache->spares[i].bytes > most)
            most = cache->spares[i].bytes;
    atomic_store_explicit(&cache->largest, most, memory_order_relaxed);
}

void cache_return_locked(psti_cache *cache, uint8_t *at, size_t bytes)
{
    if (bytes < SPARE_LEAST)
        return;
    if (cache->spare_count < SPARES_MAX) {
        cache->spares[cache->spare_count++] = (spare){at, bytes};
    } else {
        spare *least = &cache->spares[0];
        for (int i = 1; i < SPARES_MAX; i++)
            if (cache->spares[i].bytes < least->bytes)
                least = &cache->spares[i];
        if (least->bytes < bytes)
            *least = (spare){at, bytes};
    }
    note_largest_locked(cache);
}

/* Whole slabs as long as they are granted, then what is left of the budget. */
static bool add_slab_locked(psti_cache *cache, size_t least)
{
    size_t want = cache_align(sizeof(slab)) + least;
    want = (want + PAGE - 1) & ~(size_t)(PAGE - 1);
    const size_t most = want > cache->spec.slab_bytes ? want : cache->spec.slab_bytes;
    const uint64_t granted = cache->spec.take(cache->spec.user, want, most);
    slab *s = granted ? psti_pages_alloc(PSTI_MEM_CACHE, granted) : NULL;
    if (!s) {
        if (granted)
            cache->spec.give(cache->spec.user, granted);
        /* A small sample may still fit where a large one was refused. */
        if (least < atomic_load_explicit(&cache->refused, memory_order_relaxed))
            atomic_store_explicit(&cache->refused, least, memory_order_relaxed);
        return false;
    }
    s->next = cache->slabs;
    s->bytes = granted;
    cache->slabs = s;
    atomic_fetch_add_explicit(&cache->taken, granted, memory_order_relaxed);
    const size_t head = cache_align(sizeof *s);
    cache_return_locked(cache, (uint8_t *)s + head, granted - head);
    return true;
}

static void *cut_locked(psti_cache *cache, size_t bytes)
{
    for (int i = 0; i < cache->spare_count; i++) {
        spare *piece = &cache->spares[i];
        if (piece->bytes < bytes)
            continue;
        uint8_t *at = piece->at;
        piece->at += bytes;
        piece->bytes -= bytes;
        if (piece->bytes < SPARE_LEAST)
            *piece = cache->spares[--cache->spare_count];
        note_largest_locked(cache);
        return at;
    }
    return NULL;
}

void *cache_alloc_locked(psti_cache *cache, size_t bytes)
{
    bytes = cache_align(bytes);
    void *at = cut_locked(cache, bytes);
    if (!at && add_slab_locked(cache, bytes))
        at = cut_locked(cache, bytes);
    return at;
}

void cache_slabs_free(psti_cache *cache)
{
    while (cache->slabs) {
        slab *s = cache->slabs;
        cache->slabs = s->next;
        const size_t bytes = s->bytes;
        psti_pages_free(PSTI_MEM_CACHE, s, bytes);
        cache->spec.give(cache->spec.user, bytes);
    }
}
