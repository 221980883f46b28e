/* SPDX-License-Identifier: Apache-2.0
 * Reading slots of a batch through the public descriptor. Consumer's thread. */
#include <string.h>

#include "slots.h"

static int64_t number_of(const pst_batch_desc *desc, const char *name, uint32_t slot)
{
    int64_t number = -1;
    size_t bytes = 0;
    const pst_field *field = pst_batch_find(desc, name);
    const void *at = field ? pst_batch_slot(desc, field, slot, &bytes) : NULL;
    if (at != NULL && bytes == sizeof number)
        memcpy(&number, at, sizeof number);
    return number;
}

int64_t slot_id(const pst_batch_desc *desc, uint32_t slot)
{
    return number_of(desc, "id", slot);
}

int64_t slot_preparation(const pst_batch_desc *desc, uint32_t slot)
{
    return number_of(desc, "preparation", slot);
}

bool slot_valid(const pst_batch_desc *desc, uint32_t slot)
{
    size_t bytes = 0;
    const pst_field *field = pst_batch_find(desc, "valid");
    const uint8_t *at = field ? pst_batch_slot(desc, field, slot, &bytes) : NULL;
    return at == NULL || at[0] != 0;
}

const char *slot_key(const pst_batch_desc *desc, uint32_t slot, size_t *length)
{
    const pst_field *field = pst_batch_find(desc, "key");
    *length = 0;
    const char *at = field ? pst_batch_slot(desc, field, slot, length) : NULL;
    if (at == NULL)
        return "";
    *length = strnlen(at, *length);
    return at;
}

void slot_shape(const pst_batch_desc *desc, const pst_field *field, uint32_t slot,
                int64_t shape[PST_MAX_RANK])
{
    const size_t bytes = field->rank * sizeof *shape;
    if (field->shapes_offset != 0)
        memcpy(shape, (const char *)desc + field->shapes_offset + slot * bytes, bytes);
    else
        memcpy(shape, field->shape, bytes);
}

/* The walk over the parts of a slot that are not padding. */
typedef struct runs {
    const uint8_t *base;
    int outer;                    /* dimensions that are walked; the rest is one run */
    int64_t shape[PST_MAX_RANK];  /* true */
    int64_t stride[PST_MAX_RANK]; /* bytes from one index to the next */
    int64_t index[PST_MAX_RANK];
    size_t run_bytes;
    bool more;
} runs;

/* Dense and ragged slots are one run. A padded one is a run per row of the innermost dimensions
 * that are not padded. */
static runs runs_begin(const pst_batch_desc *desc, const pst_field *field, uint32_t slot)
{
    runs r = {.more = true};
    size_t bytes = 0;
    r.base = pst_batch_slot(desc, field, slot, &bytes);
    if (field->packing != PST_PADDED) {
        r.run_bytes = bytes;
        return r;
    }
    slot_shape(desc, field, slot, r.shape);
    int64_t stride = (int64_t)pst_dtype_bytes(field->dtype);
    for (int i = field->rank - 1; i >= 0; i--) {
        r.stride[i] = stride;
        stride *= field->shape[i];
        r.more = r.more && r.shape[i] > 0;
    }
    r.outer = field->rank;
    while (r.outer > 0 && r.shape[r.outer - 1] == field->shape[r.outer - 1])
        r.outer--;
    r.outer =
        r.outer > 0 ? r.outer - 1 : 0; /* the dimension that is cut short is part of the run */
    r.run_bytes = field->rank == 0 ? bytes : (size_t)(r.shape[r.outer] * r.stride[r.outer]);
    return r;
}

/* The next run, or NULL after the last. */
static const uint8_t *runs_next(runs *r)
{
    if (!r->more)
        return NULL;
    const uint8_t *at = r->base;
    for (int i = 0; i < r->outer; i++)
        at += r->index[i] * r->stride[i];
    r->more = false;
    for (int i = r->outer - 1; i >= 0 && !r->more; i--) {
        if (++r->index[i] < r->shape[i])
            r->more = true;
        else
            r->index[i] = 0;
    }
    return at;
}

size_t slot_bytes(const pst_batch_desc *desc, const pst_field *field, uint32_t slot)
{
    size_t total = 0;
    runs r = runs_begin(desc, field, slot);
    while (runs_next(&r) != NULL)
        total += r.run_bytes;
    return total;
}

void slot_pack(const pst_batch_desc *desc, const pst_field *field, uint32_t slot, uint8_t *dst)
{
    runs r = runs_begin(desc, field, slot);
    for (const uint8_t *at = runs_next(&r); at != NULL; at = runs_next(&r)) {
        if (r.run_bytes > 0)
            memcpy(dst, at, r.run_bytes);
        dst += r.run_bytes;
    }
}

static bool is_payload(const pst_field *field)
{
    return strcmp(field->name, "id") != 0 && strcmp(field->name, "key") != 0 &&
           strcmp(field->name, "valid") != 0 && strcmp(field->name, "preparation") != 0;
}

uint32_t slot_crc(const pst_batch_desc *desc, uint32_t slot)
{
    uint32_t crc = 0;
    for (uint32_t i = 0; i < desc->fields; i++) {
        const pst_field *field = pst_batch_field(desc, i);
        if (!is_payload(field))
            continue;
        runs r = runs_begin(desc, field, slot);
        for (const uint8_t *at = runs_next(&r); at != NULL; at = runs_next(&r))
            crc = pst_crc32c(crc, at, r.run_bytes);
    }
    return crc;
}
