/* SPDX-License-Identifier: Apache-2.0
 * Gets against a server that is right, and against one that fails, cuts, lies or is slow: what
 * comes is the object or an error. */
#include <sys/wait.h>

#include "rig.h"

static uint8_t buf[OBJECT_SIZE + 64];

static int get_all(psti_bucket *b, pst_error *err)
{
    memset(buf, 0xee, sizeof buf);
    psti_get get = whole(b, buf, err);
    const int rc = psti_net_now(&get);
    if (rc == 0) {
        CHECK(memcmp(buf, object_bytes, OBJECT_SIZE) == 0);
        CHECK(strcmp(get.seen_etag, object_etag) == 0 && get.seen_size == OBJECT_SIZE);
    }
    CHECK(buf[OBJECT_SIZE] == 0xee);
    return rc;
}

/* ---- a right server -------------------------------------------------------------------------- */

static void an_object_costs_one_request_on_a_kept_connection(void)
{
    server *s = server_open(answer_right, NULL);
    psti_bucket *b = bucket_on(s->port);
    pst_error err;
    for (int i = 0; i < 50; i++)
        CHECK(get_all(b, &err) == 0);
    CHECKF(atomic_load(&s->requests) == 50, "%d requests", atomic_load(&s->requests));
    CHECKF(atomic_load(&s->connections) == 1, "%d connections", atomic_load(&s->connections));
    CHECK(strstr(s->log, "GET /data/cat%201.jpg HTTP/1.1\r\n"));
    CHECK(strstr(s->log, "If-Match: \"0123456789abcdef\"\r\n"));
    CHECK(strstr(s->log, "x-amz-checksum-mode: ENABLED\r\n"));
    CHECK(strstr(s->log, "Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"));
    CHECK(!strstr(s->log, "Range:") && !strstr(s->log, "canary"));
    psti_bucket_unref(b);
    server_close(s);
}

static void parts_are_asked_for_by_range(void)
{
    server *s = server_open(answer_right, NULL);
    psti_bucket *b = bucket_on(s->port);
    psti_get get = whole(b, buf, NULL);
    get.offset = 1000;
    get.length = 3000;
    CHECK(psti_net_now(&get) == 0 && memcmp(buf, object_bytes + 1000, 3000) == 0);
    CHECK(strstr(s->log, "Range: bytes=1000-3999\r\n") && get.seen_size == OBJECT_SIZE);
    get.offset = OBJECT_SIZE;
    get.length = 0;
    CHECK(psti_net_now(&get) == 0 && atomic_load(&s->requests) == 1);
    get.offset = OBJECT_SIZE - 10;
    get.length = 11;
    CHECK(psti_net_now(&get) == -EINVAL && atomic_load(&s->requests) == 1);
    psti_bucket_unref(b);
    server_close(s);
}

typedef struct taken {
    uint64_t at;
    bool wrong;
    uint64_t stop_at;
} taken;

static int take(psti_get *get, uint64_t at, const uint8_t *bytes, size_t count)
{
    taken *t = get->user;
    if (at != t->at || at + count > OBJECT_SIZE || memcmp(object_bytes + at, bytes, count) != 0)
        t->wrong = true;
    t->at += count;
    return t->stop_at && t->at >= t->stop_at;
}

static void a_sink_gets_every_byte_once_and_may_stop(void)
{
    server *s = server_open(answer_right, NULL);
    psti_bucket *b = bucket_on(s->port);
    taken t = {0};
    psti_get get = {
        .bucket = b, .key = "k", .size = UINT64_MAX, .length = UINT64_MAX, .sink = take};
    get.user = &t;
    CHECK(psti_net_now(&get) == 0 && t.at == OBJECT_SIZE && !t.wrong);
    CHECK(get.seen_size == OBJECT_SIZE && strcmp(get.seen_etag, object_etag) == 0);
    t = (taken){.stop_at = 1};
    CHECK(psti_net_now(&get) == -ECANCELED && t.at < OBJECT_SIZE);
    psti_bucket_unref(b);
    server_close(s);
}

