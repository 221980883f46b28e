/* SPDX-License-Identifier: Apache-2.0
 * random_erasing: a rectangle of random area, shape and place is overwritten, with probability p.
 * Before normalize it writes bytes. After it the picture is float, and an erased value is seldom a
 * byte that normalize would turn into it: so the rectangle is laid over what finish has written, in
 * the type that is delivered. Noise is drawn there too, from numbers that decide drew. */
#include <string.h>

#include "core/math.h"
#include "core/status.h"
#include "op/kernels/kernels.h"
#include "op/op_priv.h"
#include "op/random.h"

typedef struct erase_params {
    double p;
    psti_list scale, ratio, value;
    bool inplace;
} erase_params;

enum { TOP, LEFT, ROWS, COLS, NOISE_LOW, NOISE_HIGH }; /* of psti_draw.v */

static const char *const value_words[] = {"random", NULL};

static const psti_param table[] = {
    {.name = "p",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(erase_params, p),
     .min = 0,
     .max = 1,
     .def = "0.5",
     .help = "probability"},
    {.name = "scale",
     .type = PSTI_P_LIST,
     .offset = offsetof(erase_params, scale),
     .min = 0,
     .max = 1,
     .min_count = 2,
     .max_count = 2,
     .def = "(0.02, 0.33)",
     .help = "least and largest share of the picture's area"},
    {.name = "ratio",
     .type = PSTI_P_LIST,
     .offset = offsetof(erase_params, ratio),
     .min = 0.001,
     .max = 1000,
     .min_count = 2,
     .max_count = 2,
     .def = "(0.3, 3.3)",
     .help = "least and largest height by width"},
    {.name = "value",
     .type = PSTI_P_LIST,
     .offset = offsetof(erase_params, value),
     .min_count = 1,
     .max_count = 4,
     .words = value_words,
     .def = "0",
     .help =
         "what is written: one, or one per channel, on the scale of the picture there; random = "
         "normal noise, after normalize"},
    {.name = "inplace",
     .type = PSTI_P_BOOL,
     .offset = offsetof(erase_params, inplace),
     .def = "false",
     .help = "changes nothing; recipes have it"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    const erase_params *params = p;
    if (params->scale.v[0] > params->scale.v[1] || params->ratio.v[0] > params->ratio.v[1])
        return psti_fail(err, PST_EPIPELINE, "random_erasing", NULL,
                         "scale and ratio are (least, largest)");
    return 0;
}

/* Before normalize a value is a byte. */
static int place(const void *p, bool finished, pst_error *err)
{
    const erase_params *params = p;
    if (finished)
        return 0;
    if (params->value.word)
        return psti_fail(err, PST_EPIPELINE, "random_erasing", NULL,
                         "value=random is noise about 0 and comes after normalize or to(f32)");
    for (int i = 0; i < params->value.count; i++) {
        const double v = params->value.v[i];
        if (!(v >= 0 && v <= 255) || v != (double)(int)v)
            return psti_fail(err, PST_EPIPELINE, "random_erasing", NULL,
                             "before normalize and to a value is a whole number from 0 to 255, not "
                             "%g: put random_erasing after them, or use a byte",
                             v);
    }
    return 0;
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)p;
    *out = *in;
}

