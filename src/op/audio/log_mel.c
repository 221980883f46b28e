/* SPDX-License-Identifier: Apache-2.0
 * Log-mel features: frames of a recording under a window, their power spectra, triangles on the mel
 * scale, logarithms. As torch.stft and librosa's filters make them, the recording mirrored at its
 * ends; frames whose centre lies behind the last sample are not made. Called by the ops of this
 * folder on worker threads. */
#include <string.h>

#include "op/audio/audio.h"
#include "op/kernels/kernels.h"

enum { ALIGN = 64 };

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

/* Frames stand side by side, PSTI_FFT_LANES of them: a row has a number of each. */
typedef struct tables {
    psti_fft *fft;
    psti_mel_filters filters;
    float *window, *frames, *power, *sums, *logs;
} tables;

enum { LANES = PSTI_FFT_LANES };

static size_t lanes_bytes(size_t rows)
{
    return rounded(rows * LANES * sizeof(float));
}

size_t psti_log_mel_scratch(const psti_log_mel *how)
{
    return rounded(psti_fft_bytes(how->size)) + rounded(psti_mel_bytes(how)) +
           rounded((size_t)how->window * sizeof(float)) + lanes_bytes((size_t)how->size) +
           lanes_bytes((size_t)how->size / 2 + 1) + 2 * lanes_bytes((size_t)how->mels);
}

static void make_window(const psti_log_mel *how, float *window)
{
    const int period = how->periodic || how->window == 1 ? how->window : how->window - 1;
    const double a = how->hamming ? 0.54 : 0.5;
    for (int i = 0; i < how->window; i++)
        window[i] = how->window == 1 ? 1 : (float)(a - (1 - a) * psti_cos_pi(2.0 * i / period));
}

static float *taken(uint8_t **scratch, size_t bytes)
{
    float *at = (float *)(void *)*scratch;
    *scratch += bytes;
    return at;
}

static tables make_tables(const psti_log_mel *how, uint8_t *scratch)
{
    tables t;
    t.fft = psti_fft_init(scratch, how->size);
    scratch += rounded(psti_fft_bytes(how->size));
    psti_mel_init(&t.filters, how, scratch);
    scratch += rounded(psti_mel_bytes(how));
    t.window = taken(&scratch, rounded((size_t)how->window * sizeof(float)));
    t.frames = taken(&scratch, lanes_bytes((size_t)how->size));
    t.power = taken(&scratch, lanes_bytes((size_t)how->size / 2 + 1));
    t.sums = taken(&scratch, lanes_bytes((size_t)how->mels));
    t.logs = taken(&scratch, lanes_bytes((size_t)how->mels));
    make_window(how, t.window);
    return t;
}

/* ---- some frames ---- */

/* Sample i of a recording that is mirrored at its ends. */
static float mirrored(const float *samples, int64_t n, int64_t i)
{
    if (i < 0)
        i = -i;
    if (i >= n)
        i = 2 * n - 2 - i;
    return samples[i];
}

/* What the window shows stands in the middle of the frame, zeros around it; first: the sample that
 * stands first under the window. */
static void fill_frame(const psti_log_mel *how, const float *samples, int64_t n, int64_t first,
                       const tables *t, int lane)
{
    float *to = t->frames + (size_t)((how->size - how->window) / 2) * LANES + lane;
    if (first >= 0 && first + how->window <= n) {
        for (int i = 0; i < how->window; i++)
            to[i * LANES] = samples[first + i] * t->window[i];
        return;
    }
    for (int i = 0; i < how->window; i++)
        to[i * LANES] = mirrored(samples, n, first + i) * t->window[i];
}

static void filter(const psti_log_mel *how, const tables *t, float floor)
{
    const psti_audio_kernels *kernels = &psti_kernels_get()->audio;
    const psti_mel_filters *f = &t->filters;
    for (int m = 0; m < how->mels; m++)
        kernels->weigh(t->power + (size_t)f->first[m] * LANES, f->weights + f->start[m],
                       f->count[m], floor, t->sums + (size_t)m * LANES);
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
    for (int64_t i = 0; i < frames; i += LANES) {
        const int count = frames - i < LANES ? (int)(frames - i) : LANES;
        memset(t.frames, 0, lanes_bytes((size_t)how->size));
        for (int l = 0; l < count; l++)
            fill_frame(how, samples, n, (i + l) * how->hop + lead, &t, l);
        psti_fft_power(t.fft, t.frames, t.power);
        filter(how, &t, (float)how->floor);
        take_logarithms(t.sums, how->mels * LANES, t.logs);
        for (int l = 0; l < count; l++, out += how->mels)
            for (int m = 0; m < how->mels; m++)
                out[m] = t.logs[m * LANES + l];
    }
}
