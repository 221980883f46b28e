/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as an NPY array, as a field and as a volume. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz_volume.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    psti_field field;
    pst_error err = {0};
    const int rc = psti_npy_parse(data, size, &field, &err);
    if (rc == 0)
        fuzz_require(field.data + field.bytes == data + size && field.rank <= PST_MAX_RANK &&
                     psti_dtype_bytes(field.dtype) > 0);
    else
        fuzz_require(err.code == rc && err.message[0]);
    if (size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0)
        fuzz_volume(data, size);
    return 0;
}
