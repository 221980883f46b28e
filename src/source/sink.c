/* SPDX-License-Identifier: Apache-2.0
 * What the function of a custom dataset hands over for one sample. Public functions, called from
 * within that function only, on its thread. */
#include <errno.h>
#include <string.h>

#include "core/field.h"
#include "core/memory.h"
#include "core/status.h"
#include "source/source_priv.h"

static int refuse(pst_sink *sink, int code, const char *what, int field)
{
    if (sink->rc == 0)
        sink->rc = psti_fail(&sink->error, code, "read", NULL, "%s (field %d)", what, field);
    return code;
}

/* The field's part, empty; NULL when there is no such field. */
static psti_part *part_of(pst_sink *sink, int field)
{
    if (field < 0 || field >= sink->data->fields) {
        refuse(sink, PST_EFIELD, "the read function gave a field that was not declared", field);
        return NULL;
    }
    psti_part *part = &sink->part[field];
    if (part->free_fn)
        part->free_fn(part->arg);
    *part = (psti_part){.there = true};
    return part;
}

int pst_sink_take(pst_sink *sink, int field, const void *bytes, size_t size,
                  void (*free_fn)(void *arg), void *arg)
{
    psti_part *part = part_of(sink, field);
    if (!part) {
        if (free_fn)
            free_fn(arg);
        return PST_EFIELD;
    }
    part->bytes = size ? bytes : (const uint8_t *)"";
    part->size = size;
    part->free_fn = free_fn;
    part->arg = arg;
    return 0;
}

int pst_sink_bytes(pst_sink *sink, int field, const void *bytes, size_t size)
{
    psti_part *part = part_of(sink, field);
    if (!part)
        return PST_EFIELD;
    part->size = size;
    if (size <= sizeof part->small) {
        memcpy(&part->small, size ? bytes : "", size);
        part->bytes = (const uint8_t *)&part->small;
        return 0;
    }
    uint8_t *copy = psti_malloc(PSTI_MEM_SOURCE, size);
    if (!copy) {
        *part = (psti_part){0};
        return refuse(sink, -ENOMEM, "out of memory for a sample's bytes", field);
    }
    memcpy(copy, bytes, size);
    part->bytes = copy;
    part->free_fn = psti_free;
    part->arg = copy;
    return 0;
}

/* A number in the field's own type. */
static int put_number(pst_sink *sink, int field, int64_t whole, double real)
{
    const int dtype =
        field >= 0 && field < sink->data->fields ? sink->data->field[field].info.dtype : PST_I64;
    const int32_t narrow = (int32_t)whole;
    const float single = (float)real;
    const uint8_t byte = (uint8_t)whole, truth = whole != 0;
    switch (dtype) {
    case PST_I64:
        return pst_sink_bytes(sink, field, &whole, sizeof whole);
    case PST_I32:
        if (narrow != whole)
            return refuse(sink, PST_EFIELD, "a number does not fit an int32 field", field);
        return pst_sink_bytes(sink, field, &narrow, sizeof narrow);
    case PST_U8:
        if (byte != whole)
            return refuse(sink, PST_EFIELD, "a number does not fit a uint8 field", field);
        return pst_sink_bytes(sink, field, &byte, sizeof byte);
    case PST_BOOL:
        return pst_sink_bytes(sink, field, &truth, sizeof truth);
    case PST_F32:
        return pst_sink_bytes(sink, field, &single, sizeof single);
    case PST_F64:
        return pst_sink_bytes(sink, field, &real, sizeof real);
    default:
        return refuse(sink, PST_EFIELD, "a field of this type takes bytes, not a number", field);
    }
}

int pst_sink_int(pst_sink *sink, int field, int64_t value)
{
    return put_number(sink, field, value, (double)value);
}

int pst_sink_real(pst_sink *sink, int field, double value)
{
    const int dtype =
        field >= 0 && field < sink->data->fields ? sink->data->field[field].info.dtype : PST_F64;
    if (dtype != PST_F32 && dtype != PST_F64)
        return refuse(sink, PST_EFIELD, "a real number came for a field of whole numbers", field);
    return put_number(sink, field, 0, value);
}
