/* SPDX-License-Identifier: Apache-2.0
 * Writing into a batch what is no picture: volumes, recordings and their features, row by row from
 * any view of memory. Nothing is normalised here; elements change their type at most. A recording
 * that is kept as whole numbers goes out in -1..1, as audio is. Worker threads; no allocation. */
#include <string.h>

#include "op/kernels/kernels.h"
#include "op/op_priv.h"

enum { CHUNK = 256 };

/* One row of elements: `count` of them, `step` bytes apart. */
typedef struct span {
    const uint8_t *at;
    ptrdiff_t step;
    int64_t count;
    int dtype;
} span;

#define LOAD(type)                                                                                 \
    do {                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type x;                                                                                \
            memcpy(&x, from->at + (first + i) * from->step, sizeof x);                             \
            out[i] = (float)x;                                                                     \
        }                                                                                          \
    } while (0)

static void load_floats(const span *from, int64_t first, int64_t n, float *out)
{
    switch (from->dtype) {
    case PST_U8:
        LOAD(uint8_t);
        break;
    case PST_I8:
        LOAD(int8_t);
        break;
    case PST_U16:
        LOAD(uint16_t);
        break;
    case PST_I16:
        LOAD(int16_t);
        break;
    case PST_I32:
        LOAD(int32_t);
        break;
    case PST_F64:
        LOAD(double);
        break;
    default:
        LOAD(float);
        break;
    }
}
#undef LOAD

static void store_floats(const float *values, int64_t n, int dtype, uint8_t *dst)
{
    uint16_t narrow[CHUNK];
    if (dtype == PST_F32) {
        memcpy(dst, values, (size_t)n * sizeof *values);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        narrow[i] = dtype == PST_F16 ? psti_c_half(values[i]) : psti_c_bfloat(values[i]);
    memcpy(dst, narrow, (size_t)n * sizeof *narrow);
}

static void write_floats(const span *from, float scale, int dtype, uint8_t *dst)
{
    float values[CHUNK];
    for (int64_t i = 0; i < from->count; i += CHUNK) {
        const int64_t n = from->count - i < CHUNK ? from->count - i : CHUNK;
        load_floats(from, i, n, values);
        for (int64_t k = 0; k < n && scale != 1; k++)
            values[k] *= scale;
        store_floats(values, n, dtype, dst + (size_t)i * psti_dtype_bytes(dtype));
    }
}

/* Classes: u8 or u16. What does not fit becomes the largest that does. */
static void write_classes(const span *from, int dtype, uint8_t *dst)
{
    const size_t element = psti_dtype_bytes(dtype);
    for (int64_t i = 0; i < from->count; i++, dst += element) {
        uint16_t value = 0;
        memcpy(&value, from->at + i * from->step, psti_dtype_bytes(from->dtype));
        psti_finish_class(value, dtype, dst);
    }
}

static void write_same(const span *from, uint8_t *dst)
{
    const size_t element = psti_dtype_bytes(from->dtype);
    if (from->step == (ptrdiff_t)element)
        memcpy(dst, from->at, (size_t)from->count * element);
    else if (from->step == -(ptrdiff_t)element)
        psti_kernels_get()->reverse(from->at + (from->count - 1) * from->step, (size_t)from->count,
                                    element, dst);
    else
        for (int64_t i = 0; i < from->count; i++)
            memcpy(dst + (size_t)i * element, from->at + i * from->step, element);
}

static void write_row(const psti_finish *finish, const psti_field *in, const span *from,
                      uint8_t *dst)
{
    const bool wide = in->axes == PSTI_AXES_WAVE && in->dtype == PST_I16;
    if (finish->dtype == in->dtype)
        write_same(from, dst);
    else if (in->kind == PST_MASK)
        write_classes(from, finish->dtype, dst);
    else
        write_floats(from, wide ? 0x1p-15f : 1, finish->dtype, dst);
}

static void write_volume(const psti_finish *finish, const psti_field *in, uint8_t *dst)
{
    const size_t row = (size_t)in->shape[3] * psti_dtype_bytes(finish->dtype);
    span from = {.step = in->step[3], .count = in->shape[3], .dtype = in->dtype};
    for (int64_t c = 0; c < in->shape[0]; c++)
        for (int64_t z = 0; z < in->shape[1]; z++)
            for (int64_t y = 0; y < in->shape[2]; y++, dst += row) {
                from.at = in->data + c * in->step[0] + z * in->step[1] + y * in->step[2];
                write_row(finish, in, &from, dst);
            }
}

void psti_finish_values(const psti_finish *finish, const psti_field *in, uint8_t *dst)
{
    if (in->axes == PSTI_AXES_VOLUME) {
        write_volume(finish, in, dst);
        return;
    }
    /* Rows without gaps are one long row. */
    span from = {.at = in->data,
                 .step = (ptrdiff_t)psti_dtype_bytes(in->dtype),
                 .count = in->shape[1] * in->shape[2],
                 .dtype = in->dtype};
    const bool dense = psti_field_dense(in);
    const size_t row = (size_t)from.count * psti_dtype_bytes(finish->dtype);
    if (dense)
        from.count *= in->shape[0];
    for (int64_t y = 0; y < (dense ? 1 : in->shape[0]); y++, dst += row, from.at += in->stride)
        write_row(finish, in, &from, dst);
}
