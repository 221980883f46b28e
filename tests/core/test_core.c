/* SPDX-License-Identifier: Apache-2.0
 * The room core against published vectors and its own promises: hashes, random words, checksums,
 * budget, histogram, memory and errors. exp and log, and quota, have programs of their own. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "core/budget.h"
#include "core/cpu.h"
/* The file itself, for both its ways to compute; its one public symbol then comes from here. */
#include "core/crc32c.c"
#include "core/field.h"
#include "core/hash.h"
#include "core/hist.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/status.h"

/* ---- hash ------------------------------------------------------------------------------------ */

/* SipHash-2-4-128, key 00 01 … 0f, input 00 01 …: from the algorithm's published vectors. */
static const struct {
    size_t size;
    const char *hex;
} sip_vectors[] = {
    {0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
    {7, "a1f1ebbed8dbc153c0b84aa61ff08239"},  {8, "3b62a9ba6258f5610f83e264f31497b4"},
    {9, "264499060ad9baabc47f8b02bb6d71ed"},  {15, "5493e99933b0a8117e08ec0f97cfc3d9"},
    {16, "6ee2a4ca67b054bbfd3315bf85230577"}, {63, "5150d1772f50834a503e069a973fbd7c"},
};

static void siphash_matches_the_published_vectors(void)
{
    uint8_t input[64];
    char hex[33];
    for (int i = 0; i < 64; i++)
        input[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof sip_vectors / sizeof *sip_vectors; i++) {
        psti_id128_hex(psti_hash_bytes(input, sip_vectors[i].size), hex);
        CHECKF(strcmp(hex, sip_vectors[i].hex) == 0, "%zu bytes: %s", sip_vectors[i].size, hex);
    }
}

static void a_hash_in_pieces_is_the_hash_of_the_whole(void)
{
    uint8_t input[61];
    for (int i = 0; i < 61; i++)
        input[i] = (uint8_t)(i * 7);
    const psti_id128 whole = psti_hash_bytes(input, sizeof input);
    for (size_t a = 0; a <= 61; a++)
        for (size_t b = a; b <= 61; b++) {
            psti_hash h;
            psti_hash_init(&h);
            psti_hash_update(&h, input, a);
            psti_hash_update(&h, input + a, b - a);
            psti_hash_update(&h, input + b, 61 - b);
            const psti_id128 id = psti_hash_final(&h);
            CHECK(id.lo == whole.lo && id.hi == whole.hi);
        }
}

static void text_is_framed_and_numbers_are_little_endian(void)
{
    psti_hash h;
    psti_hash_init(&h);
    psti_hash_text(&h, "ab", 2);
    const psti_id128 a = psti_hash_final(&h);
    const psti_id128 b = psti_hash_bytes("\2\0\0\0\0\0\0\0ab", 10);
    CHECK(a.lo == b.lo && a.hi == b.hi);
    uint8_t bytes[16];
    psti_id128_store((psti_id128){0x0102030405060708u, 9}, bytes);
    CHECK(bytes[0] == 8 && bytes[7] == 1 && bytes[8] == 9);
    const psti_id128 back = psti_id128_load(bytes);
    CHECK(back.lo == 0x0102030405060708u && back.hi == 9);
}

/* ---- random words ---------------------------------------------------------------------------- */

/* Philox4x32-10 known answers, as published with Random123. */
static void philox_gives_the_known_answers(void)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        psti_philox(known[i].counter, known[i].key, out);
        CHECKF(memcmp(out, known[i].out, sizeof out) == 0, "case %d", i);
    }
}

static void every_part_of_the_key_changes_the_draws(void)
{
    const psti_rng_key base = {.seed = 1, .epoch = 2, .id = 3, .occurrence = 4, .view = 5};
    psti_rng_key keys[7];
    uint64_t first[8];
    for (int i = 0; i < 7; i++)
        keys[i] = base;
    keys[1].seed++;
    keys[2].epoch++;
    keys[3].id++;
    keys[4].occurrence++;
    keys[5].view++;
    keys[6].id += (uint64_t)1 << 32;
    for (int i = 0; i < 8; i++) {
        psti_rng rng;
        psti_rng_init(&rng, &keys[i % 7], i == 7 ? 9 : 8);
        first[i] = psti_rng_u64(&rng);
        for (int k = 0; k < i; k++)
            CHECKF(first[i] != first[k], "%d and %d", i, k);
    }
    psti_rng again;
    psti_rng_init(&again, &base, 8);
    CHECK(psti_rng_u64(&again) == first[0]);
}

