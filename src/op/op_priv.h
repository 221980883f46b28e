/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room share: size arithmetic, windows, resampling, borders, tables of
 * words. */
#ifndef PSTI_OP_PRIV_H
#define PSTI_OP_PRIV_H

#include "op/op.h"

/* Whether an op delay with these parameters hits the sample, where that is not drawn (delay.c). */
bool psti_delay_hits(const void *params, int64_t id);

/* The ops, one per file (flip.c has two, adjust.c those of one colour function each). */
extern const psti_op psti_op_resize, psti_op_center_crop, psti_op_random_resized_crop,
    psti_op_random_crop, psti_op_pad, psti_op_hflip, psti_op_vflip, psti_op_color_jitter,
    psti_op_grayscale, psti_op_random_grayscale, psti_op_gaussian_blur, psti_op_adjust_brightness,
    psti_op_adjust_contrast, psti_op_adjust_saturation, psti_op_adjust_hue,
    psti_op_adjust_sharpness, psti_op_random_adjust_sharpness, psti_op_posterize,
    psti_op_random_posterize, psti_op_solarize, psti_op_random_solarize, psti_op_autocontrast,
    psti_op_random_autocontrast, psti_op_equalize, psti_op_random_equalize, psti_op_invert,
    psti_op_random_invert;
extern const psti_op psti_op_affine, psti_op_random_affine, psti_op_rotate, psti_op_random_rotation,
    psti_op_shear_x, psti_op_shear_y, psti_op_translate_x, psti_op_translate_y,
    psti_op_random_erasing, psti_op_auto_augment, psti_op_rand_augment,
    psti_op_trivial_augment_wide, psti_op_augmix, psti_op_delay;

enum { PSTI_SIZE_MAX = 65536 }; /* rows or columns that a parameter may ask for */
#define PSTI_OUT_BYTES_MAX        ((int64_t)512 << 20) /* of one picture that an op makes */
#define PSTI_OUT_BYTES_MAX_VOLUME ((int64_t)4 << 30)   /* of one volume or recording */

/* ---- common.c -------------------------------------------------------------------------------- */

/* Round to nearest, ties to even, as Python's round; 0 <= x < 2^62. */
int64_t psti_round_even(double x);
/* The draw that takes the whole picture, acting. */
void psti_draw_whole(psti_draw *draw, const psti_geom *in);
/* The infer of ops that keep a picture's size and channels. */
void psti_infer_same(const void *params, const psti_geom *in, psti_geom *out);
/* A size parameter: one number stands for both sides. */
void psti_size_of(const psti_list *size, int64_t *rows, int64_t *cols);
/* 0, or PST_ELIMIT when a picture of this size is refused. */
int psti_out_check(const char *op, const psti_geom *out, pst_error *err);
/* Bytes of one pixel; 0 when an op cannot work on the field. */
size_t psti_pixel_bytes(const psti_field *field);
/* The pixel at (row, column) of the whole picture. The field's window covers it. */
const uint8_t *psti_pixel_at(const psti_field *field, int64_t row, int64_t col);

/* ---- finish.c, values.c ---------------------------------------------------------------------- */

/* A class as the type that masks are delivered in; one too large becomes the largest there is. */
void psti_finish_class(uint16_t value, int dtype, uint8_t *dst);
/* psti_finish_write of what is no picture. */
void psti_finish_values(const psti_finish *finish, const psti_field *in, const psti_pitch *pitch,
                        uint8_t *dst);

/* ---- resample.c ------------------------------------------------------------------------------ */

typedef enum psti_filter { PSTI_NEAREST, PSTI_BILINEAR, PSTI_BICUBIC } psti_filter;
extern const char *const psti_filter_words[]; /* in the order of psti_filter */

/* Makes `out` from the window of `in` that the draw names. Masks: nearest by the rule of tensors,
 * whatever the filter. */
int psti_resample(psti_filter filter, const psti_draw *window, psti_op_ctx *ctx,
                  const psti_field *in, psti_field *out, pst_error *err);
/* The same with the kernels of one level, for tests. */
struct psti_kernels;
int psti_resample_with(const struct psti_kernels *kernels, psti_filter filter,
                       const psti_draw *window, psti_op_ctx *ctx, const psti_field *in,
                       psti_field *out, pst_error *err);
/* What psti_resample takes in the context for a window of this size: an upper bound. */
size_t psti_resample_scratch(psti_filter filter, const psti_draw *window, const psti_geom *out);

/* ---- border.c -------------------------------------------------------------------------------- */

typedef enum psti_border { PSTI_CONSTANT, PSTI_EDGE, PSTI_REFLECT, PSTI_SYMMETRIC } psti_border;
extern const char *const psti_border_words[]; /* in the order of psti_border */

/* A picture with up to two borders laid round it, one after the other, and a window cut out of the
 * result. */
typedef struct psti_canvas {
    psti_border border;
    int64_t before[2], after[2]; /* of the first and second border, along this axis */
    int64_t skip;                /* of the bordered picture, before the window */
} psti_canvas;

/* Copies `in` into `out` through the canvases of rows and columns. fill: one value per channel or
 * one for all; NULL or a mask: 0. */
int psti_canvas_run(const psti_canvas *rows, const psti_canvas *cols, const psti_list *fill,
                    psti_op_ctx *ctx, const psti_field *in, psti_field *out, pst_error *err);
size_t psti_canvas_scratch(const psti_geom *out);
/* A row of fill values for pictures like `in`; NULL or a mask: zeros. */
void psti_fill_row(const psti_list *fill, const psti_field *in, int64_t cols, uint8_t *row);
/* Refuses fills that fit neither one value nor the picture's channels. */
int psti_fill_check(const char *op, const psti_list *fill, const psti_geom *in, pst_error *err);

#endif
