/* SPDX-License-Identifier: Apache-2.0
 * Spectra and sums of recordings. Written once in C and compiled for each level with that level's
 * flags (PSTI_AUDIO_INIT names the function that fills the table), as the colour kernels are: loops
 * of fixed length that the compiler makes vectors of, nothing contracted or reordered, so every
 * level gives the same bytes.
 *
 * Spectra are made of PSTI_AUDIO_LANES frames side by side, a lane each: element i of all of them
 * stands together, so that no lane ever needs another one's numbers. */
#include "op/kernels/kernels.h"

#define INLINE static inline __attribute__((always_inline))
enum { LANES = PSTI_AUDIO_LANES };

/* ---- transforms ------------------------------------------------------------------------------ */

/* Complex numbers of all lanes: real parts, then imaginary ones. */
typedef struct cell {
    float re[LANES], im[LANES];
} cell;

INLINE cell plus(const cell *a, const cell *b)
{
    cell c;
    for (int l = 0; l < LANES; l++) {
        c.re[l] = a->re[l] + b->re[l];
        c.im[l] = a->im[l] + b->im[l];
    }
    return c;
}

INLINE cell minus(const cell *a, const cell *b)
{
    cell c;
    for (int l = 0; l < LANES; l++) {
        c.re[l] = a->re[l] - b->re[l];
        c.im[l] = a->im[l] - b->im[l];
    }
    return c;
}

/* a - i b, and a + i b. */
INLINE cell minus_turned(const cell *a, const cell *b)
{
    cell c;
    for (int l = 0; l < LANES; l++) {
        c.re[l] = a->re[l] + b->im[l];
        c.im[l] = a->im[l] - b->re[l];
    }
    return c;
}

INLINE cell plus_turned(const cell *a, const cell *b)
{
    cell c;
    for (int l = 0; l < LANES; l++) {
        c.re[l] = a->re[l] - b->im[l];
        c.im[l] = a->im[l] + b->re[l];
    }
    return c;
}

INLINE cell times(const cell *a, float re, float im)
{
    cell c;
    for (int l = 0; l < LANES; l++) {
        c.re[l] = a->re[l] * re - a->im[l] * im;
        c.im[l] = a->re[l] * im + a->im[l] * re;
    }
    return c;
}

/* One pass of Stockham's transform by fours: n numbers are left of each of s transforms. */
static void pass_four(const float *turn, int n, int s, const cell *x, cell *y)
{
    const int m = n / 4;
    for (int p = 0; p < m; p++) {
        const float *w1 = turn + 2 * (p * s), *w2 = turn + 4 * (p * s), *w3 = turn + 6 * (p * s);
        for (int q = 0; q < s; q++) {
            const cell *a = &x[q + s * p], *b = a + s * m, *c = b + s * m, *d = c + s * m;
            const cell ac = plus(a, c), off = minus(a, c), bd = plus(b, d), bent = minus(b, d);
            cell *to = &y[q + s * 4 * p];
            const cell second = minus_turned(&off, &bent), third = minus(&ac, &bd),
                       fourth = plus_turned(&off, &bent);
            to[0] = plus(&ac, &bd);
            to[s] = times(&second, w1[0], w1[1]);
            to[2 * s] = times(&third, w2[0], w2[1]);
            to[3 * s] = times(&fourth, w3[0], w3[1]);
        }
    }
}

static void pass_two(int s, const cell *x, cell *y)
{
    for (int q = 0; q < s; q++) {
        y[q] = plus(&x[q], &x[q + s]);
        y[q + s] = minus(&x[q], &x[q + s]);
    }
}

/* Even and odd numbers of a frame were transformed as real and imaginary parts; this takes them
 * apart, joins them and squares. turn: of the whole frame. */
static void square(const float *turn, int half, const cell *z, float *power)
{
    for (int k = 0; k <= half / 2; k++) {
        const cell *a = &z[k], *b = &z[k ? half - k : 0];
        const float c = turn[2 * k], s = turn[2 * k + 1];
        float *low = power + (size_t)k * LANES, *high = power + (size_t)(half - k) * LANES;
        for (int l = 0; l < LANES; l++) {
            const float even_re = 0.5f * (a->re[l] + b->re[l]),
                        even_im = 0.5f * (a->im[l] - b->im[l]);
            const float odd_re = 0.5f * (a->im[l] + b->im[l]),
                        odd_im = 0.5f * (b->re[l] - a->re[l]);
            const float re = odd_re * c - odd_im * s, im = odd_re * s + odd_im * c;
            const float low_re = even_re + re, low_im = even_im + im;
            const float high_re = even_re - re, high_im = even_im - im;
            low[l] = low_re * low_re + low_im * low_im;
            high[l] = high_re * high_re + high_im * high_im;
        }
    }
}

/* Numbers 2 i and 2 i + 1 of a frame stand where the parts of a cell do, so the frames are cells
 * already. */
static void power(const psti_spectrum *how, float *frames, float *spare, float *out)
{
    const int half = how->size / 2;
    cell *x = (cell *)(void *)frames, *y = (cell *)(void *)spare;
    int n = half, s = 1;
    for (; n >= 4; n /= 4, s *= 4) {
        pass_four(how->half_turn, n, s, x, y);
        cell *swap = x;
        x = y;
        y = swap;
    }
    if (n == 2) {
        pass_two(s, x, y);
        x = y;
    }
    square(how->turn, half, x, out);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* For each lane, the sum of count rows by their weights, in order, and what is added in the end. */
static void weigh(const float *rows, const float *weights, int count, float more, float *out)
{
    float sums[LANES] = {0};
    for (int i = 0; i < count; i++)
        for (int l = 0; l < LANES; l++)
            sums[l] += rows[i * LANES + l] * weights[i];
    for (int l = 0; l < LANES; l++)
        out[l] = sums[l] + more;
}

/* Sums in eight columns and then across. */
static float dot(const float *x, const float *w, int64_t n)
{
    float sums[LANES] = {0};
    for (int64_t i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sums[k] += x[i + k] * w[i + k];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* From the end, so that the one before is still what it was. */
static void emphasize(float *x, size_t n, float share)
{
    enum { STEP = 64 };
    float before[STEP];
    size_t left = n ? n - 1 : 0;
    for (; left >= STEP; left -= STEP) {
        float *at = x + left - STEP; /* at[1..STEP] change, by at[0..STEP - 1] */
        for (int i = 0; i < STEP; i++)
            before[i] = at[i];
        for (int i = 0; i < STEP; i++)
            at[i + 1] -= share * before[i];
    }
    for (; left > 0; left--)
        x[left] -= share * x[left - 1];
}

void PSTI_AUDIO_INIT(psti_kernels *kernels)
{
    kernels->audio =
        (psti_audio_kernels){.power = power, .weigh = weigh, .dot = dot, .emphasize = emphasize};
}
