/* SPDX-License-Identifier: Apache-2.0
 * WebP: what each kind becomes as image and as mask, animations, orientation, and that damage is an
 * error or the same pixels every time. Bit-exactness with Pillow is parity_pillow.py's. */
#include "codec/make_webp.h"

#ifndef PSTI_HAVE_WEBP
int main(void)
{
    printf("skip: built without WebP\n");
    return 77;
}
#else

#include "check.h"

static psti_decoder *dec;

enum { COLS = 23, ROWS = 19 };

static decoded decode_as(const made *file, int kind, int color, bool orient)
{
    psti_decode_options opts = plain_options();
    opts.kind = kind;
    opts.color = color;
    opts.orient = orient;
    return decode_with(dec, file->bytes, file->size, &opts, NULL, -1);
}

static void channels_follow_the_options(void)
{
    for (size_t i = 0; i < WEBP_SPECS; i++) {
        const webp_spec *spec = &webp_specs[i];
        made file = make_webp(spec, COLS, ROWS, i);
        CHECKF(file.bytes, "%s", spec->name);
        decoded rgb = decode_as(&file, PST_IMAGE, PSTI_COLOR_RGB, false),
                gray = decode_as(&file, PST_IMAGE, PSTI_COLOR_GRAY, false),
                keep = decode_as(&file, PST_IMAGE, PSTI_COLOR_KEEP, false);
        const int rows = ROWS + (spec->animated ? 5 : 0), cols = COLS + (spec->animated ? 6 : 0);
        CHECKF(rgb.rc == 0 && rgb.pic.channels == 3 && rgb.pic.rows == rows && rgb.pic.cols == cols,
               "%s: %s", spec->name, rgb.err.message);
        CHECK(gray.rc == 0 && gray.pic.channels == 1 && gray.field.dtype == PST_U8);
        CHECKF(keep.rc == 0 && keep.pic.channels == (spec->alpha ? 4 : 3), "%s: %d", spec->name,
               keep.pic.channels);
        CHECK(rgb.pic.format == PSTI_FORMAT_WEBP && rgb.pic.bits == 8 && !rgb.pic.can_crop);
        CHECK(rgb.pic.stored_channels == (spec->alpha ? 4 : 3));
        CHECK(rgb.field.first_damaged_row == PSTI_ROWS_SOUND && rgb.field.kind == PST_IMAGE);
        CHECKF(strncmp(rgb.pic.detail, spec->name, spec->lossless ? 8 : 5) == 0 &&
                   !strstr(rgb.pic.detail, "alpha") == !spec->alpha &&
                   !strstr(rgb.pic.detail, "animated") == !spec->animated,
               "%s: %s", spec->name, rgb.pic.detail);
        for (int p = 0; keep.rc == 0 && spec->alpha && p < cols * rows; p++)
            CHECK(memcmp(keep.field.data + 4 * p, rgb.field.data + 3 * p, 3) == 0);
        decoded_free(&rgb);
        decoded_free(&gray);
        decoded_free(&keep);
        free(file.bytes);
    }
}

/* Lossless is what it says, alpha and the colours under it included. */
static void lossless_gives_the_pixels_back(void)
{
    uint8_t rgba[COLS * ROWS * 4];
    for (size_t i = 0; i < WEBP_SPECS; i++) {
        const webp_spec *spec = &webp_specs[i];
        if (!spec->lossless || spec->animated)
            continue;
        fill_webp(rgba, spec, COLS, ROWS, i);
        made file = make_webp(spec, COLS, ROWS, i);
        decoded d = decode_as(&file, PST_IMAGE, PSTI_COLOR_KEEP, false);
        const size_t channels = spec->alpha ? 4 : 3;
        for (size_t p = 0; d.rc == 0 && p < COLS * ROWS; p++)
            CHECKF(memcmp(d.field.data + p * channels, rgba + p * 4, channels) == 0,
                   "%s: pixel %zu", spec->name, p);
        CHECK(d.rc == 0);
        decoded_free(&d);
        free(file.bytes);
    }
}

/* The still picture on a canvas that is empty elsewhere: black, and transparent where alpha is
 * kept. */
