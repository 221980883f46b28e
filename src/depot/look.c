/* SPDX-License-Identifier: Apache-2.0
 * What a pull finds on the disk: files of an earlier one, looked over, and files of other
 * revisions, linked. On the calling thread; looking at bytes is spread over a few. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "depot/depot_priv.h"

enum { LOOKERS_MOST = 8 };

/* ---- looking over -------------------------------------------------------------------------------
 */

/* Whether the file of an object is what was noted. */
static bool is_fine(const puller *p, const object *o)
{
    const char *leaf;
    struct stat st;
    uint32_t crc;
    const int dir = dir_of_key(p->data, object_key(&p->objects, o), false, &leaf);
    if (dir < 0)
        return false;
    bool fine = fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
                (uint64_t)st.st_size == o->size;
    if (fine && p->opts.check) {
        const int fd = openat(dir, leaf, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        uint32_t *sums = blocks_room(o);
        fine = fd >= 0 && sums && digest_file(fd, o->size, &crc, sums, NULL) == 0 && crc == o->crc;
        if (fine && p->blocks >= 0)
            fine = blocks_note(p->blocks, o, sums) == 0;
        psti_free(sums);
        if (fd >= 0)
            close(fd);
    }
    close(dir);
    return fine;
}

static void *look_thread(void *user)
{
    puller *p = user;
    for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->objects.count;) {
        object *o = &p->objects.objects[i];
        if (!o->known)
            continue;
        if (is_fine(p, o)) {
            atomic_fetch_add(&p->objects_done, 1);
            atomic_fetch_add(&p->bytes_done, o->size);
        } else {
            o->known = false;
            atomic_fetch_add(&p->bad, 1);
        }
    }
    return NULL;
}

int look_over(puller *p, pst_error *err)
{
    pthread_t threads[LOOKERS_MOST];
    int count = 0;
    sigset_t all, old;
    (void)err;
    if (p->opts.check)
        sweep(p->rev, ".mend."); /* what a reader was mending when it ended */
    atomic_store(&p->next, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (p->opts.check && count < LOOKERS_MOST && count < p->opts.connections &&
           pthread_create(&threads[count], NULL, look_thread, p) == 0)
        count++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    look_thread(p);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

/* ---- linking ------------------------------------------------------------------------------------
 */

/* A second name for a file of another revision. Whatever goes wrong: it is fetched instead. */
static bool link_one(puller *p, int from, const object *o)
{
    const char *key = object_key(&p->objects, o), *leaf, *same;
    struct stat st;
    const int there = dir_of_key(from, key, false, &leaf);
    const int here = there < 0 ? -1 : dir_of_key(p->data, key, true, &same);
    bool done = here >= 0 && fstatat(there, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISREG(st.st_mode) && (uint64_t)st.st_size == o->size;
    if (done && unlinkat(here, same, 0) != 0 && errno != ENOENT)
        done = false;
    done = done && linkat(there, leaf, here, same, 0) == 0;
    if (there >= 0)
        close(there);
    if (here >= 0)
        close(here);
    return done;
}

/* The checksums of its blocks; where that fails they are made from the file. */
static void copy_blocks(const puller *p, const object *o, int blocks, const object *other)
{
    uint32_t *sums = blocks_room(o);
    if (sums && blocks >= 0 && blocks_load(blocks, other, sums) == 0)
        blocks_put(p->blocks, o, sums);
    psti_free(sums);
}

/* blocks: those of the other revision; -1 = it has none. */
static void link_from(puller *p, const held_revision *h, int from, int blocks)
{
    const listing *l = &h->objects;
    for (size_t i = 0, k = 0; i < p->objects.count && k < l->count;) {
        object *o = &p->objects.objects[i];
        const object *other = &l->objects[k];
        const int order = object_compare(&p->objects, o, l, other);
        if (order == 0 && !o->known && other->known && link_one(p, from, o)) {
            o->crc = other->crc;
            o->took_us = other->took_us;
            o->known = true;
            copy_blocks(p, o, blocks, other);
            atomic_fetch_add(&p->bytes_linked, o->size);
        }
        i += order <= 0;
        k += order >= 0;
    }
}

int link_others(puller *p, pst_error *err)
{
    survey s;
    int rc = survey_dataset(&p->d, p->name, true, &s);
    if (rc < 0)
        return psti_fail(err, rc, "pull", p->name, "%s", strerror(-rc));
    for (size_t i = 0; i < s.count; i++) {
        const held_revision *h = &s.revisions[i];
        char folder[REVISION_HEX + 2];
        if (!h->loaded || strcmp(h->shown.revision, p->revision) == 0)
            continue;
        const int rev = dir_open(p->set, rev_folder(folder, h->shown.revision, h->shown.complete));
        const int from = rev < 0 ? -1 : dir_open(rev, "data");
        if (from >= 0) {
            const int blocks = openat(rev, "blocks", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
            link_from(p, h, from, blocks);
            close(from);
            if (blocks >= 0)
                close(blocks);
        }
        if (rev >= 0)
            close(rev);
    }
    survey_fini(&s);
    return 0;
}
