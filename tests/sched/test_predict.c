/* SPDX-License-Identifier: Apache-2.0
 * Prediction of what samples take: that a law is learned, followed when it changes, and not lost to
 * outliers, to features that tell nothing or to a long run; and that a sample's past helps where
 * time belongs to the sample and does no harm where it does not. One fixed seed per behaviour. */
#include <errno.h>
#include <math.h>

#include "check.h"
#include "core/memory.h"
#include "core/rng.h"
#include "sched/predict.h"

static psti_rng rng;

static void seed(uint64_t value)
{
    const psti_rng_key key = {.seed = value};
    psti_rng_init(&rng, &key, 0);
}

static double unit(void)
{
    return psti_rng_unit(&rng);
}

static predictor fresh(int features, int64_t samples)
{
    predictor p;
    CHECK(predict_init(&p, features, samples) == 0);
    return p;
}

/* ---- a law to be learned --------------------------------------------------------------------- */

enum { ONE, BYTES, PIXELS, COPY, STILL, NEVER, BRANCH, FEATURES };
typedef struct law {
    double base, byte, pixel, branch;
} law;
static const law usual = {1e-3, 20e-9, 8e-9, 4e-3}, other = {3e-3, 5e-9, 40e-9, 0};

/* Sizes over two orders of magnitude; pixels follow bytes loosely. */
static void draw(double *x, double branches)
{
    x[ONE] = 1;
    x[BYTES] = x[COPY] = 5e3 * exp(4.6 * unit());
    x[PIXELS] = x[BYTES] * (1 + 3 * unit());
    x[STILL] = 50176;
    x[NEVER] = 0;
    x[BRANCH] = unit() < branches;
}

static double cost(const law *l, const double *x)
{
    return l->base + l->byte * x[BYTES] + l->pixel * x[PIXELS] + l->branch * x[BRANCH];
}

static void teach(predictor *p, const law *l, int samples, double noise)
{
    double x[FEATURES];
    for (int i = 0; i < samples; i++) {
        draw(x, 0.3);
        predict_learn(p, x, -1, cost(l, x) * (1 + noise * (2 * unit() - 1)));
    }
}

/* Mean of |prediction - law| by law: every sample counts alike, however small. */
static double error_against(const predictor *p, const law *l)
{
    double sum = 0, x[FEATURES];
    for (int i = 0; i < 400; i++) {
        draw(x, 0.3);
        sum += fabs(predict_seconds(p, x, -1) / cost(l, x) - 1) / 400;
    }
    return sum;
}

static void a_law_is_learned_with_noise(void)
{
    seed(1);
    predictor p = fresh(FEATURES, 0);
    CHECK(!predict_ready(&p) && predict_error(&p) == 0);
    teach(&p, &usual, PREDICT_READY, 0.2);
    CHECK(predict_ready(&p));
    CHECKF(error_against(&p, &usual) < 0.4, "%g", error_against(&p, &usual));
    teach(&p, &usual, 48, 0.2);
    CHECKF(error_against(&p, &usual) < 0.1, "%g", error_against(&p, &usual));
    teach(&p, &usual, 2000, 0.2);
    CHECKF(error_against(&p, &usual) < 0.025, "%g", error_against(&p, &usual));
    /* What noise alone gives: a tenth of the cost. */
    CHECKF(predict_error(&p) > 0.07 && predict_error(&p) < 0.13, "%g", predict_error(&p));
    predict_fini(&p);
}

static void a_changed_law_is_followed(void)
{
    seed(2);
    predictor p = fresh(FEATURES, 0);
    teach(&p, &usual, 5000, 0.2);
    CHECKF(error_against(&p, &other) > 0.5, "%g", error_against(&p, &other));
    teach(&p, &other, 200, 0.2);
    CHECKF(error_against(&p, &other) < 0.1, "%g", error_against(&p, &other));
    teach(&p, &other, 5000, 0.2);
    CHECKF(error_against(&p, &other) < 0.025, "%g", error_against(&p, &other));
    predict_fini(&p);
    p = fresh(FEATURES, 0);
    teach(&p, &other, 100, 0.2);
    teach(&p, &usual, 100, 0.2);
    CHECKF(error_against(&p, &usual) < 0.2, "%g", error_against(&p, &usual));
    predict_fini(&p);
}

