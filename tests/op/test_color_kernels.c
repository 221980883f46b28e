/* SPDX-License-Identifier: Apache-2.0
 * Every level's colour kernels give the bytes of the C ones, on all lengths up to a few chunks, and
 * write nothing else. With --bench: microseconds per picture for each level the CPU has. */
#include <stdbool.h>
#include <stdlib.h>

#include "check.h"
#include "core/rng.h"
#include "op/kernels/kernels.h"
#include "op_bench.h"

enum { GUARD = 64, GUARD_BYTE = 0xA5, LENGTHS = 200 };

static psti_rng rng;

static const psti_color_kernels *kernels_of(int level)
{
    return &psti_kernels_level((psti_cpu)level)->color;
}

/* Memory that ends exactly where it is allowed to be used, so that a sanitizer sees what goes past.
 */
static uint8_t *noise(size_t bytes)
{
    uint8_t *data = malloc(bytes ? bytes : 1);
    const unsigned like = psti_rng_u32(&rng) % 4;
    for (size_t i = 0; i < bytes; i++)
        data[i] = like == 0 ? (psti_rng_u32(&rng) & 1 ? 255 : 0) : (uint8_t)psti_rng_u32(&rng);
    return data;
}

static uint8_t *guarded(size_t bytes)
{
    uint8_t *data = malloc(bytes + GUARD);
    memset(data, GUARD_BYTE, bytes + GUARD);
    return data;
}

/* The same bytes, guards included. */
static bool equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    bool whole = memcmp(a, b, bytes + GUARD) == 0;
    for (size_t i = 0; i < GUARD; i++)
        whole = whole && a[bytes + i] == GUARD_BYTE;
    return whole;
}

/* Calls fn for every level above C, every length and each arithmetic. */
static void each(void (*fn)(int level, int like, size_t pixels))
{
    for (int level = PSTI_CPU_C + 1; level <= (int)psti_cpu_level(); level++)
        for (size_t pixels = 1; pixels <= LENGTHS; pixels++)
            for (int like = 0; like < PSTI_LIKES; like++)
                fn(level, like, pixels);
}

static void check_colors(int level, int like, size_t pixels)
{
    static const double factors[] = {0, 0.25, 0.9999, 1, 1.7, 12},
                        hues[] = {-0.5, -0.2, 0, 0.1, 0.5};
    const psti_color_kernels *c = kernels_of(PSTI_CPU_C), *k = kernels_of(level);
    uint8_t *src = noise(3 * pixels), *want = guarded(3 * pixels), *got = guarded(3 * pixels);
    for (int hue = 0; hue < 2; hue++) {
        const double by = hue ? hues[pixels % 5] : factors[pixels % 6];
        (hue ? c->hue : c->saturate)[like](src, pixels, by, want);
        (hue ? k->hue : k->saturate)[like](src, pixels, by, got);
        CHECKF(equal(want, got, 3 * pixels), "level %d, like %d, %zu pixels, %s by %g", level, like,
               pixels, hue ? "hue" : "saturate", by);
    }
    free(src);
    free(want);
    free(got);
}

static void colors_are_the_same_at_every_level(void)
{
    each(check_colors);
}

static void check_gray(int level, int like, size_t pixels)
{
    const psti_color_kernels *c = kernels_of(PSTI_CPU_C), *k = kernels_of(level);
    uint8_t *src = noise(3 * pixels);
    CHECK(c->gray_sum[like](src, pixels) == k->gray_sum[like](src, pixels));
    for (int channels = 1; channels <= 3; channels += 2) {
        const size_t bytes = pixels * (size_t)channels;
        uint8_t *want = guarded(bytes), *got = guarded(bytes);
        c->gray[like](src, pixels, channels, want);
        k->gray[like](src, pixels, channels, got);
        CHECKF(equal(want, got, bytes), "level %d, like %d, %zu pixels", level, like, pixels);
        free(want);
        free(got);
    }
    free(src);
}

static void grey_is_the_same_at_every_level(void)
{
    each(check_gray);
}

static void check_sharpen(int level, int like, size_t pixels)
{
    for (size_t channels = 1; channels <= 3; channels += 2) {
        const size_t bytes = pixels * channels;
        const double by = (double)(pixels % 7) * 0.37;
        uint8_t *rows[3] = {noise(bytes), noise(bytes), noise(bytes)};
        uint8_t *want = guarded(bytes), *got = guarded(bytes);
        kernels_of(PSTI_CPU_C)
            ->sharpen[like]((const uint8_t *const *)rows, pixels, channels, by, want);
        kernels_of(level)->sharpen[like]((const uint8_t *const *)rows, pixels, channels, by, got);
        CHECKF(equal(want, got, bytes), "level %d, like %d, %zu pixels", level, like, pixels);
        for (int i = 0; i < 3; i++)
            free(rows[i]);
        free(want);
        free(got);
    }
}

static void sharpening_is_the_same_at_every_level(void)
{
    each(check_sharpen);
}

static void check_lut(int level, int one, size_t pixels)
{
    uint8_t *tables = noise(768), *src = noise(3 * pixels), *want = guarded(3 * pixels),
            *got = guarded(3 * pixels);
    const uint8_t(*t)[256] = (const void *)tables;
    const size_t count = one ? pixels : 3 * pixels;
    kernels_of(PSTI_CPU_C)->lut[one](src, count, t, want);
    kernels_of(level)->lut[one](src, count, t, got);
    CHECKF(equal(want, got, 3 * pixels), "level %d, %zu pixels", level, pixels);
    for (size_t i = 0; i < 3 * pixels; i++)
        CHECK(want[i] == t[one ? i % 3 : 0][src[i]]);
    free(tables);
    free(src);
    free(want);
    free(got);
}

