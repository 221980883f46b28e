/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room share. Everything is guarded by cache->lock unless it says
 * otherwise. */
#ifndef PSTI_CACHE_PRIV_H
#define PSTI_CACHE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"

enum { ALIGN = 64, PAGE = 4096 };

static inline size_t cache_align(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

/* ---- memory (arena.c) ------------------------------------------------------------------------ */

/* A stretch of the arena, used or free, 64-aligned and a multiple of 64 long; the next one begins
 * where it ends. */
typedef struct block {
    size_t bytes;
    size_t before; /* bytes of the block in front; 0 = the first */
    bool free;
    bool clean; /* free: no page of its inside is held */
} block;

typedef struct free_block {
    block head;
    struct free_block *next, *prev; /* of its bin */
} free_block;

/* Bins by size: the power of two, then eight steps in it. */
enum { BIN_LEVELS = 40, BIN_STEPS = 8, BINS = BIN_LEVELS * BIN_STEPS };

typedef struct arena {
    const psti_cache_spec *spec;
    uint8_t *base;
    size_t space;   /* bytes of address space */
    size_t top;     /* what lies beyond was never used */
    size_t last;    /* bytes of the block in front of top */
    uint64_t *held; /* a bit per page that is charged */
    size_t held_bytes;
    uint64_t taken; /* bytes charged for pages */
    uint64_t dirty; /* at most so many bytes can be given back */
    free_block *bin[BINS];
    uint64_t bin_some[(BINS + 63) / 64];
} arena;

int arena_init(arena *a, const psti_cache_spec *spec);
void arena_fini(arena *a);
/* NULL when that many bytes are not granted, or when there is no stretch of that length. */
block *arena_alloc(arena *a, size_t bytes);
void arena_free(arena *a, block *b);
/* The block keeps its first `bytes`; the rest is free. */
void arena_trim(arena *a, block *b, size_t bytes);
/* Gives back what free blocks hold, at least `wanted` bytes if there is so much. */
uint64_t arena_purge(arena *a, uint64_t wanted);
int arena_check(const arena *a, FILE *out, size_t *used_blocks);

/* ---- entries --------------------------------------------------------------------------------- */

typedef enum entry_state {
    ENTRY_MAKING,
    ENTRY_READY,
    ENTRY_UNFIT, /* a note: not worth trying */
    ENTRY_DOOMED /* goes with its last pin */
} entry_state;

struct psti_cache_entry {
    block block; /* what it lies in */
    psti_cache_key key;
    psti_cache_owner *owner;
    uint64_t note;
    uint32_t index; /* in cache->all */
    int pins;
    uint8_t state; /* entry_state */
    bool keyed;
    int count;    /* pictures */
    size_t plain; /* bytes of an entry without pictures */
    psti_decoded pictures[];
};

struct psti_cache_owner {
    psti_cache_owner *next;
    psti_cache_owner_spec spec;
    _Atomic double density; /* counter-like; 0 when closed */
    int users;
    uint64_t entries; /* in cache->all */
};

struct psti_cache {
    psti_cache_spec spec; /* fixed */
    /* Hints for psti_cache_has_room, read without the lock. */
    atomic_uint_fast64_t refused; /* that many bytes and more were not granted */
    _Atomic double floor;         /* what resisted was worth that much per byte */
    pthread_mutex_t lock;         /* guards what follows; after pool.lock, before budget.lock */
    arena arena;
    psti_cache_entry **table; /* by key: open addressing, at most half full */
    size_t table_slots, table_used;
    psti_cache_entry **all; /* ready and in the making, in no order */
    size_t all_count, all_cap;
    psti_cache_owner *owners;
    uint64_t books; /* bytes of table and list */
    uint64_t random;
    uint64_t evictions;
    uint64_t form_inserts[PSTI_FORMS], form_evictions[PSTI_FORMS];
    uint64_t form_entries[PSTI_FORMS], form_bytes[PSTI_FORMS];
    uint64_t form_cap[PSTI_FORMS];
    uint64_t augmented_target;
    uint64_t form_making[PSTI_FORMS]; /* bytes reserved and not published yet */
};

/* books.c: the table by key, the list of all */
int books_init(psti_cache *cache);
void books_fini(psti_cache *cache);
psti_cache_entry *books_find(const psti_cache *cache, const psti_cache_key *key);
bool books_make_room(psti_cache *cache); /* for one more of each */
void books_add(psti_cache *cache, psti_cache_entry *entry);
void books_unlist(psti_cache *cache, psti_cache_entry *entry); /* from the list of all */
void books_remove(psti_cache *cache, psti_cache_entry *entry); /* from both */
int books_check(const psti_cache *cache, FILE *out);

/* evict.c */
double entry_density(const psti_cache_entry *entry);
/* Memory for an entry of that form and worth, at the cost of lesser ones. */
block *evict_for(psti_cache *cache, psti_form form, size_t bytes, double density);
bool evict_least(psti_cache *cache);                         /* false when nothing can go */
void entry_drop(psti_cache *cache, psti_cache_entry *entry); /* not pinned */

#endif
