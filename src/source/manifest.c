/* SPDX-License-Identifier: Apache-2.0
 * From a manifest to a dataset: rows in line order, every file looked at, labels,
 * classes and splits from their columns. Runs in the thread that opens the dataset. */
#include "source/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/far.h"

enum { SPLITS_MAX = 256 };
#define TEXT_MAX (4ull << 30)

typedef struct making {
    psti_opening *o;
    psti_rows rows;
    psti_stamp stamp;
    psti_dataset *data;
} making;

/* ---- the text -------------------------------------------------------------------------------- */

static int read_text(making *m, const char *name, char **text, size_t *len, pst_error *err)
{
    if (m->o->far)
        return psti_far_read(m->o, name, TEXT_MAX, text, len, err);
    const int fd = psti_open_beneath(m->o->root, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, false);
    if (fd < 0)
        return psti_fail(err, fd, "list", m->o->path, "the manifest cannot be opened: %s",
                         pst_strerror(fd));
    int rc = psti_stamp_fd(fd, &m->stamp);
    if (!rc && m->stamp.size > TEXT_MAX)
        rc = psti_fail(err, PST_ELIMIT, "list", m->o->path,
                       "the manifest is larger than 4 GiB; split it");
    size_t got = 0;
    *text = rc ? NULL : psti_malloc(PSTI_MEM_SOURCE, m->stamp.size);
    if (!rc && !*text)
        rc = psti_rows_no_memory(&m->rows, err);
    while (!rc && got < m->stamp.size) {
        const ssize_t n = read(fd, *text + got, m->stamp.size - got);
        if (n > 0)
            got += (size_t)n;
        else if (n == 0 || errno != EINTR)
            rc = psti_fail(err, n ? -errno : PST_ECHANGED, "list", m->o->path,
                           "the manifest cannot be read: %s",
                           pst_strerror(n ? -errno : PST_ECHANGED));
    }
    *len = got;
    close(fd);
    return rc;
}

/* A line `# root: DIR`. */
static int take_comment(making *m, const char *line, size_t len, uint64_t number, pst_error *err)
{
    size_t at = 1;
    while (at < len && line[at] == ' ')
        at++;
    if (len - at < 5 || memcmp(line + at, "root:", 5) != 0)
        return 0;
    at += 5;
    while (at < len && line[at] == ' ')
        at++;
    while (len > at && (line[len - 1] == ' ' || line[len - 1] == '/'))
        len--;
    if (len - at == 1 && line[at] == '.')
        return 0;
    const char *fault = psti_key_fault(line + at, len - at);
    if (fault || len - at >= sizeof m->rows.root)
        return psti_fail(err, PST_EDATASET, "list", m->o->path,
                         "line %llu: the root %s; it is a folder below the manifest's own",
                         (unsigned long long)number, fault ? fault : "is too long");
    memcpy(m->rows.root, line + at, len - at);
    m->rows.root[len - at] = 0;
    return 0;
}

static int read_rows(making *m, const char *name, const char *text, size_t len, pst_error *err)
{
    uint64_t number = 1;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    while (len && text[0] == '#') {
        const char *line;
        size_t n;
        psti_next_line(&text, &len, &line, &n);
        const int rc = take_comment(m, line, n, number++, err);
        if (rc)
            return rc;
    }
    return psti_has_ext(name, strlen(name), "tsv")
               ? psti_manifest_read_tsv(&m->rows, text, len, number, err)
               : psti_manifest_read_json(&m->rows, text, len, number, err);
}

static int check_duplicates(const psti_rows *rows, pst_error *err)
{
    psti_keymap map;
    int rc = psti_keymap_init(&map, rows->count, &rows->names, rows->keys)
                 ? psti_rows_no_memory(rows, err)
                 : 0;
    for (size_t i = 0; i < rows->count && !rc; i++) {
        const int64_t before = psti_keymap_put(&map, i);
        if (before >= 0)
            rc = psti_fail(err, PST_EDATASET, "list", rows->path,
                           "lines %llu and %llu have the same key '%.200s'",
                           (unsigned long long)rows->lines[before],
                           (unsigned long long)rows->lines[i], rows->names.data + rows->keys[i]);
    }
    psti_keymap_fini(&map);
    return rc;
}

/* ---- members --------------------------------------------------------------------------------- */

static int name_taken(const making *m, const char *name, pst_error *err)
{
    return psti_fail(err, PST_EDATASET, "list", m->o->path,
                     "two fields are called '%s'; rename the column", name);
}

