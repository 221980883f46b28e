/* SPDX-License-Identifier: Apache-2.0
 * Rows of values: volumes, recordings, features. Written once in C and compiled for each level with
 * that level's flags (PSTI_VALUES_INIT names the function that fills the table), as the colour
 * kernels are: loops that the compiler makes vectors of, nothing contracted or reordered, so every
 * level gives the same bytes. Copies alone are written out, for the stores that pass the caches by.
 */
#include <math.h>
#include <string.h>

#include "op/kernels/kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

/* ---- copies ---------------------------------------------------------------------------------- */

#if defined(__AVX2__)

/* Bytes up to where whole vectors can be streamed to; all of them where that is nowhere. */
INLINE size_t head_of(const uint8_t *dst, size_t bytes, size_t element)
{
    const size_t head = -(uintptr_t)dst & 31;
    return head % element || head > bytes ? bytes : head;
}

static void copy(const uint8_t *src, size_t bytes, uint8_t *dst)
{
    size_t at = head_of(dst, bytes, 1);
    memcpy(dst, src, at);
    for (; bytes - at >= 32; at += 32)
        _mm256_stream_si256((void *)(dst + at), _mm256_loadu_si256((const void *)(src + at)));
    memcpy(dst + at, src + at, bytes - at);
}

INLINE __m256i turned(__m256i x, size_t element)
{
    const __m256i bytes = _mm256_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 15,
                                           14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i pairs = _mm256_setr_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1, 14,
                                           15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1);
    if (element == 4)
        return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    x = _mm256_shuffle_epi8(x, element == 1 ? bytes : pairs);
    return _mm256_permute4x64_epi64(x, 0x4E);
}

INLINE void back_of(const uint8_t *src, size_t bytes, size_t element, uint8_t *dst)
{
    size_t at = head_of(dst, bytes, element);
    psti_c_reverse(src + bytes - at, at / element, element, dst);
    for (; bytes - at >= 32; at += 32)
        _mm256_stream_si256(
            (void *)(dst + at),
            turned(_mm256_loadu_si256((const void *)(src + bytes - at - 32)), element));
    psti_c_reverse(src, (bytes - at) / element, element, dst + at);
}

static void back(const uint8_t *src, size_t count, size_t element, uint8_t *dst)
{
    switch (element) {
    case 1:
        back_of(src, count, 1, dst);
        break;
    case 2:
        back_of(src, 2 * count, 2, dst);
        break;
    case 4:
        back_of(src, 4 * count, 4, dst);
        break;
    default:
        psti_c_reverse(src, count, element, dst);
        break;
    }
}

#else

static void copy(const uint8_t *src, size_t bytes, uint8_t *dst)
{
    memcpy(dst, src, bytes);
}

static void back(const uint8_t *src, size_t count, size_t element, uint8_t *dst)
{
    psti_c_reverse(src, count, element, dst);
}

#endif

/* ---- one operation a value ------------------------------------------------------------------- */

static void scale(const float *src, size_t n, float by, float *dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = src[i] * by;
}

static void center(const float *src, size_t n, float mean, float std, float *dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (src[i] - mean) / std;
}

static void clip(const float *src, size_t n, float low, float high, float *dst)
{
    for (size_t i = 0; i < n; i++) {
        const float above = src[i] < low ? low : src[i];
        dst[i] = above > high ? high : above;
    }
}

static void widen_u8(const void *src, size_t n, float by, float *dst)
{
    const uint8_t *from = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = (float)from[i] * by;
}

static void widen_i16(const void *src, size_t n, float by, float *dst)
{
    const uint8_t *from = src; /* in a file's bytes it may stand anywhere */
    for (size_t i = 0; i < n; i++) {
        int16_t x;
        memcpy(&x, from + 2 * i, sizeof x);
        dst[i] = (float)x * by;
    }
}

static void narrow_f16(const float *src, size_t n, uint16_t *dst)
{
    size_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
    for (; n - i >= 8; i += 8)
        _mm_storeu_si128((void *)(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), 0));
#endif
    for (; i < n; i++)
        dst[i] = psti_c_half(src[i]);
}

