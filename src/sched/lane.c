/* SPDX-License-Identifier: Apache-2.0
 * Lanes: in ready order a sample whose work passes the cut-off is slow. It may be put aside between
 * two stages, with what was done so far, when the consumer would otherwise have to wait for workers
 * that are all busy with slow samples; another worker goes on with it when there is time. No stage
 * runs twice, and nothing is put aside unless it helps: as long as enough is ready, or nothing ever
 * is, slow samples stay with their worker and come out as they would without lanes.
 *
 * Called by workers; what is not named _locked takes the pool's lock itself. */
#include <math.h>
#include <string.h>

#include "sched/sched_priv.h"

enum {
    WARY_AFTER = 16, /* samples, before one can be surprising */
    LIVE_AFTER = 64, /* before there is a cut-off */
    LOOK_EVERY = 32, /* samples, between two looks at it */
    FADE_AT = 2048   /* samples counted, when older ones begin to count less */
};
static const double TIMES_MEDIAN = 1.5; /* the least cut-off */
static const double LEAST_NS = 500e3;   /* below, others on the cores look like slow samples */
static const double WIDE = 3;           /* P75 over the median: it lies among the slow ones */
static const double SMALL_MASS = 0.4;   /* work above P75, below which P90 is taken */
static const double LITTLE_LEFT = 0.25; /* of the cut-off: not worth being put aside for */
static const uint64_t UNEVEN_TIMES = 4; /* the median */
static const double UNEVEN_MASS = 0.1;
static const uint64_t LOOK_NS = 10000000; /* of work, too: a look takes microseconds */
static const uint64_t SLACK_NS = 2000000000;
static const uint64_t PACE_NS = 100000000;

void lane_open(psti_feed *feed)
{
    lanes *l = &feed->lanes;
    /* In a group others may wait for a preparation: it must not wait for a consumer. */
    l->on = feed->spec.mode == PST_ORDER_READY && feed->pool->worker_count > 0 && !feed->group &&
            feed->spec.schedule == PST_SCHEDULE_PENSTOCK &&
            !(feed->spec.without & PST_WITHOUT_LANES);
    atomic_init(&l->cutoff_ns, UINT64_MAX);
}

/* ---- what is slow ---------------------------------------------------------------------------- */

/* P75, or P90 where little work lies above P75; where P75 itself is slow, a multiple of the median
 * parts the two. */
uint64_t lane_cut_off(const psti_hist *costs)
{
    const double median = (double)psti_hist_quantile(costs, 0.5);
    const uint64_t p75 = psti_hist_quantile(costs, 0.75);
    double cut = (double)p75;
    if (psti_hist_mass_above(costs, p75) < SMALL_MASS)
        cut = (double)psti_hist_quantile(costs, 0.9);
    if (cut > WIDE * median || cut < TIMES_MEDIAN * median)
        cut = TIMES_MEDIAN * median;
    const bool slow = cut >= LEAST_NS && psti_hist_mass_above(costs, (uint64_t)cut) > 0;
    return slow ? (uint64_t)cut : UINT64_MAX;
}

static bool is_uneven(const psti_hist *costs)
{
    const uint64_t median = psti_hist_quantile(costs, 0.5);
    return psti_hist_mass_above(costs, UNEVEN_TIMES * median) > UNEVEN_MASS;
}

/* Where no sample was slow so far: what the first of a run of slow ones would pass. */
static uint64_t surprising(const psti_hist *costs)
{
    const uint64_t least = (uint64_t)(4 * LEAST_NS);
    const uint64_t cut = UNEVEN_TIMES * psti_hist_quantile(costs, 0.5);
    return cut > least ? cut : least;
}

