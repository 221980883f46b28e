/* SPDX-License-Identifier: Apache-2.0
 * Small containers of this room: text kept by offset, arrays that double, a map from key to number.
 * The owner serialises access. */
#ifndef PSTI_SOURCE_POOL_H
#define PSTI_SOURCE_POOL_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that stay where they are by offset, not by address, so that a pool may grow and may be
 * stored. */
typedef struct psti_strings {
    char *data;
    size_t len, cap;
} psti_strings;

/* Appends the bytes and a terminator; *at is where they begin. 0 or -ENOMEM. */
int psti_strings_add(psti_strings *pool, const void *bytes, size_t len, uint64_t *at);
/* Makes room for so many more bytes, exactly: for when the final size is known. */
int psti_strings_reserve(psti_strings *pool, size_t more);
void psti_strings_free(psti_strings *pool);

/* array is the address of a pointer to elements of `size` bytes. Doubles until `need` fit. 0 or
 * -ENOMEM. */
int psti_grow(void *array, size_t *cap, size_t need, size_t size);

/* From text to its number, where text number i stands at pool->data + keys[i]. */
typedef struct psti_keymap {
    uint64_t *slots; /* number + 1; 0 = free */
    size_t mask;
    const psti_strings *pool;
    const uint64_t *keys;
} psti_keymap;

int psti_keymap_init(psti_keymap *map, size_t expected, const psti_strings *pool,
                     const uint64_t *keys);
/* Puts number i in. Returns -1, or the number that already stands for the same text. */
int64_t psti_keymap_put(psti_keymap *map, uint64_t i);
/* -1 if there is none. */
int64_t psti_keymap_find(const psti_keymap *map, const char *text, size_t len);
void psti_keymap_fini(psti_keymap *map);

#endif
