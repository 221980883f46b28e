/* SPDX-License-Identifier: Apache-2.0
 * penstock synth speech: made-up utterances in LibriSpeech's layout, with transcripts. What is said
 * is made of syllables, a consonant and a vowel each; a consonant is a short burst of its own
 * pitch, a vowel a voice with its own two formants, so the sound tells the text. Integers, so that
 * samples are the same everywhere; FLAC files also depend on libFLAC's encoder. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PSTI_HAVE_FLAC
#include <FLAC/stream_encoder.h>
#endif

#include "cli.h"
#include "scene.h"
#include "synth.h"

enum {
    RATE = 16000,
    CHAPTER = 30, /* recordings of a chapter */
    CHAPTERS = 4, /* of a speaker */
    HARMONICS = 24,
    SINES = 4096,
    HEADER = 44, /* bytes of a WAV before its samples */
    TEXT_MOST = 2048
};

static const char consonants[] = "BDFGKLMNPRSTVZ", vowels[] = "AEIOU";

/* One recording, drawn from (seed, number): first how long it is, then how it is filled. */
typedef struct utterance {
    draws d;
    int64_t samples, lead, tail; /* silent at either end */
    int pitch;                   /* Hz */
} utterance;

/* ---- what is said ---------------------------------------------------------------------------- */

/* Seconds: two thirds are 12 to 16.7, the rest fewer, the more the longer. In milliseconds. */
static int64_t draw_length(draws *d)
{
    if (draws_int(d, 0, 99) < 65)
        return draws_int(d, 12000, 16700);
    const int a = draws_int(d, 1300, 12000), b = draws_int(d, 1300, 12000);
    return a > b ? a : b;
}

static utterance draw_utterance(const synth_values *v, int64_t number)
{
    utterance u = {.d = draws_of(v->seed, (uint64_t)number + 16)};
    draws speaker = draws_of(v->seed ^ 0x766f696365, (uint64_t)(number / (CHAPTER * CHAPTERS)));
    u.samples = (int64_t)((double)draw_length(&u.d) * v->scale) * RATE / 1000;
    u.samples = u.samples < RATE / 10 ? RATE / 10 : u.samples;
    u.lead = draws_int(&u.d, RATE / 10, RATE * 6 / 10);
    u.tail = draws_int(&u.d, RATE / 10, RATE * 6 / 10);
    if (u.lead + u.tail > u.samples / 2)
        u.lead = u.tail = u.samples / 8;
    u.pitch = draws_int(&speaker, 90, 230);
    return u;
}

/* A syllable or, after some, the gap between two words. */
typedef struct syllable {
    int consonant, vowel;
    int64_t burst, voiced, gap; /* samples */
} syllable;

/* False when what is left of the time is too short for one more. */
static bool next_syllable(draws *d, int64_t left, syllable *out)
{
    out->consonant = draws_int(d, 0, (int)sizeof consonants - 2);
    out->vowel = draws_int(d, 0, (int)sizeof vowels - 2);
    out->burst = draws_int(d, RATE * 4 / 100, RATE * 7 / 100);
    out->voiced = draws_int(d, RATE * 9 / 100, RATE * 17 / 100);
    out->gap = draws_int(d, 0, 99) < 45 ? draws_int(d, RATE * 5 / 100, RATE * 16 / 100) : 0;
    return out->burst + out->voiced <= left;
}

static void write_text(utterance u, char text[TEXT_MOST])
{
    int64_t left = u.samples - u.lead - u.tail;
    size_t n = 0;
    syllable s;
    while (n + 4 < TEXT_MOST && next_syllable(&u.d, left, &s)) {
        text[n++] = consonants[s.consonant];
        text[n++] = vowels[s.vowel];
        if (s.gap)
            text[n++] = ' ';
        left -= s.burst + s.voiced + s.gap;
    }
    while (n > 0 && text[n - 1] == ' ')
        n--;
    text[n] = 0;
}

/* ---- sound ----------------------------------------------------------------------------------- */

/* What a thread keeps. */
typedef struct studio {
    int sine[SINES]; /* of a whole turn, -32767..32767 */
    int32_t *samples;
    unsigned char *bytes;
    size_t room, size, at; /* of bytes: capacity, used, where the encoder writes next */
    size_t samples_room;
} studio;

/* By its series; exact enough for a table of 16 bits. */
static int sine_at(int i)
{
    const double x = (i < SINES / 4       ? i
                      : i < SINES * 3 / 4 ? SINES / 2 - i
                                          : i - SINES) *
                     (6.283185307179586 / SINES);
    double term = x, sum = x;
    for (int k = 1; k < 9; k++) {
        term = -term * x * x / (2 * k * (2 * k + 1));
        sum += term;
    }
    return (int)(sum * 32767 + (sum < 0 ? -0.5 : 0.5));
}

static void *studio_new(void)
{
    studio *s = cli_alloc(sizeof *s);
    memset(s, 0, sizeof *s);
    for (int i = 0; i < SINES; i++)
        s->sine[i] = sine_at(i);
    return s;
}

