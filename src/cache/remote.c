/* SPDX-License-Identifier: Apache-2.0
 * The remote tier: the object, its thread, and what callers call. Requests come in by a list that
 * the thread is woken for; memory of values to be sent is the tier's own and used again. */
#include "cache/remote.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "cache/remote_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

enum { VALUE_MAX = 64 << 20, QUEUE_MAX = 32 << 20, ALIGN = 64 };
enum { HANDLED_ROUND = 64 << 10, HANDLED_LEAST = 1 << 20 };
static const double FIRST_HANDLED_S = 0.5e-9; /* until it is measured */
#define SETTLE_NS       (250 * MS)            /* what opening waits for the first answer */
#define FIRST_MAKING_NS (500 * MS)            /* until it is measured */

/* ---- the thread ------------------------------------------------------------------------------ */

void remote_node_is(psti_remote *r, const node *n, node_state state)
{
    for (int i = 0; i < NODES_MAX; i++)
        if (r->nodes[i] == n)
            atomic_store_explicit(&r->node_is[i], state, memory_order_relaxed);
}

void remote_no_taking(psti_remote *r)
{
    if (!atomic_exchange_explicit(&r->no_taking, true, memory_order_relaxed))
        psti_log(PSTI_LOG_WARN,
                 "remote tier %s: it refuses GETDEL or PSETEX (Redis 6.2 or newer has them, and a "
                 "user may need leave to use them); prepared samples are not shared through it",
                 r->name);
}

void remote_lost(psti_remote *r, const node *n, const char *why)
{
    if (!r->said)
        psti_log(PSTI_LOG_WARN,
                 "remote tier %s: %s:%d: %s; samples are made without it, and it is tried again "
                 "each second",
                 r->name, n->at.host, n->at.port, why);
    r->said = true;
}

/* Nodes of an older topology. */
static void sweep(psti_remote *r)
{
    for (int i = 0; r->cluster && i < NODES_MAX; i++) {
        node *n = r->nodes[i];
        if (!n || n->listed || n->seed)
            continue;
        node_drop(n);
        r->nodes[i] = NULL;
    }
}

static void settle(psti_remote *r)
{
    for (int i = 0; i < NODES_MAX; i++) {
        const node *n = r->nodes[i];
        if (n && (n->lookup || (n->get.state != LINE_CLOSED && n->get.state != LINE_UP)))
            return;
    }
    pthread_mutex_lock(&r->lock);
    r->settled_now = true;
    pthread_cond_broadcast(&r->room);
    pthread_mutex_unlock(&r->lock);
}

/* Starts what came in. Whether the tier closes. */
static bool take_incoming(psti_remote *r)
{
    link_t taken;
    list_init(&taken);
    pthread_mutex_lock(&r->lock);
    if (!list_empty(&r->incoming)) {
        taken = r->incoming;
        taken.next->prev = taken.prev->next = &taken;
        list_init(&r->incoming);
    }
    r->awake = false;
    const bool closing = r->closing;
    pthread_mutex_unlock(&r->lock);
    const uint64_t now = psti_now_ns();
    while (!list_empty(&taken)) {
        psti_remote_request *q = LINK_OF(psti_remote_request, queued, taken.next);
        list_remove(&q->queued);
        q->due_ns = now + PSTI_REMOTE_WAIT_NS; /* this thread's own delay is not the server's */
        query_start(r, q, now);
    }
    return closing;
}

/* What the clock brings; when to look again. */
static uint64_t tick(psti_remote *r)
{
    const uint64_t now = psti_now_ns();
    uint64_t next = queries_tick(r, now);
    const uint64_t renew = claims_tick(r, now);
    next = renew < next ? renew : next;
    for (int i = 0; i < NODES_MAX; i++) {
        if (!r->nodes[i])
            continue;
        const uint64_t then = node_tick(r->nodes[i], now);
        next = then < next ? then : next;
    }
    sweep(r);
    slots_ask(r, now);
    if (r->refresh_wanted && r->refreshed_ns + REFRESH_NS > now &&
        r->refreshed_ns + REFRESH_NS < next)
        next = r->refreshed_ns + REFRESH_NS;
    for (int i = 0; i < NODES_MAX; i++) {
        if (!r->nodes[i])
            continue;
        line_pump(&r->nodes[i]->get, now);
        line_pump(&r->nodes[i]->put, now);
    }
    return next;
}

