/* SPDX-License-Identifier: Apache-2.0
 * Colour ops on small pictures whose result is known, in place and with gaps, what they refuse, and
 * what they draw. parity_color.py compares their pixels with torchvision's. Runs at the level of
 * PENSTOCK_CPU; the build runs it at each. */
#include <math.h>

#include "core/cpu.h"
#include "op/op_priv.h"
#include "op_trial.h"

static psti_rng noise_rng;

static psti_field noisy(int64_t rows, int64_t cols, int64_t channels)
{
    psti_field f = field_of(rows, cols, channels, PST_U8);
    for (size_t i = 0; i < f.bytes; i++)
        f.data[i] = (uint8_t)psti_rng_u32(&noise_rng);
    return f;
}

static psti_field pixels_of(int64_t rows, int64_t cols, int64_t channels, const uint8_t *values)
{
    psti_field f = field_of(rows, cols, channels, PST_U8);
    for (int64_t y = 0; y < rows; y++)
        memcpy(f.data + (size_t)y * f.stride, values + y * cols * channels,
               (size_t)(cols * channels));
    return f;
}

/* One change of colour: neither a policy nor random_erasing. */
static bool is_color(const psti_op *op)
{
    return !(op->flags & PSTI_OP_GEOMETRIC) && !strstr(op->name, "aug") && !op->overlay &&
           !op->parts;
}

/* One row of pixels through an op. */
static void check_row(const char *op, const char *param, int channels, const uint8_t *row, int cols,
                      const uint8_t *want)
{
    trial t = trial_of(op, param, NULL, NULL);
    CHECK(decide(&t, 1, cols, channels) == 0 && t.draw.act);
    psti_field in = pixels_of(1, cols, channels, row), out = run(&t, &in);
    for (int i = 0; i < cols * channels; i++)
        CHECKF(out.data[i] == want[i], "%s(%s): value %d is %d, not %d", op, param ? param : "", i,
               out.data[i], want[i]);
    free(in.data);
    free(out.data);
}

/* ---- pixels ---------------------------------------------------------------------------------- */

static void values_are_those_worked_out_by_hand(void)
{
    const uint8_t row[] = {10, 20, 30, 200, 100, 250};
    check_row("invert", NULL, 3, row, 2, (const uint8_t[]){245, 235, 225, 55, 155, 5});
    check_row("posterize", "bits=3", 3, row, 2, (const uint8_t[]){0, 0, 0, 192, 96, 224});
    check_row("posterize", "bits=0", 3, row, 2, (const uint8_t[6]){0});
    check_row("solarize", "threshold=100", 3, row, 2, (const uint8_t[]){10, 20, 30, 55, 155, 5});
    check_row("adjust_brightness", "factor=1.5", 3, row, 2,
              (const uint8_t[]){15, 30, 45, 255, 150, 255});
    /* Greys are 18 and 147, their mean 82.5 rounds up to 83. */
    check_row("adjust_contrast", "factor=0", 3, row, 2, (const uint8_t[]){83, 83, 83, 83, 83, 83});
    check_row("adjust_contrast", "factor=2", 3, row, 2, (const uint8_t[]){0, 0, 0, 255, 117, 255});
    check_row("adjust_saturation", "factor=0", 3, row, 2,
              (const uint8_t[]){18, 18, 18, 147, 147, 147});
    check_row("adjust_saturation", "factor=0.5", 3, row, 2,
              (const uint8_t[]){14, 19, 24, 173, 123, 198});
    check_row("autocontrast", NULL, 1, row, 6, (const uint8_t[]){0, 10, 21, 201, 95, 255});
    check_row("adjust_hue", "factor=0.5", 3, (const uint8_t[]){255, 0, 0}, 1,
              (const uint8_t[]){0, 255, 252}); /* 127 of 255 */
}

static void a_factor_of_one_changes_nothing(void)
{
    static const char *const names[] = {"adjust_brightness", "adjust_contrast", "adjust_saturation",
                                        "adjust_sharpness"};
    psti_field in = noisy(9, 70, 3);
    for (int i = 0; i < 4; i++) {
        trial t = trial_of(names[i], "factor=1", NULL, NULL);
        CHECK(decide(&t, 9, 70, 3) == 0);
        psti_field out = run(&t, &in);
        CHECKF(same(&in, &out), "%s", names[i]);
        free(out.data);
    }
    free(in.data);
}

