/* SPDX-License-Identifier: Apache-2.0
 * The decoder that workers hold: finds out the format by magic bytes, checks limits and windows,
 * and hands the rest to the format's own file. One worker, one sample at a time; no locks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec/codec_priv.h"

const psti_limits psti_limits_default = {.pixels = 100000000u,
                                         .output_bytes = 512u << 20,
                                         .scans = 500,
                                         .voxels = (uint64_t)1 << 31,
                                         .volume_bytes = (uint64_t)4 << 30,
                                         .samples = (uint64_t)1 << 29};

static const psti_codec *const codecs[] = {
    &psti_codec_jpeg,
#ifdef PSTI_HAVE_PNG
    &psti_codec_png,
#endif
#ifdef PSTI_HAVE_WEBP
    &psti_codec_webp,
#endif
    &psti_codec_npy,  &psti_codec_npz, &psti_codec_nifti, &psti_codec_wav,
#ifdef PSTI_HAVE_FLAC
    &psti_codec_flac,
#endif
};
enum { CODECS = sizeof codecs / sizeof *codecs };

/* ---- formats ---- */

typedef struct magic {
    const char *name;
    psti_format format; /* UNKNOWN: we can name it but not read it */
    size_t at, size;
    const char *text;
    bool wraps; /* holds files of many kinds; where a volume is wanted, this one */
} magic;

static const magic magics[] = {
    {"jpeg", PSTI_FORMAT_JPEG, 0, 2, "\xFF\xD8"},
    {"png", PSTI_FORMAT_PNG, 0, 8, "\x89PNG\r\n\x1A\n"},
    {"webp", PSTI_FORMAT_WEBP, 8, 4, "WEBP"},
    {"npy", PSTI_FORMAT_NPY, 0, 6, "\x93NUMPY"},
    {"nifti", PSTI_FORMAT_NIFTI, 344, 4, "n+1"},
    {"nifti", PSTI_FORMAT_NIFTI, 4, 8, "n+2\0\r\n\x1A\n"},
    {"nifti", PSTI_FORMAT_NIFTI, 344, 4, "ni1"},
    {"nifti", PSTI_FORMAT_NIFTI, 4, 8, "ni2\0\r\n\x1A\n"},
    {"wav", PSTI_FORMAT_WAV, 8, 4, "WAVE"},
    {"flac", PSTI_FORMAT_FLAC, 0, 4, "fLaC"},
    {"GIF", PSTI_FORMAT_UNKNOWN, 0, 4, "GIF8"},
    {"TIFF", PSTI_FORMAT_UNKNOWN, 0, 4, "II*\0"},
    {"TIFF", PSTI_FORMAT_UNKNOWN, 0, 4, "MM\0*"},
    {"HEIF or AVIF", PSTI_FORMAT_UNKNOWN, 4, 4, "ftyp"},
    {"JPEG 2000", PSTI_FORMAT_UNKNOWN, 0, 8, "\0\0\0\x0CjP  "},
    {"JPEG XL", PSTI_FORMAT_UNKNOWN, 0, 8, "\0\0\0\x0CJXL "},
    {"gzip", PSTI_FORMAT_NIFTI, 0, 2, "\x1F\x8B", true},
    {"zip", PSTI_FORMAT_NPZ, 0, 4, "PK\x03\x04", true},
    {"zip", PSTI_FORMAT_NPZ, 0, 4, "PK\x05\x06", true},
    {"BMP", PSTI_FORMAT_UNKNOWN, 0, 2, "BM"},
};
enum { MAGICS = sizeof magics / sizeof *magics };

static const magic *find_magic(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < MAGICS; i++) {
        const magic *m = &magics[i];
        if (size >= m->at + m->size && memcmp(bytes + m->at, m->text, m->size) == 0)
            return m;
    }
    return NULL;
}

psti_format psti_format_sniff(const uint8_t *bytes, size_t size)
{
    const magic *found = find_magic(bytes, size);
    return found ? found->format : PSTI_FORMAT_UNKNOWN;
}

