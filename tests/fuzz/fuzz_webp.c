/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a WebP, as image and as mask, with the length in the header as it is
 * and again with the true one, so that the fuzzer gets past it. Decoding the same bytes twice must
 * give the same, and a window the same as the whole. One decoder serves all inputs. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static psti_decoder *dec;

static void require(int holds)
{
    if (!holds)
        abort();
}

static int decode(const uint8_t *data, size_t size, const psti_decode_options *opts,
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

static void decode_every_way(const uint8_t *data, size_t size)
{
    static const psti_window corner = {0, 0, 1, 1};
    for (int way = 0; way < 4; way++) {
        const psti_decode_options opts = {.kind = way == 3 ? PST_MASK : PST_IMAGE,
                                          .color = way % 3,
                                          .orient = way > 0,
                                          .limits = {1000000, 4000000, 20}};
        psti_field first, second;
        const int rc = decode(data, size, &opts, NULL, &first);
        require(decode(data, size, &opts, &corner, &second) == rc);
        if (rc < 0)
            continue;
        require(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
        free(first.data);
        free(second.data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!dec)
        dec = psti_decoder_new();
    if (!dec || size < 12 || memcmp(data + 8, "WEBP", 4) != 0)
        return 0;
    decode_every_way(data, size);
    uint8_t *mended = malloc(size);
    memcpy(mended, data, size);
    memcpy(mended, "RIFF", 4);
    for (int i = 0; i < 4; i++)
        mended[4 + i] = (uint8_t)((size - 8) >> 8 * i);
    decode_every_way(mended, size);
    free(mended);
    return 0;
}
