/* SPDX-License-Identifier: Apache-2.0
 * Each op on small pictures whose result is known, on windows, masks and edge cases, and what
 * decide draws. Runs at the level of PENSTOCK_CPU; the build runs it at each. */
#include <errno.h>
#include <math.h>

#include "check.h"
#include "core/cpu.h"
#include "op/op_priv.h"
#include "op_trial.h"

/* ---- registry and parameters ----------------------------------------------------------------- */

static void every_op_is_found_by_its_name_alone(void)
{
    int count = 0;
    for (const psti_op *const *op = psti_picture_ops; *op; op++, count++) {
        CHECK(psti_op_find((*op)->name, strlen((*op)->name)) == *op);
        CHECK((*op)->params_bytes <= PARAMS_BYTES && (*op)->infer && (*op)->decide && (*op)->run);
        _Alignas(16) uint8_t params[PARAMS_BYTES];
        CHECKF(args_parse(*op, params, NULL, 0), "defaults of %s", (*op)->name);
    }
    CHECKF(count == 41, "%d", count);
    const psti_op *op;
    for (count = 0; (op = psti_op_at(count)) != NULL; count++)
        CHECKF(psti_op_find(op->name, strlen(op->name)) == op, "%s", op->name);
    CHECK(count >= 41 && psti_op_at(0) == psti_picture_ops[0] && !psti_op_at(-1));
    CHECK(psti_op_find("resiz", 5) == NULL && psti_op_find("resizes", 7) == NULL);
}

static void parameters_that_contradict_are_refused(void)
{
    trial t = trial_of("resize", "size=100", "max_size=90", NULL);
    CHECK(t.op->check(t.params, &t.err) == PST_EPIPELINE);
    t = trial_of("resize", "size=100,90", "max_size=200", NULL);
    CHECK(t.op->check(t.params, &t.err) == PST_EPIPELINE);
    t = trial_of("resize", "size=100", "max_size=101", NULL);
    CHECK(t.op->check(t.params, &t.err) == 0);
    t = trial_of("pad", "padding=1,2,3", NULL, NULL);
    CHECK(t.op->check(t.params, &t.err) == PST_EPIPELINE && strstr(t.err.message, "3"));
    t = trial_of("random_resized_crop", "size=8", "scale=0.9,0.1", NULL);
    CHECK(t.op->check(t.params, &t.err) == PST_EPIPELINE);
    t = trial_of("random_resized_crop", "size=8", "ratio=2,1", NULL);
    CHECK(t.op->check(t.params, &t.err) == PST_EPIPELINE);
}

/* ---- resize ---------------------------------------------------------------------------------- */

static void check_size(const char *size, const char *max, int64_t rows, int64_t cols,
                       int64_t want_rows, int64_t want_cols)
{
    trial t = trial_of("resize", size, max, NULL);
    CHECK(decide(&t, rows, cols, 3) == 0);
    CHECKF(t.out.rows == want_rows && t.out.cols == want_cols, "%lldx%lld, not %lldx%lld",
           (long long)t.out.rows, (long long)t.out.cols, (long long)want_rows,
           (long long)want_cols);
    CHECK(t.draw.act == (rows != want_rows || cols != want_cols));
    psti_geom out;
    t.op->infer(t.params, &(psti_geom){rows, cols, 3}, &out);
    CHECK(out.rows == want_rows && out.cols == want_cols && out.channels == 3);
}

static void one_number_sets_the_shorter_side(void)
{
    check_size("size=256", NULL, 375, 500, 256, 341);
    check_size("size=256", NULL, 500, 375, 341, 256);
    check_size("size=224", NULL, 375, 500, 224, 298); /* 298.67 is cut off */
    check_size("size=256", NULL, 256, 300, 256, 300);
    check_size("size=256", NULL, 100, 100, 256, 256);
    check_size("size=100", "max_size=120", 100, 200, 60, 120);
    check_size("size=20,30", NULL, 100, 200, 20, 30);
}

static void sizes_that_cannot_be_made_are_refused(void)
{
    trial t = trial_of("resize", "size=10", "max_size=20", NULL);
    CHECK(decide(&t, 1, 1000, 3) == PST_EFIELD);
    t = trial_of("resize", "size=65536", NULL, NULL);
    CHECK(decide(&t, 1, 60000, 3) == PST_ELIMIT && strstr(t.err.message, "512"));
    psti_geom out;
    t.op->infer(t.params, &(psti_geom){-1, 5, 3}, &out);
    CHECK(out.rows == -1 && out.cols == -1 && out.channels == 3);
}

