/* SPDX-License-Identifier: Apache-2.0
 * A folder as a bucket: a slow or shared file system from which data is brought to a local disk.
 * An object's etag is made of the time of its last change and its size. Any thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "depot/depot_priv.h"

enum { PIECE = 1 << 20, DEPTH_MOST = 64 };

typedef struct folder {
    int root;
} folder;

typedef struct found {
    char *key;
    uint64_t size;
    int64_t mtime_ns;
} found;

typedef struct walk {
    found *items;
    size_t count, cap;
    char path[PSTI_KEY_MAX + 1];
    pst_error *err;
} walk;

static int64_t mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static void make_etag(char out[64], uint64_t size, int64_t time_ns)
{
    snprintf(out, 64, "\"%" PRIx64 "-%" PRIx64 "\"", (uint64_t)time_ns, size);
}

static int note(walk *w, const struct stat *st)
{
    if (w->count == w->cap) {
        const size_t cap = w->cap ? 2 * w->cap : 256;
        found *items = psti_realloc(PSTI_MEM_DEPOT, w->items, cap, sizeof *items);
        if (!items)
            return psti_fail(w->err, -ENOMEM, "list", NULL, "out of memory");
        w->items = items;
        w->cap = cap;
    }
    char *key = psti_strdup(PSTI_MEM_DEPOT, w->path);
    if (!key)
        return psti_fail(w->err, -ENOMEM, "list", NULL, "out of memory");
    w->items[w->count++] = (found){key, (uint64_t)st->st_size, mtime_ns(st)};
    return 0;
}

static int walk_dir(walk *w, int at, const char *name, size_t len, int depth);

static int walk_entry(walk *w, int dir, const char *name, size_t len, int depth)
{
    struct stat st;
    const size_t n = strlen(name);
    if (name[0] == '.')
        return 0;
    if (len + n + 1 > PSTI_KEY_MAX)
        return psti_fail(w->err, -ENAMETOOLONG, "list", w->path, "the path is too long");
    memcpy(w->path + len, name, n + 1);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return psti_fail(w->err, -errno, "list", w->path, "%s", strerror(errno));
    if (S_ISREG(st.st_mode))
        return note(w, &st);
    if (!S_ISDIR(st.st_mode)) /* links, pipes, devices */
        return 0;
    w->path[len + n] = '/';
    w->path[len + n + 1] = 0;
    return walk_dir(w, dir, name, len + n + 1, depth + 1);
}

static int walk_dir(walk *w, int at, const char *name, size_t len, int depth)
{
    const int fd = depth > DEPTH_MOST ? -ELOOP : dir_open(at, name);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        const int code = fd < 0 ? fd : -ENOMEM;
        return psti_fail(w->err, code, "list", len ? w->path : NULL, "cannot be listed: %s",
                         strerror(-code));
    }
    int rc = 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(dir)) != NULL)
        rc = walk_entry(w, dirfd(dir), entry->d_name, len, depth);
    closedir(dir);
    return rc;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const found *)a)->key, ((const found *)b)->key);
}

static int folder_list(bucket *b, listing *out, pst_error *err)
{
    const folder *f = b->state;
    walk w = {.err = err};
    int rc = walk_dir(&w, f->root, ".", 0, 0);
    if (w.count > 1)
        qsort(w.items, w.count, sizeof *w.items, by_key);
    for (size_t i = 0; i < w.count; i++) {
        char etag[64];
        make_etag(etag, w.items[i].size, w.items[i].mtime_ns);
        if (rc == 0)
            rc = listing_add(out, w.items[i].key, strlen(w.items[i].key), w.items[i].size, etag,
                             err);
        psti_free(w.items[i].key);
    }
    psti_free(w.items);
    return rc;
}

static int changed(const char *key, pst_error *err)
{
    return psti_fail(err, PST_ECHANGED, "pull", key, "the file is another one than was listed");
}

static int copy_part(int fd, const char *key, stretch part, bucket_sink sink, void *user,
                     pst_error *err)
{
    uint8_t *piece = psti_malloc(PSTI_MEM_DEPOT, PIECE);
    if (!piece)
        return psti_fail(err, -ENOMEM, "pull", key, "out of memory");
    int rc = 0;
    while (rc == 0 && part.from < part.to) {
        const uint64_t left = part.to - part.from;
        const ssize_t n = pread(fd, piece, left < PIECE ? (size_t)left : PIECE, (off_t)part.from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = psti_fail(err, -errno, "pull", key, "cannot be read: %s", strerror(errno));
        else if (n == 0)
            rc = changed(key, err);
        else if (sink(user, part.from, piece, (size_t)n) != 0)
            rc = -ECANCELED;
        else
            part.from += (uint64_t)n;
    }
    psti_free(piece);
    return rc;
}

static int folder_get(bucket *b, const listing *l, const object *o, stretch part, bucket_sink sink,
                      void *user, pst_error *err)
{
    const folder *f = b->state;
    const char *key = object_key(l, o), *leaf;
    char etag[64];
    struct stat st;
    const int dir = dir_of_key(f->root, key, false, &leaf);
    const int fd = dir < 0 ? -1 : openat(dir, leaf, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const int code = dir < 0 ? dir : fd < 0 ? -errno : 0;
    if (dir >= 0)
        close(dir);
    if (code == -ENOENT || code == -ENOTDIR || code == -ELOOP)
        return changed(key, err);
    if (code < 0)
        return psti_fail(err, code, "pull", key, "cannot be opened: %s", strerror(-code));
    int rc = fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ? changed(key, err) : 0;
    for (int after = 0; after < 2 && rc == 0; after++) { /* before and after the bytes */
        make_etag(etag, (uint64_t)st.st_size, mtime_ns(&st));
        if ((uint64_t)st.st_size != o->size || strcmp(etag, object_etag(l, o)) != 0)
            rc = changed(key, err);
        else if (!after)
            rc = copy_part(fd, key, part, sink, user, err);
        if (rc == 0 && fstat(fd, &st) != 0)
            rc = changed(key, err);
    }
    close(fd);
    return rc;
}

static void folder_stop(bucket *b)
{
    (void)b; /* the sink says so between two pieces */
}

static void folder_close(bucket *b)
{
    folder *f = b->state;
    if (f)
        close(f->root);
    psti_free(f);
}

static const bucket_ops folder_ops = {folder_list, folder_get, folder_stop, folder_close};

int folder_bucket_open(const char *path, bucket *b, pst_error *err)
{
    const int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return psti_fail(err, -errno, "pull", path, "is no folder that can be read: %s",
                         strerror(errno));
    folder *f = psti_malloc(PSTI_MEM_DEPOT, sizeof *f);
    if (!f) {
        close(root);
        return psti_fail(err, -ENOMEM, "pull", path, "out of memory");
    }
    f->root = root;
    b->state = f;
    b->ops = &folder_ops;
    return 0;
}
