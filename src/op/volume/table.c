/* SPDX-License-Identifier: Apache-2.0
 * The table of the ops on volumes, in the order of a recipe. A new one is a `const psti_op` in a
 * file here, and one line below. */
#include "op/volume/volume.h"

const psti_op *const psti_volume_ops[] = {
    &psti_op_spacing,
    &psti_op_clip,
    &psti_op_intensity,
    &psti_op_pad_min,
    &psti_op_balanced_crop,
    &psti_op_center_crop3,
    &psti_op_random_flip,
    &psti_op_cast,
    &psti_op_random_brightness,
    &psti_op_gaussian_noise,
    NULL,
};
