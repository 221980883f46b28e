/* SPDX-License-Identifier: Apache-2.0
 * WAV: every kind of number, as mono and with its channels kept, and whatever a header may claim.
 * Bytes are exact-size copies, so a sanitizer sees a read past the end. Equality with libsndfile is
 * parity_audio.py's. */
#include <math.h>

#include "check.h"
#include "codec/make_audio.h"
#include "core/clock.h"

static psti_decoder *dec;

enum { FRAMES = 311 };

static const wav_spec plain = {"16 bits", WAV_PCM, 16, 1, 16000, false};

/* Number i of the file as a double in -1..1. */
static double number_of(const wav_spec *spec, uint64_t seed, int64_t i)
{
    const int32_t whole = audio_number(seed, i);
    const double wide = whole * 0x1.000002p-31;
    if (spec->code == WAV_FLOAT)
        return spec->bits == 32 ? (double)(float)wide : wide;
    return (whole >> (32 - spec->bits)) * pow(2, 1 - spec->bits);
}

static double value_of(const psti_field *field, int64_t i)
{
    if (field->dtype == PST_I16)
        return ((const int16_t *)(const void *)field->data)[i] / 32768.0;
    return (double)((const float *)(const void *)field->data)[i];
}

static void numbers_keep_their_values(void)
{
    for (size_t s = 0; s < WAV_SPECS; s++) {
        const wav_spec *spec = &wav_specs[s];
        made file = make_wav(spec, FRAMES, s);
        decoded d = decode_wave(dec, file.bytes, file.size, PSTI_COLOR_KEEP);
        CHECKF(d.rc == 0, "%s: %s", spec->name, d.err.message);
        CHECK(d.pic.rows == FRAMES && d.pic.cols == 1 && d.pic.channels == spec->channels);
        CHECK(d.pic.unit[0] == spec->rate && d.pic.axes == PSTI_AXES_WAVE && d.pic.can_crop);
        CHECK(d.pic.bits == spec->bits && d.pic.stored_channels == spec->channels);
        const bool small = spec->code == WAV_PCM && spec->bits <= 16;
        CHECKF(d.field.dtype == (small ? PST_I16 : PST_F32), "%s", spec->name);
        CHECK(d.field.kind == PST_AUDIO && d.field.axes == PSTI_AXES_WAVE);
        for (int64_t i = 0; d.rc == 0 && i < FRAMES * spec->channels; i++) {
            const double want = number_of(spec, s, i), got = value_of(&d.field, i);
            CHECKF(got == (small ? want : (double)(float)want), "%s: number %lld is %g, not %g",
                   spec->name, (long long)i, got, want);
        }
        decoded_free(&d);
        free(file.bytes);
    }
}

static void mono_is_the_mean_of_the_channels(void)
{
    for (size_t s = 0; s < WAV_SPECS; s++) {
        const wav_spec *spec = &wav_specs[s];
        made file = make_wav(spec, FRAMES, s);
        decoded d = decode_wave(dec, file.bytes, file.size, PSTI_COLOR_RGB);
        CHECK(d.rc == 0 && d.pic.channels == 1 && d.field.shape[2] == 1);
        CHECK(spec->channels == 1 || d.field.dtype == PST_F32);
        for (int64_t i = 0; d.rc == 0 && i < FRAMES; i++) {
            double sum = 0;
            for (int c = 0; c < spec->channels; c++)
                sum += number_of(spec, s, i * spec->channels + c);
            const double want = (double)(float)(sum / spec->channels);
            CHECKF(value_of(&d.field, i) == want, "%s: frame %lld", spec->name, (long long)i);
        }
        decoded_free(&d);
        free(file.bytes);
    }
}

static void windows_are_parts_of_the_whole(void)
{
    for (size_t s = 0; s < WAV_SPECS; s++) {
        made file = make_wav(&wav_specs[s], FRAMES, s);
        const psti_decode_options opts = wave_options(PSTI_COLOR_RGB);
        const psti_window part = {.top = 70, .rows = 101, .cols = 1};
        decoded all = decode_with(dec, file.bytes, file.size, &opts, NULL, -1),
                some = decode_with(dec, file.bytes, file.size, &opts, &part, -1);
        CHECK(all.rc == 0 && some.rc == 0 && some.field.shape[0] == 101 && some.field.y0 == 70);
        CHECK(some.rc < 0 || memcmp(some.field.data, all.field.data + 70 * all.field.stride,
                                    some.field.bytes) == 0);
        decoded_free(&all);
        decoded_free(&some);
        free(file.bytes);
    }
}

