/* SPDX-License-Identifier: Apache-2.0
 * Objects in buckets: S3 and plain HTTP(S). One thread of this process keeps every request going;
 * the functions that wait may be called from any thread but that one. What comes back is what was
 * asked for, whole and of one version, or an error: nothing short is ever delivered. Without
 * libcurl, expat and libcrypto psti_bucket_open refuses, and nothing else can be reached. */
#ifndef PSTI_NET_NET_H
#define PSTI_NET_NET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

/* Where objects lie and how they are asked for: scheme, host, port, bucket or none, region, style,
 * credentials. Counted; the same for every thread. */
typedef struct psti_bucket psti_bucket;

enum {
    PSTI_ETAG_ROOM = 132,
    PSTI_OBJECT_KEY_MAX = 1024, /* bytes of an object's key, S3's own limit */
};

/* Whether this is a URL that psti_bucket_open understands (s3://, http://, https://). */
bool psti_is_bucket_url(const char *text);

/* url: s3://BUCKET[/PREFIX], http://HOST[:PORT]/PATH or https://…. *rest gets what follows the
 * bucket or the host, without the first '/', to be let go with psti_free; for s3:// it is taken as
 * it stands, for http(s):// it is unescaped. Settings come from the environment and the files that
 * AWS's tools read; docs/buckets.md lists them. http(s):// is never signed. */
int psti_bucket_open(const char *url, psti_bucket **out, char **rest, pst_error *err);
psti_bucket *psti_bucket_ref(psti_bucket *bucket);
void psti_bucket_unref(psti_bucket *bucket); /* NULL is fine */
/* "s3://BUCKET" or "https://HOST:PORT" (a usual port is left out): for messages and identities. */
const char *psti_bucket_name(const psti_bucket *bucket);
/* Whether its keys can be listed: S3 only. */
bool psti_bucket_lists(const psti_bucket *bucket);

/* ---- on behalf of somebody (access.c) ---------------------------------------------------------
 */

/* How one owner's buckets are asked, in place of what the environment says: counted, any thread.
 * Credentials lie in secret memory. Those that are replaced are wiped, and buckets that were opened
 * with them sign their next request with the new ones. */
typedef struct psti_access psti_access;
psti_access *psti_access_new(void); /* asks for nothing yet; NULL = no memory */
psti_access *psti_access_ref(psti_access *access);
void psti_access_unref(psti_access *access); /* NULL is fine */
/* From a flat JSON object in secret memory: url, endpoint, region, path_style, access_key,
 * secret_key, session_token, all but the first optional; without access_key nothing is signed. url
 * has cap bytes. What is wrong is said without what is secret. */
int psti_access_read(psti_access *access, const char *json, size_t bytes, char *url, size_t cap,
                     pst_error *err);
void psti_access_revoke(psti_access *access); /* wiped: requests fail from now on */
/* Buckets that the calling thread opens from now on are opened so; NULL = as the environment says.
 * Returns what was before. It is not referenced: whoever sets it takes it back. */
psti_access *psti_access_use(psti_access *access);
psti_access *psti_access_used(void);

/* Memory that is in no core file, filled with noughts; wiped when let go. NULL is fine to free. */
void *psti_secret_alloc(size_t bytes);
void psti_secret_free(void *memory, size_t bytes);
void psti_secret_hide(const void *memory, size_t bytes); /* its pages, from now on */

/* What the calling thread is told when it asks for a listing or for one object's size, in place of
 * the server's answer; NULL = nothing. Returns what was before. */
typedef struct psti_object psti_object;
typedef struct psti_catalog {
    int (*list)(void *user, const char *prefix, int (*each)(void *user, const psti_object *object),
                void *each_user);
    int (*head)(void *user, const char *key, uint64_t *size, char etag[PSTI_ETAG_ROOM]);
    void *user;
} psti_catalog;
const psti_catalog *psti_catalog_use(const psti_catalog *catalog);

/* What the net keeps about a request while it runs; no one else looks inside. */
struct psti_transfer;
struct psti_sum {
    uint64_t value; /* of a CRC */
    void *digest;   /* of the longer ones; made when the first bytes come */
    uint8_t wanted[32], kind;
};
struct psti_request {
    struct psti_get *next, *prev;
    struct psti_transfer *transfer[3]; /* the first request and up to two that race it */
    void *waiter;                      /* of psti_net_now */
    const char *query;                 /* of a listing */
    uint64_t submitted_ns, progress_ns, failed_ns, due_ns, race_ns;
    uint64_t before_ns; /* the last failure */
    uint64_t end;       /* offset behind the last byte asked for; UINT64_MAX = not known yet */
    uint64_t received;  /* bytes handed on so far */
    uint64_t forgiven;  /* of them, when attempts were last forgotten */
    struct psti_sum sum;
    uint32_t attempts, lies;
    uint8_t kind, state, races, renewed, replaced, placed;
    atomic_bool cancelled;
};

