/* SPDX-License-Identifier: Apache-2.0
 * Pulling a dataset: list, name the revision, look at what is there, make room, fetch, and show it
 * when all of it is on the disk. Whatever ends the process in between, the next pull goes on, and
 * nobody sees a revision that is not whole. On the calling thread; fetching has threads. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "depot/depot_priv.h"
#include "net/net.h"

enum { LISTINGS_MOST = 3 };

void pst_pull_options_init(pst_pull_options *opts)
{
    memset(opts, 0, sizeof *opts);
    opts->size = sizeof *opts;
}

int pull_tell(puller *p)
{
    if (!p->opts.progress)
        return 0;
    pst_pull_progress now = {.objects = p->objects.count,
                             .objects_done = atomic_load(&p->objects_done),
                             .bytes = p->objects.bytes,
                             .bytes_done = atomic_load(&p->bytes_done),
                             .bytes_linked = atomic_load(&p->bytes_linked),
                             .bytes_fetched = atomic_load(&p->bytes_fetched),
                             .objects_bad = atomic_load(&p->bad),
                             .seconds = (double)(psti_now_ns() - p->start_ns) / 1e9};
    memcpy(now.revision, p->revision, sizeof now.revision);
    return p->opts.progress(&now, p->opts.user) ? -ECANCELED : 0;
}

static int told(puller *p, pst_error *err)
{
    return pull_tell(p) < 0
               ? psti_fail(err, -ECANCELED, "pull", p->name, "stopped; what came stays")
               : 0;
}

static int system_failed(const puller *p, int rc, const char *what, pst_error *err)
{
    return psti_fail(err, rc, "pull", p->name, "%s: %s", what, strerror(-rc));
}

/* Why it fails, in a word; what is said first counts. */
static void fails(puller *p, const char *reason)
{
    if (!p->failure.reason[0])
        snprintf(p->failure.reason, sizeof p->failure.reason, "%s", reason);
}

/* By what it failed with. What the net says comes from where the bucket is; a folder that stands
 * for a bucket says what the file system does. */
static const char *reason_of(int rc, const pst_error *err)
{
    const bool local = strcmp(err->stage, "pull") == 0 || strcmp(err->stage, "depot") == 0;
    switch (rc) {
    case -ENOSPC:
    case -EDQUOT:
        return "no_space";
    case -ECANCELED:
        return "stopped";
    case PST_ECHANGED:
        return "changing";
    case PST_ECORRUPT:
        return "damaged";
    case -EACCES:
        return local ? "io" : "credentials";
    case -ENOENT:
        return local ? "io" : "not_found";
    case -EIO:
    case -EBUSY:
    case -EPROTO:
        return local ? rc == -EIO ? "io" : "other" : "unreachable";
    case -EHOSTUNREACH:
    case -ECONNREFUSED:
    case -ETIMEDOUT:
    case -EREMOTE:
        return "unreachable";
    case -EROFS:
    case -EPERM:
        return "io";
    default:
        return "other";
    }
}

/* ---- beginning and end --------------------------------------------------------------------------
 */

