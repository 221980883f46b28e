/* SPDX-License-Identifier: Apache-2.0
 * Whether an answer is what was asked for. Every check of what a server says stands here: status,
 * lengths, ranges, etags, encodings, and what its error codes mean. Called on the net thread; no
 * state but the answer's. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "net/net_priv.h"

void answer_clear(answer *a)
{
    memset(a, 0, offsetof(answer, body));
    a->length = a->first = a->last = a->total = UINT64_MAX;
    a->body_len = 0;
}

void answer_say(answer *a, verdict v, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(a->reason, sizeof a->reason, fmt, args);
    va_end(args);
    a->verdict = v;
    a->code = code;
}

/* ---- lines of the head ----------------------------------------------------------------------- */

/* Digits only; behind them *end. False: none, or too large. */
static bool number(const char *at, const char *stop, uint64_t *out, const char **end)
{
    uint64_t value = 0;
    const char *p = at;
    for (; p < stop && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    *end = p;
    *out = value;
    return p > at;
}

static void take_length(answer *a, const char *at, const char *stop)
{
    uint64_t length;
    const char *end;
    if (!number(at, stop, &length, &end) || end != stop ||
        (a->length != UINT64_MAX && a->length != length))
        a->twice = true;
    else
        a->length = length;
}

/* bytes FIRST-LAST/TOTAL or bytes FIRST-LAST/STAR */
static void take_range(answer *a, const char *at, const char *stop)
{
    const char *p = at;
    uint64_t first, last, total = UINT64_MAX;
    if (stop - p < 6 || strncasecmp(p, "bytes ", 6) != 0 || !number(p + 6, stop, &first, &p) ||
        p == stop || *p != '-' || !number(p + 1, stop, &last, &p) || p == stop || *p != '/')
        return;
    p++;
    if (!(stop - p == 1 && *p == '*') && (!number(p, stop, &total, &p) || p != stop))
        return;
    if (last < first || (total != UINT64_MAX && last >= total))
        return;
    a->ranged = true;
    a->first = first;
    a->last = last;
    a->total = total;
}

static void take_text(char *out, size_t room, const char *at, const char *stop)
{
    const size_t len = (size_t)(stop - at);
    out[0] = 0;
    if (len >= room)
        return;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)at[i] < 0x20 || (unsigned char)at[i] >= 0x7f)
            return;
    memcpy(out, at, len);
    out[len] = 0;
}

static bool text_is(const char *at, const char *stop, const char *word)
{
    return (size_t)(stop - at) == strlen(word) && strncasecmp(at, word, strlen(word)) == 0;
}

static void take_header(answer *a, const char *name, size_t len, const char *at, const char *stop)
{
    static const char sums[] = "x-amz-checksum-";
    const char *end;
    const char *behind = name + len;
    if (text_is(name, behind, "content-length"))
        take_length(a, at, stop);
    else if (text_is(name, behind, "content-range"))
        take_range(a, at, stop);
    else if (text_is(name, behind, "etag"))
        take_text(a->etag, sizeof a->etag, at, stop);
    else if (text_is(name, behind, "content-encoding"))
        a->encoded = a->encoded || !(at == stop || text_is(at, stop, "identity") ||
                                     text_is(at, stop, "aws-chunked"));
    else if (text_is(name, behind, "transfer-encoding"))
        a->chunked = true;
    else if (text_is(name, behind, "date") && !*a->date)
        take_text(a->date, sizeof a->date, at, stop);
    else if (text_is(name, behind, "retry-after"))
        (void)number(at, stop, &a->retry_after_s, &end);
    else if (text_is(name, behind, "x-amz-bucket-region"))
        take_text(a->region, sizeof a->region, at, stop);
    else if (len > sizeof sums - 1 && strncasecmp(name, sums, sizeof sums - 1) == 0)
        sum_expect(&a->sum, name + sizeof sums - 1, len - (sizeof sums - 1), at,
                   (size_t)(stop - at));
}

