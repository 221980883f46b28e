/* SPDX-License-Identifier: Apache-2.0
 * Collecting value fields cell by cell and making columns of them. Called by the manifest and tar
 * readers, from the thread that opens the dataset. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "source/values.h"

enum { CELL_INT, CELL_REAL, CELL_BOOL, CELL_TEXT, CELL_INTS, CELL_REALS, CELL_DUMP };
enum {
    SEEN_INT = 1 << CELL_INT,
    SEEN_REAL = 1 << CELL_REAL,
    SEEN_BOOL = 1 << CELL_BOOL,
    SEEN_TEXT = 1 << CELL_TEXT,
    SEEN_INTS = 1 << CELL_INTS,
    SEEN_REALS = 1 << CELL_REALS
};

struct psti_cell {
    int64_t row;
    uint32_t type;
    uint32_t bytes; /* of text or numbers on the heap */
    union {
        int64_t i;
        double f;
        uint64_t at;
    };
};

psti_stage *psti_stage_find(psti_stages *all, const char *name, size_t len)
{
    for (int i = 0; i < all->count; i++)
        if (strncmp(all->stage[i].name, name, len) == 0 && all->stage[i].name[len] == 0)
            return &all->stage[i];
    if (all->count == PSTI_STAGES_MAX || len == 0 || len >= PST_NAME_BYTES)
        return NULL;
    psti_stage *stage = &all->stage[all->count++];
    *stage = (psti_stage){0};
    memcpy(stage->name, name, len);
    return stage;
}

static psti_cell *add_cell(psti_stage *stage, int64_t row, int type)
{
    if (psti_grow(&stage->cells, &stage->cap, stage->count + 1, sizeof *stage->cells))
        return NULL;
    psti_cell *cell = &stage->cells[stage->count++];
    *cell = (psti_cell){.row = row, .type = (uint32_t)type};
    stage->seen |= 1u << type;
    return cell;
}

static int add_heap(psti_stages *all, psti_stage *stage, int64_t row, int type, const void *bytes,
                    size_t len)
{
    uint64_t at;
    if (len > UINT32_MAX)
        return -EFBIG;
    if (psti_strings_add(&all->heap, bytes, len, &at))
        return -ENOMEM;
    psti_cell *cell = add_cell(stage, row, type);
    if (!cell)
        return -ENOMEM;
    cell->at = at;
    cell->bytes = (uint32_t)len;
    return 0;
}

int psti_stage_text(psti_stages *all, psti_stage *stage, int64_t row, const char *text, size_t len)
{
    return add_heap(all, stage, row, CELL_TEXT, text, len);
}

int psti_stage_int(psti_stage *stage, int64_t row, int64_t value)
{
    psti_cell *cell = add_cell(stage, row, CELL_INT);
    if (!cell)
        return -ENOMEM;
    cell->i = value;
    return 0;
}

/* CELL_INTS, CELL_REALS, or CELL_DUMP for arrays that hold something other than numbers. */
static int array_type(const json_t *array)
{
    int type = CELL_INTS;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (json_is_real(item))
            type = CELL_REALS;
        else if (!json_is_integer(item))
            return CELL_DUMP;
    }
    return type;
}

static int add_array(psti_stages *all, psti_stage *stage, int64_t row, const json_t *array,
                     int type)
{
    const size_t count = json_array_size(array);
    uint64_t *numbers = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *numbers);
    if (!numbers)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);
        const int64_t whole = json_integer_value(item);
        const double real = json_number_value(item);
        memcpy(&numbers[i], type == CELL_INTS ? (const void *)&whole : &real, sizeof *numbers);
    }
    const int rc = add_heap(all, stage, row, type, numbers, count * sizeof *numbers);
    psti_free(numbers);
    return rc;
}

static int add_dump(psti_stages *all, psti_stage *stage, int64_t row, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        return -ENOMEM;
    const int rc = add_heap(all, stage, row, CELL_DUMP, text, strlen(text));
    free(text); /* lint: library memory */
    return rc;
}