static void close_revision(puller *p)
{
    int *const fds[] = {&p->rev, &p->data, &p->parts, &p->done, &p->blocks};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

static void puller_fini(puller *p)
{
    close_revision(p);
    if (p->lock >= 0)
        close(p->lock);
    if (p->set >= 0)
        close(p->set);
    bucket_close(p->from);
    listing_fini(&p->objects);
    depot_close(&p->d);
    pthread_mutex_destroy(&p->guard);
    pthread_cond_destroy(&p->ended);
}

/* Where it comes from: as given, or as the last time. */
static int find_url(puller *p, const char *url, pst_error *err)
{
    char real[PST_PATH_BYTES];
    if (!url) {
        const ssize_t len = file_read(p->set, ".url", p->url, sizeof p->url);
        return len > 0 ? 0
                       : psti_fail(err, -EINVAL, "pull", p->name,
                                   "where it comes from is not known here: give a URL");
    }
    if (!strstr(url, "://") && realpath(url, real)) /* from any folder the same */
        url = real;
    if (strlen(url) >= sizeof p->url || !psti_utf8_ok(url, strlen(url)) || strpbrk(url, "\t\n\r"))
        return psti_fail(err, -EINVAL, "pull", p->name, "the URL is too long, or no text");
    snprintf(p->url, sizeof p->url, "%s", url);
    return 0;
}

static int puller_begin(puller *p, const char *url, pst_error *err)
{
    if (p->opts.connections < 0 || p->opts.connections > CONNECTIONS_MOST)
        return psti_fail(err, -EINVAL, "pull", p->name, "connections must be 0..%d",
                         CONNECTIONS_MOST);
    if (p->opts.connections == 0)
        p->opts.connections = CONNECTIONS_AUTO;
    if (!name_ok(p->name, strlen(p->name)))
        return bad_name(p->name, err);
    int rc = depot_open(&p->d, p->opts.dir, true, err);
    if (rc < 0)
        return rc;
    p->set = dir_make(p->d.dir, p->name);
    p->lock = p->set < 0 ? p->set : lock_open(p->set, ".pulling");
    if (p->set < 0 || p->lock < 0)
        return system_failed(p, p->set < 0 ? p->set : p->lock, "its folder cannot be made", err);
    struct stat st; /* its owner could change what was verified */
    if (fstat(p->set, &st) != 0 || (st.st_uid != geteuid() && st.st_uid != 0))
        return psti_fail(err, -EPERM, "pull", p->name, "its folder belongs to somebody else");
    rc = lock_take(p->lock);
    if (rc < 0)
        return psti_fail(err, rc, "pull", p->name,
                         rc == -EBUSY ? "another process pulls it at this moment"
                                      : "its folder cannot be locked");
    rc = find_url(p, url, err);
    return rc;
}

/* ---- which revision -----------------------------------------------------------------------------
 */

/* A revision that was asked for by its hash and is here, whole or in part. 1 = found. */
static int find_here(puller *p, const char *wanted, pst_error *err)
{
    survey s;
    int found = 0;
    const int rc = survey_dataset(&p->d, p->name, false, &s);
    if (rc < 0)
        return system_failed(p, rc, "cannot be listed", err);
    for (size_t i = 0; i < s.count; i++) {
        const pst_revision *r = &s.revisions[i].shown;
        if (strncmp(r->revision, wanted, strlen(wanted)) == 0 && (r->complete || r->objects)) {
            memcpy(p->revision, r->revision, sizeof p->revision);
            found++;
        }
    }
    survey_fini(&s);
    return found > 1 ? psti_fail(err, -EINVAL, "pull", wanted, "several revisions begin like that")
                     : found;
}

/* Whether a URL meant one object is told by its end from now on. */
static void mark_url(puller *p)
{
    const size_t len = strlen(p->url);
    if (psti_is_bucket_url(p->url) && !p->from->one && p->url[len - 1] != '/' &&
        len + 1 < sizeof p->url)
        memcpy(p->url + len, "/", 2);
}

/* Nobody asks the bucket what the URL means, since the objects are known: it means what it did when
 * they were listed, which the end of that URL tells. One of something else was a folder. */
static void settle_url(puller *p, const char *listed)
{
    const size_t len = strlen(listed);
    const bool one = p->objects.count == 1 && psti_is_bucket_url(listed) && listed[len - 1] != '/';
    if (!one)
        bucket_is_folder(p->from);
    mark_url(p);
}

static int read_here(puller *p, pst_error *err)
{
    char folder[REVISION_HEX + 2], listed[sizeof p->url] = "";
    listing_fini(&p->objects);
    for (int complete = 1; complete >= 0; complete--) {
        const int rev = dir_open(p->set, rev_folder(folder, p->revision, complete));
        if (rev < 0)
            continue;
        const int rc = listing_read(&p->objects, rev, complete ? "manifest" : "listing", listed,
                                    sizeof listed, err);
        close(rev);
        if (rc == 0)
            settle_url(p, listed);
        return rc;
    }
    return psti_fail(err, -ENOENT, "pull", p->revision, "was evicted a moment ago");
}

static int ask_caller(void *user)
{
    return pull_tell(user);
}

static int read_bucket(puller *p, pst_error *err)
{
    listing_fini(&p->objects);
    p->from->ask = ask_caller;
    p->from->user = p;
    int rc = p->from->ops->list(p->from, &p->objects, err);
    if (rc == 0 && p->objects.count == 0) {
        fails(p, "empty");
        rc = psti_fail(err, PST_EDATASET, "pull", p->url, "there is nothing");
    }
    if (rc == 0 && p->objects.count > UINT32_MAX)
        rc = psti_fail(err, PST_ELIMIT, "pull", p->url, "more than 4294967295 objects");
    if (rc == 0)
        rc = listing_check(&p->objects, err);
    if (rc == 0)
        listing_revision(&p->objects, p->revision);
    if (rc == 0)
        mark_url(p);
    return rc;
}

static int choose_revision(puller *p, bool *fixed, pst_error *err)
{
    const char *wanted = p->opts.revision;
    *fixed = wanted && *wanted && strcmp(wanted, "latest") != 0;
    if (!*fixed)
        return read_bucket(p, err);
    char name[PST_DATASET_NAME_BYTES], digits[PST_REVISION_BYTES], spec[128];
    snprintf(spec, sizeof spec, "%s@%.33s", p->name, wanted);
    int rc = spec_split(spec, name, digits, err);
    if (rc == 0)
        rc = find_here(p, digits, err);
    if (rc != 0)
        return rc < 0 ? rc : read_here(p, err);
    rc = read_bucket(p, err);
    if (rc == 0 && strncmp(p->revision, digits, strlen(digits)) != 0)
        rc = psti_fail(err, PST_ECHANGED, "pull", p->name,
                       "the bucket holds revision %s now, and %s is not here", p->revision, wanted);
    return rc;
}

/* ---- a revision ---------------------------------------------------------------------------------
 */

/* Parts that were written before the machine was started anew may have holes. */
static int fresh_parts(puller *p)
{
    char now[64] = "", then[64] = "";
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, now, sizeof now - 1);
    now[n > 0 ? n : 0] = 0;
    if (fd >= 0)
        close(fd);
    const ssize_t len = file_read(p->rev, "boot", then, sizeof then);
    if (len > 0 && strcmp(now, then) == 0)
        return 0;
    const int rc = tree_remove(p->rev, "parts", NULL);
    return rc < 0 ? rc : file_write(p->rev, "boot", now, strlen(now));
}

