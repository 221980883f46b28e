/* SPDX-License-Identifier: Apache-2.0
 * affine and random_affine; shear_x, shear_y, translate_x and translate_y as augmentation policies
 * use them. decide makes the matrix, run is a transform through it. */
#include "core/status.h"
#include "op/geometry.h"

/* ---- what ops with a matrix share ------------------------------------------------------------ */

int psti_warp_decide(const char *op, const psti_warp_params *warp, const psti_matrix *matrix,
                     bool exact, const psti_geom *in, psti_draw *draw, const psti_geom *out,
                     pst_error *err)
{
    psti_draw_whole(draw, in);
    for (int i = 0; i < 6; i++)
        draw->v[i] = matrix->m[i];
    draw->v[PSTI_DRAW_EXACT] = exact;
    draw->act = !psti_matrix_is_none(matrix) || out->rows != in->rows || out->cols != in->cols;
    const int rc = psti_fill_check(op, &warp->fill, in, err);
    return rc < 0 ? rc : psti_out_check(op, out, err);
}

int psti_warp_run(const psti_warp_params *warp, const psti_draw *draw, psti_op_ctx *ctx,
                  const psti_field *in, psti_field *out, pst_error *err)
{
    psti_matrix matrix;
    for (int i = 0; i < 6; i++)
        matrix.m[i] = draw->v[i];
    const bool exact = draw->v[PSTI_DRAW_EXACT] != 0;
    const psti_filter filter = exact ? PSTI_NEAREST : (psti_filter)warp->interpolation;
    return psti_transform(&matrix, filter, &warp->fill, ctx, in, out, err);
}

/* The draw's matrix goes from the result to the source. One that cannot be turned round has made a
 * line of the picture, in which nothing is. */
void psti_warp_objects(const void *params, const psti_draw *draw, const psti_geom *in,
                       const psti_geom *out, psti_objects *objects)
{
    (void)params, (void)in;
    const double *m = draw->v;
    const double det = m[0] * m[4] - m[1] * m[3];
    if (!(det < 0 || det > 0)) {
        objects->count = 0;
        return;
    }
    const double back[6] = {m[4] / det,  -m[1] / det, (m[1] * m[5] - m[4] * m[2]) / det,
                            -m[3] / det, m[0] / det,  (m[3] * m[2] - m[0] * m[5]) / det};
    psti_objects_affine(objects, back, out->rows, out->cols);
    psti_objects_drop_empty(objects);
}

double psti_warp_draw_range(psti_rng *rng, const psti_list *range, int at)
{
    const double low = range->count == 1 ? -range->v[0] : range->v[at];
    const double high = range->count == 1 ? range->v[0] : range->v[at + 1];
    return psti_rng_range(rng, low, high);
}

static void infer_same(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)p;
    *out = *in;
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)p, (void)draw, (void)in;
    return psti_transform_scratch(out);
}

/* The map about the centre asked for, into the draw. */
static int decide_affine(const char *op, const psti_warp_params *warp, psti_affine affine,
                         const psti_geom *in, psti_draw *draw, psti_geom *out, pst_error *err)
{
    if (warp->center.count == 2) {
        affine.center[0] = warp->center.v[0];
        affine.center[1] = warp->center.v[1];
    }
    const psti_matrix matrix = psti_matrix_affine(&affine);
    *out = *in;
    return psti_warp_decide(op, warp, &matrix, false, in, draw, out, err);
}

/* ---- affine ---------------------------------------------------------------------------------- */

typedef struct affine_params {
    double angle, scale;
    psti_list translate, shear;
    psti_warp_params warp;
} affine_params;

static const psti_param affine_table[] = {
    {.name = "angle",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(affine_params, angle),
     .min = -1e6,
     .max = 1e6,
     .def = "0",
     .help = "degrees, clockwise"},
    {.name = "translate",
     .type = PSTI_P_LIST,
     .offset = offsetof(affine_params, translate),
     .min = -65536,
     .max = 65536,
     .min_count = 2,
     .max_count = 2,
     .def = "(0, 0)",
     .help = "pixels to the right and down"},
    {.name = "scale",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(affine_params, scale),
     .min = 0.001,
     .max = 1000,
     .def = "1",
     .help = "factor of both sides"},
    {.name = "shear",
     .type = PSTI_P_LIST,
     .offset = offsetof(affine_params, shear),
     .min = -360,
     .max = 360,
     .min_count = 1,
     .max_count = 2,
     .def = "0",
     .help = "degrees along x, and along y"},
    PSTI_PARAM_INTERPOLATION(affine_params, "nearest"),
    PSTI_PARAM_FILL(affine_params),
    PSTI_PARAM_CENTER(affine_params),
    {.name = NULL},
};

