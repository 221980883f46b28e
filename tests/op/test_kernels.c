/* SPDX-License-Identifier: Apache-2.0
 * Every level's kernels give the bytes of the C ones, on random sizes, strides and values. With
 * --bench: microseconds per call for each level the CPU has. */
#include <stdlib.h>

#include "check.h"
#include "op/kernels/kernels.h"
#include "op/op_priv.h"
#include "op_bench.h"

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

static psti_rng rng;

static int below(int n)
{
    return (int)psti_rng_below(&rng, (uint64_t)n);
}

/* Memory that ends exactly where it is allowed to be used, so that a sanitizer sees what goes past;
 * outputs are checked for stray writes by a guard as well. */
static uint8_t *noise(size_t bytes)
{
    uint8_t *data = malloc(bytes ? bytes : 1);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)psti_rng_u32(&rng);
    if (below(4) == 0) /* the extremes, where sums are largest */
        memset(data, below(2) ? 255 : 0, bytes);
    return data;
}

static uint8_t *guarded(size_t bytes)
{
    uint8_t *data = malloc(bytes + GUARD);
    memset(data, GUARD_BYTE, bytes + GUARD);
    return data;
}

static bool guard_whole(const uint8_t *data, size_t bytes)
{
    for (int i = 0; i < GUARD; i++) {
        if (data[bytes + (size_t)i] != GUARD_BYTE)
            return false;
    }
    return true;
}

static const psti_kernels *kernels_of(int level)
{
    return psti_kernels_level((psti_cpu)level);
}

/* ---- resampling ------------------------------------------------------------------------------ */

/* An axis with random weights round the right places; some negative. */
static psti_axis make_axis(int in, int out)
{
    psti_axis axis = {.in = in, .out = out};
    const int reach = in / out + 1 + below(3);
    axis.stride = (2 * reach + 8) & ~7;
    axis.first = calloc((size_t)out, 4);
    axis.count = calloc((size_t)out, 4);
    axis.weights = calloc((size_t)out * (size_t)axis.stride, 4);
    for (int i = 0; i < out; i++) {
        const int centre = (int)((2 * (int64_t)i + 1) * in / (2 * (int64_t)out));
        const int low = centre - reach < 0 ? 0 : centre - reach;
        const int high = centre + reach > in ? in : centre + reach;
        axis.first[i] = low;
        axis.count[i] = high - low;
        axis.taps = axis.count[i] > axis.taps ? axis.count[i] : axis.taps;
        for (int t = 0; t < high - low; t++)
            axis.weights[i * axis.stride + t] =
                (below(1 << 22) - (1 << 19)) / (high - low > 1 ? (high - low + 1) / 2 : 1);
        if (below(8) == 0) { /* one tap with all the weight */
            memset(axis.weights + i * axis.stride, 0, (size_t)axis.stride * 4);
            axis.weights[i * axis.stride + below(high - low)] = 1 << 22;
        }
    }
    return axis;
}

static void free_axis(psti_axis *axis)
{
    free(axis->first);
    free(axis->count);
    free(axis->weights);
}

static void run_across(int level, const psti_axis *axis, int channels, const uint8_t *const *src,
                       uint8_t *const *dst, int n)
{
    const psti_kernels *k = kernels_of(level);
    psti_across across = {.axis = axis, .channels = channels};
    across.table = malloc(k->across_bytes(axis->out, axis->taps, channels) + 1);
    k->across_plan(&across);
    across.run(&across, src, dst, n);
    free(across.table);
}

static void check_across(int level, int in, int out, int channels, int n)
{
    psti_axis axis = make_axis(in, out);
    const size_t row = (size_t)out * (size_t)channels;
    uint8_t *src[PSTI_ROWS_AT_ONCE], *want[PSTI_ROWS_AT_ONCE], *got[PSTI_ROWS_AT_ONCE];
    for (int r = 0; r < n; r++) {
        src[r] = noise((size_t)in * (size_t)channels);
        want[r] = guarded(row);
        got[r] = guarded(row);
    }
    run_across(PSTI_CPU_C, &axis, channels, (const uint8_t *const *)src, want, n);
    run_across(level, &axis, channels, (const uint8_t *const *)src, got, n);
    for (int r = 0; r < n; r++) {
        CHECKF(memcmp(want[r], got[r], row) == 0 && guard_whole(got[r], row),
               "level %d, %d to %d, %d channels, row %d of %d", level, in, out, channels, r, n);
        free(src[r]);
        free(want[r]);
        free(got[r]);
    }
    free_axis(&axis);
}