/* Ten tries; true when one leaves some of the picture in both directions. */
static bool try_places(const erase_params *params, psti_rng *rng, const psti_geom *in,
                       psti_draw *draw)
{
    const double area = (double)in->rows * (double)in->cols;
    const double low = psti_ln(params->ratio.v[0]), high = psti_ln(params->ratio.v[1]);
    for (int i = 0; i < 10; i++) {
        const double target = area * psti_rng_range(rng, params->scale.v[0], params->scale.v[1]);
        const double ratio = psti_exp(psti_rng_range(rng, low, high));
        const int64_t rows = psti_round_even(__builtin_sqrt(target * ratio));
        const int64_t cols = psti_round_even(__builtin_sqrt(target / ratio));
        if (rows >= in->rows || cols >= in->cols)
            continue;
        draw->v[TOP] = (double)psti_rng_below(rng, (uint64_t)(in->rows - rows + 1));
        draw->v[LEFT] = (double)psti_rng_below(rng, (uint64_t)(in->cols - cols + 1));
        draw->v[ROWS] = (double)rows;
        draw->v[COLS] = (double)cols;
        return rows > 0 && cols > 0;
    }
    return false;
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    const erase_params *params = p;
    psti_draw_whole(draw, in);
    *out = *in;
    draw->act = psti_rng_unit(rng) < params->p && try_places(params, rng, in, draw);
    draw->v[NOISE_LOW] = (double)psti_rng_u32(rng);
    draw->v[NOISE_HIGH] = (double)psti_rng_u32(rng);
    if (params->value.word || params->value.count == 1 || params->value.count == in->channels)
        return 0;
    return psti_fail(err, PST_EFIELD, "random_erasing", NULL,
                     "value has %d numbers for a picture of %lld channels", params->value.count,
                     (long long)in->channels);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void copy_picture(const psti_field *in, psti_field *out, size_t pixel)
{
    for (int64_t y = 0; y < in->shape[0]; y++)
        memcpy(out->data + (size_t)y * out->stride, in->data + (size_t)y * in->stride,
               (size_t)in->shape[1] * pixel);
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    (void)ctx;
    const erase_params *params = p;
    const size_t pixel = psti_pixel_bytes(in);
    if (pixel == 0 || in->dtype != PST_U8)
        return psti_fail(err, PST_EFIELD, "random_erasing", NULL,
                         "a picture has 1 to 4 channels of u8; this field has not");
    if (out->data != in->data)
        copy_picture(in, out, pixel);
    const int64_t top = (int64_t)draw->v[TOP], rows = (int64_t)draw->v[ROWS];
    uint8_t *row = out->data + (size_t)top * out->stride + (size_t)draw->v[LEFT] * pixel;
    for (int64_t y = 0; y < rows; y++, row += out->stride)
        for (size_t i = 0; i < (size_t)draw->v[COLS] * pixel; i++)
            row[i] = (uint8_t)params->value.v[params->value.count > 1 ? i % pixel : 0];
    return 0;
}

/* ---- over what finish wrote ------------------------------------------------------------------ */

static void put(uint8_t *dst, int dtype, float value)
{
    const uint16_t narrow = dtype == PST_F16 ? psti_c_half(value) : psti_c_bfloat(value);
    if (dtype == PST_F32)
        memcpy(dst, &value, sizeof value);
    else
        memcpy(dst, &narrow, sizeof narrow);
}

/* Every channel in turn, row by row: the order of the noise, whatever the layout. */
static void overlay(const void *p, const psti_draw *draw, const psti_finish *finish,
                    const psti_field *in, const psti_pitch *pitch, uint8_t *dst)
{
    const erase_params *params = p;
    const size_t channels = (size_t)in->shape[2], element = psti_dtype_bytes(finish->dtype);
    const size_t top = (size_t)draw->v[TOP], left = (size_t)draw->v[LEFT];
    const bool planar = finish->layout == PST_NCHW;
    const size_t step = element * (planar ? 1 : channels);
    psti_rng rng;
    psti_normals noise = {.rng = &rng};
    const uint64_t seed = (uint64_t)draw->v[NOISE_LOW] | (uint64_t)draw->v[NOISE_HIGH] << 32;
    psti_rng_init(&rng, &(psti_rng_key){.seed = seed}, 0);
    for (size_t c = 0; c < channels; c++) {
        const float value = (float)params->value.v[params->value.count > 1 ? c : 0];
        for (size_t y = top; y < top + (size_t)draw->v[ROWS]; y++) {
            const size_t first =
                y * pitch->row + (planar ? c * pitch->plane + left : left * channels + c);
            uint8_t *at = dst + first * element;
            for (size_t x = 0; x < (size_t)draw->v[COLS]; x++, at += step)
                put(at, finish->dtype,
                    params->value.word ? (float)psti_draw_normal(&noise) : value);
        }
    }
}

const psti_op psti_op_random_erasing = {
    .name = "random_erasing",
    .summary = "a rectangle of random area, shape and place overwritten, with probability p",
    .params = table,
    .params_bytes = sizeof(erase_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_INPLACE,
    .check = check,
    .place = place,
    .infer = infer,
    .decide = decide,
    .run = run,
    .overlay = overlay,
};
