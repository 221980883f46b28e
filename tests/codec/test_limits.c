/* SPDX-License-Identifier: Apache-2.0
 * What is refused, and how: bombs from the header within 10 ms, other formats by name, misuse of a
 * decoder. */
#include <errno.h>

#include "check.h"
#include "codec/make_webp.h"
#include "core/clock.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { REFUSAL_NS = 100000000 };
#else
enum { REFUSAL_NS = 10000000 };
#endif

static psti_decoder *dec;

/* The fastest of three: the machine may be busy. */
static void check_refused(const char *name, const uint8_t *bytes, size_t size,
                          const psti_decode_options *opts, int code, const char *says)
{
    uint64_t best = UINT64_MAX;
    pst_error err = {0};
    for (int i = 0; i < 3; i++) {
        psti_picture pic;
        const uint64_t start = psti_now_ns();
        const int rc = psti_decoder_begin(dec, bytes, size, opts, &pic, &err);
        const uint64_t took = psti_now_ns() - start;
        best = took < best ? took : best;
        CHECKF(rc == code && err.code == code, "%s: %d %s", name, rc, err.message);
    }
    CHECKF(strstr(err.message, says), "%s: \"%s\" does not say \"%s\"", name, err.message, says);
    CHECKF(best < REFUSAL_NS, "%s took %llu us", name, (unsigned long long)best / 1000);
}

static size_t find_marker(const made *file, int marker)
{
    for (size_t i = 2; i + 1 < file->size; i++)
        if (file->bytes[i] == 0xFF && file->bytes[i + 1] == marker)
            return i;
    return 0;
}

static void set_size(made *file, int marker, int width, int height)
{
    uint8_t *frame = file->bytes + find_marker(file, marker);
    frame[5] = (uint8_t)(height >> 8);
    frame[6] = (uint8_t)height;
    frame[7] = (uint8_t)(width >> 8);
    frame[8] = (uint8_t)width;
}

static void huge_jpegs_are_refused(void)
{
    const psti_decode_options opts = plain_options();
    made file = make_jpeg(&jpeg_specs[5], 32, 32, 1);
    set_size(&file, 0xC0, 65500, 65500);
    check_refused("baseline", file.bytes, file.size, &opts, PST_ELIMIT,
                  "65500 x 65500 = 4290250000 pixels");
    set_size(&file, 0xC0, 10001, 10000);
    check_refused("just over", file.bytes, file.size, &opts, PST_ELIMIT,
                  "the limit is 100000000 pixels");
    set_size(&file, 0xC0, 10000, 10000);
    psti_picture pic;
    CHECK(psti_decoder_begin(dec, file.bytes, file.size, &opts, &pic, NULL) == 0);
    set_size(&file, 0xC0, 65535, 65535);
    check_refused("beyond the library", file.bytes, file.size, &opts, PST_ELIMIT, "65500");
    free(file.bytes);
    file = make_jpeg(&jpeg_specs[18], 32, 32, 1);
    set_size(&file, 0xC2, 65500, 65500);
    check_refused("progressive", file.bytes, file.size, &opts, PST_ELIMIT, "pixels");
    free(file.bytes);
}

/* The file's last scan once more, `times` times. */
static made repeat_scan(const made *file, size_t times)
{
    size_t last = 0;
    for (size_t i = 2; i + 1 < file->size; i++)
        if (file->bytes[i] == 0xFF && file->bytes[i + 1] == 0xDA)
            last = i;
    const size_t scan = file->size - 2 - last;
    made out = {malloc(file->size + scan * times), 0};
    memcpy(out.bytes, file->bytes, file->size - 2);
    out.size = file->size - 2;
    for (size_t i = 0; i < times; i++, out.size += scan)
        memcpy(out.bytes + out.size, file->bytes + last, scan);
    memcpy(out.bytes + out.size, "\xFF\xD9", 2);
    out.size += 2;
    return out;
}

static void too_many_scans_are_refused(void)
{
    const psti_decode_options opts = plain_options();
    for (size_t i = 0; i < JPEG_SPECS; i++) {
        const jpeg_spec *spec = &jpeg_specs[i];
        if (spec->scans != SCANS_PROGRESSIVE && spec->scans != SCANS_SEPARATE)
            continue;
        made file = make_jpeg(spec, 8, 8, 1);
        made few = repeat_scan(&file, 480), many = repeat_scan(&file, 500),
             bomb = repeat_scan(&file, 80000);
        decoded d = decode_all(dec, few.bytes, few.size);
        CHECKF(d.rc == 0, "%s: %s", spec->name, d.err.message);
        decoded_free(&d);
        check_refused(spec->name, many.bytes, many.size, &opts, PST_ELIMIT,
                      "the limit is 500 scans");
        check_refused(spec->name, bomb.bytes, bomb.size, &opts, PST_ELIMIT,
                      "the limit is 500 scans");
        free(few.bytes);
        free(many.bytes);
        free(bomb.bytes);
        free(file.bytes);
    }
}