static void tables_are_the_same_at_every_level(void)
{
    each(check_lut);
}

static void check_blur(int level, int like, size_t pixels)
{
    enum { HALF = 6 };
    const int half = (int)(pixels % (HALF + 1));
    const size_t step = like ? 3 : 1, margin = (size_t)half * step;
    float weights[HALF + 1], *across[2], *rows[2 * HALF + 1];
    uint8_t *want = guarded(pixels), *got = guarded(pixels);
    for (int i = 0; i <= HALF; i++)
        weights[i] = (float)psti_rng_range(&rng, 0, 1.0 / (2 * HALF + 1));
    for (int r = 0; r < 2 * HALF + 1; r++) {
        rows[r] = malloc((pixels + 2 * margin) * sizeof(float));
        for (size_t i = 0; i < pixels + 2 * margin; i++)
            rows[r][i] = (float)psti_rng_range(&rng, 0, 255);
    }
    for (int i = 0; i < 2; i++) {
        const psti_color_kernels *k = kernels_of(i ? level : PSTI_CPU_C);
        across[i] = malloc(pixels * sizeof(float));
        k->blur_across(rows[0] + margin, pixels, step, weights, half, across[i]);
        k->blur_down((const float *const *)rows, pixels, weights, half, i ? got : want);
    }
    CHECKF(memcmp(across[0], across[1], pixels * sizeof(float)) == 0, "level %d, %zu", level,
           pixels);
    CHECKF(equal(want, got, pixels), "level %d, %zu values, half %d", level, pixels, half);
    for (int r = 0; r < 2 * HALF + 1; r++)
        free(rows[r]);
    free(across[0]);
    free(across[1]);
    free(want);
    free(got);
}

static void blurs_are_the_same_at_every_level(void)
{
    each(check_blur);
}

/* ---- benchmark: pictures of 224 x 224 -------------------------------------------------------- */

enum { SIDE = 224, ROW = SIDE * 3, HALF_BENCH = 11 };

typedef struct bench_job {
    const psti_color_kernels *k;
    uint8_t *src, *dst;
    float *line, *made;
    int like;
} bench_job;

static void bench_lut(void *user)
{
    bench_job *job = user;
    job->k->lut[0](job->src, SIDE * ROW, (const void *)job->src, job->dst);
}

static void bench_luts(void *user)
{
    bench_job *job = user;
    job->k->lut[1](job->src, SIDE * SIDE, (const void *)job->src, job->dst);
}

static void bench_sum(void *user)
{
    bench_job *job = user;
    job->src[0] = (uint8_t)job->k->gray_sum[job->like](job->src, SIDE * SIDE);
}

static void bench_saturate(void *user)
{
    bench_job *job = user;
    job->k->saturate[job->like](job->src, SIDE * SIDE, 1.3, job->dst);
}

static void bench_hue(void *user)
{
    bench_job *job = user;
    job->k->hue[job->like](job->src, SIDE * SIDE, 0.1, job->dst);
}

static void bench_sharpen(void *user)
{
    bench_job *job = user;
    for (int y = 1; y + 1 < SIDE; y++) {
        const uint8_t *const rows[3] = {job->src + (y - 1) * ROW, job->src + y * ROW,
                                        job->src + (y + 1) * ROW};
        job->k->sharpen[job->like](rows, SIDE, 3, 1.7, job->dst + y * ROW);
    }
}

static void bench_blur(void *user)
{
    bench_job *job = user;
    float weights[HALF_BENCH + 1] = {0.1f};
    const float *rows[2 * HALF_BENCH + 1];
    for (int i = 0; i < 2 * HALF_BENCH + 1; i++)
        rows[i] = job->made + i * ROW;
    for (int y = 0; y < SIDE; y++) {
        job->k->blur_across(job->line + HALF_BENCH * 3, ROW, 3, weights, HALF_BENCH, job->made);
        job->k->blur_down(rows, ROW, weights, HALF_BENCH, job->dst + y * ROW);
    }
}

static int bench(void)
{
    static const struct {
        const char *name;
        bench_fn *fn;
    } jobs[] = {{"one table", bench_lut},     {"three tables", bench_luts},
                {"sum of grey", bench_sum},   {"saturate", bench_saturate},
                {"hue", bench_hue},           {"sharpen", bench_sharpen},
                {"blur, 23 x 23", bench_blur}};
    bench_job job = {.src = noise(SIDE * ROW), .dst = guarded(SIDE * ROW)};
    job.line = calloc(ROW + 6 * HALF_BENCH, sizeof(float));
    job.made = calloc((2 * HALF_BENCH + 1) * ROW, sizeof(float));
    for (int level = PSTI_CPU_C; level <= (int)psti_cpu_level(); level++)
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
            for (job.like = 0; job.like < PSTI_LIKES; job.like++) {
                job.k = kernels_of(level);
                printf("%-7s %-14s %-7s %8.1f us\n", psti_cpu_name((psti_cpu)level), jobs[i].name,
                       job.like ? "tensor" : "pil", bench_us(jobs[i].fn, &job));
            }
    free(job.src);
    free(job.dst);
    free(job.line);
    free(job.made);
    return 0;
}

int main(int argc, char **argv)
{
    psti_rng_init(&rng, &(psti_rng_key){.seed = 21}, 0);
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return bench();
    printf("levels up to %s, seed 21\n", psti_cpu_name(psti_cpu_level()));
    RUN(colors_are_the_same_at_every_level);
    RUN(grey_is_the_same_at_every_level);
    RUN(sharpening_is_the_same_at_every_level);
    RUN(tables_are_the_same_at_every_level);
    RUN(blurs_are_the_same_at_every_level);
    return check_report();
}
