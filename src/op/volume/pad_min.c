/* SPDX-License-Identifier: Apache-2.0
 * pad_min: a volume that is smaller than a size in some direction gets a border there, half of it
 * before and half after (the odd one after), as numpy.pad does it: the outermost voxels repeated,
 * or a value. Image and mask alike. */
#include "op/volume/volume.h"

#include <string.h>

#include "core/status.h"

enum { EDGE, CONSTANT };
static const char *const words[] = {"edge", "constant", NULL};

typedef struct pad_params {
    psti_list size;
    int mode;
    double fill;
} pad_params;

static const psti_param table[] = {
    {.name = "size",
     .type = PSTI_P_LIST,
     .offset = offsetof(pad_params, size),
     .min = 1,
     .max = PSTI_SIZE_MAX,
     .min_count = 1,
     .max_count = 3,
     .whole = true,
     .help = "least planes, rows and columns; one number for all three"},
    {.name = "mode",
     .type = PSTI_P_WORD,
     .offset = offsetof(pad_params, mode),
     .words = words,
     .bare = true,
     .def = "edge",
     .help = "what the border holds"},
    {.name = "fill",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(pad_params, fill),
     .min = -32768,
     .max = 32767,
     .def = "0",
     .help = "value of a constant border; masks: 0"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    return psti_volume_check_size(&((const pad_params *)p)->size, "pad_min", err);
}

static int64_t padded(int64_t n, int64_t least)
{
    return n < 0 || n >= least ? n : least;
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    const pad_params *params = p;
    int64_t least[3];
    psti_volume_size(&params->size, least);
    *out = *in;
    out->depth = padded(in->depth, least[0]);
    out->rows = padded(in->rows, least[1]);
    out->cols = padded(in->cols, least[2]);
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)rng;
    psti_draw_whole(draw, in);
    infer(p, in, out);
    draw->act = out->depth != in->depth || out->rows != in->rows || out->cols != in->cols;
    return psti_out_check("pad_min", out, err);
}

/* The fill value as an element of the field; one that the type does not hold is cut off. */
static void fill_element(const pad_params *params, const psti_field *in, uint8_t *element)
{
    const double value = in->kind == PST_MASK ? 0 : params->fill;
    const float single = (float)value;
    const int16_t narrow = (int16_t)value;
    const uint8_t byte = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    if (in->dtype == PST_U8)
        *element = byte;
    else if (in->dtype == PST_I16)
        memcpy(element, &narrow, sizeof narrow);
    else
        memcpy(element, &single, sizeof single);
}

static void repeat(uint8_t *dst, const uint8_t *element, size_t size, int64_t n)
{
    for (int64_t i = 0; i < n; i++, dst += size)
        memcpy(dst, element, size);
}

/* What an output place along an axis shows; false where that is border of a constant. */
static bool source_of(int64_t at, int64_t n, bool edge, int64_t *out)
{
    *out = at < 0 ? 0 : at >= n ? n - 1 : at;
    return edge || *out == at;
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    (void)draw, (void)ctx;
    const pad_params *params = p;
    const int rc = psti_volume_check("pad_min", in, err);
    if (rc < 0)
        return rc;
    const size_t element = psti_dtype_bytes(in->dtype), row = (size_t)out->shape[3] * element;
    const bool edge = params->mode == EDGE;
    const int64_t front = (out->shape[1] - in->shape[1]) / 2,
                  top = (out->shape[2] - in->shape[2]) / 2,
                  left = (out->shape[3] - in->shape[3]) / 2;
    const int64_t right = out->shape[3] - in->shape[3] - left;
    uint8_t fill[4] = {0}, *dst = out->data;
    fill_element(params, in, fill);
    for (int64_t c = 0; c < out->shape[0]; c++)
        for (int64_t z = 0; z < out->shape[1]; z++)
            for (int64_t y = 0; y < out->shape[2]; y++, dst += row) {
                int64_t from_z, from_y;
                if (!source_of(z - front, in->shape[1], edge, &from_z) ||
                    !source_of(y - top, in->shape[2], edge, &from_y)) {
                    repeat(dst, fill, element, out->shape[3]);
                    continue;
                }
                uint8_t *inner = dst + (size_t)left * element;
                uint8_t *last = inner + (size_t)(in->shape[3] - 1) * element;
                psti_volume_take(in, c, from_z, from_y, inner);
                repeat(dst, edge ? inner : fill, element, left);
                repeat(last + element, edge ? last : fill, element, right);
            }
    return 0;
}

const psti_op psti_op_pad_min = {
    .name = "pad_min",
    .summary = "a border where the volume is smaller than a size",
    .params = table,
    .params_bytes = sizeof(pad_params),
    .flags = PSTI_OP_GEOMETRIC | PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .check = check,
    .infer = infer,
    .decide = decide,
    .run = run,
};
