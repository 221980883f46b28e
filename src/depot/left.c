/* SPDX-License-Identifier: Apache-2.0
 * Objects of a revision that there is no room for: a bit each, in the order of its listing. Where
 * there is for all, there is no such file. Any thread. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "depot/depot_priv.h"

static size_t bytes_for(const listing *l)
{
    return (l->count + 7) / 8;
}

int left_write(const listing *l, int rev)
{
    bool any = false;
    uint8_t *bits = psti_calloc(PSTI_MEM_DEPOT, bytes_for(l) + 1, 1);
    if (!bits)
        return -ENOMEM;
    for (size_t i = 0; i < l->count; i++) {
        bits[i / 8] |= (uint8_t)(l->objects[i].left << (i % 8));
        any = any || l->objects[i].left;
    }
    int rc = 0;
    if (any)
        rc = file_write(rev, "left", bits, bytes_for(l));
    else if (unlinkat(rev, "left", 0) != 0 && errno != ENOENT)
        rc = -errno;
    psti_free(bits);
    return rc;
}

int left_read(listing *l, int rev)
{
    uint8_t *bits = psti_malloc(PSTI_MEM_DEPOT, bytes_for(l) + 2);
    if (!bits)
        return -ENOMEM;
    const ssize_t len = file_read(rev, "left", (char *)bits, bytes_for(l) + 2);
    int rc = len < 0 ? (int)len : (size_t)len != bytes_for(l) ? -ENOENT : 0;
    for (size_t i = 0; rc == 0 && i < l->count; i++)
        l->objects[i].left = bits[i / 8] >> (i % 8) & 1;
    psti_free(bits);
    return rc;
}
