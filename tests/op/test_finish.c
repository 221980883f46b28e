/* SPDX-License-Identifier: Apache-2.0
 * normalize, to and writing into a slot: parameters, values against the definition, layouts,
 * strides, types. Runs at the level of PENSTOCK_CPU; the build runs it at each. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "core/cpu.h"
#include "op/kernels/kernels.h"
#include "op/op.h"

static psti_rng rng;

static psti_field picture(int64_t rows, int64_t cols, int64_t channels, int dtype, size_t gap)
{
    psti_field f = {
        .kind = PST_IMAGE, .dtype = (uint8_t)dtype, .rank = 3, .shape = {rows, cols, channels}};
    f.stride = (size_t)(cols * channels) * psti_dtype_bytes(dtype) + gap;
    f.bytes = f.stride * (size_t)rows;
    f.data = malloc(f.bytes);
    for (size_t i = 0; i < f.bytes; i++)
        f.data[i] = (uint8_t)psti_rng_u32(&rng);
    return f;
}

static psti_finish finish_of(const char *preset, int dtype, int layout)
{
    psti_finish finish = {.dtype = dtype, .layout = layout, .channels = 3};
    if (preset) {
        psti_normalize_params params = {0};
        psti_list mean, std;
        const char *const *words = psti_normalize_table[0].words;
        while (strcmp(words[params.preset], preset) != 0)
            params.preset++;
        pst_error err;
        CHECK(psti_normalize_values(&params, &mean, &std, &err) == 0);
        finish.normalize = true;
        for (int c = 0; c < 4; c++) {
            finish.mean[c] = mean.v[c < mean.count ? c : 0];
            finish.std[c] = std.v[c < std.count ? c : 0];
        }
    }
    psti_finish_init(&finish);
    return finish;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void normalize_wants_a_preset_or_two_lists(void)
{
    psti_list mean, std;
    pst_error err;
    psti_normalize_params params = {0};
    CHECK(psti_normalize_values(&params, &mean, &std, &err) == PST_EPIPELINE &&
          strstr(err.message, "imagenet"));
    params.mean = (psti_list){.count = 3, .v = {1, 2, 3}};
    CHECK(psti_normalize_values(&params, &mean, &std, &err) == PST_EPIPELINE);
    params.std = (psti_list){.count = 2, .v = {1, 2}};
    CHECK(psti_normalize_values(&params, &mean, &std, &err) == PST_EPIPELINE &&
          strstr(err.message, "2"));
    params.std.count = 3;
    CHECK(psti_normalize_values(&params, &mean, &std, &err) == 0 && mean.count == 3 &&
          mean.v[2] == 3);
    params.preset = 1;
    CHECK(psti_normalize_values(&params, &mean, &std, &err) == PST_EPIPELINE);
    params.mean.count = params.std.count = 0;
    CHECK(psti_normalize_values(&params, &mean, &std, &err) == 0 && mean.v[0] == 0.485 &&
          std.v[1] == 0.224);
    params.preset = 3;
    CHECK(psti_normalize_values(&params, &mean, &std, &err) == 0 && mean.v[2] == 0.40821073);
}

static void every_word_of_to_is_a_type(void)
{
    static const char *const words[] = {"same", "u8", "f16", "bf16", "f32", "u16", "i32", "i64"};
    static const int types[] = {0, PST_U8, PST_F16, PST_BF16, PST_F32, PST_U16, PST_I32, PST_I64};
    for (int i = 0; psti_to_table[0].words[i]; i++) {
        CHECK(strcmp(psti_to_table[0].words[i], words[i]) == 0);
        CHECK(psti_to_dtype(&(psti_to_params){.dtype = i}) == types[i]);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* What (x / 255 - mean) / std gives in double. */
static double exact(const psti_finish *finish, uint8_t x, int c)
{
    const double value = x / 255.0;
    return finish->normalize ? (value - finish->mean[c]) / finish->std[c] : value;
}

static void floats_are_within_a_millionth(void)
{
    static const char *const presets[] = {NULL, "imagenet", "half", "clip"};
    for (int p = 0; p < 4; p++) {
        const psti_finish finish = finish_of(presets[p], PST_F32, PST_NHWC);
        psti_field in = picture(1, 256, 3, PST_U8, 0);
        for (int i = 0; i < 768; i++)
            in.data[i] = (uint8_t)(i / 3);
        float *out = malloc(768 * sizeof *out);
        const psti_pitch pitch = psti_pitch_of(&finish, &in, NULL);
        psti_finish_write(&finish, &in, &pitch, (uint8_t *)out);
        double worst = 0;
        for (int i = 0; i < 768; i++)
            worst = fmax(worst, fabs((double)out[i] - exact(&finish, (uint8_t)(i / 3), i % 3)));
        CHECKF(worst < 5e-7, "preset %d: %g", p, worst);
        free(in.data);
        free(out);
    }
}

static uint32_t element_at(const uint8_t *data, size_t i, int dtype)
{
    uint32_t value = 0;
    memcpy(&value, data + i * psti_dtype_bytes(dtype), psti_dtype_bytes(dtype));
    return value;
}