static void check_down(int level, int count, size_t bytes)
{
    uint8_t **rows = malloc((size_t)count * sizeof *rows);
    int32_t *weights = malloc((size_t)count * sizeof *weights);
    for (int t = 0; t < count; t++) {
        rows[t] = noise(bytes);
        weights[t] = (below(1 << 22) - (1 << 19)) / (count > 4 ? count / 4 : 1);
    }
    if (count == 1)
        weights[0] = 1 << 22;
    uint8_t *want = guarded(bytes), *got = guarded(bytes);
    psti_c_down((const uint8_t *const *)rows, weights, count, want, bytes);
    kernels_of(level)->down((const uint8_t *const *)rows, weights, count, got, bytes);
    CHECKF(memcmp(want, got, bytes) == 0 && guard_whole(got, bytes), "level %d, %d rows, %zu bytes",
           level, count, bytes);
    for (int t = 0; t < count; t++)
        free(rows[t]);
    free(rows);
    free(weights);
    free(want);
    free(got);
}

static void across_is_the_same_at_every_level(void)
{
    for (int level = PSTI_CPU_AVX2; level <= (int)psti_cpu_level(); level++) {
        for (int i = 0; i < 1500; i++)
            check_across(level, 1 + below(70), 1 + below(70), 1 + below(4), 1 + below(4));
        for (int i = 0; i < 150; i++)
            check_across(level, 1 + below(1500), 1 + below(400), 1 + below(4), 1 + below(4));
        for (int i = 0; i < 100; i++) /* sizes that the paths are made for */
            check_across(level, 200 + below(600), 224, i % 3 ? 3 : 1, 1 + below(4));
    }
}

static void down_is_the_same_at_every_level(void)
{
    for (int level = PSTI_CPU_AVX2; level <= (int)psti_cpu_level(); level++) {
        for (int i = 0; i < 1500; i++)
            check_down(level, 1 + below(12), (size_t)below(300) + 1);
        for (int i = 0; i < 20; i++)
            check_down(level, 1 + below(400), (size_t)below(700) + 1);
    }
}

static psti_field picture(int rows, int cols, int channels, int gap)
{
    psti_field field = {
        .kind = PST_IMAGE, .dtype = PST_U8, .rank = 3, .shape = {rows, cols, channels}};
    field.stride = (size_t)cols * (size_t)channels + (size_t)gap;
    field.bytes = field.stride * (size_t)rows;
    field.data = noise(field.bytes);
    field.whole_rows = rows;
    field.whole_cols = cols;
    field.first_damaged_row = PSTI_ROWS_SOUND;
    return field;
}

static void resize_at(int level, psti_filter filter, const psti_field *in, psti_field *out,
                      psti_op_ctx *ctx)
{
    const psti_draw window = {.rows = in->shape[0], .cols = in->shape[1]};
    pst_error err;
    CHECK(psti_resample_with(kernels_of(level), filter, &window, ctx, in, out, &err) == 0);
}

static void check_resize(int level, int in_rows, int in_cols, int out_rows, int out_cols,
                         int channels)
{
    psti_op_ctx ctx = {0};
    const psti_filter filter = below(3) ? PSTI_BILINEAR : PSTI_BICUBIC;
    psti_field in = picture(in_rows, in_cols, channels, below(3) * 5);
    psti_field want = picture(out_rows, out_cols, channels, 3),
               got = picture(out_rows, out_cols, channels, 3);
    memset(want.data, 0, want.bytes);
    memset(got.data, 0, got.bytes);
    resize_at(PSTI_CPU_C, filter, &in, &want, &ctx);
    resize_at(level, filter, &in, &got, &ctx);
    CHECKF(memcmp(want.data, got.data, want.bytes) == 0,
           "level %d, %dx%d to %dx%d, %d channels, filter %d", level, in_rows, in_cols, out_rows,
           out_cols, channels, filter);
    free(in.data);
    free(want.data);
    free(got.data);
    psti_op_ctx_fini(&ctx);
}

