/* SPDX-License-Identifier: Apache-2.0
 * Ready order with buckets, where shapes vary: finished samples stand on a shelf, sorted by bucket,
 * until a bucket has a batch full of them. Buckets are a wish and the window is a promise: when
 * nothing is ready and nothing may be started, the batch of the oldest sample is completed from the
 * other buckets. Under pool->lock. */
#include <errno.h>

#include "sched/sched_priv.h"

/* A row per bucket and one for the epoch's tail; in each, samples in order of completion. */
struct shelf {
    record *first[PSTI_BUCKETS + 1], *last[PSTI_BUCKETS + 1];
    int count[PSTI_BUCKETS + 1];
    int64_t total;
    int row; /* that the open batch is of */
};

int shelf_open(run *r)
{
    const psti_feed *feed = r->feed;
    if (feed->way != HEAP || !psti_order_bucketed(feed->spec.order))
        return 0;
    r->shelf = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *r->shelf);
    return r->shelf ? 0 : -ENOMEM;
}

int64_t shelf_count(const run *r)
{
    return r->shelf ? r->shelf->total : 0;
}

static record *take(shelf *s, int row)
{
    record *rec = s->first[row];
    s->first[row] = rec->next;
    rec->next = NULL;
    s->count[row]--;
    s->total--;
    return rec;
}

void shelf_put_locked(run *r, record *rec, const task *t)
{
    shelf *s = r->shelf;
    const int row = psti_epoch_bucket(r->epoch, t->position);
    rec->next = NULL;
    if (s->first[row])
        s->last[row]->next = rec;
    else
        s->first[row] = rec;
    s->last[row] = rec;
    s->total++;
    s->count[row]++;
}

/* The row whose first sample was started before all others. Samples of a row come in order of
 * completion, so the very oldest may stand behind it; it goes out with its row all the same. */
static int oldest_row(const shelf *s)
{
    int oldest = -1;
    uint64_t start = UINT64_MAX;
    for (int row = 0; row <= PSTI_BUCKETS; row++)
        for (const record *rec = s->first[row]; rec; rec = rec->next)
            if (rec->start < start) {
                start = rec->start;
                oldest = row;
            }
    return oldest;
}

static bool is_stuck_locked(run *r)
{
    psti_feed *feed = r->feed;
    if (r != feed->runs || r->ready || r->opened != r->published ||
        r->shelf->total < feed->spec.batch)
        return false;
    return run_dispatched_all(r) || !task_may_start_locked(feed, r);
}

/* A row that has a batch, or else the oldest when it has to go: -1 when nothing goes out. */
static int row_to_go(run *r)
{
    const shelf *s = r->shelf;
    for (int row = 0; row <= PSTI_BUCKETS; row++)
        if (s->count[row] >= r->feed->spec.batch)
            return row;
    const bool last = run_dispatched_all(r) && r->inflight == 0;
    return last || is_stuck_locked(r) ? oldest_row(s) : -1;
}

void shelf_ask_locked(psti_feed *feed)
{
    run *r = feed->runs;
    if (!r || !r->shelf || !is_stuck_locked(r))
        return;
    feed->shelf_wanted = true;
    pool_signal_locked(feed->pool);
}

bool shelf_look_locked(psti_pool *pool)
{
    bool any = false;
    for (psti_feed *feed = pool->feeds; feed; feed = feed->next) {
        run *r = feed->runs;
        if (!feed->wanted || feed->closing || !r || !r->shelf || r->cancelled || r->error.code ||
            !is_stuck_locked(r))
            continue;
        feed->shelf_wanted = any = true;
    }
    return any;
}

record *shelf_take_locked(run *r)
{
    shelf *s = r->shelf;
    if (!s || s->total == 0 || r->cancelled || r->error.code)
        return NULL;
    /* A batch that was begun is completed at once: from its row, then from the oldest ones. */
    if (r->open && s->count[s->row])
        return take(s, s->row);
    const int row = r->open ? oldest_row(s) : row_to_go(r);
    if (row < 0)
        return NULL;
    if (!r->open)
        s->row = row;
    return take(s, row);
}

void shelf_clear_locked(run *r)
{
    shelf *s = r->shelf;
    for (int row = 0; s && row <= PSTI_BUCKETS; row++)
        while (s->first[row]) {
            record *rec = take(s, row);
            window_done_locked(r->feed, rec->start);
            record_drop_locked(r->feed, rec);
        }
}