int psti_stage_json(psti_stages *all, psti_stage *stage, int64_t row, const json_t *value)
{
    psti_cell *cell;
    switch (json_typeof(value)) {
    case JSON_NULL:
        return 0;
    case JSON_INTEGER:
        return psti_stage_int(stage, row, json_integer_value(value));
    case JSON_REAL:
        cell = add_cell(stage, row, CELL_REAL);
        if (cell)
            cell->f = json_real_value(value);
        return cell ? 0 : -ENOMEM;
    case JSON_TRUE:
    case JSON_FALSE:
        cell = add_cell(stage, row, CELL_BOOL);
        if (cell)
            cell->i = json_is_true(value);
        return cell ? 0 : -ENOMEM;
    case JSON_STRING:
        return psti_stage_text(all, stage, row, json_string_value(value),
                               json_string_length(value));
    case JSON_ARRAY:
        if (array_type(value) != CELL_DUMP)
            return add_array(all, stage, row, value, array_type(value));
        return add_dump(all, stage, row, value);
    default:
        return add_dump(all, stage, row, value);
    }
}

static uint32_t type_of_seen(unsigned seen)
{
    if (!(seen & ~SEEN_INT))
        return PSTI_COL_I64;
    if (!(seen & ~(SEEN_INT | SEEN_REAL)))
        return PSTI_COL_F64;
    if (!(seen & ~SEEN_BOOL))
        return PSTI_COL_BOOL;
    if (!(seen & ~SEEN_INTS))
        return PSTI_COL_I64S;
    if (!(seen & ~(SEEN_INTS | SEEN_REALS)))
        return PSTI_COL_F64S;
    return PSTI_COL_TEXT;
}

bool psti_stage_mixed(const psti_stage *stage)
{
    return type_of_seen(stage->seen) == PSTI_COL_TEXT && (stage->seen & ~(unsigned)SEEN_TEXT);
}

static void fill_scalars(const psti_stage *stage, psti_column *col)
{
    for (size_t i = 0; i < stage->count; i++) {
        const psti_cell *cell = &stage->cells[i];
        if (col->type == PSTI_COL_BOOL)
            ((uint8_t *)col->cells)[cell->row] = (uint8_t)cell->i;
        else if (col->type == PSTI_COL_I64)
            ((int64_t *)col->cells)[cell->row] = cell->i;
        else
            ((double *)col->cells)[cell->row] = cell->type == CELL_INT ? (double)cell->i : cell->f;
    }
}