static void resizes_are_the_same_at_every_level(void)
{
    for (int level = PSTI_CPU_AVX2; level <= (int)psti_cpu_level(); level++) {
        for (int i = 0; i < 600; i++)
            check_resize(level, 1 + below(70), 1 + below(70), 1 + below(70), 1 + below(70),
                         1 + below(4));
        for (int i = 0; i < 20; i++)
            check_resize(level, 1 + below(500), 1 + below(700), 1 + below(256), 1 + below(256), 3);
        check_resize(level, 1200, 1600, 224, 224, 3);
        check_resize(level, 2, 4000, 224, 224, 3);
        check_resize(level, 4000, 2, 3, 500, 4);
    }
}

/* ---- moving and finish ----------------------------------------------------------------------- */

static void reversal_is_the_same_at_every_level(void)
{
    for (int level = PSTI_CPU_AVX2; level <= (int)psti_cpu_level(); level++) {
        for (int i = 0; i < 4000; i++) {
            const size_t size = (size_t)below(8) + 1, pixels = (size_t)below(i % 2 ? 40 : 300);
            const size_t bytes = size * pixels;
            uint8_t *src = noise(bytes), *want = guarded(bytes), *got = guarded(bytes);
            psti_c_reverse(src, pixels, size, want);
            kernels_of(level)->reverse(src, pixels, size, got);
            CHECKF(memcmp(want, got, bytes) == 0 && guard_whole(got, bytes),
                   "level %d, %zu pixels of %zu", level, pixels, size);
            kernels_of(level)->reverse(src, pixels, size, src);
            CHECKF(memcmp(want, src, bytes) == 0, "in place: level %d, %zu pixels of %zu", level,
                   pixels, size);
            free(src);
            free(want);
            free(got);
        }
    }
}

