/* SPDX-License-Identifier: Apache-2.0
 * What takes its time: an outage under load, a trickle, hundreds of cuts, a queue. */
#include "rig.h"

enum { SMALL = 1000 };

/* ---- an outage ------------------------------------------------------------------------------- */

typedef struct weather {
    atomic_bool down;
    atomic_int served, refused;
} weather;

static bool answer_small(request *r)
{
    weather *w = r->server->user;
    if (atomic_load(&w->down)) {
        atomic_fetch_add(&w->refused, 1);
        return send_text(r, "HTTP/1.1 500 Down\r\nContent-Length: 0\r\n\r\n");
    }
    hold_back(r, 20);
    atomic_fetch_add(&w->served, 1);
    return send_text(r, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: %s\r\n\r\n", SMALL,
                     object_etag) &&
           send_bytes(r, object_bytes, SMALL);
}

static atomic_int stop, failed;
static atomic_uint going;

static void go_on(psti_get *get, int status)
{
    if (status < 0)
        atomic_fetch_add(&failed, 1);
    if (!atomic_load(&stop)) {
        psti_net_submit(get);
        return;
    }
    atomic_fetch_sub(&going, 1);
    psti_futex_wake_all(&going);
}

/* Time goes by, as long as the test says. */
static void let_pass(double seconds)
{
    static atomic_uint never;
    const struct timespec end = psti_timespec_ns(psti_now_ns() + (uint64_t)(seconds * 1e9));
    struct timespec now;
    do {
        psti_futex_wait(&never, 0, &end);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

static int during(atomic_int *count, double seconds)
{
    const int before = atomic_load(count);
    let_pass(seconds);
    return atomic_load(count) - before;
}

static void an_outage_is_outlasted_quietly(void)
{
    enum { GETS = 16 };
    static psti_get get[GETS];
    static uint8_t room[GETS][SMALL];
    weather w = {0};
    server *s = server_open(answer_small, &w);
    psti_bucket *b = bucket_on(s->port);
    for (int i = 0; i < GETS; i++) {
        get[i] = (psti_get){.bucket = b, .key = "k", .etag = object_etag, .size = SMALL};
        get[i].length = SMALL;
        get[i].buf = room[i];
        get[i].done = go_on;
        atomic_fetch_add(&going, 1);
        psti_net_submit(&get[i]);
    }
    let_pass(2);
    const double rate = during(&w.served, 4) / 4.0;
    atomic_store(&w.down, true);
    let_pass(3); /* the tokens are spent */
    const double outage = during(&w.refused, 15) / 15.0;
    CHECKF(outage <= 0.1 * rate, "%.1f a second in the outage, %.1f before", outage, rate);
    CHECKF(outage >= 1, "%.1f a second in the outage", outage);
    atomic_store(&w.down, false);
    const uint64_t begin = psti_now_ns();
    const int seen = atomic_load(&w.served);
    while (atomic_load(&w.served) < seen + 3 && psti_now_ns() - begin < 20 * RETRY_S)
        let_pass(0.02);
    const double recovery = (double)(psti_now_ns() - begin) / 1e9;
    const double first = during(&w.served, 1);
    CHECKF(recovery <= 5, "back after %.1f s", recovery);
    CHECKF(first <= 1.5 * rate, "%.0f in the first second, %.0f usually", first, rate);
    let_pass(3);
    const double after = during(&w.served, 2) / 2.0;
    CHECKF(after >= 0.8 * rate, "%.1f a second afterwards, %.1f before", after, rate);
    CHECKF(atomic_load(&failed) == 0, "%d gets failed", atomic_load(&failed));
    printf("     %.0f a second; outage %.1f; back after %.2f s; first second %.0f; then %.0f\n",
           rate, outage, recovery, first, after);
    atomic_store(&stop, 1);
    unsigned left;
    while ((left = atomic_load(&going)))
        psti_futex_wait(&going, left, NULL);
    psti_bucket_unref(b);
    server_close(s);
}

/* ---- a trickle ------------------------------------------------------------------------------- */

static bool answer_trickle(request *r)
{
    if (r->number)
        return answer_right(r);
    send_head(r, "");
    for (size_t i = 0; i < OBJECT_SIZE; i++) {
        if (!send_bytes(r, object_bytes + i, 1))
            return false;
        hold_back(r, 50);
    }
    return true;
}

static void a_trickle_is_given_up_and_gone_on_with(void)
{
    static uint8_t buf[OBJECT_SIZE];
    server *s = server_open(answer_trickle, NULL);
    psti_bucket *b = bucket_on(s->port);
    pst_error err = {0};
    psti_get get = whole(b, buf, &err);
    const uint64_t begin = psti_now_ns();
    CHECKF(psti_net_now(&get) == 0, "%s", err.message);
    const double took = (double)(psti_now_ns() - begin) / 1e9;
    CHECK(memcmp(buf, object_bytes, OBJECT_SIZE) == 0);
    CHECKF(took >= 9.5 && took < 13, "%.1f s", took);
    CHECK(strstr(s->log, "Range: bytes=") && atomic_load(&s->requests) == 2);
    psti_bucket_unref(b);
    server_close(s);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static bool answer_cut(request *r)
{
    size_t first, last;
    range_of(r, &first, &last);
    const uint64_t draw = psti_mix64((uint64_t)r->number * 77 + 5);
    const int how = (int)(draw & 3);
    if (how == 3) /* one in four goes through */
        return answer_right(r);
    const size_t at = (size_t)((draw >> 8) % (last - first + 1));
    send_head(r, "");
    send_bytes(r, object_bytes + first, at);
    if (how == 1) {
        const struct linger now = {.l_onoff = 1};
        hold_back(r, 1);
        setsockopt(r->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    return false;
}

static void hundreds_of_cuts_lose_nothing(void)
{
    enum { GETS = 64, ROUNDS = 5 };
    static psti_get get[GETS];
    static wait_done wait[GETS];
    static uint8_t room[GETS][OBJECT_SIZE];
    int good = 0, bad = 0, requests = 0;
    for (int round = 0; round < ROUNDS; round++) { /* a server has room for 512 connections */
        server *s = server_open(answer_cut, NULL);
        psti_bucket *b = bucket_on(s->port);
        for (int i = 0; i < GETS; i++) {
            get[i] = whole(b, room[i], NULL);
            get[i].done = mark_done;
            get[i].user = &wait[i];
            atomic_store(&wait[i].done, 0);
            memset(room[i], 0, OBJECT_SIZE);
            psti_net_submit(&get[i]);
        }
        for (int i = 0; i < GETS; i++) {
            wait_for(&wait[i]);
            good += wait[i].status == 0;
            bad += wait[i].status == 0 && memcmp(room[i], object_bytes, OBJECT_SIZE) != 0;
        }
        requests += atomic_load(&s->requests);
        psti_bucket_unref(b);
        server_close(s);
    }
    printf("     %d of %d objects whole after %d requests\n", good, GETS * ROUNDS, requests);
    CHECK(bad == 0);
    CHECKF(good >= GETS * ROUNDS * 9 / 10, "%d whole", good); /* a few run out of attempts */
    CHECK(requests > 800);
}

/* ---- a queue --------------------------------------------------------------------------------- */

/* The last ones in flight hear nothing for 22 s: longer than a transfer may stand still. */
static void a_long_queue_is_waited_out(void)
{
    CHECK(asked_again_in_a_queue(70, 350) == 0);
}

int main(void)
{
    rig_begin();
    RUN(an_outage_is_outlasted_quietly);
    RUN(a_trickle_is_given_up_and_gone_on_with);
    RUN(hundreds_of_cuts_lose_nothing);
    RUN(a_long_queue_is_waited_out);
    return check_report();
}