/* Opens the hidden folder, made where it is missing. */
static int open_hidden(puller *p, pst_error *err)
{
    char folder[REVISION_HEX + 2];
    p->rev = dir_make(p->set, rev_folder(folder, p->revision, false));
    int rc = p->rev < 0 ? p->rev : fresh_parts(p);
    if (rc == 0) {
        p->data = dir_make(p->rev, "data");
        p->parts = dir_make(p->rev, "parts");
        const int lock = lock_open(p->rev, ".lock");
        rc = p->data < 0 ? p->data : p->parts < 0 ? p->parts : lock < 0 ? lock : 0;
        if (lock >= 0)
            close(lock);
    }
    if (rc == 0)
        rc = p->blocks = blocks_open(p->rev, &p->objects);
    rc = rc < 0 ? rc : 0;
    return rc < 0 ? system_failed(p, rc, "its folder cannot be made", err) : 0;
}

/* A complete revision in which something is missing or damaged goes back to where it is pulled.
 * Processes that read it have its folder open and go on. */
static int hide(puller *p, pst_error *err)
{
    char hidden[REVISION_HEX + 2];
    rev_folder(hidden, p->revision, false);
    int rc = listing_write(&p->objects, p->rev, "listing", p->url, err);
    if (rc < 0)
        return rc;
    rc = done_write(&p->objects, p->rev);
    if (rc == 0)
        rc = tree_remove(p->set, hidden, NULL);
    if (rc == 0 && latest_is(p->set, p->revision))
        unlinkat(p->set, "latest", 0);
    if (rc == 0 && (renameat(p->set, p->revision, p->set, hidden) != 0 || fsync(p->set) != 0))
        rc = -errno;
    if (rc == 0)
        unlinkat(p->rev, ".complete", 0);
    close_revision(p);
    return rc < 0 ? system_failed(p, rc, "cannot be hidden", err) : 0;
}