void answer_line(answer *a, const char *line, size_t len)
{
    const char *stop = line + len;
    if (len > 9 && strncmp(line, "HTTP/", 5) == 0) {
        const char *space = memchr(line, ' ', len);
        uint64_t status = 0;
        const char *end;
        answer_clear(a); /* one that only announces another may have come before */
        if (space && number(space + 1, stop, &status, &end) && status < 1000)
            a->status = (int)status;
        return;
    }
    const char *colon = memchr(line, ':', len);
    if (!colon || a->judged)
        return;
    const char *at = colon + 1;
    while (at < stop && (*at == ' ' || *at == '\t'))
        at++;
    while (stop > at && (stop[-1] == ' ' || stop[-1] == '\t'))
        stop--;
    take_header(a, line, (size_t)(colon - line), at, stop);
}

/* Worked out where it is asked for: it takes longer than all else that an answer says. */
int64_t answer_time(const answer *a)
{
    return *a->date ? (int64_t)curl_getdate(a->date, NULL) : -1;
}

/* ---- is it what was asked for ---------------------------------------------------------------- */

static void bare_etag(const char **text, size_t *len)
{
    *len = strlen(*text);
    if (*len >= 2 && (*text)[0] == '"' && (*text)[*len - 1] == '"') {
        *text += 1;
        *len -= 2;
    }
}

/* Some servers leave the quotes away in listings or in answers. */
bool etag_same(const char *a, const char *b)
{
    size_t a_len, b_len;
    bare_etag(&a, &a_len);
    bare_etag(&b, &b_len);
    return a_len == b_len && memcmp(a, b, a_len) == 0;
}

bool get_is_whole(const psti_get *get, uint64_t from)
{
    return from == 0 && (get->length == UINT64_MAX || get->length == get->size);
}

const char *get_etag(const psti_get *get)
{
    if (get->etag && *get->etag)
        return get->etag;
    return get->request.received && *get->seen_etag ? get->seen_etag : NULL;
}

static bool etag_fits(answer *a, const psti_get *get)
{
    const char *wanted = get_etag(get);
    if (!wanted || etag_same(wanted, a->etag))
        return true;
    if (!*a->etag)
        answer_say(a, LIE, -EPROTO, "the server answered without the etag %s", wanted);
    else
        answer_say(a, FINAL, PST_ECHANGED, "the object was replaced: its etag was %.60s, is %.60s",
                   wanted, a->etag);
    return false;
}

/* Of the whole object, as the answer has it. With the etag asked for another size is a lie; without
 * one the object may have become another. */
static bool total_fits(answer *a, const psti_get *get, uint64_t total)
{
    if (get->size == UINT64_MAX || total == UINT64_MAX || total == get->size)
        return true;
    if (get_etag(get))
        answer_say(a, LIE, -EPROTO, "the server tells of %llu bytes, the object has %llu",
                   (unsigned long long)total, (unsigned long long)get->size);
    else
        answer_say(a, FINAL, PST_ECHANGED, "the object was replaced: it had %llu bytes, has %llu",
                   (unsigned long long)get->size, (unsigned long long)total);
    return false;
}

static void judge_whole(answer *a, const psti_get *get)
{
    if (a->status != 200) {
        answer_say(a, LIE, -EPROTO, "the server answered %d to a request for a whole object",
                   a->status);
        return;
    }
    if (get->request.kind == REQUEST_GET && !total_fits(a, get, a->length))
        return;
    const bool head = get->request.kind == REQUEST_HEAD;
    if (a->length == UINT64_MAX && !a->chunked && get->request.end == UINT64_MAX && !head)
        answer_say(a, LIE, -EPROTO, "the server does not say how long its answer is");
}

