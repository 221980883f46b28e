/* SPDX-License-Identifier: Apache-2.0
 * The rules of sharing, each by itself: what is waited for, what is given up, whose order is
 * followed, what an entry is worth, who may sit in a group.
 */
#include <stdlib.h>

#include "sample/share.h"
#include "sample_check.h"

static psti_share *group_of(uint64_t samples, int members, uint64_t room)
{
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    spec.samples = samples;
    spec.room = room;
    psti_share *share = NULL;
    CHECK(psti_share_new(&spec, &share, NULL) == 0);
    for (int i = 0; i < members; i++) {
        int member;
        CHECK(psti_share_join(share, false, &member, NULL) == 0 && member == i);
        psti_share_epoch(share, member, NULL);
    }
    return share;
}

static psti_share_pick next(psti_share *share, int member)
{
    psti_share_pick pick;
    psti_share_next(share, member, &pick);
    return pick;
}

static uint32_t insert_pick(psti_share *share, const psti_share_pick *pick)
{
    uint32_t entry = UINT32_MAX;
    void *old;
    CHECK(psti_share_insert(share, pick, NULL, &entry, &old) == 0);
    return entry;
}

static void alone_nothing_is_worth_keeping(void)
{
    psti_share *share = group_of(100, 1, 50);
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int i = 0; i < 100; i++) {
            const psti_share_pick pick = next(share, 0);
            CHECK(pick.kind == PSTI_SHARE_PREPARE && pick.number == (uint64_t)(epoch * 100 + i));
            CHECK(psti_share_wanted(share, &pick) == 0);
            psti_share_finish(share, &pick);
        }
        CHECK(next(share, 0).kind == PSTI_SHARE_NONE);
        psti_share_epoch(share, 0, NULL);
    }
    psti_share_free(share);
}

static void what_another_prepares_is_waited_for_until_it_is_there(void)
{
    psti_share *share = group_of(1, 2, 1);
    const psti_share_pick made = next(share, 0);
    CHECK(made.kind == PSTI_SHARE_PREPARE);
    CHECK(next(share, 1).kind == PSTI_SHARE_WAIT);
    const uint32_t entry = insert_pick(share, &made);
    const psti_share_pick got = next(share, 1);
    CHECK(got.kind == PSTI_SHARE_HIT && got.entry == entry);
    CHECK(next(share, 1).kind == PSTI_SHARE_NONE);
    psti_share_free(share);
}

static void what_another_gives_up_is_prepared(void)
{
    for (int end = 0; end < 3; end++) {
        psti_share *share = group_of(1, 2, 1);
        const psti_share_pick made = next(share, 0);
        CHECK(next(share, 1).kind == PSTI_SHARE_WAIT);
        if (end == 0)
            psti_share_cancel(share, &made);
        else if (end == 1)
            psti_share_finish(share, &made);
        else
            psti_share_remove(share, insert_pick(share, &made));
        CHECK(next(share, 1).kind == PSTI_SHARE_PREPARE);
        CHECK(next(share, 0).kind == PSTI_SHARE_NONE);
        psti_share_free(share);
    }
}

/* Its own work of the epoch before comes in late: it has had it. */
static void a_job_never_gets_what_it_prepared_itself(void)
{
    psti_share *share = group_of(1, 1, 1);
    const psti_share_pick first = next(share, 0);
    psti_share_epoch(share, 0, NULL);
    CHECK(next(share, 0).kind == PSTI_SHARE_WAIT);
    insert_pick(share, &first);
    const psti_share_pick second = next(share, 0);
    CHECK(second.kind == PSTI_SHARE_PREPARE && second.number == 1);
    CHECK(!psti_share_check(share));
    psti_share_free(share);
}

static void jobs_side_by_side_share_one_order_and_split_the_work(void)
{
    enum { N = 400, JOBS = 3, DEPTH = 4 };
    psti_share *share = group_of(N, JOBS, N / 10);
    psti_share_pick making[JOBS * DEPTH];
    psti_share_member who;
    int made[JOBS] = {0}, own[JOBS] = {0}, maker[JOBS * DEPTH], count = 0;
    for (int call = 0, idle = 0; idle < JOBS; call++) {
        const int j = call % JOBS;
        if (call % 7 == 0 && count) { /* slower than any of them asks */
            insert_pick(share, &making[0]);
            own[maker[0]]--;
            count--;
            memmove(making, making + 1, (size_t)count * sizeof *making);
            memmove(maker, maker + 1, (size_t)count * sizeof *maker);
        }
        if (own[j] == DEPTH)
            continue;
        const psti_share_pick pick = next(share, j);
        idle = pick.kind == PSTI_SHARE_NONE ? idle + 1 : 0;
        if (pick.kind != PSTI_SHARE_PREPARE)
            continue;
        made[j]++;
        own[j]++;
        maker[count] = j;
        making[count++] = pick;
    }
    for (int i = 0; i < 3; i++) {
        psti_share_member_get(share, i, &who);
        CHECKF(who.order == 1 && who.delivered == N, "order %d", (int)who.order);
        CHECKF(made[i] > N / 5, "job %d prepared %d of %d", i, made[i], N);
    }
    CHECK(made[0] + made[1] + made[2] == N);
    psti_share_free(share);
}

