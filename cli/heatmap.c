/* SPDX-License-Identifier: Apache-2.0
 * The triangle of splits as an SVG heat map: each corner is a cache of one form alone, each side a
 * mix of two, the inside a mix of all. Cells are hexagons around the points of a grid; a pointer on
 * one shows its figures. Pure output. */
#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "heatmap.h"

enum { STEPS = 40, WIDTH = 760, HEIGHT = 660, LEGEND = 48 };

/* The triangle's corners on the page, by form: encoded, decoded, augmented. */
typedef struct spot {
    double x, y;
} spot;
static const spot corner[PST_FORMS] = {{110, 560}, {550, 560}, {330, 560 - 381.05}};

static const char *const limits[] = {"cores", "source", "memory", "consumers", "disk tier"};

/* Dark blue over green to yellow: even steps in lightness, also in grey and for colour-blind eyes.
 */
static const int ramp[][3] = {{54, 23, 94},   {60, 70, 138},  {43, 112, 142}, {31, 150, 139},
                              {62, 184, 116}, {150, 214, 62}, {250, 230, 60}};

static void color_of(double t, char out[8])
{
    const int last = (int)(sizeof ramp / sizeof *ramp) - 1;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    int i = (int)(t * last);
    i = i < last ? i : last - 1;
    const double f = t * last - i;
    int rgb[3];
    for (int c = 0; c < 3; c++)
        rgb[c] = (int)lround(ramp[i][c] + f * (ramp[i + 1][c] - ramp[i][c]));
    snprintf(out, 8, "#%02x%02x%02x", (unsigned)rgb[0] & 255, (unsigned)rgb[1] & 255,
             (unsigned)rgb[2] & 255);
}

static spot place(const double share[PST_FORMS])
{
    spot at = {0, 0};
    for (int form = 0; form < PST_FORMS; form++) {
        at.x += share[form] * corner[form].x;
        at.y += share[form] * corner[form].y;
    }
    return at;
}

static void text(FILE *out, double x, double y, const char *attributes, const char *words)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    for (const char *c = words; *c; c++) {
        if (*c == '<')
            fputs("&lt;", out);
        else if (*c == '&')
            fputs("&amp;", out);
        else
            fputc(*c, out);
    }
    fputs("</text>\n", out);
}

/* ---- cells ---------------------------------------------------------------------------------- */

typedef struct cells {
    pst_plan_point at[(STEPS + 1) * (STEPS + 2) / 2];
    int count;
    double least, most;
} cells;

static void look(const pst_plan *plan, cells *all)
{
    all->least = INFINITY;
    for (int a = 0; a <= STEPS; a++) {
        for (int d = 0; d + a <= STEPS; d++) {
            const double share[PST_FORMS] = {(double)(STEPS - a - d) / STEPS, (double)d / STEPS,
                                             (double)a / STEPS};
            pst_plan_point *p = &all->at[all->count++];
            p->size = sizeof *p;
            pst_plan_at(plan, share, p);
            all->least = fmin(all->least, p->samples_s);
            all->most = fmax(all->most, p->samples_s);
        }
    }
}

static double scale(const cells *all, double samples_s)
{
    const double span = all->most - all->least;
    return span > 1e-6 * all->most ? (samples_s - all->least) / span : 0.5;
}

static void write_cell(FILE *out, const cells *all, const pst_plan_point *p)
{
    const double radius = (corner[1].x - corner[0].x) / STEPS / 1.7320508 * 1.02;
    const spot at = place(p->share);
    char color[8];
    color_of(scale(all, p->samples_s), color);
    fprintf(out, "<polygon fill=\"%s\" points=\"", color);
    for (int i = 0; i < 6; i++) {
        const double angle = (60 * i + 30) * 3.14159265358979 / 180;
        fprintf(out, "%s%.1f,%.1f", i ? " " : "", at.x + radius * cos(angle),
                at.y + radius * sin(angle));
    }
    fprintf(out,
            "\"><title>%.1f %% encoded, %.1f %% decoded, %.1f %% augmented: %.0f samples/s, limit: "
            "%s</title></polygon>\n",
            100 * p->share[0], 100 * p->share[1], 100 * p->share[2], p->samples_s,
            limits[p->limit]);
}

/* ---- words ---------------------------------------------------------------------------------- */

static void write_corner(FILE *out, const pst_plan *plan, int form)
{
    static const char *const names[] = {"all encoded", "all decoded", "all augmented"};
    static const spot away[] = {{-4, 40}, {4, 40}, {0, -38}};
    double share[PST_FORMS] = {0};
    char rate[64], number[TEXT_SHORT];
    pst_plan_point p = {.size = sizeof p};
    share[form] = 1;
    pst_plan_at(plan, share, &p);
    snprintf(rate, sizeof rate, "%s samples/s", text_count(number, (uint64_t)llround(p.samples_s)));
    const double x = corner[form].x + away[form].x, y = corner[form].y + away[form].y;
    text(out, x, y, "text-anchor=\"middle\" class=\"name\"", names[form]);
    text(out, x, y + 18, "text-anchor=\"middle\"", rate);
}