static void one_value_stays_what_it_is(void)
{
    static const char *const names[] = {"autocontrast", "equalize"};
    psti_field in = field_of(20, 20, 3, PST_U8);
    memset(in.data, 77, in.bytes);
    for (int i = 0; i < 2; i++) {
        trial t = trial_of(names[i], NULL, NULL, NULL);
        CHECK(decide(&t, 20, 20, 3) == 0);
        psti_field out = run(&t, &in);
        CHECKF(same(&in, &out), "%s", names[i]);
        free(out.data);
    }
    free(in.data);
}

/* A quarter of the pixels each of 10, 20, 30, 40: steps below a value, the largest left out. */
static void equalize_spreads_values_evenly(void)
{
    psti_field in = field_of(40, 52, 1, PST_U8);
    for (int64_t y = 0; y < 40; y++)
        memset(in.data + (size_t)y * in.stride, 10 + (int)(y % 4) * 10, 52);
    trial t = trial_of("equalize", NULL, NULL, NULL);
    CHECK(decide(&t, 40, 52, 1) == 0);
    psti_field out = run(&t, &in);
    /* 1560 below the largest, a step is 6, half a step 3: (3 + 520 k) / 6. */
    CHECK(at(&out, 0, 0, 0) == 0 && at(&out, 1, 0, 0) == 87 && at(&out, 2, 0, 0) == 173 &&
          at(&out, 3, 0, 0) == 255);
    free(in.data);
    free(out.data);
}

static void sharpness_smooths_the_inside_only(void)
{
    psti_field in = field_of(5, 5, 1, PST_U8);
    in.data[2 * in.stride + 2] = 130;
    in.data[0] = 200;
    trial t = trial_of("adjust_sharpness", "factor=0", NULL, NULL);
    CHECK(decide(&t, 5, 5, 1) == 0);
    psti_field out = run(&t, &in);
    CHECK(at(&out, 2, 2, 0) == 50 && at(&out, 1, 2, 0) == 10 && at(&out, 3, 3, 0) == 10);
    CHECK(at(&out, 0, 0, 0) == 200 && at(&out, 1, 1, 0) == 25 && at(&out, 0, 1, 0) == 0);
    free(in.data);
    free(out.data);
}

static void in_place_gives_the_same(void)
{
    static const int64_t sizes[][2] = {{1, 1}, {1, 7}, {7, 1}, {2, 2}, {3, 3}, {17, 131}, {40, 64}};
    for (const psti_op *const *op = psti_picture_ops; *op; op++) {
        for (int s = 0; is_color(*op) && s < 14; s++) {
            const int64_t rows = sizes[s / 2][0], cols = sizes[s / 2][1], channels = s % 2 ? 3 : 1;
            trial t = trial_usual(*op, "1");
            if (decide(&t, rows, cols, channels) < 0) {
                CHECK(strcmp((*op)->name, "gaussian_blur") == 0);
                continue;
            }
            if (!t.draw.act || t.out.channels != channels)
                continue;
            psti_field in = noisy(rows, cols, channels), out = run(&t, &in);
            psti_op_ctx ctx = {0};
            CHECK(t.op->run(t.params, &t.draw, &ctx, &in, &in, &t.err) == 0);
            CHECKF(same(&in, &out), "%s, %lld x %lld x %lld", (*op)->name, (long long)rows,
                   (long long)cols, (long long)channels);
            psti_op_ctx_fini(&ctx);
            free(in.data);
            free(out.data);
        }
    }
}

/* Tensors' grey drops what Pillow rounds: 0.2989 * 255 + 0.587 * 255 + 0.114 * 255 = 254.97. */
static void the_arithmetic_is_as_asked(void)
{
    const uint8_t white[] = {255, 255, 255};
    check_row("adjust_saturation", "factor=0", 3, white, 1, (const uint8_t[]){255, 255, 255});
    trial t = trial_of("grayscale", "like=tensor", "channels=3", NULL);
    CHECK(decide(&t, 1, 1, 3) == 0);
    psti_field in = pixels_of(1, 1, 3, white), out = run(&t, &in);
    CHECK(out.data[0] == 254 && out.data[1] == 254 && out.data[2] == 254);
    free(in.data);
    free(out.data);
}

/* ---- sizes, channels and refusals ------------------------------------------------------------ */

