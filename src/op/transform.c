/* SPDX-License-Identifier: Apache-2.0
 * A picture seen through an affine map, with Pillow's arithmetic to the bit: the nearest pixel in
 * steps of 1/65536 (by whole rows and columns where nothing is turned, in double where steps would
 * not hold the numbers), or bilinear and bicubic in double. Part of the byte promise. Worker
 * threads; memory is the context's. */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "op/geometry.h"
#include "op/kernels/kernels.h"

#define INLINE static inline __attribute__((always_inline))

/* One picture on its way. */
typedef struct job {
    const double *m;
    const psti_field *in;
    psti_field *out;
    int64_t rows, cols;  /* of the source */
    int64_t width;       /* of the result */
    size_t size;         /* of a pixel */
    const uint8_t *fill; /* a row of it */
    int32_t *table;      /* width entries */
} job;

/* Output columns begin .. end - 1. */
typedef struct span {
    int64_t begin, end;
} span;

static uint8_t *out_row(const job *j, int64_t y)
{
    return j->out->data + (size_t)y * j->out->stride;
}

static void fill_outside(const job *j, span s, uint8_t *dst)
{
    memcpy(dst, j->fill, (size_t)s.begin * j->size);
    memcpy(dst + (size_t)s.end * j->size, j->fill + (size_t)s.end * j->size,
           (size_t)(j->width - s.end) * j->size);
}

/* ---- nearest, nothing turned ----------------------------------------------------------------- */

/* Where a coordinate falls among n pixels, or -1. */
static int64_t pixel_of(double at, int64_t n)
{
    return at >= 0.0 && at < (double)n ? (int64_t)at : -1;
}

static void scaled_nearest(const job *j)
{
    span s = {j->width, 0};
    double x = j->m[2] + j->m[0] * 0.5, y = j->m[5] + j->m[4] * 0.5;
    for (int64_t i = 0; i < j->width; i++, x += j->m[0]) {
        const int64_t from = pixel_of(x, j->cols);
        if (from < 0)
            continue;
        s.begin = i < s.begin ? i : s.begin;
        s.end = i + 1;
        j->table[i] = (int32_t)from;
    }
    if (s.begin > s.end)
        s.begin = s.end = 0;
    const bool straight = j->m[0] == 1.0 && s.end > s.begin &&
                          j->table[s.end - 1] - j->table[s.begin] == s.end - 1 - s.begin;
    for (int64_t row = 0; row < j->out->shape[0]; row++, y += j->m[4]) {
        const int64_t from = pixel_of(y, j->rows);
        const span now = from < 0 ? (span){0, 0} : s;
        uint8_t *dst = out_row(j, row);
        fill_outside(j, now, dst);
        if (now.begin == now.end)
            continue;
        const uint8_t *src = j->in->data + (size_t)from * j->in->stride;
        if (straight)
            memcpy(dst + (size_t)s.begin * j->size, src + (size_t)j->table[s.begin] * j->size,
                   (size_t)(s.end - s.begin) * j->size);
        for (int64_t i = straight ? s.end : s.begin; i < s.end; i++)
            memcpy(dst + (size_t)i * j->size, src + (size_t)j->table[i] * j->size, j->size);
    }
}

/* ---- nearest, in steps of 1/65536 ------------------------------------------------------------ */

static double size_of(double v)
{
    return v < 0 ? -v : v;
}

static int64_t fixed_of(double v)
{
    const double steps = v * 65536.0 + 0.5;
    const int64_t whole = (int64_t)steps;
    return whole - (steps < (double)whole);
}

static bool fits_fixed(const double *m, double x, double y)
{
    return size_of(x * m[0] + y * m[1] + m[2]) < 32768.0 &&
           size_of(x * m[3] + y * m[4] + m[5]) < 32768.0;
}

