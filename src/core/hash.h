/* SPDX-License-Identifier: Apache-2.0
 * SipHash-2-4 with 128 bits of output, for identities, revisions and fingerprints; CRC32C for
 * integrity. Both are part of stored formats: they never change. Pure functions. */
#ifndef PSTI_CORE_HASH_H
#define PSTI_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct psti_id128 {
    uint64_t lo, hi;
} psti_id128;

/* Streaming: init, any number of updates, final. Pieces concatenate; frame variable-length parts
 * yourself, or use psti_hash_text, which appends the length first. Integers go in little-endian. */
typedef struct psti_hash {
    uint64_t v0, v1, v2, v3;
    uint64_t total;
    uint8_t tail[8];
} psti_hash;

void psti_hash_init(psti_hash *h);
void psti_hash_update(psti_hash *h, const void *bytes, size_t size);
void psti_hash_u64(psti_hash *h, uint64_t value);
void psti_hash_text(psti_hash *h, const char *text, size_t size);
psti_id128 psti_hash_final(psti_hash *h);

psti_id128 psti_hash_bytes(const void *bytes, size_t size);
/* 32 lower-case hex digits and a terminator. */
void psti_id128_hex(psti_id128 id, char out[33]);
void psti_id128_store(psti_id128 id, uint8_t out[16]);
psti_id128 psti_id128_load(const uint8_t in[16]);

/* CRC32C (pst_crc32c) of two parts that follow each other, from the checksum of each: power is
 * psti_crc32c_power of the second one's bytes. */
uint32_t psti_crc32c_power(uint64_t bytes);
uint32_t psti_crc32c_join(uint32_t first, uint32_t second, uint32_t power);

/* Bijective 64-bit mixer (the finaliser of splitmix64). */
static inline uint64_t psti_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x;
}

#endif
