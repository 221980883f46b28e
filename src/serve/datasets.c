/* SPDX-License-Identifier: Apache-2.0
 * Datasets on the shelf: jobs of the same data share one listing. An entry goes with its last user.
 * Called from openers and closers. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "depot/depot.h"
#include "net/net.h"
#include "serve/server.h"

void shelf_init(shelf *s)
{
    pthread_mutex_init(&s->lock, NULL);
    s->entries = NULL;
}

void shelf_fini(shelf *s)
{
    pthread_mutex_destroy(&s->lock);
}

static void entry_free(shelf_entry *e)
{
    if (!e)
        return;
    pst_dataset_close(e->data);
    psti_free(e->name);
    psti_free(e->path);
    psti_free(e);
}

static bool same_name(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static shelf_entry *find_locked(shelf *s, const shelf_entry *like)
{
    shelf_entry *e = s->entries;
    while (
        e &&
        (strcmp(e->depot_revision, like->depot_revision) != 0 || e->complete != like->complete ||
         e->device != like->device || e->inode != like->inode ||
         (!*like->depot_revision && memcmp(e->revision, like->revision, sizeof e->revision) != 0) ||
         !same_name(e->name, like->name)))
        e = e->next;
    if (e)
        e->users++;
    return e;
}

/* What the directory is called here; for messages, and for remembering its listing. */
static void name_of(int root, char *buf, size_t cap)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", root);
    const ssize_t len = readlink(link, buf, cap - 1);
    buf[len < 0 ? 0 : len] = 0;
}

/* In a bucket: it is named, and no directory comes with it. */
static bool is_far(const job_spec *spec)
{
    return spec->path && psti_is_bucket_url(spec->path);
}

static int list(int root, const job_spec *spec, shelf_entry *e, bool again, pst_error *err)
{
    char path[WHERE_BYTES];
    pst_dataset_options opts;
    pst_dataset_options_init(&opts);
    opts.refresh = again;
    psti_dataset *data;
    int rc;
    if (is_far(spec)) {
        rc = psti_dataset_open(spec->path, &opts, &data, err);
    } else {
        name_of(root, path, sizeof path);
        const psti_place at = {.root = root, .path = path, .name = spec->name};
        rc = psti_pulled_open_at(&at, &opts, &data, err);
    }
    if (rc == 0)
        rc = psti_dataset_wrap(data, &e->data, err);
    return rc;
}

/* A remembered listing may be older than the client's: then it is made anew. */
static int list_as(int root, const job_spec *spec, shelf_entry *e, pst_error *err)
{
    uint8_t revision[16];
    for (int again = 0; again < 2; again++) {
        const int rc = list(root, spec, e, again, err);
        if (rc < 0)
            return rc;
        pst_dataset_revision(e->data, revision);
        if (memcmp(revision, e->revision, sizeof revision) == 0)
            return 0;
        pst_dataset_close(e->data);
        e->data = NULL;
    }
    return psti_fail(err, PST_ECHANGED, "list", spec->path,
                     "the daemon sees other files there than this process");
}

/* One that is like it, or itself once it was opened; it is taken over. */
static int settle(shelf *s, shelf_entry *e, int rc, shelf_entry **out)
{
    shelf_entry *there = NULL;
    if (rc == 0) {
        pthread_mutex_lock(&s->lock);
        there = find_locked(s, e); /* somebody else may have listed it meanwhile */
        if (!there) {
            there = e;
            e->next = s->entries;
            s->entries = e;
        }
        pthread_mutex_unlock(&s->lock);
    }
    if (there != e)
        entry_free(e);
    *out = there;
    return rc;
}

int shelf_take(shelf *s, int root, const job_spec *spec, const uint8_t revision[16],
               shelf_entry **out, pst_error *err)
{
    struct stat st = {0};
    if (is_far(spec))
        st.st_ino = (ino_t)psti_hash_bytes(spec->path, strlen(spec->path)).lo;
    else if (fstat(root, &st) || !S_ISDIR(st.st_mode))
        return psti_fail(err, -ENOTDIR, "list", spec->path, "what came is no directory");
    shelf_entry *e = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *e);
    if (!e)
        return psti_fail(err, -ENOMEM, "list", spec->path, "out of memory");
    e->device = st.st_dev;
    e->inode = st.st_ino;
    e->users = 1;
    memcpy(e->revision, revision, sizeof e->revision);
    e->name = spec->name ? psti_strdup(PSTI_MEM_SERVE, spec->name) : NULL;
    e->path = psti_strdup(PSTI_MEM_SERVE, spec->path ? spec->path : "");
    pthread_mutex_lock(&s->lock);
    shelf_entry *there = find_locked(s, e);
    pthread_mutex_unlock(&s->lock);
    int rc = 0;
    if (!there)
        rc = e->path ? list_as(root, spec, e, err)
                     : psti_fail(err, -ENOMEM, "list", NULL, "out of memory");
    if (!there)
        return settle(s, e, rc, out);
    entry_free(e);
    *out = there;
    return 0;
}

