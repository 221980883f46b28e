/* SPDX-License-Identifier: Apache-2.0
 * Writing: text that grows, and JSON in it. Pure functions of the caller's state. */
#include "watch/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/keys.h"
#include "core/memory.h"

void psti_writ_put(psti_writ *t, const char *bytes, size_t count)
{
    if (t->failed)
        return;
    if (count > t->cap - t->size) {
        const size_t cap = 2 * (t->size + count) + 1024;
        char *larger = psti_realloc(PSTI_MEM_ENGINE, t->data, cap, 1);
        if (!larger) {
            t->failed = true;
            return;
        }
        t->data = larger;
        t->cap = cap;
    }
    memcpy(t->data + t->size, bytes, count);
    t->size += count;
}

void psti_writ_add(psti_writ *t, const char *text)
{
    psti_writ_put(t, text, strlen(text));
}

void psti_writ_u64(psti_writ *t, uint64_t value)
{
    char digits[24];
    psti_writ_put(t, digits,
                  (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)value));
}

/* The program around us may have a locale whose numbers have a comma, or something longer. */
static size_t with_point(char *digits)
{
    size_t len = 0;
    for (const char *at = digits; *at; at++) {
        const bool plain = strchr("0123456789+-e", *at) != NULL;
        if (plain)
            digits[len++] = *at;
        else if (len == 0 || digits[len - 1] != '.')
            digits[len++] = '.';
    }
    return len;
}

void psti_writ_real(psti_writ *t, double value)
{
    char digits[40];
    const double finite = isfinite(value) ? value : 0;
    const double size = fabs(finite);
    /* As few digits as say it; enough for a time to the millisecond, also one that has grown. */
    snprintf(digits, sizeof digits, size < 1e3 ? "%.6g" : size < 1e5 ? "%.9g" : "%.13g", finite);
    psti_writ_put(t, digits, with_point(digits));
}

void psti_writ_fini(psti_writ *t)
{
    psti_free(t->data);
    *t = (psti_writ){0};
}

uint32_t psti_utf8_hidden(const char *at, size_t len)
{
    const unsigned char *p = (const unsigned char *)at;
    if (psti_shown_length(at, len))
        return 0;
    return len == 1   ? p[0]
           : len == 2 ? (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu)
           : len == 3 ? (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu)
                      : 0xfffd; /* beyond what \uXXXX can say */
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void separate(psti_json *j)
{
    if (j->comma)
        psti_writ_put(&j->text, ",", 1);
    j->comma = true;
}

void psti_json_open(psti_json *j, char bracket)
{
    separate(j);
    psti_writ_put(&j->text, &bracket, 1);
    j->comma = false;
}

void psti_json_close(psti_json *j, char bracket)
{
    psti_writ_put(&j->text, &bracket, 1);
    j->comma = true;
}

void psti_json_key(psti_json *j, const char *name)
{
    psti_json_string(j, name);
    psti_writ_put(&j->text, ":", 1);
    j->comma = false;
}

void psti_json_u64(psti_json *j, uint64_t value)
{
    separate(j);
    psti_writ_u64(&j->text, value);
}

void psti_json_real(psti_json *j, double value)
{
    separate(j);
    psti_writ_real(&j->text, value);
}

void psti_json_bool(psti_json *j, bool value)
{
    separate(j);
    psti_writ_add(&j->text, value ? "true" : "false");
}

void psti_json_null(psti_json *j)
{
    separate(j);
    psti_writ_add(&j->text, "null");
}

static void put_escaped(psti_writ *t, uint32_t c)
{
    char code[16];
    if (c == '"' || c == '\\') {
        code[0] = '\\';
        code[1] = (char)c;
        psti_writ_put(t, code, 2);
    } else {
        psti_writ_put(t, code, (size_t)snprintf(code, sizeof code, "\\u%04x", (unsigned)c));
    }
}

/* What is to be escaped there; 0 = nothing. '<' too, since the text may end up inside a page, and
 * what would steer a terminal. */
static uint32_t escaped(const char *at, size_t len)
{
    return *at == '"' || *at == '\\' || *at == '<' ? (uint32_t)*at : psti_utf8_hidden(at, len);
}

void psti_json_string(psti_json *j, const char *text)
{
    separate(j);
    psti_writ_put(&j->text, "\"", 1);
    for (size_t left = strlen(text); left > 0;) {
        const size_t len = psti_utf8_length(text, left);
        const uint32_t code = len ? escaped(text, len) : 0;
        if (len == 0)
            psti_writ_add(&j->text, "\xef\xbf\xbd");
        else if (code)
            put_escaped(&j->text, code);
        else
            psti_writ_put(&j->text, text, len);
        text += len ? len : 1;
        left -= len ? len : 1;
    }
    psti_writ_put(&j->text, "\"", 1);
}

void psti_json_ku(psti_json *j, const char *name, uint64_t value)
{
    psti_json_key(j, name);
    psti_json_u64(j, value);
}

void psti_json_kr(psti_json *j, const char *name, double value)
{
    psti_json_key(j, name);
    psti_json_real(j, value);
}

void psti_json_ks(psti_json *j, const char *name, const char *text)
{
    psti_json_key(j, name);
    psti_json_string(j, text);
}
