/* SPDX-License-Identifier: Apache-2.0
 * The decode limit. Each thread has its own decoder and output buffer, reads files from memory and
 * shares nothing but the start signal and the end of the time. libjpeg's jumps stay in this file.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

#include "declimit.h"

enum { PAD = 8, TRIES = 10, THREADS_MAX = 1024 };

typedef struct window {
    int top, left, rows, cols;
} window;

typedef struct runner {
    pthread_t thread;
    const declimit_file *files;
    size_t count;
    uint64_t state; /* of the generator */
    double seconds;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    uint8_t *pixels;
    size_t capacity;
    declimit_result result;
} runner;

static double seconds_now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- windows -------------------------------------------------------------------------------- */

static double uniform(runner *r)
{
    uint64_t x = r->state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

/* The largest centred window whose ratio is allowed; taken when ten draws did not fit. */
static window central_window(int rows, int cols)
{
    const double ratio = (double)cols / rows;
    window w = {.rows = rows, .cols = cols};
    if (ratio < 3.0 / 4)
        w.rows = (int)round(cols / (3.0 / 4));
    else if (ratio > 4.0 / 3)
        w.cols = (int)round(rows * (4.0 / 3));
    w.top = (rows - w.rows) / 2;
    w.left = (cols - w.cols) / 2;
    return w;
}

static window draw_window(runner *r, int rows, int cols)
{
    for (int i = 0; i < TRIES; i++) {
        const double area = (double)rows * cols * (0.08 + 0.92 * uniform(r));
        const double low = log(3.0 / 4), ratio = exp(low + (log(4.0 / 3) - low) * uniform(r));
        window w = {.rows = (int)round(sqrt(area / ratio)), .cols = (int)round(sqrt(area * ratio))};
        if (w.rows < 1 || w.cols < 1 || w.rows > rows || w.cols > cols)
            continue;
        w.top = (int)(uniform(r) * (rows - w.rows + 1));
        w.left = (int)(uniform(r) * (cols - w.cols + 1));
        return w;
    }
    return central_window(rows, cols);
}

static window pad_window(window w, int rows, int cols)
{
    const int top = w.top > PAD ? w.top - PAD : 0, left = w.left > PAD ? w.left - PAD : 0;
    const int bottom = w.top + w.rows + PAD < rows ? w.top + w.rows + PAD : rows;
    const int right = w.left + w.cols + PAD < cols ? w.left + w.cols + PAD : cols;
    return (window){.top = top, .left = left, .rows = bottom - top, .cols = right - left};
}

/* ---- decoding ------------------------------------------------------------------------------- */

static void on_error(j_common_ptr jpeg)
{
    runner *r = jpeg->client_data;
    longjmp(r->out, 1);
}

static void on_message(j_common_ptr jpeg, int level)
{
    (void)jpeg, (void)level; /* warnings do not matter for the speed */
}

static int reserve(runner *r, size_t bytes)
{
    if (bytes <= r->capacity)
        return 0;
    free(r->pixels);
    r->pixels = malloc(bytes);
    r->capacity = r->pixels ? bytes : 0;
    return r->pixels ? 0 : -1;
}

static int decode_window(runner *r, const declimit_file *file)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    if (setjmp(r->out) != 0) {
        jpeg_abort_decompress(jpeg);
        return -1;
    }
    jpeg_mem_src(jpeg, file->bytes, (unsigned long)file->size);
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->jpeg_color_space != JCS_CMYK && jpeg->jpeg_color_space != JCS_YCCK)
        jpeg->out_color_space = JCS_RGB;
    const int rows = (int)jpeg->image_height, cols = (int)jpeg->image_width;
    const window w = pad_window(draw_window(r, rows, cols), rows, cols);
    jpeg_start_decompress(jpeg);
    JDIMENSION left = (JDIMENSION)w.left, width = (JDIMENSION)w.cols;
    jpeg_crop_scanline(jpeg, &left, &width);
    const size_t stride = (size_t)jpeg->output_width * (size_t)jpeg->output_components;
    if (reserve(r, stride * (size_t)w.rows) != 0)
        longjmp(r->out, 1);
    if (w.top > 0)
        jpeg_skip_scanlines(jpeg, (JDIMENSION)w.top);
    for (int done = 0; done < w.rows;) {
        JSAMPROW row = r->pixels + (size_t)done * stride;
        done += (int)jpeg_read_scanlines(jpeg, &row, 1);
    }
    jpeg_abort_decompress(jpeg); /* early stop: the rows below are not wanted */
    return 0;
}

/* ---- threads -------------------------------------------------------------------------------- */

static void *run_loop(void *arg)
{
    runner *r = arg;
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->jpeg.client_data = r;
    if (setjmp(r->out) != 0)
        return NULL;
    jpeg_create_decompress(&r->jpeg);
    const double begin = seconds_now(CLOCK_MONOTONIC), cpu = seconds_now(CLOCK_THREAD_CPUTIME_ID);
    double now = begin;
    for (size_t at = (size_t)(uniform(r) * (double)r->count); now - begin < r->seconds;
         at = (at + 1) % r->count) {
        if (decode_window(r, &r->files[at]) == 0)
            r->result.images++;
        else
            r->result.failures++;
        now = seconds_now(CLOCK_MONOTONIC);
    }
    r->result.seconds = now - begin;
    r->result.cpu_s = seconds_now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    jpeg_destroy_decompress(&r->jpeg);
    return NULL;
}

static void add_result(declimit_result *sum, const runner *r)
{
    sum->images += r->result.images;
    sum->failures += r->result.failures;
    sum->cpu_s += r->result.cpu_s;
    if (r->result.seconds > sum->seconds)
        sum->seconds = r->result.seconds;
}

int declimit_run(const declimit_file *files, size_t count, int threads, double seconds,
                 uint64_t seed, declimit_result *out)
{
    *out = (declimit_result){0};
    if (count == 0 || threads < 1 || threads > THREADS_MAX)
        return -EINVAL;
    runner *runners = calloc((size_t)threads, sizeof *runners);
    if (runners == NULL)
        return -ENOMEM;
    int started = 0, rc = 0;
    while (started < threads && rc == 0) {
        runner *r = &runners[started];
        r->files = files;
        r->count = count;
        r->seconds = seconds;
        r->state = seed * 0x9e3779b97f4a7c15u + (uint64_t)started * 0xc2b2ae3d27d4eb4fu;
        rc = -pthread_create(&r->thread, NULL, run_loop, r);
        started += rc == 0;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(runners[i].thread, NULL);
        add_result(out, &runners[i]);
        free(runners[i].pixels);
    }
    free(runners);
    return rc;
}

double decode_limit(const declimit_file *files, size_t count, int threads, double seconds,
                    uint64_t seed)
{
    declimit_result result;
    if (declimit_run(files, count, threads, seconds, seed, &result) != 0 || result.seconds <= 0)
        return 0;
    return (double)result.images / result.seconds;
}
