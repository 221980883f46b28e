/* SPDX-License-Identifier: Apache-2.0
 * The screen in memory. Main thread. */
#include "grid.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "cli.h"

void grid_init(grid *c, int rows, int cols, bool utf8)
{
    *c = (grid){.rows = rows, .cols = cols, .utf8 = utf8};
    c->cells = cli_alloc((size_t)rows * (size_t)cols * sizeof *c->cells);
    for (int i = 0; i < rows * cols; i++)
        c->cells[i].text[0] = ' ';
}

void grid_fini(grid *c)
{
    free(c->cells);
    *c = (grid){0};
}

/* ---- characters ------------------------------------------------------------------------------ */

static wchar_t code_of(const char *s, int length)
{
    const unsigned char *b = (const unsigned char *)s;
    if (length == 1)
        return b[0];
    wchar_t code = b[0] & (0x7F >> length);
    for (int i = 1; i < length; i++)
        code = code << 6 | (b[i] & 0x3F);
    return code;
}

/* A character as it is shown, and how many columns it takes: 0 = it is left out. Texts were made
 * plain, but a control character must not get through even if one was not. */
static int shown(const grid *c, const char *s, int *length, char out[5])
{
    *length = text_utf8(s);
    const bool whole = *length > 0;
    *length = whole ? *length : 1;
    const wchar_t code = whole ? code_of(s, *length) : 0xFFFD;
    if (code < 0x20 || code == 0x7F || (code >= 0x80 && !c->utf8) || !whole) {
        memcpy(out, "?", 2);
        return 1;
    }
    const int width = code < 0x80 ? 1 : wcwidth(code);
    if (width <= 0)
        return 0;
    memcpy(out, s, (size_t)*length);
    out[*length] = '\0';
    return width;
}

int grid_width(const grid *c, const char *text)
{
    int width = 0, length;
    char out[5];
    for (; *text; text += length)
        width += shown(c, text, &length, out);
    return width;
}

size_t grid_break(const grid *c, const char *text, int width)
{
    size_t at = 0, blank = 0;
    int used = 0, length;
    char out[5];
    for (; text[at]; at += (size_t)length) {
        used += shown(c, text + at, &length, out);
        if (used > width)
            return blank ? blank : at;
        if (text[at] == ' ')
            blank = at;
    }
    return at;
}

/* ---- putting --------------------------------------------------------------------------------- */

static void set(grid *c, int row, int col, grid_style style, const char *character)
{
    if (row < 0 || row >= c->rows || col < 0 || col >= c->cols)
        return;
    grid_cell *cell = &c->cells[row * c->cols + col];
    memcpy(cell->text, character, strlen(character) + 1);
    cell->style = (unsigned char)style;
}

int grid_put(grid *c, int row, int col, int width, grid_style style, const char *text)
{
    const char *more = c->utf8 ? "…" : "~";
    int used = 0, length;
    char out[5];
    width = col + width > c->cols ? c->cols - col : width;
    const bool fits = grid_width(c, text) <= width;
    const int room = fits ? width : width - 1;
    for (; *text; text += length) {
        const int wide = shown(c, text, &length, out);
        if (wide == 0)
            continue;
        if (used + wide > room)
            break;
        set(c, row, col + used, style, out);
        if (wide == 2)
            set(c, row, col + used + 1, style, "");
        used += wide;
    }
    if (!fits && width > 0)
        set(c, row, col + used++, style, more);
    return used;
}

void grid_put_tail(grid *c, int row, int col, int width, grid_style style, const char *text)
{
    if (grid_width(c, text) <= width) {
        grid_put(c, row, col, width, style, text);
        return;
    }
    while (*text && grid_width(c, text) > width - 1) {
        text++;
        while (((unsigned char)*text & 0xC0) == 0x80)
            text++;
    }
    grid_put(c, row, col, width < 1 ? 0 : 1, style, c->utf8 ? "…" : "~");
    grid_put(c, row, col + 1, width - 1, style, text);
}

int grid_print(grid *c, int row, int col, int width, grid_style style, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return grid_put(c, row, col, width, style, text);
}

void grid_right(grid *c, int row, int col, int width, grid_style style, const char *text)
{
    const int used = grid_width(c, text);
    const int skip = used < width ? width - used : 0;
    grid_put(c, row, col + skip, width - skip, style, text);
}

void grid_bar(grid *c, int row, int col, int width, grid_style style, double share)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    if (width <= 0 || !(share > 0))
        return;
    const double columns = (share < 1 ? share : 1) * width;
    const int whole = (int)columns, part = (int)((columns - whole) * 8);
    for (int i = 0; i < whole; i++)
        set(c, row, col + i, style, c->utf8 ? "█" : "#");
    if (c->utf8 && whole < width && part > 0)
        set(c, row, col + whole, style, eighths[part]);
    else if (whole == 0) /* something is not nothing */
        set(c, row, col, style, c->utf8 ? "▏" : ".");
}

void grid_style_row(grid *c, int row, grid_style style)
{
    for (int col = 0; row >= 0 && row < c->rows && col < c->cols; col++)
        c->cells[row * c->cols + col].style = (unsigned char)style;
}

/* ---- writing it out -------------------------------------------------------------------------- */

static const char *code_for(grid_style style, grid_form form)
{
    static const char *const colour[STYLES] = {"0",    "0;1",    "0;2",  "0;32",
                                               "0;33", "0;1;31", "0;36", "0;7"};
    static const char *const mono[STYLES] = {"0", "0;1", "0", "0", "0;1", "0;1", "0", "0;7"};
    return form == GRID_COLOUR ? colour[style] : mono[style];
}

static bool is_blank(const grid_cell *cell)
{
    return strcmp(cell->text, " ") == 0 && cell->style != STYLE_HEAD;
}

static void render_row(const grid *c, int row, grid_form form, FILE *out)
{
    const grid_cell *cells = &c->cells[row * c->cols];
    int end = c->cols, style = STYLE_PLAIN;
    while (end > 0 && is_blank(&cells[end - 1]))
        end--;
    for (int col = 0; col < end; col++) {
        if (form != GRID_TEXT && cells[col].style != style) {
            style = cells[col].style;
            fprintf(out, "\033[%sm", code_for((grid_style)style, form));
        }
        fputs(cells[col].text, out);
    }
    if (style != STYLE_PLAIN)
        fputs("\033[0m", out);
}

/* Lines are written over what was there and the rest of each is cleared, so nothing flickers. A
 * full last column is not cleared behind: some terminals are already on it. */
char *grid_render(const grid *c, grid_form form, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return cli_strdup("");
    int rows = c->rows;
    for (bool empty = true; form == GRID_TEXT && empty && rows > 0; rows -= empty)
        for (int col = 0; col < c->cols && empty; col++)
            empty = is_blank(&c->cells[(rows - 1) * c->cols + col]);
    if (form != GRID_TEXT)
        fputs("\033[H", out);
    for (int row = 0; row < rows; row++) {
        if (form != GRID_TEXT)
            fprintf(out, "\033[%d;1H\033[K", row + 1);
        render_row(c, row, form, out);
        if (form == GRID_TEXT)
            fputc('\n', out);
    }
    fclose(out);
    return text;
}