/* What has never been wrong still learns. */
static void an_exact_law_can_end(void)
{
    predictor p = fresh(1, 0);
    const double x[1] = {1};
    for (int i = 0; i < 200; i++)
        predict_learn(&p, x, -1, 0);
    for (int i = 0; i < 200; i++)
        predict_learn(&p, x, -1, 1);
    CHECKF(predict_seconds(&p, x, -1) > 0.5, "%g", predict_seconds(&p, x, -1));
    predict_fini(&p);
}

static void outliers_do_not_count(void)
{
    seed(3);
    predictor p = fresh(FEATURES, 0);
    double x[FEATURES];
    teach(&p, &usual, 100, 0.2);
    for (int i = 0; i < 4000; i++) {
        draw(x, 0.3);
        const double seconds = cost(&usual, x) * (0.8 + 0.4 * unit());
        predict_learn(&p, x, -1, unit() < 0.02 ? seconds * 100 : seconds);
    }
    CHECKF(error_against(&p, &usual) < 0.15, "%g", error_against(&p, &usual));
    predict_fini(&p);
}

/* However exact the law was before. */
static void one_outlier_is_no_new_law(void)
{
    seed(12);
    predictor p = fresh(FEATURES, 0);
    double x[FEATURES];
    teach(&p, &usual, 3000, 0.002);
    for (int i = 0; i < 20; i++) {
        draw(x, 0.3);
        predict_learn(&p, x, -1, 100 * cost(&usual, x));
        CHECKF(!p.new_law, "the %d-th", i);
        CHECKF(error_against(&p, &usual) < 0.02, "%g", error_against(&p, &usual));
        teach(&p, &usual, 40, 0.002);
    }
    predict_fini(&p);
}

/* Noise grows with cost; a thousandth of the largest sample is known as well as the largest. */
static void small_samples_are_right_too(void)
{
    seed(8);
    double off = 0;
    for (int trial = 0; trial < 50; trial++) {
        predictor p = fresh(2, 0);
        for (int i = 0; i < 100; i++) {
            const double x[2] = {1, 1e3 * exp(6.9 * unit())};
            predict_learn(&p, x, -1, (10e-6 + 10e-9 * x[1]) * (0.7 + 0.6 * unit()));
        }
        const double small[2] = {1, 1e3};
        off += fabs(predict_seconds(&p, small, -1) / 20e-6 - 1) / 50;
        predict_fini(&p);
    }
    CHECKF(off < 0.4, "%g", off);
}

/* One sample in 300 is a hundred times the others, and its branch says so. */
static void a_rare_branch_is_learned_when_first_seen(void)
{
    static const law heavy = {10e-3, 1e-9, 1e-9, 3};
    seed(4);
    predictor p = fresh(FEATURES, 0);
    double x[FEATURES];
    int met = 0;
    for (int i = 0; i < 3000; i++) {
        draw(x, 1.0 / 300);
        const double guess = predict_seconds(&p, x, -1);
        if (x[BRANCH] > 0 && met++ > 0)
            CHECKF(guess > 2.5 && guess < 3.5, "the %d-th: %g", met, guess);
        predict_learn(&p, x, -1, cost(&heavy, x) * (0.9 + 0.2 * unit()));
    }
    CHECKF(met > 4, "%d", met);
    x[BRANCH] = 0;
    CHECK(predict_seconds(&p, x, -1) < 0.02);
    predict_fini(&p);
}

static bool finite_all(const predictor *p)
{
    bool all = isfinite(p->weight) && isfinite(p->cost) && isfinite(p->spread);
    for (int i = 0; i < p->count; i++) {
        all = all && isfinite(p->seconds[i]) && isfinite(p->scale[i]);
        for (int j = 0; j <= i; j++)
            all = all && isfinite(p->xx[i][j]) && isfinite(p->root[i][j]);
    }
    return all;
}

