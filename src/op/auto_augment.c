/* SPDX-License-Identifier: Apache-2.0
 * auto_augment: one of 25 pairs of changes, found by search on ImageNet, CIFAR-10 or SVHN (Cubuk et
 * al., 2019), each of the two with a probability and a strength of its own. */
#include "core/status.h"
#include "op/policy.h"

typedef struct auto_augment_params {
    psti_policy_params base;
    int policy;
} auto_augment_params;

enum { PAIRS = 25, BINS = 10 };

typedef struct step {
    uint8_t change, tenths, bin; /* tenths: of the probability */
} step;

/* In the order of policy_words. */
static const step policies[][PAIRS][2] = {
    {
        {{PSTI_POSTERIZE, 4, 8}, {PSTI_ROTATE, 6, 9}},
        {{PSTI_SOLARIZE, 6, 5}, {PSTI_AUTOCONTRAST, 6, 0}},
        {{PSTI_EQUALIZE, 8, 0}, {PSTI_EQUALIZE, 6, 0}},
        {{PSTI_POSTERIZE, 6, 7}, {PSTI_POSTERIZE, 6, 6}},
        {{PSTI_EQUALIZE, 4, 0}, {PSTI_SOLARIZE, 2, 4}},
        {{PSTI_EQUALIZE, 4, 0}, {PSTI_ROTATE, 8, 8}},
        {{PSTI_SOLARIZE, 6, 3}, {PSTI_EQUALIZE, 6, 0}},
        {{PSTI_POSTERIZE, 8, 5}, {PSTI_EQUALIZE, 10, 0}},
        {{PSTI_ROTATE, 2, 3}, {PSTI_SOLARIZE, 6, 8}},
        {{PSTI_EQUALIZE, 6, 0}, {PSTI_POSTERIZE, 4, 6}},
        {{PSTI_ROTATE, 8, 8}, {PSTI_COLOR, 4, 0}},
        {{PSTI_ROTATE, 4, 9}, {PSTI_EQUALIZE, 6, 0}},
        {{PSTI_EQUALIZE, 0, 0}, {PSTI_EQUALIZE, 8, 0}},
        {{PSTI_INVERT, 6, 0}, {PSTI_EQUALIZE, 10, 0}},
        {{PSTI_COLOR, 6, 4}, {PSTI_CONTRAST, 10, 8}},
        {{PSTI_ROTATE, 8, 8}, {PSTI_COLOR, 10, 2}},
        {{PSTI_COLOR, 8, 8}, {PSTI_SOLARIZE, 8, 7}},
        {{PSTI_SHARPNESS, 4, 7}, {PSTI_INVERT, 6, 0}},
        {{PSTI_SHEAR_X, 6, 5}, {PSTI_EQUALIZE, 10, 0}},
        {{PSTI_COLOR, 4, 0}, {PSTI_EQUALIZE, 6, 0}},
        {{PSTI_EQUALIZE, 4, 0}, {PSTI_SOLARIZE, 2, 4}},
        {{PSTI_SOLARIZE, 6, 5}, {PSTI_AUTOCONTRAST, 6, 0}},
        {{PSTI_INVERT, 6, 0}, {PSTI_EQUALIZE, 10, 0}},
        {{PSTI_COLOR, 6, 4}, {PSTI_CONTRAST, 10, 8}},
        {{PSTI_EQUALIZE, 8, 0}, {PSTI_EQUALIZE, 6, 0}},
    },
    {
        {{PSTI_INVERT, 1, 0}, {PSTI_CONTRAST, 2, 6}},
        {{PSTI_ROTATE, 7, 2}, {PSTI_TRANSLATE_X, 3, 9}},
        {{PSTI_SHARPNESS, 8, 1}, {PSTI_SHARPNESS, 9, 3}},
        {{PSTI_SHEAR_Y, 5, 8}, {PSTI_TRANSLATE_Y, 7, 9}},
        {{PSTI_AUTOCONTRAST, 5, 0}, {PSTI_EQUALIZE, 9, 0}},
        {{PSTI_SHEAR_Y, 2, 7}, {PSTI_POSTERIZE, 3, 7}},
        {{PSTI_COLOR, 4, 3}, {PSTI_BRIGHTNESS, 6, 7}},
        {{PSTI_SHARPNESS, 3, 9}, {PSTI_BRIGHTNESS, 7, 9}},
        {{PSTI_EQUALIZE, 6, 0}, {PSTI_EQUALIZE, 5, 0}},
        {{PSTI_CONTRAST, 6, 7}, {PSTI_SHARPNESS, 6, 5}},
        {{PSTI_COLOR, 7, 7}, {PSTI_TRANSLATE_X, 5, 8}},
        {{PSTI_EQUALIZE, 3, 0}, {PSTI_AUTOCONTRAST, 4, 0}},
        {{PSTI_TRANSLATE_Y, 4, 3}, {PSTI_SHARPNESS, 2, 6}},
        {{PSTI_BRIGHTNESS, 9, 6}, {PSTI_COLOR, 2, 8}},
        {{PSTI_SOLARIZE, 5, 2}, {PSTI_INVERT, 0, 0}},
        {{PSTI_EQUALIZE, 2, 0}, {PSTI_AUTOCONTRAST, 6, 0}},
        {{PSTI_EQUALIZE, 2, 0}, {PSTI_EQUALIZE, 6, 0}},
        {{PSTI_COLOR, 9, 9}, {PSTI_EQUALIZE, 6, 0}},
        {{PSTI_AUTOCONTRAST, 8, 0}, {PSTI_SOLARIZE, 2, 8}},
        {{PSTI_BRIGHTNESS, 1, 3}, {PSTI_COLOR, 7, 0}},
        {{PSTI_SOLARIZE, 4, 5}, {PSTI_AUTOCONTRAST, 9, 0}},
        {{PSTI_TRANSLATE_Y, 9, 9}, {PSTI_TRANSLATE_Y, 7, 9}},
        {{PSTI_AUTOCONTRAST, 9, 0}, {PSTI_SOLARIZE, 8, 3}},
        {{PSTI_EQUALIZE, 8, 0}, {PSTI_INVERT, 1, 0}},
        {{PSTI_TRANSLATE_Y, 7, 9}, {PSTI_AUTOCONTRAST, 9, 0}},
    },
    {
        {{PSTI_SHEAR_X, 9, 4}, {PSTI_INVERT, 2, 0}},
        {{PSTI_SHEAR_Y, 9, 8}, {PSTI_INVERT, 7, 0}},
        {{PSTI_EQUALIZE, 6, 0}, {PSTI_SOLARIZE, 6, 6}},
        {{PSTI_INVERT, 9, 0}, {PSTI_EQUALIZE, 6, 0}},
        {{PSTI_EQUALIZE, 6, 0}, {PSTI_ROTATE, 9, 3}},
        {{PSTI_SHEAR_X, 9, 4}, {PSTI_AUTOCONTRAST, 8, 0}},
        {{PSTI_SHEAR_Y, 9, 8}, {PSTI_INVERT, 4, 0}},
        {{PSTI_SHEAR_Y, 9, 5}, {PSTI_SOLARIZE, 2, 6}},
        {{PSTI_INVERT, 9, 0}, {PSTI_AUTOCONTRAST, 8, 0}},
        {{PSTI_EQUALIZE, 6, 0}, {PSTI_ROTATE, 9, 3}},
        {{PSTI_SHEAR_X, 9, 4}, {PSTI_SOLARIZE, 3, 3}},
        {{PSTI_SHEAR_Y, 8, 8}, {PSTI_INVERT, 7, 0}},
        {{PSTI_EQUALIZE, 9, 0}, {PSTI_TRANSLATE_Y, 6, 6}},
        {{PSTI_INVERT, 9, 0}, {PSTI_EQUALIZE, 6, 0}},
        {{PSTI_CONTRAST, 3, 3}, {PSTI_ROTATE, 8, 4}},
        {{PSTI_INVERT, 8, 0}, {PSTI_TRANSLATE_Y, 0, 2}},
        {{PSTI_SHEAR_Y, 7, 6}, {PSTI_SOLARIZE, 4, 8}},
        {{PSTI_INVERT, 6, 0}, {PSTI_ROTATE, 8, 4}},
        {{PSTI_SHEAR_Y, 3, 7}, {PSTI_TRANSLATE_X, 9, 3}},
        {{PSTI_SHEAR_X, 1, 6}, {PSTI_INVERT, 6, 0}},
        {{PSTI_SOLARIZE, 7, 2}, {PSTI_TRANSLATE_Y, 6, 7}},
        {{PSTI_SHEAR_Y, 8, 4}, {PSTI_INVERT, 8, 0}},
        {{PSTI_SHEAR_X, 7, 9}, {PSTI_TRANSLATE_Y, 8, 3}},
        {{PSTI_SHEAR_Y, 8, 5}, {PSTI_AUTOCONTRAST, 7, 0}},
        {{PSTI_SHEAR_X, 7, 2}, {PSTI_INVERT, 1, 0}},
    },
};

