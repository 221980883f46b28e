/* SPDX-License-Identifier: Apache-2.0
 * A pull parser for JSON files: strict, but for a byte order mark and the words NaN and Infinity,
 * which Python's own writer makes. Nothing is allocated and nothing recurses; what cannot be is
 * refused where it stands. Called by the thread that opens a dataset. */
#include "source/json_scan.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "source/names.h"
#include "source/values.h"

enum { NUMBER_MAX = 63, EXACT_DIGITS = 15 };
enum { VALUE, FIRST_VALUE, KEY, FIRST_KEY, AFTER, DONE };

void psti_json_begin(psti_json *j, int fd, const char *path)
{
    memset(j, 0, offsetof(psti_json, bytes));
    j->fd = fd;
    j->path = path;
    j->line = 1;
    j->keep = true;
    j->block = sizeof j->bytes;
    j->expect = VALUE;
    j->text[0] = 0;
}

int psti_json_fail(const psti_json *j, int code, pst_error *err, const char *fmt, ...)
{
    char what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return psti_fail_at(err, code, "list", j->path, (int64_t)j->begin, "line %llu: %s",
                        (unsigned long long)j->line, what);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static bool refill(psti_json *j)
{
    if (j->ended)
        return false;
    j->base += j->have;
    j->at = j->have = 0;
    ssize_t n;
    do
        n = read(j->fd, j->bytes, j->block);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        j->have = (size_t)n;
        return true;
    }
    j->ended = true;
    j->trouble = n < 0 ? -errno : 0;
    return false;
}

/* The next byte without taking it; -1 at the end. */
static inline int peek(psti_json *j)
{
    return j->at < j->have || refill(j) ? j->bytes[j->at] : -1;
}

static inline uint64_t place(const psti_json *j)
{
    return j->base + j->at;
}

/* Something other than what may stand here. */
static int unexpected(psti_json *j, const char *wanted, pst_error *err)
{
    j->begin = place(j);
    if (j->trouble)
        return psti_json_fail(j, j->trouble, err, "the file cannot be read: %s",
                              pst_strerror(j->trouble));
    if (peek(j) < 0)
        return psti_json_fail(j, PST_EDATASET, err,
                              "the JSON text ends where %s should be; the file is cut off", wanted);
    const char c = (char)peek(j);
    char shown[8];
    return psti_json_fail(j, PST_EDATASET, err, "not JSON: '%s' stands where %s should be",
                          psti_escape(shown, sizeof shown, &c, 1), wanted);
}

static int skip_space(psti_json *j)
{
    int c;
    for (; (c = peek(j)) == ' ' || c == '\n' || c == '\r' || c == '\t'; j->at++)
        j->line += c == '\n';
    return c;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static int put_byte(psti_json *j, int c, pst_error *err)
{
    if (!j->keep)
        return 0;
    if (j->len == PSTI_JSON_TEXT)
        return psti_json_fail(j, PST_ELIMIT, err, "a text is longer than %d bytes", PSTI_JSON_TEXT);
    j->text[j->len++] = (char)c;
    return 0;
}

static int put_code(psti_json *j, unsigned code, pst_error *err)
{
    const int tail = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned lead[] = {0, 0xC0, 0xE0, 0xF0};
    int rc = put_byte(j, (int)(lead[tail] | code >> (6 * tail)), err);
    for (int i = tail - 1; i >= 0 && !rc; i--)
        rc = put_byte(j, (int)(0x80 | (code >> (6 * i) & 0x3F)), err);
    return rc;
}

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hexadecimal digits. */
static int take_hex(psti_json *j, unsigned *out, pst_error *err)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(peek(j));
        if (digit < 0)
            return unexpected(j, "a hexadecimal digit", err);
        *out = *out << 4 | (unsigned)digit;
        j->at++;
    }
    return 0;
}

/* Behind `\u`; two of them make one character beyond the first 65,536. */
static int take_unicode(psti_json *j, pst_error *err)
{
    unsigned code, low;
    int rc = take_hex(j, &code, err);
    if (rc)
        return rc;
    if (code == 0)
        return psti_json_fail(j, PST_EDATASET, err, "a text holds the character 0");
    if (code < 0xD800 || code > 0xDFFF)
        return put_code(j, code, err);
    if (code < 0xDC00 && peek(j) == '\\') {
        j->at++;
        if (peek(j) != 'u')
            return unexpected(j, "the other half of a character", err);
        j->at++;
        rc = take_hex(j, &low, err);
        if (rc)
            return rc;
        if (low >= 0xDC00 && low <= 0xDFFF)
            return put_code(j, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), err);
    }
    return psti_json_fail(j, PST_EDATASET, err, "a text holds half a character (\\u%04x)", code);
}