/* The kind that all files have; bytes where they have several. */
static pst_kind kind_of_formats(const uint64_t formats[PSTI_FORMATS])
{
    int family = -1;
    for (int i = PSTI_FORMAT_NONE + 1; i < PSTI_FORMATS; i++) {
        const int other = psti_family_of((psti_format)i);
        if (!formats[i] || other == family)
            continue;
        if (family >= 0)
            return PST_BYTES;
        family = other;
    }
    return psti_families[family].kind;
}

/* A file column: masks by name, else by what its files are. */
static int add_file_field(making *m, int column, int slot, pst_error *err)
{
    const psti_rows *rows = &m->rows;
    const char *name = rows->file[column].name;
    uint64_t formats[PSTI_FORMATS] = {0};
    for (size_t row = 0; row < rows->count && row < rows->file[column].cap; row++) {
        const uint64_t at = rows->file[column].paths[row];
        if (at == PSTI_ABSENT)
            continue;
        const char *path = rows->names.data + at;
        formats[psti_format_of_name(path, strlen(path))]++;
    }
    const char *format = formats[PSTI_FORMAT_NONE]
                             ? NULL
                             : psti_format_common(formats, PSTI_FORMAT_NONE + 1, PSTI_FORMATS - 1);
    const bool mask = strcmp(name, "mask") == 0 || strcmp(name, "seg") == 0;
    const pst_kind kind = mask ? PST_MASK : format ? kind_of_formats(formats) : PST_BYTES;
    if (psti_dataset_find_field(m->data, name, strlen(name)) >= 0)
        return name_taken(m, name, err);
    const pst_field_info info =
        psti_member_info(name, strlen(name), kind, format ? format : "mixed");
    psti_dataset_add_field(m->data, &info, true, slot);
    return 0;
}

/* `image`, `npy` and so on from the keys, then the file columns. *slots: member columns. */
static int add_member_fields(making *m, int slot_of[PSTI_FAMILIES], int *slots, pst_error *err)
{
    uint64_t formats[PSTI_FORMATS] = {0};
    for (size_t row = 0; row < m->rows.count; row++) {
        const char *key = m->rows.names.data + m->rows.keys[row];
        formats[psti_format_of_name(key, strlen(key))]++;
    }
    *slots = psti_dataset_add_families(m->data, formats, slot_of);
    int rc = 0;
    for (int i = 0; i < m->rows.files && !rc; i++)
        rc = add_file_field(m, i, (*slots)++, err);
    return rc;
}

/* Puts the paths where they go; the files themselves are looked at later. */
static int place_members(making *m, pst_error *err)
{
    psti_rows *rows = &m->rows;
    psti_dataset *data = m->data;
    int slot_of[PSTI_FAMILIES], slots;
    int rc = add_member_fields(m, slot_of, &slots, err);
    if (rc)
        return rc;
    if (psti_dataset_make_room(data, (int64_t)rows->count, slots))
        return psti_rows_no_memory(rows, err);
    data->names = rows->names;
    rows->names = (psti_strings){0};
    for (int64_t id = 0; id < data->count; id++) {
        data->keys[id] = rows->keys[id];
        const char *key = psti_text_at(data, data->keys[id]);
        const int family = psti_family_of(psti_format_of_name(key, strlen(key)));
        psti_member *first = psti_member_at(data, id, slot_of[family]);
        first->length = 0;
        first->place = data->keys[id];
        for (int i = 0; i < rows->files; i++) {
            psti_member *file = psti_member_at(data, id, slots - rows->files + i);
            const uint64_t at =
                (size_t)id < rows->file[i].cap ? rows->file[i].paths[id] : PSTI_ABSENT;
            file->place = at;
            file->length = at == PSTI_ABSENT ? PSTI_ABSENT : 0;
        }
    }
    return 0;
}

static int look_at_files(making *m, pst_error *err)
{
    psti_missing missing;
    const psti_opening *o = m->o;
    const int rc = o->far ? psti_far_look_all(m->data, o->far, o->opts, &missing, err)
                          : psti_dataset_look_all(m->data, o->opts, &missing, err);
    if (rc || !missing.count)
        return rc;
    const char *path =
        psti_text_at(m->data, psti_member_at(m->data, missing.id, missing.slot)->place);
    return psti_fail(
        err, PST_EDATASET, "list", m->o->path,
        "line %llu: '%.200s' cannot be used: %s; %llu files of the manifest are like this",
        (unsigned long long)m->rows.lines[missing.id], path, pst_strerror(missing.rc),
        (unsigned long long)missing.count);
}

/* ---- values, labels, splits ------------------------------------------------------------------ */

typedef struct distinct {
    psti_strings pool;
    uint64_t *at;
    size_t count, cap;
} distinct;

static int by_text(const void *left, const void *right, void *pool)
{
    return strcmp((const char *)pool + *(const uint64_t *)left,
                  (const char *)pool + *(const uint64_t *)right);
}

