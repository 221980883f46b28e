/* SPDX-License-Identifier: Apache-2.0
 * penstock report: one page that compares runs, or one of its plots, or its table. Main thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "outfile.h"
#include "plot.h"
#include "runs.h"

typedef enum plot_kind { THROUGHPUT, BUSY, STALL, CPU, STAGES, FORMS, WAITS, PLOT_KINDS } plot_kind;
static const char *const plot_words[] = {"none",   "throughput", "gpu",   "stall", "cpu",
                                         "stages", "hits",       "waits", NULL};

typedef struct report_values {
    arg_list files;
    const char *out, *title;
    int svg; /* plot_kind + 1 */
    bool table;
} report_values;

/* ---- plots ---------------------------------------------------------------------------------- */

static void add_row(plot *p, const run *r)
{
    plot_row *row = &p->row[p->rows++];
    *row = (plot_row){.name = r->name, .low = NAN, .high = NAN};
    for (int k = 0; k < PLOT_PARTS; k++)
        row->part[k] = NAN;
}

static void plot_spread(plot *p, const runs *all, size_t offset, double by)
{
    p->parts = 1;
    for (int i = 0; i < all->count; i++) {
        const figure *f = (const figure *)((const char *)&all->at[i] + offset);
        if (isnan(f->value))
            continue;
        add_row(p, &all->at[i]);
        plot_row *row = &p->row[p->rows - 1];
        row->part[0] = by * f->value;
        row->low = by * f->low;
        row->high = by * f->high;
    }
}

static void plot_stall(plot *p, const runs *all)
{
    p->parts = 1;
    for (int i = 0; i < all->count; i++) {
        if (isnan(all->at[i].stall))
            continue;
        add_row(p, &all->at[i]);
        p->row[p->rows - 1].part[0] = 100 * all->at[i].stall;
    }
}

static int part_of(plot *p, const char *name)
{
    for (int k = 0; k < p->parts; k++)
        if (strcmp(p->part[k], name) == 0)
            return k;
    if (p->parts == PLOT_PARTS) {
        p->part[PLOT_PARTS - 1] = "others";
        return PLOT_PARTS - 1;
    }
    p->part[p->parts] = name;
    return p->parts++;
}

static void plot_stages(plot *p, const runs *all)
{
    for (int i = 0; i < all->count; i++) {
        const run *r = &all->at[i];
        if (r->stages == 0)
            continue;
        add_row(p, r);
        for (int k = 0; k < r->stages; k++) {
            double *part = &p->row[p->rows - 1].part[part_of(p, r->stage[k].name)];
            *part = (isnan(*part) ? 0 : *part) + 1e3 * r->stage[k].seconds;
        }
    }
}

static bool is_used(const runs *all, int form)
{
    for (int i = 0; i < all->count; i++)
        if (all->at[i].from[form] > 0)
            return true;
    return false;
}

static void plot_forms(plot *p, const runs *all)
{
    int form[RUN_FORMS];
    for (int k = 0; k < RUN_FORMS; k++)
        if (is_used(all, k)) {
            form[p->parts] = k;
            p->part[p->parts++] = run_forms[k];
        }
    for (int i = 0; i < all->count && p->parts > 0; i++) {
        if (isnan(all->at[i].from[0]))
            continue;
        add_row(p, &all->at[i]);
        for (int k = 0; k < p->parts; k++)
            p->row[p->rows - 1].part[k] = 100 * all->at[i].from[form[k]];
    }
}

static void plot_waits(plot *p, const runs *all)
{
    p->parts = 2;
    p->part[0] = "half of the batches at most";
    p->part[1] = "99 % at most";
    p->side_by_side = true;
    for (int i = 0; i < all->count; i++) {
        if (isnan(all->at[i].wait_p50_s))
            continue;
        add_row(p, &all->at[i]);
        p->row[p->rows - 1].part[0] = 1e3 * all->at[i].wait_p50_s;
        p->row[p->rows - 1].part[1] = 1e3 * all->at[i].wait_p99_s;
    }
}

static void make_plot(plot *p, plot_kind kind, const runs *all)
{
    static const plot made[PLOT_KINDS] = {
        {.id = "throughput",
         .title = "samples a second",
         .about = "Throughput of each run; a line spans the lowest and the highest round.",
         .unit = "",
         .digits = 1},
        {.id = "gpu",
         .title = "time that the GPU was busy",
         .about = "Share of the time in which the GPU worked; a line spans the rounds.",
         .unit = " %",
         .digits = 1},
        {.id = "stall",
         .title = "time that the consumer waited",
         .about = "Share of the time in which the consumer waited for a batch.",
         .unit = " %",
         .digits = 1},
        {.id = "cpu",
         .title = "CPU time per sample",
         .about = "CPU milliseconds of all threads for each sample.",
         .unit = " ms",
         .digits = 3},
        {.id = "stages",
         .title = "time per stage and sample",
         .about =
             "Where a sample's time goes: milliseconds of each stage, one on top of the other.",
         .unit = " ms",
         .digits = 3},
        {.id = "hits",
         .title = "what samples began from",
         .about = "Shares of samples read from the source and found in each form or tier.",
         .unit = " %",
         .digits = 1},
        {.id = "waits",
         .title = "waits for a batch",
         .about = "How long the consumer waited for one batch: the median and the 99th percentile.",
         .unit = " ms",
         .digits = 3}};
    *p = made[kind];
    switch (kind) {
    case THROUGHPUT:
        plot_spread(p, all, offsetof(run, rate), 1);
        break;
    case BUSY:
        plot_spread(p, all, offsetof(run, busy), 100);
        break;
    case STALL:
        plot_stall(p, all);
        break;
    case CPU:
        plot_spread(p, all, offsetof(run, cpu_s), 1e3);
        break;
    case STAGES:
        plot_stages(p, all);
        break;
    case FORMS:
        plot_forms(p, all);
        break;
    default:
        plot_waits(p, all);
        break;
    }
}

