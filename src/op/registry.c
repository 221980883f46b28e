/* SPDX-License-Identifier: Apache-2.0
 * The ops on pictures, and all families of ops one after the other. A new op is one file with one
 * `const psti_op`, and one line in its family's table: here, or in the family's own folder. */
#include <string.h>

#include "op/op_priv.h"

const psti_op *const psti_picture_ops[] = {
    &psti_op_resize,
    &psti_op_center_crop,
    &psti_op_random_resized_crop,
    &psti_op_random_crop,
    &psti_op_pad,
    &psti_op_hflip,
    &psti_op_vflip,
    &psti_op_affine,
    &psti_op_random_affine,
    &psti_op_rotate,
    &psti_op_random_rotation,
    &psti_op_shear_x,
    &psti_op_shear_y,
    &psti_op_translate_x,
    &psti_op_translate_y,
    &psti_op_color_jitter,
    &psti_op_grayscale,
    &psti_op_random_grayscale,
    &psti_op_gaussian_blur,
    &psti_op_adjust_brightness,
    &psti_op_adjust_contrast,
    &psti_op_adjust_saturation,
    &psti_op_adjust_hue,
    &psti_op_adjust_sharpness,
    &psti_op_random_adjust_sharpness,
    &psti_op_posterize,
    &psti_op_random_posterize,
    &psti_op_solarize,
    &psti_op_random_solarize,
    &psti_op_autocontrast,
    &psti_op_random_autocontrast,
    &psti_op_equalize,
    &psti_op_random_equalize,
    &psti_op_invert,
    &psti_op_random_invert,
    &psti_op_auto_augment,
    &psti_op_rand_augment,
    &psti_op_trivial_augment_wide,
    &psti_op_augmix,
    &psti_op_random_erasing,
    &psti_op_delay,
    NULL,
};

static const psti_op *const *const families[] = {
    psti_picture_ops,
    psti_detect_ops,
    psti_volume_ops,
    psti_audio_ops,
};

const psti_op *psti_op_at(int index)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (const psti_op *const *op = families[i]; *op; op++)
            if (index-- == 0)
                return *op;
    return NULL;
}

const psti_op *psti_op_find(const char *name, size_t len)
{
    const psti_op *op;
    for (int i = 0; (op = psti_op_at(i)) != NULL; i++)
        if (strlen(op->name) == len && memcmp(op->name, name, len) == 0)
            return op;
    return NULL;
}
