/* SPDX-License-Identifier: Apache-2.0
 * cast: the values of an image as another type. To whole numbers they are cut off towards zero, as
 * numpy's astype does it; values that the type does not hold become the nearest that it does, and
 * NaN becomes 0, where numpy's result depends on the machine. */
#include "op/volume/volume.h"

#include <errno.h>
#include <string.h>

#include "core/status.h"

static const char *const words[] = {"f32", "i16", "u8", NULL};
static const int dtypes[] = {PST_F32, PST_I16, PST_U8};

typedef struct cast_params {
    int dtype; /* index into words */
} cast_params;

static const psti_param table[] = {
    {.name = "dtype",
     .type = PSTI_P_WORD,
     .offset = offsetof(cast_params, dtype),
     .words = words,
     .bare = true,
     .help = "of the values"},
    {.name = NULL},
};

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    *out = *in;
    out->dtype = dtypes[((const cast_params *)p)->dtype];
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)rng, (void)err;
    psti_draw_whole(draw, in);
    infer(p, in, out);
    draw->act = out->dtype != in->dtype;
    return 0;
}

static float clipped(float value, float low, float high)
{
    return value >= low ? (value > high ? high : value) : value < low ? low : 0;
}

static void narrow(const float *src, int64_t n, int dtype, uint8_t *dst)
{
    if (dtype == PST_U8) {
        for (int64_t i = 0; i < n; i++)
            dst[i] = (uint8_t)clipped(src[i], 0, 255);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int16_t value = (int16_t)clipped(src[i], -32768, 32767);
        memcpy(dst + 2 * i, &value, sizeof value);
    }
}

/* i16 to u8 goes through floats, which hold both. */
static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    (void)p, (void)draw;
    const size_t row = (size_t)in->shape[3] * psti_dtype_bytes(out->dtype);
    uint8_t *dst = out->data;
    int rc = psti_volume_check("cast", in, err);
    if (rc == 0 && psti_buf_need(PSTI_MEM_OP, &ctx->rows, (size_t)in->shape[3] * sizeof(float)) < 0)
        rc = psti_fail(err, -ENOMEM, "cast", NULL, "out of memory for a row");
    if (rc < 0)
        return rc;
    for (int64_t c = 0; c < in->shape[0]; c++)
        for (int64_t z = 0; z < in->shape[1]; z++)
            for (int64_t y = 0; y < in->shape[2]; y++, dst += row) {
                float *tmp = (float *)(void *)(out->dtype == PST_F32 ? dst : ctx->rows.data);
                const float *values = psti_volume_row(in, c, z, y, tmp);
                if (out->dtype != PST_F32)
                    narrow(values, in->shape[3], out->dtype, dst);
            }
    return 0;
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)p, (void)draw, (void)out;
    const size_t bytes = (size_t)in->cols * sizeof(float);
    return bytes + bytes / 8 + 256;
}

const psti_op psti_op_cast = {
    .name = "cast",
    .summary = "values of another type",
    .params = table,
    .params_bytes = sizeof(cast_params),
    .flags = PSTI_OP_RETYPES,
    .on = PSTI_ON_VOLUMES,
    .infer = infer,
    .decide = decide,
    .scratch = scratch,
    .run = run,
};
