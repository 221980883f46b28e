/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room share: the decoder's inside and the table through which decoder.c
 * reaches each format. Everything here belongs to one decoder, hence to one worker; nothing is
 * locked. */
#ifndef PSTI_CODEC_CODEC_PRIV_H
#define PSTI_CODEC_CODEC_PRIV_H

#include "codec/codec.h"
#include "core/status.h"

/* One format. All slots run on the decoder's own thread and never block. */
typedef struct psti_codec {
    psti_format format;
    psti_axes axes; /* of what it makes */
    const char *name;
    size_t state_bytes; /* of dec->state[format], zeroed once */
    /* Reads the header of dec->bytes and fills dec->pic, stored_* and orientation. After a failure
     * end is called. */
    int (*begin)(psti_decoder *dec, pst_error *err);
    /* Given need->made, fills need->library_bytes; may set need->in_place, then run is not called.
     */
    void (*measure)(const psti_decoder *dec, psti_decode_need *need);
    /* Widens need->made, a window (of a picture: with its pad), to what can be decoded; NULL where
     * only wholes can.
     */
    void (*align)(const psti_decoder *dec, psti_window *made);
    /* Decodes need->made into dst; sets dec->first_damaged_row. */
    int (*run)(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage, uint8_t *dst,
               pst_error *err);
    /* Lets go of library memory; any state, any number of times. */
    void (*end)(psti_decoder *dec);
} psti_codec;

struct psti_decoder {
    const psti_codec *codec; /* NULL between end and begin */
    const uint8_t *bytes;    /* the caller's, until end */
    size_t size;
    psti_decode_options opts;
    psti_picture pic;
    int orientation;                  /* 1..8; 1 unless opts.orient */
    int64_t stored_rows, stored_cols; /* before orientation */
    bool ran;
    int warnings;
    int64_t first_damaged_row;
    psti_buf scratch; /* rows on their way through a conversion; only grows */
    void *state[PSTI_FORMATS];
};

extern const psti_codec psti_codec_jpeg;
#ifdef PSTI_HAVE_PNG
extern const psti_codec psti_codec_png;
#endif
#ifdef PSTI_HAVE_WEBP
extern const psti_codec psti_codec_webp;
#endif
extern const psti_codec psti_codec_wav;
#ifdef PSTI_HAVE_FLAC
extern const psti_codec psti_codec_flac;
#endif

/* Refuses what exceeds the pixel limit; called as soon as the size is known. */
int psti_decoder_check_pixels(const psti_decoder *dec, int64_t rows, int64_t cols, pst_error *err);
/* The same for what is no picture, by its axes: voxels, samples, bytes. */
int psti_decoder_check_size(const psti_decoder *dec, const psti_geom *size, pst_error *err);
/* Sets pic.rows and pic.cols from stored_* and orientation. */
void psti_decoder_orient(psti_decoder *dec);

/* ---- orientation (exif.c) ---- */

/* The value of tag Orientation in the first directory of a TIFF block (what follows "Exif\0\0"); 1
 * where there is none. */
int psti_exif_orientation(const uint8_t *tiff, size_t size);

/* Where rows of a stored picture go in an oriented one. */
typedef struct psti_placer {
    int orientation;
    int64_t rows, cols; /* as stored */
    size_t pixel_bytes;
    uint8_t *dst;
    size_t stride;
} psti_placer;
void psti_placer_put(const psti_placer *placer, int64_t row, const uint8_t *src);

/* ---- JPEG bytes without decoding (jpeg_scan.c) ---- */

typedef struct psti_jpeg_facts {
    int sof;         /* 0xC0..0xCF, 0 if none was seen */
    int orientation; /* 1..8 */
} psti_jpeg_facts;
/* Walks the marker segments up to the first scan. */
psti_jpeg_facts psti_jpeg_walk(const uint8_t *bytes, size_t size);
/* Counts scans from a place inside the first one to the end marker; stops counting above limit. */
int psti_jpeg_count_scans(const uint8_t *bytes, size_t size, int limit);
/* Whether FF D9 stands in the last 4,096 bytes. */
bool psti_jpeg_has_end(const uint8_t *bytes, size_t size);

/* ---- recordings (wave.c) ---- */

enum { PSTI_WAVE_CHANNELS = 64, PSTI_WAVE_RATE = 768000 }; /* the most that are read */

/* What a recording's header says. A frame is one number of each channel. */
typedef struct psti_wave_head {
    int64_t frames, rate;
    int channels, bits;
    bool floats;
} psti_wave_head;
/* Fills dec->pic, or refuses what is out of bounds. */
int psti_wave_describe(psti_decoder *dec, const psti_wave_head *head, pst_error *err);
/* Frames of stored_channels numbers in -1..1 to the floats of a field: as they are, or the
 * channels' average. */
void psti_wave_store(const psti_picture *pic, const double *samples, int64_t frames, float *dst);

/* ---- pixels (jpeg_color.c) ---- */

/* Luma of RGB, as Pillow's convert("L"). dst may be src. */
void psti_rgb_to_gray(const uint8_t *src, uint8_t *dst, int64_t pixels);
/* Inverted CMYK, as JPEG files hold it, to RGB as Pillow converts it. dst may be src. */
void psti_cmyk_to_rgb(const uint8_t *src, uint8_t *dst, int64_t pixels);

#endif
