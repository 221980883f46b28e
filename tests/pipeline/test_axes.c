/* SPDX-License-Identifier: Apache-2.0
 * Volumes, recordings and their features on the way of a sample: which ops fit what, views of
 * memory, types and sizes that change, sizes that are known late, and what is delivered. The ops
 * are those of toy_ops.c; the samples are there in decoded form, so no codec is needed. */
#include <stdlib.h>

#include "carry.h"
#include "check.h"
#include "core/memory.h"
#include "core/status.h"

enum { D = 5, H = 6, W = 7, VOXELS = D * H * W };

static const psti_plan_input volumes[] = {
    {.name = "image", .kind = PST_VOLUME, .encoded = true, .rank = 4},
    {.name = "mask", .kind = PST_MASK, .encoded = true, .rank = 4}};
static const psti_plan_input audio = {.name = "audio", .kind = PST_AUDIO, .encoded = true};
static const psti_plan_input picture = {.name = "photo", .kind = PST_IMAGE, .encoded = true};
static const psti_input none[3] = {{NULL, 0, -1}, {NULL, 0, -1}, {NULL, 0, -1}};

static psti_kit kit;
static psti_work *work;
static int16_t voxels[VOXELS];
static uint8_t classes[VOXELS];

static psti_decoded form_of(int kind, const psti_geom *size, void *data)
{
    psti_decoded form = {.header = *size, .field = psti_field_of(kind, size)};
    form.field.data = data;
    return form;
}

/* Value and class of a voxel tell where it is. */
static void make_volume(psti_decoded forms[2])
{
    const psti_geom size = {H, W, 1, D, PST_I16, PSTI_AXES_VOLUME, {5, 1, 1}};
    psti_geom mask = size;
    mask.dtype = PST_U8;
    for (int i = 0; i < VOXELS; i++) {
        voxels[i] = (int16_t)(i - 100);
        classes[i] = (uint8_t)i;
    }
    forms[0] = form_of(PST_VOLUME, &size, voxels);
    forms[1] = form_of(PST_MASK, &mask, classes);
}

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

static int start(const psti_plan *plan, const psti_decoded *forms, uint64_t id, pst_error *err)
{
    const psti_rng_key key = {.seed = 7, .epoch = 1, .id = id};
    return psti_work_start_decoded(work, &kit, plan, &key, none, forms, err);
}

static int run_all(pst_error *err)
{
    int rc = 1;
    while (rc > 0)
        rc = psti_work_step(work, &kit, err);
    return rc;
}

/* Whether an output that goes into a larger box, at once or after it has waited, is the one that is
 * delivered packed. */
static void check_boxes(const psti_plan *plan, int output, const int64_t *shape, const void *packed)
{
    const psti_plan_output *out;
    psti_plan_outputs(plan, &out);
    const size_t unit = psti_dtype_bytes(out[output].dtype);
    const int rank = out[output].rank;
    int64_t box[PST_MAX_RANK];
    size_t all = unit, own = unit;
    for (int d = 0; d < rank; d++) {
        box[d] = shape[d] + d + 1;
        all *= (size_t)box[d];
        own *= (size_t)shape[d];
    }
    psti_parcel parcel;
    psti_work_parcel(work, output, &parcel);
    CHECK(parcel.bytes <= own && parcel.finished == (parcel.bytes == own));
    CHECK(memcmp(parcel.shape, shape, (size_t)rank * sizeof *shape) == 0);
    uint8_t *want = calloc(1, all), *got = calloc(2, all), *waits = malloc(parcel.bytes);
    psti_box_copy(want, box, packed, shape, rank, unit);
    psti_work_finish_in(work, &kit, output, box, got);
    CHECK(memcmp(got, want, all) == 0);
    psti_work_pack(work, &kit, output, &parcel, waits);
    psti_plan_unpack(plan, &kit, output, &parcel, waits, box, got + all);
    CHECK(memcmp(got + all, want, all) == 0);
    psti_plan_unpack(plan, &kit, output, &parcel, waits, NULL, got);
    CHECK(memcmp(got, packed, own) == 0);
    free(want);
    free(got);
    free(waits);
}

