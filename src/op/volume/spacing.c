/* SPDX-License-Identifier: Apache-2.0
 * spacing: resampled so that voxels lie so many millimetres apart. Images are interpolated along
 * columns, rows and planes, corners onto corners; masks take the nearest voxel. Both as
 * torch.nn.functional.interpolate does it (trilinear with align_corners, nearest), which the MLPerf
 * preparation of volumes uses; a step is a float32 and places are exact multiples of it, as there.
 *
 * A plane of the input is taken across columns and rows once, when the first plane of the result
 * needs it; the last two such planes are kept and blended. */
#include "op/volume/volume.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/status.h"

typedef struct spacing_params {
    psti_list target;
} spacing_params;

static const psti_param table[] = {
    {.name = "target",
     .type = PSTI_P_LIST,
     .offset = offsetof(spacing_params, target),
     .min = 0.001,
     .max = 1000,
     .min_count = 1,
     .max_count = 3,
     .help = "mm between planes, rows and columns; one number for all three"},
    {.name = NULL},
};

static double target_of(const spacing_params *params, int axis)
{
    return params->target.v[params->target.count == 3 ? axis : 0];
}

static int check(const void *p, pst_error *err)
{
    const spacing_params *params = p;
    if (params->target.count != 2)
        return 0;
    return psti_fail(err, PST_EPIPELINE, "spacing", NULL,
                     "target is one number, or mm between planes, rows and columns");
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    *out = *in;
    out->dtype = PST_F32;
    out->depth = out->rows = out->cols = -1;
    for (int i = 0; i < 3; i++)
        out->unit[i] = target_of(p, i);
}

/* Voxels of the result, rounded down, in this order of operations. */
static int64_t resized(double unit, double target, int64_t n)
{
    const double size = unit / target * (double)n;
    return size < (double)INT32_MAX ? (int64_t)size : INT32_MAX;
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)rng;
    if (!(in->unit[0] > 0 && in->unit[1] > 0 && in->unit[2] > 0))
        return psti_fail(err, PST_EFIELD, "spacing", NULL,
                         "how far apart voxels lie is not known: arrays (.npy, .npz) do not say, "
                         "and this volume's header does not either");
    psti_draw_whole(draw, in);
    infer(p, in, out);
    out->depth = resized(in->unit[0], target_of(p, 0), in->depth);
    out->rows = resized(in->unit[1], target_of(p, 1), in->rows);
    out->cols = resized(in->unit[2], target_of(p, 2), in->cols);
    draw->act = out->depth != in->depth || out->rows != in->rows || out->cols != in->cols;
    return psti_out_check("spacing", out, err);
}

/* ---- along one axis -------------------------------------------------------------------------- */

/* Output i is the voxel at[i] times 1 - more[i], and the one behind it times more[i]; behind the
 * last voxel is itself. */
typedef struct axis {
    int64_t in, out;
    int32_t *at;
    float *more;
} axis;

static void aim_linear(axis *a)
{
    const float scale = a->out > 1 ? (float)(a->in - 1) / (float)(a->out - 1) : 0;
    for (int64_t i = 0; i < a->out; i++) {
        /* Exact in double, as torch's fused multiplication has it. */
        const double place = (double)scale * (double)i;
        const int64_t at = (int64_t)place < a->in - 1 ? (int64_t)place : a->in - 1;
        const float more = (float)(place - (double)at);
        a->at[i] = (int32_t)at;
        a->more[i] = more > 1 ? 1 : more;
    }
}

static void aim_nearest(axis *a)
{
    const float scale = (float)a->in / (float)a->out;
    for (int64_t i = 0; i < a->out; i++) {
        const int64_t at = (int64_t)floorf((float)i * scale);
        a->at[i] = (int32_t)(at < a->in - 1 ? at : a->in - 1);
    }
}

/* ---- images ---------------------------------------------------------------------------------- */

typedef struct resampler {
    const psti_field *in;
    psti_field *out;
    axis planes, rows, cols;
    float *plane[2]; /* planes of the input, taken across columns and rows */
    int64_t held[2]; /* which ones */
    float *line[2];  /* rows of such a plane, taken across columns */
    int64_t lined[2];
    float *row; /* of the input */
} resampler;

static void blend(const float *a, const float *b, float more, int64_t n, float *dst)
{
    const float less = 1 - more;
    for (int64_t i = 0; i < n; i++)
        dst[i] = a[i] * less + b[i] * more;
}

static void take_across(const axis *cols, const float *row, float *dst)
{
    const int64_t last = cols->in - 1;
    for (int64_t x = 0; x < cols->out; x++) {
        const int64_t at = cols->at[x];
        dst[x] = row[at] * (1 - cols->more[x]) + row[at < last ? at + 1 : last] * cols->more[x];
    }
}

static int64_t behind(const axis *a, int64_t at)
{
    return at < a->in - 1 ? at + 1 : at;
}

/* A row of an input plane, taken across columns; it and the one after it are kept. */
static const float *line_of(resampler *r, int64_t c, int64_t z, int64_t y)
{
    const int slot = (int)(y & 1);
    if (r->lined[slot] != y) {
        take_across(&r->cols, psti_volume_row(r->in, c, z, y, r->row), r->line[slot]);
        r->lined[slot] = y;
    }
    return r->line[slot];
}

