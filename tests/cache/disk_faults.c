/* SPDX-License-Identifier: Apache-2.0
 * See disk_faults.h. */
#include "disk_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

const char *const fault_names[FAULT_CALLS] = {"openat",  "write", "pwrite", "pread",   "renameat",
                                              "mkdirat", "close", "flock",  "unlinkat"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct {
    int call, number, error, kill_at, seen, changes;
    bool persistent, hangs;
} now = {.call = -1, .kill_at = -1};

static void set(int call, int number, int error, bool persistent, int kill_at, bool hangs)
{
    pthread_mutex_lock(&lock);
    now.call = call;
    now.number = number;
    now.error = error;
    now.persistent = persistent;
    now.kill_at = kill_at;
    now.hangs = hangs;
    now.seen = now.changes = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void fault_arm(fault_call call, int number, int error, bool persistent)
{
    set((int)call, number, error, persistent, -1, false);
}

void fault_kill_at(int number)
{
    set(-1, 0, 0, false, number, false);
}

void fault_hang(void)
{
    set(-1, 0, 0, false, -1, true);
}

void fault_off(void)
{
    set(-1, 0, 0, false, -1, false);
}

int fault_count(void)
{
    pthread_mutex_lock(&lock);
    const int seen = now.seen;
    pthread_mutex_unlock(&lock);
    return seen;
}

/* Whether this one fails; errno is set. */
static bool fails(fault_call call)
{
    bool does = false;
    pthread_mutex_lock(&lock);
    if (now.call == (int)call) {
        does = now.persistent ? now.seen >= now.number : now.seen == now.number;
        now.seen++;
        errno = does ? now.error : errno;
    }
    pthread_mutex_unlock(&lock);
    return does;
}

/* Whether the process ends with this one. */
static bool dies(void)
{
    pthread_mutex_lock(&lock);
    const bool does = now.kill_at >= 0 && now.changes++ == now.kill_at;
    pthread_mutex_unlock(&lock);
    return does;
}

static void hang(void)
{
    pthread_mutex_lock(&lock);
    while (now.hangs)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int __real_openat(int dir, const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *bytes, size_t count);
ssize_t __real_pwrite(int fd, const void *bytes, size_t count, off_t at);
ssize_t __real_pread(int fd, void *bytes, size_t count, off_t at);
int __real_renameat(int from, const char *a, int to, const char *b);
int __real_mkdirat(int dir, const char *path, mode_t mode);
int __real_close(int fd);
int __real_flock(int fd, int how);
int __real_unlinkat(int dir, const char *path, int flags);

int __wrap_openat(int dir, const char *path, int flags, ...);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t at);
ssize_t __wrap_pread(int fd, void *bytes, size_t count, off_t at);
int __wrap_renameat(int from, const char *a, int to, const char *b);
int __wrap_mkdirat(int dir, const char *path, mode_t mode);
int __wrap_close(int fd);
int __wrap_flock(int fd, int how);
int __wrap_unlinkat(int dir, const char *path, int flags);

int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (fails(FAULT_OPENAT))
        return -1;
    if (flags & O_CREAT && dies())
        raise(SIGKILL);
    return __real_openat(dir, path, flags, mode);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
    hang();
    if (fails(FAULT_WRITE))
        return -1;
    if (dies() && __real_write(fd, bytes, count / 2) >= 0)
        raise(SIGKILL);
    return __real_write(fd, bytes, count);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    if (fails(FAULT_PWRITE))
        return -1;
    if (dies() && __real_pwrite(fd, bytes, count / 2, at) >= 0)
        raise(SIGKILL);
    return __real_pwrite(fd, bytes, count, at);
}

ssize_t __wrap_pread(int fd, void *bytes, size_t count, off_t at)
{
    return fails(FAULT_PREAD) ? -1 : __real_pread(fd, bytes, count, at);
}

int __wrap_renameat(int from, const char *a, int to, const char *b)
{
    if (fails(FAULT_RENAMEAT))
        return -1;
    if (dies())
        raise(SIGKILL);
    return __real_renameat(from, a, to, b);
}

int __wrap_mkdirat(int dir, const char *path, mode_t mode)
{
    if (fails(FAULT_MKDIRAT))
        return -1;
    if (dies())
        raise(SIGKILL);
    return __real_mkdirat(dir, path, mode);
}

/* What close says does not undo it. */
int __wrap_close(int fd)
{
    const int rc = __real_close(fd);
    return fails(FAULT_CLOSE) ? -1 : rc;
}

int __wrap_flock(int fd, int how)
{
    return fails(FAULT_FLOCK) ? -1 : __real_flock(fd, how);
}

int __wrap_unlinkat(int dir, const char *path, int flags)
{
    if (fails(FAULT_UNLINKAT))
        return -1;
    if (dies())
        raise(SIGKILL);
    return __real_unlinkat(dir, path, flags);
}

/* The same calls by the names that they have where files may be large. */
int __wrap_openat64(int dir, const char *path, int flags, ...)
    __attribute__((alias("__wrap_openat")));
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t count, off_t at)
    __attribute__((alias("__wrap_pwrite")));
ssize_t __wrap_pread64(int fd, void *bytes, size_t count, off_t at)
    __attribute__((alias("__wrap_pread")));