static void judge_part(answer *a, const psti_get *get, uint64_t from)
{
    const uint64_t end = get->request.end;
    if (a->status != 206) {
        answer_say(a, LIE, -EPROTO,
                   "the server answered %d to a request for bytes from %llu on: it does not know "
                   "ranges, or the request was not understood",
                   a->status, (unsigned long long)from);
        return;
    }
    if (!a->ranged) {
        answer_say(a, LIE, -EPROTO, "the server does not say which bytes it answers with");
        return;
    }
    if (!total_fits(a, get, a->total))
        return;
    if (a->total != UINT64_MAX && end != UINT64_MAX && a->total < end) {
        answer_say(a, FINAL, -ERANGE, "the object has %llu bytes, byte %llu was asked for",
                   (unsigned long long)a->total, (unsigned long long)end - 1);
        return;
    }
    const uint64_t last = end != UINT64_MAX ? end - 1 : a->total != UINT64_MAX ? a->total - 1 : 0;
    if (a->first != from || a->last != last)
        answer_say(
            a, LIE, -EPROTO, "the server answered with bytes %llu to %llu, from %llu on was asked",
            (unsigned long long)a->first, (unsigned long long)a->last, (unsigned long long)from);
    else if (a->length != UINT64_MAX && a->length != a->last - a->first + 1)
        answer_say(a, LIE, -EPROTO, "the server's Content-Length and Content-Range differ");
}

void answer_judge(answer *a, const psti_get *get, uint64_t from)
{
    if (a->status < 200)
        return; /* the real one follows */
    a->judged = true;
    a->verdict = GOOD;
    if (a->status >= 300)
        return; /* judged with its body */
    if (a->encoded) {
        answer_say(a, LIE, -EPROTO, "the server answered with a Content-Encoding, unasked");
        return;
    }
    if (a->twice) {
        answer_say(a, LIE, -EPROTO, "the server's Content-Length is none, or there are two");
        return;
    }
    if (get->request.kind == REQUEST_GET && !etag_fits(a, get))
        return;
    if (get->request.kind != REQUEST_GET || get_is_whole(get, from))
        judge_whole(a, get);
    else
        judge_part(a, get, from);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* <Code>…</Code> of S3's errors; only letters and digits are taken over. */
static void error_code(const answer *a, char *out, size_t room)
{
    const char *at = memmem(a->body, a->body_len, "<Code>", 6);
    size_t len = 0;
    out[0] = 0;
    if (!at)
        return;
    for (at += 6; at < a->body + a->body_len && len + 1 < room; at++) {
        const bool fine = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                          (*at >= '0' && *at <= '9') || *at == '.';
        if (!fine)
            break;
        out[len++] = *at;
    }
    out[len] = 0;
}

static bool is_one_of(const char *code, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(code, *list) == 0)
            return true;
    return false;
}

static int errno_of(int status)
{
    switch (status) {
    case 401:
    case 403:
        return -EACCES;
    case 404:
    case 410:
        return -ENOENT;
    case 416:
        return -ERANGE;
    case 501:
        return -ENOTSUP;
    default:
        return -EIO;
    }
}

static void judge_refusal(answer *a, const psti_get *get, const char *code)
{
    static const char *const expired[] = {"ExpiredToken", "ExpiredTokenException",
                                          "TokenRefreshRequired", "InvalidToken", NULL};
    const psti_bucket *b = get->bucket;
    const bool silent = get->request.kind == REQUEST_HEAD; /* its errors have no body */
    if (strcmp(code, "RequestTimeTooSkewed") == 0) {
        answer_say(a, SKEWED, -EACCES, "this machine's clock is wrong (HTTP %d %s)", a->status,
                   code);
        return;
    }
    const bool given = b->creds && b->creds->kind == CREDS_GIVEN; /* may have been replaced */
    if (b->creds && (is_one_of(code, expired) || silent || given)) {
        answer_say(a, EXPIRED, -EACCES, "the credentials are not accepted%s (HTTP %d%s%s)",
                   silent ? "" : " any more", a->status, *code ? " " : "", code);
        return;
    }
    const char *advice = b->creds ? "; the credentials do not allow it"
                         : b->s3  ? "; no credentials were found, so nothing was signed"
                                  : "";
    answer_say(a, FINAL, errno_of(a->status == 400 ? 403 : a->status), "HTTP %d%s%s%s", a->status,
               *code ? " " : "", code, a->status == 400 ? "" : advice);
}

