/* SPDX-License-Identifier: Apache-2.0
 * Plans: which op meets which field, static shapes, finish and its defaults, what is refused and
 * where. */
#include "check.h"
#include "core/memory.h"
#include "pipeline/pipeline.h"

static const psti_plan_input image = {.name = "image", .kind = PST_IMAGE, .encoded = true};
static const psti_plan_input mask = {.name = "mask", .kind = PST_MASK, .encoded = true};
static const psti_plan_input label = {.name = "label", .kind = PST_LABEL, .dtype = PST_I64};

/* Plans text on the fields; NULL on failure, with err filled. */
static psti_plan *plan_of(const char *text, const psti_plan_input *inputs, int count,
                          pst_error *err)
{
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    *err = (pst_error){0};
    CHECKF(psti_pipeline_parse(text, &pipeline, err) == 0, "%s: %s", text, err->message);
    if (pipeline)
        CHECK((psti_plan_new(pipeline, inputs, count, &plan, err) == 0) == (plan != NULL));
    psti_pipeline_free(pipeline);
    return plan;
}

/* One field alone: dtype, layout, rank, shape. */
static void check_output(const char *text, const psti_plan_input *input, int dtype, int layout,
                         const int64_t *shape)
{
    pst_error err;
    const psti_plan_output *out;
    psti_plan *plan = plan_of(text, input, 1, &err);
    CHECKF(plan != NULL, "%s: %s", text, err.message);
    if (!plan)
        return;
    CHECK(psti_plan_outputs(plan, &out) == 1);
    CHECKF(out->dtype == dtype && out->layout == layout, "%s: dtype %d layout %d", text, out->dtype,
           out->layout);
    CHECK(out->rank == (layout == PST_LAYOUT_NONE ? 2 : 3) && out->finish.dtype == dtype);
    for (int i = 0; i < out->rank; i++)
        CHECKF(out->shape[i] == shape[i], "%s: shape[%d] is %lld", text, i,
               (long long)out->shape[i]);
    psti_plan_free(plan);
}

static void shapes_and_finish_are_known_beforehand(void)
{
    const int nhwc = PST_NHWC, nchw = PST_NCHW;
    check_output("decode", &image, PST_U8, nhwc, (int64_t[]){-1, -1, 3});
    check_output("decode(gray)", &image, PST_U8, nhwc, (int64_t[]){-1, -1, 1});
    check_output("decode(keep)", &image, PST_U8, nhwc, (int64_t[]){-1, -1, -1});
    check_output("decode | resize(256)", &image, PST_U8, nhwc, (int64_t[]){-1, -1, 3});
    check_output("decode | resize((20, 30))", &image, PST_U8, nhwc, (int64_t[]){20, 30, 3});
    check_output("decode | resize((20, 30)) | pad((1, 2))", &image, PST_U8, nhwc,
                 (int64_t[]){24, 32, 3});
    check_output("decode | random_resized_crop(224) | hflip | normalize(imagenet)", &image, PST_F32,
                 nchw, (int64_t[]){3, 224, 224});
    check_output("decode | center_crop((4, 6)) | normalize(half) | to(f16, nhwc)", &image, PST_F16,
                 nhwc, (int64_t[]){4, 6, 3});
    check_output("decode | center_crop(4) | normalize(half) | to(bf16)", &image, PST_BF16, nchw,
                 (int64_t[]){3, 4, 4});
    check_output("decode | center_crop(4) | to(f32)", &image, PST_F32, nhwc, (int64_t[]){4, 4, 3});
    check_output("decode | center_crop(4) | to(layout=nchw)", &image, PST_U8, nchw,
                 (int64_t[]){3, 4, 4});
    check_output("decode(gray) | normalize(half)", &image, PST_F32, nchw, (int64_t[]){1, -1, -1});
    check_output("decode | grayscale | normalize(half)", &image, PST_F32, nchw,
                 (int64_t[]){1, -1, -1});
    check_output("decode(gray) | grayscale(3) | color_jitter(0.4)", &image, PST_U8, nhwc,
                 (int64_t[]){-1, -1, 3});
    check_output("decode(keep) | normalize(imagenet)", &image, PST_F32, nchw,
                 (int64_t[]){-1, -1, -1});
    check_output("decode | center_crop((4, 6))", &mask, PST_U8, PST_LAYOUT_NONE, (int64_t[]){4, 6});
    check_output("decode ; mask: to(i64)", &mask, PST_I64, PST_LAYOUT_NONE, (int64_t[]){-1, -1});
    psti_plan_input wide = mask;
    wide.dtype = PST_U16;
    check_output("decode", &wide, PST_U16, PST_LAYOUT_NONE, (int64_t[]){-1, -1});
}

