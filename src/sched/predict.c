/* SPDX-License-Identifier: Apache-2.0
 * Least squares with exponential forgetting. Kept are the sums of products themselves, not their
 * inverse: they cannot lose symmetry or blow up where a feature stands still, however long it runs.
 * The inverse is made anew every few samples, from sums scaled to a unit diagonal with a small
 * ridge, so features may be of any magnitude, constant, or copies of each other.
 *
 * Beside that a table holds, for each sample, how its time compared with what its features said.
 * It is believed as far as it has been right, over all samples that were run more than once.
 *
 * Under the caller's lock; no allocation, no blocking. */
#include "sched/predict.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/math.h"
#include "core/memory.h"

enum { N = PREDICT_FEATURES_MAX };

/* Samples over which things are remembered. */
static const double MEMORY = 1024, MEMORY_NEW_LAW = 32;
static const double FEW = 16, MANY = 256;
static const double NEW_LAW = 2, KNOWN_LAW = 1.25; /* lately by usual: it has come, has gone */
/* Least squares: ridge on the unit diagonal, samples' worth of ridge, samples between two solves
 * and how many are solved at once first. */
static const double RIDGE = 1e-6, RIDGE_SAMPLES = 0.05;
enum { SOLVE_EVERY = 8, SOLVE_FIRST = 64 };
/* What is further off than so many mean errors is an outlier, unless its features are new: less
 * than so many samples told anything about them. */
static const double OUTLIER = 6, NEW_SAMPLES = 3;
/* Relative error below which nothing is told apart: where a law has fitted exactly. */
static const double EXACT = 1e-4;
/* Small samples count for more, up to that: errors grow with cost, and all sizes shall be right. */
static const double LIGHTEST = 1.0 / 16;
/* Predictions stay above this share of the mean. */
static const double LEAST = 1.0 / 64;

/* Moves a mean over `memory` samples, or over the `seen` there were. */
static void mean_to(double *mean, double value, double seen, double memory)
{
    *mean += (value - *mean) / (seen < memory ? seen : memory);
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double distance(double a, double b)
{
    return a > b ? a - b : b - a;
}

int predict_init(predictor *p, int features, int64_t samples)
{
    memset(p, 0, sizeof *p);
    p->count = features < N ? features : N;
    if (samples <= 0)
        return 0;
    p->past = psti_calloc(PSTI_MEM_SCHED, (size_t)samples, sizeof *p->past);
    if (!p->past)
        return -ENOMEM;
    p->samples = samples;
    return 0;
}

void predict_fini(predictor *p)
{
    psti_free(p->past);
    p->past = NULL;
    p->samples = 0;
}

size_t predict_bytes(const predictor *p)
{
    return (size_t)p->samples * sizeof *p->past;
}

bool predict_ready(const predictor *p)
{
    return p->learned >= PREDICT_READY;
}

double predict_error(const predictor *p)
{
    return predict_ready(p) && p->cost > 0 ? p->error / p->cost : 0;
}

/* ---- from the features ----------------------------------------------------------------------- */

/* Bent so that it stays above 0 and keeps the order. */
static double by_features(const predictor *p, const double *x)
{
    const double least = LEAST * p->cost;
    double sum = 0;
    for (int i = 0; i < p->count; i++)
        sum += p->seconds[i] * x[i];
    return sum >= least || least <= 0 ? sum : least * least / (2 * least - sum);
}

/* The scaled sums with the ridge, factored: root * root' = them. */
static void factor(predictor *p)
{
    const double ridge = RIDGE + RIDGE_SAMPLES / p->weight;
    for (int i = 0; i < p->count; i++)
        p->scale[i] = p->xx[i][i] > 1e-200 ? 1 / __builtin_sqrt(p->xx[i][i]) : 0;
    for (int i = 0; i < p->count; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = i == j ? 1 + ridge : p->xx[i][j] * p->scale[i] * p->scale[j];
            for (int k = 0; k < j; k++)
                sum -= p->root[i][k] * p->root[j][k];
            /* Never below the ridge but by rounding. */
            p->root[i][j] =
                i == j ? 1 / __builtin_sqrt(larger(sum, ridge / 2)) : sum * p->root[j][j];
        }
    }
}

static void solve(predictor *p)
{
    double y[N];
    factor(p);
    for (int i = 0; i < p->count; i++) {
        y[i] = p->xy[i] * p->scale[i];
        for (int k = 0; k < i; k++)
            y[i] -= p->root[i][k] * y[k];
        y[i] *= p->root[i][i];
    }
    for (int i = p->count - 1; i >= 0; i--) {
        for (int k = i + 1; k < p->count; k++)
            y[i] -= p->root[k][i] * y[k];
        y[i] *= p->root[i][i];
    }
    for (int i = 0; i < p->count; i++)
        p->seconds[i] = y[i] * p->scale[i];
    p->stale = 0;
}

/* How new the features are: one by the number of samples that told as much about them. */
static double newness(const predictor *p, const double *x)
{
    double y[N], sum = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->scale[i] <= 0 && x[i] > 0)
            return 1;
        y[i] = x[i] * p->scale[i];
        for (int k = 0; k < i; k++)
            y[i] -= p->root[i][k] * y[k];
        y[i] *= p->root[i][i];
        sum += y[i] * y[i];
    }
    return sum;
}

/* keep: what stays of all that was learned before. */
static void add(predictor *p, const double *x, double seconds, double weight, double keep)
{
    p->weight = keep * p->weight + weight;
    for (int i = 0; i < p->count; i++) {
        const double xi = weight * x[i];
        for (int j = 0; j <= i; j++)
            p->xx[i][j] = keep * p->xx[i][j] + xi * x[j];
        p->xy[i] = keep * p->xy[i] + xi * seconds;
    }
}

