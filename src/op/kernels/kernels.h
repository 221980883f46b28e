/* SPDX-License-Identifier: Apache-2.0
 * The inner loops of ops and finish, as a struct of function pointers: filled with the C versions,
 * then overwritten ISA by ISA. The C version is the specification; every other one gives the same
 * bytes, floats included.
 *
 * Kernels keep no state, allocate nothing, take any alignment, and neither read nor write past the
 * bytes they are given. Worker threads. */
#ifndef PSTI_OP_KERNELS_KERNELS_H
#define PSTI_OP_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "core/cpu.h"

/* ---- resampling ------------------------------------------------------------------------------ */

enum {
    PSTI_WEIGHT_BITS = 22, /* a weight of 1 is 1 << 22; sums stay inside 32 bits */
    PSTI_SPLIT_BITS =
        11, /* SIMD splits w = high * 2^11 + low, so that both fit 16-bit multiplies */
    PSTI_ROWS_AT_ONCE = 4 /* rows a horizontal call takes at most */
};

/* One direction of a resize: output i is the sum over t < count[i] of source[first[i] + t] *
 * weights[i * stride + t], plus a half, shifted down by PSTI_WEIGHT_BITS, clipped to a byte. */
typedef struct psti_axis {
    int in, out;
    int taps;   /* the largest count */
    int stride; /* weights from output to output, a multiple of 8; those past count are zero */
    int32_t *first, *count, *weights;
} psti_axis;

/* The horizontal pass made ready for one axis: `table` is memory of across_bytes, laid out as `run`
 * wants it. */
typedef struct psti_across psti_across;
struct psti_across {
    const psti_axis *axis;
    int channels; /* 1..4 */
    int pairs;    /* of taps, or what the level counts by */
    void *table;
    /* Makes n (1..PSTI_ROWS_AT_ONCE) rows of axis->out pixels. Source rows hold axis->in pixels;
     * rows do not overlap. */
    void (*run)(const psti_across *across, const uint8_t *const *src, uint8_t *const *dst, int n);
};

/* ---- affine maps ------------------------------------------------------------------------------
 */

/* One row of the result. Output column i has its source at the lines x and y (see psti_warp_at). */
typedef struct psti_warp_row {
    const uint8_t *data; /* the whole source: rows x cols pixels of channels bytes */
    size_t stride;
    int rows, cols, channels;
    double x[3], y[3];
} psti_warp_row;

/* Fixed order: the slope, then the row's part, then the constant. */
static inline double psti_warp_at(const double line[3], double column)
{
    return (line[0] * (column + 0.5) + line[1]) + line[2];
}

/* Makes columns begin .. end - 1 of the row that starts at dst. Their sources lie in the picture.
 */
typedef void psti_warp_fn(const psti_warp_row *row, int begin, int end, uint8_t *dst);

/* ---- finish ---------------------------------------------------------------------------------- */

/* `pixels` pixels of `channels` bytes each become values x * scale[c] - bias[c]. Interleaved: dst
 * is in the same order. Planar: channel c begins `plane` elements after channel c - 1. */
typedef struct psti_convert {
    int channels; /* 1..4 */
    const float *scale, *bias;
    size_t plane; /* pixels of the whole picture */
} psti_convert;

typedef void psti_convert_fn(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst);

enum { PSTI_TO_F32, PSTI_TO_F16, PSTI_TO_BF16, PSTI_TO_COUNT };

/* ---- batches --------------------------------------------------------------------------------- */

typedef void psti_blend_fn(void *x, const void *y, float keep, float take, size_t n);

/* ---- colour ---------------------------------------------------------------------------------- */

enum { PSTI_LIKES = 2 }; /* whose arithmetic: Pillow's, tensors' (psti_like) */

/* Rows of RGB pixels unless it says otherwise. dst == src, or they do not overlap. */
typedef void psti_color_fn(const uint8_t *src, size_t pixels, double by, uint8_t *dst);

