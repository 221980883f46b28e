/* SPDX-License-Identifier: Apache-2.0
 * Connections to nodes, two each: one on which questions and answers go, and one for values that
 * are stored, so that no question waits behind megabytes. Requests are sent one after the other
 * without waiting for answers, as many at a time as come back quickly. All on the tier's thread. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cache/remote_priv.h"
#include "core/clock.h"
#include "core/memory.h"

static const double PRIOR_RATE = 1e9; /* bytes a second, until much was read */
enum { PIECE = 256 << 10, READS = 16, PUTS_WINDOW = 64, BURST = 4 << 20 };

/* ---- opening and closing --------------------------------------------------------------------- */

static void line_init(line *l, node *n, bool puts)
{
    l->remote = n->remote;
    l->node = n;
    l->puts = puts;
    l->window = 32;
    list_init(&l->queue);
    l->replies.user = l;
    l->replies.take = puts ? NULL : query_value;
    l->replies.most = puts ? 64 << 10 : n->remote->value_max + (64 << 10);
}

void node_init(psti_remote *r, node *n, const place *at)
{
    *n = (node){.remote = r, .at = *at};
    line_init(&n->get, n, false);
    line_init(&n->put, n, true);
}

/* What was asked through it is a miss. */
static void line_close(line *l)
{
    psti_remote *r = l->remote;
    if (l->redis)
        redisFree(l->redis);
    l->redis = NULL;
    l->state = LINE_CLOSED;
    l->blocked = false;
    l->streaming = NULL;
    while (l->first != l->next) {
        psti_remote_request *q = l->ring[l->first++ % RING].request;
        if (q)
            query_failed(r, q);
    }
    while (!list_empty(&l->queue))
        query_failed(r, LINK_OF(psti_remote_request, queued, l->queue.next));
}

