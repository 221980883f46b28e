/* SPDX-License-Identifier: Apache-2.0
 * Tasks: one sample from dispatch to its end. Dispatch chooses the next position of a feed, finds
 * the bytes and sends the reads out; the reader's threads report back; a worker then carries the
 * plan out and hands the result to place.c. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

enum { RENEWALS = 3, COLD_SPELL = 256 };

/* ---- dispatch -------------------------------------------------------------------------------- */

static void put_runnable_locked(task *t)
{
    task **at = &t->feed->runnable;
    while (*at && (*at)->order < t->order)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
}

void task_runnable_locked(task *t)
{
    put_runnable_locked(t);
    pool_signal_locked(t->feed->pool);
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
    put_runnable_locked(t);
    pool_signal_locked(pool);
    pthread_mutex_unlock(&pool->lock);
}

/* The run that has something left to send out; starts the next epoch when the last one is sent. */
static run *run_to_dispatch_locked(psti_feed *feed)
{
    run **at = &feed->runs;
    for (; *at; at = &(*at)->next)
        if (!run_dispatched_all(*at))
            return *at;
    if (feed->run_count >= 2 || feed->next_epoch >= feed->end_epoch || feed->error.code)
        return NULL;
    for (const run *r = feed->runs; r; r = r->next)
        if (r->error.code)
            return NULL;
    run *r = run_new_locked(feed, feed->next_epoch, NULL, &feed->error);
    if (!r) {
        feed_wake(feed);
        return NULL;
    }
    feed->next_epoch++;
    feed->run_count++;
    *at = r;
    feed_wake(feed);
    return run_dispatched_all(r) ? NULL : r;
}

/* FIXED: the batch that the next share index goes into. */
static bool fixed_batch_locked(psti_feed *feed, run *r)
{
    if (r->open)
        return true;
    if (feed->outstanding + feed->spec.batch > block_samples_max_locked(feed))
        return false;
    const int64_t step = r->next_share / feed->spec.batch;
    r->open = block_take_locked(feed, r, step, psti_deal_slots(r->deal, step));
    if (!r->open) {
        psti_fail(&r->error, -ENOMEM, "batch", NULL, "no memory for a batch of %.1f MiB",
                  (double)feed->layout.bytes / 0x1p20);
        feed_wake(feed);
        return false;
    }
    r->opened++;
    return true;
}

/* Whether another sample may be staged. What completes the batch that the consumer waits for always
 * may. */
static bool stage_open_locked(const psti_feed *feed, const run *r)
{
    if (!feed->stages)
        return true;
    const double coming = (double)(feed->inflight + 1) * feed->stage_sample;
    return (double)feed->pool->staged + coming <= (double)pool_staged_max_locked(feed->pool) ||
           (r == feed->runs && r->outstanding < feed->spec.batch);
}

static bool window_open_locked(const psti_feed *feed, const run *r)
{
    if (feed->outstanding >= block_samples_max_locked(feed) || !stage_open_locked(feed, r))
        return false;
    if (feed->spec.mode == PST_ORDER_READY) {
        if (feed->start_next - feed->start_base < (uint64_t)feed->window)
            return true;
        /* The open batch may hold the oldest sample: what completes it may always start. */
        const int64_t coming = r->inflight + (r->open ? r->open->placed : 0);
        return r == feed->runs && coming < feed->spec.batch;
    }
    return feed->way != QUEUE || r->next_share - r->frontier < r->cell_count;
}

/* Finds where the sample's members lie. Returns the bytes to read, or a negative code. */
static int64_t find_members(task *t)
{
    psti_feed *feed = t->feed;
    uint64_t total = 0;
    t->read_count = 0;
    for (int i = 0; i < feed->spec.field_count; i++) {
        t->inputs[i] = (psti_input){NULL, 0, -1};
        if (!feed->source[feed->spec.fields[i].source].member ||
            (t->cached && psti_plan_is_picture(feed->spec.plan, i)))
            continue;
        psti_read *read = &t->reads[t->read_count];
        const int rc =
            psti_dataset_extent(feed->spec.data, t->id, feed->spec.fields[i].source, &read->at);
        if (rc == -ENOENT)
            continue;
        if (rc < 0)
            return rc;
        t->read_field[t->read_count++] = i;
        total += (read->at.length + 63) & ~(uint64_t)63;
        if (read->at.length > INT64_MAX / 4 || total > INT64_MAX / 4)
            return PST_ELIMIT;
    }
    return (int64_t)total;
}

