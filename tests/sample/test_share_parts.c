/* SPDX-License-Identifier: Apache-2.0
 * The parts that sharing stands on: the quick permutation (a bijection with an inverse, even,
 * unrelated from key to key), the bitmaps that are searched (against brute force), and the trail
 * that measures how random an order is.
 */
#include <stdlib.h>

#include "sample/share_priv.h"
#include "sample_check.h"

static bool is_bijection(uint32_t n, uint64_t key)
{
    psti_quick q;
    psti_quick_init(&q, n, key, 3);
    uint8_t *seen = calloc(n, 1);
    bool good = seen != NULL;
    for (uint32_t i = 0; good && i < n; i++) {
        const uint32_t value = psti_quick_at(&q, i);
        good = value < n && !seen[value] && psti_quick_find(&q, value) == i;
        if (good)
            seen[value] = 1;
    }
    free(seen);
    return good;
}

static void every_size_is_a_bijection_with_its_inverse(void)
{
    for (uint32_t n = 1; n <= 300; n++)
        for (uint64_t key = 0; key < 3; key++)
            CHECKF(is_bijection(n, key), "n = %u", n);
    const uint32_t sizes[] = {4095, 4096, 4097, 65537, 131071};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECKF(is_bijection(sizes[i], i), "n = %u", sizes[i]);
}

static void the_inverse_holds_for_the_largest_sizes(void)
{
    const uint32_t sizes[] = {1281167, 1u << 31, UINT32_MAX - 1};
    uint64_t state = 5;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        psti_quick q;
        psti_quick_init(&q, sizes[i], 9, i);
        for (int k = 0; k < 2000; k++) {
            const uint32_t at = (uint32_t)(noise(&state) % sizes[i]);
            const uint32_t value = psti_quick_at(&q, at);
            CHECK(value < sizes[i] && psti_quick_find(&q, value) == at);
        }
    }
}

static void an_id_stands_everywhere_equally_often_over_keys(void)
{
    static const struct {
        uint32_t n;
        int keys;
    } cases[] = {{2, 4000}, {3, 6000}, {10, 20000}, {97, 30000}, {1000, 100000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t n = cases[i].n, ids[] = {0, n / 2, n - 1};
        for (int k = 0; k < 3; k++) {
            int64_t seen[1000] = {0};
            for (int key = 0; key < cases[i].keys; key++) {
                psti_quick q;
                psti_quick_init(&q, n, psti_mix64((uint64_t)key), 1);
                seen[psti_quick_find(&q, ids[k])]++;
            }
            const double excess = chi_excess_even(seen, (int)n);
            CHECKF(fabs(excess) < 4.5, "n = %u, id %u: %.1f sigma", n, ids[k], excess);
        }
    }
}

/* Pairs of neighbours in the order: every distance about equally often. A permutation that keeps
 * rows or columns together fails here. */
static void neighbours_are_unrelated(void)
{
    enum { N = 500 };
    for (uint32_t gap = 1; gap <= 23; gap += 11) { /* 23: a whole row of the grid further */
        int64_t seen[N - 1] = {0};
        for (uint64_t key = 0; key < 400; key++) {
            psti_quick q;
            psti_quick_init(&q, N, psti_mix64(key), 2);
            for (uint32_t i = 0; i + gap < N; i++)
                seen[(psti_quick_at(&q, i + gap) + N - psti_quick_at(&q, i)) % N - 1]++;
        }
        const double excess = chi_excess_even(seen, N - 1);
        CHECKF(fabs(excess) < 4.5, "%u apart: %.1f sigma", gap, excess);
    }
}

static double correlation(const psti_quick *a, const psti_quick *b, uint32_t shift)
{
    const double mid = (a->n - 1) / 2.0, variance = ((double)a->n * a->n - 1) / 12;
    double sum = 0;
    for (uint32_t i = 0; i < a->n; i++)
        sum += (psti_quick_at(a, i) - mid) * (psti_quick_at(b, (i + shift) % b->n) - mid);
    return sum / a->n / variance;
}

static void orders_of_different_keys_are_unrelated(void)
{
    enum { N = 4000 };
    double mean = 0;
    for (uint64_t key = 0; key < 100; key++) {
        psti_quick a, b;
        psti_quick_init(&a, N, key, 1);
        psti_quick_init(&b, N, key + 1, 1);
        const double r = correlation(&a, &b, 0), s = correlation(&a, &a, 1 + (uint32_t)key % 64);
        CHECKF(fabs(r) < 0.065, "keys %d and %d: r = %.3f", (int)key, (int)key + 1, r);
        CHECKF(fabs(s) < 0.065, "key %d, shifted: r = %.3f", (int)key, s);
        mean += r / 100;
    }
    CHECKF(fabs(mean) < 0.006, "%.4f", mean);
}

static uint32_t slow_next(const uint8_t *set, uint32_t n, uint32_t from)
{
    while (from < n && !set[from])
        from++;
    return from < n ? from : n;
}

static void bitmaps_agree_with_brute_force(void)
{
    const uint32_t sizes[] = {1, 63, 64, 65, 4096, 4097, 300000};
    uint64_t state = 11;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const uint32_t n = sizes[k];
        psti_bits bits;
        uint8_t *set = calloc(n, 1);
        CHECK(set && psti_bits_init(&bits, n) == 0);
        for (int i = 0; i < 4000; i++) {
            const uint32_t at = (uint32_t)(noise(&state) % n);
            set[at] = noise(&state) % 3 == 0;
            set[at] ? psti_bits_set(&bits, at) : psti_bits_clear(&bits, at);
            const uint32_t from = (uint32_t)(noise(&state) % (n + 2));
            CHECK(psti_bits_next(&bits, from) == slow_next(set, n, from));
            CHECK(psti_bits_test(&bits, at) == set[at]);
        }
        psti_bits_all(&bits);
        CHECK(psti_bits_next(&bits, 0) == 0 && psti_bits_next(&bits, n - 1) == n - 1);
        for (uint32_t i = 0; i < n; i++)
            psti_bits_clear(&bits, i);
        CHECK(psti_bits_next(&bits, 0) == n);
        psti_bits_set(&bits, n - 1);
        CHECK(psti_bits_next(&bits, 0) == n - 1);
        psti_bits_none(&bits);
        CHECK(psti_bits_next(&bits, 0) == n);
        psti_bits_fini(&bits);
        free(set);
    }
}