/* Waits for the sockets, a call, or the clock, and reads what came. */
static void listen_until(psti_remote *r, uint64_t next)
{
    struct pollfd fds[1 + 2 * NODES_MAX];
    line *lines[1 + 2 * NODES_MAX];
    nfds_t count = 1;
    fds[0] = (struct pollfd){.fd = r->wake, .events = POLLIN};
    for (int i = 0; i < NODES_MAX; i++)
        for (int p = 0; r->nodes[i] && p < 2; p++) {
            line *l = p ? &r->nodes[i]->put : &r->nodes[i]->get;
            if (!line_wants(l))
                continue;
            lines[count] = l;
            fds[count++] = (struct pollfd){.fd = l->redis->fd, .events = line_wants(l)};
        }
    const uint64_t now = psti_now_ns();
    const struct timespec wait = psti_timespec_ns(next > now ? next - now : 0);
    if (ppoll(fds, count, next == UINT64_MAX ? NULL : &wait, NULL) < 0)
        return;
    pthread_mutex_lock(&r->lock);
    r->awake = true;
    pthread_mutex_unlock(&r->lock);
    uint64_t calls;
    if (fds[0].revents && read(r->wake, &calls, sizeof calls) < 0)
        return;
    for (nfds_t i = 1; i < count; i++) {
        line *l = lines[i];
        if (l->redis && l->redis->fd == fds[i].fd)
            line_event(l, fds[i].revents, psti_now_ns());
    }
}

static void note_buffers(psti_remote *r)
{
    size_t bytes = 0;
    for (int i = 0; i < NODES_MAX; i++)
        if (r->nodes[i])
            bytes += line_buffers(&r->nodes[i]->get) + line_buffers(&r->nodes[i]->put);
    atomic_store_explicit(&r->buffers, bytes, memory_order_relaxed);
}

/* What a byte costs the thread: of rounds that moved many, since the others cost what their
 * requests do. CPU time, so that a busy machine does not make the tier look dear. */
static void note_handling(psti_remote *r)
{
    const double now = psti_cpu_s();
    const uint64_t moved = r->moved;
    if (moved >= HANDLED_ROUND) {
        note_buffers(r);
        r->handled_s += now - r->cpu_s;
        r->handled += moved;
    }
    r->cpu_s = now;
    r->moved = 0;
    if (r->handled < HANDLED_LEAST)
        return;
    const double told = atomic_load_explicit(&r->count.handled_s, memory_order_relaxed);
    const double found = r->handled_s / (double)r->handled;
    atomic_store_explicit(&r->count.handled_s, told + (found - told) / 8, memory_order_relaxed);
    r->handled_s = 0;
    r->handled = 0;
}

static bool anything_to_send(psti_remote *r)
{
    pthread_mutex_lock(&r->lock);
    const bool some = r->waiting_bytes > 0;
    pthread_mutex_unlock(&r->lock);
    return some;
}

