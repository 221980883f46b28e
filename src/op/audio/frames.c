/* SPDX-License-Identifier: Apache-2.0
 * feature_norm, spec_augment and stack: ops on frames of features. */
#include <string.h>

#include "core/status.h"
#include "op/audio/audio_ops.h"

static float *copied(const psti_field *in, const psti_field *out)
{
    if (in->data != out->data)
        memcpy(out->data, in->data, in->bytes);
    return (float *)(void *)out->data;
}

/* ---- feature_norm ---------------------------------------------------------------------------- */

typedef struct norm_params {
    double eps;
} norm_params;

static const psti_param norm_table[] = {
    {.name = "eps",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(norm_params, eps),
     .min = 1e-30,
     .max = 1e6,
     .def = "0.00001",
     .help = "added to the deviation"},
    {.name = NULL},
};

static int norm_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                       psti_geom *out, pst_error *err)
{
    (void)p, (void)rng;
    return psti_audio_decide_floats("feature_norm", in, draw, out, err);
}

static size_t norm_scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                           const psti_geom *out)
{
    (void)p, (void)draw, (void)out;
    return psti_audio_scratch(2 * (size_t)in->cols * sizeof(double));
}

static int norm_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)draw;
    const norm_params *params = p;
    const int64_t rows = in->shape[0], cols = in->shape[1];
    if (psti_buf_need(PSTI_MEM_OP, &ctx->weights, 2 * (size_t)cols * sizeof(double)) < 0)
        return psti_audio_no_memory("feature_norm", err);
    psti_frames_normalize(copied(in, out), rows, cols, params->eps,
                          (double *)(void *)ctx->weights.data);
    return 0;
}

const psti_op psti_op_feature_norm = {
    .name = "feature_norm",
    .summary = "each feature less its mean over the recording, divided by its deviation",
    .params = norm_table,
    .params_bytes = sizeof(norm_params),
    .flags = PSTI_OP_INPLACE | PSTI_OP_RETYPES,
    .on = PSTI_ON_FRAMES,
    .infer = psti_audio_infer_floats,
    .decide = norm_decide,
    .scratch = norm_scratch,
    .run = norm_run,
};

/* ---- spec_augment ---------------------------------------------------------------------------- */

typedef struct spec_params {
    int64_t freq_masks, freq, time_masks;
    double time;
} spec_params;

static const psti_param spec_table[] = {
    {.name = "freq_masks",
     .type = PSTI_P_INT,
     .offset = offsetof(spec_params, freq_masks),
     .min = 0,
     .max = 1000,
     .def = "2",
     .help = "bands of features that are laid zero"},
    {.name = "freq",
     .type = PSTI_P_INT,
     .offset = offsetof(spec_params, freq),
     .min = 0,
     .max = 4096,
     .def = "20",
     .help = "the most features of a band"},
    {.name = "time_masks",
     .type = PSTI_P_INT,
     .offset = offsetof(spec_params, time_masks),
     .min = 0,
     .max = 1000,
     .def = "10",
     .help = "stretches of time that are laid zero"},
    {.name = "time",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(spec_params, time),
     .min = 0,
     .max = 1000000,
     .def = "0.03",
     .help = "the most frames of a stretch; below 1: as a share of the recording"},
    {.name = NULL},
};

/* What the bands are drawn from is drawn here, since they may be many. */
static int spec_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                       psti_geom *out, pst_error *err)
{
    const spec_params *params = p;
    const int rc = psti_audio_decide_floats("spec_augment", in, draw, out, err);
    draw->act = params->freq_masks > 0 || params->time_masks > 0;
    draw->v[0] = (double)(psti_rng_u64(rng) >> 11);
    return rc;
}

/* Of 0 to `most`, then where: the reference never reaches the last place, nor does this. */
static psti_band draw_band(psti_rng *rng, int64_t most, int64_t all)
{
    const int64_t count = (int64_t)psti_rng_below(rng, (uint64_t)most + 1);
    const int64_t places = all > count ? all - count : 1;
    return (psti_band){.first = (int64_t)psti_rng_below(rng, (uint64_t)places), .count = count};
}

static int spec_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)ctx, (void)err;
    const spec_params *params = p;
    const int64_t rows = in->shape[0], cols = in->shape[1];
    const int64_t most =
        params->time < 1 ? psti_round_even((double)rows * params->time) : (int64_t)params->time;
    float *frames = copied(in, out);
    psti_rng rng;
    psti_rng_init(&rng, &(psti_rng_key){.seed = (uint64_t)draw->v[0]}, 0);
    for (int64_t i = 0; i < params->freq_masks; i++)
        psti_frames_mask_cols(frames, rows, cols, draw_band(&rng, params->freq, cols));
    for (int64_t i = 0; i < params->time_masks; i++)
        psti_frames_mask_rows(frames, rows, cols, draw_band(&rng, most, rows));
    return 0;
}

const psti_op psti_op_spec_augment = {
    .name = "spec_augment",
    .summary = "random bands of features and stretches of time laid zero",
    .params = spec_table,
    .params_bytes = sizeof(spec_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_INPLACE | PSTI_OP_RETYPES,
    .on = PSTI_ON_FRAMES,
    .infer = psti_audio_infer_floats,
    .decide = spec_decide,
    .run = spec_run,
};

/* ---- stack ----------------------------------------------------------------------------------- */

typedef struct stack_params {
    int64_t frames, subsample;
} stack_params;

static const psti_param stack_table[] = {
    {.name = "frames",
     .type = PSTI_P_INT,
     .offset = offsetof(stack_params, frames),
     .min = 1,
     .max = 64,
     .def = "3",
     .help = "that follow each other and become one; zeros past the end"},
    {.name = "subsample",
     .type = PSTI_P_INT,
     .offset = offsetof(stack_params, subsample),
     .min = 1,
     .max = 64,
     .def = "3",
     .help = "frames from one result to the next"},
    {.name = NULL},
};

static void stack_infer(const void *p, const psti_geom *in, psti_geom *out)
{
    const stack_params *params = p;
    psti_audio_infer_floats(p, in, out);
    out->rows = in->rows < 0 ? -1 : psti_frames_stacked(in->rows, params->subsample);
    out->cols = in->cols < 0 ? -1 : in->cols * params->frames;
}

static int stack_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                        psti_geom *out, pst_error *err)
{
    (void)rng;
    const stack_params *params = p;
    const int rc = psti_audio_decide_floats("stack", in, draw, out, err);
    stack_infer(p, in, out);
    draw->act = params->frames > 1 || params->subsample > 1;
    return rc;
}

static int stack_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                     psti_field *out, pst_error *err)
{
    (void)draw, (void)ctx, (void)err;
    const stack_params *params = p;
    psti_frames_stack((const float *)(const void *)in->data, in->shape[0], in->shape[1],
                      params->frames, params->subsample, (float *)(void *)out->data);
    return 0;
}

const psti_op psti_op_stack = {
    .name = "stack",
    .summary = "frames that follow each other as one",
    .params = stack_table,
    .params_bytes = sizeof(stack_params),
    .flags = PSTI_OP_RETYPES,
    .on = PSTI_ON_FRAMES,
    .infer = stack_infer,
    .decide = stack_decide,
    .run = stack_run,
};
