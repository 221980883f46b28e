/* SPDX-License-Identifier: Apache-2.0
 * Test pictures: libjpeg and libspng as encoders. */
#include "pictures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#ifdef PSTI_HAVE_PNG
#include <spng.h>
#endif

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Blocks of colour with a slope and noise over them. */
static uint8_t photo(uint32_t seed, int row, int col, int channel)
{
    const uint32_t patch =
        mix(seed + (uint32_t)(row / 24) * 977 + (uint32_t)(col / 32) * 131 + (uint32_t)channel);
    const uint32_t noise = mix(seed ^ ((uint32_t)row << 16 | (uint32_t)col)) % 24;
    return (uint8_t)((patch % 160 + (uint32_t)(row + 2 * col) % 64 + noise) & 255);
}

uint8_t *jpeg_make(int rows, int cols, uint32_t seed, bool progressive, size_t *bytes)
{
    struct jpeg_compress_struct enc;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long size = 0;
    uint8_t *row = malloc((size_t)cols * 3);
    enc.err = jpeg_std_error(&errors);
    jpeg_create_compress(&enc);
    jpeg_mem_dest(&enc, &out, &size);
    enc.image_width = (JDIMENSION)cols;
    enc.image_height = (JDIMENSION)rows;
    enc.input_components = 3;
    enc.in_color_space = JCS_RGB;
    jpeg_set_defaults(&enc);
    jpeg_set_quality(&enc, 85, TRUE);
    if (progressive)
        jpeg_simple_progression(&enc);
    jpeg_start_compress(&enc, TRUE);
    for (int y = 0; y < rows; y++) {
        for (int x = 0; x < cols * 3; x++)
            row[x] = photo(seed, y, x / 3, x % 3);
        JSAMPROW rows_in[1] = {row};
        jpeg_write_scanlines(&enc, rows_in, 1);
    }
    jpeg_finish_compress(&enc);
    jpeg_destroy_compress(&enc);
    free(row);
    *bytes = size;
    return out;
}

int picture_value(int row, int col)
{
    return (row + col) % 510 < 255 ? (row + col) % 510 : 510 - (row + col) % 510;
}

#ifdef PSTI_HAVE_PNG
static void fill_rows(uint8_t *raw, int rows, int cols, int channels, int bits)
{
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < cols * channels; x++) {
            const int value = picture_value(y, x / channels);
            const size_t at = (size_t)y * (size_t)cols * (size_t)channels + (size_t)x;
            const uint16_t wide = (uint16_t)(value * 256);
            if (bits == 16)
                memcpy(raw + 2 * at, &wide, 2);
            else
                raw[at] = (uint8_t)value;
        }
}

uint8_t *png_make(int rows, int cols, int channels, int bits, size_t *bytes)
{
    const size_t size = (size_t)rows * (size_t)cols * (size_t)channels * (size_t)(bits / 8);
    uint8_t *raw = malloc(size);
    fill_rows(raw, rows, cols, channels, bits);
    spng_ctx *enc = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr head = {
        .width = (uint32_t)cols, .height = (uint32_t)rows, .bit_depth = (uint8_t)bits};
    head.color_type = channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
    int rc = spng_set_option(enc, SPNG_ENCODE_TO_BUFFER, 1);
    rc |= spng_set_ihdr(enc, &head);
    rc |= spng_encode_image(enc, raw, size, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    uint8_t *out = rc ? NULL : spng_get_png_buffer(enc, bytes, &rc);
    spng_ctx_free(enc);
    free(raw);
    return out;
}
#else
uint8_t *png_make(int rows, int cols, int channels, int bits, size_t *bytes)
{
    (void)rows, (void)cols, (void)channels, (void)bits;
    *bytes = 0;
    return NULL;
}
#endif
