/* SPDX-License-Identifier: Apache-2.0
 * A window decoded alone has the same pixels as in the whole picture, for every kind of JPEG, and
 * the memory that need asks for is not exceeded by a byte (exact-size buffers, so a sanitizer sees
 * more). */
#include "check.h"
#include "codec/make_images.h"

static psti_decoder *dec;

static const int sizes[][2] = {{1, 1},   {9, 3},    {16, 16},  {17, 40},  {40, 17},  {31, 64},
                               {97, 33}, {130, 71}, {64, 161}, {203, 97}, {150, 150}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void check_window(const jpeg_spec *spec, const made *file, const decoded *whole,
                         const psti_window *w, int color)
{
    psti_decode_options opts = plain_options();
    opts.color = color;
    decoded part = decode_with(dec, file->bytes, file->size, &opts, w, -1);
    CHECKF(part.rc == 0, "%s: %s", spec->name, part.err.message);
    if (part.rc < 0)
        return;
    CHECK(part.pic.can_crop);
    CHECKF(covers(&part.field, w), "%s", spec->name);
    CHECKF(part.field.first_damaged_row == PSTI_ROWS_SOUND, "%s", spec->name);
    CHECKF(same_window(&part.field, &whole->field, w),
           "%s %lldx%lld, window %lldx%lld at %lld,%lld", spec->name,
           (long long)whole->field.whole_cols, (long long)whole->field.whole_rows,
           (long long)w->cols, (long long)w->rows, (long long)w->left, (long long)w->top);
    decoded_free(&part);
}

static void check_size(const jpeg_spec *spec, int width, int height, int windows, uint64_t seed)
{
    made file = make_jpeg(spec, width, height, seed);
    for (int color = PSTI_COLOR_RGB; color <= PSTI_COLOR_KEEP; color++) {
        psti_decode_options opts = plain_options();
        opts.color = color;
        decoded whole = decode_with(dec, file.bytes, file.size, &opts, NULL, -1);
        CHECKF(whole.rc == 0, "%s: %s", spec->name, whole.err.message);
        uint64_t state = seed;
        for (int i = 0; whole.rc == 0 && i < (color == PSTI_COLOR_RGB ? windows : windows / 8);
             i++) {
            const psti_window w = draw_window(&state, height, width);
            check_window(spec, &file, &whole, &w, color);
        }
        decoded_free(&whole);
    }
    free(file.bytes);
}

static void windows_equal_the_whole(void)
{
    dec = psti_decoder_new();
    for (size_t i = 0; i < JPEG_SPECS; i++)
        for (size_t s = 0; s < SIZES; s++)
            check_size(&jpeg_specs[i], sizes[s][0], sizes[s][1], 64, i * 100 + s);
    psti_decoder_free(dec);
}

/* Every top edge and every height near iMCU borders: where libjpeg's row skipping has its cases. */
static void every_row_edge_is_exact(void)
{
    dec = psti_decoder_new();
    for (size_t i = 0; i < JPEG_SPECS; i++) {
        const int rows = 70, cols = 50;
        made file = make_jpeg(&jpeg_specs[i], cols, rows, i);
        decoded whole = decode_all(dec, file.bytes, file.size);
        for (int64_t top = 0; top < rows; top++)
            for (int64_t height = 1; height <= rows - top; height += height < 18 ? 1 : 13)
                check_window(&jpeg_specs[i], &file, &whole,
                             &(psti_window){top, top % 40, height, 7}, PSTI_COLOR_RGB);
        decoded_free(&whole);
        free(file.bytes);
    }
    psti_decoder_free(dec);
}

static void a_window_takes_less_memory_than_the_whole(void)
{
    dec = psti_decoder_new();
    made file = make_jpeg(&jpeg_specs[5], 400, 300, 1);
    const psti_decode_options opts = plain_options();
    psti_picture pic;
    psti_decode_need need;
    CHECK(psti_decoder_begin(dec, file.bytes, file.size, &opts, &pic, NULL) == 0);
    CHECK(psti_decoder_need(dec, &(psti_window){100, 103, 50, 60}, &need, NULL) == 0);
    CHECK(need.made.top == 92 && need.made.rows == 66);
    CHECK(need.made.left == 80 && need.made.left + need.made.cols == 171);
    CHECK(need.out_stride == 91 * 3 && need.out_bytes == 66 * 91 * 3);
    psti_decoder_free(dec);
    free(file.bytes);
}

static void windows_outside_are_refused(void)
{
    dec = psti_decoder_new();
    made file = make_jpeg(&jpeg_specs[5], 40, 30, 1);
    static const psti_window wrong[] = {{-1, 0, 5, 5},
                                        {0, -1, 5, 5},
                                        {0, 0, 31, 5},
                                        {0, 0, 5, 41},
                                        {26, 0, 5, 5},
                                        {0, 36, 5, 5},
                                        {0, 0, 5, 0},
                                        {0, 0, -5, 5},
                                        {0, 0, 5, -5},
                                        {INT64_MAX, 0, INT64_MAX, 5},
                                        {1, 1, INT64_MAX, INT64_MAX}};
    const psti_decode_options opts = plain_options();
    psti_picture pic;
    psti_decode_need need;
    CHECK(psti_decoder_begin(dec, file.bytes, file.size, &opts, &pic, NULL) == 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECKF(psti_decoder_need(dec, &wrong[i], &need, NULL) < 0, "window %zu", i);
    psti_decoder_free(dec);
    free(file.bytes);
}

int main(void)
{
    RUN(windows_equal_the_whole);
    RUN(every_row_edge_is_exact);
    RUN(a_window_takes_less_memory_than_the_whole);
    RUN(windows_outside_are_refused);
    return check_report();
}
