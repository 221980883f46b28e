/* SPDX-License-Identifier: Apache-2.0
 * exp and log with one written order of operations, so that a draw is the same on every machine and
 * libm version. Within 2 ulp of the true value; only + - * / are used. Pure functions. */
#ifndef PSTI_CORE_MATH_H
#define PSTI_CORE_MATH_H

double psti_exp(double x); /* -700 <= x <= 700; clamped outside */
double psti_ln(double x);  /* natural logarithm; x > 0, finite, normal */

#endif
