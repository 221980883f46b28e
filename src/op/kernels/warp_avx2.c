/* SPDX-License-Identifier: Apache-2.0
 * Bilinear rows of an affine map with AVX2: four pixels side by side in doubles, the same
 * operations in the same order as warp_c.c. Built without FMA. A pixel is read with its right
 * neighbour as eight bytes, whatever its channels; groups that come too near to the picture's edges
 * for that go to the C version. (Gathers took half as long again.) */
#include <string.h>

#include "op/kernels/x86.h"

/* Whole pixels and what is behind them. */
typedef struct places {
    __m128i whole;
    __m256d rest;
} places;

INLINE places places_of(const double line[3], __m256d column)
{
    const __m256d slope = _mm256_mul_pd(_mm256_set1_pd(line[0]), column);
    const __m256d sum =
        _mm256_add_pd(_mm256_add_pd(slope, _mm256_set1_pd(line[1])), _mm256_set1_pd(line[2]));
    const __m256d at = _mm256_sub_pd(sum, _mm256_set1_pd(0.5)), floor = _mm256_floor_pd(at);
    return (places){_mm256_cvttpd_epi32(floor), _mm256_sub_pd(at, floor)};
}

/* Whether all four are at least 0 and below the limit. */
INLINE bool below(__m128i at, int limit)
{
    const __m128i low = _mm_cmpgt_epi32(at, _mm_set1_epi32(-1)),
                  high = _mm_cmpgt_epi32(_mm_set1_epi32(limit), at);
    return _mm_movemask_epi8(_mm_and_si128(low, high)) == 0xffff;
}

/* Between pixels and their right neighbours. The difference is taken in integers: it is exact. */
INLINE __m256d across(__m128i left, __m128i right, __m256d share)
{
    const __m256d apart = _mm256_cvtepi32_pd(_mm_sub_epi32(right, left));
    return _mm256_add_pd(_mm256_cvtepi32_pd(left), _mm256_mul_pd(apart, share));
}

INLINE void store(__m128i pixels, int channels, uint8_t *dst)
{
    /* Takes the first bytes of each lane together. */
    const __m128i picks = channels == 1   ? _mm_set1_epi32(0x0c080400)
                          : channels == 2 ? _mm_set_epi64x(-1, 0x0d0c090805040100)
                          : channels == 3
                              ? _mm_set_epi32(-1, 0x0e0d0c0a, 0x09080605, 0x04020100)
                              : _mm_set_epi32(0x0f0e0d0c, 0x0b0a0908, 0x07060504, 0x03020100);
    uint8_t bytes[16];
    _mm_storeu_si128((__m128i *)(void *)bytes, _mm_shuffle_epi8(pixels, picks));
    memcpy(dst, bytes, 4 * (size_t)channels);
}

/* Eight bytes at each of four places: a pixel and its right neighbour. */
typedef struct pairs {
    __m128i low, high; /* the first four bytes of each, the last four */
} pairs;

INLINE __m128i two_at(const uint8_t *first, const uint8_t *second)
{
    const __m128i one = _mm_loadl_epi64((const __m128i *)(const void *)first),
                  other = _mm_loadl_epi64((const __m128i *)(const void *)second);
    return _mm_unpacklo_epi64(one, other);
}

INLINE pairs pairs_at(const uint8_t *data, const int32_t *at)
{
    const __m128 a = _mm_castsi128_ps(two_at(data + at[0], data + at[1])),
                 b = _mm_castsi128_ps(two_at(data + at[2], data + at[3]));
    return (pairs){_mm_castps_si128(_mm_shuffle_ps(a, b, 0x88)),
                   _mm_castps_si128(_mm_shuffle_ps(a, b, 0xdd))};
}

/* Byte k of the eight. */
INLINE __m128i byte_of(pairs p, int k)
{
    const __m128i four = k < 4 ? p.low : p.high;
    return _mm_and_si128(_mm_srli_epi32(four, 8 * (k & 3)), _mm_set1_epi32(255));
}

/* Four pixels whose neighbours are all in the picture. */
INLINE void blend(const psti_warp_row *row, int channels, places x, places y, uint8_t *dst)
{
    _Alignas(16) int32_t at[4];
    _mm_store_si128((__m128i *)(void *)at,
                    _mm_add_epi32(_mm_mullo_epi32(y.whole, _mm_set1_epi32((int)row->stride)),
                                  _mm_mullo_epi32(x.whole, _mm_set1_epi32(channels))));
    const pairs upper = pairs_at(row->data, at), lower = pairs_at(row->data + row->stride, at);
    __m128i out = _mm_setzero_si128();
    UNROLL
    for (int k = 0; k < channels; k++) {
        const __m256d above = across(byte_of(upper, k), byte_of(upper, channels + k), x.rest),
                      under = across(byte_of(lower, k), byte_of(lower, channels + k), x.rest);
        const __m256d value =
            _mm256_add_pd(above, _mm256_mul_pd(_mm256_sub_pd(under, above), y.rest));
        out = _mm_or_si128(out, _mm_slli_epi32(_mm256_cvttpd_epi32(value), 8 * k));
    }
    store(out, channels, dst);
}

INLINE void bilinear_row(const psti_warp_row *row, int channels, int begin, int end, uint8_t *dst)
{
    const int most_x = row->cols - (8 + channels - 1) / channels + 1, most_y = row->rows - 1;
    int i = begin;
    for (; i + 4 <= end; i += 4) {
        const __m256d column =
            _mm256_add_pd(_mm256_set1_pd((double)i), _mm256_set_pd(3.5, 2.5, 1.5, 0.5));
        const places x = places_of(row->x, column), y = places_of(row->y, column);
        if (below(x.whole, most_x) && below(y.whole, most_y))
            blend(row, channels, x, y, dst + (size_t)i * (size_t)channels);
        else
            psti_c_bilinear(row, i, i + 4, dst);
    }
    psti_c_bilinear(row, i, end, dst);
}

static void bilinear(const psti_warp_row *row, int begin, int end, uint8_t *dst)
{
    if ((size_t)row->rows * row->stride > INT32_MAX) /* places count in 32 bits */
        psti_c_bilinear(row, begin, end, dst);
    else if (row->channels == 3)
        bilinear_row(row, 3, begin, end, dst);
    else if (row->channels == 1)
        bilinear_row(row, 1, begin, end, dst);
    else if (row->channels == 2)
        bilinear_row(row, 2, begin, end, dst);
    else
        bilinear_row(row, 4, begin, end, dst);
}

void psti_kernels_init_avx2_warp(psti_kernels *kernels)
{
    kernels->bilinear = bilinear;
}
