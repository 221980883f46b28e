/* SPDX-License-Identifier: Apache-2.0
 * A disk that cannot keep up, for a process that is started with this before its libraries: every
 * large write at a place takes a fifth of a second. */
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

enum { LARGE = 60000, WAIT_MS = 200 };

typedef ssize_t (*writer)(int fd, const void *bytes, size_t count, off_t at);

__attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void *bytes, size_t count,
                                                        off_t at);

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at)
{
    writer real;
    *(void **)&real = dlsym(RTLD_NEXT, "pwrite64");
    if (count >= LARGE)
        poll(NULL, 0, WAIT_MS);
    return real(fd, bytes, count, at);
}
