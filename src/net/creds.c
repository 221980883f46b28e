/* SPDX-License-Identifier: Apache-2.0
 * Whose requests they are. Credentials come from the environment, the files of AWS's tools, or a
 * server that a container is given; those that expire are renewed by a thread of their own that
 * lives as long as one renewal, so that no transfer waits for it. All of them lie in secret memory.
 *
 * provider.lock guards what the net thread and a renewing thread share; a signature is made with it
 * held, which is microseconds. It is guarded against fork: a child finds the credentials whole and
 * no renewal under way. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "core/status.h"
#include "net/net_priv.h"

enum {
    RENEW_BEFORE_S = 300, /* of their end */
    UNUSABLE_S = 5,       /* before it they are not used */
    PAUSE_S = 10,         /* between two renewals */
    ANSWER_MAX = 16384,
};

/* ---- where they come from ----------------------------------------------------------------------
 */

static bool copy_variable(const char *name, char *out, size_t room)
{
    const char *value = getenv(name);
    if (!value || !*value || strlen(value) >= room)
        return false;
    snprintf(out, room, "%s", value);
    secret_hide(value, strlen(value));
    return true;
}

static bool from_environment(creds *out)
{
    if (!copy_variable("AWS_ACCESS_KEY_ID", out->access_key, sizeof out->access_key) ||
        !copy_variable("AWS_SECRET_ACCESS_KEY", out->secret_key, sizeof out->secret_key))
        return false;
    copy_variable("AWS_SESSION_TOKEN", out->token, sizeof out->token);
    return true;
}

static bool from_section(const profile_file *file, const char *section, creds *out)
{
    if (!profile_get(file, section, NULL, "aws_access_key_id", out->access_key,
                     sizeof out->access_key) ||
        !profile_get(file, section, NULL, "aws_secret_access_key", out->secret_key,
                     sizeof out->secret_key))
        return false;
    if (!profile_get(file, section, NULL, "aws_session_token", out->token, sizeof out->token))
        out->token[0] = 0;
    return out->access_key[0] && out->secret_key[0];
}

/* What a profile may say that only AWS's own tools can follow. */
static const char *foreign_way(const profile_set *set)
{
    static const char *const ways[] = {"role_arn", "sso_session", "sso_start_url",
                                       "credential_process", "web_identity_token_file"};
    char value[1024];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (profile_setting(set, NULL, ways[i], value, sizeof value))
            return ways[i];
    return NULL;
}

/* 1: found; 0: there are none. */
static int from_files(creds *out, char *reason, size_t room)
{
    profile_set set;
    profile_open(&set);
    int rc =
        from_section(&set.shared, set.name, out) || from_section(&set.config, set.section, out);
    const char *way = rc ? NULL : foreign_way(&set);
    if (way) {
        snprintf(reason, room,
                 "the profile \"%s\" gets its credentials by %s, which is not followed here; "
                 "`aws configure export-credentials` turns them into variables",
                 set.name, way);
        rc = -ENOTSUP;
    }
    const char *named = getenv("AWS_PROFILE");
    if (rc == 0 && named && *named) {
        snprintf(reason, room,
                 "there are no credentials for the profile \"%s\" that AWS_PROFILE names",
                 set.name);
        rc = -ENOENT;
    }
    profile_close(&set);
    return rc;
}

/* ---- the server of a container -----------------------------------------------------------------
 */

/* Its answer holds secrets: plain HTTP only to this machine and the two addresses that containers
 * are given. */
static const char *fault_of_uri(const char *uri)
{
    url_parts parts;
    const char *fault = url_split(uri, &parts);
    if (fault || parts.https || url_is_loopback(parts.host))
        return fault;
    if (strcmp(parts.host, "169.254.170.2") == 0 || strcmp(parts.host, "169.254.170.23") == 0 ||
        strcmp(parts.host, "[fd00:ec2::23]") == 0)
        return NULL;
    return "credentials are fetched over https, or from this machine";
}

