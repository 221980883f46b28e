/* SPDX-License-Identifier: Apache-2.0
 * Looking into batches. Works on the flat descriptor alone, wherever it lies. */
#include <string.h>

#include "engine/engine_priv.h"

const pst_batch_desc *pst_batch_get(const pst_batch *batch)
{
    return psti_batch_desc(batch);
}

void pst_batch_release(pst_batch *batch)
{
    if (batch)
        psti_batch_release(batch);
}

int pst_batch_mix(const pst_batch *batch, pst_mix *out)
{
    *out = psti_batch_desc(batch)->mix;
    return out->kind != PST_MIX_NONE;
}

static const uint8_t *bytes_of(const pst_batch_desc *desc)
{
    return (const uint8_t *)desc;
}

const pst_field *pst_batch_field(const pst_batch_desc *desc, uint32_t index)
{
    if (index >= desc->fields)
        return NULL;
    return (const pst_field *)(bytes_of(desc) + desc->header_bytes +
                               (size_t)index * desc->field_bytes);
}

const pst_field *pst_batch_find(const pst_batch_desc *desc, const char *name)
{
    for (uint32_t i = 0; i < desc->fields; i++) {
        const pst_field *field = pst_batch_field(desc, i);
        if (strncmp(field->name, name, sizeof field->name) == 0)
            return field;
    }
    return NULL;
}

const void *pst_batch_data(const pst_batch_desc *desc, const pst_field *field)
{
    return bytes_of(desc) + field->data_offset;
}

const void *pst_batch_slot(const pst_batch_desc *desc, const pst_field *field, uint32_t slot,
                           size_t *bytes)
{
    const uint8_t *data = bytes_of(desc) + field->data_offset;
    if (slot >= desc->slots)
        return NULL;
    if (field->packing == PST_RAGGED) {
        const int64_t *offsets = (const int64_t *)(bytes_of(desc) + field->offsets_offset);
        *bytes = (size_t)(offsets[slot + 1] - offsets[slot]);
        return data + offsets[slot];
    }
    *bytes = field->slot_bytes;
    return data + (size_t)slot * field->slot_bytes;
}
