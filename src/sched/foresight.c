/* SPDX-License-Identifier: Apache-2.0
 * Knowing slow samples before they start. What a sample will take is foreseen from its size, the
 * branches that its random draws will take, the form at hand and its own past (predict.h). One that
 * will be slow goes to the slow lane untouched, and where its turn is known ahead, it is sent there
 * early, so that it is done by the time that others are.
 *
 * Only what is foreseen well is acted on: of the samples that would have been called slow most must
 * have been. Where samples differ little, or are so short that foreseeing them would be felt, one
 * of many is looked at, so that the error can be told, and nothing is acted on. */
#include <string.h>

#include "sched/sched_priv.h"

enum {
    SAMPLED = 16,    /* one of so many is learned from where nothing is acted on */
    SCOUTED = 8,     /* share indices looked at for each sample that is sent out */
    JUDGED = 16,     /* samples called slow, until the verdict on calling them so counts */
    REMEMBERED = 128 /* of them, about; runs of slow samples must not look like foresight */
};
static const double TRUSTED = 0.8;    /* of those called slow were slow */
static const double GOOD_ERROR = 0.3; /* of the mean: acted on before anybody was judged */
static const double SURELY = 1.25;    /* times the cut-off is slow */
static const double LEAST_S = 500e-6; /* mean work of a sample, for foreseeing not to be felt */

void foresight_open(psti_feed *feed)
{
    foresight *f = &feed->foresight;
    const int without = feed->spec.without;
    if (!feed->lanes.on || feed->group || (without & PST_WITHOUT_PREDICTION))
        return;
    const int64_t samples = without & PST_WITHOUT_PAST ? 0 : psti_dataset_count(feed->spec.data);
    if (predict_init(&f->predictor, psti_plan_features(feed->spec.plan), samples) < 0)
        return; /* it only makes things faster */
    f->on = true;
    /* Forms come and go between looking ahead and starting. */
    f->early = !(without & PST_WITHOUT_EARLY) && !feed->cached && !feed->tiered;
    f->ahead = f->early ? feed->window / 4 : 0;
}

void foresight_close(psti_feed *feed)
{
    predict_fini(&feed->foresight.predictor);
}

void foresight_begin(run *r)
{
    const int64_t ahead = r->feed->foresight.ahead;
    if (ahead > 0)
        r->early = psti_calloc(PSTI_MEM_SCHED, (size_t)(ahead + 7) / 8, 1);
}

/* ---- what a sample will take ----------------------------------------------------------------- */

static double member_bytes(const psti_feed *feed, int64_t id)
{
    double bytes = 0;
    psti_extent at;
    for (int i = 0; !feed->fetches && i < feed->spec.field_count; i++)
        if (feed->source[feed->spec.fields[i].source].member &&
            psti_plan_is_picture(feed->spec.plan, i) &&
            psti_dataset_extent(feed->spec.data, id, feed->spec.fields[i].source, &at) == 0)
            bytes += (double)at.length;
    return bytes;
}

static void foresee(const psti_feed *feed, uint64_t epoch, int64_t id, uint32_t occurrence,
                    const psti_known *known, double *features)
{
    const psti_rng_key key = {.seed = feed->spec.seed,
                              .epoch = epoch,
                              .id = (uint64_t)(feed->spec.draw_id >= 0 ? feed->spec.draw_id : id),
                              .occurrence = occurrence};
    psti_plan_foresee(feed->spec.plan, &key, id, known, features);
}

static void foresee_task(task *t)
{
    const psti_known known = {.bytes = task_has_form(t) ? 0 : member_bytes(t->feed, t->id),
                              .decoded = task_has_form(t) && !t->augmented,
                              .augmented = t->augmented,
                              .whole = t->may_cache};
    foresee(t->feed, t->run->number, t->id, t->occurrence, &known, t->features);
    t->foreseen = true;
}

static bool looks_slow(const psti_feed *feed, const double *features, int64_t id)
{
    const uint64_t cutoff = atomic_load_explicit(&feed->lanes.cutoff_ns, memory_order_relaxed);
    return predict_seconds(&feed->foresight.predictor, features, id) >
           SURELY * 1e-9 * (double)cutoff;
}

static bool trusts(const foresight *f, bool known)
{
    const struct verdict *v = &f->verdicts[known];
    return v->judged < JUDGED ? predict_error(&f->predictor) < GOOD_ERROR : v->trust > TRUSTED;
}

static bool calls_slow(const psti_feed *feed, const double *features, int64_t id)
{
    const foresight *f = &feed->foresight;
    return trusts(f, predict_knows(&f->predictor, id)) && looks_slow(feed, features, id);
}

/* ---- learning -------------------------------------------------------------------------------- */

