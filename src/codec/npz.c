/* SPDX-License-Identifier: Apache-2.0
 * NPZ: NPY arrays in a zip archive, stored or deflated, as numpy.savez and savez_compressed write
 * them. Called by decoder.c on a worker's thread.
 *
 * The directory at the archive's end is walked by hand and believed only within the bytes that are
 * there. An archive holds several arrays; which one is meant follows from the kind that is wanted
 * and the names that people give them. Sizes are told by the directory and by the array's own
 * header, must agree, and are held against the limits before anything is inflated. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec/codec_priv.h"

enum {
    END_BYTES = 22,
    END_64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MOST = 65535,
    ENTRIES_MOST = 1000,
    STORED = 0,
    DEFLATED = 8
};

/* One array in the archive. */
typedef struct member {
    const char *name; /* in the directory, without .npy; not terminated */
    size_t name_len;
    int method;
    bool secret; /* encrypted */
    uint32_t crc;
    uint64_t packed, bytes, local; /* local: where its own header stands */
} member;

typedef struct npz_state {
    member chosen;
    const uint8_t *coded; /* chosen.packed bytes */
    psti_npy npy;
    psti_grid grid;
    uint8_t *unpacked; /* while run goes on */
} npz_state;

static npz_state *state_of(const psti_decoder *dec)
{
    return dec->state[PSTI_FORMAT_NPZ];
}

static uint64_t read_le(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << 8 * i;
    return value;
}

static int fail_damaged(const psti_decoder *dec, uint64_t at, const char *what, pst_error *err)
{
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL,
                        (int64_t)(at < dec->size ? at : dec->size), "NPZ: %s", what);
}

/* ---- the directory ---- */

typedef struct directory {
    uint64_t at, bytes, entries;
} directory;

static int find_end(const psti_decoder *dec, size_t *out, pst_error *err)
{
    if (dec->size >= END_BYTES) {
        const size_t last = dec->size - END_BYTES;
        const size_t first = last > COMMENT_MOST ? last - COMMENT_MOST : 0;
        for (size_t at = last + 1; at-- > first;)
            if (memcmp(dec->bytes + at, "PK\x05\x06", 4) == 0 &&
                read_le(dec->bytes + at + 20, 2) == last - at) {
                *out = at;
                return 0;
            }
    }
    return fail_damaged(dec, dec->size, "the archive's directory is missing: the file is cut off",
                        err);
}

/* Archives beyond 4 GiB say so in a record of their own, in front of the end. */
static int find_end_64(const psti_decoder *dec, size_t end, directory *out, pst_error *err)
{
    if (end < LOCATOR_BYTES || memcmp(dec->bytes + end - LOCATOR_BYTES, "PK\x06\x07", 4) != 0)
        return 0;
    const uint64_t at = read_le(dec->bytes + end - LOCATOR_BYTES + 8, 8);
    if (at > end || end - at < LOCATOR_BYTES + END_64_BYTES ||
        memcmp(dec->bytes + at, "PK\x06\x06", 4) != 0)
        return fail_damaged(dec, end - LOCATOR_BYTES, "the archive's directory is damaged", err);
    out->entries = read_le(dec->bytes + at + 32, 8);
    out->bytes = read_le(dec->bytes + at + 40, 8);
    out->at = read_le(dec->bytes + at + 48, 8);
    return 0;
}

static int find_directory(const psti_decoder *dec, directory *out, pst_error *err)
{
    size_t end = 0;
    int rc = find_end(dec, &end, err);
    if (rc < 0)
        return rc;
    *out = (directory){.entries = read_le(dec->bytes + end + 10, 2),
                       .bytes = read_le(dec->bytes + end + 12, 4),
                       .at = read_le(dec->bytes + end + 16, 4)};
    rc = find_end_64(dec, end, out, err);
    if (rc < 0)
        return rc;
    if (out->at > end || out->bytes > end - out->at)
        return fail_damaged(dec, end, "the archive's directory is not inside the file", err);
    if (out->entries > ENTRIES_MOST)
        return psti_fail_at(err, PST_ELIMIT, "decode", NULL, (int64_t)end,
                            "NPZ: the archive has %llu files, the limit is %d",
                            (unsigned long long)out->entries, ENTRIES_MOST);
    return 0;
}

/* The extra field of an entry that has sizes beyond 4 GiB; they follow each other in this order. */
static bool read_large(const uint8_t *extra, size_t size, member *m)
{
    uint64_t *const values[3] = {&m->bytes, &m->packed, &m->local};
    while (size >= 4) {
        const size_t id = read_le(extra, 2), bytes = read_le(extra + 2, 2);
        if (bytes > size - 4)
            return false;
        size_t at = 4;
        for (int i = 0; id == 1 && i < 3; i++) {
            if (*values[i] != UINT32_MAX)
                continue;
            if (at + 8 > bytes + 4)
                return false;
            *values[i] = read_le(extra + at, 8);
            at += 8;
        }
        if (id == 1)
            return true;
        extra += bytes + 4;
        size -= bytes + 4;
    }
    return m->bytes != UINT32_MAX && m->packed != UINT32_MAX && m->local != UINT32_MAX;
}

