/* SPDX-License-Identifier: Apache-2.0
 * random_erasing behind normalize and to: where it may stand, that it writes the value asked for
 * and nothing else, and that maps and erasing keep to draw, kit and memory as other ops do. */
#include <math.h>
#include <stdlib.h>

#include "carry.h"
#include "check.h"
#include "core/memory.h"
#include "pictures.h"

static const psti_plan_input image = {.name = "image", .kind = PST_IMAGE, .encoded = true};
static const psti_plan_input both[] = {{.name = "image", .kind = PST_IMAGE, .encoded = true},
                                       {.name = "mask", .kind = PST_MASK, .encoded = true}};

static psti_kit kit;
static psti_work *work;

static void check_refused(const char *text, const char *why)
{
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    pst_error err = {0};
    CHECKF(psti_pipeline_parse(text, &pipeline, &err) == 0, "%s: %s", text, err.message);
    CHECKF(psti_plan_new(pipeline, &image, 1, &plan, &err) == PST_EPIPELINE, "%s", text);
    CHECKF(strstr(err.message, why) != NULL, "%s: %s", text, err.message);
    psti_plan_free(plan);
    psti_pipeline_free(pipeline);
}

static void what_cannot_be_carried_out_is_refused(void)
{
    check_refused("decode | normalize(half) | random_erasing | hflip", "put it before");
    check_refused("decode | to(f32) | random_erasing | random_erasing", "put it before");
    check_refused("decode | random_erasing(value=random)", "after normalize");
    check_refused("decode | random_erasing(value=0.5) | normalize(half)", "whole number");
    check_refused("decode | to(u8, nchw) | random_erasing(value=-1)", "whole number");
    check_refused("decode | normalize(half) | rotate(10)", "cannot come after");
}

/* Somebody else's finish cannot be laid over. */
static void erased_pictures_are_finished_here(void)
{
    static const char *const texts[] = {"decode | normalize(half) | random_erasing",
                                        "decode | random_erasing | normalize(half)"};
    for (int i = 0; i < 2; i++) {
        psti_plan *plan = plan_make(texts[i], &image, 1, false);
        const psti_plan_output *out;
        CHECK(plan != NULL);
        psti_plan_raw_finish(plan);
        psti_plan_outputs(plan, &out);
        CHECK(psti_plan_is_raw(plan, 0) == (i == 1) && out->dtype == (i ? PST_U8 : PST_F32));
        psti_plan_free(plan);
    }
}

/* Values of the plain result that differ in the erased one, and whether they lie in a rectangle. */
typedef struct patch {
    int64_t count, top, bottom, left, right;
    bool equal; /* all of them are `value` */
} patch;

static patch patch_of(const result *plain, const result *erased, const float *value)
{
    const int64_t rows = plain->shape[1], cols = plain->shape[2];
    const float *a = (const float *)(const void *)plain->data,
                *b = (const float *)(const void *)erased->data;
    patch p = {.top = rows, .left = cols, .bottom = -1, .right = -1, .equal = true};
    for (int64_t i = 0; i < 3 * rows * cols; i++) {
        const int64_t y = i / cols % rows, x = i % cols;
        if (a[i] == b[i])
            continue;
        p.count++;
        p.top = y < p.top ? y : p.top;
        p.bottom = y > p.bottom ? y : p.bottom;
        p.left = x < p.left ? x : p.left;
        p.right = x > p.right ? x : p.right;
        p.equal &= b[i] == value[i / (rows * cols)];
    }
    return p;
}

