/* SPDX-License-Identifier: Apache-2.0
 * Recordings at another rate. A result lies between samples at one of `to` places that come round
 * again; each place has a row of weights, made here for each call: a few thousand numbers against
 * hundreds of thousands of results. Called by the ops of this folder on worker threads.
 *
 * torchaudio's rule, its corners included: weights are computed as written there, in doubles, and
 * rounded to floats; what lies before and behind the recording is zero. Only weights that the
 * window leaves are kept, so the result differs by the order of sums. */
#include <string.h>

#include "op/audio/audio.h"
#include "op/kernels/kernels.h"

enum { LANES = 8, CROSSINGS = 6 };
#define ROLLOFF   0.99
#define PI        3.14159265358979323846
#define BYTES_MAX ((int64_t)64 << 20)

static int64_t divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static double base_of(const psti_sinc *how)
{
    return (double)(how->from < how->to ? how->from : how->to) * ROLLOFF;
}

bool psti_sinc_init(psti_sinc *how, int64_t from, int64_t to)
{
    const int64_t common = divisor(from, to);
    *how = (psti_sinc){.from = from / common, .to = to / common};
    const double reach = CROSSINGS * (double)how->from / base_of(how);
    how->width = (int64_t)reach + ((double)(int64_t)reach < reach);
    how->taps = (2 * how->width + 1 + LANES - 1) / LANES * LANES;
    return how->to <= BYTES_MAX / (how->taps * (int64_t)sizeof(float));
}

int64_t psti_sinc_count(const psti_sinc *how, int64_t samples)
{
    const int64_t whole = samples / how->from, rest = samples % how->from;
    return whole * how->to + (rest * how->to + how->from - 1) / how->from;
}

size_t psti_sinc_scratch(const psti_sinc *how)
{
    return (size_t)(how->taps * (how->to + 1)) * sizeof(float);
}

/* The sample at or before result `phase`. */
static int64_t before(const psti_sinc *how, int64_t phase)
{
    return phase * how->from / how->to;
}

/* The weight of the sample `index` for result `phase` of a round. */
static double weight(const psti_sinc *how, int64_t phase, int64_t index)
{
    const double base = base_of(how), from = (double)how->from;
    const double t = ((double)-phase / (double)how->to + (double)index / from) * base;
    if (t <= -CROSSINGS || t >= CROSSINGS)
        return 0;
    const double bell = psti_cos_pi(t / CROSSINGS / 2);
    const double wave = t == 0 ? 1 : psti_sin_pi(t) / (t * PI);
    return wave * (bell * bell * (base / from));
}

static void make_table(const psti_sinc *how, float *table)
{
    for (int64_t p = 0; p < how->to; p++) {
        const int64_t first = before(how, p) - how->width;
        for (int64_t k = 0; k < how->taps; k++)
            table[p * how->taps + k] = (float)weight(how, p, first + k);
    }
}

/* Near the ends: the samples that there are, among zeros. */
static const float *fill_edge(const float *samples, int64_t n, int64_t first, int64_t taps,
                              float *edge)
{
    const int64_t from = first > 0 ? first : 0, to = first + taps < n ? first + taps : n;
    memset(edge, 0, (size_t)taps * sizeof *edge);
    if (to > from)
        memcpy(edge + (from - first), samples + from, (size_t)(to - from) * sizeof *edge);
    return edge;
}

void psti_sinc_run(const psti_sinc *how, const float *samples, int64_t n, void *scratch, float *out)
{
    const psti_audio_kernels *kernels = &psti_kernels_get()->audio;
    float *table = scratch, *edge = table + how->taps * how->to;
    const int64_t count = psti_sinc_count(how, n), taps = how->taps;
    if (how->from == how->to) {
        memcpy(out, samples, (size_t)n * sizeof *out);
        return;
    }
    make_table(how, table);
    for (int64_t i = 0, start = -how->width; i < count; start += how->from)
        for (int64_t p = 0; p < how->to && i < count; p++, i++) {
            const int64_t first = start + before(how, p);
            const bool inside = first >= 0 && first + taps <= n;
            const float *x = inside ? samples + first : fill_edge(samples, n, first, taps, edge);
            out[i] = kernels->dot(x, table + p * taps, taps);
        }
}