/* Its rate is not known yet: as long as that is so, it is as fast as the others are. */
static void one_who_comes_between_anothers_epochs_is_followed(void)
{
    enum { N = 400 };
    psti_share *share = group_of(N, 1, N / 10);
    psti_share_member first, second;
    int member;
    for (int epoch = 0; epoch < 4; epoch++) {
        for (int i = 0; i < N; i++) {
            const psti_share_pick pick = next(share, 0);
            psti_share_finish(share, &pick);
        }
        if (epoch < 3)
            psti_share_epoch(share, 0, NULL);
    }
    CHECK(psti_share_join(share, false, &member, NULL) == 0);
    psti_share_epoch(share, member, NULL);
    psti_share_epoch(share, 0, NULL);
    psti_share_member_get(share, 0, &first);
    psti_share_member_get(share, member, &second);
    CHECKF(first.order == second.order, "%d and %d", (int)first.order, (int)second.order);
    CHECKF(first.rate + second.rate > 0.999 && first.rate + second.rate < 1.001, "%f and %f",
           first.rate, second.rate);
    psti_share_leave(share, member);
    psti_share_member_get(share, 0, &first);
    CHECKF(first.rate > 0.999 && first.rate < 1.001, "%f", first.rate);
    psti_share_free(share);
}

static void no_job_gets_the_same_order_twice(void)
{
    psti_share *share = group_of(100, 2, 100); /* everything is near enough to follow */
    uint64_t last = 0;
    for (int epoch = 0; epoch < 10; epoch++) { /* the other stands still */
        psti_share_member who;
        psti_share_member_get(share, 0, &who);
        CHECK(who.order > last);
        last = who.order;
        psti_share_epoch(share, 0, NULL);
    }
    psti_share_free(share);
}

static void sixty_four_fit_and_a_seat_is_clean_when_it_is_taken_again(void)
{
    psti_share *share = group_of(64, 64, 64);
    int member = -1;
    pst_error err = {0};
    CHECK(psti_share_join(share, false, &member, &err) == PST_ELIMIT && err.message[0]);
    const psti_share_pick made = next(share, 7);
    insert_pick(share, &made);
    psti_share_leave(share, 7);
    CHECK(psti_share_join(share, false, &member, NULL) == 0 && member == 7);
    CHECK(!psti_share_check(share));
    psti_share_epoch(share, 7, NULL);
    bool got = false;
    for (int i = 0; i < 64; i++) {
        const psti_share_pick pick = next(share, 7);
        got |= pick.kind == PSTI_SHARE_HIT && pick.id == made.id;
    }
    CHECK(got); /* another job than the one that prepared it */
    CHECK(next(share, 63).kind != PSTI_SHARE_NONE);
    CHECK(!psti_share_check(share));
    psti_share_free(share);
}

static void a_job_that_returns_gets_nothing_it_may_have_had(void)
{
    psti_share *share = group_of(50, 2, 50);
    for (int i = 0; i < 50; i++) {
        const psti_share_pick pick = next(share, 0);
        insert_pick(share, &pick);
    }
    psti_share_leave(share, 1);
    int member;
    CHECK(psti_share_join(share, true, &member, NULL) == 0 && member == 1);
    psti_share_epoch(share, 1, NULL);
    for (int i = 0; i < 50; i++)
        CHECK(next(share, 1).kind == PSTI_SHARE_PREPARE);
    psti_share_free(share);
}

/* The second and the third member want it, so many samples ahead of where they stand; both windows
 * are 50 samples wide. */
static void check_value(const psti_share *share, uint32_t entry, const double ahead[2])
{
    double expected = 0;
    for (int i = 0; i < 2; i++) {
        psti_share_member m;
        psti_share_member_get(share, i + 1, &m);
        CHECK(m.rate > 0 && m.rate < 1);
        expected += m.rate * 50 / (ahead[i] * ahead[i]);
    }
    const double value = psti_share_value(share, entry);
    CHECKF(fabs(value / expected - 1) < 1e-9, "%.9f, not %.9f", value, expected);
}

