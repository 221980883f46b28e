/* SPDX-License-Identifier: Apache-2.0
 * Joining the states of ranks: exact unions, and every mixed or incomplete set refused by name. */
#include <stdlib.h>

#include "sample_check.h"
#include "state_maker.h"

enum { LENGTH = 230, BATCH = 4, WORLD = 3 };

static psti_state of_rank(int rank, int order, bool per_rank)
{
    return (psti_state){.revision = {1, 2},
                        .fingerprint = {3, 4},
                        .source = {5, 6},
                        .seed = 9,
                        .epoch = 2,
                        .length = LENGTH,
                        .order = order,
                        .ends = PST_ENDS_PAD,
                        .batch = BATCH,
                        .world = WORLD,
                        .rank = rank,
                        .per_rank = per_rank};
}

static void set_bit(psti_state *s, int64_t position)
{
    if (!s->used)
        s->used = psti_calloc(PSTI_MEM_SAMPLE, (LENGTH + 7) / 8, 1);
    s->used[position / 8] |= (uint8_t)(1u << (position % 8));
}

static bool has_bit(const psti_state *s, int64_t position)
{
    return s->used[position / 8] >> (position % 8) & 1;
}

static void free_all(psti_state *states, size_t count)
{
    for (size_t i = 0; i < count; i++)
        psti_state_fini(&states[i]);
}

static void refused(const psti_state *states, size_t count, const char *first, const char *second)
{
    psti_state out;
    pst_error err = {0};
    const psti_state empty = {0};
    CHECK(psti_state_join(states, count, &out, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, first) && strstr(err.message, second), "%s", err.message);
    CHECK(memcmp(&out, &empty, sizeof out) == 0);
}

static void strict_states_of_one_moment_are_one(void)
{
    psti_state s[WORLD], out;
    for (int r = 0; r < WORLD; r++) {
        s[r] = of_rank(r, PST_ORDER_STRICT, false);
        s[r].prefix = 48;
    }
    s[0].pipeline = psti_strdup(PSTI_MEM_SAMPLE, "decode");
    for (int r = 0; r < WORLD; r++)
        add_skipped(&s[r], 7); /* the same one, known to all */
    CHECK(psti_state_join(s, WORLD, &out, NULL) == 0);
    CHECK(out.merged && !out.per_rank && out.prefix == 48 && !out.used && out.world == WORLD);
    CHECK(out.skipped_count == 1 && out.skipped[0] == 7 && strcmp(out.pipeline, "decode") == 0);
    psti_state_fini(&out);
    CHECK(psti_state_join(&s[2], 1, &out, NULL) == 0); /* any one is enough */
    CHECK(out.merged && out.prefix == 48 && out.rank == 0);
    psti_state again;
    CHECK(psti_state_join(&out, 1, &again, NULL) == 0 && again.prefix == 48);
    psti_state_fini(&again);
    psti_state_fini(&out);
    s[2].prefix = 60;
    refused(s, WORLD, "prefix is 48 for rank 0", "60 for rank 2");
    free_all(s, WORLD);
}

static void mixed_sets_are_refused_with_both_values(void)
{
    psti_state s[2] = {of_rank(0, PST_ORDER_STRICT, false), of_rank(1, PST_ORDER_STRICT, false)};
    const psti_state good = s[1];
#define WITH(change, first, second)                                                                \
    do {                                                                                           \
        s[1] = good;                                                                               \
        s[1].change;                                                                               \
        refused(s, 2, first, second);                                                              \
    } while (0)
    WITH(revision.lo = 0xab, "dataset is 0100000000000000", "ab00000000000000");
    WITH(fingerprint.hi = 7, "pipeline is", "rank 1");
    WITH(source.hi = 7, "sampler is", "rank 1");
    WITH(seed = 10, "seed is 9", "10");
    WITH(epoch = 3, "epoch is 2", "3");
    WITH(length = 231, "positions is 230", "231");
    WITH(order = PST_ORDER_READY, "order is 0", "1");
    WITH(ends = PST_ENDS_DROP, "ends setting is 2", "1");
    WITH(batch = 5, "batch is 4", "5");
    WITH(world = 2, "world is 3", "2");
    WITH(per_rank = true, "per-rank mark is 0", "1");
    WITH(merged = true, "joined already", "ranks saved");
    WITH(rank = 0, "rank 0 of 3", "twice");
    WITH(rank = 3, "rank 3", "0..2");
#undef WITH
    refused(s, 0, "no state", "all ranks");
}

