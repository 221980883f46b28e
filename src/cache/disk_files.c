/* SPDX-License-Identifier: Apache-2.0
 * The disk tier's directory.
 *
 *     DIR/xx/REST.TAG.SIZE   an entry: xx and REST are the hash of its key, TAG tells the owner
 *     DIR/new-…              an entry that is being written; renamed when it is whole
 *     DIR/books              bytes that entries take, of all processes; locked while it is changed
 *
 * Names tell all that the index needs, so a start opens no file. Nothing is synced: what a crash of
 * the machine leaves behind is found out by the envelope. A process holds a shared lock on the
 * directory itself as long as it uses it; who is alone there may clear up. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/disk_priv.h"
#include "core/clock.h"
#include "core/status.h"

static const uint64_t BOOKS_MAGIC = 0x0a31534b4f4f4250; /* "PBOOKS1\n" */
static const char TEMPORARY[] = "new-";
enum {
    FOLDERS = 256,
    PIECE = 1 << 20,
    TEMPORARY_LEN = sizeof TEMPORARY - 1,
    TEMPORARY_DIGITS = 16
};

/* ---- names ----------------------------------------------------------------------------------- */

void disk_name(const disk_entry *entry, char out[PSTI_DISK_NAME])
{
    char hex[33];
    psti_id128_hex(entry->id, hex);
    snprintf(out, PSTI_DISK_NAME, "%.2s/%s.%04x.%" PRIx64, hex, hex + 2, (unsigned)entry->tag,
             (uint64_t)entry->size);
}

/* Exactly `digits` of them; -1 is none. */
static bool hex_of(const char *text, int digits, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        const char c = text[i];
        const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0)
            return false;
        *out = *out << 4 | (uint64_t)value;
    }
    return true;
}

bool disk_name_parse(const char *folder, const char *name, disk_entry *out)
{
    enum { REST = 30, TAG = 4, SIZE_MOST = 9 };
    uint8_t bytes[16];
    char hex[33];
    uint64_t value, tag, size;
    const size_t len = strlen(name), digits = len - (REST + TAG + 2);
    if (len < REST + TAG + 3 || digits > SIZE_MOST || name[REST] != '.' ||
        name[REST + TAG + 1] != '.')
        return false;
    snprintf(hex, sizeof hex, "%.2s%.30s", folder, name);
    for (int i = 0; i < 16; i++) {
        if (!hex_of(hex + 2 * i, 2, &value))
            return false;
        bytes[i] = (uint8_t)value;
    }
    if (!hex_of(name + REST + 1, TAG, &tag) || !hex_of(name + REST + TAG + 2, (int)digits, &size) ||
        !size)
        return false;
    *out = (disk_entry){.id = psti_id128_load(bytes), .size = size, .tag = (uint16_t)tag};
    /* What names it must be what it is called: leading zeros, say, are nobody's of ours. */
    char again[PSTI_DISK_NAME];
    disk_name(out, again);
    return strncmp(again, folder, 2) == 0 && strcmp(again + 3, name) == 0;
}

/* ---- the directory --------------------------------------------------------------------------- */

static int check_owner(const char *path, int dir, bool *refused, pst_error *err)
{
    struct stat st;
    if (fstat(dir, &st) < 0)
        return -errno;
    *refused = true;
    if (st.st_uid != geteuid())
        return psti_fail(err, -EPERM, "disk", NULL,
                         "the directory %s of the disk tier belongs to another user; take one of "
                         "your own",
                         path);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return psti_fail(err, -EPERM, "disk", NULL,
                         "others may write to the directory %s of the disk tier; chmod 700 it, or "
                         "take another",
                         path);
    *refused = false;
    return 0;
}

static bool temporary_name(const char *name)
{
    uint64_t number;
    return strncmp(name, TEMPORARY, TEMPORARY_LEN) == 0 &&
           strlen(name) == TEMPORARY_LEN + TEMPORARY_DIGITS &&
           hex_of(name + TEMPORARY_LEN, TEMPORARY_DIGITS, &number);
}

static bool our_name(const char *name)
{
    uint64_t number;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "books") == 0 ||
           strcmp(name, "lost+found") == 0 || (strlen(name) == 2 && hex_of(name, 2, &number)) ||
           temporary_name(name);
}

/* Whether a directory without books may become one of ours: nothing else lies in it. 1, 0 or
 * -errno. */
static int only_ours(int dir)
{
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *top = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;
    int ours = top ? 1 : -errno;
    while (ours > 0 && (d = readdir(top)))
        ours = our_name(d->d_name);
    if (top)
        closedir(top);
    else if (fd >= 0)
        close(fd);
    return ours;
}

