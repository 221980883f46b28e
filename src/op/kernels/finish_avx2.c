/* SPDX-License-Identifier: Apache-2.0
 * Finish kernels for AVX2 and F16C: bytes to floats, kept interleaved or taken apart into planes.
 * One multiplication and one subtraction per value, each rounded, exactly as the C version writes
 * them. */
#include <stdbool.h>
#include <string.h>

#include "op/kernels/kernels.h"
#include "op/kernels/x86.h"

/* 8 bytes in the low half to 8 floats. */
INLINE __m256 to_floats(__m128i bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

INLINE __m256 convert(__m256 x, __m256 scale, __m256 bias)
{
    return _mm256_sub_ps(_mm256_mul_ps(x, scale), bias);
}

/* Writes 8 values of type `to` at index i of dst, past the caches if `stream`: dst is aligned then.
 */
INLINE void store(int to, bool stream, void *dst, size_t i, __m256 x)
{
    if (to == PSTI_TO_F32 && stream) {
        _mm256_stream_ps((float *)dst + i, x);
    } else if (to == PSTI_TO_F32) {
        _mm256_storeu_ps((float *)dst + i, x);
    } else {
        const __m128i words =
            to == PSTI_TO_F16 ? _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT) : psti_to_bfloats(x);
        if (stream)
            _mm_stream_si128((void *)((uint16_t *)dst + i), words);
        else
            _mm_storeu_si128((void *)((uint16_t *)dst + i), words);
    }
}

INLINE size_t element(int to)
{
    return to == PSTI_TO_F32 ? 4 : 2;
}

INLINE psti_convert_fn *c_planar(int to)
{
    return to == PSTI_TO_F32   ? psti_c_planar_f32
           : to == PSTI_TO_F16 ? psti_c_planar_f16
                               : psti_c_planar_bf16;
}

INLINE psti_convert_fn *c_interleaved(int to)
{
    return to == PSTI_TO_F32   ? psti_c_interleaved_f32
           : to == PSTI_TO_F16 ? psti_c_interleaved_f16
                               : psti_c_interleaved_bf16;
}

/* ---- interleaved ----------------------------------------------------------------------------- */

/* 48 values hold a whole number of pixels whatever the channel count: scale and bias repeat after
 * them. */
enum { REPEAT = 48 };

INLINE void interleaved(int to, bool stream, const psti_convert *how, const uint8_t *src,
                        size_t pixels, void *dst)
{
    float scale[REPEAT], bias[REPEAT];
    for (int i = 0; i < REPEAT; i++) {
        scale[i] = how->scale[i % how->channels];
        bias[i] = how->bias[i % how->channels];
    }
    const size_t channels = (size_t)how->channels, count = pixels * channels;
    size_t at = 0;
    for (; at + REPEAT <= count; at += REPEAT) {
        UNROLL
        for (size_t i = 0; i < REPEAT; i += 8) {
            const __m256 x = to_floats(_mm_loadl_epi64((const void *)(src + at + i)));
            store(to, stream, dst, at + i,
                  convert(x, _mm256_loadu_ps(scale + i), _mm256_loadu_ps(bias + i)));
        }
    }
    c_interleaved(to)(how, src + at, (count - at) / channels, (uint8_t *)dst + at * element(to));
}

INLINE void interleaved_any(int to, const psti_convert *how, const uint8_t *src, size_t pixels,
                            void *dst)
{
    if (psti_streams(how, element(to), 0, dst))
        interleaved(to, true, how, src, pixels, dst);
    else
        interleaved(to, false, how, src, pixels, dst);
}

static void interleaved_f32(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)
{
    interleaved_any(PSTI_TO_F32, how, src, pixels, dst);
}

static void interleaved_f16(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)
{
    interleaved_any(PSTI_TO_F16, how, src, pixels, dst);
}

static void interleaved_bf16(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)
{
    interleaved_any(PSTI_TO_BF16, how, src, pixels, dst);
}

/* ---- planar ---------------------------------------------------------------------------------- */

/* 16 pixels of 3 bytes, taken apart. */
typedef struct three {
    __m128i v[3];
} three;

INLINE three take_apart(const uint8_t *src)
{
    enum { Z = -1 };
    static const int8_t picks[3][3][16] = {
        {{0, 3, 6, 9, 12, 15, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, Z, 2, 5, 8, 11, 14, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 1, 4, 7, 10, 13}},
        {{1, 4, 7, 10, 13, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, 0, 3, 6, 9, 12, 15, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 2, 5, 8, 11, 14}},
        {{2, 5, 8, 11, 14, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, 1, 4, 7, 10, 13, Z, Z, Z, Z, Z, Z},
         {Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 0, 3, 6, 9, 12, 15}},
    };
    three out;
    UNROLL
    for (int c = 0; c < 3; c++) {
        __m128i sum = _mm_setzero_si128();
        UNROLL
        for (int part = 0; part < 3; part++) {
            const __m128i x = _mm_loadu_si128((const void *)(src + 16 * part));
            sum = _mm_or_si128(sum,
                               _mm_shuffle_epi8(x, _mm_loadu_si128((const void *)picks[c][part])));
        }
        out.v[c] = sum;
    }
    return out;
}

