/* SPDX-License-Identifier: Apache-2.0
 * CRC32C (Castagnoli), by the CPU's instruction where there is one, else by table. Pure function.
 */
#include <pthread.h>
#include <string.h>

#include "penstock.h"

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        table[0][i] = crc;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
}

static uint32_t by_table(uint32_t crc, const uint8_t *p, size_t size)
{
    pthread_once(&once, make_table);
    for (; size >= 8; p += 8, size -= 8) {
        const uint32_t low =
            crc ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
              table[4][low >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^
              table[0][p[7]];
    }
    for (; size; p++, size--)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t by_cpu(uint32_t crc, const uint8_t *p,
                                                         size_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size; p++, size--)
        crc = _mm_crc32_u8(crc, *p);
    return crc;
}
#endif

uint32_t pst_crc32c(uint32_t crc, const void *bytes, size_t size)
{
    crc = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~by_cpu(crc, bytes, size);
#endif
    return ~by_table(crc, bytes, size);
}