static void fields_get_what_is_meant_for_them(void)
{
    const psti_plan_input inputs[] = {image, label, mask};
    const psti_plan_output *out;
    pst_error err;
    psti_plan *plan =
        plan_of("decode | random_crop(32) | normalize(imagenet) | to(f16) ; mask: to(i64)", inputs,
                3, &err);
    CHECK(plan && psti_plan_outputs(plan, &out) == 3);
    if (!plan)
        return;
    CHECK(out[0].dtype == PST_F16 && out[0].finish.normalize && out[0].shape[1] == 32);
    CHECK(out[1].kind == PST_LABEL && out[1].dtype == PST_I64 && out[1].rank == 0);
    CHECK(out[2].dtype == PST_I64 && !out[2].finish.normalize && out[2].rank == 2 &&
          out[2].shape[0] == 32);
    CHECK(strcmp(out[2].name, "mask") == 0 && out[2].finish.channels == 1 &&
          out[0].finish.channels == 3);
    psti_plan_free(plan);
}

static void what_passes_through_is_left_alone(void)
{
    const psti_plan_input inputs[] = {
        {.name = "caption", .kind = PST_TEXT},
        {.name = "array",
         .kind = PST_ARRAY,
         .encoded = true,
         .dtype = PST_F32,
         .rank = 2,
         .shape = {-1, 7}},
        {.name = "blob", .kind = PST_BYTES},
        {.name = "box", .kind = PST_META, .dtype = PST_F64, .rank = 1, .shape = {4}},
    };
    static const char *const texts[] = {"decode", "bytes"};
    for (int i = 0; i < 2; i++) {
        const psti_plan_output *out;
        pst_error err;
        psti_plan *plan = plan_of(texts[i], inputs, 4, &err);
        CHECK(plan && psti_plan_outputs(plan, &out) == 4 && psti_plan_stage_count(plan) == 1);
        if (!plan)
            continue;
        CHECK(out[0].kind == PST_TEXT && out[0].dtype == PST_U8 && out[0].rank == 1 &&
              out[0].shape[0] == -1);
        CHECK(out[1].dtype == PST_F32 && out[1].rank == 2 && out[1].shape[0] == -1 &&
              out[1].shape[1] == 7);
        CHECK(out[2].kind == PST_BYTES && out[2].shape[0] == -1);
        CHECK(out[3].dtype == PST_F64 && out[3].shape[0] == 4);
        psti_plan_free(plan);
    }
}

static void bytes_leave_pictures_encoded(void)
{
    const psti_plan_input inputs[] = {image, mask};
    const psti_plan_output *out;
    pst_error err;
    psti_plan *plan = plan_of("bytes", inputs, 2, &err);
    CHECK(plan && psti_plan_outputs(plan, &out) == 2);
    if (plan)
        CHECK(out[0].kind == PST_BYTES && out[0].dtype == PST_U8 && out[0].rank == 1 &&
              out[1].kind == PST_BYTES);
    psti_plan_free(plan);
    plan = plan_of("image: decode | hflip ; mask: bytes ; vflip", inputs, 2, &err);
    CHECK(plan && psti_plan_outputs(plan, &out) == 2);
    if (plan)
        CHECK(out[0].kind == PST_IMAGE && out[1].kind == PST_BYTES &&
              psti_plan_stage_count(plan) == 4);
    psti_plan_free(plan);
}

static void stages_keep_their_order_and_finish_is_last(void)
{
    static const char *const names[] = {"decode", "resize", "random_crop", "hflip", "finish"};
    pst_error err;
    psti_plan *plan =
        plan_of("decode | resize(64) | random_crop(32) | normalize(half) | hflip | to(f16)", &image,
                1, &err);
    CHECKF(plan != NULL, "%s", err.message);
    if (!plan)
        return;
    CHECK(psti_plan_stage_count(plan) == 5 && psti_plan_decoded_stages(plan) == 2);
    for (int i = 0; i < 5; i++)
        CHECK(strcmp(psti_plan_stage_name(plan, i), names[i]) == 0);
    psti_plan_free(plan);
    plan = plan_of("decode | hflip | resize(64)", &image, 1, &err);
    CHECK(plan && psti_plan_decoded_stages(plan) == 1);
    psti_plan_free(plan);
    plan = plan_of("decode | resize(64) | center_crop(32)", &image, 1, &err);
    CHECK(plan && psti_plan_decoded_stages(plan) == 3);
    psti_plan_free(plan);
}

