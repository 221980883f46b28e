/* SPDX-License-Identifier: Apache-2.0
 * penstock preview: a contact sheet of samples as the pipeline makes them. Main thread.
 *
 * Normalised values cannot be looked at. For display every `normalize` and `to` of the pipeline is
 * replaced by an op that does nothing, hflip(0) for pictures: random choices hang on an op's place
 * in the text, so the pictures are exactly the ones a training run gets, only not normalised. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "open.h"
#include "outfile.h"
#include "progress.h"
#include "sheet.h"

typedef struct preview_values {
    const char *data, *pipeline, *out, *split, *field, *index_dir;
    int64_t count, columns, epoch, tile;
    uint64_t seed;
    bool in_order;
} preview_values;

/* ---- the pipeline for display --------------------------------------------------------------- */

/* The character that stands before the word at `at`, blanks aside; '\0' at the start. */
static char before(const char *text, const char *at)
{
    while (at > text && at[-1] == ' ')
        at--;
    return at > text ? at[-1] : '\0';
}

/* Whether an op of this name stands there: no field, no parameter, no part of a longer word. */
static bool op_is(const char *text, const char *at, const char *name)
{
    const size_t length = strlen(name);
    const char first = before(text, at);
    if (strncmp(at, name, length) != 0 || (at > text && strchr(" |;:", at[-1]) == NULL))
        return false;
    if (first == '|' || first == ':')
        return strchr(" (|;,)", at[length]) != NULL;
    return (first == '\0' || first == ';') && strchr(" (|;", at[length]) != NULL;
}

/* Bytes of an op's name and its brackets. */
static size_t op_length(const char *op)
{
    size_t i = strcspn(op, " (|;,)");
    int depth = 0;
    if (op[i] != '(')
        return i;
    do {
        depth += op[i] == '(';
        depth -= op[i] == ')';
        i++;
    } while (op[i] != '\0' && depth > 0);
    return i;
}

static void put(char *out, size_t *used, const char *text, size_t length)
{
    if (*used + length < PIPELINE_BYTES) {
        memcpy(out + *used, text, length);
        *used += length;
    }
    out[*used] = '\0';
}

/* The pipeline to run: `nothing` in the place of each normalize and to; without ops on batches,
 * since samples are shown one by one. */
static void display_pipeline(const char *canonical, const char *nothing, char out[PIPELINE_BYTES])
{
    size_t used = 0;
    for (const char *at = canonical; *at != '\0' && strncmp(at, "||", 2) != 0;) {
        const bool finish = op_is(canonical, at, "normalize") || op_is(canonical, at, "to");
        put(out, &used, finish ? nothing : at, finish ? strlen(nothing) : 1);
        at += finish ? op_length(at) : 1;
    }
}

/* ---- samples -------------------------------------------------------------------------------- */

/* What is shown of each sample: first the fields to ask for, then those that come of them. */
enum { PANELS_MOST = 64 };
typedef struct panels {
    char name[PANELS_MOST][PST_NAME_BYTES];
    int count;
    char boxes[PST_NAME_BYTES]; /* drawn into the images; "": there are none */
    const char *nothing;        /* an op that leaves such fields and their masks alone */
} panels;

static int find_panels(const preview_values *v, const pst_dataset *data, panels *p)
{
    char name[PST_NAME_BYTES];
    p->nothing = find_field(data, PST_VOLUME, name)  ? "random_flip(0)"
                 : find_field(data, PST_AUDIO, name) ? "delay(0)"
                                                     : "hflip(0)";
    if (v->field != NULL) {
        snprintf(p->name[0], sizeof p->name[0], "%s", v->field);
        p->count = 1;
        return CLI_OK;
    }
    static const int kinds[] = {PST_IMAGE, PST_VOLUME, PST_AUDIO};
    for (int i = 0; i < 3 && p->count == 0; i++)
        p->count += find_field(data, kinds[i], p->name[p->count]) != NULL;
    p->count += find_field(data, PST_MASK, p->name[p->count]) != NULL;
    if (!find_field(data, PST_BOXES, p->boxes))
        p->boxes[0] = '\0';
    if (p->count == 0)
        return fail("%s has no pictures, volumes or recordings to show; 'penstock inspect %s' "
                    "lists its fields",
                    v->data, v->data);
    return CLI_OK;
}

