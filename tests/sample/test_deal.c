/* SPDX-License-Identifier: Apache-2.0
 * The deal: over worlds, batches, ends and lengths the ranks together get exactly what is left;
 * equal steps where promised; a resume goes on with the same positions, whatever the world. */
#include <stdlib.h>

#include "sample/sample.h"
#include "sample_check.h"

enum { MOST = 6000 };

static const int worlds[] = {1, 2, 3, 8}, batches[] = {1, 2, 5, 32};
static const int64_t lengths[] = {0,  1,  2,  3,  5,  7,   8,   31,  32,
                                  33, 64, 95, 96, 97, 255, 256, 257, 1000};
#define EACH(i, list) for (size_t i = 0; i < sizeof list / sizeof *list; i++)

static psti_deal *make(const psti_deal_spec *spec)
{
    psti_deal *deal = NULL;
    pst_error err = {0};
    CHECKF(psti_deal_new(spec, &deal, &err) == 0, "%s", err.message);
    return deal;
}

/* What one deal of all ranks gave. */
typedef struct tally {
    int valid[MOST];    /* how often each position was dealt as real */
    int64_t real, pads; /* in all */
    int64_t least_steps, most_steps;
} tally;

static bool is_left(const psti_deal_spec *spec, int64_t position)
{
    if (spec->used)
        return !(spec->used[position / 8] >> (position % 8) & 1);
    return position >= spec->prefix;
}

static void count_rank(const psti_deal_spec *spec, tally *t)
{
    psti_deal *deal = make(spec);
    const int64_t steps = psti_deal_steps(deal);
    int64_t index = 0;
    for (int64_t step = 0; step < steps; step++) {
        const int slots = psti_deal_slots(deal, step);
        CHECK(slots >= 1 && slots <= spec->batch);
        CHECK(slots == spec->batch || (step == steps - 1 && spec->ends == PST_ENDS_SHORT));
        for (int slot = 0; slot < slots; slot++, index++) {
            bool valid;
            const int64_t position = psti_deal_position(deal, index, &valid);
            CHECK(position >= 0 && position < spec->length);
            CHECK(is_left(spec, position) || (!valid && !spec->used));
            CHECK(valid == (index < psti_deal_share(deal)));
            t->valid[position] += valid;
            t->real += valid;
            t->pads += !valid;
        }
    }
    CHECK(index >= psti_deal_share(deal));
    if (steps < t->least_steps)
        t->least_steps = steps;
    if (steps > t->most_steps)
        t->most_steps = steps;
    psti_deal_free(deal);
}

static void check_deal(psti_deal_spec spec)
{
    static tally t;
    memset(&t, 0, sizeof t);
    t.least_steps = INT64_MAX;
    int64_t left = 0;
    for (int64_t p = 0; p < spec.length; p++)
        left += is_left(&spec, p);
    for (spec.rank = 0; spec.rank < spec.world; spec.rank++)
        count_rank(&spec, &t);
    const int64_t round = (int64_t)spec.world * spec.batch;
    int64_t dealt = 0;
    for (int64_t p = 0; p < spec.length; p++) {
        CHECK(t.valid[p] <= is_left(&spec, p));
        dealt += t.valid[p];
    }
    CHECK(dealt == t.real);
    switch (spec.ends) {
    case PST_ENDS_DROP:
        CHECK(left - dealt < round && left - dealt == left % round && t.pads == 0);
        CHECK(t.least_steps == t.most_steps && t.most_steps == left / round);
        break;
    case PST_ENDS_PAD:
        CHECK(dealt == left && t.pads < round && (dealt + t.pads) % round == 0);
        CHECK(t.least_steps == t.most_steps);
        break;
    default:
        CHECK(dealt == left && t.pads == 0 && t.most_steps - t.least_steps <= 1);
    }
}

