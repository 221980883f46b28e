/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a tar shard, as they are and with right checksums: opened, then everything that it
 * claims to hold is asked for and read. What is refused must be refused with a message; what is
 * accepted must be readable to the last byte. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCK = 512, CHECKSUM = 148 };

/* Makes the checksum of a block right if it looks like a header, so that the fuzzer gets past it.
 */
static void seal(uint8_t *block)
{
    unsigned sum = 0;
    if (memcmp(block + 257, "ustar", 5) != 0)
        return;
    memset(block + CHECKSUM, ' ', 8);
    for (int i = 0; i < BLOCK; i++)
        sum += block[i];
    for (int i = 0; i < 6; i++)
        block[CHECKSUM + i] = (uint8_t)('0' + (sum >> (3 * (5 - i)) & 7));
    block[CHECKSUM + 6] = 0;
}

static void open_shard(const void *bytes, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/s.tar", fuzz_folder());
    fuzz_put(path, bytes, size);
    fuzz_open(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *sealed = malloc(size + 1);
    if (!sealed)
        return 0;
    memcpy(sealed, data, size);
    for (size_t at = 0; at + BLOCK <= size; at += BLOCK)
        seal(sealed + at);
    open_shard(data, size);
    open_shard(sealed, size);
    free(sealed);
    return 0;
}
