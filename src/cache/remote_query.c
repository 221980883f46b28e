/* SPDX-License-Identifier: Apache-2.0
 * The way of a request: asked of the node that has its slot, redirected at most five times, and
 * ended by its answer, by an error, or by the clock.
 *
 *     ASK_VALUE -> found, or nobody claims: done
 *               -> missed: until makers need something to go on with, then ASK_AGAIN
 *     ASK_AGAIN -> found: done
 *               -> another makes it: waits, then ASK_AGAIN, a bounded time
 *               -> neither: missed, or if it was ASK_CLAIM -> won: done, the caller makes it
 *                                                          -> lost: waits
 *     ASK_TAKE, ASK_STORE, ASK_RELEASE -> done
 *
 * Why a value that is there is not made again: who finds neither it nor a mark, at one moment, and
 * sets a mark where there is still none, less than a mark's life later, knows that nobody had one
 * in between; and marks are renewed until their values are there. Who was slower looks again.
 *
 * On the tier's thread; done and room are the caller's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/remote_priv.h"
#include "core/clock.h"

/* An answer that is near is waited for a little longer: up to twice the time in all; up to five
 * times while values stream in, one after the other, at a rate that is not slow. */
enum { NEAR_MOST = 2, NEAR_STREAMING = 5 };
#define NEAR_NS (PSTI_REMOTE_WAIT_NS / 5)
static const double NOT_SLOW = 32e6; /* bytes a second */
/* What makers have claimed in advance: a server that does not answer for so long holds nobody up.
 */
#define STOCK_NS  (64 * MS)
#define LOOK_NS   (50 * MS)         /* how often it is asked whether what waits is still wanted */
#define RECENT_NS (MARK_NS * 3 / 4) /* a mark that was set since then is still there */

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

/* How long one who makes it may take, from here: what it costs, and what lies between a claim and
 * its value of late, several times over. */
static uint64_t patience_ns(const psti_remote *r, const psti_remote_op *op)
{
    const uint64_t making = atomic_load_explicit(&r->making_ns, memory_order_relaxed);
    const uint64_t longest = 4 * (making > op->cost_ns ? making : op->cost_ns);
    return longest < MARK_NS ? MARK_NS : longest > 60000 * MS ? 60000 * MS : longest;
}

static bool is_pressing(psti_remote_op *op)
{
    return !op->pressing || op->pressing(op);
}

