/* SPDX-License-Identifier: Apache-2.0
 * Reading a state: see state_format.h for the layout. No byte is trusted: the blob may be damaged,
 * cut or made up, and memory is taken only for what its own bytes can hold. Pure functions in the
 * caller's thread. */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "sample/state_format.h"

enum { BATCH_MAX = 1 << 20, WORLD_MAX = 1 << 16 };

/* A section's payload. Reading past the end gives zeros and is remembered. */
typedef struct piece {
    const uint8_t *at, *end;
    int64_t offset; /* of the payload in the blob */
    bool found, past;
} piece;

#define REFUSE(err, piece, ...)                                                                    \
    psti_fail_at(err, PST_ESTATE, "state", NULL, (piece)->offset, __VA_ARGS__)

static size_t bytes_of(const piece *p)
{
    return (size_t)(p->end - p->at);
}

static uint64_t get_number(piece *p, int bytes)
{
    uint64_t value = 0;
    if (bytes_of(p) < (size_t)bytes) {
        p->past = true;
        return 0;
    }
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | p->at[i];
    p->at += bytes;
    return value;
}

/* Only the shortest form of a number is taken. */
static uint64_t get_varint(piece *p)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 63 && p->at < p->end; shift += 7) {
        const uint8_t byte = *p->at++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            p->past |= byte == 0 && shift > 0;
            return value;
        }
    }
    p->past = true;
    return 0;
}

static int no_memory(pst_error *err, size_t bytes)
{
    return psti_fail(err, -ENOMEM, "state", NULL, "out of memory for %zu bytes", bytes);
}

static int read_identity(piece *p, psti_state *s, pst_error *err)
{
    if (bytes_of(p) != STATE_IDENTITY_BYTES)
        return REFUSE(err, p, "section IDEN has %zu bytes; it must have %d", bytes_of(p),
                      STATE_IDENTITY_BYTES);
    s->revision = psti_id128_load(p->at);
    s->fingerprint = psti_id128_load(p->at + 16);
    s->source = psti_id128_load(p->at + 32);
    return 0;
}

/* A number of BASE and what it may be. */
typedef struct bounds {
    const char *name;
    uint64_t value, low, high;
} bounds;

static int check_base(const piece *p, const bounds *b, int count, pst_error *err)
{
    for (int i = 0; i < count; i++)
        if (b[i].value < b[i].low || b[i].value > b[i].high)
            return REFUSE(err, p, "%s is %llu; it must be %llu..%llu", b[i].name,
                          (unsigned long long)b[i].value, (unsigned long long)b[i].low,
                          (unsigned long long)b[i].high);
    return 0;
}

static int read_base(piece *p, psti_state *s, pst_error *err)
{
    if (bytes_of(p) != STATE_BASE_BYTES)
        return REFUSE(err, p, "section BASE has %zu bytes; it must have %d", bytes_of(p),
                      STATE_BASE_BYTES);
    s->seed = get_number(p, 8);
    s->epoch = get_number(p, 8);
    const uint64_t length = get_number(p, 8), order = get_number(p, 4), ends = get_number(p, 4);
    const uint64_t batch = get_number(p, 4), world = get_number(p, 4), rank = get_number(p, 4);
    const uint64_t flags = get_number(p, 4), prefix = get_number(p, 8), share = get_number(p, 8);
    const bounds all[] = {
        {"the number of positions", length, 0, INT64_MAX / 2},
        {"the order", order, PST_ORDER_STRICT, PST_ORDER_READY},
        {"ends", ends, PST_ENDS_DEFAULT, PST_ENDS_SHORT},
        {"the batch", batch, 1, BATCH_MAX},
        {"the world", world, 1, WORLD_MAX},
        {"the rank", rank, 0, world - 1},
        {"the flags word", flags, 0, STATE_MERGED | STATE_PER_RANK},
        {"the consumed prefix", prefix, 0, length},
        {"the consumed share", share, 0, length + batch},
    };
    const int rc = check_base(p, all, sizeof all / sizeof *all, err);
    if (rc < 0)
        return rc;
    if (flags == (STATE_MERGED | STATE_PER_RANK))
        return REFUSE(err, p, "it says both that it stands for all ranks and for rank %llu alone",
                      (unsigned long long)rank);
    s->length = (int64_t)length;
    s->order = (int)order;
    s->ends = (int)ends;
    s->batch = (int)batch;
    s->world = (int)world;
    s->rank = (int)rank;
    s->merged = flags & STATE_MERGED;
    s->per_rank = flags & STATE_PER_RANK;
    s->prefix = (int64_t)prefix;
    s->share = (int64_t)share;
    return 0;
}

/* A bitmap has exactly the bytes its positions need and no bit beyond them. */
static int check_bitmap(const piece *p, const psti_state *s, const char *name, pst_error *err)
{
    if (bytes_of(p) != state_bitmap_bytes(s))
        return REFUSE(err, p, "the bitmap of section %s has %zu bytes; %lld positions need %zu",
                      name, bytes_of(p), (long long)s->length, state_bitmap_bytes(s));
    if (s->length % 8 && p->end[-1] >> (s->length % 8))
        return REFUSE(err, p, "the bitmap of section %s has bits set beyond its %lld positions",
                      name, (long long)s->length);
    return 0;
}

