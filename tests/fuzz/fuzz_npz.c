/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as an NPZ archive, with checksums as they are and again with the right
 * ones of stored arrays, so that the fuzzer gets past them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz_volume.h"

static uint32_t crc_of(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

static size_t read_le(const uint8_t *p, int bytes)
{
    size_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (size_t)p[i] << 8 * i;
    return value;
}

/* Every entry of the directory that leads to bytes which are there. */
static void mend_checksums(uint8_t *bytes, size_t size)
{
    for (size_t at = 0; size >= 46 && at <= size - 46; at++) {
        uint8_t *entry = bytes + at;
        if (memcmp(entry, "PK\1\2", 4) != 0)
            continue;
        const size_t local = read_le(entry + 42, 4), length = read_le(entry + 20, 4);
        if (local > size || size - local < 30)
            continue;
        const size_t skip = 30 + read_le(bytes + local + 26, 2) + read_le(bytes + local + 28, 2);
        if (skip > size - local || length > size - local - skip)
            continue;
        const uint32_t crc = crc_of(bytes + local + skip, length);
        for (int i = 0; i < 4; i++)
            entry[16 + i] = (uint8_t)(crc >> 8 * i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || memcmp(data, "PK", 2) != 0)
        return 0;
    fuzz_volume(data, size);
    uint8_t *mended = malloc(size);
    memcpy(mended, data, size);
    mend_checksums(mended, size);
    fuzz_volume(mended, size);
    free(mended);
    return 0;
}
