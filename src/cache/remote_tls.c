/* SPDX-License-Identifier: Apache-2.0
 * TLS to the servers, where the library was built with it. Certificates are verified, always: the
 * host's name, or its address where it is known by that. PENSTOCK_REMOTE_CA names a file of
 * authorities; without it the system's are believed. */
#include <errno.h>
#include <stdlib.h>

#include "cache/remote_priv.h"
#include "core/memory.h"
#include "core/status.h"

#if PSTI_HAVE_REMOTE_TLS
#include <hiredis/hiredis_ssl.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct tls {
    SSL_CTX *context;
};

int remote_tls_new(struct tls **out, pst_error *err)
{
    const char *authorities = getenv("PENSTOCK_REMOTE_CA");
    struct tls *tls = psti_calloc(PSTI_MEM_CACHE, 1, sizeof *tls);
    *out = tls;
    if (!tls)
        return psti_fail(err, -ENOMEM, "remote", NULL, "no memory for TLS");
    redisInitOpenSSL();
    tls->context = SSL_CTX_new(TLS_client_method());
    if (!tls->context)
        return psti_fail(err, -ENOMEM, "remote", NULL, "no memory for TLS");
    SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    const int ok = authorities && *authorities
                       ? SSL_CTX_load_verify_locations(tls->context, authorities, NULL)
                       : SSL_CTX_set_default_verify_paths(tls->context);
    if (!ok)
        return psti_fail(err, -EINVAL, "remote", NULL,
                         "the authorities of PENSTOCK_REMOTE_CA cannot be read");
    return 0;
}

/* A node that a cluster told of is known by its address alone. */
int remote_tls_start(struct tls *tls, redisContext *redis, const place *at, const char *address)
{
    SSL *ssl = SSL_new(tls->context);
    if (!ssl)
        return -ENOMEM;
    X509_VERIFY_PARAM *expect = SSL_get0_param(ssl);
    const int known = X509_VERIFY_PARAM_set1_ip_asc(expect, at->host) == 1 ||
                      (SSL_set_tlsext_host_name(ssl, at->host) == 1 &&
                       X509_VERIFY_PARAM_set1_host(expect, at->host, 0) == 1);
    (void)address;
    if (!known) {
        SSL_free(ssl);
        return -EINVAL;
    }
    SSL_set_connect_state(ssl);
    return redisInitiateSSL(redis, ssl) == REDIS_OK ? 0 : -EPROTO;
}

void remote_tls_free(struct tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    psti_free(tls);
}

#else

int remote_tls_new(struct tls **out, pst_error *err)
{
    *out = NULL;
    return psti_fail(err, -ENOSYS, "remote", NULL, "this build has no TLS for the remote tier");
}

int remote_tls_start(struct tls *tls, redisContext *redis, const place *at, const char *address)
{
    (void)tls;
    (void)redis;
    (void)at;
    (void)address;
    return -ENOSYS;
}

void remote_tls_free(struct tls *tls)
{
    (void)tls;
}

#endif
