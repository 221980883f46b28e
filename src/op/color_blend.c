/* SPDX-License-Identifier: Apache-2.0
 * Blends of a picture with a darker, greyer or smoother one, hue, and grey itself. What depends on
 * one value alone goes through a table; the rest is in kernels. Worker threads. */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "op/color.h"
#include "op/color_priv.h"
#include "op/kernels/kernels.h"

static uint8_t clip(float x)
{
    return (uint8_t)(x <= 0.0f ? 0 : x >= 255.0f ? 255 : (int)x);
}

/* The picture blended with one value everywhere: Pillow steps from that value, tensors add two
 * shares. */
static void blend_value(const psti_field *in, psti_field *out, float value, double by,
                        psti_like like)
{
    const float factor = (float)by, rest = (float)(1.0 - by);
    uint8_t table[1][256];
    for (int i = 0; i < 256; i++) {
        const float x = (float)i;
        table[0][i] = clip(like == PSTI_LIKE_TENSOR ? factor * x + rest * value
                                                    : value + factor * (x - value));
    }
    psti_px_lut(in, out, table, 1);
}

void psti_px_brightness(const psti_field *in, psti_field *out, double factor, psti_like like)
{
    blend_value(in, out, 0.0f, factor, like);
}

static uint64_t sum_of(const psti_field *in, psti_like like)
{
    const psti_color_kernels *kernels = &psti_kernels_get()->color;
    const psti_px_rows size = psti_px_rows_of(in, in);
    uint64_t sum = 0;
    for (size_t y = 0; y < size.rows; y++) {
        const uint8_t *row = in->data + y * in->stride;
        if (in->shape[2] == 3)
            sum += kernels->gray_sum[like](row, size.pixels);
        for (size_t i = 0; in->shape[2] == 1 && i < size.pixels; i++)
            sum += row[i];
    }
    return sum;
}

void psti_px_contrast(const psti_field *in, psti_field *out, double factor, psti_like like)
{
    const double mean = (double)sum_of(in, like) / (double)(in->shape[0] * in->shape[1]);
    blend_value(in, out, like == PSTI_LIKE_TENSOR ? (float)mean : (float)(int)(mean + 0.5), factor,
                like);
}

/* A kernel that takes and makes three channels; pictures of one stay. */
static void each_row(const psti_field *in, psti_field *out, psti_color_fn *kernel, double by)
{
    if (in->shape[2] != 3) {
        psti_px_copy(in, out);
        return;
    }
    const psti_px_rows size = psti_px_rows_of(in, out);
    for (size_t y = 0; y < size.rows; y++)
        kernel(in->data + y * in->stride, size.pixels, by, out->data + y * out->stride);
}

void psti_px_saturation(const psti_field *in, psti_field *out, double factor, psti_like like)
{
    each_row(in, out, psti_kernels_get()->color.saturate[like], factor);
}

void psti_px_hue(const psti_field *in, psti_field *out, double factor, psti_like like)
{
    each_row(in, out, psti_kernels_get()->color.hue[like], factor);
}

/* ---- grey ------------------------------------------------------------------------------------ */

/* One channel becomes three equal ones. */
static void spread(const psti_field *in, psti_field *out)
{
    for (int64_t y = 0; y < in->shape[0]; y++) {
        const uint8_t *from = in->data + (size_t)y * in->stride;
        uint8_t *to = out->data + (size_t)y * out->stride;
        for (int64_t x = 0; x < in->shape[1]; x++)
            to[3 * x] = to[3 * x + 1] = to[3 * x + 2] = from[x];
    }
}

void psti_px_grayscale(const psti_field *in, psti_field *out, psti_like like)
{
    if (in->shape[2] == 1 && out->shape[2] == 1) {
        psti_px_copy(in, out);
        return;
    }
    if (in->shape[2] == 1) {
        spread(in, out);
        return;
    }
    const psti_color_kernels *kernels = &psti_kernels_get()->color;
    const psti_px_rows size = psti_px_rows_of(in, out);
    for (size_t y = 0; y < size.rows; y++)
        kernels->gray[like](in->data + y * in->stride, size.pixels, (int)out->shape[2],
                            out->data + y * out->stride);
}

/* ---- sharpness ------------------------------------------------------------------------------- */

size_t psti_px_sharpness_scratch(const psti_geom *in)
{
    const size_t bytes = 2 * (size_t)(in->cols * in->channels) + 64;
    return bytes + bytes / 8 + 64;
}

/* The first and last row, which nothing smooths, blended with themselves: only tensors' arithmetic
 * may change them. */
static void blend_border(const psti_field *in, psti_field *out, double by, psti_like like)
{
    const float factor = (float)by, rest = (float)(1.0 - by);
    const size_t bytes = (size_t)(in->shape[1] * in->shape[2]), last = (size_t)in->shape[0] - 1;
    uint8_t table[1][256];
    for (int i = 0; i < 256; i++)
        table[0][i] =
            like == PSTI_LIKE_TENSOR ? clip(factor * (float)i + rest * (float)i) : (uint8_t)i;
    const psti_color_kernels *kernels = &psti_kernels_get()->color;
    kernels->lut[0](in->data, bytes, table, out->data);
    kernels->lut[0](in->data + last * in->stride, bytes, table, out->data + last * out->stride);
}

/* The rows in the middle. Where the picture is changed in place, a row and the one above it are
 * kept as they were; the first and last row are still untouched. */
static void sharpen_rows(const psti_field *in, psti_field *out, double factor, psti_like like,
                         uint8_t *kept)
{
    const psti_color_kernels *kernels = &psti_kernels_get()->color;
    const size_t bytes = (size_t)(in->shape[1] * in->shape[2]);
    const uint8_t *above = in->data;
    if (in->data == out->data)
        above = memcpy(kept, in->data, bytes);
    for (size_t y = 1; y + 1 < (size_t)in->shape[0]; y++) {
        const uint8_t *row = in->data + y * in->stride;
        if (in->data == out->data)
            row = memcpy(kept + (y & 1) * bytes, row, bytes);
        const uint8_t *const rows[3] = {above, row, in->data + (y + 1) * in->stride};
        kernels->sharpen[like](rows, (size_t)in->shape[1], (size_t)in->shape[2], factor,
                               out->data + y * out->stride);
        above = row;
    }
}

int psti_px_sharpness(const psti_field *in, psti_field *out, double factor, psti_like like,
                      psti_op_ctx *ctx, pst_error *err)
{
    const size_t bytes = (size_t)(in->shape[1] * in->shape[2]);
    if (in->shape[0] <= 2 || in->shape[1] <= 2) {
        psti_px_copy(in, out);
        return 0;
    }
    if (psti_buf_need(PSTI_MEM_OP, &ctx->rows, 2 * bytes) < 0)
        return psti_fail(err, -ENOMEM, "sharpness", NULL, "out of memory for two rows of %zu bytes",
                         bytes);
    sharpen_rows(in, out, factor, like, ctx->rows.data);
    blend_border(in, out, factor, like);
    return 0;
}
