/* SPDX-License-Identifier: Apache-2.0
 * One HTTP request: an easy handle of curl that is used again and again, and the storage of the
 * texts it sends. It lies in secret memory, since a session token is among them. Nothing is
 * allocated here per request. On the net thread only. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/net_priv.h"

enum { RECEIVE_BYTES = 256 * 1024, ERROR_BODY_MAX = 64 * 1024, HEAD_MAX = 64 * 1024 };
static const long NAMES_S = 60; /* that addresses are kept; not at all where they lead nowhere */

/* ---- what comes ------------------------------------------------------------------------------ */

static size_t take_head(char *line, size_t one, size_t len, void *arg)
{
    psti_transfer *t = arg;
    size_t bare = len;
    (void)one;
    while (bare && (line[bare - 1] == '\n' || line[bare - 1] == '\r'))
        bare--;
    if (!t->get)
        return 0;
    t->head_bytes += len;
    if (t->head_bytes > HEAD_MAX) {
        t->answer.judged = true;
        answer_say(&t->answer, LIE, -EPROTO, "the head of the answer has more than 64 KB");
        return 0;
    }
    if (bare) {
        answer_line(&t->answer, line, bare);
        return len;
    }
    if (!t->answer.judged)
        answer_judge(&t->answer, t->get, t->from);
    return t->answer.verdict == GOOD ? len : 0;
}

static size_t take_error(psti_transfer *t, const char *bytes, size_t count)
{
    answer *a = &t->answer;
    const size_t room = sizeof a->body - a->body_len;
    const size_t take = count < room ? count : room;
    memcpy(a->body + a->body_len, bytes, take);
    a->body_len += take;
    t->bytes += count;
    return t->bytes < ERROR_BODY_MAX ? count : 0;
}

static size_t take_body(char *bytes, size_t one, size_t count, void *arg)
{
    psti_transfer *t = arg;
    (void)one;
    if (!t->get || !t->answer.judged)
        return 0;
    if (t->answer.status >= 300)
        return take_error(t, bytes, count);
    t->bytes += count;
    return request_take(t, (const uint8_t *)bytes, count) ? count : 0;
}

/* ---- the handle ------------------------------------------------------------------------------ */

static void set_up(psti_transfer *t)
{
    CURL *e = t->easy;
    curl_easy_setopt(e, CURLOPT_PRIVATE, t);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(e, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take_head);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->detail);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_HTTP_CONTENT_DECODING, 0L);
    curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "penstock/" PST_VERSION);
    curl_easy_setopt(e, CURLOPT_NOPROGRESS, 1L);
    curl_easy_setopt(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* a name that is not resolved holds nobody up */
#endif
}

psti_transfer *transfer_new(void)
{
    psti_transfer *t = secret_alloc(sizeof *t);
    if (!t)
        return NULL;
    t->easy = curl_easy_init();
    if (!t->easy) {
        transfer_free(t);
        return NULL;
    }
    set_up(t);
    return t;
}

void transfer_free(psti_transfer *t)
{
    if (!t)
        return;
    if (t->easy)
        curl_easy_cleanup(t->easy);
    secret_free(t, sizeof *t);
}

static void set_bucket(psti_transfer *t, const psti_bucket *b)
{
    if (t->serial == b->serial)
        return;
    curl_easy_setopt(t->easy, CURLOPT_URL, b->url);
    if (*b->ca_file)
        curl_easy_setopt(t->easy, CURLOPT_CAINFO, b->ca_file);
    /* What is on this machine is never asked for by way of another; and a proxy for plain HTTP
     * would want to be told the host in the request's target, which is ours. */
    const bool direct = b->loopback || strncmp(b->url, "https:", 6) != 0;
    curl_easy_setopt(t->easy, CURLOPT_PROXY, direct ? "" : NULL);
    t->serial = b->serial;
}

/* ---- what is sent ---------------------------------------------------------------------------- */

typedef struct lines {
    psti_transfer *t;
    size_t used;
    int count;
} lines;

__attribute__((format(printf, 2, 3))) static const char *add_line(lines *l, const char *fmt, ...)
{
    char *at = l->t->head + l->used;
    const size_t room = sizeof l->t->head - l->used;
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(at, room, fmt, args);
    va_end(args);
    const int most = (int)(sizeof l->t->line / sizeof *l->t->line);
    if (n < 0 || (size_t)n >= room || l->count >= most)
        return NULL;
    l->t->line[l->count] = (struct curl_slist){.data = at};
    if (l->count)
        l->t->line[l->count - 1].next = &l->t->line[l->count];
    l->count++;
    l->used += (size_t)n + 1;
    return at;
}

static int make_target(psti_transfer *t, const psti_get *get)
{
    const psti_bucket *b = get->bucket;
    size_t len = strlen(b->base);
    memcpy(t->target, b->base, len + 1);
    len = url_escape(t->target, len, sizeof t->target, get->key, strlen(get->key), true);
    return len == SIZE_MAX ? -ENAMETOOLONG : 0;
}

static int add_query(psti_transfer *t, const char *query)
{
    const size_t len = strlen(t->target);
    const int n = snprintf(t->target + len, sizeof t->target - len, "?%s", query);
    return n > 0 && (size_t)n < sizeof t->target - len ? 0 : -ENAMETOOLONG;
}

