/* SPDX-License-Identifier: Apache-2.0
 * A bucket from its URL and the settings around it. Made once per dataset; everything but the
 * credentials and what the net thread notes is the same for its whole life. Any thread. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "net/net_priv.h"

static atomic_ullong serials = 1;

psti_bucket *psti_bucket_ref(psti_bucket *bucket)
{
    atomic_fetch_add_explicit(&bucket->refs, 1, memory_order_relaxed);
    return bucket;
}

void psti_bucket_unref(psti_bucket *bucket)
{
    if (!bucket || atomic_fetch_sub_explicit(&bucket->refs, 1, memory_order_acq_rel) != 1)
        return;
    provider_close(bucket->creds);
    psti_free(bucket);
}

const char *psti_bucket_name(const psti_bucket *bucket)
{
    return bucket->name;
}

bool psti_bucket_lists(const psti_bucket *bucket)
{
    return bucket->s3;
}

/* Where systems keep the certificates they trust: a curl that was brought along knows only where
 * its own does. */
static void find_certificates(psti_bucket *b)
{
    static const char *const usual[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    static const char *const variables[] = {"AWS_CA_BUNDLE", "SSL_CERT_FILE"};
    for (size_t i = 0; i < 2; i++) {
        const char *given = getenv(variables[i]);
        if (given && *given) {
            snprintf(b->ca_file, sizeof b->ca_file, "%s", given);
            return;
        }
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (access(usual[i], R_OK) == 0) {
            snprintf(b->ca_file, sizeof b->ca_file, "%s", usual[i]);
            return;
        }
}

/* Scheme, host and port; the texts made of them. */
static bool set_place(psti_bucket *b, const url_parts *parts, const char *virtual_name)
{
    char port[8] = "";
    if (parts->port)
        snprintf(port, sizeof port, ":%d", parts->port);
    const int n = snprintf(b->host, sizeof b->host, "%s%s%s%s", virtual_name,
                           *virtual_name ? "." : "", parts->host, port);
    snprintf(b->url, sizeof b->url, "%s://%s/", parts->https ? "https" : "http", b->host);
    b->loopback = url_is_loopback(parts->host);
    return n > 0 && (size_t)n < sizeof b->host;
}

static const char *fault_of_name(const char *name, size_t len)
{
    if (len < 1 || len > 255)
        return "the URL names no bucket: s3://BUCKET/PREFIX is meant";
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("-._", name[i]))
            return "a bucket's name is made of letters, digits, '-', '.' and '_'";
    return name[0] == '.' || memmem(name, len, "..", 2) ? "the bucket's name is none" : NULL;
}

/* From the environment, else from the profile. */
static bool find_setting(const profile_set *set, const char *const variable[], const char *parent,
                         const char *key, char *out, size_t room)
{
    for (int i = 0; variable[i]; i++) {
        const char *value = getenv(variable[i]);
        if (value && *value && strlen(value) < room) {
            snprintf(out, room, "%s", value);
            return true;
        }
    }
    return profile_setting(set, parent, key, out, room) && *out;
}

static bool find_endpoint(const profile_set *set, char *out, size_t room)
{
    static const char *const variables[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
    static const char *const none[] = {NULL};
    char services[128], section[140];
    if (getenv(variables[0]) || getenv(variables[1]))
        return find_setting(set, variables, NULL, "endpoint_url", out, room);
    if (profile_setting(set, NULL, "services", services, sizeof services)) {
        snprintf(section, sizeof section, "services %s", services);
        if (profile_get(&set->config, section, "s3", "endpoint_url", out, room))
            return true;
    }
    return find_setting(set, none, "s3", "endpoint_url", out, room) ||
           find_setting(set, none, NULL, "endpoint_url", out, room);
}

static const char *find_style(const profile_set *set, bool endpoint, const char *name,
                              bool *by_path)
{
    static const char *const variable[] = {"PENSTOCK_S3_STYLE", NULL};
    char style[32];
    const char *own = getenv("PENSTOCK_S3_STYLE");
    *by_path = endpoint || strchr(name, '.') || strchr(name, '_');
    if (!find_setting(set, variable, "s3", "addressing_style", style, sizeof style) ||
        strcmp(style, "auto") == 0)
        return NULL;
    if (strcmp(style, "path") == 0)
        *by_path = true;
    else if (strcmp(style, "virtual") == 0)
        *by_path = false;
    else
        return own && *own ? "PENSTOCK_S3_STYLE is neither path nor virtual nor auto"
                           : "the profile's addressing_style is neither path nor virtual nor auto";
    return NULL;
}

static const char *fault_of_region(const char *region)
{
    for (const char *c = region; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_')
            return "the region is not the name of one";
    return NULL;
}

/* What its owner gave goes before what the environment says. */
static bool find_given(const access_place *given, psti_bucket *b, char *endpoint, size_t room)
{
    if (given->region[0])
        snprintf(b->region, sizeof b->region, "%s", given->region);
    if (given->endpoint[0])
        snprintf(endpoint, room, "%s", given->endpoint);
    return given->endpoint[0] != 0;
}

static int place_s3(psti_bucket *b, const char *name, const profile_set *set,
                    const access_place *own, pst_error *err)
{
    static const char *const regions[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
    char endpoint[300] = "";
    url_parts parts;
    bool by_path = false;
    if (!find_setting(set, regions, NULL, "region", b->region, sizeof b->region))
        snprintf(b->region, sizeof b->region, "us-east-1");
    const bool given = find_given(own, b, endpoint, sizeof endpoint) ||
                       find_endpoint(set, endpoint, sizeof endpoint);
    const char *fault = fault_of_region(b->region);
    if (!given && (getenv("AWS_ENDPOINT_URL_S3") || getenv("AWS_ENDPOINT_URL")))
        fault = "the endpoint's URL is empty or longer than 299 bytes";
    if (!fault)
        fault = find_style(set, given, name, &by_path);
    by_path = by_path || own->by_path;
    if (fault)
        return psti_fail(err, -EINVAL, "bucket", b->name, "%s", fault);
    if (!given)
        snprintf(endpoint, sizeof endpoint, "https://s3.%s.amazonaws.com", b->region);
    fault = url_split(endpoint, &parts);
    if (fault)
        return psti_fail(err, -EINVAL, "bucket", b->name, "the endpoint's URL is wrong: %s", fault);
    size_t len = strlen(parts.path);
    while (len && parts.path[len - 1] == '/')
        len--;
    if (!set_place(b, &parts, by_path ? "" : name))
        return psti_fail(err, -ENAMETOOLONG, "bucket", b->name, "the name of the host is too long");
    snprintf(b->base, sizeof b->base, "%.*s/%s%s", (int)len, parts.path, by_path ? name : "",
             by_path ? "/" : "");
    return 0;
}

/* A session token in the clear is there for all on the way to take. */
static void warn_plain(const psti_bucket *b)
{
    static atomic_bool said;
    if (b->loopback || strncmp(b->url, "http://", 7) != 0 || !b->creds ||
        !b->creds->now->token[0] || atomic_exchange(&said, true))
        return;
    psti_log(PSTI_LOG_WARN, "%s is asked over plain http, and the session token goes with it",
             b->name);
}

static int open_s3(psti_bucket *b, const char *url, char **rest, pst_error *err)
{
    const char *at = url + 5;
    const size_t len = strcspn(at, "/");
    const char *fault = fault_of_name(at, len);
    if (fault)
        return psti_fail(err, -EINVAL, "bucket", url, "%s", fault);
    char name[256];
    memcpy(name, at, len);
    name[len] = 0;
    profile_set set;
    profile_open(&set);
    b->s3 = true;
    snprintf(b->name, sizeof b->name, "s3://%s", name);
    psti_access *access = psti_access_used();
    access_place own = {0};
    if (access)
        access_where(access, &own);
    int rc = place_s3(b, name, &set, &own, err);
    profile_close(&set);
    if (rc < 0)
        return rc;
    *rest = psti_strdup(PSTI_MEM_NET, at[len] ? at + len + 1 : "");
    if (!*rest)
        return psti_fail(err, -ENOMEM, "bucket", url, "out of memory");
    rc = access ? provider_open_given(access, &b->creds, err) : provider_open(&b->creds, err);
    if (rc == 0)
        warn_plain(b);
    return rc;
}

static int open_http(psti_bucket *b, const char *url, char **rest, pst_error *err)
{
    url_parts parts;
    const char *fault = url_split(url, &parts);
    /* What is wrong may be a password, so the URL is not shown. */
    if (fault)
        return psti_fail(err, -EINVAL, "bucket", NULL, "%s", fault);
    if (!set_place(b, &parts, ""))
        return psti_fail(err, -ENAMETOOLONG, "bucket", url, "the name of the host is too long");
    snprintf(b->name, sizeof b->name, "%.*s", (int)strlen(b->url) - 1, b->url);
    snprintf(b->base, sizeof b->base, "/");
    *rest = psti_strdup(PSTI_MEM_NET, *parts.path ? parts.path + 1 : "");
    if (!*rest)
        return psti_fail(err, -ENOMEM, "bucket", url, "out of memory");
    size_t len = strlen(*rest);
    if (!url_unescape(*rest, &len, false))
        return psti_fail(err, -EINVAL, "bucket", url, "the URL holds a broken escape ('%%')");
    return 0;
}

int psti_bucket_open(const char *url, psti_bucket **out, char **rest, pst_error *err)
{
    *out = NULL;
    *rest = NULL;
    if (!psti_is_bucket_url(url))
        return psti_fail(err, -EINVAL, "bucket", url, "this is no URL of a bucket");
    if (secret_curl_begin() < 0)
        return psti_fail(err, -ENOMEM, "bucket", url, "libcurl cannot be set up");
    psti_bucket *b = psti_calloc(PSTI_MEM_NET, 1, sizeof *b);
    if (!b)
        return psti_fail(err, -ENOMEM, "bucket", url, "out of memory");
    atomic_init(&b->refs, 1);
    b->serial = atomic_fetch_add(&serials, 1);
    retry_gate_init(&b->gate);
    find_certificates(b);
    const int rc = url[0] == 's' ? open_s3(b, url, rest, err) : open_http(b, url, rest, err);
    if (rc < 0) {
        psti_free(*rest);
        *rest = NULL;
        psti_bucket_unref(b);
        return rc;
    }
    *out = b;
    return 0;
}
