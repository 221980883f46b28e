/* SPDX-License-Identifier: Apache-2.0
 * center_crop: the middle of the picture; where the picture is smaller, zeros around it. */
#include "op/op_priv.h"

typedef struct center_crop_params {
    psti_list size;
} center_crop_params;

static const psti_param table[] = {
    {.name = "size",
     .type = PSTI_P_LIST,
     .offset = offsetof(center_crop_params, size),
     .min = 1,
     .max = PSTI_SIZE_MAX,
     .min_count = 1,
     .max_count = 2,
     .whole = true,
     .help = "one number for a square, or rows, columns"},
    {.name = NULL},
};

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    const center_crop_params *params = p;
    out->channels = in->channels;
    psti_size_of(&params->size, &out->rows, &out->cols);
}

/* Where the window begins along one axis: negative by what is padded before, the smaller half. */
static int64_t start(int64_t have, int64_t want)
{
    return want > have ? -((want - have) / 2) : psti_round_even((double)(have - want) / 2.0);
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)rng;
    psti_draw_whole(draw, in);
    infer(p, in, out);
    draw->act = out->rows != in->rows || out->cols != in->cols;
    draw->v[0] = (double)start(in->rows, out->rows);
    draw->v[1] = (double)start(in->cols, out->cols);
    if (out->rows <= in->rows && out->cols <= in->cols) {
        draw->top = (int64_t)draw->v[0];
        draw->left = (int64_t)draw->v[1];
        draw->rows = out->rows;
        draw->cols = out->cols;
    }
    return psti_out_check("center_crop", out, err);
}

static void objects(const void *p, const psti_draw *draw, const psti_geom *in, const psti_geom *out,
                    psti_objects *o)
{
    (void)p, (void)in;
    psti_objects_crop(o, (int64_t)draw->v[1], (int64_t)draw->v[0], out->rows, out->cols);
    psti_objects_drop_empty(o);
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)p, (void)draw, (void)in;
    return psti_canvas_scratch(out);
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    (void)p;
    const psti_canvas rows = {.skip = (int64_t)draw->v[0]}, cols = {.skip = (int64_t)draw->v[1]};
    return psti_canvas_run(&rows, &cols, NULL, ctx, in, out, err);
}

const psti_op psti_op_center_crop = {
    .name = "center_crop",
    .summary = "the middle of the picture",
    .params = table,
    .params_bytes = sizeof(center_crop_params),
    .flags = PSTI_OP_CROPS | PSTI_OP_GEOMETRIC | PSTI_OP_MOVES,
    .infer = infer,
    .decide = decide,
    .objects = objects,
    .scratch = scratch,
    .run = run,
};
