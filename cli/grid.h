/* SPDX-License-Identifier: Apache-2.0
 * A screen full of characters, put together in memory and written in one go. Texts are clipped to
 * the width that they are given; what does not show itself never gets in. */
#ifndef CLI_GRID_H
#define CLI_GRID_H

#include <stdbool.h>
#include <stddef.h>

typedef enum grid_style {
    STYLE_PLAIN,
    STYLE_BOLD,
    STYLE_DIM,
    STYLE_GOOD,
    STYLE_WARN,
    STYLE_BAD,
    STYLE_BAR,
    STYLE_HEAD, /* reversed */
    STYLES
} grid_style;

typedef struct grid_cell {
    char text[5];        /* one character; "" = the second half of a wide one, or nothing yet */
    unsigned char style; /* grid_style */
} grid_cell;

typedef struct grid {
    int rows, cols;
    bool utf8; /* else every character that is not ASCII becomes a question mark */
    grid_cell *cells;
} grid;

void grid_init(grid *c, int rows, int cols, bool utf8);
void grid_fini(grid *c);
/* The text in at most width columns from there; longer ones end with an ellipsis. Columns that it
 * took. Rows and columns outside are left out. */
int grid_put(grid *c, int row, int col, int width, grid_style style, const char *text);
int grid_print(grid *c, int row, int col, int width, grid_style style, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* The same for a path, whose end says more than its beginning. */
void grid_put_tail(grid *c, int row, int col, int width, grid_style style, const char *text);
/* The same, ending where the width ends. */
void grid_right(grid *c, int row, int col, int width, grid_style style, const char *text);
/* A bar: so much of the width. */
void grid_bar(grid *c, int row, int col, int width, grid_style style, double share);
/* Every cell of a row. */
void grid_style_row(grid *c, int row, grid_style style);
/* Columns that a text takes. */
int grid_width(const grid *c, const char *text);
/* Breaks a text at blanks: bytes of the first line, at most width columns. */
size_t grid_break(const grid *c, const char *text, int width);

typedef enum grid_form {
    GRID_TEXT,  /* lines without blanks at their end, empty ones at the end left out */
    GRID_MONO,  /* for a terminal, with bold and reversed */
    GRID_COLOUR /* and colours */
} grid_form;
/* malloc'ed; *bytes of it. */
char *grid_render(const grid *c, grid_form form, size_t *bytes);

#endif
