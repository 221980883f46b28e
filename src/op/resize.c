/* SPDX-License-Identifier: Apache-2.0
 * resize: the whole picture to another size. */
#include "core/status.h"
#include "op/op_priv.h"

typedef struct resize_params {
    psti_list size;
    int interpolation;
    int64_t max_size;
    int rule;
} resize_params;

enum { RULE_TORCHVISION, RULE_MLPERF };
static const char *const rule_words[] = {"torchvision", "mlperf", NULL};

static const psti_param table[] = {
    {.name = "size",
     .type = PSTI_P_LIST,
     .offset = offsetof(resize_params, size),
     .min = 1,
     .max = PSTI_SIZE_MAX,
     .min_count = 1,
     .max_count = 2,
     .whole = true,
     .help = "one number: the shorter side, the ratio is kept; two: rows, columns"},
    {.name = "interpolation",
     .type = PSTI_P_WORD,
     .offset = offsetof(resize_params, interpolation),
     .words = psti_filter_words,
     .def = "bilinear",
     .help = "filter for images; masks take the nearest pixel"},
    {.name = "max_size",
     .type = PSTI_P_INT,
     .offset = offsetof(resize_params, max_size),
     .min = 0,
     .max = PSTI_SIZE_MAX,
     .def = "0",
     .help = "with one number: the longer side is held to this; 0 = no limit"},
    {.name = "rule",
     .type = PSTI_P_WORD,
     .offset = offsetof(resize_params, rule),
     .words = rule_words,
     .def = "torchvision",
     .help = "how sides are rounded that max_size holds: mlperf rounds the shorter one first"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    const resize_params *params = p;
    if (params->max_size == 0)
        return 0;
    if (params->size.count != 1)
        return psti_fail(err, PST_EPIPELINE, "resize", NULL,
                         "max_size goes with a size of one number");
    if (params->max_size <= params->size.v[0])
        return psti_fail(err, PST_EPIPELINE, "resize", NULL,
                         "max_size (%lld) must be larger than size (%lld)",
                         (long long)params->max_size, (long long)params->size.v[0]);
    return 0;
}

/* Quotients are formed in double and cut off, as the ratio of two Python integers is. */
static void sizes(const resize_params *params, const psti_geom *in, psti_geom *out)
{
    *out = *in;
    if (params->size.count > 1) {
        psti_size_of(&params->size, &out->rows, &out->cols);
        return;
    }
    const bool tall = in->cols <= in->rows;
    const double shorter = (double)(tall ? in->cols : in->rows);
    const double longer = (double)(tall ? in->rows : in->cols);
    const double size = params->size.v[0], limit = (double)params->max_size;
    int64_t new_short = (int64_t)size, new_long = (int64_t)(size * longer / shorter);
    if (params->rule == RULE_MLPERF) {
        if (params->max_size > 0 && longer / shorter * size > limit)
            new_short = psti_round_even(limit * shorter / longer);
        new_long = (int64_t)((double)new_short * longer / shorter);
        if (new_short == (int64_t)shorter) /* then it stays as it is */
            new_long = (int64_t)longer;
        out->rows = tall ? new_long : new_short;
        out->cols = tall ? new_short : new_long;
        return;
    }
    if (params->max_size > 0 && new_long > params->max_size) {
        new_short = (int64_t)(limit * (double)new_short / (double)new_long);
        new_long = params->max_size;
    }
    out->rows = tall ? new_long : new_short;
    out->cols = tall ? new_short : new_long;
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    const resize_params *params = p;
    if (params->size.count > 1 || (in->rows > 0 && in->cols > 0)) {
        sizes(params, in, out);
        return;
    }
    *out = (psti_geom){-1, -1, in->channels};
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)rng;
    psti_draw_whole(draw, in);
    sizes(p, in, out);
    draw->act = out->rows != in->rows || out->cols != in->cols;
    return psti_out_check("resize", out, err);
}

static void objects(const void *p, const psti_draw *draw, const psti_geom *in, const psti_geom *out,
                    psti_objects *o)
{
    (void)p, (void)draw, (void)in;
    psti_objects_resize(o, out->rows, out->cols);
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)in;
    const resize_params *params = p;
    return psti_resample_scratch((psti_filter)params->interpolation, draw, out);
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    const resize_params *params = p;
    return psti_resample((psti_filter)params->interpolation, draw, ctx, in, out, err);
}

const psti_op psti_op_resize = {
    .name = "resize",
    .summary = "the whole picture to another size",
    .params = table,
    .params_bytes = sizeof(resize_params),
    .flags = PSTI_OP_GEOMETRIC,
    .check = check,
    .infer = infer,
    .decide = decide,
    .objects = objects,
    .scratch = scratch,
    .run = run,
};
