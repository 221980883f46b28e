/* SPDX-License-Identifier: Apache-2.0
 * Crop decode against full decode: the same bytes and, for damaged files, the same verdict.
 * Pictures are made here; ids are the seeds. */
#include <stdlib.h>

#include "carry.h"
#include "check.h"
#include "core/memory.h"
#include "pictures.h"

static const psti_plan_input image = {.name = "image", .kind = PST_IMAGE, .encoded = true};
static psti_kit kit_a, kit_b;
static psti_work *work;

/* ---- crop decode ----------------------------------------------------------------------------- */

/* Both ways of decoding give the same bytes and, for damaged files, the same verdict. Returns how
 * many were refused. */
static int compare_paths(const char *text, const uint8_t *bytes, size_t size, uint64_t first,
                         uint64_t ids)
{
    psti_plan *crop = plan_make(text, &image, 1, false), *full = plan_make(text, &image, 1, true);
    const sample in = sample_of(bytes, size);
    int bad = 0;
    CHECK(crop && full);
    for (uint64_t id = first; crop && full && id < first + ids; id++) {
        result a = carry_one(crop, work, &kit_a, &in, id),
               b = carry_one(full, work, &kit_a, &in, id);
        CHECKF(result_equal(&a, &b), "%s, id %llu: %d and %d: %s", text, (unsigned long long)id,
               a.rc, b.rc, a.rc < 0 ? a.err.message : b.err.message);
        bad += a.rc < 0;
        result_free(&a);
        result_free(&b);
    }
    psti_plan_free(crop);
    psti_plan_free(full);
    return bad;
}

static const char *const crops[] = {
    "decode | random_resized_crop(64) | hflip | normalize(imagenet)",
    "decode | random_crop(70)",
    "decode | center_crop((33, 61)) | to(f16, nchw)",
    "decode(gray) | random_crop((90, 40), padding=0)",
    "decode | normalize(half) | center_crop(50)",
};

static void crop_decode_equals_full_decode(void)
{
    for (uint32_t seed = 0; seed < 6; seed++) {
        size_t size;
        uint8_t *jpeg =
            jpeg_make(131 + 17 * (int)seed, 203 - 13 * (int)seed, seed, seed % 3 == 2, &size);
        for (size_t i = 0; i < sizeof crops / sizeof *crops; i++)
            CHECK(compare_paths(crops[i], jpeg, size, seed * 100, 20) == 0);
        free(jpeg);
    }
}

