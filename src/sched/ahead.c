/* SPDX-License-Identifier: Apache-2.0
 * Look-ahead: samples of a bucket that come after those for which there is room in batches are
 * asked for as well, and wait as they are stored. A task that is sent out later finds its bytes
 * there, or on their way. What comes next is known: it is what the run would send out. How far it
 * looks follows the consumer's waiting: further each time that it waits while workers have no
 * bytes, less far while what came is not used. Inside half of the encoded part of the budget. Only
 * for feeds with one member a sample, which is nearly all; others are as well off with the reads of
 * their tasks. Under pool->lock, but for ahead_done. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

enum { FIRST_DEPTH = 64, SLOTS = 2048 };
static const uint64_t GROW_NS = 20000000;      /* between two steps further */
static const uint64_t LOOK_NS = 200000000;     /* between two looks whether it is too far */
static const uint64_t CALM_NS = 2000000000ull; /* without waiting, before it is taken back */

/* Bytes of one sample. taken: a task has them. */
struct ahead_entry {
    psti_read read;
    psti_feed *feed;
    ahead_entry *next; /* of the free ones */
    ahead_entry *all;  /* of all */
    uint64_t epoch;    /* which run's, */
    int64_t share, id; /* and which sample of it */
    psti_buf bytes;
    uint64_t charged;
    psti_read *waiter; /* of a task that waits for it; NULL = none */
    int status;
    bool reading, taken, dropped; /* dropped: nobody wants it; free when it has come */
    pst_error error;
};

void ahead_open(psti_feed *feed)
{
    lookahead *a = &feed->ahead;
    int members = 0;
    for (int i = 0; i < feed->spec.field_count; i++)
        if (feed->source[feed->spec.fields[i].source].member) {
            a->input = i;
            members++;
        }
    a->on = feed->far && members == 1 && !feed->group && !feed->part_inputs &&
            !(feed->spec.without & PST_WITHOUT_TUNER) &&
            feed->spec.schedule == PST_SCHEDULE_PENSTOCK;
}

/* ---- entries --------------------------------------------------------------------------------- */

static void uncharge_locked(ahead_entry *e)
{
    psti_pool *pool = e->feed->pool;
    psti_buf_free(&e->bytes);
    psti_budget_give(&pool->budget, e->charged);
    pool->encoded -= e->charged;
    e->feed->ahead.bytes -= e->charged;
    e->charged = 0;
}

static ahead_entry **slot_of(lookahead *a, int64_t share)
{
    return &a->at[share % SLOTS];
}

/* Nobody has it any more. Its memory is kept for the next one while as much is looked at. */
static void free_locked(ahead_entry *e)
{
    lookahead *a = &e->feed->ahead;
    e->taken = e->dropped = false;
    e->waiter = NULL;
    e->next = a->free;
    a->free = e;
    a->idle++;
    if (a->idle > a->depth) {
        uncharge_locked(e);
        pthread_cond_broadcast(&e->feed->pool->room);
    }
}

/* Out of the table; one that is on its way goes when it has come. */
static void drop_locked(ahead_entry *e)
{
    lookahead *a = &e->feed->ahead;
    ahead_entry **slot = slot_of(a, e->share);
    if (*slot == e)
        *slot = NULL;
    if (e->reading) {
        e->dropped = true;
        psti_reader_cancel(e->feed->pool->reader, &e->read);
        return;
    }
    a->ready--;
    free_locked(e);
}

static ahead_entry *entry_locked(psti_feed *feed)
{
    lookahead *a = &feed->ahead;
    ahead_entry *e = a->free;
    if (e) {
        a->free = e->next;
        a->idle--;
        return e;
    }
    e = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *e);
    if (e) {
        e->feed = feed;
        e->all = a->all;
        a->all = e;
    }
    return e;
}

