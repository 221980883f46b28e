/* SPDX-License-Identifier: Apache-2.0
 * Ops that change only what a field shows of its memory: random_flip and center_crop3. They cost
 * nothing; whoever reads the field next walks it by its steps. */
#include "op/volume/volume.h"

#include "core/status.h"

/* ---- random_flip ----------------------------------------------------------------------------- */

typedef struct flip_params {
    double p;
    psti_list axes;
} flip_params;

static const psti_param flip_table[] = {
    {.name = "p",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(flip_params, p),
     .min = 0,
     .max = 1,
     .def = "0.3333333333333333",
     .help = "probability, for each axis by itself"},
    {.name = "axes",
     .type = PSTI_P_LIST,
     .offset = offsetof(flip_params, axes),
     .min = 0,
     .max = 2,
     .min_count = 1,
     .max_count = 3,
     .whole = true,
     .def = "(0, 1, 2)",
     .help = "which may be mirrored: 0 planes, 1 rows, 2 columns"},
    {.name = NULL},
};

static int flip_check(const void *p, pst_error *err)
{
    const psti_list *axes = &((const flip_params *)p)->axes;
    for (int i = 1; i < axes->count; i++)
        for (int k = 0; k < i; k++)
            if (axes->v[i] == axes->v[k])
                return psti_fail(err, PST_EPIPELINE, "random_flip", NULL,
                                 "axis %d stands there twice", (int)axes->v[i]);
    return 0;
}

/* One draw an axis, in the order given; v[0..2] says which are mirrored. */
static int flip_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                       psti_geom *out, pst_error *err)
{
    (void)err;
    const flip_params *params = p;
    psti_draw_whole(draw, in);
    draw->act = false;
    for (int i = 0; i < params->axes.count; i++) {
        const bool turned = psti_rng_unit(rng) < params->p;
        draw->v[(int)params->axes.v[i]] = turned;
        draw->act |= turned;
    }
    *out = *in;
    return 0;
}

static int flip_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)p, (void)ctx, (void)in, (void)err;
    for (int d = 1; d < 4; d++)
        if (draw->v[d - 1] != 0) {
            out->data += (out->shape[d] - 1) * out->step[d];
            out->step[d] = -out->step[d];
        }
    return 0;
}

const psti_op psti_op_random_flip = {
    .name = "random_flip",
    .summary = "mirrored along planes, rows and columns, each with probability p",
    .params = flip_table,
    .params_bytes = sizeof(flip_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_GEOMETRIC | PSTI_OP_MOVES | PSTI_OP_VIEWS,
    .on = PSTI_ON_VOLUMES,
    .check = flip_check,
    .infer = psti_infer_same,
    .decide = flip_decide,
    .run = flip_run,
};

/* ---- center_crop3 ---------------------------------------------------------------------------- */

typedef struct crop_params {
    psti_list size;
} crop_params;

static const psti_param crop_table[] = {
    {.name = "size",
     .type = PSTI_P_LIST,
     .offset = offsetof(crop_params, size),
     .min = 1,
     .max = PSTI_SIZE_MAX,
     .min_count = 1,
     .max_count = 3,
     .whole = true,
     .help = "planes, rows and columns; one number for all three"},
    {.name = NULL},
};

static int crop_check(const void *p, pst_error *err)
{
    return psti_volume_check_size(&((const crop_params *)p)->size, "center_crop3", err);
}

static void crop_infer(const void *p, const psti_geom *in, psti_geom *out)
{
    int64_t size[3];
    psti_volume_size(&((const crop_params *)p)->size, size);
    *out = *in;
    out->depth = size[0];
    out->rows = size[1];
    out->cols = size[2];
}

int psti_volume_check_window(const char *op, const psti_geom *in, const psti_geom *out,
                             pst_error *err)
{
    if (in->depth >= out->depth && in->rows >= out->rows && in->cols >= out->cols)
        return 0;
    return psti_fail(err, PST_EFIELD, op, NULL,
                     "the volume has %lld planes, %lld rows and %lld columns, the crop %lld, %lld "
                     "and %lld: put pad_min before",
                     (long long)in->depth, (long long)in->rows, (long long)in->cols,
                     (long long)out->depth, (long long)out->rows, (long long)out->cols);
}

static int crop_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                       psti_geom *out, pst_error *err)
{
    (void)rng;
    crop_infer(p, in, out);
    const int rc = psti_volume_check_window("center_crop3", in, out, err);
    if (rc < 0)
        return rc;
    *draw = (psti_draw){.top = (in->rows - out->rows) / 2,
                        .left = (in->cols - out->cols) / 2,
                        .rows = out->rows,
                        .cols = out->cols,
                        .front = (in->depth - out->depth) / 2,
                        .planes = out->depth};
    draw->act = in->depth != out->depth || in->rows != out->rows || in->cols != out->cols;
    return 0;
}

void psti_volume_show(const psti_draw *draw, psti_field *out)
{
    out->data += (draw->front - out->z0) * out->step[1] + (draw->top - out->y0) * out->step[2] +
                 (draw->left - out->x0) * out->step[3];
    out->shape[1] = out->whole_depth = draw->planes;
    out->shape[2] = out->whole_rows = draw->rows;
    out->shape[3] = out->whole_cols = draw->cols;
    out->x0 = out->y0 = out->z0 = 0;
    out->bytes = (size_t)(out->shape[0] * draw->planes * draw->rows * draw->cols) *
                 psti_dtype_bytes(out->dtype);
}

static int crop_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)p, (void)ctx, (void)in, (void)err;
    psti_volume_show(draw, out);
    return 0;
}

const psti_op psti_op_center_crop3 = {
    .name = "center_crop3",
    .summary = "the middle of a volume",
    .params = crop_table,
    .params_bytes = sizeof(crop_params),
    .flags = PSTI_OP_CROPS | PSTI_OP_GEOMETRIC | PSTI_OP_MOVES | PSTI_OP_VIEWS | PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .check = crop_check,
    .infer = crop_infer,
    .decide = crop_decide,
    .run = crop_run,
};
