/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room share. */
#ifndef PSTI_CACHE_PRIV_H
#define PSTI_CACHE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"

enum {
    SPARES_MAX = 256,  /* pieces of slabs that are not used yet */
    SPARE_LEAST = 512, /* smaller pieces are forgotten */
    ALIGN = 64
};

typedef enum entry_state { ENTRY_MAKING, ENTRY_READY, ENTRY_UNFIT } entry_state;

/* Lies in a slab, its pixels behind it. */
struct psti_cache_entry {
    psti_cache_key key;
    atomic_int state; /* entry_state; the release store of READY is the partner of find's load */
    int count;
    size_t bytes; /* of header and pixels */
    psti_decoded pictures[];
};

/* Open addressing with linear probing; entries are only added. A table that became too small stays
 * until the cache is freed, because a reader may be in it. */
typedef struct table {
    struct table *before;
    size_t mask, used;
    size_t bytes;
    _Atomic(psti_cache_entry *) at[]; /* release store when added, acquire load in find */
} table;

typedef struct slab {
    struct slab *next;
    size_t bytes;
} slab;

typedef struct spare {
    uint8_t *at;
    size_t bytes;
} spare;

struct psti_cache {
    psti_cache_spec spec;
    _Atomic(table *) table;              /* release store when it grew, acquire load in find */
    atomic_uint_fast64_t taken, entries; /* counters */
    /* Quick answers for psti_cache_has_room; written under the lock, hints to everybody else. */
    atomic_uint_fast64_t refused; /* slabs for entries of this size and above are not granted */
    atomic_uint_fast64_t largest; /* piece of a slab that is left */
    pthread_mutex_t lock;         /* guards what follows; before pool.lock, which take asks for */
    slab *slabs;
    spare spares[SPARES_MAX];
    int spare_count;
};

/* slabs.c; memory for entries, 64-aligned. NULL when there is none. */
void *cache_alloc_locked(psti_cache *cache, size_t bytes);
void cache_return_locked(psti_cache *cache, uint8_t *at, size_t bytes);
void cache_slabs_free(psti_cache *cache);

static inline size_t cache_align(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

#endif
