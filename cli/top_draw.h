/* SPDX-License-Identifier: Apache-2.0
 * From a view of an engine to a screen. */
#ifndef CLI_TOP_DRAW_H
#define CLI_TOP_DRAW_H

#include <stdbool.h>

#include "grid.h"
#include "top_find.h"
#include "top_view.h"

/* What the list of jobs may be ordered by. */
typedef enum top_sort {
    SORT_ID,
    SORT_RATE,
    SORT_STALL,
    SORT_READY,
    SORT_EPOCH,
    SORT_DATASET,
    SORTS
} top_sort;

/* What is shown beside the view itself. */
typedef struct top_look {
    const char *dir;     /* of the engine */
    const char *trouble; /* said instead of the verdict; NULL = none */
    top_sort sort;
    bool reversed, paused, keys; /* keys: the last row says which there are */
    double chosen;               /* id of the job that is shown below the list; 0 = the first */
} top_look;

/* Puts the jobs in order. */
void draw_sort(top_view *view, const top_look *look);
/* Where the chosen job stands; 0 if it is gone. */
int draw_chosen(const top_view *view, const top_look *look);
void draw_view(grid *c, const top_view *view, const top_look *look);
void draw_help(grid *c);
void draw_engines(grid *c, const found *engines, int chosen);

#endif
