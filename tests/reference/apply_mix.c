/* SPDX-License-Identifier: Apache-2.0
 * Mixes one batch with everything drawn beforehand, for comparing with other libraries.
 *
 *   apply_mix mixup|cutmix LAM Y X SLOTS ROWS COLS CHANNELS CLASSES <values >values
 *
 * Values are f32: the images of all slots (planes, rows, columns), then their labels. What became
 * of the draw, "lam y1 x1 y2 x2", goes to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"

static void transfer(bool in, float *values, size_t count)
{
    const size_t done = in ? fread(values, sizeof *values, count, stdin)
                           : fwrite(values, sizeof *values, count, stdout);
    if (done != count) {
        fprintf(stderr, "apply_mix: %s values: %zu of %zu\n", in ? "reading" : "writing", done,
                count);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 10)
        return 2;
    int64_t n[10];
    for (int i = 3; i < 10; i++)
        n[i] = strtoll(argv[i], NULL, 10);
    const int64_t slots = n[5], rows = n[6], cols = n[7], channels = n[8], classes = n[9];
    pst_mix mix = {.kind = strcmp(argv[1], "cutmix") == 0 ? PST_CUTMIX : PST_MIXUP,
                   .lam = strtod(argv[2], NULL)};
    if (mix.kind == PST_CUTMIX)
        psti_mix_box(&mix, n[3], n[4], rows, cols);
    const size_t values = (size_t)(rows * cols * channels), all = (size_t)slots * values;
    const size_t labels = (size_t)(slots * classes);
    float *batch = malloc((all + labels) * sizeof *batch);
    uint8_t *valid = malloc((size_t)slots);
    memset(valid, 1, (size_t)slots);
    transfer(true, batch, all + labels);
    const psti_mix_field image = {.data = (uint8_t *)batch,
                                  .slot_bytes = values * sizeof *batch,
                                  .dtype = PST_F32,
                                  .layout = PST_NCHW,
                                  .rows = rows,
                                  .cols = cols};
    const psti_mix_field label = {.data = (uint8_t *)(batch + all),
                                  .slot_bytes = (size_t)classes * sizeof *batch,
                                  .dtype = PST_F32};
    if (mix.kind == PST_CUTMIX)
        psti_mix_paste(&mix, &image, valid, (int)slots);
    else
        psti_mix_blend(&mix, &image, valid, (int)slots);
    psti_mix_blend(&mix, &label, valid, (int)slots);
    transfer(false, batch, all + labels);
    fprintf(stderr, "%.17g %lld %lld %lld %lld\n", mix.lam, (long long)mix.y1, (long long)mix.x1,
            (long long)mix.y2, (long long)mix.x2);
    free(batch);
    free(valid);
    return 0;
}
