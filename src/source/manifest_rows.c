/* SPDX-License-Identifier: Apache-2.0
 * Reading the two notations of a manifest into rows. Keys and paths are checked here, before
 * anything is opened. */
#include <errno.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/manifest.h"

int psti_rows_no_memory(const psti_rows *rows, pst_error *err)
{
    return psti_fail(err, -ENOMEM, "list", rows->path, "out of memory while listing");
}

bool psti_next_line(const char **text, size_t *left, const char **line, size_t *len)
{
    if (!*left)
        return false;
    const char *end = memchr(*text, '\n', *left);
    const size_t whole = end ? (size_t)(end - *text) + 1 : *left;
    *line = *text;
    *len = whole - (end != NULL);
    if (*len && (*line)[*len - 1] == '\r')
        --*len;
    *text += whole;
    *left -= whole;
    return true;
}

/* ---- headings -------------------------------------------------------------------------------- */

static int bad_heading(const psti_rows *rows, const char *text, size_t len, uint64_t line,
                       const char *why, pst_error *err)
{
    char shown[80];
    return psti_fail(err, PST_EDATASET, "list", rows->path, "line %llu: the column '%s' %s",
                     (unsigned long long)line, psti_escape(shown, sizeof shown, text, len), why);
}

/* 'i', 'f', 't', 'F' (file), or 0. */
static char type_of_word(const char *word, size_t len)
{
    static const struct {
        const char *word;
        char type;
    } types[] = {{"int", 'i'}, {"float", 'f'}, {"text", 't'}, {"file", 'F'}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].word) == len && memcmp(types[i].word, word, len) == 0)
            return types[i].type;
    return 0;
}

static int file_column(psti_rows *rows, const char *name, size_t len)
{
    for (int i = 0; i < rows->files; i++)
        if (strncmp(rows->file[i].name, name, len) == 0 && rows->file[i].name[len] == 0)
            return i;
    if (rows->files == PSTI_FILE_COLUMNS_MAX)
        return -1;
    memcpy(rows->file[rows->files].name, name, len);
    rows->file[rows->files].name[len] = 0;
    return rows->files++;
}

