/* SPDX-License-Identifier: Apache-2.0
 * The state blob: what goes in comes out, no damaged or made-up byte gets through, and it stays
 * within its bound. */
#include <stdlib.h>

#include "sample/sample_priv.h"
#include "sample_check.h"
#include "state_maker.h"

static uint8_t *encode(const psti_state *s, size_t *size)
{
    *size = psti_state_size(s);
    uint8_t *bytes = malloc(*size);
    CHECK(psti_state_encode(s, bytes, *size) == *size);
    return bytes;
}

static bool same_bytes(const void *a, const void *b, size_t size)
{
    return (a == NULL) == (b == NULL) && (!a || memcmp(a, b, size) == 0);
}

static bool same_id(psti_id128 a, psti_id128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

static bool same_state(const psti_state *a, const psti_state *b)
{
    return same_id(a->revision, b->revision) && same_id(a->fingerprint, b->fingerprint) &&
           same_id(a->source, b->source) && a->seed == b->seed && a->epoch == b->epoch &&
           a->length == b->length && a->order == b->order && a->ends == b->ends &&
           a->batch == b->batch && a->world == b->world && a->rank == b->rank &&
           a->merged == b->merged && a->per_rank == b->per_rank && a->prefix == b->prefix &&
           a->share == b->share && a->skipped_count == b->skipped_count &&
           a->given_count == b->given_count &&
           same_bytes(a->used, b->used, (size_t)(a->length + 7) / 8) &&
           same_bytes(a->skipped, b->skipped, (size_t)a->skipped_count * 8) &&
           same_bytes(a->given, b->given, (size_t)a->given_count * 8) &&
           same_bytes(a->pipeline, b->pipeline, a->pipeline ? strlen(a->pipeline) + 1 : 0);
}

static void check_round_trip(const psti_state *s)
{
    size_t size;
    uint8_t *bytes = encode(s, &size);
    psti_state back;
    pst_error err = {0};
    CHECKF(psti_state_decode(bytes, size, &back, &err) == 0, "%s", err.message);
    CHECK(same_state(s, &back));
    psti_state_fini(&back);
    free(bytes);
}

static void what_goes_in_comes_out(void)
{
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        psti_state s = make_state(kind);
        check_round_trip(&s);
        psti_state_fini(&s);
    }
}

static void skipped_positions_survive_in_either_form(void)
{
    const int steps[] = {1, 2, 7, 100, 999};
    for (int i = 0; i < 5; i++) {
        psti_state s = make_state(STATE_STRICT);
        for (int64_t p = steps[i] - 1; p < s.length; p += steps[i])
            add_skipped(&s, p);
        check_round_trip(&s);
        psti_state_fini(&s);
    }
}

static void a_buffer_too_small_is_left_alone(void)
{
    psti_state s = make_state(STATE_READY);
    uint8_t bytes[4096];
    memset(bytes, 0x5a, sizeof bytes);
    const size_t size = psti_state_size(&s);
    CHECK(size < sizeof bytes && psti_state_encode(&s, bytes, size - 1) == size);
    for (size_t i = 0; i < sizeof bytes; i++)
        CHECK(bytes[i] == 0x5a);
    psti_state_fini(&s);
}

/* The layout is frozen: an old blob must still be read, and written again the same. */
static void the_bytes_are_the_ones_they_always_were(void)
{
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        static const uint32_t known[STATE_KINDS] = {0x1926adb8, 0xc0caa590, 0x79afd605, 0x8bedd9ea,
                                                    0xa7ff1c18};
        psti_state s = make_state(kind);
        size_t size;
        uint8_t *bytes = encode(&s, &size);
        const uint32_t crc = pst_crc32c(0, bytes, size - 4);
        CHECKF(crc == known[kind], "kind %d: 0x%08x", kind, crc);
        CHECK(memcmp(bytes, "PSTSTATE\1\0\0\0", 12) == 0);
        free(bytes);
        psti_state_fini(&s);
    }
}

static int decode_code(const uint8_t *bytes, size_t size, pst_error *err)
{
    /* Exactly as many bytes as there are, so that a sanitizer sees one too many. */
    uint8_t *exact = malloc(size ? size : 1);
    if (size)
        memcpy(exact, bytes, size);
    psti_state s;
    const int rc = psti_state_decode(exact, size, &s, err);
    const psti_state empty = {0};
    CHECK(rc == 0 || memcmp(&s, &empty, sizeof s) == 0);
    psti_state_fini(&s);
    free(exact);
    return rc;
}

