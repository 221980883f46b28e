/* SPDX-License-Identifier: Apache-2.0
 * The tar format itself: header blocks, numbers, pax records. Pure functions over bytes. */
#ifndef PSTI_SOURCE_TAR_HEADER_H
#define PSTI_SOURCE_TAR_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/names.h"

enum { PSTI_TAR_BLOCK = 512, PSTI_TAR_PAX_MAX = 64 * 1024 };

typedef struct psti_tar_header {
    char type;
    uint64_t size;
    char name[PSTI_KEY_MAX + 1];
    size_t name_len;
} psti_tar_header;

/* What pax records say about the next member, or about all that follow. */
typedef struct psti_tar_pax {
    bool has_path, has_size;
    char path[PSTI_KEY_MAX + 1];
    size_t path_len;
    uint64_t size;
} psti_tar_pax;

bool psti_tar_block_is_zero(const uint8_t block[PSTI_TAR_BLOCK]);
/* NULL, or what is wrong with the header. */
const char *psti_tar_header_parse(const uint8_t block[PSTI_TAR_BLOCK], psti_tar_header *out);
const char *psti_tar_pax_parse(const char *bytes, size_t len, psti_tar_pax *out);

#endif
