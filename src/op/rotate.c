/* SPDX-License-Identifier: Apache-2.0
 * rotate and random_rotation: turned counterclockwise about the middle or a point, in a frame of
 * the same size or one that holds all of the picture. */
#include "core/status.h"
#include "op/geometry.h"

typedef struct rotate_params {
    psti_list degrees; /* random_rotation: the range */
    double angle;      /* rotate */
    bool expand;
    psti_warp_params warp;
} rotate_params;

#define EXPAND                                                                                     \
    {                                                                                              \
        .name = "expand", .type = PSTI_P_BOOL, .offset = offsetof(rotate_params, expand),          \
        .def = "false", .help = "make the result large enough to hold the whole picture"           \
    }

static const psti_param rotate_table[] = {
    {.name = "angle",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(rotate_params, angle),
     .min = -1e6,
     .max = 1e6,
     .help = "degrees, counterclockwise"},
    PSTI_PARAM_INTERPOLATION(rotate_params, "nearest"),
    EXPAND,
    PSTI_PARAM_CENTER(rotate_params),
    PSTI_PARAM_FILL(rotate_params),
    {.name = NULL},
};

static const psti_param random_rotation_table[] = {
    {.name = "degrees",
     .type = PSTI_P_LIST,
     .offset = offsetof(rotate_params, degrees),
     .min = -1e6,
     .max = 1e6,
     .min_count = 1,
     .max_count = 2,
     .help = "least and largest angle, counterclockwise; one number: from -x to x"},
    PSTI_PARAM_INTERPOLATION(rotate_params, "nearest"),
    EXPAND,
    PSTI_PARAM_CENTER(rotate_params),
    PSTI_PARAM_FILL(rotate_params),
    {.name = NULL},
};

static int random_check(const void *p, pst_error *err)
{
    const rotate_params *params = p;
    if (params->degrees.count == 1 && params->degrees.v[0] < 0)
        return psti_fail(err, PST_EPIPELINE, "random_rotation", NULL,
                         "one number of degrees means from -x to x and cannot be negative");
    return 0;
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    *out = *in;
    if (((const rotate_params *)p)->expand)
        out->rows = out->cols = -1;
}

static int turn(const char *op, const rotate_params *params, double angle, const psti_geom *in,
                psti_draw *draw, psti_geom *out, pst_error *err)
{
    bool exact;
    const double *center = params->warp.center.count == 2 ? params->warp.center.v : NULL;
    const psti_matrix matrix = psti_matrix_rotate(angle, center, params->expand, in, out, &exact);
    return psti_warp_decide(op, &params->warp, &matrix, exact, in, draw, out, err);
}

static int rotate_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                         psti_geom *out, pst_error *err)
{
    (void)rng;
    const rotate_params *params = p;
    return turn("rotate", params, params->angle, in, draw, out, err);
}

static int random_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                         psti_geom *out, pst_error *err)
{
    const rotate_params *params = p;
    const double angle = psti_warp_draw_range(rng, &params->degrees, 0);
    return turn("random_rotation", params, angle, in, draw, out, err);
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)p, (void)draw, (void)in;
    return psti_transform_scratch(out);
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    return psti_warp_run(&((const rotate_params *)p)->warp, draw, ctx, in, out, err);
}

const psti_op psti_op_rotate = {
    .name = "rotate",
    .summary = "turned by an angle",
    .params = rotate_table,
    .params_bytes = sizeof(rotate_params),
    .flags = PSTI_OP_GEOMETRIC,
    .infer = infer,
    .decide = rotate_decide,
    .objects = psti_warp_objects,
    .scratch = scratch,
    .run = run,
};

const psti_op psti_op_random_rotation = {
    .name = "random_rotation",
    .summary = "turned by a random angle",
    .params = random_rotation_table,
    .params_bytes = sizeof(rotate_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_GEOMETRIC,
    .check = random_check,
    .infer = infer,
    .decide = random_decide,
    .objects = psti_warp_objects,
    .scratch = scratch,
    .run = run,
};
