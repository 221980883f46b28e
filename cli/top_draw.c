/* SPDX-License-Identifier: Apache-2.0
 * The screen of penstock top, from above: what it is, the verdict, the engine, the jobs, the chosen
 * job's stages with lanes, cache, tiers and sources below or beside them. What there is no room
 * for drops out, the least important first. */
#include "top_draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "top_table.h"

enum { WIDE = 120, GAP = 2 };

/* ---- order ----------------------------------------------------------------------------------- */

static const top_look *order; /* of the sort that is under way */

static int compare(double a, double b)
{
    return a < b ? -1 : a > b;
}

/* Rates and stalls from the largest on, as these are looked for. */
static int by_order(const void *one, const void *other)
{
    const view_job *a = one, *b = other;
    int by = 0;
    switch (order->sort) {
    case SORT_RATE:
        by = compare(b->rate, a->rate);
        break;
    case SORT_STALL:
        by = compare(b->stall, a->stall);
        break;
    case SORT_READY:
        by = compare(a->ready, b->ready);
        break;
    case SORT_EPOCH:
        by = compare(b->epoch, a->epoch);
        if (by == 0)
            by = compare(b->epoch_done, a->epoch_done);
        break;
    case SORT_DATASET:
        by = strcmp(a->dataset, b->dataset);
        break;
    default:
        break;
    }
    if (by == 0)
        by = compare(a->id, b->id);
    return order->reversed ? -by : by;
}

void draw_sort(top_view *view, const top_look *look)
{
    order = look;
    qsort(view->jobs, (size_t)view->job_count, sizeof *view->jobs, by_order);
}

int draw_chosen(const top_view *view, const top_look *look)
{
    for (int i = 0; i < view->job_count; i++)
        if (view->jobs[i].id == look->chosen)
            return i;
    return 0;
}

/* ---- small things ---------------------------------------------------------------------------- */

static grid_style style_of(double stall)
{
    return stall >= 0.2 ? STYLE_BAD : stall >= 0.02 ? STYLE_WARN : STYLE_GOOD;
}

static const char *bytes_of(char buf[TEXT_SHORT], double bytes)
{
    return text_bytes(buf, (uint64_t)bytes);
}

static const char *count_of(char buf[TEXT_SHORT], double count)
{
    return text_count(buf, (uint64_t)count);
}

/* A part of the screen that is written from above. */
typedef struct area {
    grid *c;
    int row, end, col, width; /* end: the first row that is not its own */
} area;

static void line(area *a, grid_style style, const char *text)
{
    if (a->row < a->end)
        grid_put(a->c, a->row++, a->col, a->width, style, text);
}

/* At most so many lines. */
static void wrapped(area *a, grid_style style, const char *text, int most)
{
    while (*text && most > 0 && a->row < a->end) {
        char part[512];
        const size_t length = grid_break(a->c, text, a->width);
        const bool last = most == 1 || length == 0;
        snprintf(part, sizeof part, "%.*s", last ? (int)sizeof part - 1 : (int)length, text);
        line(a, style, part);
        if (last)
            return;
        text += length;
        text += strspn(text, " ");
        most--;
    }
}

/* ---- the engine ------------------------------------------------------------------------------ */

static void draw_title(area *a, const top_view *v, const top_look *look)
{
    char up[TEXT_SHORT], dir[300];
    const int used = grid_print(a->c, a->row, a->col, a->width, STYLE_BOLD, "penstock %s",
                                v->version[0] ? v->version : "");
    char right[64];
    snprintf(right, sizeof right, "%sup %s", look->paused ? "PAUSED  " : "",
             text_duration(up, v->seconds));
    const int tail = grid_width(a->c, right) + GAP;
    grid_put_tail(a->c, a->row, used + GAP, a->width - used - GAP - tail, STYLE_DIM,
                  text_plain(dir, sizeof dir, look->dir));
    grid_right(a->c, a->row++, a->width - tail, tail, look->paused ? STYLE_WARN : STYLE_DIM, right);
}

/* Printed once there is room for every word; a screen has few rows. */
static int verdict_rows(const area *a, const top_look *look)
{
    return !look->keys ? 12 : a->c->rows >= 30 ? 3 : 2;
}

static void draw_verdict(area *a, const top_view *v, const top_look *look)
{
    if (look->trouble)
        wrapped(a, STYLE_BAD, look->trouble, 2);
    else if (v->verdict.text[0])
        wrapped(a, style_of(v->verdict.stall), v->verdict.text, verdict_rows(a, look));
    else
        line(a, STYLE_DIM, v->job_count ? "no verdict yet" : "no jobs");
}

