/* SPDX-License-Identifier: Apache-2.0
 * Text pools, doubling arrays and the key map. No locks: each belongs to one thread while it is
 * built. */
#include "source/pool.h"

#include <errno.h>
#include <string.h>

#include "core/hash.h"
#include "core/memory.h"

int psti_strings_reserve(psti_strings *pool, size_t more)
{
    size_t need;
    if (!psti_add(pool->len, more, &need))
        return -ENOMEM;
    if (need <= pool->cap)
        return 0;
    char *data = psti_realloc(PSTI_MEM_SOURCE, pool->data, need, 1);
    if (!data)
        return -ENOMEM;
    pool->data = data;
    pool->cap = need;
    return 0;
}

int psti_strings_add(psti_strings *pool, const void *bytes, size_t len, uint64_t *at)
{
    size_t need;
    if (!psti_add(pool->len, len, &need) || !psti_add(need, 1, &need))
        return -ENOMEM;
    if (psti_grow(&pool->data, &pool->cap, need, 1))
        return -ENOMEM;
    if (len)
        memcpy(pool->data + pool->len, bytes, len);
    pool->data[need - 1] = 0;
    *at = pool->len;
    pool->len = need;
    return 0;
}

void psti_strings_free(psti_strings *pool)
{
    psti_free(pool->data);
    *pool = (psti_strings){0};
}

int psti_grow(void *array, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return 0;
    size_t want = *cap ? *cap : 16;
    while (want < need)
        if (!psti_mul(want, 2, &want))
            return -ENOMEM;
    void *old;
    memcpy(&old, array, sizeof old);
    void *grown = psti_realloc(PSTI_MEM_SOURCE, old, want, size);
    if (!grown)
        return -ENOMEM;
    memcpy(array, &grown, sizeof grown);
    *cap = want;
    return 0;
}

int psti_keymap_init(psti_keymap *map, size_t expected, const psti_strings *pool,
                     const uint64_t *keys)
{
    size_t slots = 16, least;
    *map = (psti_keymap){.pool = pool, .keys = keys};
    if (!psti_mul(expected, 2, &least))
        return -ENOMEM;
    while (slots < least)
        slots *= 2;
    map->slots = psti_calloc(PSTI_MEM_SOURCE, slots, sizeof *map->slots);
    if (!map->slots)
        return -ENOMEM;
    map->mask = slots - 1;
    return 0;
}

/* The slot that holds the text, or the free one where it would go. */
static size_t slot_of(const psti_keymap *map, const char *text, size_t len)
{
    size_t at = psti_hash_bytes(text, len).lo & map->mask;
    for (; map->slots[at]; at = (at + 1) & map->mask) {
        const char *there = map->pool->data + map->keys[map->slots[at] - 1];
        if (strncmp(there, text, len) == 0 && there[len] == 0)
            break;
    }
    return at;
}

int64_t psti_keymap_put(psti_keymap *map, uint64_t i)
{
    const char *text = map->pool->data + map->keys[i];
    const size_t at = slot_of(map, text, strlen(text));
    if (map->slots[at])
        return (int64_t)(map->slots[at] - 1);
    map->slots[at] = i + 1;
    return -1;
}

int64_t psti_keymap_find(const psti_keymap *map, const char *text, size_t len)
{
    if (memchr(text, 0, len))
        return -1;
    return (int64_t)map->slots[slot_of(map, text, len)] - 1;
}

void psti_keymap_fini(psti_keymap *map)
{
    psti_free(map->slots);
    map->slots = NULL;
}