int psti_rows_heading(psti_rows *rows, const char *text, size_t len, uint64_t line,
                      psti_heading *out, pst_error *err)
{
    const char *colon = memchr(text, ':', len);
    const size_t name = colon ? (size_t)(colon - text) : len;
    char type = 0;
    *out = (psti_heading){.role = PSTI_ROLE_VALUE};
    if (colon) {
        type = type_of_word(colon + 1, len - name - 1);
        if (!type)
            return bad_heading(rows, text, len, line,
                               "has an unknown type; it may be int, float, text or file", err);
    }
    if (name == 3 && memcmp(text, "key", 3) == 0) {
        out->role = PSTI_ROLE_KEY;
        return 0;
    }
    if (!psti_field_name_ok(text, name))
        return bad_heading(rows, text, len, line,
                           "cannot be a field: use letters, digits, '_', '-', '.', at most 31, and "
                           "not id or valid",
                           err);
    if (type == 'F' || (!type && name == 4 && memcmp(text, "mask", 4) == 0)) {
        out->role = PSTI_ROLE_FILE;
        out->number = file_column(rows, text, name);
        if (out->number < 0)
            return bad_heading(rows, text, len, line, "is one file column too many; 8 are possible",
                               err);
        return 0;
    }
    psti_stage *stage = psti_stage_find(&rows->values, text, name);
    if (!stage)
        return bad_heading(rows, text, len, line, "is one column too many", err);
    out->type = type;
    out->number = (int)(stage - rows->values.stage);
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int check_path(const psti_rows *rows, const char *path, size_t len, uint64_t line,
                      pst_error *err)
{
    const char *fault = psti_key_fault(path, len);
    char shown[300];
    if (!fault)
        return 0;
    return psti_fail(
        err, PST_EDATASET, "list", rows->path,
        "line %llu: the path '%s' %s; paths are relative to the manifest's root and stay below it",
        (unsigned long long)line, psti_escape(shown, sizeof shown, path, len), fault);
}

int psti_rows_add(psti_rows *rows, const char *key, size_t len, uint64_t line, pst_error *err)
{
    const int rc = check_path(rows, key, len, line, err);
    if (rc)
        return rc;
    if (!psti_format_of_name(key, len))
        return psti_fail(err, PST_EDATASET, "list", rows->path,
                         "line %llu: the key '%.*s' does not end in jpg, jpeg, png, webp, npy, "
                         "npz, nii, nii.gz, wav or flac",
                         (unsigned long long)line, (int)(len < 200 ? len : 200), key);
    const size_t n = rows->count + 1;
    if (psti_grow(&rows->keys, &rows->key_cap, n, sizeof *rows->keys) ||
        psti_grow(&rows->lines, &rows->line_cap, n, sizeof *rows->lines) ||
        psti_strings_add(&rows->names, key, len, &rows->keys[rows->count]))
        return psti_rows_no_memory(rows, err);
    rows->lines[rows->count++] = line;
    return 0;
}

int psti_rows_file(psti_rows *rows, int column, const char *path, size_t len, pst_error *err)
{
    const size_t row = rows->count - 1;
    const int rc = check_path(rows, path, len, rows->lines[row], err);
    if (rc)
        return rc;
    uint64_t **paths = &rows->file[column].paths;
    const size_t before = rows->file[column].cap;
    if (psti_grow(paths, &rows->file[column].cap, rows->count, sizeof **paths))
        return psti_rows_no_memory(rows, err);
    for (size_t i = before; i < rows->file[column].cap; i++)
        (*paths)[i] = PSTI_ABSENT;
    return psti_strings_add(&rows->names, path, len, &(*paths)[row])
               ? psti_rows_no_memory(rows, err)
               : 0;
}

/* ---- TSV ------------------------------------------------------------------------------------- */

enum { COLUMNS_MAX = 64 };

typedef struct tsv {
    psti_rows *rows;
    psti_heading heading[COLUMNS_MAX];
    int columns;
    int key; /* number of the key column */
} tsv;

/* The cell at *at, which moves behind it. */
static size_t next_cell(const char *line, size_t len, size_t *at, const char **cell)
{
    *cell = line + *at;
    const char *tab = memchr(*cell, '\t', len - *at);
    const size_t n = tab ? (size_t)(tab - *cell) : len - *at;
    *at += n + 1;
    return n;
}

static bool repeats(const tsv *t, const psti_heading *h)
{
    for (int i = 0; i < t->columns; i++)
        if (t->heading[i].role == h->role && t->heading[i].number == h->number)
            return true;
    return false;
}

static int tsv_header(tsv *t, const char *line, size_t len, uint64_t number, pst_error *err)
{
    t->key = -1;
    for (size_t at = 0; at <= len;) {
        const char *cell;
        const size_t n = next_cell(line, len, &at, &cell);
        psti_heading h;
        if (t->columns == COLUMNS_MAX)
            return psti_fail(err, PST_ELIMIT, "list", t->rows->path, "more than %d columns",
                             COLUMNS_MAX);
        const int rc = psti_rows_heading(t->rows, cell, n, number, &h, err);
        if (rc)
            return rc;
        if (repeats(t, &h))
            return bad_heading(t->rows, cell, n, number, "is there twice", err);
        if (h.role == PSTI_ROLE_KEY)
            t->key = t->columns;
        t->heading[t->columns++] = h;
    }
    if (t->key < 0)
        return psti_fail(
            err, PST_EDATASET, "list", t->rows->path,
            "line %llu: no column 'key'; the first line names the columns, separated by tabs",
            (unsigned long long)number);
    return 0;
}

static int tsv_cell(tsv *t, int column, const char *cell, size_t len, pst_error *err)
{
    psti_rows *rows = t->rows;
    const psti_heading *h = &t->heading[column];
    if (len == 0 || h->role == PSTI_ROLE_KEY)
        return 0;
    if (h->role == PSTI_ROLE_FILE)
        return psti_rows_file(rows, h->number, cell, len, err);
    const int64_t row = (int64_t)rows->count - 1;
    return psti_stage_text(&rows->values, &rows->values.stage[h->number], row, cell, len)
               ? psti_rows_no_memory(rows, err)
               : 0;
}

static int tsv_row(tsv *t, const char *line, size_t len, uint64_t number, pst_error *err)
{
    const char *cell[COLUMNS_MAX];
    size_t size[COLUMNS_MAX];
    int n = 0;
    for (size_t at = 0; at <= len; n++) {
        const char *begin;
        const size_t bytes = next_cell(line, len, &at, &begin);
        if (n < COLUMNS_MAX) {
            cell[n] = begin;
            size[n] = bytes;
        }
    }
    if (n != t->columns)
        return psti_fail(err, PST_EDATASET, "list", t->rows->path,
                         "line %llu: %d cells where the header has %d", (unsigned long long)number,
                         n, t->columns);
    if (!psti_utf8_ok(line, len) || memchr(line, 0, len))
        return psti_fail(err, PST_EDATASET, "list", t->rows->path, "line %llu: not UTF-8 text",
                         (unsigned long long)number);
    int rc = psti_rows_add(t->rows, cell[t->key], size[t->key], number, err);
    for (int i = 0; i < n && !rc; i++)
        rc = tsv_cell(t, i, cell[i], size[i], err);
    return rc;
}

/* Turns the texts of each column into the type that the header names or that fits. */
static int tsv_types(tsv *t, pst_error *err)
{
    for (int i = 0; i < t->columns; i++) {
        const psti_heading *h = &t->heading[i];
        if (h->role != PSTI_ROLE_VALUE)
            continue;
        psti_stage *stage = &t->rows->values.stage[h->number];
        const char want = strcmp(stage->name, "split") == 0 ? 't' : h->type;
        int64_t row;
        if (psti_stage_infer(&t->rows->values, stage, want, &row))
            return psti_fail(
                err, PST_EDATASET, "list", t->rows->path,
                "line %llu: the cell of column '%s' is not of the type that the header gives it",
                (unsigned long long)t->rows->lines[row], stage->name);
    }
    return 0;
}

int psti_manifest_read_tsv(psti_rows *rows, const char *text, size_t len, uint64_t line,
                           pst_error *err)
{
    tsv t = {.rows = rows};
    const char *begin;
    size_t n;
    if (!psti_next_line(&text, &len, &begin, &n))
        return psti_fail(err, PST_EDATASET, "list", rows->path, "the manifest is empty");
    int rc = tsv_header(&t, begin, n, line, err);
    while (!rc && psti_next_line(&text, &len, &begin, &n)) {
        line++;
        if (n)
            rc = tsv_row(&t, begin, n, line, err);
    }
    return rc ? rc : tsv_types(&t, err);
}

/* ---- JSON lines ------------------------------------------------------------------------------ */

static int json_text_needed(const psti_rows *rows, const char *name, uint64_t line, pst_error *err)
{
    return psti_fail(err, PST_EDATASET, "list", rows->path, "line %llu: '%.60s' must be a text",
                     (unsigned long long)line, name);
}

static int json_cell(psti_rows *rows, const char *name, const json_t *value, uint64_t line,
                     pst_error *err)
{
    psti_heading h;
    int rc = psti_rows_heading(rows, name, strlen(name), line, &h, err);
    if (rc || h.role == PSTI_ROLE_KEY || json_is_null(value))
        return rc;
    psti_stage *stage = h.role == PSTI_ROLE_VALUE ? &rows->values.stage[h.number] : NULL;
    const bool text_only = h.role == PSTI_ROLE_FILE || strcmp(stage->name, "split") == 0;
    if (text_only && !json_is_string(value))
        return json_text_needed(rows, name, line, err);
    if (h.type)
        return bad_heading(rows, name, strlen(name), line,
                           "has a type; in JSON lines only ':file' may be given", err);
    if (h.role == PSTI_ROLE_FILE)
        return psti_rows_file(rows, h.number, json_string_value(value), json_string_length(value),
                              err);
    rc = psti_stage_json(&rows->values, stage, (int64_t)rows->count - 1, value);
    return rc ? psti_rows_no_memory(rows, err) : 0;
}

static int json_row(psti_rows *rows, json_t *object, uint64_t line, pst_error *err)
{
    const json_t *key = json_object_get(object, "key");
    if (!json_is_string(key))
        return json_text_needed(rows, "key", line, err);
    int rc = psti_rows_add(rows, json_string_value(key), json_string_length(key), line, err);
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        if (!rc)
            rc = json_cell(rows, name, value, line, err);
    }
    return rc;
}

int psti_manifest_read_json(psti_rows *rows, const char *text, size_t len, uint64_t line,
                            pst_error *err)
{
    const char *begin;
    size_t n;
    int rc = 0;
    for (; !rc && psti_next_line(&text, &len, &begin, &n); line++) {
        if (n == 0)
            continue;
        json_error_t at;
        json_t *object = json_loadb(begin, n, JSON_REJECT_DUPLICATES, &at);
        if (!object)
            return psti_fail(err, PST_EDATASET, "list", rows->path, "line %llu: not valid JSON: %s",
                             (unsigned long long)line, at.text);
        if (json_is_object(object))
            rc = json_row(rows, object, line, err);
        else
            rc = psti_fail(err, PST_EDATASET, "list", rows->path, "line %llu: not an object",
                           (unsigned long long)line);
        json_decref(object);
    }
    return rc;
}