/* "NAME 1.2 of 4.0 ####    " from there on; where it ended. */
static int gauge(area *a, int col, const char *text, double share, int bar)
{
    if (col > a->col && col + grid_width(a->c, text) > a->col + a->width)
        return col; /* half a number is worse than none */
    col += grid_put(a->c, a->row, col, a->col + a->width - col, STYLE_PLAIN, text) + 1;
    const int room = a->col + a->width - col < bar ? a->col + a->width - col : bar;
    grid_bar(a->c, a->row, col, room, share > 0.9 ? STYLE_WARN : STYLE_BAR, share);
    return col + bar + GAP;
}

static double part_of(double some, double all)
{
    return all > 0 ? fmin(some / all, 1) : 0;
}

static void draw_engine(area *a, const top_view *v)
{
    char text[128], one[TEXT_SHORT], two[TEXT_SHORT];
    const int bar = a->width >= WIDE ? 16 : a->width >= 76 ? 8 : 4;
    int col = a->col;
    if (a->row >= a->end)
        return;
    snprintf(text, sizeof text, "cores %.1f of %.0f", v->cpu_share * v->cpus, v->cpus);
    col = gauge(a, col, text, v->cpu_share, bar);
    snprintf(text, sizeof text, "workers %.0f of %.0f", v->active, v->workers);
    col = gauge(a, col, text, part_of(v->active, v->workers), bar);
    if (a->width < WIDE) {
        a->row++;
        col = a->col;
    }
    if (a->row >= a->end)
        return;
    snprintf(text, sizeof text, "memory %s of %s", bytes_of(one, v->used),
             bytes_of(two, v->memory));
    col = gauge(a, col, text, part_of(v->used, v->memory), bar);
    if (v->cache_limit > 0) {
        snprintf(text, sizeof text, "cache %s of %s", bytes_of(one, v->cache_bytes),
                 bytes_of(two, v->cache_limit));
        gauge(a, col, text, part_of(v->cache_bytes, v->cache_limit), bar);
    }
    a->row++;
}

/* ---- one job --------------------------------------------------------------------------------- */

static int by_seconds(const void *one, const void *other)
{
    return compare(((const view_stage *)other)->seconds, ((const view_stage *)one)->seconds);
}

/* In the order of the pipeline; where there is no room for all, the longest. */
static int stages_shown(const view_job *job, int room, view_stage out[VIEW_STAGES])
{
    memcpy(out, job->stages, sizeof job->stages);
    if (job->stage_count <= room)
        return job->stage_count;
    qsort(out, (size_t)job->stage_count, sizeof *out, by_seconds);
    return room;
}

static void draw_stages(area *a, const view_job *job)
{
    view_stage stages[VIEW_STAGES];
    double all = 0;
    for (int i = 0; i < job->stage_count; i++)
        all += job->stages[i].seconds;
    if (a->row >= a->end)
        return;
    const int name = a->width < 60 ? 12 : 22, bar = a->width - name - 9 - 5 - 3;
    grid_put(a->c, a->row, a->col, a->width, STYLE_BOLD,
             a->width < 60 ? "a sample's time" : "where a sample's time goes");
    grid_right(a->c, a->row++, a->col, a->width, STYLE_DIM, "per sample share");
    const int count = stages_shown(job, a->end - a->row, stages);
    for (int i = 0; i < count; i++, a->row++) {
        char each[TEXT_SHORT], percent[TEXT_SHORT];
        const double part = part_of(stages[i].seconds, all);
        grid_put(a->c, a->row, a->col, name, STYLE_PLAIN, stages[i].name);
        grid_bar(a->c, a->row, a->col + name + 1, bar,
                 stages[i].away > stages[i].seconds / 2 ? STYLE_DIM : STYLE_BAR, part);
        text_seconds(each, job->samples > 0 ? stages[i].seconds / job->samples : 0);
        grid_right(a->c, a->row, a->col + a->width - 15, 9, STYLE_PLAIN, each);
        snprintf(percent, sizeof percent, "%.0f %%", 100 * part);
        grid_right(a->c, a->row, a->col + a->width - 5, 5, STYLE_PLAIN, percent);
    }
    if (job->stage_count == 0)
        line(a, STYLE_DIM, "nothing was measured yet");
}

