/* SPDX-License-Identifier: Apache-2.0
 * Writing: text that grows, and JSON in it. Pure functions of the caller's state. */
#include "watch/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

void psti_writ_real(psti_writ *t, double value)
{
    char digits[40];
    const double finite = isfinite(value) ? value : 0;
    /* As few digits as say it; enough for a time to the millisecond. */
    int len = snprintf(digits, sizeof digits, "%.6g", finite);
    if (fabs(finite) >= 1e5)
        len = snprintf(digits, sizeof digits, "%.13g", finite);
    psti_writ_put(t, digits, (size_t)len);
}

void psti_writ_fini(psti_writ *t)
{
    psti_free(t->data);
    *t = (psti_writ){0};
}

size_t psti_utf8_length(const char *at, size_t left)
{
    const unsigned char *p = (const unsigned char *)at;
    const size_t len = p[0] < 0x80                    ? 1
                       : p[0] >= 0xc2 && p[0] <= 0xdf ? 2
                       : p[0] >= 0xe0 && p[0] <= 0xef ? 3
                       : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                                      : 0;
    if (len == 0 || len > left)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    const bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    const bool surrogate = p[0] == 0xed && p[1] > 0x9f;
    const bool beyond = p[0] == 0xf4 && p[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : len;
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

/* '<' too: the text may end up inside a page. */
static void put_escaped(psti_writ *t, unsigned char c)
{
    char code[8];
    if (c == '"' || c == '\\') {
        code[0] = '\\';
        code[1] = (char)c;
        psti_writ_put(t, code, 2);
    } else {
        psti_writ_put(t, code, (size_t)snprintf(code, sizeof code, "\\u%04x", c));
    }
}

void psti_json_string(psti_json *j, const char *text)
{
    separate(j);
    psti_writ_put(&j->text, "\"", 1);
    for (size_t left = strlen(text); left > 0;) {
        const unsigned char c = (unsigned char)*text;
        const size_t len = psti_utf8_length(text, left);
        if (len == 0)
            psti_writ_add(&j->text, "\xef\xbf\xbd");
        else if (c < 0x20 || c == 0x7f || c == '"' || c == '\\' || c == '<')
            put_escaped(&j->text, c);
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
