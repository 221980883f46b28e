/* SPDX-License-Identifier: Apache-2.0
 * The op delay in a pipeline: no byte changes, which samples it hits, that it goes by in parts,
 * that burning takes CPU time and sleeping does not. Times are looked at from below, or as CPU
 * time. */
#include <stdlib.h>

#include "carry.h"
#include "check.h"
#include "core/clock.h"
#include "pictures.h"
#include "pipeline/pipeline_priv.h"

static const psti_plan_input image = {.name = "image", .kind = PST_IMAGE, .encoded = true};

static psti_kit kit_a, kit_b;
static psti_work *work;
static uint8_t *jpeg;
static size_t jpeg_bytes;

/* ---- bytes ----------------------------------------------------------------------------------- */

static void check_same(const char *with, const char *without)
{
    const sample in = sample_of(jpeg, jpeg_bytes);
    psti_plan *a = plan_make(with, &image, 1, false), *b = plan_make(without, &image, 1, false);
    psti_kit *const turns[] = {&kit_a, &kit_b};
    CHECKF(a && b, "%s", with);
    for (uint64_t id = 0; a && b && id < 12; id++) {
        result one, two = carry_one(b, work, &kit_a, &in, id);
        carry(a, work, turns, 2, &in, id, &one, 1);
        CHECKF(one.rc == 0 && result_equal(&one, &two), "%s, id %d", with, (int)id);
        result_free(&one);
        result_free(&two);
    }
    psti_plan_free(a);
    psti_plan_free(b);
}

static void no_byte_changes(void)
{
    check_same("decode | center_crop(32) | delay(0.01) | delay(0.1, share=0.2, runs=4, stages=10, "
               "hidden) | to(f32, nchw)",
               "decode | center_crop(32) | to(f32, nchw)");
    check_same(
        "decode | random_crop(40) | hflip | delay(0.01, 0.5) | delay(0.1, 0.5, burn, hidden)",
        "decode | random_crop(40) | hflip");
    check_same("decode | hflip | normalize(half) | delay(0.01, stages=3)",
               "decode | hflip | normalize(half)");
    check_same("decode(gray) | delay(0.01) | views(2: delay(0.01, stages=2), 1: center_crop(8))",
               "decode(gray) | views(2: center_crop((70, 90)), 1: center_crop(8))");
}

/* From a decoded form, whose memory is not the work's to write to. */
static void a_cached_picture_is_left_alone(void)
{
    psti_plan *plan = plan_make("decode | delay(0.01, 0.5, stages=3)", &image, 1, false);
    const psti_rng_key key = {.seed = 7, .epoch = 1, .id = 2};
    const psti_input in = {jpeg, jpeg_bytes, -1};
    uint8_t pixels[6 * 5 * 3];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 7);
    const psti_decoded cached = {.header = {6, 5, 3, .dtype = PST_U8},
                                 .field = {.kind = PST_IMAGE,
                                           .dtype = PST_U8,
                                           .rank = 3,
                                           .shape = {6, 5, 3},
                                           .data = pixels,
                                           .bytes = sizeof pixels,
                                           .stride = 15,
                                           .whole_rows = 6,
                                           .whole_cols = 5,
                                           .first_damaged_row = PSTI_ROWS_SOUND}};
    for (int64_t id = 0; id < 8; id++) {
        psti_rng_key mine = key;
        mine.id = (uint64_t)id;
        psti_work_set_id(work, id);
        CHECK(psti_work_start_decoded(work, &kit_a, plan, &mine, &in, &cached, NULL) == 0);
        const bool hit = psti_work_at(work, 1, 0)->draw.act;
        int steps = 1;
        while (psti_work_step(work, &kit_a, NULL) > 0)
            steps++;
        const psti_field *now = psti_work_field(work, 0);
        CHECK(steps == (hit ? 3 : 1) && (now->data == pixels) == !hit);
        CHECK(memcmp(now->data, pixels, sizeof pixels) == 0);
    }
    psti_work_clear(work, &kit_a, 1 << 20);
    psti_plan_free(plan);
}

/* ---- which samples --------------------------------------------------------------------------- */

/* Starts a sample; -1 unless the delay is stage 1. Whether it is decided to act. */
static int acts(const psti_plan *plan, int64_t id, uint64_t epoch)
{
    const psti_rng_key key = {.seed = 7, .epoch = epoch, .id = (uint64_t)id};
    const psti_input in = {jpeg, jpeg_bytes, -1};
    psti_work_set_id(work, id);
    if (psti_work_start(work, &kit_a, plan, &key, &in, NULL) < 0)
        return -1;
    return psti_work_at(work, 1, 0)->draw.act;
}

static void check_drawn(const char *text, int every, int run)
{
    psti_plan *plan = plan_make(text, &image, 1, false);
    CHECK(plan && psti_plan_decoded_stages(plan) == 2);
    for (int64_t id = 0; plan && id < 200; id++)
        CHECKF(acts(plan, id, 1) == (id % every < run), "%s, id %d", text, (int)id);
    psti_plan_free(plan);
}

static void runs_are_drawn_from_the_id(void)
{
    check_drawn("decode | delay(5, 0.2, 1)", 5, 1);
    check_drawn("decode | delay(5, 0.2, runs=16)", 80, 16);
    check_drawn("decode | delay(5, 0.3, runs=2, stages=4, burn)", 7, 2);
    check_drawn("decode | delay(5)", 1, 1);
    check_drawn("decode | delay(5, share=1, runs=3)", 1, 1);
    check_drawn("decode | delay(5, share=0, runs=3)", 1, 0);
    check_drawn("decode | delay(5, share=0)", 1, 0);
}

