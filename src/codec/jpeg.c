/* SPDX-License-Identifier: Apache-2.0
 * JPEG through libjpeg-turbo: whole pictures and windows, with the damage rule. Called by decoder.c
 * on a worker's thread.
 *
 * Every sample gets a new jpeg_decompress_struct. Making one costs a tenth of a microsecond;
 * keeping one would let the Huffman and quantisation tables of a sample decode the next one that
 * lacks its own, and would need care after each kind of error. libjpeg's longjmp lands in guarded()
 * below and goes no further: nothing between it and the library keeps locals.
 *
 * Damage: the row noted is the first pixel row of the iMCU row that was being entropy-decoded when
 * a warning told of lost pixels. A whole decode and a windowed one entropy-decode the same bytes in
 * the same order up to the last row they need, so both note the same rows; that is what makes the
 * verdict a function of bytes and rows alone. */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "codec/codec_priv.h"

enum { BLOCK = DCTSIZE, STRIP_ROWS = 16, ROW_POINTERS = 64, SOF3_LOSSLESS = 0xC3 };

/* What happens to a row between libjpeg and the field. */
typedef enum row_map { MAP_NONE, MAP_RGB_GRAY, MAP_CMYK_RGB, MAP_CMYK_GRAY } row_map;

typedef struct jpeg_state {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    psti_decoder *dec;
    bool live;        /* cinfo exists */
    bool out_of_data; /* libjpeg asked for more bytes than there are */
    bool scan_limit_hit;
    row_map map;
    /* Of the current run. */
    psti_window made;
    uint8_t *dst;
    size_t stride;
    int64_t known_damage;
    uint8_t *strip, *line; /* in dec->scratch: STRIP_ROWS rows as decoded, one row as converted */
    size_t strip_pitch;
    int64_t left_out; /* pixels at the left of each decoded row that are not part of made */
    bool crop;        /* rows are cropped and skipped by libjpeg */
} jpeg_state;

static jpeg_state *state_of(const psti_decoder *dec)
{
    return dec->state[PSTI_FORMAT_JPEG];
}

/* ---- libjpeg's callbacks ---- */

static void on_fatal(j_common_ptr cinfo)
{
    jpeg_state *j = cinfo->client_data;
    longjmp(j->jump, 1);
}

static bool loses_pixels(int code)
{
    return code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC ||
           code == JWRN_ARITH_BAD_CODE;
}

static void note_damage(jpeg_state *j, int64_t row)
{
    if (row < j->dec->first_damaged_row)
        j->dec->first_damaged_row = row;
}

static int64_t row_being_read(const jpeg_state *j)
{
    return (int64_t)j->cinfo.input_iMCU_row * j->cinfo.max_v_samp_factor * BLOCK;
}

static void on_message(j_common_ptr cinfo, int level)
{
    if (level >= 0)
        return;
    jpeg_state *j = cinfo->client_data;
    if (loses_pixels(cinfo->err->msg_code))
        note_damage(j, row_being_read(j));
    else
        j->dec->warnings++;
}

static void on_output(j_common_ptr cinfo)
{
    (void)cinfo;
}

static void on_progress(j_common_ptr cinfo)
{
    jpeg_state *j = cinfo->client_data;
    if (j->cinfo.input_scan_number > j->dec->opts.limits.scans) {
        j->scan_limit_hit = true;
        longjmp(j->jump, 1);
    }
}

