/* SPDX-License-Identifier: Apache-2.0
 * What the disk tier has, in memory: a table by the hash of the key. Under the tier's lock. */
#include <string.h>

#include "cache/disk_priv.h"
#include "core/memory.h"

enum { SLOTS_LEAST = 64 };

psti_id128 disk_id(const psti_cache_key *key)
{
    uint8_t bytes[32];
    psti_id128_store(key->sample, bytes);
    psti_id128_store(key->form, bytes + 16);
    return psti_hash_bytes(bytes, sizeof bytes);
}

static size_t home(const disk_index *index, psti_id128 id)
{
    return (size_t)id.lo & (index->slots - 1);
}

disk_entry *index_find(const disk_index *index, psti_id128 id)
{
    for (size_t i = index->slots ? home(index, id) : 0; index->slots;
         i = (i + 1) & (index->slots - 1)) {
        disk_entry *e = &index->slot[i];
        if (!e->size)
            return NULL;
        if (e->id.lo == id.lo && e->id.hi == id.hi)
            return e;
    }
    return NULL;
}

static disk_entry *free_slot(const disk_index *index, psti_id128 id)
{
    size_t i = home(index, id);
    while (index->slot[i].size)
        i = (i + 1) & (index->slots - 1);
    return &index->slot[i];
}

static bool grow(disk_index *index)
{
    disk_index larger = {.slots = index->slots ? 2 * index->slots : SLOTS_LEAST};
    larger.slot = psti_calloc(PSTI_MEM_CACHE, larger.slots, sizeof *larger.slot);
    if (!larger.slot)
        return false;
    for (size_t i = 0; i < index->slots; i++)
        if (index->slot[i].size)
            *free_slot(&larger, index->slot[i].id) = index->slot[i];
    psti_free(index->slot);
    index->slot = larger.slot;
    index->slots = larger.slots;
    return true;
}

disk_entry *index_add(disk_index *index, psti_id128 id, uint64_t size, uint16_t tag)
{
    if (index->count + 1 > index->slots / 8 * 7 && !grow(index))
        return NULL;
    disk_entry *e = free_slot(index, id);
    *e = (disk_entry){.id = id, .size = size, .tag = tag};
    index->count++;
    index->bytes += disk_blocks(size);
    return e;
}

/* What stands behind it moves up, so that every entry is found from its home on. */
void index_remove(disk_index *index, disk_entry *entry)
{
    const size_t mask = index->slots - 1;
    size_t hole = (size_t)(entry - index->slot);
    index->count--;
    index->bytes -= disk_blocks(entry->size);
    for (size_t i = (hole + 1) & mask; index->slot[i].size; i = (i + 1) & mask) {
        const size_t wants = home(index, index->slot[i].id);
        if (((i - wants) & mask) >= ((i - hole) & mask)) {
            index->slot[hole] = index->slot[i];
            hole = i;
        }
    }
    index->slot[hole] = (disk_entry){.size = 0};
}

disk_entry *index_draw(const disk_index *index, uint64_t *random)
{
    if (!index->count)
        return NULL;
    size_t i = (size_t)psti_mix64(++*random) & (index->slots - 1);
    while (!index->slot[i].size)
        i = (i + 1) & (index->slots - 1);
    return &index->slot[i];
}

void index_clear(disk_index *index)
{
    psti_free(index->slot);
    memset(index, 0, sizeof *index);
}
