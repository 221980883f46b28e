/* SPDX-License-Identifier: Apache-2.0
 * The two clocks of the benches, in seconds. */
#ifndef BENCH_CLOCKS_H
#define BENCH_CLOCKS_H

#include <sys/resource.h>
#include <time.h>

static inline double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of the whole process. */
static inline double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

#endif