static void judge_redirect(answer *a)
{
    if (*a->region)
        answer_say(a, FINAL, -EREMOTE,
                   "the bucket is in the region %s; set AWS_REGION to it (HTTP %d)", a->region,
                   a->status);
    else
        answer_say(a, FINAL, -EREMOTE,
                   "the server points elsewhere (HTTP %d), which is not followed", a->status);
}

void answer_judge_error(answer *a, const psti_get *get)
{
    static const char *const later[] = {"RequestTimeout", "InternalError", "ServiceUnavailable",
                                        NULL};
    static const char *const quiet[] = {
        "SlowDown",        "Throttling", "ThrottlingException", "RequestLimitExceeded",
        "TooManyRequests", NULL};
    char code[48];
    error_code(a, code, sizeof code);
    const char *gap = *code ? " " : "";
    if (a->status == 429 || is_one_of(code, quiet))
        answer_say(a, THROTTLED, -EBUSY, "the server asks for fewer requests (HTTP %d%s%s)",
                   a->status, gap, code);
    else if (a->status == 408 || (a->status >= 500 && a->status != 501 && a->status != 505) ||
             is_one_of(code, later))
        answer_say(a, AGAIN, -EIO, "the server failed (HTTP %d%s%s)", a->status, gap, code);
    else if (a->status == 412)
        answer_say(a, FINAL, PST_ECHANGED, "the object was replaced: its etag was %.60s%s%.60s",
                   get_etag(get) ? get_etag(get) : "another", *a->etag ? ", is " : "", a->etag);
    else if (a->status == 416 && (get->size != UINT64_MAX || get_etag(get)))
        answer_say(a, FINAL, PST_ECHANGED,
                   "the object was replaced: it has become shorter (HTTP 416)");
    else if (a->status < 400)
        judge_redirect(a);
    else if (a->status == 400 || a->status == 401 || a->status == 403)
        judge_refusal(a, get, code);
    else if (a->status == 404)
        answer_say(a, FINAL, -ENOENT, "there is no such %s (HTTP 404%s%s)",
                   strcmp(code, "NoSuchBucket") == 0 ? "bucket" : "object", gap, code);
    else
        answer_say(a, FINAL, errno_of(a->status), "HTTP %d%s%s", a->status, gap, code);
}

void answer_judge_curl(answer *a, const psti_get *get, CURLcode code, const char *detail)
{
    const char *text = curl_easy_strerror(code);
    const char *host = get->bucket->host;
    char exact[100];
    take_text(exact, sizeof exact, detail, detail + strnlen(detail, sizeof exact - 1));
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
        answer_say(a, AGAIN, -EHOSTUNREACH, "the name %.100s cannot be resolved", host);
        break;
    case CURLE_COULDNT_CONNECT:
        answer_say(a, AGAIN, -ECONNREFUSED, "no connection to %.100s", host);
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        answer_say(a, FINAL, -EPROTO, "the certificate of %.80s is not accepted: %s", host,
                   *exact ? exact : text);
        break;
    case CURLE_SSL_CONNECT_ERROR:
        answer_say(a, AGAIN, -EPROTO, "TLS with %.80s cannot be set up: %s", host, text);
        break;
    case CURLE_OUT_OF_MEMORY:
        answer_say(a, AGAIN, -ENOMEM, "out of memory");
        break;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_HTTP2:
        answer_say(a, LIE, -EPROTO, "the answer is not HTTP: %s", text);
        break;
    case CURLE_OPERATION_TIMEDOUT:
        answer_say(a, AGAIN, -ETIMEDOUT, "%.100s did not answer in time", host);
        break;
    default:
        answer_say(a, AGAIN, -EIO, "the connection to %.80s broke: %s", host, text);
        break;
    }
}