static void grayscale_changes_the_channels(void)
{
    static const char *const texts[] = {"channels=1", "channels=3"};
    for (int i = 0; i < 4; i++) {
        const int64_t from = i < 2 ? 1 : 3, to = i % 2 ? 3 : 1;
        trial t = trial_of("grayscale", texts[i % 2], NULL, NULL);
        psti_geom out;
        t.op->infer(t.params, &(psti_geom){-1, -1, from}, &out);
        CHECK(out.channels == to && out.rows == -1);
        CHECK(decide(&t, 6, 70, from) == 0 && t.out.channels == to);
        CHECK(t.draw.act == (from != 1 || to != 1));
        psti_field in = noisy(6, 70, from), result = run(&t, &in);
        const unsigned want = from == 1 ? at(&in, 5, 69, 0)
                                        : (at(&in, 5, 69, 0) * 19595 + at(&in, 5, 69, 1) * 38470 +
                                           at(&in, 5, 69, 2) * 7471 + 0x8000) >>
                                              16;
        for (int64_t c = 0; c < to; c++)
            CHECK(at(&result, 5, 69, c) == want);
        free(in.data);
        free(result.data);
    }
}

static void other_pictures_are_refused(void)
{
    for (const psti_op *const *op = psti_picture_ops; *op; op++) {
        trial t = trial_usual(*op, "1");
        if (!is_color(*op))
            continue;
        const bool blur = strcmp((*op)->name, "gaussian_blur") == 0;
        CHECK((decide(&t, 20, 20, 4) == PST_EFIELD) == !blur);
        CHECK((decide(&t, 20, 20, 2) == PST_EFIELD) == !blur);
        CHECK(blur || strstr(t.err.message, "decode(rgb)"));
        CHECK(decide(&t, 20, 20, 3) == 0);
        psti_field wide = field_of(20, 20, 3, PST_U16), out = field_of(20, 20, 3, PST_U16);
        psti_op_ctx ctx = {0};
        CHECKF(t.op->run(t.params, &t.draw, &ctx, &wide, &out, &t.err) == PST_EFIELD, "%s",
               (*op)->name);
        psti_op_ctx_fini(&ctx);
        free(wide.data);
        free(out.data);
    }
}

static void check_contradiction(const char *op, const char *a, const char *b, const char *why)
{
    trial t = trial_of(op, a, b, NULL);
    CHECKF(t.op->check(t.params, &t.err) == PST_EPIPELINE && strstr(t.err.message, why),
           "%s %s: %s", op, a, t.err.message);
}

static void parameters_that_contradict_are_refused(void)
{
    check_contradiction("color_jitter", "brightness=1.2,0.8", NULL, "brightness");
    check_contradiction("color_jitter", "hue=0.2,0.1", NULL, "hue");
    check_contradiction("color_jitter", "hue=-0.1", NULL, "negative");
    check_contradiction("gaussian_blur", "kernel=4", NULL, "odd");
    check_contradiction("gaussian_blur", "kernel=3,6", NULL, "odd");
    check_contradiction("gaussian_blur", "kernel=3", "sigma=2,1", "sigma");
    check_contradiction("grayscale", "channels=2", NULL, "1 or 3");
    trial t = trial_of("color_jitter", "hue=-0.1,-0.05", "contrast=3", NULL);
    CHECK(t.op->check(t.params, &t.err) == 0);
}

/* ---- blur ------------------------------------------------------------------------------------ */

static void a_blur_keeps_what_is_even(void)
{
    psti_field in = field_of(30, 41, 3, PST_U8);
    memset(in.data, 201, in.bytes);
    trial t = trial_of("gaussian_blur", "kernel=9,5", "sigma=0.5,3", NULL);
    CHECK(decide(&t, 30, 41, 3) == 0);
    psti_field out = run(&t, &in);
    CHECK(same(&in, &out));
    free(in.data);
    free(out.data);
}

/* A point spreads as the bell does in each direction, and no further than the kernel. */
static void a_point_becomes_a_bell(void)
{
    psti_field in = field_of(31, 41, 1, PST_U8);
    in.data[15 * in.stride + 20] = 255;
    trial t = trial_of("gaussian_blur", "kernel=7,5", "sigma=1.3", NULL);
    CHECK(decide(&t, 31, 41, 1) == 0);
    psti_field out = run(&t, &in);
    double across[4], down[3], a = 0, d = 0;
    for (int i = 0; i < 4; i++)
        a += (across[i] = exp(-0.5 * i * i / 1.69)) * (i ? 2 : 1);
    for (int i = 0; i < 3; i++)
        d += (down[i] = exp(-0.5 * i * i / 1.69)) * (i ? 2 : 1);
    for (int64_t y = 0; y < 31; y++)
        for (int64_t x = 0; x < 41; x++) {
            const int dx = abs((int)x - 20), dy = abs((int)y - 15);
            const double want = dx > 3 || dy > 2 ? 0 : 255 * across[dx] / a * down[dy] / d;
            CHECKF(at(&out, y, x, 0) == (unsigned)lrint(want), "%lld, %lld", (long long)y,
                   (long long)x);
        }
    free(in.data);
    free(out.data);
}