/* Whether it is still the law that was learned, and what to keep of it. off: relative error of
 * the features, outliers cut, so that it takes several samples to doubt the law. What is usual
 * hardly moves while the law is new, or it would soon be that. */
static double follow_law(predictor *p, double off)
{
    const double seen = (double)p->learned;
    const bool before = p->new_law;
    mean_to(&p->spread, off, seen, 4 * FEW);
    mean_to(&p->lately, off, seen, FEW);
    mean_to(&p->usual, off, seen, before ? 4 * MANY : MANY);
    p->new_law = p->lately > (before ? KNOWN_LAW : NEW_LAW) * p->usual;
    if (p->new_law && !before)
        return MEMORY_NEW_LAW / MEMORY;
    return 1 - 1 / (p->new_law ? MEMORY_NEW_LAW : MEMORY);
}

/* base: what the features said. Errors are taken relative to it, as they grow with cost. */
static void learn_features(predictor *p, const double *x, double base, double seconds)
{
    const bool first = p->learned <= SOLVE_FIRST;
    const double unit = larger(base, LIGHTEST * p->cost);
    const double weight = unit > 0 ? p->cost / unit : 1;
    const double fresh = p->learned > 1 ? weight * newness(p, x) : 1;
    const double most =
        predict_ready(p) ? OUTLIER * larger(p->spread, p->lately) + EXACT : HUGE_VAL;
    const double off = unit > 0 ? smaller(distance(seconds, base) / unit, most) : 0;
    if (fresh * NEW_SAMPLES < 1)
        seconds = seconds > base ? base + off * unit : base - off * unit;
    const double keep = follow_law(p, predict_ready(p) ? off : smaller(off, 1));
    add(p, x, seconds, weight, keep);
    p->stale++;
    if (first || p->stale >= SOLVE_EVERY || fresh > 0.1)
        solve(p);
}

/* ---- from the sample's own past -------------------------------------------------------------- */

/* Entries are relative to what the features say: those made while that is being learned would
 * mislead. */
static const uint64_t PAST_FROM = 512;

/* An entry: how often seen, up to 3, in two bits; above them the log, in 256ths. */
static const double LOG_UNIT = 256, LOG_MOST = 31;

static int seen_before(const predictor *p, int64_t id)
{
    return p->past && id >= 0 && id < p->samples ? p->past[id] & 3 : 0;
}

static double past_of(const predictor *p, int64_t id)
{
    return (int16_t)(p->past[id] & ~3u) / (4 * LOG_UNIT);
}

static void set_past(predictor *p, int64_t id, double log, int seen)
{
    const int steps = (int)(log * LOG_UNIT + (log < 0 ? -0.5 : 0.5));
    p->past[id] = (uint16_t)((unsigned)(steps * 4) | (unsigned)(seen < 3 ? seen : 3));
}

static void learn_trust(predict_trust *t, double then, double now, double base, double seconds)
{
    t->pairs++;
    mean_to(&t->without, distance(seconds, base), t->pairs, MANY);
    mean_to(&t->with, distance(seconds, base * psti_exp(t->share * then)), t->pairs, MANY);
    const double from_then = then - t->then, from_now = now - t->now;
    mean_to(&t->then, then, t->pairs, MANY);
    mean_to(&t->now, now, t->pairs, MANY);
    mean_to(&t->then_then, from_then * from_then, t->pairs, MANY);
    mean_to(&t->then_now, from_then * from_now, t->pairs, MANY);
    const double slope = t->then_then > 1e-12 ? t->then_now / t->then_then : 0;
    t->share = slope < 0 ? 0 : smaller(slope, 1);
}

static void learn_past(predictor *p, int64_t id, double base, double seconds)
{
    if (!p->past || id < 0 || id >= p->samples || base <= 0 || seconds <= 0 ||
        p->learned < PAST_FROM)
        return;
    const int seen = seen_before(p, id);
    double now = psti_ln(seconds / base);
    now = now < 0 ? larger(now, -LOG_MOST) : smaller(now, LOG_MOST);
    double log = now;
    if (seen) {
        const double then = past_of(p, id);
        learn_trust(&p->trust, then, now, base, seconds);
        log = then + (now - then) / (seen < 2 ? 2 : 3);
    }
    set_past(p, id, log, seen + 1);
}

/* The past is asked once it has been right more often than not having it. */
static const double TRUST_PAIRS = 32, TRUST_LEAST = 0.1;

bool predict_knows(const predictor *p, int64_t id)
{
    const predict_trust *t = &p->trust;
    return t->pairs >= TRUST_PAIRS && t->share >= TRUST_LEAST && t->with < t->without &&
           seen_before(p, id) > 0;
}

static double with_past(const predictor *p, int64_t id, double base)
{
    return predict_knows(p, id) ? base * psti_exp(p->trust.share * past_of(p, id)) : base;
}

/* ---- both ------------------------------------------------------------------------------------ */

double predict_seconds(const predictor *p, const double *features, int64_t id)
{
    return with_past(p, id, by_features(p, features));
}

void predict_learn(predictor *p, const double *features, int64_t id, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e9))
        return;
    const double base = by_features(p, features);
    if (predict_ready(p)) {
        const double seen = (double)(p->learned - PREDICT_READY + 1);
        mean_to(&p->error, distance(with_past(p, id, base), seconds), seen, MANY);
        learn_past(p, id, base, seconds);
    }
    p->learned++;
    mean_to(&p->cost, seconds, (double)p->learned, MANY);
    learn_features(p, features, base, seconds);
}