static int pin_it(const puller *p)
{
    return p->opts.pin ? file_write(p->rev, ".pin", "", 0) : 0;
}

/* A revision that was looked over has checksums of its blocks, also when it was pulled before there
 * were any. */
static int note_blocks(puller *p)
{
    summary sum;
    if (!p->opts.check)
        return 0;
    int rc = summary_read(p->rev, &sum);
    if (rc == 0 && fsync(p->blocks) != 0)
        rc = -errno;
    if (rc == 0 && sum.block_bytes != PSTI_DEPOT_BLOCK) {
        sum.block_bytes = PSTI_DEPOT_BLOCK;
        rc = summary_write(p->rev, &sum);
    }
    return rc;
}

/* 1 = the revision is there and whole; 0 = something has to be fetched, and it is hidden. */
static int look_at_complete(puller *p, pst_error *err)
{
    listing known;
    p->rev = dir_open(p->set, p->revision);
    if (p->rev < 0)
        return p->rev == -ENOENT ? 0 : system_failed(p, p->rev, "cannot be opened", err);
    p->data = dir_open(p->rev, "data");
    const bool listed = listing_read(&known, p->rev, "manifest", NULL, 0, NULL) == 0;
    const bool same = listed && known.count == p->objects.count;
    for (size_t i = 0; i < p->objects.count; i++) { /* of the same hash, so the same objects */
        object *o = &p->objects.objects[i];
        o->known = same && known.objects[i].known;
        o->crc = same ? known.objects[i].crc : 0;
        o->took_us = same ? known.objects[i].took_us : 0;
    }
    if (listed)
        listing_fini(&known);
    if (p->opts.check && (p->blocks = blocks_open(p->rev, &p->objects)) < 0)
        return system_failed(p, p->blocks, "its checksums cannot be written", err);
    look_over(p, err);
    bool whole = same && faccessat(p->rev, ".complete", F_OK, 0) == 0;
    for (size_t i = 0; i < p->objects.count && whole; i++)
        whole = p->objects.objects[i].known;
    if (!whole)
        return hide(p, err);
    int rc = pin_it(p);
    if (rc == 0)
        rc = note_blocks(p);
    if (rc == 0)
        rc = latest_set(p->set, p->revision);
    return rc < 0 ? system_failed(p, rc, "cannot be marked", err) : 1;
}

/* Room is made and taken in one go: who looks next sees the listing. */
static int reserve(puller *p, pst_error *err)
{
    const room_wish wish = {.name = p->name,
                            .revision = p->revision,
                            .wanted = &p->objects,
                            .parts = survey_parts(p->rev),
                            .partial = p->opts.partial,
                            .short_of = &p->failure};
    int rc = depot_lock(&p->d, err);
    if (rc == 0)
        rc = depot_make_room(&p->d, &wish, err);
    if (rc == 0 && (rc = left_write(&p->objects, p->rev)) < 0)
        rc = system_failed(p, rc, "its notes cannot be written", err);
    if (rc == 0)
        rc = listing_write(&p->objects, p->rev, "listing", p->url, err);
    depot_unlock(&p->d);
    if (rc == 0) {
        rc = done_write(&p->objects, p->rev);
        p->done = rc < 0 ? rc : openat(p->rev, "done", O_WRONLY | O_APPEND | O_CLOEXEC);
        if (p->done < 0)
            rc = system_failed(p, rc < 0 ? rc : -errno, "its notes cannot be written", err);
    }
    return rc;
}

