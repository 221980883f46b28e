/* SPDX-License-Identifier: Apache-2.0
 * Look-ahead: samples of a bucket that come after those for which there is room in batches are
 * asked for as well, and wait as they are stored. A task that is sent out later finds its bytes
 * there, or on their way. What comes next is known: it is what the run would send out. How far it
 * looks follows the consumer's waiting: further each time that it waits while workers have no
 * bytes, less far while what came is not used. Inside half of the encoded part of the budget, and
 * given back to samples that would have to wait for it. Only for feeds with one member a sample,
 * which is nearly all; others are as well off with the reads of their tasks. Under pool->lock, but
 * for ahead_done. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

enum { FIRST_DEPTH = 64, SLOTS = 2048 };
static const uint64_t GROW_NS = 20000000;      /* between two steps further */
static const uint64_t LOOK_NS = 200000000;     /* between two looks whether it is too far */
static const uint64_t CALM_NS = 2000000000ull; /* without waiting, before it is taken back; and
                                                  after others needed its bytes */

/* Bytes of one sample. taken: a task has them. */
struct ahead_entry {
    psti_read read;
    psti_feed *feed;
    ahead_entry *next; /* of the free ones */
    ahead_entry *all;  /* of all */
    uint64_t run;      /* whose, */
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

static ahead_entry **slot_of(const lookahead *a, int64_t share)
{
    return &a->at[share % SLOTS];
}

/* Of that run and that share; NULL = none. */
static ahead_entry *entry_of(const lookahead *a, uint64_t serial, int64_t share)
{
    ahead_entry *e = a->at ? *slot_of(a, share) : NULL;
    return e && e->run == serial && e->share == share ? e : NULL;
}

static void give_room_locked(ahead_entry *e)
{
    uncharge_locked(e);
    pthread_cond_broadcast(&e->feed->pool->room);
}

/* Those without memory are a list of their own: an entry is looked for where there is some. */
static void put_free_locked(ahead_entry *e)
{
    lookahead *a = &e->feed->ahead;
    ahead_entry **list = e->charged ? &a->spare : &a->empty;
    e->next = *list;
    *list = e;
    a->spares += e->charged > 0;
}

static ahead_entry *take_spare_locked(lookahead *a)
{
    ahead_entry *e = a->spare;
    if (e) {
        a->spare = e->next;
        if (--a->spares < a->least_spares)
            a->least_spares = a->spares;
    }
    return e;
}

/* One idle buffer less; false when there is none. */
static bool drop_spare_locked(lookahead *a)
{
    ahead_entry *e = take_spare_locked(a);
    if (!e)
        return false;
    give_room_locked(e);
    put_free_locked(e);
    return true;
}

/* Nobody has it any more. Its memory is kept for the next one; what turns out not to be needed goes
 * in ahead_look_locked. */
static void free_locked(ahead_entry *e)
{
    lookahead *a = &e->feed->ahead;
    e->taken = e->dropped = false;
    e->waiter = NULL;
    if (e->charged && a->depth == 0)
        give_room_locked(e);
    put_free_locked(e);
}

/* Nobody wants what is on its way: it is free when the net has let go of it. */
static void abandon_locked(ahead_entry *e)
{
    psti_pool *pool = e->feed->pool;
    e->taken = false;
    e->waiter = NULL;
    e->dropped = true;
    pool->ahead_ending += e->charged;
    psti_reader_cancel(pool->reader, &e->read);
}

/* Out of the table. */
static void drop_locked(ahead_entry *e)
{
    lookahead *a = &e->feed->ahead;
    *slot_of(a, e->share) = NULL;
    if (e->reading) {
        abandon_locked(e);
        return;
    }
    a->ready--;
    free_locked(e);
}

static void drop_all_locked(lookahead *a)
{
    for (int64_t i = 0; a->at && i < SLOTS; i++)
        if (a->at[i])
            drop_locked(a->at[i]);
}

static ahead_entry *entry_locked(psti_feed *feed)
{
    lookahead *a = &feed->ahead;
    ahead_entry *e = take_spare_locked(a);
    if (!e && (e = a->empty))
        a->empty = e->next;
    if (e)
        return e;
    e = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *e);
    if (e) {
        e->feed = feed;
        e->all = a->all;
        a->all = e;
    }
    return e;
}

/* So many bytes more for look-ahead. */
static bool charge_locked(psti_feed *feed, uint64_t more)
{
    psti_pool *pool = feed->pool;
    const uint64_t most = pool_encoded_max_locked(pool);
    if (feed->ahead.bytes + more > most / 2 || pool->encoded + more > most / 4 * 3 ||
        !psti_budget_try(&pool->budget, more))
        return false;
    pool->encoded += more;
    feed->ahead.bytes += more;
    return true;
}

