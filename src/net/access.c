/* SPDX-License-Identifier: Apache-2.0
 * On whose behalf buckets are asked: settings and credentials that were given to this process for
 * one dataset, in place of the environment's. access.lock guards them; it is a leaf, and taken
 * under provider.lock when a signature is due. Which one a thread uses is the thread's own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "net/net_priv.h"

struct psti_access {
    atomic_int refs;
    psti_fork_guard forks;
    pthread_mutex_t lock;
    /* guarded by it */
    creds *now; /* no access_key: nothing is signed */
    uint32_t version;
    bool revoked;
    access_place place;
};

static _Thread_local psti_access *used;
static _Thread_local const psti_catalog *catalog;

psti_access *psti_access_new(void)
{
    psti_access *a = psti_calloc(PSTI_MEM_NET, 1, sizeof *a);
    if (!a)
        return NULL;
    atomic_init(&a->refs, 1);
    pthread_mutex_init(&a->lock, NULL);
    psti_fork_guard_add(&a->forks, &a->lock, NULL, NULL);
    a->now = secret_alloc(sizeof *a->now);
    if (!a->now) {
        psti_access_unref(a);
        return NULL;
    }
    return a;
}

psti_access *psti_access_ref(psti_access *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    return a;
}

void psti_access_unref(psti_access *a)
{
    if (!a || atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1)
        return;
    psti_fork_guard_remove(&a->forks);
    secret_free(a->now, sizeof *a->now);
    pthread_mutex_destroy(&a->lock);
    psti_free(a);
}

psti_access *psti_access_use(psti_access *a)
{
    psti_access *before = used;
    used = a;
    return before;
}

psti_access *psti_access_used(void)
{
    return used;
}

const psti_catalog *psti_catalog_use(const psti_catalog *c)
{
    const psti_catalog *before = catalog;
    catalog = c;
    return before;
}

const psti_catalog *catalog_used(void)
{
    return catalog;
}

/* ---- what was given -----------------------------------------------------------------------------
 */

/* A value that is no text, or too long, is not taken for one that is not there. */
static bool take(const char *json, size_t bytes, const char *key, char *out, size_t room)
{
    char quoted[40];
    out[0] = 0;
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    return profile_json(json, bytes, key, out, room) ||
           !memmem(json, bytes, quoted, strlen(quoted));
}

static bool take_flag(const char *json, size_t bytes, const char *key, bool *out)
{
    char quoted[40];
    const int len = snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *end = json + bytes, *at = memmem(json, bytes, quoted, (size_t)len);
    *out = false;
    if (!at)
        return true;
    at += len;
    while (at < end && (*at == ' ' || *at == ':' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    *out = end - at >= 4 && memcmp(at, "true", 4) == 0;
    return *out || (end - at >= 5 && memcmp(at, "false", 5) == 0);
}

static const char *read_all(const char *json, size_t bytes, char *url, size_t cap,
                            access_place *place, creds *c)
{
    size_t from = 0;
    while (from < bytes && (unsigned char)json[from] <= ' ')
        from++;
    if (from == bytes || json[from] != '{' || !memchr(json + from, '}', bytes - from))
        return "the body is a JSON object";
    if (!take(json, bytes, "url", url, cap) ||
        !take(json, bytes, "endpoint", place->endpoint, sizeof place->endpoint) ||
        !take(json, bytes, "region", place->region, sizeof place->region) ||
        !take(json, bytes, "access_key", c->access_key, sizeof c->access_key) ||
        !take(json, bytes, "secret_key", c->secret_key, sizeof c->secret_key) ||
        !take(json, bytes, "session_token", c->token, sizeof c->token))
        return "url, endpoint, region, access_key, secret_key and session_token are texts, none of "
               "them too long";
    if (!take_flag(json, bytes, "path_style", &place->by_path))
        return "path_style is true or false";
    if (!psti_is_bucket_url(url))
        return "url is s3://… or http(s)://…";
    if (!c->access_key[0] != !c->secret_key[0])
        return "access_key and secret_key belong together";
    if (!creds_are_plain(c))
        return "the credentials hold a blank or a control byte";
    return NULL;
}

int psti_access_read(psti_access *a, const char *json, size_t bytes, char *url, size_t cap,
                     pst_error *err)
{
    access_place place = {0};
    creds *fresh = secret_alloc(sizeof *fresh);
    if (!fresh)
        return psti_fail(err, -ENOMEM, "credentials", NULL, "out of memory");
    const char *wrong = read_all(json, bytes, url, cap, &place, fresh);
    if (wrong) {
        secret_free(fresh, sizeof *fresh);
        return psti_fail(err, -EINVAL, "credentials", NULL, "%s", wrong);
    }
    pthread_mutex_lock(&a->lock);
    creds *old = a->now;
    const bool same = a->version > 0 && !a->revoked && memcmp(old, fresh, sizeof *fresh) == 0;
    a->now = fresh;
    a->place = place;
    a->revoked = false;
    a->version += !same;
    pthread_mutex_unlock(&a->lock);
    secret_free(old, sizeof *old);
    return 0;
}

void psti_access_revoke(psti_access *a)
{
    pthread_mutex_lock(&a->lock);
    secret_wipe(a->now, sizeof *a->now);
    a->revoked = true;
    a->version++;
    pthread_mutex_unlock(&a->lock);
}

/* ---- for buckets and their signatures -----------------------------------------------------------
 */

void access_where(psti_access *a, access_place *out)
{
    pthread_mutex_lock(&a->lock);
    *out = a->place;
    pthread_mutex_unlock(&a->lock);
}

bool access_signs(psti_access *a)
{
    pthread_mutex_lock(&a->lock);
    const bool signs = a->now->access_key[0] || a->revoked;
    pthread_mutex_unlock(&a->lock);
    return signs;
}

int access_renew(psti_access *a, uint32_t *version, creds *out)
{
    pthread_mutex_lock(&a->lock);
    const bool newer = *version != a->version;
    const int rc = a->revoked || !a->now->access_key[0] ? -EACCES : newer;
    if (rc == 1) {
        memcpy(out, a->now, sizeof *out);
        *version = a->version;
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}

void *psti_secret_alloc(size_t bytes)
{
    return secret_alloc(bytes);
}

void psti_secret_free(void *memory, size_t bytes)
{
    secret_free(memory, bytes);
}

void psti_secret_hide(const void *memory, size_t bytes)
{
    secret_hide(memory, bytes);
}
