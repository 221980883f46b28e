/* SPDX-License-Identifier: Apache-2.0
 * Rights of another user, worked out from what the file system says: the daemon reads with its own.
 * Called from workers; no state. */
#include "serve/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"

int peer_of(int sock, peer *out)
{
    struct ucred cred;
    socklen_t size = sizeof cred;
    *out = (peer){0};
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &size))
        return -errno;
    out->uid = cred.uid;
    out->gid = cred.gid;
    size = 0;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) == 0 || errno != ERANGE)
        return 0; /* none, or a kernel that does not tell: only the first group counts */
    out->groups = psti_malloc(PSTI_MEM_SERVE, size);
    if (!out->groups)
        return -ENOMEM;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, out->groups, &size) == 0)
        out->group_count = (int)(size / sizeof *out->groups);
    return 0;
}

void peer_fini(peer *p)
{
    psti_free(p->groups);
    p->groups = NULL;
}

static bool in_group(const peer *p, gid_t gid)
{
    if (p->gid == gid)
        return true;
    for (int i = 0; i < p->group_count; i++)
        if (p->groups[i] == gid)
            return true;
    return false;
}

/* want: 4 to read, 1 to search. */
static bool mode_allows(const peer *p, const struct stat *st, unsigned want)
{
    if (p->uid == 0)
        return true;
    const unsigned shift = st->st_uid == p->uid ? 6 : in_group(p, st->st_gid) ? 3 : 0;
    return ((st->st_mode >> shift) & want) == want;
}

static bool has_acl(int fd)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (getxattr(path, "system.posix_acl_access", NULL, 0) >= 0)
        return true;
    return errno != ENODATA && errno != EOPNOTSUPP;
}

static bool may_search(const peer *p, int dir)
{
    struct stat st;
    return fstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && mode_allows(p, &st, 1) && !has_acl(dir);
}

static bool may_read_file(const peer *p, int fd, uint64_t inode)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_ino == inode &&
           mode_allows(p, &st, 4) && !has_acl(fd);
}

/* From the root down, part by part, without following a link. */
static bool may_reach(const peer *p, const psti_extent *at)
{
    const char *path = at->path;
    int dir = at->root;
    bool ok = true;
    while (ok) {
        const size_t len = strcspn(path, "/");
        char part[256];
        const bool last = path[len] == 0;
        int fd = -1;
        ok = len > 0 && len < sizeof part && may_search(p, dir);
        if (ok) {
            memcpy(part, path, len);
            part[len] = 0;
            fd = openat(dir, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
            ok = fd >= 0;
        }
        if (dir != at->root)
            close(dir);
        dir = fd;
        if (!ok || last)
            break;
        path += len + 1;
    }
    ok = ok && may_read_file(p, dir, at->inode);
    if (dir >= 0 && dir != at->root)
        close(dir);
    return ok;
}

int peer_may_read(const peer *p, const psti_dataset *data, int64_t id, pst_error *err)
{
    const psti_source_field *fields;
    const int count = psti_dataset_fields(data, &fields);
    for (int i = 0; i < count; i++) {
        psti_extent at;
        if (!fields[i].member || psti_dataset_extent(data, id, i, &at) < 0 || at.bucket)
            continue; /* a bucket's data are for whoever the owner lets in */
        if (!may_reach(p, &at))
            return psti_fail(err, -EACCES, "read", NULL,
                             "the user who asks for it (uid %u) may not read it", (unsigned)p->uid);
    }
    return 0;
}
