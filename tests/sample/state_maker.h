/* SPDX-License-Identifier: Apache-2.0
 * States to test with, one of each kind, the same every time. Used by the tests and by the program
 * that writes the fuzz corpus. */
#ifndef PSTI_TESTS_STATE_MAKER_H
#define PSTI_TESTS_STATE_MAKER_H

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "sample/sample.h"

enum {
    STATE_STRICT,        /* a prefix and a text */
    STATE_READY,         /* a bitmap and a text */
    STATE_SKIPS,         /* strict, one rank's share, skipped positions */
    STATE_STRICT_BITMAP, /* strict, merged: a prefix and a bitmap */
    STATE_GIVEN_ORDER,   /* a given order, skipped positions as a bitmap */
    STATE_KINDS
};

static inline void add_skipped(psti_state *s, int64_t position)
{
    const size_t count = (size_t)s->skipped_count + 1;
    int64_t *more = psti_realloc(PSTI_MEM_SAMPLE, s->skipped, count, sizeof *more);
    if (!more)
        abort();
    more[s->skipped_count++] = position;
    s->skipped = more;
}

static inline void use_first(psti_state *s, int64_t count, int64_t every)
{
    s->used = psti_calloc(PSTI_MEM_SAMPLE, (size_t)(s->length + 7) / 8, 1);
    if (!s->used)
        abort();
    for (int64_t p = 0; p < s->length; p++)
        if (p < count || p % every == 0)
            s->used[p / 8] |= (uint8_t)(1u << (p % 8));
}

static inline void add_given(psti_state *s)
{
    s->length = 15;
    s->prefix = 8;
    s->given_count = 5;
    s->given = psti_calloc(PSTI_MEM_SAMPLE, 5, sizeof *s->given);
    if (!s->given)
        abort();
    for (int64_t i = 0; i < 5; i++)
        s->given[i] = i * 1000000007;
    for (int64_t p = 0; p < 8; p++)
        add_skipped(s, p);
}

static inline psti_state make_state(int kind)
{
    psti_state s = {.revision = {1, 2},
                    .fingerprint = {3, 4},
                    .source = {5, 6},
                    .seed = 0x123456789abcdef0u,
                    .epoch = 7,
                    .length = 1000,
                    .order = kind == STATE_READY ? PST_ORDER_READY : PST_ORDER_STRICT,
                    .ends = PST_ENDS_PAD,
                    .batch = 32,
                    .world = 3,
                    .rank = 1,
                    .prefix = 96};
    if (kind == STATE_STRICT || kind == STATE_READY || kind == STATE_GIVEN_ORDER)
        s.pipeline = psti_strdup(PSTI_MEM_SAMPLE, "decode | random_resized_crop(224) | hflip");
    if (kind == STATE_READY) {
        s.prefix = 0;
        use_first(&s, 0, 3);
    }
    if (kind == STATE_SKIPS || kind == STATE_STRICT_BITMAP)
        for (int64_t p = 10; p < 200; p += 47)
            add_skipped(&s, p);
    if (kind == STATE_SKIPS) {
        s.per_rank = true;
        s.share = 70;
    }
    if (kind == STATE_STRICT_BITMAP) {
        s.merged = true;
        s.rank = 0;
        use_first(&s, 96, 5);
    }
    if (kind == STATE_GIVEN_ORDER)
        add_given(&s);
    return s;
}

/* Repairs the checksum of a blob that was changed on purpose. */
static inline void seal(uint8_t *bytes, size_t size)
{
    const uint32_t crc = pst_crc32c(0, bytes, size - 4);
    for (int i = 0; i < 4; i++)
        bytes[size - 4 + (size_t)i] = (uint8_t)(crc >> (8 * i));
}

#endif
