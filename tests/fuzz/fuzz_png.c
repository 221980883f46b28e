/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a PNG, as image and as mask, with checksums as they are and again with
 * the right ones, so that the fuzzer gets past them. Decoding the same bytes twice must give the
 * same. One decoder serves all inputs. */
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
                  psti_field *field)
{
    psti_picture pic;
    psti_decode_need need;
    pst_error err = {0};
    uint8_t *dst = NULL;
    int rc = psti_decoder_begin(dec, data, size, opts, &pic, &err);
    if (rc == 0)
        rc = psti_decoder_need(dec, NULL, &need, &err);
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
    for (int way = 0; way < 4; way++) {
        const psti_decode_options opts = {.kind = way == 3 ? PST_MASK : PST_IMAGE,
                                          .color = way % 3,
                                          .orient = way > 0,
                                          .limits = {1000000, 4000000, 20}};
        psti_field first, second;
        const int rc = decode(data, size, &opts, &first);
        require(decode(data, size, &opts, &second) == rc);
        if (rc < 0)
            continue;
        require(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
        free(first.data);
        free(second.data);
    }
}

static uint32_t crc_of(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

static void mend_checksums(uint8_t *bytes, size_t size)
{
    for (size_t at = 8; size - at >= 12;) {
        const size_t length = (size_t)bytes[at] << 24 | (size_t)bytes[at + 1] << 16 |
                              (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (length > size - at - 12)
            return;
        const uint32_t crc = crc_of(bytes + at + 4, length + 4);
        for (int i = 0; i < 4; i++)
            bytes[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        at += length + 12;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!dec)
        dec = psti_decoder_new();
    if (!dec || size < 8 || memcmp(data, "\x89PNG\r\n\x1A\n", 8) != 0)
        return 0;
    decode_every_way(data, size);
    uint8_t *mended = malloc(size);
    memcpy(mended, data, size);
    mend_checksums(mended, size);
    decode_every_way(mended, size);
    free(mended);
    return 0;
}
