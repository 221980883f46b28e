/* SPDX-License-Identifier: Apache-2.0
 * Lists a folder with a crew of threads, a directory at a time, one stat call for each sample file.
 * A directory known from a remembered listing is read again only when its time or inode changed, or
 * changed too recently to tell. */
#include "source/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/pool.h"

enum { DEPTH_MAX = 64, DENTS_BYTES = 64 * 1024, FOUND_STEP = 4096 };

/* A directory while it is being read. */
typedef struct reading {
    psti_dir *dir;
    int fd;
    psti_entry *entries;
    size_t count, cap;
    psti_strings names;
    uint32_t ignored, outside;
    uint64_t fresh;  /* files not yet told to the crew's counter */
    psti_crew *crew; /* may be NULL */
} reading;

psti_dir *psti_dir_new(psti_tree *tree, psti_dir *parent, const char *name)
{
    psti_dir *dir = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *dir);
    if (!dir)
        return NULL;
    const size_t above = parent && parent->path[0] ? strlen(parent->path) + 1 : 0,
                 len = strlen(name);
    dir->path = psti_malloc(PSTI_MEM_SOURCE, above + len + 1);
    if (!dir->path) {
        psti_free(dir);
        return NULL;
    }
    if (above) {
        memcpy(dir->path, parent->path, above - 1);
        dir->path[above - 1] = '/';
    }
    memcpy(dir->path + above, name, len + 1);
    dir->tree = tree;
    dir->parent = parent;
    dir->depth = parent ? parent->depth + 1 : 0;
    return dir;
}

static void free_entries(psti_dir *dir)
{
    for (uint32_t i = 0; i < dir->count; i++)
        if (dir->entries[i].type == PSTI_ENTRY_DIR)
            psti_dir_free(dir->entries[i].child);
    if (dir->owns) {
        psti_free(dir->entries);
        psti_free(dir->names);
    }
    dir->entries = NULL;
    dir->names = NULL;
    dir->count = 0;
}

void psti_dir_free(psti_dir *dir)
{
    if (!dir)
        return;
    free_entries(dir);
    psti_free(dir->path);
    psti_free(dir);
}

psti_tree *psti_tree_new(int root, const char *path)
{
    psti_tree *tree = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *tree);
    if (!tree)
        return NULL;
    tree->root = root;
    tree->path = path;
    tree->top = psti_dir_new(tree, NULL, "");
    if (!tree->top) {
        psti_free(tree);
        return NULL;
    }
    return tree;
}

void psti_tree_free(psti_tree *tree)
{
    if (!tree)
        return;
    psti_dir_free(tree->top);
    psti_strings_free(&tree->etags);
    psti_free(tree->loaded);
    psti_free(tree);
}

/* ---- reading one directory ------------------------------------------------------------------- */

static int fail_memory(pst_error *err, const psti_dir *dir)
{
    return psti_fail(err, -ENOMEM, "list", dir->path, "out of memory while listing");
}

static int fail_dir(pst_error *err, const psti_dir *dir, int rc)
{
    const char *where = dir->path[0] ? dir->path : dir->tree->path;
    if (rc == -EACCES || rc == -EPERM)
        return psti_fail(err, rc, "list", where,
                         "the folder cannot be read: permission denied; make it readable or move "
                         "it out of the dataset");
    return psti_fail(err, rc, "list", where, "the folder cannot be read: %s", pst_strerror(rc));
}

static int add_entry(reading *r, const char *name, uint32_t type, const struct stat *st)
{
    uint64_t at;
    if (psti_grow(&r->entries, &r->cap, r->count + 1, sizeof *r->entries) ||
        psti_strings_add(&r->names, name, strlen(name), &at) || at > UINT32_MAX)
        return -ENOMEM;
    psti_entry *entry = &r->entries[r->count++];
    *entry = (psti_entry){.name = (uint32_t)at, .type = type};
    if (type == PSTI_ENTRY_DIR)
        return 0;
    entry->size = (uint64_t)st->st_size;
    entry->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    entry->inode = st->st_ino;
    if (r->crew && ++r->fresh % FOUND_STEP == 0)
        atomic_fetch_add_explicit(&r->crew->found, FOUND_STEP, memory_order_relaxed);
    return 0;
}

/* Whether a linked directory is one that we are inside of. */
static bool is_above(const psti_dir *dir, const struct stat *st)
{
    for (; dir; dir = dir->parent)
        if (dir->inode == st->st_ino && dir->device == st->st_dev)
            return true;
    return false;
}