static void on_source(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

/* The bytes are used up: libjpeg gets an end marker. Huffman decoding asks ahead, so this alone
 * loses nothing; it warns by itself when it needs bits that are not there. Arithmetic decoding runs
 * on zeros silently. */
static boolean on_empty(j_decompress_ptr cinfo)
{
    static const JOCTET end[2] = {0xFF, JPEG_EOI};
    jpeg_state *j = cinfo->client_data;
    j->out_of_data = true;
    if (cinfo->arith_code)
        note_damage(j, row_being_read(j));
    cinfo->src->next_input_byte = end;
    cinfo->src->bytes_in_buffer = sizeof end;
    return TRUE;
}

static void on_skip(j_decompress_ptr cinfo, long bytes)
{
    if (bytes <= 0)
        return;
    if ((size_t)bytes > cinfo->src->bytes_in_buffer) {
        on_empty(cinfo);
        return;
    }
    cinfo->src->next_input_byte += bytes;
    cinfo->src->bytes_in_buffer -= (size_t)bytes;
}

/* ---- errors ---- */

/* False when libjpeg jumped out of body. */
static bool guarded(jpeg_state *j, void (*body)(jpeg_state *))
{
    if (setjmp(j->jump))
        return false;
    body(j);
    return true;
}

static int code_of(int jpeg_code)
{
    switch (jpeg_code) {
    case JERR_OUT_OF_MEMORY:
        return -ENOMEM;
    case JERR_SOF_UNSUPPORTED:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_ARITH_NOTIMPL:
    case JERR_NOT_COMPILED:
        return PST_EFORMAT;
    case JERR_IMAGE_TOO_BIG:
        return PST_ELIMIT;
    default:
        return PST_ECORRUPT;
    }
}

static int64_t offset_of(const jpeg_state *j)
{
    const psti_decoder *dec = j->dec;
    return j->out_of_data ? (int64_t)dec->size : (int64_t)(j->source.next_input_byte - dec->bytes);
}

static int fail_scans(const psti_decoder *dec, int scans, pst_error *err)
{
    return psti_fail(err, PST_ELIMIT, "decode", NULL,
                     "the JPEG has %d scans or more, the limit is %d scans", scans,
                     dec->opts.limits.scans);
}

static int fail_by_library(jpeg_state *j, pst_error *err)
{
    if (j->scan_limit_hit)
        return fail_scans(j->dec, j->cinfo.input_scan_number, err);
    const int code = code_of(j->errors.msg_code);
    if (code == -ENOMEM)
        return psti_fail(err, code, "decode", NULL,
                         "out of memory while decoding a JPEG of %u x %u pixels",
                         j->cinfo.image_width, j->cinfo.image_height);
    char text[JMSG_LENGTH_MAX];
    j->errors.format_message((j_common_ptr)&j->cinfo, text);
    return psti_fail_at(err, code, "decode", NULL, offset_of(j), "JPEG: %s%s", text,
                        j->out_of_data ? "; the file is cut off" : "");
}

/* ---- begin ---- */

static void open_handle(jpeg_state *j)
{
    jpeg_create_decompress(&j->cinfo);
}

static void read_header(jpeg_state *j)
{
    jpeg_read_header(&j->cinfo, TRUE);
}

static int create(jpeg_state *j, psti_decoder *dec, pst_error *err)
{
    j->dec = dec;
    j->out_of_data = false;
    j->scan_limit_hit = false;
    j->cinfo.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = on_fatal;
    j->errors.emit_message = on_message;
    j->errors.output_message = on_output;
    j->cinfo.client_data = j;
    j->live = true;
    if (!guarded(j, open_handle))
        return fail_by_library(j, err);
    j->cinfo.mem->max_memory_to_use = 0; /* whatever JPEGMEM says: the budget is the caller's */
    j->source = (struct jpeg_source_mgr){
        .next_input_byte = dec->bytes,
        .bytes_in_buffer = dec->size,
        .init_source = on_source,
        .fill_input_buffer = on_empty,
        .skip_input_data = on_skip,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = on_source,
    };
    j->cinfo.src = &j->source;
    return 0;
}

static void describe_sampling(const struct jpeg_decompress_struct *cinfo, char *out, size_t cap)
{
    static const struct {
        int h, v;
        const char *name;
    } known[] = {{1, 1, "4:4:4"}, {2, 1, "4:2:2"}, {2, 2, "4:2:0"},
                 {4, 1, "4:1:1"}, {1, 2, "4:4:0"}, {4, 2, "4:1:0"}};
    const jpeg_component_info *c = cinfo->comp_info;
    const bool plain = c[1].h_samp_factor == 1 && c[1].v_samp_factor == 1 &&
                       c[2].h_samp_factor == 1 && c[2].v_samp_factor == 1;
    for (size_t i = 0; plain && i < sizeof known / sizeof *known; i++)
        if (known[i].h == c[0].h_samp_factor && known[i].v == c[0].v_samp_factor) {
            snprintf(out, cap, "%s", known[i].name);
            return;
        }
    snprintf(out, cap, "%dx%d,%dx%d,%dx%d", c[0].h_samp_factor, c[0].v_samp_factor,
             c[1].h_samp_factor, c[1].v_samp_factor, c[2].h_samp_factor, c[2].v_samp_factor);
}

static void describe(const struct jpeg_decompress_struct *cinfo, int sof, bool many_scans,
                     char *out, size_t cap)
{
    char color[24];
    if (cinfo->num_components == 1)
        snprintf(color, sizeof color, "grey");
    else if (cinfo->num_components == 4)
        snprintf(color, sizeof color, "%s", cinfo->jpeg_color_space == JCS_YCCK ? "ycck" : "cmyk");
    else
        describe_sampling(cinfo, color, sizeof color);
    snprintf(out, cap, "%s%s %s%s%s", cinfo->arith_code ? "arithmetic " : "",
             cinfo->progressive_mode ? "progressive" : (sof == 0xC0 ? "baseline" : "sequential"),
             color, cinfo->num_components == 3 && cinfo->jpeg_color_space == JCS_RGB ? " rgb" : "",
             many_scans && !cinfo->progressive_mode ? " multi-scan" : "");
}

static void choose_output(jpeg_state *j, psti_decoder *dec)
{
    struct jpeg_decompress_struct *cinfo = &j->cinfo;
    const bool stored_gray = cinfo->num_components == 1;
    const bool gray = dec->opts.kind == PST_MASK || dec->opts.color == PSTI_COLOR_GRAY ||
                      (dec->opts.color == PSTI_COLOR_KEEP && stored_gray);
    dec->pic.channels = gray ? 1 : 3;
    if (cinfo->num_components == 4) {
        cinfo->out_color_space = JCS_CMYK;
        j->map = gray ? MAP_CMYK_GRAY : MAP_CMYK_RGB;
    } else {
        cinfo->out_color_space = gray && stored_gray ? JCS_GRAYSCALE : JCS_RGB;
        j->map = gray && !stored_gray ? MAP_RGB_GRAY : MAP_NONE;
    }
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->do_fancy_upsampling = TRUE;
}

static int check_kind(const jpeg_state *j, int sof, pst_error *err)
{
    const int components = j->cinfo.num_components;
    if (components != 1 && components != 3 && components != 4)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "a JPEG with %d colour components is not read: 1, 3 and 4 are",
                         components);
    if (j->cinfo.data_precision != 8 || sof == SOF3_LOSSLESS)
        return psti_fail(
            err, PST_EFORMAT, "decode", NULL,
            "a %s JPEG with %d bits a channel is not read: convert it to an ordinary one",
            sof == SOF3_LOSSLESS ? "lossless" : "DCT", j->cinfo.data_precision);
    return 0;
}

