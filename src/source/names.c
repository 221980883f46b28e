/* SPDX-License-Identifier: Apache-2.0
 * Keys become paths here and nowhere else: psti_key_fault (core) says which keys are allowed and
 * psti_open_beneath checks again before it opens; paths that the caller lists go another way. Pure
 * functions but for one flag; called from listing, I/O and verifying threads. */
#include "source/names.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_bool no_openat2; /* set once seen missing; stands alone */

void psti_open_beneath_without_openat2(bool without)
{
    atomic_store(&no_openat2, without);
}

bool psti_have_openat2(void)
{
    return !atomic_load_explicit(&no_openat2, memory_order_relaxed);
}

/* Part by part without following any link: stricter than openat2, never laxer. */
static int open_parts(int root, const char *path, int flags)
{
    int dir = root;
    for (;;) {
        const char *slash = strchr(path, '/');
        char part[256];
        const size_t len = slash ? (size_t)(slash - path) : strlen(path);
        int fd = -ENAMETOOLONG;
        if (len < sizeof part) {
            memcpy(part, path, len);
            part[len] = 0;
            const int how = slash ? O_PATH | O_DIRECTORY : flags;
            fd = openat(dir, part, how | O_NOFOLLOW | O_CLOEXEC);
            if (fd < 0)
                fd = -errno;
        }
        if (dir != root)
            close(dir);
        if (fd < 0 || !slash)
            return fd;
        dir = fd;
        path = slash + 1;
    }
}

/* -ENOSYS where the kernel has no openat2. */
static int open_how(int root, const char *path, int flags, uint64_t resolve, bool cached_only)
{
    struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC,
                           .resolve = resolve | (cached_only ? RESOLVE_CACHED : 0)};
    /* A rename elsewhere in the tree makes openat2 give up with EAGAIN; a few more tries settle it.
     */
    for (int tries = 0; psti_have_openat2(); tries++) {
        const long fd = syscall(SYS_openat2, root, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno == ENOSYS)
            atomic_store(&no_openat2, true);
        else if (errno == EINTR)
            continue;
        else if (errno != EAGAIN || cached_only || tries >= 100)
            return -errno;
    }
    return cached_only ? -EAGAIN : -ENOSYS;
}

int psti_open_beneath(int root, const char *path, int flags, bool cached_only)
{
    if (psti_key_fault(path, strlen(path)))
        return -EINVAL;
    const int fd =
        open_how(root, path, flags, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS, cached_only);
    return fd == -ENOSYS ? open_parts(root, path, flags) : fd;
}

int psti_open_anywhere(int root, const char *path, int flags, bool cached_only)
{
    int fd = cached_only ? open_how(root, path, flags, 0, true) : -ENOSYS;
    if (fd == -ENOSYS) {
        do
            fd = openat(root, path, flags | O_CLOEXEC);
        while (fd < 0 && errno == EINTR);
        fd = fd < 0 ? -errno : fd;
    }
    return fd;
}

static psti_stamp stamp_of(const struct stat *st)
{
    return (psti_stamp){.size = (uint64_t)st->st_size,
                        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
                        .inode = st->st_ino,
                        .device = st->st_dev,
                        .mode = st->st_mode};
}

int psti_stamp_fd(int fd, psti_stamp *out)
{
    struct stat st;
    if (fstat(fd, &st))
        return -errno;
    *out = stamp_of(&st);
    return 0;
}

int psti_stamp_beneath(int root, const char *path, psti_stamp *out)
{
    const int fd = psti_open_beneath(root, path, O_PATH, false);
    if (fd < 0)
        return fd;
    const int rc = psti_stamp_fd(fd, out);
    close(fd);
    return rc;
}

int psti_stamp_anywhere(int root, const char *path, psti_stamp *out)
{
    struct stat st;
    if (fstatat(root, path, &st, 0))
        return -errno;
    *out = stamp_of(&st);
    return 0;
}

bool psti_stamp_same(const psti_stamp *a, const psti_stamp *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && a->inode == b->inode;
}

/* read: false while no decoder knows the format. Such a file is no sample of a folder, and a tar
 * member of that name is bytes. */
static const struct {
    const char *ext;
    psti_format format;
    bool read;
} extensions[] = {
    {"jpg", PSTI_FORMAT_JPEG, true},     {"jpeg", PSTI_FORMAT_JPEG, true},
    {"png", PSTI_FORMAT_PNG, true},      {"webp", PSTI_FORMAT_WEBP, true},
    {"npy", PSTI_FORMAT_NPY, true},      {"nii", PSTI_FORMAT_NIFTI, true},
    {"nii.gz", PSTI_FORMAT_NIFTI, true}, {"npz", PSTI_FORMAT_NPZ, true},
    {"wav", PSTI_FORMAT_WAV, true},      {"flac", PSTI_FORMAT_FLAC, true},
};
enum { EXTENSIONS = sizeof extensions / sizeof *extensions };

psti_format psti_format_of_ext(const char *ext, size_t len)
{
    for (size_t i = 0; i < EXTENSIONS; i++)
        if (extensions[i].read && strlen(extensions[i].ext) == len &&
            strncasecmp(extensions[i].ext, ext, len) == 0)
            return extensions[i].format;
    return PSTI_FORMAT_NONE;
}

psti_format psti_format_of_name(const char *name, size_t len)
{
    const char *ext = psti_ext_of_name(name, len);
    return ext ? psti_format_of_ext(ext, (size_t)(name + len - ext)) : PSTI_FORMAT_NONE;
}

const char *psti_ext_of_name(const char *name, size_t len)
{
    for (size_t i = 0; i < EXTENSIONS; i++)
        if (extensions[i].read && strchr(extensions[i].ext, '.') &&
            psti_has_ext(name, len, extensions[i].ext))
            return name + len - strlen(extensions[i].ext);
    const char *dot = memrchr(name, '.', len);
    return dot && dot != name ? dot + 1 : NULL;
}

uint32_t psti_format_endings(void)
{
    uint32_t read = 0;
    for (size_t i = 0; i < EXTENSIONS; i++)
        read |= (uint32_t)extensions[i].read << i;
    return read;
}

const char *psti_format_by_name(psti_format format)
{
    static const char *const names[PSTI_FORMATS] = {"",      "jpeg", "png", "webp", "npy",
                                                    "nifti", "npz",  "wav", "flac"};
    return names[format];
}

bool psti_has_ext(const char *name, size_t len, const char *ext)
{
    const size_t n = strlen(ext);
    return len > n + 1 && name[len - n - 1] == '.' && strncasecmp(name + len - n, ext, n) == 0;
}
