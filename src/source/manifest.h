/* SPDX-License-Identifier: Apache-2.0
 * The rows of a manifest while it is read: what both notations (TSV, JSON lines) fill. Private to
 * the source room; one thread. */
#ifndef PSTI_SOURCE_MANIFEST_H
#define PSTI_SOURCE_MANIFEST_H

#include "source/source_priv.h"

enum { PSTI_FILE_COLUMNS_MAX = 8 };

typedef enum psti_role { PSTI_ROLE_KEY, PSTI_ROLE_FILE, PSTI_ROLE_VALUE } psti_role;

/* What a column name says: NAME or NAME:TYPE. */
typedef struct psti_heading {
    psti_role role;
    char type;  /* 'i', 'f', 't', or 0 = find out */
    int number; /* file column or stage */
} psti_heading;

typedef struct psti_rows {
    const char *path;            /* for messages */
    char root[PSTI_KEY_MAX + 1]; /* relative to the manifest; "" = its own directory */
    psti_strings names;          /* keys and paths */
    uint64_t *keys;
    uint64_t *lines; /* line numbers, for messages */
    size_t count, key_cap, line_cap;
    struct {
        char name[PST_NAME_BYTES];
        uint64_t *paths; /* in names; PSTI_ABSENT = none */
        size_t cap;
    } file[PSTI_FILE_COLUMNS_MAX];
    int files;
    psti_stages values; /* label and split among them */
} psti_rows;

/* Both fill rows from the text behind the comment lines; line: number of its first line. */
int psti_manifest_read_tsv(psti_rows *rows, const char *text, size_t len, uint64_t line,
                           pst_error *err);
int psti_manifest_read_json(psti_rows *rows, const char *text, size_t len, uint64_t line,
                            pst_error *err);

/* Understands a column name; makes its file column or stage. Names that cannot be are refused. */
int psti_rows_heading(psti_rows *rows, const char *text, size_t len, uint64_t line,
                      psti_heading *out, pst_error *err);
/* Starts a row; psti_rows_file then adds its files. */
int psti_rows_add(psti_rows *rows, const char *key, size_t len, uint64_t line, pst_error *err);
int psti_rows_file(psti_rows *rows, int column, const char *path, size_t len, pst_error *err);
int psti_rows_no_memory(const psti_rows *rows, pst_error *err);

/* The next line without its end; false at the end of the text. */
bool psti_next_line(const char **text, size_t *left, const char **line, size_t *len);

#endif
