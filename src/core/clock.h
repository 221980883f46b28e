/* SPDX-License-Identifier: Apache-2.0
 * Monotonic time, in nanoseconds. Nothing here looks at the wall clock. */
#ifndef PSTI_CORE_CLOCK_H
#define PSTI_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t psti_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct timespec psti_timespec_ns(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

#endif