static json_t *array_of_cell(const psti_stages *all, const psti_cell *cell)
{
    json_t *array = json_array();
    for (size_t k = 0; array && k < cell->bytes / 8; k++) {
        int64_t whole;
        double real;
        memcpy(&whole, all->heap.data + cell->at + 8 * k, 8);
        memcpy(&real, &whole, 8);
        json_t *item = cell->type == CELL_INTS ? json_integer(whole) : json_real(real);
        if (json_array_append_new(array, item)) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

/* A cell of a mixed field as JSON; NULL when memory is short. */
static char *cell_dump(const psti_stages *all, const psti_cell *cell)
{
    json_t *value = NULL;
    if (cell->type == CELL_INT)
        value = json_integer(cell->i);
    else if (cell->type == CELL_REAL)
        value = json_real(cell->f);
    else if (cell->type == CELL_BOOL)
        value = json_boolean(cell->i);
    else if (cell->type == CELL_TEXT)
        value = json_stringn(all->heap.data + cell->at, cell->bytes);
    else
        value = array_of_cell(all, cell);
    char *dump = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    json_decref(value);
    return dump;
}

/* Appends one cell's bytes to the heap that is being built, in the column's type. */
static int append_cell(const psti_stages *all, const psti_cell *cell, uint32_t type, bool mixed,
                       psti_strings *heap)
{
    const bool as_json = type == PSTI_COL_TEXT && mixed && cell->type != CELL_DUMP;
    char *dump = as_json ? cell_dump(all, cell) : NULL;
    if (as_json && !dump)
        return -ENOMEM;
    const char *bytes = dump ? dump : all->heap.data + cell->at;
    const size_t len = dump ? strlen(dump) : cell->bytes;
    int rc = psti_grow(&heap->data, &heap->cap, heap->len + len, 1);
    if (!rc && len)
        memcpy(heap->data + heap->len, bytes, len);
    if (!rc && type == PSTI_COL_F64S && cell->type == CELL_INTS)
        for (size_t k = 0; k < len / 8; k++) {
            int64_t whole;
            memcpy(&whole, bytes + 8 * k, 8);
            const double real = (double)whole;
            memcpy(heap->data + heap->len + 8 * k, &real, 8);
        }
    if (!rc)
        heap->len += len;
    free(dump); /* lint: library memory */
    return rc;
}

static int fill_heap(const psti_stages *all, const psti_stage *stage, int64_t rows,
                     psti_column *col)
{
    psti_strings heap = {0};
    uint64_t *offsets = col->cells;
    const bool mixed = stage->seen & ~(unsigned)SEEN_TEXT;
    size_t next = 0;
    int rc = psti_strings_reserve(&heap, 8); /* there is a heap even when every text is empty */
    for (int64_t row = 0; row < rows && !rc; row++) {
        offsets[row] = heap.len;
        if (next < stage->count && stage->cells[next].row == row)
            rc = append_cell(all, &stage->cells[next++], col->type, mixed, &heap);
    }
    offsets[rows] = heap.len;
    col->heap = (uint8_t *)heap.data;
    col->heap_bytes = heap.len;
    return rc;
}

/* The bitmap of a field that some rows lack. */
static int fill_present(const psti_stage *stage, int64_t rows, psti_column *col)
{
    if ((int64_t)stage->count == rows)
        return 0;
    col->present = psti_calloc(PSTI_MEM_SOURCE, (size_t)(rows + 63) / 64, sizeof *col->present);
    if (!col->present)
        return -ENOMEM;
    for (size_t i = 0; i < stage->count; i++)
        col->present[stage->cells[i].row / 64] |= 1ull << (stage->cells[i].row % 64);
    return 0;
}

int psti_stage_finish(const psti_stages *all, const psti_stage *stage, int64_t rows,
                      psti_column *out)
{
    *out = (psti_column){.type = type_of_seen(stage->seen)};
    int rc = fill_present(stage, rows, out);
    if (!rc) {
        out->cells = psti_calloc(PSTI_MEM_SOURCE, psti_column_cell_bytes(out, rows), 1);
        rc = out->cells ? 0 : -ENOMEM;
    }
    if (!rc && out->type >= PSTI_COL_TEXT)
        rc = fill_heap(all, stage, rows, out);
    else if (!rc)
        fill_scalars(stage, out);
    if (rc)
        psti_column_fini(out);
    return rc;
}

/* Whether every cell reads as a number of the wanted sort; *row is the first that does not. */
static bool all_fit(const psti_stages *all, const psti_stage *stage, char want, int64_t *row)
{
    for (size_t i = 0; i < stage->count; i++) {
        const char *text = all->heap.data + stage->cells[i].at;
        int64_t whole;
        double real;
        const bool fits = want == 'i' ? psti_text_i64(text, stage->cells[i].bytes, &whole)
                                      : psti_text_f64(text, stage->cells[i].bytes, &real);
        if (!fits) {
            *row = stage->cells[i].row;
            return false;
        }
    }
    return true;
}

static void convert(const psti_stages *all, psti_stage *stage, char want)
{
    for (size_t i = 0; i < stage->count; i++) {
        psti_cell *cell = &stage->cells[i];
        const char *text = all->heap.data + cell->at;
        if (want == 'i')
            psti_text_i64(text, cell->bytes, &cell->i);
        else
            psti_text_f64(text, cell->bytes, &cell->f);
        cell->type = want == 'i' ? CELL_INT : CELL_REAL;
    }
    stage->seen = want == 'i' ? SEEN_INT : SEEN_REAL;
}

int psti_stage_infer(psti_stages *all, psti_stage *stage, char want, int64_t *row)
{
    if (want == 't' || stage->count == 0) {
        stage->seen = stage->count || want == 't' ? SEEN_TEXT : stage->seen;
        return 0;
    }
    if (want) {
        if (!all_fit(all, stage, want, row))
            return PST_EFIELD;
        convert(all, stage, want);
        return 0;
    }
    if (all_fit(all, stage, 'i', row))
        convert(all, stage, 'i');
    else if (all_fit(all, stage, 'f', row))
        convert(all, stage, 'f');
    return 0;
}

void psti_stages_fini(psti_stages *all)
{
    for (int i = 0; i < all->count; i++)
        psti_free(all->stage[i].cells);
    psti_strings_free(&all->heap);
    *all = (psti_stages){0};
}