/* Beyond the edge comes the second row and column again, not the first. */
static void edges_are_mirrored_without_the_end_pixel(void)
{
    const double bell = exp(-0.5 / 1.69), side = bell / (1 + 2 * bell), mid = 1 / (1 + 2 * bell);
    psti_field in = field_of(5, 6, 1, PST_U8);
    in.data[in.stride + 1] = in.data[3 * in.stride + 4] = 240;
    trial t = trial_of("gaussian_blur", "kernel=3", "sigma=1.3", NULL);
    CHECK(decide(&t, 5, 6, 1) == 0);
    psti_field out = run(&t, &in);
    const unsigned corner = (unsigned)lrint(240 * 2 * side * 2 * side),
                   edge = (unsigned)lrint(240 * 2 * side * mid);
    CHECK(at(&out, 0, 0, 0) == corner && at(&out, 4, 5, 0) == corner);
    CHECK(at(&out, 0, 1, 0) == edge && at(&out, 1, 0, 0) == edge && at(&out, 3, 5, 0) == edge &&
          at(&out, 4, 4, 0) == edge);
    free(in.data);
    free(out.data);
}

static void a_kernel_that_reaches_too_far_is_refused(void)
{
    trial t = trial_of("gaussian_blur", "kernel=9,5", NULL, NULL);
    CHECK(decide(&t, 3, 5, 3) == 0);
    CHECK(decide(&t, 3, 4, 3) == PST_EFIELD && strstr(t.err.message, "smaller kernel"));
    CHECK(decide(&t, 2, 5, 3) == PST_EFIELD);
    t = trial_of("gaussian_blur", "kernel=1", NULL, NULL);
    CHECK(decide(&t, 1, 1, 3) == 0);
}

/* ---- draws ----------------------------------------------------------------------------------- */

enum { N = 24000 };