static bool has_many_scans(const jpeg_state *j)
{
    return j->cinfo.progressive_mode || j->cinfo.comps_in_scan < j->cinfo.num_components;
}

static int check_scans(jpeg_state *j, pst_error *err)
{
    const psti_decoder *dec = j->dec;
    if (!has_many_scans(j))
        return 0;
    j->progress.progress_monitor = on_progress;
    j->cinfo.progress = &j->progress;
    const int scans = psti_jpeg_count_scans(j->source.next_input_byte, j->source.bytes_in_buffer,
                                            dec->opts.limits.scans);
    return scans > dec->opts.limits.scans ? fail_scans(dec, scans, err) : 0;
}

static int jpeg_begin(psti_decoder *dec, pst_error *err)
{
    jpeg_state *j = state_of(dec);
    int rc = create(j, dec, err);
    if (rc < 0)
        return rc;
    if (!guarded(j, read_header))
        return fail_by_library(j, err);
    const psti_jpeg_facts facts = psti_jpeg_walk(dec->bytes, dec->size);
    rc = check_kind(j, facts.sof, err);
    if (rc == 0)
        rc = psti_decoder_check_pixels(dec, j->cinfo.image_height, j->cinfo.image_width, err);
    if (rc == 0)
        rc = check_scans(j, err);
    if (rc < 0)
        return rc;
    choose_output(j, dec);
    dec->stored_rows = j->cinfo.image_height;
    dec->stored_cols = j->cinfo.image_width;
    if (dec->opts.orient)
        dec->orientation = facts.orientation;
    psti_decoder_orient(dec);
    dec->pic.stored_channels = j->cinfo.num_components;
    dec->pic.bits = 8;
    dec->pic.progressive = j->cinfo.progressive_mode;
    dec->pic.can_crop = dec->orientation == 1;
    dec->pic.unsure_end = !has_many_scans(j) && !psti_jpeg_has_end(dec->bytes, dec->size);
    describe(&j->cinfo, facts.sof, has_many_scans(j), dec->pic.detail, sizeof dec->pic.detail);
    return 0;
}

/* ---- need ---- */

/* libjpeg moves the left edge to a whole iMCU by itself; doing it here says so before. */
static void jpeg_align(const psti_decoder *dec, psti_window *made)
{
    const int64_t unit = (int64_t)state_of(dec)->cinfo.max_h_samp_factor * BLOCK;
    const int64_t left = made->left / unit * unit;
    made->cols += made->left - left;
    made->left = left;
}

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static size_t strip_bytes(const jpeg_state *j)
{
    const size_t channels = j->cinfo.num_components == 4 ? 4 : 3;
    return (size_t)j->cinfo.image_width * channels;
}