static bool container_uri(char *out, size_t room)
{
    const char *relative = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    int n = 0;
    if (relative && *relative == '/')
        n = snprintf(out, room, "http://169.254.170.2%s", relative);
    else if (full && *full)
        n = snprintf(out, room, "%s", full);
    return n > 0 && (size_t)n < room;
}

typedef struct reply {
    size_t size;
    char text[ANSWER_MAX];
    char authorization[CREDS_TOKEN_ROOM + 32];
} reply;

static size_t take_reply(char *bytes, size_t one, size_t count, void *arg)
{
    reply *r = arg;
    (void)one;
    if (count > sizeof r->text - r->size)
        return 0;
    memcpy(r->text + r->size, bytes, count);
    r->size += count;
    return count;
}

static bool fill_authorization(reply *r)
{
    const char *path = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    profile_file file = {0};
    size_t len = 0;
    if (path && *path) {
        profile_read(path, &file);
        token = file.text;
        while (len < file.size && (unsigned char)file.text[len] > 0x20)
            len++;
    } else if (token) {
        len = strlen(token);
        secret_hide(token, len);
    }
    const bool fits = token && len && len < CREDS_TOKEN_ROOM && !memchr(token, '\n', len) &&
                      !memchr(token, '\r', len);
    if (fits)
        snprintf(r->authorization, sizeof r->authorization, "Authorization: %.*s", (int)len, token);
    profile_drop(&file);
    return fits;
}

/* This may be a thread of the caller's: a connection that breaks must not end his process. */
static CURLcode perform(CURL *easy)
{
    const struct timespec at_once = {0};
    sigset_t pipes, before, pending;
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipes, &before);
    const CURLcode code = curl_easy_perform(easy);
    if (!sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipes, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static int ask_container(const char *uri, reply *r, char *reason, size_t room)
{
    if (secret_curl_begin() < 0)
        return -ENOMEM;
    CURL *easy = curl_easy_init();
    if (!easy)
        return -ENOMEM;
    struct curl_slist line = {.data = r->authorization};
    if (fill_authorization(r))
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, &line);
    curl_easy_setopt(easy, CURLOPT_URL, uri);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, 5000L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_reply);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, r);
    const CURLcode code = perform(easy);
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(easy);
    if (code == CURLE_OK && status == 200)
        return 0;
    if (code != CURLE_OK)
        snprintf(reason, room, "the server of credentials cannot be asked: %s",
                 curl_easy_strerror(code));
    else
        snprintf(reason, room, "the server of credentials answered with status %ld", status);
    return -EACCES;
}

static int from_container(const char *uri, creds *out, char *reason, size_t room)
{
    const char *fault = fault_of_uri(uri);
    if (fault) {
        snprintf(reason, room, "AWS_CONTAINER_CREDENTIALS_FULL_URI: %s", fault);
        return -EINVAL;
    }
    reply *r = secret_alloc(sizeof *r);
    if (!r)
        return -ENOMEM;
    int rc = -EIO;
    for (int attempt = 0; attempt < 3 && rc < 0; attempt++) {
        r->size = 0;
        rc = ask_container(uri, r, reason, room);
    }
    char expires[64] = "";
    if (rc == 0 &&
        (!profile_json(r->text, r->size, "AccessKeyId", out->access_key, sizeof out->access_key) ||
         !profile_json(r->text, r->size, "SecretAccessKey", out->secret_key,
                       sizeof out->secret_key))) {
        snprintf(reason, room, "the server of credentials answered with none");
        rc = -EACCES;
    }
    if (rc == 0) {
        if (!profile_json(r->text, r->size, "Token", out->token, sizeof out->token))
            out->token[0] = 0;
        if (profile_json(r->text, r->size, "Expiration", expires, sizeof expires))
            out->expires_s = profile_time(expires);
        if (out->expires_s < 0)
            out->expires_s = 0;
    }
    secret_free(r, sizeof *r);
    return rc;
}

/* ---- the provider ------------------------------------------------------------------------------
 */