/* What is delivered of an output; the caller frees it. */
static void *deliver(const psti_plan *plan, int output, int64_t shape[PST_MAX_RANK])
{
    void *data = malloc(psti_work_shape(work, output, shape) + 1);
    psti_work_finish(work, &kit, output, data);
    check_boxes(plan, output, shape, data);
    return data;
}

static bool shape_is(const int64_t *shape, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return shape[0] == a && shape[1] == b && shape[2] == c && shape[3] == d;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void outputs_have_the_shape_of_their_axes(void)
{
    const psti_plan_input all[] = {volumes[0], volumes[1], audio, picture};
    const psti_plan_output *out;
    pst_error err;
    psti_plan *plan =
        plan_of("decode | cube(3) | rows(4) | resize((8, 9)) | to(f16)", all, 4, &err);
    CHECKF(plan != NULL, "%s", err.message);
    if (!plan)
        return;
    CHECK(psti_plan_outputs(plan, &out) == 4);
    CHECK(out[0].rank == 4 && shape_is(out[0].shape, 1, 3, 3, 3) && out[0].dtype == PST_F16);
    CHECK(out[1].rank == 4 && shape_is(out[1].shape, 1, 3, 3, 3) && out[1].dtype == PST_U8);
    CHECK(out[2].rank == 2 && out[2].shape[0] == -1 && out[2].shape[1] == 4);
    CHECK(out[2].kind == PST_AUDIO && out[2].dtype == PST_F16);
    CHECK(out[3].rank == 3 && out[3].shape[0] == 8 && out[3].shape[1] == 9);
    for (int i = 0; i < 3; i++)
        CHECK(out[i].layout == PST_LAYOUT_NONE);
    psti_plan_free(plan);
    plan = plan_of("decode", &audio, 1, &err);
    CHECK(psti_plan_outputs(plan, &out) == 1 && out->rank == 1 && out->dtype == PST_F32);
    psti_plan_free(plan);
    plan = plan_of("decode(keep)", &audio, 1, &err);
    CHECK(psti_plan_outputs(plan, &out) == 1 && out->rank == 2);
    psti_plan_free(plan);
}

static void ops_that_do_not_fit_are_refused(void)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"decode | resize(8)", "resize finds no field of the data to act on"},
        {"image: decode | resize(8); mask: decode", "resize does not act on volumes; field image"},
        {"decode | normalize(half)", "normalize finds no field"},
        {"image: decode | normalize(half); mask: decode", "normalize does not act on volumes"},
        {"decode | to(u8)", "makes f16, bf16 or f32 of volumes and recordings"},
        {"image: decode | to(f32, nchw); mask: decode", "takes no layout"},
        {"decode | rest", "rest finds no field"},
        {"mask: decode", "the field image is a volume that nothing decodes"},
        {"decode | cube(2) || mixup(classes=3)", "is no image"},
        {"mask: decode | add(1); image: decode", "acts on images only"},
    };
    pst_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        psti_plan *plan = plan_of(cases[i].text, volumes, 2, &err);
        CHECKF(!plan && err.code == PST_EPIPELINE && strstr(err.message, cases[i].says), "%s: %s",
               cases[i].text, err.message);
        psti_plan_free(plan);
    }
    psti_plan *plan = plan_of("audio: decode | rows(4) | rest", &audio, 1, &err);
    CHECKF(!plan && strstr(err.message, "does not act on features"), "%s", err.message);
    plan = plan_of("photo: decode | turn", &picture, 1, &err);
    CHECKF(!plan && strstr(err.message, "does not act on pictures"), "%s", err.message);
}

static void bytes_of_other_kinds_are_refused_by_name(void)
{
    static const struct {
        const char *bytes, *says;
    } cases[] = {
        {"\xFF\xD8\xFF\xE0 something", "a JPEG picture where a volume is wanted: give NIfTI, NPY"},
        {"plain text here", "this is no NIfTI, NPY or NPZ volume"},
        {"GIF89a and so on", "GIF is not read: convert it to NIfTI, NPY or NPZ"}};
    pst_error err;
    psti_plan *plan = plan_of("decode", volumes, 1, &err);
    const psti_rng_key key = {.seed = 7};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const psti_input in = {(const uint8_t *)cases[i].bytes, strlen(cases[i].bytes), -1};
        CHECK(psti_work_start(work, &kit, plan, &key, &in, &err) == PST_EFORMAT);
        CHECKF(strstr(err.message, cases[i].says), "%s", err.message);
    }
    psti_plan_free(plan);
}

