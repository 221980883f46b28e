/* SPDX-License-Identifier: Apache-2.0
 * Recordings sample by sample: as floats, sharpened, and where they are silent. Called
 * by the ops of this folder on worker threads. */
#include <string.h>

#include "core/math.h"
#include "op/audio/audio.h"
#include "op/kernels/kernels.h"
#include "penstock.h"

enum { CHUNK = 256, LANES = 8 };

void psti_wave_load(const psti_wave *wave, int64_t first, int64_t n, float *out)
{
    if (wave->dtype != PST_I16) {
        memcpy(out, (const float *)wave->data + first, (size_t)n * sizeof *out);
        return;
    }
    psti_kernels_get()->values.widen_i16((const int16_t *)wave->data + first, (size_t)n, 0x1p-15f,
                                         out);
}

void psti_wave_emphasize(float *samples, int64_t n, float share)
{
    psti_kernels_get()->audio.emphasize(samples, (size_t)n, share);
}

/* ---- silence ---- */

/* The sum of squares in eight columns and then across: an order that vectors can follow. */
static double squares(const psti_wave *wave, int64_t first, int64_t n)
{
    double sums[LANES] = {0};
    float part[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t m = n - at < CHUNK ? n - at : CHUNK;
        psti_wave_load(wave, first + at, m, part);
        memset(part + m, 0, (size_t)(CHUNK - m) * sizeof *part);
        for (int64_t i = 0; i < m; i += LANES)
            for (int k = 0; k < LANES; k++)
                sums[k] += (double)part[i + k] * (double)part[i + k];
    }
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            sums[k] += sums[k + half];
    return sums[0];
}

/* The mean square of frame i, which begins half a frame before sample i * hop. */
static double loudness(const psti_trim *how, const psti_wave *wave, int64_t i)
{
    const int64_t begin = i * how->hop - how->frame / 2, end = begin + how->frame;
    const int64_t from = begin > 0 ? begin : 0, to = end < wave->count ? end : wave->count;
    const double mean = to > from ? squares(wave, from, to - from) / (double)how->frame : 0;
    return mean > 1e-10 ? mean : 1e-10;
}

/* Frames are looked at twice at most: once for the loudest, and again from either end up to the
 * first that counts. */
void psti_wave_trim(const psti_trim *how, const psti_wave *wave, int64_t *first, int64_t *end)
{
    const int64_t padded = wave->count + how->frame / 2 * 2;
    const int64_t frames = padded < how->frame ? 0 : 1 + (padded - how->frame) / how->hop;
    double most = 0;
    for (int64_t i = 0; i < frames; i++) {
        const double here = loudness(how, wave, i);
        most = here > most ? here : most;
    }
    const double least = most * psti_exp(-how->top_db * 0.23025850929940457); /* ln(10) / 10 */
    int64_t begin = 0, last = frames - 1;
    while (begin < frames && !(loudness(how, wave, begin) > least))
        begin++;
    while (last > begin && !(loudness(how, wave, last) > least))
        last--;
    *first = begin < frames ? begin * how->hop : 0;
    const int64_t behind = begin < frames ? (last + 1) * how->hop : 0;
    *end = behind < wave->count ? behind : wave->count;
}