/* Ten million samples, nearly all of them alike: what was learned before is kept, and what changes
 * afterwards is learned. */
static void a_long_run_of_the_same_is_survived(void)
{
    seed(5);
    predictor p = fresh(FEATURES, 0);
    double x[FEATURES];
    teach(&p, &usual, 1000, 0.1);
    draw(x, 0);
    const double same = cost(&usual, x);
    for (int i = 0; i < 10000000; i++)
        predict_learn(&p, x, -1, same * (i & 1 ? 1.01 : 0.99));
    CHECK(finite_all(&p));
    CHECKF(fabs(predict_seconds(&p, x, -1) / same - 1) < 0.01, "%g", predict_seconds(&p, x, -1));
    teach(&p, &other, 400, 0.1);
    CHECKF(error_against(&p, &other) < 0.1, "%g", error_against(&p, &other));
    predict_fini(&p);
}

static void predictions_stay_positive_and_in_order(void)
{
    seed(6);
    predictor p = fresh(FEATURES, 0);
    double x[FEATURES], last = 0;
    for (int i = 0; i < 500; i++) {
        draw(x, 0.3);
        const double seconds = 30e-9 * x[PIXELS] - 2e-4; /* a line that crosses 0 */
        predict_learn(&p, x, -1, seconds > 1e-6 ? seconds : 1e-6);
    }
    for (double size = 0; size < 1e5; size += 500) {
        x[BYTES] = x[COPY] = x[PIXELS] = size;
        const double seconds = predict_seconds(&p, x, -1);
        CHECKF(seconds > last, "%g after %g", seconds, last);
        last = seconds;
    }
    predict_fini(&p);
}

static void what_is_no_time_is_passed_over(void)
{
    seed(7);
    predictor p = fresh(FEATURES, 4);
    double x[FEATURES];
    teach(&p, &usual, 50, 0.1);
    draw(x, 0.3);
    const predictor before = p;
    predict_learn(&p, x, 0, NAN);
    predict_learn(&p, x, 0, -1);
    predict_learn(&p, x, 0, INFINITY);
    CHECK(memcmp(&before, &p, sizeof p) == 0);
    predict_learn(&p, x, 4, 1e-3); /* ids that nobody told of */
    predict_learn(&p, x, INT64_MAX, 1e-3);
    CHECK(isfinite(predict_seconds(&p, x, 4)) && finite_all(&p));
    for (int i = 0; i < 200; i++)
        predict_learn(&p, x, 3, 0);
    CHECK(finite_all(&p) && predict_seconds(&p, x, 3) >= 0);
    predict_fini(&p);
}

/* ---- the past -------------------------------------------------------------------------------- */

enum { SAMPLES = 600, PASSES = 6 };
/* How a sample's time differs from what its features say. */
typedef double hidden(int64_t id);

static double by_id(uint64_t salt, int64_t id)
{
    const psti_rng_key key = {.seed = salt, .id = (uint64_t)id};
    psti_rng own;
    psti_rng_init(&own, &key, 0);
    return psti_rng_unit(&own);
}

static double of_the_sample(int64_t id)
{
    return exp(2 * by_id(9, id) - 1);
}

static double heavy_sample(int64_t id)
{
    return by_id(9, id) < 0.2 ? 20 : 1;
}

static double of_the_moment(int64_t id)
{
    (void)id;
    return exp(2 * unit() - 1);
}

static double heavy_moment(int64_t id)
{
    (void)id;
    return unit() < 0.2 ? 20 : 1;
}

