/* SPDX-License-Identifier: Apache-2.0
 * What the augmentation policies share: the changes they choose from, how strong each is, and
 * carrying out a chain of them. Stays inside src/op. */
#ifndef PSTI_OP_POLICY_H
#define PSTI_OP_POLICY_H

#include "op/color.h"
#include "op/geometry.h"

typedef enum psti_change {
    PSTI_IDENTITY, /* 0, as psti_pick has it */
    PSTI_SHEAR_X,  /* from here … */
    PSTI_SHEAR_Y,
    PSTI_TRANSLATE_X,
    PSTI_TRANSLATE_Y,
    PSTI_ROTATE, /* … to here geometric … */
    PSTI_BRIGHTNESS,
    PSTI_COLOR,
    PSTI_CONTRAST,
    PSTI_SHARPNESS, /* … and to here in either direction, by a drawn sign */
    PSTI_POSTERIZE,
    PSTI_SOLARIZE,
    PSTI_AUTOCONTRAST, /* from here without a magnitude */
    PSTI_EQUALIZE,
    PSTI_INVERT
} psti_change;

static inline bool psti_change_is_geometric(int change)
{
    return change >= PSTI_SHEAR_X && change <= PSTI_ROTATE;
}
static inline bool psti_change_is_signed(int change)
{
    return change >= PSTI_SHEAR_X && change <= PSTI_SHARPNESS;
}
static inline bool psti_change_has_magnitude(int change)
{
    return change >= PSTI_SHEAR_X && change <= PSTI_SOLARIZE;
}

/* How far a policy goes: the largest magnitude of each change. */
typedef struct psti_space {
    double shear, rotate, color;
    double shift; /* of translations: a share of the side, or pixels if the side is no matter */
    bool shift_pixels; /* shift counts pixels */
    bool shift_thirds; /* a third of the side, divided as such; shift is not looked at */
    int bits;          /* posterize: at magnitude 0 */
    double bits_less;  /* and so many less at the largest */
} psti_space;

/* The magnitude of a change in bin `bin` of `bins`, as torch.linspace makes them in float32. */
float psti_space_at(const psti_space *space, int change, int bin, int bins, const psti_geom *in);

/* Puts a change into the draw. */
void psti_draw_pick(psti_draw *draw, int change, float magnitude);
/* Draws the sign, if the change has one, and puts it into the draw. */
void psti_draw_signed(psti_draw *draw, psti_rng *rng, int change, float magnitude);
/* Whether any of them does something. */
bool psti_draw_acts(const psti_draw *draw);

/* How pictures are treated: the words of the policies' tables. fill.count 0: none given. */
typedef struct psti_policy_how {
    psti_filter filter;
    const psti_list *fill;
    psti_like like;
} psti_policy_how;

/* Carries out `count` changes in turn. out and spare have the size of in; the result is in out. */
int psti_policy_chain(const psti_pick *picks, int count, const psti_policy_how *how,
                      psti_op_ctx *ctx, const psti_field *in, psti_field *out, psti_field *spare,
                      pst_error *err);
/* A picture of the same size in memory of its own. */
int psti_policy_spare(psti_buf *buf, const psti_field *like, psti_field *out, pst_error *err);
/* What a chain takes in the context, one spare picture included. */
size_t psti_policy_scratch(const psti_geom *in);

/* Parameters that every policy has. */
typedef struct psti_policy_params {
    psti_warp_params warp;
    int like;
} psti_policy_params;

/* Of parameter structs that begin with a psti_policy_params. */
#define PSTI_PARAM_POLICY_FILTER(word)                                                             \
    {                                                                                              \
        .name = "interpolation", .type = PSTI_P_WORD,                                              \
        .offset = offsetof(psti_policy_params, warp) + offsetof(psti_warp_params, interpolation),  \
        .words = psti_filter_words, .def = word, .help = "filter of the changes that move pixels"  \
    }
#define PSTI_PARAM_POLICY_FILL                                                                     \
    {                                                                                              \
        .name = "fill", .type = PSTI_P_LIST,                                                       \
        .offset = offsetof(psti_policy_params, warp) + offsetof(psti_warp_params, fill), .min = 0, \
        .max = 255, .min_count = 1, .max_count = 4, .whole = true, .def = "",                      \
        .help = "value where the picture ends: one, or one per channel; none = black"              \
    }
#define PSTI_PARAM_LIKE                                                                            \
    {                                                                                              \
        .name = "like", .type = PSTI_P_WORD, .offset = offsetof(psti_policy_params, like),         \
        .words = psti_like_words, .def = "pil", .help = PSTI_LIKE_HELP                             \
    }

/* The check of policies whose params begin with a psti_policy_params: tensors have no bicubic. */
int psti_policy_params_check(const void *params, pst_error *err);
/* Channels and fill of a picture. */
int psti_policy_check(const char *op, const psti_policy_params *params, const psti_geom *in,
                      pst_error *err);
/* The run and scratch of policies that are one chain; params begin with a psti_policy_params. */
int psti_policy_run(const void *params, const psti_draw *draw, psti_op_ctx *ctx,
                    const psti_field *in, psti_field *out, pst_error *err);
size_t psti_policy_run_scratch(const void *params, const psti_draw *draw, const psti_geom *in,
                               const psti_geom *out);

/* ---- tensor_warp.c --------------------------------------------------------------------------- */

/* A picture through a matrix as torchvision does it on tensors, by grid_sample: past the edge there
 * is nothing, or what fill says by the share of it, and values are rounded. Places count from the
 * middle of the picture here. Nearest or bilinear. */
void psti_transform_tensor(const psti_matrix *matrix, psti_filter filter, const psti_list *fill,
                           const psti_field *in, psti_field *out);

#endif
