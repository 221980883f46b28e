/* SPDX-License-Identifier: Apache-2.0
 * Ops that change each value of an image by itself: clip, intensity, random_brightness and
 * gaussian_noise. What comes out is f32, whatever came in. In place where it was f32 already. */
#include "op/kernels/kernels.h"
#include "op/volume/volume.h"

#include "core/status.h"

static int map(const char *op, const psti_field *in, psti_field *out, psti_volume_fn *fn,
               const void *how, pst_error *err)
{
    const int rc = psti_volume_check(op, in, err);
    if (rc == 0)
        psti_volume_map(in, out, fn, how);
    return rc;
}

/* ---- clip ------------------------------------------------------------------------------------ */

typedef struct clip_params {
    double low, high;
} clip_params;

static const psti_param clip_table[] = {
    {.name = "low",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(clip_params, low),
     .min = -1e30,
     .max = 1e30,
     .help = "values below become this"},
    {.name = "high",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(clip_params, high),
     .min = -1e30,
     .max = 1e30,
     .help = "values above become this"},
    {.name = NULL},
};

static int clip_check(const void *p, pst_error *err)
{
    const clip_params *params = p;
    if (params->low <= params->high)
        return 0;
    return psti_fail(err, PST_EPIPELINE, "clip", NULL, "low is %g and high is %g: low first",
                     params->low, params->high);
}

static void clip_values(const void *how, const float *src, size_t n, uint64_t first, float *dst)
{
    (void)first;
    const clip_params *params = how;
    psti_kernels_get()->values.clip(src, n, (float)params->low, (float)params->high, dst);
}

static int clip_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)draw, (void)ctx;
    return map("clip", in, out, clip_values, p, err);
}

const psti_op psti_op_clip = {
    .name = "clip",
    .summary = "values between two bounds",
    .params = clip_table,
    .params_bytes = sizeof(clip_params),
    .flags = PSTI_OP_INPLACE | PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .check = clip_check,
    .infer = psti_volume_infer_floats,
    .decide = psti_volume_decide_floats,
    .run = clip_run,
};

/* ---- intensity ------------------------------------------------------------------------------- */

typedef struct intensity_params {
    double mean, std;
} intensity_params;

static const psti_param intensity_table[] = {
    {.name = "mean",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(intensity_params, mean),
     .min = -1e30,
     .max = 1e30,
     .help = "is subtracted first"},
    {.name = "std",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(intensity_params, std),
     .min = 1e-30,
     .max = 1e30,
     .help = "divides what is left"},
    {.name = NULL},
};

static void center_values(const void *how, const float *src, size_t n, uint64_t first, float *dst)
{
    (void)first;
    const intensity_params *params = how;
    psti_kernels_get()->values.center(src, n, (float)params->mean, (float)params->std, dst);
}

static int intensity_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx,
                         const psti_field *in, psti_field *out, pst_error *err)
{
    (void)draw, (void)ctx;
    return map("intensity", in, out, center_values, p, err);
}

const psti_op psti_op_intensity = {
    .name = "intensity",
    .summary = "(x - mean) / std",
    .params = intensity_table,
    .params_bytes = sizeof(intensity_params),
    .flags = PSTI_OP_INPLACE | PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .infer = psti_volume_infer_floats,
    .decide = psti_volume_decide_floats,
    .run = intensity_run,
};

/* ---- random_brightness ----------------------------------------------------------------------- */

typedef struct brightness_params {
    psti_list factor;
    double p;
} brightness_params;

static const psti_param brightness_table[] = {
    {.name = "factor",
     .type = PSTI_P_LIST,
     .offset = offsetof(brightness_params, factor),
     .min = 0,
     .max = 1e6,
     .min_count = 2,
     .max_count = 2,
     .help = "the least and the most that values are multiplied by"},
    {.name = "p",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(brightness_params, p),
     .min = 0,
     .max = 1,
     .def = "0.1",
     .help = "probability"},
    {.name = NULL},
};

static int brightness_check(const void *p, pst_error *err)
{
    const brightness_params *params = p;
    if (params->factor.v[0] <= params->factor.v[1])
        return 0;
    return psti_fail(err, PST_EPIPELINE, "random_brightness", NULL,
                     "factor is (%g, %g): the smaller one first", params->factor.v[0],
                     params->factor.v[1]);
}

/* Two draws, whether it acts or not. */
static int brightness_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                             psti_geom *out, pst_error *err)
{
    const brightness_params *params = p;
    psti_volume_decide_floats(p, rng, in, draw, out, err);
    draw->act = psti_rng_unit(rng) < params->p;
    draw->v[0] = psti_rng_range(rng, params->factor.v[0], params->factor.v[1]);
    return 0;
}

static void scale_values(const void *how, const float *src, size_t n, uint64_t first, float *dst)
{
    (void)first;
    const psti_draw *draw = how;
    psti_kernels_get()->values.scale(src, n, (float)draw->v[0], dst);
}

static int brightness_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx,
                          const psti_field *in, psti_field *out, pst_error *err)
{
    (void)p, (void)ctx;
    return map("random_brightness", in, out, scale_values, draw, err);
}

const psti_op psti_op_random_brightness = {
    .name = "random_brightness",
    .summary = "values times a random factor, with probability p",
    .params = brightness_table,
    .params_bytes = sizeof(brightness_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_INPLACE | PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .check = brightness_check,
    .infer = psti_volume_infer_floats,
    .decide = brightness_decide,
    .run = brightness_run,
};

/* ---- gaussian_noise -------------------------------------------------------------------------- */

typedef struct noise_params {
    double std, p, mean;
} noise_params;

static const psti_param noise_table[] = {
    {.name = "std",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(noise_params, std),
     .min = 0,
     .max = 1e6,
     .help = "the deviation is drawn between 0 and this"},
    {.name = "p",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(noise_params, p),
     .min = 0,
     .max = 1,
     .def = "0.1",
     .help = "probability"},
    {.name = "mean",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(noise_params, mean),
     .min = -1e6,
     .max = 1e6,
     .def = "0",
     .help = "of the noise"},
    {.name = NULL},
};

/* Three draws, whether it acts or not: then the deviation, and what the noise is made from, which a
 * double holds exactly. */
static int noise_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                        psti_geom *out, pst_error *err)
{
    const noise_params *params = p;
    psti_volume_decide_floats(p, rng, in, draw, out, err);
    draw->act = psti_rng_unit(rng) < params->p;
    draw->v[0] = psti_rng_range(rng, 0, params->std);
    draw->v[1] = (double)(psti_rng_u64(rng) >> 11);
    return 0;
}

static void add_noise(const void *how, const float *src, size_t n, uint64_t first, float *dst)
{
    psti_noise noise = *(const psti_noise *)how;
    noise.first = first;
    psti_kernels_get()->values.add_normals(src, n, &noise, dst);
}

static int noise_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                     psti_field *out, pst_error *err)
{
    (void)ctx;
    const noise_params *params = p;
    const psti_noise noise = {
        .seed = (uint64_t)draw->v[1], .mean = (float)params->mean, .deviation = (float)draw->v[0]};
    return map("gaussian_noise", in, out, add_noise, &noise, err);
}

const psti_op psti_op_gaussian_noise = {
    .name = "gaussian_noise",
    .summary = "normal noise of a random deviation added, with probability p",
    .params = noise_table,
    .params_bytes = sizeof(noise_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_INPLACE | PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .infer = psti_volume_infer_floats,
    .decide = noise_decide,
    .run = noise_run,
};