const char *psti_format_name(psti_format format)
{
    static const char *const names[PSTI_FORMATS] = {
        [PSTI_FORMAT_UNKNOWN] = "unknown", [PSTI_FORMAT_JPEG] = "jpeg",
        [PSTI_FORMAT_PNG] = "png",         [PSTI_FORMAT_WEBP] = "webp",
        [PSTI_FORMAT_NPY] = "npy",         [PSTI_FORMAT_NIFTI] = "nifti",
        [PSTI_FORMAT_NPZ] = "npz",         [PSTI_FORMAT_WAV] = "wav",
        [PSTI_FORMAT_FLAC] = "flac"};
    return format >= 0 && format < PSTI_FORMATS ? names[format] : "unknown";
}

static bool looks_like_text(const uint8_t *bytes, size_t size)
{
    const size_t look = size < 64 ? size : 64;
    for (size_t i = 0; i < look; i++) {
        const bool space = bytes[i] == '\n' || bytes[i] == '\r' || bytes[i] == '\t';
        if ((bytes[i] < 32 && !space) || bytes[i] == 127)
            return false;
        if (bytes[i] >= 128 && (bytes[i] < 0xC2 || bytes[i] > 0xF4) && i == 0)
            return false;
    }
    return look > 0;
}

/* What may be read as what is wanted. */
static const char *wanted(psti_axes axes)
{
    return axes == PSTI_AXES_VOLUME ? "NIfTI, NPY or NPZ volume"
           : axes == PSTI_AXES_WAVE ? "WAV or FLAC recording"
                                    : "JPEG, PNG or WebP picture";
}

/* Bytes that are not what is wanted: says what they look like instead. */
static int refuse_unknown(const psti_decoder *dec, const magic *found, pst_error *err)
{
    const uint8_t *bytes = dec->bytes;
    const size_t size = dec->size;
    const char *want = wanted(dec->opts.axes);
    if (size == 0)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "there are no bytes: the file is empty, take it out of the dataset");
    if (found)
        return psti_fail(err, PST_EFORMAT, "decode", NULL, "%s is not read: convert it to %.*s",
                         found->name, (int)(strrchr(want, ' ') - want), want);
    char hint[3 * 16 + 1] = "";
    const size_t shown = size < 16 ? size : 16;
    if (looks_like_text(bytes, size)) {
        for (size_t i = 0; i < shown; i++)
            hint[i] = bytes[i] < 32 || bytes[i] >= 127 ? '?' : (char)bytes[i];
        return psti_fail_at(err, PST_EFORMAT, "decode", NULL, 0,
                            "this is no %s: it looks like text and starts \"%s\"", want, hint);
    }
    for (size_t i = 0; i < shown; i++)
        snprintf(hint + 3 * i, 4, "%02x ", bytes[i]);
    return psti_fail_at(err, PST_EFORMAT, "decode", NULL, 0,
                        "this is no %s: it starts with the bytes %s", want, hint);
}

static const psti_codec *find_codec(psti_format format, psti_axes axes)
{
    for (size_t i = 0; i < CODECS; i++)
        if (codecs[i]->format == format && codecs[i]->axes == axes)
            return codecs[i];
    return NULL;
}

/* A format that is known, where something of another kind is wanted. */
static int refuse_kind(const psti_decoder *dec, psti_format format, pst_error *err)
{
    static const char *const what[PSTI_FORMATS] = {
        [PSTI_FORMAT_JPEG] = "a JPEG picture",  [PSTI_FORMAT_PNG] = "a PNG picture",
        [PSTI_FORMAT_WEBP] = "a WebP picture",  [PSTI_FORMAT_NPY] = "an NPY array",
        [PSTI_FORMAT_NIFTI] = "a NIfTI volume", [PSTI_FORMAT_NPZ] = "an NPZ archive",
        [PSTI_FORMAT_WAV] = "a WAV recording",  [PSTI_FORMAT_FLAC] = "a FLAC recording"};
    const char *want = wanted(dec->opts.axes), *noun = strrchr(want, ' ') + 1;
    if (format == PSTI_FORMAT_NPY && dec->opts.axes == PSTI_AXES_PICTURE)
        return psti_fail(
            err, PST_EFORMAT, "decode", NULL,
            "this is an NPY array where a picture is wanted: read it as an array field");
    return psti_fail(err, PST_EFORMAT, "decode", NULL, "this is %s where a %s is wanted: give %.*s",
                     what[format], noun, (int)(noun - 1 - want), want);
}