static void reversal_in_c_is_right(void)
{
    uint8_t pixels[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    psti_c_reverse(pixels, 3, 3, pixels);
    CHECK(memcmp(pixels, (uint8_t[]){7, 8, 9, 4, 5, 6, 1, 2, 3}, 9) == 0);
    psti_c_reverse(pixels, 4, 2, pixels);
    CHECK(memcmp(pixels, (uint8_t[]){1, 2, 5, 6, 9, 4, 7, 8, 3}, 9) == 0);
}

static psti_convert_fn *convert_of(int level, int to, bool planar)
{
    const psti_kernels *k = kernels_of(level);
    if (to == PSTI_TO_COUNT)
        return planar ? k->planar_u8 : NULL;
    return planar ? k->planar[to] : k->interleaved[to];
}

static void check_convert(int level, int to, bool planar, int channels, size_t pixels)
{
    static const size_t elements[] = {4, 2, 2, 1};
    float scale[4], bias[4];
    for (int c = 0; c < 4; c++) {
        scale[c] = (float)(1.0 / (255.0 * psti_rng_range(&rng, 0.01, 2.0)));
        bias[c] = below(5) ? (float)psti_rng_range(&rng, -3, 3) : 0;
    }
    const size_t gap = (size_t)below(3) * 7;
    const psti_convert how = {channels, scale, bias, pixels + gap};
    const size_t bytes = ((pixels + gap) * (size_t)channels) * elements[to];
    uint8_t *src = noise(pixels * (size_t)channels), *want = guarded(bytes), *got = guarded(bytes);
    convert_of(PSTI_CPU_C, to, planar)(&how, src, pixels, want);
    convert_of(level, to, planar)(&how, src, pixels, got);
    CHECKF(memcmp(want, got, bytes + GUARD) == 0,
           "level %d, type %d, planar %d, %d channels, %zu pixels", level, to, planar, channels,
           pixels);
    free(src);
    free(want);
    free(got);
}

static void conversion_is_the_same_at_every_level(void)
{
    for (int level = PSTI_CPU_AVX2; level <= (int)psti_cpu_level(); level++) {
        for (int i = 0; i < 6000; i++) {
            const int to = below(PSTI_TO_COUNT + 1);
            const bool planar = to == PSTI_TO_COUNT || below(2);
            check_convert(level, to, planar, 1 + below(4), (size_t)below(i % 8 ? 150 : 2000));
        }
    }
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Against the definition: of the two nearest halves the nearer, and of two as near the even one. */
static void halves_round_to_nearest_even(void)
{
    const struct {
        float value;
        uint16_t half;
    } known[] = {{0.0f, 0},
                 {1.0f, 0x3c00},
                 {-2.0f, 0xc000},
                 {65504.0f, 0x7bff},
                 {65519.0f, 0x7bff},
                 {65520.0f, 0x7c00},
                 {-1e9f, 0xfc00},
                 {0x1p-24f, 1},
                 {0x1p-25f, 0},
                 {0x1.8p-25f, 1},
                 {0x1.8p-24f, 2},
                 {0x1p-14f, 0x0400},
                 {0x1.ff8p-15f, 0x03ff},
                 {0x1.ffcp-15f, 0x0400},
                 {0x1.ffep-15f, 0x0400},
                 {1.0f + 0x1p-11f, 0x3c00},
                 {1.0f + 0x1.8p-10f, 0x3c02},
                 {0x1p-40f, 0},
                 {-0.0f, 0x8000}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECKF(psti_c_half(known[i].value) == known[i].half, "%a gave %04x", (double)known[i].value,
               psti_c_half(known[i].value));
    CHECK(psti_c_bfloat(1.0f) == 0x3f80 && psti_c_bfloat(float_of(0x3f808000)) == 0x3f80);
    CHECK(psti_c_bfloat(float_of(0x3f818000)) == 0x3f82 &&
          psti_c_bfloat(float_of(0xbf808001)) == 0xbf81);
}

#if defined(__x86_64__)
#include <immintrin.h>
__attribute__((target("avx2,f16c"))) static void halves_agree_with_the_hardware(void)
{
    for (int i = 0; i < 2000000; i++) {
        const uint32_t bits = psti_rng_u32(&rng);
        if ((bits & 0x7f800000) == 0x7f800000)
            continue;
        const uint16_t want =
            (uint16_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(float_of(bits)), 0));
        const uint16_t got = psti_c_half(float_of(bits));
        CHECKF(want == got, "%08x: %04x, not %04x", bits, got, want);
        if (want != got)
            return;
    }
}
#endif

/* ---- bench ----------------------------------------------------------------------------------- */

typedef struct bench_job {
    int level, to;
    bool planar;
    psti_field in, out;
    psti_op_ctx ctx;
    uint8_t *dst; /* a ring of slots, so that the memory is as cold as a batch's */
    size_t slots, slot_bytes, at;
    const psti_convert *how;
} bench_job;

static void bench_resize(void *user)
{
    bench_job *job = user;
    const psti_draw window = {.rows = job->in.shape[0], .cols = job->in.shape[1]};
    psti_resample_with(kernels_of(job->level), PSTI_BILINEAR, &window, &job->ctx, &job->in,
                       &job->out, NULL);
}

static void bench_convert(void *user)
{
    bench_job *job = user;
    uint8_t *slot = job->dst + job->at++ % job->slots * job->slot_bytes;
    convert_of(job->level, job->to, job->planar)(job->how, job->in.data, 224 * 224, slot);
    kernels_of(job->level)->settle();
}

static void bench_reverse(void *user)
{
    bench_job *job = user;
    for (int y = 0; y < 224; y++)
        kernels_of(job->level)->reverse(job->in.data + y * 672, 224, 3, job->in.data + y * 672);
}

typedef struct axis_job {
    psti_across across;
    const psti_kernels *kernels;
    uint8_t *rows[PSTI_ROWS_AT_ONCE];
    uint8_t *out[PSTI_ROWS_AT_ONCE];
} axis_job;

static void bench_plan(void *user)
{
    axis_job *job = user;
    job->kernels->across_plan(&job->across);
}

static void bench_across(void *user)
{
    axis_job *job = user;
    job->across.run(&job->across, (const uint8_t *const *)job->rows, job->out, PSTI_ROWS_AT_ONCE);
}

static void bench_down(void *user)
{
    axis_job *job = user;
    static const int32_t weights[] = {1 << 20, 1 << 21, 1 << 20};
    job->kernels->down((const uint8_t *const *)job->rows, weights, 3, job->out[0], 672);
}

/* The parts of a resize from 300 to 224, three taps at most. */
static void bench_parts(int level)
{
    psti_axis axis = {.in = 300, .out = 224, .taps = 3, .stride = 8};
    axis.first = calloc(224, 4);
    axis.count = calloc(224, 4);
    axis.weights = calloc(224 * 8, 4);
    for (int i = 0; i < 224; i++) {
        axis.first[i] = i * 297 / 223;
        axis.count[i] = 3;
        axis.weights[8 * i] = axis.weights[8 * i + 2] = 1 << 20;
        axis.weights[8 * i + 1] = 1 << 21;
    }
    axis_job job = {.kernels = kernels_of(level), .across = {.axis = &axis, .channels = 3}};
    job.across.table = malloc(job.kernels->across_bytes(224, 3, 3) + 1);
    for (int r = 0; r < PSTI_ROWS_AT_ONCE; r++) {
        job.rows[r] = noise(900);
        job.out[r] = noise(672);
    }
    const char *name = psti_cpu_name((psti_cpu)level);
    printf("%-7s across: table for 300 to 224 rgb         %8.2f us\n", name,
           bench_us(bench_plan, &job));
    printf("%-7s across: 4 rows of 300 to 224 rgb         %8.2f us\n", name,
           bench_us(bench_across, &job));
    printf("%-7s down: a row of 672 bytes out of 3         %8.2f us\n", name,
           bench_us(bench_down, &job));
    for (int r = 0; r < PSTI_ROWS_AT_ONCE; r++) {
        free(job.rows[r]);
        free(job.out[r]);
    }
    free(job.across.table);
    free_axis(&axis);
}

static void bench_resizes(int level)
{
    static const int sizes[][2] = {{300, 280}, {375, 500}, {120, 150}, {480, 640}, {1200, 1600}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bench_job job = {.level = level};
        job.in = picture(sizes[i][0], sizes[i][1], 3, 0);
        job.out = picture(224, 224, 3, 0);
        printf("%-7s resize %4dx%-4d to 224x224 rgb          %8.1f us\n",
               psti_cpu_name((psti_cpu)level), sizes[i][0], sizes[i][1],
               bench_us(bench_resize, &job));
        free(job.in.data);
        free(job.out.data);
        psti_op_ctx_fini(&job.ctx);
    }
}

static void bench_converts(int level, size_t slots)
{
    static const char *const names[] = {"f32", "f16", "bf16", "u8"};
    static const float scale[4] = {0.017f, 0.0175f, 0.0174f, 1}, bias[4] = {2.1f, 2.0f, 1.8f, 0};
    const psti_convert how = {3, scale, bias, 224 * 224};
    bench_job job = {.level = level, .how = &how, .slots = slots, .slot_bytes = 224 * 224 * 3 * 4};
    job.in = picture(224, 224, 3, 0);
    job.dst = aligned_alloc(64, job.slots * job.slot_bytes);
    memset(job.dst, 0, job.slots * job.slot_bytes);
    for (job.to = 0; job.to <= PSTI_TO_COUNT; job.to++) {
        for (int planar = job.to == PSTI_TO_COUNT; planar < 2; planar++) {
            job.planar = planar;
            printf("%-7s finish 224x224 rgb to %-4s %s, %3zu slots %8.1f us\n",
                   psti_cpu_name((psti_cpu)level), names[job.to], planar ? "nchw" : "nhwc", slots,
                   bench_us(bench_convert, &job));
        }
    }
    if (slots == 1)
        printf("%-7s hflip 224x224 rgb in place                %8.1f us\n",
               psti_cpu_name((psti_cpu)level), bench_us(bench_reverse, &job));
    free(job.in.data);
    free(job.dst);
}

static int bench(void)
{
    for (int level = PSTI_CPU_C; level <= (int)psti_cpu_level(); level++) {
        bench_parts(level);
        bench_resizes(level);
        bench_converts(level, 1);
        bench_converts(level, 128);
    }
    return 0;
}

int main(int argc, char **argv)
{
    psti_rng_init(&rng, &(psti_rng_key){.seed = 20}, 0);
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return bench();
    printf("levels up to %s, seed 20\n", psti_cpu_name(psti_cpu_level()));
    RUN(across_is_the_same_at_every_level);
    RUN(down_is_the_same_at_every_level);
    RUN(resizes_are_the_same_at_every_level);
    RUN(reversal_in_c_is_right);
    RUN(reversal_is_the_same_at_every_level);
    RUN(conversion_is_the_same_at_every_level);
    RUN(halves_round_to_nearest_even);
#if defined(__x86_64__)
    if (psti_cpu_level() >= PSTI_CPU_AVX2)
        RUN(halves_agree_with_the_hardware);
#endif
    return check_report();
}
