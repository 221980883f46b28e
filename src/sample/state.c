/* SPDX-License-Identifier: Apache-2.0
 * Writing a state: see state_format.h for the layout. The same code counts the bytes and writes
 * them, so the two cannot differ. Pure functions in the caller's thread. */
#include <string.h>

#include "sample/state_format.h"

void psti_state_fini(psti_state *state)
{
    psti_free(state->used);
    psti_free(state->skipped);
    psti_free(state->pipeline);
    psti_free(state->given);
    memset(state, 0, sizeof *state);
}

/* Counts bytes; writes them too where there is a buffer. */
typedef struct sink {
    uint8_t *buf;
    size_t size;
    size_t section; /* where the open section's payload begins */
    uint32_t sections;
    bool too_long; /* a section does not fit its length field */
} sink;

static void put(sink *out, const void *bytes, size_t size)
{
    if (out->buf)
        memcpy(out->buf + out->size, bytes, size);
    out->size += size;
}

static void put_number(sink *out, uint64_t value, int bytes)
{
    uint8_t b[8];
    for (int i = 0; i < bytes; i++)
        b[i] = (uint8_t)(value >> (8 * i));
    put(out, b, (size_t)bytes);
}

static void put_varint(sink *out, uint64_t value)
{
    uint8_t b[10];
    size_t n = 0;
    for (; value >= 128; value >>= 7)
        b[n++] = (uint8_t)(value | 128);
    b[n++] = (uint8_t)value;
    put(out, b, n);
}

static void patch32(sink *out, size_t at, uint32_t value)
{
    sink there = {.buf = out->buf, .size = at};
    put_number(&there, value, 4);
}

static void section_begin(sink *out, int section)
{
    put(out, STATE_TAGS[section], 4);
    put_number(out, 0, 4);
    out->section = out->size;
    out->sections++;
}

static void section_end(sink *out)
{
    const size_t size = out->size - out->section;
    out->too_long |= size > UINT32_MAX;
    patch32(out, out->section - 4, (uint32_t)size);
}

static void put_identity(sink *out, const psti_state *s)
{
    uint8_t bytes[STATE_IDENTITY_BYTES];
    psti_id128_store(s->revision, bytes);
    psti_id128_store(s->fingerprint, bytes + 16);
    psti_id128_store(s->source, bytes + 32);
    section_begin(out, STATE_IDENTITY);
    put(out, bytes, sizeof bytes);
    section_end(out);
}

static void put_base(sink *out, const psti_state *s)
{
    section_begin(out, STATE_BASE);
    put_number(out, s->seed, 8);
    put_number(out, s->epoch, 8);
    put_number(out, (uint64_t)s->length, 8);
    put_number(out, (uint64_t)s->order, 4);
    put_number(out, (uint64_t)s->ends, 4);
    put_number(out, (uint64_t)s->batch, 4);
    put_number(out, (uint64_t)s->world, 4);
    put_number(out, (uint64_t)s->rank, 4);
    put_number(out, (s->merged ? STATE_MERGED : 0u) | (s->per_rank ? STATE_PER_RANK : 0u), 4);
    put_number(out, (uint64_t)s->prefix, 8);
    put_number(out, (uint64_t)s->share, 8);
    section_end(out);
}

static void put_deltas(sink *out, const psti_state *s)
{
    int64_t next = 0;
    for (int64_t i = 0; i < s->skipped_count; i++) {
        put_varint(out, (uint64_t)(s->skipped[i] - next));
        next = s->skipped[i] + 1;
    }
}

static void put_bitmap(sink *out, const psti_state *s)
{
    int64_t i = 0;
    for (size_t byte = 0; byte < state_bitmap_bytes(s); byte++) {
        uint8_t bits = 0;
        for (; i < s->skipped_count && (size_t)(s->skipped[i] / 8) == byte; i++)
            bits |= (uint8_t)(1u << (s->skipped[i] & 7));
        put(out, &bits, 1);
    }
}

/* Distances where samples were skipped here and there, a bitmap where that is shorter. */
static void put_skipped(sink *out, const psti_state *s)
{
    sink measure = {0};
    put_deltas(&measure, s);
    const bool deltas = measure.size <= state_bitmap_bytes(s);
    section_begin(out, STATE_SKIPPED);
    put_number(out, deltas ? STATE_SKIP_DELTAS : STATE_SKIP_BITMAP, 1);
    put_number(out, (uint64_t)s->skipped_count, 8);
    if (deltas)
        put_deltas(out, s);
    else
        put_bitmap(out, s);
    section_end(out);
}

static void put_given(sink *out, const psti_state *s)
{
    int width = 4;
    for (int64_t i = 0; i < s->given_count; i++)
        if (s->given[i] > UINT32_MAX)
            width = 8;
    section_begin(out, STATE_GIVEN);
    put_number(out, (uint64_t)width, 1);
    for (int64_t i = 0; i < s->given_count; i++)
        put_number(out, (uint64_t)s->given[i], width);
    section_end(out);
}

/* The text is a courtesy: it is left out where it would not fit the bound. */
static void put_text(sink *out, const psti_state *s, size_t bounded)
{
    const size_t size = strlen(s->pipeline);
    const size_t with = bounded + STATE_SECTION_HEAD_BYTES + size + STATE_CRC_BYTES;
    if (size > STATE_TEXT_MAX || with > (size_t)(s->length / 8) + STATE_SPARE_BYTES)
        return;
    section_begin(out, STATE_TEXT);
    put(out, s->pipeline, size);
    section_end(out);
}

/* Everything but the checksum. */
static void put_state(sink *out, const psti_state *s)
{
    put(out, STATE_MAGIC, sizeof STATE_MAGIC);
    put_number(out, STATE_VERSION, 4);
    put_number(out, 0, 4);
    put_identity(out, s);
    put_base(out, s);
    if (s->used) {
        section_begin(out, STATE_USED);
        put(out, s->used, state_bitmap_bytes(s));
        section_end(out);
    }
    if (s->skipped_count)
        put_skipped(out, s);
    if (s->pipeline)
        put_text(out, s, out->size);
    if (s->given)
        put_given(out, s);
    patch32(out, sizeof STATE_MAGIC + 4, out->sections);
}

size_t psti_state_size(const psti_state *state)
{
    sink out = {0};
    put_state(&out, state);
    return out.too_long ? 0 : out.size + STATE_CRC_BYTES;
}

size_t psti_state_encode(const psti_state *state, uint8_t *buf, size_t cap)
{
    const size_t size = psti_state_size(state);
    if (size == 0 || size > cap)
        return size;
    sink out = {.buf = buf};
    put_state(&out, state);
    put_number(&out, pst_crc32c(0, buf, out.size), STATE_CRC_BYTES);
    return size;
}
