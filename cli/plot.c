/* SPDX-License-Identifier: Apache-2.0
 * Drawing bars. Nothing is fetched and nothing runs: shapes, texts and a style sheet. */
#include "plot.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum {
    WIDTH = 720,
    LEFT = 8,
    NAME_ROWS = 18,
    BAR = 18,
    GAP = 12,
    TOP = 30,
    RIGHT = 120,
    LEGEND = 22
};

/* ---- texts ---------------------------------------------------------------------------------- */

/* Bytes of the character there; 0: it is none. */
static int length_at(const unsigned char *p)
{
    const int bytes = p[0] < 0x80                    ? 1
                      : p[0] >= 0xc2 && p[0] <= 0xdf ? 2
                      : p[0] >= 0xe0 && p[0] <= 0xef ? 3
                      : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                                     : 0;
    for (int i = 1; i < bytes; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* what XML has no place for */
    const bool surrogate = bytes == 3 && p[0] == 0xed && p[1] > 0x9f;
    const bool none = bytes == 3 && p[0] == 0xef && p[1] == 0xbf && p[2] > 0xbd;
    return surrogate || none ? 0 : bytes;
}

void plot_text(FILE *out, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0';) {
        const int bytes = length_at(p);
        if (bytes == 0 || *p < 0x20 || *p == 0x7f)
            fputc('?', out);
        else if (*p == '&')
            fputs("&amp;", out);
        else if (*p == '<')
            fputs("&lt;", out);
        else if (*p == '>')
            fputs("&gt;", out);
        else if (*p == '"')
            fputs("&quot;", out);
        else if (*p == '\'')
            fputs("&#39;", out);
        else
            fwrite(p, 1, (size_t)bytes, out);
        p += bytes > 0 ? bytes : 1;
    }
}

void plot_figure(FILE *out, const plot *p, double value)
{
    if (isnan(value))
        fputs("–", out);
    else
        fprintf(out, "%.*f", value < 1e3 ? p->digits : 0, value);
}

/* ---- style ---------------------------------------------------------------------------------- */

void plot_style(FILE *out)
{
    static const char *const light[PLOT_PARTS] = {"#1f6f8b", "#d1803a", "#5b8c3a", "#8a5aa3",
                                                  "#b23a48", "#6b6f76", "#2a9d8f", "#c2a633",
                                                  "#4361a8", "#a34f2b", "#3c6e47", "#7d4f74"};
    static const char *const dark[PLOT_PARTS] = {"#5fb3d4", "#e9a766", "#97c46f", "#c39add",
                                                 "#e77a86", "#a9aeb6", "#5fd0c3", "#e3cd6a",
                                                 "#8aa5e6", "#dd9170", "#7fb98c", "#c08fb5"};
    fputs(".plot text{font:13px system-ui,sans-serif;fill:#1b1f24}.plot .dim{fill:#57606a}"
          ".plot .title{font-weight:600;font-size:15px}.plot line{stroke:#1b1f24;stroke-width:1.5}",
          out);
    for (int i = 0; i < PLOT_PARTS; i++)
        fprintf(out, ".plot .p%d{fill:%s}", i, light[i]);
    fputs("@media (prefers-color-scheme:dark){.plot text{fill:#e6e9ed}.plot .dim{fill:#a5adb8}"
          ".plot line{stroke:#fff}",
          out);
    for (int i = 0; i < PLOT_PARTS; i++)
        fprintf(out, ".plot .p%d{fill:%s}", i, dark[i]);
    fputs("}@media print{.plot text{fill:#000}}", out);
}

/* ---- bars ----------------------------------------------------------------------------------- */

static double top_of(const plot *p)
{
    double most = 0;
    for (int i = 0; i < p->rows; i++) {
        const plot_row *row = &p->row[i];
        double sum = 0;
        for (int k = 0; k < p->parts; k++) {
            const double part = isnan(row->part[k]) ? 0 : row->part[k];
            sum = p->side_by_side ? fmax(sum, part) : sum + part;
        }
        most = fmax(most, fmax(sum, isnan(row->high) ? 0 : row->high));
    }
    return most > 0 ? most : 1;
}

static int row_height(const plot *p)
{
    return NAME_ROWS + (p->side_by_side ? p->parts * (BAR - 4) : BAR) + GAP;
}

static double scaled(const plot *p, double value)
{
    return (WIDTH - LEFT - RIGHT) * value / top_of(p);
}

static void bar(FILE *out, const plot *p, int part, double x, double y, double height, double value)
{
    fprintf(out, "<rect class=\"p%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
            part, x, y, fmax(scaled(p, value), 0.5), height);
}

static void figure_text(FILE *out, const plot *p, double x, double y, double value)
{
    fprintf(out, "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\">", x, y);
    plot_figure(out, p, value);
    plot_text(out, p->unit);
    fputs("</text>\n", out);
}

