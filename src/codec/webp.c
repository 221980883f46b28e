/* SPDX-License-Identifier: Apache-2.0
 * WebP through libwebp, whole pictures only: lossy, lossless, with alpha, and of an animation the
 * first frame on its canvas, as Pillow opens it. Called by decoder.c on a worker's thread.
 *
 * libwebp could decode a window, for a sixth less time (measured on photographs), but it then stops
 * below the window's last row, and after a failure it does not say which rows were sound. So every
 * picture is decoded to its end, and any damage that the library sees fails the sample: the verdict
 * is a function of the bytes alone. A file that is shorter than its own header says is damaged, as
 * it is for Pillow; what follows the length that the header gives is not looked at.
 *
 * The container is walked here, since an animation's frames and the EXIF block are chunks of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <webp/decode.h>

#include "codec/codec_priv.h"

enum { RIFF_HEAD = 12, CHUNK_HEAD = 8, FRAME_HEAD = 16, HAS_EXIF = 0x08 };
enum { LOSSLESS = 2 }; /* WebPBitstreamFeatures.format */

/* How decoded rows become the field's. */
typedef enum row_map { MAP_NONE, MAP_GRAY, MAP_MASK } row_map;

typedef struct webp_state {
    WebPBitstreamFeatures frame; /* of the picture that is decoded */
    const uint8_t *coded;        /* what libwebp is given: the file, or a frame's chunks */
    size_t coded_bytes;
    int64_t top, left; /* of the frame on the canvas */
    bool alpha;        /* four channels are decoded, else three */
    row_map map;
} webp_state;

static webp_state *state_of(const psti_decoder *dec)
{
    return dec->state[PSTI_FORMAT_WEBP];
}

/* ---- the container ---- */

typedef struct chunk {
    const uint8_t *tag, *data;
    size_t bytes;
} chunk;

static uint32_t read_le(const uint8_t *p, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)p[i] << 8 * i;
    return value;
}

/* The file as long as its header says. */
static size_t claimed_bytes(const psti_decoder *dec)
{
    return (size_t)read_le(dec->bytes + 4, 4) + CHUNK_HEAD;
}

/* The first chunk of that name; false where there is none that is complete. */
static bool find_chunk(const psti_decoder *dec, const char *tag, chunk *out)
{
    const size_t end = claimed_bytes(dec) < dec->size ? claimed_bytes(dec) : dec->size;
    for (size_t at = RIFF_HEAD; at < end && end - at >= CHUNK_HEAD;) {
        const uint8_t *here = dec->bytes + at;
        const size_t bytes = read_le(here + 4, 4), left = end - at - CHUNK_HEAD;
        if (bytes > left)
            return false;
        if (memcmp(here, tag, 4) == 0) {
            *out = (chunk){here, here + CHUNK_HEAD, bytes};
            return true;
        }
        at += CHUNK_HEAD + bytes + (bytes & 1);
    }
    return false;
}

/* ---- errors ---- */

static int fail_by_library(const psti_decoder *dec, VP8StatusCode status, pst_error *err)
{
    switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
        return psti_fail(err, -ENOMEM, "decode", NULL,
                         "out of memory while decoding a WebP of %lld x %lld pixels",
                         (long long)dec->stored_cols, (long long)dec->stored_rows);
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "WebP: a feature that libwebp does not read: write the file anew");
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)dec->size,
                            "WebP: the file is cut off");
    default:
        return psti_fail(err, PST_ECORRUPT, "decode", NULL, "WebP: the data is damaged");
    }
}

static int fail_frame(const psti_decoder *dec, const uint8_t *where, pst_error *err)
{
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, where - dec->bytes,
                        "WebP: the animation's first frame is damaged");
}

/* ---- begin ---- */

static int check_length(const psti_decoder *dec, pst_error *err)
{
    if (memcmp(dec->bytes, "RIFF", 4) != 0)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, 0,
                            "WebP: the file does not begin with RIFF");
    if (claimed_bytes(dec) <= dec->size)
        return 0;
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)dec->size,
                        "WebP: the file is cut off: its header claims %zu bytes, there are %zu",
                        claimed_bytes(dec), dec->size);
}

/* An animation: its first frame, which may be smaller than the canvas. */
static int enter_frame(psti_decoder *dec, webp_state *w, pst_error *err)
{
    chunk c;
    if (!find_chunk(dec, "ANMF", &c) || c.bytes < FRAME_HEAD)
        return psti_fail(err, PST_ECORRUPT, "decode", NULL,
                         "WebP: an animation without a complete first frame");
    w->left = 2 * (int64_t)read_le(c.data, 3);
    w->top = 2 * (int64_t)read_le(c.data + 3, 3);
    const int64_t cols = 1 + (int64_t)read_le(c.data + 6, 3);
    const int64_t rows = 1 + (int64_t)read_le(c.data + 9, 3);
    if (w->left + cols > dec->stored_cols || w->top + rows > dec->stored_rows)
        return fail_frame(dec, c.tag, err);
    w->coded = c.data + FRAME_HEAD;
    w->coded_bytes = c.bytes - FRAME_HEAD;
    const VP8StatusCode status = WebPGetFeatures(w->coded, w->coded_bytes, &w->frame);
    if (status != VP8_STATUS_OK || w->frame.width != cols || w->frame.height != rows)
        return fail_frame(dec, c.tag, err);
    return 0;
}

