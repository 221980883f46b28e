/* SPDX-License-Identifier: Apache-2.0
 * A field of one sample while it is being prepared: what codecs make, ops change and finish reads.
 * The memory belongs to whoever the comment of the function that fills it says; a field is owned by
 * one worker at a time. */
#ifndef PSTI_CORE_FIELD_H
#define PSTI_CORE_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

/* No row is damaged. */
#define PSTI_ROWS_SOUND INT64_MAX

/* What the dimensions of a decoded field mean. */
typedef enum psti_axes {
    PSTI_AXES_PICTURE,
    PSTI_AXES_VOLUME,
    PSTI_AXES_WAVE,  /* a recording: rows are moments, one column */
    PSTI_AXES_FRAMES /* what was computed of one: rows are moments, columns are features */
} psti_axes;

/* The size of a decoded field before or after an op, and what its elements are; -1 where unknown
 * (static inference). Pictures need no more than the first three. */
typedef struct psti_geom {
    int64_t rows, cols, channels;
    int64_t depth; /* planes of a volume; 0: no such axis */
    int dtype;     /* pst_dtype; 0 while planning: as stored */
    psti_axes axes;
    double unit[3]; /* volume: mm from plane to plane, row to row, column to column; wave: samples a
                       second in the first; 0: not known */
} psti_geom;

typedef struct psti_field {
    uint8_t kind, dtype, rank, axes; /* axes: psti_axes, of decoded fields */
    /* Of what is in memory. Volumes: {channels, planes, rows, columns}. Other decoded fields:
     * {rows, columns, channels}. */
    int64_t shape[PST_MAX_RANK];
    uint8_t *data; /* volumes: the first element, which after a flip is not the first in memory */
    size_t bytes;  /* rows * stride; volumes: of the elements, without gaps */
    size_t stride; /* bytes from row to row; >= columns * channels * sample size; not of volumes */
    /* Volumes: bytes from one element to the next along each of the four dimensions. A field may be
     * a view of other memory, with gaps; steps are negative after a flip. */
    ptrdiff_t step[4];

    /* What is in memory may be a window of something larger (crop decode). The window's first
     * corner and the size of the whole, in elements. A whole picture has x0 = y0 = 0 and whole_*
     * equal to shape; a volume likewise in three directions. */
    int64_t x0, y0, whole_rows, whole_cols;
    int64_t z0, whole_depth;
    /* First row of the whole picture that a decoder warned about losing, PSTI_ROWS_SOUND if none.
     * Whether the sample is bad is decided by the rows that are used, see psti_field_check_rows. */
    int64_t first_damaged_row;
} psti_field;

/* A picture in its decoded form: after the decoder and every op without randomness that follows it.
 * Decisions are made from what the header said, so that is kept beside it. */
typedef struct psti_decoded {
    psti_geom header; /* of the whole picture as decoded, before any op */
    psti_field field;
} psti_decoded;

/* Runs of bytes at equal distances: the first at `offset`, each `step` bytes behind the one before.
 */
typedef struct psti_span {
    uint64_t offset, length, step;
    int64_t count;
} psti_span;

/* Bytes of all elements without gaps; false when there are none, or too many for a size. */
bool psti_geom_bytes(const psti_geom *geom, size_t *out);
/* Elements of one channel: pixels, voxels, samples. */
double psti_geom_area(const psti_geom *geom);
/* A whole field of this size without gaps, sound, its memory not set. */
psti_field psti_field_of(int kind, const psti_geom *size);
/* Sets bytes, stride and steps to those of the field's shape without gaps. */
void psti_field_pack(psti_field *field);
/* Size and type of what is in memory; unit is not known from a field. */
psti_geom psti_field_geom(const psti_field *field);
/* Whether the elements follow each other without gaps, the first one first. */
bool psti_field_dense(const psti_field *field);
/* Copies what `from` shows into `to`, which has the same shape and type; of a volume no gaps. */
void psti_field_copy(const psti_field *from, const psti_field *to);
/* Copies elements of `unit` bytes that follow each other in this shape into the first corner of a
 * box that is as large or larger. */
void psti_box_copy(uint8_t *dst, const int64_t *box, const uint8_t *src, const int64_t *shape,
                   int rank, size_t unit);
/* Sets what of a box lies outside that corner to zero. */
void psti_box_clear(uint8_t *dst, const int64_t *box, const int64_t *shape, int rank, size_t unit);

/* Bytes of one element; 0 for an unknown type. */
size_t psti_dtype_bytes(int dtype);
const char *psti_dtype_name(int dtype);
int psti_dtype_of_name(const char *name,
                       size_t len); /* 0 if unknown; "f32", "u8", … and "float32", "uint8", … */

#endif
