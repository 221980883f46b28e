/* SPDX-License-Identifier: Apache-2.0
 * penstock synth images: made-up photographs in class folders. */
#include <limits.h>
#include <stdio.h>

#include "cli.h"
#include "press.h"
#include "scene.h"
#include "synth.h"

/* What one file is like, drawn from (seed, number). */
typedef struct photo {
    scene scene;
    press_like like;
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
    photo p = {.like.quality = draws_int(&d, 93, 98)};
    p.scene.seed = draws_u64(&d);
    p.scene.hue = (int)(class_index * 1536 / classes) + draws_int(&d, -30, 30);
    p.scene.texture = draws_int(&d, 70, 440);
    p.scene.grain = draws_int(&d, 80, 440);
    p.like.grey = draws_int(&d, 0, 99) < 3;
    p.like.progressive = draws_int(&d, 0, 99) < 4;
    p.like.halved = draws_int(&d, 0, 99) < 25;
    draw_size(&d, &p.scene.width, &p.scene.height);
    return p;
}

/* ---- files --------------------------------------------------------------------------------- */

static int make_photo(const synth_values *v, void *tools, int64_t number, char *path,
                      int64_t *bytes)
{
    press *p = tools;
    const int64_t class_index = number % v->classes;
    const photo made = draw_photo(v->seed, number, class_index, v->classes);
    scene_render(&made.scene, &p->canvas);
    snprintf(path, PATH_MAX, "%s/class_%03lld/img_%06lld.jpg", v->dir, (long long)class_index,
             (long long)number);
    const int error = press_picture(p, &made.scene, &made.like);
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