static void *remote_main(void *arg)
{
    psti_remote *r = arg;
    uint64_t end_ns = 0;
    for (;;) {
        const bool closing = take_incoming(r);
        uint64_t next = tick(r);
        if (!r->settled_now)
            settle(r);
        if (closing) {
            queries_cancel(r);
            end_ns = end_ns ? end_ns : psti_now_ns() + DRAIN_NS;
            next = end_ns < next ? end_ns : next;
            if (psti_now_ns() >= end_ns || !anything_to_send(r))
                break;
        }
        note_handling(r);
        listen_until(r, next);
    }
    for (int i = 0; i < NODES_MAX; i++) {
        if (r->nodes[i])
            node_drop(r->nodes[i]);
        r->nodes[i] = NULL;
    }
    return NULL;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void wake(psti_remote *r)
{
    const uint64_t one = 1;
    if (write(r->wake, &one, sizeof one) < 0)
        psti_log(PSTI_LOG_ERROR, "remote tier: %s", strerror(errno)); /* cannot be: a counter */
}

static void submit(psti_remote *r, psti_remote_request *q)
{
    pthread_mutex_lock(&r->lock);
    list_add_before(&r->incoming, &q->queued);
    const bool sleeps = !r->awake;
    r->awake = true;
    pthread_mutex_unlock(&r->lock);
    if (sleeps)
        wake(r);
}

void psti_remote_hurry(psti_remote *r)
{
    if (r->pid == getpid() && atomic_load_explicit(&r->tense, memory_order_relaxed))
        wake(r);
}

static bool slot_answers(psti_remote *r, const psti_remote_request *q)
{
    const int index = atomic_load_explicit(&r->slot_node[q->slot], memory_order_relaxed);
    return index < NODES_MAX &&
           atomic_load_explicit(&r->node_is[index], memory_order_relaxed) != NODE_DOWN;
}

bool psti_remote_answers(psti_remote *r, const psti_cache_key *key)
{
    psti_remote_request q;
    if (r->pid != getpid())
        return false;
    query_key(&q, key);
    return slot_answers(r, &q);
}

static void ask_for(psti_remote *r, psti_remote_op *op, ask what)
{
    psti_remote_request *q = &op->request;
    *q = (psti_remote_request){.what = (uint8_t)what};
    op->size = 0;
    if (r->pid != getpid()) {
        op->done(op, -EAGAIN);
        return;
    }
    query_key(q, &op->key);
    count_one(&r->count.gets);
    submit(r, q);
}

void psti_remote_get(psti_remote *r, psti_remote_op *op)
{
    ask_for(r, op, ASK_VALUE);
}

void psti_remote_take(psti_remote *r, psti_remote_op *op)
{
    op->cost_ns = 0;
    ask_for(r, op, ASK_TAKE);
}

bool psti_remote_takes(const psti_remote *r)
{
    return !atomic_load_explicit(&r->no_taking, memory_order_relaxed);
}

/* ---- storing --------------------------------------------------------------------------------- */

static void put_free(psti_remote_put *put)
{
    if (put->bytes)
        psti_pages_free(PSTI_MEM_CACHE, put->bytes, put->cap);
    psti_free(put);
}

/* Kept for the next one, as much as may wait at once. */
static void spare_locked(psti_remote *r, psti_remote_put *put)
{
    r->waiting_bytes -= put->counted;
    pthread_cond_broadcast(&r->room);
    if (r->spare_bytes + r->waiting_bytes + put->cap > 2 * r->queue_max) {
        put_free(put);
        return;
    }
    put->next = r->spare;
    r->spare = put;
    r->spare_bytes += put->cap;
}

void remote_put_done(psti_remote *r, psti_remote_put *put, bool taken)
{
    if (put->request.what == ASK_STORE) {
        count_one(taken ? &r->count.puts : &r->count.put_failures);
        if (taken)
            atomic_fetch_add_explicit(&r->count.bytes_put, put->size, memory_order_relaxed);
    }
    pthread_mutex_lock(&r->lock);
    list_remove(&put->claim.link);
    spare_locked(r, put);
    pthread_mutex_unlock(&r->lock);
}

/* A spare one of that size or more, or else any. */
static psti_remote_put *find_spare_locked(psti_remote *r, size_t size)
{
    psti_remote_put **best = NULL;
    for (psti_remote_put **at = &r->spare; *at; at = &(*at)->next)
        if (!best || ((*at)->cap >= size && ((*best)->cap < size || (*at)->cap < (*best)->cap)))
            best = at;
    if (!best)
        return NULL;
    psti_remote_put *put = *best;
    *best = put->next;
    r->spare_bytes -= put->cap;
    return put;
}

/* Memory of a value: spare pieces fit others of about its size. */
static size_t rounded(size_t size)
{
    return (size + 65535) & ~(size_t)65535;
}

static bool need(psti_remote_put *put, size_t size)
{
    if (put->cap >= size)
        return true;
    if (put->bytes)
        psti_pages_free(PSTI_MEM_CACHE, put->bytes, put->cap);
    put->cap = 0;
    put->bytes = psti_pages_alloc(PSTI_MEM_CACHE, rounded(size));
    if (put->bytes)
        put->cap = rounded(size);
    return put->bytes != NULL;
}

/* A put that is counted in. `wait`: until there is room, within limits. */
static psti_remote_put *put_take(psti_remote *r, size_t size, bool wait)
{
    const uint64_t now = psti_now_ns();
    const struct timespec until = psti_timespec_ns(now + PSTI_REMOTE_WAIT_NS);
    pthread_mutex_lock(&r->lock);
    wait = wait && now >= r->hurry_ns;
    while (wait && !r->closing && r->waiting_bytes && r->waiting_bytes + size > r->queue_max)
        if (pthread_cond_timedwait(&r->room, &r->lock, &until) != 0) {
            r->hurry_ns = now + BREAK_NS;
            break;
        }
    const bool full = r->waiting_bytes && r->waiting_bytes + size > r->queue_max;
    psti_remote_put *put = full || r->closing ? NULL : find_spare_locked(r, size);
    if (!full && !r->closing && !put)
        put = psti_calloc(PSTI_MEM_CACHE, 1, sizeof *put);
    if (put) {
        put->counted = put->cap > size ? put->cap : size ? rounded(size) : 0;
        r->waiting_bytes += put->counted;
    }
    pthread_mutex_unlock(&r->lock);
    if (!put)
        return NULL;
    put->size = size;
    put->life_ms = 0;
    put->claim = (psti_remote_claim){.slot = 0};
    if (size && !need(put, size)) {
        psti_remote_put_cancel(r, put);
        return NULL;
    }
    put->request = (psti_remote_request){.what = ASK_STORE};
    return put;
}

psti_remote_put *psti_remote_put_begin(psti_remote *r, const psti_cache_key *key, size_t size)
{
    psti_remote_put *put = NULL;
    if (r->pid != getpid())
        return NULL;
    if (size && size <= r->value_max && psti_remote_answers(r, key))
        put = put_take(r, size, true);
    if (put)
        query_key(&put->request, key);
    else
        count_one(&r->count.put_failures);
    return put;
}

uint8_t *psti_remote_put_bytes(psti_remote_put *put)
{
    return put->bytes;
}

void psti_remote_put_life(psti_remote_put *put, uint64_t ms)
{
    put->life_ms = ms;
}

/* Nearly the longest of late: falls by itself, slowly. */
static void note_making(psti_remote *r, uint64_t took_ns)
{
    const uint64_t old = atomic_load_explicit(&r->making_ns, memory_order_relaxed);
    const uint64_t fallen = old - old / 64;
    atomic_store_explicit(&r->making_ns, took_ns > fallen ? took_ns : fallen, memory_order_relaxed);
}

/* The claim stays until the value is there. */
void psti_remote_put_send(psti_remote *r, psti_remote_put *put, psti_remote_op *claimed)
{
    if (claimed) {
        note_making(r, psti_now_ns() - claimed->claim.won_ns);
        pthread_mutex_lock(&r->lock);
        put->claim = claimed->claim;
        list_remove(&claimed->claim.link);
        list_add_before(&r->held, &put->claim.link);
        pthread_mutex_unlock(&r->lock);
        atomic_fetch_sub_explicit(&r->making, 1, memory_order_relaxed);
    }
    submit(r, &put->request);
}

void psti_remote_put_cancel(psti_remote *r, psti_remote_put *put)
{
    pthread_mutex_lock(&r->lock);
    spare_locked(r, put);
    pthread_mutex_unlock(&r->lock);
}

void psti_remote_release(psti_remote *r, psti_remote_op *claimed)
{
    const psti_remote_claim *claim = &claimed->claim;
    if (r->pid != getpid())
        return;
    pthread_mutex_lock(&r->lock);
    list_remove(&claimed->claim.link);
    pthread_mutex_unlock(&r->lock);
    atomic_fetch_sub_explicit(&r->making, 1, memory_order_relaxed);
    psti_remote_put *put = put_take(r, 0, false);
    if (!put)
        return; /* the mark runs out */
    put->request.what = ASK_RELEASE;
    put->request.slot = claim->slot;
    memcpy(put->request.key, claim->key, sizeof claim->key);
    submit(r, &put->request);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int check(const char *text, remote_url *url, pst_error *err)
{
    int rc = remote_url_parse(text, url, err);
#if !PSTI_HAVE_REMOTE_TLS
    if (rc == 0 && url->tls)
        rc = psti_fail(err, -ENOSYS, "remote", NULL,
                       "rediss:// needs TLS, which this build has not: hiredis with hiredis_ssl "
                       "(1.0 or newer) and OpenSSL are wanted when it is built");
#endif
    return rc;
}

int psti_remote_check(const char *text, pst_error *err)
{
    remote_url url;
    return check(text, &url, err);
}

static int start(psti_remote *r, pst_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&r->thread, NULL, remote_main, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return psti_fail(err, -rc, "remote", NULL, "no thread for the remote tier: %s",
                         strerror(rc));
    r->started = true;
    const struct timespec until = psti_timespec_ns(psti_now_ns() + SETTLE_NS);
    pthread_mutex_lock(&r->lock);
    while (!r->settled_now && pthread_cond_timedwait(&r->room, &r->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&r->lock);
    return 0;
}

static int prepare(psti_remote *r, const psti_remote_spec *spec, pst_error *err)
{
    int rc = check(spec->url, &r->url, err);
    if (rc < 0)
        return rc;
    r->password = password_load(r->url.user, &rc, err);
    if (rc == 0 && r->url.tls)
        rc = remote_tls_new(&r->tls, err);
    if (rc < 0)
        return rc;
    r->name = psti_strdup(PSTI_MEM_CACHE, spec->url);
    r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool whole = r->name && r->wake >= 0;
    for (int i = 0; whole && i < r->url.seed_count; i++) {
        node *n = psti_malloc(PSTI_MEM_CACHE, sizeof *n);
        whole = n != NULL;
        if (!n)
            break;
        node_init(r, n, &r->url.seeds[i]);
        n->seed = true;
        r->nodes[i] = n;
    }
    psti_id128 token = {0, 0};
    if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token)
        token.lo = psti_now_ns();
    psti_id128_hex(token, r->token);
    return whole ? 0 : psti_fail(err, -ENOMEM, "remote", NULL, "no memory for the remote tier");
}

int psti_remote_open(const psti_remote_spec *spec, psti_remote **out, pst_error *err)
{
    psti_remote *r = psti_calloc(PSTI_MEM_CACHE, 1, sizeof *r);
    *out = NULL;
    if (!r)
        return psti_fail(err, -ENOMEM, "remote", NULL, "no memory for the remote tier");
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->room, &attr);
    pthread_condattr_destroy(&attr);
    list_init(&r->incoming);
    list_init(&r->timed);
    list_init(&r->late);
    list_init(&r->missed);
    list_init(&r->waiting);
    list_init(&r->held);
    r->renew_ns = UINT64_MAX;
    r->makers = spec->makers;
    r->pid = getpid();
    r->wake = -1;
    r->value_max = spec->value_max ? spec->value_max : VALUE_MAX;
    r->queue_max = spec->queue_max ? spec->queue_max : QUEUE_MAX;
    for (int s = 0; s < SLOTS; s++)
        atomic_init(&r->slot_node[s], NO_NODE);
    atomic_init(&r->making_ns, FIRST_MAKING_NS);
    atomic_init(&r->count.handled_s, FIRST_HANDLED_S);
    int rc = prepare(r, spec, err);
    if (rc == 0)
        rc = start(r, err);
    if (rc < 0) {
        psti_remote_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

static void stop(psti_remote *r)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_broadcast(&r->room);
    pthread_mutex_unlock(&r->lock);
    if (write(r->wake, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(r->thread, NULL);
}

void psti_remote_close(psti_remote *r)
{
    if (!r)
        return;
    const bool forked = r->pid != getpid();
    if (r->started && !forked)
        stop(r);
    for (int i = 0; i < NODES_MAX; i++) /* not started, or a child's copies */
        if (r->nodes[i] && !forked)
            node_drop(r->nodes[i]);
    while (r->spare) {
        psti_remote_put *put = r->spare;
        r->spare = put->next;
        put_free(put);
    }
    password_free(r->password);
    remote_tls_free(r->tls);
    if (r->wake >= 0)
        close(r->wake);
    if (!forked) {
        pthread_cond_destroy(&r->room);
        pthread_mutex_destroy(&r->lock);
    }
    psti_free(r->name);
    psti_free(r);
}

/* ---- figures --------------------------------------------------------------------------------- */

static uint64_t value(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void psti_remote_stats_get(psti_remote *r, psti_remote_stats *out)
{
    const counters *c = &r->count;
    *out = (psti_remote_stats){.gets = value(&c->gets),
                               .hits = value(&c->hits),
                               .misses = value(&c->misses),
                               .unanswered = value(&c->unanswered),
                               .puts = value(&c->puts),
                               .put_failures = value(&c->put_failures),
                               .bytes_got = value(&c->bytes_got),
                               .bytes_put = value(&c->bytes_put),
                               .claims = value(&c->claims),
                               .waits = value(&c->waits),
                               .waited_hits = value(&c->waited_hits),
                               .redirects = value(&c->redirects),
                               .refreshes = value(&c->refreshes),
                               .breaks = value(&c->breaks),
                               .bytes_per_s =
                                   atomic_load_explicit(&c->bytes_per_s, memory_order_relaxed),
                               .handling_s = psti_remote_handling(r)};
    bool seen[NODES_MAX] = {false};
    for (int s = 0; s < SLOTS; s++) {
        const int i = atomic_load_explicit(&r->slot_node[s], memory_order_relaxed);
        if (i >= NODES_MAX || seen[i])
            continue;
        seen[i] = true;
        out->nodes++;
        out->nodes_up += atomic_load_explicit(&r->node_is[i], memory_order_relaxed) == NODE_UP;
    }
}

double psti_remote_bandwidth(const psti_remote *r)
{
    return atomic_load_explicit(&r->count.bytes_per_s, memory_order_relaxed);
}

size_t psti_remote_buffers(const psti_remote *r)
{
    return atomic_load_explicit(&r->buffers, memory_order_relaxed);
}

double psti_remote_handling(const psti_remote *r)
{
    const double mine = atomic_load_explicit(&r->count.handled_s, memory_order_relaxed);
    return atomic_load_explicit(&r->here, memory_order_relaxed) ? 2 * mine : mine;
}

const char *psti_remote_name(const psti_remote *r)
{
    return r->name;
}