static void an_animation_is_its_first_frame(void)
{
    for (size_t i = 0; i < WEBP_SPECS; i++) {
        if (!webp_specs[i].animated)
            continue;
        webp_spec spec = webp_specs[i];
        made moving = make_webp(&spec, COLS, ROWS, i);
        spec.animated = false;
        made still = make_webp(&spec, COLS, ROWS, i);
        decoded canvas = decode_as(&moving, PST_IMAGE, PSTI_COLOR_KEEP, false),
                frame = decode_as(&still, PST_IMAGE, PSTI_COLOR_KEEP, false);
        CHECKF(canvas.rc == 0 && frame.rc == 0, "%s: %s", spec.name, canvas.err.message);
        const uint8_t nothing[4] = {0};
        const size_t pixel = spec.alpha ? 4 : 3;
        for (int y = 0; canvas.rc == 0 && y < ROWS + 5; y++)
            for (int x = 0; x < COLS + 6; x++) {
                const bool inside = y >= 2 && y < ROWS + 2 && x >= 4 && x < COLS + 4;
                const uint8_t *want =
                    inside ? frame.field.data + ((size_t)(y - 2) * COLS + (size_t)x - 4) * pixel
                           : nothing;
                const uint8_t *got = canvas.field.data + (size_t)y * canvas.field.stride;
                CHECKF(memcmp(got + (size_t)x * pixel, want, pixel) == 0, "%s at %d,%d", spec.name,
                       x, y);
            }
        decoded_free(&canvas);
        decoded_free(&frame);
        free(moving.bytes);
        free(still.bytes);
    }
}

/* A frame that leaves the canvas, or is not of the size it says, is damage. */
static void frames_must_fit(void)
{
    made file = make_webp(&webp_specs[14], COLS, ROWS, 1);
    const size_t frame = 12 + 18 + 14 + 8;
    CHECK(memcmp(file.bytes + frame - 8, "ANMF", 4) == 0);
    for (size_t at = 0; at < 12; at += 3) {
        made odd = {malloc(file.size), file.size};
        memcpy(odd.bytes, file.bytes, file.size);
        odd.bytes[frame + at] = (uint8_t)(odd.bytes[frame + at] + 3);
        decoded d = decode_as(&odd, PST_IMAGE, PSTI_COLOR_RGB, false);
        CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "first frame"), "%zu: %s", at,
               d.err.message);
        free(odd.bytes);
    }
    for (size_t at = frame - 8; at + 4 < file.size; at++)
        if (memcmp(file.bytes + at, "ANMF", 4) == 0)
            file.bytes[at] = 'x';
    decoded d = decode_as(&file, PST_IMAGE, PSTI_COLOR_RGB, false);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "without a complete first"), "%s",
           d.err.message);
    free(file.bytes);
}

static void masks_are_lossless_and_grey(void)
{
    uint8_t rgba[COLS * ROWS * 4];
    fill_webp(rgba, &webp_specs[7], COLS, ROWS, 3);
    for (size_t i = 0; i < sizeof rgba; i += 4)
        rgba[i + 1] = rgba[i + 2] = rgba[i];
    made file = encode_webp(&webp_specs[7], rgba, COLS, ROWS);
    decoded d = decode_as(&file, PST_MASK, PSTI_COLOR_RGB, false);
    CHECKF(d.rc == 0 && d.field.kind == PST_MASK && d.field.shape[2] == 1, "%s", d.err.message);
    for (size_t p = 0; d.rc == 0 && p < COLS * ROWS; p++)
        CHECK(d.field.data[p] == rgba[p * 4]);
    decoded_free(&d);
    free(file.bytes);
    rgba[4 * (5 * COLS + 7) + 2] ^= 1;
    file = encode_webp(&webp_specs[7], rgba, COLS, ROWS);
    d = decode_as(&file, PST_MASK, PSTI_COLOR_RGB, false);
    CHECKF(d.rc == PST_EFORMAT && strstr(d.err.message, "row 5 of this WebP has colours"), "%s",
           d.err.message);
    free(file.bytes);
    file = make_webp(&webp_specs[0], COLS, ROWS, 1);
    d = decode_as(&file, PST_MASK, PSTI_COLOR_RGB, false);
    CHECKF(d.rc == PST_EFORMAT && strstr(d.err.message, "lossy"), "%s", d.err.message);
    free(file.bytes);
}

static void orientation_is_followed_when_asked(void)
{
    made still = make_webp(&webp_specs[7], COLS, ROWS, 1);
    decoded plain = decode_as(&still, PST_IMAGE, PSTI_COLOR_RGB, false);
    for (int named = 0; named < 2; named++) {
        made turned = orient_webp(&still, COLS, ROWS, 6, named);
        decoded off = decode_as(&turned, PST_IMAGE, PSTI_COLOR_RGB, false),
                on = decode_as(&turned, PST_IMAGE, PSTI_COLOR_RGB, true);
        CHECK(off.rc == 0 &&
              same_window(&off.field, &plain.field, &(psti_window){0, 0, ROWS, COLS}));
        CHECKF(on.rc == 0 && on.pic.rows == COLS && on.pic.cols == ROWS, "%s", on.err.message);
        /* A quarter turn to the right: the first row becomes the last column. */
        for (size_t x = 0; on.rc == 0 && x < COLS; x++)
            CHECK(memcmp(on.field.data + x * on.field.stride + (ROWS - 1) * 3,
                         plain.field.data + x * 3, 3) == 0);
        turned.bytes[20] = 0; /* the head no longer tells of an EXIF block */
        decoded untold = decode_as(&turned, PST_IMAGE, PSTI_COLOR_RGB, true);
        CHECK(untold.rc == 0 && untold.pic.rows == ROWS);
        decoded_free(&off);
        decoded_free(&on);
        decoded_free(&untold);
        free(turned.bytes);
    }
    decoded_free(&plain);
    free(still.bytes);
}