static int choose_codec(psti_decoder *dec, pst_error *err)
{
    const magic *found = find_magic(dec->bytes, dec->size);
    if (!found || found->format == PSTI_FORMAT_UNKNOWN)
        return refuse_unknown(dec, found, err);
    dec->codec = find_codec(found->format, dec->opts.axes);
    if (dec->codec)
        return 0;
    if (found->wraps)
        return refuse_unknown(dec, found, err);
    const bool left_out = found->format == PSTI_FORMAT_PNG || found->format == PSTI_FORMAT_WEBP;
    if (left_out && dec->opts.axes == PSTI_AXES_PICTURE)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "built without %s: build again with %s, or convert the file to JPEG",
                         found->format == PSTI_FORMAT_PNG ? "PNG" : "WebP",
                         found->format == PSTI_FORMAT_PNG ? "libspng" : "libwebp");
    if (found->format == PSTI_FORMAT_FLAC && dec->opts.axes == PSTI_AXES_WAVE)
        return psti_fail(
            err, PST_EFORMAT, "decode", NULL,
            "built without FLAC: build again with libFLAC, or convert the file to WAV");
    return refuse_kind(dec, found->format, err);
}

/* ---- life ---- */

psti_decoder *psti_decoder_new(void)
{
    psti_decoder *dec = psti_calloc(PSTI_MEM_CODEC, 1, sizeof *dec);
    if (!dec)
        return NULL;
    for (size_t i = 0; i < CODECS; i++) {
        void *state = psti_calloc(PSTI_MEM_CODEC, 1, codecs[i]->state_bytes);
        dec->state[codecs[i]->format] = state;
        if (!state) {
            psti_decoder_free(dec);
            return NULL;
        }
    }
    return dec;
}

void psti_decoder_free(psti_decoder *dec)
{
    if (!dec)
        return;
    psti_decoder_end(dec);
    for (int i = 0; i < PSTI_FORMATS; i++)
        psti_free(dec->state[i]);
    psti_buf_free(&dec->scratch);
    psti_free(dec);
}

void psti_decoder_end(psti_decoder *dec)
{
    if (dec->codec)
        dec->codec->end(dec);
    dec->codec = NULL;
    dec->bytes = NULL;
    dec->size = 0;
}

int psti_decoder_warnings(const psti_decoder *dec)
{
    return dec->warnings;
}

/* ---- begin ---- */

int psti_decoder_check_pixels(const psti_decoder *dec, int64_t rows, int64_t cols, pst_error *err)
{
    /* Both are below 2^31, so the product fits. */
    const uint64_t pixels = (uint64_t)rows * (uint64_t)cols;
    if (pixels <= dec->opts.limits.pixels)
        return 0;
    return psti_fail(err, PST_ELIMIT, "decode", NULL,
                     "the header claims %lld x %lld = %llu pixels, the limit is %llu pixels",
                     (long long)cols, (long long)rows, (unsigned long long)pixels,
                     (unsigned long long)dec->opts.limits.pixels);
}

void psti_decoder_orient(psti_decoder *dec)
{
    const bool swap = dec->orientation >= 5;
    dec->pic.rows = swap ? dec->stored_cols : dec->stored_rows;
    dec->pic.cols = swap ? dec->stored_rows : dec->stored_cols;
}

