/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as packed shapes on a canvas and under a map that the first bytes choose. Nothing is
 * written beside the canvas, and a mask holds 0 and 1 unless its shape was refused. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/polygons.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { GAP = 5, HEAD = 8 };

static void draw(psti_outline *shape, const double map[6], int64_t rows, int64_t cols)
{
    static psti_buf scratch;
    pst_error err = {0};
    const size_t stride = (size_t)cols + GAP;
    uint8_t *mask = calloc((size_t)rows, stride);
    if (!mask)
        abort();
    for (int64_t y = 0; y < rows; y++)
        memset(mask + (size_t)y * stride + (size_t)cols, 9, GAP);
    const psti_raster to = {mask, rows, cols, stride, &scratch};
    if (shape->rows > 4096 || shape->cols > 4096) /* memory, not time, is what such runs take */
        shape->rows = 1;
    const int rc = psti_shape_raster(shape, map, &to, &err);
    if (rc < 0 && (err.code != rc || !err.message[0]))
        abort();
    for (int64_t y = 0; y < rows; y++) {
        const uint8_t *line = mask + (size_t)y * stride;
        for (int64_t x = 0; x < cols; x++)
            if (rc == 0 && line[x] > 1)
                abort();
        for (int i = 0; i < GAP; i++)
            if (line[cols + i] != 9)
                abort();
    }
    free(mask);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return 0;
    const int64_t rows = 1 + data[0] % 64, cols = 1 + data[1] % 64;
    double map[6];
    for (int i = 0; i < 6; i++)
        map[i] = (data[2 + i] - 128) / 32.0;
    const uint8_t *at = data + HEAD, *const end = data + size;
    psti_outline shape;
    while (at < end && psti_outline_next(&at, end, &shape))
        draw(&shape, map, rows, cols);
    return 0;
}
