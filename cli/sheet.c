/* SPDX-License-Identifier: Apache-2.0
 * Fields to tiles, tiles to a sheet, sheet to PNG. Main thread. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if PSTI_HAVE_PNG
#include <spng.h>
#endif

#include "cli.h"
#include "open.h"
#include "outfile.h"
#include "sheet.h"
#include "slots.h"

enum { BORDER = 4, GROUND = 24, WAVE = 200, FEATURES_LEAST = 9 };

/* ---- values --------------------------------------------------------------------------------- */

static float half_to_float(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float sign = h >> 15 ? -1.0F : 1.0F;
    if (exponent == 0)
        return sign * ldexpf((float)fraction, -24);
    if (exponent == 31)
        return 0; /* infinite or no number: nothing to show */
    return sign * ldexpf((float)(1024 + fraction), exponent - 25);
}

static float value_at(const uint8_t *data, int dtype, int64_t index)
{
    uint16_t half = 0;
    uint32_t bits = 0;
    int32_t i32 = 0;
    int64_t i64 = 0;
    float value = 0;
    switch (dtype) {
    case PST_U16:
        memcpy(&half, data + 2 * index, 2);
        return (float)half;
    case PST_F16:
        memcpy(&half, data + 2 * index, 2);
        return half_to_float(half);
    case PST_BF16:
        memcpy(&half, data + 2 * index, 2);
        bits = (uint32_t)half << 16;
        memcpy(&value, &bits, 4);
        break;
    case PST_F32:
        memcpy(&value, data + 4 * index, 4);
        break;
    case PST_I32:
        memcpy(&i32, data + 4 * index, 4);
        return (float)i32;
    case PST_I64:
        memcpy(&i64, data + 8 * index, 8);
        return (float)i64;
    default:
        return (float)data[index];
    }
    return isfinite(value) ? value : 0;
}

/* ---- tiles ---------------------------------------------------------------------------------- */

/* A picture's values with their order. */
typedef struct picture {
    const uint8_t *data;
    int dtype, kind;
    int64_t rows, cols, channels;
    int64_t first;                            /* the value that is shown first */
    int64_t row_step, col_step, channel_step; /* in values */
    float low, scale;                         /* shown = (value - low) * scale */
} picture;

static void describe_picture(const pst_field *field, const int64_t *shape, picture *p)
{
    const bool planes = field->layout == PST_NCHW && field->rank == 3;
    p->rows = shape[planes ? 1 : 0];
    p->cols = shape[planes ? 2 : 1];
    p->channels = field->rank == 2 ? 1 : shape[planes ? 0 : 2];
    p->row_step = planes ? p->cols : p->cols * p->channels;
    p->col_step = planes ? 1 : p->channels;
    p->channel_step = planes ? p->rows * p->cols : 1;
}

/* The plane in the middle, of the first channel. */
static void describe_volume(const int64_t *shape, picture *p)
{
    p->rows = shape[2];
    p->cols = p->row_step = shape[3];
    p->channels = shape[0] > 0 ? 1 : 0;
    p->first = shape[1] / 2 * p->rows * p->cols;
    p->col_step = 1;
}

/* Features of a recording: time from left to right, the first feature at the bottom. */
static void describe_frames(const int64_t *shape, picture *p)
{
    p->rows = shape[1];
    p->cols = shape[0];
    p->channels = 1;
    p->first = shape[1] - 1;
    p->row_step = -1;
    p->col_step = shape[1];
}

/* Whether these are samples of a recording, of one channel or several. */
static bool is_wave(const pst_field *field, const int64_t *shape)
{
    return field->kind == PST_AUDIO && (field->rank == 1 || shape[1] < FEATURES_LEAST);
}

static int describe(const pst_field *field, const int64_t *shape, picture *p)
{
    p->dtype = field->dtype;
    p->kind = field->kind;
    p->scale = 1;
    if (field->rank == 4)
        describe_volume(shape, p);
    else if (field->rank < 2 || field->rank > 4)
        return fail("field %s has %d dimensions and is no picture", field->name, field->rank);
    else if (field->kind == PST_AUDIO)
        describe_frames(shape, p);
    else
        describe_picture(field, shape, p);
    if (p->rows < 1 || p->cols < 1 || p->channels < 1)
        return fail("field %s holds an empty picture", field->name);
    return CLI_OK;
}

