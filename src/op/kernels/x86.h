/* SPDX-License-Identifier: Apache-2.0
 * What the x86 kernels share: how loops over registers are kept in registers. */
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