/* Room for so many bytes, or false: look-ahead never waits for any. */
static bool room_locked(ahead_entry *e, uint64_t bytes)
{
    psti_pool *pool = e->feed->pool;
    const uint64_t want = bytes + bytes / 8 + 80, most = pool_encoded_max_locked(pool);
    if (e->bytes.cap >= bytes + 64)
        return true;
    const uint64_t more = want > e->charged ? want - e->charged : 0;
    if (e->feed->ahead.bytes + more > most / 2 || pool->encoded + more > most / 4 * 3 ||
        !psti_budget_try(&pool->budget, more))
        return false;
    pool->encoded += more;
    e->feed->ahead.bytes += more;
    e->charged += more;
    if (psti_buf_need(PSTI_MEM_SCHED, &e->bytes, (size_t)bytes) == 0)
        return true;
    uncharge_locked(e);
    return false;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* From the net. */
static void ahead_done(psti_read *read, int status)
{
    ahead_entry *e = read->user;
    psti_feed *feed = e->feed;
    psti_pool *pool = feed->pool;
    pthread_mutex_lock(&pool->lock);
    reading_ends_locked(pool, status < 0 ? 0 : read->at.length);
    e->reading = false;
    e->status = status;
    feed->ahead.reading--;
    psti_read *waiter = e->waiter;
    e->waiter = NULL;
    if (waiter && status < 0 && waiter->err)
        *waiter->err = e->error;
    if (e->dropped)
        free_locked(e);
    else if (!e->taken)
        feed->ahead.ready++;
    if (feed->closing)
        pthread_cond_broadcast(&pool->room);
    pthread_mutex_unlock(&pool->lock);
    if (waiter)
        waiter->done(waiter, status);
}

/* Whether the sample would have to be read: it is in no cache. */
static bool must_be_read(const psti_feed *feed, int64_t id)
{
    const psti_pool *pool = feed->pool;
    bool open;
    if (!feed->cached && !feed->encoded && !feed->tiered)
        return true;
    const psti_id128 identity = psti_dataset_identity(feed->spec.data, id);
    const psti_cache_key form = {identity, feed->spec.form},
                         outside = {identity, feed->spec.tier_form};
    const uint64_t source = (uint64_t)feed->spec.fields[feed->ahead.input].source;
    const psti_cache_key stored = {identity, {source, PSTI_ENCODED}};
    psti_cache_entry *found = feed->cached ? psti_cache_find(pool->cache, &form, &open) : NULL;
    if (!found && feed->encoded)
        found = psti_cache_find(pool->cache, &stored, &open);
    if (found) {
        psti_cache_unpin(pool->cache, found);
        return false;
    }
    return !feed->tiered || !pool->disk ||
           !(psti_disk_has(pool->disk, &outside) || psti_disk_has(pool->disk, &stored));
}

/* False: not now. */
static bool ask_locked(psti_feed *feed, run *r, int64_t share)
{
    lookahead *a = &feed->ahead;
    psti_extent at;
    bool valid;
    int64_t id;
    uint32_t occurrence;
    psti_epoch_at(r->epoch, run_position(r, share, &valid), &id, &occurrence);
    ahead_entry *before = *slot_of(a, share);
    if (before && before->epoch == r->number && before->share >= r->next_share)
        return false;
    if (before) /* its task did without */
        drop_locked(before);
    if (foresight_sent_locked(r, share) || !must_be_read(feed, id) ||
        psti_dataset_extent(feed->spec.data, id, feed->spec.fields[a->input].source, &at) < 0 ||
        !at.bucket)
        return true; /* its task will see; what has a copy on the disk is not waited for */
    ahead_entry *e = entry_locked(feed);
    if (!e)
        return false;
    if (!room_locked(e, at.length)) {
        free_locked(e);
        return false;
    }
    e->epoch = r->number;
    e->share = share;
    e->id = id;
    e->status = 0;
    e->reading = true;
    e->read = (psti_read){
        .at = at, .buf = e->bytes.data, .done = ahead_done, .user = e, .err = &e->error};
    psti_error_clear(&e->error);
    *slot_of(a, share) = e;
    a->reading++;
    reading_begins_locked(feed->pool);
    psti_reader_submit(feed->pool->reader, &e->read);
    return true;
}

static run *run_ahead_locked(const psti_feed *feed)
{
    for (run *r = feed->runs; r; r = r->next)
        if (!run_dispatched_all(r))
            return r->rest ? NULL : r;
    return NULL;
}

void ahead_pump_locked(psti_feed *feed)
{
    lookahead *a = &feed->ahead;
    run *r = a->on && a->depth > 0 && feed->started && !feed->closing && !feed->error.code
                 ? run_ahead_locked(feed)
                 : NULL;
    if (!r || feed->pool->opening)
        return;
    if (!a->at)
        a->at = psti_calloc(PSTI_MEM_SCHED, SLOTS, sizeof *a->at);
    if (!a->at)
        return;
    if (a->epoch != r->number || a->next < r->next_share)
        a->next = r->next_share;
    for (int64_t i = 0; a->epoch != r->number && i < SLOTS; i++)
        if (a->at[i])
            drop_locked(a->at[i]);
    a->epoch = r->number;
    const int64_t end = r->next_share + a->depth < r->share ? r->next_share + a->depth : r->share;
    while (a->next < end && ask_locked(feed, r, a->next))
        a->next++;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

bool ahead_find_locked(task *t, int input)
{
    lookahead *a = &t->feed->ahead;
    if (!a->on || !a->at || input != a->input)
        return false;
    if (t->ahead) /* found before */
        return t->ahead->status == 0;
    ahead_entry *e = *slot_of(a, t->share);
    if (!e || e->share != t->share || e->epoch != t->run->number || e->id != t->id)
        return false;
    *slot_of(a, t->share) = NULL;
    if (e->status < 0) { /* perhaps the task's own read goes better */
        a->ready--;
        free_locked(e);
        return false;
    }
    a->ready -= !e->reading;
    if (a->ready < a->least)
        a->least = a->ready;
    e->taken = true;
    t->ahead = e;
    return true;
}

uint8_t *ahead_bytes(const task *t)
{
    return t->ahead->bytes.data;
}

/* The task's read is that of the entry. True: it has ended, and so. */
bool ahead_submit_locked(task *t, psti_read *read, int *status)
{
    ahead_entry *e = t->ahead;
    if (e->reading) {
        e->waiter = read;
        return false;
    }
    *status = e->status;
    return true;
}

void ahead_end_locked(task *t)
{
    ahead_entry *e = t->ahead;
    t->ahead = NULL;
    if (!e)
        return;
    if (e->reading) { /* the task did without */
        e->taken = false;
        e->waiter = NULL;
        e->dropped = true;
        return;
    }
    free_locked(e);
}

void ahead_cancel_locked(const run *r)
{
    lookahead *a = &r->feed->ahead;
    for (ahead_entry *e = a->all; e; e = e->all) {
        if (e->epoch == r->number && a->at && *slot_of(a, e->share) == e)
            drop_locked(e);
        else if (e->reading && e->taken && e->epoch == r->number)
            psti_reader_cancel(r->feed->pool->reader, &e->read);
    }
}

/* ---- how far --------------------------------------------------------------------------------- */

void ahead_waits_locked(psti_feed *feed, uint64_t now)
{
    lookahead *a = &feed->ahead;
    if (!a->on)
        return;
    a->waited_ns = now;
    if (feed->runnable || !feed->pool->reading || now - a->grown_ns < GROW_NS)
        return; /* workers are what is short, not bytes */
    a->grown_ns = now;
    a->depth = a->depth ? 2 * a->depth : FIRST_DEPTH;
    if (a->depth > SLOTS / 2)
        a->depth = SLOTS / 2;
}

void ahead_look_locked(psti_feed *feed, uint64_t now)
{
    lookahead *a = &feed->ahead;
    if (!a->on || now - a->looked_ns < LOOK_NS)
        return;
    if (a->depth && now - a->waited_ns > CALM_NS && a->least > a->depth / 2)
        a->depth -= a->depth / 8 + 1;
    a->looked_ns = now;
    a->least = a->ready;
}

void ahead_close_locked(psti_feed *feed)
{
    lookahead *a = &feed->ahead;
    while (a->all) {
        ahead_entry *e = a->all;
        a->all = e->all;
        uncharge_locked(e);
        psti_free(e);
    }
    psti_free(a->at);
    a->at = NULL;
}
