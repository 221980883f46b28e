/* SPDX-License-Identifier: Apache-2.0
 * The pages of a listing, apart from how they are fetched. */
#ifndef PSTI_NET_LIST_H
#define PSTI_NET_LIST_H

#include "net/net_priv.h"

enum { LIST_TEXT_MAX = 4096 };

/* What goes from page to page, and what expat's calls fill. */
typedef struct listing {
    const char *name, *prefix; /* of the bucket; what every key begins with */
    int (*each)(void *user, const psti_object *object);
    void *user;
    pst_error *err;
    int rc; /* why it ended; nought while it goes on */
    /* Of the page. */
    bool more, escaped;
    uint64_t in_page;
    char token[LIST_TEXT_MAX]; /* of the next page */
    /* Of the element. */
    int depth;
    uint8_t place, inside; /* which text is being taken; whether in <Contents> */
    bool result;           /* the root is what it should be */
    size_t len;
    char text[LIST_TEXT_MAX];
    /* Of the object. */
    char key[LIST_TEXT_MAX], last[LIST_TEXT_MAX], etag[PSTI_ETAG_ROOM];
    size_t key_len, last_len;
    uint64_t size;
    int64_t mtime_ns;
    uint8_t seen; /* bits of what the object has */
    bool any;     /* last is one */
    const struct xml_calls *xml;
    void *parser;
} listing;

listing *listing_new(const char *name, const char *prefix,
                     int (*each)(void *user, const psti_object *object), void *user,
                     pst_error *err);
void listing_free(listing *l);
/* Parses a page and hands its objects on. 0; what each() returned; a failure, with err filled. */
int listing_page(listing *l, const char *bytes, size_t size);
__attribute__((format(printf, 3, 4))) int listing_fail(listing *l, int code, const char *fmt, ...);

#endif
