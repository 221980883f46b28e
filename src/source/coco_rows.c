/* SPDX-License-Identifier: Apache-2.0
 * One COCO annotation file to rows, in one walk over its text whatever the order of its parts. What
 * is needed and missing is refused with its line; what is not known is walked over. Called by the
 * thread that opens the dataset. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/coco.h"

enum { PROGRESS_EVERY = 16384 };
#define WHOLE_MAX 9007199254740992.0 /* doubles are whole numbers up to here */

int psti_coco_fail(const psti_coco_reader *r, int code, pst_error *err, const char *fmt, ...)
{
    char what[300], who[64] = "";
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (r->id_known)
        snprintf(who, sizeof who, "%s %lld: ", r->what, (long long)r->id);
    else if (r->what)
        snprintf(who, sizeof who, "%s: ", r->what);
    return psti_json_fail(r->json, code, err, "%s%s", who, what);
}

static int no_memory(const psti_coco_reader *r, pst_error *err)
{
    return psti_fail(err, -ENOMEM, "list", r->json->path, "out of memory while listing");
}

static bool key_is(const psti_coco_reader *r, const char *name)
{
    return strcmp(r->json->text, name) == 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int take_real(psti_coco_reader *r, const char *name, double *out, pst_error *err)
{
    const int event = psti_json_next(r->json, err);
    if (event < 0)
        return event;
    if (event != PSTI_JSON_NUMBER)
        return psti_coco_fail(r, PST_EDATASET, err, "%s is not a number", name);
    *out = r->json->number;
    return 0;
}

/* 3.0 is whole too: some tools write ids like this. */
static int take_whole(psti_coco_reader *r, const char *name, int64_t *out, pst_error *err)
{
    double real = 0;
    const int rc = take_real(r, name, &real, err);
    if (rc)
        return rc;
    *out = r->json->whole;
    if (r->json->is_whole)
        return 0;
    if (!(fabs(real) < WHOLE_MAX) || real != (double)(int64_t)real)
        return psti_coco_fail(r, PST_EDATASET, err, "%s is not a whole number", name);
    *out = (int64_t)real;
    return 0;
}

static int take_id(psti_coco_reader *r, pst_error *err)
{
    const int rc = take_whole(r, "id", &r->id, err);
    r->id_known = rc == 0;
    return rc;
}

static int take_name(psti_coco_reader *r, const char *name, uint64_t *at, pst_error *err)
{
    const int event = psti_json_next(r->json, err);
    if (event < 0)
        return event;
    if (event != PSTI_JSON_STRING)
        return psti_coco_fail(r, PST_EDATASET, err, "%s is not a text", name);
    return psti_strings_add(&r->rows->names, r->json->text, r->json->len, at) ? no_memory(r, err)
                                                                              : 0;
}

static int take_side(psti_coco_reader *r, const char *name, int64_t *out, pst_error *err)
{
    const int rc = take_whole(r, name, out, err);
    if (!rc && (*out < 1 || *out > INT32_MAX))
        return psti_coco_fail(r, PST_EDATASET, err, "the %s %lld is none that a picture can have",
                              name, (long long)*out);
    return rc;
}

static int take_flag(psti_coco_reader *r, const char *name, uint8_t *out, pst_error *err)
{
    const int event = psti_json_next(r->json, err);
    if (event < 0)
        return event;
    const bool number = event == PSTI_JSON_NUMBER && (r->json->number == 0 || r->json->number == 1);
    if (!number && event != PSTI_JSON_TRUE && event != PSTI_JSON_FALSE)
        return psti_coco_fail(r, PST_EDATASET, err, "%s is neither 0 nor 1", name);
    *out = event == PSTI_JSON_TRUE || (number && r->json->number == 1);
    return 0;
}

static int take_box(psti_coco_reader *r, double box[4], pst_error *err)
{
    int event = psti_json_next(r->json, err), n = 0;
    if (event < 0)
        return event;
    bool ok = event == PSTI_JSON_ARRAY;
    while (ok && (event = psti_json_next(r->json, err)) == PSTI_JSON_NUMBER && n < 4)
        box[n++] = r->json->number;
    if (event < 0)
        return event;
    if (!ok || n != 4 || event != PSTI_JSON_ARRAY_END)
        return psti_coco_fail(r, PST_EDATASET, err,
                              "bbox is not four numbers: left, top, width, height");
    return 0;
}

/* ---- the three sections ---------------------------------------------------------------------- */

static int read_image(psti_coco_reader *r, pst_error *err)
{
    psti_coco_rows *rows = r->rows;
    psti_coco_image image = {.name = PSTI_ABSENT};
    int event, rc = 0;
    while (!rc && (event = psti_json_next(r->json, err)) == PSTI_JSON_KEY) {
        if (key_is(r, "id"))
            rc = take_id(r, err);
        else if (key_is(r, "file_name"))
            rc = take_name(r, "file_name", &image.name, err);
        else if (key_is(r, "width"))
            rc = take_side(r, "width", &image.width, err);
        else if (key_is(r, "height"))
            rc = take_side(r, "height", &image.height, err);
        else
            rc = psti_json_skip(r->json, err);
    }
    if (rc || event < 0)
        return rc ? rc : event;
    if (!r->id_known || image.name == PSTI_ABSENT)
        return psti_coco_fail(r, PST_EDATASET, err, "it has no %s",
                              r->id_known ? "file_name" : "id");
    image.id = r->id;
    if (psti_grow(&rows->images, &rows->image_cap, rows->image_count + 1, sizeof *rows->images))
        return no_memory(r, err);
    rows->images[rows->image_count++] = image;
    return 0;
}

static int read_category(psti_coco_reader *r, pst_error *err)
{
    psti_coco_rows *rows = r->rows;
    uint64_t name = PSTI_ABSENT;
    int event, rc = 0;
    while (!rc && (event = psti_json_next(r->json, err)) == PSTI_JSON_KEY) {
        if (key_is(r, "id"))
            rc = take_id(r, err);
        else if (key_is(r, "name"))
            rc = take_name(r, "name", &name, err);
        else
            rc = psti_json_skip(r->json, err);
    }
    if (rc || event < 0)
        return rc ? rc : event;
    if (!r->id_known || name == PSTI_ABSENT)
        return psti_coco_fail(r, PST_EDATASET, err, "it has no %s", r->id_known ? "name" : "id");
    if (psti_grow(&rows->categories, &rows->category_cap, rows->category_count + 1,
                  sizeof *rows->categories))
        return no_memory(r, err);
    rows->categories[rows->category_count++] = (psti_coco_category){r->id, name};
    return 0;
}

enum { HAS_IMAGE = 1, HAS_LABEL = 2, HAS_BOX = 4, HAS_AREA = 8 };

/* Sums in float, as torchvision's reference has them. Tools that write no area mean the box's. */
static void set_box(psti_coco_object *object, const double box[4], double area, unsigned has)
{
    object->box[0] = (float)box[0];
    object->box[1] = (float)box[1];
    object->box[2] = object->box[0] + (float)box[2];
    object->box[3] = object->box[1] + (float)box[3];
    object->area = (float)(has & HAS_AREA ? area : box[2] * box[3]);
    object->sized = box[2] > 1 && box[3] > 1;
}

static int read_object_field(psti_coco_reader *r, psti_coco_object *object, double box[4],
                             double *area, unsigned *has, pst_error *err)
{
    if (key_is(r, "id"))
        return take_id(r, err);
    if (key_is(r, "image_id")) {
        *has |= HAS_IMAGE;
        return take_whole(r, "image_id", &object->image, err);
    }
    if (key_is(r, "category_id")) {
        *has |= HAS_LABEL;
        return take_whole(r, "category_id", &object->label, err);
    }
    if (key_is(r, "bbox")) {
        *has |= HAS_BOX;
        return take_box(r, box, err);
    }
    if (key_is(r, "area")) {
        *has |= HAS_AREA;
        return take_real(r, "area", area, err);
    }
    if (key_is(r, "iscrowd"))
        return take_flag(r, "iscrowd", &object->crowd, err);
    if (key_is(r, "segmentation"))
        return psti_coco_read_shape(r, object, err);
    return psti_json_skip(r->json, err);
}

static int read_object(psti_coco_reader *r, pst_error *err)
{
    psti_coco_rows *rows = r->rows;
    psti_coco_object object = {.shape_bytes = 0};
    double box[4] = {0}, area = 0;
    unsigned has = 0;
    int event, rc = 0;
    while (!rc && (event = psti_json_next(r->json, err)) == PSTI_JSON_KEY)
        rc = read_object_field(r, &object, box, &area, &has, err);
    if (rc || event < 0)
        return rc ? rc : event;
    const char *lacks = !r->id_known         ? "id"
                        : !(has & HAS_IMAGE) ? "image_id"
                        : !(has & HAS_LABEL) ? "category_id"
                        : !(has & HAS_BOX)   ? "bbox"
                                             : NULL;
    if (lacks)
        return psti_coco_fail(r, PST_EDATASET, err,
                              "it has no %s; files of objects (instances_….json) are read here",
                              lacks);
    object.id = r->id;
    set_box(&object, box, area, has);
    if (psti_grow(&rows->objects, &rows->object_cap, rows->object_count + 1, sizeof *rows->objects))
        return no_memory(r, err);
    rows->objects[rows->object_count++] = object;
    if (rows->object_count % PROGRESS_EVERY == 0 && r->opts->progress &&
        r->opts->progress(rows->image_count, r->opts->user))
        return psti_fail(err, -ECANCELED, "list", r->json->path,
                         "listing was stopped by the caller");
    return 0;
}

typedef struct section {
    const char *key, *what;
    int (*read)(psti_coco_reader *r, pst_error *err);
} section;

static const section sections[] = {{"images", "image", read_image},
                                   {"annotations", "annotation", read_object},
                                   {"categories", "category", read_category}};
enum { SECTIONS = sizeof sections / sizeof *sections };

/* The array that comes next, an object a row. */
static int read_section(psti_coco_reader *r, const section *s, pst_error *err)
{
    int event = psti_json_next(r->json, err), rc = 0;
    if (event < 0)
        return event;
    if (event != PSTI_JSON_ARRAY)
        return psti_json_fail(r->json, PST_EDATASET, err, "'%s' is not a list", s->key);
    while (!rc && (event = psti_json_next(r->json, err)) == PSTI_JSON_OBJECT) {
        r->what = s->what;
        r->id_known = false;
        rc = s->read(r, err);
    }
    r->what = NULL;
    r->id_known = false;
    if (rc || event < 0)
        return rc ? rc : event;
    return event == PSTI_JSON_ARRAY_END
               ? 0
               : psti_json_fail(r->json, PST_EDATASET, err,
                                "'%s' holds something that is not an object", s->key);
}

static int read_all(psti_coco_reader *r, pst_error *err)
{
    bool seen[SECTIONS] = {false};
    int event = psti_json_next(r->json, err), rc = 0;
    if (event >= 0 && event != PSTI_JSON_OBJECT)
        return psti_json_fail(r->json, PST_EDATASET, err, "not a COCO file: it is no JSON object");
    while (event >= 0 && !rc && (event = psti_json_next(r->json, err)) == PSTI_JSON_KEY) {
        int i = 0;
        while (i < SECTIONS && !key_is(r, sections[i].key))
            i++;
        if (i == SECTIONS)
            rc = psti_json_skip(r->json, err);
        else if (seen[i])
            rc = psti_json_fail(r->json, PST_EDATASET, err, "'%s' is there twice", sections[i].key);
        else
            rc = read_section(r, &sections[i], err);
        seen[i < SECTIONS ? i : 0] |= i < SECTIONS;
    }
    if (!rc && event >= 0)
        event = psti_json_next(r->json, err); /* nothing may follow */
    if (rc || event < 0)
        return rc ? rc : event;
    return seen[0] ? 0
                   : psti_fail(err, PST_EDATASET, "list", r->json->path,
                               "not a COCO file: it has no 'images'; manifests are .jsonl or .tsv");
}

int psti_coco_read(psti_coco_rows *rows, int fd, const char *path, const pst_dataset_options *opts,
                   pst_error *err)
{
    psti_coco_reader r = {.rows = rows, .opts = opts};
    r.json = psti_malloc(PSTI_MEM_SOURCE, sizeof *r.json);
    if (!r.json)
        return psti_fail(err, -ENOMEM, "list", path, "out of memory while listing");
    psti_json_begin(r.json, fd, path);
    const int rc = read_all(&r, err);
    psti_free(r.json);
    psti_free(r.points);
    psti_free(r.counts);
    return rc;
}

void psti_coco_rows_fini(psti_coco_rows *rows)
{
    psti_strings_free(&rows->names);
    psti_free(rows->images);
    psti_free(rows->objects);
    psti_free(rows->categories);
    psti_free(rows->shapes);
    *rows = (psti_coco_rows){0};
}
