/* SPDX-License-Identifier: Apache-2.0
 * Files and folders of the depot. Keys become paths here, part by part, and no link is followed.
 * Any thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "depot/depot_priv.h"

int dir_open(int at, const char *name)
{
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int dir_make(int at, const char *name)
{
    if (mkdirat(at, name, 0755) != 0 && errno != EEXIST)
        return -errno;
    return dir_open(at, name);
}

int dir_of_key(int at, const char *key, bool make, const char **leaf)
{
    if (psti_key_fault(key, strlen(key)))
        return -EINVAL;
    int dir = fcntl(at, F_DUPFD_CLOEXEC, 0);
    if (dir < 0)
        return -errno;
    for (const char *slash; (slash = strchr(key, '/')) != NULL; key = slash + 1) {
        char part[256];
        const size_t len = (size_t)(slash - key);
        int next = -ENAMETOOLONG;
        if (len < sizeof part) {
            memcpy(part, key, len);
            part[len] = 0;
            next = dir_open(dir, part);
            if (next == -ENOENT && make)
                next = dir_make(dir, part);
        }
        close(dir);
        if (next < 0)
            return next;
        dir = next;
    }
    *leaf = key;
    return dir;
}

/* ---- removing ----------------------------------------------------------------------------------
 */

static int remove_entry(int dir, const struct dirent *entry, uint64_t *freed)
{
    struct stat st;
    if (entry->d_type == DT_DIR)
        return tree_remove(dir, entry->d_name, freed);
    if (freed && fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode) && st.st_nlink == 1)
        *freed += (uint64_t)st.st_size;
    if (unlinkat(dir, entry->d_name, 0) == 0 || errno == ENOENT)
        return 0;
    /* A file system that tells no types. */
    return errno == EISDIR || errno == EPERM ? tree_remove(dir, entry->d_name, freed) : -errno;
}

int tree_remove(int at, const char *name, uint64_t *freed)
{
    const int fd = dir_open(at, name);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -ENOMEM;
    }
    int rc = 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = remove_entry(dirfd(dir), entry, freed);
    closedir(dir);
    if (rc == 0 && unlinkat(at, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        rc = -errno;
    return rc;
}

void sweep(int at, const char *prefix)
{
    const int fd = fcntl(at, F_DUPFD_CLOEXEC, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    if (!dir)
        return;
    rewinddir(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            remove_entry(at, entry, NULL);
    closedir(dir);
}

/* ---- small files -------------------------------------------------------------------------------
 */

int write_all(int fd, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        const ssize_t n = write(fd, at, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += n;
        count -= (size_t)n;
    }
    return 0;
}

ssize_t file_read(int at, const char *name, char *buf, size_t cap)
{
    const int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    size_t used = 0;
    ssize_t n = 1;
    while (n > 0 && used < cap) {
        n = read(fd, buf + used, cap - used);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            used += (size_t)n;
    }
    const int code = n < 0 ? -errno : used == cap ? -EFBIG : 0;
    close(fd);
    if (code < 0)
        return code;
    buf[used] = 0;
    return (ssize_t)used;
}

int file_write(int at, const char *name, const void *bytes, size_t count)
{
    char temporary[96];
    snprintf(temporary, sizeof temporary, ".%s.new", name);
    const int fd =
        openat(at, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    int rc = write_all(fd, bytes, count);
    if (rc == 0 && fsync(fd) != 0)
        rc = -errno;
    close(fd);
    if (rc == 0 && renameat(at, temporary, at, name) != 0)
        rc = -errno;
    if (rc < 0)
        unlinkat(at, temporary, 0);
    return rc;
}

static int set_lock(int fd, short type, int how)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    while (fcntl(fd, how, &lock) != 0)
        if (errno != EINTR)
            return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
    return 0;
}

int lock_share(int fd)
{
    return set_lock(fd, F_RDLCK, F_OFD_SETLKW);
}

int lock_take(int fd)
{
    return set_lock(fd, F_WRLCK, F_OFD_SETLK);
}

bool lock_is_held(int at, const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const bool held = fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (fd >= 0)
        close(fd);
    return held;
}

int lock_open(int at, const char *name)
{
    int fd = openat(at, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 && (errno == EACCES || errno == EROFS)) /* another user's depot: reading is enough */
        fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}
