/* SPDX-License-Identifier: Apache-2.0
 * What the x86 kernels share: how loops over registers are kept in registers, rounding to bfloats.
 */
#ifndef PSTI_OP_KERNELS_X86_H
#define PSTI_OP_KERNELS_X86_H

#include <immintrin.h>
#include <stdbool.h>

#include "op/kernels/kernels.h"

#define INLINE static inline __attribute__((always_inline))

/* Before loops whose arrays must become registers; clang unrolls them by itself. */
#ifdef __clang__
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Round to nearest, ties to even, to the upper half; 8 words. */
INLINE __m128i psti_to_bfloats(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i words = _mm256_srli_epi32(sum, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* Whether a picture is written past the caches: when it is large, for then its slot in the batch is
 * cold, nobody reads it before the batch is full, and reading the lines just to overwrite them
 * costs more than half of the time. `apart` is the distance in bytes between places that are
 * written side by side. */
INLINE bool psti_streams(const psti_convert *how, size_t element, size_t apart, const void *dst)
{
    const size_t bytes = how->plane * (size_t)how->channels * element;
    return bytes >= 128 * 1024 && (((uintptr_t)dst | apart) & 63) == 0;
}

/* Holds a loaded vector in its register where the compiler would rather load it again for each use.
 */
#define KEEP(vector) __asm__("" : "+x"(vector))

#endif
