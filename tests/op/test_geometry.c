/* SPDX-License-Identifier: Apache-2.0
 * Affine maps on small pictures: every level of kernels against plain C, the nearest pixel against
 * its definition taken pixel by pixel, matrices that leave the picture far behind, and what the
 * random ops draw. With --bench: microseconds per picture. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "core/cpu.h"
#include "core/math.h"
#include "op/geometry.h"
#include "op/kernels/kernels.h"
#include "op_args.h"
#include "op_bench.h"

static psti_rng rng;

enum { GUARD = 32 };

/* Rows with a gap, memory that ends with the last pixel (and what every picture may read past it),
 * guarded on both sides. */
static psti_field picture(int64_t rows, int64_t cols, int64_t channels, bool filled)
{
    psti_field f = {.kind = PST_IMAGE, .dtype = PST_U8, .rank = 3, .shape = {rows, cols, channels}};
    f.stride = (size_t)(cols * channels) + 3;
    f.bytes = f.stride * (size_t)(rows - 1) + (size_t)(cols * channels);
    uint8_t *memory = malloc(f.bytes + 2 * GUARD);
    memset(memory, 0xA5, f.bytes + 2 * GUARD);
    f.data = memory + GUARD;
    f.whole_rows = rows;
    f.whole_cols = cols;
    for (size_t i = 0; filled && i < f.bytes; i++)
        f.data[i] = (uint8_t)psti_rng_u32(&rng);
    return f;
}

static void picture_free(psti_field *f)
{
    free(f->data - GUARD);
}

static bool untouched(const psti_field *f)
{
    bool ok = true;
    for (size_t i = 0; i < GUARD; i++)
        ok &= f->data[-(ptrdiff_t)i - 1] == 0xA5 && f->data[f->bytes + i] == 0xA5;
    const size_t row = (size_t)(f->shape[1] * f->shape[2]);
    for (int64_t y = 0; y + 1 < f->shape[0]; y++)
        for (size_t i = row; i < f->stride; i++)
            ok &= f->data[(size_t)y * f->stride + i] == 0xA5;
    return ok;
}

static bool same(const psti_field *a, const psti_field *b)
{
    for (int64_t y = 0; y < a->shape[0]; y++)
        if (memcmp(a->data + (size_t)y * a->stride, b->data + (size_t)y * b->stride,
                   (size_t)(a->shape[1] * a->shape[2])) != 0)
            return false;
    return true;
}

/* Turns, shifts, scales and shears of every size, plain ones among them. */
static psti_matrix some_matrix(int i, const psti_geom *size)
{
    psti_affine f = psti_affine_none(size);
    f.angle = i % 5 == 0 ? 90.0 * (double)psti_rng_below(&rng, 5) : psti_rng_range(&rng, -200, 200);
    f.translate[0] = (double)psti_rng_below(&rng, 21) - 10;
    f.scale = i % 7 == 0 ? psti_rng_range(&rng, 0.001, 0.05) : psti_rng_range(&rng, 0.3, 3);
    f.shear[0] = i % 3 == 0 ? psti_rng_range(&rng, -89, 89) : 0;
    f.shear[1] = i % 11 == 0 ? 90 : 0;
    return psti_matrix_affine(&f);
}

static psti_geom some_size(void)
{
    return (psti_geom){1 + (int64_t)psti_rng_below(&rng, 40), 1 + (int64_t)psti_rng_below(&rng, 40),
                       1 + (int64_t)psti_rng_below(&rng, 4)};
}