static void output_is_limited(void)
{
    psti_decode_options opts = plain_options();
    made file = make_jpeg(&jpeg_specs[5], 100, 50, 1);
    opts.limits.output_bytes = 15000;
    psti_picture pic;
    CHECK(psti_decoder_begin(dec, file.bytes, file.size, &opts, &pic, NULL) == 0);
    opts.limits.output_bytes = 14999;
    check_refused("output", file.bytes, file.size, &opts, PST_ELIMIT,
                  "15000 bytes, the limit is 14999");
    opts.color = PSTI_COLOR_GRAY;
    CHECK(psti_decoder_begin(dec, file.bytes, file.size, &opts, &pic, NULL) == 0);
    opts = plain_options();
    opts.limits.pixels = 4999;
    check_refused("pixels", file.bytes, file.size, &opts, PST_ELIMIT, "100 x 50 = 5000 pixels");
    free(file.bytes);
}

#ifdef PSTI_HAVE_PNG
static uint32_t crc_of(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

static void store_be32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}
#endif

static void huge_pngs_are_refused(void)
{
#ifdef PSTI_HAVE_PNG
    const psti_decode_options opts = plain_options();
    made file = make_png(&png_specs[5], 20, 20, 1);
    static const uint32_t sizes[][2] = {
        {0x7FFFFFFF, 0x7FFFFFFF}, {0x7FFFFFFF, 1}, {1, 0x7FFFFFFF}, {10001, 10000}};
    for (size_t i = 0; i < 4; i++) {
        store_be32(file.bytes + 16, sizes[i][0]);
        store_be32(file.bytes + 20, sizes[i][1]);
        store_be32(file.bytes + 29, crc_of(file.bytes + 12, 17));
        check_refused("png", file.bytes, file.size, &opts, PST_ELIMIT,
                      "the limit is 100000000 pixels");
    }
    free(file.bytes);
#else
    const uint8_t png[] = "\x89PNG\r\n\x1A\n";
    const psti_decode_options opts = plain_options();
    check_refused("png", png, 8, &opts, PST_EFORMAT, "built without PNG");
#endif
}

/* Canvases of 2^24 a side in the extended head; the coded picture itself has 14 bits a side. */
static void huge_webps_are_refused(void)
{
    const psti_decode_options opts = plain_options();
#ifdef PSTI_HAVE_WEBP
    static const int sizes[][2] = {
        {1 << 16, 1 << 15}, {1 << 24, 1 << 7}, {1 << 7, 1 << 24}, {10001, 10000}};
    made still = make_webp(&webp_specs[0], 20, 20, 1);
    made frames = animate(&still, false, 20, 20);
    for (size_t i = 0; i < 4; i++) {
        put_le(frames.bytes + 24, (uint32_t)sizes[i][0] - 1, 3);
        put_le(frames.bytes + 27, (uint32_t)sizes[i][1] - 1, 3);
        check_refused("webp canvas", frames.bytes, frames.size, &opts, PST_ELIMIT,
                      "the limit is 100000000 pixels");
    }
    put_le(still.bytes + 26, 16383, 2);
    put_le(still.bytes + 28, 16383, 2);
    check_refused("webp frame", still.bytes, still.size, &opts, PST_ELIMIT,
                  "16383 x 16383 = 268402689 pixels");
    free(frames.bytes);
    free(still.bytes);
#else
    const uint8_t webp[] = "RIFF\x10\0\0\0WEBPVP8 ";
    check_refused("webp", webp, 16, &opts, PST_EFORMAT, "built without WebP");
#endif
}

