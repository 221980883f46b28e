/* SPDX-License-Identifier: Apache-2.0
 * trim, dither and preemphasis: ops on a recording's samples one by one. */
#include <string.h>

#include "core/status.h"
#include "op/audio/audio_ops.h"
#include "op/kernels/kernels.h"

enum { CHUNK = 1024 };

/* ---- trim ------------------------------------------------------------------------------------ */

typedef struct trim_params {
    double top_db;
    int64_t frame, hop;
} trim_params;

static const psti_param trim_table[] = {
    {.name = "top_db",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(trim_params, top_db),
     .min = 0.1,
     .max = 200,
     .def = "60",
     .help = "decibels below the loudest frame at which one is silent"},
    {.name = "frame",
     .type = PSTI_P_INT,
     .offset = offsetof(trim_params, frame),
     .min = 2,
     .max = 1 << 20,
     .def = "2048",
     .help = "samples of a frame"},
    {.name = "hop",
     .type = PSTI_P_INT,
     .offset = offsetof(trim_params, hop),
     .min = 1,
     .max = 1 << 20,
     .def = "512",
     .help = "samples from one frame to the next; at most half a frame"},
    {.name = NULL},
};

/* With longer hops the samples between two frames would count in neither. */
static int trim_check(const void *p, pst_error *err)
{
    const trim_params *params = p;
    if (2 * params->hop <= params->frame)
        return 0;
    return psti_fail(err, PST_EPIPELINE, "trim", NULL,
                     "hop is %lld, more than half of the frame's %lld samples",
                     (long long)params->hop, (long long)params->frame);
}

static void trim_infer(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)p;
    *out = *in;
    out->rows = -1;
}

static int trim_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                       psti_geom *out, pst_error *err)
{
    (void)p, (void)rng;
    const int rc = psti_audio_decide_floats("trim", in, draw, out, err);
    *out = *in;
    return rc;
}

static int trim_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                    psti_field *out, pst_error *err)
{
    (void)draw, (void)ctx, (void)err;
    const trim_params *params = p;
    const psti_trim how = {.top_db = params->top_db, .frame = params->frame, .hop = params->hop};
    const psti_wave wave = psti_audio_wave(in);
    const size_t element = psti_dtype_bytes(in->dtype);
    int64_t first, end;
    psti_wave_trim(&how, &wave, &first, &end);
    if (end <= first) /* a recording keeps one sample */
        first = (end = wave.count) - 1;
    memmove(out->data, in->data + (size_t)first * element, (size_t)(end - first) * element);
    out->shape[0] = out->whole_rows = end - first;
    psti_field_pack(out);
    return 0;
}

const psti_op psti_op_trim = {
    .name = "trim",
    .summary = "a recording without the silence at its ends",
    .params = trim_table,
    .params_bytes = sizeof(trim_params),
    .flags = PSTI_OP_OPEN | PSTI_OP_INPLACE,
    .on = PSTI_ON_WAVES,
    .check = trim_check,
    .infer = trim_infer,
    .decide = trim_decide,
    .run = trim_run,
};

/* ---- dither ---------------------------------------------------------------------------------- */

typedef struct dither_params {
    double amount;
} dither_params;

static const psti_param dither_table[] = {
    {.name = "amount",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(dither_params, amount),
     .min = 0,
     .max = 1,
     .def = "0.00001",
     .help = "deviation of the noise, where a sample is -1 to 1"},
    {.name = NULL},
};

/* What the noise is made from is drawn; a double holds 53 bits exactly. */
static int dither_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                         psti_geom *out, pst_error *err)
{
    (void)p;
    const int rc = psti_audio_decide_floats("dither", in, draw, out, err);
    draw->v[0] = (double)(psti_rng_u64(rng) >> 11);
    return rc;
}

static int dither_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                      psti_field *out, pst_error *err)
{
    (void)ctx, (void)err;
    const dither_params *params = p;
    const psti_value_kernels *kernels = &psti_kernels_get()->values;
    const psti_wave wave = psti_audio_wave(in);
    psti_noise noise = {.seed = (uint64_t)draw->v[0], .deviation = (float)params->amount};
    float *to = (float *)(void *)out->data;
    for (int64_t i = 0; i < wave.count; i += CHUNK) {
        const int64_t n = wave.count - i < CHUNK ? wave.count - i : CHUNK;
        if (in->data != out->data)
            psti_wave_load(&wave, i, n, to + i);
        noise.first = (uint64_t)i;
        kernels->add_normals(to + i, (size_t)n, &noise, to + i);
    }
    return 0;
}

const psti_op psti_op_dither = {
    .name = "dither",
    .summary = "a little noise added to a recording",
    .params = dither_table,
    .params_bytes = sizeof(dither_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_INPLACE | PSTI_OP_RETYPES,
    .on = PSTI_ON_WAVES,
    .infer = psti_audio_infer_floats,
    .decide = dither_decide,
    .run = dither_run,
};

/* ---- preemphasis ----------------------------------------------------------------------------- */

typedef struct preemphasis_params {
    double share;
} preemphasis_params;

static const psti_param preemphasis_table[] = {
    {.name = "share",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(preemphasis_params, share),
     .min = -10,
     .max = 10,
     .def = "0.97",
     .help = "of the sample before, that is taken from each; the first stays"},
    {.name = NULL},
};

static int preemphasis_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                              psti_geom *out, pst_error *err)
{
    (void)p, (void)rng;
    return psti_audio_decide_floats("preemphasis", in, draw, out, err);
}

static int preemphasis_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx,
                           const psti_field *in, psti_field *out, pst_error *err)
{
    (void)draw, (void)ctx, (void)err;
    const preemphasis_params *params = p;
    const psti_wave wave = psti_audio_wave(in);
    float *to = (float *)(void *)out->data;
    if (in->data != out->data)
        psti_wave_load(&wave, 0, wave.count, to);
    psti_wave_emphasize(to, wave.count, (float)params->share);
    return 0;
}

const psti_op psti_op_preemphasis = {
    .name = "preemphasis",
    .summary = "a recording with its high tones raised",
    .params = preemphasis_table,
    .params_bytes = sizeof(preemphasis_params),
    .flags = PSTI_OP_INPLACE | PSTI_OP_RETYPES,
    .on = PSTI_ON_WAVES,
    .infer = psti_audio_infer_floats,
    .decide = preemphasis_decide,
    .run = preemphasis_run,
};