static float shown_at(const picture *p, int64_t y, int64_t x, int64_t channel)
{
    return value_at(p->data, p->dtype,
                    p->first + y * p->row_step + x * p->col_step + channel * p->channel_step);
}

static void find_range(picture *p)
{
    float low = INFINITY, high = -INFINITY;
    if (p->dtype == PST_U8 || p->kind == PST_MASK)
        return;
    const int64_t row = p->cols * p->channels;
    for (int64_t i = 0; i < p->rows * row; i++) {
        const float value = shown_at(p, i / row, i % row / p->channels, i % p->channels);
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    p->low = low;
    p->scale = high > low ? 255.0F / (high - low) : 0;
}

/* Neighbouring indices get colours far apart; 0 is black. */
static void mask_colour(int64_t index, uint8_t rgb[3])
{
    const uint32_t bits = (uint32_t)index * 2654435761u;
    for (int c = 0; c < 3; c++)
        rgb[c] = index == 0 ? 0 : (uint8_t)(64 + (bits >> (8 * c + 4) & 0xFF) * 3 / 4);
}

/* The mean over the pixels that fall on one of the tile. */
static void shrink_pixel(const picture *p, int64_t top, int64_t bottom, int64_t left, int64_t right,
                         uint8_t rgb[3])
{
    for (int c = 0; c < 3; c++) {
        const int64_t channel = p->channels >= 3 ? c : 0;
        float sum = 0;
        for (int64_t y = top; y < bottom; y++) {
            for (int64_t x = left; x < right; x++)
                sum += shown_at(p, y, x, channel);
        }
        const float mean = sum / (float)((bottom - top) * (right - left));
        const float shown = (mean - p->low) * p->scale + 0.5F;
        rgb[c] = (uint8_t)(shown < 0 ? 0 : shown > 255 ? 255 : shown);
    }
}

static void fill_tile(const picture *p, tile *t)
{
    for (int y = 0; y < t->height; y++) {
        const int64_t top = y * p->rows / t->height, bottom = (y + 1) * p->rows / t->height;
        for (int x = 0; x < t->width; x++) {
            const int64_t left = x * p->cols / t->width, right = (x + 1) * p->cols / t->width;
            uint8_t *rgb = t->rgb + ((size_t)y * (size_t)t->width + (size_t)x) * 3;
            if (p->kind == PST_MASK)
                mask_colour((int64_t)shown_at(p, top, left, 0), rgb);
            else
                shrink_pixel(p, top, bottom, left, right, rgb);
        }
    }
}

static void shrink_picture(picture *p, int most, tile *out)
{
    find_range(p);
    const int64_t longer = p->rows > p->cols ? p->rows : p->cols;
    const int64_t side = longer > most ? most : longer;
    out->width = (int)(p->cols * side / longer > 0 ? p->cols * side / longer : 1);
    out->height = (int)(p->rows * side / longer > 0 ? p->rows * side / longer : 1);
    out->rgb = cli_alloc((size_t)out->width * (size_t)out->height * 3);
    fill_tile(p, out);
}

/* The row of a tile that a sample between -1 and 1 falls on. */
static int wave_row(const tile *t, float value)
{
    const float at = (1 - value) / 2 * (float)(t->height - 1) + 0.5F;
    return at < 0 ? 0 : at > (float)(t->height - 1) ? t->height - 1 : (int)at;
}

/* A recording as a line: from the least to the greatest of the samples that fall on a column. */
static void draw_wave(const uint8_t *data, int dtype, const int64_t *shape, int channels, int most,
                      tile *out)
{
    const int64_t count = shape[0];
    out->width = (int)(count > most ? most : count > 0 ? count : 1);
    out->height = most / 3 + 1;
    out->rgb = cli_alloc((size_t)out->width * (size_t)out->height * 3);
    memset(out->rgb, 0, (size_t)out->width * (size_t)out->height * 3);
    for (int x = 0; x < out->width; x++) {
        float low = INFINITY, high = -INFINITY;
        for (int64_t i = x * count / out->width; i < (x + 1) * count / out->width; i++) {
            const float value = value_at(data, dtype, i * channels);
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
        for (int y = wave_row(out, high); low <= high && y <= wave_row(out, low); y++)
            memset(out->rgb + ((size_t)y * (size_t)out->width + (size_t)x) * 3, WAVE, 3);
    }
}

int tile_make(const pst_batch_desc *desc, const pst_field *field, uint32_t slot, int most,
              tile *out)
{
    int64_t shape[PST_MAX_RANK] = {0};
    picture p = {0};
    slot_shape(desc, field, slot, shape);
    const bool wave = is_wave(field, shape);
    const int exit_code = wave ? CLI_OK : describe(field, shape, &p);
    if (exit_code != CLI_OK)
        return exit_code;
    uint8_t *packed = cli_alloc(slot_bytes(desc, field, slot));
    slot_pack(desc, field, slot, packed);
    p.data = packed;
    if (wave)
        draw_wave(packed, field->dtype, shape, field->rank == 1 ? 1 : (int)shape[1], most, out);
    else
        shrink_picture(&p, most, out);
    free(packed);
    return CLI_OK;
}

void tile_fini(tile *t)
{
    free(t->rgb);
    *t = (tile){0};
}

/* ---- sheet ---------------------------------------------------------------------------------- */

static int write_png(const char *path, const uint8_t *rgb, int width, int height)
{
#if PSTI_HAVE_PNG
    outfile out;
    const int exit_code = outfile_open(&out, path);
    if (exit_code != CLI_OK)
        return exit_code;
    struct spng_ihdr header = {.width = (uint32_t)width,
                               .height = (uint32_t)height,
                               .bit_depth = 8,
                               .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
    spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
    int rc = png == NULL ? SPNG_EMEM : spng_set_png_file(png, out.file);
    errno = 0;
    if (rc == 0)
        rc = spng_set_ihdr(png, &header);
    if (rc == 0)
        rc = spng_encode_image(png, rgb, (size_t)width * (size_t)height * 3, SPNG_FMT_PNG,
                               SPNG_ENCODE_FINALIZE);
    const int error = errno;
    spng_ctx_free(png);
    if (rc == 0)
        return outfile_commit(&out);
    outfile_drop(&out);
    return rc == SPNG_IO_ERROR && error != 0 ? fail_errno(error, "write", path)
                                             : fail("cannot write %s: %s", path, spng_strerror(rc));
#else
    (void)rgb, (void)width, (void)height;
    return fail("cannot write %s: this penstock was built without libspng", path);
#endif
}

static void paste(uint8_t *sheet, int sheet_width, const tile *t, int left, int top)
{
    for (int y = 0; y < t->height; y++)
        memcpy(sheet + ((size_t)(top + y) * (size_t)sheet_width + (size_t)left) * 3,
               t->rgb + (size_t)y * (size_t)t->width * 3, (size_t)t->width * 3);
}

int sheet_write(const char *path, const tile *tiles, int count, int panels, int columns)
{
    int cell_width = 1, cell_height = 1;
    for (int i = 0; i < count * panels; i++) {
        cell_width = tiles[i].width > cell_width ? tiles[i].width : cell_width;
        cell_height = tiles[i].height > cell_height ? tiles[i].height : cell_height;
    }
    const int across = (columns < count ? columns : count) * panels,
              down = (count + columns - 1) / columns;
    const int width = across * (cell_width + BORDER) + BORDER,
              height = down * (cell_height + BORDER) + BORDER;
    uint8_t *rgb = cli_alloc((size_t)width * (size_t)height * 3);
    memset(rgb, GROUND, (size_t)width * (size_t)height * 3);
    for (int i = 0; i < count * panels; i++) {
        const int column = i % (columns * panels), row = i / (columns * panels);
        const int left =
            BORDER + column * (cell_width + BORDER) + (cell_width - tiles[i].width) / 2;
        const int top = BORDER + row * (cell_height + BORDER) + (cell_height - tiles[i].height) / 2;
        paste(rgb, width, &tiles[i], left, top);
    }
    const int exit_code = write_png(path, rgb, width, height);
    free(rgb);
    if (exit_code == CLI_OK)
        printf("%s: %d samples, %dx%d\n", path, count, width, height);
    return exit_code;
}
