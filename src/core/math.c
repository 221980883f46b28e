/* SPDX-License-Identifier: Apache-2.0
 * See math.h. Built with -ffp-contract=off like everything else here. */
#include "core/math.h"

#include <stdint.h>
#include <string.h>

static const double LN2_HI = 6.93147180369123816490e-01, LN2_LO = 1.90821492927058770002e-10;

static double scale2(double x, int n)
{
    const uint64_t bits = (uint64_t)(1023 + n) << 52;
    double factor;
    memcpy(&factor, &bits, sizeof factor);
    return x * factor;
}

double psti_exp(double x)
{
    if (x > 700.0)
        x = 700.0;
    if (x < -700.0)
        x = -700.0;
    const double scaled = x * 1.44269504088896340736;
    const int n = (int)(scaled + (scaled >= 0 ? 0.5 : -0.5));
    const double r = (x - n * LN2_HI) - n * LN2_LO; /* |r| <= ln2 / 2 */
    double sum = 1.0;
    for (int k = 17; k >= 1; k--)
        sum = 1.0 + sum * r / k;
    return scale2(sum, n);
}

double psti_ln(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int n = (int)(bits >> 52 & 0x7ff) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.41421356237309514547) {
        m *= 0.5;
        n++;
    }
    const double s = (m - 1.0) / (m + 1.0), z = s * s; /* |s| < 0.1716 */
    double sum = 0.0;
    for (int k = 21; k >= 3; k -= 2)
        sum = (sum + 1.0 / k) * z;
    return n * LN2_HI + (2.0 * s + (2.0 * s * sum + n * LN2_LO));
}