static void add_conditions(lines *l, const psti_get *get)
{
    const struct psti_request *r = &get->request;
    const char *etag = get_etag(get);
    if (r->kind != REQUEST_GET)
        return;
    if (!get_is_whole(get, l->t->from)) {
        if (r->end == UINT64_MAX)
            add_line(l, "Range: bytes=%llu-", (unsigned long long)l->t->from);
        else
            add_line(l, "Range: bytes=%llu-%llu", (unsigned long long)l->t->from,
                     (unsigned long long)r->end - 1);
    }
    /* A weak one never matches, by definition; it is compared with the answer's. */
    if (etag && strncmp(etag, "W/", 2) != 0)
        add_line(l, etag[0] == '"' ? "If-Match: %s" : "If-Match: \"%s\"", etag);
}

static int add_signature(lines *l, const psti_get *get, int64_t now_s)
{
    psti_transfer *t = l->t;
    psti_bucket *b = get->bucket;
    const bool sums = get->request.kind == REQUEST_GET && get_is_whole(get, t->from);
    char time_text[17], authorization[SIGN_AUTHORIZATION_ROOM];
    sign_header header[5];
    int n = 0;
    const int rc = provider_ready(b, now_s);
    if (rc < 0)
        return rc;
    sign_time(now_s + b->skew_s, time_text);
    header[n++] = (sign_header){"host", b->host};
    if (sums)
        header[n++] = (sign_header){"x-amz-checksum-mode", "ENABLED"};
    header[n++] = (sign_header){"x-amz-content-sha256", sign_empty_hash};
    header[n++] = (sign_header){"x-amz-date", time_text};
    provider *p = b->creds;
    pthread_mutex_lock(&p->lock);
    if (p->now->token[0])
        header[n++] = (sign_header){"x-amz-security-token", p->now->token};
    const sign_input in = {
        .method = get->request.kind == REQUEST_HEAD ? "HEAD" : "GET",
        .path = t->target,
        .query = get->request.query ? get->request.query : "",
        .region = b->region,
        .service = "s3",
        .time = time_text,
        .payload_hash = sign_empty_hash,
        .header = header,
        .headers = n,
    };
    const int signed_rc = signer_sign(p->signer, p->now, p->version, &in, authorization);
    bool fine = signed_rc == 0;
    for (int i = 1; fine && i < n; i++)
        fine = add_line(l, "%s: %s", header[i].name, header[i].value) != NULL;
    t->creds_version = p->version;
    pthread_mutex_unlock(&p->lock);
    fine = fine && add_line(l, "Authorization: %s", authorization);
    return fine ? 0 : signed_rc < 0 ? signed_rc : -ENAMETOOLONG;
}

bool transfer_is_connected(const psti_transfer *t)
{
    curl_off_t sent = 0;
    return curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &sent) == CURLE_OK && sent > 0;
}

void transfer_silence(const psti_transfer *t, char *out, size_t cap)
{
    const char *host = t->get->bucket->host;
    curl_off_t named = 0;
    if (transfer_is_connected(t))
        snprintf(out, cap, "%.100s sent less than 1 KB a second", host);
    else if (curl_easy_getinfo(t->easy, CURLINFO_NAMELOOKUP_TIME_T, &named) == CURLE_OK && named)
        snprintf(out, cap, "no connection to %.100s", host);
    else
        snprintf(out, cap, "the name %.100s is not resolved", host);
}

static void set_method(psti_transfer *t, bool head_only)
{
    if (t->head_only == head_only)
        return;
    curl_easy_setopt(t->easy, CURLOPT_NOBODY, (long)head_only);
    if (!head_only)
        curl_easy_setopt(t->easy, CURLOPT_HTTPGET, 1L);
    t->head_only = head_only;
}

int transfer_prepare(psti_transfer *t, psti_get *get, bool fresh, int64_t now_s)
{
    const psti_bucket *b = get->bucket;
    const struct psti_request *r = &get->request;
    lines l = {.t = t};
    answer_clear(&t->answer);
    t->get = get;
    t->from = get->offset + r->received;
    t->bytes = t->speed_bytes = t->head_bytes = 0;
    t->body_begun = false;
    t->detail[0] = 0;
    int rc = make_target(t, get);
    if (rc < 0)
        return rc;
    add_line(&l, "Host: %s", b->host);
    add_line(&l, "Accept:");
    add_line(&l, "Accept-Encoding: identity");
    add_conditions(&l, get);
    if (b->creds)
        rc = add_signature(&l, get, now_s);
    else if (b->s3 && r->kind == REQUEST_GET && get_is_whole(get, t->from))
        add_line(&l, "x-amz-checksum-mode: ENABLED");
    if (rc == 0 && r->query)
        rc = add_query(t, r->query);
    if (rc < 0)
        return rc;
    set_bucket(t, b);
    if (t->lost != b->lost)
        curl_easy_setopt(t->easy, CURLOPT_DNS_CACHE_TIMEOUT, b->lost ? 0L : NAMES_S);
    t->lost = b->lost;
    set_method(t, r->kind == REQUEST_HEAD);
    if (t->fresh != fresh)
        curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, (long)fresh);
    t->fresh = fresh;
    curl_easy_setopt(t->easy, CURLOPT_REQUEST_TARGET, t->target);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->line);
    return 0;
}