static void learn_cost_locked(lanes *l, uint64_t took_ns)
{
    psti_hist_add(&l->costs, took_ns);
    if (l->costs.count == WARY_AFTER)
        atomic_store_explicit(&l->cutoff_ns, surprising(&l->costs), memory_order_relaxed);
    l->learned++;
    l->learned_ns += took_ns;
    if (l->costs.count < LIVE_AFTER || l->learned < LOOK_EVERY || l->learned_ns < LOOK_NS)
        return;
    l->learned = 0;
    l->learned_ns = 0;
    const uint64_t cut = lane_cut_off(&l->costs);
    atomic_store_explicit(&l->cutoff_ns, cut < UINT64_MAX ? cut : surprising(&l->costs),
                          memory_order_relaxed);
    l->uneven = is_uneven(&l->costs);
    if (l->costs.count >= FADE_AT)
        psti_hist_fade(&l->costs);
}

static void end_slice_locked(const task *t)
{
    lanes *l = &t->feed->lanes;
    const double seconds = 1e-9 * (double)(psti_now_ns() - t->slice_ns);
    running_mean(&l->slice_s, seconds);
    running_mean(&l->slice_ss, seconds * seconds);
}

/* Seconds until a worker that is busy with a slow sample can leave it: weighted by their length,
 * since the long ones are those that it is met in. */
static double slice_locked(const lanes *l)
{
    return l->slice_s > 0 ? l->slice_ss / l->slice_s : 0;
}

void lane_learn_locked(psti_feed *feed, const task *t)
{
    lanes *l = &feed->lanes;
    if (!l->on || !t->took_ns)
        return;
    if (l->costs.count < LIVE_AFTER)
        l->learned = LOOK_EVERY - 1; /* the first look comes as soon as it may */
    learn_cost_locked(l, t->took_ns);
    running_mean(&l->mean_s, 1e-9 * (double)t->took_ns);
    const uint64_t fast = t->foretold ? 0 : t->late_ns ? t->late_ns : t->took_ns;
    running_mean(&l->fast_s, 1e-9 * (double)fast);
    if (t->slow)
        end_slice_locked(t);
    if (t->late_ns)
        running_mean(&l->left_s[t->late_stage],
                     1e-9 * (double)(t->took_ns > t->late_ns ? t->took_ns - t->late_ns : 1));
}

/* ---- how things stand ------------------------------------------------------------------------ */

void lane_pace_locked(psti_feed *feed)
{
    lanes *l = &feed->lanes;
    const uint64_t now = l->on ? psti_now_ns() : 0;
    if (now - l->pace_since_ns < PACE_NS || !l->on)
        return;
    const double pace =
        1e9 * (double)(feed->samples - l->pace_samples) / (double)(now - l->pace_since_ns);
    l->pace = !l->pace_since_ns ? 0 : pace > l->pace ? pace : 0.9 * l->pace + 0.1 * pace;
    l->pace_since_ns = now;
    l->pace_samples = feed->samples;
}

/* Whether as much as may be was ready of late: then work can be put off. Where the consumer takes
 * whatever comes there is nothing to gain, and batches keep the mix that chance gives them. */
bool lane_has_slack_locked(const psti_feed *feed)
{
    const lanes *l = &feed->lanes;
    const uint64_t while_ns = SLACK_NS + (uint64_t)(4e9 * slice_locked(l));
    return feed->slack_ns && psti_now_ns() - feed->slack_ns < while_ns;
}

/* Seconds that what is ready will last. */
static double cover_locked(const psti_feed *feed)
{
    return feed->lanes.pace > 0 ? (double)feed_ready(feed) / feed->lanes.pace : INFINITY;
}

/* So little is ready that it may run out before a worker that takes a slow sample is back. */
static bool is_low_locked(const psti_feed *feed)
{
    return cover_locked(feed) < 1.5 * slice_locked(&feed->lanes) ||
           4 * feed_ready(feed) < 3 * block_samples_max_locked(feed);
}

/* Slow samples are worked on instead of making it more, so it counts as slack: else that would end
 * where slow ones take all the time that is left. */
static bool has_enough_locked(psti_feed *feed)
{
    const bool enough = !is_low_locked(feed);
    if (enough)
        feed->slack_ns = psti_now_ns();
    return enough;
}

