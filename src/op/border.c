/* SPDX-License-Identifier: Apache-2.0
 * Pictures with a border laid round them and a window cut out: pad, and the crops that may reach
 * past the edge. Every output row and column knows the source it comes from, or that it is filled.
 * Worker threads; memory is the context's. */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "op/op_priv.h"

const char *const psti_border_words[] = {"constant", "edge", "reflect", "symmetric", NULL};

enum { FILLED = -1 };

/* Where position i of a line of n comes from when the line is continued past its ends. */
static int64_t border_at(psti_border border, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    if (border == PSTI_CONSTANT)
        return FILLED;
    if (border == PSTI_EDGE || n == 1)
        return i < 0 ? 0 : n - 1;
    /* There and back again: without the last pixel twice, or with it. */
    const int64_t there = border == PSTI_REFLECT ? n - 1 : n;
    const int64_t period = 2 * there;
    const int64_t at = ((i % period) + period) % period;
    if (at < n && (at < there || border == PSTI_REFLECT))
        return at;
    return border == PSTI_REFLECT ? period - at : period - 1 - at;
}

/* Source of output position i; n is the picture's size along this axis. */
static int64_t canvas_at(const psti_canvas *canvas, int64_t i, int64_t n)
{
    const int64_t inner = n + canvas->before[0] + canvas->after[0];
    const int64_t at = border_at(canvas->border, i + canvas->skip - canvas->before[1], inner);
    if (at == FILLED)
        return FILLED;
    return border_at(canvas->border, at - canvas->before[0], n);
}

static int64_t clamp(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

/* The job of one picture, columns worked out. */
typedef struct paste {
    const psti_field *in;
    size_t size;         /* of a pixel */
    int64_t begin, end;  /* output columns that are copied as one piece … */
    int64_t left;        /* … from this source column on */
    const int32_t *cols; /* source of every other output column, or FILLED; NULL: all are filled */
    const uint8_t *fill; /* a whole row of it */
} paste;

static void paste_pixels(const paste *p, const uint8_t *src, int64_t from, int64_t to, uint8_t *dst)
{
    for (int64_t x = from; x < to; x++) {
        const size_t at = (size_t)x * p->size;
        if (p->cols[x] == FILLED)
            memcpy(dst + at, p->fill + at, p->size);
        else
            memcpy(dst + at, src + (size_t)p->cols[x] * p->size, p->size);
    }
}

static void paste_row(const paste *p, int64_t row, int64_t cols, uint8_t *dst)
{
    if (row == FILLED) {
        memcpy(dst, p->fill, (size_t)cols * p->size);
        return;
    }
    if (!p->cols) {
        const size_t end = (size_t)p->end * p->size;
        memcpy(dst, p->fill, (size_t)p->begin * p->size);
        memcpy(dst + end, p->fill + end, (size_t)(cols - p->end) * p->size);
    } else if (p->begin > 0 || p->end < cols) {
        /* Then the picture is whole: column 0 is in memory. */
        const uint8_t *src = psti_pixel_at(p->in, row, 0);
        paste_pixels(p, src, 0, p->begin, dst);
        paste_pixels(p, src, p->end, cols, dst);
    }
    if (p->end > p->begin)
        memcpy(dst + (size_t)p->begin * p->size, psti_pixel_at(p->in, row, p->left),
               (size_t)(p->end - p->begin) * p->size);
}

void psti_fill_row(const psti_list *fill, const psti_field *in, int64_t cols, uint8_t *row)
{
    const int64_t channels = in->shape[2];
    const bool none = !fill || in->kind == PST_MASK;
    for (int64_t i = 0; i < cols * channels; i++) {
        const int c = fill && fill->count > 1 ? (int)(i % channels) : 0;
        const uint16_t value = none ? 0 : (uint16_t)fill->v[c];
        if (in->dtype == PST_U16)
            memcpy(row + 2 * i, &value, 2);
        else
            row[i] = (uint8_t)value;
    }
}

static void paste_columns(paste *p, const psti_canvas *canvas, int64_t n, int64_t cols,
                          int32_t *map)
{
    const int64_t start = canvas->before[0] + canvas->before[1] - canvas->skip;
    p->begin = clamp(start, cols);
    p->end = clamp(start + n, cols);
    p->left = p->begin - start;
    if (canvas->border == PSTI_CONSTANT)
        return;
    for (int64_t x = 0; x < cols; x++)
        map[x] = (int32_t)canvas_at(canvas, x, n);
    p->cols = map;
}

int psti_canvas_run(const psti_canvas *rows, const psti_canvas *cols, const psti_list *fill,
                    psti_op_ctx *ctx, const psti_field *in, psti_field *out, pst_error *err)
{
    paste p = {.in = in, .size = psti_pixel_bytes(in)};
    if (p.size == 0)
        return psti_fail(err, PST_EFIELD, NULL, NULL,
                         "a picture has 1 to 4 channels of u8 or u16; this field has not");
    const int64_t width = out->shape[1];
    if (psti_buf_need(PSTI_MEM_OP, &ctx->weights, (size_t)width * sizeof(int32_t)) < 0 ||
        psti_buf_need(PSTI_MEM_OP, &ctx->rows, (size_t)width * p.size) < 0)
        return psti_fail(err, -ENOMEM, NULL, NULL, "no memory for a row of %lld pixels",
                         (long long)width);
    /* A window ends where the rows and columns that are read end; a border implies the whole
     * picture. */
    const int64_t in_rows = in->y0 + in->shape[0], in_cols = in->x0 + in->shape[1];
    paste_columns(&p, cols, in_cols, width, (int32_t *)(void *)ctx->weights.data);
    psti_fill_row(fill, in, width, ctx->rows.data);
    p.fill = ctx->rows.data;
    for (int64_t y = 0; y < out->shape[0]; y++)
        paste_row(&p, canvas_at(rows, y, in_rows), width, out->data + (size_t)y * out->stride);
    return 0;
}

size_t psti_canvas_scratch(const psti_geom *out)
{
    /* A column's source and two bytes a channel, with what psti_buf adds. */
    const size_t bytes = (size_t)out->cols * (4 + 2 * (size_t)out->channels) + 128;
    return bytes / 8 * 9 + 16;
}

int psti_fill_check(const char *op, const psti_list *fill, const psti_geom *in, pst_error *err)
{
    if (fill->count == 1 || fill->count == in->channels)
        return 0;
    return psti_fail(err, PST_EFIELD, op, NULL, "fill has %d values for a picture of %lld channels",
                     fill->count, (long long)in->channels);
}