typedef struct psti_color_kernels {
    /* [0]: bytes through one table. [1]: pixels through one for each channel. */
    void (*lut[2])(const uint8_t *src, size_t count, const uint8_t (*tables)[256], uint8_t *dst);
    /* The sum of all pixels' grey. */
    uint64_t (*gray_sum[PSTI_LIKES])(const uint8_t *src, size_t pixels);
    /* Grey in 1 or 3 equal channels. */
    void (*gray[PSTI_LIKES])(const uint8_t *src, size_t pixels, int channels, uint8_t *dst);
    psti_color_fn *saturate[PSTI_LIKES], *hue[PSTI_LIKES];
    /* The middle one of three rows of any channels, blended with its smoothed version, in which the
     * first and last pixel are as they were. dst is none of the rows; pixels >= 1. */
    void (*sharpen[PSTI_LIKES])(const uint8_t *const rows[3], size_t pixels, size_t channels,
                                double by, uint8_t *dst);
    /* Symmetric sums: weights[0] for the middle, weights[t] for both neighbours t away, up to
     * `half`. Across: neighbours are `step` values apart and readable on both sides. Down: rows
     * has 2 * half + 1; values are rounded to bytes, ties to even. */
    void (*blur_across)(const float *src, size_t count, size_t step, const float *weights, int half,
                        float *dst);
    void (*blur_down)(const float *const *rows, size_t count, const float *weights, int half,
                      uint8_t *dst);
} psti_color_kernels;

/* ---- recordings --------------------------------------------------------------------------------
 */

enum { PSTI_AUDIO_LANES = 8 }; /* frames that are transformed side by side */

/* Spectra of frames of `size` real numbers, a power of two, 8 and up. Tables: cosine and minus sine
 * of 2 pi i / size for i up to size / 4, and of 4 pi i / size for i below size / 2, in pairs. */
typedef struct psti_spectrum {
    int size;
    const float *turn, *half_turn;
} psti_spectrum;

typedef struct psti_audio_kernels {
    /* Squares of the absolute values: size / 2 + 1 rows of a number for each lane. frames: size
     * rows of the same, which are used up; spare: as much again. */
    void (*power)(const psti_spectrum *how, float *frames, float *spare, float *out);
    /* For each lane: the sum of `count` rows, each times its weight, and `more`. */
    void (*weigh)(const float *rows, const float *weights, int count, float more, float *out);
    /* The sum of products; n is a multiple of 8. */
    float (*dot)(const float *x, const float *w, int64_t n);
    /* Takes from each number what `share` of the one before it is. */
    void (*emphasize)(float *x, size_t n, float share);
} psti_audio_kernels;

/* ---- values ---------------------------------------------------------------------------------- */

/* Noise: element i of a row gets the deviate that belongs to (seed, first + i) and to nothing else,
 * however rows are cut. */
typedef struct psti_noise {
    uint64_t seed, first;
    float mean, deviation;
} psti_noise;

/* Rows of volumes and recordings. dst == src where both are floats, or they do not overlap. */
typedef struct psti_value_kernels {
    /* Into a batch, past the caches: `settle` after the last one. back: elements of 1 to 8 bytes
     * from the last to the first. */
    void (*copy)(const uint8_t *src, size_t bytes, uint8_t *dst);
    void (*back)(const uint8_t *src, size_t count, size_t element, uint8_t *dst);
    void (*scale)(const float *src, size_t n, float by, float *dst);
    /* (x - mean) / std */
    void (*center)(const float *src, size_t n, float mean, float std, float *dst);
    void (*clip)(const float *src, size_t n, float low, float high, float *dst);
    /* Whole numbers, at any address, times by. */
    void (*widen_u8)(const void *src, size_t n, float by, float *dst);
    void (*widen_i16)(const void *src, size_t n, float by, float *dst);
    /* To f16 and bf16; nearest, ties to even; NaN may become any NaN. */
    void (*narrow[PSTI_TO_COUNT])(const float *src, size_t n, uint16_t *dst);
    /* The natural logarithm of normal numbers above 0, right to 2e-7 of it. */
    void (*ln)(const float *src, size_t n, float *dst);
    /* x + (mean + deviation * z) */
    void (*add_normals)(const float *src, size_t n, const psti_noise *how, float *dst);
} psti_value_kernels;

