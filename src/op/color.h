/* SPDX-License-Identifier: Apache-2.0
 * Changes of colour as plain functions on pixels: what the colour ops and the policies made of them
 * call. Each takes a picture of u8 with 1 or 3 channels (psti_px_check says whether it is one) and
 * writes every pixel of `out`, which has the same size and may be the same memory with the same
 * stride. Pictures are taken whole: windows are no matter here.
 *
 * Two libraries' arithmetic is known: Pillow's (ImageEnhance, ImageOps), to the bit, and that of
 * torchvision's functions on uint8 tensors, within one. Where both agree there is no choice.
 * Worker threads; nothing blocks. */
#ifndef PSTI_OP_COLOR_H
#define PSTI_OP_COLOR_H

#include "op/op.h"

typedef enum psti_like { PSTI_LIKE_PIL, PSTI_LIKE_TENSOR } psti_like;
extern const char *const psti_like_words[]; /* in the order of psti_like */
#define PSTI_LIKE_HELP "whose arithmetic: that of Pillow images or of uint8 tensors"

/* 0, or PST_EFIELD with a message when the functions below cannot work on such a picture. */
int psti_px_check(const char *op, const psti_field *field, pst_error *err);
int psti_px_check_channels(const char *op, int64_t channels, pst_error *err);

/* ---- one value at a time --------------------------------------------------------------------- */

void psti_px_invert(const psti_field *in, psti_field *out);
/* Keeps the upper bits, 0..8. */
void psti_px_posterize(const psti_field *in, psti_field *out, int bits);
/* Inverts values of threshold and above. */
void psti_px_solarize(const psti_field *in, psti_field *out, double threshold);
/* Each channel stretched to 0..255. */
void psti_px_autocontrast(const psti_field *in, psti_field *out, psti_like like);
/* Each channel's histogram made flat. */
void psti_px_equalize(const psti_field *in, psti_field *out);

/* ---- blends: factor 0 is the other picture, 1 the picture itself, above 1 away from the other ---
 */

void psti_px_brightness(const psti_field *in, psti_field *out, double factor, psti_like like);
void psti_px_contrast(const psti_field *in, psti_field *out, double factor, psti_like like);
/* The other picture is grey; one channel stays as it is. ("Color" in the policies.) */
void psti_px_saturation(const psti_field *in, psti_field *out, double factor, psti_like like);
/* The other picture is smoothed. Keeps rows in the context: 0 or -ENOMEM. */
int psti_px_sharpness(const psti_field *in, psti_field *out, double factor, psti_like like,
                      psti_op_ctx *ctx, pst_error *err);
size_t psti_px_sharpness_scratch(const psti_geom *in);

/* ---- colour ---------------------------------------------------------------------------------- */

/* Turns the hue by a share of the circle, -0.5..0.5; one channel stays as it is. */
void psti_px_hue(const psti_field *in, psti_field *out, double factor, psti_like like);
/* `out` has 1 or 3 channels, whatever `in` has; in place only where both have as many. */
void psti_px_grayscale(const psti_field *in, psti_field *out, psti_like like);

#endif
