/* SPDX-License-Identifier: Apache-2.0
 * Sine and cosine of multiples of pi for tables that are made anew for each sample: core's are
 * exact to the last bit and take a hundred times as long. Taking away whole quarters of a circle
 * loses nothing here, so the series are all there is to it. Pure functions. */
#include "op/audio/audio.h"

#define PI 3.14159265358979323846

/* |x| <= 1/4. The first term that is left out is below 1e-18. */
static double sine(double x)
{
    const double a = PI * x, z = a * a;
    double s = 1;
    for (int k = 8; k >= 1; k--)
        s = 1 - z * s / (double)(2 * k * (2 * k + 1));
    return a * s;
}

static double cosine(double x)
{
    const double a = PI * x, z = a * a;
    double s = 1;
    for (int k = 9; k >= 1; k--)
        s = 1 - z * s / (double)(2 * k * (2 * k - 1));
    return s;
}

double psti_sin_pi(double x)
{
    const int64_t quarters = (int64_t)(2 * x + (x < 0 ? -0.5 : 0.5));
    const double rest = x - 0.5 * (double)quarters;
    const double value = quarters & 1 ? cosine(rest) : sine(rest);
    return quarters & 2 ? -value : value;
}

double psti_cos_pi(double x)
{
    const int64_t quarters = (int64_t)(2 * x + (x < 0 ? -0.5 : 0.5));
    const double rest = x - 0.5 * (double)quarters;
    const double value = quarters & 1 ? sine(rest) : cosine(rest);
    return (quarters + 1) & 2 ? -value : value;
}