static void halving_averages_with_the_triangle(void)
{
    /* 4 to 2: weights 3/8 3/8 1/4 at the edge, 1/8 3/8 3/8 1/8 further in; here both outputs touch
     * an edge. */
    trial t = trial_of("resize", "size=1,2", NULL, NULL);
    CHECK(decide(&t, 1, 4, 1) == 0);
    psti_field in = field_of(1, 4, 1, PST_U8);
    const uint8_t values[] = {10, 20, 100, 200};
    memcpy(in.data, values, 4);
    psti_field out = run(&t, &in);
    /* weights 0.75 0.75 0.25 over their sum */
    const double low = (0.75 * 10 + 0.75 * 20 + 0.25 * 100) / 1.75,
                 high = (0.25 * 20 + 0.75 * 100 + 0.75 * 200) / 1.75;
    CHECK(at(&out, 0, 0, 0) == (unsigned)(low + 0.5) &&
          at(&out, 0, 1, 0) == (unsigned)(high + 0.5));
    free(in.data);
    free(out.data);
}

static void an_even_picture_stays_even(void)
{
    static const int64_t sizes[][4] = {{1, 1, 224, 224}, {300, 280, 224, 224}, {7, 500, 9, 3},
                                       {1000, 3, 1, 1},  {2, 2, 3, 300},       {64, 2000, 64, 20}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int channels = 1; channels <= 4; channels++) {
            trial t = trial_of("resize", "size=5,5",
                               i % 2 ? "interpolation=bicubic" : "interpolation=bilinear", NULL);
            t.out = (psti_geom){sizes[i][2], sizes[i][3], channels};
            t.draw = (psti_draw){.rows = sizes[i][0], .cols = sizes[i][1], .act = true};
            psti_field in = field_of(sizes[i][0], sizes[i][1], channels, PST_U8);
            memset(in.data, 173, in.bytes);
            psti_field out = run(&t, &in);
            bool even = true;
            for (int64_t y = 0; y < out.shape[0]; y++)
                for (int64_t x = 0; x < out.shape[1] * channels; x++)
                    even = even && out.data[(size_t)y * out.stride + (size_t)x] == 173;
            CHECKF(even, "case %zu, %d channels", i, channels);
            free(in.data);
            free(out.data);
        }
    }
}

static void nearest_takes_pixel_centres(void)
{
    trial t = trial_of("resize", "size=2,3", "interpolation=nearest", NULL);
    CHECK(decide(&t, 4, 9, 3) == 0);
    psti_field in = numbered(4, 9, 3, PST_U8), out = run(&t, &in);
    for (int64_t y = 0; y < 2; y++)
        for (int64_t x = 0; x < 3; x++)
            CHECK(at(&out, y, x, 2) == at(&in, 2 * y + 1, 3 * x + 1, 2));
    free(in.data);
    free(out.data);
}

static void masks_take_the_floor_whatever_the_filter(void)
{
    for (int wide = 0; wide < 2; wide++) {
        trial t = trial_of("resize", "size=2,3", "interpolation=bilinear", NULL);
        CHECK(decide(&t, 4, 9, 1) == 0);
        psti_field in = numbered(4, 9, 1, wide ? PST_U16 : PST_U8);
        in.kind = PST_MASK;
        psti_field out = run(&t, &in);
        for (int64_t y = 0; y < 2; y++)
            for (int64_t x = 0; x < 3; x++)
                CHECK(at(&out, y, x, 0) == at(&in, 2 * y, 3 * x, 0));
        free(in.data);
        free(out.data);
    }
}

static void sixteen_bit_images_are_refused_by_smooth_filters(void)
{
    trial t = trial_of("resize", "size=2,3", NULL, NULL);
    CHECK(decide(&t, 4, 9, 1) == 0);
    psti_op_ctx ctx = {0};
    psti_field in = numbered(4, 9, 1, PST_U16), out = field_of(2, 3, 1, PST_U16);
    CHECK(t.op->run(t.params, &t.draw, &ctx, &in, &out, &t.err) == PST_EFIELD);
    free(in.data);
    free(out.data);
    psti_op_ctx_fini(&ctx);
}

/* ---- crops ----------------------------------------------------------------------------------- */

