/* SPDX-License-Identifier: Apache-2.0
 * What the tests of this room share: chi-square, a small generator for test data, and the loop that
 * makes every allocation fail once. */
#ifndef PSTI_TESTS_SAMPLE_CHECK_H
#define PSTI_TESTS_SAMPLE_CHECK_H

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "core/hash.h"
#include "core/memory.h"

/* How many standard deviations the chi-square of counts lies above its mean. Seeds are fixed, so a
 * value under 5 now stays there; a flaw shows as tens or thousands. */
static inline double chi_excess(const int64_t *seen, const double *expected, int cells)
{
    double chi = 0;
    int free_cells = -1;
    for (int i = 0; i < cells; i++) {
        if (expected[i] <= 0)
            continue;
        const double d = (double)seen[i] - expected[i];
        chi += d * d / expected[i];
        free_cells++;
    }
    return free_cells > 0 ? (chi - free_cells) / sqrt(2.0 * free_cells) : 0;
}

static inline double chi_excess_even(const int64_t *seen, int cells)
{
    double expected[1024], total = 0;
    for (int i = 0; i < cells; i++)
        total += (double)seen[i];
    for (int i = 0; i < cells; i++)
        expected[i] = total / cells;
    return chi_excess(seen, expected, cells);
}

/* Test data, nothing else: the product's own generators are under test. */
static inline uint64_t noise(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return psti_mix64(*state);
}

static inline uint64_t live_allocations(void)
{
    psti_mem_stats stats;
    psti_mem_stats_total(&stats);
    return stats.live;
}

/* Calls attempt() with the 1st, 2nd, … allocation failing until it succeeds. attempt frees what it
 * made and returns the code. Returns how many allocations there were, or -1 when one failed without
 * -ENOMEM or leaked. */
static inline int fail_each_allocation(int (*attempt)(void *user), void *user)
{
    for (int n = 1; n < 1000; n++) {
        const uint64_t before = live_allocations();
        psti_mem_fail_at((uint64_t)n, false);
        const int rc = attempt(user);
        psti_mem_fail_at(0, false);
        if (live_allocations() != before)
            return -1;
        if (rc == 0)
            return n - 1;
        if (rc != -ENOMEM)
            return -1;
    }
    return -1;
}

#endif
