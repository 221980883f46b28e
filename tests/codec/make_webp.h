/* SPDX-License-Identifier: Apache-2.0
 * Small WebP files of every kind, made with libwebp's encoder; animations and metadata are put
 * together here, chunk by chunk. As in make_images.h, a table entry makes the same file each time,
 * and results become the caller's. */
#ifndef PSTI_TESTS_CODEC_MAKE_WEBP_H
#define PSTI_TESTS_CODEC_MAKE_WEBP_H

#include "codec/make_images.h"

typedef struct webp_spec {
    const char *name;
    bool lossless, alpha, animated;
    int colours; /* so few that a palette is written (0 = many) */
    float quality;
    int method, simple_filter, partitions, raw_alpha;
} webp_spec;

static const webp_spec webp_specs[] = {
    {"lossy", .quality = 75, .method = 4},
    {"lossy low", .quality = 5, .method = 0},
    {"lossy high", .quality = 100, .method = 6},
    {"lossy simple filter", .quality = 40, .method = 3, .simple_filter = 1},
    {"lossy 8 partitions", .quality = 60, .method = 3, .partitions = 3},
    {"lossy+alpha", .alpha = true, .quality = 75, .method = 4},
    {"lossy+alpha as it is", .alpha = true, .quality = 75, .method = 4, .raw_alpha = 1},
    {"lossless", .lossless = true, .quality = 75, .method = 4},
    {"lossless quick", .lossless = true, .quality = 0, .method = 0},
    {"lossless slow", .lossless = true, .quality = 80, .method = 6},
    {"lossless+alpha", .lossless = true, .alpha = true, .quality = 75, .method = 4},
    {"lossless 2 colours", .lossless = true, .colours = 2, .quality = 75, .method = 4},
    {"lossless 16 colours", .lossless = true, .colours = 16, .quality = 75, .method = 4},
    {"lossless 200 colours", .lossless = true, .colours = 200, .quality = 75, .method = 4},
    {"lossy animated", .animated = true, .quality = 75, .method = 4},
    {"lossy+alpha animated", .alpha = true, .animated = true, .quality = 75, .method = 4},
    {"lossless+alpha animated", true, true, true, .quality = 75, .method = 4},
};
enum { WEBP_SPECS = sizeof webp_specs / sizeof *webp_specs };

/* ---- containers ---- */