/* The different texts of a column, sorted. */
static int find_distinct(const psti_column *column, int64_t rows, distinct *d)
{
    const void *text;
    size_t len;
    psti_keymap map;
    uint64_t *scratch = psti_calloc(PSTI_MEM_SOURCE, (size_t)rows, sizeof *scratch);
    if (!scratch || psti_keymap_init(&map, (size_t)rows, &d->pool, scratch)) {
        psti_free(scratch);
        return -ENOMEM;
    }
    int rc = 0;
    for (int64_t row = 0; row < rows && !rc; row++) {
        if (psti_column_get(column, row, &text, &len) ||
            (d->count && psti_keymap_find(&map, text, len) >= 0))
            continue;
        rc = psti_strings_add(&d->pool, text, len, &scratch[d->count]);
        if (!rc)
            psti_keymap_put(&map, d->count++);
    }
    psti_keymap_fini(&map);
    d->at = scratch;
    if (!rc && d->count)
        qsort_r(d->at, d->count, sizeof *d->at, by_text, d->pool.data);
    return rc;
}

static int64_t place_of(const distinct *d, const void *text, size_t len)
{
    size_t low = 0, high = d->count;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const char *there = d->pool.data + d->at[mid];
        const int order = strncmp(there, text, len);
        if (order == 0 && there[len] == 0)
            return (int64_t)mid;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return -1;
}

static void distinct_fini(distinct *d)
{
    psti_free(d->at);
    psti_strings_free(&d->pool);
}

/* Text labels: class names are the different texts, sorted; the column becomes their numbers. */
static int number_classes(psti_dataset *data, psti_column *column)
{
    distinct d = {0};
    int64_t *labels = psti_calloc(PSTI_MEM_SOURCE, (size_t)data->count, sizeof *labels);
    int rc = labels ? find_distinct(column, data->count, &d) : -ENOMEM;
    const void *text;
    size_t len;
    for (int64_t id = 0; id < data->count && !rc; id++)
        labels[id] = psti_column_get(column, id, &text, &len) ? -1 : place_of(&d, text, len);
    data->class_at = rc ? NULL : psti_calloc(PSTI_MEM_SOURCE, d.count, sizeof *data->class_at);
    if (!rc && !data->class_at)
        rc = -ENOMEM;
    for (size_t i = 0; i < d.count && !rc; i++) {
        const char *name = d.pool.data + d.at[i];
        rc = psti_strings_add(&data->names, name, strlen(name), &data->class_at[i]);
    }
    distinct_fini(&d);
    if (rc) {
        psti_free(labels);
        return rc;
    }
    data->classes = (int64_t)d.count;
    uint64_t *present = column->present;
    column->present = NULL;
    psti_column_fini(column);
    *column = psti_column_of_i64(labels, present);
    return 0;
}

static int add_value_field(making *m, const psti_stage *stage, pst_error *err)
{
    psti_dataset *data = m->data;
    psti_column *column = &data->column[data->columns];
    const bool label = strcmp(stage->name, "label") == 0;
    if (psti_dataset_find_field(data, stage->name, strlen(stage->name)) >= 0)
        return name_taken(m, stage->name, err);
    if (data->fields == PSTI_FIELDS_MAX)
        return psti_fail(err, PST_ELIMIT, "list", m->o->path,
                         "more than %d fields; leave out some columns", PSTI_FIELDS_MAX);
    if (label && psti_stage_mixed(stage))
        return psti_fail(
            err, PST_EDATASET, "list", m->o->path,
            "the labels are of several sorts; make them all whole numbers or all texts");
    if (psti_stage_finish(&m->rows.values, stage, data->count, column))
        return psti_rows_no_memory(&m->rows, err);
    data->columns++;
    if (label && column->type == PSTI_COL_TEXT && number_classes(data, column))
        return psti_rows_no_memory(&m->rows, err);
    pst_field_info info = {0};
    const bool tsv = psti_has_ext(m->o->real, strlen(m->o->real), "tsv");
    memcpy(info.name, stage->name, sizeof info.name);
    memcpy(info.format, tsv ? "tsv" : "json", 5 - tsv);
    psti_column_describe(column, &info);
    if (label && column->type == PSTI_COL_I64)
        info.kind = PST_LABEL;
    const int field = psti_dataset_add_field(data, &info, false, data->columns - 1);
    if (info.kind == PST_LABEL)
        data->label = field;
    return 0;
}