/* There are no checksums, so other pixels may come out of a flipped byte; but the same ones in a
 * used decoder and in a fresh one, whole or not at all. */
static void check_spoiled(const uint8_t *source, size_t size, const char *what)
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, source, size);
    psti_decoder *fresh = psti_decoder_new();
    decoded a = decode_all(dec, exact, size), b = decode_all(fresh, exact, size);
    CHECKF(a.rc == b.rc && (a.rc < 0 || (a.field.bytes == b.field.bytes &&
                                         memcmp(a.field.data, b.field.data, a.field.bytes) == 0)),
           "%s: %d and %d", what, a.rc, b.rc);
    CHECKF(a.rc == 0 || a.rc == PST_ECORRUPT || a.rc == PST_EFORMAT || a.rc == PST_ELIMIT,
           "%s: %d %s", what, a.rc, a.err.message);
    decoded_free(&a);
    decoded_free(&b);
    psti_decoder_free(fresh);
    free(exact);
}

static void damage_gives_one_answer(void)
{
    for (size_t i = 0; i < WEBP_SPECS; i++) {
        made file = make_webp(&webp_specs[i], COLS, ROWS, i);
        decoded whole = decode_all(dec, file.bytes, file.size);
        char what[80];
        for (size_t at = 0; at < file.size; at++) {
            snprintf(what, sizeof what, "%s flipped at %zu", webp_specs[i].name, at);
            file.bytes[at] ^= 0xFF;
            check_spoiled(file.bytes, file.size, what);
            file.bytes[at] ^= 0xFF;
        }
        decoded next = decode_all(dec, file.bytes, file.size);
        CHECK(next.rc == 0 && memcmp(next.field.data, whole.field.data, whole.field.bytes) == 0);
        decoded_free(&next);
        decoded_free(&whole);
        free(file.bytes);
    }
}

static void every_cut_is_an_error(void)
{
    for (size_t i = 0; i < WEBP_SPECS; i++) {
        made file = make_webp(&webp_specs[i], COLS, ROWS, i);
        for (size_t size = 0; size < file.size; size++) {
            uint8_t *exact = malloc(size ? size : 1);
            memcpy(exact, file.bytes, size);
            decoded d = decode_all(dec, exact, size);
            CHECKF(d.rc == (size < 12 ? PST_EFORMAT : PST_ECORRUPT), "%s cut at %zu: %d %s",
                   webp_specs[i].name, size, d.rc, d.err.message);
            CHECKF(size < 12 || (strstr(d.err.message, "cut off") && d.err.offset == (int64_t)size),
                   "%s", d.err.message);
            free(exact);
        }
        /* What follows is not part of the picture. */
        decoded whole = decode_all(dec, file.bytes, file.size);
        add_bytes(&file, "rubbish", 7);
        decoded more = decode_all(dec, file.bytes, file.size);
        CHECK(more.rc == 0 && memcmp(more.field.data, whole.field.data, whole.field.bytes) == 0);
        decoded_free(&more);
        decoded_free(&whole);
        free(file.bytes);
    }
}

/* Cut, and with a header that agrees: only libwebp can see it. */
static void a_cut_that_is_covered_up_is_an_error(void)
{
    for (size_t i = 0; i < WEBP_SPECS; i++) {
        const webp_spec *spec = &webp_specs[i];
        if (spec->animated)
            continue;
        made file = make_webp(spec, COLS, ROWS, i);
        for (size_t size = 14; size + 1 < file.size; size++) {
            put_le(file.bytes + 4, (uint32_t)size - 8, 4);
            decoded d = decode_all(dec, file.bytes, size);
            CHECKF(d.rc == PST_ECORRUPT, "%s cut at %zu: %d", spec->name, size, d.rc);
            decoded_free(&d);
        }
        free(file.bytes);
    }
}

int main(void)
{
    dec = psti_decoder_new();
    RUN(channels_follow_the_options);
    RUN(lossless_gives_the_pixels_back);
    RUN(an_animation_is_its_first_frame);
    RUN(frames_must_fit);
    RUN(masks_are_lossless_and_grey);
    RUN(orientation_is_followed_when_asked);
    RUN(damage_gives_one_answer);
    RUN(every_cut_is_an_error);
    RUN(a_cut_that_is_covered_up_is_an_error);
    psti_decoder_free(dec);
    return check_report();
}
#endif
