/* SPDX-License-Identifier: Apache-2.0
 * random_crop: a window of one size at a random place, after a border was laid round the picture
 * where asked for. */
#include "core/status.h"
#include "op/op_priv.h"

typedef struct random_crop_params {
    psti_list size, padding, fill;
    bool pad_if_needed;
    int mode;
} random_crop_params;

static const psti_param table[] = {
    {.name = "size",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_crop_params, size),
     .min = 1,
     .max = PSTI_SIZE_MAX,
     .min_count = 1,
     .max_count = 2,
     .whole = true,
     .help = "one number for a square, or rows, columns"},
    {.name = "padding",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_crop_params, padding),
     .min = 0,
     .max = PSTI_SIZE_MAX,
     .min_count = 1,
     .max_count = 4,
     .whole = true,
     .def = "0",
     .help = "one number: all sides; two: left and right, top and bottom; four: left, top, right, "
             "bottom"},
    {.name = "pad_if_needed",
     .type = PSTI_P_BOOL,
     .offset = offsetof(random_crop_params, pad_if_needed),
     .def = "false",
     .help = "pad smaller pictures on both sides by what is missing"},
    {.name = "fill",
     .type = PSTI_P_LIST,
     .offset = offsetof(random_crop_params, fill),
     .min = 0,
     .max = 255,
     .min_count = 1,
     .max_count = 4,
     .whole = true,
     .def = "0",
     .help = "value of a constant border: one, or one per channel; masks get 0"},
    {.name = "padding_mode",
     .type = PSTI_P_WORD,
     .offset = offsetof(random_crop_params, mode),
     .words = psti_border_words,
     .def = "constant",
     .help = "what the border shows"},
    {.name = NULL},
};

/* What run needs of the decision, in draw->v: per axis where the window begins in the bordered
 * picture and what pad_if_needed added on each side. */
enum { SKIP_ROWS, SKIP_COLS, ADDED_ROWS, ADDED_COLS };

static int check(const void *p, pst_error *err)
{
    const random_crop_params *params = p;
    if (params->padding.count == 3)
        return psti_fail(err, PST_EPIPELINE, "random_crop", NULL,
                         "padding takes 1, 2 or 4 numbers, not 3");
    return 0;
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    const random_crop_params *params = p;
    out->channels = in->channels;
    psti_size_of(&params->size, &out->rows, &out->cols);
}

/* The two borders, one of padding and one of pad_if_needed, from parameters and draw. */
static void borders(const random_crop_params *params, const psti_draw *draw, psti_canvas *rows,
                    psti_canvas *cols)
{
    const psti_list *l = &params->padding;
    const int top = l->count > 1, right = l->count > 2 ? 2 : 0, bottom = l->count > 2 ? 3 : top;
    const int64_t more_rows = (int64_t)draw->v[ADDED_ROWS],
                  more_cols = (int64_t)draw->v[ADDED_COLS];
    *cols = (psti_canvas){.border = (psti_border)params->mode,
                          .before = {(int64_t)l->v[0], more_cols},
                          .after = {(int64_t)l->v[right], more_cols},
                          .skip = (int64_t)draw->v[SKIP_COLS]};
    *rows = (psti_canvas){.border = (psti_border)params->mode,
                          .before = {(int64_t)l->v[top], more_rows},
                          .after = {(int64_t)l->v[bottom], more_rows},
                          .skip = (int64_t)draw->v[SKIP_ROWS]};
}

/* Size along one axis with all borders. */
static int64_t bordered(const psti_canvas *canvas, int64_t n)
{
    return n + canvas->before[0] + canvas->after[0] + canvas->before[1] + canvas->after[1];
}

static bool has_border(const psti_canvas *canvas)
{
    return bordered(canvas, 0) != 0;
}

static double missing(bool asked, int64_t have, int64_t want)
{
    return asked && have < want ? (double)(want - have) : 0;
}

/* Draws the place in a bordered picture of have_rows x have_cols. */
static void draw_place(psti_rng *rng, int64_t have_rows, int64_t have_cols, const psti_geom *out,
                       psti_draw *draw)
{
    if (have_rows == out->rows && have_cols == out->cols)
        return;
    draw->v[SKIP_ROWS] = (double)psti_rng_below(rng, (uint64_t)(have_rows - out->rows + 1));
    draw->v[SKIP_COLS] = (double)psti_rng_below(rng, (uint64_t)(have_cols - out->cols + 1));
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    const random_crop_params *params = p;
    psti_canvas rows, cols;
    psti_draw_whole(draw, in);
    infer(p, in, out);
    borders(params, draw, &rows, &cols);
    draw->v[ADDED_ROWS] = missing(params->pad_if_needed, bordered(&rows, in->rows), out->rows);
    draw->v[ADDED_COLS] = missing(params->pad_if_needed, bordered(&cols, in->cols), out->cols);
    borders(params, draw, &rows, &cols);
    const int64_t have_rows = bordered(&rows, in->rows), have_cols = bordered(&cols, in->cols);
    if (have_rows < out->rows || have_cols < out->cols)
        return psti_fail(
            err, PST_EFIELD, "random_crop", NULL,
            "the picture has %lld rows and %lld columns with its padding, the crop wants %lld and "
            "%lld: resize first, or set pad_if_needed",
            (long long)have_rows, (long long)have_cols, (long long)out->rows, (long long)out->cols);
    draw_place(rng, have_rows, have_cols, out, draw);
    if (!has_border(&rows) && !has_border(&cols)) {
        draw->top = (int64_t)draw->v[SKIP_ROWS];
        draw->left = (int64_t)draw->v[SKIP_COLS];
        draw->rows = out->rows;
        draw->cols = out->cols;
        draw->act = out->rows != in->rows || out->cols != in->cols;
    }
    const int rc = psti_fill_check("random_crop", &params->fill, in, err);
    return rc < 0 ? rc : psti_out_check("random_crop", out, err);
}

/* Where the window begins along one axis of the picture without borders. */
static int64_t start(const psti_canvas *canvas)
{
    return canvas->skip - canvas->before[0] - canvas->before[1];
}

static void objects(const void *p, const psti_draw *draw, const psti_geom *in, const psti_geom *out,
                    psti_objects *o)
{
    (void)in;
    psti_canvas rows, cols;
    borders(p, draw, &rows, &cols);
    psti_objects_crop(o, start(&cols), start(&rows), out->rows, out->cols);
    psti_objects_drop_empty(o);
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
    const random_crop_params *params = p;
    psti_canvas rows, cols;
    borders(params, draw, &rows, &cols);
    return psti_canvas_run(&rows, &cols, &params->fill, ctx, in, out, err);
}

const psti_op psti_op_random_crop = {
    .name = "random_crop",
    .summary = "a window of one size at a random place",
    .params = table,
    .params_bytes = sizeof(random_crop_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_CROPS | PSTI_OP_GEOMETRIC | PSTI_OP_MOVES,
    .check = check,
    .infer = infer,
    .decide = decide,
    .objects = objects,
    .scratch = scratch,
    .run = run,
};