static void heads_tell_size_and_etag(void)
{
    server *s = server_open(answer_right, NULL);
    psti_bucket *b = bucket_on(s->port);
    uint64_t size;
    char etag[PSTI_ETAG_ROOM];
    pst_error err;
    for (int i = 0; i < 3; i++) { /* GET and HEAD by turns: the same handles serve both */
        CHECK(psti_net_head(b, "k", &size, etag, &err) == 0);
        CHECK(size == OBJECT_SIZE && strcmp(etag, object_etag) == 0);
        CHECK(get_all(b, &err) == 0);
    }
    CHECK(strstr(s->log, "HEAD /data/k HTTP/1.1\r\n"));
    psti_bucket_unref(b);
    server_close(s);
}

/* ---- many at once ---------------------------------------------------------------------------- */

static atomic_int open_now, open_most, away_ms;

static bool answer_slowly(request *r)
{
    const int now = atomic_fetch_add(&open_now, 1) + 1;
    int most = atomic_load(&open_most);
    while (now > most && !atomic_compare_exchange_weak(&open_most, &most, now))
        ;
    hold_back(r, atomic_load(&away_ms));
    atomic_fetch_sub(&open_now, 1);
    return answer_right(r);
}

/* So many objects from a server so far away; how many were asked for at once. */
static int most_at_once(int gets, int ms)
{
    atomic_store(&away_ms, ms);
    atomic_store(&open_most, 0);
    get_many(gets, answer_slowly, NULL);
    return atomic_load(&open_most);
}

static void depth_bounds_what_is_in_flight(void)
{
    const int before = psti_net_depth(10);
    CHECK(before == 0 && psti_net_depth(-1) == 10);
    const int most = most_at_once(60, 20);
    CHECKF(most == 10, "%d at once", most);
    psti_net_depth(before);
}

static void what_is_far_away_is_asked_for_more_at_once(void)
{
    const int most = most_at_once(600, 500); /* far enough for a server that is slow by itself */
    CHECKF(most > 64 && most <= 512, "%d at once", most);
}

static bool answer_never(request *r)
{
    char byte;
    return recv(r->fd, &byte, 1, 0) > 0;
}

