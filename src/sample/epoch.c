/* SPDX-License-Identifier: Apache-2.0
 * The order of one epoch: position -> (sample id, occurrence). Shuffled and sequential epochs
 * compute both. With replacement the draw is computed and a table keeps the occurrences; without, a
 * table keeps the sequence. Opened and closed by the engine, read by any thread; the order must
 * outlive its epochs. */
#include <assert.h>
#include <errno.h>

#include "core/status.h"
#include "sample/sample_priv.h"

struct psti_epoch {
    const psti_order *order;
    psti_stream stream;           /* weighted */
    psti_permutation permutation; /* shuffle: of the runs */
    int64_t cut;                  /* shuffle: what the last run lacks of order->run samples … */
    int64_t seat;                 /* … and where it stands among the runs */
    uint32_t *table; /* with replacement: occurrences before repeating; without: indices */
    uint32_t *seats; /* with buckets: the position that stands at each without them */
    int64_t tail;    /* with buckets: from here on they are mixed */
};

static int64_t drawn_at(const void *user, int64_t position)
{
    const psti_epoch *epoch = user;
    const double u = psti_stream_unit(&epoch->stream, (uint64_t)position);
    return psti_weights_find(&epoch->order->weights, u);
}

static int count_drawn(psti_epoch *epoch)
{
    const psti_order *order = epoch->order;
    epoch->table = psti_calloc(PSTI_MEM_SAMPLE, (size_t)order->base, sizeof *epoch->table);
    if (!epoch->table)
        return -ENOMEM;
    return psti_count_earlier(order->base, order->count, drawn_at, epoch, epoch->table);
}

/* ---- shuffled runs --------------------------------------------------------------------------- */

static void shuffle_runs(psti_epoch *epoch, uint64_t number)
{
    const psti_order *order = epoch->order;
    const int64_t runs = (order->count - 1) / order->run + 1;
    psti_permutation_init(&epoch->permutation, (uint64_t)runs, order->seed, number);
    epoch->cut = runs * order->run - order->count;
    epoch->seat =
        epoch->cut ? (int64_t)psti_permutation_find(&epoch->permutation, (uint64_t)runs - 1) : runs;
}

/* Positions behind the short run are those of full ones, less what it lacks. */
static int64_t shuffled_at(const psti_epoch *epoch, int64_t position)
{
    const int64_t run = epoch->order->run;
    if (position >= (epoch->seat + 1) * run - epoch->cut)
        position += epoch->cut;
    const uint64_t at = psti_permutation_at(&epoch->permutation, (uint64_t)(position / run));
    return (int64_t)at * run + position % run;
}

static int64_t shuffled_find(const psti_epoch *epoch, int64_t index)
{
    const int64_t run = epoch->order->run;
    const int64_t seat =
        (int64_t)psti_permutation_find(&epoch->permutation, (uint64_t)(index / run));
    return seat * run + index % run - (seat > epoch->seat ? epoch->cut : 0);
}

static int prepare(psti_epoch *epoch, uint64_t number)
{
    const psti_order *order = epoch->order;
    switch (order->sampler) {
    case PST_SHUFFLE:
        shuffle_runs(epoch, number);
        return 0;
    case PST_WEIGHTED:
        epoch->stream = psti_stream_of(order->seed, number, PSTI_STREAM_WEIGHTED);
        return count_drawn(epoch);
    case PST_WEIGHTED_ONCE:
        epoch->stream = psti_stream_of(order->seed, number, PSTI_STREAM_WEIGHTED_ONCE);
        return psti_weights_race(order, &epoch->stream, &epoch->table);
    default:
        return 0;
    }
}

/* What stands at a position before repeating: an index into the ids, and its earlier occurrences.
 */
static int64_t index_at(const psti_epoch *epoch, int64_t base, uint32_t *earlier)
{
    const psti_order *order = epoch->order;
    *earlier = 0;
    switch (order->sampler) {
    case PST_SHUFFLE:
        return shuffled_at(epoch, base);
    case PST_WEIGHTED:
        *earlier = epoch->table[base];
        return drawn_at(epoch, base);
    case PST_WEIGHTED_ONCE:
        return epoch->table[base];
    case PST_GIVEN:
        *earlier = order->earlier ? order->earlier[base] : 0;
        return base;
    default:
        return base;
    }
}

/* Of a position before buckets are dealt. */
static int bucket_at(const void *user, int64_t position)
{
    const psti_epoch *epoch = user;
    const psti_order *order = epoch->order;
    uint32_t earlier;
    const int64_t index = index_at(epoch, position / order->repeat, &earlier);
    return order->buckets[psti_id_list_at(&order->ids, index)];
}

int psti_epoch_open(const psti_order *order, uint64_t epoch, psti_epoch **out, pst_error *err)
{
    *out = NULL;
    psti_epoch *e = psti_calloc(PSTI_MEM_SAMPLE, 1, sizeof *e);
    if (e)
        e->order = order;
    if (!e || prepare(e, epoch) < 0 ||
        (order->buckets && psti_buckets_deal(order, bucket_at, e, &e->seats, &e->tail) < 0)) {
        psti_epoch_close(e);
        return psti_fail(err, -ENOMEM, "sampler", NULL,
                         "out of memory for the order of epoch %llu, %lld positions",
                         (unsigned long long)epoch, (long long)psti_order_length(order));
    }
    *out = e;
    return 0;
}

void psti_epoch_close(psti_epoch *epoch)
{
    if (!epoch)
        return;
    psti_free(epoch->table);
    psti_free(epoch->seats);
    psti_free(epoch);
}

void psti_epoch_at(const psti_epoch *epoch, int64_t position, int64_t *id, uint32_t *occurrence)
{
    const psti_order *order = epoch->order;
    assert(position >= 0 && position < psti_order_length(order));
    if (epoch->seats)
        position = epoch->seats[position];
    const uint32_t repeat = (uint32_t)order->repeat;
    uint32_t earlier;
    const int64_t index = index_at(epoch, position / repeat, &earlier);
    *id = psti_id_list_at(&order->ids, index);
    *occurrence = earlier * repeat + (uint32_t)(position % repeat);
}

bool psti_epoch_goes_on(const psti_epoch *epoch, int64_t position)
{
    const psti_order *order = epoch->order;
    const bool shuffled = order->sampler == PST_SHUFFLE;
    if (epoch->seats || order->repeat > 1 || position + 1 >= order->base ||
        (shuffled ? order->run == 1 : order->sampler != PST_SEQUENTIAL))
        return false;
    const int64_t index = shuffled ? shuffled_at(epoch, position) : position;
    if (shuffled && ((index + 1) % order->run == 0 || index + 1 == order->count))
        return false;
    return psti_id_list_at(&order->ids, index + 1) == psti_id_list_at(&order->ids, index) + 1;
}

int psti_epoch_bucket(const psti_epoch *epoch, int64_t position)
{
    if (!epoch->seats)
        return 0;
    return position < epoch->tail ? bucket_at(epoch, epoch->seats[position]) : PSTI_BUCKETS;
}

int64_t psti_epoch_find(const psti_epoch *epoch, int64_t id)
{
    const psti_order *order = epoch->order;
    int64_t index = id;
    if (order->ids.data)
        index = order->index_of ? (int64_t)order->index_of[id] - 1 : -1;
    if (index < 0 || index >= order->count)
        return -1;
    return order->sampler == PST_SHUFFLE ? shuffled_find(epoch, index) : index;
}
