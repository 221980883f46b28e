/* SPDX-License-Identifier: Apache-2.0
 * The keyed permutation: a bijection with an inverse, even over epochs, unrelated from one to the
 * next, and the same for ever.
 */
#include <stdlib.h>

#include "core/clock.h"
#include "sample/sample.h"
#include "sample_check.h"

static bool is_bijection(uint64_t n, uint64_t seed, uint64_t epoch)
{
    psti_permutation p;
    psti_permutation_init(&p, n, seed, epoch);
    uint8_t *seen = calloc(n, 1);
    bool good = seen != NULL;
    for (uint64_t i = 0; good && i < n; i++) {
        const uint64_t value = psti_permutation_at(&p, i);
        good = value < n && !seen[value] && psti_permutation_find(&p, value) == i;
        if (good)
            seen[value] = 1;
    }
    free(seen);
    return good;
}

static void every_small_size_is_a_bijection_with_its_inverse(void)
{
    for (uint64_t n = 1; n <= 300; n++)
        for (uint64_t epoch = 0; epoch < 3; epoch++)
            CHECKF(is_bijection(n, 7 * n, epoch), "n = %llu", (unsigned long long)n);
}

static void some_large_sizes_are_bijections_with_their_inverse(void)
{
    const uint64_t sizes[] = {4095, 4096, 4097, 65537, 131071};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECKF(is_bijection(sizes[i], 11, i), "n = %llu", (unsigned long long)sizes[i]);
}

static void the_inverse_holds_where_n_does_not_fit_32_bits(void)
{
    const uint64_t sizes[] = {1281167, (uint64_t)1 << 33, ((uint64_t)1 << 40) - 87, INT64_MAX};
    uint64_t state = 5;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        psti_permutation p;
        psti_permutation_init(&p, sizes[i], 99, 4);
        for (int k = 0; k < 2000; k++) {
            const uint64_t at = noise(&state) % sizes[i], value = psti_permutation_at(&p, at);
            CHECK(value < sizes[i]);
            CHECK(psti_permutation_find(&p, value) == at);
        }
    }
}

static double place_excess(uint64_t n, uint64_t id, int epochs)
{
    static int64_t seen[1000];
    memset(seen, 0, sizeof seen);
    for (int e = 0; e < epochs; e++) {
        psti_permutation p;
        psti_permutation_init(&p, n, 42, (uint64_t)e);
        seen[psti_permutation_find(&p, id)]++;
    }
    return chi_excess_even(seen, (int)n);
}