static int not_ours(const char *path, const char *why, bool *refused, pst_error *err)
{
    *refused = true;
    return psti_fail(err, -EEXIST, "disk", NULL,
                     "the directory %s holds %s: the disk tier wants one of its own, for example "
                     "%s/penstock",
                     path, why, path);
}

/* The books of an open directory, made where there are none; a directory of anything else is not
 * touched. A descriptor, or negative. */
static int open_books(const char *path, int dir, bool *refused, pst_error *err)
{
    uint64_t magic = 0;
    int books = openat(dir, "books", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (books < 0 && errno != ENOENT)
        return -errno;
    const ssize_t n = books < 0 ? 0 : pread(books, &magic, sizeof magic, 0);
    int rc = n < 0 ? -errno : 0;
    if (!rc && n > 0 && (n < (ssize_t)sizeof magic || magic != BOOKS_MAGIC))
        rc = not_ours(path, "a file books that is not the tier's", refused, err);
    const int ours = rc || n > 0 ? 1 : only_ours(dir);
    if (ours <= 0)
        rc = ours < 0 ? ours : not_ours(path, "other files", refused, err);
    if (!rc && books < 0) {
        books = openat(dir, "books", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        rc = books < 0 ? -errno : 0;
    }
    if (rc && books >= 0)
        close(books);
    return rc ? rc : books;
}

/* Where the user named something that can be no directory of ours. */
static bool users_mistake(int error)
{
    return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM ||
           error == ENAMETOOLONG || error == ELOOP;
}

int files_open(disk_files *files, bool *refused, pst_error *err)
{
    *refused = false;
    const bool failed = mkdir(files->path, 0700) < 0 && errno != EEXIST;
    const int made = failed ? errno : 0;
    const int dir = failed ? -1 : open(files->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        const int error = failed ? made : errno;
        *refused = users_mistake(error);
        return psti_fail(err, -error, "disk", NULL,
                         "the directory %s of the disk tier cannot be %s: %s", files->path,
                         failed ? "made" : "opened", pst_strerror(-error));
    }
    int rc = check_owner(files->path, dir, refused, err);
    const int books = rc ? -1 : open_books(files->path, dir, refused, err);
    if (!rc && books < 0)
        rc = *refused ? books
                      : psti_fail(err, books, "disk", NULL, "%s/books cannot be opened: %s",
                                  files->path, pst_strerror(books));
    if (rc) {
        close(dir);
        return rc;
    }
    if (files->dir < 0) {
        files->dir = dir;
        files->books = books;
        files->next_number =
            psti_mix64(psti_now_ns() ^ (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)files);
        return 0;
    }
    /* Others may be reading beneath the old one: the number stays, what is behind it changes. */
    rc = dup3(dir, files->dir, O_CLOEXEC) < 0 || dup3(books, files->books, O_CLOEXEC) < 0 ? -errno
                                                                                          : 0;
    close(dir);
    close(books);
    return rc;
}

bool files_gone(const disk_files *files)
{
    struct stat st;
    return fstat(files->dir, &st) < 0 || st.st_nlink == 0;
}

void files_close(disk_files *files)
{
    if (files->dir >= 0)
        close(files->dir);
    if (files->books >= 0)
        close(files->books);
    files->dir = files->books = -1;
}

/* ---- reading what is there ------------------------------------------------------------------- */

static DIR *open_folder(const disk_files *files, const char *name)
{
    const int fd = openat(files->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder && fd >= 0)
        close(fd);
    return folder;
}

/* index NULL: only their bytes are counted. */
static int scan_folder(const disk_files *files, int number, disk_index *index, uint64_t *bytes)
{
    char name[8];
    snprintf(name, sizeof name, "%02x", (unsigned)number);
    DIR *folder = open_folder(files, name);
    if (!folder)
        return errno == ENOENT ? 0 : -errno;
    int rc = 0;
    struct dirent *d;
    while (!rc && (errno = 0, d = readdir(folder))) {
        disk_entry e;
        if (!disk_name_parse(name, d->d_name, &e))
            continue;
        *bytes += disk_blocks(e.size);
        if (!index || index_find(index, e.id))
            continue;
        disk_entry *mine = index_add(index, e.id, e.size, (uint16_t)e.tag);
        if (mine)
            mine->ready = 1;
        else
            rc = -ENOMEM;
    }
    if (!rc && errno)
        rc = -errno;
    closedir(folder);
    return rc;
}

static int scan_all(const disk_files *files, disk_index *index, uint64_t *bytes)
{
    int rc = 0;
    *bytes = 0;
    for (int i = 0; !rc && i < FOLDERS; i++)
        rc = scan_folder(files, i, index, bytes);
    return rc;
}

/* Nobody else is here: what has a temporary name was left by one that was killed. */
static void remove_orphans(const disk_files *files)
{
    DIR *top = open_folder(files, ".");
    struct dirent *d;
    while (top && (d = readdir(top)))
        if (temporary_name(d->d_name))
            unlinkat(files->dir, d->d_name, 0);
    if (top)
        closedir(top);
}

static int write_books(const disk_files *files, uint64_t bytes)
{
    const uint64_t book[2] = {BOOKS_MAGIC, bytes};
    const ssize_t n = pwrite(files->books, book, sizeof book, 0);
    return n == (ssize_t)sizeof book ? 0 : n < 0 ? -errno : -EIO;
}

int files_scan(disk_files *files, disk_index *index)
{
    uint64_t bytes;
    const bool alone = flock(files->dir, LOCK_EX | LOCK_NB) == 0;
    if (alone)
        remove_orphans(files);
    int rc = scan_all(files, index, &bytes);
    if (!rc && alone)
        rc = write_books(files, bytes);
    while (flock(files->dir, LOCK_SH) < 0 && errno == EINTR) {
    }
    return rc;
}

/* ---- the quota ------------------------------------------------------------------------------- */

static int read_books(const disk_files *files, uint64_t *bytes)
{
    uint64_t book[2];
    const ssize_t n = pread(files->books, book, sizeof book, 0);
    if (n < 0)
        return -errno;
    if (n < (ssize_t)sizeof book || book[0] != BOOKS_MAGIC)
        return scan_all(files, NULL, bytes); /* somebody wrote over it */
    *bytes = book[1];
    return 0;
}

int files_count(disk_files *files, int64_t bytes, uint64_t quota)
{
    uint64_t used = 0;
    pthread_mutex_lock(&files->lock);
    int rc;
    while ((rc = flock(files->books, LOCK_EX) < 0 ? -errno : 0) == -EINTR) {
    }
    if (!rc) {
        rc = read_books(files, &used);
        if (!rc && bytes > 0 && (used > quota || (uint64_t)bytes > quota - used))
            rc = 1;
        if (!rc)
            rc = write_books(files,
                             bytes < 0 && (uint64_t)-bytes > used ? 0 : used + (uint64_t)bytes);
        flock(files->books, LOCK_UN);
    }
    pthread_mutex_unlock(&files->lock);
    return rc;
}

/* ---- entries --------------------------------------------------------------------------------- */

static int write_whole(int fd, const uint8_t *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        const size_t left = size - done;
        const ssize_t n = write(fd, bytes + done, left < PIECE ? left : PIECE);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return -EIO;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Into its folder, which is made when it is the first there. */
static int give_name(const disk_files *files, const char *temporary, const char *name)
{
    if (renameat(files->dir, temporary, files->dir, name) == 0)
        return 0;
    if (errno == EISDIR && unlinkat(files->dir, name, AT_REMOVEDIR) == 0)
        return renameat(files->dir, temporary, files->dir, name) < 0 ? -errno : 0;
    if (errno != ENOENT)
        return -errno;
    const char folder[3] = {name[0], name[1], 0};
    if (mkdirat(files->dir, folder, 0700) < 0 && errno != EEXIST)
        return -errno;
    return renameat(files->dir, temporary, files->dir, name) < 0 ? -errno : 0;
}

int files_write(disk_files *files, const disk_entry *entry, const uint8_t *packed)
{
    char name[PSTI_DISK_NAME], temporary[32];
    struct stat st;
    disk_name(entry, name);
    if (fstatat(files->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        (uint64_t)st.st_size == entry->size)
        return 1;
    snprintf(temporary, sizeof temporary, "%s%016" PRIx64, TEMPORARY, files->next_number++);
    const int fd =
        openat(files->dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int rc = write_whole(fd, packed, entry->size);
    if (close(fd) < 0 && !rc)
        rc = -errno;
    if (!rc)
        rc = give_name(files, temporary, name);
    if (rc)
        unlinkat(files->dir, temporary, 0);
    return rc;
}

bool files_remove(disk_files *files, const disk_entry *entry)
{
    char name[PSTI_DISK_NAME];
    disk_name(entry, name);
    return unlinkat(files->dir, name, 0) == 0;
}
