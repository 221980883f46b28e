/* SPDX-License-Identifier: Apache-2.0
 * Addresses, tokens, and which Host and Origin a request may have. Names are the way in for pages
 * that make a browser ask this machine in their place: a name that is not ours is refused, a
 * literal address cannot be made to point here. Pure functions but for reading the token. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "net/net.h"
#include "serve/http.h"

/* ---- addresses ------------------------------------------------------------------------------- */

static bool parse_port(const char *text, uint16_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    const unsigned long port = strtoul(text, &end, 10);
    *out = (uint16_t)port;
    return *end == '\0' && port <= 65535;
}

static bool set_v4(http_rules *r, const char *address)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&r->at;
    if (inet_pton(AF_INET, address, &in->sin_addr) != 1)
        return false;
    in->sin_family = AF_INET;
    in->sin_port = htons(r->port);
    r->at_bytes = sizeof *in;
    const uint32_t bits = ntohl(in->sin_addr.s_addr);
    r->loopback = bits >> 24 == 127;
    r->any = bits == INADDR_ANY;
    snprintf(r->literal, sizeof r->literal, "%s", address);
    return true;
}

static bool set_v6(http_rules *r, const char *address)
{
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)&r->at;
    if (inet_pton(AF_INET6, address, &in->sin6_addr) != 1)
        return false;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(r->port);
    r->at_bytes = sizeof *in;
    r->loopback = IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
    r->any = IN6_IS_ADDR_UNSPECIFIED(&in->sin6_addr);
    char plain[INET6_ADDRSTRLEN]; /* as browsers write it */
    inet_ntop(AF_INET6, &in->sin6_addr, plain, sizeof plain);
    snprintf(r->literal, sizeof r->literal, "[%s]", plain);
    return true;
}

int http_parse(const char *text, http_rules *out, pst_error *err)
{
    char address[64] = "127.0.0.1";
    const char *colon = strrchr(text, ':');
    const bool bracketed = text[0] == '[';
    const size_t len = colon ? (size_t)(colon - text) : 0;
    bool ok = parse_port(colon ? colon + 1 : text, &out->port) && len < sizeof address;
    if (ok && colon) {
        const size_t skip = bracketed;
        ok = !bracketed || (len > 2 && text[len - 1] == ']');
        memset(address, 0, sizeof address);
        if (ok)
            memcpy(address, text + skip, len - 2 * skip);
    }
    ok = ok && (bracketed ? set_v6(out, address) : set_v4(out, address));
    return ok ? 0
              : psti_fail(err, -EINVAL, "serve", NULL,
                          "--http takes PORT, ADDRESS:PORT or [ADDRESS]:PORT with an address in "
                          "digits, not '%.100s'",
                          text);
}

/* ---- the token ------------------------------------------------------------------------------- */

static bool token_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           strchr("-._~+/=", c);
}

static int check_token(const http_rules *r, const char *path, pst_error *err)
{
    const size_t len = strlen(r->token);
    for (size_t i = 0; i < len; i++)
        if (!token_byte(r->token[i]))
            return psti_fail(err, -EINVAL, "serve", path,
                             "a token has letters, digits and any of -._~+/= in it, nothing else");
    return len >= HTTP_TOKEN_LEAST
               ? 0
               : psti_fail(err, -EINVAL, "serve", path,
                           "the token has %zu bytes, %d are the least; make one with: openssl rand "
                           "-hex 16",
                           len, HTTP_TOKEN_LEAST);
}

int http_read_token(const char *path, http_rules *out, pst_error *err)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return psti_fail(err, -errno, "serve", path, "the token cannot be read: %s",
                         pst_strerror(-errno));
    int rc = fstat(fd, &st) ? -errno : 0;
    if (rc == 0 &&
        (!S_ISREG(st.st_mode) || (st.st_mode & 0077) || (st.st_uid != geteuid() && st.st_uid != 0)))
        rc = psti_fail(err, -EPERM, "serve", path,
                       "others may read the token; make the file yours alone: chmod 600");
    out->token = rc < 0 ? NULL : psti_secret_alloc(HTTP_TOKEN_MOST + 1);
    if (rc == 0 && !out->token)
        rc = psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    if (rc == 0) {
        const ssize_t got = read(fd, out->token, HTTP_TOKEN_MOST + 1);
        ssize_t len = 0;
        while (len < got && out->token[len] != '\r' && out->token[len] != '\n')
            len++;
        out->token[len < HTTP_TOKEN_MOST ? len : HTTP_TOKEN_MOST] = '\0';
        rc = len <= HTTP_TOKEN_MOST
                 ? check_token(out, path, err)
                 : psti_fail(err, -EINVAL, "serve", path, "the token has more than %d bytes",
                             HTTP_TOKEN_MOST);
    }
    close(fd);
    return rc;
}

void http_rules_fini(http_rules *r)
{
    psti_secret_free(r->token, HTTP_TOKEN_MOST + 1);
    psti_free(r->hosts);
    r->token = r->hosts = NULL;
}

bool http_token_is(const http_rules *r, const char *given, size_t bytes)
{
    const size_t len = strlen(r->token);
    unsigned differ = bytes != len;
    for (size_t i = 0; i < bytes && i < HTTP_TOKEN_MOST; i++)
        differ |= (unsigned char)given[i] ^ (unsigned char)r->token[i % len];
    return differ == 0;
}

/* ---- Host and Origin ------------------------------------------------------------------------- */

/* The host without its port; 0 = it is none. */
static size_t host_length(const char *host)
{
    const size_t name = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    const size_t all = strlen(host);
    uint16_t port;
    if (name > all || name >= HTTP_HOST_BYTES || (host[0] == '[' && host[name - 1] != ']'))
        return 0;
    return host[name] == '\0' || (host[name] == ':' && parse_port(host + name + 1, &port)) ? name
                                                                                           : 0;
}

static bool same(const char *a, size_t len, const char *b)
{
    return strlen(b) == len && strncasecmp(a, b, len) == 0;
}

static bool is_literal(const char *host, size_t len)
{
    char text[HTTP_HOST_BYTES];
    struct in6_addr six;
    struct in_addr four;
    const size_t skip = host[0] == '[';
    if (len <= 2 * skip)
        return false;
    memcpy(text, host + skip, len - 2 * skip);
    text[len - 2 * skip] = '\0';
    return inet_pton(skip ? AF_INET6 : AF_INET, text, skip ? (void *)&six : (void *)&four) == 1;
}

static bool is_named(const http_rules *r, const char *host, size_t len)
{
    for (const char *at = r->hosts; at && *at;) {
        const size_t one = strcspn(at, ",");
        if (one == len && strncasecmp(at, host, len) == 0)
            return true;
        at += one + (at[one] == ',');
    }
    return false;
}

bool http_host_allowed(const http_rules *r, const char *host)
{
    const size_t len = host ? host_length(host) : 0;
    if (len == 0)
        return false;
    if (same(host, len, r->literal) || same(host, len, "localhost") || is_named(r, host, len))
        return true;
    return r->any && is_literal(host, len);
}

bool http_origin_allowed(const char *origin, const char *host)
{
    if (!origin)
        return true;
    const size_t scheme = strncasecmp(origin, "http://", 7) == 0    ? 7
                          : strncasecmp(origin, "https://", 8) == 0 ? 8
                                                                    : 0;
    return scheme > 0 && strcasecmp(origin + scheme, host) == 0;
}