/* Decodes an exact-size copy of the file. */
static decoded decode_exact(const made *file, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, file->bytes, size);
    decoded d = decode_wave(dec, exact, size, PSTI_COLOR_RGB);
    free(exact);
    return d;
}

static void every_cut_is_an_error(void)
{
    made file = make_wav(&plain, 40, 1);
    const size_t end = chunk_at(&file, "LIST");
    for (size_t size = 0; size < file.size; size++) {
        decoded d = decode_exact(&file, size);
        if (size >= end)
            CHECK(d.rc == 0);
        else
            CHECKF(d.rc == (size < 12 ? PST_EFORMAT : PST_ECORRUPT), "cut at %zu: %d %s", size,
                   d.rc, d.err.message);
        decoded_free(&d);
    }
    decoded d = decode_exact(&file, end - 3);
    CHECKF(strstr(d.err.message, "cut off after 38 of 40"), "%s", d.err.message);
    free(file.bytes);
}

/* Programs that write into a pipe cannot go back to say how much it was. */
static void an_unknown_length_goes_to_the_end(void)
{
    made file = make_wav(&plain, 40, 1);
    const size_t data = chunk_at(&file, "data");
    decoded whole = decode_exact(&file, file.size);
    for (int open = 0; open < 2; open++) {
        put_le(file.bytes + data + 4, open ? UINT32_MAX : 0, 4);
        decoded d = decode_exact(&file, data + 8 + 81);
        CHECKF(d.rc == 0 && d.pic.rows == 40, "%s", d.err.message);
        CHECK(d.rc < 0 || memcmp(d.field.data, whole.field.data, 80) == 0);
        decoded_free(&d);
    }
    memcpy(file.bytes, "RF64", 4);
    decoded d = decode_exact(&file, data + 8 + 80);
    CHECKF(d.rc == 0 && d.pic.rows == 40, "%s", d.err.message);
    decoded_free(&d);
    decoded_free(&whole);
    free(file.bytes);
}

typedef struct refusal {
    const char *what, *words;
    size_t at; /* in the description, or 100 + in the head of the data */
    uint32_t value;
    int bytes, code;
} refusal;

static const refusal refusals[] = {
    {"no channels", "0 channels of 16 bits take 0 bytes", 2, 0, 2, PST_ECORRUPT},
    {"65,535 channels", "take", 2, 65535, 2, PST_ECORRUPT},
    {"no rate", "0 samples a second", 4, 0, 4, PST_EFORMAT},
    {"4 GHz", "4294967295 samples a second", 4, UINT32_MAX, 4, PST_EFORMAT},
    {"no bits", "numbers of 0 bits", 14, 0, 2, PST_EFORMAT},
    {"33 bits", "numbers of 33 bits", 14, 33, 2, PST_EFORMAT},
    {"frames of 3 bytes", "take 2 bytes, the header says 3", 12, 3, 2, PST_ECORRUPT},
    {"frames of no bytes", "the header says 0", 12, 0, 2, PST_ECORRUPT},
    {"A-law", "A-law (code 6) is not read", 0, 6, 2, PST_EFORMAT},
    {"MP3", "MPEG audio (code 85)", 0, 0x55, 2, PST_EFORMAT},
    {"nothing known", "an unknown coding (code 999)", 0, 999, 2, PST_EFORMAT},
    {"short extensible", "extensible header that does not say", 0, 0xFFFE, 2, PST_EFORMAT},
    {"float of 16 bits", "floats of 16 bits", 0, 3, 2, PST_EFORMAT},
    {"4 GB of samples", "the limit is", 104, 0xFFFFFFF0u, 4, PST_ELIMIT},
    {"one sample too many", "cut off after 44 of 60", 104, 120, 4, PST_ECORRUPT},
};

