/* SPDX-License-Identifier: Apache-2.0
 * WAV: whole numbers of 8, 16, 24 and 32 bits and floats of 32 and 64, as plain or extensible
 * files, read without a library. Called by decoder.c on a worker's thread; nothing is allocated.
 *
 * The length in the RIFF header is not looked at: programs that write into a pipe cannot know it.
 * For the same reason a data chunk that claims no bytes, or as many as 32 bits can hold, goes on to
 * the end of the file; any other claim that the file does not keep is a file that was cut off. What
 * follows the data is not looked at. */
#include <string.h>

#include "codec/codec_priv.h"

enum { RIFF_HEAD = 12, CHUNK_HEAD = 8, FMT_HEAD = 16, FMT_EXTENSIBLE = 40, CHUNKS_MOST = 1024 };
enum { CODE_PCM = 1, CODE_FLOAT = 3, CODE_EXTENSIBLE = 0xFFFE };
enum { FRAMES_AT_ONCE = 32 };

typedef struct wav_state {
    const uint8_t *data; /* the first frame */
    int bytes;           /* of one number */
    int channels;
    bool floats;
} wav_state;

static wav_state *state_of(const psti_decoder *dec)
{
    return dec->state[PSTI_FORMAT_WAV];
}

static uint32_t read_le(const uint8_t *p, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)p[i] << 8 * i;
    return value;
}

/* ---- the header ---- */

typedef struct chunk {
    size_t at; /* of its contents */
    uint32_t claimed;
    size_t bytes; /* that are there */
} chunk;

/* Finds `fmt ` and the `data` behind it. */
static int find_chunks(const psti_decoder *dec, chunk *fmt, chunk *data, pst_error *err)
{
    size_t at = RIFF_HEAD;
    bool seen = false;
    for (int i = 0; i < CHUNKS_MOST; i++) {
        if (dec->size - at < CHUNK_HEAD)
            return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)dec->size,
                                "wav: the file ends before its samples begin: it is cut off");
        const uint8_t *head = dec->bytes + at;
        const size_t left = dec->size - at - CHUNK_HEAD;
        chunk c = {at + CHUNK_HEAD, read_le(head + 4, 4), 0};
        c.bytes = c.claimed < left ? c.claimed : left;
        if (memcmp(head, "data", 4) == 0) {
            *data = c;
            return seen ? 0
                        : psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)at,
                                       "wav: samples come before their description");
        }
        if (c.claimed > left || (c.claimed == left && (c.claimed & 1)))
            return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)at,
                                "wav: a chunk claims %u bytes, %zu are left: the file is damaged "
                                "or cut off",
                                (unsigned)c.claimed, left);
        if (memcmp(head, "fmt ", 4) == 0 && !seen) {
            *fmt = c;
            seen = true;
        }
        at = c.at + c.bytes + (c.bytes & 1);
    }
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)at,
                        "wav: more than %d chunks before the samples", CHUNKS_MOST);
}

static const char *coding_name(uint32_t code)
{
    switch (code) {
    case 0x02:
    case 0x11:
        return "ADPCM";
    case 0x06:
        return "A-law";
    case 0x07:
        return "mu-law";
    case 0x31:
        return "GSM 6.10";
    case 0x50:
    case 0x55:
        return "MPEG audio";
    default:
        return "an unknown coding";
    }
}

/* What the numbers are, plain or by the identifier of an extensible header. */
static int read_coding(const uint8_t *fmt, size_t bytes, uint32_t *code, pst_error *err)
{
    static const uint8_t family[14] = {0,    0,    0,    0,    0x10, 0,    0x80,
                                       0x00, 0x00, 0xAA, 0x00, 0x38, 0x9B, 0x71};
    *code = read_le(fmt, 2);
    if (*code == CODE_EXTENSIBLE) {
        if (bytes < FMT_EXTENSIBLE || memcmp(fmt + 26, family, sizeof family) != 0)
            return psti_fail(err, PST_EFORMAT, "decode", NULL,
                             "wav: an extensible header that does not say what the numbers are: "
                             "write the file anew as PCM");
        *code = read_le(fmt + 24, 2);
    }
    if (*code == CODE_PCM || *code == CODE_FLOAT)
        return 0;
    return psti_fail(err, PST_EFORMAT, "decode", NULL,
                     "wav: %s (code %u) is not read: convert the file to PCM or FLAC",
                     coding_name(*code), (unsigned)*code);
}