static void a_given_order_that_differs_is_refused(void)
{
    psti_state s[2] = {of_rank(0, PST_ORDER_STRICT, false), of_rank(1, PST_ORDER_STRICT, false)};
    psti_state out;
    for (int i = 0; i < 2; i++) {
        s[i].given_count = 2;
        s[i].given = psti_calloc(PSTI_MEM_SAMPLE, 2, sizeof(int64_t));
        s[i].given[1] = 5;
    }
    CHECK(psti_state_join(s, 2, &out, NULL) == 0);
    CHECK(out.given_count == 2 && out.given[0] == 0 && out.given[1] == 5 &&
          out.given != s[0].given);
    psti_state_fini(&out);
    s[1].given[1] = 6;
    refused(s, 2, "is 5 for rank 0", "6 for rank 1");
    free_all(s, 2);
}

static void an_incomplete_set_names_who_is_missing(void)
{
    psti_state s[2] = {of_rank(0, PST_ORDER_READY, true), of_rank(2, PST_ORDER_READY, true)};
    refused(s, 2, "2 states", "missing: rank 1");
    refused(s, 1, "1 states", "missing: rank 1, 2");
    s[0].world = s[1].world = 65536;
    refused(s, 2, "65536", "missing: rank 1, 3, 4, 5, 6, 7, 8, 9, …");
}

static void ready_parts_are_united(void)
{
    psti_state s[WORLD], out;
    for (int r = 0; r < WORLD; r++) {
        s[r] = of_rank(r, PST_ORDER_READY, true);
        for (int64_t p = r; p < 100; p += WORLD + 1)
            set_bit(&s[r], p);
        add_skipped(&s[r], 20 - r);
        add_skipped(&s[r], 20 + r * 10 + 1);
    }
    CHECK(psti_state_join(s, WORLD, &out, NULL) == 0);
    CHECK(out.merged && !out.per_rank && out.used && out.order == PST_ORDER_READY);
    for (int64_t p = 0; p < LENGTH; p++)
        CHECK(has_bit(&out, p) == (p < 100 && p % 4 != 3));
    const int64_t skipped[] = {18, 19, 20, 21, 31, 41};
    CHECK(out.skipped_count == 6 && memcmp(out.skipped, skipped, sizeof skipped) == 0);
    psti_state_fini(&out);
    set_bit(&s[2], 5);
    refused(s, WORLD, "position 5", "rank 1 and by rank 2");
    free_all(s, WORLD);
}

static void ready_ranks_that_delivered_nothing_count_too(void)
{
    psti_state s[WORLD], out;
    for (int r = 0; r < WORLD; r++)
        s[r] = of_rank(r, PST_ORDER_READY, true);
    set_bit(&s[1], LENGTH - 1);
    CHECK(psti_state_join(s, WORLD, &out, NULL) == 0);
    for (int64_t p = 0; p < LENGTH; p++)
        CHECK(has_bit(&out, p) == (p == LENGTH - 1));
    psti_state_fini(&out);
    free_all(s, WORLD);
}

static void ready_states_of_one_engine_must_agree(void)
{
    psti_state s[WORLD], out;
    for (int r = 0; r < WORLD; r++) {
        s[r] = of_rank(r, PST_ORDER_READY, false);
        set_bit(&s[r], 17);
    }
    CHECK(psti_state_join(s, WORLD, &out, NULL) == 0);
    CHECK(has_bit(&out, 17) && !has_bit(&out, 16));
    psti_state_fini(&out);
    set_bit(&s[1], 40);
    refused(s, WORLD, "position 40", "rank 1 but not for rank 0");
    free_all(s, WORLD);
}

/* Which positions a rank consumed, from the rule: the j-th left goes to rank (j / batch) % world.
 */
static void check_shares(const psti_state *out, int64_t prefix, const psti_state *base,
                         const int64_t *shares)
{
    int64_t j = 0, taken[WORLD] = {0};
    for (int64_t p = 0; p < LENGTH; p++) {
        const bool before = base ? has_bit(base, p) : p < prefix;
        bool want = before;
        if (!before) {
            const int rank = (int)(j++ / BATCH % WORLD);
            want = taken[rank]++ < shares[rank];
        }
        CHECKF(has_bit(out, p) == want, "position %d: %d", (int)p, (int)has_bit(out, p));
    }
}