static const char *const policy_words[] = {"imagenet", "cifar10", "svhn", NULL};

static const psti_space space = {
    .shear = 0.3, .rotate = 30, .color = 0.9, .shift = 150.0 / 331.0, .bits = 8, .bits_less = 4};

static const psti_param table[] = {
    {.name = "policy",
     .type = PSTI_P_WORD,
     .offset = offsetof(auto_augment_params, policy),
     .words = policy_words,
     .def = "imagenet",
     .help = "the data it was found on"},
    PSTI_PARAM_POLICY_FILTER("nearest"),
    PSTI_PARAM_POLICY_FILL,
    PSTI_PARAM_LIKE,
    {.name = NULL},
};

/* The pair, two chances, two signs: all drawn, whether used or not. */
static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    const auto_augment_params *params = p;
    psti_draw_whole(draw, in);
    *out = *in;
    const step *pair = policies[params->policy][psti_rng_below(rng, PAIRS)];
    const double chance[2] = {psti_rng_unit(rng), psti_rng_unit(rng)};
    const bool positive[2] = {psti_rng_below(rng, 2), psti_rng_below(rng, 2)};
    for (int i = 0; i < 2; i++) {
        if (chance[i] > pair[i].tenths / 10.0)
            continue;
        const float size = psti_space_at(&space, pair[i].change, pair[i].bin, BINS, in);
        const bool turn = psti_change_is_signed(pair[i].change) && !positive[i];
        psti_draw_pick(draw, pair[i].change, turn ? -size : size);
    }
    draw->act = psti_draw_acts(draw);
    return psti_policy_check("auto_augment", &params->base, in, err);
}

const psti_op psti_op_auto_augment = {
    .name = "auto_augment",
    .summary = "one of 25 pairs of changes that a search found good",
    .params = table,
    .params_bytes = sizeof(auto_augment_params),
    .flags = PSTI_OP_RANDOM,
    .check = psti_policy_params_check,
    .infer = psti_infer_same,
    .decide = decide,
    .scratch = psti_policy_run_scratch,
    .run = psti_policy_run,
};
