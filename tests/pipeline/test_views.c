/* SPDX-License-Identifier: Apache-2.0
 * Views: what is planned and refused, and that each view holds the bytes that its chain makes by
 * hand, alone, of the whole picture with the view's number in the random key; whichever part is
 * decoded, whichever kits run the stages, from a decoded form or not. Ids are the seeds. */
#include <stdlib.h>

#include "carry.h"
#include "check.h"
#include "core/memory.h"
#include "core/status.h"
#include "pictures.h"

static const psti_plan_input fields[] = {{.name = "image", .kind = PST_IMAGE, .encoded = true},
                                         {.name = "mask", .kind = PST_MASK, .encoded = true},
                                         {.name = "label", .kind = PST_LABEL, .dtype = PST_I64}};

#define LARGE "random_resized_crop(40) | hflip"
#define SMALL "random_resized_crop(24, scale=(0.05, 0.25)) | color_jitter(0.4)"
#define END   "normalize(imagenet) | random_erasing(0.7)"
#define VIEWS "decode | views(2: " LARGE ", 3: " SMALL ") | " END
/* The same ops at the same places; hflip(0) never flips. */
#define HAND_LARGE "decode | hflip(0) | " LARGE " | hflip(0) | hflip(0) | " END
#define HAND_SMALL "decode | hflip(0) | hflip(0) | hflip(0) | " SMALL " | " END
enum { COUNT = 5 };

static psti_kit kit_a, kit_b;
static psti_work *work, *hand;

/* ---- plans ----------------------------------------------------------------------------------- */

static psti_plan *plan_of(const char *text, const psti_plan_input *inputs, int count,
                          pst_error *err)
{
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    *err = (pst_error){0};
    CHECKF(psti_pipeline_parse(text, &pipeline, err) == 0, "%s: %s", text, err->message);
    if (pipeline)
        psti_plan_new(pipeline, inputs, count, &plan, err);
    psti_pipeline_free(pipeline);
    return plan;
}

static void views_are_fields_of_their_own(void)
{
    static const char *const names[] = {"image_0", "image_1", "image_2", "mask_0",
                                        "mask_1",  "mask_2",  "label"};
    static const char *const stages[] = {
        "decode", "views", "random_resized_crop 0-1", "hflip 2", "resize 2", "vflip", "finish"};
    pst_error err;
    const psti_plan_output *out;
    psti_plan *plan = plan_of("decode | views(2: random_resized_crop(8), 1: hflip | resize((4, 6)))"
                              " | vflip | normalize(half)",
                              fields, 3, &err);
    CHECKF(plan != NULL, "%s", err.message);
    if (!plan)
        return;
    CHECK(psti_plan_outputs(plan, &out) == 7);
    for (int i = 0; i < 7; i++) {
        CHECKF(strcmp(out[i].name, names[i]) == 0, "%s", out[i].name);
        CHECK(out[i].input == (i < 3 ? 0 : i < 6 ? 1 : 2));
    }
    CHECK(out[0].shape[1] == 8 && out[1].shape[2] == 8 && out[2].shape[1] == 4);
    CHECK(out[0].dtype == PST_F32 && out[3].dtype == PST_U8 && out[5].shape[1] == 6);
    CHECK(psti_plan_stage_count(plan) == 7);
    for (int i = 0; i < 7 && i < psti_plan_stage_count(plan); i++)
        CHECKF(strcmp(psti_plan_stage_name(plan, i), stages[i]) == 0, "%s",
               psti_plan_stage_name(plan, i));
    CHECK(psti_plan_decoded_stages(plan) == 1 && psti_plan_decoded_pictures(plan) == 2);
    CHECK(psti_plan_is_picture(plan, 1) && !psti_plan_is_picture(plan, 2));
    psti_plan_raw_finish(plan);
    CHECK(out[2].dtype == PST_U8 && out[2].shape[0] == 4 && psti_plan_is_raw(plan, 2));
    CHECK(psti_plan_finish(plan, 2)->dtype == PST_F32 && !psti_plan_is_raw(plan, 3));
    psti_plan_free(plan);
}

static psti_id128 form_of(const char *text)
{
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    psti_id128 form = {0};
    if (psti_pipeline_parse(text, &pipeline, NULL) == 0 &&
        psti_plan_new(pipeline, fields, 1, &plan, NULL) == 0)
        form = psti_plan_decoded_form(plan, pipeline);
    CHECKF(form.lo || form.hi, "%s", text);
    psti_plan_free(plan);
    psti_pipeline_free(pipeline);
    return form;
}