static bool is_wanted(psti_remote_op *op)
{
    return !op->wanted || op->wanted(op);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void hold(psti_remote *r, psti_remote_op *op)
{
    const uint64_t now = psti_now_ns();
    psti_remote_claim *claim = &op->claim;
    *claim =
        (psti_remote_claim){.slot = op->request.slot, .won_ns = now, .life_ns = patience_ns(r, op)};
    claim->renew_ns = now + claim->life_ns / 3;
    memcpy(claim->key, op->request.key, sizeof claim->key);
    r->renew_ns = claim->renew_ns < r->renew_ns ? claim->renew_ns : r->renew_ns;
    count_one(&r->count.claims);
    atomic_fetch_add_explicit(&r->making, 1, memory_order_relaxed);
    pthread_mutex_lock(&r->lock);
    list_add_before(&r->held, &claim->link);
    pthread_mutex_unlock(&r->lock);
}

/* It is not on the way to a claim any more. */
static void claims_no_more(psti_remote *r, psti_remote_request *q)
{
    r->claiming -= q->claiming;
    q->claiming = false;
}

static void finish(psti_remote *r, psti_remote_request *q, int status)
{
    list_remove(&q->timed);
    list_remove(&q->queued);
    line_forget(q);
    claims_no_more(r, q);
    q->via = NULL;
    if (q->won && status == -EAGAIN) /* the mark is set: nobody else makes it */
        status = PSTI_REMOTE_MINE;
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
        hold(r, op);
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
    if (!l || l->state == LINE_CLOSED) {
        finish(r, q, -EAGAIN);
        return;
    }
    list_add_before(&l->queue, &q->queued);
    q->via = l;
    if (is_put(q) || q->timed.next)
        return;
    q->since_ns = q->due_ns - PSTI_REMOTE_WAIT_NS;
    if (n->stalled) /* it has been waited for already */
        q->due_ns = q->since_ns;
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
        q->looked_ns = now;
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
    q->due_ns = now + PSTI_REMOTE_WAIT_NS;
    list_remove(&q->timed);
    query_start(r, q, now);
}

static uint64_t between(double ns, uint64_t least, uint64_t most)
{
    return ns < (double)least ? least : ns > (double)most ? most : (uint64_t)ns;
}

/* Not there, and nobody makes it. */
static void missed(psti_remote *r, psti_remote_request *q, uint64_t now)
{
    list_remove(&q->timed);
    claims_no_more(r, q);
    q->via = NULL;
    q->due_ns = now + patience_ns(r, op_of(q));
    /* Who waited for another who did not make it comes first. */
    list_add_before(q->lost_ns ? r->missed.next : &r->missed, &q->timed);
}

/* Somebody else makes it. Asked again after about half of what such waits take, then often. */
static void wait_for_it(psti_remote *r, psti_remote_request *q, uint64_t now)
{
    psti_remote_op *op = op_of(q);
    list_remove(&q->timed);
    claims_no_more(r, q);
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
    if (now - q->lost_ns > patience_ns(r, op) && is_pressing(op))
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
    } else if (answer->type == REDIS_REPLY_STATUS && now - q->looked_ns < RECENT_NS) {
        finish(r, q, PSTI_REMOTE_MINE);
    } else if (answer->type == REDIS_REPLY_STATUS) {
        q->won = true;
        next_ask(r, q, ASK_VALUE, now);
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
    else if (q->won)
        finish(r, q, PSTI_REMOTE_MINE);
    else if (s->what == ASK_AGAIN && q->claiming)
        next_ask(r, q, ASK_CLAIM, now);
    else if (op_of(q)->cost_ns)
        missed(r, q, now);
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
static bool is_near(const psti_remote_request *q, uint64_t now)
{
    const line *l = q->via;
    if (!l || now - l->moved_ns > NEAR_NS)
        return false;
    const double came = (double)(l->bytes_in - q->since_bytes);
    const bool streams = came > NOT_SLOW * 1e-9 * (double)(now - q->since_ns);
    return now - q->since_ns < (streams ? NEAR_STREAMING : NEAR_MOST) * PSTI_REMOTE_WAIT_NS;
}

/* Which of those that are late is given up first: what was not there a moment ago will hardly be
 * there now, and of the others nothing is known. */
static psti_remote_request *give_up(const psti_remote *r, uint64_t now)
{
    psti_remote_request *first = NULL;
    for (const link_t *at = r->late.next; at != &r->late; at = at->next) {
        psti_remote_request *q = LINK_OF(psti_remote_request, timed, at);
        if (is_near(q, now))
            continue;
        if (q->claiming)
            return q;
        first = first ? first : q;
    }
    if (first && !list_empty(&r->missed))
        return LINK_OF(psti_remote_request, timed, r->missed.next);
    return first;
}

/* What is late is given up as far as somebody has nothing else to do; when it is to be looked at
 * again. */
static uint64_t late_tick(psti_remote *r, uint64_t now)
{
    psti_remote_request *q;
    while ((q = due(&r->timed, now))) {
        list_remove(&q->timed);
        list_add_before(&r->late, &q->timed);
    }
    for (link_t *at = r->late.next, *next; at != &r->late; at = next) {
        next = at->next;
        q = LINK_OF(psti_remote_request, timed, at);
        if (!is_wanted(op_of(q)))
            finish(r, q, -ECANCELED);
    }
    while ((q = give_up(r, now)) && is_pressing(op_of(q)))
        query_failed(r, q);
    const bool tense = !list_empty(&r->late);
    atomic_store_explicit(&r->tense, tense, memory_order_relaxed);
    return tense ? now + NEAR_NS : first_due(&r->timed);
}

/* Whether makers need one more to go on with. */
static bool may_claim(const psti_remote *r, const psti_remote_op *op)
{
    const int have = atomic_load_explicit(&r->making, memory_order_relaxed) + r->claiming;
    const uint64_t each = STOCK_NS / op->cost_ns;
    return r->makers == 0 || (uint64_t)have < (uint64_t)r->makers * (each > 2 ? each : 2);
}

/* Claims what was missed, as much as makers need; what waits long also where they have nothing to
 * do, whatever they have claimed. */
static uint64_t missed_tick(psti_remote *r, uint64_t now)
{
    for (link_t *at = r->missed.next, *next; at != &r->missed; at = next) {
        next = at->next;
        psti_remote_request *q = LINK_OF(psti_remote_request, timed, at);
        psti_remote_op *op = op_of(q);
        if (now >= r->looked_ns + LOOK_NS && !is_wanted(op)) {
            finish(r, q, -ECANCELED);
        } else if (may_claim(r, op) || (q->due_ns <= now && is_pressing(op))) {
            q->claiming = true;
            r->claiming++;
            next_ask(r, q, ASK_AGAIN, now);
        }
    }
    if (now >= r->looked_ns + LOOK_NS)
        r->looked_ns = now;
    return list_empty(&r->missed) ? UINT64_MAX : r->looked_ns + LOOK_NS;
}

static uint64_t waiting_tick(psti_remote *r, uint64_t now)
{
    psti_remote_request *q;
    while ((q = due(&r->waiting, now))) {
        if (is_wanted(op_of(q)))
            next_ask(r, q, ASK_AGAIN, now);
        else
            finish(r, q, -ECANCELED);
    }
    return first_due(&r->waiting);
}

uint64_t queries_tick(psti_remote *r, uint64_t now)
{
    const uint64_t waiting = waiting_tick(r, now), missed_ones = missed_tick(r, now);
    uint64_t next = late_tick(r, now); /* last: what was just asked may be late at once */
    next = waiting < next ? waiting : next;
    return missed_ones < next ? missed_ones : next;
}

void queries_cancel(psti_remote *r)
{
    link_t *const lists[] = {&r->timed, &r->late, &r->missed, &r->waiting};
    for (int i = 0; i < 4; i++)
        while (!list_empty(lists[i]))
            finish(r, LINK_OF(psti_remote_request, timed, lists[i]->next), -ECANCELED);
}

/* ---- claims that take long ------------------------------------------------------------------- */

static void renew(psti_remote *r, const psti_remote_claim *claim, uint64_t now)
{
    const int index = atomic_load_explicit(&r->slot_node[claim->slot], memory_order_relaxed);
    node *n = index < NODES_MAX ? r->nodes[index] : NULL;
    char mark[PSTI_REMOTE_KEY_ROOM + 8], ms[24];
    if (!n || n->get.state != LINE_UP || n->stalled || n->get.next - n->get.first >= RING / 2)
        return;
    snprintf(mark, sizeof mark, "%s:making", claim->key);
    snprintf(ms, sizeof ms, "%llu", (unsigned long long)(claim->life_ns / MS));
    line_command(&n->get, ASK_RENEW, NULL, 6,
                 (const char *const[]){"SET", mark, r->token, "XX", "PX", ms}, NULL);
    if (!n->get.blocked)
        line_flush(&n->get, now);
}

uint64_t claims_tick(psti_remote *r, uint64_t now)
{
    psti_remote_claim due_now[16];
    int count = 0;
    if (now < r->renew_ns)
        return r->renew_ns;
    uint64_t next = UINT64_MAX;
    pthread_mutex_lock(&r->lock);
    for (link_t *at = r->held.next; at != &r->held; at = at->next) {
        psti_remote_claim *claim = LINK_OF(psti_remote_claim, link, at);
        if (claim->renew_ns <= now && count < 16) {
            claim->renew_ns = now + claim->life_ns / 3;
            due_now[count++] = *claim;
        }
        next = claim->renew_ns < next ? claim->renew_ns : next;
    }
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < count; i++)
        renew(r, &due_now[i], now);
    return r->renew_ns = next;
}