int creds_load(creds_kind kind, const char *uri, creds *out, char *reason, size_t room)
{
    memset(out, 0, sizeof *out);
    if (kind == CREDS_ENVIRONMENT)
        return from_environment(out) ? 0 : -ENOENT;
    if (kind == CREDS_CONTAINER)
        return from_container(uri, out, reason, room);
    const int rc = from_files(out, reason, room);
    return rc == 1 ? 0 : rc == 0 ? -ENOENT : rc;
}

bool creds_are_plain(const creds *c)
{
    const char *const text[] = {c->access_key, c->secret_key, c->token};
    for (int i = 0; i < 3; i++)
        for (const char *p = text[i]; *p; p++)
            if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
                return false;
    return true;
}

/* Taken by halves they would be others. */
static const char *too_long(void)
{
    static const struct {
        const char *name;
        size_t room;
    } variables[] = {{"AWS_ACCESS_KEY_ID", sizeof((creds *)0)->access_key},
                     {"AWS_SECRET_ACCESS_KEY", sizeof((creds *)0)->secret_key},
                     {"AWS_SESSION_TOKEN", sizeof((creds *)0)->token}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i].name);
        if (value && strlen(value) >= variables[i].room)
            return variables[i].name;
    }
    return NULL;
}

static int find_creds(provider *p, char *reason, size_t room)
{
    const char *name = too_long();
    if (name) {
        snprintf(reason, room, "%s is too long", name);
        return -ENAMETOOLONG;
    }
    int rc = creds_load(CREDS_ENVIRONMENT, NULL, p->now, reason, room);
    p->kind = CREDS_ENVIRONMENT;
    if (rc == -ENOENT) {
        p->kind = CREDS_FILE;
        rc = creds_load(CREDS_FILE, NULL, p->now, reason, room);
    }
    if (rc == -ENOENT && !*reason && container_uri(p->uri, sizeof p->uri)) {
        p->kind = CREDS_CONTAINER;
        rc = creds_load(CREDS_CONTAINER, p->uri, p->now, reason, room);
    }
    if (rc == -ENOENT && !*reason) {
        p->kind = CREDS_NONE;
        return 0;
    }
    if (rc == 0 && !creds_are_plain(p->now)) {
        snprintf(reason, room, "the credentials hold a blank or a control byte");
        rc = -EINVAL;
    }
    return rc;
}

static void forget_renewal(void *arg)
{
    provider *p = arg;
    p->refreshing = false;
}

int provider_open(provider **out, pst_error *err)
{
    char reason[200] = "";
    int rc = -ENOMEM;
    *out = NULL;
    provider *p = psti_calloc(PSTI_MEM_NET, 1, sizeof *p);
    if (!p)
        return psti_fail(err, rc, "credentials", NULL, "out of memory");
    pthread_mutex_init(&p->lock, NULL);
    psti_fork_guard_add(&p->forks, &p->lock, forget_renewal, p);
    p->now = secret_alloc(sizeof *p->now);
    p->signer = signer_new();
    p->version = 1;
    if (p->now && p->signer)
        rc = find_creds(p, reason, sizeof reason);
    if (rc < 0 || p->kind == CREDS_NONE) {
        provider_close(p);
        return rc == 0 ? 0
                       : psti_fail(err, rc, "credentials", NULL, "%s",
                                   *reason ? reason : pst_strerror(rc));
    }
    *out = p;
    return 0;
}

int provider_open_given(psti_access *access, provider **out, pst_error *err)
{
    *out = NULL;
    if (!access_signs(access))
        return 0;
    provider *p = psti_calloc(PSTI_MEM_NET, 1, sizeof *p);
    if (!p)
        return psti_fail(err, -ENOMEM, "credentials", NULL, "out of memory");
    pthread_mutex_init(&p->lock, NULL);
    psti_fork_guard_add(&p->forks, &p->lock, forget_renewal, p);
    p->kind = CREDS_GIVEN;
    p->now = secret_alloc(sizeof *p->now);
    p->signer = signer_new();
    p->version = 1;
    p->access = psti_access_ref(access);
    if (!p->now || !p->signer) {
        provider_close(p);
        return psti_fail(err, -ENOMEM, "credentials", NULL, "out of memory");
    }
    *out = p;
    return 0;
}

