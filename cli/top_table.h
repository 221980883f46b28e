/* SPDX-License-Identifier: Apache-2.0
 * The list of jobs. */
#ifndef CLI_TOP_TABLE_H
#define CLI_TOP_TABLE_H

#include "top_draw.h"

/* Draws a head and as many rows as there are to be, the chosen job among them; how many rows that
 * took. */
int table_draw(grid *c, int row, int rows, const top_view *view, const top_look *look);

#endif