static void ranks_together_get_exactly_what_is_left(void)
{
    EACH(w, worlds)
    EACH(b, batches)
    EACH(l, lengths)
    for (int ends = PST_ENDS_DROP; ends <= PST_ENDS_SHORT; ends++)
        for (int64_t prefix = 0; prefix <= lengths[l]; prefix += 1 + lengths[l] / 5)
            check_deal((psti_deal_spec){.length = lengths[l],
                                        .batch = batches[b],
                                        .world = worlds[w],
                                        .ends = ends,
                                        .prefix = prefix});
}

static void fill_bitmap(uint8_t *used, int64_t length, unsigned share, uint64_t *state)
{
    memset(used, 0, (size_t)(length + 7) / 8);
    for (int64_t p = 0; p < length; p++)
        if (noise(state) % 256 < share)
            used[p / 8] |= (uint8_t)(1u << (p % 8));
}

static void the_same_holds_for_a_bitmap(void)
{
    const unsigned shares[] = {0, 20, 128, 250, 256};
    uint8_t used[MOST / 8 + 1];
    uint64_t state = 6;
    EACH(w, worlds)
    EACH(b, batches)
    EACH(l, lengths)
    EACH(s, shares)
    {
        fill_bitmap(used, lengths[l], shares[s], &state);
        for (int ends = PST_ENDS_DROP; ends <= PST_ENDS_SHORT; ends++)
            check_deal((psti_deal_spec){.length = lengths[l],
                                        .batch = batches[b],
                                        .world = worlds[w],
                                        .ends = ends,
                                        .used = used});
    }
}

/* Long enough for several directory blocks, with wholly used blocks between. */
static void a_long_bitmap_is_counted_right(void)
{
    enum { LENGTH = 40961 };
    static uint8_t used[LENGTH / 8 + 1];
    uint64_t state = 2;
    fill_bitmap(used, LENGTH, 100, &state);
    memset(used + 512, 0xff, 1100);
    memset(used + 3000, 0xff, 1024);
    used[LENGTH / 8] |= 0xfe; /* bits past the end mean nothing */
    for (int rank = 0; rank < 3; rank++) {
        psti_deal *deal = make(&(psti_deal_spec){.length = LENGTH,
                                                 .batch = 7,
                                                 .rank = rank,
                                                 .world = 3,
                                                 .ends = PST_ENDS_SHORT,
                                                 .used = used});
        int64_t j = 0, index = 0;
        for (int64_t p = 0; p < LENGTH; p++) {
            if (used[p / 8] >> (p % 8) & 1)
                continue;
            if (j++ / 7 % 3 != rank)
                continue;
            bool valid;
            CHECK(psti_deal_position(deal, index++, &valid) == p && valid);
        }
        CHECK(psti_deal_share(deal) == index);
        psti_deal_free(deal);
    }
}

/* The rule itself: j-th left to rank (j / batch) % world, step j / (batch * world), slot j % batch.
 */
static void positions_are_dealt_in_turn(void)
{
    const int batch = 4, world = 3;
    const int64_t prefix = 5;
    for (int rank = 0; rank < world; rank++) {
        psti_deal *deal = make(&(psti_deal_spec){.length = 90,
                                                 .batch = batch,
                                                 .rank = rank,
                                                 .world = world,
                                                 .ends = PST_ENDS_PAD,
                                                 .prefix = prefix});
        for (int64_t j = 0; j < 90 - prefix; j++) {
            if (j / batch % world != rank)
                continue;
            bool valid;
            const int64_t index = j / (batch * world) * batch + j % batch;
            CHECK(psti_deal_position(deal, index, &valid) == prefix + j && valid);
        }
        psti_deal_free(deal);
    }
}

static void padding_begins_the_epoch_again(void)
{
    bool valid;
    /* 7 left at 3..9, two ranks of 4: rank 1 lacks one; it gets the epoch's first. */
    psti_deal *deal = make(&(psti_deal_spec){
        .length = 10, .batch = 4, .rank = 1, .world = 2, .ends = PST_ENDS_PAD, .prefix = 3});
    CHECK(psti_deal_steps(deal) == 1 && psti_deal_share(deal) == 3);
    CHECK(psti_deal_position(deal, 2, &valid) == 9 && valid);
    CHECK(psti_deal_position(deal, 3, &valid) == 0 && !valid);
    psti_deal_free(deal);
    /* 2 left, 3 ranks of 4: padding goes round several times. */
    deal = make(
        &(psti_deal_spec){.length = 2, .batch = 4, .rank = 2, .world = 3, .ends = PST_ENDS_PAD});
    CHECK(psti_deal_steps(deal) == 1 && psti_deal_share(deal) == 0);
    for (int64_t i = 0; i < 4; i++)
        CHECK(psti_deal_position(deal, i, &valid) == i % 2 && !valid);
    psti_deal_free(deal);
}

