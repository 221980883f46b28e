/* SPDX-License-Identifier: Apache-2.0
 * Tasks: one sample from dispatch to its end. Dispatch chooses the next position of a feed;
 * reading.c or fetch.c bring its bytes; a worker then carries the plan out and hands the result to
 * place.c. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

/* ---- dispatch -------------------------------------------------------------------------------- */

void task_runnable_locked(task *t)
{
    psti_feed *feed = t->feed;
    if (t->slow) {
        lane_back_locked(t);
        pool_signal_locked(feed->pool);
        return;
    }
    /* Bytes come in order as a rule, and a walk over all that wait is a miss for each. */
    task **at = feed->runnable && feed->runnable_last->order < t->order ? &feed->runnable_last->next
                                                                        : &feed->runnable;
    while (*at && (*at)->order < t->order)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    if (!t->next)
        feed->runnable_last = t;
    pool_signal_locked(feed->pool);
}

/* Whether all that was begun is sent out and one more may begin. */
static bool epoch_is_due_locked(const psti_feed *feed)
{
    if (feed->run_count >= 2 || feed->next_epoch >= feed->end_epoch || feed->error.code)
        return false;
    for (const run *r = feed->runs; r; r = r->next)
        if (!run_dispatched_all(r) || r->error.code)
            return false;
    return true;
}

/* NULL: it could not be made, feed->error says why. */
static void epoch_begin_locked(psti_feed *feed, run *r)
{
    if (r) {
        run **at = &feed->runs;
        while (*at)
            at = &(*at)->next;
        *at = r;
        feed->next_epoch++;
        feed->run_count++;
        run_begin_locked(r);
    }
    feed_wake(feed);
}

/* Groups look their share up, weighted orders draw; the others' epochs are there at once. */
static bool epoch_takes_time(const psti_feed *feed)
{
    return feed->group || !psti_order_invertible(feed->spec.order);
}

/* The run that has something left to send out; starts the next epoch when the last one is sent. */
static run *run_to_dispatch_locked(psti_feed *feed)
{
    for (run *r = feed->runs; r; r = r->next)
        if (!run_dispatched_all(r))
            return r;
    if (feed->epoch_making || feed->epoch_wanted || !epoch_is_due_locked(feed))
        return NULL;
    if (epoch_takes_time(feed)) {
        feed->epoch_wanted = true;
        pool_signal_locked(feed->pool);
        return NULL;
    }
    run *r = run_new(feed, feed->next_epoch, NULL, &feed->error);
    epoch_begin_locked(feed, r);
    return r && !run_dispatched_all(r) ? r : NULL;
}

/* Makes an epoch that was asked for, without the lock. Meanwhile the feed may have been sent
 * elsewhere: then it was in vain. */
static void make_epoch_locked(psti_feed *feed)
{
    psti_pool *pool = feed->pool;
    const uint64_t number = feed->next_epoch;
    pst_error err;
    psti_error_clear(&err);
    feed->epoch_making = true;
    pthread_mutex_unlock(&pool->lock);
    run *r = run_new(feed, number, NULL, &err);
    pthread_mutex_lock(&pool->lock);
    feed->epoch_making = false;
    if (!feed->closing && feed->next_epoch == number && epoch_is_due_locked(feed)) {
        if (!r)
            feed->error = err;
        epoch_begin_locked(feed, r);
    } else if (r) {
        run_unref_locked(r);
    }
    if (feed->closing)
        pthread_cond_broadcast(&pool->room);
    else
        pool_pump_locked(pool);
}

bool task_make_epoch_locked(psti_pool *pool)
{
    for (psti_feed *feed = pool->feeds; feed; feed = feed->next) {
        if (!feed->epoch_wanted)
            continue;
        feed->epoch_wanted = false;
        if (feed->closing || !epoch_is_due_locked(feed))
            continue;
        make_epoch_locked(feed);
        return true;
    }
    return false;
}

/* FIXED: the batch that the next share index goes into. */
static bool fixed_batch_locked(psti_feed *feed, run *r, worker *w)
{
    if (own_batches(feed))
        return own_open_locked(feed, r, w);
    if (r->open)
        return true;
    if (feed->outstanding + feed->spec.batch > block_samples_max_locked(feed)) {
        feed->full_ns = psti_now_ns();
        return false;
    }
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
    const double coming = (double)(feed->inflight - feed->lanes.aside + 1) * feed->stage_sample;
    return (double)feed->pool->staged + coming <= (double)pool_staged_max_locked(feed->pool) ||
           (r == feed->runs && r->outstanding < feed->spec.batch);
}