/* Before work on a sample begins, without the lock. */
void foresight_note(task *t)
{
    const foresight *f = &t->feed->foresight;
    if (f->on && !t->foreseen &&
        (atomic_load_explicit(&f->keen, memory_order_relaxed) || t->start % SAMPLED == 0))
        foresee_task(t);
}

static bool acts_locked(const psti_feed *feed)
{
    const foresight *f = &feed->foresight;
    return f->on && atomic_load_explicit(&f->keen, memory_order_relaxed) &&
           predict_ready(&f->predictor) && (trusts(f, false) || trusts(f, true));
}

void foresight_learn_locked(psti_feed *feed, const task *t)
{
    foresight *f = &feed->foresight;
    const lanes *l = &feed->lanes;
    if (!f->on || !t->foreseen || !t->took_ns)
        return;
    const uint64_t cutoff = atomic_load_explicit(&l->cutoff_ns, memory_order_relaxed);
    const bool keen = cutoff != UINT64_MAX && l->uneven && l->mean_s > LEAST_S;
    atomic_store_explicit(&f->keen, keen || f->predictor.learned < 4 * PREDICT_READY,
                          memory_order_relaxed);
    if (keen && predict_ready(&f->predictor) && looks_slow(feed, t->features, t->id)) {
        struct verdict *v = &f->verdicts[predict_knows(&f->predictor, t->id)];
        v->judged += v->judged < REMEMBERED;
        const double was = t->took_ns > cutoff;
        v->trust += (was - v->trust) / (double)v->judged;
    }
    predict_learn(&f->predictor, t->features, t->id, 1e-9 * (double)t->took_ns);
}

/* ---- acting ---------------------------------------------------------------------------------- */

/* A sample whose turn has come: whether it is one for the slow lane. */
bool foresight_slow_locked(task *t)
{
    if (!acts_locked(t->feed) || t->augmented)
        return false;
    if (!t->foreseen)
        foresee_task(t);
    return calls_slow(t->feed, t->features, t->id);
}

static bool early_at(const run *r, int64_t share)
{
    const int64_t bit = share % r->feed->foresight.ahead;
    return r->early[bit >> 3] >> (bit & 7) & 1;
}

bool foresight_sent_locked(const run *r, int64_t share)
{
    return r->early && share >= r->next_share && share < r->next_share + r->feed->foresight.ahead &&
           early_at(r, share);
}

static void set_early(run *r, int64_t share, bool on)
{
    const int64_t bit = share % r->feed->foresight.ahead;
    const uint8_t mask = (uint8_t)(1u << (bit & 7));
    if (on)
        r->early[bit >> 3] |= mask;
    else
        r->early[bit >> 3] &= (uint8_t)~mask;
}

/* What was sent out early is not sent out again when its turn comes. */
void foresight_skip_locked(run *r)
{
    while (r->early && r->next_share < r->share && early_at(r, r->next_share)) {
        set_early(r, r->next_share, false);
        r->next_share++;
    }
}

static bool slow_at_locked(const run *r, int64_t share)
{
    const psti_feed *feed = r->feed;
    double features[PREDICT_FEATURES_MAX];
    int64_t id;
    uint32_t occurrence;
    bool valid;
    psti_epoch_at(r->epoch, run_position(r, share, &valid), &id, &occurrence);
    const psti_known known = {.bytes = member_bytes(feed, id)};
    foresee(feed, r->number, id, occurrence, &known, features);
    return calls_slow(feed, features, id);
}

/* As many as keep the slow lane busy: what waits longer only takes up the window. Not before
 * everything was ready once: until then the consumer is better served in turn. At the end of an
 * epoch in any case, so that it does not end with slow samples alone. */
static bool room_for_early_locked(const run *r)
{
    const psti_feed *feed = r->feed;
    return feed->lanes.parked_count < feed->pool->worker_count && window_has_room_locked(feed) &&
           (lane_has_slack_locked(feed) || r->share - r->next_share <= feed->foresight.ahead);
}

void foresight_scout_locked(run *r)
{
    psti_feed *feed = r->feed;
    if (!r->early || r->rest || !acts_locked(feed))
        return;
    if (r->scout <= r->next_share)
        r->scout = r->next_share + 1;
    for (int i = 0; i < SCOUTED && r->scout < r->share &&
                    r->scout < r->next_share + feed->foresight.ahead && room_for_early_locked(r);
         i++, r->scout++) {
        if (!slow_at_locked(r, r->scout))
            continue;
        task *t = task_aim_early_locked(feed, r, r->scout);
        if (!t)
            return;
        set_early(r, r->scout, true);
        feed->foresight.started_early++;
        lane_put_locked(t);
    }
}
