/* SPDX-License-Identifier: Apache-2.0
 * What is foreseen of a sample is what happens to it: branches, seen in the pixels that come out;
 * windows, seen in what is decoded; and every number, against the decisions of the started work.
 * Ids are the seeds. */
#include <stdlib.h>

#include "carry.h"
#include "check.h"
#include "core/memory.h"
#include "pictures.h"

static const psti_plan_input fields[] = {{.name = "image", .kind = PST_IMAGE, .encoded = true},
                                         {.name = "mask", .kind = PST_MASK, .encoded = true},
                                         {.name = "label", .kind = PST_LABEL, .dtype = PST_I64}};
enum { ROWS = 150, COLS = 190 };

static psti_kit kit;
static psti_work *work;
static uint8_t *photo;
static size_t photo_bytes;

static psti_rng_key key_of(uint64_t id)
{
    return (psti_rng_key){.seed = 7, .epoch = 1, .id = id};
}

static psti_known known_photo(void)
{
    return (psti_known){.bytes = (double)photo_bytes, .rows = ROWS, .cols = COLS};
}

/* ---- branches -------------------------------------------------------------------------------- */

/* The plan with each branch fixed, at the same places. */
static psti_plan *fixed_plan(bool turn, bool flip, bool invert)
{
    char text[200];
    snprintf(text, sizeof text,
             "decode | hflip(%d) | resize((40, 50)) | vflip(%d) | random_invert(%d)", turn, flip,
             invert);
    return plan_make(text, fields, 1, false);
}

static void branches_foreseen_are_the_branches_taken(void)
{
    const sample in = sample_of(photo, photo_bytes);
    psti_plan *plan = plan_make(
        "decode | hflip | resize((40, 50)) | vflip(0.3) | random_invert(0.6)", fields, 1, false);
    psti_plan *fixed[8];
    int met[8] = {0};
    for (int i = 0; i < 8; i++)
        fixed[i] = fixed_plan(i & 1, i & 2, i & 4);
    CHECK(psti_plan_features(plan) == PSTI_F_BRANCHES + 3);
    for (uint64_t id = 0; id < 64; id++) {
        double f[PSTI_FEATURES_MAX];
        const psti_rng_key key = key_of(id);
        const psti_known nothing = {.bytes = 5000};
        psti_plan_foresee(plan, &key, 0, &nothing, f);
        const int branch = (f[PSTI_F_BRANCHES] > 0) + 2 * (f[PSTI_F_BRANCHES + 1] > 0) +
                           4 * (f[PSTI_F_BRANCHES + 2] > 0);
        result got = carry_one(plan, work, &kit, &in, id),
               want = carry_one(fixed[branch], work, &kit, &in, id);
        CHECKF(got.rc == 0 && result_equal(&got, &want), "id %d branch %d", (int)id, branch);
        met[branch]++;
        result_free(&got);
        result_free(&want);
    }
    for (int i = 0; i < 8; i++) {
        CHECKF(met[i] > 0, "branch %d", i);
        psti_plan_free(fixed[i]);
    }
    psti_plan_free(plan);
}

/* What hangs on the id: a delay in runs is known ahead; a hidden one looks alike for all. */
static void branches_by_id_are_foreseen(void)
{
    psti_plan *runs = plan_make("decode | delay(0, 0.25, runs=4)", fields, 1, false),
              *hidden = plan_make("decode | delay(0, 0.25, hidden)", fields, 1, false),
              *drawn = plan_make("decode | delay(0, 0.25)", fields, 1, false);
    const psti_known known = known_photo();
    const psti_rng_key key = key_of(1000);
    double f[PSTI_FEATURES_MAX], seen = -1;
    CHECK(psti_plan_features(runs) == PSTI_F_BRANCHES + 1);
    for (int64_t id = 0; id < 64; id++) {
        psti_plan_foresee(runs, &key, id, &known, f);
        CHECKF(f[PSTI_F_BRANCHES] == (id % 16 < 4), "id %d: %g", (int)id, f[PSTI_F_BRANCHES]);
        psti_plan_foresee(hidden, &key, id, &known, f);
        CHECK(f[PSTI_F_BRANCHES] == 1);
        psti_plan_foresee(drawn, &key, id, &known, f);
        CHECK(seen < 0 || f[PSTI_F_BRANCHES] == seen);
        seen = f[PSTI_F_BRANCHES];
    }
    psti_plan_free(runs);
    psti_plan_free(hidden);
    psti_plan_free(drawn);
}