/* ---- volumes --------------------------------------------------------------------------------- */

static int64_t corner(const float *got, int64_t n)
{
    return (int64_t)got[(n - 1) * n * n + n - 1] + 100;
}

static void crops_and_flips_are_views(void)
{
    enum { N = 3 };
    psti_decoded forms[2];
    pst_error err;
    make_volume(forms);
    psti_plan *plan = plan_of("decode | cube(3) | turn", volumes, 2, &err);
    for (uint64_t id = 0; id < 20; id++) {
        int64_t shape[PST_MAX_RANK];
        CHECK(start(plan, forms, id, &err) == 0);
        CHECK(psti_work_need(work) == 0);
        CHECK(run_all(&err) == 0 && psti_work_bytes(work, NULL) < 20000);
        float *image = deliver(plan, 0, shape);
        CHECK(shape_is(shape, 1, N, N, N));
        uint8_t *mask = deliver(plan, 1, shape);
        CHECK(shape_is(shape, 1, N, N, N));
        /* Turned: the last plane's last column is the cube's first corner. */
        const int64_t first = corner(image, N);
        for (int64_t z = 0; z < N; z++)
            for (int64_t y = 0; y < N; y++)
                for (int64_t x = 0; x < N; x++) {
                    const int64_t at = (z * N + y) * N + x;
                    const int64_t from = first + ((N - 1 - z) * H + y) * W + N - 1 - x;
                    CHECK(image[at] == (float)(from - 100) && mask[at] == (uint8_t)from);
                }
        free(image);
        free(mask);
    }
    psti_plan_free(plan);
}

/* What is somebody else's memory is not written to, seen through a view or not. */
static void ops_in_place_leave_the_cache_alone(void)
{
    static float values[VOXELS], kept[VOXELS];
    const psti_geom size = {H, W, 1, D, PST_F32, PSTI_AXES_VOLUME};
    const psti_decoded form = form_of(PST_VOLUME, &size, values);
    static const char *const texts[] = {"decode | delay(0, 0.5) | add(2)",
                                        "decode | delay(0, 0.5) | turn | add(1) | turn | add(1)"};
    pst_error err;
    for (int i = 0; i < VOXELS; i++)
        kept[i] = values[i] = (float)i;
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        psti_plan *plan = plan_of(texts[t], volumes, 1, &err);
        for (uint64_t id = 0; id < 6; id++) {
            int64_t shape[PST_MAX_RANK];
            CHECK(start(plan, &form, id, &err) == 0);
            const size_t need = psti_work_need(work), before = psti_work_bytes(work, &kit);
            CHECK(need >= sizeof values);
            CHECK(run_all(&err) == 0 && psti_work_bytes(work, &kit) - before <= need);
            float *got = deliver(plan, 0, shape);
            CHECK(shape_is(shape, 1, D, H, W));
            for (int i = 0; i < VOXELS; i++)
                CHECK(got[i] == kept[i] + 2);
            CHECK(memcmp(values, kept, sizeof values) == 0);
            free(got);
            psti_work_clear(work, &kit, 0);
        }
        psti_plan_free(plan);
    }
}

static void types_change_where_an_op_says_so(void)
{
    psti_decoded forms[2];
    pst_error err;
    int64_t shape[PST_MAX_RANK];
    make_volume(forms);
    static const char *const texts[] = {"decode | cube(4) | turn | floats | add(3); mask: to(i64)",
                                        "decode | cube(4) | copy | floats | add(3); mask: to(i64)"};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        psti_plan *plan = plan_of(texts[t], volumes, 2, &err);
        CHECKF(plan != NULL, "%s", err.message);
        CHECK(start(plan, forms, 1, &err) == 0 && run_all(&err) == 0);
        CHECK(psti_work_field(work, 0)->dtype == PST_F32);
        CHECK(psti_work_field(work, 1)->dtype == PST_U8 && psti_work_field(work, 1)->bytes == 64);
        float *image = deliver(plan, 0, shape);
        int64_t *mask = deliver(plan, 1, shape);
        for (int i = 0; i < 64; i++)
            CHECK((uint8_t)((int)image[i] - 3 + 100) == mask[i]);
        free(image);
        free(mask);
        psti_plan_free(plan);
    }
}

