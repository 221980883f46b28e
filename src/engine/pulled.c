/* SPDX-License-Identifier: Apache-2.0
 * Datasets that were pulled onto a local disk: held while anybody reads them, with the identities
 * that they have in their bucket, what is read compared with its checksums. On the thread that
 * opens them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "depot/depot.h"
#include "engine/arrays.h"
#include "engine/engine_priv.h"
#include "net/net.h"

/* What a dataset has of its revision; goes with it. */
typedef struct pulled {
    psti_depot_hold hold;
    psti_depot_keeper *keeper; /* NULL: nothing is known of it */
} pulled;

/* The path of a file as the revision has it. One that is too long is no file of it. */
static const char *in_revision(const pulled *p, const char *path, char room[PST_PATH_BYTES])
{
    if (!p->hold.below[0])
        return path;
    const int len = snprintf(room, PST_PATH_BYTES, "%s%s", p->hold.below, path);
    return len < PST_PATH_BYTES ? room : "";
}

static int sum(void *user, const char *path, uint64_t size, uint32_t *crc)
{
    char room[PST_PATH_BYTES];
    const pulled *p = user;
    return psti_depot_keeper_sum(p->keeper, in_revision(p, path, room), size, crc);
}

static int first(void *user, const char *path, uint64_t size, uint64_t *out)
{
    char room[PST_PATH_BYTES];
    const pulled *p = user;
    return psti_depot_keeper_first(p->keeper, in_revision(p, path, room), size, out);
}

static int etag(void *user, const char *path, uint64_t size, const char **out)
{
    char room[PST_PATH_BYTES];
    const pulled *p = user;
    return psti_depot_keeper_etag(p->keeper, in_revision(p, path, room), size, out);
}

static int blocks(void *user, uint64_t from, size_t count, uint32_t *out)
{
    return psti_depot_keeper_blocks(((pulled *)user)->keeper, from, count, out);
}

static int mend(void *user, const char *path, uint64_t offset, uint64_t length, pst_error *err)
{
    char room[PST_PATH_BYTES];
    const pulled *p = user;
    return psti_depot_keeper_mend(p->keeper, in_revision(p, path, room), offset, length, err);
}

static void let_go(void *user)
{
    pulled *p = user;
    if (!p)
        return;
    psti_depot_keeper_close(p->keeper);
    psti_depot_let_go(&p->hold);
    psti_free(p);
}

_Static_assert((int)PSTI_DEPOT_BLOCK <= (int)PSTI_GUARD_BLOCK, "a block fits where it is compared");
static const psti_guard checked = {.block_bytes = PSTI_DEPOT_BLOCK,
                                   .sum = sum,
                                   .first = first,
                                   .blocks = blocks,
                                   .mend = mend,
                                   .free = let_go};
static const psti_guard only_held = {.free = let_go};

/* Takes the hold over, also when it fails. */
static int pulled_new(psti_depot_hold *hold, pulled **out, pst_error *err)
{
    pulled *p = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *p);
    if (!p) {
        psti_depot_let_go(hold);
        return psti_fail(err, -ENOMEM, "dataset", hold->path, "out of memory");
    }
    p->hold = *hold;
    pst_error why;
    psti_error_clear(&why);
    const int rc =
        p->hold.path[0] ? psti_depot_keeper_open(p->hold.path, &p->keeper, &why) : -EPERM;
    if (rc < 0 && rc != -EPERM) { /* not its files, or somebody else's: read as any other folder */
        let_go(p);
        if (err)
            *err = why;
        return rc;
    }
    *out = p;
    return 0;
}

/* Its files' checksums and etags. p is the dataset's. How many files had to be brought again. */
static int know_files(psti_dataset *data, pulled *p, pst_error *err)
{
    int rc = psti_dataset_guard(data, &checked, p);
    if (rc == 0 && psti_depot_keeper_far(p->keeper) && psti_dataset_is_guarded(data))
        rc = psti_dataset_take_etags(data, etag, p);
    if (rc == -ENOMEM)
        return psti_fail(err, rc, "dataset", p->hold.path, "out of memory");
    /* Files of another origin beside them: then all are what the file system says. */
    if (!psti_depot_keeper_has_blocks(p->keeper))
        psti_log(PSTI_LOG_WARN,
                 "%s was pulled without checksums of blocks: parts of its files (members of tar "
                 "shards, crops of arrays) are not compared when they are read; penstock pull "
                 "--check adds them",
                 p->hold.path);
    rc = psti_depot_keeper_complete(p->keeper, p->hold.below, psti_is_listing_file, err);
    psti_depot_keeper_rest(p->keeper);
    return rc;
}

/* A manifest may move its keys to another folder: then nothing is known of what it names. */
static bool keys_fit(const psti_dataset *data, const pulled *p)
{
    char wanted[2 * PST_PATH_BYTES];
    psti_place at;
    if (!p->hold.part)
        return true;
    if (psti_dataset_place(data, &at) < 0)
        return false;
    snprintf(wanted, sizeof wanted, "%s/%s", p->hold.path, p->hold.below);
    wanted[strlen(wanted) - 1] = 0; /* both end in a slash */
    struct stat mine, theirs;
    const bool same = stat(wanted, &mine) == 0 && fstat(at.root, &theirs) == 0 &&
                      mine.st_ino == theirs.st_ino && mine.st_dev == theirs.st_dev;
    close(at.root);
    return same;
}

