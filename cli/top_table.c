/* SPDX-License-Identifier: Apache-2.0
 * The list of jobs as a table. Columns stand in the order of the table below; where the screen is
 * too narrow, those of the highest rank drop out until the rest fits. */
#include "top_table.h"

#include <math.h>
#include <string.h>

#include "cli.h"

enum { CELL = 420, DATASET_LEAST = 8, PIPELINE_LEAST = 24 };

typedef struct column {
    const char *title;
    int width; /* at least */
    int rank;
    bool left, grows;
    int sort; /* top_sort that it shows; -1 = none */
    void (*show)(const view_job *job, char out[CELL]);
} column;

/* ---- cells ----------------------------------------------------------------------------------- */

static void show_count(char out[CELL], double value)
{
    char buf[TEXT_SHORT];
    snprintf(out, CELL, "%s", text_count(buf, (uint64_t)value));
}

static void show_percent(char out[CELL], double part, double all)
{
    snprintf(out, CELL, "%.0f%%", all > 0 ? 100 * fmin(part / all, 1) : 0);
}

static void show_id(const view_job *job, char out[CELL])
{
    snprintf(out, CELL, "%.0f", job->id);
}

static void show_dataset(const view_job *job, char out[CELL])
{
    snprintf(out, CELL, "%s", job->dataset);
}

static void show_rate(const view_job *job, char out[CELL])
{
    if (job->rate < 1000)
        snprintf(out, CELL, "%.1f", job->rate);
    else
        show_count(out, job->rate);
}

static void show_stall(const view_job *job, char out[CELL])
{
    show_percent(out, job->stall, 1);
}

static void show_ready(const view_job *job, char out[CELL])
{
    snprintf(out, CELL, "%.0f/%.0f", job->ready, job->ready_depth);
}

static void show_epoch(const view_job *job, char out[CELL])
{
    const double part = job->epoch_samples > 0 ? fmin(job->epoch_done / job->epoch_samples, 1) : 0;
    snprintf(out, CELL, "%.0f: %.0f%%", job->epoch, floor(100 * part));
}

static void show_encoded(const view_job *job, char out[CELL])
{
    show_percent(out, job->hits[0], job->samples);
}

static void show_decoded(const view_job *job, char out[CELL])
{
    show_percent(out, job->hits[1], job->samples);
}

static void show_augmented(const view_job *job, char out[CELL])
{
    show_percent(out, job->hits[2], job->samples);
}

static void show_pid(const view_job *job, char out[CELL])
{
    snprintf(out, CELL, "%.0f", job->pid);
}

static void show_state(const view_job *job, char out[CELL])
{
    snprintf(out, CELL, "%s", job->state);
}

static void show_samples(const view_job *job, char out[CELL])
{
    show_count(out, job->samples);
}

static void show_prepared(const view_job *job, char out[CELL])
{
    show_count(out, job->prepared);
}

static void show_wait(const view_job *job, char out[CELL])
{
    char buf[TEXT_SHORT];
    snprintf(out, CELL, "%s", text_seconds(buf, job->wait_p99));
}

static void show_rank(const view_job *job, char out[CELL])
{
    snprintf(out, CELL, "%.0f/%.0f", job->rank, job->world);
}

static void show_skipped(const view_job *job, char out[CELL])
{
    show_count(out, job->skipped);
}

static void show_pipeline(const view_job *job, char out[CELL])
{
    snprintf(out, CELL, "%s", job->pipeline);
}