static int workers_of_locked(const psti_feed *feed)
{
    int feeds = 0;
    for (const psti_feed *f = feed->pool->feeds; f; f = f->next)
        feeds += f->started && f->inflight > 0;
    const int workers = feed->pool->worker_count;
    return feeds > 1 ? (workers + feeds - 1) / feeds : workers;
}

/* Workers that slow samples may have. Those that the fast lane needs to keep up with the consumer
 * stay there, unless what is ready lasts until one is back. */
static int slow_workers_locked(const psti_feed *feed)
{
    const lanes *l = &feed->lanes;
    const int workers = workers_of_locked(feed);
    if (!lane_has_slack_locked(feed) || cover_locked(feed) > 1.25 * slice_locked(l))
        return workers;
    const double fast = ceil(l->pace * l->fast_s);
    const int rest = workers - (fast < workers ? (int)fast : workers);
    return rest > 1 ? rest : 1;
}

/* The oldest that is put aside has been overtaken by such a part of what may overtake it. */
static bool aged_locked(const psti_feed *feed, double part)
{
    const task *oldest = feed->lanes.parked;
    return oldest && window_passed_locked(feed, oldest->start, part);
}

/* ---- putting aside --------------------------------------------------------------------------- */

static void queue_locked(task **list, task *t, psti_trace_why why)
{
    trace_put_locked(t->feed, PSTI_TRACE_ASIDE, (int)why, t->id, t->order);
    while (*list && (*list)->start < t->start)
        list = &(*list)->next;
    t->next = *list;
    *list = t;
}

/* What is put aside waits for a worker, and workers may wait for bytes: a quarter of those for
 * large samples at most are put aside, so that all but the largest still find room. */
static bool aside_fits_locked(const psti_pool *pool, const task *t, uint64_t need)
{
    const uint64_t bytes = need > t->extra ? need : t->extra;
    return pool->extra_aside + bytes <= pool_extra_max_locked(pool) / 4;
}

/* What the sample needs, or what the work has kept of earlier ones. */
static uint64_t bytes_of(const psti_work *work)
{
    const uint64_t need = psti_work_need(work), has = psti_work_bytes(work, NULL);
    return need > has ? need : has;
}

/* The worker goes on with an empty work. False when there is no memory to put this one aside. */
static bool hand_in_locked(worker *w, task *t)
{
    psti_pool *pool = w->pool;
    t->extra += held_pass_locked(w); /* it goes with the work */
    const uint64_t need = bytes_of(w->work);
    const uint64_t more = need > t->extra ? need - t->extra : 0;
    psti_work *spare = pool->spare_count ? pool->spare[pool->spare_count - 1] : psti_work_new();
    const bool room =
        spare && aside_fits_locked(pool, t, need) && pool_extra_try_locked(pool, more);
    if (!room) {
        if (spare && !pool->spare_count)
            psti_work_free(spare);
        return false;
    }
    pool->spare_count -= pool->spare_count > 0;
    t->extra += more;
    pool->extra_aside += t->extra;
    t->work = w->work;
    w->work = spare;
    t->worked_ns += psti_now_ns() - t->slice_ns;
    task_count_stages_locked(w, t->feed);
    pool->parked++;
    pool_rests_locked(pool);
    return true;
}

static void into_slow_lane_locked(task *t, bool foreseen)
{
    lanes *l = &t->feed->lanes;
    t->slow = t->aside = true;
    l->slow++;
    l->aside++;
    t->run->aside++;
    l->running++;
    t->feed->pool->aside++;
    trace_put_locked(t->feed, PSTI_TRACE_SLOW, foreseen, t->id, 0);
}

void lane_put_locked(task *t)
{
    lanes *l = &t->feed->lanes;
    into_slow_lane_locked(t, true);
    l->running--;
    t->foretold = true;
    if (t->unread && (feed_sends_ahead(t->feed) || t->feed->pool->cold > 0))
        task_send_locked(t); /* comes back when it is read */
    else
        lane_back_locked(t);
}

