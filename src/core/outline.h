/* SPDX-License-Identifier: Apache-2.0
 * Shapes of the objects in a picture, packed: polygons, or runs of pixels. A listing holds millions
 * of points, so a coordinate that has at most two decimals, as annotation tools write them, takes
 * two bytes or so. The shapes of one sample follow each other. Bytes may come from a file: reading
 * never passes their end. No state, any thread. */
#ifndef PSTI_CORE_OUTLINE_H
#define PSTI_CORE_OUTLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stored in remembered listings: append only. */
typedef enum psti_outline_form {
    PSTI_OUTLINE_NONE,       /* nothing is known of the shape */
    PSTI_OUTLINE_HUNDREDTHS, /* polygons, coordinates are whole hundredths of a pixel */
    PSTI_OUTLINE_REALS,      /* polygons, coordinates are doubles */
    PSTI_OUTLINE_RUNS        /* column after column, background first */
} psti_outline_form;

/* A shape to be packed: polygons, or runs where rows is not 0, or nothing. */
typedef struct psti_shape {
    size_t parts;           /* polygons or runs */
    const uint64_t *counts; /* points of each polygon; length of each run */
    const double *points;   /* x and y of all polygons */
    uint64_t rows, cols;    /* that the runs cover; 0: polygons */
} psti_shape;

/* Returns how many bytes the shape takes; writes them unless dst is NULL. */
size_t psti_outline_pack(const psti_shape *shape, uint8_t *dst);

/* One packed shape while it is read. */
typedef struct psti_outline {
    psti_outline_form form;
    uint64_t parts;      /* polygons or runs that are still to come */
    uint64_t rows, cols; /* of runs */
    uint64_t points;     /* of this polygon, still to come */
    int64_t x, y;        /* the last point in hundredths */
    const uint8_t *at, *end;
} psti_outline;

/* The next shape of a sample; *at moves behind it. False at the end, or where the bytes are not
 * what was packed. */
bool psti_outline_next(const uint8_t **at, const uint8_t *end, psti_outline *out);
/* The next polygon; *points: how many. False when there is none left. */
bool psti_outline_polygon(psti_outline *o, uint64_t *points);
/* The next point of it. */
bool psti_outline_point(psti_outline *o, double *x, double *y);
/* The next run. */
bool psti_outline_run(psti_outline *o, uint64_t *length);

#endif
