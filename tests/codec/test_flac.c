/* SPDX-License-Identifier: Apache-2.0
 * FLAC: every kind of number, and that a file which is cut, damaged or lacks a frame anywhere is an
 * error that says so, never other samples. Bytes are exact-size copies, so a sanitizer sees a read
 * past the end. Equality with libsndfile is parity_audio.py's. */
#include "codec/make_audio.h"

#ifndef PSTI_HAVE_FLAC
int main(void)
{
    printf("skip: built without FLAC\n");
    return 77;
}
#else

#include <math.h>

#include "check.h"
#include "core/clock.h"

static psti_decoder *dec;

enum { FRAMES = 700, INFO = 8 };

static double value_of(const psti_field *field, int64_t i)
{
    if (field->dtype == PST_I16)
        return ((const int16_t *)(const void *)field->data)[i] / 32768.0;
    return (double)((const float *)(const void *)field->data)[i];
}

static void numbers_keep_their_values(void)
{
    for (size_t s = 0; s < FLAC_SPECS; s++) {
        const flac_spec *spec = &flac_specs[s];
        made file = make_flac(spec, FRAMES, s);
        if (!file.bytes && spec->bits == 32)
            continue;
        decoded d = decode_wave(dec, file.bytes, file.size, PSTI_COLOR_KEEP);
        CHECKF(d.rc == 0, "%s: %s", spec->name, d.err.message);
        CHECK(d.pic.rows == FRAMES && d.pic.cols == 1 && d.pic.channels == spec->channels);
        CHECK(d.pic.unit[0] == spec->rate && d.pic.axes == PSTI_AXES_WAVE && !d.pic.can_crop);
        CHECK(d.pic.bits == spec->bits && d.pic.format == PSTI_FORMAT_FLAC);
        CHECK(d.field.dtype == (spec->bits <= 16 ? PST_I16 : PST_F32));
        for (int64_t i = 0; d.rc == 0 && i < FRAMES * spec->channels; i++) {
            const double want = flac_number(spec, s, i) * pow(2, 1 - spec->bits);
            CHECKF(value_of(&d.field, i) == (double)(float)want, "%s: number %lld", spec->name,
                   (long long)i);
        }
        decoded_free(&d);
        d = decode_wave(dec, file.bytes, file.size, PSTI_COLOR_RGB);
        CHECK(d.rc == 0 && d.pic.channels == 1);
        CHECK(spec->channels == 1 || d.field.dtype == PST_F32);
        for (int64_t i = 0; d.rc == 0 && i < FRAMES; i++) {
            double sum = 0;
            for (int c = 0; c < spec->channels; c++)
                sum += flac_number(spec, s, i * spec->channels + c) * pow(2, 1 - spec->bits);
            CHECKF(value_of(&d.field, i) == (double)(float)(sum / spec->channels), "%s: frame %lld",
                   spec->name, (long long)i);
        }
        decoded_free(&d);
        free(file.bytes);
    }
}

/* Decodes an exact-size copy of the file. */
static decoded decode_exact(const uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, bytes, size);
    decoded d = decode_wave(dec, exact, size, PSTI_COLOR_KEEP);
    free(exact);
    return d;
}

static void every_cut_is_an_error(void)
{
    for (size_t s = 0; s < FLAC_SPECS; s++) {
        made file = make_flac(&flac_specs[s], FRAMES, s);
        for (size_t size = 0; size < file.size; size++) {
            decoded d = decode_exact(file.bytes, size);
            CHECKF(d.rc == (size < 4 ? PST_EFORMAT : PST_ECORRUPT), "%s cut at %zu: %d %s",
                   flac_specs[s].name, size, d.rc, d.err.message);
            CHECKF(size < 4 || strstr(d.err.message, "cut off"), "%s cut at %zu: %s",
                   flac_specs[s].name, size, d.err.message);
            CHECK(size < 4 || (d.err.offset >= 0 && d.err.offset <= (int64_t)size));
            decoded_free(&d);
        }
        decoded whole = decode_exact(file.bytes, file.size);
        if (file.bytes)
            add_bytes(&file, "TAG and more rubbish", 20);
        decoded more = decode_exact(file.bytes, file.size);
        CHECK(whole.rc == more.rc &&
              (whole.rc < 0 || memcmp(whole.field.data, more.field.data, whole.field.bytes) == 0));
        decoded_free(&whole);
        decoded_free(&more);
        free(file.bytes);
    }
}