static int read_used(piece *p, psti_state *s, pst_error *err)
{
    const int rc = check_bitmap(p, s, STATE_TAGS[STATE_USED], err);
    if (rc < 0)
        return rc;
    for (int64_t i = 0; s->order == PST_ORDER_STRICT && i < s->prefix; i++)
        if (!(p->at[i >> 3] >> (i & 7) & 1))
            return REFUSE(
                err, p, "the prefix says %lld positions are consumed, the bitmap that %lld is not",
                (long long)s->prefix, (long long)i);
    s->used = psti_malloc(PSTI_MEM_SAMPLE, bytes_of(p));
    if (!s->used)
        return no_memory(err, bytes_of(p));
    memcpy(s->used, p->at, bytes_of(p));
    return 0;
}

static int read_deltas(piece *p, psti_state *s, pst_error *err)
{
    int64_t next = 0;
    for (int64_t i = 0; i < s->skipped_count; i++) {
        const uint64_t delta = get_varint(p);
        if (p->past || delta >= (uint64_t)(s->length - next))
            return REFUSE(err, p, "skipped sample %lld of %lld is not one of the %lld positions",
                          (long long)i, (long long)s->skipped_count, (long long)s->length);
        s->skipped[i] = next + (int64_t)delta;
        next = s->skipped[i] + 1;
    }
    if (p->at != p->end)
        return REFUSE(err, p, "%zu bytes are left over after %lld skipped samples", bytes_of(p),
                      (long long)s->skipped_count);
    return 0;
}

static int read_skip_bitmap(piece *p, psti_state *s, pst_error *err)
{
    int64_t found = 0;
    for (int64_t at = 0; at < s->length; at++)
        if (p->at[at >> 3] >> (at & 7) & 1 && found++ < s->skipped_count)
            s->skipped[found - 1] = at;
    if (found != s->skipped_count)
        return REFUSE(err, p, "%lld samples are said to be skipped, the bitmap has %lld",
                      (long long)s->skipped_count, (long long)found);
    return 0;
}

static int read_skipped(piece *p, psti_state *s, pst_error *err)
{
    const uint64_t form = get_number(p, 1), count = get_number(p, 8);
    if (p->past || form > STATE_SKIP_BITMAP)
        return REFUSE(err, p, "section SKIP has form %llu; it must be 0..%d",
                      (unsigned long long)form, STATE_SKIP_BITMAP);
    /* Checked before memory is taken: a distance has at least one byte, a bitmap one bit. */
    const uint64_t most = form == STATE_SKIP_DELTAS ? bytes_of(p) : (uint64_t)s->length;
    if (count == 0 || count > most)
        return REFUSE(err, p, "%llu samples are said to be skipped; there is room for 1..%llu",
                      (unsigned long long)count, (unsigned long long)most);
    if (form == STATE_SKIP_BITMAP) {
        const int rc = check_bitmap(p, s, STATE_TAGS[STATE_SKIPPED], err);
        if (rc < 0)
            return rc;
    }
    s->skipped = psti_calloc(PSTI_MEM_SAMPLE, (size_t)count, sizeof *s->skipped);
    if (!s->skipped)
        return no_memory(err, (size_t)count * sizeof *s->skipped);
    s->skipped_count = (int64_t)count;
    return form == STATE_SKIP_DELTAS ? read_deltas(p, s, err) : read_skip_bitmap(p, s, err);
}

static int read_given(piece *p, psti_state *s, pst_error *err)
{
    const uint64_t width = get_number(p, 1);
    if ((width != 4 && width != 8) || bytes_of(p) == 0 || bytes_of(p) % width)
        return REFUSE(err, p, "section GIVN has %zu bytes for ids of %llu bytes", bytes_of(p),
                      (unsigned long long)width);
    const int64_t count = (int64_t)(bytes_of(p) / width);
    if (s->length % count || s->length == 0)
        return REFUSE(err, p, "a given order of %lld ids does not make an epoch of %lld positions",
                      (long long)count, (long long)s->length);
    s->given = psti_calloc(PSTI_MEM_SAMPLE, (size_t)count, sizeof *s->given);
    if (!s->given)
        return no_memory(err, (size_t)count * sizeof *s->given);
    s->given_count = count;
    for (int64_t i = 0; i < count; i++) {
        s->given[i] = (int64_t)get_number(p, (int)width);
        if (s->given[i] < 0)
            return REFUSE(err, p, "entry %lld of the given order is negative", (long long)i);
    }
    return 0;
}