static void filters_are_the_same_at_every_level(void)
{
    const psti_list fill = {.count = 1, .v = {77}};
    psti_op_ctx ctx = {0};
    pst_error err;
    for (int i = 0; i < 600; i++) {
        const psti_geom size = some_size();
        const psti_matrix m = some_matrix(i, &size);
        const psti_filter filter = i % 4 ? PSTI_BILINEAR : PSTI_BICUBIC;
        psti_field in = picture(size.rows, size.cols, size.channels, true),
                   c = picture(size.rows, size.cols, size.channels, false);
        const psti_kernels *plain = psti_kernels_level(PSTI_CPU_C);
        CHECK(psti_transform_with(plain, &m, filter, &fill, &ctx, &in, &c, &err) == 0);
        CHECK(untouched(&c));
        for (int level = PSTI_CPU_C + 1; level <= (int)psti_cpu_level(); level++) {
            psti_field out = picture(size.rows, size.cols, size.channels, false);
            CHECK(psti_transform_with(psti_kernels_level((psti_cpu)level), &m, filter, &fill, &ctx,
                                      &in, &out, &err) == 0);
            CHECKF(same(&c, &out) && untouched(&out), "case %d, level %s", i,
                   psti_cpu_name((psti_cpu)level));
            picture_free(&out);
        }
        picture_free(&in);
        picture_free(&c);
    }
    psti_op_ctx_fini(&ctx);
}

/* A place in steps of 1/65536. */
static int64_t steps_of(double v)
{
    return (int64_t)floor(v * 65536.0 + 0.5);
}

/* The source of a pixel by the definition: whole steps along the row and down, or -1. */
static const uint8_t *source(const psti_matrix *matrix, const psti_field *in, int64_t x, int64_t y)
{
    const double *m = matrix->m;
    const int64_t sx =
        steps_of(m[2] + m[0] * 0.5 + m[1] * 0.5) + x * steps_of(m[0]) + y * steps_of(m[1]);
    const int64_t sy =
        steps_of(m[5] + m[3] * 0.5 + m[4] * 0.5) + x * steps_of(m[3]) + y * steps_of(m[4]);
    const int64_t col = sx >> 16, row = sy >> 16;
    if (col < 0 || row < 0 || col >= in->shape[1] || row >= in->shape[0])
        return NULL;
    return in->data + (size_t)row * in->stride + (size_t)(col * in->shape[2]);
}

static void the_nearest_pixel_is_taken_in_steps(void)
{
    const psti_list fill = {.count = 1, .v = {78}};
    psti_op_ctx ctx = {0};
    pst_error err;
    int checked = 0;
    for (int i = 0; i < 400; i++) {
        const psti_geom size = some_size();
        psti_affine f = psti_affine_none(&size);
        f.angle = psti_rng_range(&rng, 1, 89) + 90.0 * (double)psti_rng_below(&rng, 4);
        f.scale = psti_rng_range(&rng, 0.2, 4);
        psti_matrix m = psti_matrix_affine(&f);
        if (i % 8 == 0) /* sources on the very edges of pixels and of the picture */
            m = (psti_matrix){{1, i % 16 ? 1 : -1, 0, -1, i % 3 - 1, (double)size.rows}};
        psti_field in = picture(size.rows, size.cols, size.channels, true),
                   out = picture(size.rows, size.cols, size.channels, false);
        CHECK(psti_transform(&m, PSTI_NEAREST, &fill, &ctx, &in, &out, &err) == 0);
        CHECK(untouched(&out));
        int wrong = 0;
        for (int64_t y = 0; y < size.rows; y++)
            for (int64_t x = 0; x < size.cols; x++) {
                const uint8_t *got =
                    out.data + (size_t)y * out.stride + (size_t)(x * size.channels);
                const uint8_t *want = source(&m, &in, x, y);
                for (int64_t k = 0; k < size.channels; k++)
                    wrong += got[k] != (want ? want[k] : 78);
                checked += want != NULL;
            }
        CHECKF(wrong == 0, "case %d: %d values", i, wrong);
        picture_free(&in);
        picture_free(&out);
    }
    CHECKF(checked > 10000, "%d", checked);
    psti_op_ctx_fini(&ctx);
}