/* '@' stands where the error must point; none: it points nowhere. */
static void check_refused(const char *marked, const psti_plan_input *inputs, int count,
                          const char *word)
{
    char text[512];
    const char *mark = strchr(marked, '@');
    snprintf(text, sizeof text, "%.*s%s", (int)(mark ? mark - marked : (long)strlen(marked)),
             marked, mark ? mark + 1 : "");
    pst_error err;
    psti_plan *plan = plan_of(text, inputs, count, &err);
    CHECKF(!plan && strstr(err.message, word), "%s: %s", text, err.message);
    CHECKF(err.offset == (mark ? mark - marked : -1), "%s: at %lld: %s", text,
           (long long)err.offset, err.message);
    CHECK(err.code == PST_EPIPELINE && strcmp(err.stage, "pipeline") == 0);
    psti_plan_free(plan);
}

static void what_does_not_fit_is_refused(void)
{
    const psti_plan_input both[] = {image, label, mask};
    check_refused("decode ; @imag: hflip", both, 3, "did you mean \"image\"");
    check_refused("decode ; @zzzzzz: hflip", both, 3, "known: image, label, mask");
    check_refused("decode ; @label: hflip", both, 3, "label is no picture");
    check_refused("image: decode", both, 3, "the field mask is a picture that nothing decodes");
    check_refused("image: decode ; @hflip ; mask: decode", both, 3,
                  "before the field mask is decoded");
    check_refused("image: decode ; mask: @hflip", both, 3, "starts with decode");
    check_refused("decode | @decode", both, 3, "every picture decoded");
    check_refused("decode ; image: @decode", both, 3, "comes twice for field image");
    check_refused("bytes | @hflip", both, 3, "no field of the data to act on");
    check_refused("bytes | @decode", both, 3, "passed as bytes");
    check_refused("image: bytes | @hflip ; mask: decode", both, 3, "passes as bytes");
    check_refused("decode | @hflip", &label, 1, "no field of the data to act on");
    check_refused("decode | @normalize(half)", &mask, 1, "no field of the data to act on");
    check_refused("decode ; mask: @normalize(half)", both, 3, "acts on images only");
    check_refused("decode ; mask: @to(i64, nchw)", both, 3, "no layout for a mask");
    check_refused("decode | @to(i64)", &image, 1, "makes u8, f16, bf16 or f32 of images");
    check_refused("decode | normalize(half) | @to(u8)", &image, 1, "cannot make u8");
    check_refused("decode | to(f16) | @normalize(half)", &image, 1, "must come before to");
    check_refused("decode | normalize(half) | @normalize(half)", &image, 1, "twice");
    check_refused("decode | to(f16) | @to(f16)", &image, 1, "twice");
    check_refused("decode | normalize(half) | @resize(3)", &image, 1,
                  "resize cannot come after normalize");
    check_refused("decode | to(f16) | @random_resized_crop(3)", &image, 1, "cannot come after to");
    check_refused("decode | normalize(half) | @pad(3)", &image, 1,
                  "pad cannot come after normalize");
    check_refused("decode | to(f16) | @random_crop(3, 1)", &image, 1, "cannot come after to");
    check_refused("decode | normalize(half) | @color_jitter(0.4)", &image, 1,
                  "color_jitter cannot come after normalize");
    check_refused("decode | grayscale | @normalize(imagenet)", &image, 1,
                  "3 channels, field image has 1");
    check_refused("decode ; mask: @invert", (const psti_plan_input[]){image, mask}, 2,
                  "images only");
    check_refused("decode(gray) | @normalize(imagenet)", &image, 1,
                  "3 channels, field image has 1");
    check_refused("decode | @normalize(mean=(0.5, 0.5), std=(1, 1))", &image, 1,
                  "2 channels, field image has 3");
    check_refused(
        "decode | hflip | hflip | hflip | hflip | hflip | hflip | hflip | hflip | hflip | hflip | "
        "hflip | hflip"
        " | hflip | hflip | hflip | hflip | hflip | hflip | hflip | hflip | hflip | hflip | @hflip",
        &image, 1, "more than 23 ops");
}