/* What a symbolic link leads to, if that is beneath the root. false: it is of no use. */
static bool follow(const reading *r, const char *name, struct stat *st)
{
    char path[PSTI_KEY_MAX + 1];
    const size_t above = strlen(r->dir->path), len = strlen(name);
    if (above + len + 2 > sizeof path)
        return false;
    memcpy(path, r->dir->path, above);
    if (above)
        path[above] = '/';
    memcpy(path + above + !!above, name, len + 1);
    const int fd = psti_open_beneath(r->dir->tree->root, path, O_PATH, false);
    if (fd < 0)
        return false;
    const bool ok = fstat(fd, st) == 0 && !S_ISLNK(st->st_mode);
    close(fd);
    return ok && !(S_ISDIR(st->st_mode) && is_above(r->dir, st));
}

static uint32_t type_of_name(const char *name)
{
    const size_t len = strlen(name);
    const psti_format format = psti_format_of_name(name, len);
    return format                                 ? (uint32_t)format
           : psti_has_ext(name, len, "tar")       ? PSTI_ENTRY_TAR
           : psti_has_ext(name, len, "trans.txt") ? PSTI_ENTRY_TEXT
                                                  : 0;
}

static int take(reading *r, const char *name, unsigned char d_type)
{
    const uint32_t type = type_of_name(name);
    struct stat st;
    if (name[0] == '.')
        return 0;
    if (d_type == DT_DIR)
        return add_entry(r, name, PSTI_ENTRY_DIR, NULL);
    if (d_type == DT_REG && !type) {
        r->ignored++;
        return 0;
    }
    if (fstatat(r->fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : -errno; /* removed under our eyes: as if never seen */
    if (S_ISLNK(st.st_mode) && !follow(r, name, &st)) {
        r->outside++;
        return 0;
    }
    if (S_ISDIR(st.st_mode))
        return add_entry(r, name, PSTI_ENTRY_DIR, NULL);
    if (S_ISREG(st.st_mode) && type)
        return add_entry(r, name, type, &st);
    r->ignored++;
    return 0;
}

static int read_names(reading *r)
{
    char *buf = psti_malloc(PSTI_MEM_SOURCE, DENTS_BYTES);
    int rc = buf ? 0 : -ENOMEM;
    while (!rc) {
        const ssize_t n = getdents64(r->fd, buf, DENTS_BYTES);
        if (n <= 0) {
            rc = n < 0 ? -errno : 0;
            break;
        }
        for (ssize_t at = 0; at < n && !rc;) {
            const struct dirent64 *d = (const struct dirent64 *)(buf + at);
            rc = take(r, d->d_name, d->d_type);
            at += d->d_reclen;
        }
    }
    psti_free(buf);
    return rc;
}

/* Byte-wise, a directory as if its name ended in '/'. */
static int by_key(const void *left, const void *right, void *names)
{
    const psti_entry *a = left, *b = right;
    const char *p = (const char *)names + a->name, *q = (const char *)names + b->name;
    while (*p && *p == *q)
        p++, q++;
    const int x = *p ? (unsigned char)*p : a->type == PSTI_ENTRY_DIR ? '/' : 0;
    const int y = *q ? (unsigned char)*q : b->type == PSTI_ENTRY_DIR ? '/' : 0;
    return x - y;
}

/* The directory of that name in what was known before, taken out of it; NULL if there is none. */
static psti_dir *adopt(psti_dir *dir, const char *name)
{
    uint32_t low = 0, high = dir->count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        psti_entry *entry = &dir->entries[mid];
        const char *p = psti_entry_name(dir, entry), *q = name;
        while (*p && *p == *q)
            p++, q++;
        const int x = *p ? (unsigned char)*p : entry->type == PSTI_ENTRY_DIR ? '/' : 0;
        const int y = *q ? (unsigned char)*q : '/';
        if (x == y && entry->type == PSTI_ENTRY_DIR && !*p && !*q) {
            psti_dir *child = entry->child;
            entry->child = NULL;
            return child;
        }
        if (x < y)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* Makes the children and puts the new entries in the place of the old. */
static int replace_entries(reading *r)
{
    psti_dir *dir = r->dir;
    size_t made = 0;
    for (; made < r->count; made++) {
        psti_entry *entry = &r->entries[made];
        if (entry->type != PSTI_ENTRY_DIR)
            continue;
        const char *name = r->names.data + entry->name;
        entry->child = adopt(dir, name);
        if (!entry->child)
            entry->child = psti_dir_new(dir->tree, dir, name);
        if (!entry->child)
            break;
    }
    if (made < r->count) { /* give back what was made, so that the reading owns no directory */
        for (size_t i = 0; i < made; i++)
            if (r->entries[i].type == PSTI_ENTRY_DIR)
                psti_dir_free(r->entries[i].child);
        return -ENOMEM;
    }
    free_entries(dir);
    dir->entries = r->entries;
    dir->count = (uint32_t)r->count;
    dir->names = r->names.data;
    dir->names_bytes = r->names.len;
    dir->ignored = r->ignored;
    dir->outside = r->outside;
    dir->owns = true;
    dir->known = false;
    r->entries = NULL;
    r->names = (psti_strings){0};
    return 0;
}

/* Lists are kept until the dataset is built: give back what doubling took too much. */
static void trim(reading *r)
{
    psti_entry *entries =
        r->count ? psti_realloc(PSTI_MEM_SOURCE, r->entries, r->count, sizeof *entries) : NULL;
    char *names =
        r->names.len ? psti_realloc(PSTI_MEM_SOURCE, r->names.data, r->names.len, 1) : NULL;
    if (entries)
        r->entries = entries;
    if (names)
        r->names.data = names;
}

static int open_dir(const psti_dir *dir)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    if (dir->path[0])
        return psti_open_beneath(dir->tree->root, dir->path, flags, false);
    const int fd = openat(dir->tree->root, ".", flags);
    return fd < 0 ? -errno : fd;
}

static int bad_path(const psti_dir *dir, pst_error *err)
{
    if (dir->depth > DEPTH_MAX)
        return psti_fail(err, PST_ELIMIT, "list", dir->path,
                         "folders are nested deeper than %d; flatten them", DEPTH_MAX);
    const char *fault = dir->path[0] ? psti_key_fault(dir->path, strlen(dir->path)) : NULL;
    if (!fault)
        return 0;
    char shown[300];
    return psti_fail(err, PST_EDATASET, "list", dir->path, "the folder name '%s' %s; rename it",
                     psti_escape(shown, sizeof shown, dir->path, strlen(dir->path)), fault);
}

static int list_dir(psti_dir *dir, psti_crew *crew, pst_error *err)
{
    reading r = {.dir = dir, .crew = crew, .fd = -1};
    int rc = bad_path(dir, err);
    if (rc)
        return rc;
    r.fd = open_dir(dir);
    if (r.fd < 0)
        return fail_dir(err, dir, r.fd);
    psti_stamp stamp;
    rc = psti_stamp_fd(
        r.fd, &stamp); /* before reading: a change meanwhile makes the time newer than this */
    if (!rc) {
        dir->mtime_ns = stamp.mtime_ns;
        dir->inode = stamp.inode;
        dir->device = stamp.device;
        rc = read_names(&r);
    }
    if (!rc && r.count > 1)
        qsort_r(r.entries, r.count, sizeof *r.entries, by_key, r.names.data);
    if (!rc) {
        trim(&r);
        rc = replace_entries(&r);
    }
    if (crew)
        atomic_fetch_add_explicit(&crew->found, r.fresh % FOUND_STEP, memory_order_relaxed);
    psti_free(r.entries);
    psti_strings_free(&r.names);
    close(r.fd);
    return rc == -ENOMEM ? fail_memory(err, dir) : rc ? fail_dir(err, dir, rc) : 0;
}

/* ---- the whole tree -------------------------------------------------------------------------- */

static bool still_same(psti_dir *dir)
{
    struct stat st;
    const char *path = dir->path[0] ? dir->path : ".";
    if (fstatat(dir->tree->root, path, &st, 0) || !S_ISDIR(st.st_mode))
        return false;
    dir->device = st.st_dev;
    const int64_t mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return mtime_ns == dir->mtime_ns && st.st_ino == dir->inode &&
           mtime_ns < dir->tree->trust_before_ns;
}

static int settle(psti_dir *dir, psti_crew *crew, pst_error *err)
{
    if (dir->known && still_same(dir)) {
        atomic_fetch_add_explicit(&dir->tree->reused, 1, memory_order_relaxed);
        if (crew)
            atomic_fetch_add_explicit(&crew->found, dir->count, memory_order_relaxed);
        return 0;
    }
    atomic_fetch_add_explicit(&dir->tree->relisted, 1, memory_order_relaxed);
    return list_dir(dir, crew, err);
}

static int run_dir(psti_work *work, psti_crew *crew, pst_error *err);

static void push_children(psti_dir *dir, psti_crew *crew)
{
    for (uint32_t i = dir->count; i-- > 0;) {
        if (dir->entries[i].type != PSTI_ENTRY_DIR)
            continue;
        dir->entries[i].child->work.run = run_dir;
        psti_crew_push(crew, &dir->entries[i].child->work);
    }
}

static int run_dir(psti_work *work, psti_crew *crew, pst_error *err)
{
    psti_dir *dir = (psti_dir *)((char *)work - offsetof(psti_dir, work));
    const int rc = settle(dir, crew, err);
    if (!rc)
        push_children(dir, crew);
    return rc;
}

int psti_tree_top(psti_tree *tree, pst_error *err)
{
    return settle(tree->top, NULL, err);
}

int psti_tree_rest(psti_tree *tree, const pst_dataset_options *opts, pst_error *err)
{
    psti_crew crew;
    psti_crew_init(&crew, opts->threads);
    push_children(tree->top, &crew);
    const int rc = psti_crew_run(&crew, opts, err);
    psti_crew_fini(&crew);
    return rc;
}
