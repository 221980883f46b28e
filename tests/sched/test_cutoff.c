/* SPDX-License-Identifier: Apache-2.0
 * What is slow: where the cut-off lies for given costs, when it begins to count, and that it
 * follows what samples take. Costs are made up, no clock is involved. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "sched/sched_priv.h"

static uint64_t rng = 1;

static double unit(void)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (double)(rng >> 11) * 0x1p-53;
}

static double normal(void)
{
    return sqrt(-2 * log(1 - unit())) * cos(2 * 3.14159265358979 * unit());
}

static const double ms = 1e6;

/* Light ones with a jitter of five percent, and exactly that share of heavy ones. */
static double two_kinds(int index, double light_ms, double heavy_ms, double share)
{
    const bool heavy = floor((index + 1) * share) > floor(index * share);
    return (heavy ? heavy_ms : light_ms) * ms * (0.95 + 0.1 * unit());
}

static uint64_t cut_of_two(double heavy_ms, double share)
{
    psti_hist costs = {0};
    for (int i = 0; i < 4000; i++)
        psti_hist_add(&costs, (uint64_t)two_kinds(i, 50, heavy_ms, share));
    return lane_cut_off(&costs);
}

/* ---- where it lies --------------------------------------------------------------------------- */

static void uniform_work_has_no_slow_lane(void)
{
    CHECK(cut_of_two(50, 0) == UINT64_MAX);
    psti_hist costs = {0};
    for (int i = 0; i < 1000; i++)
        psti_hist_add(&costs, 1000000);
    CHECK(lane_cut_off(&costs) == UINT64_MAX);
}

/* Above every light one, far below the heavy ones: one and a half medians, within what the
 * histogram's buckets blur. */
static void two_kinds_are_told_apart(void)
{
    static const double shares[] = {0.05, 0.2, 0.25, 0.4, 0.49};
    static const double heavies[] = {300, 1000, 3000};
    for (int s = 0; s < 5; s++)
        for (int h = 0; h < 3; h++) {
            const double cut = (double)cut_of_two(heavies[h], shares[s]) / ms;
            CHECKF(cut > 1.06 * 52.5 && cut < 0.94 * 0.95 * heavies[h],
                   "%.0f %% of %.0f ms: %.1f ms", 100 * shares[s], heavies[h], cut);
            CHECKF(shares[s] != 0.2 || fabs(cut / 75 - 1) < 0.08, "%.1f ms", cut);
        }
}

static void most_being_heavy_is_no_slow_lane(void)
{
    CHECK(cut_of_two(1000, 0.9) == UINT64_MAX);
    CHECK(cut_of_two(1000, 1) == UINT64_MAX);
}

static double share_above(double sigma, uint64_t *cut)
{
    static double cost[4000];
    psti_hist costs = {0};
    int above = 0;
    for (int i = 0; i < 4000; i++) {
        cost[i] = 10 * ms * exp(sigma * normal());
        psti_hist_add(&costs, (uint64_t)cost[i]);
    }
    *cut = lane_cut_off(&costs);
    for (int i = 0; i < 4000; i++)
        above += cost[i] > (double)*cut;
    return above / 4000.0;
}

/* Costs without two kinds: a part of the samples is slow, and it is the dear part. */
static void a_long_tail_is_cut_where_it_begins(void)
{
    for (double sigma = 0.3; sigma < 1.6; sigma += 0.1) {
        uint64_t cut;
        const double above = share_above(sigma, &cut);
        CHECKF(cut >= 0.94 * 15 * ms, "sigma %.1f: %.1f ms", sigma, (double)cut / ms);
        if (fabs(sigma - 0.4) < 0.01) /* little work lies above P75: it is P90, 16.7 ms */
            CHECKF(cut > 15.4 * ms && cut < 17.5 * ms, "%.1f ms", (double)cut / ms);
        CHECKF(above > 0.02 && above < 0.45, "sigma %.1f: %.2f are slow", sigma, above);
    }
}

/* ---- when it counts, and that it follows ----------------------------------------------------- */

static uint64_t learn(psti_feed *feed, int samples, double light_ms, double heavy_ms, double share)
{
    for (int i = 0; i < samples; i++) {
        const task t = {.took_ns = (uint64_t)two_kinds(i, light_ms, heavy_ms, share)};
        lane_learn_locked(feed, &t);
    }
    return atomic_load(&feed->lanes.cutoff_ns);
}

static psti_feed *new_feed(void)
{
    psti_feed *feed = calloc(1, sizeof *feed);
    feed->lanes.on = true;
    atomic_init(&feed->lanes.cutoff_ns, UINT64_MAX);
    return feed;
}

static void it_counts_from_the_64th_sample(void)
{
    psti_feed *feed = new_feed();
    CHECK(learn(feed, 15, 50, 1000, 0.2) == UINT64_MAX); /* whatever they are */
    uint64_t cut = learn(feed, 48, 50, 1000, 0.2);       /* only what is quite unusual */
    CHECKF(fabs((double)cut / ms / 200 - 1) < 0.08, "%.1f ms", (double)cut / ms);
    cut = learn(feed, 1, 50, 1000, 0.2);
    CHECKF(fabs((double)cut / ms / 75 - 1) < 0.08, "%.1f ms", (double)cut / ms);
    feed->lanes.on = false;
    CHECK(learn(feed, 1000, 500, 10000, 0.2) == cut);
    free(feed);
}

static void it_follows_what_samples_take(void)
{
    psti_feed *feed = new_feed();
    double cut = (double)learn(feed, 20000, 50, 1000, 0.2) / ms;
    CHECKF(fabs(cut / 75 - 1) < 0.08, "%.1f ms", cut);
    cut = (double)learn(feed, 8000, 500, 10000, 0.2) / ms; /* ten times as slow */
    CHECKF(fabs(cut / 750 - 1) < 0.08, "%.1f ms", cut);
    cut = (double)learn(feed, 8000, 5, 100, 0.2) / ms; /* a hundred times as fast */
    CHECKF(fabs(cut / 7.5 - 1) < 0.08, "%.1f ms", cut);
    cut = (double)learn(feed, 60000, 5, 5, 0) / ms; /* no slow ones any more */
    CHECKF(fabs(cut / 20 - 1) < 0.08, "%.1f ms", cut);
    free(feed);
}

/* What a sample has left once it is late is learned by the stage that it was late in. */
static void what_is_left_is_learned(void)
{
    psti_feed *feed = new_feed();
    learn(feed, 200, 50, 1000, 0.2);
    for (int i = 0; i < 400; i++) {
        const task t = {
            .took_ns = (uint64_t)(1000 * ms), .late_ns = (uint64_t)(100 * ms), .late_stage = 3};
        lane_learn_locked(feed, &t);
    }
    CHECKF(fabs(feed->lanes.left_s[3] - 0.9) < 0.01, "%.3f s", feed->lanes.left_s[3]);
    CHECK(feed->lanes.left_s[2] == 0);
    CHECKF(fabs(feed->lanes.fast_s - 0.1) < 0.05, "%.3f s", feed->lanes.fast_s);
    free(feed);
}

int main(void)
{
    RUN(uniform_work_has_no_slow_lane);
    RUN(two_kinds_are_told_apart);
    RUN(most_being_heavy_is_no_slow_lane);
    RUN(a_long_tail_is_cut_where_it_begins);
    RUN(it_counts_from_the_64th_sample);
    RUN(it_follows_what_samples_take);
    RUN(what_is_left_is_learned);
    return check_report();
}
