/* SPDX-License-Identifier: Apache-2.0
 * The kernels of values: every level gives the bytes of the C version, whatever the length and the
 * addresses; logarithms and normal deviates are what they should be. The seed is fixed.
 *
 * --bench: nanoseconds a value for each level the CPU has. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "core/rng.h"
#include "op/kernels/kernels.h"
#include "op_bench.h"

enum { MOST = 700, GUARD = 64 };

static psti_rng rng;
static const psti_value_kernels *plain;

/* Values of every size and sign, and those where rounding matters. */
static float any_float(void)
{
    const uint32_t bits = psti_rng_u32(&rng);
    float value;
    memcpy(&value, &bits, sizeof value);
    switch (psti_rng_below(&rng, 8)) {
    case 0:
        return 0;
    case 1:
        return isnan(value) ? 1 : value;
    case 2:
        return (float)(int)(bits % 2049) / 2048 + 1; /* ties of f16 and bf16 */
    default:
        return (float)psti_rng_range(&rng, -3000, 3000);
    }
}

static void fill(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = any_float();
}

typedef struct buffers {
    float src[MOST + GUARD];
    _Alignas(64) uint8_t want[4 * MOST + 2 * GUARD];
    _Alignas(64) uint8_t got[4 * MOST + 2 * GUARD];
} buffers;

static buffers b;

/* Nothing but the row was written. */
static void compare(const char *what, int level, size_t at, size_t bytes)
{
    CHECKF(memcmp(b.want, b.got, sizeof b.got) == 0, "%s, %s, %zu bytes at %zu", what,
           psti_cpu_name((psti_cpu)level), bytes, at);
}

static void clear(void)
{
    memset(b.want, 0xA5, sizeof b.want);
    memset(b.got, 0xA5, sizeof b.got);
}

static void copies_are_the_same_at_every_level(void)
{
    for (int level = PSTI_CPU_C; level <= (int)psti_cpu_level(); level++) {
        const psti_kernels *k = psti_kernels_level((psti_cpu)level);
        for (int round = 0; round < 600; round++) {
            const size_t element = (size_t)1 << psti_rng_below(&rng, 4);
            const size_t n = psti_rng_below(&rng, MOST * 4 / element);
            const size_t to = psti_rng_below(&rng, GUARD), from = psti_rng_below(&rng, GUARD);
            const uint8_t *src = (uint8_t *)b.src + from;
            fill(b.src, MOST + GUARD / 4);
            clear();
            memcpy(b.want + to, src, n * element);
            k->values.copy(src, n * element, b.got + to);
            k->settle();
            compare("copy", level, to, n * element);
            clear();
            for (size_t i = 0; i < n; i++)
                memcpy(b.want + to + i * element, src + (n - 1 - i) * element, element);
            k->values.back(src, n, element, b.got + to);
            k->settle();
            compare("back", level, to, n * element);
        }
    }
}

static void arithmetic_is_the_same_at_every_level(void)
{
    for (int level = PSTI_CPU_AVX2; level <= (int)psti_cpu_level(); level++) {
        const psti_value_kernels *k = &psti_kernels_level((psti_cpu)level)->values;
        for (int round = 0; round < 300; round++) {
            const size_t n = psti_rng_below(&rng, MOST);
            const float by = (float)psti_rng_range(&rng, -2, 2), other = by + 0.75f;
            float *want = (float *)b.want, *got = (float *)b.got;
            fill(b.src, MOST);
#define BOTH(what, call_plain, call_level)                                                         \
    clear();                                                                                       \
    plain->call_plain;                                                                             \
    k->call_level;                                                                                 \
    compare(what, level, 0, n)
            BOTH("scale", scale(b.src, n, by, want), scale(b.src, n, by, got));
            BOTH("center", center(b.src, n, by, other, want), center(b.src, n, by, other, got));
            BOTH("clip", clip(b.src, n, by, other, want), clip(b.src, n, by, other, got));
            BOTH("u8", widen_u8(b.src, n, by, want), widen_u8(b.src, n, by, got));
            const uint8_t *odd = (uint8_t *)b.src + 1;
            BOTH("i16", widen_i16(odd, n, by, want), widen_i16(odd, n, by, got));
            for (int to = PSTI_TO_F16; to <= PSTI_TO_BF16; to++) {
                BOTH("narrow", narrow[to](b.src, n, (uint16_t *)want),
                     narrow[to](b.src, n, (uint16_t *)got));
            }
            const psti_noise how = {psti_rng_u64(&rng), psti_rng_below(&rng, 1 << 20), by, other};
            BOTH("normals", add_normals(b.src, n, &how, want), add_normals(b.src, n, &how, got));
            for (size_t i = 0; i < n; i++)
                b.src[i] = (float)psti_rng_range(&rng, 1e-20, 4);
            BOTH("ln", ln(b.src, n, want), ln(b.src, n, got));
#undef BOTH
        }
    }
}

