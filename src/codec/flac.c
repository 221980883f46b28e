/* SPDX-License-Identifier: Apache-2.0
 * FLAC through libFLAC, from memory, whole recordings only. Called by decoder.c on a worker's
 * thread.
 *
 * The header is read here, so that what it claims is refused before the library sees a byte. The
 * library is then given a stream of that header and the frames alone: tags, pictures and seek
 * tables are passed over unread and cannot fail a sample. Every frame must be sound, follow the one
 * before and be of the kind that the header says: libFLAC would go on behind damage and put silence
 * where frames are missing, which is not what was recorded. What follows the last sample is not
 * looked at, and the checksum over all samples is not computed: each frame has its own. */
#include <errno.h>
#include <string.h>

#include <FLAC/stream_decoder.h>

#include "codec/codec_priv.h"

enum { MAGIC = 4, BLOCK_HEAD = 4, INFO_BYTES = 34, HEAD_BYTES = MAGIC + BLOCK_HEAD + INFO_BYTES };
enum { BLOCKS_MOST = 1024 };
enum { FRAME_LEAST = 9 }; /* bytes of the smallest frame: silence in one channel */
enum { FRAMES_AT_ONCE = 32 };

typedef struct flac_state {
    FLAC__StreamDecoder *lib;
    uint8_t head[HEAD_BYTES]; /* what the library is shown first */
    size_t at;                /* what it has read: of head, then of the frames */
    size_t frames_at;         /* in the file */
    psti_wave_head wave;
    uint32_t block; /* samples of the largest frame */
    uint8_t *dst;
    int64_t done;      /* samples that are written */
    int64_t sound_end; /* where in the file the last sound frame ends */
    bool wrote;        /* in this step */
    bool ended;        /* the library asked for more than there is */
    const char *fault; /* what is wrong with the next frame; NULL: nothing */
} flac_state;

static flac_state *state_of(const psti_decoder *dec)
{
    return dec->state[PSTI_FORMAT_FLAC];
}

/* ---- the header ---- */

static uint64_t read_be(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | p[i];
    return value;
}

static int fail_cut(const psti_decoder *dec, pst_error *err)
{
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)dec->size,
                        "flac: the file ends before its samples begin: it is cut off");
}

/* Walks over what stands between the header and the first frame. */
static int find_frames(const psti_decoder *dec, flac_state *f, pst_error *err)
{
    size_t at = MAGIC;
    for (int i = 0; i < BLOCKS_MOST; i++) {
        if (dec->size - at < BLOCK_HEAD)
            return fail_cut(dec, err);
        const bool last = dec->bytes[at] & 0x80;
        const size_t bytes = (size_t)read_be(dec->bytes + at + 1, 3);
        if (i == 0 && ((dec->bytes[at] & 0x7F) != 0 || bytes != INFO_BYTES))
            return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)at,
                                "flac: the file does not begin with its stream's description");
        at += BLOCK_HEAD;
        if (bytes > dec->size - at)
            return fail_cut(dec, err);
        at += bytes;
        f->frames_at = at;
        if (last)
            return 0;
    }
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)at,
                        "flac: more than %d blocks before the samples", BLOCKS_MOST);
}

static int read_info(psti_decoder *dec, flac_state *f, pst_error *err)
{
    const uint8_t *info = dec->bytes + MAGIC + BLOCK_HEAD;
    const uint64_t packed = read_be(info + 10, 8);
    f->block = (uint32_t)read_be(info + 2, 2);
    f->wave = (psti_wave_head){.rate = (int64_t)(packed >> 44),
                               .channels = (int)(packed >> 41 & 7) + 1,
                               .bits = (int)(packed >> 36 & 31) + 1,
                               .frames = (int64_t)(packed & 0xFFFFFFFFFu)};
    if (f->wave.frames == 0)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "flac: the header does not say how many samples there are, as when it was "
                         "written into a pipe: write the file anew with flac -f FILE");
    if (f->wave.bits < (int)FLAC__MIN_BITS_PER_SAMPLE)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, MAGIC + BLOCK_HEAD + 12,
                            "flac: the header claims samples of %d bits", f->wave.bits);
    if (f->block < FLAC__MIN_BLOCK_SIZE)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, MAGIC + BLOCK_HEAD + 2,
                            "flac: the header claims frames of at most %u samples",
                            (unsigned)f->block);
    return psti_wave_describe(dec, &f->wave, err);
}

