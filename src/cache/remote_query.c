/* SPDX-License-Identifier: Apache-2.0
 * The way of a request: asked of the node that has its slot, redirected at most five times, and
 * ended by its answer, by an error, or by the clock.
 *
 *     ASK_VALUE  -> found, or nobody claims: done
 *                -> ASK_CLAIM -> won: done, the caller makes it
 *                             -> lost: waits, then ASK_AGAIN -> found: done
 *                                                            -> the mark is gone: ASK_CLAIM
 *                                                            -> else waits again, a bounded time
 *     ASK_TAKE, ASK_STORE, ASK_RELEASE -> done
 *
 * On the tier's thread; done and room are the caller's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/remote_priv.h"

/* An answer that is near is waited for a little longer, in steps: up to twice the time in all; up
 * to five times while values stream in, one after the other, at a rate that is not slow. */
enum { LATE_MOST = 5, LATE_STREAMING = 20 };
#define NEAR_NS (PSTI_REMOTE_WAIT_NS / LATE_MOST)
static const double NOT_SLOW = 32e6; /* bytes a second */

static bool is_put(const psti_remote_request *q)
{
    return q->what == ASK_STORE || q->what == ASK_RELEASE;
}

static psti_remote_op *op_of(psti_remote_request *q)
{
    return LINK_OF(psti_remote_op, request, q);
}