/* ---- the page ------------------------------------------------------------------------------- */

static const char PAGE_STYLE[] =
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1f24;background:#fff}h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}"
    "table{border-collapse:collapse;font-size:.9rem;display:block;overflow-x:auto}"
    "th,td{padding:.25rem .6rem;border-bottom:1px solid #d0d7de;text-align:right}"
    "th[scope=row],th:first-child{text-align:left;font-weight:400;min-width:8rem;overflow-wrap:"
    "anywhere}.text{text-align:left;min-width:8rem;overflow-wrap:anywhere}"
    "td.code{text-align:left;min-width:15rem}th.code{text-align:left}"
    "code{font-size:.9em;overflow-wrap:anywhere}h2::first-letter{text-transform:uppercase}"
    "dd{margin:0 0 .6rem 1.5rem}svg{width:100%;height:auto}"
    "@media (max-width:40rem){.plot text{font-size:17px}}"
    "@media (prefers-color-scheme:dark){body{color:#e6e9ed;background:#15181c}"
    "th,td{border-color:#3b434c}}"
    "@media print{body{max-width:none;margin:0;color:#000;background:#fff}"
    "section{break-inside:avoid}}";

static void cell_number(FILE *out, double value)
{
    if (isnan(value))
        fputs("<td>–</td>", out);
    else
        fprintf(out, "<td>%.0f</td>", value);
}

static void write_runs(FILE *out, const runs *all)
{
    fputs("<section><h2>Runs</h2>\n<table><thead><tr><th scope=\"col\">run</th><th class=\"text\" "
          "scope=\"col\">file</th><th scope=\"col\">samples</th><th scope=\"col\">workers</th><th "
          "scope=\"col\">batch</th>"
          "<th class=\"code\" scope=\"col\">pipeline</th></tr></thead><tbody>\n",
          out);
    for (int i = 0; i < all->count; i++) {
        const run *r = &all->at[i];
        fputs("<tr><th scope=\"row\">", out);
        plot_text(out, r->name);
        fputs("</th><td class=\"text\">", out);
        plot_text(out, r->file);
        fputs("</td>", out);
        cell_number(out, r->samples);
        cell_number(out, r->workers);
        cell_number(out, r->batch);
        fputs("<td class=\"code\"><code>", out);
        plot_text(out, r->pipeline != NULL ? r->pipeline : "–");
        fputs("</code></td></tr>\n", out);
    }
    fputs("</tbody></table></section>\n", out);
}

static void write_verdicts(FILE *out, const runs *all)
{
    bool any = false;
    for (int i = 0; i < all->count; i++) {
        if (all->at[i].verdict == NULL || all->at[i].verdict[0] == '\0')
            continue;
        fputs(any ? "" : "<section><h2>What held them up</h2>\n<dl>\n", out);
        any = true;
        fputs("<dt>", out);
        plot_text(out, all->at[i].name);
        fputs("</dt><dd>", out);
        plot_text(out, all->at[i].verdict);
        fputs("</dd>\n", out);
    }
    fputs(any ? "</dl></section>\n" : "", out);
}

static void write_page(FILE *out, const runs *all, const char *title)
{
    plot *p = cli_alloc(sizeof *p);
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>",
          out);
    plot_text(out, title);
    fputs("</title>\n<style>", out);
    plot_style(out);
    fputs(PAGE_STYLE, out);
    fputs("</style></head>\n<body><main><h1>", out);
    plot_text(out, title);
    fputs("</h1>\n", out);
    write_verdicts(out, all);
    for (plot_kind kind = THROUGHPUT; kind < PLOT_KINDS; kind++) {
        make_plot(p, kind, all);
        if (p->rows == 0)
            continue;
        fputs("<section><h2>", out);
        plot_text(out, p->title);
        fputs("</h2>\n<p>", out);
        plot_text(out, p->about);
        fputs("</p>\n", out);
        plot_svg(out, p, false);
        plot_table(out, p);
        fputs("</section>\n", out);
    }
    write_runs(out, all);
    fprintf(out, "<footer><p>penstock %s</p></footer></main></body></html>\n", pst_version());
    free(p);
}

/* ---- the table alone ------------------------------------------------------------------------ */