static void check_center(const char *size, int64_t rows, int64_t cols, int64_t top, int64_t left)
{
    trial t = trial_of("center_crop", size, NULL, NULL);
    CHECK(decide(&t, rows, cols, 3) == 0);
    psti_field in = numbered(rows, cols, 3, PST_U8), out = run(&t, &in);
    bool right = true;
    for (int64_t y = 0; y < t.out.rows; y++)
        for (int64_t x = 0; x < t.out.cols; x++) {
            const int64_t fy = y + top, fx = x + left;
            const bool inside = fy >= 0 && fy < rows && fx >= 0 && fx < cols;
            right = right && at(&out, y, x, 1) == (inside ? at(&in, fy, fx, 1) : 0);
        }
    CHECKF(right, "center_crop(%s) of %lldx%lld", size, (long long)rows, (long long)cols);
    free(in.data);
    free(out.data);
}

static void the_centre_is_rounded_to_even(void)
{
    check_center("size=4", 8, 8, 2, 2);
    check_center("size=4", 7, 9, 2, 2);  /* 1.5 and 2.5 both round to 2 */
    check_center("size=4", 5, 11, 0, 4); /* 0.5 to 0, 3.5 to 4 */
    check_center("size=4,6", 6, 6, 1, 0);
    check_center("size=8", 5, 12, -1, 2); /* padded above by 1, below by 2 */
    check_center("size=8", 3, 3, -2, -2);
    check_center("size=8", 1, 1, -3, -3);
}

static void crops_read_only_their_window(void)
{
    static const char *const names[] = {"center_crop", "random_crop", "random_resized_crop"};
    psti_field whole = numbered(40, 60, 3, PST_U8);
    for (size_t i = 0; i < 3; i++) {
        trial t = trial_of(names[i], "size=13,17", NULL, NULL);
        CHECK(t.op->flags & PSTI_OP_CROPS);
        for (int draw = 0; draw < 20; draw++) {
            CHECK(decide(&t, 40, 60, 3) == 0);
            psti_field some = window_of(&whole, t.draw.top, t.draw.left, t.draw.rows, t.draw.cols);
            psti_field a = run(&t, &whole), b = run(&t, &some);
            CHECKF(same(&a, &b), "%s", names[i]);
            free(some.data);
            free(a.data);
            free(b.data);
        }
    }
    free(whole.data);
}

static void a_crop_that_pads_asks_for_the_whole_picture(void)
{
    trial t = trial_of("center_crop", "size=50,10", NULL, NULL);
    CHECK(decide(&t, 40, 60, 3) == 0);
    CHECK(t.draw.top == 0 && t.draw.left == 0 && t.draw.rows == 40 && t.draw.cols == 60);
    t = trial_of("random_crop", "size=10", "padding=1", NULL);
    CHECK(decide(&t, 40, 60, 3) == 0);
    CHECK(t.draw.top == 0 && t.draw.left == 0 && t.draw.rows == 40 && t.draw.cols == 60);
}

static void random_crop_tells_both_sizes_when_it_does_not_fit(void)
{
    trial t = trial_of("random_crop", "size=50,70", NULL, NULL);
    CHECK(decide(&t, 40, 60, 3) == PST_EFIELD);
    CHECK(strstr(t.err.message, "40") && strstr(t.err.message, "60") &&
          strstr(t.err.message, "50") && strstr(t.err.message, "70"));
    t = trial_of("random_crop", "size=50,70", "padding=5", NULL);
    CHECK(decide(&t, 40, 60, 3) == 0);
    t = trial_of("random_crop", "size=50,70", "pad_if_needed=true", NULL);
    CHECK(decide(&t, 40, 60, 3) == 0);
}

/* Padded on both sides by what is missing, the picture is somewhere inside, in one piece. */
static void pad_if_needed_keeps_the_picture_whole(void)
{
    trial t = trial_of("random_crop", "size=50,70", "pad_if_needed=true", "fill=9");
    psti_field in = numbered(40, 60, 1, PST_U8);
    int64_t least = 99, most = -99;
    for (int i = 0; i < 60; i++) {
        CHECK(decide(&t, 40, 60, 1) == 0);
        const int64_t top = 10 - (int64_t)t.draw.v[0], left = 10 - (int64_t)t.draw.v[1];
        psti_field out = run(&t, &in);
        bool right = true;
        for (int64_t y = 0; y < 50; y++)
            for (int64_t x = 0; x < 70; x++) {
                const bool inside = y >= top && y < top + 40 && x >= left && x < left + 60;
                right = right && at(&out, y, x, 0) == (inside ? at(&in, y - top, x - left, 0) : 9);
            }
        CHECK(right);
        least = top < least ? top : least;
        most = top > most ? top : most;
        free(out.data);
    }
    CHECK(least >= 0 && most <= 10 && most - least > 5);
    free(in.data);
}