static void the_value_is_exact_in_the_type_delivered(void)
{
    static const float value[] = {0, -1.25f, 0.1f};
    size_t size;
    uint8_t *jpeg = jpeg_make(80, 100, 3, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *plain =
        plan_make("decode | random_resized_crop(48) | normalize(imagenet)", &image, 1, false);
    psti_plan *erased = plan_make("decode | random_resized_crop(48) | normalize(imagenet) | "
                                  "random_erasing(value=(0, -1.25, 0.1))",
                                  &image, 1, false);
    int acted = 0;
    CHECK(plain && erased);
    for (uint64_t id = 0; id < 60; id++) {
        result a = carry_one(plain, work, &kit, &in, id),
               b = carry_one(erased, work, &kit, &in, id);
        const patch p = patch_of(&a, &b, value);
        const int64_t area = (p.bottom - p.top + 1) * (p.right - p.left + 1);
        acted += p.count > 0;
        CHECKF(p.equal && (p.count == 0 || p.count == 3 * area), "id %d: %lld values of %lld",
               (int)id, (long long)p.count, (long long)area);
        CHECK(p.count == 0 || (area >= 48 * 48 * 0.019 && area <= 48 * 48 * 0.34));
        result_free(&a);
        result_free(&b);
    }
    CHECKF(acted > 15 && acted < 45, "%d of 60 with probability a half", acted);
    psti_plan_free(plain);
    psti_plan_free(erased);
    free(jpeg);
}

static void noise_is_normal_and_belongs_to_the_sample(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(200, 200, 5, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *plan = plan_make("decode | to(f32, nchw) | random_erasing(p=1, scale=(0.3, 0.33), "
                                "value=random)",
                                &image, 1, false);
    psti_plan *rows = plan_make("decode | to(f32) | random_erasing(p=1, scale=(0.3, 0.33), "
                                "value=random)",
                                &image, 1, false);
    CHECK(plan && rows);
    double sum = 0, squares = 0, fourth = 0;
    int64_t n = 0, other = 0;
    for (uint64_t id = 0; id < 5; id++) {
        result a = carry_one(plan, work, &kit, &in, id), b = carry_one(plan, work, &kit, &in, id),
               c = carry_one(rows, work, &kit, &in, id);
        const float *v = (const float *)(const void *)a.data,
                    *w = (const float *)(const void *)c.data;
        CHECK(result_equal(&a, &b));
        for (int64_t i = 0; i < 3 * 200 * 200; i++)
            other += v[i] != w[i % 40000 * 3 + i / 40000];
        for (int64_t i = 0; i < 3 * 200 * 200; i++) {
            if (v[i] == (float)(int)(v[i] * 255 + 0.5f) / 255 || (v[i] >= 0 && v[i] <= 1))
                continue; /* perhaps a pixel: what is left is noise outside 0 to 1 */
            sum += v[i] < 0;
            squares += v[i] < -1;
            fourth += v[i] > 2;
            n++;
        }
        result_free(&a);
        result_free(&b);
        result_free(&c);
    }
    CHECKF(other == 0, "%lld values depend on the layout", (long long)other);
    /* Of a normal number outside 0 to 1, 0.7592 are below 0, 0.2409 below -1, 0.0345 above 2. */
    CHECKF(n > 50000 && fabs(sum / (double)n - 0.7592) < 0.01, "%lld %g", (long long)n, sum);
    CHECKF(fabs(squares / (double)n - 0.2409) < 0.01, "%g", squares / (double)n);
    CHECKF(fabs(fourth / (double)n - 0.0345) < 0.005, "%g", fourth / (double)n);
    psti_plan_free(plan);
    psti_plan_free(rows);
    free(jpeg);
}

static void bytes_are_erased_before_normalize(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(60, 60, 5, false, &size);
    const sample in = sample_of(jpeg, size);
    psti_plan *u8 = plan_make("decode | random_erasing(p=1, value=(1, 2, 3))", &image, 1, false);
    psti_plan *late =
        plan_make("decode | random_erasing(p=1, value=(1, 2, 3)) | to(u8, nchw)", &image, 1, false);
    psti_plan *after =
        plan_make("decode | to(u8, nchw) | random_erasing(p=1, value=(1, 2, 3))", &image, 1, false);
    CHECK(u8 && late && after);
    for (uint64_t id = 0; id < 10; id++) {
        result a = carry_one(u8, work, &kit, &in, id), b = carry_one(late, work, &kit, &in, id),
               c = carry_one(after, work, &kit, &in, id);
        int erased = 0, apart = 0, gone = 0;
        for (int i = 0; i < 3600; i++) {
            erased += a.data[3 * i] == 1 && a.data[3 * i + 1] == 2 && a.data[3 * i + 2] == 3;
            gone += c.data[i] == 1 && c.data[i + 3600] == 2 && c.data[i + 7200] == 3;
            for (int k = 0; k < 3; k++)
                apart += a.data[3 * i + k] != b.data[3600 * k + i];
        }
        CHECKF(erased > 50 && gone > 50 && apart == 0, "%d %d %d", erased, gone, apart);
        result_free(&a);
        result_free(&b);
        result_free(&c);
    }
    psti_plan_free(u8);
    psti_plan_free(late);
    psti_plan_free(after);
    free(jpeg);
}

/* Image and mask hold the same slope; turned together they still agree. */
static void maps_move_image_and_mask_together(void)
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
    static const char *const texts[] = {
        "decode | random_affine(30, translate=(0.1, 0.1), scale=(0.8, 1.2), shear=10)",
        "decode | random_rotation(180, expand=true)", "decode | shear_x(0.2) | translate_y(-7)"};
    psti_kit *const kits[] = {&kit};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        psti_plan *plan = plan_make(texts[t], both, 2, false);
        CHECK(plan != NULL);
        for (uint64_t id = 0; plan && id < 20; id++) {
            result r[2];
            carry(plan, work, kits, 1, &in, id, r, 2);
            CHECKF(r[0].rc == 0 && r[0].bytes == 3 * r[1].bytes, "%s", r[0].err.message);
            int apart = 0;
            for (size_t i = 0; r[0].rc == 0 && i < r[1].bytes; i++)
                apart += r[0].data[3 * i] != r[1].data[i];
            CHECKF(apart == 0, "%s, id %d: %d pixels", texts[t], (int)id, apart);
            result_free(&r[0]);
            result_free(&r[1]);
        }
        psti_plan_free(plan);
    }
    free(picture);
    free(mask);
}