static void draw_lanes(area *a, const view_job *job)
{
    char text[200], slow[TEXT_SHORT], parked[TEXT_SHORT], cutoff[TEXT_SHORT];
    int used = snprintf(text, sizeof text, "lanes   %s slow, %s put aside",
                        count_of(slow, job->slow), count_of(parked, job->parked));
    if (job->cutoff > 0)
        used += snprintf(text + used, sizeof text - (size_t)used, ", cut-off %s",
                         text_seconds(cutoff, job->cutoff));
    if (job->prediction_error > 0)
        snprintf(text + used, sizeof text - (size_t)used, ", prediction off by %.0f %%",
                 100 * job->prediction_error);
    line(a, STYLE_PLAIN, text);
}

static void draw_tiers(area *a, const top_view *v)
{
    char text[200], one[TEXT_SHORT], two[TEXT_SHORT], three[TEXT_SHORT];
    if (v->disk) {
        snprintf(text, sizeof text, "disk    %s of %s, %s entries%s%s",
                 bytes_of(one, v->disk_bytes), bytes_of(two, v->disk_limit),
                 count_of(three, v->disk_entries), v->disk_off ? ", OFF" : "",
                 v->disk_errors > 0 ? ", with errors" : "");
        line(a, v->disk_off ? STYLE_BAD : STYLE_PLAIN, text);
    }
    if (v->remote) {
        snprintf(text, sizeof text, "remote  %s hits, %s misses, %s/s%s",
                 count_of(one, v->remote_hits), count_of(two, v->remote_misses),
                 bytes_of(three, v->remote_rate), v->remote_open ? ", DOWN: not asked now" : "");
        line(a, v->remote_open ? STYLE_BAD : STYLE_PLAIN, text);
    }
    if (!v->disk && !v->remote)
        line(a, STYLE_DIM, "tiers   none");
}

static void draw_sources(area *a, const top_view *v)
{
    for (int i = 0; i < v->source_count; i++) {
        const view_source *s = &v->sources[i];
        char text[200], rate[TEXT_SHORT], count[TEXT_SHORT], bytes[TEXT_SHORT], more[64] = "";
        if (s->retries > 0 || s->errors > 0)
            snprintf(more, sizeof more, ", %.0f retries, %.0f errors", s->retries, s->errors);
        snprintf(text, sizeof text, "%-7.7s %s/s now, %s in %s requests%s", s->kind,
                 bytes_of(rate, s->rate), bytes_of(bytes, s->bytes), count_of(count, s->requests),
                 more);
        line(a, s->errors > 0 ? STYLE_WARN : STYLE_PLAIN, text);
    }
}

static void draw_forms(area *a, const top_view *v)
{
    static const char *const names[VIEW_FORMS] = {"encoded", "decoded", "augmented"};
    char bytes[TEXT_SHORT], entries[TEXT_SHORT], hits[TEXT_SHORT], text[200];
    line(a, STYLE_BOLD, "cache");
    for (int f = 0; f < VIEW_FORMS; f++) {
        snprintf(text, sizeof text, "  %-9s %10s in %s entries, %s hits", names[f],
                 bytes_of(bytes, v->forms[f].bytes), count_of(entries, v->forms[f].entries),
                 count_of(hits, v->forms[f].hits));
        line(a, STYLE_PLAIN, text);
    }
}

static void draw_bad(area *a, const top_view *v)
{
    if (v->bad_count == 0)
        return;
    line(a, STYLE_BOLD, "bad samples, the latest first");
    for (int i = 0; i < v->bad_count; i++) {
        char text[600];
        snprintf(text, sizeof text, "  %s: %s", v->bad[i].key, v->bad[i].message);
        line(a, STYLE_WARN, text);
    }
}

/* Rows that lanes, tiers and sources take at least. */
static int facts_rows(const top_view *v)
{
    const int tiers = v->disk + v->remote;
    return 1 + (tiers ? tiers : 1) + v->source_count;
}

