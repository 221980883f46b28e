/* SPDX-License-Identifier: Apache-2.0
 * Small test pictures of every kind, made with the libraries' encoders. What a table entry makes
 * never changes with the machine, so a failure names a file that can be made again. Results are
 * malloc'ed and become the caller's. */
#ifndef PSTI_TESTS_CODEC_MAKE_IMAGES_H
#define PSTI_TESTS_CODEC_MAKE_IMAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#ifdef PSTI_HAVE_PNG
#include <spng.h>
#endif

#include "codec/codec.h"

typedef struct made {
    uint8_t *bytes;
    size_t size;
} made;

/* ---- numbers ---- */

static inline uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state;
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    return (uint32_t)(x >> 32);
}

static inline int64_t draw_below(uint64_t *state, int64_t n)
{
    return (int64_t)(draw(state) % (uint64_t)n);
}

/* Slopes, edges and noise in integers: a bit of everything an encoder can be given. */
static inline void fill_pixels(uint8_t *dst, size_t count, int width, int channels, uint64_t seed)
{
    uint64_t state = seed * 977 + 5;
    for (size_t i = 0; i < count; i++) {
        const int c = (int)(i % (size_t)channels), x = (int)(i / (size_t)channels) % width;
        const int y = (int)(i / (size_t)channels) / width;
        const int edge = ((x >> 3) + (y >> 2) + c) & 1 ? 60 : 0;
        const int value = (x * (3 + c) + y * (5 - c)) / 2 % 160 + edge + (int)(draw(&state) % 24);
        dst[i] = (uint8_t)(value > 255 ? 255 : value);
    }
}

/* ---- JPEG ---- */

typedef enum jpeg_scans { SCANS_ONE, SCANS_PROGRESSIVE, SCANS_SEPARATE, SCANS_COARSE } jpeg_scans;

typedef struct jpeg_spec {
    const char *name;
    int components;
    J_COLOR_SPACE space; /* in the file */
    int h[4], v[4];
    jpeg_scans scans;
    int restart; /* MCUs */
    bool arithmetic, optimize;
    int quality;
} jpeg_spec;

#define GREY  1, JCS_GRAYSCALE
#define COLOR 3, JCS_YCbCr
#define S11                                                                                        \
    {1, 1, 1, 1},                                                                                  \
    {                                                                                              \
        1, 1, 1, 1                                                                                 \
    }
#define S21                                                                                        \
    {2, 1, 1, 2},                                                                                  \
    {                                                                                              \
        1, 1, 1, 1                                                                                 \
    }
#define S22                                                                                        \
    {2, 1, 1, 2},                                                                                  \
    {                                                                                              \
        2, 1, 1, 2                                                                                 \
    }

static const jpeg_spec jpeg_specs[] = {
    {"grey", GREY, S11, SCANS_ONE, 0, false, false, 80},
    {"grey 2x2", GREY, S22, SCANS_ONE, 0, false, false, 80},
    {"grey progressive", GREY, S11, SCANS_PROGRESSIVE, 0, false, false, 85},
    {"4:4:4", COLOR, S11, SCANS_ONE, 0, false, false, 90},
    {"4:2:2", COLOR, S21, SCANS_ONE, 0, false, true, 75},
    {"4:2:0", COLOR, S22, SCANS_ONE, 0, false, false, 75},
    {"4:2:0 optimised", COLOR, S22, SCANS_ONE, 0, false, true, 95},
    {"4:4:0", COLOR, {1, 1, 1}, {2, 1, 1}, SCANS_ONE, 0, false, false, 75},
    {"4:1:1", COLOR, {4, 1, 1}, {1, 1, 1}, SCANS_ONE, 0, false, false, 75},
    {"4:1:0", COLOR, {4, 1, 1}, {2, 1, 1}, SCANS_ONE, 0, false, false, 75},
    {"1x4", COLOR, {1, 1, 1}, {4, 1, 1}, SCANS_ONE, 0, false, false, 75},
    {"3x1", COLOR, {3, 1, 1}, {1, 1, 1}, SCANS_ONE, 0, false, false, 75},
    {"mixed sampling", COLOR, {2, 1, 2}, {2, 2, 1}, SCANS_ONE, 0, false, false, 75},
    {"chroma finer than luma", COLOR, {1, 2, 2}, {1, 2, 2}, SCANS_ONE, 0, false, false, 75},
    {"4:2:0 restart 1", COLOR, S22, SCANS_ONE, 1, false, false, 75},
    {"4:4:4 restart 3", COLOR, S11, SCANS_ONE, 3, false, false, 75},
    {"progressive 4:4:4", COLOR, S11, SCANS_PROGRESSIVE, 0, false, false, 85},
    {"progressive 4:2:2", COLOR, S21, SCANS_PROGRESSIVE, 0, false, false, 75},
    {"progressive 4:2:0", COLOR, S22, SCANS_PROGRESSIVE, 0, false, false, 75},
    {"progressive 4:2:0 restart 2", COLOR, S22, SCANS_PROGRESSIVE, 2, false, false, 75},
    {"progressive 4:4:0", COLOR, {1, 1, 1}, {2, 1, 1}, SCANS_PROGRESSIVE, 0, false, false, 75},
    {"progressive without refinement", COLOR, S22, SCANS_COARSE, 0, false, false, 60},
    {"grey without refinement", GREY, S11, SCANS_COARSE, 0, false, false, 60},
    {"separate scans 4:2:0", COLOR, S22, SCANS_SEPARATE, 0, false, false, 75},
    {"separate scans 4:4:4 restart 2", COLOR, S11, SCANS_SEPARATE, 2, false, false, 75},
    {"arithmetic 4:2:0", COLOR, S22, SCANS_ONE, 0, true, false, 75},
    {"arithmetic progressive", COLOR, S22, SCANS_PROGRESSIVE, 0, true, false, 75},
    {"rgb", 3, JCS_RGB, S11, SCANS_ONE, 0, false, false, 85},
    {"cmyk", 4, JCS_CMYK, S11, SCANS_ONE, 0, false, false, 85},
    {"ycck 4:2:0", 4, JCS_YCCK, S22, SCANS_ONE, 0, false, false, 80},
    {"ycck progressive", 4, JCS_YCCK, S22, SCANS_PROGRESSIVE, 0, false, false, 80},
};
enum { JPEG_SPECS = sizeof jpeg_specs / sizeof *jpeg_specs };

