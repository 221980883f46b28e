/* SPDX-License-Identifier: Apache-2.0
 * Filters on the mel scale: triangles whose corners are evenly spaced there, each rising from the
 * corner of the one before to its own and falling to the next one's. Computed in doubles as librosa
 * does and rounded to floats; only bins inside a triangle are kept, of which each bin has two at
 * most. Pure functions. */
#include "core/math.h"
#include "op/audio/audio.h"

/* Slaney's scale: straight below 1,000 Hz, where it has 15, and 27 to a factor of 6.4 above. */
#define KNEE_HZ  1000.0
#define KNEE_MEL 15.0

static double log_step(void)
{
    return psti_ln(6.4) / 27;
}

static double to_mel(psti_mel_scale scale, double hz)
{
    if (scale == PSTI_MEL_HTK)
        return 2595 / psti_ln(10) * psti_ln(1 + hz / 700);
    return hz < KNEE_HZ ? hz * (KNEE_MEL / KNEE_HZ) : KNEE_MEL + psti_ln(hz / KNEE_HZ) / log_step();
}

static double to_hz(psti_mel_scale scale, double mel)
{
    if (scale == PSTI_MEL_HTK)
        return 700 * (psti_exp(mel * psti_ln(10) / 2595) - 1);
    return mel < KNEE_MEL ? mel * (KNEE_HZ / KNEE_MEL)
                          : KNEE_HZ * psti_exp(log_step() * (mel - KNEE_MEL));
}

static size_t bins_of(const psti_log_mel *how)
{
    return (size_t)how->size / 2 + 1;
}

size_t psti_mel_bytes(const psti_log_mel *how)
{
    return (size_t)how->mels * 3 * sizeof(int) + 2 * bins_of(how) * sizeof(float);
}

/* Corner i of mels + 2. */
static double corner(const psti_log_mel *how, int i)
{
    const double low = to_mel(how->scale, how->low), high = to_mel(how->scale, how->high);
    return to_hz(how->scale, low + (high - low) * i / (how->mels + 1));
}

void psti_mel_init(psti_mel_filters *filters, const psti_log_mel *how, void *memory)
{
    const int bins = (int)bins_of(how);
    *filters = (psti_mel_filters){.first = memory,
                                  .count = (int *)memory + how->mels,
                                  .start = (int *)memory + 2 * how->mels,
                                  .weights = (float *)((int *)memory + 3 * how->mels)};
    int used = 0;
    for (int m = 0; m < how->mels; m++) {
        const double a = corner(how, m), b = corner(how, m + 1), c = corner(how, m + 2);
        const double height = how->even ? 2 / (c - a) : 1;
        filters->first[m] = filters->count[m] = 0;
        filters->start[m] = used;
        const double per_hz = how->size / how->rate;
        for (int i = (int)(a * per_hz); i < bins && i <= (int)(c * per_hz) + 1; i++) {
            const double hz = (double)i * how->rate / how->size;
            const double up = (hz - a) / (b - a), down = (c - hz) / (c - b);
            const double weight = up < down ? up : down;
            if (!(weight > 0) || used >= 2 * bins)
                continue;
            if (filters->count[m]++ == 0)
                filters->first[m] = i;
            filters->weights[used++] = (float)(weight * height);
        }
    }
}