static int flac_begin(psti_decoder *dec, pst_error *err)
{
    flac_state *f = state_of(dec);
    *f = (flac_state){0};
    int rc = find_frames(dec, f, err);
    if (rc == 0)
        rc = read_info(dec, f, err);
    if (rc < 0)
        return rc;
    const int64_t frames = (f->wave.frames + f->block - 1) / f->block;
    const size_t left = dec->size - f->frames_at;
    if (left / FRAME_LEAST < (size_t)frames)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)dec->size,
                            "flac: the file is cut off: its header claims %lld samples, which "
                            "cannot be in the %zu bytes behind it",
                            (long long)f->wave.frames, left);
    memcpy(f->head, dec->bytes, HEAD_BYTES);
    f->head[MAGIC] = 0x80; /* the last block before the frames */
    return 0;
}

/* libFLAC keeps what is left and decoded of one frame, four bytes a sample each, eight where a side
 * channel needs 33 bits; and a buffer to read from. A frame larger than the header allows is seen
 * only when the library has taken memory for it: at most 8 channels of 65,535 samples. */
static void flac_measure(const psti_decoder *dec, psti_decode_need *need)
{
    const flac_state *f = state_of(dec);
    const size_t channels = (size_t)f->wave.channels, block = f->block + 64u;
    need->library_bytes = channels * block * 8 + (f->wave.bits == 32 ? block * 8 : 0) + (96u << 10);
}

/* ---- what the library calls ---- */

static FLAC__StreamDecoderReadStatus give_bytes(const FLAC__StreamDecoder *lib, FLAC__byte *to,
                                                size_t *bytes, void *client)
{
    (void)lib;
    const psti_decoder *dec = client;
    flac_state *f = state_of(dec);
    if (f->fault) {
        *bytes = 0;
        return FLAC__STREAM_DECODER_READ_STATUS_ABORT;
    }
    const bool in_head = f->at < HEAD_BYTES;
    const uint8_t *from =
        in_head ? f->head + f->at : dec->bytes + f->frames_at - HEAD_BYTES + f->at;
    const size_t left =
        in_head ? HEAD_BYTES - f->at : dec->size - f->frames_at - (f->at - HEAD_BYTES);
    const size_t n = *bytes < left ? *bytes : left;
    memcpy(to, from, n);
    f->at += n;
    f->ended = n == 0;
    *bytes = n;
    return n ? FLAC__STREAM_DECODER_READ_STATUS_CONTINUE
             : FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM;
}

static FLAC__StreamDecoderTellStatus tell_place(const FLAC__StreamDecoder *lib,
                                                FLAC__uint64 *offset, void *client)
{
    (void)lib;
    const flac_state *f = state_of(client);
    *offset = f->frames_at + f->at - HEAD_BYTES;
    return FLAC__STREAM_DECODER_TELL_STATUS_OK;
}

/* What speaks against a frame. */
static const char *fault_of(const flac_state *f, const FLAC__FrameHeader *head)
{
    if (f->wrote || head->number_type != FLAC__FRAME_NUMBER_TYPE_SAMPLE_NUMBER ||
        head->number.sample_number != (FLAC__uint64)f->done)
        return "frames are missing";
    if (head->channels != (unsigned)f->wave.channels ||
        head->bits_per_sample != (unsigned)f->wave.bits ||
        head->sample_rate != (unsigned)f->wave.rate || head->blocksize > f->block)
        return "a frame is unlike what the header says";
    if ((int64_t)head->blocksize > f->wave.frames - f->done)
        return "there are more samples than the header says";
    return NULL;
}

/* Few bits: the number shifted up to 16. */
static void store_whole(const psti_decoder *dec, const FLAC__int32 *const planes[], int64_t n)
{
    const flac_state *f = state_of(dec);
    const int channels = f->wave.channels, up = 16 - f->wave.bits;
    int16_t *out = (int16_t *)(void *)f->dst + f->done * channels;
    for (int c = 0; c < channels; c++)
        for (int64_t i = 0; i < n; i++)
            out[i * channels + c] = (int16_t)((uint32_t)planes[c][i] << up);
}

