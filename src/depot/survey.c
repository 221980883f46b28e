/* SPDX-License-Identifier: Apache-2.0
 * What is in the depot, read from its files each time: there are no other books that could be
 * wrong. Any thread; exact only while the depot is locked. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "depot/depot_priv.h"

void survey_fini(survey *s)
{
    for (size_t i = 0; i < s->count; i++)
        listing_fini(&s->revisions[i].objects);
    psti_free(s->revisions);
    memset(s, 0, sizeof *s);
}

uint64_t survey_parts(int rev)
{
    uint64_t bytes = 0;
    struct stat st;
    const int fd = dir_open(rev, "parts");
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL)
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
    if (dir)
        closedir(dir);
    return bytes;
}

/* Of one that nobody pulls, only what is there takes room. */
static void keep_known(listing *l)
{
    size_t kept = 0;
    l->bytes = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (!l->objects[i].known)
            continue;
        l->bytes += l->objects[i].size;
        l->objects[kept++] = l->objects[i];
    }
    l->count = kept;
}

/* Of one that somebody pulls, what he wants does. */
static void keep_wanted(held_revision *r, int rev)
{
    listing *l = &r->objects;
    size_t kept = 0;
    uint64_t coming = 0;
    l->bytes = 0;
    for (size_t i = 0; i < l->count; i++) {
        const object *o = &l->objects[i];
        if (o->left && !o->known)
            continue;
        coming += o->known ? 0 : o->size;
        l->bytes += o->size;
        l->objects[kept++] = *o;
    }
    l->count = kept;
    const uint64_t parts = survey_parts(rev);
    r->pending = coming > parts ? coming - parts : 0;
}

uint64_t survey_pending(const survey *s)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->count; i++)
        bytes += s->revisions[i].made ? 0 : s->revisions[i].pending;
    return bytes;
}

static int add_partial(held_revision *r, int set, int rev)
{
    r->shown.pulling = lock_is_held(set, ".pulling");
    r->shown.in_use = lock_is_held(rev, ".lock"); /* it was complete when it was opened */
    int rc = listing_read(&r->objects, rev, "listing", r->shown.url, sizeof r->shown.url, NULL);
    if (rc == 0) {
        r->loaded = true;
        r->shown.objects = r->objects.count;
        r->shown.bytes = r->objects.bytes;
        rc = done_read(&r->objects, rev);
        r->shown.partial = left_read(&r->objects, rev) == 0;
    }
    for (size_t i = 0; i < r->objects.count; i++) {
        const object *o = &r->objects.objects[i];
        r->shown.objects_done += o->known;
        r->shown.bytes_here += o->known ? o->size : 0;
        r->shown.refetch_s += (double)r->objects.objects[i].took_us * 1e-6;
    }
    if (!r->shown.pulling) {
        r->parts_bytes = survey_parts(rev);
        keep_known(&r->objects);
    } else {
        keep_wanted(r, rev);
    }
    return rc == -ENOMEM ? rc : 0; /* no listing: nothing was reserved yet */
}

static int add_complete(held_revision *r, int rev, bool load)
{
    summary s;
    const int rc = summary_read(rev, &s);
    if (rc < 0)
        return rc;
    r->shown.complete = 1;
    r->shown.objects = r->shown.objects_done = s.objects;
    r->shown.bytes = r->shown.bytes_here = s.bytes;
    r->shown.refetch_s = s.refetch_s;
    memcpy(r->shown.url, s.url, sizeof s.url);
    r->shown.in_use = lock_is_held(rev, ".lock");
    if (!load)
        return 0;
    r->loaded = listing_read(&r->objects, rev, "manifest", NULL, 0, NULL) == 0;
    return 0;
}