/* Scans that leave the lowest bit out, so that the decoder smooths. */
static inline int coarse_script(jpeg_scan_info *scan, int components)
{
    int n = 0;
    for (int i = 0; i < components; i++)
        scan[n++] = (jpeg_scan_info){1, {i}, 0, 0, 0, 1};
    scan[n++] = (jpeg_scan_info){1, {0}, 1, 5, 0, 2};
    return n;
}

static inline int separate_script(jpeg_scan_info *scan, int components)
{
    for (int i = 0; i < components; i++)
        scan[i] = (jpeg_scan_info){1, {i}, 0, 63, 0, 0};
    return components;
}

static inline void set_up(struct jpeg_compress_struct *c, const jpeg_spec *spec,
                          jpeg_scan_info *script)
{
    jpeg_set_defaults(c);
    jpeg_set_colorspace(c, spec->space);
    jpeg_set_quality(c, spec->quality, TRUE);
    for (int i = 0; i < spec->components; i++) {
        c->comp_info[i].h_samp_factor = spec->h[i];
        c->comp_info[i].v_samp_factor = spec->v[i];
    }
    c->optimize_coding = spec->optimize;
    c->arith_code = spec->arithmetic;
    c->restart_interval = (unsigned)spec->restart;
    if (spec->scans == SCANS_PROGRESSIVE)
        jpeg_simple_progression(c);
    if (spec->scans == SCANS_SEPARATE || spec->scans == SCANS_COARSE) {
        c->num_scans = spec->scans == SCANS_SEPARATE ? separate_script(script, spec->components)
                                                     : coarse_script(script, spec->components);
        c->scan_info = script;
    }
}

/* Whether the library's encoder can; a few builds lack arithmetic coding. */
static inline made make_jpeg(const jpeg_spec *spec, int width, int height, uint64_t seed)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    jpeg_scan_info script[8];
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    unsigned char *out = NULL;
    unsigned long size = 0;
    jpeg_mem_dest(&c, &out, &size);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = spec->components;
    static const J_COLOR_SPACE spaces[] = {
        [1] = JCS_GRAYSCALE, [2] = JCS_UNKNOWN, [3] = JCS_RGB, [4] = JCS_CMYK};
    c.in_color_space = spaces[spec->components];
    set_up(&c, spec, script);
    jpeg_start_compress(&c, TRUE);
    const size_t stride = (size_t)width * (size_t)spec->components;
    uint8_t *pixels = malloc(stride * (size_t)height);
    fill_pixels(pixels, stride * (size_t)height, width, spec->components, seed);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = pixels + c.next_scanline * stride;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(pixels);
    return (made){out, size};
}

/* ---- PNG ---- */

typedef struct png_spec {
    const char *name;
    int color_type, depth, interlaced;
} png_spec;

static const png_spec png_specs[] = {
    {"grey 1", 0, 1, 0},
    {"grey 2", 0, 2, 0},
    {"grey 4", 0, 4, 0},
    {"grey 8", 0, 8, 0},
    {"grey 16", 0, 16, 0},
    {"rgb 8", 2, 8, 0},
    {"rgb 16", 2, 16, 0},
    {"palette 1", 3, 1, 0},
    {"palette 2", 3, 2, 0},
    {"palette 4", 3, 4, 0},
    {"palette 8", 3, 8, 0},
    {"grey+alpha 8", 4, 8, 0},
    {"grey+alpha 16", 4, 16, 0},
    {"rgba 8", 6, 8, 0},
    {"rgba 16", 6, 16, 0},
    {"grey 1 interlaced", 0, 1, 1},
    {"grey 16 interlaced", 0, 16, 1},
    {"rgb 8 interlaced", 2, 8, 1},
    {"palette 4 interlaced", 3, 4, 1},
    {"rgba 8 interlaced", 6, 8, 1},
};
enum { PNG_SPECS = sizeof png_specs / sizeof *png_specs };

