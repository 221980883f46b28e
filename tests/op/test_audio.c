/* SPDX-License-Identifier: Apache-2.0
 * The functions under ops on recordings: against sums written out in doubles, at the edges of what
 * they take, and in memory of exactly the size they ask for, so that a sanitizer sees one byte too
 * many. Equality with torchaudio is parity_audio.py's. With the argument "bench" it times them. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "core/clock.h"
#include "op/audio/audio.h"
#include "op/kernels/kernels.h"
#include "penstock.h"

static const psti_log_mel speech = {.mels = 80,
                                    .size = 512,
                                    .window = 320,
                                    .hop = 160,
                                    .center = true,
                                    .even = true,
                                    .high = 8000,
                                    .rate = 16000,
                                    .floor = 1e-20};

/* Tones and noise in -1..1. */
static float *make_wave(int64_t n)
{
    float *wave = malloc(sizeof *wave * (size_t)(n ? n : 1));
    uint32_t state = 7;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        const double noise = (double)(state >> 8) / (1 << 24) - 0.5;
        wave[i] = (float)(0.4 * sin(0.07 * (double)i) + 0.2 * sin(0.5 * (double)i) + 0.1 * noise);
    }
    return wave;
}

static void angles_are_close_to_the_c_librarys(void)
{
    const double pi = 3.14159265358979323846;
    for (int i = -4000; i <= 4000; i++) {
        const double x = i / 567.0;
        CHECKF(fabs(psti_sin_pi(x) - sin(pi * x)) < 1e-14, "sine at %g", x);
        CHECKF(fabs(psti_cos_pi(x) - cos(pi * x)) < 1e-14, "cosine at %g", x);
    }
    for (int i = -8; i <= 8; i++) {
        CHECK(psti_sin_pi(i) == 0 && psti_cos_pi(i + 0.5) == 0);
        CHECK(psti_cos_pi(i) == (i % 2 ? -1 : 1));
    }
}

static void only_even_products_of_2_3_and_5_are_transformed(void)
{
#ifdef PSTI_HAVE_FFT
    static const int fit[] = {8, 10, 12, 64, 400, 512, 1000, 4096, 65536},
                     misfit[] = {-2, 0, 1, 2, 6, 9, 14, 15, 25, 511, 514, 65538, 131072};
    for (size_t i = 0; i < sizeof fit / sizeof *fit; i++)
        CHECKF(psti_fft_fits(fit[i]), "%d", fit[i]);
    for (size_t i = 0; i < sizeof misfit / sizeof *misfit; i++)
        CHECKF(!psti_fft_fits(misfit[i]), "%d", misfit[i]);
#else
    CHECK(psti_fft_fits(512) && !psti_fft_fits(400));
#endif
}

/* Against the sum itself. */
static void spectra_are_the_transforms(void)
{
    for (int size = 8; size <= 1024; size++) {
        if (!psti_fft_fits(size))
            continue;
        /* The other lanes are loud, and change nothing. */
        const int lanes = PSTI_FFT_LANES, lane = size / 2 % lanes;
        float *wave = make_wave(size), *frames = malloc(sizeof *wave * (size_t)(size * lanes));
        float *power = malloc(sizeof *power * (size_t)((size / 2 + 1) * lanes));
        void *memory = malloc(psti_fft_bytes(size));
        for (int i = 0; i < size * lanes; i++)
            frames[i] = i % lanes == lane ? wave[i / lanes] : (float)(1000 * (i * 31 % 17));
        psti_fft_power(psti_fft_init(memory, size), frames, power);
        double most = 0, off = 0;
        for (int k = 0; k <= size / 2; k++) {
            double re = 0, im = 0;
            for (int i = 0; i < size; i++) {
                const double turn = 2.0 * (double)((int64_t)i * k % size) / size;
                re += (double)wave[i] * psti_cos_pi(turn);
                im -= (double)wave[i] * psti_sin_pi(turn);
            }
            const double want = re * re + im * im,
                         here = fabs((double)power[k * lanes + lane] - want);
            most = want > most ? want : most;
            off = here > off ? here : off;
        }
        CHECKF(off <= 1e-6 * most, "size %d: %g of %g", size, off, most);
        free(memory);
        free(power);
        free(frames);
        free(wave);
    }
}