/* Views draw each for itself; a view counts where it acts. */
static void branches_of_views_are_counted(void)
{
    psti_plan *plan = plan_make("decode | views(3: resize((30, 30))) | hflip", fields, 1, false),
              *still =
                  plan_make("decode | views(3: resize((30, 30))) | hflip(0)", fields, 1, false);
    const sample in = sample_of(photo, photo_bytes);
    const psti_known known = known_photo();
    psti_kit *one = &kit;
    int met[4] = {0};
    for (uint64_t id = 0; id < 40; id++) {
        double f[PSTI_FEATURES_MAX];
        result got[3], plain[3];
        int turned = 0;
        const psti_rng_key key = key_of(id);
        psti_plan_foresee(plan, &key, 0, &known, f);
        carry(plan, work, &one, 1, &in, id, got, 3);
        carry(still, work, &one, 1, &in, id, plain, 3);
        for (int v = 0; v < 3; v++) {
            turned += !result_equal(&got[v], &plain[v]);
            result_free(&got[v]);
            result_free(&plain[v]);
        }
        CHECKF(f[PSTI_F_BRANCHES] == turned, "id %d: %g, %d", (int)id, f[PSTI_F_BRANCHES], turned);
        met[turned]++;
    }
    CHECK(met[0] && met[1] && met[2] && met[3]);
    psti_plan_free(plan);
    psti_plan_free(still);
}

/* A policy that picks nothing leaves the picture; else it is counted pick by pick. */
static void picks_of_a_policy_are_counted(void)
{
    psti_plan *plan = plan_make("decode | resize((40, 50)) | rand_augment(3)", fields, 1, false),
              *plain = plan_make("decode | resize((40, 50))", fields, 1, false);
    const sample in = sample_of(photo, photo_bytes);
    const psti_known known = known_photo();
    int met[4] = {0};
    result want = carry_one(plain, work, &kit, &in, 0);
    for (uint64_t id = 0; id < 3000; id++) {
        double f[PSTI_FEATURES_MAX];
        const psti_rng_key key = key_of(id);
        psti_plan_foresee(plan, &key, 0, &known, f);
        const int picks = (int)f[PSTI_F_BRANCHES];
        CHECK(picks >= 0 && picks <= 3);
        met[picks & 3]++;
        if (picks != 0)
            continue;
        result got = carry_one(plan, work, &kit, &in, id);
        CHECKF(result_equal(&got, &want), "id %d", (int)id);
        result_free(&got);
    }
    /* One of 14 changes is none: 3000 / 14^3 = 1.1 have no pick at all, and 13^3 / 14^3 all. */
    CHECKF(met[3] > 2300 && met[3] < 2500 && met[2] > 450 && met[1] > 15, "%d %d %d %d", met[0],
           met[1], met[2], met[3]);
    result_free(&want);
    psti_plan_free(plan);
    psti_plan_free(plain);
}