static int take_escape(psti_json *j, pst_error *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int c = peek(j);
    if (c == 'u') {
        j->at++;
        return take_unicode(j, err);
    }
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (!found)
        return unexpected(j, "one of \" \\ / b f n r t u", err);
    j->at++;
    return put_byte(j, to[found - from], err);
}

/* Bytes that need no second look, as many as there are in the block. */
static int take_plain(psti_json *j, pst_error *err)
{
    const uint8_t *p = j->bytes + j->at, *const end = j->bytes + j->have;
    while (p < end && *p != '"' && *p != '\\' && *p >= 0x20)
        p++;
    const size_t n = (size_t)(p - (j->bytes + j->at));
    if (j->keep) {
        if (n > PSTI_JSON_TEXT - j->len)
            return psti_json_fail(j, PST_ELIMIT, err, "a text is longer than %d bytes",
                                  PSTI_JSON_TEXT);
        memcpy(j->text + j->len, j->bytes + j->at, n);
        j->len += n;
    }
    j->at += n;
    return 0;
}

/* A text whose opening quote stands next. */
static int take_text(psti_json *j, pst_error *err)
{
    int rc = 0;
    j->begin = place(j);
    j->at++;
    j->len = 0;
    while (!rc) {
        const int c = peek(j);
        if (c == '"')
            break;
        if (c == '\\') {
            j->at++;
            rc = take_escape(j, err);
        } else if (c < 0x20) {
            return unexpected(j, "the end of a text", err);
        } else {
            rc = take_plain(j, err);
        }
    }
    if (rc)
        return rc;
    j->at++;
    j->text[j->len] = 0;
    if (j->keep && !psti_utf8_ok(j->text, j->len))
        return psti_json_fail(j, PST_EDATASET, err, "a text is not UTF-8");
    return 0;
}

/* ---- numbers and words ----------------------------------------------------------------------- */

static int take_word(psti_json *j, const char *word, pst_error *err)
{
    for (const char *p = word; *p; p++, j->at++)
        if (peek(j) != *p)
            return unexpected(j, word, err);
    return 0;
}

/* Reads digits into the buffer behind *n; false when there are none. Too many are left for the
 * caller to see by *n. */
static bool take_digits(psti_json *j, char *buf, int *n)
{
    bool any = false;
    for (int c; *n < NUMBER_MAX && (c = peek(j)) >= '0' && c <= '9'; j->at++, any = true)
        buf[(*n)++] = (char)c;
    return any;
}