static int open_job(const preview_values *v, pst_engine *engine, pst_dataset *data, const panels *p,
                    pst_job **job)
{
    char pipeline[PIPELINE_BYTES], canonical[PIPELINE_BYTES], fields[3 * PST_NAME_BYTES + 32];
    pst_job_options opts;
    pst_error err = {0};
    const int exit_code = check_pipeline(v->pipeline, canonical);
    if (exit_code != CLI_OK)
        return exit_code;
    display_pipeline(canonical, p->nothing, pipeline);
    snprintf(fields, sizeof fields, p->count == 2 ? "%s=padded,%s=padded" : "%s=padded", p->name[0],
             p->name[1]);
    if (*p->boxes)
        snprintf(fields + strlen(fields), sizeof fields - strlen(fields), ",%s", p->boxes);
    pst_job_options_init(&opts);
    opts.pipeline = pipeline;
    opts.split = v->split;
    opts.fields = fields;
    opts.batch = 1;
    opts.seed = v->seed;
    opts.first_epoch = (uint64_t)v->epoch;
    opts.epochs = 1;
    opts.sampler = v->in_order ? PST_SEQUENTIAL : PST_SHUFFLE;
    opts.on_error = PST_SKIP;
    opts.skip_limit = INT64_MAX;
    if (pst_job_open(engine, data, &opts, job, &err) < 0)
        return fail_open(pipeline, &err);
    interrupt_job(*job);
    return CLI_OK;
}

/* The pictures that the job delivers: the fields, or the views of them. */
static void list_panels(const pst_job *job, panels *p)
{
    pst_field_info info;
    p->count = 0;
    for (int i = 0; p->count < PANELS_MOST && pst_job_field(job, i, &info) == 0; i++)
        if (info.kind != PST_BOXES)
            memcpy(p->name[p->count++], info.name, sizeof info.name);
}

static void set_pixel(tile *t, int x, int y)
{
    static const uint8_t colour[3] = {80, 255, 80};
    if (x >= 0 && y >= 0 && x < t->width && y < t->height)
        memcpy(t->rgb + 3 * ((size_t)y * (size_t)t->width + (size_t)x), colour, 3);
}

/* The outlines of a batch's boxes, in the tile of the picture that they are in. */
static void draw_boxes(const pst_batch_desc *desc, const char *name, const pst_field *image,
                       tile *t)
{
    const pst_field *field = pst_batch_find(desc, name);
    if (field == NULL || field->packing != PST_RAGGED || image->kind != PST_IMAGE ||
        image->layout != PST_NHWC)
        return;
    const int64_t *shape = (const int64_t *)((const char *)desc + field->shapes_offset);
    const float *box = (const float *)((const char *)desc + field->data_offset);
    const double across = (double)t->width / (double)image->shape[1];
    const double down = (double)t->height / (double)image->shape[0];
    for (int64_t i = 0; i < shape[0]; i++, box += 4) {
        const int left = (int)(box[0] * across), right = (int)(box[2] * across + 0.5) - 1;
        const int top = (int)(box[1] * down), bottom = (int)(box[3] * down + 0.5) - 1;
        for (int x = left; x <= right; x++) {
            set_pixel(t, x, top);
            set_pixel(t, x, bottom);
        }
        for (int y = top; y <= bottom; y++) {
            set_pixel(t, left, y);
            set_pixel(t, right, y);
        }
    }
}

static int take_tiles(const preview_values *v, const pst_batch_desc *desc, const panels *p,
                      tile *tiles)
{
    int exit_code = CLI_OK;
    for (int i = 0; i < p->count && exit_code == CLI_OK; i++) {
        const pst_field *field = pst_batch_find(desc, p->name[i]);
        if (field == NULL)
            exit_code = fail("the samples have no field %s", p->name[i]);
        else
            exit_code = tile_make(desc, field, 0, (int)v->tile, &tiles[i]);
        if (exit_code == CLI_OK && *p->boxes)
            draw_boxes(desc, p->boxes, field, &tiles[i]);
    }
    return exit_code;
}

static int collect(const preview_values *v, pst_job *job, const panels *p, tile *tiles, int *count)
{
    int exit_code = CLI_OK;
    for (*count = 0; *count < v->count && exit_code == CLI_OK; ++*count) {
        pst_batch *batch = NULL;
        const int rc = pst_job_next(job, -1, &batch);
        if (rc == 0)
            break;
        if (rc < 0)
            return fail_job(job, rc);
        exit_code = take_tiles(v, pst_batch_get(batch), p, tiles + *count * p->count);
        pst_batch_release(batch);
        progress_show("preview: %d samples", *count);
    }
    if (exit_code == CLI_OK && *count == 0)
        exit_code = fail("no sample could be read; 'penstock inspect %s --deep' says why", v->data);
    return exit_code;
}