/* Only when no renewal is under way: the bucket is kept for it. */
void provider_close(provider *p)
{
    if (!p)
        return;
    psti_fork_guard_remove(&p->forks);
    secret_free(p->now, sizeof *p->now);
    secret_free(p->fresh, sizeof *p->fresh);
    signer_free(p->signer);
    psti_access_unref(p->access);
    pthread_mutex_destroy(&p->lock);
    psti_free(p);
}

static int64_t wall_s(void)
{
    return (int64_t)time(NULL);
}

static void *renew_main(void *arg)
{
    psti_bucket *bucket = arg;
    provider *p = bucket->creds;
    char reason[200] = "";
    creds *fresh = secret_alloc(sizeof *fresh);
    const int rc = fresh ? creds_load(p->kind, p->uri, fresh, reason, sizeof reason) : -ENOMEM;
    const bool fine = rc == 0 && creds_are_plain(fresh);
    pthread_mutex_lock(&p->lock);
    if (fine) {
        secret_free(p->fresh, sizeof *p->fresh);
        p->fresh = fresh;
        fresh = NULL;
    }
    p->failed = !fine;
    p->refresh_from_s = wall_s() + PAUSE_S; /* some are renewed only at their very end */
    p->refreshing = false;
    pthread_mutex_unlock(&p->lock);
    secret_free(fresh, sizeof *fresh);
    loop_wake();
    psti_bucket_unref(bucket);
    return NULL;
}

static void renew_begin_locked(psti_bucket *bucket)
{
    provider *p = bucket->creds;
    pthread_t thread;
    sigset_t all, before;
    psti_bucket_ref(bucket);
    p->refreshing = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&thread, NULL, renew_main, bucket);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        pthread_detach(thread);
        return;
    }
    p->refreshing = false;
    p->failed = true;
    p->refresh_from_s = wall_s() + PAUSE_S;
    psti_bucket_unref(bucket); /* never the last one: the get has it */
}

static void take_fresh_locked(provider *p)
{
    if (!p->fresh)
        return;
    secret_free(p->now, sizeof *p->now);
    p->now = p->fresh;
    p->fresh = NULL;
    p->failed = false;
    p->version++;
}

static int take_given_locked(provider *p)
{
    const int rc = access_renew(p->access, &p->access_version, p->now);
    if (rc < 0)
        secret_wipe(p->now, sizeof *p->now);
    p->version += rc != 0;
    return rc < 0 ? rc : 0;
}

int provider_ready(psti_bucket *bucket, int64_t now_s)
{
    provider *p = bucket->creds;
    pthread_mutex_lock(&p->lock);
    if (p->kind == CREDS_GIVEN) {
        const int rc = take_given_locked(p);
        pthread_mutex_unlock(&p->lock);
        return rc;
    }
    take_fresh_locked(p);
    const int64_t left = p->now->expires_s ? p->now->expires_s - now_s : INT64_MAX;
    const bool can = p->kind == CREDS_CONTAINER || p->kind == CREDS_FILE;
    if (can && left < RENEW_BEFORE_S && !p->refreshing && now_s >= p->refresh_from_s)
        renew_begin_locked(bucket);
    int rc = 0;
    if (left < UNUSABLE_S) /* those who wait have their own patience */
        rc = can ? -EAGAIN : -EACCES;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

bool provider_expired(psti_bucket *bucket, uint32_t version)
{
    provider *p = bucket->creds;
    pthread_mutex_lock(&p->lock);
    if (p->kind == CREDS_GIVEN) { /* others may have been given since it was sent */
        const bool newer = take_given_locked(p) == 0 && version != p->version;
        pthread_mutex_unlock(&p->lock);
        return newer;
    }
    take_fresh_locked(p);
    bool can = p->kind == CREDS_CONTAINER || p->kind == CREDS_FILE;
    if (can && version == p->version) {
        p->now->expires_s = 1; /* long ago */
        p->refresh_from_s = 0;
    }
    pthread_mutex_unlock(&p->lock);
    return can;
}
