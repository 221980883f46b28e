/* SPDX-License-Identifier: Apache-2.0
 * Built without libcurl, expat or libcrypto: no bucket can be opened, so the rest is never reached.
 */
#include <errno.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "net/net.h"

int psti_bucket_open(const char *url, psti_bucket **out, char **rest, pst_error *err)
{
    *out = NULL;
    *rest = NULL;
    return psti_fail(err, -ENOTSUP, "bucket", url,
                     "built without libcurl, expat and libcrypto (Debian: libcurl4-openssl-dev, "
                     "libexpat1-dev, libssl-dev); data in buckets cannot be read");
}

psti_bucket *psti_bucket_ref(psti_bucket *bucket)
{
    return bucket;
}

void psti_bucket_unref(psti_bucket *bucket)
{
    (void)bucket;
}

const char *psti_bucket_name(const psti_bucket *bucket)
{
    (void)bucket;
    return "";
}

bool psti_bucket_lists(const psti_bucket *bucket)
{
    (void)bucket;
    return false;
}

void psti_net_submit(psti_get *get)
{
    get->done(get, -ENOTSUP);
}

int psti_net_now(psti_get *get)
{
    (void)get;
    return -ENOTSUP;
}

void psti_net_cancel(psti_get *get)
{
    (void)get;
}

psti_net_watch psti_net_watch_set(psti_net_watch watch)
{
    return watch;
}

int psti_net_depth(int connections)
{
    (void)connections;
    return 0;
}

int psti_net_list(psti_bucket *bucket, const char *prefix,
                  int (*each)(void *user, const psti_object *object), void *user, pst_error *err)
{
    (void)bucket;
    (void)each;
    (void)user;
    return psti_fail(err, -ENOTSUP, "bucket", prefix, "built without libcurl");
}

int psti_net_head(psti_bucket *bucket, const char *key, uint64_t *size, char etag[PSTI_ETAG_ROOM],
                  pst_error *err)
{
    (void)bucket;
    (void)size;
    (void)etag;
    return psti_fail(err, -ENOTSUP, "bucket", key, "built without libcurl");
}

void psti_net_traffic_get(bool s3, psti_net_traffic *out)
{
    (void)s3;
    *out = (psti_net_traffic){0};
}

void psti_net_stats_get(psti_net_stats *out)
{
    memset(out, 0, sizeof *out);
}

psti_access *psti_access_new(void)
{
    return NULL;
}

psti_access *psti_access_ref(psti_access *access)
{
    return access;
}

void psti_access_unref(psti_access *access)
{
    (void)access;
}

int psti_access_read(psti_access *access, const char *json, size_t bytes, char *url, size_t cap,
                     pst_error *err)
{
    (void)access;
    (void)json;
    (void)bytes;
    (void)url;
    (void)cap;
    return psti_fail(err, -ENOTSUP, "bucket", NULL, "built without libcurl");
}

void psti_access_revoke(psti_access *access)
{
    (void)access;
}

psti_access *psti_access_use(psti_access *access)
{
    return access;
}

psti_access *psti_access_used(void)
{
    return NULL;
}

const psti_catalog *psti_catalog_use(const psti_catalog *catalog)
{
    return catalog;
}

void *psti_secret_alloc(size_t bytes)
{
    return psti_calloc(PSTI_MEM_NET, 1, bytes);
}

void psti_secret_free(void *memory, size_t bytes)
{
    if (memory)
        explicit_bzero(memory, bytes);
    psti_free(memory);
}

void psti_secret_hide(const void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}