static void a_state_cut_anywhere_is_refused(void)
{
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        psti_state s = make_state(kind);
        size_t size;
        uint8_t *bytes = encode(&s, &size);
        for (size_t cut = 0; cut < size; cut++) {
            pst_error err = {0};
            CHECK(decode_code(bytes, cut, &err) == PST_ESTATE && err.message[0]);
        }
        free(bytes);
        psti_state_fini(&s);
    }
}

static void a_state_with_any_bit_turned_is_refused(void)
{
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        psti_state s = make_state(kind);
        size_t size;
        uint8_t *bytes = encode(&s, &size);
        for (size_t i = 0; i < size; i++)
            for (int bit = 0; bit < 8; bit++) {
                bytes[i] ^= (uint8_t)(1u << bit);
                CHECK(decode_code(bytes, size, NULL) == PST_ESTATE);
                bytes[i] ^= (uint8_t)(1u << bit);
            }
        CHECK(decode_code(bytes, size, NULL) == 0);
        free(bytes);
        psti_state_fini(&s);
    }
}

static void bytes_after_the_end_are_refused(void)
{
    psti_state s = make_state(STATE_STRICT);
    const size_t size = psti_state_size(&s);
    uint8_t *bytes = calloc(size + 8, 1);
    psti_state_encode(&s, bytes, size);
    CHECK(decode_code(bytes, size + 8, NULL) == PST_ESTATE);
    seal(bytes, size + 8);
    pst_error err = {0};
    CHECK(decode_code(bytes, size + 8, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "left over"), "%s", err.message);
    free(bytes);
    psti_state_fini(&s);
}

/* Any bytes at all behind a right checksum: whatever the answer, no crash and no leak. */
static void made_up_bytes_do_no_harm(void)
{
    uint64_t state = 1;
    const uint64_t live = live_allocations();
    int taken = 0;
    for (int round = 0; round < 20000; round++) {
        psti_state s = make_state(round % STATE_KINDS);
        size_t size;
        uint8_t *bytes = encode(&s, &size);
        for (int k = 0; k < 1 + round % 4; k++)
            bytes[12 + noise(&state) % (size - 16)] = (uint8_t)noise(&state);
        seal(bytes, size);
        taken += decode_code(bytes, size, NULL) == 0;
        free(bytes);
        psti_state_fini(&s);
    }
    CHECKF(taken > 100 && taken < 20000, "%d of 20000 taken", taken);
    CHECK(live_allocations() == live);
}

/* Changes bytes of a good state, repairs the checksum and looks for words in the message. */
static void refused(int kind, long at, uint64_t value, int bytes_wide, const char *first,
                    const char *second)
{
    psti_state s = make_state(kind);
    size_t size;
    uint8_t *bytes = encode(&s, &size);
    uint8_t *to = bytes + at;
    for (int i = 0; i < bytes_wide; i++)
        to[i] = (uint8_t)(value >> (8 * i));
    seal(bytes, size);
    pst_error err = {0};
    CHECK(decode_code(bytes, size, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, first) && strstr(err.message, second), "%s", err.message);
    free(bytes);
    psti_state_fini(&s);
}

enum {
    BASE_AT = 16 + 8 + 48 + 8,
    NEXT_AT = BASE_AT + 64
}; /* payload of BASE; the section after it */

static void inconsistent_values_are_refused_with_both(void)
{
    refused(STATE_STRICT, 8, 2, 4, "version 2", "version 1");
    refused(STATE_STRICT, 12, 1, 4, "left over", "1 sections");
    refused(STATE_STRICT, 12, 9, 4, "section 3 of 9", "missing");
    refused(STATE_STRICT, 20, 47, 4, "only", "section 1 has");
    refused(STATE_STRICT, 16, 'X', 1, "XDEN", "does not know");
    refused(STATE_STRICT, 16, 'i', 1, "IDEN", "missing");
    refused(STATE_STRICT, BASE_AT + 16, (uint64_t)1 << 63, 8, "9223372036854775808", "positions");
    refused(STATE_STRICT, BASE_AT + 24, 2, 4, "order is 2", "0..1");
    refused(STATE_STRICT, BASE_AT + 28, 4, 4, "ends is 4", "0..3");
    refused(STATE_STRICT, BASE_AT + 32, 0, 4, "batch is 0", "1..");
    refused(STATE_STRICT, BASE_AT + 36, 0, 4, "world is 0", "1..");
    refused(STATE_STRICT, BASE_AT + 40, 3, 4, "rank is 3", "0..2");
    refused(STATE_STRICT, BASE_AT + 44, 4, 4, "flags", "4");
    refused(STATE_STRICT, BASE_AT + 44, 3, 4, "all ranks", "rank 1 alone");
    refused(STATE_STRICT, BASE_AT + 48, 1001, 8, "prefix is 1001", "0..1000");
    refused(STATE_STRICT, BASE_AT + 56, 1033, 8, "share is 1033", "0..1032");
    refused(STATE_READY, BASE_AT + 16, 2000, 8, "125 bytes", "2000 positions need 250");
    refused(STATE_READY, BASE_AT + 16, 993, 8, "beyond", "993");
    refused(STATE_SKIPS, NEXT_AT + 8, 7, 1, "form 7", "0..1");
    refused(STATE_SKIPS, NEXT_AT + 9, 40, 8, "40 samples", "1..");
    refused(STATE_SKIPS, NEXT_AT + 9, 2, 8, "left over", "2 skipped");
    refused(STATE_GIVEN_ORDER, BASE_AT + 16, 16, 8, "of 5 ids", "16 positions");
    refused(STATE_STRICT, NEXT_AT + 10, 0, 1, "zero byte", "text");
}