static void batch_ops_find_images_and_one_label(void)
{
    psti_plan_input named = label, other = label;
    named.classes = other.classes = 10;
    snprintf(other.name, sizeof other.name, "other");
    const psti_plan_input fields[] = {image, named}, two[] = {image, named, other},
                          masked[] = {image, named, mask}, unknown[] = {image, label};
    const psti_plan_output *out;
    pst_error err;
    psti_plan *plan =
        plan_of("decode | resize((8, 9)) | normalize(half) || mixup", fields, 2, &err);
    CHECKF(plan != NULL, "%s", err.message);
    if (!plan)
        return;
    CHECK(psti_plan_outputs(plan, &out) == 2 && out[0].mixed && out[1].mixed);
    CHECK(out[1].dtype == PST_F32 && out[1].rank == 1 && out[1].shape[0] == 10);
    CHECK(psti_plan_stage_count(plan) == 4 && psti_plan_mix_stage(plan) == 3);
    CHECK(strcmp(psti_plan_stage_name(plan, 2), "finish") == 0);
    CHECK(strcmp(psti_plan_stage_name(plan, 3), "mixup") == 0);
    psti_plan_leave_mix(plan);
    CHECK(psti_plan_mix_left(plan) && out[1].dtype == PST_I64 && out[1].rank == 0);
    psti_plan_free(plan);
    plan = plan_of("decode | resize((8, 9)) || cutmix(classes=7)", unknown, 2, &err);
    CHECKF(plan && psti_plan_outputs(plan, &out) == 2 && out[1].shape[0] == 7, "%s", err.message);
    psti_plan_free(plan);
    check_refused("decode || @cutmix", fields, 2, "image has no one shape");
    check_refused("decode | resize((8, 9)) || @mixup", fields, 2, "add normalize or to(f32)");
    check_refused("decode | resize((8, 9)) || @choice(1: cutmix, 1: mixup)", fields, 2,
                  "add normalize or to(f32)");
    check_refused("decode | resize((8, 9)) || @cutmix", masked, 3, "mask is a mask");
    check_refused("decode | resize((8, 9)) || @cutmix", two, 3, "several labels");
    check_refused("decode | resize((8, 9)) || @cutmix", &image, 1, "no label to blend");
    check_refused("bytes || @cutmix", fields, 2, "no image to act on");
    check_refused("decode | resize((8, 9)) || @cutmix", unknown, 2, "write classes=N");
    check_refused("decode | resize((8, 9)) || @choice(1: cutmix(classes=4), 1: cutmix(classes=5))",
                  fields, 2, "different classes");
}

static void one_box_must_fit_all_images(void)
{
    psti_plan_input second = image, named = label;
    named.classes = 10;
    snprintf(second.name, sizeof second.name, "second");
    const psti_plan_input fields[] = {image, second, named};
    pst_error err;
    check_refused("decode ; image: resize((8, 9)) ; second: resize((9, 8)) || @cutmix", fields, 3,
                  "second has another size");
    psti_plan *plan =
        plan_of("decode | to(f32) ; image: resize((8, 9)) ; second: resize((9, 8)) || mixup",
                fields, 3, &err);
    CHECK(!plan); /* resize after to */
    plan = plan_of("decode ; image: resize((8, 9)) ; second: resize((9, 8)) ; to(f32) || mixup",
                   fields, 3, &err);
    CHECKF(plan != NULL, "%s", err.message);
    psti_plan_free(plan);
}

/* By the numbers before the ops, and each op from a place of its own. */
static void choice_draws_by_weight(void)
{
    psti_plan_input named = label;
    named.classes = 10;
    const psti_plan_input fields[] = {image, named};
    pst_error err;
    psti_plan *plan = plan_of("decode | resize((8, 9)) | to(f32) || choice(1: mixup(1), 3: cutmix)",
                              fields, 2, &err);
    CHECKF(plan != NULL, "%s", err.message);
    int cut = 0;
    double last = -1;
    for (uint64_t step = 0; plan && step < 2000; step++) {
        const psti_rng_key key = {.seed = 3, .epoch = 1, .id = step, .occurrence = 2};
        pst_mix mix, again;
        psti_plan_mix_draw(plan, &key, &mix);
        psti_plan_mix_draw(plan, &key, &again);
        CHECK(memcmp(&mix, &again, sizeof mix) == 0 && mix.lam != last);
        last = mix.kind == PST_MIXUP ? mix.lam : -1;
        cut += mix.kind == PST_CUTMIX;
    }
    CHECKF(cut > 1430 && cut < 1570, "%d of 2000", cut);
    psti_plan_free(plan);
}

static bool fits(const psti_plan *plan, int kind, const psti_geom *size, int count)
{
    uint8_t pixels[4 * 6 * 4 * 2] = {0};
    psti_decoded d[2] = {{.field = psti_field_of(kind, size)},
                         {.field = psti_field_of(kind, size)}};
    d[0].field.data = d[1].field.data = pixels;
    d[0].field.x0 = 1;
    d[0].field.whole_rows = 99;
    const bool fit = psti_plan_augmented_fits(plan, d, count);
    CHECK(!fit || (d[0].field.x0 == 0 && d[0].field.whole_rows == 4 && d[0].field.data == pixels));
    return fit;
}