/* What is kept of a sample is the picture before views, so jobs with and without them share it. */
static void the_decoded_form_ends_before_views(void)
{
    const psti_id128 plain = form_of("decode | hflip"),
                     views = form_of("decode | views(2: resize(8), 1: hflip)"),
                     resized = form_of("decode | resize(8) | views(2: hflip)");
    CHECK(plain.lo == views.lo && plain.hi == views.hi);
    CHECK(plain.lo != resized.lo || plain.hi != resized.hi);
}

static void check_refused(const char *text, const psti_plan_input *inputs, int count,
                          const char *part)
{
    pst_error err;
    psti_plan *plan = plan_of(text, inputs, count, &err);
    CHECKF(plan == NULL && err.code < 0 && strstr(err.message, part), "%s: %s", text, err.message);
    psti_plan_free(plan);
}

static void what_cannot_be_planned_is_refused(void)
{
    psti_plan_input twice[] = {fields[0], fields[2], fields[0]};
    snprintf(twice[1].name, sizeof twice[1].name, "image_1");
    check_refused("decode | views(2: hflip)", twice, 2, "image_1, and the data has one");
    check_refused("decode | views(2: hflip) | views(2: hflip)", fields, 1, "comes twice for field");
    check_refused("decode | normalize(half) | views(2: hflip)", fields, 1,
                  "views cannot come after normalize");
    check_refused("decode | views(32: hflip)", fields, 1, "more of field image than");
    check_refused("decode | views(16: hflip)", fields, 3, "more of field mask than");
    check_refused("decode | views(1: normalize(half)) | normalize(half)", fields, 1,
                  "comes twice for field");
    check_refused("decode | views(2: resize((8, 8))) || cutmix", fields, 3, "is a mask");
    snprintf(twice[2].name, sizeof twice[2].name, "a_field_whose_name_has_thirty_b");
    check_refused("decode | views(2: hflip)", &twice[2], 1, "too long");
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* A chain alone, as view number k: the whole picture is decoded. */
static result by_hand(const psti_plan *plan, const sample *in, uint64_t id, uint32_t view)
{
    const psti_rng_key key = {.seed = 7, .epoch = 1, .id = id, .view = view};
    const psti_input input = {in->bytes[0], in->size[0], -1};
    result r = {0};
    r.rc = psti_work_start(hand, &kit_b, plan, &key, &input, &r.err);
    for (int rc = r.rc == 0; rc > 0;)
        r.rc = rc = psti_work_step(hand, &kit_b, &r.err);
    if (r.rc < 0)
        return r;
    r.bytes = psti_work_shape(hand, 0, r.shape);
    r.data = malloc(r.bytes);
    psti_work_finish(hand, &kit_b, 0, r.data);
    return r;
}

static void free_all(result *r, int count)
{
    for (int i = 0; i < count; i++)
        result_free(&r[i]);
}

static void each_view_is_its_chain_with_its_own_draw(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(230, 190, 4, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *crop = plan_make(VIEWS, fields, 1, false), *full = plan_make(VIEWS, fields, 1, true),
              *large = plan_make(HAND_LARGE, fields, 1, true),
              *small = plan_make(HAND_SMALL, fields, 1, true);
    psti_kit *const turns[] = {&kit_a, &kit_b};
    int alike = 0;
    for (uint64_t id = 0; id < 40; id++) {
        result got[COUNT], whole[COUNT], want[COUNT];
        carry(crop, work, turns, 2, &in, id, got, COUNT);
        carry(full, work, turns, 1, &in, id, whole, COUNT);
        for (int v = 0; v < COUNT; v++) {
            want[v] = by_hand(v < 2 ? large : small, &in, id, (uint32_t)v + 1);
            CHECKF(got[v].rc == 0 && result_equal(&got[v], &want[v]), "id %d view %d: %s", (int)id,
                   v, got[v].err.message);
            CHECK(result_equal(&whole[v], &want[v]));
        }
        alike += result_equal(&got[0], &got[1]) + result_equal(&got[2], &got[3]);
        free_all(got, COUNT);
        free_all(whole, COUNT);
        free_all(want, COUNT);
    }
    CHECKF(alike == 0, "%d", alike);
    psti_plan_free(crop);
    psti_plan_free(full);
    psti_plan_free(large);
    psti_plan_free(small);
    free(jpeg);
}

/* What stands before views is drawn once, what stands behind for each of them. */
static void ops_around_views(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(90, 70, 9, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *plan =
        plan_make("decode | vflip | views(3: resize((30, 30))) | hflip", fields, 1, false);
    psti_plan *up =
        plan_make("decode | vflip(0) | vflip(0) | resize((30, 30)) | hflip", fields, 1, false);
    psti_plan *down =
        plan_make("decode | vflip(1) | vflip(0) | resize((30, 30)) | hflip", fields, 1, false);
    psti_kit *kit = &kit_a;
    int differ = 0, turned[4] = {0};
    for (uint64_t id = 0; id < 24; id++) {
        result got[3];
        int downs = 0;
        carry(plan, work, &kit, 1, &in, id, got, 3);
        differ += !result_equal(&got[0], &got[1]);
        for (uint32_t v = 0; v < 3; v++) {
            result a = by_hand(up, &in, id, v + 1), b = by_hand(down, &in, id, v + 1);
            downs += result_equal(&got[v], &b);
            CHECKF(result_equal(&got[v], &a) != result_equal(&got[v], &b), "id %d", (int)id);
            result_free(&a);
            result_free(&b);
        }
        turned[downs]++;
        free_all(got, 3);
    }
    CHECKF(differ > 3 && turned[0] > 3 && turned[3] > 3 && turned[1] + turned[2] == 0, "%d %d %d",
           differ, turned[0], turned[3]);
    psti_plan_free(plan);
    psti_plan_free(up);
    psti_plan_free(down);
    free(jpeg);
}

/* A view that does nothing is the picture; views that write in place leave it and each other
 * alone. */
static void views_do_not_write_to_their_source(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(50, 41, 3, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *plain = plan_make("decode", fields, 1, false),
              *flipped = plan_make("decode | hflip(1)", fields, 1, false),
              *plan = plan_make("decode | views(1: hflip(0), 1: hflip(1), 1: invert | vflip(1), 1: "
                                "vflip(1) | invert, 1: to(u8))",
                                fields, 1, false);
    psti_kit *kit = &kit_a;
    result got[5], want = carry_one(plain, hand, &kit_b, &in, 1),
                   turned = carry_one(flipped, hand, &kit_b, &in, 1);
    carry(plan, work, &kit, 1, &in, 1, got, 5);
    CHECKF(got[0].rc == 0, "%s", got[0].err.message);
    CHECK(result_equal(&got[0], &want) && result_equal(&got[4], &want));
    CHECK(result_equal(&got[1], &turned) && result_equal(&got[2], &got[3]));
    CHECK(!result_equal(&got[2], &want));
    free_all(got, 5);
    result_free(&want);
    result_free(&turned);
    psti_plan_free(plain);
    psti_plan_free(flipped);
    psti_plan_free(plan);
    free(jpeg);
}

static void a_mask_moves_with_each_view(void)
{
    sample in = {.known = {-1, -1, -1, -1}};
    uint8_t *picture = png_make(90, 120, 3, 8, &in.size[0]),
            *mask = png_make(90, 120, 1, 8, &in.size[1]);
    in.bytes[0] = picture;
    in.bytes[1] = mask;
    psti_plan *plan =
        picture ? plan_make("decode | views(2: random_crop(40) | hflip, 1: vflip | random_crop(20))"
                            " | hflip",
                            fields, 2, false)
                : NULL;
    psti_kit *kit = &kit_a;
    for (uint64_t id = 0; plan && id < 20; id++) {
        result r[6];
        carry(plan, work, &kit, 1, &in, id, r, 6);
        CHECKF(r[0].rc == 0, "%s", r[0].err.message);
        bool right = r[0].rc == 0;
        for (int v = 0; right && v < 3; v++)
            for (size_t i = 0; i < r[3 + v].bytes; i++)
                right = right && r[v].data[3 * i] == r[3 + v].data[i];
        CHECKF(right, "id %d", (int)id);
        free_all(r, 6);
    }
    psti_plan_free(plan);
    free(picture);
    free(mask);
}

/* ---- the decoded form ------------------------------------------------------------------------ */

static void finish_all(psti_work *from, result *out)
{
    for (int v = 0; v < COUNT; v++) {
        out[v] = (result){0};
        out[v].bytes = psti_work_shape(from, v, out[v].shape);
        out[v].data = malloc(out[v].bytes);
        psti_work_finish(from, &kit_a, v, out[v].data);
    }
}

static void a_decoded_form_gives_the_same_views(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(130, 150, 6, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *plan = plan_make(VIEWS, fields, 1, false);
    const psti_input input = {jpeg, size, -1}, none = {NULL, 0, -1};
    psti_kit *kit = &kit_b;
    for (uint64_t id = 0; id < 10; id++) {
        const psti_rng_key key = {.seed = 7, .epoch = 1, .id = id};
        result want[COUNT], got[COUNT];
        int rc = psti_work_start(work, &kit_a, plan, &key, &input, NULL);
        CHECK(rc == 0 && psti_work_whole(work, &kit_a, true, NULL) == 0);
        while (!psti_work_at_decoded(work))
            CHECK(psti_work_step(work, &kit_a, NULL) >= 0);
        CHECK(psti_work_sound(work));
        const psti_decoded form = psti_work_decoded(work, 0);
        uint8_t *copy = malloc(form.field.bytes);
        memcpy(copy, form.field.data, form.field.bytes);
        rc = psti_work_start_decoded(hand, &kit_a, plan, &key, &none, &form, NULL);
        CHECK(rc == 0);
        while (rc >= 0 && (rc = psti_work_step(hand, &kit_a, NULL)) > 0)
            ;
        CHECK(rc == 0 && memcmp(copy, form.field.data, form.field.bytes) == 0);
        finish_all(hand, got);
        carry(plan, work, &kit, 1, &in, id, want, COUNT);
        for (int v = 0; v < COUNT; v++)
            CHECK(result_equal(&got[v], &want[v]));
        free_all(got, COUNT);
        free_all(want, COUNT);
        free(copy);
    }
    psti_plan_free(plan);
    free(jpeg);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* A sample is bad exactly if one of its views is, alone, and that whatever is decoded. */
static void a_sample_is_as_bad_as_its_worst_view(void)
{
    static const char text[] = "decode | views(2: random_resized_crop(24, scale=(0.02, 0.3)))";
    size_t size;
    uint8_t *jpeg = jpeg_make(230, 190, 4, false, &size);
    const sample in = sample_of(jpeg, size * 9 / 10);
    psti_plan *crop = plan_make(text, fields, 1, false), *full = plan_make(text, fields, 1, true),
              *alone = plan_make("decode | hflip(0) | random_resized_crop(24, scale=(0.02, 0.3))",
                                 fields, 1, false);
    psti_kit *kit = &kit_a;
    int bad = 0;
    for (uint64_t id = 0; id < 60; id++) {
        result part[2], whole[2], one[2] = {by_hand(alone, &in, id, 1), by_hand(alone, &in, id, 2)};
        carry(crop, work, &kit, 1, &in, id, part, 2);
        carry(full, work, &kit, 1, &in, id, whole, 2);
        const bool fails = one[0].rc < 0 || one[1].rc < 0;
        CHECKF((part[0].rc < 0) == fails, "id %d: %s", (int)id, part[0].err.message);
        CHECK(part[0].rc == whole[0].rc);
        CHECKF(fails || (result_equal(&part[0], &one[0]) && result_equal(&whole[1], &one[1])),
               "id %d", (int)id);
        bad += fails;
        free_all(part, 2);
        free_all(whole, 2);
        free_all(one, 2);
    }
    CHECKF(bad > 5 && bad < 55, "%d", bad);
    psti_plan_free(crop);
    psti_plan_free(full);
    psti_plan_free(alone);
    free(jpeg);
}

static void errors_name_the_view(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(50, 41, 3, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *plan =
        plan_make("decode | views(1: random_crop(20), 2: random_crop(45))", fields, 1, false);
    result r = carry_one(plan, work, &kit_a, &in, 1);
    CHECKF(r.rc < 0 && strstr(r.err.message, "field image_1: ") &&
               strcmp(r.err.stage, "random_crop") == 0,
           "%s: %s", r.err.stage, r.err.message);
    result_free(&r);
    psti_plan_free(plan);
    free(jpeg);
}

static void nothing_is_left_behind(void)
{
    psti_mem_stats stats;
    psti_work_free(work);
    psti_work_free(hand);
    psti_kit_fini(&kit_a);
    psti_kit_fini(&kit_b);
    psti_mem_stats_total(&stats);
    CHECKF(stats.live == 0, "%llu blocks", (unsigned long long)stats.live);
}

int main(void)
{
    CHECK(psti_kit_init(&kit_a) == 0 && psti_kit_init(&kit_b) == 0);
    work = psti_work_new();
    hand = psti_work_new();
    RUN(views_are_fields_of_their_own);
    RUN(the_decoded_form_ends_before_views);
    RUN(what_cannot_be_planned_is_refused);
    RUN(each_view_is_its_chain_with_its_own_draw);
    RUN(ops_around_views);
    RUN(views_do_not_write_to_their_source);
    RUN(a_mask_moves_with_each_view);
    RUN(a_decoded_form_gives_the_same_views);
    RUN(a_sample_is_as_bad_as_its_worst_view);
    RUN(errors_name_the_view);
    RUN(nothing_is_left_behind);
    return check_report();
}
