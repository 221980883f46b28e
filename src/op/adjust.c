/* SPDX-License-Identifier: Apache-2.0
 * The ops that are one colour function each: adjust_*, posterize, solarize, autocontrast, equalize,
 * invert, grayscale, and those of them that torchvision also has with a probability. Fixed and
 * random ones share their run; all keep the picture's size and work in place. */
#include <string.h>

#include "core/status.h"
#include "op/color.h"
#include "op/op_priv.h"

typedef struct adjust_params {
    double amount; /* factor, threshold */
    int64_t whole; /* bits, channels */
    double p;
    int like;
} adjust_params;

/* ---- parameters ------------------------------------------------------------------------------ */

#define FACTOR(low, high, text)                                                                    \
    {                                                                                              \
        .name = "factor", .type = PSTI_P_FLOAT, .offset = offsetof(adjust_params, amount),         \
        .min = (low), .max = (high), .help = (text)                                                \
    }
#define BITS                                                                                       \
    {                                                                                              \
        .name = "bits", .type = PSTI_P_INT, .offset = offsetof(adjust_params, whole), .min = 0,    \
        .max = 8, .help = "upper bits of each value that are kept"                                 \
    }
#define THRESHOLD                                                                                  \
    {                                                                                              \
        .name = "threshold", .type = PSTI_P_FLOAT, .offset = offsetof(adjust_params, amount),      \
        .min = 0, .max = 256, .help = "values of this and above are inverted"                      \
    }
#define CHANCE(text)                                                                               \
    {                                                                                              \
        .name = "p", .type = PSTI_P_FLOAT, .offset = offsetof(adjust_params, p), .min = 0,         \
        .max = 1, .def = (text), .help = "probability"                                             \
    }
#define LIKE                                                                                       \
    {                                                                                              \
        .name = "like", .type = PSTI_P_WORD, .offset = offsetof(adjust_params, like),              \
        .words = psti_like_words, .def = "pil", .help = PSTI_LIKE_HELP                             \
    }
#define END                                                                                        \
    {                                                                                              \
        .name = NULL                                                                               \
    }

static const char blend_help[] = "0: none left, 1: as it is, 2: twice as much";

static const psti_param
    no_table[] = {END},
    chance_table[] = {CHANCE("0.5"), END}, like_table[] = {LIKE, END},
    chance_like_table[] = {CHANCE("0.5"), LIKE, END},
    factor_table[] = {FACTOR(0, 1000, blend_help), LIKE, END},
    hue_table[] = {FACTOR(-0.5, 0.5, "share of the colour circle to turn by"), LIKE, END},
    sharpness_table[] = {FACTOR(0, 1000, "0: smoothed, 1: as it is, 2: sharper"), LIKE, END},
    random_sharpness_table[] = {FACTOR(0, 1000, "0: smoothed, 1: as it is, 2: sharper"),
                                CHANCE("0.5"), LIKE, END},
    bits_table[] = {BITS, END}, random_bits_table[] = {BITS, CHANCE("0.5"), END},
    threshold_table[] = {THRESHOLD, END},
    random_threshold_table[] = {THRESHOLD, CHANCE("0.5"), END},
    random_gray_table[] = {CHANCE("0.1"), LIKE, END},
    gray_table[] = {{.name = "channels",
                     .type = PSTI_P_INT,
                     .offset = offsetof(adjust_params, whole),
                     .min = 1,
                     .max = 3,
                     .def = "1",
                     .help = "of the result: 1, or 3 equal ones"},
                    LIKE,
                    END};

/* ---- deciding -------------------------------------------------------------------------------- */

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)p, (void)rng;
    psti_draw_whole(draw, in);
    *out = *in;
    return psti_px_check_channels("color", in->channels, err);
}

static int decide_chance(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                         psti_geom *out, pst_error *err)
{
    const adjust_params *params = p;
    const int rc = decide(p, rng, in, draw, out, err);
    draw->act = psti_rng_unit(rng) < params->p;
    return rc;
}

/* ---- running --------------------------------------------------------------------------------- */

