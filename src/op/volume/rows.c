/* SPDX-License-Identifier: Apache-2.0
 * Rows of volumes, whatever their type and the view of memory they are; and ops that are a function
 * of each value. No state; worker threads; nothing is allocated. */
#include "op/volume/volume.h"

#include <string.h>

#include "core/status.h"
#include "op/kernels/kernels.h"

int psti_volume_check(const char *op, const psti_field *in, pst_error *err)
{
    if (in->axes == PSTI_AXES_VOLUME &&
        (in->dtype == PST_U8 || in->dtype == PST_I16 || in->dtype == PST_F32))
        return 0;
    return psti_fail(err, PST_EFIELD, op, NULL,
                     "a volume has values of u8, i16 or f32; this field has %s",
                     psti_dtype_name(in->dtype));
}

static void gather(const uint8_t *from, ptrdiff_t step, size_t element, int64_t n, uint8_t *dst)
{
    for (int64_t i = 0; i < n; i++, from += step, dst += element)
        memcpy(dst, from, element);
}

void psti_volume_take(const psti_field *in, int64_t c, int64_t z, int64_t y, uint8_t *dst)
{
    const size_t element = psti_dtype_bytes(in->dtype);
    const ptrdiff_t step = in->step[3];
    const int64_t n = in->shape[3];
    const uint8_t *from = psti_volume_at(in, c, z, y);
    if (step == (ptrdiff_t)element)
        memcpy(dst, from, (size_t)n * element);
    else if (step == -(ptrdiff_t)element)
        psti_kernels_get()->reverse(from + (n - 1) * step, (size_t)n, element, dst);
    else
        gather(from, step, element, n, dst);
}

/* Pieces of a row that is turned round or has gaps, so that kernels see elements side by side. */
static void widen_gathered(const psti_field *in, const uint8_t *from, float *dst)
{
    enum { PIECE = 512 };
    const psti_value_kernels *kernels = &psti_kernels_get()->values;
    const size_t element = psti_dtype_bytes(in->dtype);
    uint8_t piece[2 * PIECE];
    for (int64_t x = 0; x < in->shape[3]; x += PIECE) {
        const int64_t n = in->shape[3] - x < PIECE ? in->shape[3] - x : PIECE;
        gather(from + x * in->step[3], in->step[3], element, n, piece);
        (in->dtype == PST_U8 ? kernels->widen_u8 : kernels->widen_i16)(piece, (size_t)n, 1,
                                                                       dst + x);
    }
}

const float *psti_volume_row(const psti_field *in, int64_t c, int64_t z, int64_t y, float *tmp)
{
    const psti_value_kernels *kernels = &psti_kernels_get()->values;
    const uint8_t *from = psti_volume_at(in, c, z, y);
    const bool dense = in->step[3] == (ptrdiff_t)psti_dtype_bytes(in->dtype);
    if (in->dtype == PST_F32 && dense && (uintptr_t)from % sizeof(float) == 0)
        return (const float *)(const void *)from;
    if (in->dtype == PST_F32)
        psti_volume_take(in, c, z, y, (uint8_t *)tmp);
    else if (!dense)
        widen_gathered(in, from, tmp);
    else
        (in->dtype == PST_U8 ? kernels->widen_u8 : kernels->widen_i16)(from, (size_t)in->shape[3],
                                                                       1, tmp);
    return tmp;
}

void psti_volume_map(const psti_field *in, psti_field *out, psti_volume_fn *fn, const void *how)
{
    const size_t cols = (size_t)in->shape[3];
    float *dst = (float *)(void *)out->data;
    uint64_t first = 0;
    for (int64_t c = 0; c < in->shape[0]; c++)
        for (int64_t z = 0; z < in->shape[1]; z++)
            for (int64_t y = 0; y < in->shape[2]; y++, dst += cols, first += cols)
                fn(how, psti_volume_row(in, c, z, y, dst), cols, first, dst);
}

void psti_volume_infer_floats(const void *params, const psti_geom *in, psti_geom *out)
{
    (void)params;
    *out = *in;
    out->dtype = PST_F32;
}

int psti_volume_decide_floats(const void *params, psti_rng *rng, const psti_geom *in,
                              psti_draw *draw, psti_geom *out, pst_error *err)
{
    (void)rng, (void)err;
    psti_draw_whole(draw, in);
    psti_volume_infer_floats(params, in, out);
    return 0;
}

void psti_volume_size(const psti_list *list, int64_t size[3])
{
    for (int i = 0; i < 3; i++)
        size[i] = (int64_t)list->v[list->count == 3 ? i : 0];
}

int psti_volume_check_size(const psti_list *list, const char *name, pst_error *err)
{
    if (list->count != 2)
        return 0;
    return psti_fail(err, PST_EPIPELINE, name, NULL,
                     "size is one number, or planes, rows and columns");
}
