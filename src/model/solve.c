/* SPDX-License-Identifier: Apache-2.0
 * The best split, what resources are worth there, and what a change would bring. For a given number
 * of augmented entries the rest is a linear programme in two unknowns (encoded and decoded entries)
 * whose optimum is a corner of the allowed region or lies where two resources balance on its
 * border; the number of augmented entries is searched. Pure. */
#include <math.h>

#include "model/model_priv.h"

enum { STEPS = 20, NARROW = 20, BALANCE = 6 };

typedef struct point {
    double encoded, decoded; /* entries */
} point;

typedef struct search {
    const psti_model_input *in;
    psti_model_split best;
    psti_model_rate rate;
    bool any;
} search;

/* ---- the allowed region ---------------------------------------------------------------------- */

/* Corners in order around it: encoded and decoded entries together are at most the dataset, and
 * their bytes at most the room. */
static int corners(const psti_model_input *in, double room, point out[5])
{
    const double n = in->samples, e = in->bytes[E], d = in->bytes[D];
    const double most_e = fmin(n, room / e), most_d = d > 0 ? fmin(n, room / d) : 0;
    int count = 0;
    out[count++] = (point){0, 0};
    out[count++] = (point){most_e, 0};
    if (d > 0 && d != e && room / e > n) { /* where both limits meet */
        const double decoded = (room - n * e) / (d - e);
        if (decoded > 0 && decoded < most_d)
            out[count++] = (point){n - decoded, decoded};
    }
    if (most_d > 0)
        out[count++] = (point){0, most_d};
    return count;
}

static point between(point a, point b, double t)
{
    return (point){a.encoded + t * (b.encoded - a.encoded),
                   a.decoded + t * (b.decoded - a.decoded)};
}

/* Two resources that may balance. */
typedef enum pair { CORES_SOURCE, CORES_REMOTE, SOURCE_REMOTE } pair;