static bool window_open_locked(psti_feed *feed, const run *r)
{
    if (lane_outstanding(feed, r) >= block_samples_max_locked(feed)) {
        feed->full_ns = feed->slack_ns = psti_now_ns();
        return false;
    }
    if (!stage_open_locked(feed, r)) {
        feed->refused_room = true;
        return false;
    }
    if (feed->spec.mode == PST_ORDER_READY) {
        if (window_has_room_locked(feed))
            return true;
        /* The open batch may hold the oldest sample: what completes it may always start. Not while
         * another batch is full and still written to: the oldest may be in that one. */
        const int64_t coming = r->inflight + shelf_count(r) + (r->open ? r->open->placed : 0);
        return r == feed->runs && coming < feed->spec.batch &&
               r->published + (r->open != NULL) == r->opened;
    }
    return feed->way != QUEUE || r->next_share - r->frontier < r->cell_count;
}

bool task_may_start_locked(psti_feed *feed, const run *r)
{
    return window_open_locked(feed, r);
}

bool task_next_waits_locked(psti_feed *feed)
{
    if (feed->runnable)
        return true;
    for (const run *r = feed->runs; r; r = r->next)
        if (!run_dispatched_all(r))
            return window_open_locked(feed, r);
    return false;
}

/* Fills a task with a share index of the run; nothing is counted yet. */
static void aim(task *t, psti_feed *feed, run *r, int64_t share)
{
    t->feed = feed;
    t->run = r;
    t->share = share;
    t->tries = 0;
    t->took_ns = 0;
    t->made = false;
    t->number = 0;
    t->pick.kind = PSTI_SHARE_NONE;
    if (feed->group && t->share < r->share) {
        group_aim_locked(t);
    } else {
        t->position = run_position(r, t->share, &t->valid);
        psti_epoch_at(r->epoch, t->position, &t->id, &t->occurrence);
    }
    t->unseen = false;
    t->batch = NULL;
    t->slow = t->finished = t->foretold = t->foreseen = false;
    t->part_inputs = t->part_have = 0;
    t->part_bytes = 0;
    tiers_begin(t);
    t->worked_ns = t->late_ns = 0;
}

/* From here on the sample will come to an end: counts it in. */
static void commit_locked(task *t, worker *w, bool early)
{
    psti_feed *feed = t->feed;
    run *r = t->run;
    t->busy = true;
    feed->pool->free_tasks = t->next;
    feed->pool->inflight++;
    feed->inflight++;
    feed->outstanding++;
    r->outstanding++;
    r->inflight++;
    r->refs++;
    pst_batch **open = own_batches(feed) ? &w->own : &r->open;
    r->next_share += open == &r->open && !early;
    foresight_skip_locked(r);
    r->picked = false; /* it is the task's now */
    t->order = feed->pool->order_next++;
    t->start = window_start_locked(feed);
    if (feed->way == FIXED) {
        t->batch = *open;
        t->slot = t->batch->placed++;
        t->batch->starts[t->slot] = t->start;
        t->batch->ids[t->slot] = t->id;
        t->batch->positions[t->slot] = t->position;
        t->batch->valid[t->slot] = t->valid;
        t->batch->share_end = t->share + 1;
        r->placed++;
        if (t->batch->placed == t->batch->slots)
            *open = NULL;
    }
}

/* A sample as a task of its own, counted in but not read yet; NULL when there is no room for it. */
static task *send_out_locked(psti_feed *feed, run *r, int64_t share, worker *w, bool early)
{
    task *t = feed->pool->free_tasks;
    aim(t, feed, r, share);
    form_find(t);
    const bool fetched = feed->fetches && !t->cached;
    const int rc = fetched ? fetch_aim_locked(t) : read_aim_locked(t);
    feed->refused_room = rc == 0;
    if (rc == 0) {
        if (t->augmented) /* stays picked */
            t->cached = NULL;
        form_drop(t);
        ahead_back_locked(t);
        return NULL;
    }
    commit_locked(t, w, early);
    ahead_sent_locked(t);
    t->unread = rc > 0 && (fetched || t->read_count > 0 || t->asks);
    t->asks &= t->unread;
    t->read_ns = 0;
    t->read_away = false;
    t->part_ns = 0;
    atomic_store(&t->read_status, rc < 0 ? rc : 0);
    if (rc < 0)
        t->read_count = 0;
    return t;
}

task *task_aim_early_locked(psti_feed *feed, run *r, int64_t share)
{
    return feed->pool->free_tasks ? send_out_locked(feed, r, share, NULL, true) : NULL;
}