static int64_t floor_div(int64_t a, int64_t b) /* b > 0 */
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/* Narrows s to the columns i with 0 <= start + i * step < limit. */
static void narrow(span *s, int64_t start, int64_t step, int64_t limit)
{
    int64_t first = s->begin, last = s->end - 1;
    if (step == 0) {
        if (start < 0 || start >= limit)
            last = first - 1;
    } else if (step > 0) {
        first = floor_div(-start + step - 1, step);
        last = floor_div(limit - 1 - start, step);
    } else {
        first = floor_div(start - limit + 1 - step - 1, -step);
        last = floor_div(start, -step);
    }
    s->begin = first > s->begin ? first : s->begin;
    s->end = last + 1 < s->end ? last + 1 : s->end;
    if (s->begin >= s->end)
        s->begin = s->end = 0;
}

INLINE void fixed_row(const job *j, size_t size, span s, const int64_t at[2], const int64_t step[2],
                      uint8_t *dst)
{
    int64_t x = at[0] + s.begin * step[0], y = at[1] + s.begin * step[1];
    for (int64_t i = s.begin; i < s.end; i++, x += step[0], y += step[1]) {
        const uint8_t *src =
            j->in->data + (size_t)(y >> 16) * j->in->stride + (size_t)(x >> 16) * size;
        memcpy(dst + (size_t)i * size, src, size);
    }
}

static void fixed_nearest(const job *j)
{
    const double *m = j->m;
    const int64_t step[2] = {fixed_of(m[0]), fixed_of(m[3])};
    const int64_t down[2] = {fixed_of(m[1]), fixed_of(m[4])};
    int64_t at[2] = {fixed_of(m[2] + m[0] * 0.5 + m[1] * 0.5),
                     fixed_of(m[5] + m[3] * 0.5 + m[4] * 0.5)};
    for (int64_t y = 0; y < j->out->shape[0]; y++, at[0] += down[0], at[1] += down[1]) {
        span s = {0, j->width};
        narrow(&s, at[0], step[0], j->cols << 16);
        narrow(&s, at[1], step[1], j->rows << 16);
        uint8_t *dst = out_row(j, y);
        fill_outside(j, s, dst);
        if (j->size == 3)
            fixed_row(j, 3, s, at, step, dst);
        else if (j->size == 1)
            fixed_row(j, 1, s, at, step, dst);
        else
            fixed_row(j, j->size, s, at, step, dst);
    }
}

/* ---- nearest, in double: numbers of 32768 and more ------------------------------------------- */

static void double_nearest(const job *j)
{
    const double *m = j->m;
    double left = m[2] + m[1] * 0.5 + m[0] * 0.5, top = m[5] + m[4] * 0.5 + m[3] * 0.5;
    for (int64_t row = 0; row < j->out->shape[0]; row++, left += m[1], top += m[4]) {
        uint8_t *dst = out_row(j, row);
        double x = left, y = top;
        fill_outside(j, (span){0, 0}, dst);
        for (int64_t i = 0; i < j->width; i++, x += m[0], y += m[3]) {
            const int64_t col = pixel_of(x, j->cols), from = pixel_of(y, j->rows);
            if (col >= 0 && from >= 0)
                memcpy(dst + (size_t)i * j->size, psti_pixel_at(j->in, from, col), j->size);
        }
    }
}

/* ---- filtered -------------------------------------------------------------------------------- */

/* Whether the source of output column i lies in the picture. */
static bool inside(const psti_warp_row *row, int64_t i)
{
    const double x = psti_warp_at(row->x, (double)i), y = psti_warp_at(row->y, (double)i);
    return x >= 0.0 && x < (double)row->cols && y >= 0.0 && y < (double)row->rows;
}

/* About where the line is within 0 .. n, never less than where it is; in output columns. */
static void clip_line(const double line[3], double n, double width, double *low, double *high)
{
    const double start = line[0] * 0.5 + line[1] + line[2];
    const double slack =
        1e-9 * (1 + size_of(line[0]) * width + size_of(line[1]) + size_of(line[2]));
    if (line[0] == 0.0)
        return;
    const double p = (-slack - start) / line[0], q = (n + slack - start) / line[0];
    const double first = p < q ? p : q, last = p < q ? q : p;
    *low = first > *low ? first : *low;
    *high = last < *high ? last : *high;
}