/* Mean absolute error of the last two passes, by mean cost, with and without the past. */
static void errors_of(hidden *factor, double *with, double *without)
{
    predictor p = fresh(FEATURES, SAMPLES), q = fresh(FEATURES, 0);
    double sum = 0, x[FEATURES];
    *with = *without = 0;
    for (int pass = 0; pass < PASSES; pass++)
        for (int64_t id = 0; id < SAMPLES; id++) {
            draw(x, 0.3);
            const double seconds = cost(&usual, x) * factor(id) * (0.95 + 0.1 * unit());
            if (pass >= PASSES - 2) {
                *with += fabs(predict_seconds(&p, x, id) - seconds);
                *without += fabs(predict_seconds(&q, x, id) - seconds);
                sum += seconds;
            }
            predict_learn(&p, x, id, seconds);
            predict_learn(&q, x, id, seconds);
        }
    *with /= sum;
    *without /= sum;
    predict_fini(&p);
    predict_fini(&q);
}

static void the_past_helps_where_time_belongs_to_the_sample(void)
{
    double with, without;
    seed(10);
    errors_of(of_the_sample, &with, &without);
    CHECKF(with < 0.12 && without > 0.35, "%g with, %g without", with, without);
    errors_of(heavy_sample, &with, &without);
    CHECKF(with < 0.25 && without > 1, "%g with, %g without", with, without);
}

static void the_past_does_no_harm_where_it_tells_nothing(void)
{
    double with, without;
    seed(11);
    errors_of(of_the_moment, &with, &without);
    CHECKF(with < 1.02 * without, "%g with, %g without", with, without);
    errors_of(heavy_moment, &with, &without);
    CHECKF(with < 1.02 * without, "%g with, %g without", with, without);
}

/* Of the samples that were run, how many it is asked for after so many passes. */
static int known_after(hidden *factor, int passes)
{
    predictor p = fresh(FEATURES, SAMPLES + 1);
    double x[FEATURES];
    int known = 0;
    for (int64_t i = 0; i < (int64_t)passes * SAMPLES; i++) {
        draw(x, 0.3);
        predict_learn(&p, x, i % SAMPLES, cost(&usual, x) * factor(i % SAMPLES));
    }
    for (int64_t id = 0; id < SAMPLES; id++)
        known += predict_knows(&p, id);
    CHECK(!predict_knows(&p, SAMPLES) && !predict_knows(&p, -1));
    predict_fini(&p);
    return known;
}

static void the_past_is_asked_where_it_was_right(void)
{
    seed(12);
    CHECK(known_after(heavy_sample, 1) == 0);
    CHECK(known_after(heavy_sample, 2) == SAMPLES);
    CHECK(known_after(heavy_moment, 3) == 0);
}

static void the_past_takes_two_bytes_a_sample(void)
{
    psti_mem_stats before, during;
    psti_mem_stats_get(PSTI_MEM_SCHED, &before);
    predictor p = fresh(FEATURES, 1000), q = fresh(FEATURES, 0);
    psti_mem_stats_get(PSTI_MEM_SCHED, &during);
    CHECK(predict_bytes(&p) == 2000 && predict_bytes(&q) == 0 && !q.past);
    CHECKF(during.live_bytes >= before.live_bytes + 2000, "%llu",
           (unsigned long long)during.live_bytes);
    predict_fini(&p);
    predict_fini(&p);
    psti_mem_fail_at(1, false);
    CHECK(predict_init(&p, FEATURES, 1000) == -ENOMEM && !p.past);
    psti_mem_fail_at(0, false);
    psti_mem_stats_get(PSTI_MEM_SCHED, &during);
    CHECK(during.live == before.live);
}

int main(void)
{
    RUN(a_law_is_learned_with_noise);
    RUN(a_changed_law_is_followed);
    RUN(an_exact_law_can_end);
    RUN(outliers_do_not_count);
    RUN(one_outlier_is_no_new_law);
    RUN(small_samples_are_right_too);
    RUN(a_rare_branch_is_learned_when_first_seen);
    RUN(a_long_run_of_the_same_is_survived);
    RUN(predictions_stay_positive_and_in_order);
    RUN(what_is_no_time_is_passed_over);
    RUN(the_past_helps_where_time_belongs_to_the_sample);
    RUN(the_past_does_no_harm_where_it_tells_nothing);
    RUN(the_past_is_asked_where_it_was_right);
    RUN(the_past_takes_two_bytes_a_sample);
    return check_report();
}