static void volume_and_mask_must_have_one_size(void)
{
    psti_decoded forms[2];
    pst_error err;
    make_volume(forms);
    psti_plan *plan = plan_of("decode | cube(3)", volumes, 2, &err);
    forms[1].header.depth = D - 1;
    CHECK(start(plan, forms, 1, &err) == PST_EFIELD);
    CHECKF(
        strstr(err.message, "image is 5 x 6 x 7 and mask is 4 x 6 x 7 (planes x rows x columns)"),
        "%s", err.message);
    psti_plan_free(plan);
}

static void too_large_is_refused(void)
{
    const psti_geom size = {1 << 14, 1 << 14, 1, 4, PST_F32, PSTI_AXES_VOLUME};
    psti_decoded form = form_of(PST_VOLUME, &size, voxels);
    pst_error err;
    psti_plan *plan = plan_of("decode | delay(0, 0.5) | add(1)", volumes, 1, &err);
    CHECK(start(plan, &form, 1, &err) == 0);
    form.header.depth++;
    CHECK(start(plan, &form, 1, &err) == PST_ELIMIT);
    CHECKF(strstr(err.message, "limit of 4096 MiB"), "%s", err.message);
    psti_plan_free(plan);
}

static void a_decoded_form_of_a_volume_is_told_ahead(void)
{
    psti_decoded forms[2];
    pst_error err;
    make_volume(forms);
    psti_plan *plan = plan_of("decode | floats | cube(3)", volumes, 2, &err);
    CHECK(psti_plan_decoded_stages(plan) == 2 && psti_plan_decoded_pictures(plan) == 2);
    /* What the form holds is behind the decoded stages already. */
    static float values[VOXELS];
    for (int i = 0; i < VOXELS; i++)
        values[i] = voxels[i];
    forms[0].field = psti_field_of(PST_VOLUME, &(psti_geom){H, W, 1, D, PST_F32, PSTI_AXES_VOLUME});
    forms[0].field.data = (uint8_t *)values;
    CHECK(start(plan, forms, 4, &err) == 0);
    const psti_decoded got = psti_work_decoded(work, 0);
    CHECK(got.header.dtype == PST_I16 && got.header.depth == D && got.header.unit[0] == 5);
    CHECK(got.field.dtype == PST_F32 && got.field.bytes == sizeof values);
    CHECK(run_all(&err) == 0 && psti_work_field(work, 0)->dtype == PST_F32);
    psti_plan_free(plan);
}

/* ---- recordings ------------------------------------------------------------------------------ */

static psti_decoded recording(int16_t *samples, int64_t count, int64_t sound)
{
    const psti_geom size = {count, 1, 1, 0, PST_I16, PSTI_AXES_WAVE, {16000}};
    for (int64_t i = 0; i < count; i++)
        samples[i] = (int16_t)(i < sound ? i * 100 - 3000 : 0);
    return form_of(PST_AUDIO, &size, samples);
}

static void recordings_go_out_between_minus_one_and_one(void)
{
    int16_t samples[300];
    int64_t shape[PST_MAX_RANK];
    const psti_decoded form = recording(samples, 300, 300);
    pst_error err;
    psti_plan *plan = plan_of("decode", &audio, 1, &err);
    CHECK(start(plan, &form, 1, &err) == 0 && run_all(&err) == 0);
    float *got = deliver(plan, 0, shape);
    CHECK(shape[0] == 300);
    for (int i = 0; i < 300; i++)
        CHECK(got[i] == (float)samples[i] / 32768);
    free(got);
    psti_plan_free(plan);
}

