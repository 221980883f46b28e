/* SPDX-License-Identifier: Apache-2.0
 * A file that appears whole or not at all: written beside its place, flushed to disk, renamed. */
#ifndef CLI_OUTFILE_H
#define CLI_OUTFILE_H

#include <stdio.h>

typedef struct outfile {
    FILE *file;
    char *path;
    char *temp; /* NULL when path is a pipe or device and is written directly */
} outfile;

/* All print their own message and return an exit code. A zeroed outfile may be dropped. */
/* Whether the file could be written, told before the work is done rather than after; makes nothing.
 */
int outfile_check(const char *path);
int outfile_open(outfile *out, const char *path);
int outfile_commit(outfile *out);
void outfile_drop(outfile *out);
/* All of these bytes in one go. */
int outfile_write(const char *path, const void *bytes, size_t size);
/* Reads a whole file (malloc'ed). */
int infile_read(const char *path, void **out, size_t *size);

#endif
