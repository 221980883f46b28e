/* SPDX-License-Identifier: Apache-2.0
 * Facts about JPEG bytes that need no decoder: kind of frame, orientation, how many scans, whether
 * the end is there. Pure functions over the caller's bytes, called from jpeg.c. They follow markers
 * as libjpeg does and never fail: what they cannot follow is left for libjpeg to complain about. */
#include <string.h>

#include "codec/codec_priv.h"

enum {
    SOF0 = 0xC0,
    DHT = 0xC4,
    JPG = 0xC8,
    DAC = 0xCC,
    RST0 = 0xD0,
    SOI = 0xD8,
    EOI = 0xD9,
    SOS = 0xDA
};
enum { APP1 = 0xE1, TEM = 0x01, TAIL_BYTES = 4096 };

static bool stands_alone(int marker)
{
    return (marker >= RST0 && marker <= SOI) || marker == TEM;
}

/* Moves *at behind the next marker and returns it; 0 at the end of the bytes. */
static int next_marker(const uint8_t *bytes, size_t size, size_t *at)
{
    while (*at < size) {
        const uint8_t *ff = memchr(bytes + *at, 0xFF, size - *at);
        if (!ff)
            break;
        size_t place = (size_t)(ff - bytes) + 1;
        while (place < size && bytes[place] == 0xFF)
            place++;
        if (place >= size)
            break;
        *at = place + 1;
        if (bytes[place] != 0)
            return bytes[place];
    }
    *at = size;
    return 0;
}

/* Bytes of the segment at `at`, its length field included; 0 where it does not fit. */
static size_t segment_bytes(const uint8_t *bytes, size_t size, size_t at)
{
    if (size - at < 2)
        return 0;
    const size_t length = (size_t)bytes[at] << 8 | bytes[at + 1];
    return length >= 2 && length <= size - at ? length : 0;
}

static bool is_frame(int marker)
{
    return marker >= SOF0 && marker <= 0xCF && marker != DHT && marker != JPG && marker != DAC;
}

psti_jpeg_facts psti_jpeg_walk(const uint8_t *bytes, size_t size)
{
    psti_jpeg_facts facts = {0, 1};
    bool seen_exif = false;
    size_t at = 0;
    for (;;) {
        const int marker = next_marker(bytes, size, &at);
        if (marker == 0 || marker == SOS || marker == EOI)
            return facts;
        if (stands_alone(marker))
            continue;
        const size_t length = segment_bytes(bytes, size, at);
        if (length == 0)
            return facts;
        if (is_frame(marker) && facts.sof == 0)
            facts.sof = marker;
        if (marker == APP1 && !seen_exif && length >= 8 &&
            memcmp(bytes + at + 2, "Exif\0", 5) == 0) {
            seen_exif = true;
            facts.orientation = psti_exif_orientation(bytes + at + 8, length - 8);
        }
        at += length;
    }
}

int psti_jpeg_count_scans(const uint8_t *bytes, size_t size, int limit)
{
    int scans = 1;
    size_t at = 0;
    while (scans <= limit) {
        const int marker = next_marker(bytes, size, &at);
        if (marker == 0 || marker == EOI)
            break;
        if (stands_alone(marker))
            continue;
        scans += marker == SOS;
        at += segment_bytes(bytes, size, at);
    }
    return scans;
}

bool psti_jpeg_has_end(const uint8_t *bytes, size_t size)
{
    const size_t tail = size < TAIL_BYTES ? size : TAIL_BYTES;
    const uint8_t *from = bytes + size - tail;
    for (size_t left = tail; left > 1;) {
        const uint8_t *d9 = memrchr(from + 1, EOI, left - 1);
        if (!d9)
            return false;
        if (d9[-1] == 0xFF)
            return true;
        left = (size_t)(d9 - from);
    }
    return false;
}
