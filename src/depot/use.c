/* SPDX-License-Identifier: Apache-2.0
 * Revisions that are read: found, held by a shared lock, counted. Called by whoever opens a
 * dataset; any thread. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "depot/depot_priv.h"
#include "net/net.h"

/* Holds the revision in an open folder, if it is still the one of that name: who evicts it renames
 * it first, under the exclusive lock, and whoever waited for that finds another name. 0 or
 * -ENOENT. */
static int hold(int set, const char *revision, int *lock)
{
    struct stat held, there;
    const int rev = dir_open(set, revision);
    if (rev < 0)
        return rev;
    const int fd = openat(rev, ".lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int rc = fd < 0 ? -errno : 0;
    if (rc == 0)
        rc = lock_share(fd);
    if (rc == 0 && (fstat(rev, &held) != 0 || fstatat(set, revision, &there, 0) != 0 ||
                    held.st_ino != there.st_ino || held.st_dev != there.st_dev))
        rc = -ENOENT;
    if (rc == 0 && faccessat(rev, ".complete", F_OK, 0) != 0)
        rc = -ENOENT;
    close(rev);
    if (rc < 0 && fd >= 0)
        close(fd);
    if (rc == 0)
        *lock = fd;
    return rc;
}

/* DIR/NAME and REVISION of a path that lies in REVISION/data or is one of the two, as the kernel
 * sees it; false when it is nothing of the kind. below: deeper in it. */
static bool take_apart(char *real, char **revision, bool *below)
{
    *below = false;
    for (char *slash = strrchr(real, '/'); slash && slash != real; slash = strrchr(real, '/')) {
        if (revision_ok(slash + 1)) {
            *slash = 0;
            *revision = slash + 1;
            return true;
        }
        char *above;
        *slash = 0;
        above = strrchr(real, '/');
        *below = *below || !above || !revision_ok(above + 1) || strcmp(slash + 1, "data") != 0;
    }
    return false;
}

/* Something in the folder of files: where its keys begin. */
static void hold_part(const char *real, psti_depot_hold *out)
{
    static const char coco[] =
        "annotations/"; /* such a file's keys are relative to what is above */
    const size_t len = strlen(out->path);
    struct stat st;
    out->part = strncmp(real, out->path, len) == 0 && real[len] == '/' && stat(real, &st) == 0 &&
                strlen(real + len + 1) + 2 <= sizeof out->below;
    if (!out->part) {
        out->path[0] = 0;
        return;
    }
    const bool folder = S_ISDIR(st.st_mode);
    snprintf(out->below, sizeof out->below, "%s%s", real + len + 1, folder ? "/" : "");
    char *slash = strrchr(out->below, '/');
    *(slash ? slash + 1 : out->below) = 0;
    const size_t above = strlen(out->below), tail = sizeof coco - 1;
    if (!folder && above >= tail && strcmp(out->below + above - tail, coco) == 0 &&
        (above == tail || out->below[above - tail - 1] == '/'))
        out->below[above - tail] = 0;
}

/* The folder of a dataset stands for a complete revision in it. */
static int enter_set(const char *path, char real[PATH_MAX], pst_error *err)
{
    char revision[PST_REVISION_BYTES];
    const int set = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (set < 0)
        return 0;
    const int rc = psti_depot_look_in(set, revision);
    close(set);
    if (rc == -ENOENT)
        return psti_fail(err, rc, "dataset", path,
                         "no revision of it is complete here yet; PENSTOCK_ENGINE=unix:DIR names "
                         "the engine that reads what is missing from its bucket");
    const size_t len = strlen(real);
    if (rc == 0 && len + sizeof revision + 1 < PATH_MAX)
        snprintf(real + len, PATH_MAX - len, "/%s", revision);
    return 0;
}

static int hold_folder(const char *path, bool counts, psti_depot_hold *out, pst_error *err)
{
    char real[PATH_MAX], whole[PATH_MAX], *revision;
    bool below;
    if (!realpath(path, real))
        return 0; /* whoever opens it says what is wrong */
    memcpy(whole, real, sizeof whole);
    if (!take_apart(real, &revision, &below)) {
        memcpy(real, whole, sizeof whole);
        const int rc = enter_set(path, real, err);
        if (rc < 0)
            return rc;
        if (!take_apart(real, &revision, &below))
            return 0;
    }
    const int set = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (set < 0)
        return 0;
    const int rc = hold(set, revision, &out->lock);
    if (rc == 0 && counts)
        uses_add(set, revision);
    close(set);
    if (rc == -ENOENT) /* looks like one and is none */
        return 0;
    if (rc < 0)
        return psti_fail(err, rc, "dataset", path, "cannot be held: %s", strerror(-rc));
    snprintf(out->path, sizeof out->path, "%.3900s/%s/data", real, revision);
    if (below)
        hold_part(whole, out);
    return 0;
}

/* One that is not complete yet is read where it comes from: training need not wait for the pull. */
static bool is_on_its_way(const char *spec, psti_depot_hold *out)
{
    depot d;
    survey s;
    char name[PST_DATASET_NAME_BYTES], revision[PST_REVISION_BYTES];
    bool found = false;
    if (spec_split(spec, name, revision, NULL) < 0 || *revision ||
        depot_open(&d, NULL, false, NULL) < 0)
        return false;
    if (survey_dataset(&d, name, false, &s) == 0) {
        for (size_t i = 0; i < s.count; i++) {
            const pst_revision *r = &s.revisions[i].shown;
            if (!r->complete && psti_is_bucket_url(r->url)) {
                snprintf(out->path, sizeof out->path, "%s", r->url);
                if (snprintf(out->near, sizeof out->near, "%s/%s/.%s", d.path, name, r->revision) >=
                    (int)sizeof out->near)
                    out->near[0] = 0;
                found = true;
            }
        }
        survey_fini(&s);
    }
    depot_close(&d);
    return found;
}

static int hold_named(const char *spec, bool counts, psti_depot_hold *out, pst_error *err)
{
    pst_revision found;
    int rc = pst_datasets_find(NULL, spec, &found, err);
    if (rc == -ENOENT && is_on_its_way(spec, out)) {
        psti_error_clear(err);
        psti_log(PSTI_LOG_WARN, "%s is not complete here yet: what is missing is read from %s",
                 spec, out->path);
        return 0;
    }
    if (rc < 0)
        return rc;
    rc = hold_folder(found.path, counts, out, err);
    if (rc == 0 && out->lock < 0)
        rc = psti_fail(err, -ENOENT, "dataset", spec, "was evicted a moment ago");
    return rc;
}

int psti_depot_hold_path(const char *path, bool counts, psti_depot_hold *out, pst_error *err)
{
    out->lock = -1;
    out->path[0] = out->near[0] = out->below[0] = 0;
    out->part = false;
    return psti_is_depot_url(path) ? hold_named(path, counts, out, err)
                                   : hold_folder(path, counts, out, err);
}

void psti_depot_let_go(psti_depot_hold *hold)
{
    if (hold->lock >= 0)
        close(hold->lock);
    hold->lock = -1;
}
