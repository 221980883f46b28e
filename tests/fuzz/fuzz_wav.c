/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a WAV, as they are and again with a head that says so, so that the
 * fuzzer gets past it. */
#include "fuzz/fuzz_audio.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!dec)
        dec = psti_decoder_new();
    if (!dec || size < 12)
        return 0;
    decode_every_way(data, size);
    uint8_t *mended = malloc(size);
    memcpy(mended, data, size);
    memcpy(mended, "RIFF", 4);
    memcpy(mended + 8, "WAVE", 4);
    decode_every_way(mended, size);
    free(mended);
    return 0;
}
