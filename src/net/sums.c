/* SPDX-License-Identifier: Apache-2.0
 * The checksums that S3 keeps with objects: CRC32C, CRC32, CRC64NVME, SHA-1, SHA-256. Those of two
 * CRCs are computed by carry-less multiplication where the CPU has it: 64 bytes (256 where it is
 * wide) are folded into the next ones until few are left, which the table does. State in the
 * caller's storage; any thread. */
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

#include "net/net_priv.h"

/* ---- CRCs with the lowest bit first ---------------------------------------------------------- */

typedef struct crc_model {
    uint64_t poly, top; /* top: the bit of x^0 */
    uint64_t table[8][256];
    uint64_t fold2048[2], fold512[2], fold128[2];
} crc_model;

static crc_model model32 = {.poly = 0xedb88320u, .top = 1ull << 31};
static crc_model model64 = {.poly = 0x9a6c9329ac4bc9b5ull, .top = 1ull << 63};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t times_x(const crc_model *m, uint64_t v)
{
    return v >> 1 ^ (v & 1 ? m->poly : 0);
}

/* x^n mod P, its lowest power in bit 63. */
static uint64_t power(const crc_model *m, int n)
{
    uint64_t v = m->top;
    for (int i = 0; i < n; i++)
        v = times_x(m, v);
    return m->top >> 63 ? v : v << 32;
}

static void make_model(crc_model *m)
{
    for (uint64_t i = 0; i < 256; i++) {
        uint64_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = times_x(m, crc);
        m->table[0][i] = crc;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            m->table[t][i] = m->table[t - 1][i] >> 8 ^ m->table[0][m->table[t - 1][i] & 255];
    /* A product of two such numbers stands one bit too high, hence one power less. */
    m->fold2048[0] = power(m, 2048 + 63);
    m->fold2048[1] = power(m, 2048 - 1);
    m->fold512[0] = power(m, 512 + 63);
    m->fold512[1] = power(m, 512 - 1);
    m->fold128[0] = power(m, 128 + 63);
    m->fold128[1] = power(m, 128 - 1);
}

static void make_models(void)
{
    make_model(&model32);
    make_model(&model64);
}

static uint64_t by_table(const crc_model *m, uint64_t crc, const uint8_t *p, size_t count)
{
    for (; count >= 8; p += 8, count -= 8) {
        uint64_t word = 0;
        for (int i = 0; i < 8; i++)
            word |= (uint64_t)p[i] << (8 * i);
        word ^= crc;
        crc = 0;
        for (int i = 0; i < 8; i++)
            crc ^= m->table[7 - i][word >> (8 * i) & 255];
    }
    for (; count; p++, count--)
        crc = crc >> 8 ^ m->table[0][(crc ^ *p) & 255];
    return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>
#define WITH_CLMUL __attribute__((target("pclmul,sse4.1")))

WITH_CLMUL static inline __m128i fold(__m128i a, __m128i by, __m128i next)
{
    const __m128i high = _mm_clmulepi64_si128(a, by, 0x00);
    const __m128i low = _mm_clmulepi64_si128(a, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(high, low), next);
}

WITH_CLMUL static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

/* count >= 64 */
WITH_CLMUL static uint64_t by_cpu(const crc_model *m, uint64_t crc, const uint8_t *p, size_t count)
{
    const __m128i far = load((const uint8_t *)m->fold512), near = load((const uint8_t *)m->fold128);
    __m128i a = _mm_xor_si128(load(p), _mm_set_epi64x(0, (long long)crc));
    __m128i b = load(p + 16), c = load(p + 32), d = load(p + 48);
    for (p += 64, count -= 64; count >= 64; p += 64, count -= 64) {
        a = fold(a, far, load(p));
        b = fold(b, far, load(p + 16));
        c = fold(c, far, load(p + 32));
        d = fold(d, far, load(p + 48));
    }
    a = fold(a, near, b);
    a = fold(a, near, c);
    a = fold(a, near, d);
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)rest, a);
    return by_table(m, by_table(m, 0, rest, sizeof rest), p, count);
}

#define WITH_WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

WITH_WIDE static inline __m512i fold_wide(__m512i a, __m512i by, __m512i next)
{
    const __m512i high = _mm512_clmulepi64_epi128(a, by, 0x00);
    const __m512i low = _mm512_clmulepi64_epi128(a, by, 0x11);
    return _mm512_ternarylogic_epi64(high, low, next, 0x96); /* xor */
}

/* Whole steps of 256 bytes, one at least: 16 bytes with the same CRC. It keeps everything in
 * registers: gcc 12 places arrays of such a function wrongly when it looks for uses after return.
 */
WITH_WIDE __attribute__((noinline)) static __m128i fold_steps(const crc_model *m, uint64_t crc,
                                                              const uint8_t *p, const uint8_t *end)
{
    const __m512i by = _mm512_broadcast_i32x4(load((const uint8_t *)m->fold2048));
    const __m512i far = _mm512_broadcast_i32x4(load((const uint8_t *)m->fold512));
    const __m128i near = load((const uint8_t *)m->fold128);
    const __m512i first = _mm512_zextsi128_si512(_mm_set_epi64x(0, (long long)crc));
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p), first);
    __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128),
            d = _mm512_loadu_si512(p + 192);
    for (p += 256; p < end; p += 256) {
        a = fold_wide(a, by, _mm512_loadu_si512(p));
        b = fold_wide(b, by, _mm512_loadu_si512(p + 64));
        c = fold_wide(c, by, _mm512_loadu_si512(p + 128));
        d = fold_wide(d, by, _mm512_loadu_si512(p + 192));
    }
    a = fold_wide(fold_wide(fold_wide(a, far, b), far, c), far, d);
    __m128i x = fold(_mm512_castsi512_si128(a), near, _mm512_extracti32x4_epi32(a, 1));
    x = fold(x, near, _mm512_extracti32x4_epi32(a, 2));
    return fold(x, near, _mm512_extracti32x4_epi32(a, 3));
}