/* ---- pad and flips --------------------------------------------------------------------------- */

static void check_line(const char *mode, const char *want)
{
    trial t = trial_of("pad", "padding=5,0", mode, "fill=46");
    CHECK(decide(&t, 1, 3, 1) == 0 && t.out.cols == 13 && t.out.rows == 1);
    psti_field in = field_of(1, 3, 1, PST_U8);
    memcpy(in.data, "abc", 3);
    psti_field out = run(&t, &in);
    CHECKF(memcmp(out.data, want, 13) == 0, "%s: %.13s, not %s", mode, (char *)out.data, want);
    free(in.data);
    free(out.data);
}

static void borders_continue_as_asked(void)
{
    check_line("padding_mode=constant", ".....abc.....");
    check_line("padding_mode=edge", "aaaaaabcccccc");
    check_line("padding_mode=reflect", "babcbabcbabcb");
    check_line("padding_mode=symmetric", "bccbaabccbaab");
}

static void sides_go_left_top_right_bottom(void)
{
    trial t = trial_of("pad", "padding=1,2,3,4", "fill=1,2,3", NULL);
    CHECK(decide(&t, 5, 6, 3) == 0 && t.out.rows == 11 && t.out.cols == 10);
    psti_field in = numbered(5, 6, 3, PST_U8), out = run(&t, &in);
    CHECK(at(&out, 0, 0, 0) == 1 && at(&out, 0, 0, 1) == 2 && at(&out, 10, 9, 2) == 3);
    CHECK(at(&out, 2, 1, 0) == at(&in, 0, 0, 0) && at(&out, 6, 6, 2) == at(&in, 4, 5, 2) &&
          at(&out, 6, 7, 0) == 1);
    free(out.data);
    CHECK(decide(&t, 5, 6, 1) == PST_EFIELD);
    in.kind = PST_MASK;
    CHECK(decide(&t, 5, 6, 3) == 0);
    out = run(&t, &in);
    CHECK(at(&out, 0, 0, 0) == 0);
    free(in.data);
    free(out.data);
}

static void flips_turn_every_kind_of_pixel(void)
{
    for (int kind = 0; kind < 16; kind++) {
        const int channels = 1 + kind % 4, dtype = kind % 8 < 4 ? PST_U8 : PST_U16;
        const bool across = kind < 8;
        const int64_t rows = 9 + kind % 3, cols = 30 + kind;
        trial t = trial_of(across ? "hflip" : "vflip", "p=1", NULL, NULL);
        CHECK(decide(&t, rows, cols, channels) == 0 && t.draw.act);
        psti_field in = numbered(rows, cols, channels, dtype), out = run(&t, &in);
        bool right = true;
        for (int64_t y = 0; y < rows; y++)
            for (int64_t x = 0; x < cols; x++)
                for (int c = 0; c < channels; c++)
                    right = right && at(&out, y, x, c) == (across ? at(&in, y, cols - 1 - x, c)
                                                                  : at(&in, rows - 1 - y, x, c));
        CHECKF(right, "kind %d", kind);
        psti_op_ctx ctx = {0};
        CHECK(t.op->run(t.params, &t.draw, &ctx, &in, &in, &t.err) == 0);
        CHECKF(same(&in, &out), "in place, kind %d", kind);
        free(in.data);
        free(out.data);
    }
}

/* ---- draws ----------------------------------------------------------------------------------- */

static void flips_act_with_probability_p(void)
{
    static const double chances[] = {0, 0.25, 0.5, 1};
    static const char *const texts[] = {"p=0", "p=0.25", "p=0.5", "p=1"};
    for (int i = 0; i < 4; i++) {
        trial t = trial_of("hflip", texts[i], NULL, NULL);
        int acted = 0;
        for (int n = 0; n < 20000; n++) {
            CHECK(decide(&t, 10, 10, 3) == 0);
            acted += t.draw.act;
        }
        CHECKF(fabs(acted / 20000.0 - chances[i]) < 0.015, "p %g: %d", chances[i], acted);
    }
}

