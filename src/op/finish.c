/* SPDX-License-Identifier: Apache-2.0
 * normalize and to: the last step, done while a picture is written into its slot of the batch. The
 * tables are read by the pipeline's parser; psti_finish_write runs on worker threads and keeps no
 * state. */
#include <string.h>

#include "core/status.h"
#include "op/kernels/kernels.h"
#include "op/op_priv.h"

/* ---- parameters ------------------------------------------------------------------------------ */

static const char *const preset_words[] = {"none", "imagenet", "half", "clip", "caffe", NULL};
static const char *const dtype_words[] = {"same", "u8",  "f16", "bf16", "f32",
                                          "u16",  "i32", "i64", NULL};
static const int dtype_of_word[] = {0,       PST_U8,  PST_F16, PST_BF16,
                                    PST_F32, PST_U16, PST_I32, PST_I64};
static const char *const layout_words[] = {"same", "nhwc", "nchw", NULL};

typedef struct preset {
    psti_list mean, std;
} preset;

static const preset presets[] = {
    {{0}, {0}},
    {{3, {0.485, 0.456, 0.406}, 0}, {3, {0.229, 0.224, 0.225}, 0}},
    {{1, {0.5}, 0}, {1, {0.5}, 0}},
    {{3, {0.48145466, 0.4578275, 0.40821073}, 0}, {3, {0.26862954, 0.26130258, 0.27577711}, 0}},
    /* On 0 to 255, of channels from blue to red. */
    {{3, {102.9801 / 255, 115.9465 / 255, 122.7717 / 255}, 0}, {1, {1.0 / 255}, 0}},
};

const psti_param psti_normalize_table[] = {
    {.name = "preset",
     .type = PSTI_P_WORD,
     .offset = offsetof(psti_normalize_params, preset),
     .words = preset_words,
     .def = "none",
     .help = "known means and deviations; none = those given"},
    {.name = "mean",
     .type = PSTI_P_LIST,
     .offset = offsetof(psti_normalize_params, mean),
     .min = -1000,
     .max = 1000,
     .min_count = 0,
     .max_count = 4,
     .def = "",
     .help = "one per channel or one for all, on a scale of 0 to 1"},
    {.name = "std",
     .type = PSTI_P_LIST,
     .offset = offsetof(psti_normalize_params, std),
     .min = 1e-6,
     .max = 1000,
     .min_count = 0,
     .max_count = 4,
     .def = "",
     .help = "one per channel or one for all, on a scale of 0 to 1"},
    {.name = NULL},
};

const psti_param psti_to_table[] = {
    {.name = "dtype",
     .type = PSTI_P_WORD,
     .offset = offsetof(psti_to_params, dtype),
     .words = dtype_words,
     .def = "same",
     .help = "type of the values; floats of an image are 0 to 1 unless normalised"},
    {.name = "layout",
     .type = PSTI_P_WORD,
     .offset = offsetof(psti_to_params, layout),
     .words = layout_words,
     .def = "same",
     .help = "order of an image's dimensions"},
    {.name = NULL},
};

int psti_to_dtype(const psti_to_params *params)
{
    return dtype_of_word[params->dtype];
}

int psti_normalize_values(const psti_normalize_params *params, psti_list *mean, psti_list *std,
                          pst_error *err)
{
    const bool lists = params->mean.count > 0 || params->std.count > 0;
    if (params->preset > 0) {
        if (lists)
            return psti_fail(err, PST_EPIPELINE, "normalize", NULL,
                             "takes the preset %s, or mean and std, not both",
                             preset_words[params->preset]);
        *mean = presets[params->preset].mean;
        *std = presets[params->preset].std;
        return 0;
    }
    if (params->mean.count == 0 || params->std.count == 0)
        return psti_fail(
            err, PST_EPIPELINE, "normalize", NULL,
            "needs a preset (imagenet, half, clip, caffe) or both mean=(…) and std=(…)");
    if (params->mean.count != params->std.count)
        return psti_fail(err, PST_EPIPELINE, "normalize", NULL, "mean has %d values, std has %d",
                         params->mean.count, params->std.count);
    *mean = params->mean;
    *std = params->std;
    return 0;
}

