/* SPDX-License-Identifier: Apache-2.0
 * NPY arrays: the header is parsed by hand, the data is left where it lies. Versions 1, 2 and 3, no
 * objects. Array fields are handed on as they lie, hence little-endian and in C order only; volumes
 * are read in every order (volume.c). Pure functions, any thread. The header is text made by
 * strangers: every step is bounded by it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "codec/codec_priv.h"

enum { MAGIC_BYTES = 8, HEADER_LIMIT = PSTI_NPY_HEAD - 12, ALIGNMENT = 64 };

static const struct {
    char letter;
    uint8_t bytes;
    uint8_t dtype; /* 0: fields have no such type, volumes are converted from it */
    psti_number number;
} types[] = {
    {'u', 1, PST_U8, PSTI_N_U8},   {'i', 1, PST_I8, PSTI_N_I8},   {'u', 2, PST_U16, PSTI_N_U16},
    {'i', 2, PST_I16, PSTI_N_I16}, {'i', 4, PST_I32, PSTI_N_I32}, {'i', 8, PST_I64, PSTI_N_I64},
    {'f', 2, PST_F16, PSTI_N_F16}, {'f', 4, PST_F32, PSTI_N_F32}, {'f', 8, PST_F64, PSTI_N_F64},
    {'b', 1, PST_BOOL, PSTI_N_U8}, {'u', 4, 0, PSTI_N_U32},       {'u', 8, 0, PSTI_N_U64},
};
enum { TYPES = sizeof types / sizeof *types };

/* ---- reading ---- */

typedef struct parser {
    const char *at, *end;
    const uint8_t *start; /* of the file, for offsets */
    pst_error *err;
} parser;

/* An array as its header describes it. */
typedef struct array {
    psti_npy npy;
    int dtype;  /* of fields; 0: they have none such */
    bool large; /* said to be big-endian, whatever that means for a byte */
} array;

static int complain(const parser *p, int code, const char *text)
{
    const int64_t offset = (const uint8_t *)p->at - p->start;
    return psti_fail_at(p->err, code, "decode", NULL, offset, "NPY header: %s", text);
}

