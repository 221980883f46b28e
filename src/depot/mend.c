/* SPDX-License-Identifier: Apache-2.0
 * A file of a pulled revision that turned out to be gone or damaged, brought again. Where its
 * blocks have checksums only those that are damaged are fetched, and the others taken from the old
 * file; the new one is made beside it, compared as a whole, and put in its place by a rename, so
 * that nobody ever sees half of one. Waits; any thread. Several may mend the same file: each puts a
 * whole one in its place. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "depot/depot_priv.h"

/* A file that is being mended. */
typedef struct patient {
    const mending *m;
    const object *o;
    int old;        /* what is there of it; -1 = nothing */
    int fd;         /* what is made */
    uint32_t *sums; /* of its blocks; NULL = not known */
    bucket *from;
    pst_error *err;
    uint64_t at; /* byte that was damaged first, for messages */
} patient;

static int put(void *user, uint64_t at, const uint8_t *bytes, size_t count)
{
    return write_at(*(const int *)user, bytes, count, at) < 0;
}

static int open_old(const mending *m, const object *o)
{
    const char *leaf;
    const int dir = dir_of_key(m->data, object_key(m->objects, o), false, &leaf);
    const int fd = dir < 0 ? -1 : openat(dir, leaf, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (dir >= 0)
        close(dir);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

bool object_is_there(const mending *m, const object *o)
{
    const char *leaf;
    struct stat st;
    const int dir = dir_of_key(m->data, object_key(m->objects, o), false, &leaf);
    const bool there = dir >= 0 && fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                       S_ISREG(st.st_mode) && (uint64_t)st.st_size == o->size;
    if (dir >= 0)
        close(dir);
    return there;
}

static bool fd_is_whole(int fd, const object *o, uint32_t *sums)
{
    struct stat st;
    uint32_t crc;
    return fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == o->size &&
           digest_file(fd, o->size, &crc, sums, NULL) == 0 && crc == o->crc;
}

bool object_is_whole(const mending *m, const object *o)
{
    const int fd = open_old(m, o);
    const bool whole = fd_is_whole(fd, o, NULL);
    if (fd >= 0)
        close(fd);
    return whole;
}

/* ---- block by block -----------------------------------------------------------------------------
 */

static size_t block_size(const object *o, uint64_t number)
{
    const uint64_t left = o->size - number * PSTI_DEPOT_BLOCK;
    return left < PSTI_DEPOT_BLOCK ? (size_t)left : PSTI_DEPOT_BLOCK;
}

/* Whether the old file has this block, which is then in bytes. A disk that cannot read it has it
 * not. */
static bool has_block(const patient *t, uint64_t number, uint8_t bytes[PSTI_DEPOT_BLOCK])
{
    const size_t size = block_size(t->o, number);
    for (size_t got = 0; got < size;) {
        const ssize_t n =
            pread(t->old, bytes + got, size - got, (off_t)(number * PSTI_DEPOT_BLOCK + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return pst_crc32c(0, bytes, size) == t->sums[number];
}

/* Somebody was faster: that part of it is what it should be, and its length. */
static bool part_is_whole(patient *t, stretch part)
{
    uint8_t bytes[PSTI_DEPOT_BLOCK];
    struct stat st;
    if (t->old < 0 || fstat(t->old, &st) != 0 || (uint64_t)st.st_size != t->o->size)
        return false;
    const uint64_t end = blocks_of(part.to);
    for (uint64_t i = part.from / PSTI_DEPOT_BLOCK; i < end; i++)
        if (!has_block(t, i, bytes)) {
            t->at = i * PSTI_DEPOT_BLOCK;
            return false;
        }
    return true;
}

static int fetch(const patient *t, stretch part)
{
    int fd = t->fd;
    return t->from->ops->get(t->from, t->m->objects, t->o, part, put, &fd, t->err);
}

/* The good blocks of the old file, and from the bucket what lies between them. */
static int patch(patient *t)
{
    uint8_t bytes[PSTI_DEPOT_BLOCK];
    const uint64_t count = blocks_of(t->o->size);
    uint64_t good = 0; /* blocks before this one are there */
    int rc = 0;
    for (uint64_t i = 0; i <= count && rc == 0; i++) {
        if (i < count && !has_block(t, i, bytes))
            continue;
        const uint64_t end = i < count ? i * PSTI_DEPOT_BLOCK : t->o->size;
        if (good < i)
            rc = fetch(t, (stretch){good * PSTI_DEPOT_BLOCK, end});
        if (rc == 0 && i < count &&
            write_at(t->fd, bytes, block_size(t->o, i), i * PSTI_DEPOT_BLOCK) < 0)
            rc = psti_fail(t->err, -EIO, "read", NULL, "cannot be written");
        good = i + 1;
    }
    return rc;
}

/* ---- the new file -------------------------------------------------------------------------------
 */

/* A name that no other process has, nor one of before: pids come again in containers. */
static void new_name(char out[64])
{
    static atomic_uint number; /* counter */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(out, 64, "../.mend.%llx.%lx.%x.%x", (unsigned long long)now.tv_sec,
             (unsigned long)now.tv_nsec, (unsigned)getpid(), atomic_fetch_add(&number, 1));
}

static int make_new(patient *t)
{
    const bool parts = t->sums && t->old >= 0;
    uint32_t *sums = t->sums ? NULL : blocks_room(t->o);
    uint32_t crc = 0;
    int rc = t->o->size == 0 ? 0 : bucket_open(t->m->url, &t->from, t->err);
    if (rc == 0 && t->o->size > 0)
        rc = parts ? patch(t) : fetch(t, (stretch){0, t->o->size});
    if (rc == 0 && (digest_file(t->fd, t->o->size, &crc, sums, NULL) < 0 || crc != t->o->crc))
        rc = psti_fail(t->err, PST_ECORRUPT, "read", object_key(t->m->objects, t->o),
                       "what the bucket has does not have the checksum that was noted");
    if (rc == 0 && (fchmod(t->fd, 0444) != 0 || fsync(t->fd) != 0))
        rc = psti_fail(t->err, -errno, "read", NULL, "%s", strerror(errno));
    if (rc == 0 && sums && t->m->blocks >= 0 && (rc = blocks_put(t->m->blocks, t->o, sums)) < 0)
        rc = psti_fail(t->err, rc, "read", NULL, "its checksums cannot be written");
    psti_free(sums);
    bucket_close(t->from);
    t->from = NULL;
    return rc;
}

static int replace(patient *t)
{
    char name[64];
    const char *key = object_key(t->m->objects, t->o), *leaf;
    new_name(name);
    t->fd = openat(t->m->data, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (t->fd < 0)
        return psti_fail(t->err, -errno, "read", key, "%s", strerror(errno));
    int rc = make_new(t);
    const int dir = rc < 0 ? -1 : dir_of_key(t->m->data, key, true, &leaf);
    if (rc == 0 && (dir < 0 || renameat(t->m->data, name, dir, leaf) != 0))
        rc = psti_fail(t->err, dir < 0 ? dir : -errno, "read", key, "cannot be put in place");
    if (rc < 0)
        unlinkat(t->m->data, name, 0);
    if (dir >= 0)
        close(dir);
    close(t->fd);
    return rc;
}

/* Names the file and where it is damaged, and says what can be done. */
static int say(const patient *t, int rc)
{
    char why[160], key[120], where[60] = "gone or damaged here";
    const bool known = t->at != UINT64_MAX && t->old >= 0;
    const char *name = object_key(t->m->objects, t->o);
    snprintf(why, sizeof why, "%.159s", t->err->message);
    if (known)
        snprintf(where, sizeof where, "damaged here at byte %llu", (unsigned long long)t->at);
    psti_escape(key, sizeof key, name, strlen(name));
    return psti_fail_at(t->err, rc, "read", name, known ? (int64_t)t->at : -1,
                        "the file %s is %s and cannot be fetched again from %.80s (%s); once that "
                        "can be reached, read again or run penstock pull --check",
                        key, where, t->m->url, why);
}

/* The checksums of its blocks may be what is damaged: then the file tells what they are. Fills
 * sums; 1 = that was all. */
static int recover_sums(patient *t)
{
    if (t->m->blocks < 0)
        return fd_is_whole(t->old, t->o, NULL);
    uint32_t *sums = blocks_room(t->o);
    if (!sums)
        return -ENOMEM;
    if (blocks_load(t->m->blocks, t->o, sums) == 0) {
        t->sums = sums;
        return 0;
    }
    const bool whole = fd_is_whole(t->old, t->o, sums);
    const int rc = whole ? blocks_put(t->m->blocks, t->o, sums) : 0;
    psti_free(sums);
    return rc < 0 ? rc : whole;
}

int mend_object(const mending *m, const object *o, stretch part, pst_error *err)
{
    pst_error why;
    psti_error_clear(&why);
    patient t = {.m = m, .o = o, .fd = -1, .err = err ? err : &why, .at = UINT64_MAX};
    t.old = open_old(m, o);
    bool fetched = false;
    int rc = recover_sums(&t);
    if (rc < 0)
        psti_fail(t.err, rc, "read", object_key(m->objects, o), "its checksums cannot be mended");
    if (rc == 0 && !(t.sums && part_is_whole(&t, part))) {
        rc = replace(&t);
        rc = rc < 0 ? say(&t, rc) : 1;
        fetched = rc > 0;
    }
    if (t.old >= 0)
        close(t.old);
    psti_free(t.sums);
    return rc < 0 ? rc : fetched;
}
