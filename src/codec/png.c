/* SPDX-License-Identifier: Apache-2.0
 * PNG through libspng, whole pictures only. Called by decoder.c on a worker's thread; one spng
 * context per sample.
 *
 * libspng does not see the file but a stream of the chunks that make pixels: header, palette, data.
 * So text, profiles and whatever else a file carries cost nothing, cannot be bombs and cannot fail
 * a sample. Any damage to what remains fails the sample, checksums included: the verdict is a
 * function of the bytes alone. A file that is cut off behind its last pixel loads, as it does in
 * Pillow. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <spng.h>

#include "codec/codec_priv.h"

enum { SIGNATURE_BYTES = 8, CHUNK_EXTRA = 12 };

/* How decoded rows become the field's. */
typedef enum row_map { MAP_NONE, MAP_GRAY, MAP_FIRST, MAP_UNPACK } row_map;

typedef struct png_state {
    spng_ctx *ctx;
    struct spng_ihdr ihdr;
    int fmt;          /* asked from libspng */
    size_t row_bytes; /* of a row in that format */
    row_map map;
    size_t sample_step; /* MAP_FIRST: bytes from pixel to pixel in the decoded row */
    size_t at;          /* next byte of the file */
    size_t keep;        /* bytes from there on that belong to a chunk that is passed on */
} png_state;

static png_state *state_of(const psti_decoder *dec)
{
    return dec->state[PSTI_FORMAT_PNG];
}

/* ---- the stream ---- */

static uint32_t read_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool makes_pixels(const uint8_t *type)
{
    return memcmp(type, "IHDR", 4) == 0 || memcmp(type, "PLTE", 4) == 0 ||
           memcmp(type, "IDAT", 4) == 0;
}

/* Moves to the next chunk that is passed on. A chunk that is cut off is passed on as far as it
 * goes. */
static void find_chunk(const psti_decoder *dec, png_state *p)
{
    while (p->at < dec->size) {
        const size_t left = dec->size - p->at;
        const uint8_t *chunk = dec->bytes + p->at;
        if (left < 8 || memcmp(chunk + 4, "IEND", 4) == 0) {
            p->at = dec->size;
            return;
        }
        const size_t bytes = (size_t)read_be32(chunk) + CHUNK_EXTRA;
        const size_t here = bytes < left ? bytes : left;
        if (makes_pixels(chunk + 4)) {
            p->keep = here;
            return;
        }
        p->at += here;
    }
}

static int on_read(spng_ctx *ctx, void *user, void *dst, size_t length)
{
    (void)ctx;
    psti_decoder *dec = user;
    png_state *p = state_of(dec);
    uint8_t *to = dst;
    while (length > 0) {
        if (p->keep == 0)
            find_chunk(dec, p);
        if (p->keep == 0)
            return SPNG_IO_EOF;
        const size_t n = length < p->keep ? length : p->keep;
        memcpy(to, dec->bytes + p->at, n);
        to += n;
        length -= n;
        p->at += n;
        p->keep -= n;
    }
    return 0;
}

/* ---- memory ---- */

/* zlib's answer to a failed allocation reaches us as damaged data, so failures are noted here.
 * libspng's callbacks carry no pointer; all calls for a sample come from the thread that runs it.
 * Cleared before each call into the library. */
static _Thread_local bool memory_ran_out;

static void *noted(void *memory)
{
    memory_ran_out |= !memory;
    return memory;
}

static void *take(size_t bytes)
{
    return noted(psti_malloc(PSTI_MEM_CODEC, bytes));
}

static void *take_again(void *old, size_t bytes)
{
    return noted(psti_realloc(PSTI_MEM_CODEC, old, 1, bytes));
}

static void *take_zeroed(size_t count, size_t size)
{
    return noted(psti_calloc(PSTI_MEM_CODEC, count, size));
}

/* ---- errors ---- */

static int code_of(int spng_code)
{
    switch (spng_code) {
    case SPNG_EMEM:
        return -ENOMEM;
    case SPNG_EUSER_WIDTH:
    case SPNG_EUSER_HEIGHT:
    case SPNG_EOVERFLOW:
    case SPNG_ECHUNK_LIMITS:
        return PST_ELIMIT;
    default:
        return PST_ECORRUPT;
    }
}

