/* SPDX-License-Identifier: Apache-2.0
 * One row of an affine map in plain C: bilinear and bicubic, in double as Pillow computes them.
 * The specification of the other levels. */
#include "op/kernels/kernels.h"

#define INLINE static inline __attribute__((always_inline))

static int clamp(int at, int n)
{
    return at < 0 ? 0 : at < n ? at : n - 1;
}

/* Pixel and the rest behind it; at >= -0.5 and far from the ends of an int. */
INLINE int split(double at, double *rest)
{
    int whole = (int)at;
    whole -= at < (double)whole;
    *rest = at - (double)whole;
    return whole;
}

INLINE double mix(double a, double b, double share)
{
    return a + (b - a) * share;
}

INLINE void bilinear_pixel(const psti_warp_row *row, int channels, int i, uint8_t *dst)
{
    double dx, dy;
    const int x = split(psti_warp_at(row->x, (double)i) - 0.5, &dx);
    const int y = split(psti_warp_at(row->y, (double)i) - 0.5, &dy);
    const uint8_t *upper = row->data + (size_t)clamp(y, row->rows) * row->stride;
    const uint8_t *lower = row->data + (size_t)clamp(y + 1, row->rows) * row->stride;
    const size_t left = (size_t)(clamp(x, row->cols) * channels);
    const size_t right = (size_t)(clamp(x + 1, row->cols) * channels);
    for (int c = 0; c < channels; c++) {
        const double above = mix(upper[left + (size_t)c], upper[right + (size_t)c], dx);
        const double below = mix(lower[left + (size_t)c], lower[right + (size_t)c], dx);
        dst[c] = (uint8_t)mix(above, below, dy);
    }
}

void psti_c_bilinear(const psti_warp_row *row, int begin, int end, uint8_t *dst)
{
    dst += (size_t)begin * (size_t)row->channels;
    for (int i = begin; i < end; i++, dst += row->channels) {
        if (row->channels == 3)
            bilinear_pixel(row, 3, i, dst);
        else if (row->channels == 1)
            bilinear_pixel(row, 1, i, dst);
        else
            bilinear_pixel(row, row->channels, i, dst);
    }
}

INLINE double curve(double a, double b, double c, double d, double at)
{
    const double p2 = -a + c, p3 = 2 * (a - b) + c - d, p4 = -a + b - c + d;
    return b + at * (p2 + at * (p3 + at * p4));
}

static void bicubic_pixel(const psti_warp_row *row, int i, uint8_t *dst)
{
    double dx, dy, v[4];
    const int x = split(psti_warp_at(row->x, (double)i) - 0.5, &dx);
    const int y = split(psti_warp_at(row->y, (double)i) - 0.5, &dy);
    size_t at[4];
    const uint8_t *rows[4];
    for (int k = 0; k < 4; k++) {
        at[k] = (size_t)(clamp(x - 1 + k, row->cols) * row->channels);
        rows[k] = row->data + (size_t)clamp(y - 1 + k, row->rows) * row->stride;
    }
    for (size_t c = 0; c < (size_t)row->channels; c++) {
        for (int k = 0; k < 4; k++)
            v[k] = curve(rows[k][at[0] + c], rows[k][at[1] + c], rows[k][at[2] + c],
                         rows[k][at[3] + c], dx);
        const double value = curve(v[0], v[1], v[2], v[3], dy);
        dst[c] = value <= 0.0 ? 0 : value >= 255.0 ? 255 : (uint8_t)value;
    }
}

void psti_c_bicubic(const psti_warp_row *row, int begin, int end, uint8_t *dst)
{
    for (int i = begin; i < end; i++)
        bicubic_pixel(row, i, dst + (size_t)i * (size_t)row->channels);
}