/* Every level to the bit, for every kernel of recordings. */
static void levels_agree(void)
{
    enum { MOST = 4096, N = 1003 };
    const psti_kernels *plain = psti_kernels_level(PSTI_CPU_C);
    for (psti_cpu level = PSTI_CPU_C; level <= psti_cpu_level(); level++) {
        const psti_kernels *other = psti_kernels_level(level);
        for (int size = 8; size <= MOST; size *= 2) {
            const size_t rows = (size_t)size * PSTI_FFT_LANES, bins = rows / 2 + PSTI_FFT_LANES;
            float *wave = make_wave((int64_t)rows), *again = make_wave((int64_t)rows);
            float *spare = malloc(rows * sizeof *spare), *turns = malloc(2 * rows * sizeof *turns);
            float *a = malloc(bins * sizeof *a), *b = malloc(bins * sizeof *b);
            for (size_t i = 0; i < 2 * rows; i++)
                turns[i] = wave[i % rows] * 3;
            const psti_spectrum how = {.size = size, .turn = turns, .half_turn = turns + 7};
            plain->audio.power(&how, wave, spare, a);
            other->audio.power(&how, again, spare, b);
            CHECKF(memcmp(a, b, bins * sizeof *a) == 0, "level %d, size %d", (int)level, size);
            free(wave), free(again), free(spare), free(turns), free(a), free(b);
        }
        float *x = make_wave(N), *y = make_wave(N), lanes[2][PSTI_FFT_LANES];
        plain->audio.weigh(x, x + 500, 60, 0.5f, lanes[0]);
        other->audio.weigh(x, x + 500, 60, 0.5f, lanes[1]);
        CHECK(memcmp(lanes[0], lanes[1], sizeof lanes[0]) == 0);
        for (int n = 0; n <= 96; n += 8)
            CHECK(plain->audio.dot(x + 1, x + 200, n) == other->audio.dot(x + 1, x + 200, n));
        for (size_t n = 0; n < N; n += 1 + n / 3) {
            plain->audio.emphasize(x, n, 0.97f);
            other->audio.emphasize(y, n, 0.97f);
            CHECKF(memcmp(x, y, N * sizeof *x) == 0, "level %d, emphasize %zu", (int)level, n);
        }
        free(x), free(y);
    }
}

static void frames_are_counted(void)
{
    psti_log_mel how = speech;
    CHECK(psti_log_mel_frames(&how, 0) == 0 && psti_log_mel_frames(&how, 256) == 0);
    CHECK(psti_log_mel_frames(&how, 257) == 2 && psti_log_mel_frames(&how, 320) == 2);
    CHECK(psti_log_mel_frames(&how, 321) == 3 && psti_log_mel_frames(&how, 16000) == 100);
    how.center = false;
    CHECK(psti_log_mel_frames(&how, 511) == 0 && psti_log_mel_frames(&how, 512) == 1);
    CHECK(psti_log_mel_frames(&how, 671) == 1 && psti_log_mel_frames(&how, 672) == 2);
}

/* Every length around the shortest, in exact memory. The middle frame does not know of the ends. */
static void short_recordings_have_features(void)
{
    if (!psti_fft_fits(speech.size))
        return;
    for (int64_t n = 257; n < 700; n++) {
        const int64_t frames = psti_log_mel_frames(&speech, n);
        float *wave = make_wave(n), *out = malloc(sizeof *out * (size_t)(frames * speech.mels));
        void *scratch = malloc(psti_log_mel_scratch(&speech));
        psti_log_mel_run(&speech, wave, n, scratch, out);
        for (int64_t i = 0; i < frames * speech.mels; i++)
            CHECKF(out[i] > -50 && out[i] < 20, "%lld samples: %g", (long long)n, (double)out[i]);
        free(scratch);
        free(out);
        free(wave);
    }
}

