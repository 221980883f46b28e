/* SPDX-License-Identifier: Apache-2.0
 * Time per call for kernel tests run with --bench: the fastest of several rounds. */
#ifndef PSTI_TESTS_OP_BENCH_H
#define PSTI_TESTS_OP_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <time.h>

typedef void bench_fn(void *user);

/* The thread's own time, so that what else runs on the machine counts for less. */
static inline uint64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Microseconds per call: the least over rounds of a fifth of a millisecond or more. */
static inline double bench_us(bench_fn *fn, void *user)
{
    fn(user);
    const uint64_t before = bench_now_ns();
    fn(user);
    const uint64_t once = bench_now_ns() - before;
    const int calls = once < 200000 ? (int)(200000 / (once + 1)) + 1 : 1;
    double best = 1e30;
    for (int round = 0; round < 200; round++) {
        const uint64_t start = bench_now_ns();
        for (int i = 0; i < calls; i++)
            fn(user);
        const double us = (double)(bench_now_ns() - start) / 1000.0 / calls;
        best = us < best ? us : best;
    }
    return best;
}

#endif