static void values_are_what_they_say(void)
{
    static const float x[] = {-5, 0.5f, 7, 1e9f};
    float out[4];
    uint16_t half[4];
    plain->scale(x, 4, 0.1f, out);
    CHECK(out[1] == 0.5f * 0.1f && out[3] == 1e9f * 0.1f);
    plain->center(x, 4, 0.1f, 0.3f, out);
    CHECK(out[2] == (7 - 0.1f) / 0.3f);
    plain->clip(x, 4, -1, 6, out);
    CHECK(out[0] == -1 && out[1] == 0.5f && out[2] == 6 && out[3] == 6);
    plain->widen_i16("\xFF\x7F\x00\x80", 2, 0x1p-15f, out);
    CHECK(out[0] == 32767.0f / 32768 && out[1] == -1);
    plain->narrow[PSTI_TO_F16](x, 4, half);
    CHECK(half[1] == 0x3800 && half[3] == 0x7c00);
    plain->narrow[PSTI_TO_BF16](x, 4, half);
    CHECK(half[0] == 0xc0a0 && half[1] == 0x3f00);
}

static void logarithms_are_right(void)
{
    double worst = 0;
    for (int i = 0; i < 400000; i++) {
        float x = (float)exp(psti_rng_range(&rng, -87, 88)), y;
        if (i % 2)
            x = 1 + (float)(i - 200000) * 2e-6f;
        plain->ln(&x, 1, &y);
        const double want = log((double)x);
        const double error = fabs(y - want) / (fabs(want) > 0 ? fabs(want) : 1);
        worst = error > worst ? error : worst;
    }
    CHECKF(worst < 2e-7, "%g", worst);
    float one = 1, zero = 7;
    plain->ln(&one, 1, &zero);
    CHECK(zero == 0);
}

/* ---- deviates -------------------------------------------------------------------------------- */

enum { MANY = 1 << 20 };

static int by_value(const void *a, const void *c)
{
    const float x = *(const float *)a, y = *(const float *)c;
    return x < y ? -1 : x > y;
}

static double mean_of(const float *z, const float *w)
{
    double sum = 0;
    for (int i = 0; i < MANY; i++)
        sum += (double)z[i] * (w ? (double)w[i] : 1);
    return sum / MANY;
}

/* Kolmogorov's distance to the normal distribution; sorts. */
static double distance(float *z)
{
    double most = 0;
    qsort(z, MANY, sizeof *z, by_value);
    for (int i = 0; i < MANY; i++) {
        const double want = 0.5 * erfc(-(double)z[i] / sqrt(2));
        const double up = fabs((i + 1.0) / MANY - want), down = fabs((double)i / MANY - want);
        most = fmax(most, fmax(up, down));
    }
    return most;
}

static void deviates_are_normal(void)
{
    float *zero = calloc(MANY, sizeof *zero), *z = malloc(MANY * sizeof *z);
    float *other = malloc(MANY * sizeof *other);
    plain->add_normals(zero, MANY, &(psti_noise){.seed = 20, .deviation = 1}, z);
    plain->add_normals(zero, MANY, &(psti_noise){.seed = 21, .deviation = 1}, other);
    const double limit = 4 / sqrt(MANY);
    CHECKF(fabs(mean_of(z, NULL)) < limit, "mean %g", mean_of(z, NULL));
    CHECKF(fabs(mean_of(z, z) - 1) < 1.5 * limit, "variance %g", mean_of(z, z));
    CHECKF(fabs(mean_of(z, other)) < limit, "between seeds %g", mean_of(z, other));
    /* Neighbours, the two of a pair, and blocks. */
    static const int lags[] = {1, 2, 32, 64, 128};
    for (size_t i = 0; i < sizeof lags / sizeof *lags; i++) {
        double sum = 0, squares = 0;
        for (int k = 0; k + lags[i] < MANY; k++) {
            const double x = z[k], y = z[k + lags[i]];
            sum += x * y;
            squares += (x * x - 1) * (y * y - 1) / 2;
        }
        CHECKF(fabs(sum / MANY) < limit && fabs(squares / MANY) < limit, "lag %d: %g, %g", lags[i],
               sum / MANY, squares / MANY);
    }
    const double far = distance(z);
    CHECKF(far < 1.95 / sqrt(MANY), "%g", far); /* one in a thousand */
    CHECKF(z[0] < -4.2f && z[0] > -6.7f && z[MANY - 1] > 4.2f && z[MANY - 1] < 6.7f, "%g %g", z[0],
           z[MANY - 1]);
    free(zero);
    free(z);
    free(other);
}