static void release_bytes_locked(psti_pool *pool, task *t)
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
            release_bytes_locked(pool, t);
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
        if (pool->inflight > 0 && !must)
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
    release_bytes_locked(pool, t);
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
        t->inputs[t->read_field[i]] = (psti_input){at, read->at.length, -1};
        at += (read->at.length + 63) & ~(uint64_t)63;
    }
}

static void send_reads(task *t)
{
    lay_out(t);
    t->submitted_ns = psti_now_ns();
    atomic_store(&t->read_status, 0);
    atomic_store(&t->reads_left, t->read_count + 1);
    for (int i = 0; i < t->read_count; i++)
        psti_reader_submit(t->feed->pool->reader, &t->reads[i]);
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

/* Fills a task with the run's next share index; nothing is counted yet. */
static void aim(task *t, psti_feed *feed, run *r)
{
    t->feed = feed;
    t->run = r;
    t->share = r->next_share;
    t->position = run_position(r, t->share, &t->valid);
    psti_epoch_at(r->epoch, t->position, &t->id, &t->occurrence);
    t->tries = 0;
    t->unseen = false;
    t->batch = NULL;
}

/* From here on the sample will come to an end: counts it in. */
static void commit_locked(task *t)
{
    psti_feed *feed = t->feed;
    run *r = t->run;
    feed->pool->free_tasks = t->next;
    feed->pool->inflight++;
    feed->inflight++;
    feed->outstanding++;
    r->outstanding++;
    r->inflight++;
    r->refs++;
    r->next_share++;
    t->order = feed->pool->order_next++;
    t->start = feed->start_next++;
    if (feed->started_done)
        feed->started_done[t->start % feed->start_cells] = 0;
    if (feed->way == FIXED) {
        t->batch = r->open;
        t->slot = r->open->placed++;
        t->batch->ids[t->slot] = t->id;
        t->batch->positions[t->slot] = t->position;
        t->batch->valid[t->slot] = t->valid;
        t->batch->share_end = t->share + 1;
        r->placed++;
        if (r->open->placed == r->open->slots)
            r->open = NULL;
    }
}

static int members_of(const psti_feed *feed)
{
    int count = 0;
    for (int i = 0; i < feed->spec.field_count; i++)
        count += feed->source[feed->spec.fields[i].source].member;
    return count;
}

/* A sample whose size is not known yet counts as the feed's largest so far. */
static int read_aim_locked(task *t)
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

/* The feed's next sample as a task of its own, counted in but not read yet; NULL when nothing may
 * be sent out. */
task *task_aim_locked(psti_feed *feed)
{
    psti_pool *pool = feed->pool;
    task *t = pool->free_tasks;
    if (feed->closing || !feed->started || !t || pool->opening)
        return NULL;
    if (pool->feeds->next && feed->inflight * 2 > pool->task_count)
        return NULL; /* leave room for the other jobs */
    run *r = run_to_dispatch_locked(feed);
    if (!r || !(feed->way == FIXED ? fixed_batch_locked(feed, r) : window_open_locked(feed, r)))
        return NULL;
    aim(t, feed, r);
    form_find(t);
    const bool fetched = feed->fetches && !t->cached;
    const int rc = fetched ? fetch_aim_locked(t) : read_aim_locked(t);
    if (rc == 0)
        return NULL;
    commit_locked(t);
    t->unread = rc > 0 && (fetched || t->read_count > 0);
    t->read_ns = 0;
    atomic_store(&t->read_status, rc < 0 ? rc : 0);
    if (rc < 0)
        t->read_count = 0;
    return t;
}

/* Sends an aimed task's reads ahead; the reader makes it runnable. */
void task_send_locked(task *t)
{
    if (!t->unread || t->unseen) {
        put_runnable_locked(t);
        pool_signal_locked(t->feed->pool);
        return;
    }
    t->unread = false;
    if (t->feed->fetches) {
        fetch_send(t);
        return;
    }
    send_reads(t);
    /* The task's own share of reads_left, so that it cannot become runnable before it is counted.
     */
    if (atomic_fetch_sub_explicit(&t->reads_left, 1, memory_order_acq_rel) == 1) {
        t->read_ns = psti_now_ns() - t->submitted_ns;
        put_runnable_locked(t);
        pool_signal_locked(t->feed->pool);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static bool worth_retrying(int status)
{
    return status == -EIO || status == -ESTALE || status == -EAGAIN || status == -ETIMEDOUT ||
           status == -EINTR;
}

/* Tries a read again: a changed file is listed anew, a failed read repeated as the policy says.
 * True if it was sent again. */
static bool read_again(task *t, int status, pst_error *err)
{
    psti_feed *feed = t->feed;
    const bool changed = status == PST_ECHANGED;
    if (feed->fetches) {
        if (t->tries >= feed->spec.retries || !fetch_worth_retrying(status))
            return false;
        t->tries++;
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
        damage_forget(&feed->damage, t->id);
    form_find(t);
    const int64_t total = find_members(t);
    const int rc = total < 0 ? (int)total : reserve_bytes_locked(t, (uint64_t)total, true);
    pthread_mutex_unlock(&feed->pool->lock);
    if (rc <= 0)
        return false;
    send_reads(t);
    if (atomic_fetch_sub_explicit(&t->reads_left, 1, memory_order_acq_rel) == 1) {
        pthread_mutex_lock(&feed->pool->lock);
        put_runnable_locked(t);
        pthread_mutex_unlock(&feed->pool->lock);
    }
    return true;
}

/* Looks at files that nobody looked at before, and finds room for their bytes. What is needed
 * beyond what was reserved for them is taken in any case, as when a file changed. */
static void look_first(task *t)
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
static bool read_here(task *t)
{
    psti_pool *pool = t->feed->pool;
    t->unread = false;
    lay_out(t);
    const uint64_t since = psti_now_ns();
    int rc = 0;
    for (int i = 0; i < t->read_count && rc == 0; i++)
        rc = psti_read_try(&t->reads[i].at, t->reads[i].buf);
    t->read_ns = psti_now_ns() - since;
    if (rc != -EAGAIN && rc != -EINVAL) { /* EINVAL: a kernel that does not know RESOLVE_CACHED */
        atomic_store(&t->read_status, rc);
        return true;
    }
    pthread_mutex_lock(&pool->lock);
    pool->cold = COLD_SPELL;
    t->unread = true;
    task_send_locked(t);
    pthread_mutex_unlock(&pool->lock);
    return false;
}

static void describe_read_failure(const task *t, int status, pst_error *err)
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

static void recall_damage_locked(task *t)
{
    const psti_feed *feed = t->feed;
    for (int i = 0; feed->damage.count && i < feed->spec.field_count; i++)
        t->inputs[i].known_damage = damage_get(&feed->damage, t->id, i);
}

static void remember_damage(task *t, const worker *w)
{
    psti_feed *feed = t->feed;
    for (int i = 0; i < feed->spec.field_count; i++) {
        if (!t->inputs[i].bytes || t->inputs[i].known_damage >= 0)
            continue;
        const int64_t row = psti_work_damage(w->work, i);
        if (row < 0)
            continue;
        pthread_mutex_lock(&feed->pool->lock);
        damage_put(&feed->damage, t->id, i, row);
        pthread_mutex_unlock(&feed->pool->lock);
    }
}

static int64_t label_of(const void *value, size_t bytes)
{
    int64_t label = -1;
    if (bytes == sizeof label)
        memcpy(&label, value, sizeof label);
    return label;
}

/* A label that becomes one float per class. */
static int check_label(const psti_plan_output *out, const void *value, size_t bytes, pst_error *err)
{
    const int64_t label = label_of(value, bytes);
    if (label >= 0 && label < out->classes)
        return 0;
    return psti_fail(err, PST_EFIELD, "batch", NULL,
                     "the label %lld is none of the %lld classes that labels are blended over; "
                     "give the batch op a larger classes, or leave the sample out",
                     (long long)label, (long long)out->classes);
}

static int check_values(const task *t, pst_error *err)
{
    const psti_feed *feed = t->feed;
    for (int i = 0; i < feed->outputs; i++) {
        const void *value;
        size_t bytes, want = psti_dtype_bytes(feed->out[i].dtype);
        if (output_read(feed, i))
            continue;
        if (value_of(feed, feed->out[i].input, t, &value, &bytes) < 0)
            return psti_fail(err, PST_EFIELD, "read", NULL, "the sample has no field %s",
                             feed->out[i].name);
        if (feed->out[i].classes) {
            const int rc = check_label(&feed->out[i], value, bytes, err);
            if (rc < 0)
                return rc;
            continue;
        }
        for (int d = 0; d < feed->out[i].rank; d++)
            want *= feed->out[i].shape[d] < 0 ? 1 : (size_t)feed->out[i].shape[d];
        if (feed->layout.field[i].packing == PST_DENSE && bytes != want)
            return psti_fail(err, PST_EFIELD, "read", NULL,
                             "field %s has %zu bytes where %zu were listed", feed->out[i].name,
                             bytes, want);
    }
    return 0;
}

int task_start_work(worker *w, const task *t, pst_error *err)
{
    const psti_feed *feed = t->feed;
    const int64_t draw_id = feed->spec.draw_id >= 0 ? feed->spec.draw_id : t->id;
    const psti_rng_key key = {.seed = feed->spec.seed,
                              .epoch = t->run->number,
                              .id = (uint64_t)draw_id,
                              .occurrence = t->occurrence};
    psti_work_set_id(w->work, t->id);
    int count;
    const psti_decoded *pictures = t->cached ? psti_cache_pictures(t->cached, &count) : NULL;
    return psti_work_start_decoded(w->work, &w->kit, feed->spec.plan, &key, t->inputs, pictures,
                                   err);
}

int task_take_extra(worker *w, uint64_t *extra, pst_error *err)
{
    const size_t need = psti_work_need(w->work);
    if (need <= w->pool->keep || *extra)
        return 0;
    const uint64_t more = need - w->pool->keep;
    const int rc = pool_extra_take(w->pool, more, err);
    *extra = rc < 0 ? 0 : more;
    return rc;
}

/* What a function of the caller's made may be larger than could be known. It is there, so it is
 * counted without waiting. */
static int count_more(worker *w, uint64_t *extra, pst_error *err)
{
    const size_t need = psti_work_need(w->work);
    if (need <= w->pool->keep + *extra)
        return 0;
    const uint64_t more = need - w->pool->keep - *extra;
    const int rc = pool_extra_force(w->pool, *extra, more, err);
    *extra += rc < 0 ? 0 : more;
    return rc;
}

/* Carries the plan out up to finish. */
static int prepare(worker *w, task *t, uint64_t *extra, pst_error *err)
{
    int rc = check_values(t, err);
    if (rc == 0)
        rc = task_start_work(w, t, err);
    if (rc == 0 && t->may_cache)
        rc = form_make(w, t, extra, err);
    if (rc == 0)
        rc = task_take_extra(w, extra, err);
    if (rc < 0)
        return rc;
    do {
        rc = psti_work_step(w->work, &w->kit, err);
        if (rc >= 0 && psti_work_grew(w->work)) {
            const int counted = count_more(w, extra, err);
            rc = counted < 0 ? counted : rc;
        }
    } while (rc > 0);
    return rc;
}

void task_count_locked(worker *w, task *t)
{
    psti_feed *feed = t->feed;
    for (int i = 0; i < PST_STAGES_MAX; i++) {
        feed->stage_ns[i] += w->kit.stage_ns[i];
        feed->stage_runs[i] += w->kit.stage_runs[i];
        w->kit.stage_ns[i] = w->kit.stage_runs[i] = 0;
    }
    feed->warnings += w->kit.warnings;
    w->kit.warnings = 0;
    feed->read_ns += t->read_ns;
    feed->read_runs += !t->cached;
    feed->cache_hits += t->cached != NULL;
    feed->cache_misses += feed->cached && !t->cached;
    for (int i = 0; i < t->read_count; i++)
        feed->bytes_read += t->reads[i].at.length;
    feed->bytes_read += t->fetch_charged;
}

/* Whether anybody still waits for the sample; what a former run found of its damage. A sample that
 * was found in the cache is not worth asking: it is done sooner than it is answered. */
static bool still_wanted(task *t)
{
    psti_feed *feed = t->feed;
    if (t->cached)
        return true;
    pthread_mutex_lock(&feed->pool->lock);
    const bool wanted = !t->run->cancelled && !feed->closing;
    recall_damage_locked(t);
    pthread_mutex_unlock(&feed->pool->lock);
    return wanted;
}

bool task_run(worker *w, task *t)
{
    psti_feed *feed = t->feed;
    pst_error err;
    psti_error_clear(&err);
    if (t->unseen)
        look_first(t);
    if (t->unread && !read_here(t))
        return false;
    const int status = atomic_load(&t->read_status);
    if (status < 0 && read_again(t, status, &err))
        return false;
    uint64_t extra = 0;
    int rc = status;
    const bool wanted = still_wanted(t);
    if (status < 0 && !err.code)
        describe_read_failure(t, status, &err);
    if (status == 0 && wanted)
        rc = prepare(w, t, &extra, &err);
    if (rc == 0 && wanted) {
        remember_damage(t, w);
        place_sample(w, t);
    } else {
        err.id = t->id;
        psti_error_key(&err, psti_dataset_key(feed->spec.data, t->id));
        place_bad(w, t, &err);
    }
    psti_work_clear(w->work, &w->kit, feed->pool->keep);
    if (extra)
        pool_extra_give(feed->pool, extra);
    fetch_drop(t);
    return true;
}

/* The task is free again. Its fate has been told to the run before. */
void task_done_locked(task *t)
{
    psti_feed *feed = t->feed;
    psti_pool *pool = feed->pool;
    if (t->charged > pool_encoded_max_locked(pool) / (uint64_t)pool->task_count)
        release_bytes_locked(pool, t);
    fetch_drop_locked(t);
    run *r = t->run;
    t->run = NULL;
    t->batch = NULL;
    t->next = pool->free_tasks;
    pool->free_tasks = t;
    pool->inflight--;
    feed->inflight--;
    run_unref_locked(r);
    if (feed->closing || (pool->opening && pool->inflight == 0))
        pthread_cond_broadcast(&pool->room);
    pool_signal_locked(pool);
}

/* ---- values and writing
 * --------------------------------------------------------------------------- */

int value_of(const psti_feed *feed, int field, const task *t, const void **value, size_t *bytes)
{
    static const int64_t no_label = -1;
    const int source = feed->spec.fields[field].source;
    const pst_field_info *info = &feed->source[source].info;
    if (fetch_value(feed, field, t, value, bytes))
        return 0;
    int rc = psti_dataset_value(feed->spec.data, t->id, source, value, bytes);
    if (rc == -EAGAIN) /* it was to come with the sample, and did not */
        rc = -ENOENT;
    if (rc == -ENOENT && info->kind == PST_LABEL && info->rank == 0 && info->dtype == PST_I64) {
        *value = &no_label;
        *bytes = sizeof no_label;
        return 0;
    }
    if (rc == -ENOENT && (info->kind == PST_TEXT || info->kind == PST_BYTES)) {
        *value = "";
        *bytes = 0;
        return 0;
    }
    return rc;
}

bool output_read(const psti_feed *feed, int output)
{
    return feed->source[feed->spec.fields[feed->out[output].input].source].member;
}

int value_bytes(const psti_feed *feed, int output, const task *t, size_t *bytes)
{
    const void *value;
    const int rc = value_of(feed, feed->out[output].input, t, &value, bytes);
    if (rc == 0 && feed->out[output].classes)
        *bytes = (size_t)feed->out[output].classes * sizeof(float);
    return rc;
}

void value_write(const psti_feed *feed, int output, const task *t, uint8_t *dst)
{
    const float one = 1;
    const size_t classes = (size_t)feed->out[output].classes;
    const void *value;
    size_t bytes;
    if (value_of(feed, feed->out[output].input, t, &value, &bytes) < 0)
        return;
    if (classes) {
        memset(dst, 0, classes * sizeof one);
        memcpy(dst + (size_t)label_of(value, bytes) * sizeof one, &one, sizeof one);
    } else if (bytes) {
        memcpy(dst, value, bytes);
    }
}

void write_outputs(const psti_feed *feed, const task *t, worker *w, pst_batch *block, int slot)
{
    for (int i = 0; i < feed->outputs; i++) {
        uint8_t *dst = block_slot(block, &feed->layout, i, slot);
        if (output_read(feed, i))
            psti_work_finish(w->work, &w->kit, i, dst);
        else
            value_write(feed, i, t, dst);
    }
}