static void draw_row(FILE *out, const plot *p, const plot_row *row, double y)
{
    double sum = 0, end = 0;
    fprintf(out, "<text x=\"%d\" y=\"%.1f\">", (int)LEFT, y + 13);
    plot_text(out, row->name);
    fputs("</text>\n", out);
    y += NAME_ROWS;
    for (int k = 0; k < p->parts; k++) {
        const double part = row->part[k];
        if (isnan(part))
            continue;
        if (p->side_by_side) {
            bar(out, p, k, LEFT, y + k * (BAR - 4), BAR - 6, part);
            figure_text(out, p, LEFT + scaled(p, part) + 6, y + k * (BAR - 4) + 11, part);
            continue;
        }
        bar(out, p, k, LEFT + scaled(p, sum), y, BAR, part);
        sum += part;
        end = sum;
    }
    if (p->side_by_side)
        return;
    if (!isnan(row->low) && !isnan(row->high)) {
        fprintf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                LEFT + scaled(p, row->low), LEFT + scaled(p, row->high), y + BAR / 2.0,
                y + BAR / 2.0);
        end = fmax(end, row->high);
    }
    figure_text(out, p, LEFT + scaled(p, end) + 6, y + 13, sum);
}

static void draw_legend(FILE *out, const plot *p, double y)
{
    double x = LEFT;
    for (int k = 0; p->part[0] != NULL && k < p->parts; k++) {
        const double wide = 30 + 9.5 * (double)strlen(p->part[k]);
        if (x + wide > WIDTH) {
            x = LEFT;
            y += LEGEND;
        }
        fprintf(out,
                "<rect class=\"p%d\" x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\"/><text "
                "x=\"%.1f\" y=\"%.1f\">",
                k, x, y - 10, x + 15, y);
        plot_text(out, p->part[k]);
        fputs("</text>\n", out);
        x += wide;
    }
}

static int legend_height(const plot *p)
{
    double x = LEFT;
    int lines = p->part[0] != NULL;
    for (int k = 0; p->part[0] != NULL && k < p->parts; k++) {
        const double wide = 30 + 9.5 * (double)strlen(p->part[k]);
        lines += x + wide > WIDTH;
        x = x + wide > WIDTH ? LEFT + wide : x + wide;
    }
    return lines * LEGEND;
}

void plot_svg(FILE *out, const plot *p, bool alone)
{
    const int top = alone ? TOP : 4;
    const int height = top + legend_height(p) + p->rows * row_height(p);
    fprintf(
        out,
        "<svg %sclass=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-t %s-d\">\n",
        alone ? "xmlns=\"http://www.w3.org/2000/svg\" " : "", (int)WIDTH, height, p->id, p->id);
    fprintf(out, "<title id=\"%s-t\">", p->id);
    plot_text(out, p->title);
    fprintf(out, "</title><desc id=\"%s-d\">", p->id);
    plot_text(out, p->about);
    fputs("</desc>\n", out);
    if (alone) {
        fputs("<style>", out);
        plot_style(out);
        fputs("</style>\n", out);
    }
    if (alone) { /* in a page a heading stands above it */
        fprintf(out, "<text class=\"title\" x=\"%d\" y=\"16\">", (int)LEFT);
        plot_text(out, p->title);
        fputs("</text>\n", out);
    }
    draw_legend(out, p, top + 12);
    for (int i = 0; i < p->rows; i++)
        draw_row(out, p, &p->row[i], top + legend_height(p) + i * row_height(p));
    fputs("</svg>\n", out);
}

/* ---- the table beside it -------------------------------------------------------------------- */

static bool has_spread(const plot *p)
{
    for (int i = 0; i < p->rows; i++)
        if (!isnan(p->row[i].low))
            return true;
    return false;
}

void plot_table(FILE *out, const plot *p)
{
    const bool spread = has_spread(p);
    fputs("<table><thead><tr><th scope=\"col\">run</th>", out);
    for (int k = 0; k < p->parts; k++) {
        fputs("<th scope=\"col\">", out);
        plot_text(out, p->parts > 1 ? p->part[k] : p->title);
        plot_text(out, *p->unit ? "," : "");
        plot_text(out, p->unit);
        fputs("</th>", out);
    }
    if (spread)
        fputs("<th scope=\"col\">lowest</th><th scope=\"col\">highest</th>", out);
    fputs("</tr></thead><tbody>\n", out);
    for (int i = 0; i < p->rows; i++) {
        const plot_row *row = &p->row[i];
        fputs("<tr><th scope=\"row\">", out);
        plot_text(out, row->name);
        fputs("</th>", out);
        for (int k = 0; k < p->parts; k++) {
            fputs("<td>", out);
            plot_figure(out, p, row->part[k]);
            fputs("</td>", out);
        }
        for (int k = 0; spread && k < 2; k++) {
            fputs("<td>", out);
            plot_figure(out, p, k == 0 ? row->low : row->high);
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table>\n", out);
}