static const column columns[] = {
    {"JOB", 3, 0, false, false, SORT_ID, show_id},
    {"DATASET", DATASET_LEAST, 3, true, true, SORT_DATASET, show_dataset},
    {"STATE", 8, 9, true, false, -1, show_state},
    {"SAMPLES/S", 9, 1, false, false, SORT_RATE, show_rate},
    {"STALL", 5, 2, false, false, SORT_STALL, show_stall},
    {"READY", 5, 4, false, false, SORT_READY, show_ready},
    {"EPOCH", 8, 5, false, false, SORT_EPOCH, show_epoch},
    {"ENC", 4, 6, false, false, -1, show_encoded},
    {"DEC", 4, 6, false, false, -1, show_decoded},
    {"AUG", 4, 6, false, false, -1, show_augmented},
    {"PID", 7, 7, false, false, -1, show_pid},
    {"SAMPLES", 11, 8, false, false, -1, show_samples},
    {"PREPARED", 11, 11, false, false, -1, show_prepared},
    {"WAIT P99", 9, 10, false, false, -1, show_wait},
    {"SKIPPED", 7, 12, false, false, -1, show_skipped},
    {"RANK", 5, 13, false, false, -1, show_rank},
    {"PIPELINE", PIPELINE_LEAST, 14, true, true, -1, show_pipeline},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* ---- what fits ------------------------------------------------------------------------------- */

typedef struct fit {
    int width[COLUMNS]; /* 0 = left out */
} fit;

static int wanted(const column *k, int row_count, const view_job *jobs, const grid *c)
{
    char cell[CELL];
    int width = k->width;
    for (int i = 0; i < row_count && !k->grows; i++) {
        k->show(&jobs[i], cell);
        const int needs = grid_width(c, cell);
        width = needs > width ? needs : width;
    }
    return width;
}

static int total(const fit *f)
{
    int sum = 0;
    for (int i = 0; i < COLUMNS; i++)
        sum += f->width[i] ? f->width[i] + 1 : 0;
    return sum - 1;
}

/* One column whole before the next: a pipeline is worth nothing beside a dataset that is cut. */
static void grow(fit *f, const grid *c, const top_view *v)
{
    char cell[CELL];
    for (int i = 0; i < COLUMNS; i++) {
        int most = 0;
        for (int j = 0; f->width[i] && columns[i].grows && j < v->job_count; j++) {
            columns[i].show(&v->jobs[j], cell);
            const int needs = grid_width(c, cell);
            most = needs > most ? needs : most;
        }
        const int room = c->cols - total(f);
        if (most > f->width[i] && room > 0)
            f->width[i] += most - f->width[i] < room ? most - f->width[i] : room;
    }
}

static fit fit_columns(const grid *c, const top_view *v)
{
    fit f = {{0}};
    for (int i = 0; i < COLUMNS; i++)
        f.width[i] = wanted(&columns[i], v->job_count, v->jobs, c);
    for (int rank = COLUMNS; rank > 2 && total(&f) > c->cols; rank--)
        for (int i = 0; i < COLUMNS; i++)
            if (columns[i].rank == rank)
                f.width[i] = 0;
    grow(&f, c, v);
    return f;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static void draw_cell(grid *c, int row, int col, int width, const column *k, const view_job *job)
{
    char cell[CELL];
    k->show(job, cell);
    if (k->sort == SORT_DATASET) {
        grid_put_tail(c, row, col, width, STYLE_PLAIN, cell);
        return;
    }
    grid_style style = STYLE_PLAIN;
    if (k->sort == SORT_STALL)
        style = job->stall >= 0.2 ? STYLE_BAD : job->stall >= 0.02 ? STYLE_WARN : STYLE_GOOD;
    if (k->left)
        grid_put(c, row, col, width, style, cell);
    else
        grid_right(c, row, col, width, style, cell);
}

static void draw_row(grid *c, int row, const fit *f, const view_job *job)
{
    int col = 0;
    for (int i = 0; i < COLUMNS; i++) {
        if (!f->width[i])
            continue;
        draw_cell(c, row, col, f->width[i], &columns[i], job);
        col += f->width[i] + 1;
    }
}

static void draw_head(grid *c, int row, const fit *f, const top_look *look)
{
    int col = 0;
    for (int i = 0; i < COLUMNS; i++) {
        const column *k = &columns[i];
        if (!f->width[i])
            continue;
        const grid_style style = k->sort == (int)look->sort ? STYLE_BOLD : STYLE_DIM;
        if (k->left)
            grid_put(c, row, col, f->width[i], style, k->title);
        else
            grid_right(c, row, col, f->width[i], style, k->title);
        col += f->width[i] + 1;
    }
}

int table_draw(grid *c, int row, int rows, const top_view *v, const top_look *look)
{
    const fit f = fit_columns(c, v);
    const int chosen = draw_chosen(v, look);
    const int first = chosen >= rows ? chosen - rows + 1 : 0;
    draw_head(c, row, &f, look);
    for (int i = 0; i < rows && first + i < v->job_count; i++) {
        draw_row(c, row + 1 + i, &f, &v->jobs[first + i]);
        if (first + i == chosen && look->keys)
            grid_style_row(c, row + 1 + i, STYLE_HEAD);
    }
    return rows + 1;
}
