/* SPDX-License-Identifier: Apache-2.0
 * What the files behind color.h share. */
#ifndef PSTI_OP_COLOR_PRIV_H
#define PSTI_OP_COLOR_PRIV_H

#include "op/color.h"

typedef struct psti_px_rows {
    size_t rows, pixels; /* pixels of a row */
} psti_px_rows;

/* The rows to walk through; a pair of pictures without gaps is one long row. */
psti_px_rows psti_px_rows_of(const psti_field *in, const psti_field *out);
/* Every value through one table (count 1) or its channel's. */
void psti_px_lut(const psti_field *in, psti_field *out, const uint8_t (*tables)[256], int count);
/* The same pixels; nothing where both are one picture. */
void psti_px_copy(const psti_field *in, psti_field *out);

#endif
