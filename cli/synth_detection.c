/* SPDX-License-Identifier: Apache-2.0
 * penstock synth detection: made-up photographs with objects in them, and COCO annotations:
 * DIR/train/000000000001.jpg …, DIR/annotations/instances_train.json. Sizes of pictures, and how
 * many objects of which size there are, are about those of COCO. What an object looks like tells
 * its class. Coordinates are whole hundredths of a pixel. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "press.h"
#include "scene.h"
#include "synth.h"

enum { OBJECTS_MAX = 63, POINTS_MAX = 60, HUNDRED = 100 };

typedef struct object {
    int category; /* from 1 */
    int points;
    int x[POINTS_MAX], y[POINTS_MAX]; /* hundredths of a pixel */
    int left, top, right, bottom;     /* of the box, the same */
} object;

/* What one picture is like, drawn from (seed, number). */
typedef struct view {
    scene scene;
    press_like like;
    int count;
    object objects[OBJECTS_MAX];
} view;

/* ---- what is drawn --------------------------------------------------------------------------- */

static double unit(draws *d)
{
    return (double)(draws_u64(d) >> 11) * 0x1p-53;
}

static void draw_size(draws *d, double side, scene *s)
{
    static const struct {
        int permille, width, height;
    } sizes[] = {{510, 640, 480}, {140, 640, 427}, {110, 480, 640}, {50, 427, 640},
                 {50, 500, 375},  {30, 640, 640},  {20, 375, 500},  {20, 640, 360}};
    int at = draws_int(d, 0, 999);
    int width = draws_int(d, 300, 640), height = draws_int(d, 300, 640); /* the rest: any */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int before = at;
        at -= sizes[i].permille;
        if (before >= 0 && at < 0) {
            width = sizes[i].width;
            height = sizes[i].height;
        }
    }
    s->width = (int)fmax(16, width * side + 0.5);
    s->height = (int)fmax(16, height * side + 0.5);
}

/* One and more, 7.3 on average, every hundredth picture none. */
static int draw_count(draws *d)
{
    int count = 1;
    if (draws_int(d, 0, 99) == 0)
        return 0;
    while (count < OBJECTS_MAX && draws_int(d, 0, 999) >= 137)
        count++;
    return count;
}

/* Small, medium or large, as COCO counts them: below 32 x 32, below 96 x 96. */
static double draw_area(draws *d, const scene *s, double scale)
{
    const int kind = draws_int(d, 0, 99);
    const double low = kind < 41   ? 8
                       : kind < 75 ? 32
                                   : 96,
                 high = kind < 41   ? 32
                        : kind < 75 ? 96
                                    : 400;
    const double side = low + (high - low) * unit(d) * (kind < 75 ? 1 : unit(d));
    const double most = 0.8 * s->width * s->height;
    const double area = side * side * scale;
    return area < most ? area : most;
}

/* Points on an ellipse, by the rational form of the circle: no libm, so the same everywhere. */
static void draw_outline(draws *d, const scene *s, double width, double height, object *o)
{
    const double left = unit(d) * (s->width - width), top = unit(d) * (s->height - height);
    o->points = draws_int(d, 8, POINTS_MAX);
    o->left = o->top = INT_MAX;
    o->right = o->bottom = 0;
    for (int i = 0; i < o->points; i++) {
        const double turn = 4.0 * i / o->points;
        const int quarter = (int)turn;
        const double t = turn - quarter, by = 0.5 * (0.85 + 0.15 * unit(d));
        double x = (1 - t * t) / (1 + t * t), y = 2 * t / (1 + t * t);
        for (int q = 0; q < quarter; q++) {
            const double keep = x;
            x = -y;
            y = keep;
        }
        o->x[i] = (int)(HUNDRED * (left + width * (0.5 + by * x)) + 0.5);
        o->y[i] = (int)(HUNDRED * (top + height * (0.5 + by * y)) + 0.5);
        o->left = o->x[i] < o->left ? o->x[i] : o->left;
        o->top = o->y[i] < o->top ? o->y[i] : o->top;
        o->right = o->x[i] > o->right ? o->x[i] : o->right;
        o->bottom = o->y[i] > o->bottom ? o->y[i] : o->bottom;
    }
}

