/* SPDX-License-Identifier: Apache-2.0
 * What readers of a pulled revision know of its files: etag and checksum; and a file that turned
 * out to be gone or damaged, brought again. A book is one thread's; mending waits, on any thread,
 * and several may mend the same file: each puts a whole one in its place. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "depot/depot_priv.h"
#include "net/net.h"

struct psti_depot_book {
    listing objects;
    char url[1024];
};

/* Only this process's user can have written what is there: a manifest of somebody else could name
 * anything as the place to fetch from, and have it fetched with our rights. */
static bool is_ours(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == geteuid() &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int psti_depot_book_open(const char *path, psti_depot_book **out, pst_error *err)
{
    psti_depot_book *book = psti_calloc(PSTI_MEM_DEPOT, 1, sizeof *book);
    if (!book)
        return psti_fail(err, -ENOMEM, "dataset", path, "out of memory");
    const int data = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = data < 0 ? psti_fail(err, -errno, "dataset", path, "%s", strerror(errno)) : 0;
    if (rc == 0 && (!is_ours(data, "../manifest") || !is_ours(data, "..") || !is_ours(data, ".")))
        rc = psti_fail(err, -EPERM, "dataset", path, "belongs to somebody else");
    if (rc == 0)
        rc = listing_read(&book->objects, data, "../manifest", book->url, sizeof book->url, err);
    if (data >= 0)
        close(data);
    if (rc < 0) {
        psti_free(book);
        return rc;
    }
    *out = book;
    return 0;
}

void psti_depot_book_close(psti_depot_book *book)
{
    if (!book)
        return;
    listing_fini(&book->objects);
    psti_free(book);
}

bool psti_depot_book_far(const psti_depot_book *book)
{
    return psti_is_bucket_url(book->url);
}

static object *look_up(psti_depot_book *book, const char *key)
{
    const listing *l = &book->objects;
    size_t low = 0, high = l->count;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const int order = strcmp(object_key(l, &l->objects[mid]), key);
        if (order == 0)
            return &l->objects[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

int psti_depot_book_etag(void *user, const char *path, uint64_t size, const char **etag)
{
    psti_depot_book *book = user;
    const object *o = look_up(book, path);
    if (!o || o->size != size)
        return -ENOENT;
    *etag = object_etag(&book->objects, o);
    return 0;
}

int psti_depot_book_sum(void *user, const char *path, uint64_t size, uint32_t *crc)
{
    object *o = look_up(user, path);
    if (!o || o->size != size || !o->known)
        return -ENOENT;
    o->shared = true; /* by the one who asks: it is there */
    *crc = o->crc;
    return 0;
}

/* ---- mending ------------------------------------------------------------------------------------
 */

static int put(void *user, uint64_t at, const uint8_t *bytes, size_t count)
{
    const int fd = *(const int *)user;
    while (count > 0) {
        const ssize_t n = pwrite(fd, bytes, count, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 1;
        bytes += n;
        at += (uint64_t)n;
        count -= (size_t)n;
    }
    return 0;
}

static bool is_whole(int dir, const char *leaf, const object *o)
{
    uint32_t crc = 0;
    struct stat st;
    const int fd = openat(dir, leaf, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool whole = fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == o->size &&
                       digest_file(fd, o->size, &crc, NULL) == 0 && crc == o->crc;
    if (fd >= 0)
        close(fd);
    return whole;
}

/* The object's bytes into a file beside the others, compared with what was noted of them. */
static int fetch_to(psti_depot_book *book, const object *o, int dir, const char *name,
                    pst_error *err)
{
    bucket *from = NULL;
    uint32_t crc = 0;
    int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return psti_fail(err, -errno, "read", NULL, "%s", strerror(errno));
    int rc = bucket_open(book->url, &from, err);
    if (rc == 0)
        rc = from->ops->get(from, &book->objects, o, 0, put, &fd, err);
    if (rc == 0 && (digest_file(fd, o->size, &crc, NULL) < 0 || crc != o->crc))
        rc = psti_fail(err, PST_ECORRUPT, "read", object_key(&book->objects, o),
                       "what the bucket has does not have the checksum that was noted");
    if (rc == 0 && (fchmod(fd, 0444) != 0 || fsync(fd) != 0))
        rc = psti_fail(err, -errno, "read", NULL, "%s", strerror(errno));
    close(fd);
    bucket_close(from);
    return rc;
}

/* A name that no other process has, nor one of before: pids come again in containers. */
static void new_name(char out[64])
{
    static atomic_uint turn; /* counter */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(out, 64, "../.mend.%llx.%lx.%x.%x", (unsigned long long)now.tv_sec,
             (unsigned long)now.tv_nsec, (unsigned)getpid(), atomic_fetch_add(&turn, 1));
}

/* Beside data first: nobody sees it before it was compared. */
static int mend(psti_depot_book *book, const char *path, const char *key, pst_error *err)
{
    char name[64];
    const char *leaf;
    int rc = 0;
    const object *o = look_up(book, key);
    const int data = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int dir = data < 0 || !o ? -1 : dir_of_key(data, key, true, &leaf);
    if (dir < 0)
        rc = psti_fail(err, -ENOENT, "read", key, "is no file of this revision");
    if (rc == 0 && !is_whole(dir, leaf, o)) { /* nobody was faster */
        new_name(name);
        rc = fetch_to(book, o, data, name, err);
        if (rc == 0 && renameat(data, name, dir, leaf) != 0)
            rc = psti_fail(err, -errno, "read", key, "%s", strerror(errno));
        if (rc < 0)
            unlinkat(data, name, 0);
    }
    if (dir >= 0)
        close(dir);
    if (data >= 0)
        close(data);
    return rc;
}

int psti_depot_mend(const char *path, const char *key, pst_error *err)
{
    psti_depot_book *book;
    int rc = psti_depot_book_open(path, &book, err);
    if (rc < 0)
        return rc;
    rc = mend(book, path, key, err);
    psti_depot_book_close(book);
    return rc;
}

static bool is_there(int data, const char *key, uint64_t size)
{
    const char *leaf;
    struct stat st;
    const int dir = dir_of_key(data, key, false, &leaf);
    const bool there = dir >= 0 && fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                       (uint64_t)st.st_size == size;
    if (dir >= 0)
        close(dir);
    return there;
}

/* More than a few are the business of a pull, which has connections and tells how far it is. */
enum { MISSING_MOST = 64 };

int psti_depot_book_complete(psti_depot_book *book, const char *path, pst_error *err)
{
    int missing = 0, rc = 0;
    const int data = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (data < 0)
        return psti_fail(err, -errno, "dataset", path, "%s", strerror(errno));
    for (size_t i = 0; i < book->objects.count; i++) {
        object *o = &book->objects.objects[i];
        o->shared = o->shared || is_there(data, object_key(&book->objects, o), o->size);
        missing += !o->shared;
    }
    close(data);
    if (missing > MISSING_MOST)
        return psti_fail(err, PST_EDATASET, "dataset", path,
                         "%d of its files are gone; penstock pull brings them again", missing);
    for (size_t i = 0; i < book->objects.count && rc == 0; i++)
        if (!book->objects.objects[i].shared)
            rc = mend(book, path, object_key(&book->objects, &book->objects.objects[i]), err);
    return rc < 0 ? rc : missing;
}