/* In Markdown a name must not end its cell, nor begin something else. */
static void markdown_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("\\`*_[]<>|&", *text) != NULL)
            fputc('\\', out);
        fputc((unsigned char)*text < 0x20 ? '?' : *text, out);
    }
}

static void markdown_figure(FILE *out, const figure *f, double by, int digits)
{
    if (isnan(f->value))
        fputs("–", out);
    else
        fprintf(out, "%.*f", digits, by * f->value);
    if (!isnan(f->low) && !isnan(f->high))
        fprintf(out, " (%.*f–%.*f)", digits, by * f->low, digits, by * f->high);
}

typedef struct column {
    const char *title;
    size_t at; /* in a run */
    double by;
    int digits;
} column;

static const figure *figure_at(const run *r, const column *c)
{
    return (const figure *)((const char *)r + c->at);
}

static bool is_known(const runs *all, const column *c)
{
    for (int i = 0; i < all->count; i++)
        if (!isnan(figure_at(&all->at[i], c)->value))
            return true;
    return false;
}

static void write_table(FILE *out, const runs *all)
{
    static const column columns[] = {{"samples/s", offsetof(run, rate), 1, 0},
                                     {"of synthetic", offsetof(run, of_synthetic), 1, 2},
                                     {"GPU busy, %", offsetof(run, busy), 100, 0},
                                     {"CPU ms per sample", offsetof(run, cpu_s), 1e3, 2}};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    bool shown[COLUMNS];
    fputs("| run |", out);
    for (int k = 0; k < COLUMNS; k++) {
        shown[k] = is_known(all, &columns[k]);
        if (shown[k])
            fprintf(out, " %s |", columns[k].title);
    }
    fputs("\n|---|", out);
    for (int k = 0; k < COLUMNS; k++)
        fputs(shown[k] ? "---|" : "", out);
    for (int i = 0; i < all->count; i++) {
        fputs("\n| ", out);
        markdown_text(out, all->at[i].name);
        fputs(" |", out);
        for (int k = 0; k < COLUMNS; k++) {
            if (!shown[k])
                continue;
            fputc(' ', out);
            markdown_figure(out, figure_at(&all->at[i], &columns[k]), columns[k].by,
                            columns[k].digits);
            fputs(" |", out);
        }
    }
    fputc('\n', out);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int write_plot(FILE *out, const runs *all, plot_kind kind)
{
    plot *p = cli_alloc(sizeof *p);
    make_plot(p, kind, all);
    const int exit_code =
        p->rows > 0 ? CLI_OK : fail("no run says anything about %s", plot_words[kind + 1]);
    if (exit_code == CLI_OK)
        plot_svg(out, p, true);
    free(p);
    return exit_code;
}

static int write_what(FILE *out, const report_values *v, const runs *all)
{
    if (v->svg > 0)
        return write_plot(out, all, (plot_kind)(v->svg - 1));
    if (v->table)
        write_table(out, all);
    else
        write_page(out, all, v->title);
    return CLI_OK;
}

static int write_out(const report_values *v, const runs *all)
{
    outfile out = {0};
    if (strcmp(v->out, "-") == 0)
        return write_what(stdout, v, all);
    int exit_code = outfile_open(&out, v->out);
    if (exit_code != CLI_OK)
        return exit_code;
    exit_code = write_what(out.file, v, all);
    if (exit_code == CLI_OK)
        return outfile_commit(&out);
    outfile_drop(&out);
    return exit_code;
}

int runs_page(const runs *all, const char *out, const char *title)
{
    return write_out(&(report_values){.out = out, .title = title}, all);
}

static int run_report(const void *values)
{
    const report_values *v = values;
    runs *all = cli_alloc(sizeof *all);
    int exit_code = CLI_OK;
    for (int i = 0; i < v->files.count && exit_code == CLI_OK; i++)
        exit_code = runs_read(all, v->files.at[i]);
    runs_tell_apart(all);
    if (exit_code == CLI_OK)
        exit_code = write_out(v, all);
    runs_fini(all);
    free(all);
    return exit_code;
}

#define AT(field) offsetof(report_values, field)
static const arg_operand operands[] = {
    {"RUN.json", AT(files), false,
     "what feed --json, bench --json, bench/run.py, peers.py or train.py wrote", true},
    {NULL, 0, false, NULL, false},
};

static const arg_option options[] = {
    OPT_NEEDED("out", "FILE", AT(out), "the page; also -o FILE; - is standard output"),
    OPT_TEXT("title", "TEXT", AT(title), "Penstock runs", "what stands above it"),
    OPT_WORD("svg", "PLOT", AT(svg), plot_words, "none",
             "only one plot, as SVG: throughput, gpu, stall, cpu, stages, hits or waits"),
    OPT_FLAG("table", AT(table), "only the table of rates, GPU and CPU time, as Markdown"),
    OPT_END,
};
#undef AT

const command command_report = {
    .name = "report",
    .summary = "one page that compares runs, with plots and tables",
    .about = "The page needs nothing beside it: no script, no network. Figures that a run does not "
             "have are left out.",
    .examples = "penstock feed photos --pipeline 'decode | resize(224)' --json > a.json\n"
                "penstock report a.json b.json -o report.html",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(report_values),
    .run = run_report,
};