/* The columns whose source lies in the picture: an interval, since rounding never turns an order
 * round. The line gives it but for a few columns, the test itself decides. */
static span inside_span(const psti_warp_row *row, int64_t width)
{
    double low = 0, high = (double)width;
    clip_line(row->x, row->cols, (double)width, &low, &high);
    clip_line(row->y, row->rows, (double)width, &low, &high);
    if (!(low < high + 4))
        return (span){0, 0};
    span s = {low < 2 ? 0 : (int64_t)low - 2, high + 3 > (double)width ? width : (int64_t)high + 3};
    while (s.begin < s.end && !inside(row, s.begin))
        s.begin++;
    while (s.begin < s.end && !inside(row, s.end - 1))
        s.end--;
    return s.begin < s.end ? s : (span){0, 0};
}

static void filtered(const job *j, psti_warp_fn *kernel)
{
    psti_warp_row row = {.data = j->in->data,
                         .stride = j->in->stride,
                         .rows = (int)j->rows,
                         .cols = (int)j->cols,
                         .channels = (int)j->size,
                         .x = {j->m[0], 0, j->m[2]},
                         .y = {j->m[3], 0, j->m[5]}};
    for (int64_t y = 0; y < j->out->shape[0]; y++) {
        const double v = (double)y + 0.5;
        row.x[1] = j->m[1] * v;
        row.y[1] = j->m[4] * v;
        const span s = inside_span(&row, j->width);
        uint8_t *dst = out_row(j, y);
        if (s.end > s.begin)
            kernel(&row, (int)s.begin, (int)s.end, dst);
        fill_outside(j, s, dst);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static void nearest(const job *j)
{
    const double *m = j->m, w = (double)j->width, h = (double)j->out->shape[0];
    if (m[1] == 0.0 && m[3] == 0.0)
        scaled_nearest(j);
    else if (fits_fixed(m, 0, 0) && fits_fixed(m, w, h) && fits_fixed(m, 0, h) &&
             fits_fixed(m, w, 0))
        fixed_nearest(j);
    else
        double_nearest(j);
}

int psti_transform_with(const psti_kernels *kernels, const psti_matrix *matrix, psti_filter filter,
                        const psti_list *fill, psti_op_ctx *ctx, const psti_field *in,
                        psti_field *out, pst_error *err)
{
    job j = {.m = matrix->m,
             .in = in,
             .out = out,
             .rows = in->shape[0],
             .cols = in->shape[1],
             .width = out->shape[1],
             .size = psti_pixel_bytes(in)};
    if (in->kind == PST_MASK)
        filter = PSTI_NEAREST;
    if (j.size == 0 || (filter != PSTI_NEAREST && in->dtype != PST_U8))
        return psti_fail(err, PST_EFIELD, NULL, NULL,
                         "a picture has 1 to 4 channels of u8, or u16 with interpolation=nearest; "
                         "this field has not");
    if (psti_buf_need(PSTI_MEM_OP, &ctx->weights, (size_t)j.width * sizeof(int32_t)) < 0 ||
        psti_buf_need(PSTI_MEM_OP, &ctx->rows, (size_t)j.width * j.size) < 0)
        return psti_fail(err, -ENOMEM, NULL, NULL, "no memory for a row of %lld pixels",
                         (long long)j.width);
    psti_fill_row(fill, in, j.width, ctx->rows.data);
    j.fill = ctx->rows.data;
    j.table = (int32_t *)(void *)ctx->weights.data;
    if (filter == PSTI_NEAREST)
        nearest(&j);
    else
        filtered(&j, filter == PSTI_BILINEAR ? kernels->bilinear : kernels->bicubic);
    return 0;
}

int psti_transform(const psti_matrix *matrix, psti_filter filter, const psti_list *fill,
                   psti_op_ctx *ctx, const psti_field *in, psti_field *out, pst_error *err)
{
    return psti_transform_with(psti_kernels_get(), matrix, filter, fill, ctx, in, out, err);
}

size_t psti_transform_scratch(const psti_geom *out)
{
    return psti_canvas_scratch(out);
}