static int find_orientation(const psti_decoder *dec)
{
    chunk head, exif;
    if (!find_chunk(dec, "VP8X", &head) || head.bytes < 1 || !(head.data[0] & HAS_EXIF) ||
        !find_chunk(dec, "EXIF", &exif))
        return 1;
    const bool named = exif.bytes >= 6 && memcmp(exif.data, "Exif\0\0", 6) == 0;
    return named ? psti_exif_orientation(exif.data + 6, exif.bytes - 6)
                 : psti_exif_orientation(exif.data, exif.bytes);
}

/* WebP has no grey pictures. A lossless one whose channels are equal is a mask all the same; that
 * they are is seen when the pixels are there. */
static int choose_output(psti_decoder *dec, webp_state *w, bool has_alpha, pst_error *err)
{
    const bool mask = dec->opts.kind == PST_MASK;
    if (mask && w->frame.format != LOSSLESS)
        return psti_fail(
            err, PST_EFORMAT, "decode", NULL,
            "a mask needs the values that were stored, this WebP is lossy: store masks "
            "as PNG or lossless WebP");
    w->map = mask ? MAP_MASK : (dec->opts.color == PSTI_COLOR_GRAY ? MAP_GRAY : MAP_NONE);
    w->alpha = w->map == MAP_NONE && dec->opts.color == PSTI_COLOR_KEEP && has_alpha;
    dec->pic.channels = w->map != MAP_NONE ? 1 : (w->alpha ? 4 : 3);
    return 0;
}

static int webp_begin(psti_decoder *dec, pst_error *err)
{
    webp_state *w = state_of(dec);
    *w = (webp_state){.coded = dec->bytes, .coded_bytes = dec->size};
    int rc = check_length(dec, err);
    if (rc < 0)
        return rc;
    WebPBitstreamFeatures whole;
    const VP8StatusCode status = WebPGetFeatures(dec->bytes, dec->size, &whole);
    if (status != VP8_STATUS_OK)
        return fail_by_library(dec, status, err);
    w->frame = whole;
    dec->stored_rows = whole.height;
    dec->stored_cols = whole.width;
    rc = psti_decoder_check_pixels(dec, whole.height, whole.width, err);
    if (rc == 0 && whole.has_animation)
        rc = enter_frame(dec, w, err);
    if (rc < 0)
        return rc;
    snprintf(dec->pic.detail, sizeof dec->pic.detail, "%s%s%s",
             w->frame.format == LOSSLESS ? "lossless" : "lossy", whole.has_alpha ? "+alpha" : "",
             whole.has_animation ? " animated" : "");
    dec->pic.stored_channels = whole.has_alpha ? 4 : 3;
    dec->pic.bits = 8;
    if (dec->opts.orient)
        dec->orientation = find_orientation(dec);
    psti_decoder_orient(dec);
    return choose_output(dec, w, whole.has_alpha, err);
}

/* ---- need ---- */

static bool is_straight(const psti_decoder *dec)
{
    return state_of(dec)->map == MAP_NONE && dec->orientation == 1;
}

static size_t decoded_row_bytes(const psti_decoder *dec)
{
    return (size_t)dec->stored_cols * (state_of(dec)->alpha ? 4 : 3);
}

/* The canvas as decoded, and a row as converted, where the field's own memory will not do. */
static size_t scratch_bytes(const psti_decoder *dec)
{
    if (is_straight(dec))
        return 0;
    return ((size_t)dec->stored_rows + 1) * decoded_row_bytes(dec);
}

/* All pixels of four bytes and sixteen rows of them; the rest is prefix-code tables, which grow
 * with the number of codes in the file, hence with its size. */
static size_t lossless_bytes(size_t cols, size_t pixels, size_t file)
{
    const size_t tables = file < pixels ? 4 * file : 4 * pixels;
    return 4 * pixels + 80 * cols + tables + (64u << 10);
}

static void webp_measure(const psti_decoder *dec, psti_decode_need *need)
{
    const webp_state *w = state_of(dec);
    const size_t cols = (size_t)w->frame.width, pixels = cols * (size_t)w->frame.height;
    const size_t ours = scratch_bytes(dec);
    size_t bytes = ours + ours / 8;
    if (w->frame.format != LOSSLESS)
        bytes += 144 * (cols + 32) + (16u << 10);
    if (w->frame.format != LOSSLESS && w->frame.has_alpha)
        bytes += pixels; /* alpha, which is coded as a lossless picture of its own */
    if (w->frame.format == LOSSLESS || w->frame.has_alpha)
        bytes += lossless_bytes(cols, pixels, w->coded_bytes);
    need->library_bytes = bytes;
}

