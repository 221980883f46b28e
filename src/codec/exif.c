/* SPDX-License-Identifier: Apache-2.0
 * EXIF orientation: finding the tag, and putting rows where it says. Pure functions over the
 * caller's bytes, used by the decoders of pictures on the worker's thread. Anything odd in the
 * block means "as stored": metadata never fails a sample. */
#include <string.h>

#include "codec/codec_priv.h"

enum { TAG_ORIENTATION = 0x0112, ENTRY_BYTES = 12 };

typedef struct tiff {
    const uint8_t *bytes;
    size_t size;
    bool big_endian;
} tiff;

static uint32_t read_16(const tiff *t, size_t at)
{
    const uint8_t *p = t->bytes + at;
    return t->big_endian ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t read_32(const tiff *t, size_t at)
{
    const uint32_t a = read_16(t, at), b = read_16(t, at + 2);
    return t->big_endian ? a << 16 | b : b << 16 | a;
}

/* The value of a one-element entry of type BYTE, SHORT or LONG; 0 for anything else. */
static uint32_t entry_value(const tiff *t, size_t at)
{
    if (read_32(t, at + 4) != 1)
        return 0;
    switch (read_16(t, at + 2)) {
    case 1:
        return t->bytes[at + 8];
    case 3:
        return read_16(t, at + 8);
    case 4:
        return read_32(t, at + 8);
    default:
        return 0;
    }
}

int psti_exif_orientation(const uint8_t *bytes, size_t size)
{
    if (size < 8)
        return 1;
    tiff t = {bytes, size, false};
    if (memcmp(bytes, "MM\0*", 4) == 0)
        t.big_endian = true;
    else if (memcmp(bytes, "II*\0", 4) != 0)
        return 1;
    const size_t directory = read_32(&t, 4);
    if (directory > size - 2)
        return 1;
    const size_t entries = read_16(&t, directory);
    for (size_t i = 0; i < entries; i++) {
        const size_t at = directory + 2 + i * ENTRY_BYTES;
        if (at + ENTRY_BYTES > size)
            return 1;
        if (read_16(&t, at) != TAG_ORIENTATION)
            continue;
        const uint32_t value = entry_value(&t, at);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* Copies pixels to places `step` bytes apart. */
static void scatter(const uint8_t *src, int64_t pixels, size_t pixel_bytes, uint8_t *dst,
                    ptrdiff_t step)
{
    for (int64_t i = 0; i < pixels; i++) {
        for (size_t b = 0; b < pixel_bytes; b++)
            dst[b] = src[b];
        src += pixel_bytes;
        dst += step;
    }
}

/* Orientations 5 to 8 swap rows and columns. Of the rest of the bits, two say whether a stored row
 * runs backwards and whether the rows follow each other backwards. */
void psti_placer_put(const psti_placer *p, int64_t row, const uint8_t *src)
{
    static const struct {
        bool swap, back_in_row, back_of_rows;
    } how[9] = {
        [1] = {false, false, false}, [2] = {false, true, false}, [3] = {false, true, true},
        [4] = {false, false, true},  [5] = {true, false, false}, [6] = {true, false, true},
        [7] = {true, true, true},    [8] = {true, true, false},
    };
    const bool swap = how[p->orientation].swap, back = how[p->orientation].back_in_row;
    const int64_t line = how[p->orientation].back_of_rows ? p->rows - 1 - row : row;
    const int64_t first = back ? p->cols - 1 : 0;
    const ptrdiff_t along = swap ? (ptrdiff_t)p->stride : (ptrdiff_t)p->pixel_bytes;
    const ptrdiff_t across = swap ? (ptrdiff_t)p->pixel_bytes : (ptrdiff_t)p->stride;
    uint8_t *start = p->dst + line * across + first * along;
    if (along == (ptrdiff_t)p->pixel_bytes && !back)
        memcpy(start, src, (size_t)p->cols * p->pixel_bytes);
    else
        scatter(src, p->cols, p->pixel_bytes, start, back ? -along : along);
}
