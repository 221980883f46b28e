/* SPDX-License-Identifier: Apache-2.0
 * Whether an order is random from epoch to epoch: rank correlation of positions, chi-square of
 * positions and of the class mix of batches, Holm's correction. place[epoch * n + id] is where a
 * sample was delivered. Pure functions; used by the tests of sharing, bench/share_sim.c and
 * bench/share_engine.c. */
#ifndef PSTI_TESTS_ORDER_STATS_H
#define PSTI_TESTS_ORDER_STATS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER_CLASSES = 10, ORDER_BINS = 10, ORDER_BATCH = 32, ORDER_LAGS = 5, ORDER_TESTS = 256 };

/* Upper tail of chi-square, by Wilson and Hilferty: degrees of freedom are in the thousands. */
static inline double order_chi_p(double chi, double freedom)
{
    const double c = 2 / (9 * freedom);
    const double z = (cbrt(chi / freedom) - (1 - c)) / sqrt(c);
    return 0.5 * erfc(z / sqrt(2));
}

/* Spearman's, of the positions in epochs `lag` apart, mean over all such pairs. */
static inline double order_correlation(const uint32_t *place, uint32_t n, int epochs, int lag)
{
    const double mid = (n - 1) / 2.0, variance = ((double)n * n - 1) / 12;
    double mean = 0;
    for (int e = 0; e + lag < epochs; e++) {
        const uint32_t *a = place + (size_t)e * n, *b = a + (size_t)lag * n;
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += (a[i] - mid) * (b[i] - mid);
        mean += sum / n / variance / (epochs - lag);
    }
    return mean;
}

/* Samples against the tenth of the epoch each came in, over all epochs: whether some come early or
 * late more often than chance has it. Rows and columns have fixed sums in every epoch. */
static inline double order_position_p(const uint32_t *place, uint32_t n, int epochs)
{
    double chi = 0;
    const double expected = (double)epochs / ORDER_BINS;
    for (uint32_t id = 0; id < n; id++) {
        int seen[ORDER_BINS] = {0};
        for (int e = 0; e < epochs; e++)
            seen[(uint64_t)place[(size_t)e * n + id] * ORDER_BINS / n]++;
        for (int b = 0; b < ORDER_BINS; b++)
            chi += (seen[b] - expected) * (seen[b] - expected) / expected;
    }
    return order_chi_p(chi * (n - 1) / n, (n - 1.0) * (ORDER_BINS - 1));
}

/* Batches against classes, epoch by epoch; a class is a run of ids, as in a folder dataset. n is a
 * multiple of the number of classes. */
static inline double order_class_p(const uint32_t *place, uint32_t n, int epochs)
{
    double chi = 0, freedom = 0;
    const uint32_t batches = n / ORDER_BATCH;
    const size_t cells = (size_t)batches * ORDER_CLASSES;
    int *seen = malloc(cells * sizeof *seen);
    for (int e = 0; seen && e < epochs; e++) {
        memset(seen, 0, cells * sizeof *seen);
        for (uint32_t id = 0; id < n; id++) {
            const uint32_t batch = place[(size_t)e * n + id] / ORDER_BATCH;
            if (batch < batches)
                seen[batch * ORDER_CLASSES + (uint64_t)id * ORDER_CLASSES / n]++;
        }
        const double expected = (double)ORDER_BATCH / ORDER_CLASSES;
        for (size_t i = 0; i < cells; i++)
            chi += (seen[i] - expected) * (seen[i] - expected) / expected;
        freedom += (double)batches * (ORDER_CLASSES - 1);
    }
    free(seen);
    /* Batches are drawn from n without replacement: counts scatter a little less than they would
     * with. */
    return order_chi_p(chi * (n - 1) / (n - ORDER_BATCH), freedom);
}

static inline int order_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts p; returns the smallest after Holm's correction: below 0.01, something is not random. */
static inline double order_holm(double *p, int count)
{
    qsort(p, (size_t)count, sizeof *p, order_ascending);
    double lowest = 1;
    for (int i = 0; i < count; i++)
        lowest = fmin(lowest, p[i] * (count - i));
    return lowest;
}

/* All jobs together, of one run or of several. */
typedef struct order_verdict {
    double worst[ORDER_LAGS];      /* mean correlation, of the job where it is largest */
    double position_p, class_p;    /* smallest of any job */
    double p[ORDER_TESTS], holm_p; /* all of them; the smallest after the correction */
    int tests;
} order_verdict;

static inline void order_begin(order_verdict *v)
{
    *v = (order_verdict){.position_p = 1, .class_p = 1, .holm_p = 1};
}

/* What another verdict found, as part of the same family of tests. */
static inline void order_join(order_verdict *v, const order_verdict *more)
{
    for (int i = 0; i < ORDER_LAGS; i++)
        if (fabs(more->worst[i]) > fabs(v->worst[i]))
            v->worst[i] = more->worst[i];
    v->position_p = fmin(v->position_p, more->position_p);
    v->class_p = fmin(v->class_p, more->class_p);
    for (int i = 0; i < more->tests && v->tests < ORDER_TESTS; i++)
        v->p[v->tests++] = more->p[i];
    double p[ORDER_TESTS];
    memcpy(p, v->p, sizeof p);
    v->holm_p = order_holm(p, v->tests);
}

static inline void order_add(order_verdict *v, const uint32_t *place, uint32_t n, int epochs)
{
    order_verdict one;
    order_begin(&one);
    for (int lag = 1; lag <= ORDER_LAGS && lag < epochs; lag++)
        one.worst[lag - 1] = order_correlation(place, n, epochs, lag);
    one.p[one.tests++] = one.position_p = order_position_p(place, n, epochs);
    one.p[one.tests++] = one.class_p = order_class_p(place, n, epochs);
    order_join(v, &one);
}

/* The largest correlation of any lag. */
static inline double order_worst(const order_verdict *v)
{
    double worst = 0;
    for (int i = 0; i < ORDER_LAGS; i++)
        worst = fabs(v->worst[i]) > fabs(worst) ? v->worst[i] : worst;
    return worst;
}

static inline bool order_is_random(const order_verdict *v)
{
    return fabs(order_worst(v)) <= 0.04 && v->holm_p > 0.01;
}

#endif