/* Opens what p holds; p is the dataset's, or gone. 1: files had to be brought again. */
static int open_held(const char *path, const psti_place *at, const pst_dataset_options *o,
                     pulled *p, psti_dataset **out, pst_error *err)
{
    pst_error why;
    const psti_guard *guard = p->keeper ? &checked : NULL;
    int rc = psti_dataset_open_guarded(path, at, o, guard, p, out, err);
    if (rc < 0) { /* because of what is damaged? */
        psti_error_clear(&why);
        const int mended = p->keeper ? psti_depot_keeper_complete(p->keeper, p->hold.below,
                                                                  psti_is_listing_file, &why)
                                     : 0;
        let_go(p);
        *out = NULL;
        return mended > 0 ? 1 : rc;
    }
    const bool known = p->keeper && keys_fit(*out, p);
    rc = known ? know_files(*out, p, err) : psti_dataset_guard(*out, &only_held, p);
    if (rc == 0)
        return 0;
    if (rc < 0) {
        psti_dataset_unref(*out);
        *out = NULL;
    }
    return rc < 0 ? rc : 1;
}

/* ---- while it is pulled ------------------------------------------------------------------------
 */

static int near_find(void *user, const char *path, uint64_t size, const char *etag, uint64_t *out)
{
    return psti_depot_near_find(user, path, size, etag, out);
}

static int near_blocks(void *user, uint64_t from, size_t count, uint32_t *out)
{
    return psti_depot_near_blocks(user, from, count, out);
}

static void near_free(void *user)
{
    psti_depot_near_close(user);
}

static const psti_near nearby = {
    .guard = {.block_bytes = PSTI_DEPOT_BLOCK, .blocks = near_blocks, .free = near_free},
    .find = near_find};

/* The bucket; what is here already is read from here. */
static int open_far(const char *url, const psti_depot_hold *hold, const pst_dataset_options *o,
                    psti_dataset **out, pst_error *err)
{
    psti_depot_near *near;
    const int rc = psti_dataset_open(url, o, out, err);
    if (rc == 0 && hold->near[0] && psti_dataset_is_far(*out) &&
        psti_depot_near_open(hold->near, &near) == 0)
        psti_dataset_set_near(*out, &nearby, near);
    return rc;
}

/* hold: finds the revision; counts once. */
static int open_path(const char *name, const psti_place *at, const pst_dataset_options *given,
                     bool counts, psti_dataset **out, pst_error *err)
{
    pst_dataset_options o = *given;
    for (int round = 0;; round++) {
        psti_depot_hold hold;
        pulled *p = NULL;
        int rc = psti_depot_hold_path(name, counts && round == 0, &hold, err);
        if (rc < 0)
            return rc;
        const char *path = hold.path[0] && !hold.part ? hold.path : name;
        if (hold.lock < 0)
            return at ? psti_dataset_open_at(at, &o, out, err)
                      : open_far(path, &hold, &o, out, err);
        rc = pulled_new(&hold, &p, err);
        if (rc == 0)
            rc = open_held(path, at, &o, p, out, err);
        if (rc <= 0 || (round > 0 && *out))
            return rc < 0 ? rc : 0;
        if (round > 1)
            return psti_fail(err, PST_EDATASET, "dataset", name,
                             "files of it are damaged again and again");
        psti_error_clear(err);
        psti_dataset_unref(*out);
        o.refresh = 1; /* what was missing is there now: list it, too */
    }
}

/* Whoever is given the listing cannot look at arrays that are not here. */
static void know_arrays(psti_dataset *data)
{
    const psti_source_field *fields;
    const int count = psti_dataset_fields(data, &fields);
    for (int i = 0; i < count; i++) {
        pst_field_info info = fields[i].info;
        if (!fields[i].member || info.kind != PST_ARRAY)
            continue;
        arrays_look(data, i, &info);
        psti_dataset_know_field(data, i, &info);
    }
}

int psti_pulled_open_revision(const psti_depot_choice *choice, const pst_dataset_options *given,
                              psti_dataset **out, pst_error *err)
{
    psti_depot_catalog *catalog;
    psti_depot_hold hold = {.lock = -1};
    if (choice->complete)
        return open_path(choice->path, NULL, given, true, out, err);
    int rc = psti_depot_catalog_open(choice, &catalog, err);
    if (rc < 0)
        return rc;
    snprintf(hold.near, sizeof hold.near, "%s", choice->path);
    const psti_catalog *before = psti_catalog_use(psti_depot_catalog_of(catalog));
    rc = open_far(choice->url, &hold, given, out, err);
    psti_catalog_use(before);
    psti_depot_catalog_close(catalog);
    if (rc == 0)
        know_arrays(*out);
    return rc;
}

/* The folder of a dataset in a depot that an engine keeps: 1 when that has listed it. */
static int ask_engine(const char *path, psti_dataset **out, pst_error *err)
{
    char revision[PST_REVISION_BYTES];
    const int set = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (set < 0)
        return 0;
    const int rc =
        psti_depot_look_in(set, revision) == -ENOTDIR ? 0 : remote_dataset(path, set, out, err);
    close(set);
    return rc;
}

int pulled_open(const char *path, const pst_dataset_options *given, psti_dataset **out,
                pst_error *err)
{
    const char *address = getenv("PENSTOCK_ENGINE");
    const int rc = address && *address && path && *path ? ask_engine(path, out, err) : 0;
    return rc != 0 ? rc < 0 ? rc : 0 : open_path(path, NULL, given, true, out, err);
}

int psti_pulled_open_at(const psti_place *at, const pst_dataset_options *given, psti_dataset **out,
                        pst_error *err)
{
    return open_path(at->path, at, given, false, out, err);
}
