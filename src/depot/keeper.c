/* SPDX-License-Identifier: Apache-2.0
 * What readers of a pulled revision know of its files: etags, checksums of files and of blocks; and
 * who brings again what is gone or damaged. The list of objects is large: it is there while a
 * dataset is opened, and again from the first time that something has to be mended. Blocks are
 * asked for by any thread, and so is mending: one thread at a time mends a file, others that want
 * the same one wait for it. Other processes are not waited for: each puts a whole one in place. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fork.h"
#include "core/log.h"
#include "depot/depot_priv.h"
#include "net/net.h"

typedef struct book {
    listing objects;
    char url[1024];
} book;

/* On the stack of whoever mends it. */
typedef struct turn {
    const char *key;
    struct turn *next;
} turn;

struct psti_depot_keeper {
    char path[PST_PATH_BYTES];
    psti_access *access; /* with which it is fetched again; NULL = the environment's */
    int data;            /* stays the same when the revision is hidden */
    int blocks; /* -1 = it has none; never closed before the end, but may come to mean another file
                 */
    psti_fork_guard forks;
    pthread_mutex_t lock; /* guards what follows; a leaf */
    pthread_cond_t ended;
    book *list;
    turn *turns; /* what is being mended */
};

/* ---- the list -----------------------------------------------------------------------------------
 */

/* Only this process's user can have written what is there: a manifest of somebody else could name
 * anything as the place to fetch from, and have it fetched with our rights. */
