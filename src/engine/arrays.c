/* SPDX-License-Identifier: Apache-2.0
 * See arrays.h. Called by whoever asks for a dataset's fields or opens a job; keeps nothing. */
#include "engine/arrays.h"

#include <string.h>

#include "codec/codec.h"
#include "core/memory.h"
#include "source/source.h"

/* Magic, version and length, then a header of at most 10,000 bytes, all of which the parser reads;
 * the array behind it is not touched. */
enum { LOOKS = 8, HEAD_BYTES = 12 + 10000 };

static int look_at(const psti_dataset *data, int64_t id, int field, uint8_t *buf, psti_field *out)
{
    psti_extent at;
    int rc = psti_dataset_extent(data, id, field, &at); /* arrays are in no list of files */
    if (rc < 0)
        return rc;
    const uint64_t size = at.length;
    rc = psti_dataset_read_now(data, id, field, size < HEAD_BYTES ? size : HEAD_BYTES, buf);
    return rc < 0 ? rc : psti_npy_parse(buf, size, out, NULL);
}

/* One that differs in type or dimensions is a bad sample when its turn comes. */
static void widen(pst_field_info *info, const psti_field *seen)
{
    if (!info->dtype) {
        info->dtype = seen->dtype;
        info->rank = seen->rank;
        memcpy(info->shape, seen->shape, sizeof info->shape);
        return;
    }
    if (seen->dtype != info->dtype || seen->rank != info->rank)
        return;
    for (int d = 0; d < info->rank; d++)
        if (info->shape[d] != seen->shape[d])
            info->shape[d] = -1;
}

void arrays_look(const psti_dataset *data, int field, pst_field_info *info)
{
    if (info->kind != PST_ARRAY || info->dtype)
        return;
    const int64_t last = psti_dataset_count(data) - 1;
    uint8_t *buf = psti_malloc(PSTI_MEM_ENGINE, HEAD_BYTES);
    for (int i = 0; buf && i < LOOKS && i <= last; i++) {
        psti_field seen;
        const int64_t id = last < LOOKS ? i : last * i / (LOOKS - 1);
        if (look_at(data, id, field, buf, &seen) == 0)
            widen(info, &seen);
    }
    psti_free(buf);
}