/* Frozen: what is drawn decides every crop. */
static void draws_are_the_ones_they_always_were(void)
{
    static const uint32_t known[6] = {0x3bba62d2, 0x1e0cc9aa, 0x5ff92773,
                                      0x095436ef, 0x005f4b5a, 0x7a4e19cf};
    const psti_rng_key key = {.seed = 42, .epoch = 3, .id = 1281166, .occurrence = 1, .view = 2};
    psti_rng rng;
    psti_rng_init(&rng, &key, 4);
    for (int i = 0; i < 6; i++) {
        const uint32_t word = psti_rng_u32(&rng);
        CHECKF(word == known[i], "word %d: 0x%08x", i, word);
    }
}

static void draws_stay_in_range_and_are_even(void)
{
    const psti_rng_key key = {.seed = 7};
    psti_rng rng;
    int seen[10] = {0};
    double sum = 0;
    psti_rng_init(&rng, &key, 0);
    for (int i = 0; i < 100000; i++) {
        const uint64_t below = psti_rng_below(&rng, 10);
        const double unit = psti_rng_unit(&rng), range = psti_rng_range(&rng, -2, 3);
        CHECK(below < 10 && unit >= 0 && unit < 1 && range >= -2 && range < 3);
        seen[below % 10]++;
        sum += unit;
    }
    for (int i = 0; i < 10; i++)
        CHECKF(abs(seen[i] - 10000) < 500, "%d: %d", i, seen[i]);
    CHECK(fabs(sum / 100000 - 0.5) < 0.005);
    CHECK(psti_rng_below(&rng, 1) == 0);
}

/* ---- checksum -------------------------------------------------------------------------------- */

static void check_crc(const void *bytes, size_t size, uint32_t want)
{
    CHECKF(pst_crc32c(0, bytes, size) == want, "%08x", pst_crc32c(0, bytes, size));
    CHECK(~by_table(~0u, bytes, size) == want);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        CHECK(~by_cpu(~0u, bytes, size) == want);
#endif
}

