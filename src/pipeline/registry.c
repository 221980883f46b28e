/* SPDX-License-Identifier: Apache-2.0
 * Every word that may stand where an op stands: decode and bytes, whose tables live here, the ops
 * of every family, call, the two words of finish, and the batch ops. Read-only tables; any thread.
 */
#include <string.h>

#include "pipeline/pipeline_priv.h"

/* In the order of psti_color. */
static const char *const colors[] = {"rgb", "gray", "keep", NULL};

static const char *const crowd_words[] = {"drop", "keep", NULL};

static const psti_param decode_table[] = {
    {.name = "color",
     .type = PSTI_P_WORD,
     .offset = offsetof(psti_decode_params, color),
     .words = colors,
     .def = "rgb",
     .help = "channels of images: three, one, or as stored"},
    {.name = "orient",
     .type = PSTI_P_BOOL,
     .offset = offsetof(psti_decode_params, orient),
     .def = "false",
     .help = "turn pictures as their EXIF orientation says"},
    {.name = "crowd",
     .type = PSTI_P_WORD,
     .offset = offsetof(psti_decode_params, crowd),
     .words = crowd_words,
     .def = "drop",
     .help = "objects that stand for many: drop leaves them out, keep delivers them"},
    {.name = NULL},
};

static const psti_param no_params[] = {{.name = NULL}};

static const psti_op_type first[] = {
    {.name = "decode",
     .summary = "pictures from their stored bytes; the first op of every picture",
     .params = decode_table,
     .params_bytes = sizeof(psti_decode_params),
     .role = PSTI_ROLE_DECODE},
    {.name = "bytes",
     .summary = "pictures as they are stored, undecoded; no other op goes with it",
     .params = no_params,
     .role = PSTI_ROLE_BYTES},
};

static const psti_op_type last[] = {
    {.name = "views",
     .summary =
         "several outputs of one picture: views(2: random_resized_crop(224), 8: random_crop(96))",
     .params = no_params,
     .role = PSTI_ROLE_VIEWS},
    {.name = "normalize",
     .summary = "images on a scale of 0 to 1, less the mean, divided by the deviation",
     .params = psti_normalize_table,
     .params_bytes = sizeof(psti_normalize_params),
     .role = PSTI_ROLE_NORMALIZE},
    {.name = "to",
     .summary = "the element type and layout of what is delivered",
     .params = psti_to_table,
     .params_bytes = sizeof(psti_to_params),
     .role = PSTI_ROLE_TO},
    {.name = "mixup",
     .summary = "a batch: each picture and label blended with those of the slot before",
     .params = psti_mixup_table,
     .params_bytes = sizeof(psti_mix_params),
     .role = PSTI_ROLE_MIX,
     .mix = PST_MIXUP},
    {.name = "cutmix",
     .summary = "a batch: a box of each picture from the slot before, labels blended",
     .params = psti_cutmix_table,
     .params_bytes = sizeof(psti_mix_params),
     .role = PSTI_ROLE_MIX,
     .mix = PST_CUTMIX},
    {.name = "choice",
     .summary = "a batch: one op drawn by weight, as in choice(1: mixup, 1: cutmix)",
     .params = no_params,
     .role = PSTI_ROLE_CHOICE},
};

enum { FIRST = sizeof first / sizeof *first, LAST = sizeof last / sizeof *last };

bool psti_op_type_at(int index, psti_op_type *out)
{
    if (index < FIRST) {
        *out = first[index];
        return true;
    }
    int n = 0;
    while (n < index - FIRST && psti_op_at(n))
        n++;
    const psti_op *op = n == index - FIRST ? psti_op_at(n) : NULL;
    if (!op && n++ == index - FIRST)
        op = &psti_call_op;
    if (op) {
        *out = (psti_op_type){op->name,     op->summary, op->params, op->params_bytes,
                              PSTI_ROLE_OP, op,          0};
        return true;
    }
    if (index - FIRST - n >= LAST)
        return false;
    *out = last[index - FIRST - n];
    return true;
}

bool psti_op_type_find(const char *name, size_t len, psti_op_type *out)
{
    for (int i = 0; psti_op_type_at(i, out); i++)
        if (strlen(out->name) == len && memcmp(out->name, name, len) == 0)
            return true;
    return false;
}

const char *psti_op_type_name(int i, const void *user)
{
    psti_op_type type;
    (void)user;
    return psti_op_type_at(i, &type) ? type.name : NULL;
}
