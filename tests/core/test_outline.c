/* SPDX-License-Identifier: Apache-2.0
 * Packed shapes: what goes in comes out, in few bytes, and damaged bytes end in a refusal. */
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "core/outline.h"

enum { ROOM = 1 << 16 };
static uint8_t room[ROOM];

static const uint64_t two[] = {3, 4};
static const double hundredths[] = {510.66, 423.01, 511.72, 420.03, 510.45, 416, 0.01,
                                    -3.5,   1e9,    0,      99.99,  1234.5, 0.3, 0.07};
static const double reals[] = {0.125, 1, 1.0 / 3, 2, 1e300, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static void check_polygons(const double *points, psti_outline_form form)
{
    const psti_shape shape = {.parts = 2, .counts = two, .points = points};
    const size_t bytes = psti_outline_pack(&shape, NULL);
    CHECK(psti_outline_pack(&shape, room) == bytes);
    const uint8_t *at = room;
    psti_outline o;
    uint64_t n;
    double x, y;
    CHECK(psti_outline_next(&at, room + bytes, &o) && o.form == form && o.parts == 2);
    for (int part = 0; part < 2; part++) {
        CHECK(psti_outline_polygon(&o, &n) && n == two[part]);
        for (uint64_t i = 0; i < n; i++, points += 2)
            CHECK(psti_outline_point(&o, &x, &y) && x == points[0] && y == points[1]);
        CHECK(!psti_outline_point(&o, &x, &y));
    }
    CHECK(!psti_outline_polygon(&o, &n) && at == room + bytes);
    CHECK(!psti_outline_next(&at, room + bytes, &o));
}

static void polygons_come_back(void)
{
    check_polygons(hundredths, PSTI_OUTLINE_HUNDREDTHS);
    check_polygons(reals, PSTI_OUTLINE_REALS);
}

/* Every number of two decimals is the double that its text means. */
static void two_decimals_are_exact_and_small(void)
{
    enum { POINTS = 500 };
    static double points[2 * POINTS];
    const uint64_t count = POINTS;
    char text[32];
    for (int i = 0; i < 2 * POINTS; i++) {
        snprintf(text, sizeof text, "%d.%02d", 300 + i / 4, i * 37 % 100);
        points[i] = strtod(text, NULL);
    }
    const psti_shape shape = {.parts = 1, .counts = &count, .points = points};
    const size_t bytes = psti_outline_pack(&shape, room);
    const uint8_t *at = room;
    psti_outline o;
    uint64_t n;
    double x, y;
    CHECK(psti_outline_next(&at, room + bytes, &o) && o.form == PSTI_OUTLINE_HUNDREDTHS);
    CHECK(psti_outline_polygon(&o, &n) && n == POINTS);
    for (int i = 0; i < POINTS; i++)
        CHECK(psti_outline_point(&o, &x, &y) && x == points[2 * i] && y == points[2 * i + 1]);
    CHECKF(bytes <= 4 * POINTS + 10, "%zu bytes", bytes);
}

static void runs_and_nothing_come_back(void)
{
    const uint64_t runs[] = {0, 5, 1000000, 7};
    const psti_shape shape = {.parts = 4, .counts = runs, .rows = 1000, .cols = 1001};
    size_t bytes = psti_outline_pack(&(psti_shape){0}, room);
    CHECK(bytes == 1);
    bytes += psti_outline_pack(&shape, room + bytes);
    const uint8_t *at = room;
    psti_outline o;
    uint64_t n;
    CHECK(psti_outline_next(&at, room + bytes, &o) && o.form == PSTI_OUTLINE_NONE);
    CHECK(!psti_outline_polygon(&o, &n) && !psti_outline_run(&o, &n));
    CHECK(psti_outline_next(&at, room + bytes, &o) && o.form == PSTI_OUTLINE_RUNS);
    CHECK(o.rows == 1000 && o.cols == 1001 && !psti_outline_polygon(&o, &n));
    for (int i = 0; i < 4; i++)
        CHECK(psti_outline_run(&o, &n) && n == runs[i]);
    CHECK(!psti_outline_run(&o, &n) && at == room + bytes);
}

/* Cut anywhere, or with any byte turned: an end, never a read behind it. */
static void damaged_bytes_end(void)
{
    const psti_shape shape = {.parts = 2, .counts = two, .points = hundredths};
    const size_t bytes = psti_outline_pack(&shape, room);
    for (size_t i = 0; i < 2 * bytes; i++) {
        uint8_t *copy = malloc(bytes); /* of this size, so that a sanitizer sees the end */
        const size_t len = i < bytes ? i : bytes;
        memcpy(copy, room, bytes);
        if (i >= bytes)
            copy[i - bytes] ^= 0xFF;
        const uint8_t *at = copy;
        psti_outline o;
        uint64_t n;
        double x, y;
        CHECK(i >= bytes || !psti_outline_next(&at, copy + len, &o));
        at = copy;
        for (int k = 0; k < 64 && psti_outline_next(&at, copy + len, &o); k++)
            while (psti_outline_polygon(&o, &n))
                while (psti_outline_point(&o, &x, &y))
                    CHECK(o.at <= copy + len);
        free(copy);
    }
}

int main(void)
{
    RUN(polygons_come_back);
    RUN(two_decimals_are_exact_and_small);
    RUN(runs_and_nothing_come_back);
    RUN(damaged_bytes_end);
    return check_report();
}
