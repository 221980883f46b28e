/* SPDX-License-Identifier: Apache-2.0
 * Element types: sizes and names. Sizes of fields, and fields that are views of memory. */
#include "core/field.h"

#include <string.h>

#include "core/memory.h"

static const struct {
    const char *name, *long_name;
    size_t bytes;
} types[] = {
    [PST_U8] = {"u8", "uint8", 1},     [PST_I8] = {"i8", "int8", 1},
    [PST_U16] = {"u16", "uint16", 2},  [PST_I16] = {"i16", "int16", 2},
    [PST_I32] = {"i32", "int32", 4},   [PST_I64] = {"i64", "int64", 8},
    [PST_F16] = {"f16", "float16", 2}, [PST_BF16] = {"bf16", "bfloat16", 2},
    [PST_F32] = {"f32", "float32", 4}, [PST_F64] = {"f64", "float64", 8},
    [PST_BOOL] = {"bool", "bool", 1},
};
enum { TYPES = sizeof types / sizeof *types };

size_t psti_dtype_bytes(int dtype)
{
    return dtype > 0 && dtype < TYPES ? types[dtype].bytes : 0;
}

size_t pst_dtype_bytes(int dtype)
{
    return psti_dtype_bytes(dtype);
}

const char *psti_dtype_name(int dtype)
{
    return dtype > 0 && dtype < TYPES ? types[dtype].name : "?";
}

static int same(const char *word, const char *text, size_t len)
{
    return strlen(word) == len && memcmp(word, text, len) == 0;
}

int psti_dtype_of_name(const char *name, size_t len)
{
    for (int i = 1; i < TYPES; i++)
        if (same(types[i].name, name, len) || same(types[i].long_name, name, len))
            return i;
    return 0;
}

/* ---- sizes and views ------------------------------------------------------------------------- */

bool psti_geom_bytes(const psti_geom *geom, size_t *out)
{
    const int64_t depth = geom->axes == PSTI_AXES_VOLUME ? geom->depth : 1;
    size_t bytes = psti_dtype_bytes(geom->dtype);
    return bytes > 0 && geom->rows > 0 && geom->cols > 0 && geom->channels > 0 && depth > 0 &&
           psti_mul(bytes, (size_t)geom->channels, &bytes) &&
           psti_mul(bytes, (size_t)geom->cols, &bytes) && psti_mul(bytes, (size_t)depth, &bytes) &&
           psti_mul(bytes, (size_t)geom->rows, out);
}

double psti_geom_area(const psti_geom *geom)
{
    const double plane = (double)geom->rows * (double)geom->cols;
    return geom->axes == PSTI_AXES_VOLUME ? plane * (double)geom->depth : plane;
}

void psti_field_pack(psti_field *field)
{
    const size_t element = psti_dtype_bytes(field->dtype);
    if (field->axes != PSTI_AXES_VOLUME) {
        field->stride = (size_t)field->shape[1] * (size_t)field->shape[2] * element;
        field->bytes = (size_t)field->shape[0] * field->stride;
        return;
    }
    field->stride = 0;
    field->bytes = element;
    for (int d = 3; d >= 0; d--) {
        field->step[d] = (ptrdiff_t)field->bytes;
        field->bytes *= (size_t)field->shape[d];
    }
}

psti_field psti_field_of(int kind, const psti_geom *size)
{
    psti_field field = {.kind = (uint8_t)kind,
                        .dtype = (uint8_t)size->dtype,
                        .rank = 3,
                        .axes = (uint8_t)size->axes,
                        .shape = {size->rows, size->cols, size->channels},
                        .whole_rows = size->rows,
                        .whole_cols = size->cols,
                        .first_damaged_row = PSTI_ROWS_SOUND};
    if (size->axes == PSTI_AXES_VOLUME) {
        field.rank = 4;
        field.shape[0] = size->channels;
        field.shape[1] = field.whole_depth = size->depth;
        field.shape[2] = size->rows;
        field.shape[3] = size->cols;
    }
    psti_field_pack(&field);
    return field;
}

psti_geom psti_field_geom(const psti_field *field)
{
    const int64_t *shape = field->shape;
    if (field->axes == PSTI_AXES_VOLUME)
        return (psti_geom){shape[2], shape[3], shape[0], shape[1], field->dtype, PSTI_AXES_VOLUME};
    return (psti_geom){.rows = shape[0],
                       .cols = shape[1],
                       .channels = shape[2],
                       .dtype = field->dtype,
                       .axes = (psti_axes)field->axes};
}

bool psti_field_dense(const psti_field *field)
{
    psti_field packed = *field;
    psti_field_pack(&packed);
    if (field->axes != PSTI_AXES_VOLUME)
        return field->stride == packed.stride;
    bool dense = true;
    for (int d = 0; d < 4; d++)
        dense &= field->shape[d] == 1 || field->step[d] == packed.step[d];
    return dense;
}

/* count elements that lie `step` bytes apart. */
static void gather(uint8_t *to, const uint8_t *from, ptrdiff_t step, size_t element, int64_t count)
{
    if (step == (ptrdiff_t)element) {
        memcpy(to, from, (size_t)count * element);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        memcpy(to + (size_t)i * element, from + i * step, element);
}

void psti_field_copy(const psti_field *from, const psti_field *to)
{
    const size_t element = psti_dtype_bytes(to->dtype);
    uint8_t *at = to->data;
    if (from->axes != PSTI_AXES_VOLUME) {
        const size_t bytes = (size_t)to->shape[1] * (size_t)to->shape[2] * element;
        for (int64_t y = 0; y < to->shape[0]; y++)
            memcpy(at + (size_t)y * to->stride, from->data + (size_t)y * from->stride, bytes);
        return;
    }
    const size_t row = (size_t)to->shape[3] * element;
    for (int64_t c = 0; c < to->shape[0]; c++)
        for (int64_t z = 0; z < to->shape[1]; z++)
            for (int64_t y = 0; y < to->shape[2]; y++, at += row)
                gather(at, from->data + c * from->step[0] + z * from->step[1] + y * from->step[2],
                       from->step[3], element, to->shape[3]);
}

void psti_box_copy(uint8_t *dst, const int64_t *box, const uint8_t *src, const int64_t *shape,
                   int rank, size_t unit)
{
    if (rank == 0) {
        memcpy(dst, src, unit);
        return;
    }
    size_t dst_step = unit, src_step = unit;
    for (int d = 1; d < rank; d++) {
        dst_step *= (size_t)box[d];
        src_step *= (size_t)shape[d];
    }
    if (dst_step == src_step) {
        memcpy(dst, src, src_step * (size_t)shape[0]);
        return;
    }
    for (int64_t i = 0; i < shape[0]; i++)
        psti_box_copy(dst + (size_t)i * dst_step, box + 1, src + (size_t)i * src_step, shape + 1,
                      rank - 1, unit);
}

void psti_box_clear(uint8_t *dst, const int64_t *box, const int64_t *shape, int rank, size_t unit)
{
    size_t step = unit;
    bool inner = false; /* something is to be cleared beside what there is */
    for (int d = 1; d < rank; d++) {
        step *= (size_t)box[d];
        inner |= box[d] > shape[d];
    }
    for (int64_t i = 0; inner && i < shape[0]; i++)
        psti_box_clear(dst + (size_t)i * step, box + 1, shape + 1, rank - 1, unit);
    if (rank > 0)
        memset(dst + (size_t)shape[0] * step, 0, (size_t)(box[0] - shape[0]) * step);
}
