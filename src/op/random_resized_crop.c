/* SPDX-License-Identifier: Apache-2.0
 * random_resized_crop: a window of random area, shape and place, brought to one size. The filter
 * sees nothing outside the window. */
#include "core/math.h"
#include "core/status.h"
#include "op/op_priv.h"

typedef struct random_resized_crop_params {
    psti_list size, scale, ratio;
    int interpolation;
} random_resized_crop_params;

static const psti_param table[] = {
    {.name = "size",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_resized_crop_params, size),
     .min = 1,
     .max = PSTI_SIZE_MAX,
     .min_count = 1,
     .max_count = 2,
     .whole = true,
     .help = "of the result: one number for a square, or rows, columns"},
    {.name = "scale",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_resized_crop_params, scale),
     .min = 0,
     .max = 1,
     .min_count = 2,
     .max_count = 2,
     .def = "(0.08, 1)",
     .help = "least and largest share of the picture's area"},
    {.name = "ratio",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_resized_crop_params, ratio),
     .min = 0.001,
     .max = 1000,
     .min_count = 2,
     .max_count = 2,
     .def = "(0.75, 1.3333333333333333)",
     .help = "least and largest width by height"},
    {.name = "interpolation",
     .type = PSTI_P_WORD,
     .offset = offsetof(random_resized_crop_params, interpolation),
     .words = psti_filter_words,
     .def = "bilinear",
     .help = "filter for images; masks take the nearest pixel"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    const random_resized_crop_params *params = p;
    if (params->scale.v[0] > params->scale.v[1])
        return psti_fail(err, PST_EPIPELINE, "random_resized_crop", NULL,
                         "scale is (least, largest): %g is more than %g", params->scale.v[0],
                         params->scale.v[1]);
    if (params->scale.v[1] <= 0)
        return psti_fail(err, PST_EPIPELINE, "random_resized_crop", NULL,
                         "the largest scale must be above 0");
    if (params->ratio.v[0] > params->ratio.v[1])
        return psti_fail(err, PST_EPIPELINE, "random_resized_crop", NULL,
                         "ratio is (least, largest): %g is more than %g", params->ratio.v[0],
                         params->ratio.v[1]);
    return 0;
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    const random_resized_crop_params *params = p;
    out->channels = in->channels;
    psti_size_of(&params->size, &out->rows, &out->cols);
}

/* Ten tries; true when one fits, with size and place in draw. */
static bool try_windows(const random_resized_crop_params *params, psti_rng *rng,
                        const psti_geom *in, psti_draw *draw)
{
    const double area = (double)in->rows * (double)in->cols;
    const double low = psti_ln(params->ratio.v[0]), high = psti_ln(params->ratio.v[1]);
    for (int i = 0; i < 10; i++) {
        const double target = area * psti_rng_range(rng, params->scale.v[0], params->scale.v[1]);
        const double ratio = psti_exp(psti_rng_range(rng, low, high));
        draw->cols = psti_round_even(__builtin_sqrt(target * ratio));
        draw->rows = psti_round_even(__builtin_sqrt(target / ratio));
        if (draw->cols < 1 || draw->cols > in->cols || draw->rows < 1 || draw->rows > in->rows)
            continue;
        draw->top = (int64_t)psti_rng_below(rng, (uint64_t)(in->rows - draw->rows + 1));
        draw->left = (int64_t)psti_rng_below(rng, (uint64_t)(in->cols - draw->cols + 1));
        return true;
    }
    return false;
}

static int64_t between(int64_t value, int64_t most)
{
    return value < 1 ? 1 : value > most ? most : value;
}

/* The largest window in the middle whose shape is allowed. */
static void central_window(const random_resized_crop_params *params, const psti_geom *in,
                           psti_draw *draw)
{
    const double shape = (double)in->cols / (double)in->rows;
    draw->rows = in->rows;
    draw->cols = in->cols;
    if (shape < params->ratio.v[0])
        draw->rows = between(psti_round_even((double)in->cols / params->ratio.v[0]), in->rows);
    else if (shape > params->ratio.v[1])
        draw->cols = between(psti_round_even((double)in->rows * params->ratio.v[1]), in->cols);
    draw->top = (in->rows - draw->rows) / 2;
    draw->left = (in->cols - draw->cols) / 2;
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    psti_draw_whole(draw, in);
    if (!try_windows(p, rng, in, draw))
        central_window(p, in, draw);
    infer(p, in, out);
    return psti_out_check("random_resized_crop", out, err);
}

static void objects(const void *p, const psti_draw *draw, const psti_geom *in, const psti_geom *out,
                    psti_objects *o)
{
    (void)p, (void)in;
    psti_objects_crop(o, draw->left, draw->top, draw->rows, draw->cols);
    psti_objects_drop_empty(o);
    psti_objects_resize(o, out->rows, out->cols);
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)in;
    const random_resized_crop_params *params = p;
    return psti_resample_scratch((psti_filter)params->interpolation, draw, out);
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    const random_resized_crop_params *params = p;
    return psti_resample((psti_filter)params->interpolation, draw, ctx, in, out, err);
}

const psti_op psti_op_random_resized_crop = {
    .name = "random_resized_crop",
    .summary = "a window of random area, shape and place, brought to one size",
    .params = table,
    .params_bytes = sizeof(random_resized_crop_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_CROPS | PSTI_OP_GEOMETRIC,
    .check = check,
    .infer = infer,
    .decide = decide,
    .objects = objects,
    .scratch = scratch,
    .run = run,
};