static int add_revision(survey *s, const depot *d, int set, const char *name, const char *entry,
                        bool load)
{
    const bool complete = entry[0] != '.';
    const char *revision = complete ? entry : entry + 1;
    if (s->count == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 16;
        held_revision *moved =
            psti_realloc(PSTI_MEM_DEPOT, s->revisions, cap, sizeof *s->revisions);
        if (!moved)
            return -ENOMEM;
        s->revisions = moved;
        s->cap = cap;
    }
    const int rev = dir_open(set, entry);
    if (rev < 0) /* gone, or another user's */
        return rev == -ENOENT || rev == -EACCES || rev == -ENOTDIR ? 0 : rev;
    held_revision *r = &s->revisions[s->count];
    memset(r, 0, sizeof *r);
    snprintf(r->shown.name, sizeof r->shown.name, "%.64s", name);
    snprintf(r->shown.revision, sizeof r->shown.revision, "%.32s", revision);
    path_join(r->shown.path, d->path, name, entry);
    int rc = complete ? add_complete(r, rev, load) : add_partial(r, set, rev);
    r->shown.pinned = faccessat(rev, ".pin", F_OK, 0) == 0;
    close(rev);
    if (rc == -ENOENT || rc == PST_ECORRUPT) /* no revision, whatever it is called */
        return 0;
    if (rc < 0)
        return rc;
    r->shown.latest = complete && latest_is(set, revision);
    uses_read(set, revision, &r->shown.uses, &r->shown.last_used_s);
    s->count++;
    return 0;
}

static int add_dataset(survey *s, const depot *d, const char *name, bool load)
{
    const int set = dir_open(d->dir, name);
    DIR *dir = set < 0 ? NULL : fdopendir(set);
    if (!dir) {
        if (set >= 0)
            close(set);
        return set == -ENOMEM ? set : 0; /* gone, or no folder */
    }
    int rc = 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(dir)) != NULL)
        if (revision_ok(entry->d_name + (entry->d_name[0] == '.')))
            rc = add_revision(s, d, dirfd(dir), name, entry->d_name, load);
    closedir(dir);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const pst_revision *x = &((const held_revision *)a)->shown;
    const pst_revision *y = &((const held_revision *)b)->shown;
    const int names = strcmp(x->name, y->name);
    if (names != 0)
        return names;
    if (x->latest != y->latest)
        return x->latest ? -1 : 1;
    if (x->last_used_s != y->last_used_s)
        return x->last_used_s > y->last_used_s ? -1 : 1;
    return strcmp(x->revision, y->revision);
}

/* Bytes of one dataset's revisions, each file once, by merging their sorted listings. */
static uint64_t share_group(held_revision *r, size_t count)
{
    uint64_t used = 0;
    size_t *at = psti_calloc(PSTI_MEM_DEPOT, count, sizeof *at);
    for (size_t i = 0; i < count; i++) {
        const uint64_t bytes = r[i].loaded ? r[i].objects.bytes : r[i].shown.bytes;
        r[i].shown.bytes_own = 0;
        if (r[i].gone)
            continue;
        used += r[i].parts_bytes;
        r[i].shown.bytes_own = r[i].parts_bytes;
        if (!at || !r[i].loaded || count == 1) {
            r[i].shown.bytes_own += bytes;
            used += r[i].made ? 0 : bytes;
        }
    }
    for (; at && count > 1;) {
        size_t first = count, same = 0;
        for (size_t i = 0; i < count; i++) {
            if (!r[i].loaded || r[i].gone || at[i] == r[i].objects.count)
                continue;
            const int order =
                first == count
                    ? -1
                    : object_compare(&r[i].objects, &r[i].objects.objects[at[i]], &r[first].objects,
                                     &r[first].objects.objects[at[first]]);
            same = order < 0 ? 1 : order == 0 ? same + 1 : same;
            first = order < 0 ? i : first;
        }
        if (first == count)
            break;
        const held_revision *lead = &r[first];
        const object *what = &lead->objects.objects[at[first]];
        bool counted = false;
        for (size_t i = count; i-- > first;) { /* the leader last: the others look at it */
            if (!r[i].loaded || r[i].gone || at[i] == r[i].objects.count)
                continue;
            object *o = &r[i].objects.objects[at[i]];
            if (i != first && object_compare(&r[i].objects, o, &lead->objects, what) != 0)
                continue;
            o->shared = same > 1;
            r[i].shown.bytes_own += same > 1 ? 0 : o->size;
            used += counted || r[i].made ? 0 : o->size;
            counted = counted || !r[i].made;
            at[i]++;
        }
    }
    psti_free(at);
    return used;
}

void survey_share(survey *s)
{
    s->used = 0;
    for (size_t i = 0, n; i < s->count; i += n) {
        for (n = 1; i + n < s->count &&
                    strcmp(s->revisions[i].shown.name, s->revisions[i + n].shown.name) == 0;)
            n++;
        s->used += share_group(s->revisions + i, n);
    }
}