/* Maps that send the picture away, blow it up or squeeze it to nothing: all is fill or picture. */
static void far_maps_stay_in_their_memory(void)
{
    const psti_list fill = {.count = 1, .v = {9}};
    psti_op_ctx ctx = {0};
    pst_error err;
    const psti_geom size = {17, 23, 3};
    psti_field in = picture(17, 23, 3, true), out = picture(17, 23, 3, false);
    for (int i = 0; i < 2000; i++) {
        psti_matrix m;
        for (int k = 0; k < 6; k++) {
            const double power = psti_exp(psti_rng_range(&rng, -40, 40));
            m.m[k] = psti_rng_below(&rng, 4) == 0 ? 0 : psti_rng_below(&rng, 2) ? power : -power;
        }
        const psti_filter filter = (psti_filter)(i % 3);
        CHECK(psti_transform(&m, filter, &fill, &ctx, &in, &out, &err) == 0 && untouched(&out));
    }
    psti_affine f = psti_affine_none(&size);
    f.translate[0] = 65536;
    const psti_matrix away = psti_matrix_affine(&f);
    CHECK(psti_transform(&away, PSTI_BILINEAR, &fill, &ctx, &in, &out, &err) == 0);
    CHECK(out.data[0] == 9 && out.data[out.bytes - 1] == 9);
    picture_free(&in);
    picture_free(&out);
    psti_op_ctx_fini(&ctx);
}

/* ---- ops ------------------------------------------------------------------------------------- */

typedef struct trial {
    const psti_op *op;
    _Alignas(16) uint8_t params[1024];
    psti_draw draw;
    psti_geom out;
} trial;

static trial trial_of(const char *name, const char *a, const char *b)
{
    const char *const texts[] = {a, b};
    trial t = {.op = psti_op_find(name, strlen(name))};
    CHECKF(t.op && args_parse(t.op, t.params, texts, !a ? 0 : !b ? 1 : 2), "%s", name);
    return t;
}

static int decide(trial *t, int64_t rows, int64_t cols)
{
    pst_error err;
    return t->op->decide(t->params, &rng, &(psti_geom){rows, cols, 3}, &t->draw, &t->out, &err);
}

static void nothing_to_do_is_not_done(void)
{
    trial same_angle = trial_of("rotate", "angle=720", NULL),
          still = trial_of("random_affine", "degrees=0", NULL),
          none = trial_of("translate_x", "pixels=0", NULL),
          never = trial_of("random_erasing", "p=0", NULL);
    CHECK(decide(&same_angle, 30, 40) == 0 && !same_angle.draw.act);
    CHECK(decide(&still, 30, 40) == 0 && !still.draw.act);
    CHECK(decide(&none, 31, 41) == 0 && !none.draw.act);
    CHECK(decide(&never, 31, 41) == 0 && !never.draw.act);
}

static void quarters_move_pixels_whatever_the_filter(void)
{
    trial t = trial_of("rotate", "angle=90", "expand=true");
    psti_field in = picture(5, 9, 3, true), out = picture(9, 5, 3, false);
    psti_op_ctx ctx = {0};
    pst_error err;
    CHECK(decide(&t, 5, 9) == 0 && t.out.rows == 9 && t.out.cols == 5);
    CHECK(t.op->run(t.params, &t.draw, &ctx, &in, &out, &err) == 0);
    int wrong = 0;
    for (size_t y = 0; y < 9; y++)
        for (size_t x = 0; x < 5; x++)
            wrong += memcmp(out.data + y * out.stride + x * 3,
                            in.data + x * in.stride + (8 - y) * 3, 3) != 0;
    CHECKF(wrong == 0, "%d", wrong);
    picture_free(&in);
    picture_free(&out);
    psti_op_ctx_fini(&ctx);
}

/* Angles, factors and shifts come back out of the matrix. */
static void maps_follow_their_distribution(void)
{
    trial t = trial_of("random_affine", "degrees=-20,40", "translate=0.1,0.2");
    trial s = trial_of("random_affine", "degrees=0", "scale=0.5,2");
    double sum = 0, squares = 0, factors = 0, least = 99, most = -99, far = 0;
    enum { N = 4000 };
    for (int i = 0; i < N; i++) {
        CHECK(decide(&t, 100, 200) == 0 && decide(&s, 100, 200) == 0);
        const double *m = t.draw.v;
        const double angle = atan2(m[1], m[0]) * 57.29577951308232;
        const double x = m[0] * 100 + m[1] * 50 + m[2] - 100,
                     y = m[3] * 100 + m[4] * 50 + m[5] - 50;
        sum += angle;
        squares += angle * angle;
        least = angle < least ? angle : least;
        most = angle > most ? angle : most;
        far = fmax(far, sqrt(x * x + y * y));
        factors += s.draw.act ? 1 / s.draw.v[0] : 1;
    }
    const double mean = sum / N, variance = squares / N - mean * mean;
    CHECKF(fabs(mean - 10) < 1.5 && fabs(variance - 300) < 20, "%g %g", mean, variance);
    CHECKF(least >= -20 && least < -19.8 && most <= 40 && most > 39.8, "%g %g", least, most);
    CHECKF(fabs(factors / N - 1.25) < 0.04, "%g", factors / N);
    CHECKF(far <= sqrt(800) + 0.01 && far > 26, "%g", far);
}