/* The ids whose split is the given text. */
static int add_split(making *m, const psti_column *column, const char *name, pst_error *err)
{
    psti_dataset *data = m->data;
    const size_t len = strlen(name);
    const void *text;
    size_t bytes;
    int64_t *ids = psti_calloc(PSTI_MEM_SOURCE, (size_t)data->count, sizeof *ids), count = 0;
    if (!ids)
        return psti_rows_no_memory(&m->rows, err);
    for (int64_t id = 0; id < data->count; id++)
        if (psti_column_get(column, id, &text, &bytes) == 0 && bytes == len &&
            memcmp(text, name, len) == 0)
            ids[count++] = id;
    int64_t *less = count ? psti_realloc(PSTI_MEM_SOURCE, ids, (size_t)count, sizeof *ids) : NULL;
    return psti_dataset_add_split(data, name, less ? less : ids, count, err);
}

static int add_splits(making *m, const psti_stage *stage, pst_error *err)
{
    psti_column column;
    distinct d = {0};
    if (psti_stage_finish(&m->rows.values, stage, m->data->count, &column))
        return psti_rows_no_memory(&m->rows, err);
    int rc = 0;
    if (stage->count && find_distinct(&column, m->data->count, &d))
        rc = psti_rows_no_memory(&m->rows, err);
    if (!rc && d.count > SPLITS_MAX)
        rc = psti_fail(err, PST_ELIMIT, "list", m->o->path, "more than %d splits", SPLITS_MAX);
    for (size_t i = 0; i < d.count && !rc; i++)
        rc = add_split(m, &column, d.pool.data + d.at[i], err);
    distinct_fini(&d);
    psti_column_fini(&column);
    return rc;
}

static int add_values(making *m, pst_error *err)
{
    int rc = 0;
    for (int i = 0; i < m->rows.values.count && !rc; i++) {
        const psti_stage *stage = &m->rows.values.stage[i];
        rc = strcmp(stage->name, "split") == 0 ? add_splits(m, stage, err)
                                               : add_value_field(m, stage, err);
    }
    return rc;
}

/* ---- the entrance ---------------------------------------------------------------------------- */

/* The dataset over the manifest's root. */
static int make_dataset(making *m, pst_error *err)
{
    psti_opening *o = m->o;
    char root_path[2 * PSTI_KEY_MAX];
    snprintf(root_path, sizeof root_path, "%s", o->root_path);
    if (m->rows.root[0])
        snprintf(root_path, sizeof root_path, "%s/%s", o->root_path, m->rows.root);
    if (m->rows.root[0] && o->far) {
        if (psti_far_enter(o->far, m->rows.root))
            return psti_rows_no_memory(&m->rows, err);
    } else if (m->rows.root[0]) {
        const int fd = psti_open_beneath(o->root, m->rows.root, O_RDONLY | O_DIRECTORY, false);
        if (fd < 0)
            return psti_fail(err, fd, "list", o->path, "the root '%.200s' cannot be opened: %s",
                             m->rows.root, pst_strerror(fd));
        close(o->root);
        o->root = fd;
    }
    m->data = psti_dataset_new(PSTI_KIND_MANIFEST, o->real, root_path, o->root);
    o->root = -1;
    if (!m->data)
        return psti_rows_no_memory(&m->rows, err);
    m->data->made_from = m->stamp;
    return 0;
}

static int make(making *m, const char *name, pst_error *err)
{
    char *text = NULL;
    size_t len = 0;
    int rc = read_text(m, name, &text, &len, err);
    if (!rc)
        rc = read_rows(m, name, text, len, err);
    psti_free(text);
    if (!rc && !m->rows.count)
        rc = psti_fail(err, PST_EDATASET, "list", m->o->path, "the manifest has no rows");
    if (!rc)
        rc = check_duplicates(&m->rows, err);
    if (!rc)
        rc = make_dataset(m, err);
    if (!rc)
        rc = place_members(m, err);
    if (!rc)
        rc = look_at_files(m, err);
    return rc ? rc : add_values(m, err);
}

int psti_manifest_build(psti_opening *o, const char *name, psti_dataset **out, pst_error *err)
{
    making *m = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *m);
    if (!m)
        return psti_fail(err, -ENOMEM, "list", o->path, "out of memory while listing");
    m->o = o;
    m->rows.path = o->path;
    const int rc = make(m, name, err);
    if (!rc) {
        psti_dataset_settle(m->data);
        *out = m->data;
        m->data = NULL;
    }
    psti_dataset_unref(m->data);
    psti_strings_free(&m->rows.names);
    psti_free(m->rows.keys);
    psti_free(m->rows.lines);
    for (int i = 0; i < m->rows.files; i++)
        psti_free(m->rows.file[i].paths);
    psti_stages_fini(&m->rows.values);
    psti_free(m);
    return rc;
}
