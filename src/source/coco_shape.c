/* SPDX-License-Identifier: Apache-2.0
 * The segmentation of one annotation: polygons, or runs of pixels as numbers or as pycocotools'
 * text. Checked, then packed behind the shapes that came before. Called by the thread that opens
 * the dataset. */
#include <errno.h>
#include <string.h>

#include "core/memory.h"
#include "core/outline.h"
#include "core/status.h"
#include "source/coco.h"

enum { NUMBERS_MAX = 1 << 22, POINTS_LEAST = 3, SIDE_MAX = 1 << 20 };

static int add_count(psti_coco_reader *r, uint64_t count, pst_error *err)
{
    if (r->count_count == NUMBERS_MAX)
        return psti_coco_fail(r, PST_ELIMIT, err, "more than %d runs or polygons", NUMBERS_MAX);
    if (psti_grow(&r->counts, &r->count_cap, r->count_count + 1, sizeof *r->counts))
        return psti_coco_fail(r, -ENOMEM, err, "out of memory");
    r->counts[r->count_count++] = count;
    return 0;
}

/* One polygon, whose opening bracket was taken: x, y, x, y, … Fewer than three points enclose
 * nothing and are left out. */
static int read_polygon(psti_coco_reader *r, pst_error *err)
{
    const size_t begin = r->point_count;
    int event;
    while ((event = psti_json_next(r->json, err)) == PSTI_JSON_NUMBER) {
        if (r->point_count == NUMBERS_MAX)
            return psti_coco_fail(r, PST_ELIMIT, err, "more than %d coordinates", NUMBERS_MAX);
        if (psti_grow(&r->points, &r->point_cap, r->point_count + 1, sizeof *r->points))
            return psti_coco_fail(r, -ENOMEM, err, "out of memory");
        r->points[r->point_count++] = r->json->number;
    }
    if (event < 0)
        return event;
    const size_t numbers = r->point_count - begin;
    if (event != PSTI_JSON_ARRAY_END || numbers % 2)
        return psti_coco_fail(r, PST_EDATASET, err, "a polygon is not pairs of numbers");
    if (numbers / 2 >= POINTS_LEAST)
        return add_count(r, numbers / 2, err);
    r->point_count = begin;
    return 0;
}

