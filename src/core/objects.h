/* SPDX-License-Identifier: Apache-2.0
 * The objects of one picture: their boxes as they stand after what was done to the picture so far,
 * and how their shapes are to be moved. Boxes are float and change step by step, in the order and
 * with the arithmetic of torchvision's functions and its detection reference. Storage is the
 * caller's; nothing here allocates or blocks. Any thread, one at a time. */
#ifndef PSTI_CORE_OBJECTS_H
#define PSTI_CORE_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/field.h"

typedef struct psti_objects {
    int count;
    int32_t *row;    /* which of the stored objects each one is */
    float (*box)[4]; /* left, top, right, bottom */
    /* From a stored pixel to where it is now: x' = m[0] x + m[1] y + m[2], y' = m[3] x + …; pixel
     * (0, 0) is the square from 0 to 1. */
    double map[6];
    float frame[4];     /* the box of what is left of the stored picture: shapes end there */
    int64_t rows, cols; /* of the picture as it stands */
} psti_objects;

/* What is to become of a box as it is stored, in a picture of this size. */
typedef enum psti_box_verdict {
    PSTI_BOX_KEEP,
    PSTI_BOX_DROP,    /* encloses nothing */
    PSTI_BOX_OUTSIDE, /* has nothing to do with the picture: the sample is wrong */
    PSTI_BOX_NOT_FINITE
} psti_box_verdict;
psti_box_verdict psti_box_judge(const float box[4], int64_t rows, int64_t cols);

/* Intersection over union; as torchvision's box_iou, NaN for two boxes without area. */
float psti_box_iou(const float a[4], const float b[4]);
/* Whether the middle lies within the edges, not on them. */
bool psti_box_centre_in(const float box[4], int64_t left, int64_t top, int64_t right,
                        int64_t bottom);

/* Begins with the picture as stored: boxes clamped to it. */
void psti_objects_begin(psti_objects *o, int64_t rows, int64_t cols);
/* The picture was resized. */
void psti_objects_resize(psti_objects *o, int64_t rows, int64_t cols);
/* A window of the picture was cut out, which may lie partly outside (left or top negative): boxes
 * are shifted and clamped to it. */
void psti_objects_crop(psti_objects *o, int64_t left, int64_t top, int64_t rows, int64_t cols);
/* The picture was put on a larger one, its corner at (left, top). */
void psti_objects_pad(psti_objects *o, int64_t left, int64_t top, int64_t rows, int64_t cols);
void psti_objects_hflip(psti_objects *o);
void psti_objects_vflip(psti_objects *o);
/* Points moved by m as map is; a box becomes the one around its corners, clamped to the picture of
 * the given size. */
void psti_objects_affine(psti_objects *o, const double m[6], int64_t rows, int64_t cols);
/* Leaves out what has no width or no height. */
void psti_objects_drop_empty(psti_objects *o);
/* Leaves out what has not its middle within the edges: the rule of crops that are chosen by
 * overlap.
 */
void psti_objects_drop_outside(psti_objects *o, int64_t left, int64_t top, int64_t right,
                               int64_t bottom);

#endif
