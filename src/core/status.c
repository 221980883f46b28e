/* SPDX-License-Identifier: Apache-2.0
 * Filling and formatting pst_error, and the text for each code. */
#include "core/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/keys.h"

void psti_error_clear(pst_error *err)
{
    if (!err)
        return;
    memset(err, 0, sizeof *err);
    err->id = -1;
    err->offset = -1;
}

/* In place: whatever is no character that just shows itself becomes one question mark. */
static void make_plain(char *text)
{
    char *to = text;
    bool stray = false;
    for (size_t left = strlen(text); left > 0;) {
        const size_t n = psti_shown_length(text, left);
        const bool inside = ((unsigned char)*text & 0xc0) == 0x80;
        if (n) {
            memmove(to, text, n);
            to += n;
        } else if (!stray || !inside) {
            *to++ = '?';
        }
        stray = n == 0;
        text += n ? n : 1;
        left -= n ? n : 1;
    }
    *to = 0;
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
    make_plain(err->key);
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