static void studio_free(void *tools)
{
    studio *s = tools;
    free(s->samples);
    free(s->bytes);
    free(s);
}

/* Loud in the middle of n samples, silent at both ends; 0..1024. */
static int swell(int64_t i, int64_t n)
{
    return (int)(4096 * i / n * (n - i) / n);
}

static void add_burst(studio *st, int32_t *to, const syllable *s, draws *d)
{
    const uint32_t step = (uint32_t)(((uint64_t)(900 + 450 * s->consonant) << 32) / RATE);
    uint32_t phase = 0;
    for (int64_t i = 0; i < s->burst; i++, phase += step) {
        const int noise = (int)(draws_u64(d) >> 52) - 2048;
        to[i] += swell(i, s->burst) * (st->sine[phase >> 20] / 16 + noise / 2) / 1024;
    }
}

/* How strongly a tone sounds near a formant; 0..256. */
static int resonance(int hz, int formant, int width)
{
    const int off = (hz - formant) / width;
    return 256 / (1 + off * off);
}

static void add_vowel(studio *st, int32_t *to, const syllable *s, int pitch, draws *d)
{
    static const int formants[][2] = {
        {730, 1090}, {530, 1840}, {270, 2290}, {570, 840}, {300, 870}};
    int strength[HARMONICS + 1];
    const int base = pitch * draws_int(d, 90, 110) / 100, bend = draws_int(d, -12, 12);
    for (int k = 1; k <= HARMONICS; k++)
        strength[k] = (resonance(k * base, formants[s->vowel][0], 70) +
                       resonance(k * base, formants[s->vowel][1], 110) / 2 + 4) *
                      3 / 4;
    uint32_t phase = 0;
    uint32_t step = (uint32_t)(((uint64_t)base << 32) / RATE);
    for (int64_t i = 0; i < s->voiced; i++) {
        int64_t sum = 0;
        for (int k = 1; k <= HARMONICS; k++)
            sum += (int64_t)strength[k] * st->sine[(phase * (uint32_t)k) >> 20];
        to[i] += (int32_t)(sum / 1024 * swell(i, s->voiced) / 1024);
        step += (uint32_t)(bend * 64);
        phase += step;
    }
}

static void render(studio *st, utterance u)
{
    const size_t bytes = (size_t)u.samples * sizeof *st->samples;
    if (bytes > st->samples_room) {
        free(st->samples);
        st->samples = cli_alloc(bytes);
        st->samples_room = bytes;
    }
    draws noise = draws_of(draws_u64(&(draws){u.d.key, u.d.next}), 1);
    for (int64_t i = 0; i < u.samples; i++)
        st->samples[i] = (int32_t)(draws_u64(&noise) >> 62) - 1;
    int64_t at = u.lead;
    const int64_t end = u.samples - u.tail;
    syllable s;
    char text[TEXT_MOST];
    write_text(u, text); /* as many syllables as there is text */
    size_t letters = 0;
    for (const char *c = text; *c; c++)
        letters += *c != ' ';
    for (; letters > 0 && next_syllable(&u.d, end - at, &s); letters -= 2) {
        add_burst(st, st->samples + at, &s, &noise);
        add_vowel(st, st->samples + at + s.burst, &s, u.pitch, &noise);
        at += s.burst + s.voiced + s.gap;
    }
    for (int64_t i = 0; i < u.samples; i++)
        st->samples[i] = st->samples[i] > 32767    ? 32767
                         : st->samples[i] < -32768 ? -32768
                                                   : st->samples[i];
}

/* ---- files ----------------------------------------------------------------------------------- */

static void put_bytes(studio *st, const void *bytes, size_t n)
{
    if (st->at + n > st->room) {
        const size_t room = 2 * (st->at + n);
        unsigned char *more = cli_alloc(room);
        if (st->size)
            memcpy(more, st->bytes, st->size);
        free(st->bytes);
        st->bytes = more;
        st->room = room;
    }
    memcpy(st->bytes + st->at, bytes, n);
    st->at += n;
    st->size = st->at > st->size ? st->at : st->size;
}

static void put_number(studio *st, uint32_t value, int bytes)
{
    unsigned char little[4];
    for (int i = 0; i < bytes; i++)
        little[i] = (unsigned char)(value >> (8 * i));
    put_bytes(st, little, (size_t)bytes);
}

static void pack_wav(studio *st, int64_t samples)
{
    const uint32_t data = (uint32_t)samples * 2;
    put_bytes(st, "RIFF", 4);
    put_number(st, HEADER - 8 + data, 4);
    put_bytes(st, "WAVEfmt ", 8);
    put_number(st, 16, 4);
    put_number(st, 1, 2);
    put_number(st, 1, 2);
    put_number(st, RATE, 4);
    put_number(st, 2 * RATE, 4);
    put_number(st, 2, 2);
    put_number(st, 16, 2);
    put_bytes(st, "data", 4);
    put_number(st, data, 4);
    for (int64_t i = 0; i < samples; i++)
        put_number(st, (uint32_t)st->samples[i], 2);
}

