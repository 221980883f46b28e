/* SPDX-License-Identifier: Apache-2.0
 * The remote tier's part in the way of a sample; see sched_calls.h for what is asked of it. A task
 * that asks is nobody's until the answers are there: first, in a group, for a preparation of
 * another engine, which is taken from there; then for its decoded form, with a claim, so that of
 * all engines that miss it one makes it; then, where stored bytes are kept in tiers, for each
 * member. Answers come from the tier's thread, which takes pool->lock for short moments and
 * holds none of its own meanwhile. */
#include <errno.h>
#include <sys/random.h>

#include "cache/remote.h"
#include "sched/sched_priv.h"

enum { VALUE_MAX = 64 << 20, FIRST_GUESS = 256 << 10, ALIGN = 64 };
static const uint64_t COST_LEAST_NS = 1000000, COST_GUESS_NS = 10000000;

/* Memory for an answer; used again by other tasks, kept charged while it is spare. */
typedef struct answer_buf {
    struct answer_buf *next;
    size_t cap; /* as charged */
    psti_buf buf;
} answer_buf;

struct asker {
    psti_remote *remote;
    psti_id128 self;              /* this engine, in what it lends to others */
    atomic_uint_fast64_t damaged; /* values that were of no use */
    atomic_uint_fast64_t unasked; /* questions that were not asked: nobody would have answered */
    answer_buf *spare;            /* these under pool->lock */
    uint64_t spare_bytes;
    double usual;     /* bytes of an answer */
    uint64_t buffers; /* of the tier's connections, as counted */
};

/* What a task asked for. */
struct ask {
    psti_remote_op op;
    task *t;
    int slot;                    /* that is being asked for */
    int next;                    /* read to ask about after that */
    uint64_t charged;            /* for an answer that is not there yet */
    answer_buf *got[TIER_SLOTS]; /* chained by slot, not by next */
    bool claimed;                /* op.claim is */
};
typedef struct ask ask;

/* ---- memory ---------------------------------------------------------------------------------- */

static void charge_locked(psti_pool *pool, uint64_t bytes)
{
    psti_budget_force(&pool->budget, bytes);
    pool->encoded += bytes;
}

static void discharge_locked(psti_pool *pool, uint64_t bytes)
{
    psti_budget_give(&pool->budget, bytes);
    pool->encoded -= bytes;
}

/* What the tier's connections hold is part of the budget, too: counted as it is. */
static void count_buffers_locked(psti_pool *pool)
{
    struct asker *asker = pool->asker;
    const uint64_t now = psti_remote_buffers(asker->remote);
    if (now > asker->buffers)
        charge_locked(pool, now - asker->buffers);
    else
        discharge_locked(pool, asker->buffers - now);
    asker->buffers = now;
}

static void buf_free_locked(psti_pool *pool, answer_buf *b)
{
    discharge_locked(pool, b->cap);
    psti_buf_free(&b->buf);
    psti_free(b);
}

/* A spare one that is large enough, or a new one; counted. NULL: too large, or no memory. */
static answer_buf *buf_take_locked(psti_pool *pool, size_t size)
{
    struct asker *asker = pool->asker;
    for (answer_buf **at = &asker->spare; *at; at = &(*at)->next) {
        answer_buf *b = *at;
        if (b->cap < size + ALIGN)
            continue;
        *at = b->next;
        asker->spare_bytes -= b->cap;
        return b;
    }
    if (size > pool_encoded_max_locked(pool) / 8)
        return NULL;
    answer_buf *b = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *b);
    const size_t cap = size + size / 8 + ALIGN;
    if (!b || psti_buf_need(PSTI_MEM_SCHED, &b->buf, cap) < 0) {
        psti_free(b);
        return NULL;
    }
    b->cap = cap;
    charge_locked(pool, cap);
    return b;
}

/* A quarter of what may be read at a time is kept, so that no answer needs new memory for long. */
static void buf_give_locked(psti_pool *pool, answer_buf *b)
{
    struct asker *asker = pool->asker;
    if (asker->spare_bytes + b->cap > pool_encoded_max_locked(pool) / 4) {
        buf_free_locked(pool, b);
        return;
    }
    b->next = asker->spare;
    asker->spare = b;
    asker->spare_bytes += b->cap;
}

static uint8_t *aligned(const answer_buf *b)
{
    return b->buf.data + (-(uintptr_t)b->buf.data & (ALIGN - 1));
}

/* ---- opening and closing --------------------------------------------------------------------- */

