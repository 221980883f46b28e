/* SPDX-License-Identifier: Apache-2.0
 * The two colour conversions that libjpeg does not make the way Pillow does. Pure functions on one
 * row, called by the decoders of pictures on the worker's thread. Bit-exactness is what they are
 * for: change no rounding. */
#include "codec/codec_priv.h"

/* 0.299, 0.587 and 0.114 in 16 bits; they add up to 65,536, so grey stays what it was. */
void psti_rgb_to_gray(const uint8_t *src, uint8_t *dst, int64_t pixels)
{
    for (int64_t i = 0; i < pixels; i++, src += 3)
        dst[i] = (uint8_t)((src[0] * 19595u + src[1] * 38470u + src[2] * 7471u + 0x8000u) >> 16);
}

/* a * b / 255, rounded to nearest. */
static unsigned scale255(unsigned a, unsigned b)
{
    const unsigned t = a * b + 128;
    return ((t >> 8) + t) >> 8;
}

/* Every four-component JPEG is taken as inverted, as Adobe writes them, with or without the marker.
 */
void psti_cmyk_to_rgb(const uint8_t *src, uint8_t *dst, int64_t pixels)
{
    for (int64_t i = 0; i < pixels; i++, src += 4, dst += 3) {
        const unsigned k = src[3];
        const unsigned c = src[0], m = src[1], y = src[2];
        dst[0] = (uint8_t)(k - scale255(255 - c, k));
        dst[1] = (uint8_t)(k - scale255(255 - m, k));
        dst[2] = (uint8_t)(k - scale255(255 - y, k));
    }
}