static inline int png_channels(int color_type)
{
    static const int channels[] = {1, 0, 3, 1, 2, 0, 4};
    return channels[color_type];
}

#ifdef PSTI_HAVE_PNG
static inline made make_png(const png_spec *spec, int width, int height, uint64_t seed)
{
    const size_t bits =
        (size_t)png_channels(spec->color_type) * (size_t)spec->depth * (size_t)width;
    const size_t stride = (bits + 7) / 8, bytes = stride * (size_t)height;
    uint8_t *pixels = malloc(bytes);
    fill_pixels(pixels, bytes, (int)stride, 1, seed);
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1);
    struct spng_ihdr ihdr = {(uint32_t)width,
                             (uint32_t)height,
                             (uint8_t)spec->depth,
                             (uint8_t)spec->color_type,
                             0,
                             0,
                             (uint8_t)spec->interlaced};
    spng_set_ihdr(ctx, &ihdr);
    struct spng_plte plte = {.n_entries = 1u << (spec->depth > 8 ? 8 : spec->depth)};
    for (uint32_t i = 0; i < plte.n_entries; i++)
        plte.entries[i] =
            (struct spng_plte_entry){(uint8_t)(i * 7), (uint8_t)(255 - i), (uint8_t)(i * 3), 255};
    if (spec->color_type == SPNG_COLOR_TYPE_INDEXED)
        spng_set_plte(ctx, &plte);
    made out = {NULL, 0};
    int rc = spng_encode_image(ctx, pixels, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    if (rc == 0)
        out.bytes = spng_get_png_buffer(ctx, &out.size, &rc);
    spng_ctx_free(ctx);
    free(pixels);
    return out;
}
#endif

/* ---- decoding in one call ---- */

typedef struct decoded {
    int rc;
    psti_picture pic;
    psti_field field; /* data is malloc'ed, or in the bytes that were decoded (need.in_place) */
    int warnings;
    pst_error err;
} decoded;

static inline psti_decode_options plain_options(void)
{
    return (psti_decode_options){
        .kind = PST_IMAGE, .color = PSTI_COLOR_RGB, .limits = psti_limits_default};
}

static inline decoded decode_with(psti_decoder *dec, const uint8_t *bytes, size_t size,
                                  const psti_decode_options *opts, const psti_window *window,
                                  int64_t known)
{
    decoded d = {0};
    psti_decode_need need = {0};
    uint8_t *dst = NULL;
    d.rc = psti_decoder_begin(dec, bytes, size, opts, &d.pic, &d.err);
    if (d.rc == 0)
        d.rc = psti_decoder_need(dec, window, &need, &d.err);
    if (d.rc == 0) {
        dst = malloc(need.out_bytes);
        d.rc = psti_decoder_run(dec, &need, known, dst, &d.field, &d.err);
    }
    d.warnings = psti_decoder_warnings(dec);
    psti_decoder_end(dec);
    if (d.rc < 0 || need.in_place)
        free(dst);
    return d;
}

static inline decoded decode_all(psti_decoder *dec, const uint8_t *bytes, size_t size)
{
    const psti_decode_options opts = plain_options();
    return decode_with(dec, bytes, size, &opts, NULL, -1);
}

static inline void decoded_free(decoded *d)
{
    if (d->rc == 0)
        free(d->field.data);
    d->field.data = NULL;
}

static inline psti_window draw_window(uint64_t *state, int64_t rows, int64_t cols)
{
    psti_window w = {.rows = 1 + draw_below(state, rows), .cols = 1 + draw_below(state, cols)};
    w.top = draw_below(state, rows - w.rows + 1);
    w.left = draw_below(state, cols - w.cols + 1);
    return w;
}

/* Whether both fields hold the same pixels in a window of the picture. */
static inline bool same_window(const psti_field *a, const psti_field *b, const psti_window *w)
{
    const size_t pixel = (size_t)a->shape[2] * psti_dtype_bytes(a->dtype);
    for (int64_t r = w->top; r < w->top + w->rows; r++) {
        const uint8_t *in_a =
            a->data + (size_t)(r - a->y0) * a->stride + (size_t)(w->left - a->x0) * pixel;
        const uint8_t *in_b =
            b->data + (size_t)(r - b->y0) * b->stride + (size_t)(w->left - b->x0) * pixel;
        if (memcmp(in_a, in_b, (size_t)w->cols * pixel) != 0)
            return false;
    }
    return true;
}

static inline bool covers(const psti_field *f, const psti_window *w)
{
    return f->y0 <= w->top && f->x0 <= w->left && f->y0 + f->shape[0] >= w->top + w->rows &&
           f->x0 + f->shape[1] >= w->left + w->cols;
}

/* The caller's rule: damage counts when it lies above the last row used, pad included. */
static inline bool is_bad(const decoded *d, const psti_window *w)
{
    if (d->rc < 0)
        return true;
    const int64_t used = w->top + w->rows + PSTI_CROP_PAD;
    const int64_t last = used < d->field.whole_rows ? used : d->field.whole_rows;
    return d->field.first_damaged_row < last;
}

#endif
