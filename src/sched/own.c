/* SPDX-License-Identifier: Apache-2.0
 * The schedule batch-per-worker: a worker takes the samples of a whole batch, one after the other,
 * as loaders do whose workers are processes. It is there to be compared with. Slots are fixed as in
 * the way FIXED; a run's share indices are given out a batch at a time. Under pool->lock. */
#include <errno.h>

#include "sched/sched_priv.h"

bool own_batches(const psti_feed *feed)
{
    return feed->spec.schedule == PST_SCHEDULE_BATCH_PER_WORKER && feed->way == FIXED &&
           !feed_sends_ahead(feed);
}

bool own_goes_on(const psti_feed *feed, const worker *w)
{
    return w && w->own && w->own->run->feed == feed;
}

/* As many as may be ready, and one in the hands of each worker. */
static bool may_open_locked(const psti_feed *feed)
{
    int64_t begun = 0;
    for (const run *r = feed->runs; r; r = r->next)
        begun += r->opened - r->delivered;
    return begun < feed->depth + feed->pool->worker_count;
}

bool own_open_locked(psti_feed *feed, run *r, worker *w)
{
    if (!w || w->own || !may_open_locked(feed))
        return own_goes_on(feed, w);
    const int64_t step = r->opened;
    w->own = block_take_locked(feed, r, step, psti_deal_slots(r->deal, step));
    if (!w->own) {
        psti_fail(&r->error, -ENOMEM, "batch", NULL, "no memory for a batch of %.1f MiB",
                  (double)feed->layout.bytes / 0x1p20);
        feed_wake(feed);
        return false;
    }
    r->opened++;
    r->next_share += w->own->slots;
    return true;
}

int64_t own_share(const run *r, const pst_batch *own)
{
    const int64_t at = own->step * r->feed->spec.batch + own->placed;
    return r->rest ? r->rest[at] : at;
}

/* What was given out so far goes when its tasks end. */
void own_cancel_locked(const run *r)
{
    const psti_pool *pool = r->feed->pool;
    for (int i = 0; pool->workers && i < pool->worker_count; i++) {
        pst_batch *own = pool->workers[i].own;
        if (!own || own->run != r)
            continue;
        pool->workers[i].own = NULL;
        if (own->placed == own->filled)
            block_drop_locked(r->feed, own);
    }
}