static void value_follows_rate_and_nearness(void)
{
    psti_share *share = group_of(1000, 3, 1000);
    uint32_t entry[1000];
    for (int i = 0; i < 1000; i++) {
        const psti_share_pick pick = next(share, 0);
        entry[i] = insert_pick(share, &pick);
    }
    const double far = psti_share_value(share, entry[999]);
    CHECK(far > 0 && psti_share_value(share, entry[0]) > far);
    CHECK(psti_share_value(share, entry[10]) == psti_share_value(share, entry[40])); /* window */
    CHECK(psti_share_value(share, entry[500]) > psti_share_value(share, entry[600]));
    const double ahead[2] = {999, 999}, nearer[2] = {999, 500};
    check_value(share, entry[999], ahead);
    for (int i = 0; i < 500; i++) /* the third is faster, and nearer: it took 499 last */
        CHECK(next(share, 2).kind == PSTI_SHARE_HIT);
    check_value(share, entry[999], nearer);
    CHECK(psti_share_value(share, entry[999]) > 4 * far);
    CHECK(next(share, 1).kind == PSTI_SHARE_HIT);
    CHECK(psti_share_value(share, entry[0]) == 0); /* all have had it */
    psti_share_free(share);
}

static bool is_not_pinned(void *user, void *payload)
{
    (void)user;
    return payload != NULL;
}

static double bytes_of(void *user, void *payload)
{
    (void)user;
    return *(const double *)payload;
}

static void the_lowest_value_per_byte_leaves_unless_it_is_pinned(void)
{
    psti_share *share = group_of(400, 2, 400);
    static double bytes[400];
    const psti_share_judge judge = {.may_leave = is_not_pinned, .bytes = bytes_of};
    uint32_t entry, large = 0;
    void *old;
    for (int i = 0; i < 400; i++) {
        const psti_share_pick pick = next(share, 0);
        bytes[i] = i == 5 ? 1000 : 1;
        CHECK(!psti_share_insert(share, &pick, i < 390 ? &bytes[i] : NULL, &entry, &old));
        large = i == 5 ? entry : large;
    }
    double value = 0;
    bool met = false;
    for (int i = 0; i < 390; i++) { /* the ten that are furthest are pinned */
        CHECK(psti_share_victim(share, &judge, &entry, &value));
        met |= entry == large && i < 60; /* though it is nearer than the others */
        CHECK(psti_share_remove(share, entry) != NULL);
    }
    CHECK(met);
    CHECK(!psti_share_victim(share, &judge, &entry, &value));
    CHECK(!psti_share_check(share));
    psti_share_free(share);
}

static void wrong_settings_are_refused(void)
{
    psti_share_spec good;
    psti_share_spec_init(&good);
    good.samples = 10;
    for (int i = 0; i < 5; i++) {
        psti_share_spec spec = good;
        spec.samples = i == 0 ? 0 : i == 1 ? UINT32_MAX : 10;
        spec.window = i == 2 ? -1 : good.window;
        spec.window_max = i == 3 ? 0.01 : good.window_max;
        spec.probes = i == 4 ? 0 : good.probes;
        psti_share *share;
        pst_error err = {0};
        CHECK(psti_share_new(&spec, &share, &err) == -EINVAL && !share && err.message[0]);
    }
}

static int short_life(void *user)
{
    (void)user;
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    spec.samples = 100;
    psti_share *share;
    int rc = psti_share_new(&spec, &share, NULL), member;
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = psti_share_join(share, false, &member, NULL);
    if (rc == 0) {
        psti_share_epoch(share, 0, NULL);
        psti_share_epoch(share, 1, NULL);
        const psti_share_pick pick = next(share, 0);
        uint32_t entry;
        void *old;
        rc = pick.kind == PSTI_SHARE_WAIT ? -ENOMEM : 0;
        if (rc == 0)
            rc = psti_share_insert(share, &pick, NULL, &entry, &old);
        CHECK(!psti_share_check(share));
        CHECK(next(share, 1).kind == (rc ? PSTI_SHARE_PREPARE : PSTI_SHARE_HIT));
    }
    psti_share_free(share);
    return rc;
}

static void every_allocation_may_fail(void)
{
    const int allocations = fail_each_allocation(short_life, NULL);
    CHECKF(allocations >= 12, "%d", allocations);
}

int main(void)
{
    RUN(alone_nothing_is_worth_keeping);
    RUN(what_another_prepares_is_waited_for_until_it_is_there);
    RUN(what_another_gives_up_is_prepared);
    RUN(a_job_never_gets_what_it_prepared_itself);
    RUN(jobs_side_by_side_share_one_order_and_split_the_work);
    RUN(one_who_comes_between_anothers_epochs_is_followed);
    RUN(no_job_gets_the_same_order_twice);
    RUN(sixty_four_fit_and_a_seat_is_clean_when_it_is_taken_again);
    RUN(a_job_that_returns_gets_nothing_it_may_have_had);
    RUN(value_follows_rate_and_nearness);
    RUN(the_lowest_value_per_byte_leaves_unless_it_is_pinned);
    RUN(wrong_settings_are_refused);
    RUN(every_allocation_may_fail);
    return check_report();
}
