/* SPDX-License-Identifier: Apache-2.0
 * What the fuzz targets of volumes share: bytes decoded every way there is, with small limits. */
#ifndef PSTI_TESTS_FUZZ_VOLUME_H
#define PSTI_TESTS_FUZZ_VOLUME_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef PSTI_HAVE_GZIP
#include <zlib.h>
#endif

#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_require(int holds)
{
    if (!holds)
        abort();
}

/* The window without gaps in memory of its own; a negative code where there is none. */
static inline int fuzz_decode(psti_decoder *dec, const uint8_t *data, size_t size,
                              const psti_decode_options *opts, const psti_window *window,
                              psti_field *out)
{
    psti_picture pic;
    psti_decode_need need = {0};
    psti_field field;
    pst_error err = {0};
    uint8_t *dst = NULL;
    int rc = psti_decoder_begin(dec, data, size, opts, &pic, &err);
    if (rc == 0)
        rc = psti_decoder_need(dec, window, &need, &err);
    if (rc == 0) {
        dst = malloc(need.out_bytes + 1);
        rc = psti_decoder_run(dec, &need, -1, dst, &field, &err);
    }
    psti_decoder_end(dec);
    if (rc == 0) {
        *out = field;
        psti_field_pack(out);
        out->data = malloc(out->bytes);
        psti_field_copy(&field, out);
    } else {
        fuzz_require(err.code == rc && err.message[0]);
    }
    free(dst);
    return rc;
}

/* Part must be what whole has at the same place. */
static inline void fuzz_compare(const psti_field *whole, const psti_field *part)
{
    psti_field view = *whole, copy = *part;
    view.data += part->z0 * view.step[1] + part->y0 * view.step[2] + part->x0 * view.step[3];
    memcpy(view.shape, part->shape, sizeof view.shape);
    copy.data = malloc(copy.bytes);
    psti_field_copy(&view, &copy);
    fuzz_require(memcmp(copy.data, part->data, copy.bytes) == 0);
    free(copy.data);
}

static inline void fuzz_volume(const uint8_t *data, size_t size)
{
    static psti_decoder *dec;
    dec = dec ? dec : psti_decoder_new();
    for (int mask = 0; dec && mask < 2; mask++) {
        const psti_decode_options opts = {.kind = mask ? PST_MASK : PST_VOLUME,
                                          .limits = {.voxels = 1 << 20, .volume_bytes = 1 << 22},
                                          .axes = PSTI_AXES_VOLUME};
        psti_field first, second, part;
        const int rc = fuzz_decode(dec, data, size, &opts, NULL, &first);
        fuzz_require(fuzz_decode(dec, data, size, &opts, NULL, &second) == rc);
        if (rc < 0)
            continue;
        fuzz_require(first.bytes == second.bytes &&
                     memcmp(first.data, second.data, first.bytes) == 0);
        const psti_window w = {.top = first.shape[2] / 2,
                               .left = first.shape[3] / 3,
                               .rows = first.shape[2] - first.shape[2] / 2,
                               .cols = first.shape[3] - first.shape[3] / 3 * 2,
                               .front = first.shape[1] / 4,
                               .planes = 1};
        fuzz_require(fuzz_decode(dec, data, size, &opts, &w, &part) == 0);
        fuzz_compare(&first, &part);
        free(first.data);
        free(second.data);
        free(part.data);
    }
}

/* One gzip member, hardly packed. */
static inline uint8_t *fuzz_gzip(const uint8_t *data, size_t size, size_t *packed)
{
#ifdef PSTI_HAVE_GZIP
    z_stream z = {0};
    const size_t room = size + size / 100 + 1000;
    uint8_t *out = malloc(room);
    deflateInit2(&z, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
    z.next_in = (uint8_t *)data;
    z.avail_in = (unsigned)size;
    z.next_out = out;
    z.avail_out = (unsigned)room;
    deflate(&z, Z_FINISH);
    *packed = z.total_out;
    deflateEnd(&z);
    return out;
#else
    (void)data;
    (void)size;
    *packed = 0;
    return malloc(1);
#endif
}

#endif