/* What psti_work_need said beforehand is not passed by what is held afterwards. */
static void memory_is_said_beforehand(void)
{
    static const char *const texts[] = {
        "decode | rotate(30, expand=true, interpolation=bilinear) | normalize(half)",
        "decode | rand_augment(4) | normalize(imagenet) | random_erasing(p=1)",
        "decode | augmix | random_erasing(p=1)", "decode | trivial_augment_wide | auto_augment"};
    size_t size;
    uint8_t *jpeg = jpeg_make(300, 400, 9, false, &size);
    const psti_input input = {jpeg, size, -1};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (uint64_t id = 0; id < 10; id++) {
            psti_plan *plan = plan_make(texts[t], &image, 1, false);
            psti_work *fresh = psti_work_new();
            psti_kit own;
            pst_error err = {0};
            CHECK(plan && fresh && psti_kit_init(&own) == 0);
            CHECK(psti_work_start(fresh, &own, plan, &(psti_rng_key){.id = id}, &input, &err) == 0);
            const size_t before = psti_work_bytes(fresh, &own), need = psti_work_need(fresh);
            while (psti_work_step(fresh, &own, &err) > 0)
                continue;
            const size_t held = psti_work_bytes(fresh, &own) - before;
            CHECKF(held <= need, "%s, id %d: %zu held, %zu said", texts[t], (int)id, held, need);
            psti_work_free(fresh);
            psti_kit_fini(&own);
            psti_plan_free(plan);
        }
    free(jpeg);
}

int main(void)
{
    CHECK(psti_kit_init(&kit) == 0);
    work = psti_work_new();
    RUN(what_cannot_be_carried_out_is_refused);
    RUN(erased_pictures_are_finished_here);
    RUN(the_value_is_exact_in_the_type_delivered);
    RUN(noise_is_normal_and_belongs_to_the_sample);
    RUN(bytes_are_erased_before_normalize);
    RUN(maps_move_image_and_mask_together);
    RUN(memory_is_said_beforehand);
    psti_work_free(work);
    psti_kit_fini(&kit);
    return check_report();
}
