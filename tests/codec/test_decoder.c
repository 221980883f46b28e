/* SPDX-License-Identifier: Apache-2.0
 * The decoder's contract beside pixels: header facts, fields, orientation without Pillow, failed
 * allocations of our own. */
#include <errno.h>

#include "check.h"
#include "codec/make_images.h"

static psti_decoder *dec;

static void headers_are_described(void)
{
    static const struct {
        const char *spec, *detail;
        int channels;
    } cases[] = {
        {"grey", "baseline grey", 1},
        {"4:4:4", "baseline 4:4:4", 3},
        {"4:2:0", "baseline 4:2:0", 3},
        {"4:1:1", "baseline 4:1:1", 3},
        {"4:4:0", "baseline 4:4:0", 3},
        {"mixed sampling", "baseline 2x2,1x2,2x1", 3},
        {"progressive 4:2:0", "progressive 4:2:0", 3},
        {"separate scans 4:2:0", "baseline 4:2:0 multi-scan", 3},
        {"arithmetic 4:2:0", "arithmetic sequential 4:2:0", 3},
        {"rgb", "baseline 4:4:4 rgb", 3},
        {"cmyk", "baseline cmyk", 4},
        {"ycck progressive", "progressive ycck", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t s = 0; s < JPEG_SPECS; s++) {
            if (strcmp(jpeg_specs[s].name, cases[i].spec) != 0)
                continue;
            made file = make_jpeg(&jpeg_specs[s], 40, 24, 1);
            decoded d = decode_all(dec, file.bytes, file.size);
            CHECKF(d.rc == 0 && strcmp(d.pic.detail, cases[i].detail) == 0, "\"%s\"", d.pic.detail);
            CHECK(d.pic.format == PSTI_FORMAT_JPEG && d.pic.bits == 8 &&
                  d.pic.stored_channels == cases[i].channels);
            CHECK(d.pic.rows == 24 && d.pic.cols == 40 && d.pic.channels == 3 &&
                  d.pic.dtype == PST_U8);
            CHECK(d.pic.progressive == (jpeg_specs[s].scans == SCANS_PROGRESSIVE));
            decoded_free(&d);
            free(file.bytes);
        }
}

static void fields_are_filled(void)
{
    made file = make_jpeg(&jpeg_specs[5], 100, 80, 1);
    psti_decode_options opts = plain_options();
    opts.kind = PST_MASK;
    decoded d = decode_with(dec, file.bytes, file.size, &opts, &(psti_window){30, 40, 20, 20}, -1);
    CHECK(d.rc == 0 && d.field.kind == PST_MASK && d.field.dtype == PST_U8 && d.field.rank == 3);
    CHECK(d.field.shape[0] == 36 && d.field.shape[1] == 36 && d.field.shape[2] == 1);
    CHECK(d.field.y0 == 22 && d.field.x0 == 32 && d.field.whole_rows == 80 &&
          d.field.whole_cols == 100);
    CHECK(d.field.stride == 36 && d.field.bytes == 36 * 36);
    decoded_free(&d);
    free(file.bytes);
}

/* A JPEG with an EXIF block of the given orientation, in either byte order. */
static made with_orientation(const made *file, int orientation, bool big)
{
    static const uint8_t head[] = {0xFF, 0xE1, 0, 34, 'E', 'x', 'i', 'f', 0, 0};
    uint8_t tiff[26] = {
        'I', 'I', '*', 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, (uint8_t)orientation};
    const uint8_t swapped[26] = {'M', 'M',  0, '*', 0, 0, 0, 8, 0, 1,
                                 1,   0x12, 0, 3,   0, 0, 0, 1, 0, (uint8_t)orientation};
    made out = {malloc(file->size + 36), file->size + 36};
    memcpy(out.bytes, file->bytes, 2);
    memcpy(out.bytes + 2, head, 10);
    memcpy(out.bytes + 12, big ? swapped : tiff, 26);
    memcpy(out.bytes + 38, file->bytes + 2, file->size - 2);
    return out;
}

static void orientation_moves_pixels(void)
{
    const int cols = 21, rows = 13;
    made plain = make_jpeg(&jpeg_specs[3], cols, rows, 1);
    decoded stored = decode_all(dec, plain.bytes, plain.size);
    for (int orientation = 0; orientation <= 9; orientation++) {
        made file = with_orientation(&plain, orientation, orientation % 2);
        psti_decode_options opts = plain_options();
        opts.orient = true;
        decoded d = decode_with(dec, file.bytes, file.size, &opts, &(psti_window){1, 2, 3, 4}, -1);
        const bool moves = orientation >= 2 && orientation <= 8,
                   swaps = orientation >= 5 && orientation <= 8;
        CHECK(d.rc == 0 && d.pic.rows == (swaps ? cols : rows) &&
              d.pic.cols == (swaps ? rows : cols));
        CHECK(d.pic.can_crop == !moves);
        const int last = cols - 1, bottom = rows - 1;
        /* Where the stored top left pixel and the one right of it went. */
        const int at[10][4] = {{0, 0, 0, 1},           {0, 0, 0, 1},
                               {0, last, 0, last - 1}, {bottom, last, bottom, last - 1},
                               {bottom, 0, bottom, 1}, {0, 0, 1, 0},
                               {0, bottom, 1, bottom}, {last, bottom, last - 1, bottom},
                               {last, 0, last - 1, 0}, {0, 0, 0, 1}};
        for (int p = 0; d.rc == 0 && moves && p < 2; p++)
            CHECKF(memcmp(d.field.data + (size_t)at[orientation][2 * p] * d.field.stride +
                              3 * at[orientation][2 * p + 1],
                          stored.field.data + 3 * p, 3) == 0,
                   "orientation %d", orientation);
        decoded_free(&d);
        free(file.bytes);
    }
    decoded_free(&stored);
    free(plain.bytes);
}

/* The rows damaged are those of the picture as it is handed out. */
static void damage_is_turned_with_the_picture(void)
{
    made plain = make_jpeg(&jpeg_specs[3], 40, 64, 1);
    for (int orientation = 1; orientation <= 8; orientation++) {
        made file = with_orientation(&plain, orientation, false);
        psti_decode_options opts = plain_options();
        opts.orient = true;
        decoded cut = decode_with(dec, file.bytes, file.size - 400, &opts, NULL, -1);
        const int64_t row = cut.field.first_damaged_row;
        CHECKF(cut.rc == 0 && (orientation <= 2 ? row > 0 && row < 64 : row == 0),
               "orientation %d: row %lld", orientation, (long long)row);
        decoded_free(&cut);
        free(file.bytes);
    }
    free(plain.bytes);
}

/* Every cut through an EXIF block: read or not, never past the end. */
static void broken_exif_is_ignored(void)
{
    made plain = make_jpeg(&jpeg_specs[3], 16, 16, 1);
    made file = with_orientation(&plain, 6, false);
    psti_decode_options opts = plain_options();
    opts.orient = true;
    for (size_t at = 12; at < 38; at++)
        for (int value = 0; value < 256; value += 5) {
            uint8_t *exact = malloc(file.size);
            memcpy(exact, file.bytes, file.size);
            exact[at] = (uint8_t)value;
            decoded d = decode_with(dec, exact, file.size, &opts, NULL, -1);
            CHECK(d.rc == 0);
            decoded_free(&d);
            free(exact);
        }
    free(file.bytes);
    free(plain.bytes);
}

static void our_failed_allocations_are_errors(void)
{
    psti_mem_stats before, after;
    psti_mem_stats_get(PSTI_MEM_CODEC, &before);
    made files[] = {make_jpeg(&jpeg_specs[5], 64, 48, 1),
#ifdef PSTI_HAVE_PNG
                    make_png(&png_specs[17], 30, 20, 1), make_png(&png_specs[9], 30, 20, 1)
#endif
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (int persistent = 0; persistent < 2; persistent++) {
            int rc = -ENOMEM;
            for (uint64_t n = 1; rc == -ENOMEM && n < 200; n++) {
                psti_mem_fail_at(n, persistent);
                psti_decoder *own = psti_decoder_new();
                if (own) {
                    psti_decode_options opts = plain_options();
                    opts.color = PSTI_COLOR_GRAY;
                    decoded d = decode_with(own, files[f].bytes, files[f].size, &opts, NULL, -1);
                    rc = d.rc;
                    CHECKF(rc == 0 || rc == -ENOMEM, "file %zu, allocation %llu: %d", f,
                           (unsigned long long)n, rc);
                    decoded_free(&d);
                }
                psti_mem_fail_at(0, false);
                psti_decoder_free(own);
            }
            CHECK(rc == 0);
        }
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        free(files[f].bytes);
    psti_mem_stats_get(PSTI_MEM_CODEC, &after);
    CHECK(after.live == before.live && after.live_bytes == before.live_bytes);
}

int main(void)
{
    dec = psti_decoder_new();
    RUN(headers_are_described);
    RUN(fields_are_filled);
    RUN(orientation_moves_pixels);
    RUN(damage_is_turned_with_the_picture);
    RUN(broken_exif_is_ignored);
    RUN(our_failed_allocations_are_errors);
    psti_decoder_free(dec);
    return check_report();
}
