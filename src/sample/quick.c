/* SPDX-License-Identifier: Apache-2.0
 * The quick permutation: numbers are laid out on a grid of rows and columns hardly larger than n,
 * and in each round the row moves by an amount that depends on the column, or the other way round.
 * A round is undone by moving back. Results outside n are sent through again, which happens to
 * fewer than one in a hundred. Pure functions, caller's storage.
 */
#include <assert.h>

#include "sample/share_priv.h"

static uint32_t root_up(uint32_t n)
{
    uint32_t r = 1;
    while ((uint64_t)r * r < n)
        r++;
    return r;
}

void psti_quick_init(psti_quick *q, uint32_t n, uint64_t key0, uint64_t key1)
{
    assert(n >= 1);
    q->n = n;
    q->columns = root_up(n);
    q->rows = (uint32_t)(((uint64_t)n + q->columns - 1) / q->columns);
    uint64_t state = key0;
    for (int i = 0; i < PSTI_QUICK_ROUNDS; i++) {
        state += 0x9e3779b97f4a7c15u;
        q->key[i] = psti_mix64(psti_mix64(state) ^ key1);
    }
}

/* A number below `size` that depends on x and the key: two multiplications, the upper halves. */
static inline uint32_t shift_of(uint32_t x, uint64_t key, uint32_t size)
{
    uint64_t h = ((x + 0x9e3779b97f4a7c15u) ^ key) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 29;
    h *= 0x94d049bb133111ebu;
    return (uint32_t)((h >> 32) * size >> 32);
}

/* a + b and a - b mod size, both below size; size may come near 2^32. */
static inline uint32_t add_mod(uint32_t a, uint32_t b, uint32_t size)
{
    return a >= size - b ? a - (size - b) : a + b;
}
static inline uint32_t sub_mod(uint32_t a, uint32_t b, uint32_t size)
{
    return a >= b ? a - b : a + (size - b);
}

uint32_t psti_quick_at(const psti_quick *q, uint32_t position)
{
    assert(position < q->n);
    const uint32_t rows = q->rows, columns = q->columns;
    uint64_t x = position;
    do {
        uint32_t row = (uint32_t)(x / columns), column = (uint32_t)(x % columns);
        for (int i = 0; i < PSTI_QUICK_ROUNDS; i += 2) {
            row = add_mod(row, shift_of(column, q->key[i], rows), rows);
            column = add_mod(column, shift_of(row, q->key[i + 1], columns), columns);
        }
        x = (uint64_t)row * columns + column;
    } while (x >= q->n);
    return (uint32_t)x;
}

uint32_t psti_quick_find(const psti_quick *q, uint32_t value)
{
    assert(value < q->n);
    const uint32_t rows = q->rows, columns = q->columns;
    uint64_t x = value;
    do {
        uint32_t row = (uint32_t)(x / columns), column = (uint32_t)(x % columns);
        for (int i = PSTI_QUICK_ROUNDS - 2; i >= 0; i -= 2) {
            column = sub_mod(column, shift_of(row, q->key[i + 1], columns), columns);
            row = sub_mod(row, shift_of(column, q->key[i], rows), rows);
        }
        x = (uint64_t)row * columns + column;
    } while (x >= q->n);
    return (uint32_t)x;
}
