/* SPDX-License-Identifier: Apache-2.0
 * Decodes pictures for the parity test: reads lines "PATH TAB MODE TAB TOP LEFT ROWS COLS" from
 * standard input (ROWS 0 = all) and answers each with a line "ROWS COLS CHANNELS BYTES-PER-SAMPLE
 * DAMAGED-ROW DETAIL" and the window's raw bytes, or a line "error CODE MESSAGE". MODE: rgb gray
 * keep mask orient, and of recordings wave wave-keep. With arguments FILE [TOP LEFT ROWS COLS] it
 * writes raw RGB bytes; with --make DIR it writes pictures of every kind that make_images.h and
 * make_webp.h know into DIR, with --make-audio DIR the recordings that make_audio.h knows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/make_audio.h"

typedef struct request {
    char path[4096], mode[16];
    psti_window window;
} request;

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*size ? *size : 1);
    if (fread(bytes, 1, *size, f) != *size)
        *size = 0;
    fclose(f);
    return bytes;
}

static psti_decode_options options_of(const char *mode)
{
    psti_decode_options opts = {.kind = PST_IMAGE, .limits = psti_limits_default};
    if (strcmp(mode, "gray") == 0)
        opts.color = PSTI_COLOR_GRAY;
    if (strcmp(mode, "keep") == 0)
        opts.color = PSTI_COLOR_KEEP;
    if (strcmp(mode, "mask") == 0)
        opts.kind = PST_MASK;
    opts.orient = strcmp(mode, "orient") == 0;
    if (strncmp(mode, "wave", 4) == 0)
        opts = wave_options(mode[4] ? PSTI_COLOR_KEEP : PSTI_COLOR_RGB);
    return opts;
}

static void write_window(const psti_field *field, psti_window w, const char *detail, bool head)
{
    const size_t pixel = (size_t)field->shape[2] * psti_dtype_bytes(field->dtype);
    if (w.rows == 0)
        w = (psti_window){0, 0, field->whole_rows, field->whole_cols};
    if (head)
        printf("%" PRId64 " %" PRId64 " %" PRId64 " %zu %" PRId64 " %s\n", w.rows, w.cols,
               field->shape[2], psti_dtype_bytes(field->dtype), field->first_damaged_row, detail);
    for (int64_t r = 0; r < w.rows; r++) {
        const int64_t row = w.top + r - field->y0, col = w.left - field->x0;
        fwrite(field->data + (size_t)row * field->stride + (size_t)col * pixel, pixel,
               (size_t)w.cols, stdout);
    }
}

static int answer(psti_decoder *dec, const request *req, bool head)
{
    size_t size;
    uint8_t *bytes = read_file(req->path, &size), *dst = NULL;
    const psti_decode_options opts = options_of(req->mode);
    pst_error err = {0};
    psti_picture pic;
    psti_decode_need need;
    psti_field field;
    int rc = bytes ? psti_decoder_begin(dec, bytes, size, &opts, &pic, &err) : -1;
    if (rc == 0)
        rc = psti_decoder_need(dec, &req->window, &need, &err);
    if (rc == 0)
        dst = malloc(need.out_bytes);
    if (rc == 0)
        rc = psti_decoder_run(dec, &need, -1, dst, &field, &err);
    if (rc == 0)
        write_window(&field, req->window, pic.detail, head);
    else
        printf("error %d %s\n", rc, err.message);
    psti_decoder_end(dec);
    free(bytes);
    free(dst);
    fflush(stdout);
    return rc;
}

static void save(const char *dir, const char *kind, size_t spec, int size, made file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%zu-%d.%s", dir, spec, size, kind);
    FILE *f = fopen(path, "wb");
    if (f) {
        fwrite(file.bytes, 1, file.size, f);
        fclose(f);
    }
    free(file.bytes);
}

static int make_all(const char *dir)
{
    static const int sizes[][2] = {{1, 1}, {5, 12}, {40, 23}, {33, 97}, {150, 61}};
    for (int s = 0; s < 5; s++) {
        for (size_t i = 0; i < JPEG_SPECS; i++)
            save(dir, "jpg", i, s, make_jpeg(&jpeg_specs[i], sizes[s][0], sizes[s][1], i));
#ifdef PSTI_HAVE_PNG
        for (size_t i = 0; i < PNG_SPECS; i++)
            save(dir, "png", i, s, make_png(&png_specs[i], sizes[s][0], sizes[s][1], i));
#endif
#ifdef PSTI_HAVE_WEBP
        for (size_t i = 0; i < WEBP_SPECS; i++)
            save(dir, "webp", i, s, make_webp(&webp_specs[i], sizes[s][0], sizes[s][1], i));
#endif
    }
    return 0;
}

static int make_audio(const char *dir)
{
    static const int frames[] = {1, 33, 1500};
    for (int s = 0; s < 3; s++) {
        for (size_t i = 0; i < WAV_SPECS; i++)
            save(dir, "wav", i, s, make_wav(&wav_specs[i], frames[s], i));
#ifdef PSTI_HAVE_FLAC
        /* libsndfile reads up to 24 bits. */
        for (size_t i = 0; i < FLAC_SPECS; i++)
            if (flac_specs[i].bits % 8 == 0 && flac_specs[i].bits <= 24)
                save(dir, "flac", i, s, make_flac(&flac_specs[i], frames[s], i));
#endif
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--make") == 0)
        return make_all(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--make-audio") == 0)
        return make_audio(argv[2]);
    psti_decoder *dec = psti_decoder_new();
    request req = {.mode = "rgb"};
    int rc = 0;
    if (argc > 1) {
        snprintf(req.path, sizeof req.path, "%s", argv[1]);
        if (argc > 5)
            req.window =
                (psti_window){atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), atoll(argv[5])};
        rc = answer(dec, &req, false);
    }
    char line[5000];
    while (argc <= 1 && fgets(line, sizeof line, stdin))
        if (sscanf(line, "%4095[^\t]\t%15[^\t]\t%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64,
                   req.path, req.mode, &req.window.top, &req.window.left, &req.window.rows,
                   &req.window.cols) == 6)
            answer(dec, &req, true);
    psti_decoder_free(dec);
    return rc < 0 ? 1 : 0;
}
