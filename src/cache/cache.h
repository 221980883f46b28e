/* SPDX-License-Identifier: Apache-2.0
 * Samples in RAM, in three forms, in one byte budget.
 *
 * An entry is one sample in one form: its stored bytes, its decoded pictures, or its pictures after
 * the last op before finish. It belongs to an owner: the entries of one form that are worth the
 * same per byte. When there is no room, entries of less worth make way for one of more; between
 * equals nothing moves, so that a form that is used once an epoch stays instead of being chased
 * around.
 *
 * Stored and decoded entries are found by key. Augmented ones are handed out by whoever keeps track
 * of who has seen them, so they have no key. An entry that was handed out is pinned: it is neither
 * moved nor freed until it is let go. Any thread; pixels are written and read without the lock. */
#ifndef PSTI_CACHE_CACHE_H
#define PSTI_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/field.h"
#include "core/hash.h"

typedef struct psti_cache psti_cache;
typedef struct psti_cache_entry psti_cache_entry;
typedef struct psti_cache_owner psti_cache_owner;

typedef struct psti_cache_spec {
    uint64_t most; /* bytes that may ever be granted: address space is set aside accordingly */
    /* Grants that many bytes or refuses. Called with the cache's lock held; must not block. */
    bool (*take)(void *user, uint64_t bytes);
    void (*give)(void *user, uint64_t bytes);
    void *user;
} psti_cache_spec;

int psti_cache_new(const psti_cache_spec *spec, psti_cache **out);
/* Nobody may be using it. Gives back what it took. NULL is fine. */
void psti_cache_free(psti_cache *cache);
/* The cache's own lock, for those whose books must agree with what it holds (owners' callbacks run
 * under it). Functions named _locked want it held. */
void psti_cache_lock(psti_cache *cache);
void psti_cache_unlock(psti_cache *cache);

/* ---- owners ---------------------------------------------------------------------------------- */

typedef enum psti_form { PSTI_ENCODED, PSTI_DECODED, PSTI_AUGMENTED, PSTI_FORMS } psti_form;

typedef struct psti_cache_owner_spec {
    psti_form form;
    psti_id128 name; /* owners of one name and form are one; not for augmented entries */
    /* Both with the lock held; NULL where every entry is worth the same and nobody needs to know.
     * weight: what an entry's bytes are worth, relative to the owner's density. */
    double (*weight)(void *user, const psti_cache_entry *entry);
    void (*evicted)(void *user, psti_cache_entry *entry);
    void *user;
} psti_cache_owner_spec;

/* NULL when out of memory. */
psti_cache_owner *psti_cache_owner_open(psti_cache *cache, const psti_cache_owner_spec *spec);
/* Entries with a key stay, worth nothing, until others need the room or the owner is opened again;
 * those without go as soon as they are not pinned, without a call of `evicted`. */
void psti_cache_owner_close(psti_cache *cache, psti_cache_owner *owner);
/* Seconds saved per second by each byte of it. Any thread. */
void psti_cache_owner_value(psti_cache_owner *owner, double density);
bool psti_cache_owner_wanted(const psti_cache_owner *owner); /* worth anything */

/* ---- finding --------------------------------------------------------------------------------- */

typedef struct psti_cache_key {
    psti_id128 sample, form;
} psti_cache_key;

/* The entry if it is ready, pinned; else NULL, and then *open says whether it is worth reserving:
 * nobody is making it, and nobody found it unfit. */
psti_cache_entry *psti_cache_find(psti_cache *cache, const psti_cache_key *key, bool *open);
void psti_cache_pin_locked(psti_cache_entry *entry);
void psti_cache_unpin(psti_cache *cache, psti_cache_entry *entry);
/* What it holds, in the order in which it was reserved; read-only. */
const psti_decoded *psti_cache_pictures(const psti_cache_entry *entry, int *count);
const uint8_t *psti_cache_bytes(const psti_cache_entry *entry, size_t *size);
const psti_cache_key *psti_cache_entry_key(const psti_cache_entry *entry);
/* A number that the owner may keep with an entry. Under the lock. */
void psti_cache_set_note(psti_cache_entry *entry, uint64_t note);
uint64_t psti_cache_note(const psti_cache_entry *entry);