static void what_is_cancelled_ends_soon(void)
{
    server *s = server_open(answer_never, NULL);
    psti_bucket *b = bucket_on(s->port);
    const int before = psti_net_depth(1);
    wait_done wait[2] = {0};
    psti_get get[2]; /* one runs, one waits for its turn */
    for (int i = 0; i < 2; i++) {
        get[i] = whole(b, buf, NULL);
        get[i].done = mark_done;
        get[i].user = &wait[i];
        psti_net_submit(&get[i]);
    }
    server_wait(s, 1);
    const uint64_t begin = psti_now_ns();
    psti_net_cancel(&get[1]);
    wait_for(&wait[1]);
    psti_net_cancel(&get[0]);
    wait_for(&wait[0]);
    CHECK(wait[0].status == -ECANCELED && wait[1].status == -ECANCELED);
    CHECK(psti_now_ns() - begin < RETRY_S && atomic_load(&s->requests) == 1);
    psti_net_depth(before);
    psti_bucket_unref(b);
    server_close(s);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

enum { CUT_FIN, CUT_RST, CUT_CHUNKED, CUT_NO_LENGTH, CUTS };

typedef struct cut_plan {
    atomic_int how;
    atomic_size_t at;
} cut_plan;

static bool answer_cut(request *r)
{
    const cut_plan *plan = r->server->user;
    size_t first, last;
    const bool ranged = range_of(r, &first, &last);
    if (ranged) /* what is left comes whole */
        return answer_right(r);
    if (plan->how == CUT_CHUNKED)
        send_text(r, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: %s\r\n\r\n%x\r\n",
                  object_etag, OBJECT_SIZE);
    else if (plan->how == CUT_NO_LENGTH)
        send_text(r, "HTTP/1.1 200 OK\r\nConnection: close\r\nETag: %s\r\n\r\n", object_etag);
    else
        send_head(r, "");
    send_bytes(r, object_bytes, plan->at);
    if (plan->how == CUT_RST) {
        const struct linger now = {.l_onoff = 1};
        hold_back(r, 2); /* a reset overtakes what is on its way */
        setsockopt(r->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    return false;
}

static void cut_objects_are_gone_on_with(void)
{
    static const size_t places[] = {0, 1, 17, 16384, 50000, OBJECT_SIZE - 1};
    cut_plan plan = {0};
    server *s = server_open(answer_cut, &plan);
    psti_bucket *b = bucket_on(s->port);
    pst_error err;
    for (plan.how = 0; plan.how < CUTS; plan.how++)
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            plan.at = places[i];
            if (plan.at == 0)
                continue; /* nothing came: a plain retry, which is cut again */
            const int before = atomic_load(&s->requests);
            const int rc = get_all(b, &err);
            CHECKF(rc == 0, "%d at %zu: %s", plan.how, places[i], err.message);
            CHECK(atomic_load(&s->requests) == before + 2);
            taken t = {0};
            psti_get get = whole(b, NULL, &err);
            get.sink = take;
            get.user = &t;
            CHECK(psti_net_now(&get) == 0 && t.at == OBJECT_SIZE && !t.wrong);
        }
    CHECK(strstr(s->log, "Range: bytes=50000-109999\r\n"));
    psti_bucket_unref(b);
    server_close(s);
}

static bool answer_replaced(request *r)
{
    size_t first, last;
    if (!range_of(r, &first, &last)) {
        send_head(r, "");
        send_bytes(r, object_bytes, 40000);
        return false;
    }
    return send_text(r,
                     "HTTP/1.1 206 Partial Content\r\nContent-Length: %zu\r\n"
                     "ETag: \"another\"\r\nContent-Range: bytes %zu-%zu/%d\r\n\r\n",
                     last - first + 1, first, last, OBJECT_SIZE) &&
           send_bytes(r, object_bytes, last - first + 1);
}

static void an_object_that_is_replaced_midway_is_never_mixed(void)
{
    server *s = server_open(answer_replaced, NULL);
    psti_bucket *b = bucket_on(s->port);
    pst_error err;
    CHECK(get_all(b, &err) == PST_ECHANGED);
    CHECK(strstr(err.message, "0123456789abcdef") && strstr(err.message, "another"));
    CHECK(strstr(err.key, "s3://data/cat 1.jpg"));
    taken t = {0};
    psti_get get = {
        .bucket = b, .key = "k", .size = UINT64_MAX, .length = UINT64_MAX, .sink = take};
    get.user = &t; /* without an etag at first, the first answer's holds */
    CHECK(psti_net_now(&get) == PST_ECHANGED && t.at == 40000);
    psti_bucket_unref(b);
    server_close(s);
}

static bool answer_412(request *r)
{
    if (strcmp(r->method, "HEAD") == 0)
        return send_text(r, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"newer\"\r\n\r\n");
    return send_text(r, "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n");
}

static void a_replaced_object_is_named_with_both_etags(void)
{
    server *s = server_open(answer_412, NULL);
    psti_bucket *b = bucket_on(s->port);
    pst_error err;
    CHECK(get_all(b, &err) == PST_ECHANGED);
    CHECKF(strstr(err.message, "0123456789abcdef") && strstr(err.message, "newer"), "%s",
           err.message);
    CHECK(atomic_load(&s->requests) == 2);
    psti_bucket_unref(b);
    server_close(s);
}

/* ---- lies ------------------------------------------------------------------------------------ */

static const struct lie {
    const char *name, *head; /* %s is the etag */
    size_t body;
    bool part; /* a part is asked for: bytes 1000 to 1999 */
    int code;
} lies[] = {
    {"length too small", "200 OK\r\nContent-Length: 109999\r\nETag: %s", 109999, false, -EPROTO},
    {"length too large", "200 OK\r\nContent-Length: 110001\r\nETag: %s", 110001, false, -EPROTO},
    {"two lengths", "200 OK\r\nContent-Length: 110000\r\nContent-Length: 5\r\nETag: %s", 110000,
     false, -EPROTO},
    {"more than the length, chunked",
     "200 OK\r\nTransfer-Encoding: chunked\r\nETag: %s\r\n\r\n1adb1", 110001, false, -EPROTO},
    {"gzip unasked", "200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 110000\r\nETag: %s",
     110000, false, -EPROTO},
    {"no etag", "200 OK\r\nContent-Length: 110000\r\nX-%s: 1", 110000, false, -EPROTO},
    {"206 to a whole object",
     "206 Partial Content\r\nContent-Length: 110000\r\nContent-Range: bytes "
     "0-109999/110000\r\nETag: %s",
     110000, false, -EPROTO},
    {"200 to a range", "200 OK\r\nContent-Length: 110000\r\nETag: %s", 110000, true, -EPROTO},
    {"no range", "206 Partial Content\r\nContent-Length: 1000\r\nETag: %s", 1000, true, -EPROTO},
    {"another range",
     "206 Partial Content\r\nContent-Length: 1000\r\nContent-Range: bytes "
     "1001-2000/110000\r\nETag: %s",
     1000, true, -EPROTO},
    {"a shorter range",
     "206 Partial Content\r\nContent-Length: 999\r\nContent-Range: bytes 1000-1998/110000\r\nETag: "
     "%s",
     999, true, -EPROTO},
    {"another total",
     "206 Partial Content\r\nContent-Length: 1000\r\nContent-Range: bytes "
     "1000-1999/110001\r\nETag: %s",
     1000, true, -EPROTO},
    {"range and length differ",
     "206 Partial Content\r\nContent-Length: 999\r\nContent-Range: bytes 1000-1999/110000\r\nETag: "
     "%s",
     999, true, -EPROTO},
    {"a head without end", "200 OK\r\nX-Filler: %s", 0, false, -EPROTO},
    {"not HTTP", "garbage %s", 100, false, -EPROTO},
};

static bool answer_lie(request *r)
{
    const struct lie *lie = r->server->user;
    static const uint8_t more[2 * OBJECT_SIZE];
    char head[512];
    snprintf(head, sizeof head, lie->head, object_etag);
    const bool http = strcmp(lie->name, "not HTTP") != 0;
    if (!lie->body) {
        bool on = send_text(r, "HTTP/1.1 %s\r\n", head);
        for (int i = 0; on && i < 4000; i++)
            on = send_text(r, "X-More: %0100d\r\n", i);
        return false;
    }
    send_text(r, "%s%s\r\n%s", http ? "HTTP/1.1 " : "", head,
              strstr(head, "\r\n\r\n") ? "" : "\r\n");
    send_bytes(r, more, lie->body);
    return true;
}

static void every_lie_is_found_out(void)
{
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        server *s = server_open(answer_lie, (void *)&lies[i]);
        psti_bucket *b = bucket_on(s->port);
        pst_error err = {0};
        psti_get get = whole(b, buf, &err);
        if (lies[i].part) {
            get.offset = 1000;
            get.length = 1000;
        }
        const int rc = psti_net_now(&get);
        CHECKF(rc == lies[i].code, "%s: %d %s", lies[i].name, rc, err.message);
        CHECKF(atomic_load(&s->requests) <= 6, "%s: %d requests", lies[i].name,
               atomic_load(&s->requests));
        CHECK(*err.message && strstr(err.key, "cat 1.jpg"));
        psti_bucket_unref(b);
        server_close(s);
    }
}

static bool answer_with_tail(request *r)
{
    return answer_right(r) && send_text(r, "and more than was said");
}

static void bytes_behind_an_answer_harm_nothing(void)
{
    server *s = server_open(answer_with_tail, NULL);
    psti_bucket *b = bucket_on(s->port);
    pst_error err;
    for (int i = 0; i < 10; i++)
        CHECK(get_all(b, &err) == 0);
    psti_bucket_unref(b);
    server_close(s);
}

static bool answer_other_size(request *r)
{
    return send_text(r, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
}

static void another_size_without_an_etag_is_another_object(void)
{
    server *s = server_open(answer_other_size, NULL);
    psti_bucket *b = bucket_on(s->port);
    pst_error err;
    psti_get get = whole(b, buf, &err);
    get.etag = NULL;
    CHECK(psti_net_now(&get) == PST_ECHANGED && strstr(err.message, "110000"));
    psti_bucket_unref(b);
    server_close(s);
}

/* ---- checksums ------------------------------------------------------------------------------- */

/* The header with the checksum of the object. */
static const char *checksum_line(char more[80])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint32_t crc = pst_crc32c(0, object_bytes, OBJECT_SIZE);
    char text[9] = "";
    const uint64_t bits = (uint64_t)crc << 4;
    for (int i = 0; i < 6; i++)
        text[i] = digits[bits >> (30 - 6 * i) & 63];
    snprintf(more, 80, "x-amz-checksum-crc32c: %s==\r\n", text);
    return more;
}

static bool answer_flipped(request *r)
{
    const int good_from = *(const int *)r->server->user;
    char more[80];
    uint8_t flipped = object_bytes[77777] ^ (r->number < good_from ? 4 : 0);
    return send_head(r, checksum_line(more)) && send_bytes(r, object_bytes, 77777) &&
           send_bytes(r, &flipped, 1) && send_bytes(r, object_bytes + 77778, OBJECT_SIZE - 77778);
}

static void a_flipped_bit_is_found_where_there_is_a_checksum(void)
{
    int good_from = 1;
    server *s = server_open(answer_flipped, &good_from);
    psti_bucket *b = bucket_on(s->port);
    pst_error err;
    CHECK(get_all(b, &err) == 0 && atomic_load(&s->requests) == 2);
    good_from = 1000;
    CHECK(get_all(b, &err) == PST_ECORRUPT && strstr(err.message, "checksum"));
    CHECK(atomic_load(&s->requests) == 5);
    psti_bucket_unref(b);
    server_close(s);
}

/* A flipped bit in the first half, which is cut off; the rest comes by range, without a checksum.
 */
static bool answer_flipped_and_cut(request *r)
{
    size_t first, last;
    char more[80];
    if (range_of(r, &first, &last))
        return answer_right(r);
    const uint8_t flipped = object_bytes[0] ^ 1;
    send_head(r, checksum_line(more));
    send_bytes(r, &flipped, 1);
    send_bytes(r, object_bytes + 1, 50000);
    return false;
}

static void a_checksum_holds_over_a_cut(void)
{
    server *s = server_open(answer_flipped_and_cut, NULL);
    psti_bucket *b = bucket_on(s->port);
    pst_error err = {0};
    CHECK(get_all(b, &err) == PST_ECORRUPT && strstr(err.message, "checksum"));
    psti_bucket_unref(b);
    server_close(s);
}

/* ---- errors ---------------------------------------------------------------------------------- */

typedef struct failing {
    int status;
    const char *code;
    int times;
    uint64_t at_ns[64];
} failing;

static bool answer_failing(request *r)
{
    failing *f = r->server->user;
    char body[200];
    if (r->number < 64)
        f->at_ns[r->number] = psti_now_ns();
    if (r->number >= f->times)
        return answer_right(r);
    snprintf(body, sizeof body, "<?xml version=\"1.0\"?><Error><Code>%s</Code></Error>", f->code);
    return send_text(r, "HTTP/1.1 %d Failed\r\nContent-Length: %zu\r\n\r\n%s", f->status,
                     strlen(body), body);
}

static int get_failing(failing *f, pst_error *err, int *requests)
{
    server *s = server_open(answer_failing, f);
    psti_bucket *b = bucket_on(s->port);
    const int rc = get_all(b, err);
    *requests = atomic_load(&s->requests);
    psti_bucket_unref(b);
    server_close(s);
    return rc;
}

static void failures_of_the_server_are_tried_again(void)
{
    pst_error err;
    int requests;
    for (int status = 500; status <= 504; status += status == 500 ? 2 : 1) {
        failing f = {.status = status, .code = "InternalError", .times = 3};
        CHECK(get_failing(&f, &err, &requests) == 0 && requests == 4);
    }
    failing f = {.status = 500, .code = "InternalError", .times = 1000};
    const uint64_t begin = psti_now_ns();
    CHECK(get_failing(&f, &err, &requests) == -EIO);
    CHECKF(requests == RETRY_ATTEMPTS && strstr(err.message, "HTTP 500 InternalError"), "%d: %s",
           requests, err.message);
    CHECK(psti_now_ns() - begin < 30 * RETRY_S);
}

static void refusals_are_not_tried_again(void)
{
    static const struct {
        int status;
        const char *code;
        int rc;
    } finals[] = {{404, "NoSuchKey", -ENOENT},      {403, "AccessDenied", -EACCES},
                  {400, "InvalidRequest", -EACCES}, {301, "PermanentRedirect", -EREMOTE},
                  {302, "Found", -EREMOTE},         {416, "InvalidRange", PST_ECHANGED},
                  {405, "MethodNotAllowed", -EIO},  {501, "NotImplemented", -ENOTSUP}};
    for (size_t i = 0; i < sizeof finals / sizeof *finals; i++) {
        failing f = {.status = finals[i].status, .code = finals[i].code, .times = 1000};
        pst_error err = {0};
        int requests;
        const int rc = get_failing(&f, &err, &requests);
        CHECKF(rc == finals[i].rc && requests == 1, "%d: %d, %d requests, %s", f.status, rc,
               requests, err.message);
    }
}

static void throttling_is_given_time(void)
{
    failing f = {.status = 503, .code = "SlowDown", .times = 1};
    pst_error err;
    int requests;
    psti_net_stats before, after;
    psti_net_stats_get(&before);
    CHECK(get_failing(&f, &err, &requests) == 0 && requests == 2);
    psti_net_stats_get(&after);
    CHECK(after.throttled == before.throttled + 1 && after.retries == before.retries + 1);
}

static void a_dead_bucket_leaves_places_for_others(void)
{
    enum { GETS = 8 };
    failing f = {.status = 500, .code = "InternalError", .times = 1000000};
    server *dead = server_open(answer_failing, &f), *alive = server_open(answer_right, NULL);
    psti_bucket *a = bucket_on(dead->port), *b = bucket_on(alive->port);
    static psti_get get[GETS];
    static wait_done wait[GETS];
    pst_error err;
    const int before = psti_net_depth(4);
    a->gate.tokens = 0; /* nothing runs on it yet */
    a->gate.success_ns = 1;
    for (int i = 0; i < GETS; i++) {
        get[i] = whole(a, NULL, NULL);
        get[i].sink = take;
        get[i].done = mark_done;
        get[i].user = &wait[i];
        psti_net_submit(&get[i]);
    }
    server_wait(dead, 4);
    const uint64_t begin = psti_now_ns();
    CHECK(get_all(b, &err) == 0);
    CHECK(psti_now_ns() - begin < 5 * RETRY_S);
    for (int i = 0; i < GETS; i++)
        psti_net_cancel(&get[i]);
    for (int i = 0; i < GETS; i++) {
        wait_for(&wait[i]);
        CHECK(wait[i].status == -ECANCELED);
    }
    psti_net_depth(before);
    psti_bucket_unref(a);
    psti_bucket_unref(b);
    server_close(dead);
    server_close(alive);
}

static bool answer_elsewhere(request *r)
{
    const int port = *(const int *)r->server->user;
    return send_text(r,
                     "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:%d/x\r\n"
                     "Content-Length: 0\r\n\r\n",
                     port);
}

static void redirects_are_not_followed(void)
{
    server *other = server_open(answer_right, NULL);
    server *s = server_open(answer_elsewhere, &other->port);
    psti_bucket *b = bucket_on(s->port);
    pst_error err;
    CHECK(get_all(b, &err) == -EREMOTE && strstr(err.message, "not followed"));
    CHECK(atomic_load(&other->connections) == 0 && atomic_load(&s->requests) == 1);
    psti_bucket_unref(b);
    server_close(s);
    server_close(other);
}

static void nobody_there_is_an_error_in_the_end(void)
{
    server *s = server_open(answer_right, NULL);
    const int port = s->port;
    server_close(s);
    psti_bucket *b = bucket_on(port);
    pst_error err;
    const uint64_t begin = psti_now_ns();
    CHECK(get_all(b, &err) == -ECONNREFUSED);
    CHECKF(strstr(err.message, "127.0.0.1") && strstr(err.message, "10 attempts"), "%s",
           err.message);
    CHECK(psti_now_ns() - begin < 30 * RETRY_S);
    psti_bucket_unref(b);
}

/* ---- slowness -------------------------------------------------------------------------------- */

static bool answer_first_never(request *r)
{
    return r->number == 0 ? answer_never(r) : answer_right(r);
}

static bool answer_first_head_only(request *r)
{
    if (r->number)
        return answer_right(r);
    send_head(r, "");
    return answer_never(r);
}

static void a_request_without_an_answer_is_raced(void)
{
    bool (*const answers[])(request *) = {answer_first_never, answer_first_head_only};
    for (int i = 0; i < 2; i++) {
        server *s = server_open(answers[i], NULL);
        psti_bucket *b = bucket_on(s->port);
        pst_error err;
        psti_net_stats before, after;
        psti_net_stats_get(&before);
        const uint64_t begin = psti_now_ns();
        CHECK(get_all(b, &err) == 0);
        const double took = (double)(psti_now_ns() - begin) / 1e9;
        psti_net_stats_get(&after);
        CHECKF(took > 1.9 && took < 3.5, "%.2f s", took);
        CHECK(after.hedges == before.hedges + 1 && atomic_load(&s->connections) == 2);
        psti_bucket_unref(b);
        server_close(s);
    }
}

static void a_request_that_stands_in_a_queue_is_not_raced(void)
{
    CHECK(asked_again_in_a_queue(90, 50) == 0); /* the last ones in flight wait for 3.2 s */
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void a_forked_child_asks_for_itself(void)
{
    server *s = server_open(answer_right, NULL);
    psti_bucket *b = bucket_on(s->port);
    pst_error err;
    CHECK(get_all(b, &err) == 0);
#if defined(__SANITIZE_THREAD__)
    psti_bucket_unref(b); /* which does not follow threads over a fork */
    server_close(s);
    return;
#endif
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 5; i++)
            if (get_all(b, &err) != 0)
                _exit(1);
        _exit(check_in_behaviour ? 2 : 0);
    }
    for (int i = 0; i < 5; i++)
        CHECK(get_all(b, &err) == 0);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(get_all(b, &err) == 0);
    CHECKF(atomic_load(&s->connections) == 2, "%d connections", atomic_load(&s->connections));
    psti_bucket_unref(b);
    server_close(s);
}

