/* SPDX-License-Identifier: Apache-2.0
 * Masks of polygons and of runs of pixels. Polygons follow the rule of pycocotools (rleFrPoly):
 * points are rounded to fifths of a pixel, edges are drawn in that grid, and where an edge crosses
 * the middle of a column the column changes between outside and inside. It marks the changes and
 * then sums them down the columns; here row by row, many columns at once, and without listing the
 * points between. Worker threads; no state. */
#include "pipeline/polygons.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/status.h"

enum { FIFTHS = 5, MIDDLE = 2 };
/* Pixels; farther away than any picture reaches. Keeps all sums below in 32 bits. */
#define FAR_AWAY 4194304.0

typedef struct point {
    int x, y; /* in fifths of a pixel */
} point;

/* One polygon while it is drawn: bit 1 of the mask says that the column changes there. */
typedef struct drawing {
    const psti_raster *to;
    int64_t first, last; /* rows with a change */
    int64_t left, right; /* columns with one, the last not included */
} drawing;

static int refuse(pst_error *err, const char *what)
{
    return psti_fail(err, PST_EFIELD, "masks", NULL, "the shape of an object %s", what);
}

/* ---- polygons -------------------------------------------------------------------------------- */

/* The column changes at the row whose middle comes behind y, the smaller of both ends of the step
 * across the middle of the column. */
static void change(drawing *d, int64_t column, int a, int b)
{
    const int y = (a < b ? a : b) - MIDDLE;
    const int64_t row = y <= 0 ? 0 : (y + FIFTHS - 1) / FIFTHS;
    if (row >= d->to->rows)
        return;
    d->to->mask[(size_t)row * d->to->stride + (size_t)column] ^= 2;
    if (row < d->first)
        d->first = row;
    if (row > d->last)
        d->last = row;
    if (column < d->left)
        d->left = column;
    if (column >= d->right)
        d->right = column + 1;
}

/* The place on the shorter axis at step t of the longer one, as pycocotools rounds it. */
static int beside(int from, double slope, int t)
{
    return (int)(from + slope * t + .5);
}

/* How far along a steep edge x is `column` fifths for the last time, when at the next step it is on
 * the other side. */
static int crossing(point a, double slope, int steps, int middle)
{
    const bool rises = slope > 0;
    const double guess = ((rises ? middle : middle + 1) + .5 - a.x) / slope;
    int t = guess < 0 ? 0 : guess > steps - 1 ? steps - 1 : (int)guess;
    /* Rounding may have put it beside the step that counts. */
    while (t > 0 && (beside(a.x, slope, t) > middle) == rises)
        t--;
    while (t < steps - 1 && (beside(a.x, slope, t + 1) > middle) != rises)
        t++;
    return t;
}

static void draw_edge(drawing *d, point a, point b)
{
    const int wide = b.x > a.x ? b.x - a.x : a.x - b.x, high = b.y > a.y ? b.y - a.y : a.y - b.y;
    const bool flat = wide >= high;
    if (flat ? a.x > b.x : a.y > b.y) {
        const point keep = a;
        a = b;
        b = keep;
    }
    if (a.x == b.x)
        return; /* it crosses no column */
    const int low = a.x < b.x ? a.x : b.x, top = a.x < b.x ? b.x : a.x;
    /* Columns whose middle, between fifths 2 and 3, lies between both ends. */
    int64_t column = low <= MIDDLE ? 0 : (low - MIDDLE + FIFTHS - 1) / FIFTHS;
    int64_t end = top <= MIDDLE ? 0 : (top - MIDDLE - 1) / FIFTHS + 1;
    if (end > d->to->cols)
        end = d->to->cols;
    const double slope = flat ? (double)(b.y - a.y) / wide : (double)(b.x - a.x) / high;
    for (; column < end; column++) {
        const int middle = (int)column * FIFTHS + MIDDLE;
        if (flat) {
            const int t = middle - a.x;
            change(d, column, beside(a.y, slope, t), beside(a.y, slope, t + 1));
        } else {
            const int t = crossing(a, slope, high, middle);
            change(d, column, a.y + t, a.y + t + 1);
        }
    }
}

/* Sums the changes down the columns, and adds what is inside to what was there. */
static void fill(const drawing *d, uint8_t *restrict inside)
{
    const size_t cols = (size_t)(d->right - d->left);
    memset(inside, 0, cols);
    for (int64_t row = d->first; row < d->to->rows; row++) {
        uint8_t *restrict mask = d->to->mask + (size_t)row * d->to->stride + d->left;
        uint8_t any = 0;
        for (size_t x = 0; x < cols; x++) {
            inside[x] ^= mask[x] >> 1;
            mask[x] = (mask[x] & 1) | inside[x];
            any |= inside[x];
        }
        if (!any && row >= d->last)
            return;
    }
}