static void more_ops_than_numbers_share_the_last(void)
{
    char text[1000] = "decode";
    for (int i = 0; i < 12; i++)
        strncat(text, " | hflip(1)", sizeof text - strlen(text) - 1);
    psti_plan *plan = plan_make(text, fields, 1, false);
    double f[PSTI_FEATURES_MAX + 1] = {[PSTI_FEATURES_MAX] = -1};
    const psti_rng_key key = key_of(1);
    const psti_known known = known_photo();
    CHECK(psti_plan_features(plan) == PSTI_FEATURES_MAX);
    psti_plan_foresee(plan, &key, 0, &known, f);
    CHECK(f[PSTI_F_BRANCHES] == 1 && f[PSTI_FEATURES_MAX - 2] == 1);
    CHECK(f[PSTI_FEATURES_MAX - 1] == 12 - (PSTI_FEATURES_MAX - PSTI_F_BRANCHES) + 1);
    CHECK(f[PSTI_FEATURES_MAX] == -1);
    psti_plan_free(plan);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The decoder makes at least the window and little more. */
static void windows_foreseen_are_what_is_decoded(void)
{
    psti_plan *plan = plan_make("decode | random_resized_crop(32) | hflip", fields, 1, false);
    const psti_known known = known_photo();
    const psti_input input = {photo, photo_bytes, -1};
    int part = 0;
    for (uint64_t id = 0; id < 60; id++) {
        double f[PSTI_FEATURES_MAX];
        const psti_rng_key key = key_of(id);
        psti_plan_foresee(plan, &key, 0, &known, f);
        int rc = psti_work_start(work, &kit, plan, &key, &input, NULL);
        CHECK(rc == 0);
        while (rc == 0 && !psti_work_at_decoded(work))
            rc = psti_work_step(work, &kit, NULL) < 0 ? -1 : 0;
        const psti_field made = psti_work_decoded(work, 0).field;
        const double pixels = (double)(made.shape[0] * made.shape[1]);
        const double bottom = f[PSTI_F_UP_TO] / f[PSTI_F_BYTES] * ROWS;
        CHECKF(pixels >= f[PSTI_F_WINDOW] && pixels < f[PSTI_F_WINDOW] + 40 * (ROWS + COLS),
               "id %d: %g made, %g foreseen", (int)id, pixels, f[PSTI_F_WINDOW]);
        CHECKF((double)(made.y0 + made.shape[0]) >= bottom - 1e-9 &&
                   (double)(made.y0 + made.shape[0]) < bottom + 24,
               "id %d: down to %lld, foreseen %g", (int)id, (long long)(made.y0 + made.shape[0]),
               bottom);
        CHECK(f[PSTI_F_MADE] == 32 * 32 && f[PSTI_F_READ] == f[PSTI_F_WINDOW]);
        part += f[PSTI_F_WINDOW] < ROWS * COLS;
    }
    CHECKF(part > 50, "%d", part);
    psti_plan_free(plan);
}

/* ---- against the decisions ------------------------------------------------------------------- */

typedef struct picture_case {
    const char *text;
    int inputs;
} picture_case;

static void check_same(const psti_plan *plan, const picture_case *c, const psti_input *inputs,
                       uint64_t id)
{
    double ahead[PSTI_FEATURES_MAX], later[PSTI_FEATURES_MAX];
    const psti_rng_key key = key_of(id);
    psti_known known = {.rows = ROWS, .cols = COLS};
    for (int i = 0; i < 2 && i < c->inputs; i++)
        known.bytes += (double)inputs[i].size;
    pst_error err = {0};
    psti_plan_foresee(plan, &key, (int64_t)id, &known, ahead);
    psti_work_set_id(work, (int64_t)id);
    const int rc = psti_work_start(work, &kit, plan, &key, inputs, &err);
    CHECKF(rc == 0, "%s: %s", c->text, err.message);
    if (rc < 0)
        return;
    psti_work_foresee(work, later);
    for (int i = 0; i < psti_plan_features(plan); i++)
        CHECKF(ahead[i] == later[i], "%s, id %d: number %d is %g ahead and %g later", c->text,
               (int)id, i, ahead[i], later[i]);
}

static int same_size(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    (void)user, (void)err;
    return pst_call_size(out, in->rows, in->cols, in->channels) ? 0 : -1;
}

static const pst_call calls[] = {{.name = "same", .run = same_size}};

static void numbers_are_those_of_the_started_work(void)
{
    static const picture_case cases[] = {
        {"decode", 1},
        {"decode | random_resized_crop(32) | hflip", 1},
        {"decode | hflip(0.5) | random_crop(60) | color_jitter(0.4, p=0.5) | normalize(imagenet)",
         1},
        {"decode | center_crop(64) | auto_augment | random_erasing(0.3)", 1},
        {"decode | resize(100) | random_crop(80, padding=8) | augmix", 1},
        {"decode | hflip(0.2) | views(2: random_resized_crop(40) | hflip, 3: "
         "random_resized_crop(24, scale=(0.05, 0.25)) | gaussian_blur(5, p=0.5)) | vflip(0.3)",
         1},
        {"decode | random_crop(100) | views(2: vflip | random_crop(50), 1: hflip)", 1},
        {"decode | delay(0, 0.5) | hflip | delay(0, 0.5, runs=3, stages=2) | resize(90)", 1},
        {"decode | call(same, any=true) | random_crop(50) | vflip", 1},
        {"decode | hflip | random_crop(60, fill=(1, 2, 3)) | random_grayscale(0.5)", 2},
        {"decode | views(2: random_resized_crop(40), 1: vflip) | hflip | random_rotation(20)", 2},
    };
    psti_input inputs[2] = {{photo, photo_bytes, -1}, {NULL, 0, -1}};
    uint8_t *mask = png_make(ROWS, COLS, 1, 8, &inputs[1].size);
    inputs[1].bytes = mask;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].inputs == 2 && !mask)
            continue;
        psti_plan *plan = plan_make(cases[i].text, fields, cases[i].inputs, false);
        CHECKF(plan && psti_plan_set_calls(plan, calls, 1, NULL) == 0, "%s", cases[i].text);
        for (uint64_t id = 0; plan && id < 40; id++)
            check_same(plan, &cases[i], inputs, id);
        psti_plan_free(plan);
    }
    free(mask);
}

