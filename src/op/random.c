/* SPDX-License-Identifier: Apache-2.0
 * Normal numbers by Marsaglia's polar method, gamma-distributed ones by Marsaglia and Tsang's.
 * Caller's storage; any thread. */
#include "op/random.h"

#include "core/math.h"

double psti_draw_normal(psti_normals *n)
{
    double a, b, s;
    n->have = !n->have;
    if (!n->have)
        return n->next;
    do {
        a = 2 * psti_rng_unit(n->rng) - 1;
        b = 2 * psti_rng_unit(n->rng) - 1;
        s = a * a + b * b;
    } while (s >= 1 || s < 1e-300);
    const double factor = __builtin_sqrt(-2 * psti_ln(s) / s);
    n->next = b * factor;
    return a * factor;
}

/* Above 0: a logarithm can be taken. */
static double unit_above(psti_rng *rng)
{
    return 1.0 - psti_rng_unit(rng);
}

/* alpha >= 1. */
static double gamma_large(psti_rng *rng, double alpha)
{
    const double d = alpha - 1.0 / 3.0, c = 1.0 / __builtin_sqrt(9.0 * d);
    psti_normals normals = {.rng = rng};
    for (;;) {
        const double x = psti_draw_normal(&normals), cube = 1.0 + c * x;
        if (cube <= 0)
            continue;
        const double v = cube * cube * cube, u = unit_above(rng);
        if (psti_ln(u) < 0.5 * x * x + d - d * v + d * psti_ln(v))
            return d * v;
    }
}

double psti_draw_gamma(psti_rng *rng, double alpha)
{
    if (alpha >= 1)
        return gamma_large(rng, alpha);
    const double more = gamma_large(rng, alpha + 1.0);
    return more * psti_exp(psti_ln(unit_above(rng)) / alpha);
}

void psti_draw_dirichlet(psti_rng *rng, double alpha, int count, double *out)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        out[i] = psti_draw_gamma(rng, alpha);
        sum += out[i];
    }
    for (int i = 0; i < count; i++)
        out[i] = sum > 0 ? out[i] / sum : 1.0 / count;
}
