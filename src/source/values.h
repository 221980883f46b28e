/* SPDX-License-Identifier: Apache-2.0
 * Value fields: numbers and texts that live in the manifest itself. While a dataset is read they
 * are collected as cells of whatever type they came with; at the end each field becomes a column of
 * one type. One thread at a time. */
#ifndef PSTI_SOURCE_VALUES_H
#define PSTI_SOURCE_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock.h"
#include "source/pool.h"

/* Column types. Stored in remembered listings: append only. */
enum {
    PSTI_COL_I64 = 1, /* cells: int64_t[count] */
    PSTI_COL_F64,     /* double[count] */
    PSTI_COL_BOOL,    /* uint8_t[count] */
    PSTI_COL_TEXT,    /* uint64_t[count + 1] offsets into heap, UTF-8 */
    PSTI_COL_I64S,    /* the same, int64_t numbers */
    PSTI_COL_F64S,    /* the same, double numbers */
    PSTI_COL_F32S,    /* the same, float numbers */
    PSTI_COL_BYTES,   /* the same, bytes */
    PSTI_COL_LAST = PSTI_COL_BYTES
};

/* One value field of all samples; immutable once built. */
typedef struct psti_column {
    uint32_t type;
    uint64_t *present; /* a bit per sample; NULL = all have it */
    void *cells;
    uint8_t *heap; /* texts and arrays one after another */
    size_t heap_bytes;
} psti_column;

/* 0, or -ENOENT when the sample has none. *value points into the column. */
int psti_column_get(const psti_column *col, int64_t id, const void **value, size_t *bytes);
size_t psti_column_cell_bytes(const psti_column *col, int64_t count); /* of cells */
size_t psti_column_bytes(const psti_column *col, int64_t count);      /* all memory */
void psti_column_fini(psti_column *col);
/* Fills what a field of this column looks like: kind, dtype, rank, shape. */
void psti_column_describe(const psti_column *col, pst_field_info *info);
/* A column of count int64 that takes values over, absent where the bit is not set (present may be
 * NULL). */
psti_column psti_column_of_i64(int64_t *values, uint64_t *present);

/* ---- collecting ------------------------------------------------------------------------------ */

enum { PSTI_STAGES_MAX = 64 };

typedef struct psti_cell psti_cell;

typedef struct psti_stage {
    char name[PST_NAME_BYTES];
    psti_cell *cells; /* in row order */
    size_t count, cap;
    unsigned seen; /* a bit per cell type that came */
} psti_stage;

typedef struct psti_stages {
    psti_stage stage[PSTI_STAGES_MAX];
    int count;
    psti_strings heap; /* texts and arrays of all stages */
    uint64_t left_out; /* values whose field had no place or no usable name */
} psti_stages;

/* The stage of that name, made if needed; NULL when the name is unusable or all places are taken.
 */
psti_stage *psti_stage_find(psti_stages *all, const char *name, size_t len);
int psti_stage_text(psti_stages *all, psti_stage *stage, int64_t row, const char *text, size_t len);
int psti_stage_int(psti_stage *stage, int64_t row, int64_t value);
/* One JSON value: null is nothing; nested things are kept as JSON text. */
int psti_stage_json(psti_stages *all, psti_stage *stage, int64_t row, const json_t *value);
/* Makes the column of `rows` samples. Ints widen to floats; other mixes become JSON text. 0 or
 * -ENOMEM. */
int psti_stage_finish(const psti_stages *all, const psti_stage *stage, int64_t rows,
                      psti_column *out);
/* Whether its cells would become JSON text because they are of several sorts. */
bool psti_stage_mixed(const psti_stage *stage);
/* For cells that came as bare text (TSV): turns them into the narrowest of int, float and text that
 * fits all. want: 'i', 'f', 't', or 0 to find out. On failure *row is the first row that does not
 * fit: PST_EFIELD. */
int psti_stage_infer(psti_stages *all, psti_stage *stage, char want, int64_t *row);
void psti_stages_fini(psti_stages *all);

/* A field name: letters, digits, `_`, `-`, `.`; at most 31 bytes; not one that every batch has. */
bool psti_field_name_ok(const char *name, size_t len);
/* Whole text as a number, no space around it. */
bool psti_text_i64(const char *text, size_t len, int64_t *out);
bool psti_text_f64(const char *text, size_t len, double *out);

#endif
