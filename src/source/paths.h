/* SPDX-License-Identifier: Apache-2.0
 * A list of paths in little memory: neighbours share most of their bytes, so each is kept as what
 * differs from the one before it, in blocks that begin with a whole one. A list sorted by folder
 * takes 5 to 8 bytes a path; any one is found in well under a microsecond. Built by one thread, in
 * order; then immutable, so that any thread may read. */
#ifndef PSTI_SOURCE_PATHS_H
#define PSTI_SOURCE_PATHS_H

#include <stddef.h>
#include <stdint.h>

#include "source/names.h"

typedef struct psti_paths {
    uint8_t *data;
    size_t len, cap;
    uint64_t *block; /* where each block begins in data */
    size_t blocks, block_cap;
    int64_t count;
    size_t longest; /* bytes, without a terminator */
} psti_paths;

/* Room for one path and its terminator. */
enum { PSTI_PATH_ROOM = PSTI_KEY_MAX + 1 };

/* One path after another: text is number at - 1 once it was moved. */
typedef struct psti_path_cursor {
    const psti_paths *paths;
    int64_t at; /* number of the path that comes next */
    const uint8_t *next;
    size_t len; /* of text */
    char text[PSTI_PATH_ROOM];
} psti_path_cursor;

/* last holds the path before it, and this one afterwards; its paths is the list, and all else 0
 * before the first. len is at most PSTI_KEY_MAX. 0 or -ENOMEM. */
int psti_paths_add(psti_paths *paths, psti_path_cursor *last, const char *text, size_t len);
/* Gives memory back that was taken for paths still to come. */
void psti_paths_trim(psti_paths *paths);
/* Writes path i and its terminator; returns its length. */
size_t psti_paths_get(const psti_paths *paths, int64_t i, char room[PSTI_PATH_ROOM]);
/* Puts the cursor before path i; psti_path_next then gives it, and the ones behind it. */
void psti_path_seek(psti_path_cursor *cursor, const psti_paths *paths, int64_t i);
const char *psti_path_next(psti_path_cursor *cursor);
size_t psti_paths_bytes(const psti_paths *paths); /* of memory */
void psti_paths_fini(psti_paths *paths);

#endif