typedef struct psti_kernels {
    /* Bytes of table that across_plan may use for such an axis: an upper bound that grows with
     * taps. */
    size_t (*across_bytes)(int out, int taps, int channels);
    /* Fills table and run from axis and channels. */
    void (*across_plan)(psti_across *across);
    /* One output row of the vertical pass: `count` rows of `bytes` bytes with their weights. dst is
     * none of them. */
    void (*down)(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *dst,
                 size_t bytes);

    /* Turns a row of pixels of `size` bytes (1..8) round. dst == src, or they do not overlap. */
    void (*reverse)(const uint8_t *src, size_t pixels, size_t size, uint8_t *dst);

    psti_warp_fn *bilinear, *bicubic;

    psti_convert_fn *interleaved[PSTI_TO_COUNT], *planar[PSTI_TO_COUNT];
    psti_convert_fn *planar_u8; /* moves only: scale and bias are not looked at */
    /* After the last call for a picture, before another thread may be told of it. */
    void (*settle)(void);

    /* n values of a batch: x = keep * x + take * y, in float, each product and the sum rounded,
     * then rounded to the type. x and y do not overlap. */
    psti_blend_fn *blend[PSTI_TO_COUNT];

    psti_color_kernels color;
    psti_value_kernels values;
    psti_audio_kernels audio;
} psti_kernels;

/* Each overwrites the entries it has a better version of. A level that was not built in does
 * nothing. */
void psti_kernels_init_c(psti_kernels *kernels);
void psti_kernels_init_avx2(psti_kernels *kernels);
void psti_kernels_init_avx512(psti_kernels *kernels);
/* Called by init_avx2: its finish and batch kernels have files of their own. */
void psti_kernels_init_avx2_finish(psti_kernels *kernels);
void psti_kernels_init_avx2_blend(psti_kernels *kernels);
void psti_kernels_init_avx2_warp(psti_kernels *kernels);
/* The colour kernels are one file, compiled for each level; so are those of values and of
 * recordings. */
void psti_kernels_init_color_c(psti_kernels *kernels);
void psti_kernels_init_color_avx2(psti_kernels *kernels);
void psti_kernels_init_color_avx512(psti_kernels *kernels);
void psti_kernels_init_values_c(psti_kernels *kernels);
void psti_kernels_init_values_avx2(psti_kernels *kernels);
void psti_kernels_init_values_avx512(psti_kernels *kernels);
void psti_kernels_init_audio_c(psti_kernels *kernels);
void psti_kernels_init_audio_avx2(psti_kernels *kernels);
void psti_kernels_init_audio_avx512(psti_kernels *kernels);

/* The table of one level, which the CPU must have; and that of psti_cpu_level(). Filled once; any
 * thread. */
const psti_kernels *psti_kernels_level(psti_cpu level);
const psti_kernels *psti_kernels_get(void);

/* ---- pieces of the C versions that the others use for what is left over -------------------------
 */

void psti_c_across_run(const psti_across *across, const uint8_t *const *src, uint8_t *const *dst,
                       int n);
/* The same from output `from` on. */
void psti_c_across_tail(const psti_across *across, int from, const uint8_t *const *src,
                        uint8_t *const *dst, int n);
void psti_c_down(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *dst,
                 size_t bytes);
void psti_c_reverse(const uint8_t *src, size_t pixels, size_t size, uint8_t *dst);
void psti_c_interleaved_f32(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst);
void psti_c_interleaved_f16(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst);
void psti_c_interleaved_bf16(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst);
void psti_c_planar_f32(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst);
void psti_c_planar_f16(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst);
void psti_c_planar_bf16(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst);
void psti_c_planar_u8(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst);
void psti_c_blend_f32(void *x, const void *y, float keep, float take, size_t n);
void psti_c_blend_f16(void *x, const void *y, float keep, float take, size_t n);
void psti_c_blend_bf16(void *x, const void *y, float keep, float take, size_t n);
void psti_c_bilinear(const psti_warp_row *row, int begin, int end, uint8_t *dst);
void psti_c_bicubic(const psti_warp_row *row, int begin, int end, uint8_t *dst);
/* Round to nearest, ties to even; every float but NaN. And back, exactly. */
uint16_t psti_c_half(float value);
uint16_t psti_c_bfloat(float value);
float psti_c_half_value(uint16_t half);
float psti_c_bfloat_value(uint16_t bfloat);

#endif