/* Behind a call(any=true) nothing is aimed: the right picture is decoded whole though its first op
 * crops. */
static void what_is_behind_an_open_size_is_decoded_whole(void)
{
    static const psti_plan_input both[] = {{.name = "left", .kind = PST_IMAGE, .encoded = true},
                                           {.name = "right", .kind = PST_IMAGE, .encoded = true}};
    static const picture_case open = {
        "decode; left: call(same, any=true); left, right: random_crop(50)", 2};
    const psti_input inputs[2] = {{photo, photo_bytes, -1}, {photo, photo_bytes, -1}};
    double f[PSTI_FEATURES_MAX];
    const psti_rng_key key = key_of(2);
    const psti_known known = known_photo();
    psti_plan *plan = plan_make(open.text, both, 2, false);
    CHECK(plan && psti_plan_set_calls(plan, calls, 1, NULL) == 0);
    if (!plan)
        return;
    psti_plan_foresee(plan, &key, 0, &known, f);
    CHECKF(f[PSTI_F_WINDOW] == 2 * ROWS * COLS, "%g", f[PSTI_F_WINDOW]);
    check_same(plan, &open, inputs, 2);
    psti_plan_free(plan);
}

/* ---- forms and sizes ------------------------------------------------------------------------- */

static void what_a_form_spares_is_not_counted(void)
{
    psti_plan *plan =
        plan_make("decode | resize(100) | random_crop(80) | hflip(1)", fields, 1, false);
    double all[PSTI_FEATURES_MAX], rest[PSTI_FEATURES_MAX], last[PSTI_FEATURES_MAX],
        whole[PSTI_FEATURES_MAX];
    const psti_rng_key key = key_of(3);
    psti_known known = known_photo();
    psti_plan_foresee(plan, &key, 0, &known, all);
    known.decoded = true;
    psti_plan_foresee(plan, &key, 0, &known, rest);
    known.augmented = true;
    psti_plan_foresee(plan, &key, 0, &known, last);
    CHECK(all[PSTI_F_BYTES] == (double)photo_bytes && all[PSTI_F_PIXELS] == ROWS * COLS);
    CHECK(all[PSTI_F_READ] == ROWS * COLS + 80 * 80 && rest[PSTI_F_READ] == 80 * 80);
    CHECK(rest[PSTI_F_BYTES] == 0 && rest[PSTI_F_WINDOW] == 0 && rest[PSTI_F_BRANCHES] == 1);
    CHECK(last[PSTI_F_READ] == 0 && last[PSTI_F_BRANCHES] == 0 && last[PSTI_F_MADE] == 0);
    CHECK(all[PSTI_F_TOUCHED] == 2 * 80 * 80 && last[PSTI_F_TOUCHED] == 80 * 80);
    CHECK(all[PSTI_F_ONE] == 1 && rest[PSTI_F_ONE] == 1 && last[PSTI_F_ONE] == 1);
    psti_plan_free(plan);
    plan = plan_make("decode | random_crop(80)", fields, 1, false);
    known = known_photo();
    psti_plan_foresee(plan, &key, 0, &known, all);
    known.whole = true;
    psti_plan_foresee(plan, &key, 0, &known, whole);
    CHECK(all[PSTI_F_WINDOW] == 80 * 80 && whole[PSTI_F_WINDOW] == ROWS * COLS);
    CHECK(all[PSTI_F_UP_TO] < whole[PSTI_F_UP_TO] && whole[PSTI_F_UP_TO] == whole[PSTI_F_BYTES]);
    psti_plan_free(plan);
}