static bool is_ours(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == geteuid() &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static void book_free(book *b)
{
    if (!b)
        return;
    listing_fini(&b->objects);
    psti_free(b);
}

static int book_read(const psti_depot_keeper *k, book **out, pst_error *err)
{
    book *b = psti_calloc(PSTI_MEM_DEPOT, 1, sizeof *b);
    if (!b)
        return psti_fail(err, -ENOMEM, "dataset", k->path, "out of memory");
    int rc = 0;
    if (!is_ours(k->data, "../manifest") || !is_ours(k->data, "..") || !is_ours(k->data, "."))
        rc = psti_fail(err, -EPERM, "dataset", k->path, "belongs to somebody else");
    if (rc == 0)
        rc = listing_read(&b->objects, k->data, "../manifest", b->url, sizeof b->url, err);
    if (rc < 0)
        book_free(b);
    else
        *out = b;
    return rc;
}

/* In a forked child nobody mends yet. */
static void in_child(void *arg)
{
    psti_depot_keeper *k = arg;
    k->turns = NULL;
    pthread_cond_init(&k->ended, NULL);
}

static void open_blocks(psti_depot_keeper *k)
{
    summary sum;
    const int rev = openat(k->data, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (rev < 0)
        return;
    if (summary_read(rev, &sum) == 0 && sum.block_bytes == PSTI_DEPOT_BLOCK) {
        k->blocks = blocks_open(rev, &k->list->objects);
        if (k->blocks < 0) /* on a disk that nobody may write to */
            k->blocks = openat(rev, "blocks", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (k->blocks >= 0 && !is_ours(rev, "blocks")) {
            close(k->blocks);
            k->blocks = -1;
        }
    }
    close(rev);
}

int psti_depot_keeper_open(const char *path, psti_depot_keeper **out, pst_error *err)
{
    psti_depot_keeper *k = psti_calloc(PSTI_MEM_DEPOT, 1, sizeof *k);
    if (!k)
        return psti_fail(err, -ENOMEM, "dataset", path, "out of memory");
    snprintf(k->path, sizeof k->path, "%s", path);
    k->blocks = -1;
    if (psti_access_used())
        k->access = psti_access_ref(psti_access_used());
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->ended, NULL);
    psti_fork_guard_add(&k->forks, &k->lock, in_child, k);
    k->data = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = k->data < 0 ? psti_fail(err, -errno, "dataset", path, "%s", strerror(errno))
                         : book_read(k, &k->list, err);
    if (rc < 0) {
        psti_depot_keeper_close(k);
        return rc;
    }
    open_blocks(k);
    *out = k;
    return 0;
}

void psti_depot_keeper_close(psti_depot_keeper *k)
{
    if (!k)
        return;
    psti_fork_guard_remove(&k->forks);
    pthread_cond_destroy(&k->ended);
    pthread_mutex_destroy(&k->lock);
    if (k->data >= 0)
        close(k->data);
    if (k->blocks >= 0)
        close(k->blocks);
    book_free(k->list);
    psti_access_unref(k->access);
    psti_free(k);
}

void psti_depot_keeper_rest(psti_depot_keeper *k)
{
    book_free(k->list);
    k->list = NULL;
}

static object *look_up(const book *b, const char *key)
{
    return listing_find(&b->objects, key);
}

bool psti_depot_keeper_far(const psti_depot_keeper *k)
{
    return psti_is_bucket_url(k->list->url);
}

bool psti_depot_keeper_has_blocks(const psti_depot_keeper *k)
{
    return k->blocks >= 0;
}

int psti_depot_keeper_etag(void *user, const char *path, uint64_t size, const char **etag)
{
    const psti_depot_keeper *k = user;
    const object *o = look_up(k->list, path);
    if (!o || o->size != size)
        return -ENOENT;
    *etag = object_etag(&k->list->objects, o);
    return 0;
}

int psti_depot_keeper_sum(void *user, const char *path, uint64_t size, uint32_t *crc)
{
    const psti_depot_keeper *k = user;
    object *o = look_up(k->list, path);
    if (!o || o->size != size || !o->known)
        return -ENOENT;
    o->shared = true; /* by the one who asks: it is there */
    *crc = o->crc;
    return 0;
}

int psti_depot_keeper_first(void *user, const char *path, uint64_t size, uint64_t *first)
{
    const psti_depot_keeper *k = user;
    const object *o = k->blocks < 0 ? NULL : look_up(k->list, path);
    if (!o || o->size != size || !o->known)
        return -ENOENT;
    *first = o->blocks;
    return 0;
}

int psti_depot_keeper_blocks(psti_depot_keeper *k, uint64_t first, size_t count, uint32_t *out)
{
    return blocks_get(k->blocks, first, count, out);
}

/* ---- mending ------------------------------------------------------------------------------------
 */

static bool is_taken_locked(const psti_depot_keeper *k, const char *key)
{
    for (const turn *t = k->turns; t; t = t->next)
        if (strcmp(t->key, key) == 0)
            return true;
    return false;
}

static void take_turn(psti_depot_keeper *k, turn *t)
{
    pthread_mutex_lock(&k->lock);
    while (is_taken_locked(k, t->key))
        pthread_cond_wait(&k->ended, &k->lock);
    t->next = k->turns;
    k->turns = t;
    pthread_mutex_unlock(&k->lock);
}

static void end_turn(psti_depot_keeper *k, const turn *t)
{
    pthread_mutex_lock(&k->lock);
    turn **at = &k->turns;
    while (*at && *at != t)
        at = &(*at)->next;
    if (*at)
        *at = t->next;
    pthread_cond_broadcast(&k->ended);
    pthread_mutex_unlock(&k->lock);
}

/* The list, read once and then kept: nobody lets it go while datasets are read. */
static int need_list(psti_depot_keeper *k, const book **out, pst_error *err)
{
    pthread_mutex_lock(&k->lock);
    *out = k->list;
    pthread_mutex_unlock(&k->lock);
    if (*out)
        return 0;
    book *mine;
    const int rc = book_read(k, &mine, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&k->lock);
    if (!k->list) {
        k->list = mine;
        mine = NULL;
    }
    *out = k->list;
    pthread_mutex_unlock(&k->lock);
    book_free(mine); /* another thread was faster */
    return 0;
}

/* A file of checksums that was removed or cut is made anew, empty, where the old one was: the
 * descriptor that others read from comes to mean the new one. */
static void renew_blocks(const psti_depot_keeper *k, const book *b, const object *o)
{
    struct stat mine, there;
    uint32_t *sums = k->blocks < 0 ? NULL : blocks_room(o);
    const bool fine = !sums || blocks_load(k->blocks, o, sums) == 0;
    psti_free(sums);
    if (fine)
        return;
    const int rev = openat(k->data, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int now = rev < 0 ? -1 : blocks_open(rev, &b->objects);
    if (now >= 0 && fstat(k->blocks, &mine) == 0 && fstat(now, &there) == 0 &&
        (mine.st_ino != there.st_ino || mine.st_dev != there.st_dev))
        dup3(now, k->blocks, O_CLOEXEC);
    if (now >= 0)
        close(now);
    if (rev >= 0)
        close(rev);
}

int psti_depot_keeper_mend(psti_depot_keeper *k, const char *path, uint64_t offset, uint64_t length,
                           pst_error *err)
{
    const book *b;
    turn t = {.key = path};
    take_turn(k, &t);
    int rc = need_list(k, &b, err);
    const object *o = rc < 0 ? NULL : look_up(b, path);
    if (rc == 0 && (!o || !o->known))
        rc = psti_fail(err, -ENOENT, "read", path, "is no file of this revision");
    if (rc == 0) {
        renew_blocks(k, b, o);
        const mending m = {&b->objects, b->url, k->data, k->blocks};
        const uint64_t end =
            offset < o->size && length < o->size - offset ? offset + length : o->size;
        psti_access *before = psti_access_use(k->access);
        rc = mend_object(&m, o, (stretch){offset < o->size ? offset : 0, end}, err);
        psti_access_use(before);
    }
    end_turn(k, &t);
    return rc;
}

/* More than a few are the business of a pull, which has connections and tells how far it is. */
enum { BAD_MOST = 64 };

int psti_depot_keeper_complete(psti_depot_keeper *k, const char *below,
                               bool (*whole)(const char *path), pst_error *err)
{
    listing *l = &k->list->objects;
    const mending m = {l, k->list->url, k->data, k->blocks};
    size_t bad[BAD_MOST], count = 0;
    int rc = 0;
    for (size_t i = 0; i < l->count; i++) {
        const object *o = &l->objects[i];
        if (o->shared || strncmp(object_key(l, o), below, strlen(below)) != 0 ||
            (object_is_there(&m, o) && (!whole(object_key(l, o)) || object_is_whole(&m, o))))
            continue;
        if (count < BAD_MOST)
            bad[count] = i;
        count++;
    }
    if (count > BAD_MOST)
        return psti_fail(err, PST_EDATASET, "dataset", k->path,
                         "%zu of its files are gone or damaged; penstock pull --check brings them "
                         "again",
                         count);
    for (size_t i = 0; i < count && rc >= 0; i++) {
        const object *o = &l->objects[bad[i]];
        rc = mend_object(&m, o, (stretch){0, o->size}, err);
        if (rc > 0)
            psti_log(PSTI_LOG_WARN, "%s: %s was gone or damaged and was fetched again", k->path,
                     object_key(l, o));
    }
    return rc < 0 ? rc : (int)count;
}