/* ---- of the depot ------------------------------------------------------------------------------
 */

/* An open folder of the depot, and not just the name of one: that anybody could have. */
static int name_set(const pst_server *s, int set, shelf_entry *e, char *name, pst_error *err)
{
    struct stat st;
    const int flags = fcntl(set, F_GETFL);
    if (!s->depot || flags < 0 || flags & O_PATH || fstat(set, &st) || !S_ISDIR(st.st_mode) ||
        psti_depot_name_set(s->depot, st.st_dev, st.st_ino, name) < 0)
        return psti_fail(err, -EACCES, "list", NULL,
                         "the folder is none of the datasets that the daemon keeps");
    e->device = st.st_dev;
    e->inode = st.st_ino;
    return 0;
}

/* What its owner said of its source; NULL = the environment's, since he never says anything of it.
 * A daemon that was started a moment ago has yet to be told: what is whole can be read, and mended
 * from then on; the rest waits. */
static int find_access(pst_server *s, const char *name, bool complete, psti_access **out,
                       pst_error *err)
{
    char url[1024];
    *out = sources_find(&s->sources, name, url);
    if (*out || !psti_depot_is_given(s->depot, name))
        return 0;
    if (complete)
        *out = sources_await(&s->sources, name);
    return complete ? 0
                    : psti_fail(err, -EAGAIN, "list", NULL,
                                "the daemon was not told yet where the dataset comes from");
}

/* Opened with what its owner said of its source, and kept apart from what others have. */
static int open_set(pst_server *s, const char *name, const psti_depot_choice *choice,
                    shelf_entry *e, pst_error *err)
{
    psti_dataset *data;
    psti_access *access;
    pst_dataset_options opts;
    pst_dataset_options_init(&opts);
    int rc = find_access(s, name, choice->complete, &access, err);
    if (rc < 0)
        return rc;
    psti_access *before = psti_access_use(access);
    rc = psti_pulled_open_revision(choice, &opts, &data, err);
    psti_access_use(before);
    psti_access_unref(access);
    if (rc < 0)
        return rc;
    psti_dataset_keep_apart(data, name);
    rc = psti_dataset_wrap(data, &e->data, err);
    if (rc == 0)
        pst_dataset_revision(e->data, e->revision);
    return rc;
}

static int take_set(pst_server *s, int set, const char *depot_revision, shelf_entry **out,
                    pst_error *err)
{
    char name[PST_DATASET_NAME_BYTES];
    psti_depot_choice *choice = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *choice);
    shelf_entry *e = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *e);
    int rc = e && choice ? name_set(s, set, e, name, err)
                         : psti_fail(err, -ENOMEM, "list", NULL, "out of memory");
    if (rc == 0)
        rc = psti_depot_choose_revision(s->depot, name, depot_revision, choice, err);
    shelf_entry *there = NULL;
    if (rc == 0) {
        e->users = 1;
        e->complete = choice->complete;
        snprintf(e->depot_revision, sizeof e->depot_revision, "%s", choice->revision);
        e->path = psti_strdup(PSTI_MEM_SERVE, name);
        pthread_mutex_lock(&s->shelf.lock);
        there = find_locked(&s->shelf, e);
        pthread_mutex_unlock(&s->shelf.lock);
    }
    if (rc == 0 && !there)
        rc = e->path ? open_set(s, name, choice, e, err)
                     : psti_fail(err, -ENOMEM, "list", NULL, "out of memory");
    psti_free(choice);
    if (rc == 0 && !there)
        return settle(&s->shelf, e, rc, out);
    entry_free(e);
    *out = there;
    return rc;
}

/* A pull that ends renames what was chosen a moment before. */
int shelf_take_set(pst_server *s, int set, const char *depot_revision, shelf_entry **out,
                   pst_error *err)
{
    enum { ROUNDS = 4 };
    int rc = -ENOENT;
    for (int round = 0; rc == -ENOENT && round < ROUNDS; round++) {
        psti_error_clear(err);
        rc = take_set(s, set, depot_revision, out, err);
    }
    return rc;
}

void shelf_give(shelf *s, shelf_entry *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&s->lock);
    const bool last = --e->users == 0;
    shelf_entry **at = &s->entries;
    while (last && *at != e)
        at = &(*at)->next;
    if (last)
        *at = e->next;
    pthread_mutex_unlock(&s->lock);
    if (last)
        entry_free(e);
}
