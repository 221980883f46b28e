/* SPDX-License-Identifier: Apache-2.0
 * color_jitter: brightness, contrast, saturation and hue changed by factors drawn at random, one
 * after the other in an order drawn at random. What has no range is left out. In place. */
#include "core/status.h"
#include "op/color.h"
#include "op/op_priv.h"

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, PARTS };

typedef struct color_jitter_params {
    psti_list by[PARTS];
    double p;
    int like;
} color_jitter_params;

#define PART(NAME, WHICH, LOW, HIGH, HELP)                                                         \
    {                                                                                              \
        .name = (NAME), .type = PSTI_P_LIST, .offset = offsetof(color_jitter_params, by[WHICH]),   \
        .min = (LOW), .max = (HIGH), .min_count = 1, .max_count = 2, .def = "0", .help = (HELP)    \
    }

static const char factor_help[] = "x: a factor of max(0, 1 - x) to 1 + x; two: least and largest";

static const psti_param table[] = {
    PART("brightness", BRIGHTNESS, 0, 1000, factor_help),
    PART("contrast", CONTRAST, 0, 1000, factor_help),
    PART("saturation", SATURATION, 0, 1000, factor_help),
    PART("hue", HUE, -0.5, 0.5, "x: turned by -x to x of the circle; two: least and largest"),
    {.name = "p",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(color_jitter_params, p),
     .min = 0,
     .max = 1,
     .def = "1",
     .help = "probability"},
    {.name = "like",
     .type = PSTI_P_WORD,
     .offset = offsetof(color_jitter_params, like),
     .words = psti_like_words,
     .def = "pil",
     .help = PSTI_LIKE_HELP},
    {.name = NULL},
};

/* The range that a parameter stands for. */
static void range_of(const color_jitter_params *params, int part, double *low, double *high)
{
    const psti_list *by = &params->by[part];
    const double centre = part == HUE ? 0 : 1;
    *low = by->count == 2 ? by->v[0] : centre - by->v[0];
    *high = by->count == 2 ? by->v[1] : centre + by->v[0];
    if (part != HUE && *low < 0)
        *low = 0;
}

static bool acts(const color_jitter_params *params, int part)
{
    double low, high;
    range_of(params, part, &low, &high);
    const double centre = part == HUE ? 0 : 1;
    return low != centre || high != centre;
}

static int check(const void *p, pst_error *err)
{
    const color_jitter_params *params = p;
    for (int part = 0; part < PARTS; part++) {
        double low, high;
        range_of(params, part, &low, &high);
        if (low > high)
            return psti_fail(err, PST_EPIPELINE, "color_jitter", NULL,
                             "%s: %s; write a number of 0 or more, or (least, largest)",
                             table[part].name,
                             params->by[part].count == 2 ? "the least is above the largest"
                                                         : "one number cannot be negative");
    }
    return 0;
}

/* Draws, in this order: whether it acts, the order, each factor that has a range. v[0..3]: factors;
 * v[4..7]: the parts in the order in which they are carried out, -1 for one that is left out. */
static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    const color_jitter_params *params = p;
    int order[PARTS] = {0, 1, 2, 3};
    bool any = false;
    psti_draw_whole(draw, in);
    draw->act = psti_rng_unit(rng) < params->p;
    for (int i = PARTS - 1; i > 0; i--) {
        const int other = (int)psti_rng_below(rng, (uint64_t)i + 1), keep = order[i];
        order[i] = order[other];
        order[other] = keep;
    }
    for (int part = 0; part < PARTS; part++) {
        double low, high;
        range_of(params, part, &low, &high);
        if (acts(params, part))
            draw->v[part] = psti_rng_range(rng, low, high);
    }
    for (int i = 0; i < PARTS; i++) {
        draw->v[PARTS + i] = acts(params, order[i]) ? order[i] : -1;
        any |= acts(params, order[i]);
    }
    draw->act = draw->act && any;
    *out = *in;
    return psti_px_check_channels("color_jitter", in->channels, err);
}

static void run_part(int part, const psti_field *in, psti_field *out, double factor, psti_like like)
{
    switch (part) {
    case BRIGHTNESS:
        psti_px_brightness(in, out, factor, like);
        break;
    case CONTRAST:
        psti_px_contrast(in, out, factor, like);
        break;
    case SATURATION:
        psti_px_saturation(in, out, factor, like);
        break;
    default:
        psti_px_hue(in, out, factor, like);
    }
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    const color_jitter_params *params = p;
    const psti_field *from = in;
    (void)ctx;
    const int rc = psti_px_check("color_jitter", in, err);
    for (int i = 0; rc == 0 && i < PARTS; i++) {
        const int part = (int)draw->v[PARTS + i];
        if (part < 0)
            continue;
        run_part(part, from, out, draw->v[part], (psti_like)params->like);
        from = out;
    }
    return rc;
}

const psti_op psti_op_color_jitter = {
    .name = "color_jitter",
    .summary = "brightness, contrast, saturation and hue changed at random, in random order",
    .params = table,
    .params_bytes = sizeof(color_jitter_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_INPLACE,
    .check = check,
    .infer = psti_infer_same,
    .decide = decide,
    .run = run,
};
