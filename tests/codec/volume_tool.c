/* SPDX-License-Identifier: Apache-2.0
 * Decodes volumes for the parity test: reads lines "PATH TAB KIND TAB FRONT TOP LEFT PLANES ROWS
 * COLS" from standard input (ROWS 0 = all; KIND: image or mask) and answers each with a line "DTYPE
 * CHANNELS PLANES ROWS COLS UNIT UNIT UNIT" and the window's elements, or a line "error CODE
 * MESSAGE". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*size ? *size : 1);
    if (fread(bytes, 1, *size, f) != *size)
        *size = 0;
    fclose(f);
    return bytes;
}

/* What was asked for, of a field that may be the whole. */
static void write_window(psti_field field, const psti_window *w, const psti_picture *pic)
{
    if (w->rows > 0) {
        const int64_t skip[4] = {0, w->front - field.z0, w->top - field.y0, w->left - field.x0};
        const int64_t size[4] = {field.shape[0], w->planes, w->rows, w->cols};
        for (int d = 0; d < 4; d++) {
            field.data += skip[d] * field.step[d];
            field.shape[d] = size[d];
        }
    }
    psti_field dense = field;
    psti_field_pack(&dense);
    dense.data = malloc(dense.bytes);
    psti_field_copy(&field, &dense);
    printf("%s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %.17g %.17g %.17g\n",
           psti_dtype_name(field.dtype), dense.shape[0], dense.shape[1], dense.shape[2],
           dense.shape[3], pic->unit[0], pic->unit[1], pic->unit[2]);
    fwrite(dense.data, 1, dense.bytes, stdout);
    free(dense.data);
}

static void answer(psti_decoder *dec, const char *path, const char *kind, const psti_window *window)
{
    const psti_decode_options opts = {.kind = strcmp(kind, "mask") == 0 ? PST_MASK : PST_VOLUME,
                                      .limits = psti_limits_default,
                                      .axes = PSTI_AXES_VOLUME};
    size_t size = 0;
    uint8_t *bytes = read_file(path, &size), *dst = NULL;
    pst_error err = {0};
    psti_picture pic;
    psti_decode_need need;
    psti_field field;
    int rc = bytes ? psti_decoder_begin(dec, bytes, size, &opts, &pic, &err) : -1;
    if (rc == 0)
        rc = psti_decoder_need(dec, window, &need, &err);
    if (rc == 0) {
        dst = malloc(need.out_bytes + 1);
        rc = psti_decoder_run(dec, &need, -1, dst, &field, &err);
    }
    if (rc == 0)
        write_window(field, window, &pic);
    else
        printf("error %d %s\n", rc, err.message);
    psti_decoder_end(dec);
    free(bytes);
    free(dst);
    fflush(stdout);
}

int main(void)
{
    psti_decoder *dec = psti_decoder_new();
    char line[5000], path[4096], kind[16];
    psti_window w = {0};
    while (fgets(line, sizeof line, stdin))
        if (sscanf(line,
                   "%4095[^\t]\t%15[^\t]\t%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                   " %" SCNd64,
                   path, kind, &w.front, &w.top, &w.left, &w.planes, &w.rows, &w.cols) == 8)
            answer(dec, path, kind, &w);
    psti_decoder_free(dec);
    return 0;
}
