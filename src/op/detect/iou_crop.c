/* SPDX-License-Identifier: Apache-2.0
 * iou_crop: a window that overlaps at least one object by as much as was drawn, as SSD is trained;
 * objects stay whose middle lies in it. */
#include "core/status.h"
#include "op/detect/detect.h"

typedef struct iou_crop_params {
    psti_list scale, ratio, overlaps;
    int64_t trials;
} iou_crop_params;

/* Where no window fits and none of the overlaps means the picture as it is, the search has an end.
 */
enum { ROUNDS_MAX = 50 };

static const psti_param table[] = {
    {.name = "scale",
     .type = PSTI_P_LIST,
     .offset = offsetof(iou_crop_params, scale),
     .min = 0,
     .max = 1,
     .min_count = 2,
     .max_count = 2,
     .def = "(0.3, 1)",
     .help = "least and largest side of the window, of the picture's"},
    {.name = "ratio",
     .type = PSTI_P_LIST,
     .offset = offsetof(iou_crop_params, ratio),
     .min = 1e-3,
     .max = 1000,
     .min_count = 2,
     .max_count = 2,
     .def = "(0.5, 2)",
     .help = "least and largest width of the window divided by its height"},
    {.name = "overlaps",
     .type = PSTI_P_LIST,
     .offset = offsetof(iou_crop_params, overlaps),
     .min = 0,
     .max = 1,
     .min_count = 1,
     .max_count = PSTI_LIST_MAX,
     .def = "(0, 0.1, 0.3, 0.5, 0.7, 0.9, 1)",
     .help = "one is drawn: the least intersection over union with an object; 1: the picture as it "
             "is"},
    {.name = "trials",
     .type = PSTI_P_INT,
     .offset = offsetof(iou_crop_params, trials),
     .min = 1,
     .max = 1000,
     .def = "40",
     .help = "windows that are tried before another overlap is drawn"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    const iou_crop_params *params = p;
    const psti_list *bad = params->scale.v[0] > params->scale.v[1]   ? &params->scale
                           : params->ratio.v[0] > params->ratio.v[1] ? &params->ratio
                                                                     : NULL;
    if (bad)
        return psti_fail(err, PST_EPIPELINE, "iou_crop", NULL,
                         "%s is (least, largest): %g is more than %g",
                         bad == &params->scale ? "scale" : "ratio", bad->v[0], bad->v[1]);
    return 0;
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)p;
    *out = (psti_geom){-1, -1, in->channels};
}

/* A window of allowed shape, drawn into the draw; false: another is to be tried. */
static bool draw_window(const iou_crop_params *params, psti_rng *rng, const psti_geom *in,
                        psti_draw *draw)
{
    const double width = psti_rng_range(rng, params->scale.v[0], params->scale.v[1]);
    const double height = psti_rng_range(rng, params->scale.v[0], params->scale.v[1]);
    draw->cols = (int64_t)((double)in->cols * width);
    draw->rows = (int64_t)((double)in->rows * height);
    if (draw->cols < 1 || draw->rows < 1)
        return false;
    const double ratio = (double)draw->cols / (double)draw->rows;
    if (!(params->ratio.v[0] <= ratio && ratio <= params->ratio.v[1]))
        return false;
    draw->left = (int64_t)((double)(in->cols - draw->cols) * psti_rng_unit(rng));
    draw->top = (int64_t)((double)(in->rows - draw->rows) * psti_rng_unit(rng));
    return true;
}

/* Whether one of the objects whose middle lies in the window overlaps it by that much. */
static bool suits(const psti_objects *o, const psti_draw *draw, double least)
{
    const int64_t right = draw->left + draw->cols, bottom = draw->top + draw->rows;
    const float window[4] = {(float)draw->left, (float)draw->top, (float)right, (float)bottom};
    for (int i = 0; i < o->count; i++)
        if (psti_box_centre_in(o->box[i], draw->left, draw->top, right, bottom) &&
            (double)psti_box_iou(o->box[i], window) >= least)
            return true;
    return false;
}

/* False: the picture stays as it is. */
static bool search(const iou_crop_params *params, psti_rng *rng, const psti_objects *o,
                   const psti_geom *in, psti_draw *draw)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        const uint64_t which = psti_rng_below(rng, (uint64_t)params->overlaps.count);
        const double least = params->overlaps.v[which];
        if (least >= 1)
            return false;
        for (int64_t i = 0; i < params->trials; i++)
            if (draw_window(params, rng, in, draw) && suits(o, draw, least))
                return true;
    }
    return false;
}

/* Without objects no window fits. */
static int decide_in(const void *p, psti_rng *rng, const psti_scene *scene, const psti_geom *in,
                     psti_draw *draw, psti_geom *out, pst_error *err)
{
    (void)err;
    psti_draw found = {0};
    psti_draw_whole(draw, in);
    *out = *in;
    draw->act = scene && scene->objects && scene->objects->count &&
                search(p, rng, scene->objects, in, &found);
    if (!draw->act)
        return 0;
    draw->top = found.top;
    draw->left = found.left;
    out->rows = draw->rows = found.rows;
    out->cols = draw->cols = found.cols;
    return 0;
}

static void objects(const void *p, const psti_draw *draw, const psti_geom *in, const psti_geom *out,
                    psti_objects *o)
{
    (void)p, (void)in;
    psti_objects_drop_outside(o, draw->left, draw->top, draw->left + draw->cols,
                              draw->top + draw->rows);
    psti_objects_crop(o, draw->left, draw->top, out->rows, out->cols);
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)p, (void)draw, (void)in;
    return psti_canvas_scratch(out);
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    (void)p;
    const psti_canvas rows = {.skip = draw->top}, cols = {.skip = draw->left};
    return psti_canvas_run(&rows, &cols, NULL, ctx, in, out, err);
}

const psti_op psti_op_iou_crop = {
    .name = "iou_crop",
    .summary = "a window that overlaps one of the objects by a random share",
    .params = table,
    .params_bytes = sizeof(iou_crop_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_CROPS | PSTI_OP_GEOMETRIC | PSTI_OP_MOVES | PSTI_OP_CUTS |
             PSTI_OP_OBJECTS,
    .check = check,
    .infer = infer,
    .decide_in = decide_in,
    .objects = objects,
    .scratch = scratch,
    .run = run,
};