/* count >= 256 */
WITH_CLMUL static uint64_t by_wide(const crc_model *m, uint64_t crc, const uint8_t *p, size_t count)
{
    const uint8_t *end = p + (count - count % 256);
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)rest, fold_steps(m, crc, p, end));
    crc = by_table(m, 0, rest, sizeof rest);
    count %= 256;
    return count >= 64 ? by_cpu(m, crc, end, count) : by_table(m, crc, end, count);
}
#endif

static uint64_t crc_of(const crc_model *m, uint64_t crc, const uint8_t *p, size_t count)
{
    pthread_once(&once, make_models);
#if defined(__x86_64__)
    if (count >= 1024 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul"))
        return by_wide(m, crc, p, count);
    if (count >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        return by_cpu(m, crc, p, count);
#endif
    return by_table(m, crc, p, count);
}

uint32_t sum_crc32(uint32_t crc, const uint8_t *bytes, size_t count)
{
    return ~(uint32_t)crc_of(&model32, ~crc, bytes, count);
}

uint64_t sum_crc64nvme(uint64_t crc, const uint8_t *bytes, size_t count)
{
    return ~crc_of(&model64, ~crc, bytes, count);
}

/* ---- what the server says -------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t bytes;
} kinds[] = {[SUM_CRC32C] = {"crc32c", 4},
             [SUM_CRC32] = {"crc32", 4},
             [SUM_CRC64NVME] = {"crc64nvme", 8},
             [SUM_SHA1] = {"sha1", 20},
             [SUM_SHA256] = {"sha256", 32}};

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Exactly `bytes` bytes, with the '=' that belong there. */
static bool decode_base64(const char *text, size_t len, uint8_t *out, size_t bytes)
{
    if (len != (bytes + 2) / 3 * 4)
        return false;
    const size_t digits = (bytes * 8 + 5) / 6;
    uint32_t bits = 0;
    int have = 0;
    size_t at = 0;
    for (size_t i = 0; i < len; i++) {
        const int value = base64_value(text[i]);
        if (i >= digits ? text[i] != '=' : value < 0)
            return false;
        if (i >= digits)
            continue;
        bits = bits << 6 | (uint32_t)value;
        have += 6;
        if (have >= 8) {
            have -= 8;
            if (at < bytes)
                out[at++] = (uint8_t)(bits >> have);
        }
    }
    return at == bytes;
}

bool sum_expect(sum *s, const char *name, size_t name_len, const char *text, size_t len)
{
    for (uint8_t k = SUM_CRC32C; k <= SUM_SHA256; k++) {
        if (strlen(kinds[k].name) != name_len || strncasecmp(kinds[k].name, name, name_len) != 0)
            continue;
        uint8_t wanted[32];
        if (!decode_base64(text, len, wanted, kinds[k].bytes) || (s->kind && s->kind <= k))
            return false;
        memcpy(s->wanted, wanted, kinds[k].bytes);
        s->kind = k;
        return true;
    }
    return false;
}

static int digest_update(sum *s, const uint8_t *bytes, size_t count)
{
    if (!s->digest) {
        EVP_MD_CTX *context = EVP_MD_CTX_new();
        const EVP_MD *type = s->kind == SUM_SHA1 ? EVP_sha1() : EVP_sha256();
        if (!context || EVP_DigestInit_ex(context, type, NULL) != 1) {
            EVP_MD_CTX_free(context);
            return -ENOMEM;
        }
        s->digest = context;
    }
    return EVP_DigestUpdate(s->digest, bytes, count) == 1 ? 0 : -EIO;
}

int sum_update(sum *s, const uint8_t *bytes, size_t count)
{
    switch (s->kind) {
    case SUM_NONE:
        break;
    case SUM_CRC32C:
        s->value = pst_crc32c((uint32_t)s->value, bytes, count);
        break;
    case SUM_CRC32:
        s->value = sum_crc32((uint32_t)s->value, bytes, count);
        break;
    case SUM_CRC64NVME:
        s->value = sum_crc64nvme(s->value, bytes, count);
        break;
    default:
        return digest_update(s, bytes, count);
    }
    return 0;
}

void sum_drop(sum *s)
{
    EVP_MD_CTX_free(s->digest);
    memset(s, 0, sizeof *s);
}

bool sum_right(sum *s)
{
    uint8_t found[32] = {0};
    const size_t bytes = kinds[s->kind].bytes;
    if (s->kind == SUM_NONE)
        return true;
    if (s->kind == SUM_SHA1 || s->kind == SUM_SHA256) {
        const bool fine =
            digest_update(s, NULL, 0) == 0 && EVP_DigestFinal_ex(s->digest, found, NULL) == 1;
        const bool same = fine && memcmp(found, s->wanted, bytes) == 0;
        sum_drop(s);
        return same;
    }
    for (size_t i = 0; i < bytes; i++)
        found[i] = (uint8_t)(s->value >> (8 * (bytes - 1 - i)));
    const bool same = memcmp(found, s->wanted, bytes) == 0;
    sum_drop(s);
    return same;
}