/* Each frame has checksums: a flipped byte behind the header is an error, or (behind the last
 * sample, or in what is passed over) changes nothing. */
static void damage_never_gives_other_samples(void)
{
    for (size_t s = 0; s < FLAC_SPECS; s++) {
        made file = make_flac(&flac_specs[s], FRAMES, s);
        decoded whole = decode_exact(file.bytes, file.size);
        for (size_t at = 0; whole.rc == 0 && at < file.size; at++) {
            file.bytes[at] ^= 0xFF;
            decoded d = decode_exact(file.bytes, file.size);
            const bool described = at >= INFO && at < INFO + 18;
            CHECKF(d.rc == 0 || d.rc == PST_ECORRUPT || d.rc == PST_EFORMAT || d.rc == PST_ELIMIT,
                   "%s flipped at %zu: %d %s", flac_specs[s].name, at, d.rc, d.err.message);
            if (d.rc == 0 && !described)
                CHECKF(memcmp(d.field.data, whole.field.data, whole.field.bytes) == 0,
                       "%s flipped at %zu: other samples", flac_specs[s].name, at);
            decoded_free(&d);
            file.bytes[at] ^= 0xFF;
        }
        decoded again = decode_exact(file.bytes, file.size);
        CHECK(again.rc == whole.rc &&
              (whole.rc < 0 || memcmp(again.field.data, whole.field.data, whole.field.bytes) == 0));
        decoded_free(&again);
        decoded_free(&whole);
        free(file.bytes);
    }
}

/* Where the first frame begins. */
static size_t frames_begin(const made *file)
{
    size_t at = 4;
    for (;;) {
        const bool last = file->bytes[at] & 0x80;
        at += 4 + ((size_t)file->bytes[at + 1] << 16 | (size_t)file->bytes[at + 2] << 8 |
                   file->bytes[at + 3]);
        if (last)
            return at;
    }
}

/* Silence would come in its place if libFLAC were let alone. */
static void a_missing_frame_is_an_error(void)
{
    const flac_spec spec = {"16 bits", 16, 1, 16000, 0, 64};
    made file = make_flac(&spec, FRAMES, 3);
    size_t begins[FRAMES / 64 + 2];
    int count = 0;
    for (size_t at = frames_begin(&file); at + 4 < file.size; at++)
        if (file.bytes[at] == 0xFF && file.bytes[at + 1] == 0xF8 && file.bytes[at + 4] == count &&
            count <= FRAMES / 64)
            begins[count++] = at;
    CHECKF(count == FRAMES / 64 + 1, "%d frames", count);
    for (int lost = 0; lost + 1 < count; lost++) {
        const size_t gap = begins[lost + 1] - begins[lost];
        uint8_t *less = malloc(file.size - gap);
        memcpy(less, file.bytes, begins[lost]);
        memcpy(less + begins[lost], file.bytes + begins[lost + 1], file.size - begins[lost + 1]);
        decoded d = decode_exact(less, file.size - gap);
        CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "frames are missing"),
               "frame %d: %d %s", lost, d.rc, d.err.message);
        decoded_free(&d);
        free(less);
    }
    free(file.bytes);
}