static void a_number_written_too_long_is_refused(void)
{
    psti_state s = make_state(STATE_SKIPS);
    size_t size;
    uint8_t *bytes = encode(&s, &size);
    bytes[NEXT_AT + 9]--;                        /* four numbers, the last in two bytes */
    memcpy(bytes + size - 4 - 2, "\xae\x01", 2); /* 174 */
    seal(bytes, size);
    CHECK(decode_code(bytes, size, NULL) == 0);
    memcpy(bytes + size - 4 - 2, "\xae\x00", 2); /* 46 with a zero on top */
    seal(bytes, size);
    CHECK(decode_code(bytes, size, NULL) == PST_ESTATE);
    free(bytes);
    psti_state_fini(&s);
}

static void a_negative_id_in_a_given_order_is_refused(void)
{
    psti_state s = make_state(STATE_GIVEN_ORDER);
    s.given[4] = (int64_t)1 << 40; /* ids of 8 bytes */
    check_round_trip(&s);
    size_t size;
    uint8_t *bytes = encode(&s, &size);
    bytes[size - 4 - 1] = 0x80;
    seal(bytes, size);
    pst_error err = {0};
    CHECK(decode_code(bytes, size, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "entry 4") && strstr(err.message, "negative"), "%s", err.message);
    free(bytes);
    psti_state_fini(&s);
}

static void a_prefix_that_its_bitmap_denies_is_refused(void)
{
    psti_state s = make_state(STATE_STRICT_BITMAP);
    s.used[2] &= 0xf7; /* position 19 of a prefix of 96 */
    size_t size;
    uint8_t *bytes = encode(&s, &size);
    pst_error err = {0};
    CHECK(decode_code(bytes, size, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "96") && strstr(err.message, "19 is not"), "%s", err.message);
    free(bytes);
    psti_state_fini(&s);
}

static void an_unknown_section_is_passed_over_if_it_says_so(void)
{
    for (int upper = 0; upper < 2; upper++) {
        psti_state s = make_state(STATE_STRICT);
        const size_t size = psti_state_size(&s);
        uint8_t *bytes = calloc(size + 11, 1);
        psti_state_encode(&s, bytes, size);
        memcpy(bytes + size - 4, upper ? "NOTE\3\0\0\0abc" : "note\3\0\0\0abc", 11);
        bytes[12]++;
        seal(bytes, size + 11);
        CHECK(decode_code(bytes, size + 11, NULL) == (upper ? PST_ESTATE : 0));
        free(bytes);
        psti_state_fini(&s);
    }
}

static void a_section_that_comes_twice_is_refused(void)
{
    psti_state s = make_state(STATE_STRICT);
    const size_t size = psti_state_size(&s);
    uint8_t *bytes = calloc(size + 56, 1);
    psti_state_encode(&s, bytes, size);
    memcpy(bytes + size - 4, bytes + 16, 56);
    bytes[12]++;
    seal(bytes, size + 56);
    pst_error err = {0};
    CHECK(decode_code(bytes, size + 56, &err) == PST_ESTATE);
    CHECKF(strstr(err.message, "IDEN comes twice"), "%s", err.message);
    free(bytes);
    psti_state_fini(&s);
}

static void resize(psti_state *s, int64_t length)
{
    psti_free(s->used);
    s->length = length;
    s->prefix = 0;
    s->used = psti_calloc(PSTI_MEM_SAMPLE, (size_t)(length + 7) / 8, 1);
}