void lane_back_locked(task *t)
{
    t->feed->lanes.parked_count++;
    t->feed->pool->parked++;
    queue_locked(&t->feed->lanes.parked, t, PSTI_ASIDE_FORESEEN);
    pool_rests_locked(t->feed->pool);
}

void lane_away_locked(task *t)
{
    t->feed->lanes.running -= t->slow;
}

/* A slow sample between two stages: whether its worker is needed in the fast lane. */
static bool park_locked(worker *w, task *t)
{
    psti_feed *feed = t->feed;
    lanes *l = &feed->lanes;
    if (t->run->cancelled || feed->closing || has_enough_locked(feed) ||
        !lane_has_slack_locked(feed) || window_passed_locked(feed, t->start, 0.75) ||
        !task_next_waits_locked(feed) || !hand_in_locked(w, t))
        return false;
    l->running--;
    l->parked_count++;
    l->parks++;
    queue_locked(&l->parked, t, PSTI_ASIDE_PARKED);
    return true;
}

/* Passing the cut-off with much of its work to come makes a sample slow; how much is left as a
 * rule shows from those before it. */
static bool turns_slow_locked(task *t, const worker *w, uint64_t worked, uint64_t cutoff)
{
    lanes *l = &t->feed->lanes;
    t->late_ns = worked;
    t->late_stage = psti_work_cursor(w->work);
    const double left = l->left_s[t->late_stage];
    if (left > 0 && left < LITTLE_LEFT * 1e-9 * (double)cutoff)
        return false;
    into_slow_lane_locked(t, false);
    return true;
}

bool lane_leaves(worker *w, task *t)
{
    lanes *l = &t->feed->lanes;
    const uint64_t cutoff = atomic_load_explicit(&l->cutoff_ns, memory_order_relaxed);
    if (!l->on || (!t->slow && (cutoff == UINT64_MAX || t->late_ns)))
        return false;
    const uint64_t now = t->part_inputs ? psti_now_ns() : w->kit.stepped_ns;
    const uint64_t worked = t->worked_ns + now - t->slice_ns;
    if (!t->slow && worked <= cutoff)
        return false;
    pthread_mutex_lock(&w->pool->lock);
    bool left = false;
    if (t->slow || turns_slow_locked(t, w, worked, cutoff)) {
        end_slice_locked(t);
        left = park_locked(w, t);
        if (!left) {
            const uint64_t stays = psti_now_ns();
            t->worked_ns += stays - t->slice_ns;
            t->slice_ns = stays;
            pool_signal_locked(w->pool); /* it no longer counts as what may be ready */
        }
    }
    pthread_mutex_unlock(&w->pool->lock);
    return left;
}

void lane_resume(worker *w, task *t)
{
    psti_pool *pool = w->pool;
    held_drop(w);
    psti_work_clear(w->work, &w->kit, 0);
    pthread_mutex_lock(&pool->lock);
    pool->spare[pool->spare_count++] = w->work;
    pthread_mutex_unlock(&pool->lock);
    w->work = t->work;
    t->work = NULL;
}

/* ---- placing --------------------------------------------------------------------------------- */

/* The consumer's epoch has nothing left but what was sent out. */
static bool is_tail_locked(const run *r)
{
    return r == r->feed->runs && run_dispatched_all(r);
}

/* For a slow sample that is finished. */
static bool has_room_locked(const psti_feed *feed, const run *r)
{
    const int64_t held = r == feed->runs ? r->held : feed->lanes.held_count;
    return lane_outstanding(feed, r) - held < block_samples_max_locked(feed);
}

static void leave_aside_locked(task *t)
{
    t->run->aside -= t->aside;
    t->feed->lanes.aside -= t->aside;
    t->feed->pool->aside -= t->aside;
    t->aside = false;
}

bool lane_admits(worker *w, task *t)
{
    psti_feed *feed = t->feed;
    if (!t->slow)
        return true;
    pthread_mutex_lock(&w->pool->lock);
    const bool wait = !t->run->cancelled && !feed->closing && !t->run->error.code &&
                      !has_room_locked(feed, t->run) && hand_in_locked(w, t);
    if (wait) {
        t->finished = true;
        feed->lanes.running--;
        feed->lanes.held_count++;
        t->run->held++;
        queue_locked(&feed->lanes.held, t, PSTI_ASIDE_HELD);
    } else {
        leave_aside_locked(t);
    }
    pthread_mutex_unlock(&w->pool->lock);
    return !wait;
}

