/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a NIfTI volume or what else is read where a volume is wanted, as image
 * and as mask, whole and a window; and the same bytes packed into gzip here, so that the fuzzer
 * gets past its checksum. Decoding twice must give the same, and a window what the whole has there.
 * One decoder serves all inputs. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz_volume.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_volume(data, size);
    size_t packed_size;
    uint8_t *packed = fuzz_gzip(data, size, &packed_size);
    fuzz_volume(packed, packed_size);
    free(packed);
    return 0;
}
