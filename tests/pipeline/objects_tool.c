/* SPDX-License-Identifier: Apache-2.0
 * Boxes and shapes by hand, for the parity tests: reads commands, answers in text.
 *
 *   boxes N ROWS COLS, then 4 N numbers     objects of a picture
 *   resize ROWS COLS | crop LEFT TOP ROWS COLS | pad LEFT TOP ROWS COLS | hflip | vflip
 *   affine M0..M5 ROWS COLS | empty | outside LEFT TOP RIGHT BOTTOM
 *   show                                    "ROW LEFT TOP RIGHT BOTTOM" for each, then "map" and
 * six judge ROWS COLS 4 numbers | iou 8 numbers polygons P ROWS COLS M0..M5, then P times: K and 2
 * K numbers     rows of 0 and 1 runs SHAPE_ROWS SHAPE_COLS R ROWS COLS M0..M5, then R numbers the
 * same fill TIMES                              draws the last polygons so often; nanoseconds each
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/objects.h"
#include "pipeline/polygons.h"

enum { OBJECTS_MAX = 4096, NUMBERS_MAX = 1 << 16 };

static float box[OBJECTS_MAX][4];
static int32_t row[OBJECTS_MAX];
static psti_objects objects = {.box = box, .row = row};
static psti_buf scratch;
static uint8_t packed[16 * NUMBERS_MAX];
static double points[NUMBERS_MAX], map[6];
static uint64_t counts[NUMBERS_MAX];
static size_t packed_bytes;
static int64_t rows, cols;

static double number(void)
{
    double value;
    if (scanf("%lf", &value) != 1)
        exit(1);
    return value;
}

static int64_t whole(void)
{
    return (int64_t)number();
}

static void numbers(double *to, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = number();
}

static void read_boxes(void)
{
    objects.count = (int)whole();
    const int64_t high = whole(), wide = whole();
    for (int i = 0; i < objects.count; i++) {
        row[i] = i;
        for (int k = 0; k < 4; k++)
            box[i][k] = (float)number();
    }
    psti_objects_begin(&objects, high, wide);
}

static void show(void)
{
    for (int i = 0; i < objects.count; i++)
        printf("%d %.9g %.9g %.9g %.9g\n", row[i], (double)box[i][0], (double)box[i][1],
               (double)box[i][2], (double)box[i][3]);
    printf("map");
    for (int i = 0; i < 6; i++)
        printf(" %.17g", objects.map[i]);
    printf("\n");
}

static void judge(void)
{
    const int64_t high = whole(), wide = whole();
    float one[4];
    for (int k = 0; k < 4; k++)
        one[k] = (float)number();
    printf("%d\n", psti_box_judge(one, high, wide));
}

static void iou(void)
{
    float two[2][4];
    for (int k = 0; k < 8; k++)
        two[k / 4][k % 4] = (float)number();
    printf("%.9g\n", (double)psti_box_iou(two[0], two[1]));
}

/* Draws what is packed into a mask with a gap behind each row, which must stay as it was. */
static int draw(uint8_t *mask, size_t stride, pst_error *err)
{
    const uint8_t *at = packed;
    psti_outline shape;
    if (!psti_outline_next(&at, packed + packed_bytes, &shape))
        return PST_EFIELD;
    const psti_raster to = {mask, rows, cols, stride, &scratch};
    return psti_shape_raster(&shape, map, &to, err);
}

static void print_mask(void)
{
    pst_error err = {0};
    const size_t stride = (size_t)cols + 3;
    uint8_t *mask = calloc((size_t)rows, stride);
    for (int64_t y = 0; y < rows; y++)
        memset(mask + (size_t)y * stride + (size_t)cols, 7, 3);
    if (draw(mask, stride, &err) < 0) {
        printf("error %s\n", err.message);
    } else {
        for (int64_t y = 0; y < rows; y++) {
            uint8_t *line = mask + (size_t)y * stride;
            if (line[cols] != 7 || line[cols + 1] != 7 || line[cols + 2] != 7)
                exit(2);
            for (int64_t x = 0; x < cols; x++)
                putchar('0' + line[x]);
            putchar('\n');
        }
    }
    free(mask);
}

static void polygons(void)
{
    psti_shape shape = {.counts = counts, .points = points};
    shape.parts = (size_t)whole();
    rows = whole();
    cols = whole();
    numbers(map, 6);
    size_t used = 0;
    for (size_t i = 0; i < shape.parts; i++) {
        counts[i] = (uint64_t)whole();
        numbers(points + used, (int)(2 * counts[i]));
        used += 2 * counts[i];
    }
    packed_bytes = psti_outline_pack(&shape, packed);
    print_mask();
}

static void runs(void)
{
    psti_shape shape = {.counts = counts};
    shape.rows = (uint64_t)whole();
    shape.cols = (uint64_t)whole();
    shape.parts = (size_t)whole();
    rows = whole();
    cols = whole();
    numbers(map, 6);
    for (size_t i = 0; i < shape.parts; i++)
        counts[i] = (uint64_t)whole();
    packed_bytes = psti_outline_pack(&shape, packed);
    print_mask();
}

static void fill(void)
{
    const int times = (int)whole();
    uint8_t *mask = calloc((size_t)rows, (size_t)cols);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < times; i++)
        draw(mask, (size_t)cols, NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%.0f\n",
           ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / times);
    free(mask);
}

static void follow(const char *word)
{
    double v[8];
    if (strcmp(word, "resize") == 0) {
        numbers(v, 2);
        psti_objects_resize(&objects, (int64_t)v[0], (int64_t)v[1]);
    } else if (strcmp(word, "crop") == 0) {
        numbers(v, 4);
        psti_objects_crop(&objects, (int64_t)v[0], (int64_t)v[1], (int64_t)v[2], (int64_t)v[3]);
    } else if (strcmp(word, "pad") == 0) {
        numbers(v, 4);
        psti_objects_pad(&objects, (int64_t)v[0], (int64_t)v[1], (int64_t)v[2], (int64_t)v[3]);
    } else if (strcmp(word, "hflip") == 0) {
        psti_objects_hflip(&objects);
    } else if (strcmp(word, "vflip") == 0) {
        psti_objects_vflip(&objects);
    } else if (strcmp(word, "affine") == 0) {
        numbers(v, 8);
        psti_objects_affine(&objects, v, (int64_t)v[6], (int64_t)v[7]);
    } else if (strcmp(word, "empty") == 0) {
        psti_objects_drop_empty(&objects);
    } else if (strcmp(word, "outside") == 0) {
        numbers(v, 4);
        psti_objects_drop_outside(&objects, (int64_t)v[0], (int64_t)v[1], (int64_t)v[2],
                                  (int64_t)v[3]);
    } else {
        exit(3);
    }
}

int main(void)
{
    char word[32];
    while (scanf("%31s", word) == 1) {
        if (strcmp(word, "boxes") == 0)
            read_boxes();
        else if (strcmp(word, "show") == 0)
            show();
        else if (strcmp(word, "judge") == 0)
            judge();
        else if (strcmp(word, "iou") == 0)
            iou();
        else if (strcmp(word, "polygons") == 0)
            polygons();
        else if (strcmp(word, "runs") == 0)
            runs();
        else if (strcmp(word, "fill") == 0)
            fill();
        else
            follow(word);
    }
    psti_buf_free(&scratch);
    return 0;
}