static int read_format(const psti_decoder *dec, const chunk *fmt, wav_state *w,
                       psti_wave_head *head, pst_error *err)
{
    const uint8_t *f = dec->bytes + fmt->at;
    uint32_t code;
    if (fmt->bytes < FMT_HEAD)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)fmt->at,
                            "wav: the description has %zu bytes, it needs %d", fmt->bytes,
                            FMT_HEAD);
    const int rc = read_coding(f, fmt->bytes, &code, err);
    if (rc < 0)
        return rc;
    *head = (psti_wave_head){.channels = (int)read_le(f + 2, 2),
                             .rate = read_le(f + 4, 4),
                             .bits = (int)read_le(f + 14, 2),
                             .floats = code == CODE_FLOAT};
    const uint32_t frame = read_le(f + 12, 2);
    const int bytes = (head->bits + 7) / 8;
    const bool known =
        head->floats ? head->bits == 32 || head->bits == 64 : head->bits >= 1 && head->bits <= 32;
    if (!known)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "wav: %s of %d bits are not read: convert the file to 16 or 24 bits",
                         head->floats ? "floats" : "numbers", head->bits);
    if (frame != (uint32_t)(bytes * head->channels))
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)fmt->at + 12,
                            "wav: %d channels of %d bits take %d bytes, the header says %u",
                            head->channels, head->bits, bytes * head->channels, (unsigned)frame);
    w->bytes = bytes;
    w->channels = head->channels;
    w->floats = head->floats;
    return 0;
}

/* ---- the codec ---- */

static int wav_begin(psti_decoder *dec, pst_error *err)
{
    wav_state *w = state_of(dec);
    chunk fmt = {0}, data = {0};
    psti_wave_head head;
    *w = (wav_state){0};
    if (memcmp(dec->bytes, "RIFX", 4) == 0)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "wav: big-endian files are not read: convert the file to plain WAV");
    if (memcmp(dec->bytes, "RIFF", 4) != 0 && memcmp(dec->bytes, "RF64", 4) != 0)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, 0,
                            "wav: the file does not begin with RIFF");
    int rc = find_chunks(dec, &fmt, &data, err);
    if (rc == 0)
        rc = read_format(dec, &fmt, w, &head, err);
    if (rc < 0)
        return rc;
    /* No channels: refused below. */
    const size_t frame = (size_t)w->bytes * (size_t)(w->channels ? w->channels : 1);
    const bool open = data.claimed == 0 || data.claimed == UINT32_MAX;
    const size_t there = open ? dec->size - data.at : data.bytes;
    head.frames = (int64_t)((open ? there : data.claimed) / frame);
    w->data = dec->bytes + data.at;
    dec->pic.can_crop = true;
    rc = psti_wave_describe(dec, &head, err);
    if (rc < 0 || (int64_t)(there / frame) == head.frames)
        return rc;
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)dec->size,
                        "wav: the file is cut off after %zu of %lld samples", there / frame,
                        (long long)head.frames);
}

static void wav_measure(const psti_decoder *dec, psti_decode_need *need)
{
    (void)dec;
    need->library_bytes = 0;
}

/* Whole numbers stand at the upper end of their bytes. Eight bits are the only ones without a
 * sign. */
static int32_t whole_at(const uint8_t *p, int bytes)
{
    if (bytes == 1)
        return (int32_t)((uint32_t)(p[0] ^ 0x80) << 24);
    return (int32_t)(read_le(p, bytes) << (32 - 8 * bytes));
}

static double number_at(const wav_state *w, const uint8_t *p)
{
    float single;
    double wide;
    if (!w->floats)
        return whole_at(p, w->bytes) * 0x1p-31;
    memcpy(&single, p, sizeof single);
    if (w->bytes == sizeof single)
        return (double)single;
    memcpy(&wide, p, sizeof wide);
    return wide;
}

static void copy_whole(const wav_state *w, const uint8_t *from, int64_t numbers, uint8_t *dst)
{
    if (w->bytes == 2) {
        memcpy(dst, from, (size_t)numbers * 2);
        return;
    }
    for (int64_t i = 0; i < numbers; i++, from += w->bytes) {
        const int16_t value = (int16_t)(whole_at(from, w->bytes) >> 16);
        memcpy(dst + 2 * i, &value, sizeof value);
    }
}

static int wav_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                   uint8_t *dst, pst_error *err)
{
    (void)known_damage, (void)err;
    const wav_state *w = state_of(dec);
    const size_t frame = (size_t)w->bytes * (size_t)w->channels;
    const uint8_t *from = w->data + (size_t)need->made.top * frame;
    if (dec->pic.dtype == PST_I16) {
        copy_whole(w, from, need->made.rows * w->channels, dst);
        return 0;
    }
    double numbers[FRAMES_AT_ONCE * PSTI_WAVE_CHANNELS];
    float *out = (float *)(void *)dst;
    for (int64_t left = need->made.rows; left > 0;) {
        const int64_t n = left < FRAMES_AT_ONCE ? left : FRAMES_AT_ONCE;
        for (int64_t i = 0; i < n * w->channels; i++, from += w->bytes)
            numbers[i] = number_at(w, from);
        psti_wave_store(&dec->pic, numbers, n, out);
        out += n * dec->pic.channels;
        left -= n;
    }
    return 0;
}

static void wav_end(psti_decoder *dec)
{
    (void)dec;
}

const psti_codec psti_codec_wav = {
    .format = PSTI_FORMAT_WAV,
    .axes = PSTI_AXES_WAVE,
    .name = "wav",
    .state_bytes = sizeof(wav_state),
    .begin = wav_begin,
    .measure = wav_measure,
    .run = wav_run,
    .end = wav_end,
};