static const float *plane_of(resampler *r, int64_t c, int64_t z)
{
    const int slot = (int)(z & 1);
    if (r->held[slot] == z)
        return r->plane[slot];
    r->held[slot] = z;
    r->lined[0] = r->lined[1] = -1;
    for (int64_t y = 0; y < r->rows.out; y++) {
        const int64_t at = r->rows.at[y];
        const float *first = line_of(r, c, z, at);
        blend(first, line_of(r, c, z, behind(&r->rows, at)), r->rows.more[y], r->cols.out,
              r->plane[slot] + y * r->cols.out);
    }
    return r->plane[slot];
}

static void resample_image(resampler *r)
{
    const int64_t area = r->rows.out * r->cols.out;
    float *dst = (float *)(void *)r->out->data;
    for (int64_t c = 0; c < r->in->shape[0]; c++) {
        r->held[0] = r->held[1] = -1;
        for (int64_t z = 0; z < r->planes.out; z++, dst += area) {
            const int64_t at = r->planes.at[z];
            const float *first = plane_of(r, c, at);
            blend(first, plane_of(r, c, behind(&r->planes, at)), r->planes.more[z], area, dst);
        }
    }
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void resample_mask(resampler *r)
{
    const size_t element = psti_dtype_bytes(r->in->dtype);
    const size_t row = (size_t)r->cols.out * element;
    uint8_t *dst = r->out->data;
    for (int64_t c = 0; c < r->in->shape[0]; c++)
        for (int64_t z = 0; z < r->planes.out; z++)
            for (int64_t y = 0; y < r->rows.out; y++, dst += row) {
                if (y > 0 && r->rows.at[y] == r->rows.at[y - 1]) {
                    memcpy(dst, dst - row, row);
                    continue;
                }
                const uint8_t *from = psti_volume_at(r->in, c, r->planes.at[z], r->rows.at[y]);
                for (int64_t x = 0; x < r->cols.out; x++)
                    memcpy(dst + (size_t)x * element, from + r->cols.at[x] * r->in->step[3],
                           element);
            }
}

/* ---- run ------------------------------------------------------------------------------------- */

static size_t tables_bytes(int64_t planes, int64_t rows, int64_t cols)
{
    return (size_t)(planes + rows + cols) * (sizeof(int32_t) + sizeof(float));
}

static size_t floats_bytes(int64_t rows, int64_t cols, int64_t in_cols)
{
    return (size_t)(2 * rows * cols + 2 * cols + in_cols) * sizeof(float);
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)p, (void)draw;
    const size_t bytes = tables_bytes(out->depth, out->rows, out->cols) +
                         floats_bytes(out->rows, out->cols, in->cols);
    return bytes + bytes / 8 + 512;
}

static void cut(axis *a, int64_t in, int64_t out, uint8_t **memory)
{
    *a = (axis){.in = in, .out = out, .at = (void *)*memory};
    *memory += (size_t)out * sizeof *a->at;
    a->more = (void *)*memory;
    *memory += (size_t)out * sizeof *a->more;
}

static void lay_out(resampler *r, psti_op_ctx *ctx)
{
    const int64_t *in = r->in->shape, *out = r->out->shape;
    uint8_t *tables = ctx->weights.data;
    float *floats = (float *)(void *)ctx->rows.data;
    cut(&r->planes, in[1], out[1], &tables);
    cut(&r->rows, in[2], out[2], &tables);
    cut(&r->cols, in[3], out[3], &tables);
    for (int i = 0; i < 2; i++) {
        r->plane[i] = floats + i * out[2] * out[3];
        r->line[i] = floats + 2 * out[2] * out[3] + i * out[3];
    }
    r->row = floats + 2 * out[2] * out[3] + 2 * out[3];
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    (void)p, (void)draw;
    const bool mask = in->kind == PST_MASK;
    const int rc = psti_volume_check("spacing", in, err);
    if (rc < 0)
        return rc;
    const size_t tables = tables_bytes(out->shape[1], out->shape[2], out->shape[3]);
    const size_t floats = mask ? 0 : floats_bytes(out->shape[2], out->shape[3], in->shape[3]);
    if (psti_buf_need(PSTI_MEM_OP, &ctx->weights, tables) < 0 ||
        psti_buf_need(PSTI_MEM_OP, &ctx->rows, floats) < 0)
        return psti_fail(err, -ENOMEM, "spacing", NULL, "out of memory for %zu bytes",
                         tables + floats);
    resampler r = {.in = in, .out = out};
    lay_out(&r, ctx);
    axis *const axes[] = {&r.planes, &r.rows, &r.cols};
    for (int i = 0; i < 3; i++)
        (mask ? aim_nearest : aim_linear)(axes[i]);
    (mask ? resample_mask : resample_image)(&r);
    return 0;
}

const psti_op psti_op_spacing = {
    .name = "spacing",
    .summary = "voxels so many millimetres apart: images trilinear, masks nearest",
    .params = table,
    .params_bytes = sizeof(spacing_params),
    .flags = PSTI_OP_GEOMETRIC | PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .check = check,
    .infer = infer,
    .decide = decide,
    .scratch = scratch,
    .run = run,
};
