/* SPDX-License-Identifier: Apache-2.0
 * What the tests against a server share: an object whose bytes are known, answers as a right server
 * gives them, and buckets that point to it. */
#ifndef PSTI_TESTS_NET_RIG_H
#define PSTI_TESTS_NET_RIG_H

#include "check.h"
#include "core/clock.h"
#include "core/futex.h"
#include "core/hash.h"
#include "core/memory.h"
#include "net/net_priv.h"
#include "server.h"

enum { OBJECT_SIZE = 110000 };
static const char object_etag[] = "\"0123456789abcdef\"";
static uint8_t object_bytes[OBJECT_SIZE];

static inline void rig_begin(void)
{
    static bool made;
    for (size_t i = 0; i < OBJECT_SIZE && !made; i++)
        object_bytes[i] = (uint8_t)psti_mix64(i / 3 + 7);
    made = true;
    setenv("HOME", "/nonexistent", 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "canary-of-the-secret", 1);
    unsetenv("AWS_SESSION_TOKEN");
    unsetenv("AWS_PROFILE");
    unsetenv("AWS_ENDPOINT_URL_S3");
}

static inline psti_bucket *bucket_on(int port)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    psti_bucket *b = NULL;
    char *rest = NULL;
    pst_error err = {0};
    const int rc = psti_bucket_open("s3://data/some/prefix", &b, &rest, &err);
    CHECKF(rc == 0 && strcmp(rest, "some/prefix") == 0, "%s", err.message);
    psti_free(rest);
    return b;
}

/* first and last of the request's Range; false where it has none. */
static inline bool range_of(const request *r, size_t *first, size_t *last)
{
    char text[64];
    *first = 0;
    *last = OBJECT_SIZE - 1;
    return sscanf(header_of(r, "range", text, sizeof text), "bytes=%zu-%zu", first, last) >= 1;
}

static inline bool send_head(const request *r, const char *more)
{
    size_t first, last;
    if (!range_of(r, &first, &last))
        return send_text(r, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: %s\r\n%s\r\n",
                         OBJECT_SIZE, object_etag, more);
    return send_text(r,
                     "HTTP/1.1 206 Partial Content\r\nContent-Length: %zu\r\nETag: %s\r\n"
                     "Content-Range: bytes %zu-%zu/%d\r\n%s\r\n",
                     last - first + 1, object_etag, first, last, OBJECT_SIZE, more);
}

/* As a right server answers. */
static inline bool answer_right(request *r)
{
    size_t first, last;
    range_of(r, &first, &last);
    return send_head(r, "") && (strcmp(r->method, "HEAD") == 0 ||
                                send_bytes(r, object_bytes + first, last - first + 1));
}

typedef struct wait_done {
    atomic_uint done;
    int status;
} wait_done;

static inline void mark_done(psti_get *get, int status)
{
    wait_done *w = get->user;
    w->status = status;
    atomic_store(&w->done, 1);
    psti_futex_wake_all(&w->done);
}

static inline void wait_for(wait_done *w)
{
    while (!atomic_load(&w->done))
        psti_futex_wait(&w->done, 0, NULL);
}

static inline psti_get whole(psti_bucket *b, uint8_t *buf, pst_error *err)
{
    return (psti_get){.bucket = b,
                      .key = "cat 1.jpg",
                      .etag = object_etag,
                      .size = OBJECT_SIZE,
                      .length = OBJECT_SIZE,
                      .buf = buf,
                      .err = err};
}

/* So many objects at once from a server that answers like this. */
static inline void get_many(int gets, bool (*answers)(request *), void *user)
{
    server *s = server_open(answers, user);
    psti_bucket *b = bucket_on(s->port);
    psti_get *get = calloc((size_t)gets, sizeof *get);
    wait_done *wait = calloc((size_t)gets, sizeof *wait);
    uint8_t *room = malloc((size_t)gets * OBJECT_SIZE);
    for (int i = 0; i < gets; i++) {
        get[i] = whole(b, room + (size_t)i * OBJECT_SIZE, NULL);
        get[i].done = mark_done;
        get[i].user = &wait[i];
        psti_net_submit(&get[i]);
    }
    for (int i = 0; i < gets; i++) {
        wait_for(&wait[i]);
        CHECK(wait[i].status == 0 && memcmp(get[i].buf, object_bytes, OBJECT_SIZE) == 0);
    }
    free(room);
    free(wait);
    free(get);
    psti_bucket_unref(b);
    server_close(s);
}

/* One after the other, each as many milliseconds as the server's user says. */
static inline bool answer_in_turn(request *r)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t free_ns;
    const int *each_ms = r->server->user;
    pthread_mutex_lock(&lock);
    const uint64_t now_ns = psti_now_ns();
    free_ns = (free_ns > now_ns ? free_ns : now_ns) + (uint64_t)*each_ms * 1000000;
    const int wait_ms = (int)((free_ns - now_ns) / 1000000);
    pthread_mutex_unlock(&lock);
    hold_back(r, wait_ms);
    return answer_right(r);
}

/* Requests beyond one for each of so many objects. */
static inline int asked_again_in_a_queue(int gets, int each_ms)
{
    psti_net_stats before, after;
    psti_net_stats_get(&before);
    get_many(gets, answer_in_turn, &each_ms);
    psti_net_stats_get(&after);
    return (int)(after.requests - before.requests) - gets;
}

#endif