/* Area uniform in its range, the logarithm of the shape uniform in its own, every place reached. */
static void windows_follow_their_distribution(void)
{
    trial t = trial_of("random_resized_crop", "size=224", "scale=0.1,0.5", NULL);
    enum { N = 20000 };
    double area = 0, shape = 0, spread = 0, least = 1, most = 0, corner = 0;
    for (int n = 0; n < N; n++) {
        CHECK(decide(&t, 1000, 1000, 3) == 0);
        const double a = (double)(t.draw.rows * t.draw.cols) / 1e6,
                     r = (double)t.draw.cols / (double)t.draw.rows;
        area += a;
        shape += log(r);
        spread += log(r) * log(r);
        least = a < least ? a : least;
        most = a > most ? a : most;
        CHECK(r > 0.745 && r < 1.345 && t.draw.top >= 0 && t.draw.left >= 0);
        CHECK(t.draw.top + t.draw.rows <= 1000 && t.draw.left + t.draw.cols <= 1000);
        corner += (double)t.draw.top / (double)(1000 - t.draw.rows);
    }
    CHECKF(fabs(area / N - 0.3) < 0.005 && least < 0.102 && most > 0.498, "mean area %g", area / N);
    CHECKF(fabs(shape / N) < 0.005, "mean log shape %g", shape / N);
    const double range = log(4.0 / 3.0);
    CHECKF(fabs(spread / N - range * range / 3) < 0.001, "variance of log shape %g", spread / N);
    CHECKF(fabs(corner / N - 0.5) < 0.01, "mean place %g", corner / N);
}

static void the_shape_is_width_by_height(void)
{
    trial t = trial_of("random_resized_crop", "size=224", "scale=0.1,0.2", "ratio=2,3");
    for (int n = 0; n < 200; n++) {
        CHECK(decide(&t, 1000, 1000, 3) == 0);
        const double r = (double)t.draw.cols / (double)t.draw.rows;
        CHECKF(r > 1.98 && r < 3.02, "%g", r);
    }
}

static void no_fitting_window_means_the_middle(void)
{
    trial t =
        trial_of("random_resized_crop", "size=224", "scale=1,1", "ratio=0.75,1.3333333333333333");
    CHECK(decide(&t, 10, 1000, 3) == 0);
    CHECK(t.draw.rows == 10 && t.draw.cols == 13 && t.draw.top == 0 && t.draw.left == 493);
    CHECK(decide(&t, 1000, 10, 3) == 0);
    CHECK(t.draw.cols == 10 && t.draw.rows == 13 && t.draw.left == 0 && t.draw.top == 493);
    CHECK(decide(&t, 1, 1, 3) == 0);
    CHECK(t.draw.rows == 1 && t.draw.cols == 1);
    CHECK(decide(&t, 1, 60000, 3) == 0 && t.draw.rows == 1 && t.draw.cols == 1);
}

static void the_same_key_draws_the_same(void)
{
    for (const psti_op *const *op = psti_picture_ops; *op; op++) {
        trial a = trial_usual(*op, "0.5"), b = trial_usual(*op, "0.5");
        for (int i = 0; i < 10; i++) {
            CHECK(decide(&a, 40, 50, 3) == 0 && decide(&b, 40, 50, 3) == 0);
            CHECK(memcmp(&a.draw, &b.draw, sizeof a.draw) == 0 && a.out.rows == b.out.rows);
            psti_geom out;
            (*op)->infer(a.params, &(psti_geom){40, 50, 3}, &out);
            CHECKF(out.rows == a.out.rows && out.cols == a.out.cols &&
                       out.channels == a.out.channels,
                   "%s infers otherwise", (*op)->name);
        }
    }
}

/* ---- delay ----------------------------------------------------------------------------------- */

static int hits(const char *share, const char *runs, int64_t from, int64_t count)
{
    const trial t = trial_of("delay", "ms=1", share, runs);
    int sum = 0;
    for (int64_t id = from; id < from + count; id++)
        sum += psti_delay_hits(t.params, id);
    return sum;
}