static void crop_decode_is_really_used(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(600, 800, 1, false, &size);
    psti_plan *crop = plan_make("decode | hflip(0) | center_crop(64)", &image, 1, false);
    psti_plan *full = plan_make("decode | center_crop(64)", &image, 1, true);
    const psti_rng_key key = {0};
    const psti_input in = {jpeg, size, -1};
    psti_work *one = psti_work_new(), *two = psti_work_new();
    CHECK(psti_work_start(one, &kit_a, crop, &key, &in, NULL) == 0);
    CHECK(psti_work_start(two, &kit_b, full, &key, &in, NULL) == 0);
    CHECKF(psti_work_need(one) * 4 < psti_work_need(two), "%zu %zu", psti_work_need(one),
           psti_work_need(two));
    CHECK(psti_work_step(one, &kit_a, NULL) == 1 && psti_work_step(two, &kit_b, NULL) == 1);
    CHECK(psti_work_field(one, 0)->shape[0] < 200 && psti_work_field(one, 0)->whole_rows == 600);
    CHECK(psti_work_field(two, 0)->shape[0] == 600);
    psti_work_free(one);
    psti_work_free(two);
    psti_plan_free(crop);
    psti_plan_free(full);
    free(jpeg);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void cut_files_get_the_same_verdict_on_both_paths(void)
{
    int bad = 0, all = 0;
    for (int progressive = 0; progressive < 2; progressive++) {
        size_t size;
        uint8_t *jpeg = jpeg_make(160, 120, 5, progressive, &size);
        for (size_t cut = size; cut > size / 3; cut -= cut > 40 ? cut / 40 : 1) {
            bad += compare_paths("decode | random_crop(40)", jpeg, cut, cut, 4);
            bad += compare_paths("decode | random_resized_crop(32)", jpeg, cut, cut, 4);
            all += 8;
        }
        free(jpeg);
    }
    CHECKF(bad > 0 && bad < all, "%d of %d refused", bad, all);
}

static void changed_bytes_get_the_same_verdict_on_both_paths(void)
{
    for (int progressive = 0; progressive < 2; progressive++) {
        size_t size;
        uint8_t *jpeg = jpeg_make(160, 120, 5, progressive, &size);
        for (uint32_t i = 0; i < 120; i++) {
            const size_t at = size / 8 + (size_t)(i * 2654435761u) % (size * 7 / 8);
            const uint8_t kept = jpeg[at];
            jpeg[at] = i % 3 ? (uint8_t)(kept ^ (1u << i % 8)) : 0xff;
            compare_paths("decode | random_crop(40)", jpeg, size, i, 2);
            jpeg[at] = kept;
        }
        free(jpeg);
    }
}

static void damage_below_the_used_rows_does_no_harm(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(400, 64, 9, false, &size);
    const sample in = sample_of(jpeg, size / 2);
    psti_plan *whole = plan_make("decode", &image, 1, false);
    result r = carry_one(whole, work, &kit_a, &in, 0);
    CHECK(r.rc == PST_ECORRUPT && r.err.code == PST_ECORRUPT && strcmp(r.err.stage, "decode") == 0);
    CHECKF(strstr(r.err.message, "rows are damaged from") != NULL, "%s", r.err.message);
    result_free(&r);
    /* A crop of the middle ends near row 212 of 400; half of the bytes reach about as far. Cut more
     * and less. */
    psti_plan *middle = plan_make("decode | center_crop((24, 24))", &image, 1, false);
    const sample more = sample_of(jpeg, size * 4 / 5), less = sample_of(jpeg, size * 1 / 5);
    result good = carry_one(middle, work, &kit_a, &more, 0),
           bad = carry_one(middle, work, &kit_a, &less, 0);
    CHECK(good.rc == 0 && bad.rc == PST_ECORRUPT);
    const sample sound = sample_of(jpeg, size);
    result reference = carry_one(middle, work, &kit_a, &sound, 0);
    CHECK(result_equal(&good, &reference));
    CHECKF(good.damage > 220 && good.damage < 400 && reference.damage == -1, "%lld %lld",
           (long long)good.damage, (long long)reference.damage);
    result_free(&good);
    result_free(&bad);
    result_free(&reference);
    psti_plan_free(whole);
    psti_plan_free(middle);
    free(jpeg);
}

static void a_remembered_verdict_is_the_verdict(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(300, 80, 11, false, &size);
    psti_plan *plan = plan_make("decode | random_crop(40)", &image, 1, false);
    sample in = sample_of(jpeg, size * 2 / 3), again = in;
    int bad = 0;
    for (uint64_t id = 0; id < 40; id++) {
        result first = carry_one(plan, work, &kit_a, &in, id);
        CHECK(first.damage > 0 && first.damage < 300);
        again.known[0] = first.damage;
        result second = carry_one(plan, work, &kit_a, &again, id);
        CHECK(result_equal(&first, &second) && second.damage == -1);
        CHECK(first.rc == 0 || strcmp(first.err.message, second.err.message) == 0);
        bad += first.rc < 0;
        result_free(&first);
        result_free(&second);
    }
    CHECKF(bad > 0 && bad < 40, "%d of 40 refused", bad);
    psti_plan_free(plan);
    free(jpeg);
}

static void a_bad_sample_does_not_touch_the_next(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(150, 150, 3, false, &size);
    psti_plan *plan = plan_make("decode | random_resized_crop(48) | hflip", &image, 1, false);
    const sample good = sample_of(jpeg, size), bad = sample_of(jpeg, size / 3),
                 text = sample_of((const uint8_t *)"not a picture", 13);
    result before = carry_one(plan, work, &kit_a, &good, 5);
    result broken = carry_one(plan, work, &kit_a, &bad, 6),
           wrong = carry_one(plan, work, &kit_a, &text, 7);
    result after = carry_one(plan, work, &kit_a, &good, 5);
    CHECK(before.rc == 0 && wrong.rc < 0 && result_equal(&before, &after));
    CHECK(strcmp(wrong.err.stage, "decode") == 0 && wrong.err.code == wrong.rc);
    result_free(&before);
    result_free(&broken);
    result_free(&wrong);
    result_free(&after);
    psti_plan_free(plan);
    free(jpeg);
}

static void nothing_is_left_behind(void)
{
    psti_mem_stats stats;
    psti_mem_stats_total(&stats);
    CHECKF(stats.live == 0, "%llu blocks", (unsigned long long)stats.live);
}

int main(void)
{
    work = psti_work_new();
    if (!work || psti_kit_init(&kit_a) < 0 || psti_kit_init(&kit_b) < 0)
        return 1;
    RUN(crop_decode_equals_full_decode);
    RUN(crop_decode_is_really_used);
    RUN(cut_files_get_the_same_verdict_on_both_paths);
    RUN(changed_bytes_get_the_same_verdict_on_both_paths);
    RUN(damage_below_the_used_rows_does_no_harm);
    RUN(a_remembered_verdict_is_the_verdict);
    RUN(a_bad_sample_does_not_touch_the_next);
    psti_work_free(work);
    psti_kit_fini(&kit_a);
    psti_kit_fini(&kit_b);
    RUN(nothing_is_left_behind);
    return check_report();
}
