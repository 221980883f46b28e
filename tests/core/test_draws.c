/* SPDX-License-Identifier: Apache-2.0
 * The distributions drawn from the generator: their shape, and that they never change. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "core/rng.h"

enum { DRAWS = 20000 };

static psti_rng generator(uint64_t seed)
{
    const psti_rng_key key = {.seed = seed, .epoch = 3, .id = 5};
    psti_rng rng;
    psti_rng_init(&rng, &key, 7);
    return rng;
}

/* Distribution function of Beta(a, a): the integral of (t (1 - t))^(a - 1), with t = u^(1/a) so
 * that it stays finite. Beyond a half by symmetry. */
static double part(double a, double x)
{
    const int steps = 4000;
    const double end = pow(x, a);
    double sum = 0;
    for (int i = 0; i < steps; i++)
        sum += pow(1 - pow((i + 0.5) / steps * end, 1 / a), a - 1);
    return sum / steps * end;
}

static double beta_share(double a, double x)
{
    const double half = part(a, 0.5);
    return x <= 0.5 ? part(a, x) / half / 2 : 1 - part(a, 1 - x) / half / 2;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The largest distance between what was drawn and the distribution (Kolmogorov and Smirnov), on
 * every 50th draw. */
static void beta_follows_its_distribution(void)
{
    static double drawn[DRAWS];
    const double alphas[] = {0.001, 0.05, 0.2, 0.7, 1, 3, 40};
    for (size_t k = 0; k < sizeof alphas / sizeof *alphas; k++) {
        psti_rng rng = generator(k);
        double worst = 0;
        for (int i = 0; i < DRAWS; i++) {
            drawn[i] = psti_rng_beta(&rng, alphas[k], alphas[k]);
            CHECK(drawn[i] >= 0 && drawn[i] <= 1);
        }
        qsort(drawn, DRAWS, sizeof *drawn, ascending);
        for (int i = 25; i < DRAWS; i += 50) {
            if (drawn[i] < 1e-12 || drawn[i] > 1 - 1e-12)
                continue; /* more draws than one share a place there */
            const double off = fabs(beta_share(alphas[k], drawn[i]) - (i + 0.5) / DRAWS);
            worst = off > worst ? off : worst;
        }
        CHECKF(worst < 1.8 / sqrt(DRAWS), "alpha %g: off by %.4f", alphas[k], worst);
    }
}

static void beta_tells_its_two_parameters_apart(void)
{
    psti_rng rng = generator(9);
    double sum = 0, squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        const double x = psti_rng_beta(&rng, 2, 5);
        sum += x;
        squares += x * x;
    }
    const double mean = sum / DRAWS, spread = squares / DRAWS - mean * mean;
    CHECKF(fabs(mean - 2.0 / 7) < 0.005, "%g", mean);
    CHECKF(fabs(spread - 10.0 / 392) < 0.001, "%g", spread);
}

static void normal_has_mean_0_and_deviation_1(void)
{
    psti_rng rng = generator(4);
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < DRAWS; i++) {
        const double x = psti_rng_normal(&rng);
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    CHECKF(fabs(sum / DRAWS) < 0.02, "%g", sum / DRAWS);
    CHECKF(fabs(squares / DRAWS - 1) < 0.03, "%g", squares / DRAWS);
    CHECKF(fabs(fourth / DRAWS - 3) < 0.25, "%g", fourth / DRAWS);
}

/* Part of the byte promise: the same on every machine and in every version. */
static void draws_are_frozen(void)
{
    const double betas[] = {0x1.ff59a4f23af0cp-1, 0x1.d7ac69fd6937fp-2, 0x1.90bba40622eebp-1,
                            0x1.9420b4a350c8ap-1};
    const double normals[] = {0x1.6121e05cd2bddp-1, 0x1.07b5c6793143ep-3};
    psti_rng rng = generator(1);
    for (int i = 0; i < 4; i++) {
        const double got = psti_rng_beta(&rng, i < 2 ? 0.2 : 1.5, i < 2 ? 0.2 : 1.5);
        CHECKF(got == betas[i], "%a", got);
    }
    for (int i = 0; i < 2; i++) {
        const double got = psti_rng_normal(&rng);
        CHECKF(got == normals[i], "%a", got);
    }
}

int main(void)
{
    RUN(beta_follows_its_distribution);
    RUN(beta_tells_its_two_parameters_apart);
    RUN(normal_has_mean_0_and_deviation_1);
    RUN(draws_are_frozen);
    return check_report();
}
