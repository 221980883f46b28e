/* SPDX-License-Identifier: Apache-2.0
 * COCO annotation files while they are read: images, objects and categories as rows. Private to
 * coco.c, coco_rows.c and coco_shape.c; one thread. */
#ifndef PSTI_SOURCE_COCO_H
#define PSTI_SOURCE_COCO_H

#include "source/json_scan.h"
#include "source/source_priv.h"

typedef struct psti_coco_image {
    int64_t id;
    uint64_t name;         /* in names */
    int64_t width, height; /* 0: not said */
} psti_coco_image;

typedef struct psti_coco_object {
    int64_t image; /* its id; once the file was read its row, -1 where there is none */
    int64_t id, label;
    uint64_t shape; /* packed, in shapes; see core/outline.h */
    uint64_t shape_bytes;
    float box[4]; /* left, top, right, bottom */
    float area;
    uint8_t crowd;
    bool sized; /* wider and higher than one pixel */
} psti_coco_object;

typedef struct psti_coco_category {
    int64_t id;
    uint64_t name; /* in names */
} psti_coco_category;

/* Of all files that were read, one file's rows behind another's. */
typedef struct psti_coco_rows {
    psti_strings names;
    psti_coco_image *images;
    size_t image_count, image_cap;
    psti_coco_object *objects;
    size_t object_count, object_cap;
    psti_coco_category *categories;
    size_t category_count, category_cap;
    uint8_t *shapes;
    size_t shape_bytes, shape_cap;
} psti_coco_rows;

/* One annotation, or what stands for it, while a file is read. Scratch grows and stays. */
typedef struct psti_coco_reader {
    psti_json *json;
    psti_coco_rows *rows;
    const pst_dataset_options *opts;
    const char *what; /* "image", "annotation", "category" */
    int64_t id;       /* of the one that is being read; see id_known */
    bool id_known;
    double *points; /* of its polygons */
    size_t point_count, point_cap;
    uint64_t *counts; /* points of each polygon, or runs */
    size_t count_count, count_cap;
} psti_coco_reader;

/* Appends what the file holds. Objects keep the ids of their images. */
int psti_coco_read(psti_coco_rows *rows, int fd, const char *path, const pst_dataset_options *opts,
                   pst_error *err);
void psti_coco_rows_fini(psti_coco_rows *rows);

/* The value of `segmentation`, which comes next, packed behind shapes. */
int psti_coco_read_shape(psti_coco_reader *r, psti_coco_object *object, pst_error *err);
/* PST_EDATASET with line, and what is being read: "line 3: annotation 17: …". */
__attribute__((format(printf, 4, 5))) int psti_coco_fail(const psti_coco_reader *r, int code,
                                                         pst_error *err, const char *fmt, ...);

#endif
