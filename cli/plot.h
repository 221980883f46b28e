/* SPDX-License-Identifier: Apache-2.0
 * Bars as SVG: one row a run, one or more parts in each, with a spread where there is one. The same
 * rows as a table stand beside a plot in a page. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include <stdbool.h>
#include <stdio.h>

enum { PLOT_ROWS = 64, PLOT_PARTS = 12 };

typedef struct plot_row {
    const char *name;
    double part[PLOT_PARTS]; /* NaN = none */
    double low, high;        /* of a single part; NaN = none */
} plot_row;

typedef struct plot {
    const char *id, *title, *about; /* about: one sentence of what is shown */
    const char *unit;               /* behind figures, as in " ms" */
    int digits;                     /* behind the point */
    const char *part[PLOT_PARTS];   /* names, where there are several */
    int parts, rows;
    bool side_by_side; /* parts are bars of their own, not one on top of the other */
    plot_row row[PLOT_ROWS];
} plot;

/* Texts as HTML and SVG have them; control bytes and what is no UTF-8 become '?'. */
void plot_text(FILE *out, const char *text);
/* The colours and fonts that plots use, light and dark. */
void plot_style(FILE *out);
/* alone: a file of its own, with its style. */
void plot_svg(FILE *out, const plot *p, bool alone);
void plot_table(FILE *out, const plot *p);
/* A figure as the plot shows it, without its unit. */
void plot_figure(FILE *out, const plot *p, double value);

#endif
