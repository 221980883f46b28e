/* SPDX-License-Identifier: Apache-2.0
 * The table of the ops on pictures that have boxes. A new one is one file here with one `const
 * psti_op`, and one line below. */
#include "op/detect/detect.h"

const psti_op *const psti_detect_ops[] = {
    &psti_op_photometric_distort, &psti_op_zoom_out, &psti_op_iou_crop, &psti_op_bgr, NULL,
};
