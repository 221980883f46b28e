/* SPDX-License-Identifier: Apache-2.0
 * mixup and cutmix on a batch: what is drawn, what is blended and pasted, and that every level's
 * kernels give the bytes of the C ones. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "op/kernels/kernels.h"
#include "op/op.h"

enum { SLOTS = 7, ROWS = 37, COLS = 61, CHANNELS = 3, VALUES = ROWS * COLS * CHANNELS };

static psti_rng rng;

static float noise(void)
{
    return (float)psti_rng_range(&rng, -3, 3);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void blends_are_the_same_at_every_level(void)
{
    for (int level = PSTI_CPU_AVX2; level <= (int)psti_cpu_level(); level++)
        for (int to = 0; to < PSTI_TO_COUNT; to++)
            for (int n = 0; n < 40; n++) {
                const size_t size = to == PSTI_TO_F32 ? 4 : 2;
                float x[40], y[40], want[40];
                uint16_t *const xs = (uint16_t *)x, *const ys = (uint16_t *)y;
                for (int i = 0; i < 40; i++) {
                    x[i] = noise();
                    y[i] = noise();
                    if (to == PSTI_TO_F16) {
                        xs[i] = psti_c_half(noise() * (i % 5 ? 1 : 1e-6f));
                        ys[i] = psti_c_half(noise());
                    } else if (to == PSTI_TO_BF16) {
                        xs[i] = psti_c_bfloat(noise());
                        ys[i] = psti_c_bfloat(noise());
                    }
                }
                memcpy(want, x, sizeof want);
                const float keep = (float)psti_rng_unit(&rng);
                psti_kernels_level(PSTI_CPU_C)->blend[to](want, y, keep, 1 - keep, (size_t)n);
                psti_kernels_level((psti_cpu)level)->blend[to](x, y, keep, 1 - keep, (size_t)n);
                CHECKF(memcmp(x, want, 40 * size) == 0, "level %d, type %d, %d values", level, to,
                       n);
            }
}

static void halves_and_bfloats_read_back(void)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t bits = (uint16_t)i;
        const float half = psti_c_half_value(bits), bfloat = psti_c_bfloat_value(bits);
        if (half == half)
            CHECKF(psti_c_half(half) == bits, "half %04x became %g", i, (double)half);
        if (bfloat == bfloat)
            CHECKF(psti_c_bfloat(bfloat) == bits, "bfloat %04x", i);
    }
    CHECK(psti_c_half_value(0x3c00) == 1 && psti_c_half_value(0xc100) == -2.5f);
    CHECK(psti_c_half_value(1) == 0x1p-24f);
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Draws again by hand, from the generator that psti_mix_draw began with. */
static void draws_are_those_of_the_recipe(void)
{
    int cut = 0, whole = 0;
    for (int i = 0; i < 300; i++) {
        const psti_rng before = rng;
        psti_rng again = before;
        const psti_mix_params params = {.alpha = i % 3 ? 1 : 0.2, .p = 1};
        pst_mix mix;
        psti_mix_draw(PST_CUTMIX, &params, &rng, ROWS, COLS, &mix);
        psti_rng_unit(&again);
        const double lam = psti_rng_beta(&again, params.alpha, params.alpha);
        const int x = (int)psti_rng_below(&again, COLS), y = (int)psti_rng_below(&again, ROWS);
        const double r = 0.5 * sqrt(1 - lam);
        const int w = (int)(r * COLS), h = (int)(r * ROWS);
        CHECK(mix.kind == PST_CUTMIX && mix.done == 0);
        CHECK(mix.x1 == fmax(x - w, 0) && mix.x2 == fmin(x + w, COLS));
        CHECK(mix.y1 == fmax(y - h, 0) && mix.y2 == fmin(y + h, ROWS));
        CHECK(mix.lam == 1 - (double)((mix.x2 - mix.x1) * (mix.y2 - mix.y1)) / (ROWS * COLS));
        cut += mix.x2 - mix.x1 < 2 * w;
        whole += mix.x2 - mix.x1 == 2 * w;
        psti_rng other = before;
        psti_mix_draw(PST_MIXUP, &params, &other, ROWS, COLS, &mix);
        CHECK(mix.kind == PST_MIXUP && mix.lam == lam && mix.x2 == 0);
    }
    CHECK(cut > 20 && whole > 20);
}

