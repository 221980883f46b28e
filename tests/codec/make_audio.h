/* SPDX-License-Identifier: Apache-2.0
 * Small recordings of every kind: WAV files put together chunk by chunk, FLAC files by libFLAC's
 * encoder. As in make_images.h, the same arguments make the same file, and results become the
 * caller's. */
#ifndef PSTI_TESTS_CODEC_MAKE_AUDIO_H
#define PSTI_TESTS_CODEC_MAKE_AUDIO_H

#include "codec/make_webp.h"

enum { WAV_PCM = 1, WAV_FLOAT = 3, WAV_EXTENSIBLE = 0xFFFE };

typedef struct wav_spec {
    const char *name;
    int code, bits, channels, rate;
    bool extensible;
} wav_spec;

static const wav_spec wav_specs[] = {
    {"8 bits", WAV_PCM, 8, 1, 8000, false},
    {"8 bits stereo", WAV_PCM, 8, 2, 11025, false},
    {"12 bits", WAV_PCM, 12, 1, 16000, false},
    {"16 bits", WAV_PCM, 16, 1, 16000, false},
    {"16 bits stereo", WAV_PCM, 16, 2, 44100, false},
    {"16 bits extensible", WAV_PCM, 16, 6, 48000, true},
    {"24 bits", WAV_PCM, 24, 1, 48000, false},
    {"24 bits extensible", WAV_PCM, 24, 3, 96000, true},
    {"32 bits", WAV_PCM, 32, 2, 192000, false},
    {"float", WAV_FLOAT, 32, 1, 16000, false},
    {"float extensible", WAV_FLOAT, 32, 64, 22050, true},
    {"double", WAV_FLOAT, 64, 2, 44100, false},
};
enum { WAV_SPECS = sizeof wav_specs / sizeof *wav_specs };

/* Number i of a recording, 32 bits: a slope, a step and noise; both ends of the range are met. */
static inline int32_t audio_number(uint64_t seed, int64_t i)
{
    uint64_t state = seed * 7919 + (uint64_t)i * 104729 + 3;
    if (i % 97 == 13)
        return i % 2 ? INT32_MIN : INT32_MAX;
    const int64_t wave = (i % 50 - 25) * (1 << 24),
                  noise = (int64_t)(draw(&state) >> 4) - (1 << 27);
    return (int32_t)(wave + noise);
}

/* Number i as the file holds it. */
static inline void put_sample(uint8_t *p, const wav_spec *spec, uint64_t seed, int64_t i)
{
    const int32_t whole = audio_number(seed, i);
    const int bytes = (spec->bits + 7) / 8;
    if (spec->code == WAV_FLOAT) {
        const double wide = whole * 0x1.000002p-31;
        const float single = (float)wide;
        memcpy(p, bytes == 4 ? (const void *)&single : (const void *)&wide, (size_t)bytes);
        return;
    }
    uint32_t value = (uint32_t)(whole >> (32 - spec->bits)) << (8 * bytes - spec->bits);
    if (bytes == 1)
        value ^= 0x80;
    put_le(p, value, bytes);
}

static inline void add_fmt(made *file, const wav_spec *spec)
{
    static const uint8_t family[] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    const uint32_t frame = (uint32_t)(spec->channels * ((spec->bits + 7) / 8));
    uint8_t fmt[40] = {0};
    put_le(fmt, (uint32_t)(spec->extensible ? WAV_EXTENSIBLE : spec->code), 2);
    put_le(fmt + 2, (uint32_t)spec->channels, 2);
    put_le(fmt + 4, (uint32_t)spec->rate, 4);
    put_le(fmt + 8, (uint32_t)spec->rate * frame, 4);
    put_le(fmt + 12, frame, 2);
    put_le(fmt + 14, (uint32_t)spec->bits, 2);
    put_le(fmt + 16, 22, 2);
    put_le(fmt + 18, (uint32_t)spec->bits, 2);
    put_le(fmt + 24, (uint32_t)spec->code, 2);
    memcpy(fmt + 26, family, sizeof family);
    add_chunk(file, "fmt ", fmt, spec->extensible ? 40 : 16);
}

/* An odd chunk stands before the samples and another one behind them. */
static inline made make_wav(const wav_spec *spec, int64_t frames, uint64_t seed)
{
    made file = {NULL, 0};
    const size_t number = (size_t)(spec->bits + 7) / 8,
                 bytes = (size_t)frames * (size_t)spec->channels * number;
    uint8_t *data = malloc(bytes ? bytes : 1);
    for (int64_t i = 0; i < frames * spec->channels; i++)
        put_sample(data + (size_t)i * number, spec, seed, i);
    add_bytes(&file, "RIFF\0\0\0\0WAVE", 12);
    add_chunk(&file, "odd ", "abc", 3);
    add_fmt(&file, spec);
    add_chunk(&file, "data", data, bytes);
    add_chunk(&file, "LIST", "INFOISFT", 8);
    put_le(file.bytes + 4, (uint32_t)file.size - 8, 4);
    free(data);
    return file;
}