/* Whole steps of all ranks are consumed: what comes after them, padding included, does not change.
 */
static void padding_is_the_same_after_a_resume(void)
{
    enum { LENGTH = 61, BATCH = 4, WORLD = 3 };
    for (int rank = 0; rank < WORLD; rank++) {
        psti_deal_spec spec = {
            .length = LENGTH, .batch = BATCH, .rank = rank, .world = WORLD, .ends = PST_ENDS_PAD};
        psti_deal *whole = make(&spec);
        for (int64_t done = 0; done < psti_deal_steps(whole); done++) {
            spec.prefix = done * BATCH * WORLD;
            psti_deal *rest = make(&spec);
            CHECK(psti_deal_steps(rest) == psti_deal_steps(whole) - done);
            for (int64_t i = 0; i < psti_deal_steps(rest) * BATCH; i++) {
                bool valid, then;
                const int64_t position = psti_deal_position(whole, done * BATCH + i, &then);
                CHECK(psti_deal_position(rest, i, &valid) == position && valid == then);
            }
            psti_deal_free(rest);
        }
        psti_deal_free(whole);
    }
}

static void what_lies_past_the_share_is_never_valid(void)
{
    bool valid;
    for (int ends = PST_ENDS_DROP; ends <= PST_ENDS_SHORT; ends++) {
        psti_deal *deal =
            make(&(psti_deal_spec){.length = 11, .batch = 2, .rank = 0, .world = 2, .ends = ends});
        for (int64_t i = psti_deal_share(deal); i < 40; i++) {
            const int64_t position = psti_deal_position(deal, i, &valid);
            CHECK(position >= 0 && position < 11 && !valid);
        }
        psti_deal_free(deal);
    }
}

static void the_default_end_is_short_for_one_rank_and_pad_for_several(void)
{
    psti_deal *one = make(&(psti_deal_spec){.length = 5, .batch = 4, .world = 1});
    CHECK(psti_deal_steps(one) == 2 && psti_deal_slots(one, 1) == 1);
    psti_deal *two = make(&(psti_deal_spec){.length = 5, .batch = 4, .rank = 1, .world = 2});
    CHECK(psti_deal_steps(two) == 1 && psti_deal_slots(two, 0) == 4 && psti_deal_share(two) == 1);
    psti_deal_free(one);
    psti_deal_free(two);
}

/* The global sequence of a world: step by step, rank by rank, real positions only. */
static int64_t sequence(psti_deal_spec spec, int64_t first_steps, int64_t *to)
{
    psti_deal *deals[8];
    int64_t count = 0, steps = 0;
    for (spec.rank = 0; spec.rank < spec.world; spec.rank++) {
        deals[spec.rank] = make(&spec);
        if (psti_deal_steps(deals[spec.rank]) > steps)
            steps = psti_deal_steps(deals[spec.rank]);
    }
    for (int64_t step = 0; step < steps && step < first_steps; step++)
        for (int rank = 0; rank < spec.world; rank++)
            for (int slot = 0; slot < spec.batch; slot++) {
                bool valid;
                const int64_t p = psti_deal_position(deals[rank], step * spec.batch + slot, &valid);
                if (valid)
                    to[count++] = p;
            }
    for (int rank = 0; rank < spec.world; rank++)
        psti_deal_free(deals[rank]);
    return count;
}