static void deviates_belong_to_their_element(void)
{
    static const float zero[MOST];
    float *whole = (float *)b.want, piece[MOST];
    const uint64_t first = ((uint64_t)1 << 34) - 300; /* over the end of 32 bits of counters */
    plain->add_normals(zero, MOST, &(psti_noise){7, first, 2, 3}, whole);
    for (int round = 0; round < 200; round++) {
        const size_t at = psti_rng_below(&rng, MOST), n = psti_rng_below(&rng, MOST - at + 1);
        plain->add_normals(zero, n, &(psti_noise){7, first + at, 2, 3}, piece);
        CHECK(memcmp(piece, whole + at, n * sizeof *piece) == 0);
    }
    /* The counter's upper half counts: blocks 2^32 apart differ. */
    plain->add_normals(zero, 64, &(psti_noise){7, 0, 0, 1}, whole);
    plain->add_normals(zero, 64, &(psti_noise){7, (uint64_t)1 << 39, 0, 1}, piece);
    CHECK(memcmp(whole, piece, 64 * sizeof *piece) != 0);
    /* The generator is core's: the first block by hand. */
    plain->add_normals(zero, 128, &(psti_noise){7, 0, 0, 1}, whole);
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t words[4];
        psti_philox((uint32_t[4]){i % 32}, (uint32_t[2]){7, 0}, words);
        const uint32_t *pair = words + (i / 32) * 2;
        const float *got = whole + (i / 32) * 64 + i % 32;
        const double radius = sqrt(-2 * log(((double)(pair[0] >> 1) + 0.5) * 0x1p-31));
        const double angle = 2 * M_PI * pair[1] * 0x1p-32;
        CHECKF(fabs(got[0] - radius * cos(angle)) < 2e-6, "%u: %g", i, got[0]);
        CHECKF(fabs(got[32] - radius * sin(angle)) < 2e-6, "%u: %g", i, got[32]);
    }
}

/* ---- bench ----------------------------------------------------------------------------------- */

enum { BENCH = 1 << 13, SLOTS = 1 << 11 };

typedef struct bench_job {
    const psti_kernels *k;
    float *src, *dst;
    float *batch; /* larger than any cache */
    size_t slot;
} bench_job;

static uint8_t *next_slot(bench_job *j)
{
    return (uint8_t *)(j->batch + (j->slot++ % SLOTS) * BENCH);
}

static void bench_copy(void *user)
{
    bench_job *j = user;
    j->k->values.copy((uint8_t *)j->src, BENCH * 4, next_slot(j));
    j->k->settle();
}

static void bench_back(void *user)
{
    bench_job *j = user;
    j->k->values.back((uint8_t *)j->src, BENCH, 4, next_slot(j));
    j->k->settle();
}

static void bench_scale(void *user)
{
    bench_job *j = user;
    j->k->values.scale(j->src, BENCH, 1.5f, j->dst);
}

static void bench_center(void *user)
{
    bench_job *j = user;
    j->k->values.center(j->src, BENCH, 101, 76.9f, j->dst);
}

static void bench_ln(void *user)
{
    bench_job *j = user;
    j->k->values.ln(j->src, BENCH, j->dst);
}

static void bench_normals(void *user)
{
    bench_job *j = user;
    j->k->values.add_normals(j->src, BENCH, &(psti_noise){.seed = 3, .deviation = 1}, j->dst);
}

static int bench(void)
{
    static const struct {
        const char *name;
        bench_fn *fn;
    } jobs[] = {{"copy", bench_copy},     {"back", bench_back}, {"scale", bench_scale},
                {"center", bench_center}, {"ln", bench_ln},     {"normals", bench_normals}};
    bench_job job = {.src = aligned_alloc(64, BENCH * 4), .dst = aligned_alloc(64, BENCH * 4)};
    job.batch = aligned_alloc(64, (size_t)SLOTS * BENCH * 4);
    memset(job.batch, 0, (size_t)SLOTS * BENCH * 4);
    for (int i = 0; i < BENCH; i++)
        job.src[i] = (float)(i + 1);
    for (int level = PSTI_CPU_C; level <= (int)psti_cpu_level(); level++) {
        job.k = psti_kernels_level((psti_cpu)level);
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
            printf("%-7s %-8s %6.2f ns a value\n", psti_cpu_name((psti_cpu)level), jobs[i].name,
                   1000 * bench_us(jobs[i].fn, &job) / BENCH);
    }
    free(job.src);
    free(job.dst);
    free(job.batch);
    return 0;
}

int main(int argc, char **argv)
{
    psti_rng_init(&rng, &(psti_rng_key){.seed = 20}, 0);
    plain = &psti_kernels_level(PSTI_CPU_C)->values;
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return bench();
    printf("levels up to %s, seed 20\n", psti_cpu_name(psti_cpu_level()));
    RUN(copies_are_the_same_at_every_level);
    RUN(arithmetic_is_the_same_at_every_level);
    RUN(values_are_what_they_say);
    RUN(logarithms_are_right);
    RUN(deviates_are_normal);
    RUN(deviates_belong_to_their_element);
    return check_report();
}
