/* SPDX-License-Identifier: Apache-2.0
 * A depot that is kept for others: folders of datasets before anything was pulled into them, which
 * dataset a folder is, and which of its revisions can be read. Any thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "depot/depot_priv.h"
#include "net/net.h"

int psti_depot_make(const char *dir, pst_error *err)
{
    depot d;
    const int rc = depot_open(&d, dir, true, err);
    depot_close(&d);
    return rc;
}

int psti_depot_make_set(const char *dir, const char *name, pst_error *err)
{
    depot d;
    if (!name_ok(name, strlen(name)))
        return bad_name(name, err);
    int rc = depot_open(&d, dir, true, err);
    const int set = rc < 0 ? rc : dir_make(d.dir, name);
    if (rc == 0 && set < 0)
        rc = psti_fail(err, set, "depot", name, "its folder cannot be made: %s", strerror(-set));
    const int lock = set < 0 ? -1 : lock_open(set, ".pulling"); /* by which it is known */
    if (lock >= 0)
        close(lock);
    if (set >= 0)
        close(set);
    depot_close(&d);
    return rc;
}

void psti_depot_drop_set(const char *dir, const char *name)
{
    depot d;
    survey s = {0};
    if (!name_ok(name, strlen(name)))
        return;
    int rc = depot_open(&d, dir, false, NULL);
    if (rc == 0)
        rc = depot_lock(&d, NULL);
    if (rc == 0)
        rc = survey_dataset(&d, name, false, &s);
    const int set = rc < 0 || s.count ? -1 : dir_open(d.dir, name);
    const int lock = set < 0 ? -1 : lock_open(set, ".pulling");
    if (lock >= 0 && lock_take(lock) == 0)
        tree_remove(d.dir, name, NULL);
    if (lock >= 0)
        close(lock);
    if (set >= 0)
        close(set);
    survey_fini(&s);
    depot_close(&d);
}

static int open_set(const char *dir, const char *name)
{
    depot d;
    if (!name_ok(name, strlen(name)))
        return -EINVAL;
    const int rc = depot_open(&d, dir, false, NULL);
    const int set = rc < 0 ? rc : dir_open(d.dir, name);
    depot_close(&d);
    return set;
}

int psti_depot_mark_given(const char *dir, const char *name, bool given)
{
    const int set = open_set(dir, name);
    int rc = set < 0 ? set : 0;
    if (rc == 0 && given && faccessat(set, ".given", F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        rc = file_write(set, ".given", "", 0);
    if (rc == 0 && !given && unlinkat(set, ".given", 0) != 0 && errno != ENOENT)
        rc = -errno;
    if (set >= 0)
        close(set);
    return rc;
}

bool psti_depot_is_given(const char *dir, const char *name)
{
    const int set = open_set(dir, name);
    const bool given = set >= 0 && faccessat(set, ".given", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (set >= 0)
        close(set);
    return given;
}

int psti_depot_name_set(const char *dir, uint64_t device, uint64_t inode,
                        char name[PST_DATASET_NAME_BYTES])
{
    struct stat st;
    DIR *all = opendir(dir);
    int rc = -ENOENT;
    const struct dirent *entry;
    while (all && rc < 0 && (entry = readdir(all)) != NULL) {
        if (!name_ok(entry->d_name, strlen(entry->d_name)) ||
            fstatat(dirfd(all), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(st.st_mode) || st.st_ino != inode || st.st_dev != device)
            continue;
        snprintf(name, PST_DATASET_NAME_BYTES, "%.64s", entry->d_name);
        rc = 0;
    }
    if (all)
        closedir(all);
    return rc;
}

/* How much better it is to read this one than another. */
static int rank_of(const pst_revision *r)
{
    if (r->complete)
        return r->latest ? 5 : 4;
    if (!psti_is_bucket_url(r->url) || !r->objects)
        return 0; /* what is missing cannot be read from anywhere, or it was not even listed */
    return r->pulling ? 3 : r->partial ? 2 : 1;
}

int psti_depot_choose_revision(const char *dir, const char *name, const char *revision,
                               psti_depot_choice *out, pst_error *err)
{
    depot d;
    survey s = {0};
    int rc = depot_open(&d, dir, false, err);
    if (rc == 0 && (rc = survey_dataset(&d, name, false, &s)) < 0)
        psti_fail(err, rc, "dataset", name, "%s", strerror(-rc));
    const pst_revision *best = NULL;
    for (size_t i = 0; i < s.count; i++) {
        const pst_revision *r = &s.revisions[i].shown;
        if ((!*revision || strcmp(revision, r->revision) == 0) && rank_of(r) > 0 &&
            (!best || rank_of(r) > rank_of(best)))
            best = r;
    }
    if (rc == 0 && !best)
        rc = psti_fail(err, -ENOENT, "dataset", name, "nothing of %s is here yet",
                       *revision ? "that revision" : "it");
    if (rc == 0) {
        out->complete = best->complete;
        snprintf(out->revision, sizeof out->revision, "%s", best->revision);
        snprintf(out->url, sizeof out->url, "%s", best->url);
        snprintf(out->path, sizeof out->path, "%s", best->path);
        char *data = strrchr(out->path, '/');
        if (!best->complete && data)
            *data = 0;
    }
    survey_fini(&s);
    depot_close(&d);
    return rc;
}

/* ---- a folder that somebody names ---------------------------------------------------------------
 */

static bool is_complete(int set, const char *revision)
{
    char path[64];
    snprintf(path, sizeof path, "%.32s/.complete", revision);
    return revision_ok(revision) && faccessat(set, path, F_OK, 0) == 0;
}

/* Any complete one, where none is the latest. */
static void look_for_any(int set, char revision[PST_REVISION_BYTES])
{
    const int fd = openat(set, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    const struct dirent *entry;
    while (dir && !revision[0] && (entry = readdir(dir)) != NULL)
        if (is_complete(set, entry->d_name))
            snprintf(revision, PST_REVISION_BYTES, "%.32s", entry->d_name);
    if (dir)
        closedir(dir);
}

int psti_depot_look_in(int set, char revision[PST_REVISION_BYTES])
{
    const char *named = getenv("PENSTOCK_REVISION");
    revision[0] = 0;
    if (named && is_complete(set, named)) {
        snprintf(revision, PST_REVISION_BYTES, "%.32s", named);
        return 0;
    }
    const ssize_t len = readlinkat(set, "latest", revision, PST_REVISION_BYTES - 1);
    revision[len > 0 ? len : 0] = 0;
    if (is_complete(set, revision))
        return 0;
    revision[0] = 0;
    if (faccessat(set, ".pulling", F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return -ENOTDIR; /* without looking at each of what may be a million pictures */
    look_for_any(set, revision);
    return revision[0] ? 0 : -ENOENT;
}
