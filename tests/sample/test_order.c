/* SPDX-License-Identifier: Apache-2.0
 * Orders and epochs: every sampler yields what it promises, occurrences count, sources tell orders
 * apart, and wrong settings are named. */
#include <float.h>
#include <stdlib.h>

#include "core/clock.h"
#include "sample/sample_priv.h"
#include "sample_check.h"

static psti_order *make(const psti_order_spec *spec)
{
    psti_order *order = NULL;
    pst_error err = {0};
    const int rc = psti_order_new(spec, &order, &err);
    CHECKF(rc == 0, "%s", err.message);
    return order;
}

/* The whole epoch as a list of ids. Occurrences are checked against a plain count. */
static int64_t *list_epoch(const psti_order *order, uint64_t number, int64_t dataset)
{
    psti_epoch *epoch = NULL;
    CHECK(psti_epoch_open(order, number, &epoch, NULL) == 0);
    const int64_t length = psti_order_length(order);
    int64_t *ids = calloc((size_t)length, sizeof *ids);
    uint32_t *seen = calloc((size_t)dataset, sizeof *seen);
    for (int64_t p = 0; p < length; p++) {
        uint32_t occurrence;
        psti_epoch_at(epoch, p, &ids[p], &occurrence);
        CHECK(ids[p] >= 0 && ids[p] < dataset);
        CHECKF(occurrence == seen[ids[p]], "position %lld: %u, not %u", (long long)p, occurrence,
               seen[ids[p]]);
        seen[ids[p]]++;
    }
    free(seen);
    psti_epoch_close(epoch);
    return ids;
}

static void check_multiset(const int64_t *ids, int64_t length, const int *want, int64_t dataset)
{
    int *seen = calloc((size_t)dataset, sizeof *seen);
    for (int64_t p = 0; p < length; p++)
        seen[ids[p]]++;
    for (int64_t id = 0; id < dataset; id++)
        CHECKF(seen[id] == want[id], "id %lld: %d, not %d", (long long)id, seen[id], want[id]);
    free(seen);
}

static void shuffle_gives_every_sample_k_times_in_a_row(void)
{
    int want[97];
    for (int k = 1; k <= 3; k++) {
        for (int i = 0; i < 97; i++)
            want[i] = k;
        psti_order *order =
            make(&(psti_order_spec){.sampler = PST_SHUFFLE, .dataset = 97, .repeat = k, .seed = 5});
        CHECK(psti_order_length(order) == 97 * k);
        int64_t *ids = list_epoch(order, 2, 97);
        check_multiset(ids, 97 * k, want, 97);
        for (int p = 0; p < 97 * k; p++)
            CHECK(ids[p] == ids[p / k * k]);
        free(ids);
        psti_order_free(order);
    }
}

/* Whatever the length of a run, also where it does not divide the samples. */
static void runs_stay_together_and_are_shuffled(void)
{
    int want[97], first_elsewhere = 0;
    for (int i = 0; i < 97; i++)
        want[i] = 1;
    for (int run = 1; run <= 120; run += 1 + run / 12)
        for (uint64_t epoch = 0; epoch < 5; epoch++) {
            psti_order *order = make(&(psti_order_spec){
                .sampler = PST_SHUFFLE, .dataset = 97, .repeat = 1, .seed = 5, .run = run});
            int64_t *ids = list_epoch(order, epoch, 97);
            psti_epoch *e;
            CHECK(psti_epoch_open(order, epoch, &e, NULL) == 0);
            check_multiset(ids, 97, want, 97);
            for (int64_t p = 0; p < 97; p++) {
                const bool goes_on = run > 1 && p < 96 && (ids[p] + 1) % run && ids[p] < 96;
                CHECK(!goes_on || ids[p + 1] == ids[p] + 1);
                CHECK(psti_epoch_goes_on(e, p) == goes_on);
                CHECK(psti_epoch_find(e, ids[p]) == p);
            }
            first_elsewhere += ids[0] >= run && run < 97;
            psti_epoch_close(e);
            free(ids);
            psti_order_free(order);
        }
    CHECKF(first_elsewhere > 50, "%d", first_elsewhere);
}