static void absurd_headers_are_refused(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        made file = make_wav(&plain, 36, 1);
        const size_t at = r->at < 100 ? chunk_at(&file, "fmt ") + 8 + r->at
                                      : chunk_at(&file, "data") + r->at - 100;
        put_le(file.bytes + at, r->value, r->bytes);
        const uint64_t start = psti_now_ns();
        decoded d = decode_exact(&file, file.size);
        CHECK(psti_now_ns() - start < 10000000);
        CHECKF(d.rc == r->code && strstr(d.err.message, r->words), "%s: %d %s", r->what, d.rc,
               d.err.message);
        decoded_free(&d);
        free(file.bytes);
    }
}

static void the_container_is_checked(void)
{
    made file = make_wav(&plain, 36, 1);
    const size_t fmt = chunk_at(&file, "fmt ");
    memcpy(file.bytes, "RIFX", 4);
    decoded d = decode_exact(&file, file.size);
    CHECKF(d.rc == PST_EFORMAT && strstr(d.err.message, "big-endian"), "%s", d.err.message);
    memcpy(file.bytes, "ABCD", 4);
    d = decode_exact(&file, file.size);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "RIFF"), "%s", d.err.message);
    memcpy(file.bytes, "RIFF", 4);
    memcpy(file.bytes + fmt, "fmtx", 4);
    d = decode_exact(&file, file.size);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "before their description"), "%s",
           d.err.message);
    memcpy(file.bytes + fmt, "fmt ", 4);
    put_le(file.bytes + fmt + 4, 0x7FFFFFFF, 4);
    d = decode_exact(&file, file.size);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "claims 2147483647 bytes"), "%s",
           d.err.message);
    free(file.bytes);
    made none = make_wav(&plain, 0, 1);
    d = decode_exact(&none, chunk_at(&none, "LIST"));
    CHECKF(d.rc == PST_EFORMAT && strstr(d.err.message, "no samples"), "%s", d.err.message);
    free(none.bytes);
}

/* A file of nothing but empty chunks is left quickly. */
static void chunks_are_counted(void)
{
    made file = {NULL, 0};
    const size_t chunks = 4u << 20;
    file.size = 12 + 8 * chunks;
    file.bytes = calloc(1, file.size);
    memcpy(file.bytes, "RIFF\0\0\0\0WAVE", 12);
    const uint64_t start = psti_now_ns();
    decoded d = decode_wave(dec, file.bytes, file.size, PSTI_COLOR_RGB);
    CHECK(psti_now_ns() - start < 10000000);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "more than 1024 chunks"), "%s",
           d.err.message);
    free(file.bytes);
}

static void limits_are_the_callers(void)
{
    made file = make_wav(&wav_specs[4], 100, 1);
    psti_decode_options opts = wave_options(PSTI_COLOR_KEEP);
    opts.limits.samples = 99;
    decoded d = decode_with(dec, file.bytes, file.size, &opts, NULL, -1);
    CHECKF(d.rc == PST_ELIMIT && strstr(d.err.message, "100 samples, the limit is 99"), "%s",
           d.err.message);
    opts.limits.samples = 100;
    opts.limits.volume_bytes = 399;
    d = decode_with(dec, file.bytes, file.size, &opts, NULL, -1);
    CHECKF(d.rc == PST_ELIMIT && strstr(d.err.message, "recording"), "%s", d.err.message);
    opts.limits.volume_bytes = 400;
    d = decode_with(dec, file.bytes, file.size, &opts, NULL, -1);
    CHECK(d.rc == 0);
    decoded_free(&d);
    d = decode_all(dec, file.bytes, file.size);
    CHECKF(d.rc == PST_EFORMAT && strstr(d.err.message, "WAV recording where a picture"), "%s",
           d.err.message);
    free(file.bytes);
}

int main(void)
{
    dec = psti_decoder_new();
    RUN(numbers_keep_their_values);
    RUN(mono_is_the_mean_of_the_channels);
    RUN(windows_are_parts_of_the_whole);
    RUN(every_cut_is_an_error);
    RUN(an_unknown_length_goes_to_the_end);
    RUN(absurd_headers_are_refused);
    RUN(the_container_is_checked);
    RUN(chunks_are_counted);
    RUN(limits_are_the_callers);
    psti_decoder_free(dec);
    return check_report();
}