static int fail_by_library(const psti_decoder *dec, int spng_code, pst_error *err)
{
    const png_state *p = state_of(dec);
    const int code = memory_ran_out ? -ENOMEM : code_of(spng_code);
    if (code == -ENOMEM)
        return psti_fail(err, code, "decode", NULL,
                         "out of memory while decoding a PNG of %u x %u pixels", p->ihdr.width,
                         p->ihdr.height);
    const bool cut = spng_code == SPNG_IO_EOF;
    return psti_fail_at(err, code, "decode", NULL, (int64_t)p->at, "PNG: %s",
                        cut ? "the file is cut off" : spng_strerror(spng_code));
}

/* ---- begin ---- */

static void describe(const struct spng_ihdr *ihdr, char *out, size_t cap)
{
    static const char *const types[] = {"grey", NULL, "rgb", "palette", "grey+alpha", NULL, "rgba"};
    const char *type = types[ihdr->color_type];
    char bits[16] = "";
    if (ihdr->bit_depth != 8)
        snprintf(bits, sizeof bits, " %u-bit", ihdr->bit_depth);
    snprintf(out, cap, "%s%s%s", type, bits, ihdr->interlace_method ? " interlaced" : "");
}

static int stored_channels(int color_type)
{
    static const uint8_t channels[] = {1, 0, 3, 1, 2, 0, 4};
    return channels[color_type];
}

static size_t packed_row_bytes(const struct spng_ihdr *ihdr)
{
    const size_t bits = (size_t)stored_channels(ihdr->color_type) * ihdr->bit_depth;
    return ((size_t)ihdr->width * bits + 7) / 8;
}

static bool has_alpha(int color_type)
{
    return color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA ||
           color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
}

static int choose_mask(psti_decoder *dec, png_state *p, pst_error *err)
{
    const struct spng_ihdr *h = &p->ihdr;
    if (h->color_type == SPNG_COLOR_TYPE_TRUECOLOR ||
        h->color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA)
        return psti_fail(
            err, PST_EFORMAT, "decode", NULL,
            "a mask needs one value a pixel, this PNG is %s: store it as palette or grey, or "
            "declare the field an image",
            dec->pic.detail);
    p->fmt = SPNG_FMT_PNG;
    p->row_bytes = packed_row_bytes(h);
    p->sample_step = (size_t)(h->bit_depth / 8 * stored_channels(h->color_type));
    p->map = h->bit_depth < 8 ? MAP_UNPACK : (has_alpha(h->color_type) ? MAP_FIRST : MAP_NONE);
    dec->pic.channels = 1;
    dec->pic.dtype = h->bit_depth == 16 ? PST_U16 : PST_U8;
    return 0;
}

static void choose_image(psti_decoder *dec, png_state *p)
{
    const struct spng_ihdr *h = &p->ihdr;
    const bool keep = dec->opts.color == PSTI_COLOR_KEEP;
    const bool four = keep && has_alpha(h->color_type);
    const bool one =
        dec->opts.color == PSTI_COLOR_GRAY || (keep && h->color_type == SPNG_COLOR_TYPE_GRAYSCALE);
    p->fmt = four ? SPNG_FMT_RGBA8 : SPNG_FMT_RGB8;
    p->row_bytes = (size_t)h->width * (four ? 4 : 3);
    p->map = one ? MAP_GRAY : MAP_NONE;
    dec->pic.channels = four ? 4 : (one ? 1 : 3);
}

/* The orientation of an eXIf chunk before the pixels; 1 where there is none. */
static int find_orientation(const psti_decoder *dec)
{
    for (size_t at = SIGNATURE_BYTES; dec->size - at >= CHUNK_EXTRA;) {
        const uint8_t *chunk = dec->bytes + at;
        const size_t length = read_be32(chunk);
        if (length > dec->size - at - CHUNK_EXTRA || memcmp(chunk + 4, "IDAT", 4) == 0)
            return 1;
        if (memcmp(chunk + 4, "eXIf", 4) == 0)
            return psti_exif_orientation(chunk + 8, length);
        at += length + CHUNK_EXTRA;
    }
    return 1;
}

