/* SPDX-License-Identifier: Apache-2.0
 * exp, log and the functions of angles with one written order of operations, so that a draw is the
 * same on every machine and libm version; only + - * / are used. Pure functions. */
#ifndef PSTI_CORE_MATH_H
#define PSTI_CORE_MATH_H

/* Within 2 ulp of the true value. */
double psti_exp(double x); /* -700 <= x <= 700; clamped outside */
double psti_ln(double x);  /* natural logarithm; x > 0, finite, normal */

/* Correctly rounded as far as tests can tell (trig.c). */
double psti_sin(double x); /* -1e6 <= x <= 1e6; clamped outside */
double psti_cos(double x);
double psti_tan(double x);
double psti_atan(double x);

#endif
