/* SPDX-License-Identifier: Apache-2.0
 * gaussian_blur: across and down with the same bell curve, its width drawn at random. Rows made
 * across wait as floats in a ring until the pass down has used them, so the picture may be changed
 * in place. Beyond the edge the picture is continued by its mirror image. */
#include <errno.h>

#include "core/math.h"
#include "core/status.h"
#include "op/kernels/kernels.h"
#include "op/op_priv.h"

enum { HALF_MAX = 255 };

typedef struct gaussian_blur_params {
    psti_list kernel, sigma;
    double p;
} gaussian_blur_params;

static const psti_param table[] = {
    {.name = "kernel",
     .type = PSTI_P_LIST,
     .offset = offsetof(gaussian_blur_params, kernel),
     .min = 1,
     .max = 2 * HALF_MAX + 1,
     .min_count = 1,
     .max_count = 2,
     .whole = true,
     .help = "pixels that are taken together, odd: one number, or across, down"},
    {.name = "sigma",
     .type = PSTI_P_LIST,
     .offset = offsetof(gaussian_blur_params, sigma),
     .min = 0.001,
     .max = 1000,
     .min_count = 1,
     .max_count = 2,
     .def = "(0.1, 2)",
     .help = "width of the bell in pixels: one number, or least and largest"},
    {.name = "p",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(gaussian_blur_params, p),
     .min = 0,
     .max = 1,
     .def = "1",
     .help = "probability"},
    {.name = NULL},
};

static int half_across(const gaussian_blur_params *params)
{
    return (int)params->kernel.v[0] / 2;
}

static int half_down(const gaussian_blur_params *params)
{
    return (int)params->kernel.v[params->kernel.count > 1] / 2;
}

static int check(const void *p, pst_error *err)
{
    const gaussian_blur_params *params = p;
    for (int i = 0; i < params->kernel.count; i++)
        if ((int)params->kernel.v[i] % 2 == 0)
            return psti_fail(err, PST_EPIPELINE, "gaussian_blur", NULL,
                             "kernel is odd, so that a pixel stands in its middle; %d is even",
                             (int)params->kernel.v[i]);
    if (params->sigma.count == 2 && params->sigma.v[0] > params->sigma.v[1])
        return psti_fail(err, PST_EPIPELINE, "gaussian_blur", NULL,
                         "sigma: the least is above the largest");
    return 0;
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    const gaussian_blur_params *params = p;
    psti_draw_whole(draw, in);
    *out = *in;
    draw->act = psti_rng_unit(rng) < params->p;
    draw->v[0] = psti_rng_range(rng, params->sigma.v[0], params->sigma.v[params->sigma.count - 1]);
    if (in->cols > half_across(params) && in->rows > half_down(params))
        return 0;
    return psti_fail(err, PST_EFIELD, "gaussian_blur", NULL,
                     "a picture of %lld rows and %lld columns cannot be mirrored at its edges as "
                     "far as this kernel reaches, %d rows and %d columns: use a smaller kernel",
                     (long long)in->rows, (long long)in->cols, half_down(params),
                     half_across(params));
}

/* ---- running --------------------------------------------------------------------------------- */

/* weights[t] of the pixel t away, in all of one. */
static void bell(double sigma, int half, float weights[HALF_MAX + 1])
{
    double curve[HALF_MAX + 1], sum = 0;
    for (int t = 0; t <= half; t++) {
        const double x = (double)t / sigma;
        curve[t] = psti_exp(-0.5 * x * x);
        sum += t ? 2 * curve[t] : curve[t];
    }
    for (int t = 0; t <= half; t++)
        weights[t] = (float)(curve[t] / sum);
}

/* How the context's memory is used: the ring of rows made across, and one row of input with its
 * mirrored ends. */
typedef struct layout {
    size_t row, margin; /* values */
    size_t floats;      /* in all */
} layout;