static void a_resume_at_any_step_in_any_world_goes_on_in_order(void)
{
    enum { LENGTH = 203 };
    int64_t got[2 * LENGTH];
    EACH(w, worlds)
    EACH(v, worlds)
    for (int64_t k = 0; k < 40; k++) {
        psti_deal_spec spec = {
            .length = LENGTH, .batch = 5, .world = worlds[w], .ends = PST_ENDS_PAD};
        int64_t count = sequence(spec, k, got);
        spec.prefix = count;
        spec.world = worlds[v];
        spec.batch = 3;
        count += sequence(spec, INT64_MAX, got + count);
        CHECK(count == LENGTH);
        for (int64_t p = 0; p < count; p++)
            CHECKF(got[p] == p, "world %d then %d, k = %d: place %d has %d", worlds[w], worlds[v],
                   (int)k, (int)p, (int)got[p]);
    }
}

static void a_resume_from_a_bitmap_gives_the_rest_once(void)
{
    enum { LENGTH = 203 };
    uint64_t state = 17;
    for (int k = 0; k < 60; k++) {
        uint8_t used[LENGTH / 8 + 1];
        int seen[LENGTH] = {0};
        int64_t got[LENGTH];
        fill_bitmap(used, LENGTH, (unsigned)(k * 4), &state);
        const psti_deal_spec spec = {.length = LENGTH,
                                     .batch = 1 + k % 7,
                                     .world = worlds[k % 4],
                                     .ends = PST_ENDS_PAD,
                                     .used = used};
        const int64_t count = sequence(spec, INT64_MAX, got);
        for (int64_t i = 0; i < count; i++) {
            seen[got[i]]++;
            CHECK(i == 0 || got[i] > got[i - 1]);
        }
        for (int64_t p = 0; p < LENGTH; p++)
            CHECK(seen[p] + (used[p / 8] >> (p % 8) & 1) == 1);
    }
}

static void refused(psti_deal_spec spec, const char *first, const char *second)
{
    psti_deal *deal = NULL;
    pst_error err = {0};
    CHECK(psti_deal_new(&spec, &deal, &err) == -EINVAL && !deal);
    CHECKF(strstr(err.message, first) && strstr(err.message, second), "%s", err.message);
}

static void wrong_settings_are_refused_with_both_values(void)
{
    const psti_deal_spec good = {.length = 10, .batch = 2, .world = 2};
    psti_deal_spec s = good;
    s.batch = 0;
    refused(s, "0 samples", "1..1048576");
    s = good;
    s.world = 65537;
    refused(s, "65537", "1..65536");
    s = good;
    s.rank = 2;
    refused(s, "rank 2", "0..1");
    s = good;
    s.prefix = 11;
    refused(s, "11", "10");
    s = good;
    s.ends = 4;
    refused(s, "4", "0..3");
    s = good;
    s.length = -1;
    refused(s, "-1", "positions");
}

static int deal_once(void *user)
{
    psti_deal *deal = NULL;
    const int rc = psti_deal_new(user, &deal, NULL);
    psti_deal_free(deal);
    return rc;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void)
{
    uint8_t used[2] = {0};
    psti_deal_spec spec = {.length = 10, .batch = 2, .world = 2, .used = used};
    CHECK(fail_each_allocation(deal_once, &spec) == 3);
    spec.used = NULL;
    CHECK(fail_each_allocation(deal_once, &spec) == 1);
}

int main(void)
{
    RUN(ranks_together_get_exactly_what_is_left);
    RUN(the_same_holds_for_a_bitmap);
    RUN(a_long_bitmap_is_counted_right);
    RUN(positions_are_dealt_in_turn);
    RUN(padding_begins_the_epoch_again);
    RUN(padding_is_the_same_after_a_resume);
    RUN(what_lies_past_the_share_is_never_valid);
    RUN(the_default_end_is_short_for_one_rank_and_pad_for_several);
    RUN(a_resume_at_any_step_in_any_world_goes_on_in_order);
    RUN(a_resume_from_a_bitmap_gives_the_rest_once);
    RUN(wrong_settings_are_refused_with_both_values);
    RUN(every_failed_allocation_is_reported_and_nothing_leaks);
    return check_report();
}