static void at_random_it_is_a_draw_like_others(void)
{
    psti_plan *plan = plan_make("decode | delay(5, 0.2)", &image, 1, false);
    CHECK(psti_plan_decoded_stages(plan) == 1);
    int hit = 0, changed = 0;
    for (int64_t id = 0; id < 2000; id++) {
        const int now = acts(plan, id, 1);
        CHECK(now == acts(plan, id, 1));
        hit += now;
        changed += now != acts(plan, id, 2);
    }
    CHECKF(hit > 320 && hit < 480, "%d of 2000", hit);
    CHECKF(changed > 500 && changed < 800, "%d of 2000", changed);
    psti_plan_free(plan);
}

/* CPU time of all stages of a sample; *steps: how many times it could be put aside, and one. */
static double burnt(const psti_plan *plan, int64_t id, int *steps)
{
    CHECK(acts(plan, id, 1) == 1);
    *steps = 1;
    const double since = psti_cpu_s();
    while (psti_work_step(work, *steps % 2 ? &kit_b : &kit_a, NULL) > 0)
        ++*steps;
    return psti_cpu_s() - since;
}

static void what_is_hidden_shows_in_the_time_alone(void)
{
    static const struct {
        const char *text;
        int every, run; /* every 0: by a hash */
    } cases[] = {{"decode | delay(30, 0.25, 2, hidden, burn, stages=3)", 8, 2},
                 {"decode | delay(30, 0.25, stages=3, hidden, burn)", 0, 0}};
    for (int c = 0; c < 2; c++) {
        psti_plan *plan = plan_make(cases[c].text, &image, 1, false);
        CHECK(psti_plan_decoded_stages(plan) == 2);
        int hits = 0, steps;
        for (int64_t id = 0; id < 24; id++) {
            const bool hit = burnt(plan, id, &steps) >= 0.03;
            CHECKF(cases[c].every == 0 || hit == (id % cases[c].every < cases[c].run), "%s: %d",
                   cases[c].text, (int)id);
            CHECK(steps == 4);
            hits += hit;
        }
        CHECKF(hits > 0 && hits < 20, "%d", hits);
        psti_plan_free(plan);
    }
}

/* ---- parts and time -------------------------------------------------------------------------- */

/* The cursor stays until the last part; statistics count a stage once. */
static void a_sample_can_be_put_aside_between_parts(void)
{
    psti_plan *plan = plan_make("decode | delay(0.1, stages=5) | hflip(1)", &image, 1, false);
    CHECK(acts(plan, 3, 1) == 1);
    const uint64_t runs = kit_a.stage_runs[1];
    CHECK(psti_work_step(work, &kit_a, NULL) == 1 && work->cursor == 1);
    for (int part = 0; part < 5; part++) {
        CHECK(work->cursor == 1 && work->part == part && kit_a.stage_runs[1] == runs);
        CHECK(psti_work_step(work, &kit_a, NULL) == 1);
    }
    CHECK(work->cursor == 2 && work->part == 0 && kit_a.stage_runs[1] == runs + 1);
    CHECK(psti_work_step(work, &kit_a, NULL) == 0 && work->cursor == 3);
    /* A sample that is dropped in the middle leaves nothing to the next. */
    CHECK(acts(plan, 3, 1) == 1);
    CHECK(psti_work_step(work, &kit_a, NULL) == 1 && psti_work_step(work, &kit_a, NULL) == 1);
    CHECK(acts(plan, 4, 1) == 1 && work->part == 0);
    psti_plan_free(plan);
}

static void burning_takes_cpu_time_and_sleeping_does_not(void)
{
    int steps;
    psti_plan *burn = plan_make("decode | delay(60, burn, stages=4)", &image, 1, false),
              *rest = plan_make("decode | delay(60, sleep, stages=2)", &image, 1, false);
    const double cpu = burnt(burn, 1, &steps);
    const uint64_t since = psti_now_ns();
    const double idle = burnt(rest, 1, &steps);
    CHECK(psti_now_ns() - since >= 60000000);
    /* All parts together: four times as much would be 0.24. */
    CHECKF(cpu >= 0.06 && cpu < 0.15 && idle < cpu / 2, "%g s burning, %g s asleep", cpu, idle);
    psti_plan_free(burn);
    psti_plan_free(rest);
}

int main(void)
{
    CHECK(psti_kit_init(&kit_a) == 0 && psti_kit_init(&kit_b) == 0);
    work = psti_work_new();
    jpeg = jpeg_make(70, 90, 5, false, &jpeg_bytes);
    RUN(no_byte_changes);
    RUN(a_cached_picture_is_left_alone);
    RUN(runs_are_drawn_from_the_id);
    RUN(at_random_it_is_a_draw_like_others);
    RUN(what_is_hidden_shows_in_the_time_alone);
    RUN(a_sample_can_be_put_aside_between_parts);
    RUN(burning_takes_cpu_time_and_sleeping_does_not);
    psti_work_free(work);
    psti_kit_fini(&kit_a);
    psti_kit_fini(&kit_b);
    free(jpeg);
    return check_report();
}