static void only_neighbours_go_on(void)
{
    const int64_t ids[] = {3, 4, 6, 7, 8, 9};
    psti_order *order = make(&(psti_order_spec){
        .sampler = PST_SHUFFLE, .dataset = 20, .ids = ids, .ids_count = 6, .repeat = 1, .run = 3});
    int64_t *got = list_epoch(order, 1, 20);
    psti_epoch *e;
    CHECK(psti_epoch_open(order, 1, &e, NULL) == 0);
    for (int64_t p = 0; p < 6; p++)
        CHECK(psti_epoch_goes_on(e, p) == (got[p] == 3 || got[p] == 7 || got[p] == 8));
    psti_epoch_close(e);
    free(got);
    psti_order_free(order);
}

static void epochs_and_seeds_shuffle_differently_and_the_same_again(void)
{
    const psti_order_spec spec = {.sampler = PST_SHUFFLE, .dataset = 50, .repeat = 1, .seed = 5};
    psti_order_spec other = spec;
    other.seed = 6;
    psti_order *order = make(&spec), *again = make(&spec), *seeded = make(&other);
    int64_t *a = list_epoch(order, 0, 50), *b = list_epoch(order, 1, 50);
    int64_t *c = list_epoch(again, 0, 50), *d = list_epoch(seeded, 0, 50);
    CHECK(memcmp(a, b, 50 * sizeof *a) != 0);
    CHECK(memcmp(a, c, 50 * sizeof *a) == 0);
    CHECK(memcmp(a, d, 50 * sizeof *a) != 0);
    free(a);
    free(b);
    free(c);
    free(d);
    psti_order_free(order);
    psti_order_free(again);
    psti_order_free(seeded);
}

static void sequential_goes_through_the_list_as_it_stands(void)
{
    const int64_t ids[] = {9, 2, 5};
    psti_order *order = make(&(psti_order_spec){.sampler = PST_SEQUENTIAL,
                                                .dataset = 10,
                                                .ids = ids,
                                                .ids_count = 3,
                                                .repeat = 2,
                                                .seed = 1});
    int64_t *got = list_epoch(order, 7, 10);
    const int64_t want[] = {9, 9, 2, 2, 5, 5};
    CHECK(memcmp(got, want, sizeof want) == 0);
    free(got);
    psti_order_free(order);
}

static void a_subset_is_shuffled_within_itself(void)
{
    const int64_t ids[] = {30, 3, 12, 7, 29};
    int want[31] = {0};
    for (int i = 0; i < 5; i++)
        want[ids[i]] = 1;
    psti_order *order = make(&(psti_order_spec){
        .sampler = PST_SHUFFLE, .dataset = 31, .ids = ids, .ids_count = 5, .repeat = 1});
    int64_t *got = list_epoch(order, 0, 31);
    check_multiset(got, 5, want, 31);
    free(got);
    psti_order_free(order);
}

static void ids_beyond_32_bits_are_kept_whole(void)
{
    const int64_t ids[] = {5, ((int64_t)1 << 40) + 3};
    psti_order *order = make(&(psti_order_spec){.sampler = PST_SEQUENTIAL,
                                                .dataset = (int64_t)1 << 41,
                                                .ids = ids,
                                                .ids_count = 2,
                                                .repeat = 1});
    psti_epoch *epoch = NULL;
    int64_t id;
    uint32_t occurrence;
    CHECK(psti_epoch_open(order, 0, &epoch, NULL) == 0);
    psti_epoch_at(epoch, 1, &id, &occurrence);
    CHECK(id == ids[1] && occurrence == 0);
    psti_epoch_close(epoch);
    psti_order_free(order);
}

static void a_given_order_may_repeat_and_counts(void)
{
    const int64_t ids[] = {4, 1, 4, 4, 0, 1};
    for (int k = 1; k <= 3; k++) {
        psti_order *order = make(&(psti_order_spec){
            .sampler = PST_GIVEN, .dataset = 5, .ids = ids, .ids_count = 6, .repeat = k});
        int64_t *got = list_epoch(order, 3, 5);
        CHECK(psti_order_length(order) == 6 * k);
        for (int p = 0; p < 6 * k; p++)
            CHECK(got[p] == ids[p / k]);
        free(got);
        psti_order_free(order);
    }
}

