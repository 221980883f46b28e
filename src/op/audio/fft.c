/* SPDX-License-Identifier: Apache-2.0
 * Power spectra of several frames at a time. Powers of two are transformed by our own kernels, the
 * same to the bit whatever the machine; other sizes by kissfft, which only this file knows, frame
 * by frame. Tables lie in memory of the caller's; the library allocates nothing for sizes of
 * factors 2, 3 and 5. One thread at a time. */
#include <string.h>

#include "op/audio/audio.h"
#include "op/kernels/kernels.h"

#ifdef PSTI_HAVE_FFT
#include <kiss_fftr.h>
#endif

enum { ALIGN = 64, LANES = PSTI_AUDIO_LANES };

struct psti_fft {
    psti_spectrum own;
    float *spare; /* own: as large as the frames */
    void *plan;   /* of the library, else NULL */
    float *frame, *result;
};

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool is_own(int size)
{
    return size >= 8 && (size & (size - 1)) == 0;
}

/* ---- the library ----------------------------------------------------------------------------- */

#ifdef PSTI_HAVE_FFT
static bool library_fits(int size)
{
    for (int factor = 2; factor <= 5; factor++)
        while (size % factor == 0)
            size /= factor;
    return size == 1;
}

static size_t library_bytes(int size)
{
    size_t bytes = 0;
    (void)kiss_fftr_alloc(size, 0, NULL, &bytes);
    return rounded(bytes) + rounded((size_t)size * sizeof(float)) +
           rounded(((size_t)size / 2 + 1) * sizeof(kiss_fft_cpx));
}

static void library_init(psti_fft *fft, uint8_t *at)
{
    const int size = fft->own.size;
    size_t bytes = 0;
    (void)kiss_fftr_alloc(size, 0, NULL, &bytes);
    fft->plan = kiss_fftr_alloc(size, 0, at, &bytes);
    at += rounded(bytes);
    fft->frame = (float *)(void *)at;
    fft->result = (float *)(void *)(at + rounded((size_t)size * sizeof(float)));
}

static void library_power(psti_fft *fft, const float *frames, float *power)
{
    const int size = fft->own.size;
    kiss_fft_cpx *result = (kiss_fft_cpx *)(void *)fft->result;
    for (int l = 0; l < LANES; l++) {
        for (int i = 0; i < size; i++)
            fft->frame[i] = frames[(size_t)i * LANES + (size_t)l];
        kiss_fftr(fft->plan, fft->frame, result);
        for (int i = 0; i <= size / 2; i++)
            power[(size_t)i * LANES + (size_t)l] =
                result[i].r * result[i].r + result[i].i * result[i].i;
    }
}

#else

static bool library_fits(int size)
{
    (void)size;
    return false;
}

static size_t library_bytes(int size)
{
    (void)size;
    return 0;
}

static void library_init(psti_fft *fft, uint8_t *at)
{
    (void)fft, (void)at;
}

static void library_power(psti_fft *fft, const float *frames, float *power)
{
    (void)fft, (void)frames, (void)power;
}
#endif

/* ---- both ------------------------------------------------------------------------------------ */

bool psti_fft_fits(int size)
{
    return size >= 8 && size <= PSTI_FFT_MOST && size % 2 == 0 &&
           (is_own(size) || library_fits(size));
}

static size_t turn_bytes(int size)
{
    return rounded(2 * ((size_t)size / 4 + 1) * sizeof(float));
}

static size_t half_turn_bytes(int size)
{
    return rounded((size_t)size * sizeof(float));
}

size_t psti_fft_bytes(int size)
{
    const size_t own =
        turn_bytes(size) + half_turn_bytes(size) + rounded((size_t)size * LANES * sizeof(float));
    return rounded(sizeof(psti_fft)) + (is_own(size) ? own : library_bytes(size));
}

static void fill_turns(float *turn, int count, double step)
{
    for (int i = 0; i < count; i++) {
        turn[2 * i] = (float)psti_cos_pi(step * i);
        turn[2 * i + 1] = (float)-psti_sin_pi(step * i);
    }
}

psti_fft *psti_fft_init(void *memory, int size)
{
    uint8_t *at = (uint8_t *)memory + rounded(sizeof(psti_fft));
    psti_fft *fft = memory;
    *fft = (psti_fft){.own.size = size};
    if (!is_own(size)) {
        library_init(fft, at);
        return fft;
    }
    float *turn = (float *)(void *)at, *half = (float *)(void *)(at + turn_bytes(size));
    fill_turns(turn, size / 4 + 1, 2.0 / size);
    fill_turns(half, size / 2, 4.0 / size);
    fft->own.turn = turn;
    fft->own.half_turn = half;
    fft->spare = (float *)(void *)(at + turn_bytes(size) + half_turn_bytes(size));
    return fft;
}

void psti_fft_power(psti_fft *fft, float *frames, float *power)
{
    if (is_own(fft->own.size))
        psti_kernels_get()->audio.power(&fft->own, frames, fft->spare, power);
    else
        library_power(fft, frames, power);
}
