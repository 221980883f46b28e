/* SPDX-License-Identifier: Apache-2.0
 * Decisions that go by the contents of a mask: they are the same whether these were looked at
 * before, are looked at now, or need not be; and nothing of one sample reaches the next. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/status.h"
#include "pipeline/pipeline.h"

enum { SIDE = 24, VOXELS = SIDE * SIDE * SIDE, KEYS = 64 };
static const char recipe[] = "decode | balanced_crop(8) | random_flip(p=0)";

static const psti_plan_input inputs[] = {
    {.name = "image", .kind = PST_VOLUME, .encoded = true, .rank = 4},
    {.name = "mask", .kind = PST_MASK, .encoded = true, .rank = 4}};
static const psti_input none[2] = {{NULL, 0, -1}, {NULL, 0, -1}};

static psti_kit kit;
static psti_work *work;
static float voxels[VOXELS];
static uint8_t classes[VOXELS];
static psti_decoded forms[2];

static psti_decoded form_of(int kind, int dtype, void *data)
{
    const psti_geom size = {SIDE, SIDE, 1, SIDE, dtype, PSTI_AXES_VOLUME, {0}};
    psti_decoded form = {.header = size, .field = psti_field_of(kind, &size)};
    form.field.data = data;
    return form;
}

/* Values tell where a voxel is; one part of class 3 in a corner that other crops hardly reach. */
static void make_volume(void)
{
    memset(classes, 0, sizeof classes);
    for (int i = 0; i < VOXELS; i++)
        voxels[i] = (float)i;
    for (int z = 20; z < 24; z++)
        for (int y = 21; y < 24; y++)
            classes[(z * SIDE + y) * SIDE + 22] = 3;
    forms[0] = form_of(PST_VOLUME, PST_F32, voxels);
    forms[1] = form_of(PST_MASK, PST_U8, classes);
}

static psti_plan *plan_of(const char *text, psti_id128 *form)
{
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    pst_error err = {0};
    if (psti_pipeline_parse(text, &pipeline, &err) == 0)
        psti_plan_new(pipeline, inputs, 2, &plan, &err);
    CHECKF(plan != NULL, "%s", err.message);
    if (plan && form)
        *form = psti_plan_decoded_form(plan, pipeline);
    psti_pipeline_free(pipeline);
    return plan;
}

/* The first voxel of what comes out, -1 on failure. */
static int64_t corner(const psti_plan *plan, uint64_t id, const psti_note *note)
{
    const psti_rng_key key = {.seed = 3, .epoch = 1, .id = id};
    pst_error err = {0};
    psti_work_set_note(work, note);
    int rc = psti_work_start_decoded(work, &kit, plan, &key, none, forms, &err);
    while (rc >= 0 && (rc = psti_work_step(work, &kit, &err)) > 0)
        continue;
    CHECKF(rc == 0, "%s", err.message);
    float first[512];
    if (rc < 0)
        return -1;
    psti_work_finish(work, &kit, 0, (uint8_t *)first);
    return (int64_t)first[0];
}

static void a_decision_is_the_same_whoever_has_looked(void)
{
    psti_plan *plan = plan_of(recipe, NULL);
    psti_note note = {0};
    int looked = 0;
    int64_t found[KEYS];
    for (int i = 0; i < KEYS; i++) {
        found[i] = corner(plan, (uint64_t)i, NULL);
        const psti_note *mine = psti_work_note(work);
        looked += mine != NULL;
        if (mine)
            memcpy(&note, mine, psti_note_bytes(mine));
    }
    CHECKF(looked > KEYS / 5 && looked < KEYS / 2, "%d of %d looked", looked, KEYS);
    CHECK(note.count == 1 && note.row[0].label == 3 && note.row[0].low[0] == 20 &&
          note.row[0].high[2] == 23);
    for (int i = 0; i < KEYS; i++) {
        CHECK(corner(plan, (uint64_t)i, &note) == found[i]);
        CHECK(psti_work_note(work) == NULL);
    }
    /* A note that tells of another place is believed: it was not looked again. */
    note.row[0] = (psti_box){3, {0, 0, 0}, {8, 8, 8}};
    int moved = 0;
    for (int i = 0; i < KEYS; i++) {
        const int64_t at = corner(plan, (uint64_t)i, &note);
        moved += at != found[i];
        CHECK(at == found[i] || at == 0);
    }
    CHECK(moved == looked);
    /* And forgotten with its sample. */
    const psti_rng_key key = {.seed = 3, .epoch = 1, .id = 0};
    psti_work_set_note(work, &note);
    CHECK(psti_work_start_decoded(work, &kit, plan, &key, none, forms, NULL) == 0);
    for (int i = 0; i < KEYS; i++)
        CHECK(corner(plan, (uint64_t)i, NULL) == found[i]);
    psti_plan_free(plan);
}

static void a_note_is_a_part_of_the_decoded_form(void)
{
    psti_id128 with, without;
    psti_plan *plan = plan_of(recipe, &with), *other = plan_of("decode", &without);
    CHECK(psti_plan_surveys(plan) && !psti_plan_surveys(other));
    CHECK(psti_plan_decoded_pictures(plan) == 2 && psti_plan_decoded_parts(plan) == 3);
    CHECK(psti_plan_decoded_pictures(other) == 2 && psti_plan_decoded_parts(other) == 2);
    CHECK(with.lo == without.lo && with.hi == without.hi);
    CHECK(strcmp(psti_plan_stage_name(plan, 1), "foreground") == 0);
    CHECK(psti_plan_decoded_stages(plan) == 2 && psti_plan_stage_count(plan) == 5);
    const psti_note note = {.count = 1, .row = {{3, {1, 2, 3}, {4, 5, 6}}}};
    corner(plan, 1, &note);
    const psti_decoded part = psti_work_decoded(work, 2);
    CHECK(part.field.bytes == sizeof(psti_note) && part.field.data != NULL &&
          memcmp(part.field.data, &note, psti_note_bytes(&note)) == 0);
    psti_plan_free(plan);
    psti_plan_free(other);
}

static void an_empty_mask_is_no_foreground(void)
{
    psti_plan *any = plan_of("decode | balanced_crop(8, foreground=1)", NULL);
    psti_plan *strict = plan_of("decode | balanced_crop(8, foreground=0.01, empty=error)", NULL);
    pst_error err = {0};
    memset(classes, 0, sizeof classes);
    CHECK(corner(any, 5, NULL) >= 0 && psti_work_note(work)->count == 0);
    for (uint64_t i = 0; i < 5; i++) {
        const psti_rng_key key = {.seed = 3, .epoch = 1, .id = i};
        int rc = psti_work_start_decoded(work, &kit, strict, &key, none, forms, &err);
        CHECK(rc == 0);
        rc = psti_work_step(work, &kit, &err);
        CHECKF(rc == PST_EFIELD && strstr(err.message, "no foreground"), "%s", err.message);
    }
    psti_plan_free(any);
    psti_plan_free(strict);
    make_volume();
}

int main(void)
{
    psti_kit_init(&kit);
    work = psti_work_new();
    make_volume();
    RUN(a_decision_is_the_same_whoever_has_looked);
    RUN(a_note_is_a_part_of_the_decoded_form);
    RUN(an_empty_mask_is_no_foreground);
    psti_work_free(work);
    psti_kit_fini(&kit);
    return check_report();
}