/* Buffers of a few rows for each component, and for many scans all coefficients. The constant
 * covers tables, pools and rounding; tests/codec/test_library_bytes.c measures the sum. */
static void jpeg_measure(const psti_decoder *dec, psti_decode_need *need)
{
    const jpeg_state *j = state_of(dec);
    const struct jpeg_decompress_struct *c = &j->cinfo;
    size_t lines = 0, coefficients = 0;
    for (int i = 0; i < c->num_components; i++) {
        const jpeg_component_info *comp = &c->comp_info[i];
        const size_t h = (size_t)comp->h_samp_factor, v = (size_t)comp->v_samp_factor;
        const size_t blocks_wide = round_up(comp->width_in_blocks, h);
        const size_t blocks_high = round_up(comp->height_in_blocks, v);
        const size_t upsampled = round_up(c->image_width, (size_t)c->max_h_samp_factor) + 128;
        lines += (blocks_wide * BLOCK + 128) * v * (BLOCK + 2);
        lines += upsampled * (size_t)c->max_v_samp_factor;
        coefficients += blocks_high * (blocks_wide * sizeof(JBLOCK) + 2 * sizeof(void *));
    }
    need->library_bytes = (96u << 10) + lines + (has_many_scans(j) ? coefficients : 0);
    need->library_bytes += strip_bytes(j) * (STRIP_ROWS + 4);
}

/* ---- run ---- */

/* Whether data that a later scan would have brought never came. */
static bool lacks_scans(const jpeg_state *j)
{
    const struct jpeg_decompress_struct *c = &j->cinfo;
    for (int i = 0; i < c->num_components; i++) {
        if (!c->progressive_mode && !c->comp_info[i].quant_table)
            return true;
        for (int k = 0; c->progressive_mode && k < DCTSIZE2; k++)
            if (c->coef_bits[i][k] != 0)
                return true;
    }
    return false;
}

static void check_progress(jpeg_state *j, JDIMENSION lines)
{
    if (lines == 0)
        ERREXIT(&j->cinfo, JERR_CANT_SUSPEND); /* our source never suspends */
}

static void read_straight(jpeg_state *j)
{
    JSAMPROW rows[ROW_POINTERS];
    int64_t done = 0;
    while (done < j->made.rows) {
        const int64_t left = j->made.rows - done;
        const int wanted = left < ROW_POINTERS ? (int)left : ROW_POINTERS;
        for (int i = 0; i < wanted; i++)
            rows[i] = j->dst + (size_t)(done + i) * j->stride;
        for (int got = 0; got < wanted;) {
            const JDIMENSION n =
                jpeg_read_scanlines(&j->cinfo, rows + got, (JDIMENSION)(wanted - got));
            check_progress(j, n);
            got += (int)n;
        }
        done += wanted;
    }
}

static const uint8_t *convert(jpeg_state *j, const uint8_t *src, int64_t pixels)
{
    switch (j->map) {
    case MAP_NONE:
        return src;
    case MAP_RGB_GRAY:
        psti_rgb_to_gray(src, j->line, pixels);
        break;
    case MAP_CMYK_RGB:
        psti_cmyk_to_rgb(src, j->line, pixels);
        break;
    case MAP_CMYK_GRAY:
        psti_cmyk_to_rgb(src, j->line, pixels);
        psti_rgb_to_gray(j->line, j->line, pixels);
        break;
    }
    return j->line;
}

/* Reads up to STRIP_ROWS rows into the strip. */
static int64_t read_strip(jpeg_state *j, int64_t limit)
{
    JSAMPROW rows[STRIP_ROWS];
    const int64_t wanted = limit < STRIP_ROWS ? limit : STRIP_ROWS;
    for (int64_t i = 0; i < wanted; i++)
        rows[i] = j->strip + (size_t)i * j->strip_pitch;
    for (int64_t got = 0; got < wanted;) {
        const JDIMENSION n = jpeg_read_scanlines(&j->cinfo, rows + got, (JDIMENSION)(wanted - got));
        check_progress(j, n);
        got += n;
    }
    return wanted;
}

