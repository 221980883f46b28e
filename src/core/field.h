/* SPDX-License-Identifier: Apache-2.0
 * A field of one sample while it is being prepared: what codecs make, ops change and finish reads.
 * The memory belongs to whoever the comment of the function that fills it says; a field is owned by
 * one worker at a time. */
#ifndef PSTI_CORE_FIELD_H
#define PSTI_CORE_FIELD_H

#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

/* No row is damaged. */
#define PSTI_ROWS_SOUND INT64_MAX

typedef struct psti_field {
    uint8_t kind, dtype, rank;
    int64_t shape[PST_MAX_RANK]; /* image, mask: {rows, columns, channels} of what is in memory */
    uint8_t *data;
    size_t bytes;  /* images: rows * stride */
    size_t stride; /* images: bytes from row to row; >= columns * channels * sample size */

    /* Images and masks: what is in memory may be a window of a larger picture (crop decode). The
     * window's top left corner and the whole picture's size, in pixels. A whole picture has x0 = y0
     * = 0 and whole_* equal to shape. */
    int64_t x0, y0, whole_rows, whole_cols;
    /* First row of the whole picture that a decoder warned about losing, PSTI_ROWS_SOUND if none.
     * Whether the sample is bad is decided by the rows that are used, see psti_field_check_rows. */
    int64_t first_damaged_row;
} psti_field;

/* A picture in its decoded form: after the decoder and every op without randomness that follows it.
 * Decisions are made from what the header said, so that is kept beside it. */
typedef struct psti_decoded {
    int64_t rows, cols; /* of the whole picture as decoded, before any op */
    int channels, dtype;
    psti_field field;
} psti_decoded;

/* Bytes of one element; 0 for an unknown type. */
size_t psti_dtype_bytes(int dtype);
const char *psti_dtype_name(int dtype);
int psti_dtype_of_name(const char *name,
                       size_t len); /* 0 if unknown; "f32", "u8", … and "float32", "uint8", … */

#endif
