/* SPDX-License-Identifier: Apache-2.0
 * Philox4x32-10 (Salmon et al., SC'11) and the draws made from it. */
#include "core/rng.h"

__extension__ typedef unsigned __int128 u128;

void psti_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c0;
        const uint64_t b = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void psti_rng_init(psti_rng *rng, const psti_rng_key *key, uint32_t op)
{
    const uint32_t counter[4] = {(uint32_t)key->id, (uint32_t)(key->id >> 32), (uint32_t)key->epoch,
                                 key->occurrence};
    const uint32_t seed[2] = {(uint32_t)key->seed, (uint32_t)(key->seed >> 32)};
    psti_philox(counter, seed, rng->stream);
    rng->place = key->view << 16 | (op & 0xffff);
    rng->n = 0;
    rng->left = 0;
}

uint32_t psti_rng_u32(psti_rng *rng)
{
    if (rng->left == 0) {
        const uint32_t counter[4] = {rng->stream[2], rng->stream[3], rng->place, rng->n++};
        psti_philox(counter, rng->stream, rng->block);
        rng->left = 4;
    }
    return rng->block[4 - rng->left--];
}

uint64_t psti_rng_u64(psti_rng *rng)
{
    const uint64_t low = psti_rng_u32(rng);
    return low | (uint64_t)psti_rng_u32(rng) << 32;
}

double psti_rng_unit(psti_rng *rng)
{
    return (double)(psti_rng_u64(rng) >> 11) * 0x1p-53;
}

double psti_rng_range(psti_rng *rng, double low, double high)
{
    return low + psti_rng_unit(rng) * (high - low);
}

uint64_t psti_rng_below(psti_rng *rng, uint64_t n)
{
    /* Lemire's multiply-shift with rejection. */
    u128 m = (u128)psti_rng_u64(rng) * n;
    uint64_t low = (uint64_t)m;
    if (low < n) {
        const uint64_t floor = -n % n;
        while (low < floor) {
            m = (u128)psti_rng_u64(rng) * n;
            low = (uint64_t)m;
        }
    }
    return (uint64_t)(m >> 64);
}
