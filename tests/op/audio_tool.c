/* SPDX-License-Identifier: Apache-2.0
 * Runs one function of op/audio for the parity test: floats come in on standard input, arguments on
 * the command line, and floats go out on standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/audio/audio.h"
#include "penstock.h"

static char **args; /* what follows the function's name */

static int64_t whole(int i)
{
    return atoll(args[i]);
}

static double number(int i)
{
    return atof(args[i]);
}

static float *read_floats(int64_t *count)
{
    size_t cap = 1 << 16, used = 0, got;
    uint8_t *bytes = malloc(cap);
    while ((got = fread(bytes + used, 1, cap - used, stdin)) > 0)
        if ((used += got) == cap)
            bytes = realloc(bytes, cap *= 2);
    memset(bytes + used, 0xFF, cap - used); /* no numbers: a read past the end shows */
    *count = (int64_t)(used / sizeof(float));
    return (float *)(void *)bytes;
}

static void write_floats(const float *values, int64_t count)
{
    fwrite(values, sizeof *values, (size_t)count, stdout);
}

static psti_log_mel features(void)
{
    return (psti_log_mel){.mels = (int)whole(0),
                          .size = (int)whole(1),
                          .window = (int)whole(2),
                          .hop = (int)whole(3),
                          .rate = number(4),
                          .low = number(5),
                          .high = number(6),
                          .scale = (psti_mel_scale)whole(7),
                          .even = whole(8),
                          .periodic = whole(9),
                          .center = whole(10),
                          .hamming = whole(11),
                          .floor = number(12)};
}

static void do_power(const float *in, int64_t n)
{
    enum { LANES = PSTI_FFT_LANES };
    void *memory = malloc(psti_fft_bytes((int)n));
    float *out = malloc(sizeof *out * (size_t)(n / 2 + 1) * LANES);
    float *frames = calloc((size_t)n * LANES, sizeof *frames);
    for (int64_t i = 0; i < n; i++)
        frames[i * LANES + 3] = in[i];
    psti_fft_power(psti_fft_init(memory, (int)n), frames, out);
    for (int64_t i = 0; i <= n / 2; i++)
        out[i] = out[i * LANES + 3];
    write_floats(out, n / 2 + 1);
    free(frames);
    free(memory);
    free(out);
}

/* The filters as a matrix. */
static void do_filters(const float *in, int64_t n)
{
    (void)in, (void)n;
    const psti_log_mel how = features();
    const int bins = how.size / 2 + 1;
    psti_mel_filters f;
    void *memory = malloc(psti_mel_bytes(&how));
    float *out = calloc((size_t)(how.mels * bins), sizeof *out);
    psti_mel_init(&f, &how, memory);
    for (int m = 0; m < how.mels; m++)
        for (int i = 0; i < f.count[m]; i++)
            out[m * bins + f.first[m] + i] = f.weights[f.start[m] + i];
    write_floats(out, how.mels * bins);
    free(memory);
    free(out);
}

static void do_log_mel(const float *in, int64_t n)
{
    const psti_log_mel how = features();
    const int64_t count = psti_log_mel_frames(&how, n) * how.mels;
    void *scratch = malloc(psti_log_mel_scratch(&how));
    float *out = malloc(sizeof *out * (size_t)(count ? count : 1));
    psti_log_mel_run(&how, in, n, scratch, out);
    write_floats(out, count);
    free(scratch);
    free(out);
}

static void do_resample(const float *in, int64_t n)
{
    psti_sinc how;
    if (!psti_sinc_init(&how, whole(0), whole(1)))
        exit(2);
    const int64_t count = psti_sinc_count(&how, n);
    void *scratch = malloc(psti_sinc_scratch(&how));
    float *out = malloc(sizeof *out * (size_t)count);
    psti_sinc_run(&how, in, n, scratch, out);
    write_floats(out, count);
    free(scratch);
    free(out);
}

static void do_trim(const float *in, int64_t n)
{
    const psti_trim how = {number(0), whole(1), whole(2)};
    int16_t *small = malloc(sizeof *small * (size_t)(n ? n : 1));
    for (int64_t i = 0; i < n; i++)
        small[i] = (int16_t)(in[i] * 32768);
    const bool as_whole = strcmp(args[3], "i16") == 0;
    const psti_wave wave = {as_whole ? (const void *)small : in, as_whole ? PST_I16 : PST_F32, n};
    int64_t first, end;
    psti_wave_trim(&how, &wave, &first, &end);
    const float out[2] = {(float)first, (float)end};
    write_floats(out, 2);
    free(small);
}

static void do_emphasize(float *in, int64_t n)
{
    psti_wave_emphasize(in, n, (float)number(0));
    write_floats(in, n);
}

static void do_normalize(float *in, int64_t n)
{
    const int64_t cols = whole(0);
    double *sums = malloc(sizeof *sums * (size_t)(2 * cols));
    psti_frames_normalize(in, n / cols, cols, number(1), sums);
    write_floats(in, n);
    free(sums);
}

/* COLS, then "rows" or "cols", first and count, as often as wanted. */
static void do_mask(float *in, int64_t n)
{
    const int64_t cols = whole(0), rows = n / cols;
    for (int i = 1; args[i]; i += 3) {
        const psti_band band = {whole(i + 1), whole(i + 2)};
        if (strcmp(args[i], "rows") == 0)
            psti_frames_mask_rows(in, rows, cols, band);
        else
            psti_frames_mask_cols(in, rows, cols, band);
    }
    write_floats(in, n);
}

static void do_stack(const float *in, int64_t n)
{
    const int64_t cols = whole(0), count = whole(1), skip = whole(2);
    const int64_t made = psti_frames_stacked(n / cols, skip) * cols * count;
    float *out = malloc(sizeof *out * (size_t)made);
    psti_frames_stack(in, n / cols, cols, count, skip, out);
    write_floats(out, made);
    free(out);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    args = argv + 2;
    int64_t n;
    float *in = read_floats(&n);
    if (strcmp(argv[1], "fits") == 0)
        printf("%d\n", psti_fft_fits((int)whole(0)));
    else if (strcmp(argv[1], "power") == 0)
        do_power(in, n);
    else if (strcmp(argv[1], "filters") == 0)
        do_filters(in, n);
    else if (strcmp(argv[1], "log_mel") == 0)
        do_log_mel(in, n);
    else if (strcmp(argv[1], "resample") == 0)
        do_resample(in, n);
    else if (strcmp(argv[1], "trim") == 0)
        do_trim(in, n);
    else if (strcmp(argv[1], "emphasize") == 0)
        do_emphasize(in, n);
    else if (strcmp(argv[1], "normalize") == 0)
        do_normalize(in, n);
    else if (strcmp(argv[1], "mask") == 0)
        do_mask(in, n);
    else if (strcmp(argv[1], "stack") == 0)
        do_stack(in, n);
    free(in);
    return 0;
}
