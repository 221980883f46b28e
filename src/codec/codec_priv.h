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
    /* Given need->made, fills need->library_bytes; may set need->in_place, then run has nothing to
     * write, though it may still have something to check. */
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

extern const psti_codec psti_codec_npy, psti_codec_npz, psti_codec_nifti;

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

/* ---- packed bytes (gzip.c) ---- */

/* A stream of DEFLATE, in gzip members or bare. */
typedef struct psti_packed {
    const char *name; /* of the format, for errors */
    const uint8_t *bytes;
    size_t size;
    bool gzip;
    size_t whole; /* bytes that must come out */
} psti_packed;
/* Whether so few packed bytes can hold so many at all. */
bool psti_packed_may_hold(size_t packed, uint64_t bytes);
/* The first bytes of what comes out; *got is less than want where there is no more, or where it is
 * not found near the beginning. in->whole is not looked at. */
int psti_packed_head(const psti_packed *in, uint8_t *dst, size_t want, size_t *got, pst_error *err);
/* All of it: in->whole bytes, neither more nor fewer. Checks gzip's checksums. Takes at most
 * PSTI_PACKED_MEMORY while it runs. */
enum { PSTI_PACKED_MEMORY = 64 << 10 };
int psti_packed_all(const psti_packed *in, uint8_t *dst, pst_error *err);
/* The checksum of zip and gzip. */
uint32_t psti_crc32(const uint8_t *bytes, size_t size);

/* ---- numbers as files have them (grid.c) ---- */

typedef enum psti_number {
    PSTI_N_U8,
    PSTI_N_I8,
    PSTI_N_U16,
    PSTI_N_I16,
    PSTI_N_U32,
    PSTI_N_I32,
    PSTI_N_U64,
    PSTI_N_I64,
    PSTI_N_F16,
    PSTI_N_F32,
    PSTI_N_F64,
    PSTI_NUMBERS
} psti_number;
size_t psti_number_bytes(psti_number type);
const char *psti_number_name(psti_number type);

/* A volume as it lies in a file's bytes: {channels, planes, rows, columns} in any order. */
typedef struct psti_grid {
    psti_number type;
    bool swapped; /* the other byte order than the machine's */
    int64_t shape[4];
    ptrdiff_t step[4];   /* bytes from one to the next */
    double slope, inter; /* what is stored stands for x * slope + inter */
} psti_grid;
/* Fills dec->pic with what the grid becomes as dec->opts want it, and refuses what it cannot. */
int psti_grid_begin(psti_decoder *dec, const psti_grid *grid, pst_error *err);
/* Writes the window as dec->pic says. data: the grid's first number; all of it must be there. */
int psti_grid_write(const psti_decoder *dec, const psti_grid *grid, const uint8_t *data,
                    const psti_window *window, uint8_t *dst, pst_error *err);
/* data, if the grid lies there as the field should be; else NULL. */
const uint8_t *psti_grid_in_place(const psti_decoder *dec, const psti_grid *grid,
                                  const uint8_t *data);

/* ---- NIfTI headers (nifti_header.c) ---- */

typedef struct psti_nifti {
    int version;    /* 1 or 2 */
    bool swapped;   /* big-endian */
    int64_t dim[4]; /* the first is the fastest in the file */
    psti_number type;
    int colours;         /* numbers a voxel: 3 or 4 for RGB and RGBA */
    double slope, inter; /* 1 and 0 where nothing is scaled */
    double unit[3];      /* mm along the first three; 0: not known */
    size_t offset;       /* of the data in the file, unpacked */
    size_t whole;        /* bytes of the file, unpacked */
} psti_nifti;
int psti_nifti_header(const uint8_t *bytes, size_t size, psti_nifti *out, pst_error *err);

/* ---- NPY of any order and number type (npy.c) ---- */

typedef struct psti_npy {
    psti_number type;
    bool swapped, fortran;
    int rank;
    int64_t shape[PST_MAX_RANK];
    size_t data;  /* where the data starts */
    size_t whole; /* bytes of header and data */
} psti_npy;
/* size: of what is there, at least the header. The data is not looked at. */
int psti_npy_describe(const uint8_t *bytes, size_t size, psti_npy *out, pst_error *err);
/* Refuses a file of another size than its header says. */
int psti_npy_check_size(const psti_npy *npy, size_t size, pst_error *err);
/* The most bytes that a header can have. */
enum { PSTI_NPY_HEAD = 12 + 10000 };
/* The array as a volume, {planes, rows, columns} or with channels before them. */
int psti_npy_grid(const psti_npy *npy, psti_grid *out, pst_error *err);

#endif