static void sizes_may_be_known_late(void)
{
    int16_t samples[100];
    pst_error err;
    psti_plan *plan = plan_of("decode | rest | rows(8) | add(5)", &audio, 1, &err);
    CHECKF(plan != NULL, "%s", err.message);
    CHECK(psti_plan_decoded_stages(plan) == 1);
    for (int64_t sound = 8; sound <= 100; sound += 23) {
        int64_t shape[PST_MAX_RANK];
        const psti_decoded form = recording(samples, 100, sound);
        CHECK(start(plan, &form, 1, &err) == 0 && !psti_work_grew(work));
        CHECK(psti_work_step(work, &kit, &err) == 1 && psti_work_grew(work));
        CHECK(psti_work_need(work) >= (size_t)(sound / 8 * 8) * 4);
        CHECK(run_all(&err) == 0);
        float *got = deliver(plan, 0, shape);
        CHECKF(shape[0] == sound / 8 && shape[1] == 8, "%lld", (long long)shape[0]);
        for (int64_t i = 0; i < shape[0] * 8; i++)
            CHECK(got[i] == (float)samples[i] + 5);
        free(got);
    }
    psti_plan_free(plan);
}

/* ---- foreseeing ------------------------------------------------------------------------------ */

static void work_is_foreseen_in_voxels(void)
{
    psti_decoded forms[2];
    double features[PSTI_FEATURES_MAX], known[PSTI_FEATURES_MAX];
    const psti_rng_key key = {.seed = 7, .epoch = 1, .id = 3};
    pst_error err;
    make_volume(forms);
    psti_plan *plan = plan_of("decode | cube(3) | floats", volumes, 1, &err);
    CHECK(start(plan, forms, 3, &err) == 0);
    psti_work_foresee(work, features);
    CHECK(features[PSTI_F_READ] == 0 && features[PSTI_F_TOUCHED] == 2 * 27);
    /* 54 million bytes are taken to be 27 million voxels, 300 a side. */
    psti_plan_foresee(plan, &key, 3, &(psti_known){.bytes = 54e6}, known);
    CHECKF(known[PSTI_F_PIXELS] == 27e6 && known[PSTI_F_WINDOW] == 27, "%f %f",
           known[PSTI_F_PIXELS], known[PSTI_F_WINDOW]);
    psti_plan_free(plan);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void views_are_copied_as_they_show(void)
{
    psti_decoded forms[2];
    int16_t copy[VOXELS];
    make_volume(forms);
    psti_field view = forms[0].field, to;
    CHECK(psti_field_dense(&view) && view.bytes == sizeof voxels);
    view.data += view.step[1] + 2 * view.step[2] + (W - 1) * view.step[3];
    view.step[3] = -view.step[3];
    view.shape[1] = 2;
    view.shape[2] = 3;
    view.shape[3] = W - 2;
    CHECK(!psti_field_dense(&view));
    to = view;
    psti_field_pack(&to);
    to.data = (uint8_t *)copy;
    CHECK(to.bytes == (size_t)(2 * 3 * (W - 2)) * 2 && psti_field_dense(&to));
    psti_field_copy(&view, &to);
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < W - 2; x++)
                CHECK(copy[(z * 3 + y) * (W - 2) + x] ==
                      voxels[((z + 1) * H + y + 2) * W + W - 1 - x]);
    const psti_geom size = psti_field_geom(&view);
    CHECK(size.depth == 2 && size.rows == 3 && size.cols == W - 2 && size.channels == 1);
    size_t bytes;
    CHECK(psti_geom_bytes(&size, &bytes) && bytes == to.bytes);
    CHECK(!psti_geom_bytes(&(psti_geom){INT64_MAX, 4, 1, .dtype = PST_F32}, &bytes));
    CHECK(!psti_geom_bytes(&(psti_geom){4, 4, 1}, &bytes));
}

int main(void)
{
    CHECK(psti_kit_init(&kit) == 0);
    work = psti_work_new();
    RUN(outputs_have_the_shape_of_their_axes);
    RUN(ops_that_do_not_fit_are_refused);
    RUN(bytes_of_other_kinds_are_refused_by_name);
    RUN(crops_and_flips_are_views);
    RUN(ops_in_place_leave_the_cache_alone);
    RUN(types_change_where_an_op_says_so);
    RUN(volume_and_mask_must_have_one_size);
    RUN(too_large_is_refused);
    RUN(a_decoded_form_of_a_volume_is_told_ahead);
    RUN(recordings_go_out_between_minus_one_and_one);
    RUN(sizes_may_be_known_late);
    RUN(work_is_foreseen_in_voxels);
    RUN(views_are_copied_as_they_show);
    psti_work_free(work);
    psti_kit_fini(&kit);
    return check_report();
}
