/* SPDX-License-Identifier: Apache-2.0
 * What ops on recordings are made of, as plain functions on numbers: whatever is random comes in as
 * an argument, memory is the caller's, and a table lives no longer than the call that needs it.
 * Worker threads; nothing blocks or allocates. */
#ifndef PSTI_OP_AUDIO_H
#define PSTI_OP_AUDIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- angles (turn.c) ------------------------------------------------------------------------- */

/* Sine and cosine of pi times x, within 1e-15, |x| < 2^31; a few nanoseconds. One written order of
 * operations, so tables are the same on every machine. */
double psti_sin_pi(double x);
double psti_cos_pi(double x);

/* ---- recordings (wave.c) --------------------------------------------------------------------- */

/* A mono recording. */
typedef struct psti_wave {
    const void *data;
    int dtype; /* PST_I16: in 32,768ths; or PST_F32 */
    int64_t count;
} psti_wave;

/* `n` samples from `first` on, as floats in -1..1. */
void psti_wave_load(const psti_wave *wave, int64_t first, int64_t n, float *out);
/* Takes from each sample what `share` of the one before it is; the first stays. */
void psti_wave_emphasize(float *samples, int64_t n, float share);

/* Silence at both ends, by librosa's rule (effects.trim): the recording, with half a frame of zeros
 * before and after it, is cut into frames every hop samples; a frame is silent when its mean square
 * is top_db or more below that of the loudest, both taken as 1e-10 where they are less. What is
 * left goes from the first frame that is not silent to the hop after the last one. Where all is
 * equally quiet, all is left. */
typedef struct psti_trim {
    double top_db; /* above 0 */
    int64_t frame, hop;
} psti_trim;
void psti_wave_trim(const psti_trim *how, const psti_wave *wave, int64_t *first, int64_t *end);

/* ---- another rate (sinc.c) ------------------------------------------------------------------- */

/* From `from` samples to `to` samples in the same time, as torchaudio.functional.resample does by
 * default: a sinc of six zero crossings to each side under a Hann window, cut off at 0.99 of the
 * lower of both rates; where both are the same, what came in. Playing a recording at another speed
 * is from = speed, to = 1, as whole numbers. */
typedef struct psti_sinc {
    int64_t from, to; /* without a common divisor */
    int64_t width;    /* samples before the first that a result is made of */
    int64_t taps;     /* of one result, a multiple of 8 */
} psti_sinc;
/* False when the table would be larger than 64 MiB. from, to: 1 .. 2^31 - 1. */
bool psti_sinc_init(psti_sinc *how, int64_t from, int64_t to);
int64_t psti_sinc_count(const psti_sinc *how, int64_t samples);
/* Bytes of scratch memory that run needs, aligned to 8. */
size_t psti_sinc_scratch(const psti_sinc *how);
void psti_sinc_run(const psti_sinc *how, const float *samples, int64_t n, void *scratch,
                   float *out);

/* ---- spectra (fft.c) ------------------------------------------------------------------------- */

/* Transforms of real numbers, of PSTI_FFT_LANES frames side by side; within 1e-6 of the largest.
 * Powers of two are the same to the bit everywhere; other sizes are a library's, known to fft.c
 * alone, and may differ in the last bits from one version to the next. */
typedef struct psti_fft psti_fft;
enum { PSTI_FFT_MOST = 1 << 16, PSTI_FFT_LANES = 8 };
/* Whether there are transforms of so many numbers: a power of two, or even and a product of 2, 3
 * and 5 in a build with the library; 8 and up. */
bool psti_fft_fits(int size);
size_t psti_fft_bytes(int size);
/* Makes a transform in memory of psti_fft_bytes, aligned to 16. One thread at a time. */
psti_fft *psti_fft_init(void *memory, int size);
/* Squares of the absolute values, size / 2 + 1 of each frame. Number i of frame l is at
 * [i * PSTI_FFT_LANES + l], and so is what comes out; frames are used up. */
void psti_fft_power(psti_fft *fft, float *frames, float *power);

/* ---- log-mel features (mel.c, log_mel.c) ------------------------------------------------------
 */

typedef enum psti_mel_scale { PSTI_MEL_SLANEY, PSTI_MEL_HTK } psti_mel_scale;

typedef struct psti_log_mel {
    int mels;
    int size;        /* of the transform */
    int window, hop; /* window <= size */
    bool hamming;    /* else Hann */
    bool periodic;   /* the window's period is its length, not one less */
    bool center;     /* the recording is mirrored at its ends by half a transform */
    psti_mel_scale scale;
    bool even;        /* filters have the same area (norm=slaney), not the same height */
    double low, high; /* of the filters, Hz */
    double rate;      /* of the recording, Hz */
    double floor;     /* added before the logarithm */
} psti_log_mel;

/* Triangles on the mel scale, as librosa.filters.mel makes them. Filter m weighs count[m] bins from
 * first[m] on, by the weights at weights + start[m]. */
typedef struct psti_mel_filters {
    int *first, *count, *start;
    float *weights;
} psti_mel_filters;
size_t psti_mel_bytes(const psti_log_mel *how);
void psti_mel_init(psti_mel_filters *filters, const psti_log_mel *how, void *memory);

/* How many frames so many samples make; 0: they are too few. With center that is samples / hop,
 * rounded up. */
int64_t psti_log_mel_frames(const psti_log_mel *how, int64_t samples);
size_t psti_log_mel_scratch(const psti_log_mel *how);
/* Frames x mels. Scratch memory is aligned to 16. */
void psti_log_mel_run(const psti_log_mel *how, const float *samples, int64_t n, void *scratch,
                      float *out);

/* ---- features (features.c) ------------------------------------------------------------------- */

/* Each column less its mean, divided by its unbiased deviation + floor. In place; sums: memory for
 * 2 * cols doubles. A single row becomes zeros. */
void psti_frames_normalize(float *frames, int64_t rows, int64_t cols, double floor, double *sums);
/* Rows or columns that are laid zero. */
typedef struct psti_band {
    int64_t first, count;
} psti_band;
void psti_frames_mask_rows(float *frames, int64_t rows, int64_t cols, psti_band band);
void psti_frames_mask_cols(float *frames, int64_t rows, int64_t cols, psti_band band);
/* Every skip-th row with the count - 1 rows behind it in one; zeros past the end. Makes
 * psti_frames_stacked(rows, skip) rows of count * cols. */
int64_t psti_frames_stacked(int64_t rows, int64_t skip);
void psti_frames_stack(const float *frames, int64_t rows, int64_t cols, int64_t count, int64_t skip,
                       float *out);

#endif
