/* SPDX-License-Identifier: Apache-2.0
 * An entry of the cache as bytes outside RAM: on a disk, or with another machine. Who packs it and
 * who opens it need share nothing but the byte order, which the first eight bytes tell; whatever is
 * wrong with the bytes in between, opening says so and nothing of them is used.
 *
 *     head       what it is, whose it is (key), sizes, CRC32C of head and descriptions, of content
 *     pictures   a description each: sizes, types, what the file's header said
 *     content    the pictures' elements without gaps, each 64-aligned; or the plain bytes
 *
 * Pure functions, any thread. */
#ifndef PSTI_CACHE_ENVELOPE_H
#define PSTI_CACHE_ENVELOPE_H

#include "cache/cache.h"

enum { PSTI_ENVELOPE_PICTURES = 17 }; /* most that one may have */

/* What an envelope holds; data points into the packed bytes. Elements are 64-aligned when the
 * packed bytes are. */
typedef struct psti_envelope {
    int count; /* pictures; 0: plain bytes */
    psti_decoded pictures[PSTI_ENVELOPE_PICTURES];
    const uint8_t *bytes;
    size_t size;
} psti_envelope;

/* Bytes that it takes packed; 0 when it cannot be: too many pictures, or too large for a size.
 * Pictures need shape and type, not their data. */
size_t psti_envelope_size(const psti_cache_content *content);
/* The most that plain bytes need beyond themselves. */
enum { PSTI_ENVELOPE_ROOM = 128 };
/* Into psti_envelope_size bytes at out, every one of which is written. The pictures' data are set
 * and may have gaps; or bytes has content->bytes. */
void psti_envelope_pack(const psti_cache_key *key, const psti_cache_content *content,
                        const uint8_t *bytes, uint8_t *out);
/* Whose it says it is, and whether there is nothing in it, before anything is looked at closely. */
psti_id128 psti_envelope_maker(const uint8_t *packed, size_t size, bool *empty);
/* 0, or PST_ECORRUPT: it is not the entry of that key, whole and unchanged. */
int psti_envelope_open(const psti_cache_key *key, const uint8_t *packed, size_t size,
                       psti_envelope *out);

#endif
