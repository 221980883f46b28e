/* SPDX-License-Identifier: Apache-2.0
 * What the ops on volumes share. A volume that comes in may be a view of memory with any steps and
 * of type u8, i16 or f32 (masks: u8); ops read it row by row through the functions below and never
 * look at steps themselves. What they write has no gaps. */
#ifndef PSTI_OP_VOLUME_VOLUME_H
#define PSTI_OP_VOLUME_VOLUME_H

#include "op/op_priv.h"

extern const psti_op psti_op_spacing, psti_op_clip, psti_op_intensity, psti_op_pad_min,
    psti_op_balanced_crop, psti_op_center_crop3, psti_op_random_flip, psti_op_cast,
    psti_op_random_brightness, psti_op_gaussian_noise;

/* ---- rows.c ---------------------------------------------------------------------------------- */

/* Refuses types that ops on volumes do not read. */
int psti_volume_check(const char *op, const psti_field *in, pst_error *err);
/* The first element of a row. */
static inline const uint8_t *psti_volume_at(const psti_field *in, int64_t c, int64_t z, int64_t y)
{
    return in->data + c * in->step[0] + z * in->step[1] + y * in->step[2];
}
/* A row as floats: where it lies if it can, else in tmp, which has room for one. */
const float *psti_volume_row(const psti_field *in, int64_t c, int64_t z, int64_t y, float *tmp);
/* A row of elements as they are, side by side in dst. */
void psti_volume_take(const psti_field *in, int64_t c, int64_t z, int64_t y, uint8_t *dst);

/* A kernel on a run of n values, which stand `first` elements behind the first one of the volume.
 * dst is src, or they do not overlap. */
typedef void psti_volume_fn(const void *how, const float *src, size_t n, uint64_t first,
                            float *dst);
/* Every value of `in` through the function, into `out` of f32. */
void psti_volume_map(const psti_field *in, psti_field *out, psti_volume_fn *fn, const void *how);

/* infer and decide of ops that make f32 of an image of the same size. */
void psti_volume_infer_floats(const void *params, const psti_geom *in, psti_geom *out);
int psti_volume_decide_floats(const void *params, psti_rng *rng, const psti_geom *in,
                              psti_draw *draw, psti_geom *out, pst_error *err);

/* Planes, rows and columns of a size parameter: one number stands for all three. */
void psti_volume_size(const psti_list *list, int64_t size[3]);
int psti_volume_check_size(const psti_list *list, const char *name, pst_error *err);

/* ---- foreground.c ---------------------------------------------------------------------------- */

/* Of each class in a mask the boxes of the two parts that have the largest ones: classes ascending,
 * the larger box last. 0, PST_EFIELD or -ENOMEM. */
int psti_foreground(const psti_field *mask, psti_box out[PSTI_NOTE_ROWS], int *count,
                    pst_error *err);

/* ---- views.c --------------------------------------------------------------------------------- */

/* Refuses a crop that is larger than the volume. */
int psti_volume_check_window(const char *op, const psti_geom *in, const psti_geom *out,
                             pst_error *err);
/* The field shows the draw's window and nothing else. */
void psti_volume_show(const psti_draw *draw, psti_field *out);

#endif
