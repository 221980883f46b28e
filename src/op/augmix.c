/* SPDX-License-Identifier: Apache-2.0
 * augmix (Hendrycks et al., 2020): several chains of changes made from one picture, mixed with each
 * other and with the picture by random weights. torchvision has it for tensors alone, Pillow images
 * included, so the changes are those of tensors; sums are taken in float32 in a fixed order. */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "op/policy.h"
#include "op/random.h"

typedef struct augmix_params {
    psti_policy_params base;
    int64_t severity, width, depth;
    double alpha;
    bool all_ops;
} augmix_params;

enum { BINS = 10, WIDTH_MAX = 7, DEPTH_MAX = 8 };
enum { ORIGINAL }; /* of psti_draw.v: the picture's own weight, then those of the chains */

/* In the order in which torchvision counts them; the last four only with all_ops. */
static const uint8_t changes[] = {
    PSTI_SHEAR_X,   PSTI_SHEAR_Y,  PSTI_TRANSLATE_X,  PSTI_TRANSLATE_Y, PSTI_ROTATE,
    PSTI_POSTERIZE, PSTI_SOLARIZE, PSTI_AUTOCONTRAST, PSTI_EQUALIZE,    PSTI_BRIGHTNESS,
    PSTI_COLOR,     PSTI_CONTRAST, PSTI_SHARPNESS};
enum { CHANGES = sizeof changes / sizeof *changes };

static const psti_space space = {
    .shear = 0.3, .rotate = 30, .color = 0.9, .shift_thirds = true, .bits = 4, .bits_less = 4};

static const psti_param table[] = {
    {.name = "severity",
     .type = PSTI_P_INT,
     .offset = offsetof(augmix_params, severity),
     .min = 1,
     .max = BINS,
     .def = "3",
     .help = "changes are of one of the first so many of 10 strengths"},
    {.name = "width",
     .type = PSTI_P_INT,
     .offset = offsetof(augmix_params, width),
     .min = 1,
     .max = WIDTH_MAX,
     .def = "3",
     .help = "chains"},
    {.name = "depth",
     .type = PSTI_P_INT,
     .offset = offsetof(augmix_params, depth),
     .min = -1,
     .max = DEPTH_MAX,
     .def = "-1",
     .help = "changes of a chain; 0 or less: 1 to 3, drawn"},
    {.name = "alpha",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(augmix_params, alpha),
     .min = 0.05,
     .max = 1000,
     .def = "1",
     .help = "of the distributions of the weights: the larger, the more equal"},
    {.name = "all_ops",
     .type = PSTI_P_BOOL,
     .offset = offsetof(augmix_params, all_ops),
     .def = "true",
     .help = "brightness, colour, contrast and sharpness too"},
    PSTI_PARAM_POLICY_FILTER("bilinear"),
    PSTI_PARAM_POLICY_FILL,
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    const augmix_params *params = p;
    const int64_t depth = params->depth > 0 ? params->depth : 3;
    if (params->width * depth > PSTI_PICKS_MAX)
        return psti_fail(err, PST_EPIPELINE, "augmix", NULL,
                         "%lld chains of %lld changes are more than %d changes",
                         (long long)params->width, (long long)depth, PSTI_PICKS_MAX);
    if (params->base.warp.interpolation == PSTI_BICUBIC)
        return psti_fail(err, PST_EPIPELINE, "augmix", NULL,
                         "interpolation is nearest or bilinear, as on tensors");
    return 0;
}

static void draw_chain(const augmix_params *params, psti_rng *rng, int depth, const psti_geom *in,
                       psti_draw *draw)
{
    const uint64_t count = params->all_ops ? CHANGES : CHANGES - 4;
    for (int i = 0; i < depth; i++) {
        const int change = changes[psti_rng_below(rng, count)];
        const int bin = psti_change_has_magnitude(change)
                            ? (int)psti_rng_below(rng, (uint64_t)params->severity)
                            : 0;
        psti_draw_signed(draw, rng, change, psti_space_at(&space, change, bin, BINS, in));
    }
}

