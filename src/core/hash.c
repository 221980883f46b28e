/* SPDX-License-Identifier: Apache-2.0
 * SipHash-2-4-128 with the fixed key 00 01 … 0f, so that the published test vectors apply. */
#include "core/hash.h"

#include <string.h>

#include "penstock.h"

static inline uint64_t rotl(uint64_t x, int n)
{
    return (x << n) | (x >> (64 - n));
}

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static inline void sip_round(psti_hash *h)
{
    h->v0 += h->v1;
    h->v1 = rotl(h->v1, 13) ^ h->v0;
    h->v0 = rotl(h->v0, 32);
    h->v2 += h->v3;
    h->v3 = rotl(h->v3, 16) ^ h->v2;
    h->v0 += h->v3;
    h->v3 = rotl(h->v3, 21) ^ h->v0;
    h->v2 += h->v1;
    h->v1 = rotl(h->v1, 17) ^ h->v2;
    h->v2 = rotl(h->v2, 32);
}

static inline void absorb(psti_hash *h, uint64_t word)
{
    h->v3 ^= word;
    sip_round(h);
    sip_round(h);
    h->v0 ^= word;
}

void psti_hash_init(psti_hash *h)
{
    const uint64_t k0 = 0x0706050403020100u, k1 = 0x0f0e0d0c0b0a0908u;
    h->v0 = k0 ^ 0x736f6d6570736575u;
    h->v1 = k1 ^ 0x646f72616e646f6du ^ 0xee;
    h->v2 = k0 ^ 0x6c7967656e657261u;
    h->v3 = k1 ^ 0x7465646279746573u;
    h->total = 0;
}

void psti_hash_update(psti_hash *h, const void *bytes, size_t size)
{
    const uint8_t *p = bytes;
    size_t have = h->total & 7;
    h->total += size;
    if (have) {
        while (have < 8 && size) {
            h->tail[have++] = *p++;
            size--;
        }
        if (have < 8)
            return;
        absorb(h, load64(h->tail));
    }
    for (; size >= 8; p += 8, size -= 8)
        absorb(h, load64(p));
    if (size)
        memcpy(h->tail, p, size);
}

void psti_hash_u64(psti_hash *h, uint64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    psti_hash_update(h, bytes, 8);
}

void psti_hash_text(psti_hash *h, const char *text, size_t size)
{
    psti_hash_u64(h, size);
    psti_hash_update(h, text, size);
}

psti_id128 psti_hash_final(psti_hash *h)
{
    uint64_t last = h->total << 56;
    for (size_t i = 0; i < (h->total & 7); i++)
        last |= (uint64_t)h->tail[i] << (8 * i);
    absorb(h, last);
    psti_id128 out;
    h->v2 ^= 0xee;
    for (int i = 0; i < 4; i++)
        sip_round(h);
    out.lo = h->v0 ^ h->v1 ^ h->v2 ^ h->v3;
    h->v1 ^= 0xdd;
    for (int i = 0; i < 4; i++)
        sip_round(h);
    out.hi = h->v0 ^ h->v1 ^ h->v2 ^ h->v3;
    return out;
}

psti_id128 psti_hash_bytes(const void *bytes, size_t size)
{
    psti_hash h;
    psti_hash_init(&h);
    psti_hash_update(&h, bytes, size);
    return psti_hash_final(&h);
}

void psti_id128_store(psti_id128 id, uint8_t out[16])
{
    for (int i = 0; i < 8; i++) {
        out[i] = (uint8_t)(id.lo >> (8 * i));
        out[8 + i] = (uint8_t)(id.hi >> (8 * i));
    }
}

psti_id128 psti_id128_load(const uint8_t in[16])
{
    return (psti_id128){load64(in), load64(in + 8)};
}

void psti_id128_hex(psti_id128 id, char out[33])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[16];
    psti_id128_store(id, bytes);
    for (int i = 0; i < 16; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[32] = 0;
}
