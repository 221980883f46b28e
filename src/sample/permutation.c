/* SPDX-License-Identifier: Apache-2.0
 * A keyed permutation of [0, n), computed one value at a time: the swap-or-not shuffle of Hoang,
 * Morris and Rogaway (CRYPTO 2012), and the random streams of this room. Round i pairs each x with
 * K_i - x mod n, and a coin that both of a pair see alike says whether they change places. A round
 * undoes itself, so the inverse is the same rounds backwards. Pure functions of (n, seed, epoch):
 * any thread. Frozen: saved states depend on it.
 */
#include <assert.h>

#include "core/hash.h"
#include "core/rng.h"
#include "sample/sample_priv.h"

__extension__ typedef unsigned __int128 u128;

/* 2^64 / golden ratio: steps that spread over all 64 bits. */
static const uint64_t STEP = 0x9e3779b97f4a7c15u;

psti_stream psti_stream_of(uint64_t seed, uint64_t epoch, uint32_t kind)
{
    /* The last counter word keeps these apart from the draws of samples, where it is an occurrence.
     */
    const uint32_t counter[4] = {(uint32_t)epoch, (uint32_t)(epoch >> 32), kind, 0x80000000u};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    psti_stream stream;
    psti_philox(counter, key, stream.word);
    return stream;
}

void psti_stream_at(const psti_stream *stream, uint64_t counter, uint32_t out[4])
{
    const uint32_t words[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), stream->word[2],
                               stream->word[3]};
    psti_philox(words, stream->word, out);
}

double psti_stream_unit(const psti_stream *stream, uint64_t counter)
{
    uint32_t out[4];
    psti_stream_at(stream, counter, out);
    const uint64_t bits = (out[0] | (uint64_t)out[1] << 32) >> 12;
    return ((double)bits + 0.5) * 0x1p-52;
}

/* Six rounds per bit of n: after fewer, consecutive positions of a large n are still related. */
static int rounds_for(uint64_t n)
{
    const int bits = n > 1 ? 64 - __builtin_clzll(n - 1) : 1;
    const int rounds = 6 * bits;
    if (rounds < 24)
        return 24;
    return rounds < PSTI_PERMUTATION_ROUNDS ? rounds : PSTI_PERMUTATION_ROUNDS;
}

void psti_permutation_init(psti_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch)
{
    assert(n >= 1 && n <= INT64_MAX);
    const psti_stream stream = psti_stream_of(seed, epoch, PSTI_STREAM_SHUFFLE);
    uint32_t words[4];
    psti_stream_at(&stream, n, words);
    p->n = n;
    p->key[0] = words[0] | (uint64_t)words[1] << 32;
    p->key[1] = words[2] | (uint64_t)words[3] << 32;
    p->rounds = rounds_for(n);
    for (int i = 0; i < p->rounds; i++) {
        const uint64_t word = psti_mix64(p->key[0] + (uint64_t)(i + 1) * STEP);
        p->turn[i] = (uint64_t)((u128)word * n >> 64);
    }
}

/* n < 2^63, so the sign of K - x says whether n must be added; masks keep it free of branches. */
static inline uint64_t swap_or_not(uint64_t x, uint64_t n, uint64_t turn, uint64_t key)
{
    uint64_t other = turn - x;
    other += n & (uint64_t)((int64_t)other >> 63);
    const uint64_t larger = x > other ? x : other;
    return psti_mix64(larger ^ key) >> 63 ? other : x;
}

uint64_t psti_permutation_at(const psti_permutation *p, uint64_t position)
{
    assert(position < p->n);
    const uint64_t n = p->n;
    const int rounds = p->rounds;
    uint64_t x = position, key = p->key[1];
    for (int i = 0; i < rounds; i++, key += STEP)
        x = swap_or_not(x, n, p->turn[i], key);
    return x;
}

uint64_t psti_permutation_find(const psti_permutation *p, uint64_t value)
{
    assert(value < p->n);
    const uint64_t n = p->n;
    uint64_t x = value, key = p->key[1] + (uint64_t)(p->rounds - 1) * STEP;
    for (int i = p->rounds - 1; i >= 0; i--, key -= STEP)
        x = swap_or_not(x, n, p->turn[i], key);
    return x;
}
