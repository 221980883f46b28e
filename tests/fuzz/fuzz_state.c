/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a saved state: as they are, and again behind a right magic, version and checksum, so
 * that the fuzzer gets past the checksum. What is taken must come out the same when it is written
 * and read again, and must join with itself or be refused. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sample/sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        abort();
}

static void check_again(const psti_state *state)
{
    psti_state back;
    const size_t size = psti_state_size(state);
    uint8_t *first = malloc(size), *second = malloc(size);
    require(first && second && psti_state_encode(state, first, size) == size);
    require(psti_state_decode(first, size, &back, NULL) == 0);
    require(psti_state_encode(&back, second, size) == size && memcmp(first, second, size) == 0);
    psti_state_fini(&back);
    free(first);
    free(second);
}

static void decode(const uint8_t *data, size_t size)
{
    psti_state state, joined;
    pst_error err;
    if (psti_state_decode(data, size, &state, &err) < 0) {
        require(err.code == PST_ESTATE && err.message[0]);
        return;
    }
    check_again(&state);
    /* A joined state has a bit for each position, and the number of positions is only claimed. */
    if (state.length < 1 << 20) {
        if (psti_state_join(&state, 1, &joined, &err) == 0)
            check_again(&joined);
        psti_state_fini(&joined);
    }
    psti_state_fini(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode(data, size);
    if (size < 20)
        return 0;
    uint8_t *sealed = malloc(size);
    require(sealed != NULL);
    memcpy(sealed, data, size);
    memcpy(sealed, "PSTSTATE\1\0\0\0", 12);
    const uint32_t crc = pst_crc32c(0, sealed, size - 4);
    for (size_t i = 0; i < 4; i++)
        sealed[size - 4 + i] = (uint8_t)(crc >> (8 * i));
    decode(sealed, size);
    free(sealed);
    return 0;
}
