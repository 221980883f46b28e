/* SPDX-License-Identifier: Apache-2.0
 * Blending the values of a batch for AVX2 and F16C, 8 at a time, with the C version's operations in
 * its order. */
#include "op/kernels/x86.h"

INLINE __m256 blended(__m256 x, __m256 y, __m256 keep, __m256 take)
{
    return _mm256_add_ps(_mm256_mul_ps(keep, x), _mm256_mul_ps(take, y));
}

static void blend_f32(void *x, const void *y, float keep, float take, size_t n)
{
    float *to = x;
    const float *from = y;
    const __m256 k = _mm256_set1_ps(keep), t = _mm256_set1_ps(take);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, blended(_mm256_loadu_ps(to + i), _mm256_loadu_ps(from + i), k, t));
    psti_c_blend_f32(to + i, from + i, keep, take, n - i);
}

static void blend_f16(void *x, const void *y, float keep, float take, size_t n)
{
    uint16_t *to = x;
    const uint16_t *from = y;
    const __m256 k = _mm256_set1_ps(keep), t = _mm256_set1_ps(take);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 own = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(to + i)));
        const __m256 other = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i)));
        _mm_storeu_si128((void *)(to + i),
                         _mm256_cvtps_ph(blended(own, other, k, t), _MM_FROUND_TO_NEAREST_INT));
    }
    psti_c_blend_f16(to + i, from + i, keep, take, n - i);
}

INLINE __m256 from_bfloats(const uint16_t *words)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)words));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static void blend_bf16(void *x, const void *y, float keep, float take, size_t n)
{
    uint16_t *to = x;
    const uint16_t *from = y;
    const __m256 k = _mm256_set1_ps(keep), t = _mm256_set1_ps(take);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(to + i), psti_to_bfloats(blended(from_bfloats(to + i),
                                                                   from_bfloats(from + i), k, t)));
    psti_c_blend_bf16(to + i, from + i, keep, take, n - i);
}

void psti_kernels_init_avx2_blend(psti_kernels *kernels)
{
    kernels->blend[PSTI_TO_F32] = blend_f32;
    kernels->blend[PSTI_TO_F16] = blend_f16;
    kernels->blend[PSTI_TO_BF16] = blend_bf16;
}