/* Partial revisions that nobody goes on with: what they had is linked by now. */
static void drop_others(puller *p)
{
    survey s;
    char folder[REVISION_HEX + 2];
    if (survey_dataset(&p->d, p->name, false, &s) < 0)
        return;
    for (size_t i = 0; i < s.count; i++)
        if (!s.revisions[i].shown.complete && !s.revisions[i].shown.pinned &&
            !s.revisions[i].shown.in_use && strcmp(s.revisions[i].shown.revision, p->revision) != 0)
            tree_remove(p->set, rev_folder(folder, s.revisions[i].shown.revision, false), NULL);
    survey_fini(&s);
}

/* Everything on the disk first, then the name. */
static int show(puller *p, pst_error *err)
{
    char hidden[REVISION_HEX + 2];
    summary sum = {
        .objects = p->objects.count, .bytes = p->objects.bytes, .block_bytes = PSTI_DEPOT_BLOCK};
    snprintf(sum.url, sizeof sum.url, "%s", p->url);
    for (size_t i = 0; i < p->objects.count; i++)
        sum.refetch_s += (double)p->objects.objects[i].took_us * 1e-6;
    int rc = listing_write(&p->objects, p->rev, "manifest", p->url, err);
    if (rc < 0)
        return rc;
    rc = pin_it(p);
    if (rc == 0 && syncfs(p->rev) != 0)
        rc = -errno;
    if (rc == 0)
        rc = summary_write(p->rev, &sum);
    if (rc == 0 && fsync(p->rev) != 0)
        rc = -errno;
    rev_folder(hidden, p->revision, false);
    if (rc == 0 && renameat(p->set, hidden, p->set, p->revision) != 0)
        rc = -errno;
    if (rc == 0 && fsync(p->set) != 0)
        rc = -errno;
    if (rc == 0)
        rc = latest_set(p->set, p->revision);
    if (rc < 0)
        return system_failed(p, rc, "cannot be shown", err);
    drop_others(p);
    unlinkat(p->rev, "listing", 0);
    unlinkat(p->rev, "done", 0);
    unlinkat(p->rev, "boot", 0);
    unlinkat(p->rev, "left", 0);
    tree_remove(p->rev, "parts", NULL);
    return 0;
}

/* As much as fits is there: it stays hidden, for those who read the bucket. */
static int settle_part(puller *p, pst_error *err)
{
    int rc = pin_it(p);
    if (rc == 0 && syncfs(p->rev) != 0)
        rc = -errno;
    return rc < 0 ? system_failed(p, rc, "cannot be written", err) : 0;
}

static bool some_left(const listing *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->objects[i].left)
            return true;
    return false;
}

/* A revision that could not even be begun leaves nothing. */
static void drop_unbegun(puller *p)
{
    char hidden[REVISION_HEX + 2];
    if (p->rev >= 0 && faccessat(p->rev, "listing", F_OK, 0) != 0)
        tree_remove(p->set, rev_folder(hidden, p->revision, false), NULL);
}

static void count_anew(puller *p)
{
    atomic_store(&p->objects_done, 0);
    atomic_store(&p->bytes_done, 0);
    atomic_store(&p->bytes_linked, 0);
}

