/* SPDX-License-Identifier: Apache-2.0
 * hflip and vflip: mirrored left to right, or top to bottom, with probability p. Both work in
 * place. */
#include <string.h>

#include "core/status.h"
#include "op/kernels/kernels.h"
#include "op/op_priv.h"

typedef struct flip_params {
    double p;
} flip_params;

static const psti_param table[] = {
    {.name = "p",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(flip_params, p),
     .min = 0,
     .max = 1,
     .def = "0.5",
     .help = "probability"},
    {.name = NULL},
};

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)p;
    *out = *in;
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)err;
    const flip_params *params = p;
    psti_draw_whole(draw, in);
    draw->act = psti_rng_unit(rng) < params->p;
    *out = *in;
    return 0;
}

static void objects_hflip(const void *p, const psti_draw *draw, const psti_geom *in,
                          const psti_geom *out, psti_objects *o)
{
    (void)p, (void)draw, (void)in, (void)out;
    psti_objects_hflip(o);
}

static void objects_vflip(const void *p, const psti_draw *draw, const psti_geom *in,
                          const psti_geom *out, psti_objects *o)
{
    (void)p, (void)draw, (void)in, (void)out;
    psti_objects_vflip(o);
}

static int fail_field(const char *op, pst_error *err)
{
    return psti_fail(err, PST_EFIELD, op, NULL,
                     "a picture has 1 to 4 channels of u8 or u16; this field has not");
}

static int run_hflip(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                     psti_field *out, pst_error *err)
{
    (void)p, (void)draw, (void)ctx;
    const size_t size = psti_pixel_bytes(in);
    if (size == 0)
        return fail_field("hflip", err);
    const psti_kernels *kernels = psti_kernels_get();
    for (int64_t y = 0; y < in->shape[0]; y++)
        kernels->reverse(in->data + (size_t)y * in->stride, (size_t)in->shape[1], size,
                         out->data + (size_t)y * out->stride);
    return 0;
}

/* Writes row a of the input to row b of the output and the other way round; the two may be one
 * picture. */
static void swap_rows(const psti_field *in, psti_field *out, int64_t a, int64_t b, size_t bytes)
{
    const uint8_t *from_a = in->data + (size_t)a * in->stride,
                  *from_b = in->data + (size_t)b * in->stride;
    uint8_t *to_a = out->data + (size_t)a * out->stride,
            *to_b = out->data + (size_t)b * out->stride;
    uint8_t keep_a[512], keep_b[512];
    for (size_t at = 0; at < bytes; at += sizeof keep_a) {
        const size_t n = bytes - at < sizeof keep_a ? bytes - at : sizeof keep_a;
        memcpy(keep_a, from_a + at, n);
        memcpy(keep_b, from_b + at, n);
        memcpy(to_b + at, keep_a, n);
        memcpy(to_a + at, keep_b, n);
    }
}

static int run_vflip(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
                     psti_field *out, pst_error *err)
{
    (void)p, (void)draw, (void)ctx;
    const size_t size = psti_pixel_bytes(in);
    if (size == 0)
        return fail_field("vflip", err);
    for (int64_t a = 0, b = in->shape[0] - 1; a <= b; a++, b--)
        swap_rows(in, out, a, b, (size_t)in->shape[1] * size);
    return 0;
}

const psti_op psti_op_hflip = {
    .name = "hflip",
    .summary = "mirrored left to right, with probability p",
    .params = table,
    .params_bytes = sizeof(flip_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_GEOMETRIC | PSTI_OP_INPLACE | PSTI_OP_MOVES,
    .infer = infer,
    .decide = decide,
    .objects = objects_hflip,
    .run = run_hflip,
};

const psti_op psti_op_vflip = {
    .name = "vflip",
    .summary = "mirrored top to bottom, with probability p",
    .params = table,
    .params_bytes = sizeof(flip_params),
    .flags = PSTI_OP_RANDOM | PSTI_OP_GEOMETRIC | PSTI_OP_INPLACE | PSTI_OP_MOVES,
    .infer = infer,
    .decide = decide,
    .objects = objects_vflip,
    .run = run_vflip,
};
