/* SPDX-License-Identifier: Apache-2.0
 * exp, log and the functions of angles of the room core beside the C library's in long double. */
#include <math.h>

#include "check.h"
#include "core/math.h"

/* Distance in units of the last place of the true value. */
static double ulps(double got, long double want)
{
    const double near = (double)want;
    const double ulp = nextafter(fabs(near), INFINITY) - fabs(near);
    return (double)(fabsl((long double)got - want) / (long double)ulp);
}

static void exp_is_within_2_ulp(void)
{
    double worst = 0;
    for (int i = -699000; i <= 699000; i += 7) {
        const double x = i / 1000.0, d = ulps(psti_exp(x), expl((long double)x));
        worst = d > worst ? d : worst;
    }
    for (int i = -200000; i <= 200000; i++) {
        const double x = i / 100000.0, d = ulps(psti_exp(x), expl((long double)x));
        worst = d > worst ? d : worst;
    }
    printf("     exp: at most %.2f ulp\n", worst);
    CHECKF(worst <= 2, "%.2f", worst);
    CHECK(psti_exp(0) == 1);
    CHECK(psti_exp(1e9) == psti_exp(700) && psti_exp(-1e9) == psti_exp(-700));
}

static void log_is_within_2_ulp(void)
{
    double worst = 0;
    for (int i = 1; i < 400000; i++) { /* dense about 1, where the result is small */
        const double x = i / 200000.0, d = ulps(psti_ln(x), logl((long double)x));
        worst = d > worst ? d : worst;
    }
    for (int e = -1022; e < 1023; e++)
        for (int m = 0; m < 64; m++) {
            const double x = ldexp(1 + m / 64.0, e);
            const double d = x == 1 ? 0 : ulps(psti_ln(x), logl((long double)x));
            worst = d > worst ? d : worst;
        }
    printf("     log: at most %.2f ulp\n", worst);
    CHECKF(worst <= 2, "%.2f", worst);
    CHECK(psti_ln(1) == 0);
}

typedef long double true_fn(long double x);

/* The furthest from the true value over angles near and far; half an ulp is correct rounding, and
 * the long double it is held against is good to 2^-11 of an ulp itself. */
static void check_angles(const char *name, double (*fn)(double), true_fn *want)
{
    double worst = 0;
    for (int i = -20000; i <= 20000; i++) {
        const double near = i / 10000.0 * 3.3, degrees = i / 50.0 * (3.14159265358979312 / 180.0);
        const double far = i * 49.999;
        const double xs[] = {near, degrees, far};
        for (int k = 0; k < 3; k++) {
            const double d = xs[k] == 0 ? 0 : ulps(fn(xs[k]), want((long double)xs[k]));
            worst = d > worst ? d : worst;
        }
    }
    printf("     %s: at most %.4f ulp\n", name, worst);
    CHECKF(worst <= 0.501, "%s %.4f", name, worst);
}

static void angles_are_correctly_rounded(void)
{
    check_angles("sin", psti_sin, sinl);
    check_angles("cos", psti_cos, cosl);
    check_angles("tan", psti_tan, tanl);
    check_angles("atan", psti_atan, atanl);
    CHECK(psti_sin(0) == 0 && psti_cos(0) == 1 && psti_tan(0) == 0 && psti_atan(0) == 0);
    CHECK(psti_sin(1e9) == psti_sin(1e6) && psti_cos(-1e9) == psti_cos(-1e6));
}

int main(void)
{
    RUN(exp_is_within_2_ulp);
    RUN(log_is_within_2_ulp);
    RUN(angles_are_correctly_rounded);
    return check_report();
}
