/* SPDX-License-Identifier: Apache-2.0
 * The transform of real numbers, through kissfft. Nothing else here knows the library, so another
 * one takes its place by taking this file's. The plan lies in memory of the caller's; the library
 * allocates nothing for sizes of factors 2, 3 and 5. One thread at a time. */
#include "op/audio/audio.h"

#ifdef PSTI_HAVE_FFT
#include <kiss_fftr.h>

struct psti_fft {
    kiss_fftr_cfg plan;
    int size;
    kiss_fft_cpx *result;
};

enum { ALIGN = 16 };

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t plan_bytes(int size)
{
    size_t bytes = 0;
    (void)kiss_fftr_alloc(size, 0, NULL, &bytes);
    return bytes;
}

static size_t result_bytes(int size)
{
    return rounded(((size_t)size / 2 + 1) * sizeof(kiss_fft_cpx));
}

bool psti_fft_fits(int size)
{
    if (size < 8 || size > PSTI_FFT_MOST || size % 2)
        return false;
    for (int factor = 2; factor <= 5; factor++)
        while (size % factor == 0)
            size /= factor;
    return size == 1;
}

size_t psti_fft_bytes(int size)
{
    return rounded(sizeof(psti_fft)) + result_bytes(size) + rounded(plan_bytes(size));
}

psti_fft *psti_fft_init(void *memory, int size)
{
    uint8_t *at = memory;
    psti_fft *fft = memory;
    size_t bytes = plan_bytes(size);
    at += rounded(sizeof *fft);
    fft->size = size;
    fft->result = (kiss_fft_cpx *)(void *)at;
    at += result_bytes(size);
    fft->plan = kiss_fftr_alloc(size, 0, at, &bytes);
    return fft;
}

void psti_fft_power(psti_fft *fft, const float *frame, float *power)
{
    kiss_fftr(fft->plan, frame, fft->result);
    for (int i = 0; i <= fft->size / 2; i++) {
        const kiss_fft_cpx x = fft->result[i];
        power[i] = x.r * x.r + x.i * x.i;
    }
}

#else

struct psti_fft {
    int size;
};

bool psti_fft_fits(int size)
{
    (void)size;
    return false;
}

size_t psti_fft_bytes(int size)
{
    (void)size;
    return sizeof(psti_fft);
}

psti_fft *psti_fft_init(void *memory, int size)
{
    psti_fft *fft = memory;
    fft->size = size;
    return fft;
}

void psti_fft_power(psti_fft *fft, const float *frame, float *power)
{
    (void)frame;
    for (int i = 0; i <= fft->size / 2; i++)
        power[i] = 0;
}
#endif
