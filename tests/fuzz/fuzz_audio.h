/* SPDX-License-Identifier: Apache-2.0
 * What the targets of recordings share: bytes are decoded twice, as mono and with the channels
 * kept; both times must give the same, an error must be told, and a window must be a part of the
 * whole. One decoder serves all inputs. */
#ifndef PSTI_TESTS_FUZZ_AUDIO_H
#define PSTI_TESTS_FUZZ_AUDIO_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

static psti_decoder *dec;

static inline void require(int holds)
{
    if (!holds)
        abort();
}

static inline int decode(const uint8_t *data, size_t size, const psti_decode_options *opts,
                         const psti_window *window, psti_field *field)
{
    psti_picture pic;
    psti_decode_need need;
    pst_error err = {0};
    uint8_t *dst = NULL;
    int rc = psti_decoder_begin(dec, data, size, opts, &pic, &err);
    if (rc == 0)
        rc = psti_decoder_need(dec, window, &need, &err);
    if (rc == 0) {
        dst = malloc(need.out_bytes);
        rc = psti_decoder_run(dec, &need, -1, dst, field, &err);
    }
    psti_decoder_end(dec);
    if (rc < 0) {
        require(err.code == rc && err.message[0]);
        free(dst);
    }
    return rc;
}

static inline void decode_every_way(const uint8_t *data, size_t size)
{
    static const psti_window start = {.rows = 1, .cols = 1};
    for (int color = PSTI_COLOR_RGB; color <= PSTI_COLOR_KEEP; color += PSTI_COLOR_KEEP) {
        const psti_decode_options opts = {.kind = PST_AUDIO,
                                          .color = color,
                                          .axes = PSTI_AXES_WAVE,
                                          .limits = {.samples = 100000, .volume_bytes = 4000000}};
        psti_field first, second, window;
        const int rc = decode(data, size, &opts, NULL, &first);
        require(decode(data, size, &opts, NULL, &second) == rc);
        require(decode(data, size, &opts, &start, &window) == rc);
        if (rc < 0)
            continue;
        require(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
        require(memcmp(first.data, window.data, window.bytes) == 0);
        free(first.data);
        free(second.data);
        free(window.data);
    }
}

#endif