psti_geom psti_picture_geom(const psti_picture *pic)
{
    return (psti_geom){pic->rows,
                       pic->cols,
                       pic->channels,
                       pic->depth,
                       pic->dtype,
                       pic->axes,
                       {pic->unit[0], pic->unit[1], pic->unit[2]}};
}

int psti_decoder_check_size(const psti_decoder *dec, const psti_geom *size, pst_error *err)
{
    const psti_limits *limits = &dec->opts.limits;
    const bool wave = size->axes == PSTI_AXES_WAVE;
    const uint64_t most = wave ? limits->samples : limits->voxels;
    psti_geom one = *size;
    size_t count, bytes;
    one.dtype = PST_U8;
    one.channels = 1;
    if (!psti_geom_bytes(&one, &count) || count > most)
        return wave ? psti_fail(err, PST_ELIMIT, "decode", NULL,
                                "the header claims %lld samples, the limit is %llu",
                                (long long)size->rows, (unsigned long long)most)
                    : psti_fail(err, PST_ELIMIT, "decode", NULL,
                                "the header claims %lld x %lld x %lld voxels, the limit is %llu "
                                "voxels",
                                (long long)size->depth, (long long)size->rows,
                                (long long)size->cols, (unsigned long long)most);
    if (psti_geom_bytes(size, &bytes) && bytes <= limits->volume_bytes)
        return 0;
    return psti_fail(err, PST_ELIMIT, "decode", NULL,
                     "the decoded %s would take more than the limit of %llu bytes",
                     wave ? "recording" : "volume", (unsigned long long)limits->volume_bytes);
}

static size_t pixel_bytes(const psti_decoder *dec)
{
    return (size_t)dec->pic.channels * psti_dtype_bytes(dec->pic.dtype);
}

static int check_output(const psti_decoder *dec, pst_error *err)
{
    const psti_geom size = psti_picture_geom(&dec->pic);
    if (size.axes != PSTI_AXES_PICTURE)
        return psti_decoder_check_size(dec, &size, err);
    const uint64_t bytes = (uint64_t)dec->pic.rows * (uint64_t)dec->pic.cols * pixel_bytes(dec);
    if (bytes <= dec->opts.limits.output_bytes)
        return 0;
    return psti_fail(err, PST_ELIMIT, "decode", NULL,
                     "the decoded picture would take %llu bytes, the limit is %llu bytes",
                     (unsigned long long)bytes, (unsigned long long)dec->opts.limits.output_bytes);
}

int psti_decoder_begin(psti_decoder *dec, const uint8_t *bytes, size_t size,
                       const psti_decode_options *opts, psti_picture *out, pst_error *err)
{
    psti_decoder_end(dec);
    dec->bytes = bytes;
    dec->size = size;
    dec->opts = *opts;
    dec->pic = (psti_picture){.dtype = PST_U8, .axes = opts->axes};
    dec->orientation = 1;
    dec->ran = false;
    dec->warnings = 0;
    dec->first_damaged_row = PSTI_ROWS_SOUND;
    int rc = choose_codec(dec, err);
    if (rc == 0) {
        dec->pic.format = dec->codec->format;
        rc = dec->codec->begin(dec, err);
    }
    if (rc == 0)
        rc = check_output(dec, err);
    if (rc < 0) {
        psti_decoder_end(dec);
        return rc;
    }
    *out = dec->pic;
    return 0;
}

/* ---- windows ---- */

static int64_t at_least(int64_t value, int64_t low)
{
    return value < low ? low : value;
}

static int64_t at_most(int64_t value, int64_t high)
{
    return value > high ? high : value;
}

static bool inside(const psti_window *w, const psti_picture *pic)
{
    if (pic->axes == PSTI_AXES_VOLUME && (w->front < 0 || w->planes < 1 || w->planes > pic->depth ||
                                          w->front > pic->depth - w->planes))
        return false;
    return w->top >= 0 && w->left >= 0 && w->rows > 0 && w->cols > 0 && w->rows <= pic->rows &&
           w->cols <= pic->cols && w->top <= pic->rows - w->rows && w->left <= pic->cols - w->cols;
}