static int read_text(piece *p, psti_state *s, pst_error *err)
{
    const size_t size = bytes_of(p);
    if (size > STATE_TEXT_MAX)
        return REFUSE(err, p, "the pipeline's text has %zu bytes; at most %d are kept", size,
                      STATE_TEXT_MAX);
    if (memchr(p->at, 0, size))
        return REFUSE(err, p, "the pipeline's text has a zero byte inside");
    s->pipeline = psti_malloc(PSTI_MEM_SAMPLE, size + 1);
    if (!s->pipeline)
        return no_memory(err, size + 1);
    memcpy(s->pipeline, p->at, size);
    s->pipeline[size] = 0;
    return 0;
}

/* ---- the frame ------------------------------------------------------------------------------- */

static int section_of(const uint8_t *tag)
{
    for (int i = 0; i < STATE_SECTIONS; i++)
        if (memcmp(STATE_TAGS[i], tag, 4) == 0)
            return i;
    return -1;
}

static int unknown_section(const piece *p, const uint8_t *tag, pst_error *err)
{
    char name[5] = {0};
    if (tag[0] >= 'a' && tag[0] <= 'z')
        return 0;
    for (int i = 0; i < 4; i++)
        name[i] = tag[i] > 32 && tag[i] < 127 ? (char)tag[i] : '?';
    return REFUSE(
        err, p, "it has a section %s that version %d does not know; use the release that saved it",
        name, STATE_VERSION);
}

/* Notes where each section lies; the sections must fill the blob exactly. */
static int find_sections(piece *body, uint32_t count, piece *found, pst_error *err)
{
    const uint8_t *const start = body->at;
    const int64_t offset = body->offset;
    for (uint32_t i = 0; i < count; i++) {
        body->offset = offset + (body->at - start);
        if (bytes_of(body) < STATE_SECTION_HEAD_BYTES)
            return REFUSE(err, body, "section %u of %u is missing", i, count);
        const uint8_t *tag = body->at;
        body->at += 4;
        const size_t size = (size_t)get_number(body, 4);
        if (size > bytes_of(body))
            return REFUSE(err, body, "section %u has %zu bytes, but only %zu are there", i, size,
                          bytes_of(body));
        const int section = section_of(tag);
        if (section < 0 && unknown_section(body, tag, err) < 0)
            return PST_ESTATE;
        if (section >= 0 && found[section].found)
            return REFUSE(err, body, "section %s comes twice", STATE_TAGS[section]);
        if (section >= 0)
            found[section] =
                (piece){body->at, body->at + size, offset + (body->at - start), true, false};
        body->at += size;
    }
    if (body->at != body->end)
        return REFUSE(err, body, "%zu bytes are left over after its %u sections", bytes_of(body),
                      count);
    return 0;
}

/* Magic, version, checksum. */
static int check_frame(const uint8_t *bytes, size_t size, piece *body, uint32_t *count,
                       pst_error *err)
{
    if (size < STATE_HEAD_BYTES + STATE_CRC_BYTES ||
        memcmp(bytes, STATE_MAGIC, sizeof STATE_MAGIC) != 0)
        return psti_fail(err, PST_ESTATE, "state", NULL,
                         "these %zu bytes are not a saved state, or only the beginning of one",
                         size);
    *body = (piece){bytes + sizeof STATE_MAGIC, bytes + size - STATE_CRC_BYTES, STATE_HEAD_BYTES,
                    true, false};
    const uint32_t version = (uint32_t)get_number(body, 4);
    *count = (uint32_t)get_number(body, 4);
    if (version != STATE_VERSION)
        return psti_fail(err, PST_ESTATE, "state", NULL,
                         "it has format version %u, this release reads version %d; use the release "
                         "that saved it",
                         version, STATE_VERSION);
    piece tail = {body->end, body->end + STATE_CRC_BYTES, 0, true, false};
    const uint32_t stored = (uint32_t)get_number(&tail, STATE_CRC_BYTES);
    const uint32_t real = pst_crc32c(0, bytes, size - STATE_CRC_BYTES);
    if (stored != real)
        return psti_fail(
            err, PST_ESTATE, "state", NULL,
            "it is damaged or cut short: its checksum is %08x, its %zu bytes give %08x; use an "
            "earlier one",
            stored, size, real);
    return 0;
}

int psti_state_decode(const uint8_t *bytes, size_t size, psti_state *out, pst_error *err)
{
    /* BASE stands before what is checked against it. */
    static int (*const readers[STATE_SECTIONS])(piece *, psti_state *, pst_error *) = {
        read_identity, read_base, read_used, read_skipped, read_given, read_text};
    piece body = {0}, found[STATE_SECTIONS] = {{0}};
    uint32_t count = 0;
    memset(out, 0, sizeof *out);
    int rc = check_frame(bytes, size, &body, &count, err);
    if (rc == 0)
        rc = find_sections(&body, count, found, err);
    for (int i = 0; rc == 0 && i < STATE_SECTIONS; i++) {
        if (found[i].found)
            rc = readers[i](&found[i], out, err);
        else if (i == STATE_IDENTITY || i == STATE_BASE)
            rc = psti_fail(err, PST_ESTATE, "state", NULL, "its section %s is missing",
                           STATE_TAGS[i]);
    }
    if (rc < 0)
        psti_state_fini(out);
    return rc;
}
