/* SPDX-License-Identifier: Apache-2.0
 * Parsing tar header blocks (v7, ustar, GNU) and pax records. Nothing is believed: every number is
 * checked, every checksum compared. */
#include "source/tar_header.h"

#include <string.h>

/* Places in a header block. */
enum {
    NAME = 0,
    NAME_BYTES = 100,
    SIZE = 124,
    SIZE_BYTES = 12,
    CHECKSUM = 148,
    CHECKSUM_BYTES = 8,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_BYTES = 155
};

bool psti_tar_block_is_zero(const uint8_t block[PSTI_TAR_BLOCK])
{
    for (int i = 0; i < PSTI_TAR_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

/* Octal, spaces before, a space or NUL behind. */
static bool parse_octal(const uint8_t *text, size_t len, uint64_t *out)
{
    size_t i = 0;
    uint64_t value = 0;
    while (i < len && text[i] == ' ')
        i++;
    for (; i < len && text[i] >= '0' && text[i] <= '7'; i++) {
        if (value >> 60)
            return false;
        value = value << 3 | (uint64_t)(text[i] - '0');
    }
    for (; i < len; i++)
        if (text[i] != ' ' && text[i] != 0)
            return false;
    *out = value;
    return true;
}

/* Big-endian in two's complement behind a marker bit: GNU's way to write sizes of 8 GiB and more.
 */
static bool parse_base256(const uint8_t *bytes, size_t len, uint64_t *out)
{
    if (bytes[0] != 0x80)
        return false; /* negative, or far too large */
    uint64_t value = 0;
    for (size_t i = 1; i < len; i++) {
        if (value >> 55)
            return false;
        value = value << 8 | bytes[i];
    }
    *out = value;
    return true;
}

static bool checksum_fits(const uint8_t *block)
{
    uint64_t stored;
    uint32_t plain = 0;
    int32_t with_sign = 0; /* some old writers summed signed bytes */
    if (!parse_octal(block + CHECKSUM, CHECKSUM_BYTES, &stored))
        return false;
    for (int i = 0; i < PSTI_TAR_BLOCK; i++) {
        const uint8_t byte = i >= CHECKSUM && i < CHECKSUM + CHECKSUM_BYTES ? ' ' : block[i];
        plain += byte;
        with_sign += (int8_t)byte;
    }
    return stored == plain || (with_sign >= 0 && stored == (uint32_t)with_sign);
}

static void join_name(const uint8_t *block, psti_tar_header *out)
{
    const char *name = (const char *)block + NAME, *prefix = (const char *)block + PREFIX;
    const size_t len = strnlen(name, NAME_BYTES);
    const bool ustar =
        memcmp(block + MAGIC, "ustar", 6) == 0; /* with its NUL: not GNU, which has no prefix */
    const size_t above = ustar ? strnlen(prefix, PREFIX_BYTES) : 0;
    out->name_len = 0;
    if (above) {
        memcpy(out->name, prefix, above);
        out->name[above] = '/';
        out->name_len = above + 1;
    }
    memcpy(out->name + out->name_len, name, len);
    out->name_len += len;
    out->name[out->name_len] = 0;
}

const char *psti_tar_header_parse(const uint8_t block[PSTI_TAR_BLOCK], psti_tar_header *out)
{
    if (!checksum_fits(block))
        return "the header's checksum is wrong, so this is no tar file or it is damaged";
    const uint8_t *size = block + SIZE;
    const bool ok = size[0] & 0x80 ? parse_base256(size, SIZE_BYTES, &out->size)
                                   : parse_octal(size, SIZE_BYTES, &out->size);
    if (!ok || out->size > INT64_MAX)
        return "the header's size is negative, too large or not a number";
    out->type = (char)block[TYPE];
    join_name(block, out);
    return NULL;
}

static bool parse_decimal(const char *text, size_t len, uint64_t *out)
{
    uint64_t value = 0;
    if (len == 0 || len > 19)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *out = value;
    return value <= INT64_MAX;
}

static const char *pax_record(const char *key, size_t key_len, const char *value, size_t len,
                              psti_tar_pax *out)
{
    if (key_len == 4 && memcmp(key, "path", 4) == 0) {
        if (len > PSTI_KEY_MAX)
            return "a name in a pax header is longer than 4096 bytes";
        memcpy(out->path, value, len);
        out->path[len] = 0;
        out->path_len = len;
        out->has_path = true;
    } else if (key_len == 4 && memcmp(key, "size", 4) == 0) {
        if (!parse_decimal(value, len, &out->size))
            return "the size in a pax header is not a number or too large";
        out->has_size = true;
    } else if (key_len > 10 && memcmp(key, "GNU.sparse", 10) == 0) {
        return "sparse members are not supported; write the shard without --sparse";
    }
    return NULL;
}

const char *psti_tar_pax_parse(const char *bytes, size_t len, psti_tar_pax *out)
{
    static const char damaged[] = "a pax header is damaged";
    for (size_t at = 0; at < len;) {
        const char *space = memchr(bytes + at, ' ', len - at);
        uint64_t record;
        if (!space || !parse_decimal(bytes + at, (size_t)(space - bytes) - at, &record) ||
            record > len - at)
            return damaged;
        const size_t head = (size_t)(space - bytes) - at + 1;
        if (record < head + 2 || bytes[at + record - 1] != '\n')
            return damaged;
        const char *key = space + 1, *equals = memchr(key, '=', record - head - 1);
        if (!equals)
            return damaged;
        const char *fault = pax_record(key, (size_t)(equals - key), equals + 1,
                                       (size_t)(bytes + at + record - 1 - (equals + 1)), out);
        if (fault)
            return fault;
        at += record;
    }
    return NULL;
}
