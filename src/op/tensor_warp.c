/* SPDX-License-Identifier: Apache-2.0
 * Affine maps as torchvision computes them on tensors: grid_sample with nothing past the edges,
 * rounded to the nearest value, in float32. Where torch's compiled code multiplies and adds with
 * one rounding, this does too. The grid is a product of matrices, whose order of operations is the
 * library's that torch was built with: this is that of the wheels people install; Debian's torch
 * rounds once more, which moves sources by some 1e-5 pixels. Worker threads. */
#include "op/policy.h"

/* a * b + c with one rounding, as a fused instruction gives it. The product of two floats is exact
 * in double. */
static float fused(float a, float b, float c)
{
    return (float)((double)a * (double)b + (double)c);
}

/* Round to nearest, ties to even; at is far from the ends of an int. */
static int round_even(double at)
{
    int whole = (int)at;
    whole -= at < (double)whole;
    const double rest = at - (double)whole;
    return whole + (rest > 0.5 || (rest == 0.5 && (whole & 1)));
}

/* The four pixels round a source and their shares; those outside are NULL. */
typedef struct corners {
    const uint8_t *at[4];
    float share[4];
} corners;

static const uint8_t *pixel_or_none(const psti_field *in, int x, int y)
{
    const bool inside = x >= 0 && y >= 0 && x < in->shape[1] && y < in->shape[0];
    return inside ? in->data + (size_t)y * in->stride + (size_t)(x * in->shape[2]) : NULL;
}

static void corners_nearest(const psti_field *in, float x, float y, corners *out)
{
    *out = (corners){.at = {pixel_or_none(in, round_even((double)x), round_even((double)y))},
                     .share = {1}};
}

static void corners_bilinear(const psti_field *in, float x, float y, corners *out)
{
    int left = (int)x, top = (int)y;
    left -= x < (float)left;
    top -= y < (float)top;
    const float dx = x - (float)left, dy = y - (float)top;
    *out = (corners){.at = {pixel_or_none(in, left, top), pixel_or_none(in, left + 1, top),
                            pixel_or_none(in, left, top + 1), pixel_or_none(in, left + 1, top + 1)},
                     .share = {(1 - dx) * (1 - dy), dx * (1 - dy), (1 - dx) * dy, dx * dy}};
}

static float blended(const corners *c, size_t channel)
{
    float sum = 0;
    for (int k = 0; k < 4; k++)
        if (c->at[k])
            sum = fused((float)c->at[k][channel], c->share[k], sum);
    return sum;
}

static float covered(const corners *c)
{
    float sum = 0;
    for (int k = 0; k < 4; k++)
        sum += c->at[k] ? c->share[k] : 0;
    return sum;
}

static void put_pixel(const corners *c, psti_filter filter, const psti_list *fill, size_t channels,
                      uint8_t *dst)
{
    const bool filled = fill && fill->count > 0;
    const float share = filled ? covered(c) : 1;
    for (size_t i = 0; i < channels; i++) {
        float value = blended(c, i);
        const float other = filled ? (float)fill->v[fill->count > 1 ? i : 0] : 0;
        if (filled && filter == PSTI_NEAREST)
            value = share < 0.5f ? other : value;
        else if (filled)
            value = value * share + (1.0f - share) * other;
        dst[i] = (uint8_t)round_even((double)value);
    }
}

/* One direction of a source: from -1 to 1 across the picture, as grid_sample has it, then in
 * pixels; float32 throughout. */
typedef struct line {
    float a, b, c, half;
} line;

static line line_of(const double m[3], int64_t size)
{
    const float half = (float)(0.5 * (double)size);
    return (line){(float)m[0] / half, (float)m[1] / half, (float)m[2] / half, half};
}

static float line_at(const line *l, float u, float v)
{
    const float at = fused(l->b, v, l->a * u) + l->c;
    return fused(at + 1.0f, l->half, -0.5f);
}

void psti_transform_tensor(const psti_matrix *matrix, psti_filter filter, const psti_list *fill,
                           const psti_field *in, psti_field *out)
{
    const line across = line_of(matrix->m, in->shape[1]),
               down = line_of(matrix->m + 3, in->shape[0]);
    const float cols = (float)in->shape[1], rows = (float)in->shape[0];
    corners c;
    for (int64_t row = 0; row < out->shape[0]; row++) {
        uint8_t *dst = out->data + (size_t)row * out->stride;
        const float v = (float)row - down.half + 0.5f;
        for (int64_t col = 0; col < out->shape[1]; col++, dst += in->shape[2]) {
            const float u = (float)col - across.half + 0.5f;
            const float x = line_at(&across, u, v), y = line_at(&down, u, v);
            c = (corners){0};
            if (x > -1 && x < cols && y > -1 && y < rows) {
                if (filter == PSTI_NEAREST)
                    corners_nearest(in, x, y, &c);
                else
                    corners_bilinear(in, x, y, &c);
            }
            put_pixel(&c, filter, fill, (size_t)in->shape[2], dst);
        }
    }
}