static inline void put_le(uint8_t *p, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

static inline void add_bytes(made *file, const void *bytes, size_t size)
{
    file->bytes = realloc(file->bytes, file->size + size + 1);
    memcpy(file->bytes + file->size, bytes, size);
    file->size += size;
}

static inline void add_chunk(made *file, const char *tag, const void *bytes, size_t size)
{
    uint8_t head[8];
    memcpy(head, tag, 4);
    put_le(head + 4, (uint32_t)size, 4);
    add_bytes(file, head, 8);
    add_bytes(file, bytes, size);
    if (size & 1)
        add_bytes(file, "", 1);
}

/* The chunks that make pixels in a file of libwebp's encoder. */
static inline made coded_chunks(const made *still)
{
    const bool extended = memcmp(still->bytes + 12, "VP8X", 4) == 0;
    const size_t at = extended ? 30 : 12;
    return (made){still->bytes + at, still->size - at};
}

/* A file with a VP8X head; finish with webp_close. */
static inline made webp_open(int flags, int width, int height)
{
    made file = {NULL, 0};
    uint8_t head[10] = {(uint8_t)flags};
    put_le(head + 4, (uint32_t)width - 1, 3);
    put_le(head + 7, (uint32_t)height - 1, 3);
    add_bytes(&file, "RIFF\0\0\0\0WEBP", 12);
    add_chunk(&file, "VP8X", head, sizeof head);
    return file;
}

static inline void webp_close(made *file)
{
    put_le(file->bytes + 4, (uint32_t)file->size - 8, 4);
}

enum { WEBP_ANIMATION = 0x02, WEBP_EXIF = 0x08, WEBP_ALPHA = 0x10 };

/* Two frames of a still picture, at column 4, row 2 of a canvas that is 6 wider and 5 higher. */
static inline made animate(const made *still, bool alpha, int width, int height)
{
    const made coded = coded_chunks(still);
    made file = webp_open(WEBP_ANIMATION | (alpha ? WEBP_ALPHA : 0), width + 6, height + 5);
    add_chunk(&file, "ANIM", "\xFF\x80\x40\xFF\0\0", 6);
    for (int i = 0; i < 2; i++) {
        made frame = {NULL, 0};
        uint8_t head[16] = {0};
        put_le(head, 2, 3);
        put_le(head + 3, (uint32_t)(1 - i), 3);
        put_le(head + 6, (uint32_t)width - 1, 3);
        put_le(head + 9, (uint32_t)height - 1, 3);
        put_le(head + 12, 100, 3);
        add_bytes(&frame, head, sizeof head);
        add_bytes(&frame, coded.bytes, coded.size);
        add_chunk(&file, "ANMF", frame.bytes, frame.size);
        free(frame.bytes);
    }
    webp_close(&file);
    return file;
}

/* A still picture with an EXIF block, with or without the words before its TIFF header. */
static inline made orient_webp(const made *still, int width, int height, int orientation,
                               bool named)
{
    uint8_t exif[6 + 26] = "Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01";
    exif[6 + 19] = (uint8_t)orientation;
    const made coded = coded_chunks(still);
    made file = webp_open(WEBP_EXIF, width, height);
    add_bytes(&file, coded.bytes, coded.size);
    add_chunk(&file, "EXIF", exif + (named ? 0 : 6), sizeof exif - (named ? 0 : 6));
    webp_close(&file);
    return file;
}

/* ---- pictures ---- */

#ifdef PSTI_HAVE_WEBP
#include <webp/encode.h>

static inline void fill_webp(uint8_t *rgba, const webp_spec *spec, int width, int height,
                             uint64_t seed)
{
    const size_t bytes = (size_t)width * (size_t)height * 4;
    fill_pixels(rgba, bytes, width, 4, seed);
    for (size_t i = 0; i < bytes; i += 4) {
        if (spec->colours) {
            const int colour = (rgba[i] + rgba[i + 1]) % spec->colours;
            rgba[i] = (uint8_t)(colour * 37);
            rgba[i + 1] = (uint8_t)(colour * 11 + 5);
            rgba[i + 2] = (uint8_t)(255 - colour);
        }
        if (!spec->alpha)
            rgba[i + 3] = 255;
    }
}

/* Encodes RGBA pixels; no bytes when the encoder refuses. */
static inline made encode_webp(const webp_spec *spec, const uint8_t *rgba, int width, int height)
{
    WebPConfig config;
    WebPPicture picture;
    WebPMemoryWriter out;
    WebPConfigInit(&config);
    WebPPictureInit(&picture);
    WebPMemoryWriterInit(&out);
    config.lossless = spec->lossless;
    config.exact = 1; /* colours under alpha 0 stay */
    config.quality = spec->quality;
    config.method = spec->method;
    config.filter_type = !spec->simple_filter;
    config.partitions = spec->partitions;
    config.alpha_compression = !spec->raw_alpha;
    picture.use_argb = spec->lossless;
    picture.width = width;
    picture.height = height;
    picture.writer = WebPMemoryWrite;
    picture.custom_ptr = &out;
    const bool ok =
        WebPPictureImportRGBA(&picture, rgba, width * 4) && WebPEncode(&config, &picture);
    made file = {NULL, 0};
    if (ok)
        add_bytes(&file, out.mem, out.size);
    WebPMemoryWriterClear(&out);
    WebPPictureFree(&picture);
    return file;
}

/* Width and height are those of the coded picture; an animation's canvas is larger. */
static inline made make_webp(const webp_spec *spec, int width, int height, uint64_t seed)
{
    uint8_t *rgba = malloc((size_t)width * (size_t)height * 4);
    fill_webp(rgba, spec, width, height, seed);
    made file = encode_webp(spec, rgba, width, height);
    free(rgba);
    if (!spec->animated)
        return file;
    const made moving = animate(&file, spec->alpha, width, height);
    free(file.bytes);
    return moving;
}
#endif

#endif
