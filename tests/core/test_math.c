/* SPDX-License-Identifier: Apache-2.0
 * exp and log of the room core beside the C library's in long double. */
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

int main(void)
{
    RUN(exp_is_within_2_ulp);
    RUN(log_is_within_2_ulp);
    return check_report();
}
