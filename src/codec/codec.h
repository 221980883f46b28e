/* SPDX-License-Identifier: Apache-2.0
 * Encoded bytes to fields. A decoder belongs to one worker and is used for one sample at a time:
 * begin reads the header (bombs are refused here), need says what memory run will take, run decodes
 * a window or all, end lets go. Whatever happened to one sample, the next one is decoded as by a
 * fresh decoder. */
#ifndef PSTI_CODEC_CODEC_H
#define PSTI_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/field.h"
#include "core/memory.h"

enum {
    PSTI_CROP_PAD = 8
}; /* pixels decoded around a window so that it is bit-exact after trimming */

typedef enum psti_format {
    PSTI_FORMAT_UNKNOWN = 0,
    PSTI_FORMAT_JPEG,
    PSTI_FORMAT_PNG,
    PSTI_FORMAT_WEBP,
    PSTI_FORMAT_NPY,
    PSTI_FORMAT_NIFTI,
    PSTI_FORMAT_NPZ,
    PSTI_FORMAT_WAV,
    PSTI_FORMAT_FLAC,
    PSTI_FORMATS
} psti_format;

typedef enum psti_color { PSTI_COLOR_RGB = 0, PSTI_COLOR_GRAY, PSTI_COLOR_KEEP } psti_color;

/* By magic bytes, never by name. */
psti_format psti_format_sniff(const uint8_t *bytes, size_t size);
const char *psti_format_name(psti_format format);

typedef struct psti_limits {
    uint64_t pixels;       /* 100 Mpx */
    uint64_t output_bytes; /* 512 MiB */
    int scans;             /* 500 */
    uint64_t voxels;       /* of a volume: 2^31 */
    uint64_t volume_bytes; /* 4 GiB; of recordings too */
    uint64_t samples;      /* of a recording: 2^29 */
} psti_limits;
extern const psti_limits psti_limits_default;

typedef struct psti_decode_options {
    int kind;    /* PST_IMAGE or PST_MASK (palette indices and grey levels are kept as they are, one
                    channel); of an NPZ archive it also says which array is meant */
    int color;   /* psti_color; images */
    bool orient; /* apply EXIF orientation */
    psti_limits limits;
    psti_axes axes; /* what is wanted: a picture, a volume or a wave */
} psti_decode_options;

/* Header facts, after orientation. */
typedef struct psti_picture {
    psti_format format;
    int64_t rows, cols;
    int channels; /* of the field that run makes, with these options */
    int dtype;    /* PST_U8, or PST_U16 for 16-bit masks; of volumes PST_U8, PST_I16 or PST_F32 */
    int stored_channels, bits;
    bool progressive;
    bool can_crop;   /* run can make a window for less than the whole */
    bool unsure_end; /* the end marker is missing: damage shows only when decoded to the end */
    char detail[64];
    /* As in psti_geom. A wave has its samples as rows and one column. */
    int64_t depth;
    double unit[3];
    psti_axes axes;
} psti_picture;
psti_geom psti_picture_geom(const psti_picture *pic);

/* A window of the picture, in pixels; rows == 0 means all. front and planes: of a volume. */
typedef struct psti_window {
    int64_t top, left, rows, cols, front, planes;
} psti_window;

typedef struct psti_decoder psti_decoder;
/* NULL when out of memory. */
psti_decoder *psti_decoder_new(void);
void psti_decoder_free(psti_decoder *dec); /* NULL and half-used are fine */

/* bytes must stay valid until end. On failure the decoder is as after end. */
int psti_decoder_begin(psti_decoder *dec, const uint8_t *bytes, size_t size,
                       const psti_decode_options *opts, psti_picture *out, pst_error *err);
/* What run will allocate inside libraries for this window (an upper bound), and the output size it
 * wants: *out_bytes with rows of *out_stride bytes, *out_rows x *out_cols pixels at *out_top,
 * *out_left of the picture (the window with what surrounds it: pad, whole MCUs). */
typedef struct psti_decode_need {
    size_t library_bytes;
    size_t out_bytes, out_stride;
    psti_window made;
    /* Volumes whose elements lie in the bytes as run would write them: the first one of the whole.
     * Then out_bytes is 0 and the field is a view of the bytes that begin was given. */
    const uint8_t *in_place;
} psti_decode_need;
int psti_decoder_need(psti_decoder *dec, const psti_window *window, psti_decode_need *need,
                      pst_error *err);
/* Decodes into dst (need.out_bytes). Fills field: kind, dtype, axes, shape, stride or steps,
 * x0/y0/z0/whole_*, first_damaged_row. A warning that loses pixels sets first_damaged_row and is no
 * failure here: the caller compares it with the rows it uses. known_damage: what a former run of
 * the same bytes found, -1 if none did; saves decoding to the end where unsure_end. */
int psti_decoder_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                     uint8_t *dst, psti_field *field, pst_error *err);
/* Harmless warnings of the last run. */
int psti_decoder_warnings(const psti_decoder *dec);
void psti_decoder_end(psti_decoder *dec);

/* NPY: the field's data points into bytes. Header at most 10,000 bytes, no objects, little-endian C
 * order only. */
int psti_npy_parse(const uint8_t *bytes, size_t size, psti_field *out, pst_error *err);
/* Writes an NPY header for the given type and shape into buf; returns its size (a multiple of 64),
 * 0 if cap is too small. */
size_t psti_npy_header(int dtype, int rank, const int64_t *shape, uint8_t *buf, size_t cap);

#endif