static void weights_with_replacement_draw_in_proportion(void)
{
    enum { N = 12, DRAWS = 120000 };
    const double weights[N] = {1, 0, 2, 3, 0, 0.5, 10, 1, 0, 4, 4, 0};
    double expected[N], total = 0;
    int64_t seen[N] = {0};
    for (int i = 0; i < N; i++)
        total += weights[i];
    for (int i = 0; i < N; i++)
        expected[i] = DRAWS * weights[i] / total;
    psti_order *order = make(&(psti_order_spec){.sampler = PST_WEIGHTED,
                                                .dataset = N,
                                                .weights = weights,
                                                .weights_count = N,
                                                .draws = DRAWS,
                                                .repeat = 1,
                                                .seed = 77});
    int64_t *ids = list_epoch(order, 0, N);
    for (int p = 0; p < DRAWS; p++)
        seen[ids[p]]++;
    CHECKF(fabs(chi_excess(seen, expected, N)) < 4.5, "%.1f", chi_excess(seen, expected, N));
    CHECK(seen[1] == 0 && seen[4] == 0 && seen[8] == 0 && seen[11] == 0);
    free(ids);
    psti_order_free(order);
}

/* The guide must not change an answer: compared with a search from the start, at edges and between.
 */
static void a_draw_is_the_first_whose_cumulated_weight_is_above(void)
{
    enum { N = 5000 };
    static double copy[N];
    double *scaled = psti_calloc(PSTI_MEM_SAMPLE, N, sizeof *scaled);
    uint64_t state = 9;
    for (int i = 0; i < N; i++) /* wildly uneven, a third of them zero */
        copy[i] = scaled[i] = noise(&state) % 3 ? ldexp(1, -(int)(noise(&state) % 40)) : 0;
    psti_weights w = {0};
    CHECK(psti_weights_cumulate(&w, scaled, N) == 0);
    CHECK(w.guide_bits > 8);
    for (int k = 0; k < 20000; k++) {
        double u = k % 2 ? ((double)(noise(&state) >> 12) + 0.5) * 0x1p-52
                         : ldexp((double)(noise(&state) >> (64 - w.guide_bits)), -w.guide_bits);
        if (k == 0)
            u = 1 - 0x1p-53;
        const int64_t got = psti_weights_find(&w, u);
        int64_t want = 0;
        while (want < N && w.value[want] <= u * w.total)
            want++;
        CHECKF(got == want, "u = %.17g: %lld, not %lld", u, (long long)got, (long long)want);
        CHECK(copy[got] > 0);
    }
    psti_weights_fini(&w);
}

static void a_draw_on_an_edge_belongs_to_what_begins_there(void)
{
    /* Eight halves with nothing between some of them: edges at multiples of an eighth. */
    static const double halves[] = {0, .5, .5, 0, 0, .5, .5, .5, .5, 0, .5, .5, 0, 0};
    static const int64_t begins[] = {1, 2, 5, 6, 7, 8, 10, 11};
    double *scaled = psti_calloc(PSTI_MEM_SAMPLE, 14, sizeof *scaled);
    memcpy(scaled, halves, sizeof halves);
    psti_weights w = {0};
    CHECK(psti_weights_cumulate(&w, scaled, 14) == 0);
    for (int i = 0; i < 8; i++) {
        CHECKF(psti_weights_find(&w, i / 8.0) == begins[i], "%d: %d", i,
               (int)psti_weights_find(&w, i / 8.0));
        CHECK(psti_weights_find(&w, (i + 1) / 8.0 - 0x1p-53) == begins[i]);
    }
    psti_weights_fini(&w);
}

