/* SPDX-License-Identifier: Apache-2.0
 * The stored bytes of a task: where its members lie, memory for them, reading them by the reader's
 * threads or by the worker itself, and trying again. Samples that the caller's function brings are
 * fetch.c's. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

enum { RENEWALS = 3, COLD_SPELL = 256 };

/* ---- finding and making room ----------------------------------------------------------------- */

static uint64_t bytes_of(const task *t)
{
    uint64_t bytes = t->part_bytes;
    for (int i = 0; i < t->read_count; i++)
        bytes += t->reads[i].at.length;
    return bytes;
}

/* All its bytes are there, or failed to come. */
static void read_ended_locked(task *t)
{
    reading_ends_locked(t->feed->pool, bytes_of(t));
    task_runnable_locked(t);
}

/* From an I/O thread, or from dispatch when there is nothing to read. */
static void read_done(psti_read *read, int status)
{
    task *t = read->user;
    if (status < 0) {
        int expected = 0;
        atomic_compare_exchange_strong(&t->read_status, &expected, status);
    }
    if (atomic_fetch_sub_explicit(&t->reads_left, 1, memory_order_acq_rel) != 1)
        return;
    psti_pool *pool = t->feed->pool;
    const uint64_t now = psti_now_ns();
    pthread_mutex_lock(&pool->lock);
    t->read_ns = now - t->submitted_ns;
    t->read_away = true;
    read_ended_locked(t);
    pthread_mutex_unlock(&pool->lock);
}

/* Finds where the sample's members lie. Returns the bytes to read, or a negative code. */
static int64_t find_members(task *t)
{
    psti_feed *feed = t->feed;
    uint64_t total = 0;
    t->read_count = 0;
    stored_drop(t);
    parts_aim(t);
    for (int i = 0; i < feed->spec.field_count; i++) {
        t->inputs[i] = (psti_input){NULL, 0, -1};
        if (!feed->source[feed->spec.fields[i].source].member ||
            (t->cached && psti_plan_is_picture(feed->spec.plan, i)))
            continue;
        if (stored_find(t, i)) {
            t->part_inputs &= ~((uint32_t)1 << i);
            continue;
        }
        psti_read *read = &t->reads[t->read_count];
        const int rc =
            psti_dataset_extent(feed->spec.data, t->id, feed->spec.fields[i].source, &read->at);
        if (rc == -ENOENT)
            continue;
        if (rc < 0)
            return rc;
        const uint64_t room = read->at.length;
        read->at.length = parts_head(t, i, room);
        t->read_room[t->read_count] = room;
        t->read_field[t->read_count++] = i;
        total += (room + 63) & ~(uint64_t)63;
        if (room > INT64_MAX / 4 || total > INT64_MAX / 4)
            return PST_ELIMIT;
    }
    return (int64_t)total;
}

void task_release_bytes_locked(psti_pool *pool, task *t)
{
    psti_buf_free(&t->bytes);
    psti_budget_give(&pool->budget, t->charged);
    pool->encoded -= t->charged;
    t->charged = 0;
    pthread_cond_broadcast(&pool->room);
}

/* Idle tasks keep small buffers; when those stand in the way, they go. */
void task_shed_locked(psti_pool *pool, const task *but)
{
    for (task *t = pool->free_tasks; t; t = t->next)
        if (t != but && t->charged)
            task_release_bytes_locked(pool, t);
}

/* Memory for the encoded bytes, out of the encoded part of the budget. 1: there; 0: not now;
 * negative: never. A task that is under way already must have it, or its fate would hang on what
 * others hold. */
static int reserve_bytes_locked(task *t, uint64_t total, bool must)
{
    psti_pool *pool = t->feed->pool;
    if (t->bytes.cap >= total + 64 || t->read_count == 0)
        return 1;
    const uint64_t want = total + total / 8 + 80;
    const uint64_t most = pool_encoded_max_locked(pool);
    if (want > most)
        return PST_EBUDGET;
    const uint64_t held = pool->encoded - t->charged;
    if (held + want > most || !psti_budget_try(&pool->budget, want - t->charged)) {
        if (pool_moves_locked(pool) && !must)
            return 0;
        /* Nothing is under way that could make room: idle buffers go, and this sample comes in any
         * case. */
        task_shed_locked(pool, t);
        psti_budget_force(&pool->budget, want - t->charged);
    }
    pool->encoded += want - t->charged;
    t->charged = want;
    if (psti_buf_need(PSTI_MEM_SCHED, &t->bytes, total) == 0)
        return 1;
    task_release_bytes_locked(pool, t);
    return -ENOMEM;
}