/* Before libspng sees it: for the largest sizes it gives up with less to say. */
static int check_claimed_size(const psti_decoder *dec, pst_error *err)
{
    if (dec->size < SIGNATURE_BYTES + 16)
        return 0;
    const int64_t cols = read_be32(dec->bytes + SIGNATURE_BYTES + 8);
    const int64_t rows = read_be32(dec->bytes + SIGNATURE_BYTES + 12);
    const bool legal = cols <= INT32_MAX && rows <= INT32_MAX;
    return legal ? psti_decoder_check_pixels(dec, rows, cols, err) : 0;
}

static int open_context(psti_decoder *dec, png_state *p, pst_error *err)
{
    p->at = 0;
    p->keep = SIGNATURE_BYTES;
    p->ihdr = (struct spng_ihdr){0};
    memory_ran_out = false;
    p->ctx = spng_ctx_new2(&(struct spng_alloc){take, take_again, take_zeroed, psti_free}, 0);
    if (!p->ctx)
        return psti_fail(err, -ENOMEM, "decode", NULL, "out of memory for a PNG decoder");
    int rc = spng_set_image_limits(p->ctx, INT32_MAX, INT32_MAX);
    if (rc == 0)
        rc = spng_set_png_stream(p->ctx, on_read, dec);
    if (rc == 0)
        rc = spng_get_ihdr(p->ctx, &p->ihdr);
    return rc == 0 ? 0 : fail_by_library(dec, rc, err);
}

static int png_begin(psti_decoder *dec, pst_error *err)
{
    png_state *p = state_of(dec);
    int rc = check_claimed_size(dec, err);
    if (rc == 0)
        rc = open_context(dec, p, err);
    if (rc < 0)
        return rc;
    describe(&p->ihdr, dec->pic.detail, sizeof dec->pic.detail);
    dec->pic.stored_channels = stored_channels(p->ihdr.color_type);
    dec->pic.bits = p->ihdr.bit_depth;
    dec->stored_rows = p->ihdr.height;
    dec->stored_cols = p->ihdr.width;
    if (dec->opts.orient)
        dec->orientation = find_orientation(dec);
    psti_decoder_orient(dec);
    if (dec->opts.kind == PST_MASK)
        return choose_mask(dec, p, err);
    choose_image(dec, p);
    return 0;
}

/* ---- need ---- */

static bool is_straight(const psti_decoder *dec)
{
    return state_of(dec)->map == MAP_NONE && dec->orientation == 1;
}

/* Rows that pass through scratch: one, or all of an interlaced picture. */
static size_t scratch_rows(const psti_decoder *dec)
{
    const png_state *p = state_of(dec);
    if (is_straight(dec))
        return 0;
    return p->ihdr.interlace_method ? p->ihdr.height : 1;
}

static void png_measure(const psti_decoder *dec, psti_decode_need *need)
{
    const png_state *p = state_of(dec);
    const size_t rows = 3 * (packed_row_bytes(&p->ihdr) + 64) + p->row_bytes;
    const size_t ours = is_straight(dec) ? 0 : (scratch_rows(dec) + 1) * p->row_bytes;
    need->library_bytes = (160u << 10) + rows + ours + ours / 8;
}

/* ---- run ---- */

/* Bits and pairs of bits as they stand, one to a byte. */
static void unpack(const uint8_t *src, unsigned depth, uint8_t *dst, size_t pixels)
{
    const unsigned per_byte = 8 / depth, mask = (1u << depth) - 1;
    for (size_t i = 0; i < pixels; i++) {
        const unsigned shift = 8 - depth * ((unsigned)(i % per_byte) + 1);
        dst[i] = (uint8_t)(src[i / per_byte] >> shift & mask);
    }
}

static void pick_first(const uint8_t *src, size_t step, uint8_t *dst, size_t pixels, size_t bytes)
{
    for (size_t i = 0; i < pixels; i++, src += step)
        for (size_t b = 0; b < bytes; b++)
            *dst++ = src[b];
}

