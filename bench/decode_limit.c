/* SPDX-License-Identifier: Apache-2.0
 * The limit that a loader on this machine cannot pass: libjpeg-turbo alone, crop-decoding from RAM
 * what a training job would ask for. Windows follow random_resized_crop's distribution, are widened
 * by 8 pixels and decoded to their last row only. No reads, no resize, no batches. bench/run.py
 * runs it beside the loaders.
 *
 *   decode_limit FOLDER [--threads T] [--passes P] [--seed S] [--full]
 *
 * Threads take (pass, file) pairs from one counter; each has its own decoder. Windows depend on
 * seed, pass and file, not on the thread. Prints one JSON object. */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "clocks.h"

enum { PAD = 8, MAX_THREADS = 1024 };

typedef struct file {
    uint8_t *bytes;
    size_t size;
} file;

typedef struct window {
    long top, left, rows, cols;
} window;

typedef struct setup {
    file *files;
    size_t count;
    long threads, passes;
    uint64_t seed;
    bool full;
    atomic_size_t next;   /* the next (pass, file) pair */
    atomic_size_t failed; /* pairs that libjpeg refused */
    atomic_size_t pixels; /* pixels that were written */
} setup;

/* libjpeg reports fatal errors by longjmp out of the call. */
typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    uint8_t *pixels;
    size_t cap;
} decoder;

static setup all;

/* ---- files ----------------------------------------------------------------------------------- */

static int load(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)where;
    if (type != FTW_F || st->st_size < 4)
        return 0;
    FILE *in = fopen(path, "rb");
    uint8_t *bytes = malloc((size_t)st->st_size);
    file *files = realloc(all.files, (all.count + 1) * sizeof *files);
    if (files)
        all.files = files;
    if (!in || !bytes || !files ||
        fread(bytes, 1, (size_t)st->st_size, in) != (size_t)st->st_size) {
        fprintf(stderr, "decode_limit: %s: %s\n", path, strerror(errno));
        return 1;
    }
    fclose(in);
    if (bytes[0] == 0xff && bytes[1] == 0xd8)
        all.files[all.count++] = (file){bytes, (size_t)st->st_size};
    else
        free(bytes);
    return 0;
}

/* ---- windows --------------------------------------------------------------------------------- */