/* RFC 3720, B.4, and the customary check value. */
static void crc32c_matches_the_published_vectors_either_way(void)
{
    uint8_t bytes[32];
    check_crc("123456789", 9, 0xe3069283);
    check_crc("", 0, 0);
    memset(bytes, 0, sizeof bytes);
    check_crc(bytes, 32, 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    check_crc(bytes, 32, 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    check_crc(bytes, 32, 0x46dd794e);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(31 - i);
    check_crc(bytes, 32, 0x113fdb5c);
}

static void crc32c_chains_and_the_two_ways_agree(void)
{
    uint8_t bytes[300];
    for (int i = 0; i < 300; i++)
        bytes[i] = (uint8_t)(i * i + 3 * i);
    const uint32_t whole = pst_crc32c(0, bytes, 300);
    for (size_t cut = 0; cut <= 300; cut++) {
        CHECK(pst_crc32c(pst_crc32c(0, bytes, cut), bytes + cut, 300 - cut) == whole);
        CHECK(~by_table(~0u, bytes, cut) == pst_crc32c(0, bytes, cut));
    }
}

/* Long enough that the CPU's way takes several stretches at a time. */
static void crc32c_of_parts_joins_to_that_of_the_whole(void)
{
    enum { SIZE = 20000 };
    static uint8_t bytes[SIZE];
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    check_crc(bytes, SIZE, ~by_table(~0u, bytes, SIZE));
    for (size_t cut = 0; cut <= SIZE; cut += cut < 20 ? 1 : 997) {
        const uint32_t first = pst_crc32c(0, bytes, cut);
        const uint32_t second = pst_crc32c(0, bytes + cut, SIZE - cut);
        check_crc(bytes, cut, ~by_table(~0u, bytes, cut));
        CHECK(pst_crc32c(first, bytes + cut, SIZE - cut) == pst_crc32c(0, bytes, SIZE));
        CHECK(psti_crc32c_join(first, second, psti_crc32c_power(SIZE - cut)) ==
              pst_crc32c(0, bytes, SIZE));
    }
}

/* ---- budget and histogram -------------------------------------------------------------------- */

static void a_budget_gives_no_more_than_it_has(void)
{
    psti_budget b;
    psti_budget_init(&b, 100);
    CHECK(psti_budget_try(&b, 60) && !psti_budget_try(&b, 41) && psti_budget_try(&b, 40));
    CHECK(!psti_budget_try(&b, 1) && psti_budget_try(&b, 0));
    CHECK(!psti_budget_try(&b, UINT64_MAX));
    psti_budget_give(&b, 60);
    CHECK(psti_budget_used(&b) == 40 && psti_budget_peak(&b) == 100);
    psti_budget_force(&b, 90);
    CHECK(psti_budget_used(&b) == 130 && psti_budget_peak(&b) == 130);
    CHECK(!psti_budget_try(&b, 0) && !psti_budget_try(&b, 1));
    psti_budget_give(&b, 130);
    CHECK(psti_budget_used(&b) == 0 && psti_budget_try(&b, 100));
    psti_budget_fini(&b);
}

static void quantiles_are_right_within_6_percent(void)
{
    static psti_hist h;
    CHECK(psti_hist_quantile(&h, 0.5) == 0);
    for (uint64_t i = 1; i <= 100000; i++)
        psti_hist_add(&h, i * 37);
    CHECK(h.count == 100000);
    for (int q = 1; q <= 100; q++) {
        const double want = q * 1000 * 37.0, got = (double)psti_hist_quantile(&h, q / 100.0);
        CHECKF(fabs(got - want) <= 0.0625 * want, "q = %d %%: %.0f, not %.0f", q, got, want);
    }
    memset(&h, 0, sizeof h);
    psti_hist_add(&h, 0);
    psti_hist_add(&h, 15);
    psti_hist_add(&h, UINT64_MAX);
    CHECK(psti_hist_quantile(&h, 0) == 0 && psti_hist_quantile(&h, 0.5) == 15);
    CHECK(psti_hist_quantile(&h, 1) >= UINT64_MAX / 16 * 15);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t live(psti_tag tag)
{
    psti_mem_stats stats;
    psti_mem_stats_get(tag, &stats);
    return stats.live_bytes;
}

static void memory_is_counted_by_tag(void)
{
    psti_mem_stats before, after;
    psti_mem_stats_get(PSTI_MEM_OP, &before);
    char *a = psti_malloc(PSTI_MEM_OP, 100), *b = psti_calloc(PSTI_MEM_OP, 10, 5);
    char *c = psti_strdup(PSTI_MEM_CODEC, "abc");
    void *pages = psti_pages_alloc(PSTI_MEM_OP, 10000);
    psti_mem_stats_get(PSTI_MEM_OP, &after);
    CHECK(after.live == before.live + 3 && after.live_bytes == before.live_bytes + 10150);
    CHECK(b[49] == 0 && strcmp(c, "abc") == 0 && ((char *)pages)[9999] == 0);
    memset(a, 7, 100);
    a = psti_realloc(PSTI_MEM_OP, a, 50, 10);
    CHECK(a[99] == 7 && live(PSTI_MEM_OP) == before.live_bytes + 10550);
    psti_free(a);
    psti_free(b);
    psti_free(c);
    psti_free(NULL);
    psti_pages_free(PSTI_MEM_OP, pages, 10000);
    psti_mem_stats_get(PSTI_MEM_OP, &after);
    CHECK(after.live == before.live && after.live_bytes == before.live_bytes);
    CHECK(after.allocs == before.allocs + 4);
}

static void sizes_that_overflow_are_refused(void)
{
    psti_buf buf = {0};
    CHECK(!psti_malloc(PSTI_MEM_CORE, SIZE_MAX - 3));
    CHECK(!psti_calloc(PSTI_MEM_CORE, SIZE_MAX / 2, 3));
    CHECK(!psti_realloc(PSTI_MEM_CORE, NULL, SIZE_MAX / 2, 3));
    CHECK(psti_buf_need(PSTI_MEM_CORE, &buf, SIZE_MAX - 10) == -ENOMEM);
    /* Where the spare room on top would pass the end: 8/9 of everything. */
    CHECK(psti_buf_need(PSTI_MEM_CORE, &buf, (size_t)0xe38e38e38e38e38eu) == -ENOMEM);
    CHECK(!buf.data && buf.cap == 0);
    psti_buf_free(&buf);
}

static void a_buffer_grows_and_has_room_to_read_past(void)
{
    psti_buf buf = {0};
    CHECK(psti_buf_need(PSTI_MEM_CORE, &buf, 100) == 0 && buf.cap >= 164);
    uint8_t *const first = buf.data;
    CHECK(psti_buf_need(PSTI_MEM_CORE, &buf, 50) == 0 && buf.data == first);
    CHECK(psti_buf_need(PSTI_MEM_CORE, &buf, 5000) == 0 && buf.cap >= 5064);
    psti_mem_fail_at(1, false);
    CHECK(psti_buf_need(PSTI_MEM_CORE, &buf, 50000) == -ENOMEM && !buf.data && buf.cap == 0);
    psti_mem_fail_at(0, false);
    psti_buf_free(&buf);
}

static void allocations_fail_on_demand(void)
{
    void *m[6];
    psti_mem_fail_at(3, false);
    for (int i = 0; i < 6; i++)
        m[i] = i % 2 ? psti_calloc(PSTI_MEM_CORE, 1, 8) : psti_malloc(PSTI_MEM_CORE, 8);
    for (int i = 0; i < 6; i++) {
        CHECKF((m[i] == NULL) == (i == 2), "%d", i);
        psti_free(m[i]);
    }
    psti_mem_fail_at(2, true);
    char *text = psti_strdup(PSTI_MEM_CORE, "x");
    CHECK(text && !psti_realloc(PSTI_MEM_CORE, text, 10, 1) && text[0] == 'x');
    CHECK(!psti_malloc(PSTI_MEM_CORE, 1) && !psti_calloc(PSTI_MEM_CORE, 1, 1));
    CHECK(!psti_pages_alloc(PSTI_MEM_CORE, 1) && !psti_strdup(PSTI_MEM_CORE, "y"));
    psti_mem_fail_at(0, false);
    psti_free(text);
    text = psti_malloc(PSTI_MEM_CORE, 1);
    CHECK(text);
    psti_free(text);
}

/* ---- errors, log, types ---------------------------------------------------------------------- */

static void an_error_says_where_and_what(void)
{
    pst_error err;
    char text[1024];
    CHECK(psti_fail_at(&err, PST_ECORRUPT, "decode", "a/b.jpg", 77, "bad %d", 5) == PST_ECORRUPT);
    CHECK(err.code == PST_ECORRUPT && err.id == -1 && err.offset == 77);
    CHECK(pst_error_format(&err, text, sizeof text) == strlen(text));
    CHECKF(strcmp(text, "decode: a/b.jpg at byte 77: bad 5") == 0, "%s", text);
    psti_fail(&err, -ENOENT, NULL, NULL, "%s", "");
    pst_error_format(&err, text, sizeof text);
    CHECKF(strcmp(text, "No such file or directory") == 0, "%s", text);
    psti_fail_at(&err, -EIO, "read", NULL, 3, "x");
    pst_error_format(&err, text, sizeof text);
    CHECKF(strcmp(text, "read: at byte 3: x") == 0, "%s", text);
    CHECK(pst_error_format(&err, text, 6) == 18 && strcmp(text, "read:") == 0);
    CHECK(psti_fail(NULL, -EINVAL, "x", "y", "z") == -EINVAL);
}

static void a_long_or_odd_key_is_made_safe(void)
{
    pst_error err;
    char key[600];
    memset(key, 'a', 599);
    key[599] = 0;
    memcpy(key, "head", 4);
    memcpy(key + 595, "tail", 4);
    psti_fail(&err, -EIO, "read", key, "x");
    CHECK(strlen(err.key) == sizeof err.key - 1 && strncmp(err.key, "head", 4) == 0);
    CHECK(strcmp(err.key + strlen(err.key) - 4, "tail") == 0 && strstr(err.key, "a...a"));
    psti_fail(&err, -EIO, "read", "a\nb\x7f\x1b[0m", "x");
    CHECKF(strcmp(err.key, "a?b??[0m") == 0, "%s", err.key);
    /* C1 (CSI), turned around, invisible, stray, cut, overlong; what just shows itself stays. */
    psti_fail(&err, -EIO, "read",
              "\xc2\x9b"
              "2J.\xe2\x80\xae.\xe2\x80\x8b.\x9b"
              "1m.\xe5\x86.\xc0\xaf.",
              "x");
    CHECK(strcmp(err.key, "?2J.?.?.?1m.?.?.") == 0);
    psti_fail(&err, -EIO, "read", "\xe5\x86\x99/\xc3\xbc\xf0\x9f\x8c\x8a.jpg", "x");
    CHECK(strcmp(err.key, "\xe5\x86\x99/\xc3\xbc\xf0\x9f\x8c\x8a.jpg") == 0);
}

static void every_code_has_a_text(void)
{
#define PST_X(name, code, text) CHECK(name == code && strcmp(pst_strerror(code), text) == 0);
    PST_ERROR_LIST(PST_X)
#undef PST_X
    CHECK(strcmp(pst_strerror(0), "no error") == 0);
    CHECK(strcmp(pst_strerror(-ENOMEM), "Cannot allocate memory") == 0);
    CHECK(strcmp(pst_strerror(-999), "unknown error") == 0 && pst_strerror(17) != NULL);
    CHECK(strcmp(pst_strerror(-5000), "unknown error") == 0);
}

static char said[64];
static void listen(int level, const char *text, void *user)
{
    snprintf(said, sizeof said, "%d %s %s", level, text, (const char *)user);
}

static void notices_go_where_they_were_sent(void)
{
    pst_log_set(listen, "there");
    psti_log(PSTI_LOG_WARN, "n = %d", 4);
    CHECKF(strcmp(said, "1 n = 4 there") == 0, "%s", said);
    pst_log_set(NULL, NULL);
    psti_log(PSTI_LOG_WARN, "lost");
    CHECK(strcmp(said, "1 n = 4 there") == 0);
}

static void types_have_sizes_and_names(void)
{
    CHECK(pst_dtype_bytes(PST_F32) == 4 && pst_dtype_bytes(PST_BOOL) == 1);
    CHECK(pst_dtype_bytes(0) == 0 && pst_dtype_bytes(12) == 0 && pst_dtype_bytes(-1) == 0);
    for (int t = PST_U8; t <= PST_BOOL; t++) {
        const char *name = psti_dtype_name(t);
        CHECK(psti_dtype_bytes(t) > 0 && psti_dtype_of_name(name, strlen(name)) == t);
    }
    CHECK(psti_dtype_of_name("float16", 7) == PST_F16 && psti_dtype_of_name("float1", 6) == 0);
    CHECK(strcmp(psti_cpu_name(psti_cpu_level()), "") != 0);
}

int main(void)
{
    RUN(siphash_matches_the_published_vectors);
    RUN(a_hash_in_pieces_is_the_hash_of_the_whole);
    RUN(text_is_framed_and_numbers_are_little_endian);
    RUN(philox_gives_the_known_answers);
    RUN(every_part_of_the_key_changes_the_draws);
    RUN(draws_are_the_ones_they_always_were);
    RUN(draws_stay_in_range_and_are_even);
    RUN(crc32c_matches_the_published_vectors_either_way);
    RUN(crc32c_chains_and_the_two_ways_agree);
    RUN(crc32c_of_parts_joins_to_that_of_the_whole);
    RUN(a_budget_gives_no_more_than_it_has);
    RUN(quantiles_are_right_within_6_percent);
    RUN(memory_is_counted_by_tag);
    RUN(sizes_that_overflow_are_refused);
    RUN(a_buffer_grows_and_has_room_to_read_past);
    RUN(allocations_fail_on_demand);
    RUN(an_error_says_where_and_what);
    RUN(a_long_or_odd_key_is_made_safe);
    RUN(every_code_has_a_text);
    RUN(notices_go_where_they_were_sent);
    RUN(types_have_sizes_and_names);
    return check_report();
}
