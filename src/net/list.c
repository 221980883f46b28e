/* SPDX-License-Identifier: Apache-2.0
 * Listings (ListObjectsV2). A page is fetched whole, then parsed by expat in the calling thread,
 * which hands on one object at a time: nothing is kept but the last key. Any thread but the net's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "core/status.h"
#include "net/list.h"

enum {
    PAGE_BYTES = 16 << 20, /* 1,000 keys of 1,024 bytes, each byte escaped twice, fit */
    QUERY_ROOM = 12288,
    SAME_TOKENS = 3,
};

typedef struct page {
    char *bytes;
    size_t size, cap;
} page;

static int take_page(psti_get *get, uint64_t at, const uint8_t *bytes, size_t count)
{
    page *p = get->user;
    if (at == 0)
        p->size = 0; /* the server failed in the middle of it: it comes once more */
    if (count > PAGE_BYTES - p->size)
        return 1;
    if (p->size + count > p->cap) {
        const size_t cap = 2 * (p->size + count);
        char *larger = psti_realloc(PSTI_MEM_NET, p->bytes, cap, 1);
        if (!larger)
            return 1;
        p->bytes = larger;
        p->cap = cap;
    }
    memcpy(p->bytes + p->size, bytes, count);
    p->size += count;
    return 0;
}

static int make_query(const listing *l, const char *prefix, char *out)
{
    size_t at = 0;
    out[0] = 0;
    if (l->token[0]) {
        memcpy(out, "continuation-token=", 19);
        at = url_escape(out, 19, QUERY_ROOM, l->token, strlen(l->token), false);
        if (at == SIZE_MAX)
            return -ENAMETOOLONG;
        out[at++] = '&';
    }
    static const char rest[] = "encoding-type=url&list-type=2&max-keys=1000&prefix=";
    if (at + sizeof rest >= QUERY_ROOM)
        return -ENAMETOOLONG;
    memcpy(out + at, rest, sizeof rest);
    at = url_escape(out, at + sizeof rest - 1, QUERY_ROOM, prefix, strlen(prefix), false);
    return at == SIZE_MAX ? -ENAMETOOLONG : 0;
}

static int fetch_page(psti_bucket *bucket, const char *query, page *p, pst_error *err)
{
    psti_get get = {.bucket = bucket,
                    .key = "",
                    .size = UINT64_MAX,
                    .length = UINT64_MAX,
                    .sink = take_page,
                    .user = p,
                    .err = err};
    p->size = 0;
    const int rc = loop_ask(&get, REQUEST_LIST, query);
    if (rc == -ECANCELED && !atomic_load(&get.request.cancelled)) /* by take_page */
        return psti_fail(
            err, PST_ELIMIT, "list", bucket->name,
            "a page of the listing has more than 16 MiB, or there is no memory for it");
    return rc;
}

/* Tokens may be anything; pages without a single key that point to each other are a circle. */
static int check_token(listing *l, const char *before, int *same)
{
    if (!l->token[0])
        return listing_fail(l, PST_EDATASET, "the listing goes on, and does not say where");
    if (l->in_page) {
        *same = 0;
        return 0;
    }
    *same += 1;
    if (strcmp(before, l->token) == 0 || *same >= SAME_TOKENS)
        return listing_fail(l, PST_EDATASET,
                            "the listing goes in circles: pages without keys follow each other");
    return 0;
}

static int list_pages(listing *l, psti_bucket *bucket, const char *prefix, page *p, char *query)
{
    char *before = psti_calloc(PSTI_MEM_NET, 1, sizeof l->token);
    int same = 0, rc = before ? 0 : -ENOMEM;
    while (rc == 0) {
        memcpy(before, l->token, sizeof l->token);
        rc = make_query(l, prefix, query);
        if (rc == 0)
            rc = fetch_page(bucket, query, p, l->err);
        if (rc == 0)
            rc = listing_page(l, p->bytes, p->size);
        if (rc || !l->more)
            break;
        rc = check_token(l, before, &same);
    }
    psti_free(before);
    return rc;
}

int psti_net_list(psti_bucket *bucket, const char *prefix,
                  int (*each)(void *user, const psti_object *object), void *user, pst_error *err)
{
    const psti_catalog *known = catalog_used();
    if (known)
        return known->list(known->user, prefix, each, user);
    if (!bucket->s3)
        return psti_fail(err, -ENOTSUP, "list", bucket->name,
                         "plain HTTP has no listings; name a manifest, a tar shard or a file");
    if (strlen(prefix) > PSTI_OBJECT_KEY_MAX)
        return psti_fail(err, -ENAMETOOLONG, "list", bucket->name,
                         "the prefix is longer than 1,024 bytes");
    listing *l = listing_new(bucket->name, prefix, each, user, err);
    char *query = psti_malloc(PSTI_MEM_NET, QUERY_ROOM);
    page p = {0};
    int rc = l && query ? list_pages(l, bucket, prefix, &p, query) : -ENOMEM;
    if (rc == -ENOMEM)
        psti_fail(err, rc, "list", bucket->name, "out of memory");
    psti_free(p.bytes);
    psti_free(query);
    listing_free(l);
    return rc;
}

int psti_net_head(psti_bucket *bucket, const char *key, uint64_t *size, char etag[PSTI_ETAG_ROOM],
                  pst_error *err)
{
    const psti_catalog *known = catalog_used();
    if (known)
        return known->head(known->user, key, size, etag) < 0
                   ? psti_fail(err, -ENOENT, "bucket", key, "there is no such object")
                   : 0;
    psti_get get = {
        .bucket = bucket, .key = key, .size = UINT64_MAX, .length = UINT64_MAX, .err = err};
    const int rc = loop_ask(&get, REQUEST_HEAD, NULL);
    *size = rc == 0 ? get.seen_size : UINT64_MAX;
    memcpy(etag, rc == 0 ? get.seen_etag : "", rc == 0 ? PSTI_ETAG_ROOM : 1);
    return rc;
}