/* Few digits divided by a power of ten is what the text means: both are exact doubles. */
static bool exact_value(const char *buf, int n, double *out)
{
    static const double tens[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    int64_t digits = 0;
    int count = 0, behind = -1;
    for (int i = buf[0] == '-'; i < n; i++) {
        if (buf[i] == '.') {
            behind = count;
            continue;
        }
        digits = digits * 10 + (buf[i] - '0');
        if (++count > EXACT_DIGITS)
            return false;
    }
    const double value = (double)digits / tens[behind < 0 ? 0 : count - behind];
    *out = buf[0] == '-' ? -value : value;
    return true;
}

static int take_exponent(psti_json *j, char *buf, int *n, pst_error *err)
{
    buf[(*n)++] = 'e';
    j->at++;
    if (*n < NUMBER_MAX && (peek(j) == '+' || peek(j) == '-'))
        buf[(*n)++] = (char)j->bytes[j->at++];
    return take_digits(j, buf, n) || *n == NUMBER_MAX ? 0 : unexpected(j, "a digit", err);
}

/* minus: was there, and was taken. */
static int take_number(psti_json *j, bool minus, pst_error *err)
{
    char buf[NUMBER_MAX + 1];
    int n = 0, rc = 0;
    bool plain = true, fraction = false;
    if (minus)
        buf[n++] = '-';
    const int first = n;
    if (!take_digits(j, buf, &n))
        return unexpected(j, "a value", err);
    if (buf[first] == '0' && n - first > 1)
        return psti_json_fail(j, PST_EDATASET, err, "not JSON: a number begins with 0");
    if (n < NUMBER_MAX && peek(j) == '.') {
        buf[n++] = '.';
        j->at++;
        fraction = true;
        if (!take_digits(j, buf, &n) && n < NUMBER_MAX)
            return unexpected(j, "a digit", err);
    }
    if (n < NUMBER_MAX && (peek(j) | 0x20) == 'e') {
        plain = false;
        rc = take_exponent(j, buf, &n, err);
    }
    if (rc)
        return rc;
    if (n == NUMBER_MAX)
        return psti_json_fail(j, PST_ELIMIT, err, "a number has %d digits or more", NUMBER_MAX - 1);
    if (!j->keep)
        return 0;
    j->is_whole = plain && !fraction && psti_text_i64(buf, (size_t)n, &j->whole);
    if (!(plain && exact_value(buf, n, &j->number)) && !psti_text_f64(buf, (size_t)n, &j->number))
        return psti_json_fail(j, PST_EDATASET, err, "'%.*s' is not a number", n, buf);
    return 0;
}

static int take_special(psti_json *j, const char *word, double value, pst_error *err)
{
    j->is_whole = false;
    j->number = value;
    return take_word(j, word, err);
}

static int take_numeric(psti_json *j, int c, pst_error *err)
{
    if (c == 'N')
        return take_special(j, "NaN", (double)NAN, err);
    if (c == 'I')
        return take_special(j, "Infinity", (double)INFINITY, err);
    if (c != '-')
        return take_number(j, false, err);
    j->at++;
    return peek(j) == 'I' ? take_special(j, "Infinity", -(double)INFINITY, err)
                          : take_number(j, true, err);
}

/* ---- structure ------------------------------------------------------------------------------- */

static void value_ended(psti_json *j)
{
    j->expect = j->depth ? AFTER : DONE;
}

static int enter(psti_json *j, bool object, pst_error *err)
{
    if (j->depth == PSTI_JSON_DEPTH)
        return psti_json_fail(j, PST_ELIMIT, err, "the JSON text is nested deeper than %d levels",
                              PSTI_JSON_DEPTH);
    j->at++;
    j->object[j->depth++] = object;
    j->expect = object ? FIRST_KEY : FIRST_VALUE;
    return object ? PSTI_JSON_OBJECT : PSTI_JSON_ARRAY;
}

static int leave(psti_json *j)
{
    j->at++;
    const bool object = j->object[--j->depth];
    value_ended(j);
    return object ? PSTI_JSON_OBJECT_END : PSTI_JSON_ARRAY_END;
}

static int take_value(psti_json *j, int c, pst_error *err)
{
    int rc, event;
    if (c == '{' || c == '[')
        return enter(j, c == '{', err);
    if (c == '"') {
        rc = take_text(j, err);
        event = PSTI_JSON_STRING;
    } else if (c == 't') {
        rc = take_word(j, "true", err);
        event = PSTI_JSON_TRUE;
    } else if (c == 'f') {
        rc = take_word(j, "false", err);
        event = PSTI_JSON_FALSE;
    } else if (c == 'n') {
        rc = take_word(j, "null", err);
        event = PSTI_JSON_NULL;
    } else {
        rc = take_numeric(j, c, err);
        event = PSTI_JSON_NUMBER;
    }
    if (rc)
        return rc;
    value_ended(j);
    return event;
}

static int take_key(psti_json *j, int c, pst_error *err)
{
    if (c != '"')
        return unexpected(j, "a key in quotes", err);
    const int rc = take_text(j, err);
    if (rc)
        return rc;
    if (skip_space(j) != ':')
        return unexpected(j, "':'", err);
    j->at++;
    j->expect = VALUE;
    return PSTI_JSON_KEY;
}

static void skip_mark(psti_json *j)
{
    if (peek(j) == 0xEF && j->have >= 3 && memcmp(j->bytes, "\xEF\xBB\xBF", 3) == 0)
        j->at = 3;
}

int psti_json_next(psti_json *j, pst_error *err)
{
    if (j->base == 0 && j->at == 0)
        skip_mark(j);
    int c = skip_space(j);
    j->begin = place(j);
    if (j->expect == DONE)
        return c < 0 && !j->trouble ? PSTI_JSON_END : unexpected(j, "the end", err);
    if (j->expect == AFTER) {
        const bool object = j->object[j->depth - 1];
        if (c == (object ? '}' : ']'))
            return leave(j);
        if (c != ',')
            return unexpected(j, object ? "',' or '}'" : "',' or ']'", err);
        j->at++;
        j->expect = object ? KEY : VALUE;
        c = skip_space(j);
        j->begin = place(j);
    } else if ((j->expect == FIRST_KEY && c == '}') || (j->expect == FIRST_VALUE && c == ']')) {
        return leave(j);
    }
    return j->expect == KEY || j->expect == FIRST_KEY ? take_key(j, c, err) : take_value(j, c, err);
}

int psti_json_leave(psti_json *j, int depth, pst_error *err)
{
    int event = 0;
    j->keep = false;
    while (event >= 0 && j->depth >= depth)
        event = psti_json_next(j, err);
    j->keep = true;
    return event < 0 ? event : 0;
}

int psti_json_skip(psti_json *j, pst_error *err)
{
    j->keep = false;
    const int depth = j->depth, event = psti_json_next(j, err);
    j->keep = true;
    if (event < 0)
        return event;
    return event == PSTI_JSON_OBJECT || event == PSTI_JSON_ARRAY
               ? psti_json_leave(j, depth + 1, err)
               : 0;
}
