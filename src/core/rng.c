/* SPDX-License-Identifier: Apache-2.0
 * Philox4x32-10 (Salmon et al., SC'11) and the draws made from it. */
#include "core/rng.h"

#include <math.h>

#include "core/math.h"

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
    rng->id = (int64_t)key->id;
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

/* Marsaglia's polar method; the second deviate of each pair is not kept. sqrt is exact by IEEE 754,
 * so nothing here depends on the C library. */
double psti_rng_normal(psti_rng *rng)
{
    double x, s;
    do {
        x = 2.0 * psti_rng_unit(rng) - 1.0;
        const double y = 2.0 * psti_rng_unit(rng) - 1.0;
        s = x * x + y * y;
    } while (s >= 1.0 || s == 0.0);
    return x * sqrt(-2.0 * psti_ln(s) / s);
}

/* Uniform in (0, 1]: has a logarithm. */
static double unit_above_zero(psti_rng *rng)
{
    return 1.0 - psti_rng_unit(rng);
}

/* The logarithm of a Gamma(a, 1) deviate (Marsaglia and Tsang, 2000): for small a the deviate
 * itself may be less than any double. */
static double ln_gamma_deviate(psti_rng *rng, double a)
{
    const double d = (a < 1.0 ? a + 1.0 : a) - 1.0 / 3.0;
    const double c = 1.0 / sqrt(9.0 * d);
    double cube;
    for (;;) {
        const double x = psti_rng_normal(rng);
        const double v = 1.0 + c * x;
        if (v <= 0.0)
            continue;
        cube = v * v * v;
        const double u = unit_above_zero(rng);
        if (psti_ln(u) < 0.5 * (x * x) + (d - d * cube) + d * psti_ln(cube))
            break;
    }
    const double ln = psti_ln(d * cube);
    return a < 1.0 ? ln + psti_ln(unit_above_zero(rng)) / a : ln;
}

double psti_rng_beta(psti_rng *rng, double a, double b)
{
    const double x = ln_gamma_deviate(rng, a), y = ln_gamma_deviate(rng, b);
    return 1.0 / (1.0 + psti_exp(y - x));
}
