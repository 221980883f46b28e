/* SPDX-License-Identifier: Apache-2.0
 * The table of the ops on recordings, in the order in which a pipeline has them. */
#include "op/audio/audio_ops.h"

const psti_op *const psti_audio_ops[] = {
    &psti_op_audio_resample, &psti_op_trim,
    &psti_op_speed,          &psti_op_dither,
    &psti_op_preemphasis,    &psti_op_log_mel,
    &psti_op_feature_norm,   &psti_op_spec_augment,
    &psti_op_stack,          NULL,
};