static void extreme_weights_do_not_overflow(void)
{
    const double weights[] = {DBL_MAX, DBL_MAX, 0, DBL_MAX, 5e-324};
    for (int sampler = PST_WEIGHTED; sampler <= PST_WEIGHTED_ONCE; sampler++) {
        psti_order *order = make(&(psti_order_spec){.sampler = sampler,
                                                    .dataset = 5,
                                                    .weights = weights,
                                                    .weights_count = 5,
                                                    .draws = 4,
                                                    .repeat = 1});
        int64_t first[5] = {0};
        for (uint64_t e = 0; e < 3000; e++) {
            int64_t *ids = list_epoch(order, e, 5);
            first[ids[0]]++;
            CHECK(ids[0] != 2 && ids[3] != 2);
            CHECK(sampler == PST_WEIGHTED || ids[3] == 4);
            free(ids);
        }
        CHECK(first[0] > 850 && first[1] > 850 && first[3] > 850 && first[4] == 0);
        psti_order_free(order);
    }
}

static void without_replacement_no_id_comes_twice_and_zeros_never(void)
{
    enum { N = 400 };
    static double weights[N];
    int64_t positive = 0;
    for (int i = 0; i < N; i++) {
        weights[i] = i % 4 ? i : 0;
        positive += weights[i] > 0;
    }
    int64_t *whole = NULL;
    for (int64_t draws = positive; draws > 0; draws--) {
        psti_order *order = make(&(psti_order_spec){.sampler = PST_WEIGHTED_ONCE,
                                                    .dataset = N,
                                                    .weights = weights,
                                                    .weights_count = N,
                                                    .draws = draws,
                                                    .repeat = 2,
                                                    .seed = 4});
        int64_t *ids = list_epoch(order, 9, N);
        uint8_t seen[N] = {0};
        for (int64_t p = 0; p < draws * 2; p += 2) {
            CHECK(!seen[ids[p]] && weights[ids[p]] > 0 && ids[p + 1] == ids[p]);
            CHECK(!whole || whole[p] == ids[p]); /* fewer draws are the beginning of more */
            seen[ids[p]] = 1;
        }
        if (whole)
            free(ids);
        else
            whole = ids;
        psti_order_free(order);
    }
    free(whole);
}

/* The first draw falls in proportion to the weights; the first of a shorter epoch is the same. */
static void without_replacement_draws_in_proportion(void)
{
    enum { N = 6, EPOCHS = 30000 };
    const double weights[N] = {1, 2, 3, 0, 4, 5};
    const int64_t ids[N] = {5, 4, 3, 2, 1, 0};
    double expected[N];
    int64_t seen[N] = {0};
    psti_order_spec spec = {.sampler = PST_WEIGHTED_ONCE,
                            .dataset = N,
                            .weights = weights,
                            .weights_count = N,
                            .draws = 5,
                            .repeat = 1,
                            .seed = 2};
    psti_order *whole = make(&spec);
    spec.ids = ids;
    spec.ids_count = N;
    spec.draws = 2;
    psti_order *part = make(&spec);
    for (int i = 0; i < N; i++)
        expected[i] = EPOCHS * weights[i] / 15;
    for (uint64_t e = 0; e < EPOCHS; e++) {
        int64_t *a = list_epoch(whole, e, N), *b = list_epoch(part, e, N);
        seen[a[0]]++;
        CHECK(a[0] == b[0] && a[1] == b[1]);
        free(a);
        free(b);
    }
    CHECKF(fabs(chi_excess(seen, expected, N)) < 4.5, "%.1f", chi_excess(seen, expected, N));
    psti_order_free(whole);
    psti_order_free(part);
}

