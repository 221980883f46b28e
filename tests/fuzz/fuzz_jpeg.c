/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a JPEG. The whole picture and a window of it must get the same verdict,
 * and the same pixels where that is good; with orientation and as a mask they must decode or be
 * refused. One decoder serves all inputs. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static psti_decoder *dec;

static void require(int holds)
{
    if (!holds)
        abort();
}

/* Malloc'ed pixels in field.data, or a negative code. */
static int decode(const uint8_t *data, size_t size, const psti_decode_options *opts,
                  const psti_window *window, psti_field *field)
{
    psti_picture pic;
    psti_decode_need need;
    pst_error err = {0};
    uint8_t *dst = NULL;
    int rc = psti_decoder_begin(dec, data, size, opts, &pic, &err);
    if (rc == 0)
        rc = psti_decoder_need(dec, window, &need, &err);
    if (rc == 0) {
        dst = malloc(need.out_bytes);
        rc = psti_decoder_run(dec, &need, -1, dst, field, &err);
    }
    psti_decoder_end(dec);
    if (rc < 0) {
        require(err.code == rc && err.message[0]);
        free(dst);
    }
    return rc;
}

static void check_pixels(const psti_field *whole, const psti_field *part, const psti_window *w)
{
    for (int64_t r = w->top; r < w->top + w->rows; r++)
        require(memcmp(whole->data + (size_t)r * whole->stride + (size_t)w->left * 3,
                       part->data + (size_t)(r - part->y0) * part->stride +
                           (size_t)(w->left - part->x0) * 3,
                       (size_t)w->cols * 3) == 0);
}

/* A window that the bytes themselves choose. */
static psti_window choose(const uint8_t *data, size_t size, const psti_field *whole)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 16777619u;
    psti_window w = {.rows = 1 + (hash & 255) * (whole->whole_rows - 1) / 255,
                     .cols = 1 + (hash >> 8 & 255) * (whole->whole_cols - 1) / 255};
    w.top = (hash >> 16 & 255) * (whole->whole_rows - w.rows) / 255;
    w.left = (hash >> 24) * (whole->whole_cols - w.cols) / 255;
    return w;
}

static void check_window(const uint8_t *data, size_t size, const psti_decode_options *opts,
                         const psti_field *whole)
{
    psti_field part;
    const psti_window w = choose(data, size, whole);
    require(decode(data, size, opts, &w, &part) == 0);
    const int64_t used = w.top + w.rows + PSTI_CROP_PAD;
    const int64_t last = used < whole->whole_rows ? used : whole->whole_rows;
    require((whole->first_damaged_row < last) == (part.first_damaged_row < last));
    if (whole->first_damaged_row >= last)
        check_pixels(whole, &part, &w);
    free(part.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    psti_decode_options opts = {.kind = PST_IMAGE, .limits = {1000000, 4000000, 20}};
    psti_field field;
    if (!dec)
        dec = psti_decoder_new();
    if (!dec || size < 2 || data[0] != 0xFF || data[1] != 0xD8)
        return 0;
    if (decode(data, size, &opts, NULL, &field) == 0) {
        check_window(data, size, &opts, &field);
        free(field.data);
    }
    opts.orient = true;
    opts.kind = PST_MASK;
    if (decode(data, size, &opts, NULL, &field) == 0)
        free(field.data);
    return 0;
}
