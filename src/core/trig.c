/* SPDX-License-Identifier: Apache-2.0
 * Sine, cosine, tangent and arc tangent with one written order of operations: a draw and the
 * picture made from it must not depend on the C library or on whether it fuses multiplications.
 * Everything is computed in pairs of doubles (about 100 bits) and rounded once, so the results are
 * those of correct rounding but for about one argument in 2^45. A few microseconds a call: for a
 * sample's decision, not for its pixels. Pure functions; only + - * / are used. */
#include "core/math.h"

/* A number as hi + lo, where hi is the sum rounded. */
typedef struct pair {
    double hi, lo;
} pair;

/* Half of pi as a sum of three doubles. */
static const double QUARTER[3] = {1.57079632679489655800e+00, 6.12323399573676603587e-17,
                                  -1.49738490485918317e-33};

static pair sum_of(double a, double b)
{
    const double s = a + b, back = s - a;
    return (pair){s, (a - (s - back)) + (b - back)};
}

/* Halves of 26 bits, whose products are exact. */
static pair halves(double a)
{
    const double c = 134217729.0 * a, hi = c - (c - a);
    return (pair){hi, a - hi};
}

static pair product_of(double a, double b)
{
    const double p = a * b;
    const pair x = halves(a), y = halves(b);
    return (pair){p, ((x.hi * y.hi - p) + x.hi * y.lo + x.lo * y.hi) + x.lo * y.lo};
}

static pair add(pair a, pair b)
{
    const pair hi = sum_of(a.hi, b.hi), lo = sum_of(a.lo, b.lo);
    const pair first = sum_of(hi.hi, hi.lo + lo.hi);
    return sum_of(first.hi, first.lo + lo.lo);
}

static pair negative(pair a)
{
    return (pair){-a.hi, -a.lo};
}

static pair multiply(pair a, pair b)
{
    const pair p = product_of(a.hi, b.hi);
    return sum_of(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

static pair divide(pair a, pair b)
{
    const double q = a.hi / b.hi;
    const pair rest = add(a, negative(multiply(b, (pair){q, 0})));
    const double more = rest.hi / b.hi;
    const pair last = add(rest, negative(multiply(b, (pair){more, 0})));
    return add(sum_of(q, more), (pair){last.hi / b.hi, 0});
}

static pair divide_by(pair a, double b)
{
    const double q = a.hi / b;
    const pair p = product_of(q, b);
    return sum_of(q, (((a.hi - p.hi) - p.lo) + a.lo) / b);
}

/* x less the nearest multiple of half of pi; returns that multiple, modulo 4. */
static int reduce(double x, pair *rest)
{
    const double turns = x * 6.36619772367581382433e-01;
    const double n = (double)(long long)(turns + (turns >= 0 ? 0.5 : -0.5));
    pair r = {x, 0};
    for (int i = 0; i < 3; i++)
        r = add(r, negative(product_of(n, QUARTER[i])));
    *rest = r;
    return (int)((long long)n & 3);
}

/* The series of sine (odd = 1) or cosine (odd = 0), |r| below 0.8, by Horner's rule. */
static pair series(pair r, int odd)
{
    const pair square = multiply(r, r);
    pair s = {1, 0};
    for (int k = 15; k >= 1; k--) {
        const double divisor = (double)(2 * k) * (odd ? 2 * k + 1 : 2 * k - 1);
        s = add((pair){1, 0}, negative(divide_by(multiply(square, s), divisor)));
    }
    return odd ? multiply(r, s) : s;
}

/* Sine of x + turn quarters of a circle. */
static pair sine(double x, int turn)
{
    pair r;
    const int n = reduce(x, &r) + turn;
    const pair s = series(r, !(n & 1));
    return n & 2 ? negative(s) : s;
}

static double limited(double x)
{
    return x > 1e6 ? 1e6 : x < -1e6 ? -1e6 : x;
}

double psti_sin(double x)
{
    return sine(limited(x), 0).hi;
}

double psti_cos(double x)
{
    return sine(limited(x), 1).hi;
}

static pair tangent(double x)
{
    return divide(sine(x, 0), sine(x, 1));
}

double psti_tan(double x)
{
    return tangent(limited(x)).hi;
}

/* For |x| <= 1: a rough value, then what is missing from it, atan(x) - y = atan((x - tan y) / (1 +
 * x tan y)), by the series' first two terms. */
static pair arc(pair x)
{
    pair y = {x.hi / (1.0 + 0.28 * x.hi * x.hi), 0};
    for (int i = 0; i < 3; i++) {
        pair s = series(y, 1), c = series(y, 0);
        const pair rest = divide(add(multiply(x, c), negative(s)), add(c, multiply(x, s)));
        y = add(y, rest);
        y = add(y, (pair){-rest.hi * rest.hi * rest.hi / 3.0, 0});
    }
    return y;
}

double psti_atan(double x)
{
    if (x >= -1 && x <= 1)
        return arc((pair){x, 0}).hi;
    const pair quarter = {x < 0 ? -QUARTER[0] : QUARTER[0], x < 0 ? -QUARTER[1] : QUARTER[1]};
    return add(quarter, negative(arc(divide((pair){1, 0}, (pair){x, 0})))).hi;
}
