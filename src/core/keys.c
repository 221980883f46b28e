/* SPDX-License-Identifier: Apache-2.0
 * Which names from outside are allowed, and how they are shown. Pure functions. */
#include "core/keys.h"

#include <stdio.h>
#include <string.h>

size_t psti_utf8_length(const char *text, size_t left)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80)
        return 1;
    const size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    const unsigned second = p[1];
    if ((p[0] == 0xe0 && second < 0xa0) || (p[0] == 0xed && second > 0x9f) ||
        (p[0] == 0xf0 && second < 0x90) || (p[0] == 0xf4 && second > 0x8f))
        return 0;
    return n;
}

bool psti_utf8_ok(const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = psti_utf8_length(text + i, len - i);
        if (!n)
            return false;
    }
    return true;
}

static bool is_control(unsigned char byte)
{
    return byte < 0x20 || byte == 0x7f;
}

/* Whether a character of so many bytes does something to a terminal other than show itself, or to
 * the order of what is beside it. */
static bool acts(const unsigned char *s, size_t length)
{
    if (length == 1)
        return is_control(s[0]);
    if (length == 2) /* U+0080..9F; U+061C */
        return (s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xd8 && s[1] == 0x9c);
    if (length == 4) /* U+E0000..: tags, which nobody sees */
        return s[0] == 0xf3 && s[1] == 0xa0;
    const unsigned code = (s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u);
    return (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
           (code >= 0xfff9 && code <= 0xfffb);
}

size_t psti_shown_length(const char *text, size_t left)
{
    const size_t n = psti_utf8_length(text, left);
    return n && !acts((const unsigned char *)text, n) ? n : 0;
}

static const char *part_fault(const char *part, size_t len)
{
    if (len == 0)
        return "has an empty part";
    if (len == 1 && part[0] == '.')
        return "has a part '.'";
    if (len == 2 && part[0] == '.' && part[1] == '.')
        return "has a part '..'";
    return NULL;
}

const char *psti_key_fault(const char *key, size_t len)
{
    if (len == 0)
        return "is empty";
    if (len > PSTI_KEY_MAX)
        return "is longer than 4096 bytes";
    if (key[0] == '/')
        return "is absolute";
    size_t part = 0;
    for (size_t i = 0; i < len;) {
        const unsigned char byte = (unsigned char)key[i];
        if (is_control(byte))
            return "holds a control byte";
        if (byte == '/') {
            const char *fault = part_fault(key + part, i - part);
            if (fault)
                return fault;
            part = i + 1;
        }
        const size_t n = psti_utf8_length(key + i, len - i);
        if (!n)
            return "is not UTF-8";
        i += n;
    }
    return part_fault(key + part, len - part);
}

char *psti_escape(char *out, size_t cap, const char *text, size_t len)
{
    size_t at = 0;
    for (size_t i = 0; i < len;) {
        const char *p = text + i;
        const size_t n = psti_shown_length(p, len - i);
        if (at + (n ? n : 4) >= cap)
            break;
        if (n)
            memcpy(out + at, p, n);
        else
            snprintf(out + at, cap - at, "\\x%02x", (unsigned char)*p);
        at += n ? n : 4;
        i += n ? n : 1;
    }
    out[at] = 0;
    return out;
}
