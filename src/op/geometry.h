/* SPDX-License-Identifier: Apache-2.0
 * What the geometric ops and the policies built on them share: matrices, as torchvision and Pillow
 * compute them, and the picture made through one. Stays inside src/op. */
#ifndef PSTI_OP_GEOMETRY_H
#define PSTI_OP_GEOMETRY_H

#include "op/op_priv.h"

/* From a place in the result to the place in the source: x = m[0] u + m[1] v + m[2], y = m[3] u +
 * m[4] v + m[5], where pixel (i, j) has its middle at (i + 0.5, j + 0.5). */
typedef struct psti_matrix {
    double m[6];
} psti_matrix;

/* ---- transform.c ----------------------------------------------------------------------------- */

/* Makes `out` from `in` through the matrix. fill: where the source ends; one value per channel or
 * one for all, masks get 0. Masks take the nearest pixel whatever the filter. in and out do not
 * overlap; in is the whole picture. */
int psti_transform(const psti_matrix *matrix, psti_filter filter, const psti_list *fill,
                   psti_op_ctx *ctx, const psti_field *in, psti_field *out, pst_error *err);
/* The same with the kernels of one level, for tests. */
struct psti_kernels;
int psti_transform_with(const struct psti_kernels *kernels, const psti_matrix *matrix,
                        psti_filter filter, const psti_list *fill, psti_op_ctx *ctx,
                        const psti_field *in, psti_field *out, pst_error *err);
/* What psti_transform takes in the context: an upper bound. */
size_t psti_transform_scratch(const psti_geom *out);

/* ---- matrix.c -------------------------------------------------------------------------------- */

/* An affine map of the picture: turned by angle, moved, scaled, sheared about a centre. Angles in
 * degrees, clockwise; lengths in pixels; x before y. */
typedef struct psti_affine {
    double angle, translate[2], scale, shear[2], center[2];
} psti_affine;

/* One that changes nothing, about the middle of a picture. */
psti_affine psti_affine_none(const psti_geom *in);
psti_matrix psti_matrix_affine(const psti_affine *affine);
/* As augmentation policies use them: a shear about the top left corner, level pixels a row (axis 0)
 * or column (axis 1); a shift. */
psti_matrix psti_matrix_shear(double level, int axis);
psti_matrix psti_matrix_translate(int64_t pixels, int axis, const psti_geom *in);
bool psti_matrix_is_none(const psti_matrix *matrix);

/* A rotation counterclockwise by degrees, about center (x, y) or, if it is NULL, the middle. Gives
 * the size of the result: the input's, or with expand the least that holds the whole picture.
 * *exact: the result is the input turned by quarters, so pixels are moved and no filter is to be
 * used. */
psti_matrix psti_matrix_rotate(double degrees, const double *center, bool expand,
                               const psti_geom *in, psti_geom *out, bool *exact);

/* As Python computes them: degrees to radians, and an arc tangent in degrees. */
double psti_radians(double degrees);
double psti_atan_degrees(double x);

/* ---- affine.c: what every op with a matrix in its draw shares ---------------------------------
 */

enum { PSTI_DRAW_EXACT = 6 }; /* index into psti_draw.v, after the matrix */

/* The words of such an op's table. */
typedef struct psti_warp_params {
    int interpolation;
    psti_list fill, center;
} psti_warp_params;

#define PSTI_PARAM_INTERPOLATION(owner, word)                                                      \
    {                                                                                              \
        .name = "interpolation", .type = PSTI_P_WORD,                                              \
        .offset = offsetof(owner, warp) + offsetof(psti_warp_params, interpolation),               \
        .words = psti_filter_words, .def = word,                                                   \
        .help = "filter for images; masks take the nearest pixel"                                  \
    }
#define PSTI_PARAM_FILL(owner)                                                                     \
    {                                                                                              \
        .name = "fill", .type = PSTI_P_LIST,                                                       \
        .offset = offsetof(owner, warp) + offsetof(psti_warp_params, fill), .min = 0, .max = 255,  \
        .min_count = 1, .max_count = 4, .whole = true, .def = "0",                                 \
        .help = "value where the picture ends: one, or one per channel; masks get 0"               \
    }
#define PSTI_PARAM_CENTER(owner)                                                                   \
    {                                                                                              \
        .name = "center", .type = PSTI_P_LIST,                                                     \
        .offset = offsetof(owner, warp) + offsetof(psti_warp_params, center), .min = -65536,       \
        .max = 65536, .min_count = 2, .max_count = 2, .def = "",                                   \
        .help = "x and y of the fixed point, from the top left; none = the middle"                 \
    }

/* Puts the matrix into the draw; out is the result's size. */
int psti_warp_decide(const char *op, const psti_warp_params *warp, const psti_matrix *matrix,
                     bool exact, const psti_geom *in, psti_draw *draw, const psti_geom *out,
                     pst_error *err);
/* psti_op.objects of an op whose draw holds the matrix. */
void psti_warp_objects(const void *params, const psti_draw *draw, const psti_geom *in,
                       const psti_geom *out, psti_objects *objects);
int psti_warp_run(const psti_warp_params *warp, const psti_draw *draw, psti_op_ctx *ctx,
                  const psti_field *in, psti_field *out, pst_error *err);
/* Two ends of a range from a list of one (-x, x) or more, from entry `at` on. */
double psti_warp_draw_range(psti_rng *rng, const psti_list *range, int at);

#endif
