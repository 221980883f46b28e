/* SPDX-License-Identifier: Apache-2.0
 * The reorder window of ready order: a sample is delivered at most R deliveries after it was
 * started. For each start it is kept what had been delivered then; what is started and not
 * delivered may all come before the oldest, so no sample is started when, with all of that, the
 * oldest could be later than R. Under pool->lock. */
#include <errno.h>

#include "sched/sched_priv.h"

static const uint64_t DONE = UINT64_MAX;

static int64_t default_window(const psti_feed *feed)
{
    const int64_t batch = feed->spec.batch, length = psti_order_length(feed->spec.order);
    int64_t window = 8 * batch > 512 ? 8 * batch : 512;
    if (window > length / 10)
        window = length / 10;
    return window;
}

/* At least four batches, or little could be under way beside a batch that is ready. */
int window_open(psti_feed *feed)
{
    if (feed->spec.mode != PST_ORDER_READY)
        return 0;
    const int64_t batch = feed->spec.batch, least = 4 * batch;
    const int64_t wide = feed->spec.window > 0 ? feed->spec.window : default_window(feed);
    feed->window = wide > least ? wide : least;
    /* What was started after the oldest was delivered since or is outstanding: at most R and what
     * completes a batch. Only bad samples, which are neither, can make it more. */
    feed->start_cells = (uint64_t)(feed->window + 2 * batch + 1);
    feed->born = psti_calloc(PSTI_MEM_SCHED, (size_t)feed->start_cells, sizeof *feed->born);
    return feed->born ? 0 : -ENOMEM;
}

static uint64_t delivered(const psti_feed *feed)
{
    return feed->samples + feed->pads;
}

/* Without memory for it the oldest is forgotten, and may come later than R. */
static void grow_locked(psti_feed *feed)
{
    const uint64_t cells = 2 * feed->start_cells;
    uint64_t *born = psti_calloc(PSTI_MEM_SCHED, (size_t)cells, sizeof *born);
    if (!born) {
        feed->start_base++;
        return;
    }
    for (uint64_t i = feed->start_base; i < feed->start_next; i++)
        born[i % cells] = feed->born[i % feed->start_cells];
    psti_free(feed->born);
    feed->born = born;
    feed->start_cells = cells;
}

uint64_t window_start_locked(psti_feed *feed)
{
    if (feed->born && feed->start_next - feed->start_base == feed->start_cells)
        grow_locked(feed);
    const uint64_t start = feed->start_next++;
    if (feed->born)
        feed->born[start % feed->start_cells] = delivered(feed);
    return start;
}

void window_done_locked(psti_feed *feed, uint64_t start)
{
    if (!feed->born || start < feed->start_base)
        return;
    feed->born[start % feed->start_cells] = DONE;
    while (feed->start_base < feed->start_next &&
           feed->born[feed->start_base % feed->start_cells] == DONE)
        feed->start_base++;
}

/* By how many the sample may be overtaken, counting all that is under way. */
static int64_t overtaken_locked(const psti_feed *feed, uint64_t start)
{
    return (int64_t)(delivered(feed) - feed->born[start % feed->start_cells]) + feed->outstanding;
}

/* One batch is kept back: it may be needed to complete the open batch. */
bool window_has_room_locked(const psti_feed *feed)
{
    return feed->start_base == feed->start_next ||
           overtaken_locked(feed, feed->start_base) + feed->spec.batch < feed->window;
}

bool window_passed_locked(const psti_feed *feed, uint64_t start, double part)
{
    return (double)overtaken_locked(feed, start) > part * (double)feed->window;
}