int ask_open_pool(psti_pool *pool, const char *url, uint64_t queue, int workers, pst_error *err)
{
    const uint64_t value = queue < VALUE_MAX ? queue : VALUE_MAX;
    const psti_remote_spec spec = {
        .url = url, .value_max = value, .queue_max = queue / 2, .makers = workers};
    struct asker *asker = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *asker);
    if (!asker)
        return psti_fail(err, -ENOMEM, "remote", NULL, "no memory for the remote tier");
    asker->usual = FIRST_GUESS;
    int rc = getrandom(&asker->self, sizeof asker->self, 0) == sizeof asker->self ? 0 : -errno;
    if (rc < 0)
        psti_fail(err, rc, "remote", NULL, "the system gives no random numbers");
    else
        rc = psti_remote_open(&spec, &asker->remote, err);
    if (rc < 0)
        psti_free(asker);
    else
        pool->asker = asker;
    return rc;
}

void ask_close_pool(psti_pool *pool)
{
    struct asker *asker = pool->asker;
    if (!asker)
        return;
    psti_remote_close(asker->remote);
    discharge_locked(pool, asker->buffers);
    while (asker->spare) {
        answer_buf *b = asker->spare;
        asker->spare = b->next;
        buf_free_locked(pool, b);
    }
    psti_free(asker);
    pool->asker = NULL;
}

/* ---- what is worth it ------------------------------------------------------------------------ */

static uint64_t cost_ns(const psti_feed *feed)
{
    const double saves = atomic_load_explicit(&feed->decode_saves_s, memory_order_relaxed);
    const uint64_t ns = saves > 0 ? (uint64_t)(saves * 1e9) : COST_GUESS_NS;
    return ns < COST_LEAST_NS ? COST_LEAST_NS : ns;
}

static bool asks_form(const task *t)
{
    return !task_has_form(t) && pays_asking(t);
}

/* The next member after `from` that would come from the source; -1: none. */
static int next_read(const task *t, int from)
{
    if (!pays_members(t))
        return -1;
    for (int i = from; i < t->read_count; i++)
        if (!read_from_tier(t, i))
            return i;
    return -1;
}