static uint32_t element_of(const psti_finish *finish, uint8_t x, int c)
{
    if (finish->dtype == PST_U8)
        return x;
    const float scaled = (float)x * finish->scale[c];
    const float value = scaled - finish->bias[c];
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return finish->dtype == PST_F32   ? bits
           : finish->dtype == PST_F16 ? psti_c_half(value)
                                      : psti_c_bfloat(value);
}

/* Into a box with `more` rows and columns than the picture has; what is not the picture's stays. */
static void check_box(const psti_finish *finish, const psti_field *in, int64_t more)
{
    const int64_t channels = in->shape[2], rows = in->shape[0] + more, cols = in->shape[1] + more;
    const bool planar = finish->layout == PST_NCHW;
    const int64_t box[3] = {planar ? channels : rows, planar ? rows : cols,
                            planar ? cols : channels};
    const size_t bytes = (size_t)(rows * cols * channels) * psti_dtype_bytes(finish->dtype);
    uint8_t *out = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(out, 0x5a, (bytes + 127) / 64 * 64);
    const psti_pitch pitch = psti_pitch_of(finish, in, more ? box : NULL);
    psti_finish_write(finish, in, &pitch, out);
    bool right = out[bytes] == 0x5a;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < cols; x++)
            for (int64_t c = 0; c < channels; c++) {
                const int64_t at =
                    planar ? (c * rows + y) * cols + x : (y * cols + x) * channels + c;
                const uint32_t got = element_at(out, (size_t)at, finish->dtype);
                if (y >= in->shape[0] || x >= in->shape[1]) {
                    uint32_t none = 0;
                    memset(&none, 0x5a, psti_dtype_bytes(finish->dtype));
                    right = right && got == none;
                    continue;
                }
                const uint8_t value = in->data[(size_t)y * in->stride + (size_t)(x * channels + c)];
                right = right && got == element_of(finish, value, (int)c);
            }
    CHECKF(right, "%lldx%lldx%lld, stride %zu, %s, layout %d, %lld more", (long long)in->shape[0],
           (long long)in->shape[1], (long long)channels, in->stride, psti_dtype_name(finish->dtype),
           finish->layout, (long long)more);
    free(out);
}

static void check_write(const psti_finish *finish, int64_t rows, int64_t cols, int64_t channels,
                        size_t gap)
{
    psti_field in = picture(rows, cols, channels, PST_U8, gap);
    check_box(finish, &in, 0);
    check_box(finish, &in, 3);
    free(in.data);
}

static void every_type_and_layout_is_written_bit_by_bit(void)
{
    static const int types[] = {PST_U8, PST_F32, PST_F16, PST_BF16};
    for (int t = 0; t < 4; t++) {
        for (int layout = PST_NHWC; layout <= PST_NCHW; layout++) {
            const psti_finish finish = finish_of("imagenet", types[t], layout);
            for (int channels = 1; channels <= 4; channels++) {
                check_write(&finish, 1, 1, channels, 0);
                check_write(&finish, 5, 37, channels, 3);
                check_write(&finish, 16, 64, channels, 0);
            }
            /* Large enough to be written past the caches, with rows that are aligned and rows that
             * are not. */
            check_write(&finish, 224, 224, 3, 0);
            check_write(&finish, 224, 224, 3, 32);
            check_write(&finish, 231, 225, 3, 7);
            check_write(&finish, 400, 400, 1, 0);
        }
    }
}

static void masks_keep_their_values(void)
{
    static const int types[] = {PST_U8, PST_U16, PST_I32, PST_I64};
    for (int from = 0; from < 2; from++) {
        for (int t = from; t < 4; t++) {
            psti_finish finish = {.dtype = types[t], .layout = PST_LAYOUT_NONE, .channels = 1};
            psti_finish_init(&finish);
            psti_field in = picture(7, 9, 1, types[from], 3);
            in.kind = PST_MASK;
            uint8_t *out = malloc(63 * 8);
            const psti_pitch pitch = psti_pitch_of(&finish, &in, NULL);
            psti_finish_write(&finish, &in, &pitch, out);
            bool right = true;
            for (size_t i = 0; i < 63; i++) {
                uint64_t got = 0, want = 0;
                memcpy(&got, out + i * psti_dtype_bytes(types[t]), psti_dtype_bytes(types[t]));
                memcpy(&want, in.data + i / 9 * in.stride + i % 9 * psti_dtype_bytes(types[from]),
                       psti_dtype_bytes(types[from]));
                right = right && got == want;
            }
            CHECKF(right, "%s to %s", psti_dtype_name(types[from]), psti_dtype_name(types[t]));
            free(in.data);
            free(out);
        }
    }
}

int main(void)
{
    psti_rng_init(&rng, &(psti_rng_key){.seed = 11}, 0);
    printf("kernels: %s, seed 11\n", psti_cpu_name(psti_cpu_level()));
    RUN(normalize_wants_a_preset_or_two_lists);
    RUN(every_word_of_to_is_a_type);
    RUN(floats_are_within_a_millionth);
    RUN(every_type_and_layout_is_written_bit_by_bit);
    RUN(masks_keep_their_values);
    return check_report();
}
