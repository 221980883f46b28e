/* SPDX-License-Identifier: Apache-2.0
 * Contact sheets: pictures side by side on a dark ground, written as PNG. */
#ifndef CLI_SHEET_H
#define CLI_SHEET_H

#include <stdint.h>

#include "penstock.h"

/* One picture for display: RGB, three bytes a pixel. */
typedef struct tile {
    int width, height;
    uint8_t *rgb; /* malloc'ed */
} tile;

/* A field of a slot as a tile no larger than `most` on a side. Masks get a colour per index. u8 is
 * shown as it is; other types are stretched from their least to their greatest value in the
 * picture. Of a volume the plane in the middle is shown, of a recording its samples as a line, or
 * its features from left to right. Prints its own message; returns an exit code. */
int tile_make(const pst_batch_desc *desc, const pst_field *field, uint32_t slot, int most,
              tile *out);
void tile_fini(tile *t);

/* rows of `columns` cells with `panels` tiles each; tiles in order, count * panels of them. */
int sheet_write(const char *path, const tile *tiles, int count, int panels, int columns);

#endif
