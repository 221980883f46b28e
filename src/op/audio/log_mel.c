/* SPDX-License-Identifier: Apache-2.0
 * Log-mel features: frames of a recording under a window, their power spectra, triangles on the mel
 * scale, logarithms. As torch.stft and librosa's filters make them, the recording mirrored at its
 * ends; frames whose centre lies behind the last sample are not made. Called by the ops of this
 * folder on worker threads. */
#include <string.h>

#include "op/audio/audio.h"
#include "op/kernels/kernels.h"

enum { ALIGN = 16 };

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

int64_t psti_log_mel_frames(const psti_log_mel *how, int64_t samples)
{
    if (!how->center)
        return samples < how->size ? 0 : 1 + (samples - how->size) / how->hop;
    return samples <= how->size / 2 ? 0 : (samples + how->hop - 1) / how->hop;
}

/* ---- scratch ---- */

typedef struct tables {
    psti_fft *fft;
    psti_mel_filters filters;
    float *window, *frame, *power, *sums;
} tables;

size_t psti_log_mel_scratch(const psti_log_mel *how)
{
    return psti_fft_bytes(how->size) + rounded(psti_mel_bytes(how)) +
           rounded((size_t)how->window * sizeof(float)) +
           rounded((size_t)how->size * sizeof(float)) +
           rounded(((size_t)how->size / 2 + 1) * sizeof(float)) +
           rounded((size_t)how->mels * sizeof(float));
}

static void make_window(const psti_log_mel *how, float *window)
{
    const int period = how->periodic || how->window == 1 ? how->window : how->window - 1;
    const double a = how->hamming ? 0.54 : 0.5;
    for (int i = 0; i < how->window; i++)
        window[i] = how->window == 1 ? 1 : (float)(a - (1 - a) * psti_cos_pi(2.0 * i / period));
}

static tables make_tables(const psti_log_mel *how, uint8_t *scratch)
{
    tables t;
    t.fft = psti_fft_init(scratch, how->size);
    scratch += psti_fft_bytes(how->size);
    psti_mel_init(&t.filters, how, scratch);
    scratch += rounded(psti_mel_bytes(how));
    t.window = (float *)(void *)scratch;
    scratch += rounded((size_t)how->window * sizeof(float));
    t.frame = (float *)(void *)scratch;
    scratch += rounded((size_t)how->size * sizeof(float));
    t.power = (float *)(void *)scratch;
    scratch += rounded(((size_t)how->size / 2 + 1) * sizeof(float));
    t.sums = (float *)(void *)scratch;
    make_window(how, t.window);
    memset(t.frame, 0, (size_t)how->size * sizeof(float));
    return t;
}

/* ---- one frame ---- */

/* Sample i of a recording that is mirrored at its ends. */
static float mirrored(const float *samples, int64_t n, int64_t i)
{
    if (i < 0)
        i = -i;
    if (i >= n)
        i = 2 * n - 2 - i;
    return samples[i];
}

/* What the window shows stands in the middle of the frame, zeros around it. */
static void fill_frame(const psti_log_mel *how, const float *samples, int64_t n, int64_t first,
                       const tables *t)
{
    float *to = t->frame + (how->size - how->window) / 2;
    if (first >= 0 && first + how->window <= n) {
        for (int i = 0; i < how->window; i++)
            to[i] = samples[first + i] * t->window[i];
        return;
    }
    for (int i = 0; i < how->window; i++)
        to[i] = mirrored(samples, n, first + i) * t->window[i];
}

static void filter(const psti_log_mel *how, const tables *t, float floor)
{
    const psti_mel_filters *f = &t->filters;
    for (int m = 0; m < how->mels; m++) {
        const float *power = t->power + f->first[m], *weight = f->weights + f->start[m];
        float sum = 0;
        for (int i = 0; i < f->count[m]; i++)
            sum += power[i] * weight[i];
        t->sums[m] = sum + floor;
    }
}

/* Kernels take logarithms of numbers that have one; what is infinite or no number stays visible. */
static void take_logarithms(const float *sums, int n, float *out)
{
    psti_kernels_get()->values.ln(sums, (size_t)n, out);
    for (int i = 0; i < n; i++)
        if (!(sums[i] <= 3.0e38f))
            out[i] = sums[i];
}

void psti_log_mel_run(const psti_log_mel *how, const float *samples, int64_t n, void *scratch,
                      float *out)
{
    const int64_t frames = psti_log_mel_frames(how, n);
    const tables t = make_tables(how, scratch);
    const int64_t lead = (how->size - how->window) / 2 - (how->center ? how->size / 2 : 0);
    const float floor = (float)how->floor;
    for (int64_t i = 0; i < frames; i++, out += how->mels) {
        fill_frame(how, samples, n, i * how->hop + lead, &t);
        psti_fft_power(t.fft, t.frame, t.power);
        filter(how, &t, floor);
        take_logarithms(t.sums, how->mels, out);
    }
}
