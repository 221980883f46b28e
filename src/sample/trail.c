/* SPDX-License-Identifier: Apache-2.0
 * How random a member's order stays: the positions at which a subset of the samples was delivered,
 * for the current epoch and the five before, and from them the correlation of positions one to five
 * epochs apart. Evenly spaced ids are watched, up to 4096; a value from m of them scatters by
 * 1 / sqrt(m), and the mean over epochs forgets with a half-life of some six. The caller
 * serialises.
 */
#include <errno.h>

#include "sample/share_priv.h"

enum { ROWS = PSTI_SHARE_LAGS + 1 };
static const uint32_t ABSENT = UINT32_MAX;
static const double KEEP = 0.9; /* of the old mean, at each epoch */

static uint32_t *row(const psti_trail *t, uint64_t epoch)
{
    return t->place + (size_t)(epoch % ROWS) * t->count;
}

static void empty_row(psti_trail *t, uint64_t epoch)
{
    uint32_t *place = row(t, epoch);
    for (uint32_t i = 0; i < t->count; i++)
        place[i] = ABSENT;
}

int psti_trail_init(psti_trail *t, uint32_t samples, uint64_t key)
{
    *t = (psti_trail){.stride = (samples - 1) / PSTI_TRAIL_SAMPLES + 1};
    t->offset = (uint32_t)(psti_mix64(key) % t->stride);
    t->count = (samples - 1 - t->offset) / t->stride + 1;
    t->place = psti_calloc(PSTI_MEM_SAMPLE, (size_t)t->count * ROWS, sizeof *t->place);
    if (!t->place)
        return -ENOMEM;
    for (int i = 0; i < ROWS; i++)
        empty_row(t, (uint64_t)i);
    return 0;
}

void psti_trail_fini(psti_trail *t)
{
    psti_free(t->place);
    *t = (psti_trail){0};
}

void psti_trail_note(psti_trail *t, uint32_t id, uint32_t position)
{
    if (id % t->stride == t->offset)
        row(t, t->epochs)[id / t->stride] = position;
}

/* Of the samples that both epochs delivered; 0 pairs when they have too few in common. Positions
 * are even over the epoch, so mean and variance are known. */
static uint32_t correlate(const psti_trail *t, uint64_t a, uint64_t b, double *out)
{
    const uint32_t *x = row(t, a), *y = row(t, b);
    const double x_mid = ((double)t->length[a % ROWS] - 1) / 2;
    const double y_mid = ((double)t->length[b % ROWS] - 1) / 2;
    double xy = 0, xx = 0, yy = 0;
    uint32_t pairs = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (x[i] == ABSENT || y[i] == ABSENT)
            continue;
        const double dx = x[i] - x_mid, dy = y[i] - y_mid;
        xy += dx * dy;
        xx += dx * dx;
        yy += dy * dy;
        pairs++;
    }
    if (pairs < 16 || xx <= 0 || yy <= 0)
        return 0;
    *out = xy / __builtin_sqrt(xx * yy);
    return pairs;
}

bool psti_trail_turn(psti_trail *t, uint64_t delivered)
{
    t->length[t->epochs % ROWS] = delivered;
    bool news = false;
    for (int lag = 1; lag <= PSTI_SHARE_LAGS && (uint64_t)lag <= t->epochs; lag++) {
        double value;
        const uint32_t pairs = correlate(t, t->epochs, t->epochs - (uint64_t)lag, &value);
        if (!pairs)
            continue;
        if (lag == 1) {
            t->last = value;
            t->scatter = 1 / __builtin_sqrt(pairs);
            news = true;
        }
        double *mean = &t->mean[lag - 1], *weight = &t->weight[lag - 1];
        *mean = (KEEP * *weight * *mean + value) / (KEEP * *weight + 1);
        *weight = KEEP * *weight + 1;
    }
    t->epochs++;
    empty_row(t, t->epochs);
    return news;
}
