/* SPDX-License-Identifier: Apache-2.0
 * bgr: the first and the last channel change places, for weights that were trained on pictures as
 * Caffe and OpenCV have them. In place. */
#include "core/status.h"
#include "op/color.h"
#include "op/detect/detect.h"

static const psti_param table[] = {{.name = NULL}};

void psti_px_reorder(const psti_field *in, psti_field *out, const int order[3])
{
    const size_t first = (size_t)order[0], second = (size_t)order[1], third = (size_t)order[2];
    for (int64_t y = 0; y < out->shape[0]; y++) {
        const uint8_t *from = in->data + (size_t)y * in->stride;
        uint8_t *to = out->data + (size_t)y * out->stride;
        for (int64_t x = 0; x < out->shape[1]; x++, from += 3, to += 3) {
            const uint8_t a = from[first], b = from[second], c = from[third];
            to[0] = a;
            to[1] = b;
            to[2] = c;
        }
    }
}

static int refuse(pst_error *err)
{
    return psti_fail(err, PST_EFIELD, "bgr", NULL,
                     "bgr needs three channels of bytes; put decode(rgb) before it");
}

static int decide(const void *params, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)params;
    (void)rng;
    psti_draw_whole(draw, in);
    *out = *in;
    return in->channels == 3 ? 0 : refuse(err);
}

static int run(const void *params, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    static const int backwards[3] = {2, 1, 0};
    (void)params;
    (void)draw;
    (void)ctx;
    if (in->dtype != PST_U8 || in->shape[2] != 3)
        return refuse(err);
    psti_px_reorder(in, out, backwards);
    return 0;
}

const psti_op psti_op_bgr = {
    .name = "bgr",
    .summary = "channels from last to first",
    .params = table,
    .params_bytes = sizeof(char),
    .flags = PSTI_OP_INPLACE,
    .infer = psti_infer_same,
    .decide = decide,
    .run = run,
};