static layout layout_of(const gaussian_blur_params *params, size_t cols, size_t channels)
{
    layout l = {.row = cols * channels, .margin = (size_t)half_across(params) * channels};
    l.floats = l.row * (2 * (size_t)half_down(params) + 1) + l.row + 2 * l.margin;
    return l;
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)draw, (void)out;
    const size_t bytes =
        layout_of(p, (size_t)in->cols, (size_t)in->channels).floats * sizeof(float) + 64;
    return bytes + bytes / 8 + 64;
}

/* A row as floats, with the pixels beyond its ends; the end pixel itself is not repeated. */
static void mirror_row(const uint8_t *row, size_t cols, size_t channels, size_t half, float *out)
{
    const size_t last = cols - 1;
    float *at = out + half * channels;
    for (size_t i = 0; i < cols * channels; i++)
        at[i] = (float)row[i];
    for (size_t t = 1; t <= half; t++)
        for (size_t c = 0; c < channels; c++) {
            out[(half - t) * channels + c] = (float)row[t * channels + c];
            at[(last + t) * channels + c] = (float)row[(last - t) * channels + c];
        }
}

/* Row i, which may lie beyond the edges by less than the picture is high. */
static int64_t mirrored(int64_t i, int64_t rows)
{
    return i < 0 ? -i : i >= rows ? 2 * (rows - 1) - i : i;
}

typedef struct blur {
    const psti_color_kernels *kernels;
    layout layout;
    float across[HALF_MAX + 1], down[HALF_MAX + 1];
    int half[2]; /* across, down */
    float *ring, *line;
} blur;

static float *ring_row(const blur *b, int64_t y)
{
    return b->ring + (size_t)(y % (2 * b->half[1] + 1)) * b->layout.row;
}

static void make_row(const blur *b, const psti_field *in, int64_t y)
{
    const size_t channels = (size_t)in->shape[2];
    mirror_row(in->data + (size_t)y * in->stride, (size_t)in->shape[1], channels,
               (size_t)b->half[0], b->line);
    b->kernels->blur_across(b->line + b->layout.margin, b->layout.row, channels, b->across,
                            b->half[0], ring_row(b, y));
}

static void blur_rows(const blur *b, const psti_field *in, psti_field *out)
{
    const float *rows[2 * HALF_MAX + 1];
    const int64_t count = in->shape[0];
    int64_t made = 0;
    for (int64_t y = 0; y < count; y++) {
        while (made < count && made <= y + b->half[1])
            make_row(b, in, made++);
        for (int t = -b->half[1]; t <= b->half[1]; t++)
            rows[t + b->half[1]] = ring_row(b, mirrored(y + t, count));
        b->kernels->blur_down(rows, b->layout.row, b->down, b->half[1],
                              out->data + (size_t)y * out->stride);
    }
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    const gaussian_blur_params *params = p;
    if (in->dtype != PST_U8 || psti_pixel_bytes(in) == 0)
        return psti_fail(err, PST_EFIELD, "gaussian_blur", NULL,
                         "a picture has 1 to 4 channels of u8; this field has not");
    blur b = {.kernels = &psti_kernels_get()->color,
              .layout = layout_of(params, (size_t)in->shape[1], (size_t)in->shape[2]),
              .half = {half_across(params), half_down(params)}};
    if (psti_buf_need(PSTI_MEM_OP, &ctx->rows, b.layout.floats * sizeof(float)) < 0)
        return psti_fail(err, -ENOMEM, "gaussian_blur", NULL, "out of memory for rows of %zu bytes",
                         b.layout.floats * sizeof(float));
    bell(draw->v[0], b.half[0], b.across);
    bell(draw->v[0], b.half[1], b.down);
    b.ring = (float *)(void *)ctx->rows.data;
    b.line = b.ring + b.layout.row * (2 * (size_t)b.half[1] + 1);
    blur_rows(&b, in, out);
    return 0;
}

const psti_op psti_op_gaussian_blur = {
    .name = "gaussian_blur",
    .summary = "blurred by a bell curve of random width",
    .params = table,
    .params_bytes = sizeof(gaussian_blur_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_INPLACE,
    .check = check,
    .infer = psti_infer_same,
    .decide = decide,
    .scratch = scratch,
    .run = run,
};
