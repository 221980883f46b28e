/* SPDX-License-Identifier: Apache-2.0
 * photometric_distort: the changes of colour that SSD is trained with. Brightness, contrast,
 * saturation and hue, each with probability p, contrast before or behind the two others; then,
 * with probability p, the channels in another order. In place. */
#include "core/status.h"
#include "op/color.h"
#include "op/detect/detect.h"

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, PARTS };
/* What draw.v[PARTS] holds: which of the changes are made. */
enum { DO_BRIGHTNESS = 1, DO_EARLY = 2, DO_SATURATION = 4, DO_HUE = 8, DO_LATE = 16 };

typedef struct photometric_params {
    psti_list by[PARTS];
    double p;
    int like;
} photometric_params;

#define PART(NAME, WHICH, LOW, HIGH, DEFAULT, HELP)                                                \
    {                                                                                              \
        .name = (NAME), .type = PSTI_P_LIST, .offset = offsetof(photometric_params, by[WHICH]),    \
        .min = (LOW), .max = (HIGH), .min_count = 1, .max_count = 2, .def = (DEFAULT),             \
        .help = (HELP)                                                                             \
    }

static const char factor_help[] = "x: a factor of max(0, 1 - x) to 1 + x; two: least and largest";

static const psti_param table[] = {
    {.name = "p",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(photometric_params, p),
     .min = 0,
     .max = 1,
     .def = "0.5",
     .help = "probability of each change"},
    PART("brightness", BRIGHTNESS, 0, 1000, "(0.875, 1.125)", factor_help),
    PART("contrast", CONTRAST, 0, 1000, "(0.5, 1.5)", factor_help),
    PART("saturation", SATURATION, 0, 1000, "(0.5, 1.5)", factor_help),
    PART("hue", HUE, -0.5, 0.5, "0.05",
         "x: turned by -x to x of the circle; two: least and largest"),
    {.name = "like",
     .type = PSTI_P_WORD,
     .offset = offsetof(photometric_params, like),
     .words = psti_like_words,
     .def = "pil",
     .help = PSTI_LIKE_HELP},
    {.name = NULL},
};

static void range_of(const photometric_params *params, int part, double *low, double *high)
{
    const psti_list *by = &params->by[part];
    const double centre = part == HUE ? 0 : 1;
    *low = by->count == 2 ? by->v[0] : centre - by->v[0];
    *high = by->count == 2 ? by->v[1] : centre + by->v[0];
    if (part != HUE && *low < 0)
        *low = 0;
}

static int check(const void *p, pst_error *err)
{
    for (int part = 0; part < PARTS; part++) {
        double low, high;
        range_of(p, part, &low, &high);
        if (low > high)
            return psti_fail(err, PST_EPIPELINE, "photometric_distort", NULL,
                             "%s: write a number of 0 or more, or (least, largest)",
                             table[part + 1].name);
    }
    return 0;
}

/* Draws, in this order and always: seven times whether, the four factors, the order of channels.
 * v[0..3]: factors; v[4]: what is done; v[5]: the order. */
static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    const photometric_params *params = p;
    double unit[7];
    for (int i = 0; i < 7; i++)
        unit[i] = psti_rng_unit(rng);
    const bool early = unit[1] < 0.5;
    unsigned what = 0;
    what |= unit[0] < params->p ? DO_BRIGHTNESS : 0;
    what |= early && unit[2] < params->p ? DO_EARLY : 0;
    what |= unit[3] < params->p ? DO_SATURATION : 0;
    what |= unit[4] < params->p ? DO_HUE : 0;
    what |= !early && unit[5] < params->p ? DO_LATE : 0;
    psti_draw_whole(draw, in);
    for (int part = 0; part < PARTS; part++) {
        double low, high;
        range_of(params, part, &low, &high);
        draw->v[part] = psti_rng_range(rng, low, high);
    }
    const int order = (int)psti_rng_below(rng, 6);
    const bool reorder = unit[6] < params->p && in->channels == 3;
    draw->v[PARTS] = what;
    draw->v[PARTS + 1] = reorder ? order : 0;
    draw->act = what || draw->v[PARTS + 1] > 0;
    *out = *in;
    return psti_px_check_channels("photometric_distort", in->channels, err);
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const psti_like like = (psti_like)((const photometric_params *)p)->like;
    const unsigned what = (unsigned)draw->v[PARTS];
    const psti_field *from = in;
    (void)ctx;
    const int rc = psti_px_check("photometric_distort", in, err);
    if (rc < 0)
        return rc;
    if (what & DO_BRIGHTNESS) {
        psti_px_brightness(from, out, draw->v[BRIGHTNESS], like);
        from = out;
    }
    if (what & DO_EARLY) {
        psti_px_contrast(from, out, draw->v[CONTRAST], like);
        from = out;
    }
    if (what & DO_SATURATION) {
        psti_px_saturation(from, out, draw->v[SATURATION], like);
        from = out;
    }
    if (what & DO_HUE) {
        psti_px_hue(from, out, draw->v[HUE], like);
        from = out;
    }
    if (what & DO_LATE) {
        psti_px_contrast(from, out, draw->v[CONTRAST], like);
        from = out;
    }
    if (draw->v[PARTS + 1] > 0)
        psti_px_reorder(from, out, orders[(int)draw->v[PARTS + 1]]);
    return 0;
}

const psti_op psti_op_photometric_distort = {
    .name = "photometric_distort",
    .summary = "the changes of colour that SSD is trained with, and channels in another order",
    .params = table,
    .params_bytes = sizeof(photometric_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_INPLACE,
    .check = check,
    .infer = psti_infer_same,
    .decide = decide,
    .run = run,
};