bool ask_wanted_locked(task *t)
{
    struct asker *asker = t->feed->pool->asker;
    if (!asker)
        return false;
    psti_cache_key key = group_outside_key(t);
    t->borrows = group_borrows_locked(t) && psti_remote_answers(asker->remote, &key);
    if (t->borrows || !t->read_count)
        return t->borrows;
    const int read = next_read(t, 0);
    key = tiers_form_key(t);
    if (!asks_form(t)) {
        if (read < 0)
            return false;
        key = tiers_member_key(t, t->read_field[read]);
    }
    if (psti_remote_answers(asker->remote, &key))
        return true;
    atomic_fetch_add_explicit(&asker->unasked, 1, memory_order_relaxed);
    return false;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* From the tier's thread. */
static uint8_t *ask_room(psti_remote_op *op, size_t size)
{
    ask *a = op->user;
    psti_pool *pool = a->t->feed->pool;
    pthread_mutex_lock(&pool->lock);
    discharge_locked(pool, a->charged);
    a->charged = 0;
    count_buffers_locked(pool);
    answer_buf *b = buf_take_locked(pool, size);
    pool->ask_bytes += size;
    if (b)
        pool->asker->usual += ((double)size - pool->asker->usual) / 16;
    a->got[a->slot] = b;
    pthread_mutex_unlock(&pool->lock);
    return b ? aligned(b) : NULL;
}

static bool ask_still_wanted(psti_remote_op *op)
{
    const ask *a = op->user;
    const task *t = a->t;
    psti_pool *pool = t->feed->pool;
    pthread_mutex_lock(&pool->lock);
    const bool wanted = !t->run->cancelled && !t->feed->closing &&
                        (a->slot != TIER_FORM || pays_asking(t)); /* it may have turned out dear */
    pthread_mutex_unlock(&pool->lock);
    return wanted;
}

/* Workers without work, beyond what there is for them: only then is anything gained by making what
 * may well be there. Where workers have batches of their own, one cannot help another out. */
static bool pool_starves_locked(const psti_pool *pool)
{
    const int may = pool->tuner.active - pool->tuner.busy;
    int free = pool->idle < may ? pool->idle : may;
    for (const psti_feed *feed = pool->feeds; feed && free > 0; feed = feed->next) {
        if (own_batches(feed))
            return true;
        for (const task *t = feed->runnable; t && free > 0; t = t->next)
            free--;
    }
    return free > pool->reading;
}

static bool ask_pressing(psti_remote_op *op)
{
    const ask *a = op->user;
    psti_pool *pool = a->t->feed->pool;
    pthread_mutex_lock(&pool->lock);
    const bool pressing = pool_starves_locked(pool);
    pthread_mutex_unlock(&pool->lock);
    return pressing;
}

void ask_hurry_locked(const psti_pool *pool)
{
    if (pool->asking)
        psti_remote_hurry(pool->asker->remote);
}

static void ask_for(ask *a, int slot)
{
    task *t = a->t;
    const bool form = slot == TIER_FORM;
    a->slot = slot;
    if (slot == TIER_SHARED) {
        a->op.key = group_outside_key(t);
        psti_remote_take(t->feed->pool->asker->remote, &a->op);
        return;
    }
    a->op.key = form ? tiers_form_key(t) : tiers_member_key(t, slot);
    a->op.cost_ns = form && pays_keeping(t) ? cost_ns(t->feed) : 0;
    psti_remote_get(t->feed->pool->asker->remote, &a->op);
}

/* Whether what was taken is another engine's preparation: one's own is no use to anybody here. The
 * group is told whether others have any part in it, be it that they took what was lent. */
static bool is_borrowed(const ask *a, int status)
{
    const psti_id128 self = a->t->feed->pool->asker->self;
    bool empty = true, others = false;
    if (status == 0) {
        const psti_id128 maker =
            psti_envelope_maker(aligned(a->got[TIER_SHARED]), a->op.size, &empty);
        others = (maker.lo || maker.hi) && (maker.lo != self.lo || maker.hi != self.hi);
    }
    if (status == 0 || status == -ENOENT)
        group_heard(a->t, others);
    return others && !empty;
}

/* What is asked for after this; -1: nothing more. */
static int ask_next(ask *a, int status)
{
    const task *t = a->t;
    if (a->slot == TIER_SHARED && status && status != -ECANCELED && asks_form(t))
        return TIER_FORM;
    const bool goes_on = a->slot >= TIER_FORM ? status && status != -ECANCELED : status == 0;
    const int read = goes_on ? next_read(t, a->next) : -1;
    if (read < 0)
        return -1;
    a->next = read + 1;
    return t->read_field[read];
}

/* From the tier's thread; the task is nobody else's. */
static void ask_done(psti_remote_op *op, int status)
{
    ask *a = op->user;
    task *t = a->t;
    psti_pool *pool = t->feed->pool;
    if (a->slot == TIER_SHARED && !is_borrowed(a, status) && status == 0)
        status = -ENOENT;
    if (status == 0)
        t->load->part[a->slot] = (tier_part){.from = TIER_REMOTE,
                                             .key = op->key,
                                             .packed = aligned(a->got[a->slot]),
                                             .size = op->size};
    a->claimed |= status == PSTI_REMOTE_MINE;
    const int next = ask_next(a, status);
    if (next >= 0) {
        ask_for(a, next);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    discharge_locked(pool, a->charged);
    a->charged = 0;
    count_buffers_locked(pool);
    pool->asking--;
    t->feed->asks_now--;
    waits_moved_locked(pool, 0);
    pthread_mutex_unlock(&pool->lock);
    tiers_answered(t);
}

static ask *ask_of(task *t)
{
    if (!t->load->ask)
        t->load->ask = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *t->load->ask);
    return t->load->ask;
}

void ask_send_locked(task *t)
{
    psti_pool *pool = t->feed->pool;
    const bool form = t->borrows || asks_form(t);
    const int read = form ? -1 : next_read(t, 0);
    ask *a = form || read >= 0 ? ask_of(t) : NULL;
    if (!a) {
        t->answered = true; /* with nothing */
        read_go_locked(t);
        return;
    }
    a->t = t;
    a->next = 0;
    t->submitted_ns = psti_now_ns();
    a->op.room = ask_room;
    a->op.done = ask_done;
    a->op.wanted = ask_still_wanted;
    a->op.pressing = ask_pressing;
    a->op.user = a;
    /* What will come is counted before it is there, so that no more is sent for than fits. */
    a->charged = (uint64_t)pool->asker->usual;
    charge_locked(pool, a->charged);
    pool->asking++;
    t->feed->asks_now++;
    waits_moved_locked(pool, t->submitted_ns);
    a->next = read + 1;
    ask_for(a, t->borrows ? TIER_SHARED : form ? TIER_FORM : t->read_field[read]);
}

void ask_wrong(task *t, int slot)
{
    (void)slot;
    atomic_fetch_add_explicit(&t->feed->pool->asker->damaged, 1, memory_order_relaxed);
}

/* ---- keeping --------------------------------------------------------------------------------- */

bool ask_wants_form(const task *t, size_t packed)
{
    return t->feed->pool->asker && t->answered && packed <= VALUE_MAX && pays_keeping(t);
}

static void give_up_claim(const struct asker *asker, ask *a)
{
    if (!a->claimed)
        return;
    a->claimed = false;
    psti_remote_release(asker->remote, &a->op);
}

void ask_keep_form(task *t, const psti_cache_content *content)
{
    const struct asker *asker = t->feed->pool->asker;
    const psti_cache_key key = tiers_form_key(t);
    ask *a = t->load->ask;
    psti_remote_put *put = psti_remote_put_begin(asker->remote, &key, psti_envelope_size(content));
    if (!put)
        return; /* the claim goes when the task ends */
    psti_envelope_pack(&key, content, NULL, psti_remote_put_bytes(put));
    psti_remote_put_send(asker->remote, put, a && a->claimed ? &a->op : NULL);
    if (a)
        a->claimed = false;
}

void ask_keep_member(const task *t, int input)
{
    const struct asker *asker = t->feed->pool->asker;
    const psti_cache_content content = {.bytes = t->inputs[input].size};
    if (!asker || !t->answered || !pays_members(t))
        return;
    const psti_cache_key key = tiers_member_key(t, input);
    psti_remote_put *put = psti_remote_put_begin(asker->remote, &key, psti_envelope_size(&content));
    if (!put)
        return;
    psti_envelope_pack(&key, &content, t->inputs[input].bytes, psti_remote_put_bytes(put));
    psti_remote_put_send(asker->remote, put, NULL);
}

bool ask_lends(const psti_pool *pool)
{
    return pool->asker && psti_remote_takes(pool->asker->remote);
}

void ask_lend(const task *t, const psti_cache_content *content, uint64_t life_ms)
{
    const struct asker *asker = t->feed->pool->asker;
    const psti_cache_key key = group_outside_key(t);
    psti_cache_content mine = *content;
    mine.maker = asker->self;
    const size_t packed = psti_envelope_size(&mine);
    psti_remote_put *put =
        packed && packed <= VALUE_MAX ? psti_remote_put_begin(asker->remote, &key, packed) : NULL;
    if (!put)
        return;
    psti_envelope_pack(&key, &mine, NULL, psti_remote_put_bytes(put));
    psti_remote_put_life(put, life_ms);
    psti_remote_put_send(asker->remote, put, NULL);
}

/* ---- ends ------------------------------------------------------------------------------------ */

void ask_end_locked(task *t)
{
    psti_pool *pool = t->feed->pool;
    ask *a = t->load->ask;
    if (!a || !pool->asker)
        return;
    for (int slot = 0; slot < TIER_SLOTS; slot++) {
        if (a->got[slot])
            buf_give_locked(pool, a->got[slot]);
        a->got[slot] = NULL;
    }
    give_up_claim(pool->asker, a);
}

void ask_free(task *t)
{
    psti_free(t->load->ask);
    t->load->ask = NULL;
}

double ask_bandwidth(const psti_pool *pool)
{
    return pool->asker ? psti_remote_bandwidth(pool->asker->remote) : 0;
}

double ask_handling(const psti_pool *pool)
{
    return pool->asker ? psti_remote_handling(pool->asker->remote) : 0;
}

int ask_health(const psti_pool *pool)
{
    psti_remote_stats stats;
    if (!pool->asker)
        return PSTI_TIER_NONE;
    psti_remote_stats_get(pool->asker->remote, &stats);
    return stats.nodes_up == 0 && stats.breaks > 0 ? PSTI_TIER_DOWN : PSTI_TIER_UP;
}

void ask_stats(const psti_pool *pool, pst_job_stats *out)
{
    psti_remote_stats stats;
    if (!pool->asker)
        return;
    psti_remote_stats_get(pool->asker->remote, &stats);
    const struct asker *asker = pool->asker;
    out->remote_bytes_s = (uint64_t)stats.bytes_per_s;
    out->remote_errors = stats.unanswered + stats.put_failures +
                         atomic_load_explicit(&asker->damaged, memory_order_relaxed) +
                         atomic_load_explicit(&asker->unasked, memory_order_relaxed);
}

void ask_look(const psti_pool *pool, psti_view_remote *out)
{
    psti_remote_stats stats;
    *out = (psti_view_remote){.there = pool->asker != NULL};
    if (!pool->asker)
        return;
    pst_job_stats job = {.size = sizeof job};
    ask_stats(pool, &job);
    psti_remote_stats_get(pool->asker->remote, &stats);
    out->hits = stats.hits;
    out->misses = stats.misses;
    out->errors = job.remote_errors;
    out->open = stats.nodes > 0 && stats.nodes_up == 0;
    out->bytes_per_second = stats.bytes_per_s;
}