static void other_bytes_are_named(void)
{
    const psti_decode_options opts = plain_options();
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } cases[] = {
        {"", 0, "empty"},
        {"hello, this is no picture at all\n", 33,
         "looks like text and starts \"hello, this is n\""},
        {"h", 1, "looks like text"},
        {"GIF89a\1\0\1\0", 10, "GIF is not read"},
        {"II*\0\x08\0\0\0", 8, "TIFF is not read"},
        {"\0\0\0\x1C"
         "ftypavif",
         12, "AVIF"},
        {"\x93NUMPY\x01\0v\0", 10, "read it as an array"},
        {"RIFF\x10\0\0\0WAVEfmt ", 16, "a WAV recording where a picture is wanted"},
        {"fLaC\0\0\0\x22", 8, "a FLAC recording where a picture is wanted"},
        {"\x1C\x02\0\0n+2\0\r\n\x1A\n", 12, "a NIfTI volume where a picture is wanted"},
        {"\x1F\x8B\x08\0", 4, "gzip is not read"},
        {"PK\x03\x04", 4, "zip is not read"},
        {"\x01\x02\x03\xFE", 4, "starts with the bytes 01 02 03 fe"},
        {"\x89PN", 3, "starts with the bytes 89 50 4e"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t *copy = malloc(cases[i].size + 1);
        memcpy(copy, cases[i].bytes, cases[i].size);
        check_refused(cases[i].says, copy, cases[i].size, &opts, PST_EFORMAT, cases[i].says);
        free(copy);
    }
    CHECK(psti_format_sniff((const uint8_t *)"\xFF\xD8\xFF", 3) == PSTI_FORMAT_JPEG);
    CHECK(psti_format_sniff((const uint8_t *)"\x93NUMPY", 6) == PSTI_FORMAT_NPY);
    CHECK(psti_format_sniff((const uint8_t *)"x", 0) == PSTI_FORMAT_UNKNOWN);
    CHECK(psti_format_sniff((const uint8_t *)"RIFF\x10\0\0\0WEBP", 12) == PSTI_FORMAT_WEBP);
    CHECK(strcmp(psti_format_name(PSTI_FORMAT_PNG), "png") == 0);
    CHECK(strcmp(psti_format_name(PSTI_FORMAT_WEBP), "webp") == 0);
    CHECK(strcmp(psti_format_name(PSTI_FORMAT_UNKNOWN), "unknown") == 0);
}

static void unusual_jpegs_are_refused(void)
{
    const psti_decode_options opts = plain_options();
    made file = make_jpeg(&jpeg_specs[3], 16, 16, 1);
    uint8_t *frame = file.bytes + find_marker(&file, 0xC0);
    frame[4] = 12;
    check_refused("12 bits", file.bytes, file.size, &opts, PST_EFORMAT, "12");
    frame[4] = 8;
    frame[1] = 0xC3;
    check_refused("lossless", file.bytes, file.size, &opts, PST_EFORMAT, "");
    free(file.bytes);
    const jpeg_spec two = {"two", 2, JCS_UNKNOWN, {1, 1}, {1, 1}, SCANS_ONE, 0, false, false, 80};
    file = make_jpeg(&two, 16, 16, 1);
    check_refused("two components", file.bytes, file.size, &opts, PST_EFORMAT,
                  "2 colour components");
    free(file.bytes);
}

static void misuse_is_an_error(void)
{
    const psti_decode_options opts = plain_options();
    made file = make_jpeg(&jpeg_specs[3], 16, 16, 1);
    psti_picture pic;
    psti_decode_need need = {0};
    psti_field field;
    uint8_t dst[16 * 16 * 3];
    psti_decoder_end(dec);
    CHECK(psti_decoder_need(dec, NULL, &need, NULL) == -EINVAL);
    CHECK(psti_decoder_run(dec, &need, -1, dst, &field, NULL) == -EINVAL);
    CHECK(psti_decoder_begin(dec, file.bytes, file.size, &opts, &pic, NULL) == 0);
    CHECK(psti_decoder_begin(dec, file.bytes, file.size, &opts, &pic, NULL) == 0);
    CHECK(psti_decoder_need(dec, NULL, &need, NULL) == 0);
    CHECK(psti_decoder_run(dec, &need, -1, dst, &field, NULL) == 0);
    CHECK(psti_decoder_run(dec, &need, -1, dst, &field, NULL) == -EINVAL);
    psti_decoder_end(dec);
    psti_decoder_end(dec);
    psti_decoder_free(NULL);
    free(file.bytes);
}

int main(void)
{
    dec = psti_decoder_new();
    RUN(huge_jpegs_are_refused);
    RUN(too_many_scans_are_refused);
    RUN(output_is_limited);
    RUN(huge_pngs_are_refused);
    RUN(huge_webps_are_refused);
    RUN(other_bytes_are_named);
    RUN(unusual_jpegs_are_refused);
    RUN(misuse_is_an_error);
    psti_decoder_free(dec);
    return check_report();
}
