/* SPDX-License-Identifier: Apache-2.0
 * The table of ops. A new op is one file with one `const psti_op`, and one line here. */
#include <string.h>

#include "op/op_priv.h"

const psti_op *const psti_ops[] = {
    &psti_op_resize,
    &psti_op_center_crop,
    &psti_op_random_resized_crop,
    &psti_op_random_crop,
    &psti_op_pad,
    &psti_op_hflip,
    &psti_op_vflip,
    NULL,
};

const psti_op *psti_op_find(const char *name, size_t len)
{
    for (const psti_op *const *op = psti_ops; *op; op++) {
        if (strlen((*op)->name) == len && memcmp((*op)->name, name, len) == 0)
            return *op;
    }
    return NULL;
}