static void store_floats(const psti_decoder *dec, const FLAC__int32 *const planes[], int64_t n)
{
    const flac_state *f = state_of(dec);
    const double scale = 1.0 / (double)((uint64_t)1 << (f->wave.bits - 1));
    double numbers[FRAMES_AT_ONCE * FLAC__MAX_CHANNELS];
    float *out = (float *)(void *)f->dst + f->done * dec->pic.channels;
    for (int64_t first = 0; first < n; first += FRAMES_AT_ONCE) {
        const int64_t m = n - first < FRAMES_AT_ONCE ? n - first : FRAMES_AT_ONCE;
        for (int c = 0; c < f->wave.channels; c++)
            for (int64_t i = 0; i < m; i++)
                numbers[i * f->wave.channels + c] = planes[c][first + i] * scale;
        psti_wave_store(&dec->pic, numbers, m, out + first * dec->pic.channels);
    }
}

static FLAC__StreamDecoderWriteStatus take_frame(const FLAC__StreamDecoder *lib,
                                                 const FLAC__Frame *frame,
                                                 const FLAC__int32 *const planes[], void *client)
{
    (void)lib;
    const psti_decoder *dec = client;
    flac_state *f = state_of(dec);
    if (!f->fault)
        f->fault = fault_of(f, &frame->header);
    if (f->fault)
        return FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
    const int64_t n = frame->header.blocksize;
    if (dec->pic.dtype == PST_I16)
        store_whole(dec, planes, n);
    else
        store_floats(dec, planes, n);
    f->done += n;
    f->wrote = true;
    return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
}

static void take_error(const FLAC__StreamDecoder *lib, FLAC__StreamDecoderErrorStatus status,
                       void *client)
{
    (void)lib;
    flac_state *f = state_of(client);
    if (!f->fault)
        f->fault = status == FLAC__STREAM_DECODER_ERROR_STATUS_FRAME_CRC_MISMATCH
                       ? "a frame's checksum is wrong"
                       : "a frame is damaged";
}

/* ---- run ---- */

static int open_library(psti_decoder *dec, pst_error *err)
{
    flac_state *f = state_of(dec);
    f->lib = FLAC__stream_decoder_new();
    if (f->lib && FLAC__stream_decoder_init_stream(f->lib, give_bytes, NULL, tell_place, NULL, NULL,
                                                   take_frame, NULL, take_error,
                                                   dec) == FLAC__STREAM_DECODER_INIT_STATUS_OK)
        return 0;
    return psti_fail(err, -ENOMEM, "decode", NULL, "out of memory for libFLAC");
}

static int fail_frame(const psti_decoder *dec, FLAC__StreamDecoderState state, pst_error *err)
{
    const flac_state *f = state_of(dec);
    if (state == FLAC__STREAM_DECODER_MEMORY_ALLOCATION_ERROR)
        return psti_fail(err, -ENOMEM, "decode", NULL,
                         "out of memory while decoding a FLAC of %lld samples",
                         (long long)f->wave.frames);
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, f->sound_end,
                        "flac: %s after %lld of %lld samples",
                        f->fault && !f->ended ? f->fault : "the file is cut off",
                        (long long)f->done, (long long)f->wave.frames);
}

static int flac_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                    uint8_t *dst, pst_error *err)
{
    (void)need, (void)known_damage;
    flac_state *f = state_of(dec);
    const int rc = open_library(dec, err);
    if (rc < 0)
        return rc;
    f->dst = dst;
    f->sound_end = (int64_t)f->frames_at;
    while (f->done < f->wave.frames) {
        FLAC__uint64 place;
        f->wrote = false;
        const bool ok = FLAC__stream_decoder_process_single(f->lib);
        const FLAC__StreamDecoderState state = FLAC__stream_decoder_get_state(f->lib);
        if (!ok || f->fault || state == FLAC__STREAM_DECODER_END_OF_STREAM)
            return fail_frame(dec, state, err);
        if (f->wrote && FLAC__stream_decoder_get_decode_position(f->lib, &place))
            f->sound_end = (int64_t)place;
    }
    return 0;
}

static void flac_end(psti_decoder *dec)
{
    flac_state *f = state_of(dec);
    if (f->lib)
        FLAC__stream_decoder_delete(f->lib);
    f->lib = NULL;
}

const psti_codec psti_codec_flac = {
    .format = PSTI_FORMAT_FLAC,
    .axes = PSTI_AXES_WAVE,
    .name = "flac",
    .state_bytes = sizeof(flac_state),
    .begin = flac_begin,
    .measure = flac_measure,
    .run = flac_run,
    .end = flac_end,
};