/* Reads the entry at *at and goes past it; false where it is damaged. */
static bool read_entry(const uint8_t *bytes, size_t *at, size_t end, member *out)
{
    const uint8_t *p = bytes + *at;
    if (end - *at < ENTRY_BYTES || memcmp(p, "PK\x01\x02", 4) != 0)
        return false;
    const size_t name = read_le(p + 28, 2), extra = read_le(p + 30, 2),
                 comment = read_le(p + 32, 2);
    if (end - *at - ENTRY_BYTES < name + extra + comment)
        return false;
    *out = (member){.name = (const char *)p + ENTRY_BYTES,
                    .name_len = name,
                    .method = (int)read_le(p + 10, 2),
                    .secret = p[8] & 1,
                    .crc = (uint32_t)read_le(p + 16, 4),
                    .packed = read_le(p + 20, 4),
                    .bytes = read_le(p + 24, 4),
                    .local = read_le(p + 42, 4)};
    *at += ENTRY_BYTES + name + extra + comment;
    return read_large(p + ENTRY_BYTES + name, extra, out);
}

/* ---- which array ---- */

/* What images and masks are called, the surest name first. The last ones are numpy's own, of arrays
 * that were given no names. */
static const char *const image_names[] = {"image", "data", "x", "arr_0", NULL};
static const char *const mask_names[] = {"mask", "label", "seg", "y", "arr_1", NULL};

static int rank_of(const member *m, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strlen(names[i]) == m->name_len && memcmp(names[i], m->name, m->name_len) == 0)
            return i;
    return -1;
}

/* What was seen while the directory was walked. */
typedef struct choice {
    bool mask;
    int arrays;
    int rank; /* of best, -1: none has a name that is wanted */
    member best, only;
    char names[128]; /* for errors */
} choice;

static void note_name(choice *c, const member *m)
{
    const size_t used = strlen(c->names);
    const int len = m->name_len > 40 ? 40 : (int)m->name_len;
    char name[41];
    for (int i = 0; i < len; i++)
        name[i] = m->name[i] < 32 || m->name[i] == 127 ? '?' : m->name[i];
    if (used + (size_t)len + 3 < sizeof c->names)
        snprintf(c->names + used, sizeof c->names - used, "%s%.*s", used ? ", " : "", len, name);
}

static void consider(choice *c, member m)
{
    if (m.name_len < 4 || memcmp(m.name + m.name_len - 4, ".npy", 4) != 0)
        return;
    m.name_len -= 4;
    c->arrays++;
    c->only = m;
    note_name(c, &m);
    const int rank = rank_of(&m, c->mask ? mask_names : image_names);
    if (rank >= 0 && (c->rank < 0 || rank <= c->rank)) {
        c->rank = rank;
        c->best = m;
    }
}

/* An array that is alone may have any name, but for those of the other kind. */
static int settle(const choice *c, member *out, pst_error *err)
{
    if (c->rank >= 0) {
        *out = c->best;
        return 0;
    }
    const int other = rank_of(&c->only, c->mask ? image_names : mask_names);
    const bool nameless = c->mask && other >= 0 && !image_names[other + 1];
    if (c->arrays == 1 && (other < 0 || nameless)) {
        *out = c->only;
        return 0;
    }
    return psti_fail(err, PST_EFIELD, "decode", NULL,
                     "NPZ: the archive has no array called %s; it has: %s",
                     c->mask ? "mask, label, seg or y" : "image, data or x",
                     c->arrays ? c->names : "no arrays at all");
}

static int choose_member(const psti_decoder *dec, member *out, pst_error *err)
{
    directory dir;
    int rc = find_directory(dec, &dir, err);
    if (rc < 0)
        return rc;
    choice c = {.mask = dec->opts.kind == PST_MASK, .rank = -1};
    size_t at = dir.at, end = dir.at + dir.bytes;
    for (uint64_t i = 0; i < dir.entries; i++) {
        member m;
        const size_t here = at;
        if (!read_entry(dec->bytes, &at, end, &m))
            return fail_damaged(dec, here, "an entry of the archive's directory is damaged", err);
        consider(&c, m);
    }
    return settle(&c, out, err);
}

/* ---- begin ---- */

/* Finds the member's bytes, behind a header that repeats what the directory says. */
static int enter_member(const psti_decoder *dec, npz_state *n, pst_error *err)
{
    const member *m = &n->chosen;
    if (m->secret || (m->method != STORED && m->method != DEFLATED))
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "NPZ: array %.*s is %s, which is not read: save it with numpy.savez or "
                         "savez_compressed",
                         (int)m->name_len, m->name, m->secret ? "encrypted" : "packed otherwise");
    if (m->local > dec->size || dec->size - m->local < LOCAL_BYTES ||
        memcmp(dec->bytes + m->local, "PK\x03\x04", 4) != 0)
        return fail_damaged(dec, m->local, "an array's header is missing: the file is damaged",
                            err);
    const uint8_t *local = dec->bytes + m->local;
    const size_t skip = LOCAL_BYTES + read_le(local + 26, 2) + read_le(local + 28, 2);
    const size_t left = dec->size - (size_t)m->local;
    if (skip > left || m->packed > left - skip || (m->method == STORED && m->packed != m->bytes))
        return fail_damaged(dec, m->local, "an array is longer than the file: it is damaged", err);
    n->coded = local + skip;
    return 0;
}