static void rectangles_follow_their_distribution(void)
{
    trial t = trial_of("random_erasing", "p=0.25", NULL);
    int acted = 0, taller = 0;
    double area = 0, least = 9, most = 0;
    enum { N = 8000 };
    for (int i = 0; i < N; i++) {
        CHECK(decide(&t, 224, 224) == 0);
        if (!t.draw.act)
            continue;
        const double *v = t.draw.v, share = v[2] * v[3] / (224.0 * 224.0);
        acted++;
        area += share;
        taller += v[2] > v[3];
        least = fmin(least, share);
        most = fmax(most, share);
        CHECK(v[0] >= 0 && v[1] >= 0 && v[0] + v[2] <= 224 && v[1] + v[3] <= 224);
    }
    CHECKF(abs(acted - N / 4) < 200, "%d", acted);
    CHECKF(fabs(area / acted - 0.175) < 0.01 && least > 0.019 && most < 0.335, "%g %g %g",
           area / acted, least, most);
    CHECKF(abs(taller - acted / 2) < 120, "%d of %d", taller, acted);
}

/* ---- benchmarks ------------------------------------------------------------------------------ */

typedef struct bench_job {
    trial t;
    psti_field in, out;
    psti_op_ctx ctx;
} bench_job;

static void bench_run(void *user)
{
    bench_job *job = user;
    pst_error err;
    job->t.op->run(job->t.params, &job->t.draw, &job->ctx, &job->in, &job->out, &err);
}

static void bench_decide(void *user)
{
    bench_job *job = user;
    decide(&job->t, 224, 224);
}

static int bench(void)
{
    static const char *const cases[][3] = {
        {"affine", "angle=10", "interpolation=nearest"},
        {"affine", "angle=10", "interpolation=bilinear"},
        {"affine", "angle=10", "interpolation=bicubic"},
        {"rotate", "angle=90", NULL},
        {"translate_x", "pixels=20", NULL},
        {"shear_x", "level=0.2", "interpolation=bilinear"},
        {"random_erasing", "p=1", NULL},
        {"augmix", NULL, NULL},
        {"augmix", "interpolation=nearest", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench_job job = {.t = trial_of(cases[i][0], cases[i][1], cases[i][2])};
        job.in = picture(224, 224, 3, true);
        job.out = picture(224, 224, 3, false);
        decide(&job.t, 224, 224);
        printf("%-8s %-16s %-22s %-22s 224x224 rgb %8.1f us, decide %6.2f us\n",
               psti_cpu_name(psti_cpu_level()), cases[i][0], cases[i][1] ? cases[i][1] : "",
               cases[i][2] ? cases[i][2] : "", bench_us(bench_run, &job),
               bench_us(bench_decide, &job));
        picture_free(&job.in);
        picture_free(&job.out);
        psti_op_ctx_fini(&job.ctx);
    }
    return 0;
}

int main(int argc, char **argv)
{
    psti_rng_init(&rng, &(psti_rng_key){.seed = 21}, 0);
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return bench();
    printf("levels up to %s, seed 21\n", psti_cpu_name(psti_cpu_level()));
    RUN(filters_are_the_same_at_every_level);
    RUN(the_nearest_pixel_is_taken_in_steps);
    RUN(far_maps_stay_in_their_memory);
    RUN(nothing_to_do_is_not_done);
    RUN(quarters_move_pixels_whatever_the_filter);
    RUN(maps_follow_their_distribution);
    RUN(rectangles_follow_their_distribution);
    return check_report();
}