static void narrow_bf16(const float *src, size_t n, uint16_t *dst)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof bits);
        dst[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/* ---- logarithms ------------------------------------------------------------------------------ */

INLINE float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Of a normal number above zero: 2^e * m with m about 1, and a polynomial in m - 1 (Cephes' logf).
 */
INLINE float ln_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    /* From sqrt(1/2) on the exponent counts as one more. */
    const uint32_t moved = bits - 0x3f3504f3u;
    const float e = (float)((int32_t)moved >> 23);
    const float f = float_of((moved & 0x7fffff) + 0x3f3504f3u) - 1.0f;
    const float square = f * f;
    float p = 7.0376836292e-2f;
    p = p * f + -1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f + -1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f + -1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f + -2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    float y = p * f * square;
    y = y + e * -2.12194440e-4f;
    y = y - 0.5f * square;
    return (f + y) + e * 0.693359375f;
}

static void ln(const float *src, size_t n, float *dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = ln_of(src[i]);
}

/* ---- normal deviates ------------------------------------------------------------------------- */

enum { LANES = 32, BLOCK = 4 * LANES }; /* fewer lanes are unrolled before they become vectors */

/* Philox4x32-10, as core/rng.c has it, on the counters first .. first + LANES - 1. */
INLINE void philox_lanes(uint64_t seed, uint64_t first, uint32_t c[4][LANES])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < LANES; i++) {
        c[0][i] = (uint32_t)first + (uint32_t)i; /* first is a multiple of LANES */
        c[1][i] = (uint32_t)(first >> 32);
        c[2][i] = c[3][i] = 0;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < LANES; i++) {
            const uint64_t a = (uint64_t)0xD2511F53u * c[0][i];
            const uint64_t b = (uint64_t)0xCD9E8D57u * c[2][i];
            c[0][i] = (uint32_t)(b >> 32) ^ c[1][i] ^ k0;
            c[2][i] = (uint32_t)(a >> 32) ^ c[3][i] ^ k1;
            c[1][i] = (uint32_t)b;
            c[3][i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Box and Muller's pair of each lane: the first word is the radius, the second the angle. */
INLINE void pairs_of(const uint32_t *radius, const uint32_t *angle, float *one, float *other)
{
    for (int i = 0; i < LANES; i++) {
        const float u = (float)(int32_t)(radius[i] >> 1) * 0x1p-31f + 0x1p-32f;
        const float t = -2.0f * ln_of(u);
        const float r = sqrtf(t > 0.0f ? t : 0.0f);
        /* The nearest quarter of the circle, and what is left of the angle: -pi/4 .. pi/4. */
        const uint32_t quarter = (angle[i] + 0x20000000u) >> 30;
        const float a = (float)(int32_t)(angle[i] - (quarter << 30)) * 1.4629180792671596e-9f;
        const float z = a * a;
        const float s =
            ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z + -1.6666654611e-1f) * z * a + a;
        const float c =
            ((2.443315711809948e-5f * z + -1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z *
                z -
            0.5f * z + 1.0f;
        const float x = quarter & 1 ? -s : c, y = quarter & 1 ? c : s;
        one[i] = r * (quarter & 2 ? -x : x);
        other[i] = r * (quarter & 2 ? -y : y);
    }
}

/* The deviates of one block of BLOCK elements. */
static void normals_block(uint64_t seed, uint64_t block, float out[BLOCK])
{
    uint32_t words[4][LANES];
    philox_lanes(seed, block * LANES, words);
    pairs_of(words[0], words[1], out, out + LANES);
    pairs_of(words[2], words[3], out + 2 * LANES, out + 3 * LANES);
}

static void add_normals(const float *src, size_t n, const psti_noise *how, float *dst)
{
    float z[BLOCK];
    uint64_t at = how->first;
    for (size_t i = 0; i < n;) {
        const size_t skip = (size_t)(at % BLOCK);
        const size_t take = n - i < BLOCK - skip ? n - i : BLOCK - skip;
        normals_block(how->seed, at / BLOCK, z);
        for (size_t k = 0; k < take; k++)
            dst[i + k] = src[i + k] + (how->mean + how->deviation * z[skip + k]);
        i += take;
        at += take;
    }
}

void PSTI_VALUES_INIT(psti_kernels *kernels)
{
    kernels->values = (psti_value_kernels){
        .copy = copy,
        .back = back,
        .scale = scale,
        .center = center,
        .clip = clip,
        .widen_u8 = widen_u8,
        .widen_i16 = widen_i16,
        .narrow = {[PSTI_TO_F16] = narrow_f16, [PSTI_TO_BF16] = narrow_bf16},
        .ln = ln,
        .add_normals = add_normals,
    };
}
