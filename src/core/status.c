/* SPDX-License-Identifier: Apache-2.0
 * Filling and formatting pst_error, and the text for each code. */
#include "core/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void psti_error_clear(pst_error *err)
{
    if (!err)
        return;
    memset(err, 0, sizeof *err);
    err->id = -1;
    err->offset = -1;
}

/* Bytes of a character that steers a terminal instead of being shown: controls, also those beyond
 * ASCII, ends of lines, marks of direction. 0 = it is none. */
static size_t steering(const unsigned char *p)
{
    if (p[0] < 0x20 || p[0] == 0x7f)
        return 1;
    if ((p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) || (p[0] == 0xd8 && p[1] == 0x9c))
        return 2;
    if (p[0] != 0xe2 || (p[1] != 0x80 && p[1] != 0x81))
        return 0;
    const bool turns = p[1] == 0x80 ? p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae)
                                    : p[2] >= 0xa6 && p[2] <= 0xa9;
    return turns ? 3 : 0;
}

void psti_error_key(pst_error *err, const char *key)
{
    if (!err)
        return;
    const size_t cap = sizeof err->key - 1;
    const size_t len = strlen(key);
    if (len <= cap) {
        memcpy(err->key, key, len + 1);
    } else {
        const size_t head = (cap - 3) / 2, tail = cap - 3 - head;
        memcpy(err->key, key, head);
        memcpy(err->key + head, "...", 3);
        memcpy(err->key + head + 3, key + len - tail, tail);
        err->key[cap] = 0;
    }
    for (char *p = err->key; *p;) {
        const size_t bytes = steering((const unsigned char *)p);
        memset(p, '?', bytes);
        p += bytes ? bytes : 1;
    }
}

static int fill(pst_error *err, int code, const char *stage, const char *key, int64_t offset,
                const char *fmt, va_list args)
{
    if (!err)
        return code;
    psti_error_clear(err);
    err->code = code;
    err->offset = offset;
    if (stage)
        snprintf(err->stage, sizeof err->stage, "%s", stage);
    if (key)
        psti_error_key(err, key);
    vsnprintf(err->message, sizeof err->message, fmt, args);
    return code;
}

int psti_fail(pst_error *err, int code, const char *stage, const char *key, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, code, stage, key, -1, fmt, args);
    va_end(args);
    return code;
}

int psti_fail_at(pst_error *err, int code, const char *stage, const char *key, int64_t offset,
                 const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, code, stage, key, offset, fmt, args);
    va_end(args);
    return code;
}

const char *pst_strerror(int code)
{
    switch (code) {
    case 0:
        return "no error";
#define PST_X(name, value, text)                                                                   \
    case name:                                                                                     \
        return text;
        PST_ERROR_LIST(PST_X)
#undef PST_X
    default:
        break;
    }
    const char *text = code < 0 && code > -1000 ? strerrordesc_np(-code) : NULL;
    return text ? text : "unknown error";
}

const char *pst_version(void)
{
    return PST_VERSION;
}

size_t pst_error_format(const pst_error *err, char *buf, size_t cap)
{
    char where[320] = "";
    if (err->key[0] && err->offset >= 0)
        snprintf(where, sizeof where, "%s at byte %lld: ", err->key, (long long)err->offset);
    else if (err->key[0])
        snprintf(where, sizeof where, "%s: ", err->key);
    else if (err->offset >= 0)
        snprintf(where, sizeof where, "at byte %lld: ", (long long)err->offset);
    const char *message = err->message[0] ? err->message : pst_strerror(err->code);
    const int n =
        snprintf(buf, cap, "%s%s%s%s", err->stage, err->stage[0] ? ": " : "", where, message);
    return n < 0 ? 0 : (size_t)n;
}
