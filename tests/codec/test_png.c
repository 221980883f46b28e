/* SPDX-License-Identifier: Apache-2.0
 * PNG: what each kind becomes as image and as mask, and that damage is an error or changes nothing.
 * Bit-exactness with Pillow is parity_pillow.py's. */
#include "codec/make_images.h"

#ifndef PSTI_HAVE_PNG
int main(void)
{
    printf("skip: built without PNG\n");
    return 77;
}
#else

#include "check.h"

static psti_decoder *dec;

enum { COLS = 23, ROWS = 19 };

static decoded decode_as(const made *file, int kind, int color)
{
    psti_decode_options opts = plain_options();
    opts.kind = kind;
    opts.color = color;
    return decode_with(dec, file->bytes, file->size, &opts, NULL, -1);
}

static void channels_follow_the_options(void)
{
    dec = psti_decoder_new();
    for (size_t i = 0; i < PNG_SPECS; i++) {
        const png_spec *spec = &png_specs[i];
        made file = make_png(spec, COLS, ROWS, i);
        CHECKF(file.bytes, "%s", spec->name);
        decoded rgb = decode_as(&file, PST_IMAGE, PSTI_COLOR_RGB),
                gray = decode_as(&file, PST_IMAGE, PSTI_COLOR_GRAY);
        decoded keep = decode_as(&file, PST_IMAGE, PSTI_COLOR_KEEP);
        CHECKF(rgb.rc == 0 && rgb.pic.channels == 3 && rgb.field.shape[2] == 3, "%s: %s",
               spec->name, rgb.err.message);
        CHECK(gray.rc == 0 && gray.pic.channels == 1 && gray.field.dtype == PST_U8);
        const int kept = spec->color_type == 0 ? 1 : (spec->color_type >= 4 ? 4 : 3);
        CHECKF(keep.rc == 0 && keep.pic.channels == kept, "%s: %d", spec->name, keep.pic.channels);
        CHECK(rgb.pic.bits == spec->depth &&
              rgb.pic.stored_channels == png_channels(spec->color_type));
        CHECK(!rgb.pic.can_crop && rgb.pic.rows == ROWS && rgb.pic.cols == COLS &&
              rgb.field.kind == PST_IMAGE);
        CHECK(rgb.field.first_damaged_row == PSTI_ROWS_SOUND);
        for (int p = 0; keep.rc == 0 && kept == 4 && p < COLS * ROWS; p++)
            CHECK(memcmp(keep.field.data + 4 * p, rgb.field.data + 3 * p, 3) == 0);
        decoded_free(&rgb);
        decoded_free(&gray);
        decoded_free(&keep);
        free(file.bytes);
    }
    psti_decoder_free(dec);
}

/* The stored values, one by one, from the same pixels the file was made of. */
static void masks_keep_what_is_stored(void)
{
    dec = psti_decoder_new();
    for (size_t i = 0; i < PNG_SPECS; i++) {
        const png_spec *spec = &png_specs[i];
        made file = make_png(spec, COLS, ROWS, i);
        decoded mask = decode_as(&file, PST_MASK, PSTI_COLOR_RGB);
        if (spec->color_type == 2 || spec->color_type == 6) {
            CHECKF(mask.rc == PST_EFORMAT && strstr(mask.err.message, "one value a pixel"), "%s",
                   mask.err.message);
            free(file.bytes);
            continue;
        }
        CHECKF(mask.rc == 0 && mask.field.shape[2] == 1 && mask.field.kind == PST_MASK, "%s",
               spec->name);
        CHECK(mask.field.dtype == (spec->depth == 16 ? PST_U16 : PST_U8));
        const int channels = png_channels(spec->color_type);
        const size_t stride = ((size_t)COLS * (size_t)(channels * spec->depth) + 7) / 8;
        uint8_t *pixels = malloc(stride * ROWS);
        fill_pixels(pixels, stride * ROWS, (int)stride, 1, i);
        for (int y = 0; mask.rc == 0 && y < ROWS; y++)
            for (int x = 0; x < COLS; x++) {
                const uint8_t *row = pixels + (size_t)y * stride;
                const int bit = x * channels * spec->depth;
                const int got = spec->depth == 16 ? ((uint16_t *)mask.field.data)[y * COLS + x]
                                                  : mask.field.data[y * COLS + x];
                const int want = spec->depth == 16 ? ((const uint16_t *)row)[x * channels]
                                                   : row[bit / 8] >> (8 - spec->depth - bit % 8) &
                                                         ((1 << spec->depth) - 1);
                CHECKF(got == want, "%s at %d,%d: %d, not %d", spec->name, x, y, got, want);
            }
        free(pixels);
        decoded_free(&mask);
        free(file.bytes);
    }
    psti_decoder_free(dec);
}