/* The picture's weight, the chains' weights, then chain by chain its depth and changes. A chain's
 * first change carries the chain's length. */
static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    const augmix_params *params = p;
    double share[2], weights[WIDTH_MAX];
    psti_draw_whole(draw, in);
    *out = *in;
    psti_draw_dirichlet(rng, params->alpha, 2, share);
    psti_draw_dirichlet(rng, params->alpha, (int)params->width, weights);
    draw->v[ORIGINAL] = (double)(float)share[0];
    for (int64_t i = 0; i < params->width; i++) {
        const float part = (float)weights[i] * (float)share[1];
        draw->v[ORIGINAL + 1 + i] = (double)part;
        const int depth = params->depth > 0 ? (int)params->depth : 1 + (int)psti_rng_below(rng, 3);
        const int first = draw->pick_count;
        draw_chain(params, rng, depth, in, draw);
        draw->picks[first].chain = (uint16_t)depth;
    }
    return psti_policy_check("augmix", &params->base, in, err);
}

/* Sums of all pixels, rows packed. */
static void mix_in(float *sums, const psti_field *picture, float weight, bool first)
{
    const size_t row = (size_t)(picture->shape[1] * picture->shape[2]);
    for (int64_t y = 0; y < picture->shape[0]; y++, sums += row) {
        const uint8_t *src = picture->data + (size_t)y * picture->stride;
        for (size_t i = 0; i < row; i++) {
            const float part = weight * (float)src[i];
            sums[i] = first ? part : sums[i] + part;
        }
    }
}

static void write_sums(const float *sums, psti_field *out)
{
    const size_t row = (size_t)(out->shape[1] * out->shape[2]);
    for (int64_t y = 0; y < out->shape[0]; y++, sums += row) {
        uint8_t *dst = out->data + (size_t)y * out->stride;
        for (size_t i = 0; i < row; i++)
            dst[i] = (uint8_t)(int)sums[i];
    }
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    const augmix_params *params = p;
    const psti_policy_how how = {(psti_filter)params->base.warp.interpolation,
                                 &params->base.warp.fill, PSTI_LIKE_TENSOR};
    const size_t pixels = (size_t)(in->shape[0] * in->shape[1] * in->shape[2]);
    psti_field spare;
    int rc = psti_px_check("augmix", in, err);
    if (rc == 0)
        rc = psti_policy_spare(&ctx->spare[0], in, &spare, err);
    if (rc == 0 && psti_buf_need(PSTI_MEM_OP, &ctx->spare[1], pixels * sizeof(float)) < 0)
        rc = psti_fail(err, -ENOMEM, "augmix", NULL, "no memory for %zu sums", pixels);
    if (rc < 0)
        return rc;
    float *sums = (float *)(void *)ctx->spare[1].data;
    mix_in(sums, in, (float)draw->v[ORIGINAL], true);
    const psti_pick *chain = draw->picks;
    for (int64_t i = 0; rc == 0 && i < params->width; i++) {
        rc = psti_policy_chain(chain, chain->chain, &how, ctx, in, out, &spare, err);
        mix_in(sums, out, (float)draw->v[ORIGINAL + 1 + i], false);
        chain += chain->chain;
    }
    if (rc == 0)
        write_sums(sums, out);
    return rc;
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)p, (void)draw, (void)out;
    const size_t sums = (size_t)(in->rows * in->cols * in->channels) * sizeof(float) + 64;
    return psti_policy_scratch(in) + sums / 8 * 9 + 16;
}

const psti_op psti_op_augmix = {
    .name = "augmix",
    .summary = "chains of changes mixed with each other and the picture",
    .params = table,
    .params_bytes = sizeof(augmix_params),
    .flags = PSTI_OP_RANDOM,
    .check = check,
    .infer = psti_infer_same,
    .decide = decide,
    .scratch = scratch,
    .run = run,
};
