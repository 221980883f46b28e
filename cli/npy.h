/* SPDX-License-Identifier: Apache-2.0
 * NumPy array files, version 1.0. */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stddef.h>
#include <stdint.h>

enum { NPY_HEADER_BYTES = 512 };
/* Fills header with magic, length and dictionary, padded so that the data starts at a multiple of
 * 64. Returns its size; 0 for a type that has no name. */
size_t npy_header(char header[NPY_HEADER_BYTES], int dtype, int rank, const int64_t *shape);
/* Writes an array in C order; bf16, which NumPy has no name for, as uint16. Prints its own message;
 * returns an exit code. */
int npy_write(const char *path, int dtype, int rank, const int64_t *shape, const void *data,
              size_t bytes);

#endif
