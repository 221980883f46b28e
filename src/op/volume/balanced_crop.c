/* SPDX-License-Identifier: Apache-2.0
 * balanced_crop: a box of a volume, in a share of all draws about the foreground of its mask. As
 * MLPerf's 3D U-Net crops: one of the classes that are there, one of its two largest parts, and a
 * box that holds all of the part, or lies inside it where the part is larger; else a box anywhere.
 *
 * Where the foreground is follows from the mask alone and is searched once (foreground.c); with
 * that at hand the choice costs nothing, and the crop itself is a view. */
#include "op/volume/volume.h"

#include "core/status.h"

enum { EMPTY_UNIFORM, EMPTY_ERROR };
static const char *const empty_words[] = {"uniform", "error", NULL};

typedef struct crop_params {
    psti_list size;
    double foreground;
    int empty;
} crop_params;

static const psti_param table[] = {
    {.name = "size",
     .type = PSTI_P_LIST,
     .offset = offsetof(crop_params, size),
     .min = 1,
     .max = PSTI_SIZE_MAX,
     .min_count = 1,
     .max_count = 3,
     .whole = true,
     .help = "planes, rows and columns; one number for all three"},
    {.name = "foreground",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(crop_params, foreground),
     .min = 0,
     .max = 1,
     .def = "0.4",
     .help = "share of crops that lie about a part of the mask's foreground"},
    {.name = "empty",
     .type = PSTI_P_WORD,
     .offset = offsetof(crop_params, empty),
     .words = empty_words,
     .def = "uniform",
     .help = "a mask without foreground: crops lie anywhere, or the sample is bad"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    return psti_volume_check_size(&((const crop_params *)p)->size, "balanced_crop", err);
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    int64_t size[3];
    psti_volume_size(&((const crop_params *)p)->size, size);
    *out = *in;
    out->depth = size[0];
    out->rows = size[1];
    out->cols = size[2];
}

/* 0 .. n - 1, as the reference draws it: the last corner, n, is never reached. */
static int64_t below(psti_rng *rng, int64_t n)
{
    return n > 0 ? (int64_t)psti_rng_below(rng, (uint64_t)n) : 0;
}

/* Where the crop begins along one axis of n voxels, of which the part has low .. high - 1. It is
 * moved back into the volume where it would reach over an end. */
static int64_t about(psti_rng *rng, int64_t n, int64_t size, int64_t low, int64_t high)
{
    const int64_t gap = size - (high - low), sign = gap < 0 ? -1 : 1;
    const int64_t before = below(rng, sign * gap), after = sign * gap - before;
    int64_t first = low - sign * before, end = high + sign * after;
    first = first > 0 ? first : 0;
    end = end < n ? end : n;
    const int64_t missing = size - (end - first);
    return missing > 0 && first > 0 ? first - missing : first;
}

/* Whether a row is the first one of its class. */
static bool begins_class(const psti_note *note, int i)
{
    return i == 0 || note->row[i].label != note->row[i - 1].label;
}

/* A class that is there, then one of its parts. */
static const psti_box *choose_part(psti_rng *rng, const psti_note *note)
{
    int64_t classes = 0;
    for (int i = 0; i < note->count; i++)
        classes += begins_class(note, i);
    int64_t before = below(rng, classes) + 1;
    int first = -1, end;
    while (before > 0)
        before -= begins_class(note, ++first);
    for (end = first + 1; end < note->count && !begins_class(note, end); end++)
        continue;
    return &note->row[first + below(rng, end - first)];
}

static int decide_in(const void *p, psti_rng *rng, const psti_scene *scene, const psti_geom *in,
                     psti_draw *draw, psti_geom *out, pst_error *err)
{
    const crop_params *params = p;
    infer(p, in, out);
    const int rc = psti_volume_check_window("balanced_crop", in, out, err);
    if (rc < 0)
        return rc;
    const int64_t n[3] = {in->depth, in->rows, in->cols};
    const int64_t size[3] = {out->depth, out->rows, out->cols};
    const bool wanted = psti_rng_unit(rng) < params->foreground;
    const bool always = params->foreground > 0 && params->empty == EMPTY_ERROR;
    if (scene && !scene->note && (wanted || always))
        return PSTI_DECIDE_NEEDS_NOTE;
    const psti_note *note = scene ? scene->note : NULL;
    if (always && note && note->count == 0)
        return psti_fail(err, PST_EFIELD, "balanced_crop", NULL,
                         "the mask has no foreground; empty=uniform takes such volumes too");
    const bool found = wanted && note && note->count > 0;
    const psti_box *part = found ? choose_part(rng, note) : NULL;
    int64_t at[3];
    for (int d = 0; d < 3; d++)
        at[d] = part ? about(rng, n[d], size[d], part->low[d], part->high[d])
                     : below(rng, n[d] - size[d]);
    *draw = (psti_draw){.front = at[0],
                        .top = at[1],
                        .left = at[2],
                        .planes = size[0],
                        .rows = size[1],
                        .cols = size[2],
                        .act = true};
    return 0;
}

/* Without a mask at hand: for guesses. */
static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    return decide_in(p, rng, NULL, in, draw, out, err);
}

static int survey(const void *p, const psti_field *mask, psti_note *out, pst_error *err)
{
    (void)p;
    return psti_foreground(mask, out->row, &out->count, err);
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    (void)p, (void)ctx, (void)in, (void)err;
    psti_volume_show(draw, out);
    return 0;
}

static const psti_op *variant(const void *params);

#define CROP_OP                                                                                    \
    .name = "balanced_crop", .summary = "a box of a volume, often about the mask's foreground",    \
    .params = table, .params_bytes = sizeof(crop_params),                                          \
    .flags = PSTI_OP_RANDOM | PSTI_OP_CROPS | PSTI_OP_GEOMETRIC | PSTI_OP_VIEWS | PSTI_OP_RETYPES, \
    .on = PSTI_ON_VOLUMES, .check = check, .variant = variant, .infer = infer, .decide = decide,   \
    .run = run
const psti_op psti_op_balanced_crop = {CROP_OP, .decide_in = decide_in, .survey = survey};
static const psti_op uniform_op = {CROP_OP};

/* Crops that never look for foreground need no mask. */
static const psti_op *variant(const void *p)
{
    return ((const crop_params *)p)->foreground > 0 ? &psti_op_balanced_crop : &uniform_op;
}
