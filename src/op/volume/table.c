/* SPDX-License-Identifier: Apache-2.0
 * The table of the ops on volumes. A new one is one file here with one `const psti_op`, and one
 * line below. */
#include "op/op_priv.h"

const psti_op *const psti_volume_ops[] = {
    NULL,
};
