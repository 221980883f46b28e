/* SPDX-License-Identifier: Apache-2.0
 * rand_augment (Cubuk et al., 2020): so many changes of one strength, drawn from 14; and
 * trivial_augment_wide (Mueller and Hutter, 2021): one change of any strength. */
#include "core/status.h"
#include "op/policy.h"

typedef struct rand_augment_params {
    psti_policy_params base;
    int64_t num_ops, magnitude, bins;
} rand_augment_params;

/* The changes in the order in which torchvision counts them. */
static const uint8_t changes[] = {
    PSTI_IDENTITY,  PSTI_SHEAR_X,    PSTI_SHEAR_Y,      PSTI_TRANSLATE_X, PSTI_TRANSLATE_Y,
    PSTI_ROTATE,    PSTI_BRIGHTNESS, PSTI_COLOR,        PSTI_CONTRAST,    PSTI_SHARPNESS,
    PSTI_POSTERIZE, PSTI_SOLARIZE,   PSTI_AUTOCONTRAST, PSTI_EQUALIZE};

static int draw_change(psti_rng *rng)
{
    return changes[psti_rng_below(rng, sizeof changes / sizeof *changes)];
}

#define BINS                                                                                       \
    {                                                                                              \
        .name = "bins", .type = PSTI_P_INT, .offset = offsetof(rand_augment_params, bins),         \
        .min = 2, .max = 1000, .def = "31", .help = "steps from no strength to the largest"        \
    }

/* ---- rand_augment ---------------------------------------------------------------------------- */

static const psti_space usual = {
    .shear = 0.3, .rotate = 30, .color = 0.9, .shift = 150.0 / 331.0, .bits = 8, .bits_less = 4};

static const psti_param rand_table[] = {
    {.name = "num_ops",
     .type = PSTI_P_INT,
     .offset = offsetof(rand_augment_params, num_ops),
     .min = 1,
     .max = PSTI_PICKS_MAX,
     .def = "2",
     .help = "changes one after the other"},
    {.name = "magnitude",
     .type = PSTI_P_INT,
     .offset = offsetof(rand_augment_params, magnitude),
     .min = 0,
     .max = 999,
     .def = "9",
     .help = "strength of all of them, in steps"},
    BINS,
    PSTI_PARAM_POLICY_FILTER("nearest"),
    PSTI_PARAM_POLICY_FILL,
    PSTI_PARAM_LIKE,
    {.name = NULL},
};

static int rand_check(const void *p, pst_error *err)
{
    const rand_augment_params *params = p;
    if (params->magnitude >= params->bins)
        return psti_fail(err, PST_EPIPELINE, "rand_augment", NULL,
                         "magnitude %lld is no step of %lld bins: they count from 0",
                         (long long)params->magnitude, (long long)params->bins);
    return psti_policy_params_check(p, err);
}

static int rand_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                       psti_geom *out, pst_error *err)
{
    const rand_augment_params *params = p;
    psti_draw_whole(draw, in);
    *out = *in;
    for (int64_t i = 0; i < params->num_ops; i++) {
        const int change = draw_change(rng);
        psti_draw_signed(
            draw, rng, change,
            psti_space_at(&usual, change, (int)params->magnitude, (int)params->bins, in));
    }
    draw->act = psti_draw_acts(draw);
    return psti_policy_check("rand_augment", &params->base, in, err);
}

const psti_op psti_op_rand_augment = {
    .name = "rand_augment",
    .summary = "changes drawn at random, all of one strength",
    .params = rand_table,
    .params_bytes = sizeof(rand_augment_params),
    .flags = PSTI_OP_RANDOM,
    .check = rand_check,
    .infer = psti_infer_same,
    .decide = rand_decide,
    .scratch = psti_policy_run_scratch,
    .run = psti_policy_run,
};

/* ---- trivial_augment_wide -------------------------------------------------------------------- */

static const psti_space wide = {.shear = 0.99,
                                .rotate = 135,
                                .color = 0.99,
                                .shift = 32,
                                .shift_pixels = true,
                                .bits = 8,
                                .bits_less = 6};

static const psti_param trivial_table[] = {
    BINS,           PSTI_PARAM_POLICY_FILTER("nearest"), PSTI_PARAM_POLICY_FILL, PSTI_PARAM_LIKE,
    {.name = NULL},
};

static int trivial_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                          psti_geom *out, pst_error *err)
{
    const rand_augment_params *params = p;
    psti_draw_whole(draw, in);
    *out = *in;
    const int change = draw_change(rng), bins = (int)params->bins;
    const int bin =
        psti_change_has_magnitude(change) ? (int)psti_rng_below(rng, (uint64_t)bins) : 0;
    psti_draw_signed(draw, rng, change, psti_space_at(&wide, change, bin, bins, in));
    draw->act = psti_draw_acts(draw);
    return psti_policy_check("trivial_augment_wide", &params->base, in, err);
}

const psti_op psti_op_trivial_augment_wide = {
    .name = "trivial_augment_wide",
    .summary = "one change drawn at random, of any strength",
    .params = trivial_table,
    .params_bytes = sizeof(rand_augment_params),
    .flags = PSTI_OP_RANDOM,
    .check = psti_policy_params_check,
    .infer = psti_infer_same,
    .decide = trivial_decide,
    .scratch = psti_policy_run_scratch,
    .run = psti_policy_run,
};
