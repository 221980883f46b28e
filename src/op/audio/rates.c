/* SPDX-License-Identifier: Apache-2.0
 * resample and speed: recordings at another rate, and played faster or slower. Both are sinc.c with
 * two whole numbers, which are in the draw. */
#include "core/status.h"
#include "op/audio/audio_ops.h"

/* ---- both ------------------------------------------------------------------------------------ */

static int decide_rates(const char *op, int64_t from, int64_t to, const psti_geom *in,
                        psti_draw *draw, psti_geom *out, pst_error *err)
{
    psti_sinc how;
    const int rc = psti_audio_decide_floats(op, in, draw, out, err);
    if (rc < 0)
        return rc;
    if (!psti_sinc_init(&how, from, to))
        return psti_fail(err, PST_ELIMIT, op, NULL,
                         "%lld samples for %lld have no divisor in common that keeps the table of "
                         "weights below 64 MiB",
                         (long long)to, (long long)from);
    out->rows = psti_sinc_count(&how, in->rows);
    draw->act = how.from != how.to;
    draw->v[0] = (double)how.from;
    draw->v[1] = (double)how.to;
    return 0;
}

static psti_sinc rates_of(const psti_draw *draw)
{
    psti_sinc how;
    psti_sinc_init(&how, (int64_t)draw->v[0], (int64_t)draw->v[1]);
    return how;
}

static size_t scratch(const void *params, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)params, (void)out;
    const psti_sinc how = rates_of(draw);
    return psti_audio_floats_scratch(in) + psti_audio_scratch(psti_sinc_scratch(&how));
}

static int run_rates(const char *op, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                     psti_field *out, pst_error *err)
{
    const psti_sinc how = rates_of(draw);
    const float *samples = psti_audio_floats(in, ctx);
    if (!samples || psti_buf_need(PSTI_MEM_OP, &ctx->weights, psti_sinc_scratch(&how)) < 0)
        return psti_audio_no_memory(op, err);
    psti_sinc_run(&how, samples, in->shape[0], ctx->weights.data, (float *)(void *)out->data);
    return 0;
}

/* ---- resample -------------------------------------------------------------------------------- */

typedef struct resample_params {
    int64_t rate;
} resample_params;

static const psti_param resample_table[] = {
    {.name = "rate",
     .type = PSTI_P_INT,
     .offset = offsetof(resample_params, rate),
     .min = 1,
     .max = 768000,
     .help = "samples a second"},
    {.name = NULL},
};

static void resample_infer(const void *p, const psti_geom *in, psti_geom *out)
{
    const resample_params *params = p;
    psti_audio_infer_floats(p, in, out);
    out->rows = -1;
    out->unit[0] = (double)params->rate;
}

static int resample_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                           psti_geom *out, pst_error *err)
{
    (void)rng;
    const resample_params *params = p;
    if (!(in->unit[0] >= 1))
        return psti_fail(err, PST_EFIELD, "resample", NULL, "the recording's rate is not known");
    const int rc = decide_rates("resample", (int64_t)in->unit[0], params->rate, in, draw, out, err);
    out->unit[0] = (double)params->rate;
    return rc;
}

static int resample_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx,
                        const psti_field *in, psti_field *out, pst_error *err)
{
    (void)p;
    return run_rates("resample", draw, ctx, in, out, err);
}

const psti_op psti_op_audio_resample = {
    .name = "resample",
    .summary = "a recording at another rate",
    .params = resample_table,
    .params_bytes = sizeof(resample_params),
    .flags = PSTI_OP_RETYPES,
    .on = PSTI_ON_WAVES,
    .infer = resample_infer,
    .decide = resample_decide,
    .scratch = scratch,
    .run = resample_run,
};

/* ---- speed ----------------------------------------------------------------------------------- */

typedef struct speed_params {
    psti_list range;
    double step;
} speed_params;

static const psti_param speed_table[] = {
    {.name = "range",
     .type = PSTI_P_LIST,
     .offset = offsetof(speed_params, range),
     .min = 0.1,
     .max = 10,
     .min_count = 2,
     .max_count = 2,
     .def = "(0.85, 1.15)",
     .help = "least and largest factor; above 1 is faster and higher"},
    {.name = "step",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(speed_params, step),
     .min = 0.001,
     .max = 10,
     .def = "0.01",
     .help = "from one factor to the next, in thousandths"},
    {.name = NULL},
};

enum { PARTS = 1000 };

static int64_t parts_of(double x)
{
    return (int64_t)(x * PARTS + 0.5);
}

static int speed_check(const void *p, pst_error *err)
{
    const speed_params *params = p;
    if (params->range.v[0] > params->range.v[1])
        return psti_fail(err, PST_EPIPELINE, "speed", NULL,
                         "range is (%g, %g): the smaller one first", params->range.v[0],
                         params->range.v[1]);
    const double all[] = {params->range.v[0], params->range.v[1], params->step};
    for (int i = 0; i < 3; i++) {
        const double off = all[i] * PARTS - (double)parts_of(all[i]);
        if (off > 1e-6 || off < -1e-6)
            return psti_fail(err, PST_EPIPELINE, "speed", NULL,
                             "%g is no whole number of thousandths", all[i]);
    }
    return 0;
}

static void speed_infer(const void *p, const psti_geom *in, psti_geom *out)
{
    psti_audio_infer_floats(p, in, out);
    out->rows = -1;
}

static int speed_decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                        psti_geom *out, pst_error *err)
{
    const speed_params *params = p;
    const int64_t low = parts_of(params->range.v[0]), high = parts_of(params->range.v[1]),
                  step = parts_of(params->step);
    const int64_t chosen =
        low + step * (int64_t)psti_rng_below(rng, (uint64_t)((high - low) / step) + 1);
    return decide_rates("speed", chosen, PARTS, in, draw, out, err);
}

static int speed_run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                     psti_field *out, pst_error *err)
{
    (void)p;
    return run_rates("speed", draw, ctx, in, out, err);
}

const psti_op psti_op_speed = {
    .name = "speed",
    .summary = "a recording played at a random speed",
    .params = speed_table,
    .params_bytes = sizeof(speed_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_RETYPES,
    .on = PSTI_ON_WAVES,
    .check = speed_check,
    .infer = speed_infer,
    .decide = speed_decide,
    .scratch = scratch,
    .run = speed_run,
};