/* More filters than there are bins for: some are empty, and nothing is written past the table. */
static void filters_may_be_narrower_than_bins(void)
{
    static const psti_mel_scale scales[] = {PSTI_MEL_SLANEY, PSTI_MEL_HTK};
    for (int mels = 1; mels <= 400; mels += 19)
        for (int s = 0; s < 2; s++) {
            psti_log_mel how = speech;
            how.mels = mels;
            how.size = 64;
            how.scale = scales[s];
            psti_mel_filters f;
            void *memory = malloc(psti_mel_bytes(&how));
            psti_mel_init(&f, &how, memory);
            int used = 0;
            for (int m = 0; m < mels; m++) {
                CHECK(f.start[m] == used && f.first[m] >= 0 && f.first[m] + f.count[m] <= 33);
                used += f.count[m];
                for (int i = 0; i < f.count[m]; i++)
                    CHECK(f.weights[f.start[m] + i] > 0);
            }
            CHECK(used <= 66);
            free(memory);
        }
}

/* What is not a number or infinite stays visible. */
static void odd_numbers_are_not_hidden(void)
{
    if (!psti_fft_fits(speech.size))
        return;
    float *wave = make_wave(1600), *out = malloc(sizeof *out * 800);
    void *scratch = malloc(psti_log_mel_scratch(&speech));
    wave[700] = NAN;
    psti_log_mel_run(&speech, wave, 1600, scratch, out);
    CHECK(isnan(out[4 * 80]) && isfinite(out[0]) && isfinite(out[8 * 80]));
    free(scratch);
    free(out);
    free(wave);
}

static float *resampled(const float *wave, int64_t n, int64_t from, int64_t to, int64_t *count)
{
    psti_sinc how;
    CHECK(psti_sinc_init(&how, from, to));
    *count = psti_sinc_count(&how, n);
    float *out = malloc(sizeof *out * (size_t)*count);
    void *scratch = malloc(psti_sinc_scratch(&how));
    psti_sinc_run(&how, wave, n, scratch, out);
    free(scratch);
    return out;
}

static void a_constant_stays_one_at_any_rate(void)
{
    static const int64_t rates[][2] = {
        {44100, 16000}, {2, 3}, {85, 100}, {115, 100}, {48000, 7999}};
    float *wave = malloc(sizeof *wave * 3000);
    for (int i = 0; i < 3000; i++)
        wave[i] = 0.5f;
    for (size_t r = 0; r < 5; r++) {
        int64_t count;
        float *out = resampled(wave, 3000, rates[r][0], rates[r][1], &count);
        CHECK(count == (3000 * rates[r][1] + rates[r][0] - 1) / rates[r][0]);
        for (int64_t i = count / 4; i < count * 3 / 4; i++)
            CHECKF(fabs((double)out[i] - 0.5) < 2e-3, "%lld: %g", (long long)i, (double)out[i]);
        free(out);
    }
    free(wave);
}

static void the_same_rate_changes_nothing(void)
{
    float *wave = make_wave(777);
    int64_t count;
    float *out = resampled(wave, 777, 16000, 16000, &count);
    CHECK(count == 777 && memcmp(out, wave, sizeof *wave * 777) == 0);
    free(out);
    free(wave);
}

static void tables_are_bounded(void)
{
    psti_sinc how;
    CHECK(psti_sinc_init(&how, 44100, 16000) && how.from == 441 && how.to == 160);
    CHECK(psti_sinc_init(&how, 767999, 8000) && psti_sinc_scratch(&how) < (65u << 20));
    CHECK(!psti_sinc_init(&how, 767999, 768000) || psti_sinc_scratch(&how) <= (65u << 20));
    CHECK(!psti_sinc_init(&how, 2147483647, 2147483646));
    CHECK(!psti_sinc_init(&how, 2147483647, 1) || psti_sinc_scratch(&how) <= (65u << 20));
}

