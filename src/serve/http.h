/* SPDX-License-Identifier: Apache-2.0
 * The TCP side of a daemon: who may look at it from a browser or a scraper. Private. */
#ifndef PSTI_SERVE_HTTP_H
#define PSTI_SERVE_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "serve/looker.h"

enum { HTTP_TOKEN_LEAST = 16, HTTP_TOKEN_MOST = 512, HTTP_HOST_BYTES = 256 };

/* ---- http_rules.c: pure ---------------------------------------------------------------------- */

typedef struct http_rules {
    struct sockaddr_storage at;
    socklen_t at_bytes;
    uint16_t port;
    bool loopback, any; /* any: all addresses of this machine */
    char literal[64];   /* the address as a Host header has it */
    char *hosts;        /* further names, "NAME,NAME"; NULL = none */
    char *token;        /* secret memory of HTTP_TOKEN_MOST + 1; NULL = none is needed */
} http_rules;

/* "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT". 0 or -EINVAL with err. */
int http_parse(const char *text, http_rules *out, pst_error *err);
/* The first line of a file that only its owner can read. */
int http_read_token(const char *path, http_rules *out, pst_error *err);
void http_rules_fini(http_rules *r);
bool http_host_allowed(const http_rules *r, const char *host);
/* origin: of the request, or NULL. It must be that of the host that was asked. */
bool http_origin_allowed(const char *origin, const char *host);
/* given: bytes that somebody says the token is; takes as long whatever they are. */
bool http_token_is(const http_rules *r, const char *given, size_t bytes);

/* ---- http.c ---------------------------------------------------------------------------------- */

struct http;
/* rules are taken over, also on failure. */
int http_open(looker *l, http_rules *rules, struct http **out, pst_error *err);
void http_close(struct http *h); /* NULL is fine */

#endif