static int read_polygons(psti_coco_reader *r, pst_error *err)
{
    int event, rc = 0;
    while (!rc && (event = psti_json_next(r->json, err)) == PSTI_JSON_ARRAY)
        rc = read_polygon(r, err);
    if (rc || event < 0)
        return rc ? rc : event;
    return event == PSTI_JSON_ARRAY_END
               ? 0
               : psti_coco_fail(r, PST_EDATASET, err, "segmentation is not a list of polygons");
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int read_size(psti_coco_reader *r, uint64_t size[2], pst_error *err)
{
    int event = psti_json_next(r->json, err), n = 0;
    if (event == PSTI_JSON_ARRAY)
        for (; (event = psti_json_next(r->json, err)) == PSTI_JSON_NUMBER && n < 2; n++) {
            if (!r->json->is_whole || r->json->whole < 1 || r->json->whole > SIDE_MAX)
                break;
            size[n] = (uint64_t)r->json->whole;
        }
    if (event < 0)
        return event;
    return n == 2 && event == PSTI_JSON_ARRAY_END
               ? 0
               : psti_coco_fail(r, PST_EDATASET, err,
                                "the size of a segmentation is not [height, width]");
}

/* Five bits a byte from '0' on, the lowest first; from the third on the difference to the run
 * before the last. */
static int read_packed_counts(psti_coco_reader *r, pst_error *err)
{
    const char *p = r->json->text, *const end = p + r->json->len;
    int rc = 0;
    while (p < end && !rc) {
        int64_t value = 0;
        int shift = 0, c;
        do {
            c = p < end ? *p++ - '0' : -1;
            if (c < 0 || c > 63 || shift > 40)
                return psti_coco_fail(r, PST_EDATASET, err, "the text of the runs is damaged");
            value |= (int64_t)(c & 31) << shift;
            shift += 5;
        } while (c & 32);
        if (c & 16)
            value -= (int64_t)1 << shift;
        if (r->count_count > 2)
            value += (int64_t)r->counts[r->count_count - 2];
        if (value < 0)
            return psti_coco_fail(r, PST_EDATASET, err, "a run is shorter than nothing");
        rc = add_count(r, (uint64_t)value, err);
    }
    return rc;
}

static int read_counts(psti_coco_reader *r, pst_error *err)
{
    r->count_count = 0;
    int event = psti_json_next(r->json, err), rc = 0;
    if (event == PSTI_JSON_STRING)
        return read_packed_counts(r, err);
    if (event < 0)
        return event;
    bool ok = event == PSTI_JSON_ARRAY;
    while (ok && !rc && (event = psti_json_next(r->json, err)) == PSTI_JSON_NUMBER) {
        ok = r->json->is_whole && r->json->whole >= 0;
        rc = ok ? add_count(r, (uint64_t)r->json->whole, err) : 0;
    }
    if (rc || event < 0)
        return rc ? rc : event;
    return ok && event == PSTI_JSON_ARRAY_END
               ? 0
               : psti_coco_fail(
                     r, PST_EDATASET, err,
                     "the counts of a segmentation are neither whole numbers nor a text");
}

static int check_runs(psti_coco_reader *r, const uint64_t size[2], pst_error *err)
{
    const uint64_t pixels = size[0] * size[1];
    uint64_t left = pixels;
    for (size_t i = 0; i < r->count_count; i++) {
        if (r->counts[i] > left)
            return psti_coco_fail(r, PST_EDATASET, err,
                                  "the runs cover more than the %llu x %llu pixels of their size",
                                  (unsigned long long)size[0], (unsigned long long)size[1]);
        left -= r->counts[i];
    }
    return left == 0
               ? 0
               : psti_coco_fail(r, PST_EDATASET, err,
                                "the runs cover %llu of the %llu pixels of their size",
                                (unsigned long long)(pixels - left), (unsigned long long)pixels);
}

static int read_runs(psti_coco_reader *r, psti_shape *shape, pst_error *err)
{
    uint64_t size[2] = {0, 0};
    bool counted = false;
    int event, rc = 0;
    while (!rc && (event = psti_json_next(r->json, err)) == PSTI_JSON_KEY) {
        if (strcmp(r->json->text, "size") == 0) {
            rc = read_size(r, size, err);
        } else if (strcmp(r->json->text, "counts") == 0) {
            rc = read_counts(r, err);
            counted = true;
        } else {
            rc = psti_json_skip(r->json, err);
        }
    }
    if (rc || event < 0)
        return rc ? rc : event;
    if (!size[0] || !counted)
        return psti_coco_fail(r, PST_EDATASET, err, "segmentation has no %s",
                              counted ? "size" : "counts");
    shape->rows = size[0];
    shape->cols = size[1];
    return check_runs(r, size, err);
}

static int keep_shape(psti_coco_reader *r, psti_coco_object *object, const psti_shape *shape,
                      pst_error *err)
{
    psti_coco_rows *rows = r->rows;
    const size_t bytes = psti_outline_pack(shape, NULL);
    if (psti_grow(&rows->shapes, &rows->shape_cap, rows->shape_bytes + bytes, 1))
        return psti_coco_fail(r, -ENOMEM, err, "out of memory");
    object->shape = rows->shape_bytes;
    object->shape_bytes = bytes;
    rows->shape_bytes += psti_outline_pack(shape, rows->shapes + rows->shape_bytes);
    return 0;
}

int psti_coco_read_shape(psti_coco_reader *r, psti_coco_object *object, pst_error *err)
{
    psti_shape shape = {0};
    r->count_count = r->point_count = 0;
    const int event = psti_json_next(r->json, err);
    int rc = event < 0 ? event : 0;
    if (event == PSTI_JSON_ARRAY)
        rc = read_polygons(r, err);
    else if (event == PSTI_JSON_OBJECT)
        rc = read_runs(r, &shape, err);
    else if (event >= 0 && event != PSTI_JSON_NULL)
        rc = psti_coco_fail(r, PST_EDATASET, err,
                            "segmentation is neither polygons nor runs of pixels");
    if (rc)
        return rc;
    shape.parts = r->count_count;
    shape.counts = r->counts;
    shape.points = r->points;
    return keep_shape(r, object, &shape, err);
}
