/* SPDX-License-Identifier: Apache-2.0
 * The layout of a state blob, shared by the file that writes it and the one that reads it:
 *
 *     "PSTSTATE"  version:u32  sections:u32  { tag[4]  bytes:u32  payload }…  crc32c:u32
 *
 * All numbers are little-endian; the checksum covers every byte before it. A section whose tag
 * begins with a capital must be understood, others may be passed over. Frozen: a blob once written
 * stays readable, so new facts go into new sections. */
#ifndef PSTI_SAMPLE_STATE_FORMAT_H
#define PSTI_SAMPLE_STATE_FORMAT_H

#include "sample/sample_priv.h"

static const uint8_t STATE_MAGIC[8] = {'P', 'S', 'T', 'S', 'T', 'A', 'T', 'E'};

enum {
    STATE_VERSION = 1,
    STATE_HEAD_BYTES = 16,
    STATE_SECTION_HEAD_BYTES = 8,
    STATE_CRC_BYTES = 4,
    STATE_IDENTITY_BYTES = 48,
    STATE_BASE_BYTES = 64,
    STATE_TEXT_MAX = 4096,
    STATE_SPARE_BYTES = 8192, /* what a state may take beyond one bit a position */
    STATE_MERGED = 1,         /* flags of BASE */
    STATE_PER_RANK = 2,
    STATE_SKIP_DELTAS = 0, /* forms of SKIP */
    STATE_SKIP_BITMAP = 1
};

enum {
    STATE_IDENTITY, /* revision, fingerprint, source: 16 bytes each */
    STATE_BASE,    /* seed, epoch, length: u64; order, ends, batch, world, rank, flags: u32; prefix,
                      share: u64 */
    STATE_USED,    /* bitmap, (length + 7) / 8 bytes */
    STATE_SKIPPED, /* form: u8; count: u64; distances as varints, or a bitmap */
    STATE_GIVEN,   /* width 4 or 8: u8; that many bytes an id */
    STATE_TEXT,    /* the pipeline's text, no terminator */
    STATE_SECTIONS
};
static const char STATE_TAGS[STATE_SECTIONS][5] = {"IDEN", "BASE", "USED", "SKIP", "GIVN", "pipe"};

static inline size_t state_bitmap_bytes(const psti_state *s)
{
    return (size_t)(s->length / 8 + (s->length % 8 != 0));
}

#endif