static double unit(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

/* scale 0.08..1, ratio 3/4..4/3, ten tries, then the largest centred window of an allowed ratio. */
static window draw(uint64_t seed, long rows, long cols)
{
    uint64_t state = seed;
    for (int i = 0; i < 10; i++) {
        const double area = (double)rows * (double)cols * (0.08 + 0.92 * unit(&state));
        const double ratio = exp(log(3.0 / 4) + unit(&state) * (log(4.0 / 3) - log(3.0 / 4)));
        const long w = lrint(sqrt(area * ratio)), h = lrint(sqrt(area / ratio));
        if (w > 0 && w <= cols && h > 0 && h <= rows) {
            const long top = (long)(unit(&state) * (double)(rows - h + 1));
            const long left = (long)(unit(&state) * (double)(cols - w + 1));
            return (window){top, left, h, w};
        }
    }
    const double ratio = (double)cols / (double)rows;
    window win = {0, 0, rows, cols};
    if (ratio < 3.0 / 4)
        win.rows = lrint((double)cols / (3.0 / 4));
    else if (ratio > 4.0 / 3)
        win.cols = lrint((double)rows * (4.0 / 3));
    win.top = (rows - win.rows) / 2;
    win.left = (cols - win.cols) / 2;
    return win;
}

static window widen(window win, long rows, long cols)
{
    const long top = win.top > PAD ? win.top - PAD : 0, left = win.left > PAD ? win.left - PAD : 0;
    long bottom = win.top + win.rows + PAD, right = win.left + win.cols + PAD;
    bottom = bottom > rows ? rows : bottom;
    right = right > cols ? cols : right;
    return (window){top, left, bottom - top, right - left};
}

/* ---- decoding -------------------------------------------------------------------------------- */

static void on_error(j_common_ptr jpeg)
{
    decoder *dec = (decoder *)((char *)jpeg - offsetof(decoder, jpeg));
    longjmp(dec->out, 1);
}

static void on_message(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void decoder_init(decoder *dec)
{
    memset(dec, 0, sizeof *dec);
    dec->jpeg.err = jpeg_std_error(&dec->errors);
    dec->errors.error_exit = on_error;
    dec->errors.output_message = on_message;
    jpeg_create_decompress(&dec->jpeg);
}

static bool room(decoder *dec, size_t bytes)
{
    if (bytes <= dec->cap)
        return true;
    free(dec->pixels);
    dec->pixels = malloc(bytes);
    dec->cap = dec->pixels ? bytes : 0;
    return dec->pixels;
}

/* The rows of `win` go to dec->pixels; what lies below is never decoded. */
static bool decode_rows(decoder *dec, window win)
{
    struct jpeg_decompress_struct *jpeg = &dec->jpeg;
    if (win.cols < (long)jpeg->output_width) {
        JDIMENSION left = (JDIMENSION)win.left, width = (JDIMENSION)win.cols;
        jpeg_crop_scanline(jpeg, &left, &width);
    }
    const size_t stride = (size_t)jpeg->output_width * (size_t)jpeg->output_components;
    if (!room(dec, stride * (size_t)win.rows))
        return false;
    if (win.top > 0)
        jpeg_skip_scanlines(jpeg, (JDIMENSION)win.top);
    for (long row = 0; row < win.rows;) {
        JSAMPROW lines[4];
        const long left = win.rows - row, want = left < 4 ? left : 4;
        for (long i = 0; i < want; i++)
            lines[i] = dec->pixels + stride * (size_t)(row + i);
        row += (long)jpeg_read_scanlines(jpeg, lines, (JDIMENSION)want);
    }
    atomic_fetch_add_explicit(&all.pixels, (size_t)win.rows * jpeg->output_width,
                              memory_order_relaxed);
    return true;
}

static bool decode_one(decoder *dec, const file *in, uint64_t seed)
{
    struct jpeg_decompress_struct *jpeg = &dec->jpeg;
    if (setjmp(dec->out)) {
        jpeg_abort_decompress(jpeg);
        return false;
    }
    jpeg_mem_src(jpeg, in->bytes, in->size);
    jpeg_read_header(jpeg, TRUE);
    const bool cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    const long rows = (long)jpeg->image_height, cols = (long)jpeg->image_width;
    const window whole = {0, 0, rows, cols};
    const window win = all.full ? whole : widen(draw(seed, rows, cols), rows, cols);
    jpeg_start_decompress(jpeg);
    const bool ok = decode_rows(dec, win);
    jpeg_abort_decompress(jpeg);
    return ok;
}

static void *worker(void *arg)
{
    (void)arg;
    decoder dec;
    decoder_init(&dec);
    const size_t total = all.count * (size_t)all.passes;
    for (;;) {
        const size_t n = atomic_fetch_add_explicit(&all.next, 1, memory_order_relaxed);
        if (n >= total)
            break;
        if (!decode_one(&dec, &all.files[n % all.count],
                        all.seed * 0x100000001b3u + n * 0x632be59bd9b4e019u))
            atomic_fetch_add_explicit(&all.failed, 1, memory_order_relaxed);
    }
    jpeg_destroy_decompress(&dec.jpeg);
    free(dec.pixels);
    return NULL;
}

/* ---- running --------------------------------------------------------------------------------- */

static void measure(void)
{
    static pthread_t threads[MAX_THREADS];
    const double start = wall_seconds(), cpu = cpu_seconds();
    for (long i = 0; i < all.threads; i++) {
        if (pthread_create(&threads[i], NULL, worker, NULL) != 0) {
            fprintf(stderr, "decode_limit: cannot start thread %ld\n", i);
            exit(1);
        }
    }
    for (long i = 0; i < all.threads; i++)
        pthread_join(threads[i], NULL);
    const double seconds = wall_seconds() - start, cpu_s = cpu_seconds() - cpu;
    const size_t samples = all.count * (size_t)all.passes;
    printf("{\"samples\": %zu, \"failed\": %zu, \"threads\": %ld, \"seconds\": %.6f, "
           "\"samples_per_s\": %.2f, "
           "\"cpu_s\": %.6f, \"megapixels_per_s\": %.2f}\n",
           samples, atomic_load(&all.failed), all.threads, seconds, (double)samples / seconds,
           cpu_s, (double)atomic_load(&all.pixels) / seconds * 1e-6);
}

static long number(const char *text, long low, long high)
{
    char *end = NULL;
    const long value = text ? strtol(text, &end, 10) : 0;
    if (!text || *end || value < low || value > high) {
        fprintf(stderr, "decode_limit: %s: a number from %ld to %ld is wanted\n",
                text ? text : "end of line", low, high);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    const char *folder = NULL;
    all.threads = 1;
    all.passes = 5;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0)
            all.threads = number(argv[++i], 1, MAX_THREADS);
        else if (strcmp(argv[i], "--passes") == 0)
            all.passes = number(argv[++i], 1, 1000000);
        else if (strcmp(argv[i], "--seed") == 0)
            all.seed = (uint64_t)number(argv[++i], 0, 1L << 62);
        else if (strcmp(argv[i], "--full") == 0)
            all.full = true;
        else
            folder = argv[i];
    }
    if (!folder) {
        fprintf(stderr,
                "usage: decode_limit FOLDER [--threads T] [--passes P] [--seed S] [--full]\n");
        return 2;
    }
    if (nftw(folder, load, 32, 0) != 0 || all.count == 0) {
        fprintf(stderr, "decode_limit: %s: no JPEG files could be read\n", folder);
        return 1;
    }
    measure();
    for (size_t i = 0; i < all.count; i++)
        free(all.files[i].bytes);
    free(all.files);
    return 0;
}
