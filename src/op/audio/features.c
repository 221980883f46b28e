/* SPDX-License-Identifier: Apache-2.0
 * Frames of features: normalised, masked, stacked. Rows are moments, columns are features. Called
 * by the ops of this folder on worker threads. */
#include <string.h>

#include "op/audio/audio.h"

void psti_frames_normalize(float *frames, int64_t rows, int64_t cols, double floor, double *sums)
{
    double *mean = sums, *spread = sums + cols;
    memset(sums, 0, (size_t)(2 * cols) * sizeof *sums);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            mean[c] += (double)frames[r * cols + c];
    for (int64_t c = 0; c < cols; c++)
        mean[c] /= (double)rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const double off = (double)frames[r * cols + c] - mean[c];
            spread[c] += off * off;
        }
    for (int64_t c = 0; c < cols; c++)
        spread[c] = 1 / (__builtin_sqrt(rows > 1 ? spread[c] / (double)(rows - 1) : 0) + floor);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            float *x = &frames[r * cols + c];
            *x = (float)(((double)*x - mean[c]) * spread[c]);
        }
}

void psti_frames_mask_rows(float *frames, int64_t rows, int64_t cols, psti_band band)
{
    const int64_t end = band.first + band.count < rows ? band.first + band.count : rows;
    if (end > band.first)
        memset(frames + band.first * cols, 0, (size_t)((end - band.first) * cols) * sizeof *frames);
}

void psti_frames_mask_cols(float *frames, int64_t rows, int64_t cols, psti_band band)
{
    const int64_t end = band.first + band.count < cols ? band.first + band.count : cols;
    for (int64_t r = 0; r < rows && end > band.first; r++)
        memset(frames + r * cols + band.first, 0, (size_t)(end - band.first) * sizeof *frames);
}

int64_t psti_frames_stacked(int64_t rows, int64_t skip)
{
    return (rows + skip - 1) / skip;
}

void psti_frames_stack(const float *frames, int64_t rows, int64_t cols, int64_t count, int64_t skip,
                       float *out)
{
    for (int64_t r = 0; r < rows; r += skip, out += count * cols) {
        const int64_t there = rows - r < count ? rows - r : count;
        memcpy(out, frames + r * cols, (size_t)(there * cols) * sizeof *out);
        memset(out + there * cols, 0, (size_t)((count - there) * cols) * sizeof *out);
    }
}
