/* SPDX-License-Identifier: Apache-2.0
 * Splitting and escaping URLs. A key becomes part of a request in url_escape only. Pure functions.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "net/net_priv.h"

static bool is_unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

size_t url_escape(char *out, size_t at, size_t room, const char *bytes, size_t count, bool path)
{
    static const char digits[] = "0123456789ABCDEF";
    if (at >= room)
        return SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (is_unreserved(c) || (path && c == '/')) {
            if (at + 1 >= room)
                return SIZE_MAX;
            out[at++] = (char)c;
        } else {
            if (at + 3 >= room)
                return SIZE_MAX;
            out[at++] = '%';
            out[at++] = digits[c >> 4];
            out[at++] = digits[c & 15];
        }
    }
    out[at] = 0;
    return at;
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool url_unescape(char *text, size_t *len, bool plus)
{
    size_t to = 0;
    for (size_t i = 0; i < *len; i++) {
        char c = text[i];
        if (c == '%') {
            const int high = i + 2 < *len ? nibble(text[i + 1]) : -1;
            const int low = i + 2 < *len ? nibble(text[i + 2]) : -1;
            if (high < 0 || low < 0 || (high | low) == 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        text[to++] = c;
    }
    text[to] = 0;
    *len = to;
    return true;
}

static const char *take_host(const char *from, size_t len, url_parts *out)
{
    if (len == 0 || len >= sizeof out->host)
        return "the URL names no host";
    const bool bracket = from[0] == '[';
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)from[i];
        const bool fine = bracket ? isxdigit(c) || c == ':' || c == '.' || c == '[' || c == ']'
                                  : isalnum(c) || c == '-' || c == '.' || c == '_';
        if (!fine)
            return "the URL's host holds a byte that hosts do not have";
        out->host[i] = (char)tolower(c);
    }
    out->host[len] = 0;
    return NULL;
}

static const char *take_port(const char *from, size_t len, url_parts *out)
{
    if (len == 0 || len > 5)
        return "the URL's port is not a number from 1 to 65535";
    for (size_t i = 0; i < len; i++) {
        if (from[i] < '0' || from[i] > '9')
            return "the URL's port is not a number from 1 to 65535";
        out->port = out->port * 10 + (from[i] - '0');
    }
    if (out->port < 1 || out->port > 65535)
        return "the URL's port is not a number from 1 to 65535";
    if (out->port == (out->https ? 443 : 80))
        out->port = 0;
    return NULL;
}

const char *url_split(const char *text, url_parts *out)
{
    memset(out, 0, sizeof *out);
    if (strncmp(text, "https://", 8) == 0)
        out->https = true;
    else if (strncmp(text, "http://", 7) != 0)
        return "the URL begins neither with http:// nor with https://";
    const char *host = text + (out->https ? 8 : 7);
    const size_t all = strcspn(host, "/?#");
    out->path = host + all;
    if (memchr(host, '@', all))
        return "user and password have no place in a URL";
    if (strpbrk(out->path, "?#"))
        return "a URL with a query ('?') or a fragment ('#') is not read";
    size_t len = all;
    const char *closing = host[0] == '[' ? memchr(host, ']', all) : NULL;
    if (host[0] == '[' && !closing)
        return "the URL's IPv6 address has no closing bracket";
    const char *colon =
        closing ? (closing + 1 < host + all ? closing + 1 : NULL) : memchr(host, ':', all);
    if (colon) {
        if (*colon != ':')
            return "something stands between the URL's IPv6 address and its path";
        len = (size_t)(colon - host);
        const char *fault = take_port(colon + 1, all - len - 1, out);
        if (fault)
            return fault;
    }
    return take_host(host, len, out);
}

bool url_is_loopback(const char *host)
{
    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0)
        return true;
    int dots = 0;
    for (const char *c = host; *c; c++) {
        dots += *c == '.';
        if (*c != '.' && (*c < '0' || *c > '9'))
            return false;
    }
    return dots == 3 && strncmp(host, "127.", 4) == 0;
}