/* For rows that need a conversion, an orientation or a cut at the left. */
static void read_through_strip(jpeg_state *j)
{
    const psti_decoder *dec = j->dec;
    const bool upright = dec->orientation == 1;
    const psti_placer placer = {
        .orientation = dec->orientation,
        .rows = upright ? j->made.rows : dec->stored_rows,
        .cols = upright ? j->made.cols : dec->stored_cols,
        .pixel_bytes = (size_t)dec->pic.channels,
        .dst = j->dst,
        .stride = j->stride,
    };
    const size_t skip = (size_t)(j->left_out * j->cinfo.output_components);
    for (int64_t done = 0; done < placer.rows;) {
        const int64_t n = read_strip(j, placer.rows - done);
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *src = j->strip + (size_t)i * j->strip_pitch + skip;
            psti_placer_put(&placer, done + i, convert(j, src, placer.cols));
        }
        done += n;
    }
}

static void pass_rows(jpeg_state *j, int64_t rows)
{
    if (j->crop && rows > 0)
        jpeg_skip_scanlines(&j->cinfo, (JDIMENSION)rows);
    for (int64_t done = 0; !j->crop && done < rows;)
        done += read_strip(j, rows - done);
}

/* Skipping up to the bottom reads nothing, so the last row is decoded to see the end of the data.
 */
static void read_to_end(jpeg_state *j)
{
    const int64_t left = (int64_t)j->cinfo.output_height - j->cinfo.output_scanline;
    if (left <= 0)
        return;
    pass_rows(j, left - 1);
    read_strip(j, 1);
}

static void crop_columns(jpeg_state *j)
{
    JDIMENSION left = (JDIMENSION)j->made.left, cols = (JDIMENSION)j->made.cols;
    if (cols == j->cinfo.output_width)
        return;
    jpeg_crop_scanline(&j->cinfo, &left, &cols);
    if (left != (JDIMENSION)j->made.left || cols != (JDIMENSION)j->made.cols)
        ERREXIT(&j->cinfo, JERR_WIDTH_OVERFLOW);
}

static void decode(jpeg_state *j)
{
    struct jpeg_decompress_struct *cinfo = &j->cinfo;
    jpeg_start_decompress(cinfo);
    const bool lacking = has_many_scans(j) && lacks_scans(j);
    if (lacking && j->out_of_data)
        note_damage(j, 0);
    /* libjpeg smooths over coefficients that never came, and its smoothing looks across the edges
     * of a window: such pictures are decoded in full width from the top. */
    j->crop = j->dec->pic.can_crop && !(lacking && cinfo->progressive_mode);
    j->left_out = j->crop ? 0 : j->made.left;
    if (j->crop)
        crop_columns(j);
    if (j->dec->orientation == 1)
        pass_rows(j, j->made.top);
    const bool straight = j->map == MAP_NONE && j->dec->orientation == 1 &&
                          (int64_t)cinfo->output_width == j->made.cols;
    straight ? read_straight(j) : read_through_strip(j);
    if (j->dec->pic.unsure_end && j->known_damage < 0)
        read_to_end(j);
}

/* Room for a strip, one converted row, and libjpeg's wish to write whole vectors. */
static int take_scratch(jpeg_state *j)
{
    j->strip_pitch = strip_bytes(j);
    if (psti_buf_need(PSTI_MEM_CODEC, &j->dec->scratch, j->strip_pitch * (STRIP_ROWS + 1)) < 0)
        return -ENOMEM;
    j->strip = j->dec->scratch.data;
    j->line = j->strip + j->strip_pitch * STRIP_ROWS;
    return 0;
}

static int jpeg_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                    uint8_t *dst, pst_error *err)
{
    jpeg_state *j = state_of(dec);
    j->made = need->made;
    j->dst = dst;
    j->stride = need->out_stride;
    j->known_damage = known_damage;
    if (take_scratch(j) < 0)
        return psti_fail(err, -ENOMEM, "decode", NULL, "out of memory for %zu bytes of rows",
                         j->strip_pitch * (STRIP_ROWS + 1));
    if (!guarded(j, decode))
        return fail_by_library(j, err);
    /* Damage goes down to the last stored row; turned, that reaches the first row of the picture.
     */
    if (dec->orientation > 2 && dec->first_damaged_row < dec->stored_rows)
        dec->first_damaged_row = 0;
    return 0;
}

static void jpeg_end(psti_decoder *dec)
{
    jpeg_state *j = state_of(dec);
    if (j->live)
        jpeg_destroy_decompress(&j->cinfo);
    j->live = false;
}

const psti_codec psti_codec_jpeg = {
    .format = PSTI_FORMAT_JPEG,
    .name = "jpeg",
    .state_bytes = sizeof(jpeg_state),
    .begin = jpeg_begin,
    .measure = jpeg_measure,
    .align = jpeg_align,
    .run = jpeg_run,
    .end = jpeg_end,
};