INLINE size_t planar_3(int to, bool stream, const psti_convert *how, const uint8_t *src,
                       size_t pixels, void *dst)
{
    uint8_t *planes[3];
    __m256 scale[3], bias[3];
    for (int c = 0; c < 3; c++) {
        planes[c] = (uint8_t *)dst + (size_t)c * how->plane * element(to);
        scale[c] = _mm256_set1_ps(how->scale[c]);
        bias[c] = _mm256_set1_ps(how->bias[c]);
    }
    size_t i = 0;
    for (; i + 16 <= pixels; i += 16) {
        const three x = take_apart(src + 3 * i);
        UNROLL
        for (int c = 0; c < 3; c++) {
            store(to, stream, planes[c], i, convert(to_floats(x.v[c]), scale[c], bias[c]));
            store(to, stream, planes[c], i + 8,
                  convert(to_floats(_mm_srli_si128(x.v[c], 8)), scale[c], bias[c]));
        }
    }
    return i;
}

/* Pixels of 4 bytes: each is one 32-bit lane. */
INLINE size_t planar_4(int to, const psti_convert *how, const uint8_t *src, size_t pixels,
                       void *dst)
{
    const __m256i byte = _mm256_set1_epi32(0xff);
    size_t i = 0;
    for (; i + 8 <= pixels; i += 8) {
        __m256i x = _mm256_loadu_si256((const void *)(src + 4 * i));
        UNROLL
        for (int c = 0; c < 4; c++, x = _mm256_srli_epi32(x, 8)) {
            const __m256 value = _mm256_cvtepi32_ps(_mm256_and_si256(x, byte));
            store(to, false, (uint8_t *)dst + (size_t)c * how->plane * element(to), i,
                  convert(value, _mm256_set1_ps(how->scale[c]), _mm256_set1_ps(how->bias[c])));
        }
    }
    return i;
}

INLINE void planar(int to, const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)
{
    size_t done = 0;
    if (how->channels == 1) {
        interleaved_any(to, how, src, pixels, dst);
        return;
    }
    const bool stream =
        to == PSTI_TO_F32 && psti_streams(how, element(to), how->plane * element(to), dst);
    if (how->channels == 3 && stream)
        done = planar_3(to, true, how, src, pixels, dst);
    else if (how->channels == 3)
        done = planar_3(to, false, how, src, pixels, dst);
    else if (how->channels == 4)
        done = planar_4(to, how, src, pixels, dst);
    c_planar(to)(how, src + done * (size_t)how->channels, pixels - done,
                 (uint8_t *)dst + done * element(to));
}

static void planar_f32(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)
{
    planar(PSTI_TO_F32, how, src, pixels, dst);
}

static void planar_f16(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)
{
    planar(PSTI_TO_F16, how, src, pixels, dst);
}

static void planar_bf16(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)
{
    planar(PSTI_TO_BF16, how, src, pixels, dst);
}

static void planar_u8(const psti_convert *how, const uint8_t *src, size_t pixels, void *dst)
{
    size_t i = 0;
    if (how->channels == 3) {
        for (; i + 16 <= pixels; i += 16) {
            const three x = take_apart(src + 3 * i);
            UNROLL
            for (int c = 0; c < 3; c++)
                _mm_storeu_si128((void *)((uint8_t *)dst + (size_t)c * how->plane + i), x.v[c]);
        }
    }
    psti_c_planar_u8(how, src + i * (size_t)how->channels, pixels - i, (uint8_t *)dst + i);
}

static void settle(void)
{
    _mm_sfence();
}

void psti_kernels_init_avx2_finish(psti_kernels *kernels)
{
    kernels->settle = settle;
    kernels->interleaved[PSTI_TO_F32] = interleaved_f32;
    kernels->interleaved[PSTI_TO_F16] = interleaved_f16;
    kernels->interleaved[PSTI_TO_BF16] = interleaved_bf16;
    kernels->planar[PSTI_TO_F32] = planar_f32;
    kernels->planar[PSTI_TO_F16] = planar_f16;
    kernels->planar[PSTI_TO_BF16] = planar_bf16;
    kernels->planar_u8 = planar_u8;
}