static int affine_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                         psti_geom *out, pst_error *err)
{
    (void)rng;
    const affine_params *params = p;
    psti_affine affine = psti_affine_none(in);
    affine.angle = params->angle;
    affine.translate[0] = params->translate.v[0];
    affine.translate[1] = params->translate.v[1];
    affine.scale = params->scale;
    affine.shear[0] = params->shear.v[0];
    affine.shear[1] = params->shear.count > 1 ? params->shear.v[1] : 0;
    return decide_affine("affine", &params->warp, affine, in, draw, out, err);
}

static int affine_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                      psti_field *out, pst_error *err)
{
    return psti_warp_run(&((const affine_params *)p)->warp, draw, ctx, in, out, err);
}

const psti_op psti_op_affine = {
    .name = "affine",
    .summary = "turned, moved, scaled and sheared, in a frame of the same size",
    .params = affine_table,
    .params_bytes = sizeof(affine_params),
    .flags = PSTI_OP_GEOMETRIC,
    .infer = infer_same,
    .decide = affine_decide,
    .objects = psti_warp_objects,
    .scratch = scratch,
    .run = affine_run,
};

/* ---- random_affine --------------------------------------------------------------------------- */

typedef struct random_affine_params {
    psti_list degrees, translate, scale, shear;
    psti_warp_params warp;
} random_affine_params;

static const psti_param random_affine_table[] = {
    {.name = "degrees",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_affine_params, degrees),
     .min = -1e6,
     .max = 1e6,
     .min_count = 1,
     .max_count = 2,
     .help = "least and largest angle, clockwise; one number: from -x to x"},
    {.name = "translate",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_affine_params, translate),
     .min = 0,
     .max = 1,
     .min_count = 2,
     .max_count = 2,
     .def = "",
     .help = "the most it moves across and down, as shares of width and height"},
    {.name = "scale",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_affine_params, scale),
     .min = 0.001,
     .max = 1000,
     .min_count = 2,
     .max_count = 2,
     .def = "",
     .help = "least and largest factor"},
    {.name = "shear",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_affine_params, shear),
     .min = -360,
     .max = 360,
     .min_count = 1,
     .max_count = 4,
     .def = "",
     .help = "degrees along x: from -x to x, or least and largest; four: then along y"},
    PSTI_PARAM_INTERPOLATION(random_affine_params, "nearest"),
    PSTI_PARAM_FILL(random_affine_params),
    PSTI_PARAM_CENTER(random_affine_params),
    {.name = NULL},
};

static int random_affine_check(const void *p, pst_error *err)
{
    const random_affine_params *params = p;
    if (params->shear.count == 3)
        return psti_fail(err, PST_EPIPELINE, "random_affine", NULL,
                         "shear takes 1, 2 or 4 numbers, not 3");
    if ((params->degrees.count == 1 && params->degrees.v[0] < 0) ||
        (params->shear.count == 1 && params->shear.v[0] < 0))
        return psti_fail(
            err, PST_EPIPELINE, "random_affine", NULL,
            "one number of degrees or shear means from -x to x and cannot be negative");
    return 0;
}

/* A whole number of pixels, as Python rounds. */
static double draw_pixels(psti_rng *rng, double share, int64_t size)
{
    const double most = share * (double)size, drawn = psti_rng_range(rng, -most, most);
    return drawn < 0 ? -(double)psti_round_even(-drawn) : (double)psti_round_even(drawn);
}

/* What is not asked for is not drawn. */
static int random_affine_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                                psti_geom *out, pst_error *err)
{
    const random_affine_params *params = p;
    psti_affine affine = psti_affine_none(in);
    affine.angle = psti_warp_draw_range(rng, &params->degrees, 0);
    if (params->translate.count) {
        affine.translate[0] = draw_pixels(rng, params->translate.v[0], in->cols);
        affine.translate[1] = draw_pixels(rng, params->translate.v[1], in->rows);
    }
    if (params->scale.count)
        affine.scale = psti_warp_draw_range(rng, &params->scale, 0);
    if (params->shear.count)
        affine.shear[0] = psti_warp_draw_range(rng, &params->shear, 0);
    if (params->shear.count == 4)
        affine.shear[1] = psti_warp_draw_range(rng, &params->shear, 2);
    return decide_affine("random_affine", &params->warp, affine, in, draw, out, err);
}

