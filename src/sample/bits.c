/* SPDX-License-Identifier: Apache-2.0
 * Bitmaps that are searched: see share_priv.h. A set bit sets one bit in each level above as far as
 * that is news; clearing the last bit of a word goes up the same way. Caller's storage for the
 * struct, one allocation for all levels; the caller serialises.
 */
#include <errno.h>
#include <string.h>

#include "sample/share_priv.h"

int psti_bits_init(psti_bits *b, uint32_t n)
{
    *b = (psti_bits){.n = n};
    for (size_t w = psti_mask_words(n);; w = (w + 63) / 64) {
        b->count[b->levels++] = (uint32_t)w;
        b->words += w;
        if (w <= 1)
            break;
    }
    uint64_t *at = psti_calloc(PSTI_MEM_SAMPLE, b->words, sizeof *at);
    if (!at)
        return -ENOMEM;
    for (int i = 0; i < b->levels; i++) {
        b->level[i] = at;
        at += b->count[i];
    }
    return 0;
}

void psti_bits_fini(psti_bits *b)
{
    psti_free(b->level[0]);
    *b = (psti_bits){0};
}

void psti_bits_none(psti_bits *b)
{
    memset(b->level[0], 0, b->words * sizeof *b->level[0]);
}

void psti_bits_all(psti_bits *b)
{
    uint32_t n = b->n;
    for (int i = 0; i < b->levels; n = b->count[i++]) {
        memset(b->level[i], 0xff, b->count[i] * sizeof **b->level);
        if (n % 64)
            b->level[i][b->count[i] - 1] = ((uint64_t)1 << n % 64) - 1;
    }
}

void psti_bits_set(psti_bits *b, uint32_t at)
{
    for (int i = 0; i < b->levels; i++, at >>= 6) {
        uint64_t *word = &b->level[i][at >> 6];
        const uint64_t before = *word;
        *word = before | (uint64_t)1 << (at & 63);
        if (before)
            return;
    }
}

void psti_bits_clear(psti_bits *b, uint32_t at)
{
    for (int i = 0; i < b->levels; i++, at >>= 6) {
        uint64_t *word = &b->level[i][at >> 6];
        *word &= ~((uint64_t)1 << (at & 63));
        if (*word)
            return;
    }
}

/* From a bit of level i known to be set, down to the first set bit below it. */
static uint32_t descend(const psti_bits *b, int i, uint32_t at)
{
    while (i > 0) {
        i--;
        at = at << 6 | (uint32_t)__builtin_ctzll(b->level[i][at]);
    }
    return at;
}

uint32_t psti_bits_next(const psti_bits *b, uint32_t from)
{
    uint32_t at = from; /* in level i: the first bit that may lead to the answer */
    for (int i = 0; i < b->levels; i++) {
        const uint32_t word = at >> 6;
        if (word >= b->count[i])
            return b->n;
        const uint64_t rest = b->level[i][word] >> (at & 63);
        if (rest)
            return descend(b, i, at + (uint32_t)__builtin_ctzll(rest));
        at = word + 1;
    }
    return b->n;
}