static int default_columns(int count)
{
    int columns = 1;
    while (columns * columns < count)
        columns++;
    return columns;
}

static int make_sheet(const preview_values *v, pst_job *job, const panels *p)
{
    int count = 0;
    const int most = (int)v->count * p->count;
    tile *tiles = cli_alloc((size_t)most * sizeof *tiles);
    int exit_code = collect(v, job, p, tiles, &count);
    progress_clear();
    if (exit_code == CLI_OK)
        exit_code = sheet_write(v->out, tiles, count, p->count,
                                v->columns > 0 ? (int)v->columns : default_columns(count));
    for (int i = 0; i < most; i++)
        tile_fini(&tiles[i]);
    free(tiles);
    return exit_code;
}

static int run_preview(const void *values)
{
    const preview_values *v = values;
    pst_engine *engine = NULL;
    pst_dataset *data = NULL;
    pst_job *job = NULL;
    pst_error err = {0};
    panels p = {.count = 0};
    int exit_code = check_pipeline(v->pipeline, NULL);
    if (exit_code == CLI_OK)
        exit_code = outfile_check(v->out);
    if (exit_code == CLI_OK)
        exit_code = open_data(v->data, v->index_dir, &data);
    if (exit_code == CLI_OK)
        exit_code = find_panels(v, data, &p);
    if (exit_code == CLI_OK && pst_engine_new(NULL, &engine, &err) < 0)
        exit_code = fail_error(&err);
    if (exit_code == CLI_OK)
        exit_code = open_job(v, engine, data, &p, &job);
    if (exit_code == CLI_OK) {
        list_panels(job, &p);
        exit_code = make_sheet(v, job, &p);
    }
    if (exit_code == CLI_OK && pst_engine_bad_count(engine) > 0)
        say("%zu bad samples were left out; 'penstock inspect %s --deep' lists them",
            pst_engine_bad_count(engine), v->data);
    interrupt_job(NULL);
    pst_job_close(job);
    pst_dataset_close(data);
    pst_engine_free(engine);
    return exit_code;
}

/* ---- the command ---------------------------------------------------------------------------- */

#define AT(field) offsetof(preview_values, field)
static const arg_operand operands[] = {
    {"DATA", AT(data), false, "folder, tar file, folder of tar shards, manifest, or one file"},
    {NULL, 0, false, NULL},
};

static const arg_option options[] = {
    OPT_NEEDED("pipeline", "TEXT", AT(pipeline), "what is done to each sample; see: penstock ops"),
    OPT_NEEDED("out", "SHEET.png", AT(out), "the file to write"),
    OPT_INT("count", "N", AT(count), 1, 4096, "16", "samples to show"),
    OPT_INT("columns", "C", AT(columns), 0, 4096, "0", "samples side by side; 0 = about a square"),
    OPT_INT("tile", "PX", AT(tile), 8, 4096, "256",
            "larger pictures are shrunk to this many pixels on the longer side"),
    OPT_U64("seed", "S", AT(seed), "0", "of order and random choices"),
    OPT_INT("epoch", "E", AT(epoch), 0, 4294967295.0, "0", "order and choices of this epoch"),
    OPT_TEXT("split", "NAME", AT(split), NULL, "only this split of the data"),
    OPT_TEXT("field", "NAME", AT(field), NULL,
             "the field to show (default: the image, volume or recording, and the mask beside "
             "it)"),
    OPT_FLAG("in-order", AT(in_order), "the first samples instead of shuffled ones"),
    OPT_INDEX_DIR(AT(index_dir)),
    OPT_END,
};
#undef AT

const command command_preview = {
    .name = "preview",
    .summary = "a contact sheet of samples as the pipeline makes them, to look at",
    .about = "The sheet shows the pictures that a training run with the same seed and epoch starts "
             "with, before normalisation and without ops on batches. Views stand side by side. "
             "Masks get a colour per index, boxes are drawn in. Of a volume the plane in the "
             "middle is shown, of a "
             "recording its samples as a line, or its features with time from left to right.",
    .examples =
        "penstock preview photos --pipeline 'decode | random_resized_crop(224) | hflip | "
        "normalize(imagenet)' --out sheet.png\n"
        "penstock preview photos --pipeline decode --in-order --count 100 --tile 128 --out all.png",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(preview_values),
    .run = run_preview,
};
