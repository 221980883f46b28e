/* SPDX-License-Identifier: Apache-2.0
 * Ops on volumes and recordings that are simple enough to be checked by hand. They stand in the
 * tables of the families in place of the library's own. */
#include <string.h>

#include "core/field.h"
#include "core/status.h"
#include "op/op.h"

typedef struct toy_params {
    int64_t n;
} toy_params;

static const psti_param table[] = {{.name = "n",
                                    .type = PSTI_P_INT,
                                    .offset = offsetof(toy_params, n),
                                    .min = 1,
                                    .max = 1000,
                                    .def = "1",
                                    .help = "a number"},
                                   {.name = NULL}};

static void infer_same(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)p;
    *out = *in;
}

/* As the ops on pictures do it: says nothing of depth, type or axes. */
static int decide_plain(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                        psti_geom *out, pst_error *err)
{
    (void)p, (void)rng, (void)err;
    *draw = (psti_draw){.rows = in->rows, .cols = in->cols, .planes = in->depth, .act = true};
    *out = (psti_geom){in->rows, in->cols, in->channels};
    return 0;
}

/* ---- volumes --------------------------------------------------------------------------------- */

static void infer_cube(const void *p, const psti_geom *in, psti_geom *out)
{
    const toy_params *params = p;
    *out = *in;
    out->depth = out->rows = out->cols = params->n;
}

static int decide_cube(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                       psti_geom *out, pst_error *err)
{
    const toy_params *params = p;
    if (in->depth < params->n || in->rows < params->n || in->cols < params->n)
        return psti_fail(err, PST_EFIELD, "cube", NULL, "too small");
    *draw = (psti_draw){.rows = params->n, .cols = params->n, .planes = params->n, .act = true};
    draw->front = (int64_t)psti_rng_below(rng, (uint32_t)(in->depth - params->n + 1));
    draw->top = (int64_t)psti_rng_below(rng, (uint32_t)(in->rows - params->n + 1));
    draw->left = (int64_t)psti_rng_below(rng, (uint32_t)(in->cols - params->n + 1));
    infer_cube(p, in, out);
    return 0;
}

static int run_cube(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)p, (void)ctx, (void)err;
    out->data += (draw->front - in->z0) * in->step[1] + (draw->top - in->y0) * in->step[2] +
                 (draw->left - in->x0) * in->step[3];
    out->shape[1] = out->whole_depth = draw->planes;
    out->shape[2] = out->whole_rows = draw->rows;
    out->shape[3] = out->whole_cols = draw->cols;
    out->x0 = out->y0 = out->z0 = 0;
    out->bytes = (size_t)(out->shape[0] * draw->planes * draw->rows * draw->cols) *
                 psti_dtype_bytes(out->dtype);
    return 0;
}

static const psti_op cube = {
    .name = "cube",
    .summary = "a random cube",
    .params = table,
    .params_bytes = sizeof(toy_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_CROPS | PSTI_OP_GEOMETRIC | PSTI_OP_VIEWS | PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .infer = infer_cube,
    .decide = decide_cube,
    .run = run_cube,
};

/* Along columns and planes. */
static int run_turn(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)p, (void)draw, (void)ctx, (void)in, (void)err;
    for (int d = 1; d < 4; d += 2) {
        out->data += (out->shape[d] - 1) * out->step[d];
        out->step[d] = -out->step[d];
    }
    return 0;
}

static const psti_op turn = {
    .name = "turn",
    .summary = "mirrored along planes and columns",
    .params = table,
    .params_bytes = sizeof(toy_params),
    .flags = PSTI_OP_GEOMETRIC | PSTI_OP_VIEWS,
    .on = PSTI_ON_VOLUMES,
    .infer = infer_same,
    .decide = decide_plain,
    .run = run_turn,
};

static int run_add(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                   psti_field *out, pst_error *err)
{
    (void)draw, (void)ctx, (void)err;
    const toy_params *params = p;
    if (out->data != in->data)
        psti_field_copy(in, out);
    for (size_t i = 0; i < out->bytes / 4; i++)
        ((float *)(void *)out->data)[i] += (float)params->n;
    return 0;
}

static const psti_op add = {
    .name = "add",
    .summary = "so much more, of floats",
    .params = table,
    .params_bytes = sizeof(toy_params),
    .flags = PSTI_OP_INPLACE,
    .on = PSTI_ON_VOLUMES | PSTI_ON_FRAMES,
    .infer = infer_same,
    .decide = decide_plain,
    .run = run_add,
};

