/* SPDX-License-Identifier: Apache-2.0
 * The search for foreground against flooding voxel by voxel: noise, blobs, spirals, classes that
 * touch, empty and full masks, from plain memory and from views. */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "op/volume/volume.h"

enum { SIDE = 24, SEED = 9 };

static uint64_t state = SEED;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static psti_field mask_of(uint8_t *data, int64_t planes, int64_t rows, int64_t cols)
{
    const psti_geom size = {rows, cols, 1, planes, PST_U8, PSTI_AXES_VOLUME};
    psti_field mask = psti_field_of(PST_MASK, &size);
    mask.data = data;
    return mask;
}

/* ---- by flooding ----------------------------------------------------------------------------- */

/* The box of the part that holds a voxel; its voxels are taken away. */
static psti_box flood(uint8_t *data, const int64_t n[3], int64_t at)
{
    int64_t *todo = malloc((size_t)(n[0] * n[1] * n[2]) * sizeof *todo), count = 1;
    const uint8_t label = data[at];
    psti_box box = {.label = label, .low = {1 << 30, 1 << 30, 1 << 30}};
    todo[0] = at;
    data[at] = 0;
    while (count > 0) {
        const int64_t v = todo[--count];
        const int64_t place[3] = {v / (n[1] * n[2]), v / n[2] % n[1], v % n[2]};
        const int64_t step[3] = {n[1] * n[2], n[2], 1};
        for (int d = 0; d < 3; d++) {
            box.low[d] = place[d] < box.low[d] ? (int32_t)place[d] : box.low[d];
            box.high[d] = place[d] >= box.high[d] ? (int32_t)place[d] + 1 : box.high[d];
            for (int side = -1; side <= 1; side += 2)
                if (place[d] + side >= 0 && place[d] + side < n[d] &&
                    data[v + side * step[d]] == label) {
                    data[v + side * step[d]] = 0;
                    todo[count++] = v + side * step[d];
                }
        }
    }
    free(todo);
    return box;
}

static int64_t volume_of(const psti_box *box)
{
    int64_t volume = 1;
    for (int d = 0; d < 3; d++)
        volume *= box->high[d] - box->low[d];
    return volume;
}

