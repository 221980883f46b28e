/* SPDX-License-Identifier: Apache-2.0
 * penstock synth images: made-up photographs in class folders. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "cli.h"
#include "scene.h"
#include "synth.h"

/* What one file is like, drawn from (seed, number). */
typedef struct photo {
    scene scene;
    int quality;
    bool grey, progressive, halved; /* halved: colour at half the resolution */
} photo;

/* ---- what a photo is like ------------------------------------------------------------------- */

static void draw_size(draws *d, int *width, int *height)
{
    static const struct {
        int permille, width, height;
    } sizes[] = {{470, 500, 375}, {140, 375, 500}, {120, 500, 333}, {50, 333, 500},
                 {40, 500, 500},  {40, 640, 480},  {20, 480, 640},  {30, 400, 300},
                 {30, 320, 240},  {20, 256, 256},  {10, 800, 600},  {5, 1024, 768}};
    int at = draws_int(d, 0, 999);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        at -= sizes[i].permille;
        if (at < 0) {
            *width = sizes[i].width;
            *height = sizes[i].height;
            return;
        }
    }
    *width = draws_int(d, 150, 700); /* the rest: any */
    *height = draws_int(d, 150, 700);
}

static photo draw_photo(uint64_t seed, int64_t number, int64_t class_index, int64_t classes)
{
    draws d = draws_of(seed, (uint64_t)number + 16);
    photo p = {.quality = draws_int(&d, 93, 98)};
    p.scene.seed = draws_u64(&d);
    p.scene.hue = (int)(class_index * 1536 / classes) + draws_int(&d, -30, 30);
    p.scene.texture = draws_int(&d, 70, 440);
    p.scene.grain = draws_int(&d, 80, 440);
    p.grey = draws_int(&d, 0, 99) < 3;
    p.progressive = draws_int(&d, 0, 99) < 4;
    p.halved = draws_int(&d, 0, 99) < 25;
    draw_size(&d, &p.scene.width, &p.scene.height);
    return p;
}

/* ---- JPEG ----------------------------------------------------------------------------------- */

/* A thread's encoder. libjpeg's jumps stay in this file. */
typedef struct press {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    unsigned char *buf; /* kept from picture to picture */
    unsigned long capacity, size;
    canvas canvas;
} press;

static void on_jpeg_error(j_common_ptr jpeg)
{
    press *p = jpeg->client_data;
    longjmp(p->out, 1);
}

static void *press_new(void)
{
    press *p = cli_alloc(sizeof *p);
    memset(p, 0, sizeof *p);
    p->jpeg.err = jpeg_std_error(&p->errors);
    p->errors.error_exit = on_jpeg_error;
    p->jpeg.client_data = p;
    p->capacity = 4 << 20;
    p->buf = cli_alloc(p->capacity);
    return p;
}

static void press_free(void *tools)
{
    press *p = tools;
    canvas_fini(&p->canvas);
    free(p->buf);
    free(p);
}

static void set_parameters(struct jpeg_compress_struct *jpeg, const photo *like)
{
    jpeg->image_width = (JDIMENSION)like->scene.width;
    jpeg->image_height = (JDIMENSION)like->scene.height;
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_YCbCr;
    jpeg_set_defaults(jpeg);
    jpeg_set_colorspace(jpeg, like->grey ? JCS_GRAYSCALE : JCS_YCbCr);
    jpeg_set_quality(jpeg, like->quality, TRUE);
    jpeg->dct_method = JDCT_ISLOW;
    if (!like->grey && !like->halved)
        jpeg->comp_info[0].h_samp_factor = jpeg->comp_info[0].v_samp_factor = 1;
    if (like->progressive)
        jpeg_simple_progression(jpeg);
}

/* Encodes the canvas into p->buf, p->size bytes. Returns 0 or an errno. */
static int press_photo(press *p, const photo *like)
{
    unsigned char *const before = p->buf;
    p->size = p->capacity;
    if (setjmp(p->out) != 0) {
        jpeg_destroy_compress(&p->jpeg);
        return ENOMEM; /* all that can go wrong with parameters of our own */
    }
    /* A new one each time: a progressive picture leaves its own Huffman tables behind in the old
     * one. */
    jpeg_create_compress(&p->jpeg);
    jpeg_mem_dest(&p->jpeg, &p->buf, &p->size);
    set_parameters(&p->jpeg, like);
    jpeg_start_compress(&p->jpeg, TRUE);
    while (p->jpeg.next_scanline < p->jpeg.image_height) {
        JSAMPROW row =
            p->canvas.pixels + (size_t)p->jpeg.next_scanline * (size_t)like->scene.width * 3;
        jpeg_write_scanlines(&p->jpeg, &row, 1);
    }
    jpeg_finish_compress(&p->jpeg);
    jpeg_destroy_compress(&p->jpeg);
    if (p->buf != before) { /* it was too small: the library made a larger one, which is ours now */
        free(before);
        p->capacity = p->size;
    }
    return 0;
}

/* ---- files --------------------------------------------------------------------------------- */

static int make_photo(const synth_values *v, void *tools, int64_t number, char *path,
                      int64_t *bytes)
{
    press *p = tools;
    const int64_t class_index = number % v->classes;
    const photo like = draw_photo(v->seed, number, class_index, v->classes);
    scene_render(&like.scene, &p->canvas);
    snprintf(path, PATH_MAX, "%s/class_%03lld/img_%06lld.jpg", v->dir, (long long)class_index,
             (long long)number);
    const int error = press_photo(p, &like);
    *bytes = (int64_t)p->size;
    return error ? error : synth_write(path, p->buf, p->size);
}

static int make_classes(const synth_values *v)
{
    int exit_code = CLI_OK;
    const int64_t used = v->count < v->classes ? v->count : v->classes;
    for (int64_t i = 0; i < used && exit_code == CLI_OK; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/class_%03lld", v->dir, (long long)i) >=
            (int)sizeof path - 32)
            return fail("the path %.60s… is too long", v->dir);
        exit_code = synth_folder(path);
    }
    return exit_code;
}

const synth_kind synth_images = {
    .name = "images",
    .things = "photos",
    .folders = make_classes,
    .tools_new = press_new,
    .tools_free = press_free,
    .make = make_photo,
};