/* Decides for sample `id`: each has a generator of its own. */
static int decide_for(trial *t, int id)
{
    psti_rng_init(&t->rng, &(psti_rng_key){.seed = 7, .id = (uint64_t)id}, 2);
    return decide(t, 10, 10, 3);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Kolmogorov and Smirnov's distance from the uniform distribution on low..high; at the 0.1 % level
 * it stays below 1.95 / sqrt(n). Sorts the values. */
static void check_uniform(const char *what, double *values, int n, double low, double high)
{
    double most = 0;
    qsort(values, (size_t)n, sizeof *values, by_size);
    for (int i = 0; i < n; i++) {
        const double share = (values[i] - low) / (high - low);
        most = fmax(most, fmax(fabs(share - (double)i / n), fabs(share - (double)(i + 1) / n)));
    }
    CHECKF(values[0] >= low && values[n - 1] <= high, "%s: %g to %g", what, values[0],
           values[n - 1]);
    CHECKF(most < 1.95 / sqrt(n), "%s: %g", what, most);
}

static void jitter_draws_factors_evenly(void)
{
    static const char *const names[] = {"brightness", "contrast", "saturation", "hue"};
    static const double low[] = {0.6, 0, 0.3, -0.1}, high[] = {1.4, 2.5, 0.9, 0.1};
    static double values[4][N];
    trial t = trial_of("color_jitter", "brightness=0.4", "contrast=1.5", "saturation=0.3,0.9");
    ((psti_list *)(void *)(t.params + t.op->params[3].offset))->v[0] = 0.1;
    for (int n = 0; n < N; n++) {
        CHECK(decide_for(&t, n) == 0 && t.draw.act);
        for (int part = 0; part < 4; part++)
            values[part][n] = t.draw.v[part];
    }
    double together = 0;
    for (int n = 0; n < N; n++)
        together += (values[0][n] - 1) / 0.4 * (values[3][n] / 0.1);
    CHECKF(fabs(together / N) < 0.01, "brightness and hue go together: %g", together / N);
    for (int part = 0; part < 4; part++)
        check_uniform(names[part], values[part], N, low[part], high[part]);
}

/* 24 orders, each 1,000 times; chi-square with 23 degrees of freedom passes 49.7 in 0.1 %. */
static void jitter_draws_every_order_equally_often(void)
{
    int seen[256] = {0}, orders = 0;
    double chi = 0;
    trial t = trial_of("color_jitter", "brightness=0.4", "contrast=1.5", "saturation=0.3,0.9");
    ((psti_list *)(void *)(t.params + t.op->params[3].offset))->v[0] = 0.1;
    for (int n = 0; n < N; n++) {
        CHECK(decide_for(&t, n) == 0);
        int code = 0;
        for (int i = 4; i < 8; i++)
            code = code * 4 + (int)t.draw.v[i];
        seen[code]++;
    }
    for (int code = 0; code < 256; code++) {
        orders += seen[code] > 0;
        chi += seen[code] ? (seen[code] - N / 24.0) * (seen[code] - N / 24.0) / (N / 24.0) : 0;
    }
    CHECKF(orders == 24 && chi < 49.7, "%d orders, chi-square %g", orders, chi);
}

static void what_has_no_range_is_left_out(void)
{
    trial t = trial_of("color_jitter", "hue=0.1", "brightness=1,1", NULL);
    CHECK(decide(&t, 10, 10, 3) == 0 && t.draw.act);
    int parts = 0;
    for (int i = 4; i < 8; i++) {
        CHECK(t.draw.v[i] == 3 || t.draw.v[i] == -1);
        parts += t.draw.v[i] == 3;
    }
    CHECK(parts == 1);
    t = trial_of("color_jitter", NULL, NULL, NULL);
    CHECK(decide(&t, 10, 10, 3) == 0 && !t.draw.act);
}

static void ops_act_with_probability_p(void)
{
    static const double chances[] = {0, 0.2, 0.9, 1};
    static const char *const texts[] = {"0", "0.2", "0.9", "1"};
    for (const psti_op *const *op = psti_picture_ops; *op; op++) {
        bool chance = false;
        for (const psti_param *param = (*op)->params; param->name; param++)
            chance |= strcmp(param->name, "p") == 0;
        CHECKF(!is_color(*op) || chance == ((*op)->flags & PSTI_OP_RANDOM), "%s", (*op)->name);
        for (int i = 0; is_color(*op) && chance && i < 4; i++) {
            trial t = trial_usual(*op, texts[i]);
            int acted = 0;
            for (int n = 0; n < 5000; n++) {
                CHECK(decide_for(&t, n) == 0);
                acted += t.draw.act;
            }
            CHECKF(fabs(acted / 5000.0 - chances[i]) < 0.024, "%s, p %g: %d", (*op)->name,
                   chances[i], acted);
        }
    }
}

static void blur_draws_its_width_evenly(void)
{
    static double values[N];
    trial t = trial_of("gaussian_blur", "kernel=3", NULL, NULL);
    for (int n = 0; n < N; n++) {
        CHECK(decide_for(&t, n) == 0 && t.draw.act);
        values[n] = t.draw.v[0];
    }
    check_uniform("sigma", values, N, 0.1, 2);
    t = trial_of("gaussian_blur", "kernel=3", "sigma=1.5", NULL);
    CHECK(decide(&t, 10, 10, 3) == 0 && t.draw.v[0] == 1.5);
}

int main(void)
{
    printf("kernels: %s, seed 7\n", psti_cpu_name(psti_cpu_level()));
    psti_rng_init(&noise_rng, &(psti_rng_key){.seed = 7}, 9);
    RUN(values_are_those_worked_out_by_hand);
    RUN(a_factor_of_one_changes_nothing);
    RUN(one_value_stays_what_it_is);
    RUN(equalize_spreads_values_evenly);
    RUN(sharpness_smooths_the_inside_only);
    RUN(in_place_gives_the_same);
    RUN(the_arithmetic_is_as_asked);
    RUN(grayscale_changes_the_channels);
    RUN(other_pictures_are_refused);
    RUN(parameters_that_contradict_are_refused);
    RUN(a_blur_keeps_what_is_even);
    RUN(a_point_becomes_a_bell);
    RUN(edges_are_mirrored_without_the_end_pixel);
    RUN(a_kernel_that_reaches_too_far_is_refused);
    RUN(jitter_draws_factors_evenly);
    RUN(jitter_draws_every_order_equally_often);
    RUN(what_has_no_range_is_left_out);
    RUN(ops_act_with_probability_p);
    RUN(blur_draws_its_width_evenly);
    return check_report();
}