static void check_spoiled(const made *intact, const uint8_t *source, size_t size,
                          const decoded *whole, const char *what)
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, source, size);
    decoded d = decode_all(dec, exact, size);
    const psti_window all = {0, 0, ROWS, COLS};
    /* A flip in the size may give another picture only if the checksum agreed, which it cannot. */
    CHECKF(d.rc < 0 || same_window(&d.field, &whole->field, &all), "%s: other pixels and no error",
           what);
    decoded_free(&d);
    free(exact);
    decoded next = decode_all(dec, intact->bytes, intact->size);
    CHECKF(next.rc == 0 && same_window(&next.field, &whole->field, &all), "after %s", what);
    decoded_free(&next);
}

static void damage_is_an_error_or_changes_nothing(void)
{
    dec = psti_decoder_new();
    for (size_t i = 0; i < PNG_SPECS; i++) {
        made file = make_png(&png_specs[i], COLS, ROWS, i);
        decoded whole = decode_all(dec, file.bytes, file.size);
        char what[80];
        for (size_t size = 0; size < file.size; size++) {
            snprintf(what, sizeof what, "%s cut at %zu", png_specs[i].name, size);
            check_spoiled(&file, file.bytes, size, &whole, what);
        }
        uint8_t *copy = malloc(file.size);
        for (size_t at = 0; at < file.size; at++) {
            memcpy(copy, file.bytes, file.size);
            copy[at] ^= 0xFF;
            snprintf(what, sizeof what, "%s flipped at %zu", png_specs[i].name, at);
            check_spoiled(&file, copy, file.size, &whole, what);
        }
        free(copy);
        decoded_free(&whole);
        free(file.bytes);
    }
    psti_decoder_free(dec);
}

/* A chunk of any name and size before the pixels is not looked at. */
static void other_chunks_are_passed_over(void)
{
    dec = psti_decoder_new();
    made file = make_png(&png_specs[5], COLS, ROWS, 1);
    decoded whole = decode_all(dec, file.bytes, file.size);
    const size_t extra = 5000, head = 33;
    for (int n = 0; n < 3; n++) {
        static const char *const names[] = {"zTXt", "iCCP", "ABCD"};
        made odd = {calloc(1, file.size + 12 + extra), file.size + 12 + extra};
        memcpy(odd.bytes, file.bytes, head);
        odd.bytes[head + 2] = (uint8_t)(extra >> 8);
        odd.bytes[head + 3] = (uint8_t)extra;
        memcpy(odd.bytes + head + 4, names[n], 4);
        memcpy(odd.bytes + head + 12 + extra, file.bytes + head, file.size - head);
        decoded d = decode_all(dec, odd.bytes, odd.size);
        CHECKF(d.rc == 0 && same_window(&d.field, &whole.field, &(psti_window){0, 0, ROWS, COLS}),
               "%s", d.err.message);
        decoded_free(&d);
        free(odd.bytes);
    }
    decoded_free(&whole);
    free(file.bytes);
    psti_decoder_free(dec);
}

int main(void)
{
    RUN(channels_follow_the_options);
    RUN(masks_keep_what_is_stored);
    RUN(damage_is_an_error_or_changes_nothing);
    RUN(other_chunks_are_passed_over);
    return check_report();
}
#endif
