/* SPDX-License-Identifier: Apache-2.0
 * The kernels in plain C: the specification of every other level, and what runs where there is
 * none. */
#include <string.h>

#include "op/kernels/kernels.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- resampling ------------------------------------------------------------------------------ */

static uint8_t clip(int32_t sum)
{
    const int32_t value = sum >> PSTI_WEIGHT_BITS;
    return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

/* Sums are taken modulo 2^32, as vector units take them; real weights never come near. */
static const uint32_t HALF = 1u << (PSTI_WEIGHT_BITS - 1);

/* Inlined for the usual channel counts, so that a pixel's sums stay in registers. */
INLINE void across_row(const psti_axis *axis, int channels, int from, const uint8_t *src,
                       uint8_t *dst)
{
    dst += from * channels;
    for (int i = from; i < axis->out; i++, dst += channels) {
        const int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
        const uint8_t *pixel = src + (size_t)axis->first[i] * (size_t)channels;
        const int count = axis->count[i];
        uint32_t sums[4] = {HALF, HALF, HALF, HALF};
        for (int t = 0; t < count; t++, pixel += channels) {
            for (int c = 0; c < channels; c++)
                sums[c] += (uint32_t)(pixel[c] * weights[t]);
        }
        for (int c = 0; c < channels; c++)
            dst[c] = clip((int32_t)sums[c]);
    }
}

void psti_c_across_tail(const psti_across *across, int from, const uint8_t *const *src,
                        uint8_t *const *dst, int n)
{
    for (int row = 0; row < n; row++) {
        if (across->channels == 3)
            across_row(across->axis, 3, from, src[row], dst[row]);
        else if (across->channels == 1)
            across_row(across->axis, 1, from, src[row], dst[row]);
        else
            across_row(across->axis, across->channels, from, src[row], dst[row]);
    }
}

void psti_c_across_run(const psti_across *across, const uint8_t *const *src, uint8_t *const *dst,
                       int n)
{
    psti_c_across_tail(across, 0, src, dst, n);
}

static size_t across_bytes(int out, int taps, int channels)
{
    (void)out;
    (void)taps;
    (void)channels;
    return 0;
}

static void across_plan(psti_across *across)
{
    across->run = psti_c_across_run;
}

/* A block of sums at a time, so that each row is read in order. */
enum { BLOCK = 64 };

INLINE void down_block(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *dst,
                       size_t at, size_t n)
{
    uint32_t sums[BLOCK];
    for (size_t i = 0; i < n; i++)
        sums[i] = HALF;
    for (int t = 0; t < count; t++) {
        const uint8_t *row = rows[t] + at;
        const int32_t weight = weights[t];
        for (size_t i = 0; i < n; i++)
            sums[i] += (uint32_t)(row[i] * weight);
    }
    for (size_t i = 0; i < n; i++)
        dst[at + i] = clip((int32_t)sums[i]);
}

void psti_c_down(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *dst,
                 size_t bytes)
{
    size_t at = 0;
    for (; at + BLOCK <= bytes; at += BLOCK)
        down_block(rows, weights, count, dst, at, BLOCK);
    down_block(rows, weights, count, dst, at, bytes - at);
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* From both ends to the middle, so that it works in place. */
void psti_c_reverse(const uint8_t *src, size_t pixels, size_t size, uint8_t *dst)
{
    for (size_t left = 0, right = pixels; left < right--; left++) {
        uint8_t a[8], b[8];
        memcpy(a, src + left * size, size);
        memcpy(b, src + right * size, size);
        memcpy(dst + right * size, a, size);
        memcpy(dst + left * size, b, size);
    }
}

/* ---- finish ---------------------------------------------------------------------------------- */

static float convert(uint8_t x, float scale, float bias)
{
    const float scaled = (float)x * scale;
    return scaled - bias;
}

uint16_t psti_c_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t size = bits & 0x7fffffff;
    if (size >= 0x477ff000) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x33000000) /* less than half the smallest step */
        return (uint16_t)sign;
    const int exponent = (int)(size >> 23) - 127;
    const uint32_t mantissa = (size & 0x7fffff) | 0x800000;
    const int drop = exponent < -14 ? -1 - exponent : 13; /* bits of the mantissa that go */
    uint32_t kept = mantissa >> drop;
    const uint32_t rest = mantissa & ((1u << drop) - 1), tie = 1u << (drop - 1);
    kept += rest > tie || (rest == tie && (kept & 1));
    /* A normal number's hidden bit adds one to the exponent field, and so does a carry out of the
     * mantissa. */
    const uint32_t field = exponent < -14 ? 0 : (uint32_t)(exponent + 14) << 10;
    return (uint16_t)(sign | (field + kept));
}

uint16_t psti_c_bfloat(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float keep(float value)
{
    return value;
}

#define INTERLEAVED(name, type, round)                                                             \
    void name(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)               \
    {                                                                                              \
        type *to = dst;                                                                            \
        for (size_t i = 0; i < pixels; i++) {                                                      \
            for (int c = 0; c < how->channels; c++)                                                \
                *to++ = round(convert(*src++, how->scale[c], how->bias[c]));                       \
        }                                                                                          \
    }

#define PLANAR(name, type, round)                                                                  \
    void name(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)               \
    {                                                                                              \
        for (int c = 0; c < how->channels; c++) {                                                  \
            type *to = (type *)dst + (size_t)c * how->plane;                                       \
            const uint8_t *from = src + c;                                                         \
            for (size_t i = 0; i < pixels; i++, from += how->channels)                             \
                to[i] = round(convert(*from, how->scale[c], how->bias[c]));                        \
        }                                                                                          \
    }

INTERLEAVED(psti_c_interleaved_f32, float, keep)
INTERLEAVED(psti_c_interleaved_f16, uint16_t, psti_c_half)
INTERLEAVED(psti_c_interleaved_bf16, uint16_t, psti_c_bfloat)
PLANAR(psti_c_planar_f32, float, keep)
PLANAR(psti_c_planar_f16, uint16_t, psti_c_half)
PLANAR(psti_c_planar_bf16, uint16_t, psti_c_bfloat)

void psti_c_planar_u8(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)
{
    for (int c = 0; c < how->channels; c++) {
        uint8_t *to = (uint8_t *)dst + (size_t)c * how->plane;
        for (size_t i = 0; i < pixels; i++)
            to[i] = src[i * (size_t)how->channels + (size_t)c];
    }
}

static void settle(void)
{
}

void psti_kernels_init_c(psti_kernels *kernels)
{
    *kernels = (psti_kernels){
        .across_bytes = across_bytes,
        .across_plan = across_plan,
        .down = psti_c_down,
        .reverse = psti_c_reverse,
        .bilinear = psti_c_bilinear,
        .bicubic = psti_c_bicubic,
        .interleaved = {psti_c_interleaved_f32, psti_c_interleaved_f16, psti_c_interleaved_bf16},
        .planar = {psti_c_planar_f32, psti_c_planar_f16, psti_c_planar_bf16},
        .planar_u8 = psti_c_planar_u8,
        .settle = settle,
        .blend = {psti_c_blend_f32, psti_c_blend_f16, psti_c_blend_bf16},
    };
}
