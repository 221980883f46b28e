/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a FLAC, as they are and again with the checksums mended, so that the
 * fuzzer gets past them: that of each frame's head, and that of the frame, which is taken to end
 * where the next head or the file does. */
#include <stdbool.h>

#include "fuzz/fuzz_audio.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned crc(const uint8_t *p, size_t n, int bits, unsigned polynomial)
{
    unsigned value = 0;
    for (size_t i = 0; i < n; i++) {
        value ^= (unsigned)p[i] << (bits - 8);
        for (int b = 0; b < 8; b++)
            value = value >> (bits - 1) & 1 ? value << 1 ^ polynomial : value << 1;
    }
    return value & ((1u << bits) - 1);
}

static bool is_head(const uint8_t *p, size_t left)
{
    return left >= 6 && p[0] == 0xFF && (p[1] & 0xFE) == 0xF8;
}

/* Bytes of a frame's head before its checksum; 0 where they are not all there. */
static size_t head_bytes(const uint8_t *p, size_t left)
{
    size_t n = 5, more = 0;
    for (uint8_t lead = p[4]; lead >= 0xC0 && more < 6; lead = (uint8_t)(lead << 1 | 1), more++)
        if (!(lead & 0x40))
            break;
    n += more;
    n += (p[2] >> 4) == 6 ? 1 : (p[2] >> 4) == 7 ? 2 : 0;
    n += (p[2] & 15) == 12 ? 1 : (p[2] & 15) > 12 ? 2 : 0;
    return n + 3 <= left ? n : 0;
}

static void mend(uint8_t *p, size_t size)
{
    for (size_t at = 4; at < size; at++) {
        if (!is_head(p + at, size - at))
            continue;
        const size_t head = head_bytes(p + at, size - at);
        if (!head)
            return;
        p[at + head] = (uint8_t)crc(p + at, head, 8, 0x07);
        size_t end = at + head + 3;
        while (end < size && !is_head(p + end, size - end))
            end++;
        if (end > size)
            return;
        const unsigned sum = crc(p + at, end - at - 2, 16, 0x8005);
        p[end - 2] = (uint8_t)(sum >> 8);
        p[end - 1] = (uint8_t)sum;
        at = end - 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!dec)
        dec = psti_decoder_new();
    if (!dec || size < 42)
        return 0;
    decode_every_way(data, size);
    uint8_t *mended = malloc(size);
    memcpy(mended, data, size);
    memcpy(mended, "fLaC", 4);
    mend(mended, size);
    decode_every_way(mended, size);
    free(mended);
    return 0;
}