/* An order of which a share of the samples keeps its place from epoch to epoch. */
static double trail_of(uint32_t n, int kept_percent, int lag)
{
    psti_trail trail;
    CHECK(psti_trail_init(&trail, n, 5) == 0);
    uint64_t state = 3;
    uint32_t *at = malloc(n * sizeof *at);
    for (int epoch = 0; at && epoch < 30; epoch++) {
        psti_quick fresh, same;
        psti_quick_init(&fresh, n, noise(&state), 1);
        psti_quick_init(&same, n, 77, 1);
        for (uint32_t id = 0; id < n; id++)
            at[id] =
                psti_quick_at(psti_mix64(id) % 100 < (uint64_t)kept_percent ? &same : &fresh, id);
        for (uint32_t id = 0; id < n; id++)
            psti_trail_note(&trail, id, at[id]);
        psti_trail_turn(&trail, n);
    }
    const double mean = trail.mean[lag - 1];
    psti_trail_fini(&trail);
    free(at);
    return mean;
}

static void the_trail_measures_correlation(void)
{
    for (uint32_t n = 2000; n <= 50000; n += 48000)
        for (int lag = 1; lag <= PSTI_SHARE_LAGS; lag += 2) {
            const double none = trail_of(n, 0, lag), some = trail_of(n, 10, lag);
            CHECKF(fabs(none) < 0.02, "n = %u, lag %d: %.3f", n, lag, none);
            CHECKF(fabs(some - 0.1) < 0.03, "n = %u, lag %d: %.3f", n, lag, some);
        }
}

static void the_trail_leaves_out_what_was_not_delivered(void)
{
    psti_trail trail;
    CHECK(psti_trail_init(&trail, 1000, 1) == 0);
    for (uint32_t id = 0; id < 1000; id++)
        psti_trail_note(&trail, id, id);
    CHECK(!psti_trail_turn(&trail, 1000)); /* nothing to compare with */
    for (uint32_t id = 0; id < 10; id++)
        psti_trail_note(&trail, id, id);
    CHECK(!psti_trail_turn(&trail, 10)); /* too little in common */
    psti_trail_fini(&trail);
}

int main(void)
{
    RUN(every_size_is_a_bijection_with_its_inverse);
    RUN(the_inverse_holds_for_the_largest_sizes);
    RUN(an_id_stands_everywhere_equally_often_over_keys);
    RUN(neighbours_are_unrelated);
    RUN(orders_of_different_keys_are_unrelated);
    RUN(bitmaps_agree_with_brute_force);
    RUN(the_trail_measures_correlation);
    RUN(the_trail_leaves_out_what_was_not_delivered);
    return check_report();
}