/* Gives each member its place in the task's buffer. */
static void lay_out(task *t)
{
    uint8_t *at = t->bytes.data;
    for (int i = 0; i < t->read_count; i++) {
        psti_read *read = &t->reads[i];
        read->buf = at;
        read->done = read_done;
        read->user = t;
        t->inputs[t->read_field[i]] = (psti_input){at, t->read_room[i], -1};
        at += (t->read_room[i] + 63) & ~(uint64_t)63;
    }
}

static void submit_locked(task *t, psti_read *reads, int count)
{
    reading_begins_locked(t->feed->pool);
    t->submitted_ns = psti_now_ns();
    atomic_store(&t->read_status, 0);
    atomic_store(&t->reads_left, count + 1);
    for (int i = 0; i < count; i++)
        psti_reader_submit(t->feed->pool->reader, &reads[i]);
}

static void send_reads_locked(task *t)
{
    lay_out(t);
    submit_locked(t, t->reads, t->read_count);
}

void read_send_locked(task *t, psti_read *reads, int count)
{
    for (int i = 0; i < count; i++) {
        reads[i].done = read_done;
        reads[i].user = t;
    }
    submit_locked(t, reads, count);
    if (atomic_fetch_sub_explicit(&t->reads_left, 1, memory_order_acq_rel) == 1)
        read_ended_locked(t);
}

void pool_reads_cold_locked(psti_pool *pool)
{
    pool->cold = COLD_SPELL;
}

static bool grow_reads(task *t, int count)
{
    if (t->read_cap >= count)
        return true;
    psti_read *reads = psti_realloc(PSTI_MEM_SCHED, t->reads, (size_t)count, sizeof *reads);
    if (!reads)
        return false;
    memset(reads, 0, (size_t)count * sizeof *reads);
    t->reads = reads;
    t->read_cap = count;
    return true;
}

static int members_of(const psti_feed *feed)
{
    int count = 0;
    for (int i = 0; i < feed->spec.field_count; i++)
        count += feed->source[feed->spec.fields[i].source].member;
    return count;
}

/* A sample whose size is not known yet counts as the feed's largest so far. */
int read_aim_locked(task *t)
{
    const int members = members_of(t->feed);
    int64_t total = grow_reads(t, members) ? find_members(t) : -ENOMEM;
    t->unseen = total == -EAGAIN;
    if (t->unseen) {
        t->read_count = members;
        total = (int64_t)t->feed->unseen_bytes;
    }
    return total < 0 ? (int)total : reserve_bytes_locked(t, (uint64_t)total, false);
}

/* Sends an aimed task's reads ahead; the reader makes it runnable. */
void task_send_locked(task *t)
{
    if (!t->unread || t->unseen) {
        task_runnable_locked(t);
        return;
    }
    t->unread = false;
    if (t->feed->fetches) {
        fetch_send(t);
        return;
    }
    send_reads_locked(t);
    /* The task's own share of reads_left, so that it cannot become runnable before it is counted.
     */
    if (atomic_fetch_sub_explicit(&t->reads_left, 1, memory_order_acq_rel) == 1) {
        t->read_ns = psti_now_ns() - t->submitted_ns;
        t->read_away = true;
        read_ended_locked(t);
    }
}

/* ---- reading now, and again -------------------------------------------------------------------
 */

static bool worth_retrying(int status)
{
    return status == -EIO || status == -ESTALE || status == -EAGAIN || status == -ETIMEDOUT ||
           status == -EINTR;
}

static void forget_locked(psti_feed *feed, int64_t id)
{
    damage_forget(&feed->damage, id);
    findings_forget(&feed->findings, id);
}

/* Tries a read again: a changed file is listed anew, a failed read repeated as the policy says.
 * True if it was sent again. */
