/* SPDX-License-Identifier: Apache-2.0
 * Carrying samples out: draws, image and mask together, any kit at any stage, what passes through,
 * memory. Pictures are made here; ids are the seeds. */
#include <errno.h>
#include <stdlib.h>

#include "carry.h"
#include "check.h"
#include "core/memory.h"
#include "pictures.h"

static const psti_plan_input image = {.name = "image", .kind = PST_IMAGE, .encoded = true};
static const psti_plan_input both[] = {{.name = "image", .kind = PST_IMAGE, .encoded = true},
                                       {.name = "mask", .kind = PST_MASK, .encoded = true}};

static psti_kit kit_a, kit_b;
static psti_work *work;

/* ---- randomness ------------------------------------------------------------------------------ */

static void draws_belong_to_the_sample(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(200, 170, 4, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *plan =
        plan_make("decode | random_resized_crop(40) | hflip | vflip", &image, 1, false);
    psti_work *other = psti_work_new();
    psti_kit *const turns[] = {&kit_b, &kit_a};
    int different = 0;
    for (uint64_t id = 0; id < 50; id++) {
        result one = carry_one(plan, work, &kit_a, &in, id),
               next = carry_one(plan, work, &kit_a, &in, id + 1), two;
        carry(plan, other, turns, 2, &in, id, &two, 1);
        CHECK(one.rc == 0 && result_equal(&one, &two));
        different += !result_equal(&one, &next);
        result_free(&one);
        result_free(&two);
        result_free(&next);
    }
    CHECKF(different == 50, "%d", different);
    psti_work_free(other);
    psti_plan_free(plan);
    free(jpeg);
}

static void an_op_keeps_its_place_when_it_is_lowered(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(60, 60, 8, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *after = plan_make("decode | normalize(half) | hflip", &image, 1, false);
    psti_plan *same_place =
        plan_make("decode | hflip(0) | hflip | normalize(half)", &image, 1, false);
    psti_plan *other_place = plan_make("decode | hflip | normalize(half)", &image, 1, false);
    int differs = 0;
    for (uint64_t id = 0; id < 32; id++) {
        result a = carry_one(after, work, &kit_a, &in, id),
               b = carry_one(same_place, work, &kit_a, &in, id),
               c = carry_one(other_place, work, &kit_a, &in, id);
        CHECK(result_equal(&a, &b));
        differs += !result_equal(&a, &c);
        result_free(&a);
        result_free(&b);
        result_free(&c);
    }
    CHECK(differs > 0);
    psti_plan_free(after);
    psti_plan_free(same_place);
    psti_plan_free(other_place);
    free(jpeg);
}

/* ---- image and mask -------------------------------------------------------------------------- */

/* The mask moves with the image and keeps its values; one channel comes out where three went in. */
static void colors_leave_the_mask_alone(void)
{
    sample in = {.known = {-1, -1, -1, -1}};
    uint8_t *picture = png_make(90, 120, 3, 8, &in.size[0]),
            *mask = png_make(90, 120, 1, 8, &in.size[1]);
    in.bytes[0] = picture;
    in.bytes[1] = mask;
    psti_plan *plan = picture ? plan_make("decode | random_crop(40) | hflip | invert | grayscale | "
                                          "adjust_sharpness(1)",
                                          both, 2, false)
                              : NULL;
    psti_kit *kit = &kit_a;
    for (uint64_t id = 0; plan && id < 10; id++) {
        result r[2];
        carry(plan, work, &kit, 1, &in, id, r, 2);
        CHECK(r[0].rc == 0 && r[0].shape[2] == 1 && r[0].bytes == 1600 && r[1].bytes == 1600);
        bool right = true;
        for (size_t i = 0; r[0].rc == 0 && i < 1600; i++)
            right = right && r[0].data[i] == 255 - r[1].data[i];
        CHECK(right);
        result_free(&r[0]);
        result_free(&r[1]);
    }
    psti_plan_free(plan);
    free(picture);
    free(mask);
}

/* Image and mask hold the same slope; after the same geometry they must still agree within `apart`.
 */
static void check_aligned(const char *text, int apart)
{
    sample in = {.known = {-1, -1, -1, -1}};
    uint8_t *picture = png_make(90, 120, 3, 8, &in.size[0]),
            *mask = png_make(90, 120, 1, 8, &in.size[1]);
    if (!picture) {
        printf("     (PNG is not built in: skipped)\n");
        return;
    }
    in.bytes[0] = picture;
    in.bytes[1] = mask;
    psti_plan *plan = plan_make(text, both, 2, false);
    psti_kit *kit = &kit_a;
    CHECK(plan != NULL);
    for (uint64_t id = 0; plan && id < 25; id++) {
        result r[2];
        carry(plan, work, &kit, 1, &in, id, r, 2);
        CHECKF(r[0].rc == 0, "%s: %s", text, r[0].err.message);
        CHECK(r[0].shape[0] == r[1].shape[0] && r[0].shape[1] == r[1].shape[1] &&
              r[0].bytes == 3 * r[1].bytes);
        int worst = 0;
        for (size_t i = 0; r[0].rc == 0 && i < r[1].bytes; i++) {
            const int d = abs((int)r[0].data[3 * i] - (int)r[1].data[i]);
            worst = d > worst ? d : worst;
        }
        CHECKF(worst <= apart, "%s, id %llu: %d apart", text, (unsigned long long)id, worst);
        result_free(&r[0]);
        result_free(&r[1]);
    }
    psti_plan_free(plan);
    free(picture);
    free(mask);
}

static void image_and_mask_move_together(void)
{
    check_aligned("decode", 0);
    check_aligned("decode | hflip | vflip", 0);
    check_aligned("decode | random_crop(40) | hflip", 0);
    check_aligned("decode | random_crop(100, padding=20) | vflip", 0);
    check_aligned("decode | random_resized_crop(64) | hflip", 3);
    check_aligned("image: decode ; mask: decode ; resize(60) | center_crop(50)", 3);
}

static void one_field_alone_may_be_moved(void)
{
    sample in = {.known = {-1, -1, -1, -1}};
    uint8_t *picture = png_make(90, 120, 3, 8, &in.size[0]),
            *mask = png_make(45, 60, 1, 16, &in.size[1]);
    if (!picture)
        return;
    in.bytes[0] = picture;
    in.bytes[1] = mask;
    psti_kit *kit = &kit_a;
    result r[2];
    psti_plan *plan =
        plan_make("decode ; image: resize((45, 60)) ; mask: to(i64) ; hflip", both, 2, false);
    carry(plan, work, &kit, 1, &in, 1, r, 2);
    CHECKF(r[0].rc == 0 && r[1].shape[0] == 45 && r[1].bytes == 45 * 60 * 8, "%s",
           r[0].err.message);
    int64_t first = -1;
    if (r[1].data)
        memcpy(&first, r[1].data + 8 * 59 * (r[0].data[0] > 40), 8);
    CHECKF(first == 0, "%lld", (long long)first);
    result_free(&r[0]);
    result_free(&r[1]);
    psti_plan_free(plan);
    /* Without the resize the sizes differ: both are named. */
    plan = plan_make("decode ; mask: to(u16) ; hflip(1)", both, 2, false);
    carry(plan, work, &kit, 1, &in, 1, r, 2);
    CHECK(r[0].rc == PST_EFIELD && strstr(r[0].err.message, "90 x 120") &&
          strstr(r[0].err.message, "45 x 60"));
    CHECK(strcmp(r[0].err.stage, "hflip") == 0);
    psti_plan_free(plan);
    /* 16 bits do not fit where the data promised 8. */
    plan = plan_make("decode", both, 2, false);
    carry(plan, work, &kit, 1, &in, 1, r, 2);
    CHECKF(r[0].rc == PST_EFIELD && strstr(r[0].err.message, "mask: to(u16)"), "%s",
           r[0].err.message);
    psti_plan_free(plan);
    free(picture);
    free(mask);
}

/* ---- what passes through --------------------------------------------------------------------- */

/* A picture, a text, an array of 2 x 3 and a label. */
static const psti_plan_input four[] = {{.name = "image", .kind = PST_IMAGE, .encoded = true},
                                       {.name = "text", .kind = PST_TEXT},
                                       {.name = "array",
                                        .kind = PST_ARRAY,
                                        .encoded = true,
                                        .dtype = PST_F32,
                                        .rank = 2,
                                        .shape = {-1, 3}},
                                       {.name = "label", .kind = PST_LABEL, .dtype = PST_I64}};
static const float values[6] = {1, 2, 3, 4, 5, 6};
static const int64_t label = 42;

/* Returns the JPEG, to be freed. array: 512 bytes that take the array's file. */
static uint8_t *make_four(sample *in, uint8_t *array)
{
    const int64_t shape[2] = {2, 3};
    size_t size;
    uint8_t *jpeg = jpeg_make(20, 30, 1, false, &size);
    const size_t header = psti_npy_header(PST_F32, 2, shape, array, 512);
    memcpy(array + header, values, sizeof values);
    *in = (sample){.bytes = {jpeg, (const uint8_t *)"hello", array, (const uint8_t *)&label},
                   .size = {size, 5, header + sizeof values, 8},
                   .known = {-1, -1, -1, -1}};
    return jpeg;
}

static void other_fields_pass_through(void)
{
    uint8_t array[512];
    sample in;
    uint8_t *jpeg = make_four(&in, array);
    psti_kit *kit = &kit_a;
    result r[4];
    psti_plan *plan = plan_make("bytes", four, 4, false);
    carry(plan, work, &kit, 1, &in, 0, r, 4);
    CHECK(r[0].rc == 0 && r[0].bytes == in.size[0] && memcmp(r[0].data, jpeg, in.size[0]) == 0);
    CHECK(r[0].shape[0] == (int64_t)in.size[0]);
    CHECK(r[1].bytes == 5 && r[1].shape[0] == 5 && memcmp(r[1].data, "hello", 5) == 0);
    CHECK(r[2].bytes == sizeof values && r[2].shape[0] == 2);
    CHECK(memcmp(r[2].data, values, sizeof values) == 0);
    CHECK(r[3].bytes == 8 && memcmp(r[3].data, &label, 8) == 0);
    for (int i = 0; i < 4; i++)
        result_free(&r[i]);
    psti_plan_free(plan);
    free(jpeg);
}

static void only_pictures_may_not_be_missing(void)
{
    uint8_t array[512];
    sample in;
    uint8_t *jpeg = make_four(&in, array);
    psti_kit *kit = &kit_a;
    result r[4];
    psti_plan *plan = plan_make("decode", four, 4, false);
    in.bytes[1] = in.bytes[2] = in.bytes[3] = NULL;
    carry(plan, work, &kit, 1, &in, 0, r, 4);
    CHECK(r[1].rc == 0 && r[1].bytes == 0 && r[1].shape[0] == 0 && r[3].bytes == 0);
    CHECK(r[2].bytes == 0 && r[2].shape[0] == 0);
    for (int i = 0; i < 4; i++)
        result_free(&r[i]);
    in.bytes[0] = NULL;
    carry(plan, work, &kit, 1, &in, 0, r, 4);
    CHECK(r[0].rc == PST_EFIELD && strstr(r[0].err.message, "no field image"));
    in.bytes[0] = jpeg;
    in.bytes[2] = (const uint8_t *)"no array";
    in.size[2] = 8;
    carry(plan, work, &kit, 1, &in, 0, r, 4);
    CHECK(r[0].rc < 0 && strcmp(r[0].err.stage, "decode") == 0);
    psti_plan_free(plan);
    free(jpeg);
}

static void an_array_must_be_what_the_data_says(void)
{
    psti_plan_input input = {
        .name = "a", .kind = PST_ARRAY, .encoded = true, .dtype = PST_F32, .rank = 1, .shape = {3}};
    uint8_t array[512] = {0};
    const int64_t shape[1] = {4};
    const size_t header = psti_npy_header(PST_F32, 1, shape, array, sizeof array);
    const sample in = sample_of(array, header + 16);
    psti_plan *plan = plan_make("decode", &input, 1, false);
    result r = carry_one(plan, work, &kit_a, &in, 0);
    CHECKF(r.rc == PST_EFIELD && strstr(r.err.message, "field a"), "%d %s", r.rc, r.err.message);
    psti_plan_free(plan);
    input.shape[0] = -1;
    plan = plan_make("decode", &input, 1, false);
    r = carry_one(plan, work, &kit_a, &in, 0);
    CHECK(r.rc == 0 && r.shape[0] == 4 && r.bytes == 16);
    result_free(&r);
    psti_plan_free(plan);
}

static void channels_that_normalize_does_not_have_are_refused(void)
{
    size_t size;
    uint8_t *png = png_make(10, 12, 1, 8, &size);
    if (!png)
        return;
    const sample in = sample_of(png, size);
    psti_plan *plan = plan_make("decode(keep) | normalize(imagenet)", &image, 1, false);
    result r = carry_one(plan, work, &kit_a, &in, 0);
    CHECKF(r.rc == PST_EFIELD && strstr(r.err.message, "1 channels, normalize has 3"), "%d %s",
           r.rc, r.err.message);
    psti_plan_free(plan);
    plan = plan_make("decode(keep) | normalize(half)", &image, 1, false);
    r = carry_one(plan, work, &kit_a, &in, 0);
    CHECK(r.rc == 0 && r.shape[0] == 1 && r.shape[1] == 10 && r.shape[2] == 12 && r.bytes == 480);
    float first = 0;
    if (r.data)
        memcpy(&first, r.data, 4);
    CHECK(first == -1.0f);
    result_free(&r);
    psti_plan_free(plan);
    free(png);
}

static void what_does_not_fit_a_picture_says_so(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(40, 50, 1, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *plan = plan_make("decode | random_crop(64)", &image, 1, false);
    result r = carry_one(plan, work, &kit_a, &in, 0);
    CHECK(r.rc < 0 && r.err.code == r.rc && strcmp(r.err.stage, "random_crop") == 0 &&
          r.err.message[0]);
    psti_plan_free(plan);
    plan = plan_make("decode | normalize(half) | center_crop(64)", &image, 1, false);
    r = carry_one(plan, work, &kit_a, &in, 0);
    CHECKF(r.rc == PST_EFIELD && strstr(r.err.message, "put center_crop before"), "%d %s", r.rc,
           r.err.message);
    psti_plan_free(plan);
    plan = plan_make("decode | resize((60000, 60000))", &image, 1, false);
    r = carry_one(plan, work, &kit_a, &in, 0);
    CHECKF(r.rc == PST_ELIMIT && strcmp(r.err.stage, "resize") == 0, "%d %s", r.rc, r.err.message);
    psti_plan_free(plan);
    free(jpeg);
}

/* ---- putting aside, memory ------------------------------------------------------------------- */

static void a_work_can_be_put_aside_at_any_stage(void)
{
    size_t sizes[2];
    uint8_t *jpegs[2] = {jpeg_make(120, 160, 1, false, &sizes[0]),
                         jpeg_make(160, 90, 2, false, &sizes[1])};
    psti_plan *plan = plan_make("decode | random_resized_crop(40) | vflip", &image, 1, false);
    psti_work *works[2] = {psti_work_new(), psti_work_new()};
    psti_kit *kits[2] = {&kit_a, &kit_b};
    for (uint64_t id = 0; id < 8; id++) {
        result expect[2], got[2];
        for (int i = 0; i < 2; i++) {
            const sample in = sample_of(jpegs[i], sizes[i]);
            expect[i] = carry_one(plan, work, &kit_a, &in, id);
        }
        /* Both start with kit a, so the first one's header is lost; then they change kits at every
         * step. */
        for (int i = 0; i < 2; i++) {
            const psti_rng_key key = {.seed = 7, .epoch = 1, .id = id};
            const psti_input in = {jpegs[i], sizes[i], -1};
            CHECK(psti_work_start(works[i], &kit_a, plan, &key, &in, NULL) == 0);
        }
        for (int step = 0; step < 3; step++)
            for (int i = 0; i < 2; i++)
                CHECK(psti_work_step(works[i], kits[(step + i + (int)id) % 2], NULL) == (step < 2));
        for (int i = 0; i < 2; i++) {
            got[i] = (result){.bytes = psti_work_shape(works[i], 0, got[i].shape)};
            got[i].data = malloc(got[i].bytes);
            psti_work_finish(works[i], kits[i], 0, got[i].data);
            CHECK(result_equal(&expect[i], &got[i]));
            result_free(&expect[i]);
            result_free(&got[i]);
        }
    }
    psti_plan_free(plan);
    for (int i = 0; i < 2; i++) {
        psti_work_free(works[i]);
        free(jpegs[i]);
    }
}

static void equal_counts_of_two_kits_are_told_apart(void)
{
    size_t sizes[2];
    uint8_t *jpegs[2] = {jpeg_make(50, 60, 1, false, &sizes[0]),
                         jpeg_make(70, 40, 2, false, &sizes[1])};
    psti_plan *plan = plan_make("decode", &image, 1, false);
    psti_work *works[2] = {psti_work_new(), psti_work_new()};
    psti_kit kits[2];
    for (int i = 0; i < 2; i++) {
        const psti_rng_key key = {0};
        const psti_input in = {jpegs[i], sizes[i], -1};
        CHECK(psti_kit_init(&kits[i]) == 0);
        CHECK(psti_work_start(works[i], &kits[i], plan, &key, &in, NULL) == 0);
    }
    CHECK(psti_work_step(works[0], &kits[1], NULL) == 0 &&
          psti_work_field(works[0], 0)->shape[0] == 50);
    CHECK(psti_work_step(works[1], &kits[0], NULL) == 0 &&
          psti_work_field(works[1], 0)->shape[0] == 70);
    psti_plan_free(plan);
    for (int i = 0; i < 2; i++) {
        psti_work_free(works[i]);
        psti_kit_fini(&kits[i]);
        free(jpegs[i]);
    }
}

static void need_covers_what_is_taken(void)
{
    static const char *const texts[] = {
        "decode", "decode | resize(300)", "decode | random_resized_crop(64) | vflip",
        "decode | pad(100) | resize((20, 900)) | center_crop(500) | hflip(1)",
        "decode | views(1: hflip(1), 3: resize(300) | vflip(1), 2: random_crop(50)) | hflip(1)"};
    size_t size;
    uint8_t *jpeg = jpeg_make(333, 444, 6, true, &size);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        psti_plan *plan = plan_make(texts[i], &image, 1, false);
        psti_kit kit;
        CHECK(psti_kit_init(&kit) == 0);
        psti_work *fresh = psti_work_new();
        const size_t base = psti_work_bytes(fresh, &kit);
        const psti_rng_key key = {.id = 3};
        const psti_input in = {jpeg, size, -1};
        CHECK(psti_work_start(fresh, &kit, plan, &key, &in, NULL) == 0);
        const size_t need = psti_work_need(fresh), before = psti_work_bytes(fresh, &kit);
        const size_t bare = psti_work_bytes(fresh, NULL);
        int rc = 1;
        while (rc > 0) {
            rc = psti_work_step(fresh, &kit, NULL);
            const size_t taken = psti_work_bytes(fresh, &kit) - before;
            CHECKF(taken <= need, "%s: %zu of %zu", texts[i], taken, need);
            CHECK(psti_work_need(fresh) <= need);
        }
        CHECK(rc == 0 && before - base < 100000);
        /* With nothing left to do it is the buffers alone. */
        CHECK(psti_work_need(fresh) >= psti_work_bytes(fresh, NULL) - bare);
        /* Held memory is given back down to what may stay. */
        const size_t held = psti_work_bytes(fresh, &kit);
        psti_work_clear(fresh, &kit, held);
        CHECK(psti_work_bytes(fresh, &kit) == held);
        psti_work_clear(fresh, &kit, 20000);
        CHECK(psti_work_bytes(fresh, &kit) < 48000 && psti_work_need(fresh) == 0);
        psti_work_free(fresh);
        psti_kit_fini(&kit);
        psti_plan_free(plan);
    }
    free(jpeg);
}

static void nothing_is_allocated_once_buffers_are_warm(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(300, 200, 2, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *plan = plan_make(
        "decode | resize(280) | random_crop(224) | hflip | normalize(imagenet)", &image, 1, false);
    psti_mem_stats warm, after;
    for (uint64_t id = 0; id < 60; id++) {
        result r = carry_one(plan, work, &kit_a, &in, id);
        CHECK(r.rc == 0);
        result_free(&r);
        if (id == 20)
            psti_mem_stats_total(&warm);
    }
    psti_mem_stats_total(&after);
    CHECKF(after.allocs == warm.allocs, "%llu more",
           (unsigned long long)(after.allocs - warm.allocs));
    psti_plan_free(plan);
    free(jpeg);
}

static void stages_are_timed(void)
{
    const psti_plan_input inputs[] = {{.name = "text", .kind = PST_TEXT},
                                      {.name = "image", .kind = PST_IMAGE, .encoded = true}};
    sample in = {.bytes = {(const uint8_t *)"abc"}, .size = {3}, .known = {-1, -1, -1, -1}};
    uint8_t *jpeg = jpeg_make(64, 64, 2, false, &in.size[1]);
    in.bytes[1] = jpeg;
    psti_plan *plan = plan_make("decode | resize(32) | hflip", inputs, 2, false);
    psti_kit *kit = &kit_a;
    memset(kit_a.stage_ns, 0, sizeof kit_a.stage_ns);
    memset(kit_a.stage_runs, 0, sizeof kit_a.stage_runs);
    for (uint64_t id = 0; id < 3; id++) {
        result r[2];
        carry(plan, work, &kit, 1, &in, id, r, 2);
        result_free(&r[0]);
        result_free(&r[1]);
    }
    for (int s = 0; s < 4; s++)
        CHECK(kit_a.stage_runs[s] == 3 && (s == 2 || kit_a.stage_ns[s] > 0));
    CHECK(kit_a.stage_runs[4] == 0);
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
    RUN(draws_belong_to_the_sample);
    RUN(an_op_keeps_its_place_when_it_is_lowered);
    RUN(image_and_mask_move_together);
    RUN(colors_leave_the_mask_alone);
    RUN(one_field_alone_may_be_moved);
    RUN(other_fields_pass_through);
    RUN(only_pictures_may_not_be_missing);
    RUN(an_array_must_be_what_the_data_says);
    RUN(channels_that_normalize_does_not_have_are_refused);
    RUN(what_does_not_fit_a_picture_says_so);
    RUN(a_work_can_be_put_aside_at_any_stage);
    RUN(equal_counts_of_two_kits_are_told_apart);
    RUN(need_covers_what_is_taken);
    RUN(nothing_is_allocated_once_buffers_are_warm);
    RUN(stages_are_timed);
    psti_work_free(work);
    psti_kit_fini(&kit_a);
    psti_kit_fini(&kit_b);
    RUN(nothing_is_left_behind);
    return check_report();
}
