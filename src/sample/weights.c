/* SPDX-License-Identifier: Apache-2.0
 * Drawing by weight. With replacement: the cumulated weights and a search in them. Without: every
 * sample runs an exponential race, -log(u) / weight, and the order of arrival is the sequence
 * (Efraimidis and Spirakis, 2006). Called by order.c and epoch.c when a job opens or an epoch
 * begins, and on each look-up with replacement. */
#include <errno.h>

#include "core/math.h"
#include "sample/sample_priv.h"

/* ---- with replacement ------------------------------------------------------------------------ */

/* Fills the guide: entry j is the first index whose cumulated weight is above j / size of the
 * total. */
static void fill_guide(psti_weights *w)
{
    const int64_t size = (int64_t)1 << w->guide_bits;
    int64_t index = 0;
    for (int64_t j = 0; j <= size; j++) {
        const double edge = (double)j / (double)size * w->total;
        while (index < w->count - 1 && w->value[index] <= edge)
            index++;
        w->guide[j] = (uint32_t)index;
    }
}

int psti_weights_cumulate(psti_weights *w, double *scaled, int64_t count)
{
    double sum = 0;
    w->value = scaled;
    w->count = count;
    for (int64_t i = 0; i < count; i++) {
        sum += scaled[i];
        scaled[i] = sum;
    }
    w->total = sum;
    while (w->guide_bits < 30 && (int64_t)4 << w->guide_bits < count)
        w->guide_bits++;
    const size_t entries = ((size_t)1 << w->guide_bits) + 1;
    w->guide = psti_calloc(PSTI_MEM_SAMPLE, entries, sizeof *w->guide);
    if (!w->guide)
        return -ENOMEM;
    fill_guide(w);
    return 0;
}

/* The first index whose cumulated weight is above u * total; as u <= 1 - 2^-53, that product is
 * below the total even when rounded. Rounding is monotone and the guide's size a power of two, so
 * the answer is never outside its two neighbours: the guide saves time and decides nothing. */
int64_t psti_weights_find(const psti_weights *w, double u)
{
    const double x = u * w->total;
    const int64_t j = (int64_t)(u * (double)((int64_t)1 << w->guide_bits));
    int64_t low = w->guide[j], high = w->guide[j + 1];
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (w->value[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void psti_weights_fini(psti_weights *w)
{
    psti_free(w->value);
    psti_free(w->guide);
    *w = (psti_weights){0};
}

/* ---- without replacement --------------------------------------------------------------------- */

typedef struct runner {
    double time;
    uint32_t index;
} runner;

/* Times and indices side by side: 12 bytes a runner. */
typedef struct race {
    double *time;
    uint32_t *index;
    const psti_id_list *ids;
} race;

static inline runner runner_at(const race *r, int64_t i)
{
    return (runner){r->time[i], r->index[i]};
}

static inline void put(race *r, int64_t i, runner x)
{
    r->time[i] = x.time;
    r->index[i] = x.index;
}

/* Equal times, which large ratios of weights can give, are told apart by id. */
static inline bool is_before(const race *r, runner a, runner b)
{
    if (a.time != b.time)
        return a.time < b.time;
    return psti_id_list_at(r->ids, a.index) < psti_id_list_at(r->ids, b.index);
}

static runner median(const race *r, runner a, runner b, runner c)
{
    if (is_before(r, b, a)) {
        const runner t = a;
        a = b;
        b = t;
    }
    if (is_before(r, c, a))
        return a;
    return is_before(r, c, b) ? c : b;
}

/* Hoare's partition of [low, high): returns the start of the later part, neither part empty. */
static int64_t split(race *r, int64_t low, int64_t high)
{
    const runner pivot =
        median(r, runner_at(r, low), runner_at(r, low + (high - low) / 2), runner_at(r, high - 1));
    int64_t i = low - 1, j = high;
    for (;;) {
        do
            i++;
        while (is_before(r, runner_at(r, i), pivot));
        do
            j--;
        while (is_before(r, pivot, runner_at(r, j)));
        if (i >= j)
            return i;
        const runner t = runner_at(r, i);
        put(r, i, runner_at(r, j));
        put(r, j, t);
    }
}

static void insert_each(race *r, int64_t low, int64_t high)
{
    for (int64_t i = low + 1; i < high; i++) {
        const runner x = runner_at(r, i);
        int64_t j = i;
        for (; j > low && is_before(r, x, runner_at(r, j - 1)); j--)
            put(r, j, runner_at(r, j - 1));
        put(r, j, x);
    }
}

/* Sorts [low, high) as far as the first `want` places need it. Written here because qsort takes
 * memory that is not counted. The smaller part recurses, so the depth is at most log2. */
static void sort_first(race *r, int64_t low, int64_t high, int64_t want)
{
    while (high - low > 16 && low < want) {
        const int64_t middle = split(r, low, high);
        if (middle - low < high - middle) {
            sort_first(r, low, middle, want);
            low = middle;
        } else {
            sort_first(r, middle, high, want);
            high = middle;
        }
    }
    if (low < want)
        insert_each(r, low, high);
}

static int64_t line_up(race *r, const psti_order *order, const psti_stream *stream)
{
    int64_t count = 0;
    for (int64_t i = 0; i < order->count; i++) {
        const double weight = order->weights.value[i];
        if (weight <= 0)
            continue;
        const uint64_t id = (uint64_t)psti_id_list_at(&order->ids, i);
        r->time[count] = -psti_ln(psti_stream_unit(stream, id)) / weight;
        r->index[count++] = (uint32_t)i;
    }
    return count;
}

int psti_weights_race(const psti_order *order, const psti_stream *stream, uint32_t **out)
{
    int rc = -ENOMEM;
    race r = {.ids = &order->ids};
    r.time = psti_calloc(PSTI_MEM_SAMPLE, (size_t)order->count, sizeof *r.time);
    r.index = psti_calloc(PSTI_MEM_SAMPLE, (size_t)order->count, sizeof *r.index);
    if (!r.time || !r.index)
        goto done;
    sort_first(&r, 0, line_up(&r, order, stream), order->base);
    uint32_t *first = psti_realloc(PSTI_MEM_SAMPLE, r.index, (size_t)order->base, sizeof *r.index);
    if (!first)
        goto done;
    *out = first;
    r.index = NULL;
    rc = 0;
done:
    psti_free(r.time);
    psti_free(r.index);
    return rc;
}