static bool line_open(line *l, uint64_t now)
{
    const node *n = l->node;
    l->redis = redisConnectNonBlock(n->address, n->at.port);
    if (!l->redis || l->redis->err)
        return false;
    const int on = 1;
    fcntl(l->redis->fd, F_SETFD, FD_CLOEXEC);
    setsockopt(l->redis->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    resp_attach(l->redis->reader, &l->replies);
    l->state = LINE_CONNECTING;
    l->moved_ns = now;
    l->first = l->next = 0;
    l->half_ns = 0;
    return true;
}

/* 0: there is one, which may be an old one. -EAGAIN: it is being looked up. Names are looked up
 * only while no node answers at all. */
static int find_address(node *n)
{
    psti_remote *r = n->remote;
    bool any = false;
    for (int i = 0; i < NODES_MAX; i++)
        any |= atomic_load_explicit(&r->node_is[i], memory_order_relaxed) != NODE_DOWN;
    if (any && n->address[0])
        return 0;
    char found[HOST_ROOM];
    int rc = -ENOENT;
    if (n->lookup && lookup_done(n->lookup)) {
        rc = lookup_take(n->lookup, found);
        n->lookup = NULL;
    } else if (!n->lookup) {
        rc = host_address(&n->at, false, found);
        if (rc < 0 && n->seed && !any)
            n->lookup = lookup_start(&n->at, r->wake);
    }
    if (rc == 0)
        memcpy(n->address, found, sizeof found);
    return n->address[0] ? 0 : n->lookup ? -EAGAIN : -ENOENT;
}

void node_connect(node *n, uint64_t now)
{
    const int rc = find_address(n);
    if (rc == -EAGAIN)
        n->until_ns = now + BREAK_NS;
    else if (rc < 0)
        node_fail(n, now, "its name is not known");
    else if (!line_open(&n->get, now) || !line_open(&n->put, now))
        node_fail(n, now, "it cannot be connected to");
}

void node_fail(node *n, uint64_t now, const char *why)
{
    psti_remote *r = n->remote;
    count_one(&r->count.breaks);
    remote_node_is(r, n, NODE_DOWN);
    n->stalled = false;
    n->until_ns = now + BREAK_NS;
    r->refresh_wanted |= r->cluster;
    r->refreshing = false; /* it may have been asked here */
    remote_lost(r, n, why);
    line_close(&n->get);
    line_close(&n->put);
}

/* A server that closes connections which are idle has done nothing wrong. */
static void node_renew(node *n, uint64_t now)
{
    remote_node_is(n->remote, n, NODE_DOWN);
    n->until_ns = now + 20 * MS;
    line_close(&n->get);
    line_close(&n->put);
}

void node_drop(node *n)
{
    remote_node_is(n->remote, n, NODE_DOWN);
    line_close(&n->get);
    line_close(&n->put);
    lookup_drop(n->lookup);
    resp_fini(&n->get.replies);
    resp_fini(&n->put.replies);
    psti_free(n);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void note_sent(line *l, ask what, psti_remote_request *request)
{
    if (l->first == l->next)
        l->moved_ns = psti_now_ns();
    if (request) {
        request->line = l;
        request->number = l->next;
    }
    l->ring[l->next++ % RING] = (sent){request, (uint8_t)what};
}

void line_command(line *l, ask what, psti_remote_request *request, int count,
                  const char *const *words, const size_t *sizes)
{
    char text[512];
    size_t at = (size_t)snprintf(text, sizeof text, "*%d\r\n", count);
    for (int i = 0; i < count; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "$%zu\r\n",
                               sizes ? sizes[i] : strlen(words[i]));
        if (!words[i]) /* a value, which is sent behind this */
            break;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\r\n", words[i]);
    }
    note_sent(l, what, request);
    if (redisAppendFormattedCommand(l->redis, text, at) != REDIS_OK)
        l->redis->err = REDIS_ERR_OOM;
}

void line_forget(psti_remote_request *request)
{
    if (request->line)
        request->line->ring[request->number % RING].request = NULL;
    request->line = NULL;
}

/* A piece of the value, or what ends it. */
static void stream(line *l)
{
    psti_remote_put *put = l->streaming;
    const size_t left = put->size - l->streamed, size = left < PIECE ? left : PIECE;
    int rc = redisAppendFormattedCommand(l->redis, (const char *)put->bytes + l->streamed, size);
    l->streamed += size;
    l->remote->moved += size;
    if (l->streamed == put->size) {
        rc |= redisAppendFormattedCommand(l->redis, "\r\n", 2);
        l->streaming = NULL;
    }
    if (rc != REDIS_OK)
        l->redis->err = REDIS_ERR_OOM;
}

static bool next_request(line *l, uint64_t now)
{
    const int window = l->puts ? PUTS_WINDOW : l->window;
    if (list_empty(&l->queue) || (int)(l->next - l->first) >= window)
        return false;
    psti_remote_request *q = LINK_OF(psti_remote_request, queued, l->queue.next);
    list_remove(&q->queued);
    query_send(l, q, now);
    return true;
}

bool line_flush(line *l, uint64_t now)
{
    int done = 1;
    if (l->redis->err || redisBufferWrite(l->redis, &done) != REDIS_OK) {
        node_fail(l->node, now, "it closed the connection");
        return false;
    }
    l->blocked = !done;
    return true;
}

void line_pump(line *l, uint64_t now)
{
    if (l->state != LINE_UP || l->blocked)
        return;
    for (size_t burst = 0; burst < BURST; burst += PIECE) {
        if (l->streaming)
            stream(l);
        else if (l->puts ? !next_request(l, now) : list_empty(&l->queue))
            return;
        while (!l->puts && next_request(l, now))
            ;
        const size_t before = sdslen(l->redis->obuf);
        if (!line_flush(l, now))
            return;
        if (l->puts && (!l->blocked || sdslen(l->redis->obuf) < before))
            l->moved_ns = now;
        if (l->blocked || !l->puts)
            return;
    }
    l->blocked = true; /* the others' turn; goes on at once */
}

/* Both ends have one address: what the server does, this machine's cores do. */
static bool is_here(int fd)
{
    struct sockaddr_storage ends[2];
    char text[2][HOST_ROOM];
    socklen_t size = sizeof ends[0];
    if (getsockname(fd, (struct sockaddr *)&ends[0], &size) < 0)
        return false;
    size = sizeof ends[1];
    if (getpeername(fd, (struct sockaddr *)&ends[1], &size) < 0)
        return false;
    for (int i = 0; i < 2; i++)
        if (getnameinfo((struct sockaddr *)&ends[i], size, text[i], HOST_ROOM, NULL, 0,
                        NI_NUMERICHOST))
            return false;
    return strcmp(text[0], text[1]) == 0;
}

/* ---- the first words ------------------------------------------------------------------------- */

/* Straight from the page that holds it, into a socket that nothing was written to yet. */
static bool send_password(line *l)
{
    const psti_remote *r = l->remote;
    size_t size;
    if (!r->password)
        return true;
    const char *command = password_command(r->password, &size);
    note_sent(l, ASK_HELLO, NULL);
    if (r->url.tls)
        return redisAppendFormattedCommand(l->redis, command, size) == REDIS_OK;
    return send(l->redis->fd, command, size, MSG_NOSIGNAL) == (ssize_t)size;
}

static void hello(line *l, uint64_t now)
{
    psti_remote *r = l->remote;
    int why = 0;
    socklen_t size = sizeof why;
    if (getsockopt(l->redis->fd, SOL_SOCKET, SO_ERROR, &why, &size) < 0 || why) {
        node_fail(l->node, now, strerror(why));
        return;
    }
    l->redis->flags |= REDIS_CONNECTED;
    atomic_store_explicit(&r->here, is_here(l->redis->fd), memory_order_relaxed);
    if (r->tls && remote_tls_start(r->tls, l->redis, &l->node->at, l->node->address) < 0) {
        node_fail(l->node, now, "TLS did not begin");
        return;
    }
    l->state = LINE_HELLO;
    if (!send_password(l)) {
        node_fail(l->node, now, "it did not take the password");
        return;
    }
    if (r->url.db) {
        char db[16];
        snprintf(db, sizeof db, "%d", r->url.db);
        line_command(l, ASK_HELLO, NULL, 2, (const char *const[]){"SELECT", db}, NULL);
    }
    if (!l->puts && !r->mapped)
        line_command(l, ASK_SLOTS, NULL, 2, (const char *const[]){"CLUSTER", "SLOTS"}, NULL);
    else
        line_command(l, ASK_HELLO, NULL, 1, (const char *const[]){"PING"}, NULL);
    line_flush(l, now);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The first word of an error, which says what it is. The rest may repeat what was sent. */
static const char *first_word(const reply *answer, char out[24])
{
    size_t i = 0;
    for (; i < 23 && answer->text[i] >= 'A' && answer->text[i] <= 'Z'; i++)
        out[i] = answer->text[i];
    out[i] = 0;
    return out;
}

static void said_hello(line *l, const reply *answer, uint64_t now)
{
    char word[24], why[64];
    if (answer->type != REDIS_REPLY_ERROR)
        return;
    snprintf(why, sizeof why, "it refuses to serve (%s)", first_word(answer, word));
    node_fail(l->node, now, why);
}

static void answered(line *l, const reply *answer, uint64_t now)
{
    psti_remote *r = l->remote;
    if (l->first == l->next) {
        node_fail(l->node, now, "it answers what nobody asked");
        return;
    }
    const sent s = l->ring[l->first % RING];
    if (l->streaming && s.request == &l->streaming->request) {
        node_fail(l->node, now, "it answers what was not sent yet"); /* the rest is still needed */
        return;
    }
    l->first++;
    if (s.what == ASK_HELLO)
        said_hello(l, answer, now);
    else if (s.what == ASK_SLOTS)
        slots_taken(r, l->node, answer, now);
    else if (s.request)
        query_answered(l, &s, answer, now);
    l->took = l->fits = false;
    if (l->state == LINE_HELLO && l->first == l->next) {
        l->state = LINE_UP;
        if (!l->puts)
            remote_node_is(r, l->node, NODE_UP);
    }
}

static void answers(line *l, uint64_t now)
{
    const redisContext *redis = l->redis;
    reply *answer;
    int rc = 1;
    while (l->redis == redis && (rc = resp_next(l->redis->reader, &l->replies, &answer)) == 1)
        answered(l, answer, now);
    if (l->redis == redis && rc < 0)
        node_fail(l->node, now, "it does not speak RESP as it should");
}

static void moved(line *l, uint64_t now)
{
    node *n = l->node;
    l->moved_ns = now;
    if (n->stalled && !l->puts) {
        n->stalled = false;
        remote_node_is(n->remote, n, NODE_UP);
    }
}

/* The time that a reply's bytes take, from the first to the last of them: no request's way to the
 * server, nor what the server was busy with before it began to answer. */
static void note_bandwidth(line *l, uint64_t since, uint64_t until, size_t bytes)
{
    psti_remote *r = l->remote;
    r->busy_ns += until - (l->half_ns ? l->half_ns : since);
    r->busy_bytes += bytes;
    l->bytes_in += bytes;
    r->moved += bytes;
    const redisReader *reader = l->redis->reader;
    l->half_ns = reader->len > reader->pos ? until : 0;
    if (r->busy_ns < MS || r->busy_bytes < 1 << 20)
        return;
    const double rate = (double)r->busy_bytes / ((double)r->busy_ns * 1e-9);
    const double old = atomic_load_explicit(&r->count.bytes_per_s, memory_order_relaxed);
    const double before = old > 0 ? old : PRIOR_RATE; /* one bad moment says little */
    atomic_store_explicit(&r->count.bytes_per_s, before + (rate - before) / 16,
                          memory_order_relaxed);
    r->busy_ns = r->busy_bytes = 0;
}

/* Whatever is there, up to a piece of INTAKE; false when the connection is gone. The library would
 * read a quarter of that at a time; through TLS it has to. */
static bool take_in(line *l)
{
    psti_remote *r = l->remote;
    if (r->url.tls)
        return redisBufferRead(l->redis) == REDIS_OK;
    const ssize_t got = recv(l->redis->fd, r->intake, INTAKE, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    return got > 0 && redisReaderFeed(l->redis->reader, r->intake, (size_t)got) == REDIS_OK;
}

static void line_read(line *l, uint64_t now)
{
    const redisContext *redis = l->redis;
    for (int i = 0; i < READS && l->redis == redis; i++) {
        const size_t before = l->redis->reader->len;
        const uint64_t since = psti_now_ns();
        if (!take_in(l)) {
            if (l->state == LINE_UP && l->first == l->next && list_empty(&l->queue) &&
                now > l->node->until_ns + BREAK_NS)
                node_renew(l->node, now);
            else
                node_fail(l->node, now, "it closed the connection");
            return;
        }
        const size_t got = l->redis->reader->len - before;
        if (got == 0)
            return;
        const uint64_t until = psti_now_ns();
        moved(l, now);
        answers(l, now);
        if (l->redis == redis)
            note_bandwidth(l, since, until, got);
        if (got < INTAKE && !l->remote->url.tls)
            return;
    }
}

size_t line_buffers(const line *l)
{
    const redisContext *c = l->redis;
    return c && c->reader->buf && c->obuf ? sdsalloc(c->reader->buf) + sdsalloc(c->obuf) : 0;
}

short line_wants(const line *l)
{
    if (l->state == LINE_CLOSED)
        return 0;
    return l->state == LINE_CONNECTING ? POLLOUT : (short)(POLLIN | (l->blocked ? POLLOUT : 0));
}

void line_event(line *l, short events, uint64_t now)
{
    if (l->state == LINE_CLOSED || !events)
        return;
    if (l->state == LINE_CONNECTING) {
        hello(l, now);
        return;
    }
    if (events & POLLOUT && l->blocked) {
        const size_t before = sdslen(l->redis->obuf);
        if (!line_flush(l, now))
            return;
        if (sdslen(l->redis->obuf) < before || !l->blocked)
            l->moved_ns = now;
    }
    if (events & (POLLIN | POLLERR | POLLHUP))
        line_read(l, now);
}

/* ---- time ------------------------------------------------------------------------------------ */

static bool waits(const line *l)
{
    return l->first != l->next || l->blocked;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t node_tick(node *n, uint64_t now)
{
    if (n->get.state == LINE_CLOSED) {
        const bool named = n->lookup && !n->address[0] && lookup_done(n->lookup);
        if (now < n->until_ns && !named)
            return n->until_ns;
        node_connect(n, now);
        return n->get.state == LINE_CLOSED ? n->until_ns : now + CONNECT_NS;
    }
    if (n->get.state != LINE_UP || n->put.state != LINE_UP) {
        const uint64_t until = sooner(n->get.moved_ns, n->put.moved_ns) + CONNECT_NS;
        const bool late = (n->get.state != LINE_UP && now > n->get.moved_ns + CONNECT_NS) ||
                          (n->put.state != LINE_UP && now > n->put.moved_ns + CONNECT_NS);
        if (late)
            node_fail(n, now, "it does not answer");
        return late ? n->until_ns : until > now ? until : now + CONNECT_NS;
    }
    uint64_t next = UINT64_MAX;
    if (waits(&n->get)) {
        const uint64_t stall = n->get.moved_ns + PSTI_REMOTE_WAIT_NS;
        if (now >= stall && !n->stalled) {
            n->stalled = true;
            count_one(&n->remote->count.breaks);
            remote_node_is(n->remote, n, NODE_LATE);
        }
        next = n->stalled ? n->get.moved_ns + BREAK_NS : stall;
    }
    if (waits(&n->put))
        next = sooner(next, n->put.moved_ns + PUT_STALL_NS);
    if (next > now)
        return next;
    node_fail(n, now, "it does not answer");
    return n->until_ns;
}
