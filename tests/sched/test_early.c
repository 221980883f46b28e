/* SPDX-License-Identifier: Apache-2.0
 * Which share indices were sent out before their turn: the look-ahead asks, so that no sample is
 * read twice, and dispatch passes over them. The bits of a run go round; one must not stand for a
 * sample a round later. */
#include "check.h"
#include "sched/sched_priv.h"

enum { AHEAD = 24 };

static psti_feed feed;
static uint8_t bits[(AHEAD + 7) / 8];
static run r;

static void begin(int64_t next)
{
    memset(bits, 0, sizeof bits);
    feed.foresight.ahead = AHEAD;
    r = (run){.feed = &feed, .early = bits, .next_share = next, .share = 1000};
}

static void send_early(int64_t share)
{
    bits[share % AHEAD / 8] |= (uint8_t)(1u << (share % AHEAD % 8));
}

static void what_was_sent_is_known_and_nothing_else(void)
{
    for (int64_t next = 0; next < 3 * AHEAD; next += 5)
        for (int64_t sent = next + 1; sent < next + AHEAD; sent++) {
            begin(next);
            send_early(sent);
            for (int64_t share = next; share < next + 3 * AHEAD; share++)
                CHECKF(foresight_sent_locked(&r, share) == (share == sent), "next %d, sent %d: %d",
                       (int)next, (int)sent, (int)share);
        }
}

static void a_run_that_sends_nothing_early_has_sent_nothing(void)
{
    begin(0);
    r.early = NULL;
    CHECK(!foresight_sent_locked(&r, 0));
}

static void what_was_sent_is_passed_over_once(void)
{
    begin(10);
    send_early(10);
    send_early(11);
    send_early(13);
    foresight_skip_locked(&r);
    CHECK(r.next_share == 12 && !foresight_sent_locked(&r, 12));
    CHECK(foresight_sent_locked(&r, 13));
    r.next_share = 13;
    foresight_skip_locked(&r);
    CHECK(r.next_share == 14);
    for (int64_t share = 14; share < 14 + AHEAD; share++) /* 10 + AHEAD has the bit of 10 */
        CHECK(!foresight_sent_locked(&r, share));
}

int main(void)
{
    RUN(what_was_sent_is_known_and_nothing_else);
    RUN(a_run_that_sends_nothing_early_has_sent_nothing);
    RUN(what_was_sent_is_passed_over_once);
    return check_report();
}