/* In the order of memory, so that of equal ones the later counts as larger. */
static int search(const psti_field *mask, psti_box *out)
{
    psti_box best[256][2] = {{{0}}};
    const int64_t *n = mask->shape + 1;
    uint8_t *left = malloc((size_t)(n[0] * n[1] * n[2]));
    memcpy(left, mask->data, (size_t)(n[0] * n[1] * n[2]));
    for (int64_t at = 0; at < n[0] * n[1] * n[2]; at++) {
        if (left[at] == 0)
            continue;
        const psti_box box = flood(left, n, at);
        psti_box *row = best[box.label];
        if (!row[1].label || volume_of(&box) >= volume_of(&row[1])) {
            row[0] = row[1];
            row[1] = box;
        } else if (!row[0].label || volume_of(&box) >= volume_of(&row[0])) {
            row[0] = box;
        }
    }
    free(left);
    int count = 0;
    for (int label = 1; label < 256; label++)
        for (int i = 0; i < 2; i++)
            if (best[label][i].label)
                out[count++] = best[label][i];
    return count;
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void make_noise(uint8_t *data, int64_t count, uint32_t classes, uint32_t share)
{
    for (int64_t i = 0; i < count; i++)
        data[i] = draw(100) < share ? (uint8_t)(1 + draw(classes)) : 0;
}

static void make_boxes(uint8_t *data, const int64_t n[3], int boxes)
{
    memset(data, 0, (size_t)(n[0] * n[1] * n[2]));
    for (; boxes > 0; boxes--) {
        const uint8_t label = (uint8_t)(1 + draw(3));
        int64_t low[3], high[3];
        for (int d = 0; d < 3; d++) {
            low[d] = draw((uint32_t)n[d]);
            high[d] = low[d] + 1 + draw((uint32_t)(n[d] - low[d]));
        }
        for (int64_t z = low[0]; z < high[0]; z++)
            for (int64_t y = low[1]; y < high[1]; y++)
                for (int64_t x = low[2]; x < high[2]; x++)
                    data[(z * n[1] + y) * n[2] + x] = label;
    }
}

/* Lines that wind and join late, in a plane or through planes. */
static void make_walks(uint8_t *data, const int64_t n[3], int walks)
{
    memset(data, 0, (size_t)(n[0] * n[1] * n[2]));
    for (int w = 0; w < walks; w++) {
        int64_t at[3] = {draw((uint32_t)n[0]), draw((uint32_t)n[1]), draw((uint32_t)n[2])};
        for (int step = 0; step < 120; step++) {
            const int d = (int)draw(3);
            const int64_t to = at[d] + (draw(2) ? 1 : -1);
            at[d] = to < 0 || to >= n[d] ? at[d] : to;
            data[(at[0] * n[1] + at[1]) * n[2] + at[2]] = (uint8_t)(1 + w % 2);
        }
    }
}

static void check_mask(const psti_field *mask, const char *what)
{
    psti_box want[PSTI_NOTE_ROWS], got[PSTI_NOTE_ROWS];
    int count = -1;
    const int wanted = search(mask, want);
    CHECK(psti_foreground(mask, got, &count, NULL) == 0);
    CHECKF(count == wanted && memcmp(got, want, (size_t)wanted * sizeof *want) == 0,
           "%s: %d boxes, %d wanted (seed %d)", what, count, wanted, SEED);
}

static void boxes_are_those_of_flooding(void)
{
    uint8_t data[SIDE * SIDE * SIDE];
    for (int i = 0; i < 400; i++) {
        const int64_t n[3] = {1 + draw(SIDE), 1 + draw(SIDE), 1 + draw(SIDE)};
        const psti_field mask = mask_of(data, n[0], n[1], n[2]);
        make_noise(data, n[0] * n[1] * n[2], 1 + draw(4), 1 + draw(99));
        check_mask(&mask, "noise");
        make_boxes(data, n, (int)draw(12));
        check_mask(&mask, "boxes");
        make_walks(data, n, 1 + (int)draw(8));
        check_mask(&mask, "walks");
    }
    make_noise(data, sizeof data, 255, 90);
    const psti_field mask = mask_of(data, SIDE, SIDE, SIDE);
    check_mask(&mask, "all classes");
}

static void full_and_empty_masks(void)
{
    static uint8_t data[30 * 20 * 10];
    psti_box got[PSTI_NOTE_ROWS];
    int count = -1;
    psti_field mask = mask_of(data, 30, 20, 10);
    CHECK(psti_foreground(&mask, got, &count, NULL) == 0 && count == 0);
    memset(data, 255, sizeof data);
    CHECK(psti_foreground(&mask, got, &count, NULL) == 0 && count == 1);
    CHECK(got[0].label == 255 && got[0].high[0] == 30 && got[0].high[1] == 20 &&
          got[0].high[2] == 10 && got[0].low[0] == 0);
    mask.dtype = PST_F32;
    CHECK(psti_foreground(&mask, got, &count, NULL) == PST_EFIELD);
}

/* A U that lies across planes: two parts until the last plane joins them. */
static void parts_join_late(void)
{
    static uint8_t data[9 * 5 * 5];
    for (int z = 0; z < 9; z++)
        data[z * 25] = data[z * 25 + 4] = 1;
    memset(data + 8 * 25, 1, 5);
    psti_field mask = mask_of(data, 9, 5, 5);
    psti_box got[PSTI_NOTE_ROWS];
    int count;
    CHECK(psti_foreground(&mask, got, &count, NULL) == 0 && count == 1);
    CHECK(got[0].high[0] == 9 && got[0].high[1] == 1 && got[0].high[2] == 5);
}

/* Mirrored along every axis, boxes are mirrored too. */
static void views_are_searched_as_they_show(void)
{
    uint8_t data[SIDE * SIDE * SIDE], turned[SIDE * SIDE * SIDE];
    make_noise(data, sizeof data, 2, 30);
    for (size_t i = 0; i < sizeof data; i++)
        turned[i] = data[sizeof data - 1 - i];
    psti_field mask = mask_of(data, SIDE, SIDE, SIDE), other = mask_of(turned, SIDE, SIDE, SIDE);
    mask.data += sizeof data - 1;
    for (int d = 1; d < 4; d++)
        mask.step[d] = -mask.step[d];
    psti_box got[PSTI_NOTE_ROWS], want[PSTI_NOTE_ROWS];
    int count, wanted;
    CHECK(psti_foreground(&mask, got, &count, NULL) == 0);
    CHECK(psti_foreground(&other, want, &wanted, NULL) == 0);
    CHECK(count == wanted && memcmp(got, want, (size_t)count * sizeof *got) == 0);
}

static void memory_that_is_refused_is_an_error(void)
{
    uint8_t data[SIDE * SIDE * SIDE];
    make_noise(data, sizeof data, 2, 30);
    const psti_field mask = mask_of(data, SIDE, SIDE, SIDE);
    psti_box got[PSTI_NOTE_ROWS];
    psti_mem_stats stats;
    int count, failures = 0;
    for (uint64_t n = 1; n < 100; n++) {
        psti_mem_fail_at(n, false);
        const int rc = psti_foreground(&mask, got, &count, NULL);
        psti_mem_fail_at(0, false);
        CHECK(rc == 0 || rc == -ENOMEM);
        failures += rc < 0;
        psti_mem_stats_get(PSTI_MEM_OP, &stats);
        CHECK(stats.live == 0);
    }
    CHECKF(failures > 5, "%d", failures);
}

int main(void)
{
    RUN(boxes_are_those_of_flooding);
    RUN(full_and_empty_masks);
    RUN(parts_join_late);
    RUN(views_are_searched_as_they_show);
    RUN(memory_that_is_refused_is_an_error);
    return check_report();
}