/* One GET of a whole object or of a part. The caller's storage, left alone by him between submit
 * and done; what is not set is nought. */
typedef struct psti_get {
    psti_bucket *bucket; /* bucket, key, etag must live until done */
    const char *key;     /* unescaped */
    /* As the server gave it, quotes included: sent as If-Match and compared with the answer's.
     * NULL: any; the answer's is in seen_etag, and holds from the first byte to the last. */
    const char *etag;
    uint64_t size;           /* of the whole object; UINT64_MAX = not known */
    uint64_t offset, length; /* length UINT64_MAX: to the end */
    /* Room for length bytes. Or NULL, and then sink gets them in order, none twice, on the net
     * thread; what it returns, if not nought, ends the request with -ECANCELED. */
    uint8_t *buf;
    int (*sink)(struct psti_get *get, uint64_t at, const uint8_t *bytes, size_t count);
    /* Once, on the net thread; must not block and may submit this get again. 0; -errno;
     * PST_ECHANGED when the object is another one than etag and size say; PST_ECORRUPT when its
     * checksum is wrong again and again. */
    void (*done)(struct psti_get *get, int status);
    void *user;
    pst_error *err; /* why, with the key; NULL is fine. Never holds a secret. */
    /* Set before done. */
    uint64_t seen_size;
    char seen_etag[PSTI_ETAG_ROOM];
    uint64_t took_ns; /* from submit to done */
    struct psti_request request;
} psti_get;

/* Never blocks; any thread, the net's own too. Starts the net thread of this process at first use.
 * done always comes, even when the thread cannot be started: then from the calling thread. In a
 * forked child what the parent had submitted is the parent's: done does not come there. */
void psti_net_submit(psti_get *get);
/* The same, waits and returns done's status; done itself is not called. Not from the net thread. */
int psti_net_now(psti_get *get);
/* A wish; done still comes, with -ECANCELED when it was granted. Before done only. */
void psti_net_cancel(psti_get *get);

/* Whom the calling thread asks, ten times a second, while it waits in psti_net_now, psti_net_list
 * or psti_net_head: a true answer ends that with -ECANCELED. stop NULL: nobody, as at first.
 * Returns who was asked before. */
typedef struct psti_net_watch {
    bool (*stop)(void *user);
    void *user;
} psti_net_watch;
psti_net_watch psti_net_watch_set(psti_net_watch watch);

/* Most requests in flight in this process (1..1024; 0 = 64, and where answers take long as many as
 * that needs, up to 512; 0). Returns the number before; a negative one only asks. */
int psti_net_depth(int connections);

struct psti_object {
    const char *key; /* as it is, any byte but NUL, which ends it */
    size_t key_len;
    uint64_t size;
    int64_t mtime_ns; /* since 1970; 0 = the server did not say */
    const char *etag; /* quotes included; "" = the server did not say */
};

/* Lists the keys that begin with prefix in byte order, 1,000 a request; each() is called from the
 * calling thread, and what it returns, if not nought, ends the listing and is returned. A listing
 * that is out of order, repeats keys, goes in circles or holds entities is refused. */
int psti_net_list(psti_bucket *bucket, const char *prefix,
                  int (*each)(void *user, const psti_object *object), void *user, pst_error *err);
/* *size is UINT64_MAX where the server does not say; the etag is "" then. */
int psti_net_head(psti_bucket *bucket, const char *key, uint64_t *size, char etag[PSTI_ETAG_ROOM],
                  pst_error *err);

/* Of this process since it began. */
typedef struct psti_net_stats {
    uint64_t requests; /* sent, of every kind */
    uint64_t lists;    /* of them, pages of listings */
    uint64_t retries;  /* sent again after a failure */
    uint64_t resumed;  /* of them, behind the last byte that had come */
    uint64_t hedges;   /* sent a second time because nothing came */
    uint64_t throttled;
    uint64_t errors; /* gets that ended with an error */
    uint64_t bytes;  /* of objects */
    uint64_t connections;
    uint64_t in_flight; /* now */
} psti_net_stats;
void psti_net_stats_get(psti_net_stats *out);
/* The same by scheme: s3://, or http:// and https://. */
typedef struct psti_net_traffic {
    uint64_t requests, retries, errors, bytes;
} psti_net_traffic;
void psti_net_traffic_get(bool s3, psti_net_traffic *out);

#endif