void lane_end_locked(task *t)
{
    leave_aside_locked(t);
    t->feed->lanes.running -= t->slow;
}

/* ---- what comes next ------------------------------------------------------------------------- */

static task *unqueue_locked(task **at, int *count)
{
    task *t = *at;
    trace_put_locked(t->feed, PSTI_TRACE_BACK, 0, t->id, t->order);
    *at = t->next;
    --*count;
    t->feed->lanes.running++;
    t->feed->pool->parked--;
    t->feed->pool->extra_aside -= t->extra;
    return t;
}

/* Finished ones that there is room for, and all that nobody wants any more. */
static task *take_ending_locked(psti_feed *feed)
{
    lanes *l = &feed->lanes;
    for (task **at = &l->held; *at; at = &(*at)->next)
        if (has_room_locked(feed, (*at)->run) || (*at)->run->error.code || (*at)->run->cancelled ||
            feed->closing) {
            (*at)->run->held--;
            return unqueue_locked(at, &l->held_count);
        }
    for (task **at = &l->parked; *at; at = &(*at)->next)
        if ((*at)->run->cancelled || feed->closing)
            return unqueue_locked(at, &l->parked_count);
    return NULL;
}

/* Slow samples go first as long as enough is ready, and when one has been overtaken long enough. */
static bool slow_first_locked(psti_feed *feed, const task *t)
{
    const bool enough = has_enough_locked(feed);
    if (is_tail_locked(t->run))
        return true;
    if (feed->lanes.running >= slow_workers_locked(feed))
        return aged_locked(feed, 0.9);
    return enough || aged_locked(feed, 0.5) || !lane_has_slack_locked(feed);
}

/* Nothing else is left to do. While as much as may be is ready, the slow lane keeps to its workers:
 * the others will be needed. */
static bool slow_last_locked(const psti_feed *feed, const task *t)
{
    return lane_outstanding(feed, t->run) < block_samples_max_locked(feed) ||
           feed->lanes.running < slow_workers_locked(feed) || aged_locked(feed, 0.75);
}

/* As many are finished and wait for room as will find any when a batch is taken. */
static bool held_enough_locked(const psti_feed *feed)
{
    return feed->lanes.held_count >= workers_of_locked(feed) + feed->spec.batch / 2;
}

/* The consumer will wait for it, or does. */
static bool is_missed_locked(const run *r)
{
    return is_tail_locked(r) || (r == r->feed->runs && r->feed->wanted && !r->ready);
}

/* The oldest; but what the consumer misses goes before it, however late it began: what makes up for
 * a bad sample at the end of an epoch begins behind the next epoch's. */
static task **next_parked_locked(lanes *l)
{
    for (task **at = &l->parked; *at; at = &(*at)->next)
        if (is_missed_locked((*at)->run))
            return at;
    return &l->parked;
}

task *lane_take_locked(psti_feed *feed, lane_turn turn)
{
    lanes *l = &feed->lanes;
    if (turn == LANE_ENDS)
        return take_ending_locked(feed);
    task **at = next_parked_locked(l);
    const task *t = *at;
    if (!t || (held_enough_locked(feed) && !is_missed_locked(t->run)) ||
        !(turn == LANE_FIRST ? slow_first_locked(feed, t) : slow_last_locked(feed, t)))
        return NULL;
    return unqueue_locked(at, &l->parked_count);
}

/* Its slow samples are nobody's: what may be ready is counted without them. */
void lane_cancel_locked(run *r)
{
    psti_pool *pool = r->feed->pool;
    for (int i = 0; r->feed->lanes.aside && i < pool->task_count; i++)
        if (pool->tasks[i].run == r)
            leave_aside_locked(&pool->tasks[i]);
}