static psti_window padded(const psti_window *w, const psti_picture *pic)
{
    const int64_t top = at_least(w->top - PSTI_CROP_PAD, 0);
    const int64_t left = at_least(w->left - PSTI_CROP_PAD, 0);
    const int64_t bottom = at_most(w->top + w->rows + PSTI_CROP_PAD, pic->rows);
    const int64_t right = at_most(w->left + w->cols + PSTI_CROP_PAD, pic->cols);
    return (psti_window){.top = top, .left = left, .rows = bottom - top, .cols = right - left};
}

/* Size and rows of what is made. */
static void size_need(const psti_decoder *dec, psti_decode_need *need)
{
    const psti_picture *pic = &dec->pic;
    need->out_stride = (size_t)need->made.cols * pixel_bytes(dec);
    need->out_bytes = need->out_stride * (size_t)need->made.rows;
    if (pic->axes == PSTI_AXES_VOLUME)
        need->out_bytes *= (size_t)need->made.planes;
}

int psti_decoder_need(psti_decoder *dec, const psti_window *window, psti_decode_need *need,
                      pst_error *err)
{
    if (!dec->codec)
        return psti_fail(err, -EINVAL, "decode", NULL, "no picture was begun");
    const psti_picture *pic = &dec->pic;
    *need = (psti_decode_need){.made = {0, 0, pic->rows, pic->cols, 0, pic->depth}};
    if (window && window->rows != 0) {
        if (!inside(window, pic))
            return psti_fail(
                err, -EINVAL, "decode", NULL,
                "a window of %lld x %lld at column %lld, row %lld is not inside a picture "
                "of %lld x %lld",
                (long long)window->cols, (long long)window->rows, (long long)window->left,
                (long long)window->top, (long long)pic->cols, (long long)pic->rows);
        if (pic->can_crop) {
            need->made = pic->axes == PSTI_AXES_PICTURE ? padded(window, pic) : *window;
            if (dec->codec->align)
                dec->codec->align(dec, &need->made);
        }
    }
    size_need(dec, need);
    dec->codec->measure(dec, need);
    if (need->in_place)
        need->out_bytes = 0;
    return 0;
}

/* ---- run ---- */

static void fill_field(const psti_decoder *dec, const psti_decode_need *need, uint8_t *dst,
                       psti_field *field)
{
    psti_geom size = psti_picture_geom(&dec->pic);
    size.rows = need->made.rows;
    size.cols = need->made.cols;
    size.depth = need->made.planes;
    *field = psti_field_of(dec->opts.kind, &size);
    field->data = dst;
    if (need->in_place) {
        size = psti_picture_geom(&dec->pic);
        const psti_field whole = psti_field_of(dec->opts.kind, &size);
        memcpy(field->step, whole.step, sizeof field->step);
        field->data = (uint8_t *)need->in_place + need->made.front * whole.step[1] +
                      need->made.top * whole.step[2] + need->made.left * whole.step[3];
    }
    field->x0 = need->made.left;
    field->y0 = need->made.top;
    field->z0 = need->made.front;
    field->whole_rows = dec->pic.rows;
    field->whole_cols = dec->pic.cols;
    field->whole_depth = dec->pic.depth;
    field->first_damaged_row = dec->first_damaged_row;
}

int psti_decoder_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                     uint8_t *dst, psti_field *field, pst_error *err)
{
    if (!dec->codec || dec->ran)
        return psti_fail(err, -EINVAL, "decode", NULL, "a picture must be begun once for each run");
    dec->ran = true;
    const int rc = dec->codec->run(dec, need, known_damage, dst, err);
    if (rc < 0)
        return rc;
    if (known_damage >= 0)
        dec->first_damaged_row = known_damage;
    fill_field(dec, need, dst, field);
    return 0;
}
