/* SPDX-License-Identifier: Apache-2.0
 * CRC32C (Castagnoli), by the CPU's instruction where there is one, else by table. Pure function.
 */
#include <pthread.h>
#include <string.h>

#include "core/hash.h"
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

/* ---- parts -------------------------------------------------------------------------------------
 */

/* Product of two polynomials modulo the checksum's own; the highest bit stands for 1. */
static uint32_t product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        sum ^= a & bit ? b : 0;
        b = b >> 1 ^ (b & 1 ? 0x82f63b78u : 0);
    }
    return sum;
}

uint32_t psti_crc32c_power(uint64_t bytes)
{
    uint32_t power = 1u << 31, square = 1u << 23; /* x^8: one byte */
    for (; bytes; bytes >>= 1) {
        if (bytes & 1)
            power = product(power, square);
        square = product(square, square);
    }
    return power;
}

uint32_t psti_crc32c_join(uint32_t first, uint32_t second, uint32_t power)
{
    return product(first, power) ^ second;
}

/* ---- the CPU's instruction --------------------------------------------------------------------
 */

#if defined(__x86_64__)
#include <nmmintrin.h>

/* The instruction takes three cycles and can be begun in each: three stretches of STRIDE bytes at a
 * time. */
enum { STRIDE = 1024 };

static uint32_t stride[2][4][256]; /* a checksum moved on by one and by two of them, bytewise */
static pthread_once_t stride_once = PTHREAD_ONCE_INIT;

static void make_stride(void)
{
    for (int n = 0; n < 2; n++) {
        const uint32_t power = psti_crc32c_power((uint64_t)(n + 1) * STRIDE);
        for (int byte = 0; byte < 4; byte++)
            for (uint32_t i = 0; i < 256; i++)
                stride[n][byte][i] = product(i << 8 * byte, power);
    }
}

static inline uint32_t moved(int n, uint32_t crc)
{
    return stride[n][0][crc & 255] ^ stride[n][1][crc >> 8 & 255] ^ stride[n][2][crc >> 16 & 255] ^
           stride[n][3][crc >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t three_strides(uint32_t crc, const uint8_t *p)
{
    uint64_t a = crc, b = 0, c = 0;
    for (const uint8_t *end = p + STRIDE; p < end; p += 8) {
        uint64_t x, y, z;
        memcpy(&x, p, 8);
        memcpy(&y, p + STRIDE, 8);
        memcpy(&z, p + 2 * STRIDE, 8);
        a = _mm_crc32_u64(a, x);
        b = _mm_crc32_u64(b, y);
        c = _mm_crc32_u64(c, z);
    }
    return moved(1, (uint32_t)a) ^ moved(0, (uint32_t)b) ^ (uint32_t)c;
}

__attribute__((target("sse4.2"))) static uint32_t by_cpu(uint32_t crc, const uint8_t *p,
                                                         size_t size)
{
    if (size >= 3 * STRIDE)
        pthread_once(&stride_once, make_stride);
    for (; size >= 3 * STRIDE; p += 3 * STRIDE, size -= 3 * STRIDE)
        crc = three_strides(crc, p);
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