static void the_size_keeps_its_bound(void)
{
    const int64_t lengths[] = {1, 1000, 50000, 1281167};
    for (int text = 0; text < 2; text++)
        for (int i = 0; i < 4; i++) {
            psti_state s = make_state(STATE_READY);
            resize(&s, lengths[i]);
            uint64_t state = 3;
            int64_t p = 0;
            for (int k = 0; k < 2500; k++, p++) {
                p += (int64_t)(noise(&state) % (uint64_t)(lengths[i] / 2500 * 2 + 1));
                if (p < s.length)
                    add_skipped(&s, p);
            }
            psti_free(s.pipeline);
            s.pipeline = psti_calloc(PSTI_MEM_SAMPLE, 5000, 1);
            memset(s.pipeline, 'x', text ? 4096 : 4097);
            const size_t size = psti_state_size(&s);
            CHECKF(size <= (size_t)(s.length / 8) + 8192, "%zu bytes for %lld positions", size,
                   (long long)s.length);
            uint8_t *bytes = malloc(size);
            psti_state_encode(&s, bytes, size);
            CHECK(decode_code(bytes, size, NULL) == 0);
            free(bytes);
            psti_state_fini(&s);
        }
}

/* Beyond the bound: never more than two bits a position and 8 KiB. */
static void very_many_skips_cost_at_most_a_bit_each(void)
{
    psti_state s = make_state(STATE_READY);
    resize(&s, 200000);
    psti_free(s.pipeline); /* there is no room for it */
    s.pipeline = NULL;
    s.skipped_count = s.length / 2;
    s.skipped = psti_calloc(PSTI_MEM_SAMPLE, (size_t)s.skipped_count, sizeof *s.skipped);
    for (int64_t i = 0; i < s.skipped_count; i++)
        s.skipped[i] = 2 * i;
    check_round_trip(&s);
    CHECK(psti_state_size(&s) <= (size_t)(s.length / 4) + 8192);
    psti_state_fini(&s);
}

static void the_text_is_kept_up_to_4_kib(void)
{
    for (size_t size = 4095; size <= 4097; size++) {
        psti_state s = make_state(STATE_STRICT), back;
        psti_free(s.pipeline);
        s.pipeline = psti_calloc(PSTI_MEM_SAMPLE, size + 1, 1);
        memset(s.pipeline, 'x', size);
        size_t bytes_size;
        uint8_t *bytes = encode(&s, &bytes_size);
        CHECK(psti_state_decode(bytes, bytes_size, &back, NULL) == 0);
        CHECK((back.pipeline != NULL) == (size <= 4096));
        psti_state_fini(&back);
        free(bytes);
        psti_state_fini(&s);
    }
}

typedef struct blob {
    uint8_t *bytes;
    size_t size;
} blob;

static int decode_once(void *user)
{
    const blob *b = user;
    psti_state s;
    const int rc = psti_state_decode(b->bytes, b->size, &s, NULL);
    psti_state_fini(&s);
    return rc;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void)
{
    const int want[STATE_KINDS] = {1, 2, 1, 2, 3};
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        psti_state s = make_state(kind);
        blob b;
        b.bytes = encode(&s, &b.size);
        const int count = fail_each_allocation(decode_once, &b);
        CHECKF(count == want[kind], "kind %d: %d", kind, count);
        free(b.bytes);
        psti_state_fini(&s);
    }
}

int main(void)
{
    RUN(what_goes_in_comes_out);
    RUN(skipped_positions_survive_in_either_form);
    RUN(a_buffer_too_small_is_left_alone);
    RUN(the_bytes_are_the_ones_they_always_were);
    RUN(a_state_cut_anywhere_is_refused);
    RUN(a_state_with_any_bit_turned_is_refused);
    RUN(bytes_after_the_end_are_refused);
    RUN(made_up_bytes_do_no_harm);
    RUN(inconsistent_values_are_refused_with_both);
    RUN(a_number_written_too_long_is_refused);
    RUN(a_negative_id_in_a_given_order_is_refused);
    RUN(a_prefix_that_its_bitmap_denies_is_refused);
    RUN(an_unknown_section_is_passed_over_if_it_says_so);
    RUN(a_section_that_comes_twice_is_refused);
    RUN(the_size_keeps_its_bound);
    RUN(very_many_skips_cost_at_most_a_bit_each);
    RUN(the_text_is_kept_up_to_4_kib);
    RUN(every_failed_allocation_is_reported_and_nothing_leaks);
    return check_report();
}
