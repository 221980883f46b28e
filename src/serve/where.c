/* SPDX-License-Identifier: Apache-2.0
 * Directories, lock files and sockets. A socket is bound and reached through the open directory, so
 * that neither a long path nor a directory that is swapped meanwhile matters. Any thread. */
#include "serve/where.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/status.h"

static int default_dir(char dir[WHERE_BYTES])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    const unsigned uid = geteuid();
    if (runtime && *runtime == '/')
        return snprintf(dir, WHERE_BYTES, "%s/penstock", runtime);
    snprintf(dir, WHERE_BYTES, "/run/user/%u", uid);
    if (stat(dir, &st) == 0 && st.st_uid == uid)
        return snprintf(dir, WHERE_BYTES, "/run/user/%u/penstock", uid);
    return snprintf(dir, WHERE_BYTES, P_tmpdir "/penstock-%u", uid);
}

int where_find(const char *address, char dir[WHERE_BYTES])
{
    const bool named = address && strncmp(address, "unix:", 5) == 0;
    const char *path = named ? address + 5 : address;
    int len;
    if (!path || !*path || strcmp(path, "auto") == 0)
        len = default_dir(dir);
    else
        len = snprintf(dir, WHERE_BYTES, "%s", path);
    return len > 0 && len < WHERE_BYTES ? 0 : -EINVAL;
}

/* ---- the daemon's side ----------------------------------------------------------------------- */

static int check_dir(const char *dir, int fd, bool others, pst_error *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return psti_fail(err, -errno, "serve", dir, "the directory cannot be looked at: %s",
                         pst_strerror(-errno));
    if (st.st_uid != geteuid())
        return psti_fail(err, -EPERM, "serve", dir,
                         "the directory belongs to another user; give one of your own (--socket)");
    if (st.st_mode & 0022)
        return psti_fail(err, -EPERM, "serve", dir,
                         "others may write to the directory; make it 0700, or give another one");
    if (others && (st.st_mode & 0011) != 0011 && fchmod(fd, (st.st_mode & 07777) | 0711))
        return psti_fail(err, -errno, "serve", dir, "the directory's mode cannot be changed");
    return 0;
}

static int take_lock(const char *dir, where *w, pst_error *err)
{
    const int fd = openat(w->dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return psti_fail(err, -errno, "serve", dir, "the lock file cannot be made: %s",
                         pst_strerror(-errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        w->lock = fd;
        return 0;
    }
    const int rc = -errno;
    close(fd);
    if (rc == -EWOULDBLOCK)
        return psti_fail(err, -EADDRINUSE, "serve", dir,
                         "another penstock serve has this directory; use it, end it, or give "
                         "another directory (--socket)");
    return psti_fail(err, rc, "serve", dir, "the directory cannot be locked: %s", pst_strerror(rc));
}

int where_take(const char *dir, bool others, bool locks, where *w, pst_error *err)
{
    *w = (where){-1, -1, false};
    if (mkdir(dir, others ? 0711 : 0700) && errno != EEXIST)
        return psti_fail(err, -errno, "serve", dir, "the directory cannot be made: %s",
                         pst_strerror(-errno));
    w->dir = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (w->dir < 0)
        return psti_fail(err, -errno, "serve", dir, "the directory cannot be opened: %s",
                         pst_strerror(-errno));
    int rc = check_dir(dir, w->dir, others, err);
    if (rc == 0 && locks)
        rc = take_lock(dir, w, err);
    w->ours = rc == 0;
    if (rc < 0)
        where_leave(w);
    return rc;
}

static void name_socket(struct sockaddr_un *to, int dir, const char *name)
{
    memset(to, 0, sizeof *to);
    to->sun_family = AF_UNIX;
    snprintf(to->sun_path, sizeof to->sun_path, "/proc/self/fd/%d/%s", dir, name);
}

void where_clear(const where *w, const char *name)
{
    unlinkat(w->dir, name, 0);
}

int where_listen(const where *w, const char *name, int type, bool others, pst_error *err)
{
    struct sockaddr_un at;
    name_socket(&at, w->dir, name);
    where_clear(w, name); /* of a daemon that died: the lock is ours */
    const int sock = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool ok = sock >= 0 && bind(sock, (struct sockaddr *)&at, sizeof at) == 0 &&
                    fchmodat(w->dir, name, others ? 0666 : 0600, 0) == 0 && listen(sock, 64) == 0;
    const int rc = ok ? sock : -errno;
    if (ok)
        return rc;
    if (sock >= 0)
        close(sock);
    return psti_fail(err, rc, "serve", name, "the socket cannot be made: %s", pst_strerror(rc));
}

void where_leave(where *w)
{
    if (w->ours) {
        unlinkat(w->dir, WHERE_FEED, 0);
        unlinkat(w->dir, WHERE_CONTROL, 0);
    }
    if (w->dir >= 0)
        close(w->dir);
    if (w->lock >= 0)
        close(w->lock);
    *w = (where){-1, -1, false};
}

/* ---- the client's side ----------------------------------------------------------------------- */

int where_connect(const char *dir, const char *name, int type, uid_t *server)
{
    struct sockaddr_un to;
    struct ucred peer;
    socklen_t size = sizeof peer;
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    name_socket(&to, fd, name);
    const int sock = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = sock < 0 ? -errno : 0;
    if (rc == 0 && connect(sock, (struct sockaddr *)&to, sizeof to))
        rc = -errno;
    if (rc == 0 && getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size))
        rc = -errno;
    close(fd);
    if (rc == 0) {
        *server = peer.uid;
        return sock;
    }
    if (sock >= 0)
        close(sock);
    return rc;
}
