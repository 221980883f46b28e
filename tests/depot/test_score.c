/* SPDX-License-Identifier: Apache-2.0
 * The rule by which datasets make way. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "depot/depot.h"

enum { DAY = 24 * 3600, MOST = 16 };

static uint64_t choose(const psti_depot_unit *units, size_t count, uint64_t need, bool *goes)
{
    uint32_t order[MOST];
    return psti_depot_choose(units, count, need, 10 * DAY, order, goes);
}

static void uses_halve_in_a_day(void)
{
    CHECK(fabs(psti_depot_decayed(8, 0, DAY) - 4) < 1e-12);
    CHECK(fabs(psti_depot_decayed(8, 0, 3 * DAY) - 1) < 1e-12);
    CHECK(fabs(psti_depot_used(8, 0, DAY) - 5) < 1e-12);
    CHECK(psti_depot_used(0, 0, 100 * DAY) == 1);
}

static void a_clock_set_back_takes_nothing(void)
{
    CHECK(psti_depot_decayed(3, DAY, 0) == 3);
    CHECK(psti_depot_used(3, DAY, 0) == 4);
}

static void years_do_not_underflow_to_ties(void)
{
    const psti_depot_unit old = {1, 1, 0, 10, false}, older = {1, 1, -DAY, 10, false};
    CHECK(psti_depot_score(&old, 300 * DAY) > psti_depot_score(&older, 300 * DAY));
}

static void the_lowest_score_goes_first(void)
{
    const psti_depot_unit u[] = {{10, 4, 10 * DAY, 100, false}, /* 400 */
                                 {10, 1, 10 * DAY, 100, false}, /* 100 */
                                 {10, 8, 10 * DAY, 20, false}}; /* 160 */
    bool goes[3];
    CHECK(choose(u, 3, 10, goes) == 10);
    CHECK(!goes[0] && goes[1] && !goes[2]);
    CHECK(choose(u, 3, 11, goes) == 20);
    CHECK(!goes[0] && goes[1] && goes[2]);
}

static void use_that_is_long_ago_counts_less(void)
{
    const psti_depot_unit u[] = {{10, 4, 7 * DAY, 100, false}, {10, 1, 10 * DAY, 100, false}};
    bool goes[2];
    choose(u, 2, 10, goes);
    CHECK(goes[0] && !goes[1]);
}

static void what_is_held_stays(void)
{
    const psti_depot_unit u[] = {{10, 0, 0, 0, true}, {10, 9, 10 * DAY, 9, false}};
    bool goes[2];
    CHECK(choose(u, 2, 10, goes) == 10);
    CHECK(!goes[0] && goes[1]);
    CHECK(choose(u, 2, 11, goes) == 10);
    CHECK(!goes[0] && !goes[1]); /* not enough: nothing goes */
}

static void what_need_not_go_is_spared(void)
{
    const psti_depot_unit u[] = {
        {2, 1, 10 * DAY, 1, false}, {3, 1, 10 * DAY, 2, false}, {50, 1, 10 * DAY, 3, false}};
    bool goes[3];
    CHECK(choose(u, 3, 40, goes) == 50);
    CHECK(!goes[0] && !goes[1] && goes[2]);
    CHECK(choose(u, 3, 53, goes) == 53);
    CHECK(!goes[0] && goes[1] && goes[2]);
}

static void nothing_asked_nothing_goes(void)
{
    const psti_depot_unit u[] = {{2, 0, 0, 0, false}};
    bool goes[1] = {true};
    CHECK(choose(u, 1, 0, goes) == 0 && !goes[0]);
    CHECK(choose(u, 0, 5, goes) == 0);
}

int main(void)
{
    RUN(uses_halve_in_a_day);
    RUN(a_clock_set_back_takes_nothing);
    RUN(years_do_not_underflow_to_ties);
    RUN(the_lowest_score_goes_first);
    RUN(use_that_is_long_ago_counts_less);
    RUN(what_is_held_stays);
    RUN(what_need_not_go_is_spared);
    RUN(nothing_asked_nothing_goes);
    return check_report();
}