/* Where the head of a chunk stands. */
static inline size_t chunk_at(const made *file, const char *tag)
{
    size_t at = 12;
    while (memcmp(file->bytes + at, tag, 4) != 0) {
        const uint8_t *p = file->bytes + at + 4;
        const size_t bytes = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
        at += 8 + bytes + (bytes & 1);
    }
    return at;
}

static inline psti_decode_options wave_options(int color)
{
    return (psti_decode_options){
        .kind = PST_AUDIO, .color = color, .axes = PSTI_AXES_WAVE, .limits = psti_limits_default};
}

static inline decoded decode_wave(psti_decoder *dec, const uint8_t *bytes, size_t size, int color)
{
    const psti_decode_options opts = wave_options(color);
    return decode_with(dec, bytes, size, &opts, NULL, -1);
}

/* ---- FLAC ---- */

#ifdef PSTI_HAVE_FLAC
#include <FLAC/stream_encoder.h>

typedef struct flac_spec {
    const char *name;
    int bits, channels, rate, level, block;
} flac_spec;

static const flac_spec flac_specs[] = {
    {"16 bits", 16, 1, 16000, 5, 256},  {"16 bits stereo", 16, 2, 44100, 8, 192},
    {"8 bits", 8, 1, 8000, 0, 64},      {"12 bits", 12, 1, 16000, 5, 100},
    {"20 bits", 20, 3, 48000, 5, 300},  {"24 bits", 24, 2, 96000, 8, 576},
    {"32 bits", 32, 2, 192000, 5, 128}, {"24 bits 8 channels", 24, 8, 48000, 3, 64},
};
enum { FLAC_SPECS = sizeof flac_specs / sizeof *flac_specs };

typedef struct flac_out {
    made file;
    size_t at;
} flac_out;

static inline FLAC__StreamEncoderWriteStatus flac_write(const FLAC__StreamEncoder *lib,
                                                        const FLAC__byte bytes[], size_t size,
                                                        uint32_t samples, uint32_t frame,
                                                        void *client)
{
    (void)lib, (void)samples, (void)frame;
    flac_out *out = client;
    if (out->at + size > out->file.size) {
        out->file.bytes = realloc(out->file.bytes, out->at + size);
        out->file.size = out->at + size;
    }
    memcpy(out->file.bytes + out->at, bytes, size);
    out->at += size;
    return FLAC__STREAM_ENCODER_WRITE_STATUS_OK;
}

static inline FLAC__StreamEncoderSeekStatus flac_seek(const FLAC__StreamEncoder *lib,
                                                      FLAC__uint64 offset, void *client)
{
    (void)lib;
    ((flac_out *)client)->at = (size_t)offset;
    return FLAC__STREAM_ENCODER_SEEK_STATUS_OK;
}

static inline FLAC__StreamEncoderTellStatus flac_tell(const FLAC__StreamEncoder *lib,
                                                      FLAC__uint64 *offset, void *client)
{
    (void)lib;
    *offset = ((flac_out *)client)->at;
    return FLAC__STREAM_ENCODER_TELL_STATUS_OK;
}

/* Number i of a recording as the encoder takes it. */
static inline int32_t flac_number(const flac_spec *spec, uint64_t seed, int64_t i)
{
    return audio_number(seed, i) >> (32 - spec->bits);
}

/* No bytes where the library refuses: versions before 1.4 know no 32 bits. */
static inline made make_flac(const flac_spec *spec, int64_t frames, uint64_t seed)
{
    flac_out out = {{NULL, 0}, 0};
    const size_t numbers = (size_t)frames * (size_t)spec->channels;
    FLAC__int32 *data = malloc(numbers * sizeof *data);
    for (size_t i = 0; i < numbers; i++)
        data[i] = flac_number(spec, seed, (int64_t)i);
    FLAC__StreamEncoder *lib = FLAC__stream_encoder_new();
    FLAC__stream_encoder_set_compression_level(lib, (uint32_t)spec->level);
    FLAC__stream_encoder_set_channels(lib, (uint32_t)spec->channels);
    FLAC__stream_encoder_set_bits_per_sample(lib, (uint32_t)spec->bits);
    FLAC__stream_encoder_set_sample_rate(lib, (uint32_t)spec->rate);
    FLAC__stream_encoder_set_streamable_subset(lib, false);
    FLAC__stream_encoder_set_blocksize(lib, (uint32_t)spec->block);
    const bool ok = FLAC__stream_encoder_init_stream(lib, flac_write, flac_seek, flac_tell, NULL,
                                                     &out) == FLAC__STREAM_ENCODER_INIT_STATUS_OK &&
                    FLAC__stream_encoder_process_interleaved(lib, data, (uint32_t)frames) &&
                    FLAC__stream_encoder_finish(lib);
    FLAC__stream_encoder_delete(lib);
    free(data);
    if (!ok) {
        free(out.file.bytes);
        return (made){NULL, 0};
    }
    return out.file;
}
#endif

#endif
