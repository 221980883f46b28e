/* SPDX-License-Identifier: Apache-2.0
 * pad: a border round the picture. */
#include "core/status.h"
#include "op/op_priv.h"

typedef struct pad_params {
    psti_list padding, fill;
    int mode;
} pad_params;

static const psti_param table[] = {
    {.name = "padding",
     .type = PSTI_P_LIST,
     .offset = offsetof(pad_params, padding),
     .min = 0,
     .max = PSTI_SIZE_MAX,
     .min_count = 1,
     .max_count = 4,
     .whole = true,
     .help = "one number: all sides; two: left and right, top and bottom; four: left, top, right, "
             "bottom"},
    {.name = "fill",
     .type = PSTI_P_LIST,
     .offset = offsetof(pad_params, fill),
     .min = 0,
     .max = 255,
     .min_count = 1,
     .max_count = 4,
     .whole = true,
     .def = "0",
     .help = "value of a constant border: one, or one per channel; masks get 0"},
    {.name = "padding_mode",
     .type = PSTI_P_WORD,
     .offset = offsetof(pad_params, mode),
     .words = psti_border_words,
     .def = "constant",
     .help = "what the border shows"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    const pad_params *params = p;
    if (params->padding.count == 3)
        return psti_fail(err, PST_EPIPELINE, "pad", NULL, "padding takes 1, 2 or 4 numbers, not 3");
    return 0;
}

static void borders(const pad_params *params, psti_canvas *rows, psti_canvas *cols)
{
    const psti_list *l = &params->padding;
    const int top = l->count > 1, right = l->count > 2 ? 2 : 0, bottom = l->count > 2 ? 3 : top;
    *cols = (psti_canvas){.border = (psti_border)params->mode,
                          .before = {(int64_t)l->v[0]},
                          .after = {(int64_t)l->v[right]}};
    *rows = (psti_canvas){.border = (psti_border)params->mode,
                          .before = {(int64_t)l->v[top]},
                          .after = {(int64_t)l->v[bottom]}};
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    psti_canvas rows, cols;
    borders(p, &rows, &cols);
    out->rows = in->rows < 0 ? -1 : in->rows + rows.before[0] + rows.after[0];
    out->cols = in->cols < 0 ? -1 : in->cols + cols.before[0] + cols.after[0];
    out->channels = in->channels;
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)rng;
    const pad_params *params = p;
    psti_draw_whole(draw, in);
    infer(p, in, out);
    draw->act = out->rows != in->rows || out->cols != in->cols;
    const int rc = psti_fill_check("pad", &params->fill, in, err);
    return rc < 0 ? rc : psti_out_check("pad", out, err);
}

static void objects(const void *p, const psti_draw *draw, const psti_geom *in, const psti_geom *out,
                    psti_objects *o)
{
    (void)draw, (void)in;
    psti_canvas rows, cols;
    borders(p, &rows, &cols);
    psti_objects_pad(o, cols.before[0], rows.before[0], out->rows, out->cols);
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
    (void)draw;
    const pad_params *params = p;
    psti_canvas rows, cols;
    borders(params, &rows, &cols);
    return psti_canvas_run(&rows, &cols, &params->fill, ctx, in, out, err);
}

const psti_op psti_op_pad = {
    .name = "pad",
    .summary = "a border round the picture",
    .params = table,
    .params_bytes = sizeof(pad_params),
    .flags = PSTI_OP_GEOMETRIC | PSTI_OP_MOVES,
    .check = check,
    .infer = infer,
    .decide = decide,
    .objects = objects,
    .scratch = scratch,
    .run = run,
};