static bool take_point(psti_outline *shape, const double map[6], point *out)
{
    double x, y;
    if (!psti_outline_point(shape, &x, &y))
        return false;
    const double to_x = map[0] * x + map[1] * y + map[2], to_y = map[3] * x + map[4] * y + map[5];
    if (!(fabs(to_x) < FAR_AWAY && fabs(to_y) < FAR_AWAY))
        return false;
    *out = (point){(int)(FIFTHS * to_x + .5), (int)(FIFTHS * to_y + .5)};
    return true;
}

static int draw_polygon(psti_outline *shape, uint64_t points, const double map[6],
                        const psti_raster *to, pst_error *err)
{
    drawing d = {.to = to, .first = to->rows, .last = -1, .left = to->cols};
    point first, now, next;
    if (!take_point(shape, map, &first))
        return refuse(err, "has a point that is nowhere near the picture");
    now = first;
    for (uint64_t i = 1; i < points; i++, now = next) {
        if (!take_point(shape, map, &next))
            return refuse(err, "has a point that is nowhere near the picture");
        draw_edge(&d, now, next);
    }
    draw_edge(&d, now, first);
    if (d.last >= 0)
        fill(&d, to->scratch->data);
    return 0;
}

static int draw_polygons(psti_outline *shape, const double map[6], const psti_raster *to,
                         pst_error *err)
{
    uint64_t points;
    int rc = psti_buf_need(PSTI_MEM_PIPELINE, to->scratch, (size_t)to->cols);
    if (rc < 0)
        return psti_fail(err, rc, "masks", NULL, "out of memory");
    while (rc == 0 && psti_outline_polygon(shape, &points))
        rc = points ? draw_polygon(shape, points, map, to, err) : 0;
    return rc == 0 && shape->parts ? refuse(err, "is damaged") : rc;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* The runs as pixels, column after column. */
static int unroll(psti_outline *shape, psti_buf *scratch, pst_error *err)
{
    size_t pixels, at = 0;
    uint64_t length;
    if (!psti_mul(shape->rows, shape->cols, &pixels) || pixels > (size_t)1 << 31)
        return refuse(err, "is larger than a picture can be");
    const int rc = psti_buf_need(PSTI_MEM_PIPELINE, scratch, pixels);
    if (rc < 0)
        return psti_fail(err, rc, "masks", NULL, "out of memory");
    for (uint8_t value = 0; psti_outline_run(shape, &length); value ^= 1) {
        if (length > pixels - at)
            return refuse(err, "is damaged");
        memset(scratch->data + at, value, length);
        at += length;
    }
    return at == pixels ? 0 : refuse(err, "is damaged");
}

static int draw_runs(psti_outline *shape, const double map[6], const psti_raster *to,
                     pst_error *err)
{
    const double det = map[0] * map[4] - map[1] * map[3];
    const double rows = (double)shape->rows, cols = (double)shape->cols;
    if (!(fabs(det) > 0) || !isfinite(det))
        return refuse(err, "cannot be moved like this");
    const int rc = unroll(shape, to->scratch, err);
    if (rc < 0)
        return rc;
    for (int64_t y = 0; y < to->rows; y++) {
        uint8_t *mask = to->mask + (size_t)y * to->stride;
        for (int64_t x = 0; x < to->cols; x++) {
            const double dx = (double)x + .5 - map[2], dy = (double)y + .5 - map[5];
            const double from_x = floor((map[4] * dx - map[1] * dy) / det);
            const double from_y = floor((map[0] * dy - map[3] * dx) / det);
            if (from_x >= 0 && from_y >= 0 && from_x < cols && from_y < rows)
                mask[x] = to->scratch->data[(size_t)from_x * shape->rows + (size_t)from_y];
        }
    }
    return 0;
}

int psti_shape_raster(psti_outline *shape, const double map[6], const psti_raster *to,
                      pst_error *err)
{
    switch (shape->form) {
    case PSTI_OUTLINE_HUNDREDTHS:
    case PSTI_OUTLINE_REALS:
        return draw_polygons(shape, map, to, err);
    case PSTI_OUTLINE_RUNS:
        return draw_runs(shape, map, to, err);
    default:
        return 0;
    }
}
