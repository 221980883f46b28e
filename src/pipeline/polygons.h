/* SPDX-License-Identifier: Apache-2.0
 * From packed shapes to masks. Private to the pipeline room; worker threads. */
#ifndef PSTI_PIPELINE_POLYGONS_H
#define PSTI_PIPELINE_POLYGONS_H

#include "core/memory.h"
#include "core/outline.h"
#include "penstock.h"

/* Where a mask goes: u8, 1 inside, zero before. scratch grows and stays the caller's. */
typedef struct psti_raster {
    uint8_t *mask;
    int64_t rows, cols;
    size_t stride;
    psti_buf *scratch;
} psti_raster;

/* Writes the shape, moved by map (as psti_objects has it). Polygons cover the pixels that
 * pycocotools gives them, several together what any of them covers; runs of pixels are looked up
 * where the middle of each pixel of the mask comes from. A shape of which nothing is known covers
 * nothing. The shape is read to its end. 0; -ENOMEM; PST_EFIELD with a message when a coordinate is
 * not finite or absurd, or the bytes are damaged. */
int psti_shape_raster(psti_outline *shape, const double map[6], const psti_raster *to,
                      pst_error *err);

#endif