bool read_again(task *t, int status, pst_error *err)
{
    psti_feed *feed = t->feed;
    const bool changed = status == PST_ECHANGED;
    if (feed->fetches) {
        if (t->tries >= feed->spec.retries || !fetch_worth_retrying(status))
            return false;
        t->tries++;
        pthread_mutex_lock(&feed->pool->lock);
        lane_away_locked(t);
        pthread_mutex_unlock(&feed->pool->lock);
        fetch_again(t);
        return true;
    }
    if (changed && feed->resumed) {
        psti_fail(
            err, PST_ECHANGED, "read", NULL,
            "the file changed since the state was saved; restore it, or start without the state");
        return false;
    }
    if (!(changed ? t->tries < RENEWALS : worth_retrying(status) && t->tries < feed->spec.retries))
        return false;
    t->tries++;
    for (int i = 0; changed && i < t->read_count; i++) {
        const int field = feed->spec.fields[t->read_field[i]].source;
        if (psti_dataset_renew(feed->spec.data, t->id, field, err) < 0)
            return false;
    }
    int seen; /* looking at the file may be what failed */
    while ((seen = psti_dataset_look(feed->spec.data, t->id)) < 0)
        if (!worth_retrying(seen) || t->tries++ >= feed->spec.retries)
            return false;
    pthread_mutex_lock(&feed->pool->lock);
    if (changed) /* what was remembered of the old bytes says nothing of the new ones */
        forget_locked(feed, t->id);
    form_find(t);
    const int64_t total = find_members(t);
    const int rc = total < 0 ? (int)total : reserve_bytes_locked(t, (uint64_t)total, true);
    if (rc > 0) {
        lane_away_locked(t);
        send_reads_locked(t);
        if (atomic_fetch_sub_explicit(&t->reads_left, 1, memory_order_acq_rel) == 1)
            read_ended_locked(t);
    }
    pthread_mutex_unlock(&feed->pool->lock);
    return rc > 0;
}

/* Looks at files that nobody looked at before, and finds room for their bytes. What is needed
 * beyond what was reserved for them is taken in any case, as when a file changed. */
void read_look_first(task *t)
{
    psti_feed *feed = t->feed;
    int rc = psti_dataset_look(feed->spec.data, t->id);
    pthread_mutex_lock(&feed->pool->lock);
    form_find(t); /* the identity is known only now */
    const int64_t total = rc < 0 ? rc : find_members(t);
    const uint64_t cap = pool_encoded_max_locked(feed->pool) / 8;
    if (total > (int64_t)feed->unseen_bytes)
        feed->unseen_bytes = (uint64_t)total < cap ? (uint64_t)total : cap;
    rc = total < 0 ? (int)total : reserve_bytes_locked(t, (uint64_t)total, true);
    pthread_mutex_unlock(&feed->pool->lock);
    t->unseen = false;
    t->unread = rc > 0 && t->read_count > 0;
    if (rc < 0) {
        t->read_count = 0;
        atomic_store(&t->read_status, rc);
    }
}

/* Bytes that the system has at hand are read by the worker that will decode them: nothing is handed
 * over, and they are in its cache. False when that would have waited: then the reader does it, and
 * for a while reads are sent ahead. */
bool read_here(task *t)
{
    psti_pool *pool = t->feed->pool;
    t->unread = false;
    lay_out(t);
    const uint64_t since = psti_now_ns();
    int rc = 0;
    for (int i = 0; i < t->read_count && rc == 0; i++)
        rc = psti_read_try(&t->reads[i].at, t->reads[i].buf);
    t->read_ns = psti_now_ns() - since;
    t->read_away = false;
    if (rc != -EAGAIN && rc != -EINVAL) { /* EINVAL: a kernel that does not know RESOLVE_CACHED */
        atomic_store(&t->read_status, rc);
        return true;
    }
    pthread_mutex_lock(&pool->lock);
    pool_reads_cold_locked(pool);
    t->unread = true;
    lane_away_locked(t);
    task_send_locked(t);
    pthread_mutex_unlock(&pool->lock);
    return false;
}

void read_describe_failure(const task *t, int status, pst_error *err)
{
    const psti_pool *pool = t->feed->pool;
    if (t->feed->fetches && t->fetch && t->fetch->sink.error.code == status)
        *err = t->fetch->sink.error;
    else if (status == PST_EBUDGET)
        psti_fail(err, status, "memory", NULL,
                  "its stored bytes do not fit into the part of the budget for reading (a quarter "
                  "of what %.1f MiB "
                  "leave); give more memory",
                  (double)pool->budget.limit / 0x1p20);
    else if (status == PST_ECHANGED)
        psti_fail(err, status, "read", NULL,
                  "the file is not the one that was listed; list the data again");
    else
        psti_fail(err, status, "read", NULL, "%s", pst_strerror(status));
}
