/* SPDX-License-Identifier: Apache-2.0
 * Encoded forms of samples: the bytes as they are stored, kept where reading them again would cost
 * more than their room. One entry per member of a sample. Looked up under pool->lock when a sample
 * is aimed at; copied in by the worker that has just read them. */
#include <string.h>

#include "sched/sched_priv.h"

int stored_owner(psti_feed *feed)
{
    const psti_cache_owner_spec spec = {.form = PSTI_ENCODED,
                                        .name = psti_dataset_revision(feed->spec.data)};
    feed->encoded = psti_cache_owner_open(feed->pool->cache, &spec);
    return feed->encoded ? 0 : -1;
}

static psti_cache_key key_of(const task *t, int field)
{
    const psti_feed *feed = t->feed;
    return (psti_cache_key){psti_dataset_identity(feed->spec.data, t->id),
                            {(uint64_t)feed->spec.fields[field].source, PSTI_ENCODED}};
}

bool stored_find(task *t, int field)
{
    const psti_feed *feed = t->feed;
    bool open;
    if (!feed->encoded)
        return false;
    const psti_cache_key key = key_of(t, field);
    psti_cache_entry *entry = psti_cache_find(feed->pool->cache, &key, &open);
    if (!entry)
        return false;
    size_t bytes;
    const uint8_t *data = psti_cache_bytes(entry, &bytes);
    t->stored[t->stored_count++] = entry;
    t->inputs[field] = (psti_input){data, bytes, -1};
    return true;
}

void stored_retire(task *t)
{
    psti_cache *cache = t->feed->pool->cache;
    psti_cache_lock(cache);
    for (int i = 0; i < t->stored_count; i++)
        psti_cache_retire_locked(cache, t->stored[i]);
    psti_cache_unlock(cache);
}

void stored_drop(task *t)
{
    while (t->stored_count > 0)
        psti_cache_unpin(t->feed->pool->cache, t->stored[--t->stored_count]);
}

/* Whether the bytes that were read are those of the identity: the file may have changed between
 * naming and reading it. */
static bool still_the_same(const task *t, const psti_cache_key *now)
{
    return now->sample.lo == t->form.sample.lo && now->sample.hi == t->form.sample.hi;
}

static void keep(const task *t, int index)
{
    const psti_feed *feed = t->feed;
    psti_cache *cache = feed->pool->cache;
    const int field = t->read_field[index];
    if (field == TIER_FORM)
        return;
    const psti_input *read = &t->inputs[field];
    const psti_cache_content content = {.bytes = read->size};
    const psti_cache_key key = key_of(t, field);
    if (!read->size || !psti_cache_has_room(cache, feed->encoded, &content, 1) ||
        !still_the_same(t, &key))
        return;
    psti_cache_entry *entry = psti_cache_reserve(cache, feed->encoded, &key, &content, 1);
    if (!entry)
        return;
    memcpy(psti_cache_fill_bytes(entry), read->bytes, read->size);
    psti_cache_publish(cache, entry);
    psti_cache_unpin(cache, entry);
}

void stored_keep(const task *t)
{
    if (!t->feed->encoded || t->made || t->part_inputs ||
        !psti_cache_owner_wanted(t->feed->encoded))
        return;
    for (int i = 0; i < t->read_count; i++)
        keep(t, i);
}

/* ---- what reading costs ---------------------------------------------------------------------- */

void reading_begins_locked(psti_pool *pool)
{
    if (pool->reading++ == 0)
        pool->reading_since_ns = psti_now_ns();
}

/* Where the source is the limit something is always under way: what it took so far counts. */
void reading_settle_locked(psti_pool *pool, uint64_t now)
{
    if (!pool->reading)
        return;
    pool->reading_ns += now - pool->reading_since_ns;
    pool->reading_since_ns = now;
}

void reading_ends_locked(psti_pool *pool, uint64_t bytes)
{
    pool->read_bytes += bytes;
    if (pool->reading == 1)
        reading_settle_locked(pool, psti_now_ns());
    pool->reading--;
}
