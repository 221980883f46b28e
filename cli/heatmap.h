/* SPDX-License-Identifier: Apache-2.0
 * The triangle of all splits of a cache as a picture. */
#ifndef CLI_HEATMAP_H
#define CLI_HEATMAP_H

#include <stdio.h>

#include "penstock.h"

/* What is written beside the triangle. */
typedef struct heatmap_words {
    const char *title, *subtitle;
} heatmap_words;

/* Writes an SVG: one cell per split in steps of 2.5 %, coloured by samples a second, with the best
 * split marked. */
void heatmap_write(FILE *out, const pst_plan *plan, const heatmap_words *words);

#endif