/* Where only bytes are known a size is made up that grows with them; an op that does not fit it
 * is passed over. */
static void unknown_sizes_follow_the_bytes(void)
{
    psti_plan *plan = plan_make("decode | random_crop(600) | hflip(1)", fields, 1, false);
    double small[PSTI_FEATURES_MAX], large[PSTI_FEATURES_MAX], none[PSTI_FEATURES_MAX];
    const psti_rng_key key = key_of(3);
    psti_plan_foresee(plan, &key, 0, &(psti_known){.bytes = 10e3}, small);
    psti_plan_foresee(plan, &key, 0, &(psti_known){.bytes = 1e6}, large);
    psti_plan_foresee(plan, &key, 0, &(psti_known){0}, none);
    CHECK(large[PSTI_F_PIXELS] > 90 * small[PSTI_F_PIXELS] && small[PSTI_F_PIXELS] > 10e3);
    CHECK(small[PSTI_F_MADE] == 0 && small[PSTI_F_BRANCHES] == 1);
    CHECK(large[PSTI_F_MADE] == 600 * 600 && large[PSTI_F_BRANCHES] == 1);
    CHECK(none[PSTI_F_BYTES] == 0 && none[PSTI_F_PIXELS] > 10e3);
    psti_plan_free(plan);
}

static void nothing_is_left_behind(void)
{
    psti_mem_stats stats;
    psti_work_free(work);
    psti_kit_fini(&kit);
    psti_mem_stats_total(&stats);
    CHECKF(stats.live == 0, "%llu blocks", (unsigned long long)stats.live);
}

int main(void)
{
    CHECK(psti_kit_init(&kit) == 0);
    work = psti_work_new();
    photo = jpeg_make(ROWS, COLS, 4, false, &photo_bytes);
    RUN(branches_foreseen_are_the_branches_taken);
    RUN(branches_by_id_are_foreseen);
    RUN(branches_of_views_are_counted);
    RUN(picks_of_a_policy_are_counted);
    RUN(more_ops_than_numbers_share_the_last);
    RUN(windows_foreseen_are_what_is_decoded);
    RUN(numbers_are_those_of_the_started_work);
    RUN(what_is_behind_an_open_size_is_decoded_whole);
    RUN(what_a_form_spares_is_not_counted);
    RUN(unknown_sizes_follow_the_bytes);
    RUN(nothing_is_left_behind);
    free(photo);
    return check_report();
}