static void the_draws_are_the_ones_they_always_were(void)
{
    const double weights[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int64_t known[2][8] = {{2, 7, 2, 3, 3, 7, 6, 7}, {7, 1, 4, 6, 0, 5, 2, 3}};
    for (int i = 0; i < 2; i++) {
        psti_order *order = make(&(psti_order_spec){.sampler = PST_WEIGHTED + i,
                                                    .dataset = 8,
                                                    .weights = weights,
                                                    .weights_count = 8,
                                                    .repeat = 1,
                                                    .seed = 1234567890123456789u});
        int64_t *ids = list_epoch(order, 90, 8);
        for (int p = 0; p < 8; p++)
            CHECKF(ids[p] == known[i][p], "sampler %d, position %d: %d", PST_WEIGHTED + i, p,
                   (int)ids[p]);
        free(ids);
        psti_order_free(order);
    }
}

static bool same_source(const psti_order_spec *a, const psti_order_spec *b)
{
    psti_order *x = make(a), *y = make(b);
    const psti_id128 i = psti_order_source(x), j = psti_order_source(y);
    psti_order_free(x);
    psti_order_free(y);
    return i.lo == j.lo && i.hi == j.hi;
}

static void sources_differ_exactly_where_orders_do(void)
{
    const int64_t all[] = {0, 1, 2}, turned[] = {0, 2, 1};
    const double w[] = {1, 2, 0.0}, other[] = {1, 2.5, 0}, minus[] = {1, 2, -0.0};
    const psti_order_spec base = {.sampler = PST_SHUFFLE, .dataset = 3, .repeat = 1};
    psti_order_spec b = base;
    b.seed = 9; /* the seed is no part of it */
    CHECK(same_source(&base, &b));
    b.ids = all;
    b.ids_count = 3;
    CHECK(same_source(&base, &b));
    b.ids = turned;
    CHECK(!same_source(&base, &b));
    b.ids_count = 2;
    CHECK(!same_source(&base, &b));
    b = base;
    b.sampler = PST_SEQUENTIAL;
    CHECK(!same_source(&base, &b));
    b = base;
    b.repeat = 2;
    CHECK(!same_source(&base, &b));
    b = base;
    b.run = 1;
    CHECK(same_source(&base, &b));
    b.run = 2;
    CHECK(!same_source(&base, &b));
    psti_order_spec x = {
        .sampler = PST_WEIGHTED, .dataset = 3, .weights = w, .weights_count = 3, .repeat = 1};
    psti_order_spec y = x;
    y.weights = minus;
    CHECK(same_source(&x, &y));
    y.weights = other;
    CHECK(!same_source(&x, &y));
    y = x;
    y.draws = 4;
    CHECK(!same_source(&x, &y));
    y.draws = 3;
    CHECK(same_source(&x, &y));
}

static void refused(const psti_order_spec *spec, const char *first, const char *second)
{
    psti_order *order = NULL;
    pst_error err = {0};
    CHECK(psti_order_new(spec, &order, &err) == -EINVAL);
    CHECK(order == NULL);
    CHECKF(strstr(err.message, first) && strstr(err.message, second),
           "\"%s\" lacks \"%s\" or \"%s\"", err.message, first, second);
    psti_order_free(order);
}

static void wrong_settings_are_refused_with_both_values(void)
{
    const int64_t far[] = {0, 17}, negative[] = {-4}, twice[] = {3, 1, 3};
    const double zeros[4] = {0}, one[4] = {0, 1, 0, 2}, bad[4] = {1, NAN, 1, 1},
                 below[4] = {1, -1, 1, 1}, infinite[4] = {1, 1, INFINITY, 1};
    const psti_order_spec base = {.sampler = PST_SHUFFLE, .dataset = 4, .repeat = 1};
    psti_order_spec s = base;
    s.ids = far;
    s.ids_count = 2;
    refused(&s, "17", "0..3");
    s.ids = negative;
    s.ids_count = 1;
    refused(&s, "-4", "0..3");
    s.ids = twice;
    s.ids_count = 3;
    refused(&s, "sample 3", "more than once");
    s.ids_count = 0;
    refused(&s, "nothing to draw from", "4");
    s = base;
    s.dataset = 0;
    refused(&s, "nothing to draw from", "0");
    s = base;
    s.repeat = 0;
    refused(&s, "repeat", "1..1024");
    s = base;
    s.sampler = 17;
    refused(&s, "17", "0..4");
    s = base;
    s.sampler = PST_WEIGHTED;
    refused(&s, "needs weights", "4");
    s.weights = zeros;
    s.weights_count = 3;
    refused(&s, "3 weights", "4 samples");
    s.weights_count = 4;
    refused(&s, "zero", "4");
    s.weights = bad;
    refused(&s, "sample 1", "nan");
    s.weights = below;
    refused(&s, "sample 1", "-1");
    s.weights = infinite;
    refused(&s, "sample 2", "inf");
    s.weights = one;
    s.sampler = PST_WEIGHTED_ONCE;
    refused(&s, "4 draws", "only 2");
    s.draws = 3;
    refused(&s, "3 draws", "only 2");
    s.draws = (int64_t)1 << 33;
    refused(&s, "8589934592", "4294967295");
    s.draws = -1;
    refused(&s, "-1", "0 or more");
}

typedef struct attempt {
    psti_order_spec spec;
} attempt;

static int open_both(void *user)
{
    const attempt *a = user;
    psti_order *order = NULL;
    psti_epoch *epoch = NULL;
    int rc = psti_order_new(&a->spec, &order, NULL);
    if (rc == 0)
        rc = psti_epoch_open(order, 1, &epoch, NULL);
    psti_epoch_close(epoch);
    psti_order_free(order);
    return rc;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void)
{
    const int64_t ids[] = {7, 3, 5};
    const int64_t twice[] = {7, 3, 7};
    const double weights[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int sampler = PST_SHUFFLE; sampler <= PST_GIVEN; sampler++) {
        attempt a = {{.sampler = sampler,
                      .dataset = 9,
                      .ids = sampler == PST_GIVEN ? twice : ids,
                      .ids_count = 3,
                      .weights = weights,
                      .weights_count = 9,
                      .repeat = 2}};
        const int count = fail_each_allocation(open_both, &a);
        CHECKF(count >= 4, "sampler %d: %d", sampler, count);
    }
}

/* Prints, does not judge: machines differ. */
static void tables_of_a_large_dataset_are_timed(void)
{
    enum { N = 1300000 };
    double *weights = malloc(N * sizeof *weights);
    uint64_t state = 1;
    for (int i = 0; i < N; i++)
        weights[i] = (double)(noise(&state) >> 40) + 1;
    for (int sampler = PST_WEIGHTED; sampler <= PST_WEIGHTED_ONCE; sampler++) {
        psti_epoch *epoch = NULL;
        const uint64_t start = psti_now_ns();
        psti_order *order = make(&(psti_order_spec){
            .sampler = sampler, .dataset = N, .weights = weights, .weights_count = N, .repeat = 1});
        const uint64_t made = psti_now_ns();
        CHECK(psti_epoch_open(order, 0, &epoch, NULL) == 0);
        printf("     sampler %d: order %.0f ms, table of %d positions %.0f ms\n", sampler,
               (double)(made - start) * 1e-6, N, (double)(psti_now_ns() - made) * 1e-6);
        psti_epoch_close(epoch);
        psti_order_free(order);
    }
    free(weights);
}

int main(void)
{
    RUN(shuffle_gives_every_sample_k_times_in_a_row);
    RUN(epochs_and_seeds_shuffle_differently_and_the_same_again);
    RUN(sequential_goes_through_the_list_as_it_stands);
    RUN(a_subset_is_shuffled_within_itself);
    RUN(ids_beyond_32_bits_are_kept_whole);
    RUN(runs_stay_together_and_are_shuffled);
    RUN(only_neighbours_go_on);
    RUN(a_given_order_may_repeat_and_counts);
    RUN(weights_with_replacement_draw_in_proportion);
    RUN(a_draw_is_the_first_whose_cumulated_weight_is_above);
    RUN(a_draw_on_an_edge_belongs_to_what_begins_there);
    RUN(extreme_weights_do_not_overflow);
    RUN(without_replacement_no_id_comes_twice_and_zeros_never);
    RUN(without_replacement_draws_in_proportion);
    RUN(the_draws_are_the_ones_they_always_were);
    RUN(sources_differ_exactly_where_orders_do);
    RUN(wrong_settings_are_refused_with_both_values);
    RUN(every_failed_allocation_is_reported_and_nothing_leaks);
    RUN(tables_of_a_large_dataset_are_timed);
    return check_report();
}