/* Converts a row; the result is row itself or line. */
static const uint8_t *convert(const psti_decoder *dec, const uint8_t *row, uint8_t *line)
{
    const png_state *p = state_of(dec);
    const size_t pixels = p->ihdr.width;
    switch (p->map) {
    case MAP_NONE:
        return row;
    case MAP_GRAY:
        psti_rgb_to_gray(row, line, (int64_t)pixels);
        break;
    case MAP_FIRST:
        pick_first(row, p->sample_step, line, pixels, p->ihdr.bit_depth / 8u);
        break;
    case MAP_UNPACK:
        unpack(row, p->ihdr.bit_depth, line, pixels);
        break;
    }
    return line;
}

static int decode_interlaced(psti_decoder *dec, uint8_t *rows, const psti_placer *placer,
                             uint8_t *line)
{
    png_state *p = state_of(dec);
    const size_t bytes = p->row_bytes * p->ihdr.height;
    /* Pixels narrower than a byte are or-ed in by libspng. */
    if (p->map == MAP_UNPACK)
        memset(rows, 0, bytes);
    const int rc = spng_decode_image(p->ctx, rows, bytes, p->fmt, 0);
    if (rc != 0 || rows == placer->dst)
        return rc;
    for (int64_t row = 0; row < placer->rows; row++)
        psti_placer_put(placer, row, convert(dec, rows + (size_t)row * p->row_bytes, line));
    return 0;
}

/* libspng answers SPNG_EOI with the last row. */
static int decode_rows(psti_decoder *dec, uint8_t *buffer, const psti_placer *placer, uint8_t *line)
{
    png_state *p = state_of(dec);
    int rc = spng_decode_image(p->ctx, NULL, 0, p->fmt, SPNG_DECODE_PROGRESSIVE);
    for (int64_t row = 0; rc == 0 && row < placer->rows; row++) {
        uint8_t *to = buffer == placer->dst ? buffer + (size_t)row * placer->stride : buffer;
        rc = spng_decode_row(p->ctx, to, p->row_bytes);
        if ((rc == 0 || rc == SPNG_EOI) && to == buffer && buffer != placer->dst)
            psti_placer_put(placer, row, convert(dec, to, line));
    }
    return rc == SPNG_EOI ? 0 : rc;
}

/* All pixels are there; what is left is the checksum of the data, where it was not cut off with the
 * end. */
static int check_rest(png_state *p)
{
    const int rc = spng_decode_chunks(p->ctx);
    return rc == SPNG_IO_EOF ? 0 : rc;
}

static int png_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                   uint8_t *dst, pst_error *err)
{
    (void)known_damage;
    memory_ran_out = false;
    png_state *p = state_of(dec);
    const size_t pixel = (size_t)dec->pic.channels * psti_dtype_bytes(dec->pic.dtype);
    const psti_placer placer = {dec->orientation, p->ihdr.height, p->ihdr.width, pixel, dst,
                                need->out_stride};
    const size_t line_bytes = (size_t)p->ihdr.width * pixel;
    const size_t rows_bytes = scratch_rows(dec) * p->row_bytes;
    uint8_t *buffer = dst, *line = NULL;
    if (!is_straight(dec)) {
        if (psti_buf_need(PSTI_MEM_CODEC, &dec->scratch, rows_bytes + line_bytes) < 0)
            return psti_fail(err, -ENOMEM, "decode", NULL, "out of memory for %zu bytes of rows",
                             rows_bytes + line_bytes);
        buffer = dec->scratch.data;
        line = buffer + rows_bytes;
    }
    int rc = p->ihdr.interlace_method ? decode_interlaced(dec, buffer, &placer, line)
                                      : decode_rows(dec, buffer, &placer, line);
    if (rc == 0)
        rc = check_rest(p);
    return rc == 0 ? 0 : fail_by_library(dec, rc, err);
}

static void png_end(psti_decoder *dec)
{
    png_state *p = state_of(dec);
    spng_ctx_free(p->ctx);
    p->ctx = NULL;
}

const psti_codec psti_codec_png = {
    .format = PSTI_FORMAT_PNG,
    .name = "png",
    .state_bytes = sizeof(png_state),
    .begin = png_begin,
    .measure = png_measure,
    .run = png_run,
    .end = png_end,
};
