/* SPDX-License-Identifier: Apache-2.0
 * Datasets that were pulled onto a local disk: held while anybody reads them, with the identities
 * that they have in their bucket, each file compared with its checksum. On the thread that opens
 * them. */
#include <errno.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "depot/depot.h"
#include "engine/engine_priv.h"

static int mend(void *user, const char *path, pst_error *err)
{
    const psti_depot_hold *hold = user;
    return psti_depot_mend(hold->path, path, err);
}

static void let_go(void *user)
{
    psti_depot_let_go(user);
    psti_free(user);
}

static const psti_guard checked = {.sum = psti_depot_book_sum, .mend = mend, .free = let_go};
static const psti_guard only_held = {.mend = mend, .free = let_go};

/* The files' checksums and etags. Datasets of shards keep the identities that the file system gives
 * them: their members are not compared, and what is damaged must not go around as the bucket's. */
static int know_files(psti_dataset *data, psti_depot_hold *kept, psti_depot_book *book,
                      pst_error *err)
{
    int rc = psti_dataset_guard(data, &checked, kept, book);
    if (rc == 0 && psti_depot_book_far(book) && psti_dataset_is_guarded(data))
        rc = psti_dataset_take_etags(data, psti_depot_book_etag, book);
    if (rc == -ENOMEM)
        return psti_fail(err, rc, "dataset", kept->path, "out of memory");
    /* Files of another origin beside them: then all are what the file system says. */
    return psti_depot_book_complete(book, kept->path, err);
}

/* Takes the hold over, also when it fails. How many files had to be brought again, or negative. */
static int guard(psti_dataset *data, psti_depot_hold *hold, pst_error *err)
{
    psti_depot_book *book = NULL;
    psti_depot_hold *kept = psti_malloc(PSTI_MEM_ENGINE, sizeof *kept);
    if (!kept) {
        psti_depot_let_go(hold);
        return psti_fail(err, -ENOMEM, "dataset", hold->path, "out of memory");
    }
    *kept = *hold;
    pst_error why;
    psti_error_clear(&why);
    int rc = kept->path[0] ? psti_depot_book_open(kept->path, &book, &why) : -EPERM;
    if (rc == -EPERM) /* a part of one, or somebody else's: read as any other folder */
        return psti_dataset_guard(data, &only_held, kept, NULL);
    if (rc < 0) {
        let_go(kept);
        if (err)
            *err = why;
        return rc;
    }
    rc = know_files(data, kept, book, err);
    psti_depot_book_close(book);
    return rc;
}

int psti_pulled_guard(psti_dataset *data, const char *path, pst_error *err)
{
    psti_depot_hold hold;
    const int rc = psti_depot_hold_path(path, false, &hold, err);
    if (rc < 0 || hold.lock < 0)
        return rc;
    return guard(data, &hold, err);
}

int pulled_open(const char *path, const pst_dataset_options *given, psti_dataset **out,
                pst_error *err)
{
    pst_dataset_options o = *given;
    for (int round = 0;; round++) {
        psti_depot_hold hold;
        int rc = psti_depot_hold_path(path, round == 0, &hold, err);
        if (rc < 0)
            return rc;
        rc = psti_dataset_open(hold.path[0] ? hold.path : path, &o, out, err);
        if (rc < 0 || hold.lock < 0) {
            psti_depot_let_go(&hold);
            return rc;
        }
        rc = guard(*out, &hold, err);
        if (rc == 0 || (rc > 0 && round > 0))
            return 0;
        psti_dataset_unref(*out);
        if (rc < 0)
            return rc;
        o.refresh = 1; /* what was missing is there now: list it, too */
    }
}