static int pull_revision(puller *p, pst_error *err)
{
    count_anew(p);
    int rc = look_at_complete(p, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    count_anew(p);
    rc = open_hidden(p, err);
    if (rc == 0 && (rc = done_read(&p->objects, p->rev)) < 0)
        rc = system_failed(p, rc, "its notes cannot be read", err);
    if (rc == 0)
        rc = link_others(p, err);
    if (rc == 0)
        rc = look_over(p, err);
    if (rc == 0 && (rc = blocks_complete(p)) < 0)
        rc = system_failed(p, rc, "its checksums cannot be made", err);
    if (rc == 0 && (rc = reserve(p, err)) < 0)
        drop_unbegun(p);
    if (rc == 0)
        rc = told(p, err);
    if (rc == 0)
        rc = fetch_all(p, err);
    p->some_left = rc == 0 && some_left(&p->objects);
    if (rc == 0)
        rc = p->some_left ? settle_part(p, err) : show(p, err);
    return rc;
}

/* ---- the call -----------------------------------------------------------------------------------
 */

static int pull(puller *p, const char *url, pst_error *err)
{
    bool fixed = false;
    int rc = puller_begin(p, url, err);
    for (int round = 0; rc == 0; round++) {
        bucket_close(p->from); /* what was stopped stays so */
        p->from = NULL;
        rc = bucket_open(p->url, &p->from, err);
        if (rc == 0 && url && round == 0 && !p->opts.dry &&
            file_write(p->set, ".url", p->url, strlen(p->url)) < 0)
            rc = psti_fail(err, -EIO, "pull", p->name, "its folder cannot be written");
        if (rc == 0)
            rc = choose_revision(p, &fixed, err);
        if (rc == 0 && !p->opts.dry)
            rc = pull_revision(p, err);
        close_revision(p);
        if (rc == PST_ECHANGED && !p->failure.reason[0] && (fixed || round + 1 == LISTINGS_MOST))
            fails(p, fixed ? "gone" : "changing");
        if (rc != PST_ECHANGED || fixed || round + 1 == LISTINGS_MOST)
            break;
        rc = 0; /* the bucket changed meanwhile: list again; what came is linked */
    }
    if (rc == 0)
        rc = told(p, err);
    return rc;
}

/* What was pulled, as it is here now; of a dry run what the bucket holds. */
static int tell_found(puller *p, pst_revision *out, pst_error *err)
{
    survey s;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", p->name);
    snprintf(out->revision, sizeof out->revision, "%s", p->revision);
    snprintf(out->url, sizeof out->url, "%s", p->url);
    out->objects = p->objects.count;
    out->bytes = p->objects.bytes;
    const int rc = survey_dataset(&p->d, p->name, false, &s);
    if (rc < 0)
        return system_failed(p, rc, "cannot be listed", err);
    bool found = false;
    for (size_t i = 0; i < s.count; i++)
        if (strcmp(s.revisions[i].shown.revision, p->revision) == 0 &&
            (s.revisions[i].shown.complete || !found)) {
            *out = s.revisions[i].shown;
            found = true;
        }
    survey_fini(&s);
    return found || p->opts.dry
               ? 0
               : psti_fail(err, -ENOENT, "dataset", p->name, "was evicted a moment ago");
}

int pst_pull(const char *name, const char *url, const pst_pull_options *opts, pst_revision *out,
             pst_error *err)
{
    if (opts && opts->size != sizeof *opts)
        return psti_fail(err, -EINVAL, "pull", name,
                         "options of another version; call pst_pull_options_init");
    puller *p = psti_calloc(PSTI_MEM_DEPOT, 1, sizeof *p);
    if (!p)
        return psti_fail(err, -ENOMEM, "pull", name, "out of memory");
    p->d.dir = p->d.lock = p->set = p->lock = p->rev = p->data = p->parts = p->done = p->blocks =
        -1;
    p->name = name;
    p->start_ns = psti_now_ns();
    pst_pull_options_init(&p->opts);
    if (opts)
        p->opts = *opts;
    pthread_mutex_init(&p->guard, NULL);
    pthread_cond_init(&p->ended, NULL);
    pst_error why;
    psti_error_clear(&why);
    int rc = pull(p, url, &why);
    if (rc < 0 && err)
        *err = why;
    if (rc < 0)
        fails(p, reason_of(rc, &why));
    else
        p->failure = (pst_pull_failure){0};
    if (opts && opts->failure)
        *opts->failure = p->failure;
    if (p->lock >= 0)
        close(p->lock); /* nobody pulls it any more */
    p->lock = -1;
    if (rc == 0 && out)
        rc = tell_found(p, out, err);
    puller_fini(p);
    psti_free(p);
    return rc;
}
