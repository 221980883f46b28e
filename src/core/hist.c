/* SPDX-License-Identifier: Apache-2.0
 * Log-linear buckets: exact below 16, then 16 steps per octave. */
#include "core/hist.h"

static unsigned bucket_of(uint64_t value)
{
    if (value < 16)
        return (unsigned)value;
    const unsigned octave = 63u - (unsigned)__builtin_clzll(value);
    return (octave - 3) * 16 + (unsigned)(value >> (octave - 4) & 15);
}

/* The least value that goes into a bucket. */
static uint64_t floor_of(unsigned bucket)
{
    if (bucket < 16)
        return bucket;
    const unsigned octave = bucket / 16 + 3;
    return ((uint64_t)16 + bucket % 16) << (octave - 4);
}

void psti_hist_add(psti_hist *hist, uint64_t value)
{
    hist->bucket[bucket_of(value)]++;
    hist->count++;
}

uint64_t psti_hist_quantile(const psti_hist *hist, double q)
{
    if (hist->count == 0)
        return 0;
    const uint64_t rank = (uint64_t)(q * (double)(hist->count - 1));
    uint64_t seen = 0;
    for (unsigned i = 0; i < PSTI_HIST_BUCKETS; i++) {
        seen += hist->bucket[i];
        if (seen > rank)
            return floor_of(i);
    }
    return 0;
}

double psti_hist_mass_above(const psti_hist *hist, uint64_t value)
{
    double above = 0, all = 0;
    for (unsigned i = 0; i < PSTI_HIST_BUCKETS; i++) {
        if (!hist->bucket[i]) /* most are empty */
            continue;
        const double mass = (double)hist->bucket[i] * (double)floor_of(i);
        all += mass;
        above += floor_of(i) > value ? mass : 0;
    }
    return all > 0 ? above / all : 0;
}

void psti_hist_fade(psti_hist *hist)
{
    hist->count = 0;
    for (unsigned i = 0; i < PSTI_HIST_BUCKETS; i++) {
        hist->bucket[i] /= 2;
        hist->count += hist->bucket[i];
    }
}