static void skip_space(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

/* Takes one character, after spaces. */
static bool take(parser *p, char c)
{
    skip_space(p);
    if (p->at >= p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static bool take_word(parser *p, const char *word)
{
    const size_t len = strlen(word);
    skip_space(p);
    if ((size_t)(p->end - p->at) < len || memcmp(p->at, word, len) != 0)
        return false;
    p->at += len;
    return true;
}

/* A quoted string without escapes; *len is its length, NULL if there is none. */
static const char *take_string(parser *p, size_t *len)
{
    skip_space(p);
    if (p->at >= p->end || (*p->at != '\'' && *p->at != '"'))
        return NULL;
    const char *text = p->at + 1;
    const char *close = memchr(text, *p->at, (size_t)(p->end - text));
    if (!close || memchr(text, '\\', (size_t)(close - text)))
        return NULL;
    *len = (size_t)(close - text);
    p->at = close + 1;
    return text;
}

static int refuse_type(const parser *p)
{
    return complain(p, PST_EFORMAT,
                    "this element type is not read: use u1 i1 u2 i2 i4 i8 f2 f4 f8 or b1");
}

static int parse_type(parser *p, array *out)
{
    size_t len;
    const char *text = take_string(p, &len);
    if (!text)
        return complain(p, PST_EFORMAT,
                        "record types are not read: store each column as an array of its own");
    if (len >= 2 && text[1] == 'O')
        return complain(p, PST_EFORMAT,
                        "the array holds Python objects, which are never loaded: store numbers");
    out->large = len >= 2 && text[0] == '>';
    if (len == 3 && memchr("<|=>", text[0], 4))
        for (size_t i = 0; i < TYPES; i++)
            if (text[1] == types[i].letter && text[2] == '0' + types[i].bytes) {
                out->dtype = types[i].dtype;
                out->npy.type = types[i].number;
                out->npy.swapped = out->large && types[i].bytes > 1;
                return 0;
            }
    return refuse_type(p);
}

static int parse_extent(parser *p, int64_t *out)
{
    int64_t value = 0;
    const char *from = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *p->at - '0', &value))
            return complain(p, PST_ELIMIT, "an extent is too large");
    if (p->at == from)
        return complain(p, PST_ECORRUPT, "a shape is a tuple of numbers that are not negative");
    if (p->at < p->end && *p->at == 'L')
        p->at++;
    *out = value;
    return 0;
}

static int parse_shape(parser *p, psti_npy *out)
{
    if (!take(p, '('))
        return complain(p, PST_ECORRUPT, "shape is not a tuple");
    while (!take(p, ')')) {
        if (out->rank == PST_MAX_RANK)
            return complain(p, PST_ELIMIT, "the array has more than 8 dimensions");
        skip_space(p);
        const int rc = parse_extent(p, &out->shape[out->rank]);
        if (rc < 0)
            return rc;
        out->rank++;
        if (!take(p, ',')) {
            if (!take(p, ')'))
                return complain(p, PST_ECORRUPT, "the shape does not end");
            /* "(3)" is a number in brackets, no tuple. */
            return out->rank == 1 ? complain(p, PST_ECORRUPT, "shape is not a tuple") : 0;
        }
    }
    return 0;
}

enum { HAS_TYPE = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

static int parse_entry(parser *p, unsigned *seen, array *out)
{
    size_t len;
    const char *key = take_string(p, &len);
    if (!key || !take(p, ':'))
        return complain(p, PST_ECORRUPT,
                        "it is not a dictionary of descr, fortran_order and shape");
    unsigned which = 0;
    int rc = 0;
    if (len == 5 && memcmp(key, "descr", 5) == 0) {
        which = HAS_TYPE;
        rc = parse_type(p, out);
    } else if (len == 13 && memcmp(key, "fortran_order", 13) == 0) {
        which = HAS_ORDER;
        out->npy.fortran = take_word(p, "True");
        if (!out->npy.fortran && !take_word(p, "False"))
            rc = complain(p, PST_ECORRUPT, "fortran_order is neither True nor False");
    } else if (len == 5 && memcmp(key, "shape", 5) == 0 && !(*seen & HAS_SHAPE)) {
        which = HAS_SHAPE;
        rc = parse_shape(p, &out->npy);
    }
    if (rc == 0 && (which == 0 || (*seen & which)))
        return complain(p, PST_ECORRUPT, "a key is unknown or stands there twice");
    *seen |= which;
    return rc;
}

static int parse_dictionary(parser *p, array *out)
{
    unsigned seen = 0;
    if (!take(p, '{'))
        return complain(p, PST_ECORRUPT, "it does not start with a brace");
    while (!take(p, '}')) {
        const int rc = parse_entry(p, &seen, out);
        if (rc < 0)
            return rc;
        if (!take(p, ',')) {
            if (!take(p, '}'))
                return complain(p, PST_ECORRUPT, "the dictionary does not end");
            break;
        }
    }
    skip_space(p);
    if (p->at != p->end || seen != HAS_ALL)
        return complain(p, PST_ECORRUPT, "a key is missing, or something follows the dictionary");
    return 0;
}

/* Finds the header text; returns where the data starts, 0 after an error. */
static size_t find_header(const uint8_t *bytes, size_t size, parser *p)
{
    p->at = (const char *)bytes;
    if (size < MAGIC_BYTES + 2 || memcmp(bytes, "\x93NUMPY", 6) != 0) {
        complain(p, size < MAGIC_BYTES + 2 ? PST_ECORRUPT : PST_EFORMAT,
                 "this is no NPY file, or it is cut off");
        return 0;
    }
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
        complain(p, PST_EFORMAT, "this version of the format is not known");
        return 0;
    }
    const size_t field = bytes[6] == 1 ? 2 : 4;
    if (size < MAGIC_BYTES + field) {
        complain(p, PST_ECORRUPT, "the file is cut off");
        return 0;
    }
    size_t length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (field == 4)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    const size_t start = MAGIC_BYTES + field;
    if (length > HEADER_LIMIT || length > size - start) {
        const bool large = length > HEADER_LIMIT;
        psti_fail_at(p->err, large ? PST_ELIMIT : PST_ECORRUPT, "decode", NULL, MAGIC_BYTES,
                     "NPY header: it claims %zu bytes, %s %zu", length,
                     large ? "the limit is" : "the file is cut off after",
                     large ? (size_t)HEADER_LIMIT : size - start);
        return 0;
    }
    p->at = (const char *)bytes + start;
    p->end = p->at + length;
    return start + length;
}

/* Bytes of header and data; the header ends where the data starts. */
static int count_bytes(psti_npy *npy, pst_error *err)
{
    size_t want = psti_number_bytes(npy->type);
    bool fits = true, empty = false;
    for (int i = 0; i < npy->rank; i++) {
        empty |= npy->shape[i] == 0;
        fits = fits && psti_mul(want, (size_t)npy->shape[i], &want);
    }
    if (empty)
        want = 0;
    else if (!fits || want > INT64_MAX - PSTI_NPY_HEAD)
        return psti_fail(err, PST_ELIMIT, "decode", NULL,
                         "NPY header: the extents multiply to more than 2^63 bytes");
    npy->whole = npy->data + want;
    return 0;
}

int psti_npy_check_size(const psti_npy *npy, size_t size, pst_error *err)
{
    if (npy->whole == size)
        return 0;
    return psti_fail(
        err, PST_ECORRUPT, "decode", NULL,
        "NPY: the header claims %zu bytes of data, the file has %zu: it is cut off or damaged",
        npy->whole - npy->data, size - npy->data);
}

/* Everything but what fields cannot be. */
static int describe(const uint8_t *bytes, size_t size, parser *p, array *out)
{
    *out = (array){0};
    out->npy.data = find_header(bytes, size, p);
    int rc = out->npy.data > 0 ? parse_dictionary(p, out) : p->err->code;
    return rc < 0 ? rc : count_bytes(&out->npy, p->err);
}

int psti_npy_describe(const uint8_t *bytes, size_t size, psti_npy *out, pst_error *err)
{
    pst_error local;
    psti_error_clear(&local);
    parser p = {.start = bytes, .err = &local};
    array found;
    const int rc = describe(bytes, size, &p, &found);
    if (rc < 0 && err)
        *err = local;
    *out = found.npy;
    return rc;
}

/* Fields are handed on as they lie. */
static int check_plain(const parser *p, const array *found)
{
    if (found->large)
        return complain(p, PST_EFORMAT, "the array is big-endian: store it little-endian");
    if (found->dtype == 0)
        return refuse_type(p);
    if (found->npy.fortran && found->npy.rank > 1)
        return complain(p, PST_EFORMAT,
                        "the array is in Fortran order: store numpy.ascontiguousarray of it");
    return 0;
}

int psti_npy_parse(const uint8_t *bytes, size_t size, psti_field *out, pst_error *err)
{
    pst_error local;
    psti_error_clear(&local);
    parser p = {.start = bytes, .err = &local};
    array found;
    int rc = describe(bytes, size, &p, &found);
    if (rc == 0)
        rc = check_plain(&p, &found);
    if (rc == 0)
        rc = psti_npy_check_size(&found.npy, size, &local);
    if (rc < 0) {
        if (err)
            *err = local;
        return rc;
    }
    *out = (psti_field){.kind = PST_ARRAY,
                        .dtype = (uint8_t)found.dtype,
                        .rank = (uint8_t)found.npy.rank,
                        .data = (uint8_t *)bytes + found.npy.data,
                        .bytes = found.npy.whole - found.npy.data,
                        .first_damaged_row = PSTI_ROWS_SOUND};
    memcpy(out->shape, found.npy.shape, sizeof out->shape);
    return 0;
}

/* ---- writing ---- */

/* "<f4" and so on. There is no name for bf16: two opaque bytes, as others write it. */
static bool type_text(int dtype, char out[4])
{
    if (dtype == PST_BF16) {
        memcpy(out, "|V2", 4);
        return true;
    }
    for (size_t i = 0; i < TYPES; i++)
        if (dtype != 0 && types[i].dtype == dtype) {
            out[0] = types[i].bytes == 1 ? '|' : '<';
            out[1] = types[i].letter;
            out[2] = (char)('0' + types[i].bytes);
            out[3] = 0;
            return true;
        }
    return false;
}

size_t psti_npy_header(int dtype, int rank, const int64_t *shape, uint8_t *buf, size_t cap)
{
    char type[4], extents[PST_MAX_RANK * 22 + 1] = "", text[320];
    if (rank < 0 || rank > PST_MAX_RANK || !type_text(dtype, type))
        return 0;
    size_t used = 0;
    for (int i = 0; i < rank; i++)
        used += (size_t)snprintf(extents + used, sizeof extents - used, "%" PRId64 "%s", shape[i],
                                 rank == 1 ? "," : (i + 1 < rank ? ", " : ""));
    const int len =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                 type, extents);
    const size_t total = ((size_t)len + MAGIC_BYTES + 3 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (total > cap)
        return 0;
    const size_t length = total - MAGIC_BYTES - 2;
    memcpy(buf, "\x93NUMPY\x01", 8);
    buf[8] = (uint8_t)length;
    buf[9] = (uint8_t)(length >> 8);
    memcpy(buf + 10, text, (size_t)len);
    memset(buf + 10 + len, ' ', length - (size_t)len - 1);
    buf[total - 1] = '\n';
    return total;
}
