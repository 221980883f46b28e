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

/* Whole rows without gaps of the types that matter go through a kernel. */
static bool load_fast(const psti_value_kernels *kernels, const span *from, int64_t first, int64_t n,
                      float scale, float *out)
{
    if (from->dtype == PST_I16 && from->step == 2)
        kernels->widen_i16(from->at + 2 * first, (size_t)n, scale, out);
    else if (from->dtype == PST_U8 && from->step == 1)
        kernels->widen_u8(from->at + first, (size_t)n, scale, out);
    else
        return false;
    return true;
}

static void write_floats(const span *from, float scale, int dtype, uint8_t *dst)
{
    const psti_value_kernels *kernels = &psti_kernels_get()->values;
    const size_t element = psti_dtype_bytes(dtype);
    float values[CHUNK];
    uint16_t narrow[CHUNK];
    for (int64_t i = 0; i < from->count; i += CHUNK, dst += CHUNK * element) {
        const int64_t n = from->count - i < CHUNK ? from->count - i : CHUNK;
        if (!load_fast(kernels, from, i, n, scale, values)) {
            load_floats(from, i, n, values);
            if (scale != 1)
                kernels->scale(values, (size_t)n, scale, values);
        }
        if (dtype != PST_F32)
            kernels->narrow[dtype == PST_F16 ? PSTI_TO_F16 : PSTI_TO_BF16](values, (size_t)n,
                                                                           narrow);
        kernels->copy(dtype == PST_F32 ? (uint8_t *)values : (uint8_t *)narrow, (size_t)n * element,
                      dst);
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
    const psti_value_kernels *kernels = &psti_kernels_get()->values;
    const size_t element = psti_dtype_bytes(from->dtype);
    if (from->step == (ptrdiff_t)element)
        kernels->copy(from->at, (size_t)from->count * element, dst);
    else if (from->step == -(ptrdiff_t)element)
        kernels->back(from->at + (from->count - 1) * from->step, (size_t)from->count, element, dst);
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

static void write_volume(const psti_finish *finish, const psti_field *in, const psti_pitch *pitch,
                         uint8_t *dst)
{
    const size_t element = psti_dtype_bytes(finish->dtype);
    span from = {.step = in->step[3], .count = in->shape[3], .dtype = in->dtype};
    for (int64_t c = 0; c < in->shape[0]; c++)
        for (int64_t z = 0; z < in->shape[1]; z++)
            for (int64_t y = 0; y < in->shape[2]; y++) {
                const size_t at =
                    (size_t)c * pitch->channel + (size_t)z * pitch->plane + (size_t)y * pitch->row;
                from.at = in->data + c * in->step[0] + z * in->step[1] + y * in->step[2];
                write_row(finish, in, &from, dst + at * element);
            }
}

void psti_finish_values(const psti_finish *finish, const psti_field *in, const psti_pitch *pitch,
                        uint8_t *dst)
{
    if (in->axes == PSTI_AXES_VOLUME) {
        write_volume(finish, in, pitch, dst);
        return;
    }
    /* Rows without gaps are one long row. */
    span from = {.at = in->data,
                 .step = (ptrdiff_t)psti_dtype_bytes(in->dtype),
                 .count = in->shape[1] * in->shape[2],
                 .dtype = in->dtype};
    const bool dense = psti_field_dense(in) && pitch->row == (size_t)from.count;
    const size_t row = pitch->row * psti_dtype_bytes(finish->dtype);
    if (dense)
        from.count *= in->shape[0];
    for (int64_t y = 0; y < (dense ? 1 : in->shape[0]); y++, dst += row, from.at += in->stride)
        write_row(finish, in, &from, dst);
}