/* The feed's next sample. */
static task *aim_next_locked(psti_feed *feed, worker *w)
{
    psti_pool *pool = feed->pool;
    if (feed->closing || !feed->started || !pool->free_tasks || pool->opening ||
        pool->inflight - pool->aside >= pool->aim_max)
        return NULL;
    if (pool->feeds->next && (feed->inflight - feed->lanes.aside) * 2 > pool->aim_max)
        return NULL; /* leave room for the other jobs */
    run *r = own_goes_on(feed, w) ? w->own->run : run_to_dispatch_locked(feed);
    if (r)
        foresight_scout_locked(r);
    if (!r || !(feed->way == FIXED ? fixed_batch_locked(feed, r, w) : window_open_locked(feed, r)))
        return NULL;
    if (feed->group && r->next_share < r->share && !group_pick_locked(r))
        return NULL;
    const int64_t share = own_batches(feed) ? own_share(r, w->own) : run_next_share(r);
    return pool->free_tasks ? send_out_locked(feed, r, share, w, false) : NULL;
}

task *task_aim_locked(psti_feed *feed, worker *w)
{
    task *t;
    while ((t = aim_next_locked(feed, w)) && foresight_slow_locked(t))
        lane_put_locked(t);
    return t;
}

/* ---- running --------------------------------------------------------------------------------- */

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

static void remember_note(task *t, const worker *w)
{
    const psti_note *note = psti_work_note(w->work);
    if (!note)
        return;
    pthread_mutex_lock(&t->feed->pool->lock);
    findings_put(&t->feed->findings, t->id, note);
    pthread_mutex_unlock(&t->feed->pool->lock);
}

/* From the decoded form, which has it unless it was made for a plan that looks for nothing; or from
 * a former run of this feed. */
static void recall_note(worker *w, const task *t, const psti_decoded *parts, int count)
{
    psti_feed *feed = t->feed;
    const int pictures = psti_plan_decoded_pictures(feed->spec.plan);
    if (!psti_plan_surveys(feed->spec.plan))
        return;
    if (parts && count > pictures) {
        psti_work_set_note(w->work, (const psti_note *)parts[pictures].field.data);
        return;
    }
    pthread_mutex_lock(&feed->pool->lock);
    psti_work_set_note(w->work, findings_get(&feed->findings, t->id));
    pthread_mutex_unlock(&feed->pool->lock);
}

int task_start_work(worker *w, const task *t, pst_error *err)
{
    const psti_feed *feed = t->feed;
    const int64_t draw_id = feed->spec.draw_id >= 0 ? feed->spec.draw_id : t->id;
    psti_rng_key key = {.seed = feed->spec.seed,
                        .epoch = t->run->number,
                        .id = (uint64_t)draw_id,
                        .occurrence = t->occurrence};
    if (t->pick.kind == PSTI_SHARE_PREPARE)
        key = group_key(t);
    psti_work_set_id(w->work, t->id);
    int count = 0;
    const psti_decoded *pictures = t->cached ? psti_cache_pictures(t->cached, &count) : NULL;
    if (t->form_from) {
        pictures = t->load->form.pictures;
        count = t->load->form.count;
    }
    recall_note(w, t, pictures, count);
    return psti_work_start_decoded(w->work, &w->kit, feed->spec.plan, &key, t->inputs, pictures,
                                   err);
}

