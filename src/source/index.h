/* SPDX-License-Identifier: Apache-2.0
 * Remembered listings: one file per dataset path, read whole, checked, and never trusted further
 * than the times and inodes in it. Anything wrong with it means that the dataset is listed again.
 * Private to the source room; opening thread. */
#ifndef PSTI_SOURCE_INDEX_H
#define PSTI_SOURCE_INDEX_H

#include "source/source_priv.h"
#include "source/tree.h"

/* File times this close to the listing may hide a later change in the same tick of the file
 * system's clock. */
#define PSTI_INDEX_DOUBT_NS 2000000000ll

/* Layout on disk: this header, then body_bytes. Native byte order; another order makes the magic
 * wrong. */
typedef struct psti_index_header {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;   /* psti_source_kind */
    uint32_t layout; /* sizes of the structs that the body holds */
    uint32_t crc;    /* CRC32C of the body, then of this header with crc = 0 */
    uint64_t body_bytes;
    int64_t listed_ns; /* wall clock when listing began */
    uint64_t reserved[2];
} psti_index_header;

typedef struct psti_index {
    psti_index_header header;
    uint8_t *body; /* starts with the path of the dataset */
    size_t at;     /* where the rest begins, a multiple of 8 */
} psti_index;

uint32_t psti_index_layout(void); /* of the structs in it, as the header has it */
/* Where the listing of a real path is remembered; NULL with *rc = 0 when nowhere. The text is the
 * caller's. */
char *psti_index_path(const pst_dataset_options *opts, const char *real, int *rc);
/* false when there is none, or none that can be used. */
bool psti_index_load(const char *index_path, const char *real, psti_index *out);
void psti_index_fini(psti_index *index);
void psti_index_forget(const char *index_path);

/* Writing: begin, any number of puts, end. A failure anywhere leaves what was there before. */
typedef struct psti_index_writer {
    int fd, rc;
    uint32_t crc;
    uint64_t total;
    uint8_t *buf;
    size_t used;
    char *path, *temp;
    psti_index_header header;
} psti_index_writer;
void psti_index_begin(psti_index_writer *w, const psti_opening *o, psti_source_kind kind);
void psti_index_put(psti_index_writer *w, const void *bytes, size_t len);
void psti_index_end(psti_index_writer *w);

/* Folders remember the raw tree, the others the dataset. The loads give NULL when the content will
 * not do; a loaded tree takes the index's body over. */
void psti_index_save_tree(const psti_opening *o, const psti_tree *tree);
psti_tree *psti_index_load_tree(psti_index *index, const psti_opening *o);
void psti_index_save_data(const psti_opening *o, psti_dataset *data);
/* Whether it still holds is the caller's matter. */
psti_dataset *psti_index_load_data(const psti_index *index, const psti_opening *o);

#endif