void psti_finish_init(psti_finish *finish)
{
    for (int c = 0; c < 4; c++) {
        const double mean = finish->normalize ? finish->mean[c] : 0.0;
        const double std = finish->normalize && finish->std[c] > 0.0 ? finish->std[c] : 1.0;
        finish->scale[c] = (float)(1.0 / (255.0 * std));
        finish->bias[c] = (float)(mean / std);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Index into the kernels' tables, -1 for integers. */
static int float_kernel(int dtype)
{
    switch (dtype) {
    case PST_F32:
        return PSTI_TO_F32;
    case PST_F16:
        return PSTI_TO_F16;
    case PST_BF16:
        return PSTI_TO_BF16;
    default:
        return -1;
    }
}

psti_pitch psti_pitch_of(const psti_finish *finish, const psti_field *in, const int64_t *box)
{
    const int64_t *shape = box ? box : in->shape;
    if (in->axes == PSTI_AXES_VOLUME) {
        const size_t row = (size_t)shape[3], plane = row * (size_t)shape[2];
        return (psti_pitch){row, plane, plane * (size_t)shape[1]};
    }
    const size_t channels = (size_t)in->shape[2];
    if (in->axes == PSTI_AXES_WAVE) /* one column, which is no dimension of the box */
        return (psti_pitch){.row = channels > 1 && box ? (size_t)box[1] : channels};
    const bool planar = finish->layout == PST_NCHW;
    const size_t cols = (size_t)shape[box && planar ? 2 : 1];
    if (planar)
        return (psti_pitch){cols, cols * (size_t)shape[box ? 1 : 0], 0};
    return (psti_pitch){.row = cols * channels};
}

/* Rows without gaps between them, here and there, are one long row. */
static void picture_extent(const psti_field *in, size_t pixel, bool gaps, size_t *rows,
                           size_t *cols)
{
    *rows = (size_t)in->shape[0];
    *cols = (size_t)in->shape[1];
    if (in->stride == *cols * pixel && !gaps) {
        *cols *= *rows;
        *rows = 1;
    }
}

/* u8 pictures through a kernel, row by row. */
static void write_picture(const psti_finish *finish, const psti_field *in, psti_convert_fn *kernel,
                          const psti_pitch *pitch, uint8_t *dst)
{
    const size_t channels = (size_t)in->shape[2];
    const size_t row = (size_t)in->shape[1] * (finish->layout == PST_NCHW ? 1 : channels);
    const size_t step = pitch->row * psti_dtype_bytes(finish->dtype);
    const psti_convert how = {.channels = (int)channels,
                              .scale = finish->scale,
                              .bias = finish->bias,
                              .plane = pitch->plane};
    size_t rows, cols;
    picture_extent(in, channels, pitch->row != row, &rows, &cols);
    for (size_t y = 0; y < rows; y++)
        kernel(&how, in->data + y * in->stride, cols, dst + y * step);
}

static uint16_t value_at(const psti_field *in, const uint8_t *row, size_t i)
{
    uint16_t wide;
    if (in->dtype != PST_U16)
        return row[i];
    memcpy(&wide, row + 2 * i, sizeof wide);
    return wide;
}

void psti_finish_class(uint16_t value, int dtype, uint8_t *dst)
{
    const uint8_t narrow = value > 255 ? 255 : (uint8_t)value;
    const int32_t i32 = value;
    const int64_t i64 = value;
    const void *from = dtype == PST_I64   ? (const void *)&i64
                       : dtype == PST_I32 ? (const void *)&i32
                       : dtype == PST_U16 ? (const void *)&value
                                          : (const void *)&narrow;
    memcpy(dst, from, psti_dtype_bytes(dtype));
}

/* Integers to integers, any channel count. Order of dimensions as asked for. */
static void write_integers(const psti_finish *finish, const psti_field *in, const psti_pitch *pitch,
                           uint8_t *dst)
{
    const size_t rows = (size_t)in->shape[0], cols = (size_t)in->shape[1],
                 channels = (size_t)in->shape[2];
    const size_t element = psti_dtype_bytes(finish->dtype);
    const bool planar = finish->layout == PST_NCHW;
    for (size_t y = 0; y < rows; y++) {
        const uint8_t *row = in->data + y * in->stride;
        for (size_t i = 0; i < cols * channels; i++) {
            const size_t x = i / channels, c = i % channels;
            const size_t at = y * pitch->row + (planar ? c * pitch->plane + x : i);
            psti_finish_class(value_at(in, row, i), finish->dtype, dst + at * element);
        }
    }
}

static void write_same(const psti_field *in, const psti_pitch *pitch, uint8_t *dst)
{
    const size_t pixel = psti_pixel_bytes(in), step = pitch->row * psti_dtype_bytes(in->dtype);
    size_t rows, cols;
    picture_extent(in, pixel, step != (size_t)in->shape[1] * pixel, &rows, &cols);
    for (size_t y = 0; y < rows; y++)
        memcpy(dst + y * step, in->data + y * in->stride, cols * pixel);
}

void psti_finish_write(const psti_finish *finish, const psti_field *in, const psti_pitch *pitch,
                       uint8_t *dst)
{
    const psti_kernels *kernels = psti_kernels_get();
    const bool planar = finish->layout == PST_NCHW && in->shape[2] > 1;
    const int to = float_kernel(finish->dtype);
    if (in->axes != PSTI_AXES_PICTURE)
        psti_finish_values(finish, in, pitch, dst);
    else if (to >= 0)
        write_picture(finish, in, planar ? kernels->planar[to] : kernels->interleaved[to], pitch,
                      dst);
    else if (finish->dtype == in->dtype && !planar)
        write_same(in, pitch, dst);
    else if (finish->dtype == PST_U8 && in->dtype == PST_U8)
        write_picture(finish, in, kernels->planar_u8, pitch, dst);
    else
        write_integers(finish, in, pitch, dst);
    kernels->settle();
}