/* Every sample could be had here too, but the file is not what was written. */
static void rubbish_between_frames_is_an_error(void)
{
    made file = make_flac(&flac_specs[0], FRAMES, 3);
    const size_t begin = frames_begin(&file);
    uint8_t *more = malloc(file.size + 7);
    memcpy(more, file.bytes, begin);
    memcpy(more + begin, "rubbish", 7);
    memcpy(more + begin + 7, file.bytes + begin, file.size - begin);
    decoded d = decode_exact(more, file.size + 7);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "a frame is damaged after 0 of 700") &&
               d.err.offset == (int64_t)begin,
           "%d %s", d.rc, d.err.message);
    decoded_free(&d);
    file.bytes[begin + 40] ^= 1;
    d = decode_exact(file.bytes, file.size);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "checksum is wrong"), "%d %s", d.rc,
           d.err.message);
    decoded_free(&d);
    free(more);
    free(file.bytes);
}

/* Puts bits into the packed part of the description. */
static void put_info(made *file, int first, int bits, uint64_t value)
{
    for (int i = 0; i < bits; i++) {
        const int bit = first + i;
        uint8_t *byte = file->bytes + INFO + 10 + bit / 8;
        const uint8_t mask = (uint8_t)(0x80 >> bit % 8);
        *byte = (uint8_t)(value >> (bits - 1 - i) & 1 ? *byte | mask : *byte & ~mask);
    }
}

enum { RATE = 0, CHANNELS = 20, BITS = 23, TOTAL = 28 }; /* where they stand there */

typedef struct refusal {
    const char *what, *words;
    int first, bits;
    uint64_t value;
    int code;
} refusal;

static const refusal refusals[] = {
    {"no rate", "0 samples a second", RATE, 20, 0, PST_EFORMAT},
    {"rate of 1 MHz", "1048575 samples a second", RATE, 20, 1048575, PST_EFORMAT},
    {"3 bits", "samples of 3 bits", BITS, 5, 2, PST_ECORRUPT},
    {"unknown length", "write the file anew", TOTAL, 36, 0, PST_EFORMAT},
    {"2^36 samples", "the limit is 536870912", TOTAL, 36, 0xFFFFFFFFFu, PST_ELIMIT},
    {"a million samples", "cannot be in the", TOTAL, 36, 1000000, PST_ECORRUPT},
    {"one more sample", "cut off after 700 of 701", TOTAL, 36, 701, PST_ECORRUPT},
    {"one sample less", "more samples than the header says", TOTAL, 36, 699, PST_ECORRUPT},
    {"another rate", "unlike what the header says", RATE, 20, 44100, PST_ECORRUPT},
    {"another channel", "unlike what the header says", CHANNELS, 3, 1, PST_ECORRUPT},
    {"other bits", "unlike what the header says", BITS, 5, 23, PST_ECORRUPT},
};

static void absurd_headers_are_refused(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        made file = make_flac(&flac_specs[0], FRAMES, 1);
        put_info(&file, r->first, r->bits, r->value);
        const uint64_t start = psti_now_ns();
        decoded d = decode_exact(file.bytes, file.size);
        CHECK(psti_now_ns() - start < 10000000);
        CHECKF(d.rc == r->code && strstr(d.err.message, r->words), "%s: %d %s", r->what, d.rc,
               d.err.message);
        decoded_free(&d);
        free(file.bytes);
    }
    made file = make_flac(&flac_specs[0], FRAMES, 1);
    file.bytes[INFO + 2] = 0;
    file.bytes[INFO + 3] = 128; /* frames are larger than that */
    decoded d = decode_exact(file.bytes, file.size);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "unlike"), "%s", d.err.message);
    file.bytes[INFO + 3] = 0;
    d = decode_exact(file.bytes, file.size);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "at most 0 samples"), "%s", d.err.message);
    free(file.bytes);
}

int main(void)
{
    dec = psti_decoder_new();
    RUN(numbers_keep_their_values);
    RUN(every_cut_is_an_error);
    RUN(damage_never_gives_other_samples);
    RUN(a_missing_frame_is_an_error);
    RUN(rubbish_between_frames_is_an_error);
    RUN(absurd_headers_are_refused);
    psti_decoder_free(dec);
    return check_report();
}
#endif