int main(void)
{
    rig_begin();
    RUN(an_object_costs_one_request_on_a_kept_connection);
    RUN(parts_are_asked_for_by_range);
    RUN(a_sink_gets_every_byte_once_and_may_stop);
    RUN(heads_tell_size_and_etag);
    RUN(depth_bounds_what_is_in_flight);
    RUN(what_is_far_away_is_asked_for_more_at_once);
    RUN(what_is_cancelled_ends_soon);
    RUN(cut_objects_are_gone_on_with);
    RUN(an_object_that_is_replaced_midway_is_never_mixed);
    RUN(a_replaced_object_is_named_with_both_etags);
    RUN(every_lie_is_found_out);
    RUN(bytes_behind_an_answer_harm_nothing);
    RUN(another_size_without_an_etag_is_another_object);
    RUN(a_flipped_bit_is_found_where_there_is_a_checksum);
    RUN(a_checksum_holds_over_a_cut);
    RUN(failures_of_the_server_are_tried_again);
    RUN(refusals_are_not_tried_again);
    RUN(throttling_is_given_time);
    RUN(a_dead_bucket_leaves_places_for_others);
    RUN(redirects_are_not_followed);
    RUN(nobody_there_is_an_error_in_the_end);
    RUN(a_request_without_an_answer_is_raced);
    RUN(a_request_that_stands_in_a_queue_is_not_raced);
    RUN(a_forked_child_asks_for_itself);
    return check_report();
}