/* ---- run ---- */

/* The frame into its place on a canvas. */
static VP8StatusCode decode(const psti_decoder *dec, uint8_t *canvas, size_t stride)
{
    const webp_state *w = state_of(dec);
    const size_t pixel = w->alpha ? 4 : 3;
    const size_t skipped = (size_t)w->top * stride + (size_t)w->left * pixel;
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return VP8_STATUS_UNSUPPORTED_FEATURE;
    config.output.colorspace = w->alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = canvas + skipped;
    config.output.u.RGBA.stride = (int)stride;
    config.output.u.RGBA.size = (size_t)dec->stored_rows * stride - skipped;
    const VP8StatusCode status = WebPDecode(w->coded, w->coded_bytes, &config);
    WebPFreeDecBuffer(&config.output);
    return status;
}

/* libwebp takes memory from malloc, and in some places tells a failure there as something else.
 * Damage is still there when decoding is tried again, and then there is memory to be had. */
static VP8StatusCode decode_surely(const psti_decoder *dec, const psti_decode_need *need,
                                   uint8_t *canvas, size_t stride)
{
    VP8StatusCode status = decode(dec, canvas, stride);
    if (status != VP8_STATUS_OK && status != VP8_STATUS_OUT_OF_MEMORY)
        status = decode(dec, canvas, stride);
    if (status == VP8_STATUS_OK || status == VP8_STATUS_OUT_OF_MEMORY)
        return status;
    void *memory = psti_malloc(PSTI_MEM_CODEC, need->library_bytes);
    psti_free(memory);
    return memory ? status : VP8_STATUS_OUT_OF_MEMORY;
}

/* One value a pixel, or false: the picture has colours. */
static bool take_values(const uint8_t *rgb, uint8_t *dst, int64_t pixels)
{
    int differ = 0;
    for (int64_t i = 0; i < pixels; i++, rgb += 3) {
        differ |= (rgb[0] ^ rgb[1]) | (rgb[0] ^ rgb[2]);
        dst[i] = rgb[0];
    }
    return differ == 0;
}

static int place_rows(const psti_decoder *dec, const uint8_t *canvas, uint8_t *line,
                      const psti_placer *placer, pst_error *err)
{
    const webp_state *w = state_of(dec);
    for (int64_t row = 0; row < placer->rows; row++) {
        const uint8_t *from = canvas + (size_t)row * decoded_row_bytes(dec);
        if (w->map == MAP_GRAY)
            psti_rgb_to_gray(from, line, placer->cols);
        else if (w->map == MAP_MASK && !take_values(from, line, placer->cols))
            return psti_fail(err, PST_EFORMAT, "decode", NULL,
                             "a mask needs one value a pixel, row %lld of this WebP has colours: "
                             "store it as grey or palette PNG, or declare the field an image",
                             (long long)row);
        psti_placer_put(placer, row, w->map == MAP_NONE ? from : line);
    }
    return 0;
}

static int webp_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                    uint8_t *dst, pst_error *err)
{
    (void)known_damage;
    const webp_state *w = state_of(dec);
    const size_t stride = decoded_row_bytes(dec), bytes = (size_t)dec->stored_rows * stride;
    uint8_t *canvas = dst;
    if (!is_straight(dec)) {
        if (psti_buf_need(PSTI_MEM_CODEC, &dec->scratch, scratch_bytes(dec)) < 0)
            return psti_fail(err, -ENOMEM, "decode", NULL, "out of memory for %zu bytes of rows",
                             scratch_bytes(dec));
        canvas = dec->scratch.data;
    }
    if (w->frame.width < dec->stored_cols || w->frame.height < dec->stored_rows)
        memset(canvas, 0, bytes);
    const VP8StatusCode status = decode_surely(dec, need, canvas, stride);
    if (status != VP8_STATUS_OK)
        return fail_by_library(dec, status, err);
    if (is_straight(dec))
        return 0;
    const psti_placer placer = {
        dec->orientation, dec->stored_rows, dec->stored_cols, (size_t)dec->pic.channels, dst,
        need->out_stride};
    return place_rows(dec, canvas, canvas + bytes, &placer, err);
}

/* libwebp keeps nothing between calls. */
static void webp_end(psti_decoder *dec)
{
    (void)dec;
}

const psti_codec psti_codec_webp = {
    .format = PSTI_FORMAT_WEBP,
    .name = "webp",
    .state_bytes = sizeof(webp_state),
    .begin = webp_begin,
    .measure = webp_measure,
    .run = webp_run,
    .end = webp_end,
};
