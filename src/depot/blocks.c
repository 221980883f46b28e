/* SPDX-License-Identifier: Apache-2.0
 * Checksums of the blocks of each object of a revision, so that a part of a file can be compared
 * without reading all of it. One file for a revision: a head, and then a CRC32C of 4 bytes, the
 * lowest first, for each block of each object, in the order of the listing; so the place of each is
 * known before anything was fetched. They need no checksum of their own: those of an object,
 * joined, are the CRC32C of its bytes, which the manifest has. Any thread. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "depot/depot_priv.h"

enum { HEAD_BYTES = 32, SUM = sizeof(uint32_t) };
static const char head[HEAD_BYTES] = "# penstock blocks 1\t16384\n";
_Static_assert(PSTI_DEPOT_BLOCK == 16384, "as the head says");

uint64_t blocks_of(uint64_t size)
{
    return size / PSTI_DEPOT_BLOCK + (size % PSTI_DEPOT_BLOCK != 0);
}

/* Both in full or not at all. */
static int read_at(int fd, void *bytes, size_t count, uint64_t at)
{
    for (size_t got = 0; got < count;) {
        const ssize_t n = pread(fd, (uint8_t *)bytes + got, count - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : PST_ECORRUPT;
        got += (size_t)n;
    }
    return 0;
}

int write_at(int fd, const void *bytes, size_t count, uint64_t at)
{
    for (size_t put = 0; put < count;) {
        const ssize_t n = pwrite(fd, (const uint8_t *)bytes + put, count - put, (off_t)(at + put));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        put += (size_t)n;
    }
    return 0;
}

int blocks_open(int rev, const listing *l)
{
    char found[HEAD_BYTES];
    struct stat st;
    const uint64_t size = HEAD_BYTES + l->blocks * SUM;
    const int fd = openat(rev, "blocks", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    int rc = fstat(fd, &st) != 0 ? -errno : 0;
    if (rc == 0 && (read_at(fd, found, sizeof found, 0) < 0 ||
                    memcmp(found, head, sizeof head) != 0)) { /* new, or of other blocks */
        rc = ftruncate(fd, 0) != 0 ? -errno : write_at(fd, head, sizeof head, 0);
        st.st_size = HEAD_BYTES;
    }
    if (rc == 0 && (uint64_t)st.st_size != size && ftruncate(fd, (off_t)size) != 0)
        rc = -errno;
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

int blocks_get(int fd, uint64_t first, size_t count, uint32_t *out)
{
    const int rc = read_at(fd, out, count * SUM, HEAD_BYTES + first * SUM);
    for (size_t i = 0; rc == 0 && i < count; i++)
        out[i] = le32toh(out[i]);
    return rc;
}

int blocks_put(int fd, const object *o, uint32_t *sums)
{
    const size_t count = (size_t)blocks_of(o->size);
    for (size_t i = 0; i < count; i++)
        sums[i] = htole32(sums[i]);
    const int rc = write_at(fd, sums, count * SUM, HEAD_BYTES + o->blocks * SUM);
    for (size_t i = 0; i < count; i++)
        sums[i] = le32toh(sums[i]);
    return rc;
}

uint32_t *blocks_room(const object *o)
{
    const uint64_t count = blocks_of(o->size);
    return psti_calloc(PSTI_MEM_DEPOT, (size_t)(count ? count : 1), SUM);
}

static bool fit(const uint32_t *sums, const object *o)
{
    const uint64_t count = blocks_of(o->size);
    const uint32_t power = psti_crc32c_power(PSTI_DEPOT_BLOCK);
    uint32_t crc = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t left = o->size - i * PSTI_DEPOT_BLOCK;
        crc = psti_crc32c_join(crc, sums[i],
                               left < PSTI_DEPOT_BLOCK ? psti_crc32c_power(left) : power);
    }
    return crc == o->crc;
}

int blocks_load(int fd, const object *o, uint32_t *sums)
{
    const int rc = blocks_get(fd, o->blocks, (size_t)blocks_of(o->size), sums);
    return rc < 0 ? rc : fit(sums, o) ? 0 : PST_ECORRUPT;
}

int blocks_note(int fd, const object *o, uint32_t *sums)
{
    uint32_t *before = blocks_room(o);
    if (!before)
        return -ENOMEM;
    const size_t bytes = (size_t)blocks_of(o->size) * SUM;
    const bool same =
        blocks_get(fd, o->blocks, bytes / SUM, before) == 0 && memcmp(before, sums, bytes) == 0;
    psti_free(before);
    return same ? 0 : blocks_put(fd, o, sums);
}

/* ---- of files that are there --------------------------------------------------------------------
 */

/* From the bytes of its file, which must have its checksum. */
static bool make_one(const puller *p, const object *o, uint32_t *sums)
{
    const char *leaf;
    uint32_t crc;
    const int dir = dir_of_key(p->data, object_key(&p->objects, o), false, &leaf);
    const int fd = dir < 0 ? -1 : openat(dir, leaf, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool made = fd >= 0 && digest_file(fd, o->size, &crc, sums, NULL) == 0 && crc == o->crc &&
                      blocks_put(p->blocks, o, sums) == 0;
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    return made;
}

int blocks_complete(puller *p)
{
    for (size_t i = 0; i < p->objects.count; i++) {
        object *o = &p->objects.objects[i];
        if (!o->known || o->size == 0)
            continue;
        uint32_t *sums = blocks_room(o);
        if (!sums)
            return -ENOMEM;
        if (blocks_load(p->blocks, o, sums) < 0 && !make_one(p, o, sums)) {
            o->known = false;
            atomic_fetch_add(&p->bad, 1);
            atomic_fetch_sub(&p->objects_done, 1);
            atomic_fetch_sub(&p->bytes_done, o->size);
        }
        psti_free(sums);
    }
    return 0;
}
