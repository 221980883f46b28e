/* SPDX-License-Identifier: Apache-2.0
 * The stored bytes of a task: where its members lie, memory for them, reading them by the reader's
 * threads or by the worker itself, and trying again. Samples that the caller's function brings are
 * fetch.c's. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

enum { RENEWALS = 3, COLD_SPELL = 256 };

/* ---- finding and making room ----------------------------------------------------------------- */

/* Whether the bytes of a read were asked for ahead. */
static bool ahead_holds(const task *t, int read)
{
    return t->ahead && t->reads[read].at.bucket;
}

/* From the source; what was asked for ahead is counted there. */
static uint64_t bytes_of(const task *t)
{
    uint64_t bytes = t->part_bytes;
    for (int i = 0; i < t->read_count; i++)
        bytes += read_from_tier(t, i) || ahead_holds(t, i) ? 0 : t->reads[i].at.length;
    return bytes;
}

/* All its bytes are there, or failed to come. */
static void read_ended_locked(task *t)
{
    reading_ends_locked(t->feed->pool, bytes_of(t));
    t->feed->reads_now--;
    task_runnable_locked(t);
    waits_moved_locked(t->feed->pool, 0);
}

/* From an I/O thread, or from dispatch when there is nothing to read. */
static void read_done(psti_read *read, int status)
{
    task *t = read->user;
    if (read >= t->reads && read < t->reads + t->read_count) /* others are parts */
        t->read_result[read - t->reads] = status;
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

static uint64_t add_read(task *t, int slot, uint64_t room)
{
    t->read_room[t->read_count] = room;
    t->read_field[t->read_count++] = slot;
    return (room + 63) & ~(uint64_t)63;
}

/* Where a member's bytes lie: 1 when it is to be read, 0 when it is there already or missing. */
static int find_member(task *t, int input, psti_extent *at)
{
    const psti_feed *feed = t->feed;
    if (stored_find(t, input)) {
        t->part_inputs &= ~((uint32_t)1 << input);
        return 0;
    }
    const tier from = tiers_member_locked(t, input, at);
    if (from != TIER_NONE) {
        t->part_inputs &= ~((uint32_t)1 << input);
        return from == TIER_DISK;
    }
    const int rc = psti_dataset_extent(feed->spec.data, t->id, feed->spec.fields[input].source, at);
    if (rc == 0)
        ahead_find_locked(t, input);
    return rc == -ENOENT ? 0 : rc < 0 ? rc : 1;
}

/* Finds where the sample's members lie. Returns the bytes to read, or a negative code. */
static int64_t find_members(task *t)
{
    psti_feed *feed = t->feed;
    uint64_t total = 0;
    t->read_count = 0;
    stored_drop(t);
    tiers_aim_locked(t);
    parts_aim(t);
    if (t->form_from == TIER_DISK) {
        t->reads[0].at = tiers_form_extent(t);
        total = add_read(t, TIER_FORM, t->reads[0].at.length);
    }
    for (int i = 0; i < feed->spec.field_count; i++) {
        t->inputs[i] = (psti_input){NULL, 0, -1};
        if (!feed->source[feed->spec.fields[i].source].member ||
            (task_has_form(t) && psti_plan_is_picture(feed->spec.plan, i)))
            continue;
        psti_read *read = &t->reads[t->read_count];
        const int rc = find_member(t, i, &read->at);
        if (rc == 0)
            continue;
        if (rc < 0)
            return rc;
        const uint64_t room = read->at.length;
        read->at.length = parts_head(t, i, room);
        const uint64_t bytes = add_read(t, i, room);
        total += ahead_holds(t, t->read_count - 1) ? 0 : bytes;
        if (room > INT64_MAX / 4 || total > INT64_MAX / 4)
            return PST_ELIMIT;
    }
    tiers_aimed_locked(t);
    return (int64_t)(t->tier_reads ? total + 64 : total); /* envelopes are aligned */
}

void task_release_bytes_locked(psti_pool *pool, task *t)
{
    psti_buf_free(&t->bytes);
    psti_budget_give(&pool->budget, t->charged);
    pool->encoded -= t->charged;
    t->charged = 0;
    pthread_cond_broadcast(&pool->room);
}

/* Idle tasks keep small buffers, and look-ahead holds what is not needed yet; when those stand in
 * the way, they go. */
void task_shed_locked(psti_pool *pool, const task *but)
{
    while (ahead_yield_locked(pool, true))
        continue;
    for (task *t = pool->free_tasks; t; t = t->next)
        if (t != but && t->charged)
            task_release_bytes_locked(pool, t);
}

/* So many bytes in all for the task. */
static bool charge_locked(task *t, uint64_t want)
{
    psti_pool *pool = t->feed->pool;
    if (pool->encoded - t->charged + want > pool_encoded_max_locked(pool) ||
        !psti_budget_try(&pool->budget, want - t->charged))
        return false;
    pool->encoded += want - t->charged;
    t->charged = want;
    return true;
}

/* The same at the cost of look-ahead: its idle buffers in any case; what it has fetched, or is
 * about to, where the task's feed has nothing else under way, or could not go on. */
static bool charge_hard_locked(task *t, uint64_t want, bool must)
{
    psti_pool *pool = t->feed->pool;
    const uint64_t most = pool_encoded_max_locked(pool);
    const bool needy = must || t->feed->inflight <= t->feed->lanes.aside;
    bool there = charge_locked(t, want);
    while (!there && pool->encoded - pool->ahead_ending - t->charged + want > most &&
           ahead_yield_locked(pool, needy))
        there = charge_locked(t, want);
    return there;
}

/* Memory for the encoded bytes, out of the encoded part of the budget. 1: there; 0: not now;
 * negative: never. A task that is under way already must have it, or its fate would hang on what
 * others hold. */
static int reserve_bytes_locked(task *t, uint64_t total, bool must)
{
    psti_pool *pool = t->feed->pool;
    if (t->bytes.cap >= total + 64 || t->read_count == 0 || (total == 0 && t->ahead))
        return 1;
    const uint64_t want = total + total / 8 + 80;
    const uint64_t most = pool_encoded_max_locked(pool);
    if (want > most)
        return PST_EBUDGET;
    if (!charge_hard_locked(t, want, must)) {
        if ((pool_moves_locked(pool) || pool->ahead_ending) && !must)
            return 0;
        /* Nothing is under way that could make room: idle buffers go, and this sample comes in any
         * case. */
        task_shed_locked(pool, t);
        psti_budget_force(&pool->budget, want - t->charged);
        pool->encoded += want - t->charged;
        t->charged = want;
    }
    if (psti_buf_need(PSTI_MEM_SCHED, &t->bytes, total) == 0)
        return 1;
    task_release_bytes_locked(pool, t);
    return -ENOMEM;
}

/* Gives each member its place in the task's buffer. */
static void lay_out(task *t)
{
    uint8_t *at = t->bytes.data;
    if (t->tier_reads)
        at += -(uintptr_t)at & 63;
    const bool more = t->feed->far && run_goes_on(t->run, t->share);
    for (int i = 0; i < t->read_count; i++) {
        psti_read *read = &t->reads[i];
        read->more = more;
        const bool mine = !ahead_holds(t, i);
        read->buf = mine ? at : ahead_bytes(t);
        read->done = read_done;
        read->user = t;
        read->err = t->read_error;
        t->read_result[i] = -ECANCELED;
        tiers_place(t, t->read_field[i], read->buf);
        if (t->read_field[i] < TIER_FORM)
            t->inputs[t->read_field[i]] = (psti_input){read->buf, t->read_room[i], -1};
        at += mine ? (t->read_room[i] + 63) & ~(uint64_t)63 : 0;
    }
}

/* A read that ended before it was the task's; the task's own share of reads_left is still there. */
static void came_before(task *t, int read, int status)
{
    t->read_result[read] = status;
    if (status < 0)
        atomic_store(&t->read_status, status);
    atomic_fetch_sub_explicit(&t->reads_left, 1, memory_order_acq_rel);
}

static void submit_locked(task *t, psti_read *reads, int count)
{
    reading_begins_locked(t->feed->pool);
    t->submitted_ns = psti_now_ns();
    t->feed->reads_now++;
    waits_moved_locked(t->feed->pool, t->submitted_ns);
    atomic_store(&t->read_status, 0);
    atomic_store(&t->reads_left, count + 1);
    if (t->read_error)
        t->read_error->code = 0;
    psti_reader_plug(t->feed->pool->reader); /* members of a sample are neighbours in a shard */
    for (int i = 0; i < count; i++) {
        int status;
        if (reads != t->reads || !ahead_holds(t, i))
            psti_reader_submit(t->feed->pool->reader, &reads[i]);
        else if (ahead_submit_locked(t, &reads[i], &status))
            came_before(t, i, status);
    }
    psti_reader_unplug(t->feed->pool->reader, false);
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
        reads[i].err = t->read_error;
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
    if (t->feed->far && !t->read_error)
        t->read_error = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *t->read_error);
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

/* What tiers bring may be larger than what is stored: where there is no room for it, the sample is
 * what it is without them. */
static bool without_tiers(task *t, int rc)
{
    const bool helps = rc == PST_EBUDGET && (t->tier_reads || t->answered) && !t->tiers_off;
    t->tiers_off |= helps;
    return helps;
}

/* A sample whose size is not known yet counts as the feed's largest so far. */
int read_aim_locked(task *t)
{
    const int members = members_of(t->feed);
    int rc;
    do {
        int64_t total = grow_reads(t, members) ? find_members(t) : -ENOMEM;
        t->unseen = total == -EAGAIN;
        if (t->unseen) {
            t->read_count = members;
            total = (int64_t)t->feed->unseen_bytes;
        }
        rc = total < 0 ? (int)total : reserve_bytes_locked(t, (uint64_t)total, false);
    } while (without_tiers(t, rc));
    return rc;
}

int read_find_again_locked(task *t)
{
    int rc;
    do {
        const int64_t total = find_members(t);
        rc = total < 0 ? (int)total : reserve_bytes_locked(t, (uint64_t)total, true);
    } while (without_tiers(t, rc));
    return rc;
}

void read_go_locked(task *t)
{
    send_reads_locked(t);
    if (atomic_fetch_sub_explicit(&t->reads_left, 1, memory_order_acq_rel) == 1)
        read_ended_locked(t);
}

/* What is left to be read when the tiers have answered: as without them. */
void read_rest_locked(task *t)
{
    const psti_pool *pool = t->feed->pool;
    if (t->feed->far || pool->cold > 0 || !t->read_count) {
        read_go_locked(t);
        return;
    }
    t->unread = true; /* for the worker that takes it */
    task_runnable_locked(t);
}

/* Sends an aimed task's reads ahead; the reader makes it runnable. */
void task_send_locked(task *t)
{
    if (!t->unread || t->unseen) {
        task_runnable_locked(t);
        return;
    }
    t->unread = false;
    if (t->asks) {
        t->asks = false;
        ask_send_locked(t);
        return;
    }
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

/* Whether what was read are the bytes that the files had when they were pulled. */
bool read_is_whole(const task *t)
{
    const psti_dataset *data = t->feed->spec.data;
    if (!psti_dataset_is_guarded(data) || t->feed->fetches)
        return true;
    for (int i = 0; i < t->read_count; i++) {
        const psti_read *r = &t->reads[i];
        if (read_from_tier(t, i) || r->at.offset != 0 || r->at.length != r->at.file_size ||
            r->at.guard) /* the reader compared its blocks */
            continue;
        const int field = t->feed->spec.fields[t->read_field[i]].source;
        if (!psti_dataset_check(data, t->id, field, r->buf, r->at.length))
            return false;
    }
    return true;
}

static int mend_reads(task *t, pst_error *err)
{
    int rc = 0;
    for (int i = 0; i < t->read_count && rc == 0; i++)
        if (!read_from_tier(t, i))
            rc = psti_dataset_mend(t->feed->spec.data, t->id,
                                   t->feed->spec.fields[t->read_field[i]].source, err);
    return rc;
}

static bool worth_mending(const task *t, int status)
{
    return (status == PST_ECHANGED || status == -ENOENT || status == -EIO) && !t->feed->fetches &&
           psti_dataset_is_guarded(t->feed->spec.data);
}

/* Of a bucket whose objects have copies here: a copy failed, and they are left alone from now on.
 */
static bool leaves_near(const task *t)
{
    bool near = false;
    for (int i = 0; i < t->read_count; i++)
        near |= !read_from_tier(t, i) && !t->reads[i].at.bucket;
    if (near && t->tries < RENEWALS)
        psti_dataset_leave_near(t->feed->spec.data);
    return near && t->tries < RENEWALS;
}

bool read_mend(task *t, int status, pst_error *err)
{
    if (t->feed->far && leaves_near(t)) {
        t->tries++;
        return true;
    }
    if (!worth_mending(t, status) || t->tries >= RENEWALS)
        return false;
    t->tries++;
    return mend_reads(t, err) == 0;
}

/* Tries a read again: a changed file is listed anew, a failed read repeated as the policy says.
 * True if it was sent again. */
bool read_again(task *t, int status, pst_error *err)
{
    psti_feed *feed = t->feed;
    const bool mends = worth_mending(t, status);
    const bool changed = status == PST_ECHANGED || mends;
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
    if (changed && feed->resumed && !mends) {
        psti_fail(
            err, PST_ECHANGED, "read", NULL,
            "the file changed since the state was saved; restore it, or start without the state");
        return false;
    }
    const bool near = feed->far && leaves_near(t);
    if (feed->far && !near) /* the net tried often enough; a replaced object is another sample */
        return false;
    if (!near &&
        !(changed ? t->tries < RENEWALS : worth_retrying(status) && t->tries < feed->spec.retries))
        return false;
    t->tries++;
    if (mends && mend_reads(t, err) < 0)
        return false;
    for (int i = 0; changed && !mends && !near && i < t->read_count; i++) {
        if (read_from_tier(t, i))
            continue;
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
    const int rc = read_find_again_locked(t);
    if (rc > 0) {
        t->asks = false;
        lane_away_locked(t);
        read_go_locked(t);
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
    t->unseen = false;
    form_find(t); /* the identity is known only now */
    const int64_t total = rc < 0 ? rc : find_members(t);
    const uint64_t cap = pool_encoded_max_locked(feed->pool) / 8;
    if (total > (int64_t)feed->unseen_bytes)
        feed->unseen_bytes = (uint64_t)total < cap ? (uint64_t)total : cap;
    rc = total < 0 ? (int)total : reserve_bytes_locked(t, (uint64_t)total, true);
    if (without_tiers(t, rc))
        rc = read_find_again_locked(t);
    pthread_mutex_unlock(&feed->pool->lock);
    t->unread = rc > 0 && (t->read_count > 0 || t->asks);
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
    if (t->asks) {
        pthread_mutex_lock(&pool->lock);
        lane_away_locked(t);
        t->feed->asks_ahead = !own_batches(t->feed);
        task_send_locked(t);
        pthread_mutex_unlock(&pool->lock);
        return false;
    }
    t->unread = false;
    lay_out(t);
    const uint64_t since = psti_now_ns();
    t->submitted_ns = since;
    int rc = t->feed->far ? -EAGAIN : 0;
    for (int i = 0; i < t->read_count && rc == 0; i++)
        rc = t->read_result[i] = psti_read_try(&t->reads[i].at, t->reads[i].buf);
    t->read_ns = psti_now_ns() - since;
    t->read_away = false;
    if (rc != -EAGAIN && rc != -EINVAL) { /* EINVAL: a kernel that does not know RESOLVE_CACHED */
        atomic_store(&t->read_status, rc);
        return true;
    }
    pthread_mutex_lock(&pool->lock);
    if (!t->feed->far)
        pool_reads_cold_locked(pool);
    t->unread = true;
    lane_away_locked(t);
    task_send_locked(t);
    pthread_mutex_unlock(&pool->lock);
    return false;
}

/* Nobody waits for what the run's tasks asked a bucket for. */
void read_cancel_locked(const run *r)
{
    psti_pool *pool = r->feed->pool;
    for (int i = 0; r->feed->far && i < pool->task_count; i++) {
        task *t = &pool->tasks[i];
        if (t->run != r || atomic_load(&t->reads_left) <= 0)
            continue;
        for (int k = 0; k < t->read_count; k++)
            psti_reader_cancel(pool->reader, &t->reads[k]);
        for (int k = 0; k < t->part_count; k++)
            psti_reader_cancel(pool->reader, &t->part_reads[k]);
    }
}

void read_describe_failure(const task *t, int status, pst_error *err)
{
    const psti_pool *pool = t->feed->pool;
    if (t->feed->fetches && t->fetch && t->fetch->sink.error.code == status)
        *err = t->fetch->sink.error;
    else if (t->feed->far && t->read_error && t->read_error->code == status)
        *err = *t->read_error;
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