int survey_dataset(depot *d, const char *name, bool load, survey *out)
{
    memset(out, 0, sizeof *out);
    const int rc = add_dataset(out, d, name, load);
    if (rc < 0)
        survey_fini(out);
    return rc;
}

int survey_take(depot *d, bool load, survey *out, pst_error *err)
{
    memset(out, 0, sizeof *out);
    const int fd = fcntl(d->dir, F_DUPFD_CLOEXEC, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return psti_fail(err, -ENOMEM, "depot", d->path, "cannot be listed");
    }
    rewinddir(dir); /* the offset is shared with d->dir */
    int rc = 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(dir)) != NULL)
        if (name_ok(entry->d_name, strlen(entry->d_name)))
            rc = add_dataset(out, d, entry->d_name, load);
    closedir(dir);
    if (rc < 0) {
        survey_fini(out);
        return psti_fail(err, rc, "depot", d->path, "cannot be listed: %s", strerror(-rc));
    }
    if (out->count > 1)
        qsort(out->revisions, out->count, sizeof *out->revisions, by_name);
    survey_share(out);
    return 0;
}

/* ---- what the public sees -----------------------------------------------------------------------
 */

static int list_all(const char *dir, bool load, pst_revision **out, size_t *count, pst_error *err)
{
    depot d;
    survey s;
    *out = NULL;
    *count = 0;
    pst_error why;
    int rc = depot_open(&d, dir, false, &why);
    if (rc == -ENOENT) { /* nothing was ever pulled */
        depot_close(&d);
        return 0;
    }
    if (rc < 0 && err)
        *err = why;
    if (rc == 0)
        rc = survey_take(&d, load, &s, err);
    depot_close(&d);
    if (rc < 0)
        return rc;
    pst_revision *list = psti_calloc(PSTI_MEM_DEPOT, s.count ? s.count : 1, sizeof *list);
    for (size_t i = 0; list && i < s.count; i++)
        list[i] = s.revisions[i].shown;
    *out = list;
    *count = list ? s.count : 0;
    survey_fini(&s);
    return list ? 0 : psti_fail(err, -ENOMEM, "depot", NULL, "out of memory");
}

int pst_datasets(const char *dir, pst_revision **out, size_t *count, pst_error *err)
{
    return list_all(dir, true, out, count, err);
}

int psti_depot_list(const char *dir, pst_revision **out, size_t *count, pst_error *err)
{
    return list_all(dir, false, out, count, err);
}

static const pst_revision *pick(const survey *s, const char *name, const char *revision,
                                bool *several)
{
    const pst_revision *found = NULL;
    *several = false;
    for (size_t i = 0; i < s->count; i++) {
        const pst_revision *r = &s->revisions[i].shown;
        const bool fits =
            *revision ? strncmp(r->revision, revision, strlen(revision)) == 0 : r->latest != 0;
        if (!r->complete || strcmp(r->name, name) != 0 || !fits)
            continue;
        *several = found != NULL;
        found = r;
    }
    return found;
}

int pst_datasets_find(const char *dir, const char *spec, pst_revision *out, pst_error *err)
{
    depot d;
    survey s = {0};
    char name[PST_DATASET_NAME_BYTES], revision[PST_REVISION_BYTES];
    int rc = spec_split(spec, name, revision, err);
    if (rc < 0)
        return rc;
    rc = depot_open(&d, dir, false, err);
    if (rc < 0) {
        depot_close(&d);
        return rc;
    }
    rc = survey_dataset(&d, name, false, &s);
    depot_close(&d);
    if (rc < 0)
        return psti_fail(err, rc, "depot", spec, "%s", strerror(-rc));
    bool several;
    const pst_revision *found = pick(&s, name, revision, &several);
    if (!found)
        rc = psti_fail(err, -ENOENT, "dataset", spec,
                       "there is no such dataset here, or its pull is not complete: penstock "
                       "datasets lists them, penstock pull brings them");
    else if (several)
        rc = psti_fail(err, -EINVAL, "dataset", spec, "several revisions begin like that");
    else
        *out = *found;
    survey_fini(&s);
    return rc;
}
