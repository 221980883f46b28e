/* SPDX-License-Identifier: Apache-2.0
 * Decoded samples in RAM: filled as samples are met, never evicted, as much as fits.
 *
 * An entry is named by the sample's identity and by its form (what was done to it). It goes one
 * way: reserved by the one worker that makes it, then ready or unfit, and from then on it does not
 * change until the cache is freed. So readers take no lock and count no references. Memory is asked
 * for in slabs, from whoever keeps the budget. */
#ifndef PSTI_CACHE_CACHE_H
#define PSTI_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/field.h"
#include "core/hash.h"

typedef struct psti_cache psti_cache;

typedef struct psti_cache_spec {
    uint64_t slab_bytes; /* taken at a time; at least 64 KiB */
    /* Grants at most `most` and at least `least` bytes, or 0. Called with the cache's lock held. */
    uint64_t (*take)(void *user, uint64_t least, uint64_t most);
    void (*give)(void *user, uint64_t bytes);
    void *user;
} psti_cache_spec;

int psti_cache_new(const psti_cache_spec *spec, psti_cache **out);
/* Nobody may be using it. Gives back what it took. NULL is fine. */
void psti_cache_free(psti_cache *cache);

typedef struct psti_cache_key {
    psti_id128 sample, form;
} psti_cache_key;

typedef struct psti_cache_entry psti_cache_entry;

/* Never blocks. The entry if it is ready, else NULL; then *open says whether it is worth reserving:
 * nobody is making it, and nobody found it unfit. */
const psti_cache_entry *psti_cache_find(const psti_cache *cache, const psti_cache_key *key,
                                        bool *open);
/* Its pictures, in the order in which they were reserved; owned by the cache, read-only. */
const psti_decoded *psti_cache_pictures(const psti_cache_entry *entry, int *count);

/* An entry to be filled by the caller alone, or NULL when there is no room or someone else has it.
 * pictures: shapes, dtype and kind of each field; data, stride and bytes are set in the entry's own
 * copies: rows without gaps, data 64-aligned with 64 readable bytes past its end. */
psti_cache_entry *psti_cache_reserve(psti_cache *cache, const psti_cache_key *key,
                                     const psti_decoded *pictures, int count);
psti_decoded *psti_cache_fill(psti_cache_entry *entry);
void psti_cache_publish(psti_cache *cache, psti_cache_entry *entry);
/* It will never be ready: its memory is used for others, and nobody reserves it again. */
void psti_cache_abandon(psti_cache *cache, psti_cache_entry *entry);
/* Whether reserving has a chance; cheap, may be wrong by what others just took. */
bool psti_cache_has_room(const psti_cache *cache, const psti_decoded *pictures, int count);
/* What was refused may be granted now. Any thread, never blocks. */
void psti_cache_retry(psti_cache *cache);

typedef struct psti_cache_stats {
    uint64_t bytes;   /* taken from the budget */
    uint64_t entries; /* ready */
} psti_cache_stats;
void psti_cache_stats_get(const psti_cache *cache, psti_cache_stats *out);

#endif
