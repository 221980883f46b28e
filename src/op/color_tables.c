/* SPDX-License-Identifier: Apache-2.0
 * Changes of one value at a time: a table of 256 entries for all channels or for each, made from a
 * formula or from the picture's histogram and then looked up. Brightness and contrast are such
 * tables too. Worker threads; no memory but the stack. */
#include <string.h>

#include "core/status.h"
#include "op/color.h"
#include "op/color_priv.h"
#include "op/kernels/kernels.h"

const char *const psti_like_words[] = {"pil", "tensor", NULL};

int psti_px_check_channels(const char *op, int64_t channels, pst_error *err)
{
    if (channels == 1 || channels == 3)
        return 0;
    return psti_fail(err, PST_EFIELD, op, NULL,
                     "the picture has %lld channels and this op takes 1 or 3: decode(rgb) makes "
                     "three, decode(gray) one",
                     (long long)channels);
}

int psti_px_check(const char *op, const psti_field *field, pst_error *err)
{
    if (field->dtype != PST_U8 || field->rank != 3)
        return psti_fail(err, PST_EFIELD, op, NULL,
                         "colours are changed in pictures of 8 bits; this one is of type %s",
                         psti_dtype_name(field->dtype));
    return psti_px_check_channels(op, field->shape[2], err);
}

/* ---- looking up ------------------------------------------------------------------------------ */

/* Rows and values per row; a picture without gaps is one row. */
psti_px_rows psti_px_rows_of(const psti_field *in, const psti_field *out)
{
    const size_t rows = (size_t)in->shape[0], cols = (size_t)in->shape[1];
    if (in->stride == cols * (size_t)in->shape[2] && out->stride == cols * (size_t)out->shape[2])
        return (psti_px_rows){1, rows * cols};
    return (psti_px_rows){rows, cols};
}

void psti_px_lut(const psti_field *in, psti_field *out, const uint8_t (*tables)[256], int count)
{
    const psti_color_kernels *kernels = &psti_kernels_get()->color;
    const psti_px_rows size = psti_px_rows_of(in, out);
    const size_t row = count == 1 ? size.pixels * (size_t)in->shape[2] : size.pixels;
    for (size_t y = 0; y < size.rows; y++)
        kernels->lut[count != 1](in->data + y * in->stride, row, tables,
                                 out->data + y * out->stride);
}

void psti_px_copy(const psti_field *in, psti_field *out)
{
    if (in->data == out->data)
        return;
    for (int64_t y = 0; y < in->shape[0]; y++)
        memcpy(out->data + (size_t)y * out->stride, in->data + (size_t)y * in->stride,
               (size_t)(in->shape[1] * in->shape[2]));
}

/* ---- formulas -------------------------------------------------------------------------------- */

void psti_px_invert(const psti_field *in, psti_field *out)
{
    psti_px_solarize(in, out, 0);
}

void psti_px_posterize(const psti_field *in, psti_field *out, int bits)
{
    const int mask = ~((1 << (8 - bits)) - 1);
    uint8_t table[1][256];
    for (int i = 0; i < 256; i++)
        table[0][i] = (uint8_t)(i & mask);
    psti_px_lut(in, out, table, 1);
}

void psti_px_solarize(const psti_field *in, psti_field *out, double threshold)
{
    uint8_t table[1][256];
    for (int i = 0; i < 256; i++)
        table[0][i] = (uint8_t)(i < threshold ? i : 255 - i);
    psti_px_lut(in, out, table, 1);
}

/* ---- histograms ------------------------------------------------------------------------------ */

typedef struct histogram {
    uint32_t counts[3][256];
} histogram;

static void count_row(histogram *h, const uint8_t *row, size_t pixels, size_t channels)
{
    if (channels == 1) {
        for (size_t i = 0; i < pixels; i++)
            h->counts[0][row[i]]++;
        return;
    }
    for (size_t i = 0; i < 3 * pixels; i += 3) {
        h->counts[0][row[i]]++;
        h->counts[1][row[i + 1]]++;
        h->counts[2][row[i + 2]]++;
    }
}

static void count_picture(histogram *h, const psti_field *in)
{
    memset(h, 0, sizeof *h);
    for (int64_t y = 0; y < in->shape[0]; y++)
        count_row(h, in->data + (size_t)y * in->stride, (size_t)in->shape[1], (size_t)in->shape[2]);
}

static void identity(uint8_t table[256])
{
    for (int i = 0; i < 256; i++)
        table[i] = (uint8_t)i;
}

/* Pillow: in double, scale and offset, cut off. */
static void stretch_pil(int low, int high, uint8_t table[256])
{
    const double scale = 255.0 / (high - low), offset = -low * scale;
    for (int i = 0; i < 256; i++) {
        const int value = (int)(i * scale + offset);
        table[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

static void stretch_tensor(int low, int high, uint8_t table[256])
{
    const float scale = 1.0f / (float)(high - low) * 255.0f;
    for (int i = 0; i < 256; i++) {
        const float value = (float)(i - low) * scale;
        table[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : (int)value);
    }
}

static void stretch(const uint32_t counts[256], psti_like like, uint8_t table[256])
{
    int low = 0, high = 255;
    while (low < 255 && counts[low] == 0)
        low++;
    while (high > 0 && counts[high] == 0)
        high--;
    if (high <= low)
        identity(table);
    else if (like == PSTI_LIKE_TENSOR)
        stretch_tensor(low, high, table);
    else
        stretch_pil(low, high, table);
}

void psti_px_autocontrast(const psti_field *in, psti_field *out, psti_like like)
{
    histogram h;
    uint8_t tables[3][256];
    count_picture(&h, in);
    for (int64_t c = 0; c < in->shape[2]; c++)
        stretch(h.counts[c], like, tables[c]);
    psti_px_lut(in, out, tables, (int)in->shape[2]);
}

/* A step is the 255th part of the pixels, the brightest value's left out; a value becomes the
 * number of steps below it, rounded. */
static void flatten(const uint32_t counts[256], uint8_t table[256])
{
    uint64_t total = 0;
    uint32_t last = 0;
    for (int i = 0; i < 256; i++) {
        total += counts[i];
        last = counts[i] ? counts[i] : last;
    }
    const uint64_t step = (total - last) / 255;
    if (step == 0) {
        identity(table);
        return;
    }
    uint64_t below = step / 2;
    for (int i = 0; i < 256; i++) {
        const uint64_t value = below / step;
        table[i] = (uint8_t)(value > 255 ? 255 : value);
        below += counts[i];
    }
}

void psti_px_equalize(const psti_field *in, psti_field *out)
{
    histogram h;
    uint8_t tables[3][256];
    count_picture(&h, in);
    for (int64_t c = 0; c < in->shape[2]; c++)
        flatten(h.counts[c], tables[c]);
    psti_px_lut(in, out, tables, (int)in->shape[2]);
}
