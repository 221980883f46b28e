/* SPDX-License-Identifier: Apache-2.0
 * Where datasets are kept: the folder, its lock, names, and the small files of a dataset and its
 * revisions. Any thread; processes keep apart by flock. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "depot/depot_priv.h"

/* ---- the folder --------------------------------------------------------------------------------
 */

static int default_path(char *out, size_t cap, pst_error *err)
{
    const char *own = getenv("PENSTOCK_DATASETS"), *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    int len;
    if (own && *own)
        len = snprintf(out, cap, "%s", own);
    else if (data && data[0] == '/')
        len = snprintf(out, cap, "%s/penstock/datasets", data);
    else if (home && home[0] == '/')
        len = snprintf(out, cap, "%s/.local/share/penstock/datasets", home);
    else
        return psti_fail(err, -ENOENT, "depot", NULL,
                         "no folder for datasets: set PENSTOCK_DATASETS");
    return (size_t)len < cap ? 0 : psti_fail(err, -ENAMETOOLONG, "depot", NULL, "path too long");
}

static int make_path(const char *path)
{
    char part[PST_PATH_BYTES];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return -errno;
        *at = '/';
    }
    return mkdir(part, 0777) != 0 && errno != EEXIST ? -errno : 0;
}

int depot_open(depot *d, const char *dir, bool make, pst_error *err)
{
    d->dir = d->lock = -1;
    if (dir && strlen(dir) >= sizeof d->path)
        return psti_fail(err, -ENAMETOOLONG, "depot", NULL, "path too long");
    if (dir)
        snprintf(d->path, sizeof d->path, "%s", dir);
    int rc = dir ? 0 : default_path(d->path, sizeof d->path, err);
    if (rc < 0)
        return rc;
    rc = make ? make_path(d->path) : 0;
    if (rc == 0) {
        d->dir = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = d->dir < 0 ? -errno : 0;
    }
    return rc < 0 ? psti_fail(err, rc, "depot", d->path, "cannot be %s: %s",
                              make ? "made or opened" : "opened", strerror(-rc))
                  : 0;
}

void depot_close(depot *d)
{
    depot_unlock(d);
    if (d->dir >= 0)
        close(d->dir);
    d->dir = -1;
}

int depot_lock(depot *d, pst_error *err)
{
    const int fd = lock_open(d->dir, ".lock");
    int rc = fd < 0 ? fd : 0;
    while (rc == 0 && flock(fd, LOCK_EX) != 0)
        rc = errno == EINTR ? 0 : -errno;
    if (rc < 0) {
        if (fd >= 0)
            close(fd);
        return psti_fail(err, rc, "depot", d->path, "cannot be locked: %s", strerror(-rc));
    }
    d->lock = fd;
    return 0;
}

void depot_unlock(depot *d)
{
    if (d->lock >= 0)
        close(d->lock);
    d->lock = -1;
}

/* ---- names -------------------------------------------------------------------------------------
 */

bool name_ok(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const char c = name[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        const bool digit = c >= '0' && c <= '9';
        if (!letter && !digit && (i == 0 || (c != '.' && c != '_' && c != '-')))
            return false;
    }
    return len > 0 && len < PST_DATASET_NAME_BYTES;
}

bool revision_ok(const char *text)
{
    return strlen(text) == REVISION_HEX && strspn(text, "0123456789abcdef") == REVISION_HEX;
}

int bad_name(const char *name, pst_error *err)
{
    char shown[200];
    return psti_fail(err, -EINVAL, "depot", psti_escape(shown, sizeof shown, name, strlen(name)),
                     "a dataset's name has letters, digits, '.', '_' and '-', at most 64, and "
                     "begins with a letter or a digit");
}

static const char scheme[] = "penstock://";

bool psti_is_depot_url(const char *text)
{
    return strncmp(text, scheme, sizeof scheme - 1) == 0;
}

int spec_split(const char *spec, char name[PST_DATASET_NAME_BYTES],
               char revision[PST_REVISION_BYTES], pst_error *err)
{
    if (psti_is_depot_url(spec))
        spec += sizeof scheme - 1;
    const char *at = strchr(spec, '@');
    const size_t len = at ? (size_t)(at - spec) : strlen(spec);
    if (!name_ok(spec, len))
        return bad_name(spec, err);
    memcpy(name, spec, len);
    name[len] = 0;
    revision[0] = 0;
    if (!at || strcmp(at + 1, "latest") == 0)
        return 0;
    const size_t digits = strlen(at + 1);
    if (digits < 8 || digits > REVISION_HEX || strspn(at + 1, "0123456789abcdef") != digits)
        return psti_fail(err, -EINVAL, "depot", name,
                         "a revision is 'latest', or the first 8 to 32 digits of its hash");
    memcpy(revision, at + 1, digits + 1);
    return 0;
}