/* The slot is that of what stands in braces, so that a value and its mark lie on one node. */
void query_key(psti_remote_request *q, const psti_cache_key *key)
{
    psti_hash h;
    char hex[33];
    psti_hash_init(&h);
    psti_hash_u64(&h, key->sample.lo);
    psti_hash_u64(&h, key->sample.hi);
    psti_hash_u64(&h, key->form.lo);
    psti_hash_u64(&h, key->form.hi);
    psti_id128_hex(psti_hash_final(&h), hex);
    snprintf(q->key, sizeof q->key, "penstock:{%s}", hex);
    q->slot = slot_of(hex, 32);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void finish(psti_remote *r, psti_remote_request *q, int status)
{
    list_remove(&q->timed);
    list_remove(&q->queued);
    line_forget(q);
    q->via = NULL;
    if (is_put(q)) {
        remote_put_done(r, LINK_OF(psti_remote_put, request, q), status == 0);
        return;
    }
    psti_remote_op *op = op_of(q);
    if (status == 0)
        count_one(&r->count.hits);
    else if (status == -EAGAIN || status == -ECANCELED)
        count_one(&r->count.unanswered);
    else
        count_one(&r->count.misses);
    if (status == PSTI_REMOTE_MINE)
        count_one(&r->count.claims);
    op->done(op, status);
}

void query_failed(psti_remote *r, psti_remote_request *q)
{
    finish(r, q, -EAGAIN);
}

/* ---- starting -------------------------------------------------------------------------------- */

static void add_timed(link_t *list, psti_remote_request *q)
{
    link_t *at = list;
    while (at->prev != list && LINK_OF(psti_remote_request, timed, at->prev)->due_ns > q->due_ns)
        at = at->prev;
    list_add_before(at, &q->timed);
}

static void start_at(psti_remote *r, node *n, psti_remote_request *q)
{
    line *l = n ? (is_put(q) ? &n->put : &n->get) : NULL;
    if (!l || l->state == LINE_CLOSED || n->stalled) {
        finish(r, q, -EAGAIN);
        return;
    }
    list_add_before(&l->queue, &q->queued);
    q->via = l;
    if (is_put(q) || q->timed.next)
        return;
    q->since_ns = q->due_ns - PSTI_REMOTE_WAIT_NS;
    q->since_bytes = l->bytes_in;
    add_timed(&r->timed, q);
}

void query_start(psti_remote *r, psti_remote_request *q, uint64_t now)
{
    const int index = atomic_load_explicit(&r->slot_node[q->slot], memory_order_relaxed);
    if (q->what == ASK_STORE && now < r->puts_off_ns)
        finish(r, q, -EAGAIN);
    else
        start_at(r, index < NODES_MAX ? r->nodes[index] : NULL, q);
}

/* How long one who makes it may take, from here: what it costs, and what lies between a claim and
 * its value of late, several times over. */
static uint64_t patience_ns(const psti_remote *r, const psti_remote_op *op)
{
    const uint64_t making = atomic_load_explicit(&r->making_ns, memory_order_relaxed);
    const uint64_t longest = 4 * (making > op->cost_ns ? making : op->cost_ns);
    return longest < 200 * MS ? 200 * MS : longest > 60000 * MS ? 60000 * MS : longest;
}

/* The value is the last word, which is sent behind the others. */
static void send_value(line *l, psti_remote_put *put)
{
    psti_remote_request *q = &put->request;
    char ms[24];
    snprintf(ms, sizeof ms, "%llu", (unsigned long long)put->life_ms);
    if (put->life_ms)
        line_command(l, ASK_STORE, q, 4, (const char *const[]){"PSETEX", q->key, ms, NULL},
                     (const size_t[]){6, strlen(q->key), strlen(ms), put->size});
    else
        line_command(l, ASK_STORE, q, 3, (const char *const[]){"SET", q->key, NULL},
                     (const size_t[]){3, strlen(q->key), put->size});
    l->streaming = put;
    l->streamed = 0;
}

void query_send(line *l, psti_remote_request *q, uint64_t now)
{
    psti_remote *r = l->remote;
    char mark[PSTI_REMOTE_KEY_ROOM + 8], ms[24];
    snprintf(mark, sizeof mark, "%s:making", q->key);
    if (q->asking)
        line_command(l, ASK_ASKING, NULL, 1, (const char *const[]){"ASKING"}, NULL);
    q->asking = false;
    q->sent_ns = now;
    if (q->what == ASK_VALUE) {
        line_command(l, ASK_VALUE, q, 2, (const char *const[]){"GET", q->key}, NULL);
    } else if (q->what == ASK_TAKE) {
        line_command(l, ASK_TAKE, q, 2, (const char *const[]){"GETDEL", q->key}, NULL);
    } else if (q->what == ASK_AGAIN) {
        line_command(l, ASK_AGAIN, q, 3, (const char *const[]){"MGET", q->key, mark}, NULL);
    } else if (q->what == ASK_CLAIM) {
        snprintf(ms, sizeof ms, "%llu", (unsigned long long)(patience_ns(r, op_of(q)) / MS));
        line_command(l, ASK_CLAIM, q, 6,
                     (const char *const[]){"SET", mark, r->token, "NX", "PX", ms}, NULL);
    } else if (q->what == ASK_RELEASE) {
        line_command(l, ASK_RELEASE, q, 2, (const char *const[]){"DEL", mark}, NULL);
    } else {
        send_value(l, LINK_OF(psti_remote_put, request, q));
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

void query_value(void *user, const char *bytes, size_t size)
{
    line *l = user;
    const sent *s = &l->ring[l->first % RING];
    if (l->first == l->next || !s->request ||
        (s->what != ASK_VALUE && s->what != ASK_TAKE && s->what != ASK_AGAIN))
        return;
    psti_remote_op *op = op_of(s->request);
    l->took = true;
    if (size > l->remote->value_max)
        return;
    uint8_t *at = op->room(op, size);
    if (!at)
        return;
    memcpy(at, bytes, size);
    op->size = size;
    l->fits = true;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "MOVED 3999 host:port", "ASK …"; false where it leads nowhere. */
static bool redirect(line *l, psti_remote_request *q, const char *text, uint64_t now)
{
    psti_remote *r = l->remote;
    char host[REPLY_TEXT_MAX + 1], *end;
    const bool moved = text[0] == 'M';
    const long slot = strtol(text + (moved ? 6 : 4), &end, 10);
    if (*end != ' ' || slot < 0 || slot >= SLOTS || ++q->redirects > REDIRECTS_MAX)
        return false;
    snprintf(host, sizeof host, "%s", end + 1);
    char *colon = strrchr(host, ':');
    if (!colon)
        return false;
    *colon = 0;
    node *n = slots_node(r, l->node, host, atoi(colon + 1), now);
    r->refresh_wanted |= moved;
    if (!n)
        return false;
    count_one(&r->count.redirects);
    if (moved)
        slots_moved(r, (int)slot, n);
    q->asking = !moved;
    start_at(r, n, q);
    return true;
}

/* What a node says that can serve nobody at the moment. Everything else concerns the one key. */
static bool is_broken(const char *text)
{
    static const char *const words[] = {"LOADING",    "CLUSTERDOWN", "NOAUTH",   "NOPERM",
                                        "MASTERDOWN", "BUSY",        "WRONGPASS"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (starts(text, words[i]))
            return true;
    return false;
}

/* A server that is too old for GETDEL, or a user who may not use it: everything else goes on. */
static bool refuses_taking(const psti_remote_request *q, const char *text)
{
    const bool takes = q->what == ASK_TAKE ||
                       (q->what == ASK_STORE && LINK_OF(psti_remote_put, request, q)->life_ms);
    return takes && (starts(text, "ERR") || starts(text, "NOPERM"));
}

static void error(line *l, psti_remote_request *q, const char *text, uint64_t now)
{
    psti_remote *r = l->remote;
    if ((starts(text, "MOVED ") || starts(text, "ASK ")) && redirect(l, q, text, now))
        return;
    if (refuses_taking(q, text)) {
        remote_no_taking(r);
        finish(r, q, -EAGAIN);
        return;
    }
    if (starts(text, "OOM") || starts(text, "READONLY"))
        r->puts_off_ns = now + BREAK_NS;
    r->refresh_wanted |= starts(text, "READONLY") && r->cluster;
    finish(r, q, -EAGAIN);
    if (is_broken(text)) {
        char why[48], word[16];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(text, " "), text);
        snprintf(why, sizeof why, "it answers %s", word);
        node_fail(l->node, now, why);
    }
}

static void next_ask(psti_remote *r, psti_remote_request *q, ask what, uint64_t now)
{
    q->what = (uint8_t)what;
    q->late = 0;
    q->due_ns = now + PSTI_REMOTE_WAIT_NS;
    list_remove(&q->timed);
    query_start(r, q, now);
}

static uint64_t between(double ns, uint64_t least, uint64_t most)
{
    return ns < (double)least ? least : ns > (double)most ? most : (uint64_t)ns;
}

/* Somebody else makes it. Asked again after about half of what such waits take, then often. */
static void wait_for_it(psti_remote *r, psti_remote_request *q, uint64_t now)
{
    const psti_remote_op *op = op_of(q);
    list_remove(&q->timed);
    q->via = NULL;
    if (!q->lost_ns) {
        q->lost_ns = now;
        count_one(&r->count.waits);
        if (r->wait_ns == 0)
            r->wait_ns = (double)op->cost_ns;
        q->due_ns = now + between(r->wait_ns / 2, MS, 100 * MS);
    } else {
        q->due_ns = now + between(r->wait_ns / 4, MS, 50 * MS);
    }
    if (now - q->lost_ns > patience_ns(r, op))
        finish(r, q, -ENOENT);
    else
        add_timed(&r->waiting, q);
}

static void found(line *l, psti_remote_request *q, uint64_t now)
{
    psti_remote *r = l->remote;
    if (!l->fits) {
        finish(r, q, -ENOENT);
        return;
    }
    if (q->lost_ns) {
        count_one(&r->count.waited_hits);
        r->wait_ns += ((double)(now - q->lost_ns) - r->wait_ns) / 16;
    }
    atomic_fetch_add_explicit(&r->count.bytes_got, op_of(q)->size, memory_order_relaxed);
    finish(r, q, 0);
}

static void claimed(psti_remote *r, psti_remote_request *q, const reply *answer, uint64_t now)
{
    if (answer->type == REDIS_REPLY_NIL) {
        wait_for_it(r, q, now);
    } else if (answer->type == REDIS_REPLY_STATUS) {
        op_of(q)->mine_ns = now;
        finish(r, q, PSTI_REMOTE_MINE);
    } else {
        finish(r, q, -EAGAIN);
    }
}

static bool marked(const reply *answer)
{
    return answer->type == REDIS_REPLY_ARRAY && answer->count == 2 && answer->elements[1] &&
           answer->elements[1]->type == REDIS_REPLY_STRING;
}

/* Many at a time while they come back quickly, fewer when they do not: what is sent and comes too
 * late costs the server as much as what comes in time. */
static void pace(line *l, const psti_remote_request *q, uint64_t now)
{
    if (now - q->sent_ns > PSTI_REMOTE_WAIT_NS / 2)
        l->window = l->window * 7 / 8 > WINDOW_MIN ? l->window * 7 / 8 : WINDOW_MIN;
    else if (!list_empty(&l->queue) && l->window < WINDOW_MAX)
        l->window++;
}

void query_answered(line *l, const sent *s, const reply *answer, uint64_t now)
{
    psti_remote *r = l->remote;
    psti_remote_request *q = s->request;
    q->line = NULL;
    if (!l->puts)
        pace(l, q, now);
    if (answer->type == REDIS_REPLY_ERROR)
        error(l, q, answer->text, now);
    else if (is_put(q))
        finish(r, q, 0);
    else if (s->what == ASK_CLAIM)
        claimed(r, q, answer, now);
    else if (l->took)
        found(l, q, now);
    else if (s->what == ASK_AGAIN && marked(answer))
        wait_for_it(r, q, now);
    else if (op_of(q)->cost_ns)
        next_ask(r, q, ASK_CLAIM, now);
    else
        finish(r, q, answer->type == REDIS_REPLY_NIL ? -ENOENT : -EAGAIN);
}

/* ---- time ------------------------------------------------------------------------------------ */

static psti_remote_request *due(const link_t *list, uint64_t now)
{
    if (list_empty(list))
        return NULL;
    psti_remote_request *q = LINK_OF(psti_remote_request, timed, list->next);
    return q->due_ns <= now ? q : NULL;
}

static uint64_t first_due(const link_t *list)
{
    return list_empty(list) ? UINT64_MAX : LINK_OF(psti_remote_request, timed, list->next)->due_ns;
}

/* Answers are coming in on its line at this moment: it is its turn soon. Either many were asked for
 * at once, or this process did not get to run for a while. */
static bool is_near(psti_remote_request *q, uint64_t now)
{
    const line *l = q->via;
    if (!l || now - l->moved_ns > NEAR_NS)
        return false;
    const double came = (double)(l->bytes_in - q->since_bytes);
    const bool streams = came > NOT_SLOW * 1e-9 * (double)(now - q->since_ns);
    return q->late++ < (streams ? LATE_STREAMING : LATE_MOST);
}

uint64_t queries_tick(psti_remote *r, uint64_t now)
{
    psti_remote_request *q;
    while ((q = due(&r->timed, now))) {
        if (is_near(q, now)) {
            list_remove(&q->timed);
            q->due_ns = now + NEAR_NS;
            add_timed(&r->timed, q);
        } else {
            query_failed(r, q);
        }
    }
    while ((q = due(&r->waiting, now))) {
        psti_remote_op *op = op_of(q);
        if (op->wanted && !op->wanted(op))
            finish(r, q, -ECANCELED);
        else
            next_ask(r, q, ASK_AGAIN, now);
    }
    const uint64_t a = first_due(&r->timed), b = first_due(&r->waiting);
    return a < b ? a : b;
}

void queries_cancel(psti_remote *r)
{
    while (!list_empty(&r->timed))
        finish(r, LINK_OF(psti_remote_request, timed, r->timed.next), -ECANCELED);
    while (!list_empty(&r->waiting))
        finish(r, LINK_OF(psti_remote_request, timed, r->waiting.next), -ECANCELED);
}