int task_take_extra(worker *w, uint64_t *extra, pst_error *err)
{
    const size_t need = psti_work_need(w->work);
    if (need <= w->pool->keep || *extra)
        return 0;
    const uint64_t more = need - w->pool->keep;
    if (held_cover(w, more, extra))
        return 0;
    worker_does(w, DOING_MEMORY, psti_now_ns());
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

/* The clock was looked at when the last step ended. */
void task_steps(worker *w, const task *t)
{
    worker_does(w, DOING_STAGE + psti_work_cursor(w->work),
                w->kit.stepped_ns > t->slice_ns ? w->kit.stepped_ns : t->slice_ns);
}

/* Carries the plan out up to finish. 0, LANE_PARKED, or negative. */
static int carry_on(worker *w, task *t, pst_error *err)
{
    int rc;
    do {
        task_steps(w, t);
        rc = psti_work_step(w->work, &w->kit, err);
        if (rc >= 0 && t->part_inputs) {
            const int read = parts_rest(w, t, err);
            rc = read < 0 ? read : rc;
        }
        if (rc >= 0 && psti_work_grew(w->work)) {
            const int counted = count_more(w, &t->extra, err);
            rc = counted < 0 ? counted : rc;
        }
        if (rc > 0 && lane_leaves(w, t))
            return LANE_PARKED;
    } while (rc > 0);
    return rc;
}

static int bring_bytes(task *t, pst_error *err);
static int prepare(worker *w, task *t, pst_error *err);

/* A form from a tier cannot be used: on without any tier. Where it is the sample's own fault, that
 * shows again. */
static int start_anew(worker *w, task *t, pst_error *err)
{
    psti_error_clear(err);
    psti_work_clear(w->work, &w->kit, w->pool->keep);
    tiers_refuse_form(t);
    const int rc = bring_bytes(t, err);
    return rc == 0 ? prepare(w, t, err) : rc;
}

/* From its bytes, or from where it was put aside. */
static int prepare(worker *w, task *t, pst_error *err)
{
    if (t->work) {
        lane_resume(w, t);
        return t->finished ? 0 : carry_on(w, t, err);
    }
    int count, rc = value_check(t, err);
    value_inputs(t);
    if (rc == 0 && t->augmented)
        return psti_work_start_augmented(
            w->work, t->feed->spec.plan, t->inputs,
            t->adopted ? t->load->form.pictures : psti_cache_pictures(t->cached, &count), err);
    if (rc == 0) {
        rc = task_start_work(w, t, err);
        const bool fits = rc == 0 && (!t->form_from || psti_work_decoded_fits(w->work));
        if (t->form_from && !fits)
            return start_anew(w, t, err);
    }
    if (rc == 0 && t->form_from)
        tiers_promote(t);
    else if (rc == 0 && !task_has_form(t))
        form_measure(w, t);
    if (rc == 0 && t->part_inputs && (rc = parts_bring(w, t, err)) == LANE_PARKED)
        return rc;
    const bool makes = t->may_cache || (t->feed->tier_forms && !task_has_form(t));
    if (rc == 0 && makes)
        rc = form_make(w, t, &t->extra, err);
    /* Where its form was made, stages have run: what they made must not be dropped for bytes. */
    const bool ran = makes && psti_work_cursor(w->work) > 0;
    if (rc == 0)
        rc = ran ? count_more(w, &t->extra, err) : task_take_extra(w, &t->extra, err);
    return rc < 0 ? rc : carry_on(w, t, err);
}

void task_count_stages_locked(worker *w, psti_feed *feed)
{
    for (int i = 0; i < PST_STAGES_MAX; i++) {
        if (!w->kit.stage_ns[i])
            continue;
        feed->stage_ns[i] += w->kit.stage_ns[i];
        feed->stage_runs[i] += w->kit.stage_runs[i];
        if (w->kit.stage_runs[i])
            psti_bars_add(&feed->stage_bars[i], w->kit.stage_ns[i] / w->kit.stage_runs[i],
                          w->kit.stage_runs[i]);
        w->kit.stage_ns[i] = w->kit.stage_runs[i] = 0;
    }
    feed->warnings += w->kit.warnings;
    w->kit.warnings = 0;
}

void task_count_locked(worker *w, task *t)
{
    psti_feed *feed = t->feed;
    task_count_stages_locked(w, feed);
    running_mean(&feed->took_s, 1e-9 * (double)t->took_ns);
    foresight_learn_locked(feed, t);
    lane_learn_locked(feed, t);
    feed->read_ns += t->read_ns;
    feed->read_away_ns += t->read_away ? t->read_ns : 0;
    feed->read_runs += !t->cached;
    look_task_locked(feed, t);
    trace_reads_locked(t);
    feed->cache_hits += t->cached && !t->augmented;
    feed->shared_hits += t->augmented && !t->adopted;
    feed->adopted += t->adopted;
    feed->stored_hits += t->stored_count > 0;
    feed->prepared += !t->augmented && t->took_ns;
    worth_took_locked(feed, t);
    feed->cache_misses += feed->cached && !t->cached && !t->adopted;
    for (int i = 0; i < t->read_count; i++)
        feed->bytes_read += read_from_tier(t, i) ? 0 : t->reads[i].at.length;
    tiers_count_locked(feed, t);
    feed->bytes_read += t->fetch_charged + t->part_bytes;
}

/* Whether anybody still waits for the sample; what a former run found of its damage. A sample that
 * was found in the cache is not worth asking, unless it is slow: it is done sooner than it is
 * answered. */
static bool still_wanted(task *t)
{
    psti_feed *feed = t->feed;
    if (t->cached && !t->work)
        return true;
    pthread_mutex_lock(&feed->pool->lock);
    const bool wanted = !t->run->cancelled && !feed->closing;
    recall_damage_locked(t);
    pthread_mutex_unlock(&feed->pool->lock);
    return wanted;
}

static void tell_key(const task *t, pst_error *err)
{
    char room[PSTI_KEY_ROOM];
    size_t len;
    psti_error_key(err, psti_dataset_key_in(t->feed->spec.data, t->id, room, &len));
}

/* Asked each time a worker takes the sample, also when it was read or prepared before. */
static int may_have(const task *t, pst_error *err)
{
    const psti_feed_hooks *hooks = &t->feed->spec.hooks;
    return hooks->may ? hooks->may(hooks->user, t->id, err) : 0;
}

/* The sample's bytes: 0 when they are there, LANE_PARKED when they were sent for, or what is wrong
 * with them. */
static int bring_bytes(task *t, pst_error *err)
{
    if (t->work)
        return 0;
    if (t->unseen)
        read_look_first(t);
    const int allowed = may_have(t, err);
    if (allowed == 0 && t->unread && !read_here(t))
        return LANE_PARKED;
    if (allowed == 0 && !tiers_open(t)) {
        tiers_bypass(t);
        if (t->unread && !read_here(t))
            return LANE_PARKED;
    }
    int status = allowed < 0 ? allowed : atomic_load(&t->read_status);
    if (status == 0 && !read_is_whole(t))
        status = PST_ECHANGED;
    if (status < 0 && read_again(t, status, err))
        return LANE_PARKED;
    if (status < 0 && !err->code)
        read_describe_failure(t, status, err);
    return status;
}

static void end_work(worker *w, task *t)
{
    const double clearing = worker_begin(w);
    held_settle(w, t->extra);
    worker_end(w, clearing);
    t->extra = 0;
    fetch_drop(t);
}

bool task_run(worker *w, task *t)
{
    pst_error err;
    psti_error_clear(&err);
    const double clock = worker_begin(w);
    worker_does(w, DOING_BYTES, 0);
    int rc = bring_bytes(t, &err);
    if (rc == LANE_PARKED)
        return false;
    if (!t->work && !t->read_away && t->read_ns)
        trace_slice(w, PSTI_TRACE_STAGE_READ, t->id, t->submitted_ns, t->submitted_ns + t->read_ns);
    if (!t->work)
        foresight_note(t);
    const bool wanted = still_wanted(t);
    t->slice_ns = psti_now_ns();
    const pays_clock since = pays_now(t->feed);
    if (rc == 0 && wanted)
        rc = prepare(w, t, &err);
    else if (t->work)
        lane_resume(w, t);
    worker_end(w, clock);
    if (rc == LANE_PARKED)
        return false;
    if (rc == 0 && wanted) {
        t->took_ns = t->worked_ns + psti_now_ns() - t->slice_ns;
        if (!t->worked_ns)
            t->clock = pays_since(t->feed, &since);
        remember_damage(t, w);
        remember_note(t, w);
        if (!lane_admits(w, t))
            return false;
        worker_does(w, DOING_PLACE, 0);
        place_sample(w, t);
        group_offer(w, t);
        stored_keep(t);
        tiers_keep_members(t);
    } else {
        err.id = t->id;
        w->at_bad = wanted;
        tell_key(t, &err);
        place_bad(w, t, &err);
    }
    end_work(w, t);
    return true;
}

/* The task is free again. Its fate has been told to the run before. */
void task_done_locked(task *t)
{
    psti_feed *feed = t->feed;
    psti_pool *pool = feed->pool;
    lane_end_locked(t);
    /* Fresh pages cost as much as reading into them: large buffers are kept too while there is as
     * much again for others. */
    const uint64_t most = pool_encoded_max_locked(pool);
    if (t->charged > most / (uint64_t)pool->aim_max && pool->encoded > most / 2)
        task_release_bytes_locked(pool, t);
    fetch_drop_locked(t);
    ahead_end_locked(t);
    if (t->load)
        ask_end_locked(t);
    form_drop(t);
    group_end(t);
    run *r = t->run;
    t->run = NULL;
    t->batch = NULL;
    t->busy = false;
    t->next = pool->free_tasks;
    pool->free_tasks = t;
    pool->inflight--;
    feed->inflight--;
    run_unref_locked(r);
    if (feed->closing)
        pthread_cond_broadcast(&pool->room);
    pool_rests_locked(pool);
    pool_signal_locked(pool);
}