/* Seconds of the first less seconds of the second for a delivery. */
static double tilt(const psti_model_input *in, point at, double q, pair which)
{
    const prep_cost prep = model_prep(in, at.encoded, at.decoded);
    const double cores_s = model_delivery_s(in, &prep, q) / in->cores;
    return (which == SOURCE_REMOTE ? q * prep.source_s : cores_s) -
           q * (which == CORES_SOURCE ? prep.source_s : prep.remote_s);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* More deliveries count, whether or not the consumers take them all today; among equals the split
 * that leaves the other resource more room. */
static bool better(const psti_model_rate *a, const psti_model_rate *b)
{
    if (fabs(a->capacity - b->capacity) > 1e-9 * b->capacity)
        return a->capacity > b->capacity;
    return a->cpu_s + a->source_s < (b->cpu_s + b->source_s) * (1 - 1e-9);
}

static psti_model_rate consider(search *s, double augmented, point at)
{
    const psti_model_input *in = s->in;
    const double cache = in->cache_bytes;
    const psti_model_split split = {
        {at.encoded * in->bytes[E] / cache, at.decoded * in->bytes[D] / cache, augmented}};
    psti_model_rate rate;
    psti_model_evaluate(in, &split, true, &rate);
    if (!s->any || better(&rate, &s->rate)) {
        s->best = split;
        s->rate = rate;
        s->any = true;
    }
    return rate;
}

/* Where two resources balance between two corners, if they do. Preparations per delivery depend
 * on the place a little, so it is looked for again with those found there. */
static double balance(search *s, double augmented, const point end[2], double q, pair which)
{
    double most = 0;
    for (int i = 0; i < BALANCE; i++) {
        const double at_a = tilt(s->in, end[0], q, which), at_b = tilt(s->in, end[1], q, which);
        if (at_a * at_b >= 0)
            return most;
        const psti_model_rate rate =
            consider(s, augmented, between(end[0], end[1], at_a / (at_a - at_b)));
        most = fmax(most, rate.capacity);
        if (fabs(rate.preparations - q) < 1e-9)
            return most;
        q = rate.preparations;
    }
    return most;
}

/* The best with this share of the bytes for augmented entries; returns its capacity. */
static double with_augmented(search *s, double augmented)
{
    point corner[5];
    const double room = s->in->cache_bytes * (1 - augmented);
    const int count = corners(s->in, room < 0 ? 0 : room, corner);
    double most = 0, q[5];
    for (int i = 0; i < count; i++) {
        const psti_model_rate rate = consider(s, augmented, corner[i]);
        q[i] = rate.preparations;
        most = fmax(most, rate.capacity);
    }
    for (int i = 0; i < count && count > 1; i++) {
        const int next = (i + 1) % count;
        const double mean = (q[i] + q[next]) / 2;
        const point end[2] = {corner[i], corner[next]};
        const pair last = s->in->remote_bytes_s > 0 ? SOURCE_REMOTE : CORES_SOURCE;
        for (pair which = CORES_SOURCE; which <= last; which++)
            most = fmax(most, balance(s, augmented, end, mean, which));
    }
    return most;
}

/* The capacity has one top in the share of augmented bytes, but kinks: a coarse walk finds the
 * neighbourhood, halving the steps the place. */
static void walk(search *s)
{
    const psti_model_input *in = s->in;
    double at = 0, most = with_augmented(s, 0);
    if (in->jobs < 2 || !(in->bytes[A] > 0))
        return;
    const double end = fmin(1, in->samples * in->bytes[A] / in->cache_bytes);
    for (int i = 1; i <= STEPS; i++) {
        const double here = end * i / STEPS, capacity = with_augmented(s, here);
        if (capacity > most) {
            most = capacity;
            at = here;
        }
    }
    double step = end / STEPS / 2;
    for (int i = 0; i < NARROW; i++, step /= 2) {
        const double low = at - step, high = at + step;
        const double below = low >= 0 ? with_augmented(s, low) : 0;
        const double above = high <= end ? with_augmented(s, high) : 0;
        if (below > most && below >= above) {
            most = below;
            at = low;
        } else if (above > most) {
            most = above;
            at = high;
        }
    }
}

/* ---- prices ---------------------------------------------------------------------------------- */

/* What a delivery costs at best if a second of the cores cost w and one of the source 1 - w. */
static double priced(const psti_model_input *in, const point *corner, int count, double w, double q)
{
    double best = INFINITY;
    for (int i = 0; i < count; i++) {
        const prep_cost prep = model_prep(in, corner[i].encoded, corner[i].decoded);
        const double cpu_s = model_delivery_s(in, &prep, q) / in->cores;
        best = fmin(best, w * cpu_s + (1 - w) * q * prep.source_s);
    }
    return best;
}

/* The prices of the linear programme: those at which even the cheapest split costs most. */
static psti_model_prices prices(const psti_model_input *in, const psti_model_split *split, double q)
{
    point corner[5];
    const int count = corners(in, in->cache_bytes * (1 - split->share[A]), corner);
    double low = 0, high = 1;
    for (int i = 0; i < 40; i++) {
        const double third = (high - low) / 3;
        if (priced(in, corner, count, low + third, q) < priced(in, corner, count, high - third, q))
            low += third;
        else
            high -= third;
    }
    double cpu = (low + high) / 2;
    cpu = cpu < 1e-6 ? 0 : cpu > 1 - 1e-6 ? 1 : cpu;
    return (psti_model_prices){.cpu = cpu, .source = 1 - cpu};
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void find_best(const psti_model_input *in, search *s)
{
    *s = (search){.in = in};
    if (in->cache_bytes > 0)
        walk(s);
    else
        psti_model_evaluate(in, &s->best, true, &s->rate);
}

void psti_model_solve(const psti_model_input *in, psti_model_answer *out)
{
    search s;
    find_best(in, &s);
    *out = (psti_model_answer){.split = s.best, .rate = s.rate};
    psti_model_evaluate(in, &out->split, false, &out->first);
    psti_model_evaluate(in, &(psti_model_split){{0}}, true, &out->none);
    for (int form = 0; form < PSTI_MODEL_FORMS; form++) {
        psti_model_split corner = {{0}};
        corner.share[form] = 1;
        psti_model_evaluate(in, &corner, true, &out->corner[form]);
    }
    out->prices = prices(in, &out->split, out->rate.preparations);
}

double psti_model_gain(const psti_model_input *in, psti_model_change change, double amount)
{
    psti_model_input changed = *in;
    search before, after;
    find_best(in, &before);
    if (change == PSTI_MODEL_MORE_CACHE)
        changed.cache_bytes += amount;
    else if (change == PSTI_MODEL_MORE_CORES)
        changed.cores += amount;
    else if (amount > 0) {
        changed.source_bytes_s *= amount;
        changed.source_request_s /= amount;
    }
    find_best(&changed, &after);
    return after.rate.total / before.rate.total - 1;
}
