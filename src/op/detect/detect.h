/* SPDX-License-Identifier: Apache-2.0
 * What the ops of this folder share. Private to it. */
#ifndef PSTI_OP_DETECT_H
#define PSTI_OP_DETECT_H

#include "op/op_priv.h"

extern const psti_op psti_op_photometric_distort, psti_op_zoom_out, psti_op_iou_crop, psti_op_bgr;

/* Channel c of `out` is channel order[c] of `in`: u8, three channels, the same size; in place
 * allowed. */
void psti_px_reorder(const psti_field *in, psti_field *out, const int order[3]);

#endif