static void an_id_stands_everywhere_equally_often_over_epochs(void)
{
    const struct {
        uint64_t n;
        int epochs;
    } cases[] = {{2, 4000}, {3, 6000}, {10, 20000}, {100, 30000}, {1000, 60000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t ids[] = {0, cases[i].n / 2, cases[i].n - 1};
        for (int k = 0; k < 3; k++) {
            const double excess = place_excess(cases[i].n, ids[k], cases[i].epochs);
            CHECKF(fabs(excess) < 4.5, "n = %llu, id %llu: %.1f sigma",
                   (unsigned long long)cases[i].n, (unsigned long long)ids[k], excess);
        }
    }
}

static void all_24_permutations_of_four_come_equally_often(void)
{
    int64_t seen[256] = {0}, packed[24];
    for (uint64_t epoch = 0; epoch < 10000; epoch++) {
        psti_permutation p;
        psti_permutation_init(&p, 4, 1, epoch);
        unsigned code = 0;
        for (uint64_t i = 0; i < 4; i++)
            code = code << 2 | (unsigned)psti_permutation_at(&p, i);
        seen[code]++;
    }
    int kinds = 0;
    for (int i = 0; i < 256; i++)
        if (seen[i] && kinds < 24)
            packed[kinds++] = seen[i];
    CHECKF(kinds == 24, "%d", kinds);
    const double excess = chi_excess_even(packed, kinds);
    CHECKF(fabs(excess) < 4.5, "%.1f sigma", excess);
}

/* Correlation of f(i) and g(i), both permutations of 0..n-1: Spearman's rho of ranks. */
static double correlation(const uint64_t *f, const uint64_t *g, int n)
{
    const double mean = (n - 1) / 2.0, variance = ((double)n * n - 1) / 12.0;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += ((double)f[i] - mean) * ((double)g[i] - mean);
    return sum / n / variance;
}

static void fill(uint64_t *values, int n, uint64_t seed, uint64_t epoch)
{
    psti_permutation p;
    psti_permutation_init(&p, (uint64_t)n, seed, epoch);
    for (int i = 0; i < n; i++)
        values[i] = psti_permutation_at(&p, (uint64_t)i);
}

static void consecutive_epochs_and_seeds_are_unrelated(void)
{
    enum { N = 4000 };
    static uint64_t a[N], b[N];
    for (uint64_t e = 0; e < 20; e++) {
        fill(a, N, 3, e);
        fill(b, N, 3, e + 1);
        const double r = correlation(a, b, N);
        CHECKF(fabs(r) < 0.06, "epochs %d and %d: r = %.3f", (int)e, (int)e + 1, r);
        fill(b, N, 4, e);
        const double s = correlation(a, b, N);
        CHECKF(fabs(s) < 0.06, "seeds 3 and 4, epoch %d: r = %.3f", (int)e, s);
    }
}

static void neighbours_within_an_epoch_are_unrelated(void)
{
    enum { N = 4000 };
    static uint64_t a[N + 8], cyclic[N];
    for (uint64_t e = 0; e < 10; e++) {
        fill(a, N, 8, e);
        memcpy(a + N, a, 8 * sizeof *a);
        for (int lag = 1; lag <= 8; lag *= 2) {
            memcpy(cyclic, a + lag, sizeof cyclic);
            const double r = correlation(a, cyclic, N);
            CHECKF(fabs(r) < 0.06, "epoch %d, lag %d: r = %.3f", (int)e, lag, r);
        }
    }
}

/* Distances between neighbours: every residue of value[i + 1] - value[i] about equally often. */
static void differences_of_neighbours_are_even(void)
{
    int64_t seen[499] = {0};
    for (uint64_t e = 0; e < 200; e++) {
        psti_permutation p;
        psti_permutation_init(&p, 500, 21, e);
        for (uint64_t i = 0; i + 1 < 500; i++) {
            const uint64_t here = psti_permutation_at(&p, i), next = psti_permutation_at(&p, i + 1);
            seen[(next + 500 - here) % 500 - 1]++;
        }
    }
    const double excess = chi_excess_even(seen, 499);
    CHECKF(fabs(excess) < 4.5, "%.1f sigma", excess);
}

/* Frozen: computed once, and again by a second program written from the description alone. */
static void the_permutation_is_the_one_it_always_was(void)
{
    static const struct {
        uint64_t n, seed, epoch, value[8]; /* at positions 0..7 */
    } known[] = {
        {10u, 0u, 0, {0, 9, 1, 3, 2, 8, 4, 5}},
        {10u, 0u, 1, {9, 5, 4, 8, 2, 3, 6, 0}},
        {1000u, 42u, 3, {648, 434, 658, 670, 691, 543, 720, 417}},
        {1281167u,
         1234567890123456789u,
         90,
         {346807, 1265216, 300590, 268017, 201270, 920763, 386303, 1007841}},
        {1099511627689u,
         18446744073709551615u,
         4294967295,
         {703717141035, 955635782203, 292912105964, 44725757082, 368070063486, 183944446102,
          406170399301, 657065657231}},
    };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        psti_permutation p;
        psti_permutation_init(&p, known[k].n, known[k].seed, known[k].epoch);
        for (uint64_t i = 0; i < 8; i++)
            CHECKF(psti_permutation_at(&p, i) == known[k].value[i], "case %zu, position %d: %llu",
                   k, (int)i, (unsigned long long)psti_permutation_at(&p, i));
    }
}

/* Prints, does not judge: machines differ. */
static void a_lookup_is_timed(void)
{
    psti_permutation p;
    uint64_t sum = 0;
    psti_permutation_init(&p, 1281167, 1, 1);
    const uint64_t start = psti_now_ns();
    for (uint64_t i = 0; i < 100000; i++)
        sum += psti_permutation_at(&p, i);
    printf("     %.0f ns a look-up at n = 1281167, %d rounds (sum %llu)\n",
           (double)(psti_now_ns() - start) / 100000, p.rounds, (unsigned long long)sum);
    CHECK(sum > 0);
}

int main(void)
{
    RUN(every_small_size_is_a_bijection_with_its_inverse);
    RUN(some_large_sizes_are_bijections_with_their_inverse);
    RUN(the_inverse_holds_where_n_does_not_fit_32_bits);
    RUN(an_id_stands_everywhere_equally_often_over_epochs);
    RUN(all_24_permutations_of_four_come_equally_often);
    RUN(consecutive_epochs_and_seeds_are_unrelated);
    RUN(neighbours_within_an_epoch_are_unrelated);
    RUN(differences_of_neighbours_are_even);
    RUN(the_permutation_is_the_one_it_always_was);
    RUN(a_lookup_is_timed);
    return check_report();
}
