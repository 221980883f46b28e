/* SPDX-License-Identifier: Apache-2.0
 * What the ops on recordings and their features share. They act on one channel; what comes out is
 * f32, but for trim, which leaves the type alone. */
#ifndef PSTI_OP_AUDIO_OPS_H
#define PSTI_OP_AUDIO_OPS_H

#include "op/audio/audio.h"
#include "op/op_priv.h"

extern const psti_op psti_op_audio_resample, psti_op_trim, psti_op_speed, psti_op_dither,
    psti_op_preemphasis, psti_op_log_mel, psti_op_feature_norm, psti_op_spec_augment, psti_op_stack;

/* The infer and decide of ops that keep the size and make floats. decide refuses what is not one
 * channel; draws nothing. */
void psti_audio_infer_floats(const void *params, const psti_geom *in, psti_geom *out);
int psti_audio_decide_floats(const char *op, const psti_geom *in, psti_draw *draw, psti_geom *out,
                             pst_error *err);
/* The samples of a field without gaps. */
psti_wave psti_audio_wave(const psti_field *in);
/* All samples as floats: where they are, or in the context's rows. NULL when out of memory. */
const float *psti_audio_floats(const psti_field *in, psti_op_ctx *ctx);
/* What that takes, and what any buffer of the context takes for so many bytes. */
size_t psti_audio_floats_scratch(const psti_geom *in);
size_t psti_audio_scratch(size_t bytes);
int psti_audio_no_memory(const char *op, pst_error *err);

#endif