static psti_packed packed_of(const npz_state *n)
{
    return (psti_packed){.name = "NPZ",
                         .bytes = n->coded,
                         .size = (size_t)n->chosen.packed,
                         .whole = (size_t)n->chosen.bytes};
}

static int check_sizes(const psti_decoder *dec, const npz_state *n, pst_error *err)
{
    const member *m = &n->chosen;
    if (n->npy.whole != m->bytes)
        return psti_fail(err, PST_ECORRUPT, "decode", NULL,
                         "NPZ: array %.*s has %llu bytes by the archive's directory and %zu by its "
                         "own header: the file is damaged",
                         (int)m->name_len, m->name, (unsigned long long)m->bytes, n->npy.whole);
    if (m->method == DEFLATED && m->bytes > dec->opts.limits.volume_bytes)
        return psti_fail(
            err, PST_ELIMIT, "decode", NULL, "NPZ: an array of %llu bytes, the limit is %llu",
            (unsigned long long)m->bytes, (unsigned long long)dec->opts.limits.volume_bytes);
    if (m->method == DEFLATED && !psti_packed_may_hold((size_t)m->packed, m->bytes))
        return psti_fail(err, PST_ECORRUPT, "decode", NULL,
                         "NPZ: %llu packed bytes cannot hold an array of %llu: the file is damaged",
                         (unsigned long long)m->packed, (unsigned long long)m->bytes);
    return 0;
}

static int describe_array(const npz_state *n, psti_npy *out, pst_error *err)
{
    if (n->chosen.method == STORED)
        return psti_npy_describe(n->coded, (size_t)n->chosen.bytes, out, err);
    uint8_t head[PSTI_NPY_HEAD];
    size_t got;
    const psti_packed in = packed_of(n);
    const int rc = psti_packed_head(&in, head, sizeof head, &got, err);
    return rc < 0 ? rc : psti_npy_describe(head, got, out, err);
}

static int npz_begin(psti_decoder *dec, pst_error *err)
{
    npz_state *n = state_of(dec);
    *n = (npz_state){0};
    int rc = choose_member(dec, &n->chosen, err);
    if (rc == 0)
        rc = enter_member(dec, n, err);
    if (rc == 0)
        rc = describe_array(n, &n->npy, err);
    if (rc == 0)
        rc = psti_npy_grid(&n->npy, &n->grid, err);
    if (rc == 0)
        rc = psti_grid_begin(dec, &n->grid, err);
    return rc < 0 ? rc : check_sizes(dec, n, err);
}

/* ---- need, run, end ---- */

static void npz_measure(const psti_decoder *dec, psti_decode_need *need)
{
    const npz_state *n = state_of(dec);
    if (n->chosen.method == STORED)
        need->in_place = psti_grid_in_place(dec, &n->grid, n->coded + n->npy.data);
    else
        need->library_bytes = (size_t)n->chosen.bytes + PSTI_PACKED_MEMORY;
}

static void npz_end(psti_decoder *dec)
{
    npz_state *n = state_of(dec);
    psti_free(n->unpacked);
    n->unpacked = NULL;
}

static int unpack(npz_state *n, pst_error *err)
{
    const psti_packed in = packed_of(n);
    n->unpacked = psti_malloc(PSTI_MEM_CODEC, in.whole);
    if (!n->unpacked)
        return psti_fail(err, -ENOMEM, "decode", NULL, "out of memory for a volume of %zu bytes",
                         in.whole);
    return psti_packed_all(&in, n->unpacked, err);
}

static int npz_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                   uint8_t *dst, pst_error *err)
{
    (void)known_damage;
    npz_state *n = state_of(dec);
    int rc = n->chosen.method == DEFLATED ? unpack(n, err) : 0;
    const uint8_t *array = n->unpacked ? n->unpacked : n->coded;
    if (rc == 0 && psti_crc32(array, (size_t)n->chosen.bytes) != n->chosen.crc)
        rc = psti_fail(err, PST_ECORRUPT, "decode", NULL,
                       "NPZ: array %.*s does not have the checksum that the archive says",
                       (int)n->chosen.name_len, n->chosen.name);
    if (rc == 0 && !need->in_place)
        rc = psti_grid_write(dec, &n->grid, array + n->npy.data, &need->made, dst, err);
    npz_end(dec);
    return rc;
}

const psti_codec psti_codec_npz = {
    .format = PSTI_FORMAT_NPZ,
    .axes = PSTI_AXES_VOLUME,
    .name = "npz",
    .state_bytes = sizeof(npz_state),
    .begin = npz_begin,
    .measure = npz_measure,
    .run = npz_run,
    .end = npz_end,
};