static void delay_hits_the_share_of_samples(void)
{
    CHECK(hits("share=0.2", "runs=1", 0, 1000) == 200);
    CHECK(hits("share=0.2", "runs=48", 0, 2400) == 480);
    CHECK(hits("share=0.2", "runs=48", 240, 48) == 48 &&
          hits("share=0.2", "runs=48", 48, 192) == 0);
    CHECK(hits("share=0", "runs=48", 0, 500) == 0 && hits("share=1", "runs=48", 0, 500) == 500);
    CHECK(hits("share=0", "runs=0", 0, 500) == 0 && hits("share=1", "runs=0", 0, 500) == 500);
    const int fifth = hits("share=0.2", "runs=0", 0, 5000);
    CHECKF(fifth > 900 && fifth < 1100, "%d", fifth);
    CHECK(hits("share=1e-6", "runs=1000000", (int64_t)1 << 40, 1) <= 1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void failed_allocations_are_reported(void)
{
    psti_mem_stats before, after;
    psti_mem_stats_total(&before);
    for (const psti_op *const *op = psti_picture_ops; *op; op++) {
        trial t = trial_usual(*op, "1");
        CHECK(decide(&t, 40, 50, 3) == 0);
        psti_field in = numbered(40, 50, 3, PST_U8),
                   out = field_of(t.out.rows, t.out.cols, t.out.channels, PST_U8);
        int rc = -1;
        for (int n = 1; n < 20 && rc != 0; n++) {
            psti_op_ctx ctx = {0};
            psti_mem_fail_at((uint64_t)n, false);
            rc = (*op)->run(t.params, &t.draw, &ctx, &in, &out, &t.err);
            CHECKF(rc == 0 || rc == -ENOMEM, "%s: %d", (*op)->name, rc);
            psti_op_ctx_fini(&ctx);
        }
        psti_mem_fail_at(0, false);
        CHECKF(rc == 0, "%s", (*op)->name);
        free(in.data);
        free(out.data);
    }
    psti_mem_stats_total(&after);
    CHECK(after.live == before.live);
}

static void a_context_is_used_again_and_trimmed(void)
{
    trial t = trial_of("resize", "size=20,30", NULL, NULL);
    CHECK(decide(&t, 40, 50, 3) == 0);
    psti_field in = numbered(40, 50, 3, PST_U8), out = field_of(20, 30, 3, PST_U8);
    psti_op_ctx ctx = {0};
    CHECK(t.op->run(t.params, &t.draw, &ctx, &in, &out, &t.err) == 0);
    psti_mem_stats before, after;
    psti_mem_stats_get(PSTI_MEM_OP, &before);
    for (int i = 0; i < 10; i++)
        CHECK(t.op->run(t.params, &t.draw, &ctx, &in, &out, &t.err) == 0);
    psti_mem_stats_get(PSTI_MEM_OP, &after);
    CHECK(after.allocs == before.allocs && psti_op_ctx_bytes(&ctx) > 0);
    psti_op_ctx_trim(&ctx, psti_op_ctx_bytes(&ctx));
    CHECK(psti_op_ctx_bytes(&ctx) > 0);
    psti_op_ctx_trim(&ctx, 16);
    CHECK(psti_op_ctx_bytes(&ctx) == 0);
    psti_op_ctx_fini(&ctx);
    free(in.data);
    free(out.data);
}

int main(void)
{
    printf("kernels: %s, seed 7\n", psti_cpu_name(psti_cpu_level()));
    RUN(every_op_is_found_by_its_name_alone);
    RUN(parameters_that_contradict_are_refused);
    RUN(one_number_sets_the_shorter_side);
    RUN(sizes_that_cannot_be_made_are_refused);
    RUN(halving_averages_with_the_triangle);
    RUN(an_even_picture_stays_even);
    RUN(nearest_takes_pixel_centres);
    RUN(masks_take_the_floor_whatever_the_filter);
    RUN(sixteen_bit_images_are_refused_by_smooth_filters);
    RUN(the_centre_is_rounded_to_even);
    RUN(crops_read_only_their_window);
    RUN(a_crop_that_pads_asks_for_the_whole_picture);
    RUN(random_crop_tells_both_sizes_when_it_does_not_fit);
    RUN(pad_if_needed_keeps_the_picture_whole);
    RUN(borders_continue_as_asked);
    RUN(sides_go_left_top_right_bottom);
    RUN(flips_turn_every_kind_of_pixel);
    RUN(flips_act_with_probability_p);
    RUN(windows_follow_their_distribution);
    RUN(the_shape_is_width_by_height);
    RUN(no_fitting_window_means_the_middle);
    RUN(the_same_key_draws_the_same);
    RUN(delay_hits_the_share_of_samples);
    RUN(failed_allocations_are_reported);
    RUN(a_context_is_used_again_and_trimmed);
    return check_report();
}
