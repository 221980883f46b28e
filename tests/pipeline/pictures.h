/* SPDX-License-Identifier: Apache-2.0
 * Pictures that the pipeline's tests make for themselves. */
#ifndef PSTI_TESTS_PIPELINE_PICTURES_H
#define PSTI_TESTS_PIPELINE_PICTURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A photo-like JPEG; seed picks its content. The memory is the caller's (free). */
uint8_t *jpeg_make(int rows, int cols, uint32_t seed, bool progressive, size_t *bytes);
/* A PNG whose pixels are picture_value(row, col) in each of `channels`; bits: 8 or 16. NULL where
 * PNG is not built in. */
uint8_t *png_make(int rows, int cols, int channels, int bits, size_t *bytes);
/* A slope over rows and columns: neighbours differ by at most 2. */
int picture_value(int row, int col);

#endif