static void infer_floats(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)p;
    *out = *in;
    out->dtype = PST_F32;
}

static int decide_floats(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                         psti_geom *out, pst_error *err)
{
    decide_plain(p, rng, in, draw, out, err);
    infer_floats(p, in, out);
    return 0;
}

static int run_floats(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                      psti_field *out, pst_error *err)
{
    (void)p, (void)draw, (void)ctx, (void)err;
    float *to = (float *)(void *)out->data;
    for (int64_t c = 0; c < in->shape[0]; c++)
        for (int64_t z = 0; z < in->shape[1]; z++)
            for (int64_t y = 0; y < in->shape[2]; y++)
                for (int64_t x = 0; x < in->shape[3]; x++) {
                    int16_t value;
                    memcpy(&value,
                           in->data + c * in->step[0] + z * in->step[1] + y * in->step[2] +
                               x * in->step[3],
                           sizeof value);
                    *to++ = value;
                }
    return 0;
}

static const psti_op floats = {
    .name = "floats",
    .summary = "i16 as f32",
    .params = table,
    .params_bytes = sizeof(toy_params),
    .flags = PSTI_OP_INPLACE | PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .infer = infer_floats,
    .decide = decide_floats,
    .run = run_floats,
};

static int run_copy(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)p, (void)draw, (void)ctx, (void)err;
    psti_field_copy(in, out);
    return 0;
}

static const psti_op copy = {
    .name = "copy",
    .summary = "as it came, in memory of its own",
    .params = table,
    .params_bytes = sizeof(toy_params),
    .flags = PSTI_OP_GEOMETRIC,
    .on = PSTI_ON_VOLUMES,
    .infer = infer_same,
    .decide = decide_plain,
    .run = run_copy,
};

const psti_op *const psti_volume_ops[] = {&cube, &turn, &add, &floats, &copy, NULL};

/* ---- recordings ------------------------------------------------------------------------------ */

/* Without the zeros at its end: how many there are only run sees. */
static int run_rest(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)p, (void)draw, (void)ctx, (void)err;
    int64_t n = in->shape[0];
    const int16_t *from = (const int16_t *)(const void *)in->data;
    while (n > 1 && from[n - 1] == 0)
        n--;
    memcpy(out->data, from, (size_t)n * sizeof *from);
    out->shape[0] = out->whole_rows = n;
    out->bytes = (size_t)n * sizeof *from;
    return 0;
}

static void infer_rest(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)p;
    *out = *in;
    out->rows = -1;
}

static const psti_op rest = {
    .name = "rest",
    .summary = "without zeros at the end",
    .params = table,
    .params_bytes = sizeof(toy_params),
    .flags = PSTI_OP_OPEN,
    .on = PSTI_ON_WAVES,
    .infer = infer_rest,
    .decide = decide_plain,
    .run = run_rest,
};

static void infer_rows(const void *p, const psti_geom *in, psti_geom *out)
{
    const toy_params *params = p;
    *out = (psti_geom){.rows = in->rows < 0 ? -1 : in->rows / params->n,
                       .cols = params->n,
                       .channels = 1,
                       .dtype = PST_F32,
                       .axes = PSTI_AXES_FRAMES};
}

static int decide_rows(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                       psti_geom *out, pst_error *err)
{
    decide_plain(p, rng, in, draw, out, err);
    infer_rows(p, in, out);
    return 0;
}

static int run_rows(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)p, (void)draw, (void)ctx, (void)err;
    for (int64_t i = 0; i < out->shape[0] * out->shape[1]; i++)
        ((float *)(void *)out->data)[i] = ((const int16_t *)(const void *)in->data)[i];
    return 0;
}

static const psti_op rows = {
    .name = "rows",
    .summary = "rows of so many samples",
    .params = table,
    .params_bytes = sizeof(toy_params),
    .flags = PSTI_OP_RETYPES,
    .on = PSTI_ON_WAVES,
    .becomes = 1 + PSTI_AXES_FRAMES,
    .infer = infer_rows,
    .decide = decide_rows,
    .run = run_rows,
};

const psti_op *const psti_audio_ops[] = {&rest, &rows, NULL};