void path_join(char out[PST_PATH_BYTES], const char *dir, const char *name, const char *folder)
{
    const char *parts[] = {dir, "/", name, "/", folder, "/data"};
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t len = strlen(parts[i]);
        if (used + len >= PST_PATH_BYTES) {
            out[0] = 0;
            return;
        }
        memcpy(out + used, parts[i], len + 1);
        used += len;
    }
}

const char *rev_folder(char out[REVISION_HEX + 2], const char *revision, bool complete)
{
    snprintf(out, REVISION_HEX + 2, "%s%.32s", complete ? "" : ".", revision);
    return out;
}

/* ---- small files -------------------------------------------------------------------------------
 */

int64_t wall_s(void)
{
    return (int64_t)time(NULL);
}

int summary_write(int dir, const summary *s)
{
    char text[1400];
    const int len = snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %.6f %s\nblocks %u\n",
                             s->objects, s->bytes, s->refetch_s, s->url, s->block_bytes);
    return file_write(dir, ".complete", text, (size_t)len);
}

int summary_read(int dir, summary *s)
{
    char text[1400];
    int at = 0;
    memset(s, 0, sizeof *s);
    const ssize_t len = file_read(dir, ".complete", text, sizeof text);
    if (len < 0)
        return (int)len;
    if (sscanf(text, "%" SCNu64 " %" SCNu64 " %lf %n", &s->objects, &s->bytes, &s->refetch_s, &at) <
            3 ||
        at == 0 || text[len - 1] != '\n')
        return PST_ECORRUPT;
    const size_t url = strcspn(text + at, "\n");
    snprintf(s->url, sizeof s->url, "%.*s", (int)url, text + at);
    if (sscanf(text + at + url, "\nblocks %" SCNu32, &s->block_bytes) != 1)
        s->block_bytes = 0; /* pulled before there were any */
    return 0;
}

static void uses_name(char out[64], const char *revision)
{
    snprintf(out, 64, ".use.%.32s", revision);
}

static void uses_parse(const char *text, double *uses, int64_t *last_s)
{
    double count;
    int64_t when;
    *uses = 0;
    *last_s = 0;
    if (sscanf(text, "%lf %" SCNd64, &count, &when) == 2 && isfinite(count) && count >= 0) {
        *uses = count;
        *last_s = when;
    }
}

void uses_read(int set, const char *revision, double *uses, int64_t *last_s)
{
    char name[64], text[64];
    uses_name(name, revision);
    uses_parse(file_read(set, name, text, sizeof text) > 0 ? text : "", uses, last_s);
}

/* What cannot be noted is not: reading goes on. */
void uses_add(int set, const char *revision)
{
    char name[64], text[64] = "";
    double uses;
    int64_t last_s;
    struct stat st;
    uses_name(name, revision);
    if (fstat(set, &st) != 0 || st.st_uid != geteuid())
        return; /* nothing is written to folders of others */
    const int fd = openat(set, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX) == 0) {
        const ssize_t n = pread(fd, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        uses_parse(text, &uses, &last_s);
        const int64_t now = wall_s();
        /* One length always, so that a shorter record leaves no rest of a longer one. */
        const int len = snprintf(text, sizeof text, "%24.9f %20" PRId64 "\n",
                                 psti_depot_used(uses, last_s, now), now);
        if (pwrite(fd, text, (size_t)len, 0) != len)
            text[0] = 0;
    }
    close(fd);
}

int latest_set(int set, const char *revision)
{
    unlinkat(set, ".latest.new", 0);
    if (symlinkat(revision, set, ".latest.new") != 0 ||
        renameat(set, ".latest.new", set, "latest") != 0)
        return -errno;
    return fsync(set) != 0 ? -errno : 0;
}

bool latest_is(int set, const char *revision)
{
    char to[64];
    const ssize_t n = readlinkat(set, "latest", to, sizeof to - 1);
    to[n > 0 ? n : 0] = 0;
    return strcmp(to, revision) == 0;
}
