/* SPDX-License-Identifier: Apache-2.0
 * zoom_out: the picture at a random place of a larger canvas, so that objects come smaller than
 * they were photographed. Of the canvas only what a crop behind it reads is made. */
#include "core/status.h"
#include "op/detect/detect.h"

typedef struct zoom_out_params {
    psti_list side, fill;
    double p;
} zoom_out_params;

enum { LEFT, TOP };

static const psti_param table[] = {
    {.name = "side",
     .type = PSTI_P_LIST,
     .offset = offsetof(zoom_out_params, side),
     .min = 1,
     .max = 64,
     .min_count = 2,
     .max_count = 2,
     .def = "(1, 4)",
     .help = "least and largest side of the canvas, times the picture's"},
    {.name = "p",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(zoom_out_params, p),
     .min = 0,
     .max = 1,
     .def = "0.5",
     .help = "probability"},
    {.name = "fill",
     .type = PSTI_P_LIST,
     .offset = offsetof(zoom_out_params, fill),
     .min = 0,
     .max = 255,
     .min_count = 1,
     .max_count = 4,
     .whole = true,
     .def = "(123, 117, 104)",
     .help = "value of the canvas: one, or one per channel; masks get 0"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    const zoom_out_params *params = p;
    if (params->side.v[0] > params->side.v[1])
        return psti_fail(err, PST_EPIPELINE, "zoom_out", NULL,
                         "side is (least, largest): %g is more than %g", params->side.v[0],
                         params->side.v[1]);
    return 0;
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)p;
    *out = (psti_geom){-1, -1, in->channels};
}

/* Drawn always, in this order: whether, how large, where across, where down. */
static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    const zoom_out_params *params = p;
    const double whether = psti_rng_unit(rng);
    const double by = psti_rng_range(rng, params->side.v[0], params->side.v[1]);
    const double across = psti_rng_unit(rng), down = psti_rng_unit(rng);
    psti_draw_whole(draw, in);
    *out = *in;
    out->rows = (int64_t)((double)in->rows * by);
    out->cols = (int64_t)((double)in->cols * by);
    draw->v[LEFT] = (double)(int64_t)((double)(out->cols - in->cols) * across);
    draw->v[TOP] = (double)(int64_t)((double)(out->rows - in->rows) * down);
    draw->act = whether < params->p && (out->rows != in->rows || out->cols != in->cols);
    if (!draw->act)
        *out = *in;
    const int rc = psti_fill_check("zoom_out", &params->fill, in, err);
    return rc < 0 ? rc : psti_out_check("zoom_out", out, err);
}

static void objects(const void *p, const psti_draw *draw, const psti_geom *in, const psti_geom *out,
                    psti_objects *o)
{
    (void)p, (void)in;
    psti_objects_pad(o, (int64_t)draw->v[LEFT], (int64_t)draw->v[TOP], out->rows, out->cols);
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)p, (void)draw, (void)in;
    return psti_canvas_scratch(out);
}

/* The border of one axis, and what of the canvas comes before the window that is wanted. */
static psti_canvas canvas_of(double before, int64_t size, int64_t whole, int64_t skip)
{
    return (psti_canvas){.border = PSTI_CONSTANT,
                         .before = {(int64_t)before},
                         .after = {whole - size - (int64_t)before},
                         .skip = skip};
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    const zoom_out_params *params = p;
    const psti_canvas rows = canvas_of(draw->v[TOP], in->whole_rows, out->whole_rows, out->y0);
    const psti_canvas cols = canvas_of(draw->v[LEFT], in->whole_cols, out->whole_cols, out->x0);
    return psti_canvas_run(&rows, &cols, &params->fill, ctx, in, out, err);
}

const psti_op psti_op_zoom_out = {
    .name = "zoom_out",
    .summary = "the picture at a random place of a larger canvas",
    .params = table,
    .params_bytes = sizeof(zoom_out_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_GEOMETRIC | PSTI_OP_PARTIAL,
    .check = check,
    .infer = infer,
    .decide = decide,
    .objects = objects,
    .scratch = scratch,
    .run = run,
};