static void draw_job(area *a, const top_view *v, const view_job *job, const top_look *look)
{
    char title[500], id[TEXT_SHORT];
    if (a->end - a->row < 3)
        return;
    a->row += a->end - a->row > 8;
    snprintf(title, sizeof title, "job %s: %s", count_of(id, job->id),
             job->verdict.text[0] ? job->verdict.text : job->dataset);
    wrapped(a, style_of(job->verdict.stall), title, verdict_rows(a, look) - 1);
    if (a->width >= WIDE) {
        const int half = a->width / 2;
        area left = *a, right = *a;
        left.width = half - GAP;
        right.col += half;
        right.width -= half;
        draw_stages(&left, job);
        draw_lanes(&right, job);
        draw_tiers(&right, v);
        draw_sources(&right, v);
        if (v->cache_limit > 0)
            draw_forms(&right, v);
        draw_bad(&right, v);
        return;
    }
    area upper = *a;
    upper.end = a->end - facts_rows(v);
    if (upper.end < upper.row + 3) /* where the time goes is what one comes for */
        upper.end = a->end < upper.row + 4 ? a->end : upper.row + 4;
    draw_stages(&upper, job);
    a->row = upper.row;
    draw_lanes(a, job);
    draw_tiers(a, v);
    draw_sources(a, v);
    if (v->cache_limit > 0 && a->end - a->row > VIEW_FORMS)
        draw_forms(a, v);
    draw_bad(a, v);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void draw_keys(grid *c, const top_look *look)
{
    static const char *const names[SORTS] = {"id",    "samples/s", "stall",
                                             "ready", "epoch",     "dataset"};
    char text[160];
    snprintf(
        text, sizeof text, "q quit  j/k select  s sort: %s%s  r reverse  p %s  e engines  ? help",
        names[look->sort], look->reversed ? " reversed" : "", look->paused ? "go on" : "pause");
    grid_put(c, c->rows - 1, 0, c->cols, STYLE_DIM, text);
}

/* Rows for the list: all jobs if the rest still has room, else a third. */
static int list_rows(const top_view *v, int room)
{
    const int least = room / 3 > 3 ? room / 3 : 3;
    return v->job_count < least || room - v->job_count >= 14 ? v->job_count : least;
}

void draw_view(grid *c, const top_view *v, const top_look *look)
{
    area a = {.c = c, .end = c->rows - look->keys, .width = c->cols};
    draw_title(&a, v, look);
    draw_verdict(&a, v, look);
    draw_engine(&a, v);
    a.row += c->rows >= 20;
    if (v->job_count > 0) {
        const int chosen = draw_chosen(v, look);
        const int rows = list_rows(v, a.end - a.row - 1);
        a.row += table_draw(c, a.row, rows < a.end - a.row - 1 ? rows : a.end - a.row - 1, v, look);
        draw_job(&a, v, &v->jobs[chosen], look);
    } else if (!look->trouble) {
        line(&a, STYLE_PLAIN, "No job is open. One is opened by, for example:");
        line(&a, STYLE_PLAIN,
             "  penstock feed DATA --pipeline 'decode | resize(256)' --engine auto");
        draw_tiers(&a, v);
        draw_sources(&a, v);
    }
    if (look->keys)
        draw_keys(c, look);
}

void draw_help(grid *c)
{
    static const char *const lines[] = {
        "penstock top",
        "",
        "  j, down    the next job             k, up     the one before",
        "  s          sort by another column   r         the other way round",
        "  p          stop the picture, go on  e         other engines",
        "  h, ?       this page                q, Ctrl-C end",
        "",
        "SAMPLES/S  what the job took in the last 2 seconds",
        "STALL      the part of that time that it waited for batches",
        "READY      batches that are ready, of how many may be",
        "EPOCH      which, and how much of it was taken",
        "ENC DEC AUG  samples that began from the encoded, decoded or augmented",
        "           form in the cache",
        "A dim bar: others than the workers do that, such as reading ahead.",
        "Slow samples are put aside once they pass the cut-off (ready order).",
        "",
        "Any key goes back.",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        grid_put(c, (int)i, 0, c->cols, i == 0 ? STYLE_BOLD : STYLE_PLAIN, lines[i]);
}

void draw_engines(grid *c, const found *engines, int chosen)
{
    char dir[400];
    const int rows = c->rows - 3, first = chosen >= rows ? chosen - rows + 1 : 0;
    grid_put(c, 0, 0, c->cols, STYLE_BOLD,
             engines->count ? "Which engine?" : "No engine shows itself at the moment.");
    for (int i = first; i < engines->count && i - first < rows; i++) {
        const int row = 2 + i - first;
        grid_print(c, row, 0, c->cols, STYLE_PLAIN, "%s %-28s %s", i == chosen ? ">" : " ",
                   engines->at[i].what, text_plain(dir, sizeof dir, engines->at[i].dir));
        if (i == chosen)
            grid_style_row(c, row, STYLE_HEAD);
    }
    grid_put(c, c->rows - 1, 0, c->cols, STYLE_DIM, "j/k select  Enter look at it  q quit");
}
