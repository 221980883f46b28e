/* SPDX-License-Identifier: Apache-2.0
 * Changing a picture's size. Smooth filters follow the two-pass 8-bit scheme of Pillow to the bit:
 * weights in double, rounded to 22 bits; across first, clipped to bytes, then down. Rows made
 * across live in a ring just long enough for the pass down, so they are still in the first cache
 * when they are read. Called by resize and random_resized_crop on worker threads; all memory is the
 * worker's context. */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "op/kernels/kernels.h"
#include "op/op_priv.h"

const char *const psti_filter_words[] = {"nearest", "bilinear", "bicubic", NULL};

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t round64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Takes bytes off the front, aligned to 64. */
static void *carve(uint8_t **at, size_t bytes)
{
    uint8_t *const start = (uint8_t *)round64((size_t)*at);
    *at = start + bytes;
    return start;
}

static int need(psti_buf *buf, size_t bytes, pst_error *err)
{
    if (psti_buf_need(PSTI_MEM_OP, buf, bytes) < 0)
        return psti_fail(err, -ENOMEM, "resize", NULL, "no memory for %zu bytes of tables and rows",
                         bytes);
    return 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Half the filter's width at scale 1. */
static double filter_support(psti_filter filter)
{
    return filter == PSTI_BICUBIC ? 2.0 : 1.0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static double filter_at(psti_filter filter, double x)
{
    x = x < 0.0 ? -x : x;
    if (filter == PSTI_BICUBIC)
        return bicubic(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Weights an output can have at most, in steps of 8. */
static int axis_stride(psti_filter filter, int64_t in, int64_t out)
{
    const double scale = (double)in / (double)out;
    const double support = filter_support(filter) * (scale < 1.0 ? 1.0 : scale);
    const int64_t reach = (int64_t)support + 1;
    return (int)((2 * reach + 1 + 7) & ~(int64_t)7);
}

static size_t axis_bytes(int64_t out, int stride)
{
    return 2 * round64((size_t)out * 4) + round64((size_t)out * (size_t)stride * 4);
}

static int32_t fixed(double weight)
{
    const double scaled = weight * (1 << PSTI_WEIGHT_BITS);
    return (int32_t)(weight < 0.0 ? scaled - 0.5 : scaled + 0.5);
}

/* The weights of output i, which all lie around centre. work holds stride doubles. */
static inline void axis_output(psti_axis *axis, psti_filter filter, int i, double centre,
                               double shrink, double *work)
{
    int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
    const int first = axis->first[i], count = axis->count[i];
    double sum = 0.0;
    for (int t = 0; t < count; t++) {
        work[t] = filter_at(filter, (first + t - centre + 0.5) * shrink);
        sum += work[t];
    }
    for (int t = 0; t < count; t++)
        weights[t] = fixed(sum != 0.0 ? work[t] / sum : work[t]);
    for (int t = count; t < axis->stride; t++)
        weights[t] = 0;
}

/* The same for the triangle and at most four taps, which is the common case: no loop whose length
 * varies. */
static inline void axis_output_few(psti_axis *axis, int i, double centre, double shrink)
{
    int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
    const int first = axis->first[i], count = axis->count[i];
    double work[4], sum = 0.0;
    for (int t = 0; t < 4; t++) {
        const double weight = filter_at(PSTI_BILINEAR, (first + t - centre + 0.5) * shrink);
        work[t] = t < count ? weight : 0.0;
        sum += work[t];
    }
    for (int t = 0; t < 4; t++)
        weights[t] = fixed(work[t] / sum);
    for (int t = 4; t < 8; t++)
        weights[t] = 0;
}

/* The arrays are in place; fills them. */
static inline __attribute__((always_inline)) void axis_fill_with(psti_axis *axis,
                                                                 psti_filter filter, double *work)
{
    const double scale = (double)axis->in / axis->out;
    const double stretch = scale < 1.0 ? 1.0 : scale;
    const double support = filter_support(filter) * stretch, shrink = 1.0 / stretch;
    axis->taps = 0;
    for (int i = 0; i < axis->out; i++) {
        const double centre = (i + 0.5) * scale;
        const int low = (int)(centre - support + 0.5), high = (int)(centre + support + 0.5);
        axis->first[i] = low < 0 ? 0 : low;
        axis->count[i] = (high > axis->in ? axis->in : high) - axis->first[i];
        axis->taps = axis->count[i] > axis->taps ? axis->count[i] : axis->taps;
        if (filter == PSTI_BILINEAR && axis->stride == 8 && axis->count[i] <= 4)
            axis_output_few(axis, i, centre, shrink);
        else
            axis_output(axis, filter, i, centre, shrink, work);
    }
}

/* The filter is known inside the loops: this runs anew for every picture. */
static void axis_fill(psti_axis *axis, psti_filter filter, double *work)
{
    if (filter == PSTI_BILINEAR)
        axis_fill_with(axis, PSTI_BILINEAR, work);
    else
        axis_fill_with(axis, filter, work);
}

/* ---- smooth ---------------------------------------------------------------------------------- */

/* One resize in hand. */
typedef struct smooth {
    const psti_kernels *kernels;
    psti_axis cols, rows;
    psti_across across;
    const uint8_t **taps; /* rows.stride row pointers */
    uint8_t
        *ring; /* ring_rows rows of ring_stride bytes; row r of the source is at r % ring_rows */
    size_t ring_stride;
    int ring_rows;
    const uint8_t *src;
    size_t src_stride;
} smooth;

/* Bytes in the context's two buffers for a resize; a direction that keeps its size takes none. */
static void smooth_sizes(const psti_kernels *kernels, psti_filter filter, const psti_draw *window,
                         const psti_geom *out, size_t *tables, size_t *ring)
{
    *tables = *ring = 0;
    const int across = axis_stride(filter, window->cols, out->cols);
    const int down = axis_stride(filter, window->rows, out->rows);
    const int channels = (int)out->channels;
    if (window->cols != out->cols)
        *tables += axis_bytes(out->cols, across) +
                   round64(kernels->across_bytes((int)out->cols, across, channels));
    if (window->rows != out->rows)
        *tables += axis_bytes(out->rows, down) + round64((size_t)down * sizeof(uint8_t *));
    if (window->cols != out->cols && window->rows != out->rows)
        *ring =
            (size_t)(down + PSTI_ROWS_AT_ONCE - 1) * round64((size_t)out->cols * (size_t)channels);
    *tables += round64((size_t)(across > down ? across : down) * sizeof(double)) + 64;
    *ring += 64;
}

static void axis_carve(psti_axis *axis, psti_filter filter, int64_t in, int64_t out, uint8_t **at)
{
    axis->in = (int)in;
    axis->out = (int)out;
    axis->stride = axis_stride(filter, in, out);
    axis->first = carve(at, (size_t)out * 4);
    axis->count = carve(at, (size_t)out * 4);
    axis->weights = carve(at, (size_t)out * (size_t)axis->stride * 4);
}

/* Lays out and fills the tables in the memory that smooth_sizes asked for. */
static void smooth_prepare(smooth *s, psti_filter filter, const psti_draw *window,
                           const psti_geom *out, psti_op_ctx *ctx)
{
    uint8_t *at = ctx->weights.data;
    const int across = axis_stride(filter, window->cols, out->cols);
    const int down = axis_stride(filter, window->rows, out->rows);
    double *work = carve(&at, (size_t)(across > down ? across : down) * sizeof *work);
    if (window->cols != out->cols) {
        axis_carve(&s->cols, filter, window->cols, out->cols, &at);
        axis_fill(&s->cols, filter, work);
        s->across = (psti_across){.axis = &s->cols, .channels = (int)out->channels};
        s->across.table =
            carve(&at, s->kernels->across_bytes(s->cols.out, across, s->across.channels));
        s->kernels->across_plan(&s->across);
    }
    if (window->rows != out->rows) {
        axis_carve(&s->rows, filter, window->rows, out->rows, &at);
        axis_fill(&s->rows, filter, work);
        s->taps = carve(&at, (size_t)s->rows.stride * sizeof *s->taps);
        s->ring_rows = s->rows.taps + PSTI_ROWS_AT_ONCE - 1;
        s->ring_stride = round64((size_t)out->cols * (size_t)out->channels);
        uint8_t *rows = ctx->rows.data;
        s->ring = carve(&rows, 0);
    }
}

/* Only the pass across: straight into the result. */
static void run_across(const smooth *s, psti_field *out)
{
    for (int64_t y = 0; y < out->shape[0]; y += PSTI_ROWS_AT_ONCE) {
        const uint8_t *from[PSTI_ROWS_AT_ONCE];
        uint8_t *to[PSTI_ROWS_AT_ONCE];
        int n = 0;
        for (; n < PSTI_ROWS_AT_ONCE && y + n < out->shape[0]; n++) {
            from[n] = s->src + (size_t)(y + n) * s->src_stride;
            to[n] = out->data + (size_t)(y + n) * out->stride;
        }
        s->across.run(&s->across, from, to, n);
    }
}

/* Makes the next source rows from `made` on, at most up to limit. Returns the new `made`. */
static int fill_ring(const smooth *s, int made, int limit)
{
    const uint8_t *from[PSTI_ROWS_AT_ONCE];
    uint8_t *to[PSTI_ROWS_AT_ONCE];
    int n = 0;
    for (; n < PSTI_ROWS_AT_ONCE && made + n < limit; n++) {
        from[n] = s->src + (size_t)(made + n) * s->src_stride;
        to[n] = s->ring + (size_t)((made + n) % s->ring_rows) * s->ring_stride;
    }
    s->across.run(&s->across, from, to, n);
    return made + n;
}

/* The pass down, after the pass across where there is one. */
static void run_down(const smooth *s, bool across, psti_field *out)
{
    const psti_axis *axis = &s->rows;
    const size_t bytes = (size_t)out->shape[1] * (size_t)out->shape[2];
    const int limit = axis->first[axis->out - 1] + axis->count[axis->out - 1];
    int made = axis->first[0];
    for (int y = 0; y < axis->out; y++) {
        const int first = axis->first[y], count = axis->count[y];
        while (across && made < first + count)
            made = fill_ring(s, made, limit);
        int slot = across ? first % s->ring_rows : 0;
        for (int t = 0; t < count; t++) {
            s->taps[t] = across ? s->ring + (size_t)slot * s->ring_stride
                                : s->src + (size_t)(first + t) * s->src_stride;
            slot = slot + 1 == s->ring_rows ? 0 : slot + 1;
        }
        s->kernels->down(s->taps, axis->weights + (size_t)y * (size_t)axis->stride, count,
                         out->data + (size_t)y * out->stride, bytes);
    }
}

static void copy_rows(const smooth *s, psti_field *out)
{
    const size_t bytes = (size_t)out->shape[1] * (size_t)out->shape[2];
    for (int64_t y = 0; y < out->shape[0]; y++)
        memcpy(out->data + (size_t)y * out->stride, s->src + (size_t)y * s->src_stride, bytes);
}

static int resample_smooth(const psti_kernels *kernels, psti_filter filter, const psti_draw *window,
                           psti_op_ctx *ctx, const psti_field *in, psti_field *out, pst_error *err)
{
    const psti_geom size = {out->shape[0], out->shape[1], out->shape[2]};
    const bool across = window->cols != size.cols, down = window->rows != size.rows;
    size_t tables, ring;
    smooth_sizes(kernels, filter, window, &size, &tables, &ring);
    int rc = need(&ctx->weights, tables, err);
    if (rc == 0)
        rc = need(&ctx->rows, ring, err);
    if (rc < 0)
        return rc;
    smooth s = {.kernels = kernels,
                .src = psti_pixel_at(in, window->top, window->left),
                .src_stride = in->stride};
    smooth_prepare(&s, filter, window, &size, ctx);
    if (down)
        run_down(&s, across, out);
    else if (across)
        run_across(&s, out);
    else
        copy_rows(&s, out);
    return 0;
}

/* ---- nearest --------------------------------------------------------------------------------- */

/* Source of each output along one axis. Pictures: pixel centres, stepped as Pillow steps them.
 * Masks: floor(i * in / out) in float, as tensors are resized. */
static void nearest_map(bool mask, int64_t in, int64_t out, int32_t *map)
{
    const double step = (double)in / (double)out;
    const float scale = (float)in / (float)out;
    double centre = step * 0.5;
    for (int64_t i = 0; i < out; i++, centre += step) {
        const int64_t at = mask ? (int64_t)((float)i * scale) : (int64_t)centre;
        map[i] = (int32_t)(at < in ? at : in - 1);
    }
}

static void nearest_row(const uint8_t *src, const int32_t *map, int64_t cols, size_t size,
                        uint8_t *dst)
{
    if (size == 1) {
        for (int64_t x = 0; x < cols; x++)
            dst[x] = src[map[x]];
        return;
    }
    for (int64_t x = 0; x < cols; x++, dst += size) {
        const uint8_t *from = src + (size_t)map[x] * size;
        for (size_t b = 0; b < size; b++)
            dst[b] = from[b];
    }
}

static size_t nearest_bytes(const psti_geom *out)
{
    return round64((size_t)out->cols * 4) + round64((size_t)out->rows * 4) + 64;
}

static int resample_nearest(const psti_draw *window, psti_op_ctx *ctx, const psti_field *in,
                            psti_field *out, pst_error *err)
{
    const bool mask = in->kind == PST_MASK;
    const psti_geom size = {out->shape[0], out->shape[1], out->shape[2]};
    const int rc = need(&ctx->weights, nearest_bytes(&size), err);
    if (rc < 0)
        return rc;
    uint8_t *at = ctx->weights.data;
    int32_t *cols = carve(&at, (size_t)size.cols * 4), *rows = carve(&at, (size_t)size.rows * 4);
    nearest_map(mask, window->cols, size.cols, cols);
    nearest_map(mask, window->rows, size.rows, rows);
    const size_t pixel = psti_pixel_bytes(in);
    for (int64_t y = 0; y < size.rows; y++)
        nearest_row(psti_pixel_at(in, window->top + rows[y], window->left), cols, size.cols, pixel,
                    out->data + (size_t)y * out->stride);
    return 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

int psti_resample_with(const psti_kernels *kernels, psti_filter filter, const psti_draw *window,
                       psti_op_ctx *ctx, const psti_field *in, psti_field *out, pst_error *err)
{
    if (psti_pixel_bytes(in) == 0)
        return psti_fail(err, PST_EFIELD, "resize", NULL,
                         "a picture has 1 to 4 channels of u8 or u16; this field has not");
    if (in->kind == PST_MASK || filter == PSTI_NEAREST)
        return resample_nearest(window, ctx, in, out, err);
    if (in->dtype != PST_U8)
        return psti_fail(err, PST_EFIELD, "resize", NULL,
                         "pictures of %s are resized only with interpolation=nearest",
                         psti_dtype_name(in->dtype));
    return resample_smooth(kernels, filter, window, ctx, in, out, err);
}

int psti_resample(psti_filter filter, const psti_draw *window, psti_op_ctx *ctx,
                  const psti_field *in, psti_field *out, pst_error *err)
{
    return psti_resample_with(psti_kernels_get(), filter, window, ctx, in, out, err);
}

size_t psti_resample_scratch(psti_filter filter, const psti_draw *window, const psti_geom *out)
{
    const psti_kernels *kernels = psti_kernels_get();
    size_t tables, ring;
    smooth_sizes(kernels, filter, window, out, &tables, &ring);
    if (filter == PSTI_NEAREST || tables < nearest_bytes(out))
        tables = nearest_bytes(out); /* image and mask take turns in the same buffers */
    /* What psti_buf adds: 64 bytes and an eighth. */
    return (tables + ring + 128) / 8 * 9 + 16;
}