static void a_batch_is_left_alone_with_1_minus_p(void)
{
    const psti_mix_params params = {.alpha = 0.5, .p = 0.25};
    int acted = 0;
    for (int i = 0; i < 4000; i++) {
        pst_mix mix;
        psti_mix_draw(PST_MIXUP, &params, &rng, ROWS, COLS, &mix);
        acted += mix.kind == PST_MIXUP;
        CHECK(mix.kind == PST_MIXUP || (mix.kind == PST_MIX_NONE && mix.lam == 1));
    }
    CHECKF(acted > 900 && acted < 1100, "%d", acted);
}

/* ---- mixing ---------------------------------------------------------------------------------- */

static float batch[SLOTS][VALUES], was[SLOTS][VALUES];

static void fill(void)
{
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < VALUES; i++)
            batch[s][i] = was[s][i] = noise();
}

/* Which slot a slot is mixed with. */
static int other_of(const uint8_t *valid, int slot)
{
    int other = slot;
    do
        other = (other + SLOTS - 1) % SLOTS;
    while (!valid[other]);
    return other;
}

static const uint8_t masks[][SLOTS] = {
    {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 0, 0, 0}, {0, 1, 0, 1, 1, 0, 1}, {0, 0, 1, 0, 0, 0, 0}};
enum { MASKS = sizeof masks / sizeof *masks };

static psti_mix_field field_of(int layout)
{
    return (psti_mix_field){.data = (uint8_t *)batch,
                            .slot_bytes = sizeof *batch,
                            .dtype = PST_F32,
                            .layout = layout,
                            .rows = ROWS,
                            .cols = COLS};
}

static void mixup_blends_with_the_valid_slot_before(void)
{
    for (int m = 0; m < MASKS; m++) {
        fill();
        const pst_mix mix = {.kind = PST_MIXUP, .lam = 0.3 + 0.1 * m};
        const psti_mix_field field = field_of(PST_NCHW);
        psti_mix_blend(&mix, &field, masks[m], SLOTS);
        const float keep = (float)mix.lam, take = (float)(1 - mix.lam);
        for (int s = 0; s < SLOTS; s++)
            for (int i = 0; i < VALUES; i++) {
                const volatile float own = keep * was[s][i];
                const volatile float other = take * was[masks[m][s] ? other_of(masks[m], s) : s][i];
                CHECK(batch[s][i] == (masks[m][s] ? own + other : was[s][i]));
            }
    }
}

static void cutmix_pastes_the_box_alone(void)
{
    const pst_mix boxes[] = {{PST_CUTMIX, 0, 0.5, 3, 5, 20, 40, 10},
                             {PST_CUTMIX, 0, 0.5, 0, 0, ROWS, COLS, 10},
                             {PST_CUTMIX, 0, 0.5, 36, 60, 37, 61, 10},
                             {PST_CUTMIX, 0, 1, 4, 4, 4, 9, 10}};
    for (int k = 0; k < 4 * MASKS * 2; k++) {
        const pst_mix *mix = &boxes[k % 4];
        const uint8_t *valid = masks[k / 4 % MASKS];
        const bool planar = k / 4 / MASKS;
        fill();
        const psti_mix_field field = field_of(planar ? PST_NCHW : PST_NHWC);
        psti_mix_paste(mix, &field, valid, SLOTS);
        for (int s = 0; s < SLOTS; s++)
            for (int i = 0; i < VALUES; i++) {
                const int pixel = planar ? i % (ROWS * COLS) : i / CHANNELS;
                const int y = pixel / COLS, x = pixel % COLS;
                const bool inside =
                    valid[s] && y >= mix->y1 && y < mix->y2 && x >= mix->x1 && x < mix->x2;
                CHECK(batch[s][i] == was[inside ? other_of(valid, s) : s][i]);
            }
    }
}

static void nothing_happens_without_valid_slots(void)
{
    const uint8_t none[SLOTS] = {0};
    const pst_mix mix = {PST_CUTMIX, 0, 0.5, 0, 0, ROWS, COLS, 10};
    const psti_mix_field field = field_of(PST_NCHW);
    fill();
    psti_mix_blend(&mix, &field, none, SLOTS);
    psti_mix_paste(&mix, &field, none, SLOTS);
    CHECK(memcmp(batch, was, sizeof batch) == 0);
}

int main(void)
{
    psti_rng_init(&rng, &(psti_rng_key){.seed = 21}, 0);
    printf("levels up to %s, seed 21\n", psti_cpu_name(psti_cpu_level()));
    RUN(blends_are_the_same_at_every_level);
    RUN(halves_and_bfloats_read_back);
    RUN(draws_are_those_of_the_recipe);
    RUN(a_batch_is_left_alone_with_1_minus_p);
    RUN(mixup_blends_with_the_valid_slot_before);
    RUN(cutmix_pastes_the_box_alone);
    RUN(nothing_happens_without_valid_slots);
    return check_report();
}