/* Marks along a side: shares of the form that the side leads to. */
static void write_side(FILE *out, int from, int to, double dx, double dy)
{
    for (int i = 1; i < 4; i++) {
        double share[PST_FORMS] = {0};
        char words[32];
        share[to] = i * 0.25;
        share[from] = 1 - share[to];
        const spot at = place(share);
        snprintf(words, sizeof words, "%d %%", i * 25);
        fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"tick\"/>\n",
                at.x + dx * 0.35, at.y + dy * 0.35, at.x + dx * 0.65, at.y + dy * 0.65);
        text(out, at.x + dx * 1.1, at.y + dy * 1.1 + 4, "text-anchor=\"middle\" class=\"small\"",
             words);
    }
}

static void write_best(FILE *out, const pst_plan *plan)
{
    pst_plan_point best = {.size = sizeof best};
    char words[160], number[TEXT_SHORT];
    pst_plan_best(plan, &best);
    double share[PST_FORMS], sum = 0;
    for (int form = 0; form < PST_FORMS; form++)
        sum += best.share[form];
    for (int form = 0; form < PST_FORMS; form++)
        share[form] = sum > 0 ? best.share[form] / sum : form == 0;
    const spot at = place(share);
    fprintf(out,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"9\" class=\"halo\"/>\n"
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"9\" class=\"best\"/>\n",
            at.x, at.y, at.x, at.y);
    snprintf(words, sizeof words,
             "best: %.0f %% encoded, %.0f %% decoded, %.0f %% augmented: %s samples/s, limit: %s",
             100 * best.share[0], 100 * best.share[1], 100 * best.share[2],
             text_count(number, (uint64_t)llround(best.samples_s)), limits[best.limit]);
    fputs("<circle cx=\"48\" cy=\"92\" r=\"6\" class=\"halo\"/>\n"
          "<circle cx=\"48\" cy=\"92\" r=\"6\" class=\"best\"/>\n",
          out);
    text(out, 64, 97, "class=\"name\"", words);
}

static void write_legend(FILE *out, const cells *all)
{
    const double x = 650, top = 190, height = 340;
    char color[8], number[TEXT_SHORT];
    for (int i = 0; i < LEGEND; i++) {
        color_of(1 - (i + 0.5) / LEGEND, color);
        fprintf(out, "<rect x=\"%.1f\" y=\"%.2f\" width=\"22\" height=\"%.2f\" fill=\"%s\"/>\n", x,
                top + i * height / LEGEND, height / LEGEND + 0.5, color);
    }
    text(out, x - 6, top - 14, "class=\"name\"", "samples/s");
    const bool flat = scale(all, all->most) < 1;
    for (int i = 0; i <= 4; i++) {
        const double value = all->most - (all->most - all->least) * i / 4;
        if (!flat || i == 2)
            text(out, x + 30, top + height * i / 4 + 4, "",
                 text_count(number, (uint64_t)llround(value)));
    }
}

void heatmap_write(FILE *out, const pst_plan *plan, const heatmap_words *words)
{
    cells *all = cli_alloc(sizeof *all);
    look(plan, all);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\">\n<style>text{font:14px sans-serif;fill:#222}"
            ".title{font-size:20px;font-weight:600}.name{font-weight:600}"
            ".small{font-size:12px;fill:#555}.tick{stroke:#555}"
            ".halo{fill:none;stroke:#000;stroke-width:5}"
            ".best{fill:none;stroke:#fff;stroke-width:2.5}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    text(out, 40, 42, "class=\"title\"", words->title);
    text(out, 40, 66, "class=\"small\"", words->subtitle);
    for (int i = 0; i < all->count; i++)
        write_cell(out, all, &all->at[i]);
    for (int form = 0; form < PST_FORMS; form++)
        write_corner(out, plan, form);
    write_side(out, PST_FORM_ENCODED, PST_FORM_DECODED, 0, 22);
    write_side(out, PST_FORM_DECODED, PST_FORM_AUGMENTED, 26, -15);
    write_side(out, PST_FORM_AUGMENTED, PST_FORM_ENCODED, -26, -15);
    text(out, 330, 640, "text-anchor=\"middle\" class=\"small\"",
         "Each point is a split of the cache's bytes; marks show the share of the form that the "
         "side leads to.");
    write_best(out, plan);
    write_legend(out, all);
    fputs("</svg>\n", out);
    free(all);
}