static int random_affine_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx,
                             const psti_field *in, psti_field *out, pst_error *err)
{
    return psti_warp_run(&((const random_affine_params *)p)->warp, draw, ctx, in, out, err);
}

const psti_op psti_op_random_affine = {
    .name = "random_affine",
    .summary = "turned, moved, scaled and sheared at random, in a frame of the same size",
    .params = random_affine_table,
    .params_bytes = sizeof(random_affine_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_GEOMETRIC,
    .check = random_affine_check,
    .infer = infer_same,
    .decide = random_affine_decide,
    .objects = psti_warp_objects,
    .scratch = scratch,
    .run = random_affine_run,
};

/* ---- one direction --------------------------------------------------------------------------- */

typedef struct shift_params {
    double level;
    int64_t pixels;
    psti_warp_params warp;
} shift_params;

static const psti_param shear_table[] = {
    {.name = "level",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(shift_params, level),
     .min = -1000,
     .max = 1000,
     .help = "pixels that a row or column moves against its neighbour"},
    PSTI_PARAM_INTERPOLATION(shift_params, "nearest"),
    PSTI_PARAM_FILL(shift_params),
    {.name = NULL},
};

static const psti_param translate_table[] = {
    {.name = "pixels",
     .type = PSTI_P_INT,
     .offset = offsetof(shift_params, pixels),
     .min = -65536,
     .max = 65536,
     .help = "to the right or down; negative: to the left or up"},
    PSTI_PARAM_INTERPOLATION(shift_params, "nearest"),
    PSTI_PARAM_FILL(shift_params),
    {.name = NULL},
};

static int shift_decide(const char *op, const void *p, const psti_matrix *matrix,
                        const psti_geom *in, psti_draw *draw, psti_geom *out, pst_error *err)
{
    const shift_params *params = p;
    *out = *in;
    return psti_warp_decide(op, &params->warp, matrix, false, in, draw, out, err);
}

static int shift_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                     psti_field *out, pst_error *err)
{
    return psti_warp_run(&((const shift_params *)p)->warp, draw, ctx, in, out, err);
}

static int shear_x_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                          psti_geom *out, pst_error *err)
{
    (void)rng;
    const psti_matrix matrix = psti_matrix_shear(((const shift_params *)p)->level, 0);
    return shift_decide("shear_x", p, &matrix, in, draw, out, err);
}

static int shear_y_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                          psti_geom *out, pst_error *err)
{
    (void)rng;
    const psti_matrix matrix = psti_matrix_shear(((const shift_params *)p)->level, 1);
    return shift_decide("shear_y", p, &matrix, in, draw, out, err);
}

static int translate_x_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                              psti_geom *out, pst_error *err)
{
    (void)rng;
    const psti_matrix matrix = psti_matrix_translate(((const shift_params *)p)->pixels, 0, in);
    return shift_decide("translate_x", p, &matrix, in, draw, out, err);
}

static int translate_y_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                              psti_geom *out, pst_error *err)
{
    (void)rng;
    const psti_matrix matrix = psti_matrix_translate(((const shift_params *)p)->pixels, 1, in);
    return shift_decide("translate_y", p, &matrix, in, draw, out, err);
}

#define SHIFT(variable, word, text, parameters, decision)                                          \
    const psti_op variable = {                                                                     \
        .name = word,                                                                              \
        .summary = text,                                                                           \
        .params = parameters,                                                                      \
        .params_bytes = sizeof(shift_params),                                                      \
        .flags = PSTI_OP_GEOMETRIC,                                                                \
        .infer = infer_same,                                                                       \
        .decide = decision,                                                                        \
        .objects = psti_warp_objects,                                                              \
        .scratch = scratch,                                                                        \
        .run = shift_run,                                                                          \
    }

SHIFT(psti_op_shear_x, "shear_x", "rows moved sideways, the more the lower they are", shear_table,
      shear_x_decide);
SHIFT(psti_op_shear_y, "shear_y", "columns moved up or down, the more the further right they are",
      shear_table, shear_y_decide);
SHIFT(psti_op_translate_x, "translate_x", "moved to the right or left", translate_table,
      translate_x_decide);
SHIFT(psti_op_translate_y, "translate_y", "moved down or up", translate_table, translate_y_decide);
