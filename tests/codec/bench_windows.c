/* SPDX-License-Identifier: Apache-2.0
 * CPU time of decoding windows of photos, beside a plain loop over libjpeg-turbo that crop-decodes
 * the same windows with the same pad and early stop. Interleaved pairs; prints each side's fastest,
 * the median ratio and its spread. Argument: a folder of JPEGs (PENSTOCK_PHOTOS where there is
 * none). */
#include <ftw.h>
#include <setjmp.h>
#include <time.h>

#include "codec/make_images.h"

enum { FILES = 512, PAIRS = 11 };

static made files[FILES];
static psti_window windows[FILES];
static size_t count;
static uint8_t *out;

static int add_file(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)ftw;
    FILE *f = kind == FTW_F && count < FILES ? fopen(path, "rb") : NULL;
    if (!f)
        return 0;
    made file = {malloc((size_t)st->st_size + 1), (size_t)st->st_size};
    if (fread(file.bytes, 1, file.size, f) == file.size &&
        psti_format_sniff(file.bytes, file.size) == PSTI_FORMAT_JPEG)
        files[count++] = file;
    else
        free(file.bytes);
    fclose(f);
    return 0;
}

/* Windows of 8 to 100 % of the area, near square: what random_resized_crop draws. */
static void draw_windows(psti_decoder *dec)
{
    const psti_decode_options opts = plain_options();
    uint64_t state = 3;
    size_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        psti_picture pic;
        psti_decode_need need;
        psti_window *w = &windows[i];
        if (psti_decoder_begin(dec, files[i].bytes, files[i].size, &opts, &pic, NULL) < 0)
            continue;
        const int64_t percent = 28 + draw_below(&state, 73);
        w->rows = pic.rows * percent / 100 ? pic.rows * percent / 100 : 1;
        w->cols = pic.cols * percent / 100 ? pic.cols * percent / 100 : 1;
        w->top = draw_below(&state, pic.rows - w->rows + 1);
        w->left = draw_below(&state, pic.cols - w->cols + 1);
        psti_decoder_need(dec, w, &need, NULL);
        largest = need.out_bytes > largest ? need.out_bytes : largest;
        psti_decoder_end(dec);
    }
    out = malloc(largest + (1u << 20));
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double time_ours(psti_decoder *dec)
{
    const psti_decode_options opts = plain_options();
    const double start = cpu_now();
    for (size_t i = 0; i < count; i++) {
        psti_picture pic;
        psti_decode_need need;
        psti_field field;
        if (psti_decoder_begin(dec, files[i].bytes, files[i].size, &opts, &pic, NULL) == 0 &&
            psti_decoder_need(dec, &windows[i], &need, NULL) == 0)
            psti_decoder_run(dec, &need, -1, out, &field, NULL);
        psti_decoder_end(dec);
    }
    return cpu_now() - start;
}

static jmp_buf plain_jump;

static void plain_exit(j_common_ptr cinfo)
{
    (void)cinfo;
    longjmp(plain_jump, 1);
}

static void plain_message(j_common_ptr cinfo, int level)
{
    (void)cinfo;
    (void)level;
}

static void plain_decode(struct jpeg_decompress_struct *c, const made *file, const psti_window *w)
{
    jpeg_mem_src(c, file->bytes, (unsigned long)file->size);
    jpeg_read_header(c, TRUE);
    const int comps = c->num_components == 4 ? 4 : 3;
    c->out_color_space = comps == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(c);
    const int64_t left = w->left > 8 ? w->left - 8 : 0, top = w->top > 8 ? w->top - 8 : 0;
    const int64_t right =
        w->left + w->cols + 8 < c->output_width ? w->left + w->cols + 8 : c->output_width;
    const int64_t bottom =
        w->top + w->rows + 8 < c->output_height ? w->top + w->rows + 8 : c->output_height;
    JDIMENSION x = (JDIMENSION)left, width = (JDIMENSION)(right - left);
    jpeg_crop_scanline(c, &x, &width);
    jpeg_skip_scanlines(c, (JDIMENSION)top);
    const size_t stride = (size_t)width * (size_t)comps;
    while (c->output_scanline < bottom) {
        JSAMPROW rows[4];
        for (size_t i = 0; i < 4; i++)
            rows[i] = out + ((size_t)(c->output_scanline - top) + i) * stride;
        jpeg_read_scanlines(c, rows, 4);
    }
    jpeg_abort_decompress(c);
}

static double time_plain(void)
{
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    const double start = cpu_now();
    c.err = jpeg_std_error(&errors);
    errors.error_exit = plain_exit;
    errors.emit_message = plain_message;
    jpeg_create_decompress(&c);
    for (volatile size_t i = 0; i < count; i++) {
        if (setjmp(plain_jump) == 0)
            plain_decode(&c, &files[i], &windows[i]);
        else
            jpeg_abort_decompress(&c);
    }
    jpeg_destroy_decompress(&c);
    return cpu_now() - start;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : getenv("PENSTOCK_PHOTOS");
    if (!folder || nftw(folder, add_file, 16, 0) != 0 || count == 0) {
        printf("skip: no photos\n");
        return 77;
    }
    psti_decoder *dec = psti_decoder_new();
    draw_windows(dec);
    double ratio[PAIRS], ours = 1e9, plain = 1e9;
    time_ours(dec);
    for (int i = 0; i < PAIRS; i++) {
        const double a = time_plain(), b = time_ours(dec);
        plain = a < plain ? a : plain;
        ours = b < ours ? b : ours;
        ratio[i] = a / b;
    }
    qsort(ratio, PAIRS, sizeof *ratio, compare);
    printf("%zu windows: plain %.1f us, ours %.1f us a picture (fastest); speed ours/plain %.3f "
           "(%.3f to %.3f)\n",
           count, plain * 1e6 / (double)count, ours * 1e6 / (double)count, ratio[PAIRS / 2],
           ratio[0], ratio[PAIRS - 1]);
    printf("{\"pictures\": %zu, \"plain_us\": %.2f, \"ours_us\": %.2f, \"ratio\": %.4f}\n", count,
           plain * 1e6 / (double)count, ours * 1e6 / (double)count, ratio[PAIRS / 2]);
    for (size_t i = 0; i < count; i++)
        free(files[i].bytes);
    free(out);
    psti_decoder_free(dec);
    return 0;
}