/* Sizes, types and channels that the plan's finish does not expect must never get there. */
static void what_comes_from_elsewhere_must_fit(void)
{
    pst_error err;
    psti_geom size = {.rows = 4, .cols = 6, .channels = 3, .dtype = PST_U8};
    psti_plan *plan =
        plan_of("decode | random_crop((4, 6)) | normalize(imagenet)", &image, 1, &err);
    CHECK(psti_plan_augmented_travels(plan) && fits(plan, PST_IMAGE, &size, 1));
    CHECK(!fits(plan, PST_IMAGE, &size, 0) && !fits(plan, PST_IMAGE, &size, 2));
    CHECK(!fits(plan, PST_MASK, &size, 1));
    size.dtype = PST_U16;
    CHECK(!fits(plan, PST_IMAGE, &size, 1));
    size.dtype = PST_U8;
    size.channels = 1;
    CHECK(!fits(plan, PST_IMAGE, &size, 1));
    size.channels = 3;
    size.rows = 3;
    CHECK(!fits(plan, PST_IMAGE, &size, 1));
    size.rows = 0;
    CHECK(!fits(plan, PST_IMAGE, &size, 1));
    psti_plan_free(plan);
    plan = plan_of("decode(keep) | normalize(imagenet)", &image, 1, &err);
    size.rows = 4;
    CHECK(fits(plan, PST_IMAGE, &size, 1));
    size.channels = 4; /* normalize has three */
    CHECK(!fits(plan, PST_IMAGE, &size, 1));
    psti_plan_free(plan);
    plan = plan_of("decode", &mask, 1, &err);
    CHECK(psti_plan_augmented_travels(plan) && !fits(plan, PST_MASK, &size, 1));
    size.channels = 1;
    CHECK(fits(plan, PST_MASK, &size, 1));
    size.dtype = PST_U16;
    CHECK(fits(plan, PST_MASK, &size, 1));
    psti_plan_free(plan);
    plan = plan_of("decode | call(mine)", &image, 1, &err);
    CHECK(plan && !psti_plan_augmented_travels(plan)); /* who knows what it does elsewhere */
    psti_plan_free(plan);
}

static void a_plan_outlives_its_pipeline(void)
{
    /* plan_of frees the pipeline: a sanitizer sees a plan that still looks at it. */
    pst_error err;
    psti_plan *plan = plan_of("decode | random_crop(8)", &image, 1, &err);
    CHECK(plan && strcmp(psti_plan_stage_name(plan, 1), "random_crop") == 0);
    psti_plan_free(plan);
    psti_plan_free(NULL);
    psti_pipeline_free(NULL);
}

static void too_many_fields_are_refused(void)
{
    psti_plan_input inputs[65];
    pst_error err;
    for (int i = 0; i < 65; i++) {
        inputs[i] = i < 17 ? image : label;
        snprintf(inputs[i].name, sizeof inputs[i].name, "f%d", i);
    }
    psti_plan *plan = plan_of("decode", inputs, 65, &err);
    CHECK(!plan && err.code == PST_EFIELD && strstr(err.message, "64 fields"));
    plan = plan_of("decode", inputs, 17, &err);
    CHECK(!plan && err.code == PST_EFIELD && strstr(err.message, "16 pictures"));
    plan = plan_of("decode", inputs, 16, &err);
    CHECK(plan != NULL);
    psti_plan_free(plan);
}

static void nothing_is_left_behind(void)
{
    psti_mem_stats stats;
    psti_mem_stats_total(&stats);
    CHECKF(stats.live == 0, "%llu blocks", (unsigned long long)stats.live);
}

int main(void)
{
    RUN(shapes_and_finish_are_known_beforehand);
    RUN(fields_get_what_is_meant_for_them);
    RUN(what_passes_through_is_left_alone);
    RUN(bytes_leave_pictures_encoded);
    RUN(stages_keep_their_order_and_finish_is_last);
    RUN(what_does_not_fit_is_refused);
    RUN(batch_ops_find_images_and_one_label);
    RUN(one_box_must_fit_all_images);
    RUN(choice_draws_by_weight);
    RUN(what_comes_from_elsewhere_must_fit);
    RUN(a_plan_outlives_its_pipeline);
    RUN(too_many_fields_are_refused);
    RUN(nothing_is_left_behind);
    return check_report();
}