/* Both types of samples, silence before, between and behind. */
static void silence_is_cut_at_both_ends(void)
{
    const psti_trim how = {40, 400, 100};
    int16_t small[5000];
    float wide[5000];
    for (int i = 0; i < 5000; i++) {
        const bool loud = (i >= 1000 && i < 1500) || (i >= 3000 && i < 3210);
        small[i] = (int16_t)(loud ? (i % 2 ? 9000 : -9000) : i % 3);
        wide[i] = (float)small[i] / 32768;
    }
    for (int type = 0; type < 2; type++) {
        const psti_wave wave = {type ? (const void *)small : wide, type ? PST_I16 : PST_F32, 5000};
        int64_t first, end;
        psti_wave_trim(&how, &wave, &first, &end);
        /* A frame reaches 200 samples to either side of its place. */
        CHECKF(first == 900 && end == 3500, "%lld to %lld", (long long)first, (long long)end);
    }
}

static double seconds_of(void (*work)(float *, int64_t, float *), float *wave, int64_t n,
                         float *out)
{
    double best = 1e9;
    for (int i = 0; i < 15; i++) {
        const uint64_t start = psti_now_ns();
        work(wave, n, out);
        const double took = (double)(psti_now_ns() - start) * 1e-9;
        best = took < best ? took : best;
    }
    return best;
}

static void *bench_memory;

static void bench_trim(float *wave, int64_t n, float *out)
{
    int64_t first, end;
    const psti_wave w = {wave, PST_F32, n};
    psti_wave_trim(&(psti_trim){60, 2048, 512}, &w, &first, &end);
    out[0] = (float)(first + end);
}

static void bench_speed(float *wave, int64_t n, float *out)
{
    psti_sinc how;
    if (psti_sinc_init(&how, 93, 100))
        psti_sinc_run(&how, wave, n, bench_memory, out);
}

static void bench_emphasize(float *wave, int64_t n, float *out)
{
    memcpy(out, wave, (size_t)n * sizeof *out);
    psti_wave_emphasize(out, n, 0.97f);
}

static void bench_log_mel(float *wave, int64_t n, float *out)
{
    psti_log_mel_run(&speech, wave, n, bench_memory, out);
}

static void bench_normalize(float *wave, int64_t n, float *out)
{
    memcpy(out, wave, (size_t)(n / 2) * sizeof *out);
    psti_frames_normalize(out, n / 2 / 80, 80, 1e-5, bench_memory);
}

static int bench(void)
{
    static const struct {
        const char *name;
        void (*work)(float *, int64_t, float *);
    } rows[] = {{"trim", bench_trim},
                {"speed 0.93", bench_speed},
                {"emphasize", bench_emphasize},
                {"log_mel", bench_log_mel},
                {"normalize", bench_normalize}};
    const int64_t n = 256000;
    float *wave = make_wave(n), *out = malloc(sizeof *out * (size_t)(2 * n));
    bench_memory = malloc(1 << 22);
    printf("16 s of 16 kHz, fastest of 15\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("%-12s %8.3f ms\n", rows[i].name, seconds_of(rows[i].work, wave, n, out) * 1e3);
    free(bench_memory);
    free(wave);
    free(out);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return bench();
    RUN(angles_are_close_to_the_c_librarys);
    RUN(only_even_products_of_2_3_and_5_are_transformed);
    RUN(spectra_are_the_transforms);
    RUN(levels_agree);
    RUN(frames_are_counted);
    RUN(short_recordings_have_features);
    RUN(filters_may_be_narrower_than_bins);
    RUN(odd_numbers_are_not_hidden);
    RUN(a_constant_stays_one_at_any_rate);
    RUN(the_same_rate_changes_nothing);
    RUN(tables_are_bounded);
    RUN(silence_is_cut_at_both_ends);
    return check_report();
}
