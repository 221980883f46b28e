/* SPDX-License-Identifier: Apache-2.0
 * Sharing keeps every job's order random, and saves work while it does. The same tests must fail on
 * choices that are known to be biased: the substitute of lowest id, and a window as wide as the
 * dataset. A small version of what bench/share_sim.c measures; seeds are fixed.
 */
#include "order_stats.h"
#include "sample/share.h"
#include "sample_check.h"

enum { N = 1000, EPOCHS = 50, JOBS = 4, FLIGHT = 16 };

typedef struct group {
    psti_share *share;
    uint64_t random;
    int member[JOBS], epoch[JOBS];
    uint32_t delivered[JOBS], room;
    psti_share_pick flight[FLIGHT];
    uint32_t in_flight;
    uint32_t *place[JOBS];
} group;

static void end_preparation(group *g, uint32_t at)
{
    const psti_share_pick pick = g->flight[at];
    g->flight[at] = g->flight[--g->in_flight];
    psti_share_counts counts;
    psti_share_counts_get(g->share, &counts);
    uint32_t entry;
    double value, worth = psti_share_wanted(g->share, &pick);
    bool room = counts.resident < g->room;
    if (worth > 0 && !room && psti_share_victim(g->share, NULL, &entry, &value) && value < worth) {
        psti_share_remove(g->share, entry);
        room = true;
    }
    void *old;
    if (worth > 0 && room)
        CHECK(psti_share_insert(g->share, &pick, NULL, &entry, &old) == 0);
    else
        psti_share_finish(g->share, &pick);
}

static void one_delivery(group *g, int job)
{
    psti_share_pick pick;
    psti_share_next(g->share, g->member[job], &pick);
    while (pick.kind == PSTI_SHARE_WAIT || pick.kind == PSTI_SHARE_NONE) {
        if (pick.kind == PSTI_SHARE_WAIT)
            end_preparation(g, 0);
        else {
            psti_share_epoch(g->share, g->member[job], NULL);
            g->epoch[job]++;
            g->delivered[job] = 0;
        }
        psti_share_next(g->share, g->member[job], &pick);
    }
    if (g->epoch[job] < EPOCHS)
        g->place[job][(size_t)g->epoch[job] * N + pick.id] = g->delivered[job];
    g->delivered[job]++;
    if (pick.kind != PSTI_SHARE_PREPARE)
        return;
    if (g->in_flight == FLIGHT)
        end_preparation(g, (uint32_t)(noise(&g->random) % FLIGHT));
    g->flight[g->in_flight++] = pick;
}

typedef struct verdict {
    double ratio; /* preparations per delivery */
    order_verdict order;
} verdict;

/* Four jobs that deliver in proportion to `rate`, until the slowest has had half its epochs. */
static verdict run(const int rate[JOBS], double cached, const psti_share_spec *settings)
{
    group g = {.random = 17, .room = (uint32_t)(cached * N)};
    psti_share_spec spec = *settings;
    spec.samples = N;
    spec.room = g.room;
    spec.key[0] = 5;
    int total = 0;
    CHECK(psti_share_new(&spec, &g.share, NULL) == 0);
    for (int j = 0; j < JOBS; j++) {
        g.place[j] = calloc((size_t)EPOCHS * N, sizeof **g.place);
        CHECK(psti_share_join(g.share, false, &g.member[j], NULL) == 0);
        g.epoch[j] = -1;
        total += rate[j];
    }
    for (bool more = true; more;) {
        int draw = (int)(noise(&g.random) % (uint64_t)total), job = 0;
        while (draw >= rate[job])
            draw -= rate[job++];
        one_delivery(&g, job);
        more = false;
        for (int j = 0; j < JOBS; j++)
            more |= g.epoch[j] < EPOCHS / 2;
    }
    psti_share_counts counts;
    psti_share_counts_get(g.share, &counts);
    verdict v = {.ratio = (double)counts.preparations / (double)counts.deliveries};
    order_begin(&v.order);
    for (int j = 0; j < JOBS; j++) {
        order_add(&v.order, g.place[j], N, g.epoch[j] < EPOCHS ? g.epoch[j] : EPOCHS);
        free(g.place[j]);
    }
    psti_share_free(g.share);
    return v;
}

static void order_must_be(bool random, const verdict *v)
{
    CHECKF(order_is_random(&v->order) == random, "correlation %.3f, p %.4f", order_worst(&v->order),
           v->order.holm_p);
}

static const int unequal[JOBS] = {2, 3, 4, 5}, equal[JOBS] = {1, 1, 1, 1};

static void the_order_of_unequal_jobs_stays_random_and_work_is_saved(void)
{
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    const verdict v = run(unequal, 0.2, &spec);
    order_must_be(true, &v);
    CHECKF(v.ratio < 0.55, "%.3f preparations per delivery", v.ratio);
}

static void the_order_of_equal_jobs_stays_random_at_hardly_more_than_the_bound(void)
{
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    const verdict v = run(equal, 0.2, &spec);
    order_must_be(true, &v);
    CHECKF(v.ratio < 0.33, "%.3f preparations per delivery", v.ratio);
}

static void a_small_cache_saves_less_and_harms_as_little(void)
{
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    const verdict v = run(unequal, 0.05, &spec);
    order_must_be(true, &v);
    CHECKF(v.ratio < 0.75, "%.3f preparations per delivery", v.ratio);
}

/* The three that follow show that the tests above can fail. */
static void the_substitute_of_lowest_id_is_found_out(void)
{
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    spec.flags = PSTI_SHARE_LOWEST_ID;
    const verdict v = run(unequal, 0.2, &spec);
    order_must_be(false, &v);
}

static void a_window_over_everything_is_found_out(void)
{
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    spec.window = spec.window_max = 1;
    const verdict v = run(unequal, 0.2, &spec);
    order_must_be(false, &v);
}

static void without_its_brake_the_window_grows_until_it_is_found_out(void)
{
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    spec.window_max = 1;
    spec.tolerance = 1;
    const verdict v = run(unequal, 0.2, &spec);
    order_must_be(false, &v);
    spec.tolerance = 0.03;
    const verdict w = run(unequal, 0.2, &spec);
    order_must_be(true, &w);
}

int main(void)
{
    RUN(the_order_of_unequal_jobs_stays_random_and_work_is_saved);
    RUN(the_order_of_equal_jobs_stays_random_at_hardly_more_than_the_bound);
    RUN(a_small_cache_saves_less_and_harms_as_little);
    RUN(the_substitute_of_lowest_id_is_found_out);
    RUN(a_window_over_everything_is_found_out);
    RUN(without_its_brake_the_window_grows_until_it_is_found_out);
    return check_report();
}
