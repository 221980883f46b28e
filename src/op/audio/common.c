/* SPDX-License-Identifier: Apache-2.0
 * What the ops of this folder have in common. No state; any thread. */
#include <errno.h>

#include "core/status.h"
#include "op/audio/audio_ops.h"

void psti_audio_infer_floats(const void *params, const psti_geom *in, psti_geom *out)
{
    (void)params;
    *out = *in;
    out->dtype = PST_F32;
}

int psti_audio_decide_floats(const char *op, const psti_geom *in, psti_draw *draw, psti_geom *out,
                             pst_error *err)
{
    psti_draw_whole(draw, in);
    *out = *in;
    out->dtype = PST_F32;
    if (in->channels == 1)
        return 0;
    return psti_fail(err, PST_EFIELD, op, NULL,
                     "the recording has %lld channels: decode makes one of them unless it is told "
                     "to keep them",
                     (long long)in->channels);
}

psti_wave psti_audio_wave(const psti_field *in)
{
    return (psti_wave){.data = in->data, .dtype = in->dtype, .count = in->shape[0]};
}

const float *psti_audio_floats(const psti_field *in, psti_op_ctx *ctx)
{
    const psti_wave wave = psti_audio_wave(in);
    if (in->dtype == PST_F32)
        return wave.data;
    if (psti_buf_need(PSTI_MEM_OP, &ctx->rows, (size_t)wave.count * sizeof(float)) < 0)
        return NULL;
    float *out = (float *)(void *)ctx->rows.data;
    psti_wave_load(&wave, 0, wave.count, out);
    return out;
}

size_t psti_audio_floats_scratch(const psti_geom *in)
{
    return in->dtype == PST_F32 ? 0 : psti_audio_scratch((size_t)in->rows * sizeof(float));
}

size_t psti_audio_scratch(size_t bytes)
{
    return bytes + bytes / 8 + 128;
}

int psti_audio_no_memory(const char *op, pst_error *err)
{
    return psti_fail(err, -ENOMEM, op, NULL, "out of memory for a recording");
}