static void draw_object(draws *d, const synth_values *v, const scene *s, object *o)
{
    const double area = draw_area(d, s, v->scale) * (4 / 3.14), shape = 0.5 + 1.5 * unit(d);
    double width = sqrt(area * shape), height = sqrt(area / shape);
    width = fmin(fmax(width, 3), s->width - 1);
    height = fmin(fmax(height, 3), s->height - 1);
    o->category = draws_int(d, 1, (int)v->classes);
    draw_outline(d, s, width, height, o);
}

static void draw_view(const synth_values *v, int64_t number, view *out)
{
    draws d = draws_of(v->seed, (uint64_t)number + 16);
    *out = (view){.like.quality = draws_int(&d, 88, 95), .like.halved = true};
    out->scene.seed = draws_u64(&d);
    out->scene.hue = draws_int(&d, 0, 1535);
    out->scene.texture = draws_int(&d, 70, 440);
    out->scene.grain = draws_int(&d, 80, 300);
    out->like.grey = draws_int(&d, 0, 99) < 1;
    draw_size(&d, sqrt(v->scale), &out->scene);
    out->count = draw_count(&d);
    for (int i = 0; i < out->count; i++)
        draw_object(&d, v, &out->scene, &out->objects[i]);
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* Where the outline crosses the middle of a row, from left to right; how many. */
static int crossings(const object *o, int row, double *at)
{
    const double y = HUNDRED * (row + 0.5);
    int count = 0;
    for (int i = 0; i < o->points; i++) {
        const int next = (i + 1) % o->points;
        const double y0 = o->y[i], y1 = o->y[next];
        if ((y0 <= y) == (y1 <= y))
            continue;
        const double x = o->x[i] + (o->x[next] - o->x[i]) * (y - y0) / (y1 - y0);
        int place = count++;
        for (; place > 0 && at[place - 1] > x; place--)
            at[place] = at[place - 1];
        at[place] = x;
    }
    return count;
}

static uint8_t towards(int from, int to)
{
    return (uint8_t)(from + (to - from) * 3 / 4);
}

/* A class has a colour, and stripes of a width of its own. */
static void paint(const view *v, const object *o, uint8_t *pixels)
{
    const int stripe = 2 + o->category % 5;
    const int cb = o->category * 67 % 200 + 28, cr = o->category * 131 % 200 + 28;
    const int last =
        (o->bottom / HUNDRED) + 1 < v->scene.height ? (o->bottom / HUNDRED) + 1 : v->scene.height;
    for (int row = o->top / HUNDRED; row < last; row++) {
        double at[POINTS_MAX];
        const int count = crossings(o, row, at);
        for (int k = 0; k + 1 < count; k += 2) {
            int x = (int)(at[k] / HUNDRED + 0.5);
            const int end = (int)(at[k + 1] / HUNDRED + 0.5);
            for (; x < end && x < v->scene.width; x++) {
                uint8_t *pixel = pixels + 3 * ((size_t)row * (size_t)v->scene.width + (size_t)x);
                pixel[0] = towards(pixel[0], (x / stripe + row / stripe) & 1 ? 190 : 80);
                pixel[1] = towards(pixel[1], cb);
                pixel[2] = towards(pixel[2], cr);
            }
        }
    }
}

static int make_picture(const synth_values *v, void *tools, int64_t number, char *path,
                        int64_t *bytes)
{
    press *p = tools;
    view *like = cli_alloc(sizeof *like);
    draw_view(v, number, like);
    scene_render(&like->scene, &p->canvas);
    for (int i = 0; i < like->count; i++)
        paint(like, &like->objects[i], p->canvas.pixels);
    snprintf(path, PATH_MAX, "%s/train/%012lld.jpg", v->dir, (long long)number + 1);
    const int error = press_picture(p, &like->scene, &like->like);
    free(like);
    *bytes = (int64_t)p->size;
    return error ? error : synth_write(path, p->buf, p->size);
}

/* ---- annotations ----------------------------------------------------------------------------- */

static double area_of(const object *o)
{
    double twice = 0;
    for (int i = 0; i < o->points; i++) {
        const int next = (i + 1) % o->points;
        twice += (double)o->x[i] * o->y[next] - (double)o->x[next] * o->y[i];
    }
    return fabs(twice) / 2 / HUNDRED / HUNDRED;
}

static void write_number(FILE *out, int hundredths)
{
    fprintf(out, "%d.%02d", hundredths / HUNDRED, hundredths % HUNDRED);
}

static void write_object(FILE *out, const object *o, int64_t image, int64_t id)
{
    fprintf(out, "%s\n{\"id\": %lld, \"image_id\": %lld, \"category_id\": %d, \"iscrowd\": 0, ",
            id > 1 ? "," : "", (long long)id, (long long)image, o->category);
    fprintf(out, "\"area\": %.4f, \"bbox\": [", area_of(o));
    const int box[4] = {o->left, o->top, o->right - o->left, o->bottom - o->top};
    for (int i = 0; i < 4; i++) {
        fputs(i ? ", " : "", out);
        write_number(out, box[i]);
    }
    fputs("], \"segmentation\": [[", out);
    for (int i = 0; i < o->points; i++) {
        fputs(i ? ", " : "", out);
        write_number(out, o->x[i]);
        fputs(", ", out);
        write_number(out, o->y[i]);
    }
    fputs("]]}", out);
}

static void write_notes(FILE *out, const synth_values *v, view *like)
{
    fputs("{\"images\": [", out);
    for (int64_t i = 0; i < v->count; i++) {
        draw_view(v, i, like);
        fprintf(out,
                "%s\n{\"id\": %lld, \"file_name\": \"%012lld.jpg\", \"width\": %d, \"height\": %d}",
                i ? "," : "", (long long)i + 1, (long long)i + 1, like->scene.width,
                like->scene.height);
    }
    fputs("],\n\"annotations\": [", out);
    int64_t id = 0;
    for (int64_t i = 0; i < v->count; i++) {
        draw_view(v, i, like);
        for (int k = 0; k < like->count; k++)
            write_object(out, &like->objects[k], i + 1, ++id);
    }
    fputs("],\n\"categories\": [", out);
    for (int64_t i = 1; i <= v->classes; i++)
        fprintf(out, "%s\n{\"id\": %lld, \"name\": \"class_%03lld\"}", i > 1 ? "," : "",
                (long long)i, (long long)i);
    fputs("]}\n", out);
}

static int make_notes(const synth_values *v, char *path, int64_t *bytes)
{
    snprintf(path, PATH_MAX, "%s/annotations/instances_train.json", v->dir);
    FILE *out = fopen(path, "we");
    if (!out)
        return errno;
    view *like = cli_alloc(sizeof *like);
    write_notes(out, v, like);
    free(like);
    int error = fflush(out) != 0 || ferror(out) ? errno : 0;
    *bytes = ftell(out);
    if (fclose(out) != 0 && error == 0)
        error = errno;
    if (error != 0)
        remove(path);
    return error;
}

static int make_folders(const synth_values *v)
{
    static const char *const names[] = {"train", "annotations"};
    int exit_code = CLI_OK;
    for (size_t i = 0; i < 2 && exit_code == CLI_OK; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s", v->dir, names[i]) >= (int)sizeof path - 32)
            return fail("the path %.60s… is too long", v->dir);
        exit_code = synth_folder(path);
    }
    return exit_code;
}

const synth_kind synth_detection = {
    .name = "detection",
    .things = "pictures",
    .scales = true,
    .folders = make_folders,
    .tools_new = press_new,
    .tools_free = press_free,
    .make = make_picture,
    .end = make_notes,
};
