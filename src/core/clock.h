/* SPDX-License-Identifier: Apache-2.0
 * Monotonic time, in nanoseconds, and CPU time. Nothing here looks at the wall clock. */
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

/* CPU seconds of the calling thread; a system call. */
static inline double psti_cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline struct timespec psti_timespec_ns(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

#endif
