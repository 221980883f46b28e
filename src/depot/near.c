/* SPDX-License-Identifier: Apache-2.0
 * What is there already of a revision that is being pulled, for those who read its bucket
 * meanwhile: objects that were verified and have their names. Which these are is read from the
 * puller's notes, now and then. Any thread; never waits for anything but the disk that has the
 * notes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fork.h"
#include "depot/depot_priv.h"

enum { LOOK_NS = 1000000000 };

struct psti_depot_near {
    listing objects; /* but for known */
    int lock, data, blocks, done;
    psti_fork_guard forks;
    pthread_mutex_t guard; /* guards what follows; a leaf */
    uint64_t looked_ns;    /* when the notes were last read */
    off_t read;            /* bytes of them */
};

/* As of a complete revision: nobody else can have written what is believed here. */
static bool is_ours(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == geteuid() &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int psti_depot_near_open(const char *path, psti_depot_near **out)
{
    psti_depot_near *n = psti_calloc(PSTI_MEM_DEPOT, 1, sizeof *n);
    if (!n)
        return -ENOMEM;
    n->lock = n->data = n->blocks = n->done = -1;
    pthread_mutex_init(&n->guard, NULL);
    psti_fork_guard_add(&n->forks, &n->guard, NULL, NULL);
    const int rev = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = rev < 0 ? -errno : 0;
    if (rc == 0 && (!is_ours(rev, ".") || !is_ours(rev, "listing") || !is_ours(rev, "data") ||
                    !is_ours(rev, "blocks") || !is_ours(rev, "done")))
        rc = -EPERM;
    if (rc == 0)
        rc = listing_read(&n->objects, rev, "listing", NULL, 0, NULL);
    if (rc == 0) {
        n->lock = lock_open(rev, ".lock");
        n->data = dir_open(rev, "data");
        n->blocks = openat(rev, "blocks", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        n->done = openat(rev, "done", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        rc = n->lock < 0 || n->data < 0 || n->blocks < 0 || n->done < 0 ? -ENOENT
                                                                        : lock_share(n->lock);
    }
    if (rev >= 0)
        close(rev);
    for (size_t i = 0; rc == 0 && i < n->objects.count; i++)
        n->objects.objects[i].known = false;
    if (rc < 0)
        psti_depot_near_close(n);
    else
        *out = n;
    return rc;
}

void psti_depot_near_close(psti_depot_near *n)
{
    if (!n)
        return;
    psti_fork_guard_remove(&n->forks);
    pthread_mutex_destroy(&n->guard);
    const int fds[] = {n->lock, n->data, n->blocks, n->done};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    listing_fini(&n->objects);
    psti_free(n);
}

/* Notes that came since the last time. A line that is cut short is read again. */
static void look_locked(psti_depot_near *n)
{
    char lines[64 * DONE_LINE];
    ssize_t got;
    while ((got = pread(n->done, lines, sizeof lines, n->read)) >= DONE_LINE)
        for (ssize_t at = 0; at + DONE_LINE <= got; at += DONE_LINE, n->read += DONE_LINE)
            done_parse(&n->objects, lines + at);
}

int psti_depot_near_find(psti_depot_near *n, const char *path, uint64_t size, const char *etag,
                         uint64_t *first)
{
    object *o = listing_find(&n->objects, path);
    if (!o || o->size != size || !*etag || strcmp(object_etag(&n->objects, o), etag) != 0)
        return -ENOENT;
    pthread_mutex_lock(&n->guard);
    const uint64_t now = psti_now_ns();
    if (!o->known && (!n->looked_ns || now - n->looked_ns >= LOOK_NS)) {
        n->looked_ns = now;
        look_locked(n);
    }
    const bool known = o->known;
    pthread_mutex_unlock(&n->guard);
    *first = o->blocks;
    return known ? n->data : -ENOENT;
}

int psti_depot_near_blocks(psti_depot_near *n, uint64_t first, size_t count, uint32_t *out)
{
    return blocks_get(n->blocks, first, count, out);
}