#define RUN(function, call)                                                                        \
    static int run_##function(const void *p, const psti_draw *draw, psti_op_ctx *ctx,              \
                              const psti_field *in, psti_field *out, pst_error *err)               \
    {                                                                                              \
        const adjust_params *params = p;                                                           \
        const psti_like like = (psti_like)params->like;                                            \
        const int rc = psti_px_check(#function, in, err);                                          \
        (void)draw, (void)ctx, (void)like;                                                         \
        if (rc == 0)                                                                               \
            psti_px_##function call;                                                               \
        return rc;                                                                                 \
    }

RUN(brightness, (in, out, params->amount, like))
RUN(contrast, (in, out, params->amount, like))
RUN(saturation, (in, out, params->amount, like))
RUN(hue, (in, out, params->amount, like))
RUN(posterize, (in, out, (int)params->whole))
RUN(solarize, (in, out, params->amount))
RUN(autocontrast, (in, out, like))
RUN(equalize, (in, out))
RUN(invert, (in, out))
RUN(grayscale, (in, out, like))

static int run_sharpness(const void *p, const psti_draw *draw, psti_op_ctx *ctx,
                         const psti_field *in, psti_field *out, pst_error *err)
{
    const adjust_params *params = p;
    (void)draw;
    const int rc = psti_px_check("sharpness", in, err);
    return rc < 0 ? rc
                  : psti_px_sharpness(in, out, params->amount, (psti_like)params->like, ctx, err);
}

static size_t scratch_sharpness(const void *p, const psti_draw *draw, const psti_geom *in,
                                const psti_geom *out)
{
    (void)p, (void)draw, (void)out;
    return psti_px_sharpness_scratch(in);
}

/* ---- grayscale ------------------------------------------------------------------------------- */

static int check_gray(const void *p, pst_error *err)
{
    const adjust_params *params = p;
    if (params->whole != 2)
        return 0;
    return psti_fail(err, PST_EPIPELINE, "grayscale", NULL, "channels is 1 or 3, not 2");
}

static void infer_gray(const void *p, const psti_geom *in, psti_geom *out)
{
    const adjust_params *params = p;
    *out = *in;
    out->channels = params->whole;
}

static int decide_gray(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                       psti_geom *out, pst_error *err)
{
    const int rc = decide(p, rng, in, draw, out, err);
    infer_gray(p, in, out);
    draw->act = in->channels != 1 || out->channels != 1;
    return rc < 0 ? rc : psti_out_check("grayscale", out, err);
}

/* ---- the ops --------------------------------------------------------------------------------- */

#define FIXED(NAME, TABLE, FUNCTION, ...)                                                          \
    {                                                                                              \
        .name = (NAME), .params = (TABLE), .params_bytes = sizeof(adjust_params),                  \
        .flags = PSTI_OP_INPLACE, .infer = psti_infer_same, .decide = decide,                      \
        .run = run_##FUNCTION, __VA_ARGS__                                                         \
    }
#define CHANCED(NAME, TABLE, FUNCTION, ...)                                                        \
    {                                                                                              \
        .name = (NAME), .params = (TABLE), .params_bytes = sizeof(adjust_params),                  \
        .flags = PSTI_OP_INPLACE | PSTI_OP_RANDOM, .infer = psti_infer_same,                       \
        .decide = decide_chance, .run = run_##FUNCTION, __VA_ARGS__                                \
    }

const psti_op psti_op_adjust_brightness = FIXED("adjust_brightness", factor_table, brightness,
                                                .summary = "brighter or darker by a factor"),
              psti_op_adjust_contrast =
                  FIXED("adjust_contrast", factor_table, contrast,
                        .summary = "away from the mean grey or towards it by a factor"),
              psti_op_adjust_saturation = FIXED("adjust_saturation", factor_table, saturation,
                                                .summary = "more or less colour by a factor"),
              psti_op_adjust_hue =
                  FIXED("adjust_hue", hue_table, hue, .summary = "colours turned round the circle"),
              psti_op_adjust_sharpness =
                  FIXED("adjust_sharpness", sharpness_table, sharpness,
                        .scratch = scratch_sharpness, .summary = "sharper or softer by a factor"),
              psti_op_posterize =
                  FIXED("posterize", bits_table, posterize, .summary = "fewer bits a value"),
              psti_op_solarize =
                  FIXED("solarize", threshold_table, solarize, .summary = "bright values inverted"),
              psti_op_autocontrast = FIXED("autocontrast", like_table, autocontrast,
                                           .summary = "each channel stretched to the whole range"),
              psti_op_equalize = FIXED("equalize", no_table, equalize,
                                       .summary = "each channel's histogram made flat"),
              psti_op_invert = FIXED("invert", no_table, invert, .summary = "the negative"),
              psti_op_random_adjust_sharpness = CHANCED(
                  "random_adjust_sharpness", random_sharpness_table, sharpness,
                  .scratch = scratch_sharpness, .summary = "adjust_sharpness with probability p"),
              psti_op_random_posterize = CHANCED("random_posterize", random_bits_table, posterize,
                                                 .summary = "posterize with probability p"),
              psti_op_random_solarize = CHANCED("random_solarize", random_threshold_table, solarize,
                                                .summary = "solarize with probability p"),
              psti_op_random_autocontrast =
                  CHANCED("random_autocontrast", chance_like_table, autocontrast,
                          .summary = "autocontrast with probability p"),
              psti_op_random_equalize = CHANCED("random_equalize", chance_table, equalize,
                                                .summary = "equalize with probability p"),
              psti_op_random_invert = CHANCED("random_invert", chance_table, invert,
                                              .summary = "invert with probability p"),
              psti_op_random_grayscale =
                  CHANCED("random_grayscale", random_gray_table, grayscale,
                          .summary = "grey with probability p; channels stay"),
              psti_op_grayscale = {
                  .name = "grayscale",
                  .summary = "grey in one channel, or in three equal ones",
                  .params = gray_table,
                  .params_bytes = sizeof(adjust_params),
                  .flags = PSTI_OP_INPLACE,
                  .check = check_gray,
                  .infer = infer_gray,
                  .decide = decide_gray,
                  .run = run_grayscale,
};