static void strict_shares_with_skips_are_united(void)
{
    const int64_t cases[][WORLD] = {{8, 10, 12}, {0, 0, 0}, {1000, 1, 0}, {75, 75, 74}, {3, 0, 60}};
    for (size_t c = 0; c < 5; c++)
        for (int64_t prefix = 0; prefix <= 60; prefix += 12) {
            psti_state s[WORLD], out;
            for (int r = 0; r < WORLD; r++) {
                s[r] = of_rank(r, PST_ORDER_STRICT, true);
                s[r].prefix = prefix;
                s[r].share = cases[c][r];
            }
            CHECK(psti_state_join(s, WORLD, &out, NULL) == 0);
            CHECK(out.order == PST_ORDER_STRICT && out.prefix == prefix && out.share == 0);
            check_shares(&out, prefix, NULL, cases[c]);
            psti_state_fini(&out);
        }
}

static void strict_shares_of_a_resumed_deal_are_united(void)
{
    const int64_t shares[WORLD] = {9, 4, 14};
    psti_state s[WORLD], out, base = of_rank(0, PST_ORDER_STRICT, false);
    for (int64_t p = 0; p < LENGTH; p += 3)
        set_bit(&base, p);
    for (int r = 0; r < WORLD; r++) {
        s[r] = of_rank(r, PST_ORDER_STRICT, true);
        s[r].share = shares[r];
        for (int64_t p = 0; p < LENGTH; p += 3)
            set_bit(&s[r], p);
    }
    CHECK(psti_state_join(s, WORLD, &out, NULL) == 0);
    check_shares(&out, 0, &base, shares);
    psti_state_fini(&out);
    set_bit(&s[1], 1);
    refused(s, WORLD, "position 1 ", "rank 1 but not for rank 0");
    free_all(s, WORLD);
    psti_state_fini(&base);
}

/* A joined state goes through the blob, and the rest is dealt exactly once to another world. */
static void a_joined_state_resumes_in_another_world(void)
{
    const int64_t shares[WORLD] = {9, 4, 14};
    psti_state s[WORLD], out, back;
    int seen[LENGTH] = {0};
    for (int r = 0; r < WORLD; r++) {
        s[r] = of_rank(r, PST_ORDER_STRICT, true);
        s[r].share = shares[r];
    }
    CHECK(psti_state_join(s, WORLD, &out, NULL) == 0);
    const size_t size = psti_state_size(&out);
    uint8_t *bytes = malloc(size);
    CHECK(psti_state_encode(&out, bytes, size) == size);
    CHECK(psti_state_decode(bytes, size, &back, NULL) == 0);
    for (int rank = 0; rank < 2; rank++) {
        psti_deal *deal;
        bool valid;
        CHECK(psti_deal_new(&(psti_deal_spec){.length = LENGTH,
                                              .batch = 7,
                                              .rank = rank,
                                              .world = 2,
                                              .ends = PST_ENDS_PAD,
                                              .used = back.used},
                            &deal, NULL) == 0);
        for (int64_t i = 0; i < psti_deal_share(deal); i++)
            seen[psti_deal_position(deal, i, &valid)]++;
        psti_deal_free(deal);
    }
    int left = 0;
    for (int64_t p = 0; p < LENGTH; p++) {
        CHECK(seen[p] + has_bit(&out, p) == 1);
        left += seen[p];
    }
    CHECK(left == LENGTH - 27);
    free(bytes);
    psti_state_fini(&out);
    psti_state_fini(&back);
}

static int join_once(void *user)
{
    psti_state out;
    const int rc = psti_state_join(user, WORLD, &out, NULL);
    psti_state_fini(&out);
    return rc;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void)
{
    psti_state s[WORLD];
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        for (int r = 0; r < WORLD; r++) {
            s[r] = of_rank(r, order, true);
            s[r].share = 12;
            add_skipped(&s[r], r);
            s[r].given_count = 1;
            s[r].given = psti_calloc(PSTI_MEM_SAMPLE, 1, sizeof(int64_t));
        }
        s[0].pipeline = psti_strdup(PSTI_MEM_SAMPLE, "decode");
        const int count = fail_each_allocation(join_once, s);
        CHECKF(count == (order == PST_ORDER_STRICT ? 10 : 7), "order %d: %d", order, count);
        free_all(s, WORLD);
    }
}

int main(void)
{
    RUN(strict_states_of_one_moment_are_one);
    RUN(mixed_sets_are_refused_with_both_values);
    RUN(a_given_order_that_differs_is_refused);
    RUN(an_incomplete_set_names_who_is_missing);
    RUN(ready_parts_are_united);
    RUN(ready_ranks_that_delivered_nothing_count_too);
    RUN(ready_states_of_one_engine_must_agree);
    RUN(strict_shares_with_skips_are_united);
    RUN(strict_shares_of_a_resumed_deal_are_united);
    RUN(a_joined_state_resumes_in_another_world);
    RUN(every_failed_allocation_is_reported_and_nothing_leaks);
    return check_report();
}
