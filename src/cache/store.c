/* SPDX-License-Identifier: Apache-2.0
 * Entries and their life: reserved by one, then ready for all, or unfit; pinned while in use; gone
 * when something worth more needs the room. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "cache/cache_priv.h"
#include "core/memory.h"

void psti_cache_lock(psti_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
}

void psti_cache_unlock(psti_cache *cache)
{
    pthread_mutex_unlock(&cache->lock);
}

/* ---- finding --------------------------------------------------------------------------------- */

psti_cache_entry *psti_cache_find(psti_cache *cache, const psti_cache_key *key, bool *open)
{
    pthread_mutex_lock(&cache->lock);
    psti_cache_entry *entry = books_find(cache, key);
    *open = !entry;
    if (entry && entry->state == ENTRY_READY)
        entry->pins++;
    else
        entry = NULL;
    pthread_mutex_unlock(&cache->lock);
    return entry;
}

void psti_cache_pin_locked(psti_cache_entry *entry)
{
    entry->pins++;
}

static void unpin_locked(psti_cache *cache, psti_cache_entry *entry)
{
    if (--entry->pins == 0 && entry->state == ENTRY_DOOMED)
        entry_drop(cache, entry);
}

void psti_cache_unpin(psti_cache *cache, psti_cache_entry *entry)
{
    pthread_mutex_lock(&cache->lock);
    unpin_locked(cache, entry);
    pthread_mutex_unlock(&cache->lock);
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

uint8_t *psti_cache_fill_bytes(psti_cache_entry *entry)
{
    return (uint8_t *)entry + cache_align(sizeof *entry);
}

const uint8_t *psti_cache_bytes(const psti_cache_entry *entry, size_t *size)
{
    *size = entry->plain;
    return (const uint8_t *)entry + cache_align(sizeof *entry);
}

const psti_cache_key *psti_cache_entry_key(const psti_cache_entry *entry)
{
    return &entry->key;
}

void psti_cache_set_note(psti_cache_entry *entry, uint64_t note)
{
    entry->note = note;
}

uint64_t psti_cache_note(const psti_cache_entry *entry)
{
    return entry->note;
}

/* ---- filling --------------------------------------------------------------------------------- */

/* Bytes of head and content; false when they pass what a size can hold. */
static bool measure(const psti_cache_content *content, size_t *out)
{
    size_t total =
        cache_align(sizeof(psti_cache_entry) + (size_t)content->count * sizeof(psti_decoded));
    for (int i = 0; i < content->count; i++) {
        const psti_field *f = &content->pictures[i].field;
        size_t bytes = psti_dtype_bytes(f->dtype);
        for (int d = 0; d < f->rank; d++)
            if (f->shape[d] < 0 || !psti_mul(bytes, (size_t)f->shape[d], &bytes))
                return false;
        if (!psti_add(bytes, 2 * ALIGN, &bytes) || !psti_add(total, cache_align(bytes), &total))
            return false;
    }
    *out = total;
    return content->count || (psti_add(total, content->bytes, out) && psti_add(*out, ALIGN, out));
}

static void lay_out(psti_cache_entry *entry, const psti_cache_content *content)
{
    uint8_t *at = (uint8_t *)entry +
                  cache_align(sizeof *entry + (size_t)content->count * sizeof(psti_decoded));
    entry->count = content->count;
    entry->plain = content->count ? 0 : content->bytes;
    for (int i = 0; i < content->count; i++) {
        psti_decoded *mine = &entry->pictures[i];
        *mine = content->pictures[i];
        psti_field *f = &mine->field;
        psti_field_pack(f);
        f->data = at;
        at += cache_align(f->bytes + ALIGN);
    }
}

static double density_of(const psti_cache_owner *owner, double weight)
{
    return atomic_load_explicit(&owner->density, memory_order_relaxed) *
           (owner->spec.weight ? weight : 1);
}

bool psti_cache_has_room(psti_cache *cache, const psti_cache_owner *owner,
                         const psti_cache_content *content, double weight)
{
    size_t bytes;
    if (!measure(content, &bytes))
        return false;
    return bytes < atomic_load_explicit(&cache->refused, memory_order_relaxed) ||
           density_of(owner, weight) > atomic_load_explicit(&cache->floor, memory_order_relaxed);
}

static psti_cache_entry *add_locked(psti_cache *cache, psti_cache_owner *owner,
                                    const psti_cache_key *key, size_t bytes, double density)
{
    const bool keyed = key && owner->spec.form != PSTI_AUGMENTED;
    if ((keyed && books_find(cache, key)) || !books_make_room(cache))
        return NULL;
    block *b = evict_for(cache, owner->spec.form, bytes, density);
    if (!b) {
        if (bytes < atomic_load_explicit(&cache->refused, memory_order_relaxed))
            atomic_store_explicit(&cache->refused, bytes, memory_order_relaxed);
        return NULL;
    }
    psti_cache_entry *entry = (psti_cache_entry *)b;
    memset((uint8_t *)entry + sizeof *b, 0, sizeof *entry - sizeof *b);
    if (key)
        entry->key = *key;
    entry->keyed = keyed;
    entry->owner = owner;
    entry->pins = 1;
    entry->state = ENTRY_MAKING;
    cache->form_making[owner->spec.form] += b->bytes;
    books_add(cache, entry);
    return entry;
}

psti_cache_entry *psti_cache_reserve(psti_cache *cache, psti_cache_owner *owner,
                                     const psti_cache_key *key, const psti_cache_content *content,
                                     double weight)
{
    size_t bytes;
    if (!measure(content, &bytes))
        return NULL;
    pthread_mutex_lock(&cache->lock);
    psti_cache_entry *entry = add_locked(cache, owner, key, bytes, density_of(owner, weight));
    if (entry) /* others look no further than key and state until it is ready */
        lay_out(entry, content);
    pthread_mutex_unlock(&cache->lock);
    return entry;
}

void psti_cache_publish_locked(psti_cache *cache, psti_cache_entry *entry)
{
    if (entry->state != ENTRY_MAKING)
        return; /* doomed meanwhile: its owner closed */
    entry->state = ENTRY_READY;
    cache->form_making[entry->owner->spec.form] -= entry->block.bytes;
    cache->form_entries[entry->owner->spec.form]++;
    cache->form_inserts[entry->owner->spec.form]++;
    cache->form_bytes[entry->owner->spec.form] += entry->block.bytes;
}

void psti_cache_publish(psti_cache *cache, psti_cache_entry *entry)
{
    pthread_mutex_lock(&cache->lock);
    psti_cache_publish_locked(cache, entry);
    pthread_mutex_unlock(&cache->lock);
}

/* Out of all figures; freed with its last pin. */
static void doom(psti_cache *cache, psti_cache_entry *entry)
{
    const psti_form form = entry->owner->spec.form;
    if (entry->state == ENTRY_DOOMED)
        return;
    if (entry->state == ENTRY_READY) {
        cache->form_entries[form]--;
        cache->form_bytes[form] -= entry->block.bytes;
    } else if (entry->state == ENTRY_MAKING) {
        cache->form_making[form] -= entry->block.bytes;
    }
    entry->state = ENTRY_DOOMED;
    if (entry->pins == 0)
        entry_drop(cache, entry);
}

void psti_cache_retire_locked(psti_cache *cache, psti_cache_entry *entry)
{
    doom(cache, entry);
}

void psti_cache_abandon(psti_cache *cache, psti_cache_entry *entry, bool unfit)
{
    pthread_mutex_lock(&cache->lock);
    entry->pins--;
    if (unfit && entry->keyed && entry->state == ENTRY_MAKING) {
        cache->form_making[entry->owner->spec.form] -= entry->block.bytes;
        entry->state = ENTRY_UNFIT;
        entry->count = 0;
        entry->plain = 0;
        arena_trim(&cache->arena, &entry->block, sizeof *entry);
    } else {
        entry_drop(cache, entry);
    }
    pthread_mutex_unlock(&cache->lock);
}

void psti_cache_retry(psti_cache *cache)
{
    atomic_store_explicit(&cache->refused, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&cache->floor, 0, memory_order_relaxed);
}

void psti_cache_caps(psti_cache *cache, const uint64_t bytes[PSTI_FORMS])
{
    pthread_mutex_lock(&cache->lock);
    memcpy(cache->form_cap, bytes, sizeof cache->form_cap);
    pthread_mutex_unlock(&cache->lock);
}

void psti_cache_target(psti_cache *cache, uint64_t bytes)
{
    pthread_mutex_lock(&cache->lock);
    cache->augmented_target = bytes;
    pthread_mutex_unlock(&cache->lock);
}

double psti_cache_floor(const psti_cache *cache)
{
    return atomic_load_explicit(&cache->floor, memory_order_relaxed);
}

/* ---- giving back ----------------------------------------------------------------------------- */

static uint64_t held(const psti_cache *cache)
{
    return cache->arena.taken + cache->books;
}

void psti_cache_shrink(psti_cache *cache, uint64_t bytes)
{
    pthread_mutex_lock(&cache->lock);
    if (held(cache) > bytes)
        arena_purge(&cache->arena, held(cache) - bytes);
    while (held(cache) > bytes && evict_least(cache))
        arena_purge(&cache->arena, UINT64_MAX);
    pthread_mutex_unlock(&cache->lock);
}

void psti_cache_clear(psti_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    for (size_t i = cache->all_count; i-- > 0;)
        if (cache->all[i]->pins == 0 && cache->all[i]->state == ENTRY_READY)
            entry_drop(cache, cache->all[i]);
    arena_purge(&cache->arena, UINT64_MAX);
    pthread_mutex_unlock(&cache->lock);
    psti_cache_retry(cache);
}

/* ---- owners ---------------------------------------------------------------------------------- */

static psti_cache_owner *owner_named(psti_cache *cache, const psti_cache_owner_spec *spec)
{
    for (psti_cache_owner *o = cache->owners; o; o = o->next)
        if (spec->form != PSTI_AUGMENTED && o->spec.form == spec->form &&
            o->spec.name.lo == spec->name.lo && o->spec.name.hi == spec->name.hi)
            return o;
    return NULL;
}

/* Owners that nobody uses and that have no entries any more. */
static void sweep_owners(psti_cache *cache)
{
    for (psti_cache_owner **at = &cache->owners; *at;) {
        psti_cache_owner *o = *at;
        if (o->users || o->entries) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        psti_free(o);
    }
}

psti_cache_owner *psti_cache_owner_open(psti_cache *cache, const psti_cache_owner_spec *spec)
{
    pthread_mutex_lock(&cache->lock);
    sweep_owners(cache);
    psti_cache_owner *o = owner_named(cache, spec);
    if (!o && (o = psti_calloc(PSTI_MEM_CACHE, 1, sizeof *o))) {
        o->spec = *spec;
        atomic_init(&o->density, 0);
        o->next = cache->owners;
        cache->owners = o;
    }
    if (o)
        o->users++;
    pthread_mutex_unlock(&cache->lock);
    return o;
}

void psti_cache_owner_close(psti_cache *cache, psti_cache_owner *owner)
{
    if (!owner)
        return;
    pthread_mutex_lock(&cache->lock);
    if (--owner->users == 0)
        atomic_store_explicit(&owner->density, 0, memory_order_relaxed);
    for (size_t i = cache->all_count; owner->users == 0 && i-- > 0;) {
        psti_cache_entry *e = cache->all[i];
        if (e->owner == owner && !e->keyed && e->state != ENTRY_DOOMED)
            doom(cache, e);
    }
    sweep_owners(cache);
    pthread_mutex_unlock(&cache->lock);
    psti_cache_retry(cache);
}

void psti_cache_owner_value(psti_cache_owner *owner, double density)
{
    atomic_store_explicit(&owner->density, density, memory_order_relaxed);
}

bool psti_cache_owner_wanted(const psti_cache_owner *owner)
{
    return atomic_load_explicit(&owner->density, memory_order_relaxed) > 0;
}

/* ---- making, freeing, figures ---------------------------------------------------------------- */

int psti_cache_new(const psti_cache_spec *spec, psti_cache **out)
{
    psti_cache *cache = psti_calloc(PSTI_MEM_CACHE, 1, sizeof *cache);
    if (!cache)
        return -ENOMEM;
    pthread_mutex_init(&cache->lock, NULL);
    cache->spec = *spec;
    cache->random = (uint64_t)(uintptr_t)cache;
    for (int f = 0; f < PSTI_FORMS; f++)
        cache->form_cap[f] = UINT64_MAX;
    psti_cache_retry(cache);
    if (arena_init(&cache->arena, &cache->spec) < 0 || books_init(cache) < 0) {
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
    books_fini(cache);
    arena_fini(&cache->arena);
    while (cache->owners) {
        psti_cache_owner *o = cache->owners;
        cache->owners = o->next;
        psti_free(o);
    }
    pthread_mutex_destroy(&cache->lock);
    psti_free(cache);
}

void psti_cache_stats_get(psti_cache *cache, psti_cache_stats *out)
{
    pthread_mutex_lock(&cache->lock);
    *out = (psti_cache_stats){
        .bytes = held(cache), .evictions = cache->evictions, .books = cache->books};
    for (int f = 0; f < PSTI_FORMS; f++) {
        out->form_entries[f] = cache->form_entries[f];
        out->form_bytes[f] = cache->form_bytes[f];
        out->form_inserts[f] = cache->form_inserts[f];
        out->form_evictions[f] = cache->form_evictions[f];
        out->entries += cache->form_entries[f];
    }
    pthread_mutex_unlock(&cache->lock);
}

uint64_t psti_cache_pinned(psti_cache *cache)
{
    uint64_t pinned = 0;
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < cache->all_count; i++)
        pinned += cache->all[i]->pins > 0;
    pthread_mutex_unlock(&cache->lock);
    return pinned;
}

int psti_cache_check(psti_cache *cache, FILE *out)
{
    size_t blocks;
    pthread_mutex_lock(&cache->lock);
    int wrong = arena_check(&cache->arena, out, &blocks) + books_check(cache, out);
    if (!wrong && blocks != cache->all_count) {
        wrong++;
        if (out)
            fprintf(out, "cache: %zu blocks in use for %zu entries\n", blocks, cache->all_count);
    }
    pthread_mutex_unlock(&cache->lock);
    return wrong;
}