/* ---- filling --------------------------------------------------------------------------------- */

/* What an entry will hold: pictures (shape, dtype and kind of each; data, stride and bytes are set
 * in the entry's own copies: rows without gaps, data 64-aligned with 64 readable bytes past its
 * end), or plain bytes, aligned and padded alike. */
typedef struct psti_cache_content {
    const psti_decoded *pictures;
    int count;
    size_t bytes;
    psti_id128 maker; /* in an envelope: who packed it; 0: that does not matter */
} psti_cache_content;

/* An entry to be filled by the caller alone, pinned; or NULL when there is no room, or when someone
 * else has the key. weight: see the owner's. Augmented entries are not found by their key; it says
 * what they are. */
psti_cache_entry *psti_cache_reserve(psti_cache *cache, psti_cache_owner *owner,
                                     const psti_cache_key *key, const psti_cache_content *content,
                                     double weight);
psti_decoded *psti_cache_fill(psti_cache_entry *entry);
uint8_t *psti_cache_fill_bytes(psti_cache_entry *entry);
/* From now on it is found, and never changes. The caller's pin stays until it lets go. */
void psti_cache_publish(psti_cache *cache, psti_cache_entry *entry);
void psti_cache_publish_locked(psti_cache *cache, psti_cache_entry *entry);
/* Nobody has any use for it: it goes, at once or with its last pin; its owner is not told. */
void psti_cache_retire_locked(psti_cache *cache, psti_cache_entry *entry);
/* It will never be ready: its memory is used for others. unfit: nobody reserves it again. */
void psti_cache_abandon(psti_cache *cache, psti_cache_entry *entry, bool unfit);
/* Whether reserving has a chance, for a form that lasts; cheap, may be wrong by what others just
 * took. */
bool psti_cache_has_room(psti_cache *cache, const psti_cache_owner *owner,
                         const psti_cache_content *content, double weight);
/* What was refused may be granted now: more memory, or other values. Never blocks. */
void psti_cache_retry(psti_cache *cache);
/* At most so many bytes for each form; what is above it makes way only for its own kind. */
void psti_cache_caps(psti_cache *cache, const uint64_t bytes[PSTI_FORMS]);
/* Augmented entries come first up to so many bytes: until then they take the room of others,
 * whatever those are worth; beyond it only each other's, and others may take theirs. */
void psti_cache_target(psti_cache *cache, uint64_t bytes);
/* The least worth per byte that stood its ground lately; 0 while there is room. */
double psti_cache_floor(const psti_cache *cache);
/* Gives memory back until at most `bytes` are held, as far as entries are not pinned. */
void psti_cache_shrink(psti_cache *cache, uint64_t bytes);
/* Drops every entry that is not pinned. */
void psti_cache_clear(psti_cache *cache);

/* ---- figures and checking -------------------------------------------------------------------- */

typedef struct psti_cache_stats {
    uint64_t bytes;                    /* taken from the budget */
    uint64_t entries;                  /* ready */
    uint64_t form_entries[PSTI_FORMS]; /* ready, by form */
    uint64_t form_bytes[PSTI_FORMS];
    uint64_t evictions;
    uint64_t form_inserts[PSTI_FORMS], form_evictions[PSTI_FORMS]; /* ever, by form */
    uint64_t books; /* of `bytes`, what tables and lists take */
} psti_cache_stats;
void psti_cache_stats_get(psti_cache *cache, psti_cache_stats *out);
/* Entries that somebody holds; counts them. */
uint64_t psti_cache_pinned(psti_cache *cache);

/* Looks at every block, entry, list and count; 0, or the number of things that do not agree, each
 * told in a line to `out` if there is one. Takes the lock for as long as that lasts. */
int psti_cache_check(psti_cache *cache, FILE *out);

#endif