#ifdef PSTI_HAVE_FLAC
static FLAC__StreamEncoderWriteStatus on_write(const FLAC__StreamEncoder *encoder,
                                               const FLAC__byte bytes[], size_t n, uint32_t samples,
                                               uint32_t frame, void *user)
{
    (void)encoder, (void)samples, (void)frame;
    put_bytes(user, bytes, n);
    return FLAC__STREAM_ENCODER_WRITE_STATUS_OK;
}

static FLAC__StreamEncoderSeekStatus on_seek(const FLAC__StreamEncoder *encoder,
                                             FLAC__uint64 offset, void *user)
{
    (void)encoder;
    ((studio *)user)->at = (size_t)offset;
    return FLAC__STREAM_ENCODER_SEEK_STATUS_OK;
}

static FLAC__StreamEncoderTellStatus on_tell(const FLAC__StreamEncoder *encoder,
                                             FLAC__uint64 *offset, void *user)
{
    (void)encoder;
    *offset = ((studio *)user)->at;
    return FLAC__STREAM_ENCODER_TELL_STATUS_OK;
}

static bool pack_flac(studio *st, int64_t samples)
{
    FLAC__StreamEncoder *encoder = FLAC__stream_encoder_new();
    if (!encoder)
        return false;
    FLAC__stream_encoder_set_channels(encoder, 1);
    FLAC__stream_encoder_set_bits_per_sample(encoder, 16);
    FLAC__stream_encoder_set_sample_rate(encoder, RATE);
    FLAC__stream_encoder_set_compression_level(encoder, 5);
    FLAC__stream_encoder_set_total_samples_estimate(encoder, (FLAC__uint64)samples);
    bool ok = FLAC__stream_encoder_init_stream(encoder, on_write, on_seek, on_tell, NULL, st) ==
              FLAC__STREAM_ENCODER_INIT_STATUS_OK;
    ok = ok && FLAC__stream_encoder_process_interleaved(encoder, st->samples, (uint32_t)samples);
    ok = FLAC__stream_encoder_finish(encoder) && ok;
    FLAC__stream_encoder_delete(encoder);
    return ok;
}
static const char *const forms[] = {"flac", "wav", NULL};
#else
static bool pack_flac(studio *st, int64_t samples)
{
    (void)st, (void)samples;
    return false;
}
static const char *const forms[] = {"wav", NULL};
#endif

/* ---- the kind -------------------------------------------------------------------------------- */

static void write_path(const synth_values *v, int64_t number, const char *ending, char *path)
{
    const int64_t chapter = number / CHAPTER, speaker = 20 + 7 * (chapter / CHAPTERS);
    snprintf(path, PATH_MAX, "%s/%lld/%lld/%lld-%lld-%04d.%s", v->dir, (long long)speaker,
             (long long)(1000 + chapter), (long long)speaker, (long long)(1000 + chapter),
             (int)(number % CHAPTER), ending);
}

/* The folders of a chapter and its transcripts. */
static int write_chapter(const synth_values *v, int64_t first)
{
    char path[PATH_MAX], text[TEXT_MOST], name[PATH_MAX];
    write_path(v, first, "x", path);
    char *slash = strrchr(path, '/');
    *slash = 0;
    char *above = strrchr(path, '/');
    *above = 0;
    int exit_code = synth_folder(path);
    *above = '/';
    if (exit_code == CLI_OK)
        exit_code = synth_folder(path);
    *slash = '/';
    *strrchr(slash, '-') = 0;
    if (exit_code != CLI_OK ||
        (size_t)snprintf(name, sizeof name, "%s.trans.txt", path) >= sizeof name)
        return exit_code;
    FILE *file = fopen(name, "w");
    for (int64_t i = first; file && i < v->count && i < first + CHAPTER; i++) {
        write_text(draw_utterance(v, i), text);
        fprintf(file, "%s-%04d %s\n", slash + 1, (int)(i % CHAPTER), text);
    }
    return !file || fclose(file) != 0 ? fail_errno(errno, "write", name) : CLI_OK;
}

static int make_folders(const synth_values *v)
{
    int exit_code = CLI_OK;
    for (int64_t i = 0; i < v->count && exit_code == CLI_OK; i += CHAPTER)
        exit_code = write_chapter(v, i);
    return exit_code;
}

static int make(const synth_values *v, void *tools, int64_t number, char *path, int64_t *bytes)
{
    studio *st = tools;
    const utterance u = draw_utterance(v, number);
    write_path(v, number, v->form, path);
    st->size = st->at = 0;
    render(st, u);
    if (strcmp(v->form, "wav") == 0)
        pack_wav(st, u.samples);
    else if (!pack_flac(st, u.samples))
        return ENOMEM;
    *bytes = (int64_t)st->size;
    return synth_write(path, st->bytes, st->size);
}

const synth_kind synth_speech = {
    .name = "speech",
    .things = "recordings",
    .forms = forms,
    .scales = true,
    .folders = make_folders,
    .tools_new = studio_new,
    .tools_free = studio_free,
    .make = make,
};