/* Room for so many bytes, or false: look-ahead never waits for any. */
static bool room_locked(ahead_entry *e, uint64_t bytes)
{
    const uint64_t want = bytes + bytes / 8 + 80;
    if (e->bytes.cap >= bytes + 64)
        return true;
    const uint64_t more = want > e->charged ? want - e->charged : 0;
    while (!charge_locked(e->feed, more))
        if (!drop_spare_locked(&e->feed->ahead)) /* idle ones may be too small, and in the way */
            return false;
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
    if (e->dropped) { /* somebody may have waited for its bytes */
        pool->ahead_ending -= e->charged;
        free_locked(e);
        pool_signal_locked(pool);
    } else if (!e->taken) {
        feed->ahead.ready++;
    }
    if (feed->closing || pool->opening)
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
    if (before && before->run == r->serial && before->share >= r->next_share)
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
    e->run = r->serial;
    e->share = share;
    e->id = id;
    e->status = 0;
    e->reading = true;
    e->read = (psti_read){.at = at,
                          .buf = e->bytes.data,
                          .done = ahead_done,
                          .user = e,
                          .err = &e->error,
                          .more = run_goes_on(r, share)};
    psti_error_clear(&e->error);
    *slot_of(a, share) = e;
    a->reading++;
    reading_begins_locked(feed->pool);
    psti_reader_submit(feed->pool->reader, &e->read);
    return true;
}

/* The first that has samples of its share left. Repeats that make up for bad samples are none: they
 * come when the next run has begun, whose entries must not be dropped for them. */
static run *run_ahead_locked(const psti_feed *feed)
{
    for (run *r = feed->runs; r; r = r->next)
        if (!run_dispatched_all(r) && (r->rest || r->next_share < r->share))
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
    if (a->run != r->serial)
        drop_all_locked(a);
    if (a->run != r->serial || a->next < r->next_share)
        a->next = r->next_share;
    a->run = r->serial;
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
    ahead_entry *e = entry_of(a, t->run->serial, t->share);
    if (!e || e->id != t->id)
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

void ahead_back_locked(task *t)
{
    ahead_entry *e = t->ahead;
    lookahead *a = &t->feed->ahead;
    if (!e)
        return;
    if (*slot_of(a, e->share)) { /* the place is another's */
        ahead_end_locked(t);
        return;
    }
    t->ahead = NULL;
    *slot_of(a, e->share) = e;
    e->taken = false;
    a->ready += !e->reading;
}

void ahead_sent_locked(const task *t)
{
    ahead_entry *e = t->feed->ahead.on ? entry_of(&t->feed->ahead, t->run->serial, t->share) : NULL;
    if (e)
        drop_locked(e);
}

void ahead_end_locked(task *t)
{
    ahead_entry *e = t->ahead;
    t->ahead = NULL;
    if (e && e->reading) /* its bytes came from elsewhere */
        abandon_locked(e);
    else if (e)
        free_locked(e);
}

void ahead_cancel_locked(const run *r)
{
    lookahead *a = &r->feed->ahead;
    for (ahead_entry *e = a->all; e; e = e->all) {
        if (e->run == r->serial && e == entry_of(a, e->run, e->share))
            drop_locked(e);
        else if (e->reading && e->taken && e->run == r->serial)
            psti_reader_cancel(r->feed->pool->reader, &e->read);
    }
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* The entry furthest away; what comes before it is looked at as before. */
static bool drop_last_locked(psti_feed *feed)
{
    lookahead *a = &feed->ahead;
    const run *r = feed->runs;
    while (r && r->serial != a->run)
        r = r->next;
    if (!a->ready && !a->reading)
        return false;
    for (int64_t share = a->next - 1; share >= 0 && share >= a->next - SLOTS; share--) {
        ahead_entry *e = entry_of(a, a->run, share);
        if (!e)
            continue;
        drop_locked(e);
        a->next = share;
        a->depth = r && share > r->next_share ? share - r->next_share : 0;
        a->yielded_ns = psti_now_ns();
        return true;
    }
    return false;
}

bool ahead_yield_locked(psti_pool *pool, bool fetched)
{
    psti_feed *most = NULL;
    for (psti_feed *feed = pool->feeds; feed; feed = feed->next) {
        if (drop_spare_locked(&feed->ahead))
            return true;
        if (feed->ahead.bytes && (!most || feed->ahead.bytes > most->ahead.bytes))
            most = feed;
    }
    if (!fetched || !most)
        return false;
    if (drop_last_locked(most))
        return true;
    for (psti_feed *feed = pool->feeds; feed; feed = feed->next)
        if (drop_last_locked(feed))
            return true;
    return false;
}

/* ---- how far --------------------------------------------------------------------------------- */

void ahead_waits_locked(psti_feed *feed, uint64_t now)
{
    lookahead *a = &feed->ahead;
    if (!a->on || feed->runnable || !feed->pool->reading)
        return; /* workers are what is short, not bytes */
    a->waited_ns = now;
    if (!feed->batches || now - a->grown_ns < GROW_NS)
        return; /* that the first batch takes its time says nothing of the source */
    if (a->yielded_ns && now - a->yielded_ns < CALM_NS)
        return; /* memory is */
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
    for (int64_t idle = a->least_spares; idle > 0 && drop_spare_locked(a); idle--)
        continue; /* all the time since */
    a->least_spares = a->spares;
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
