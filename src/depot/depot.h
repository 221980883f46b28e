/* SPDX-License-Identifier: Apache-2.0
 * Datasets on local disk that were pulled from somewhere else, with revisions. The public face is
 * penstock/datasets.h; here is what other rooms need: holding a revision while it is read, and the
 * rule by which revisions make way. Any thread. */
#ifndef PSTI_DEPOT_DEPOT_H
#define PSTI_DEPOT_DEPOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

/* ---- reading (use.c) ------------------------------------------------------------------------- */

/* Whether text is penstock://NAME[@REVISION]. */
bool psti_is_depot_url(const char *text);

/* A revision that is being read: it is not evicted meanwhile. The kernel lets go of it with the
 * process. */
typedef struct psti_depot_hold {
    int lock;                  /* -1 = nothing is held */
    char path[PST_PATH_BYTES]; /* its folder; empty when a part of it is read */
} psti_depot_hold;

/* For penstock://NAME[@REVISION], and for a folder that a pull made: holds it, counts one use if it
 * counts, and tells the folder with its files. Any other path: 0, nothing is held and path is
 * empty. A name whose pull is not complete: 0, nothing is held, and path is the URL where it comes
 * from. -ENOENT: nothing of that name was pulled. */
int psti_depot_hold_path(const char *path, bool counts, psti_depot_hold *out, pst_error *err);
void psti_depot_let_go(psti_depot_hold *hold); /* nothing held is fine */

/* As pst_datasets, without reading the list of every object: bytes_own is an upper bound. */
int psti_depot_list(const char *dir, pst_revision **out, size_t *count, pst_error *err);

/* ---- what readers know of its files (mend.c) ---------------------------------------------------
 */

/* The objects of a revision, by their paths below its folder. */
typedef struct psti_depot_book psti_depot_book;
/* -EPERM: somebody else could have written it. */
int psti_depot_book_open(const char *path, psti_depot_book **out, pst_error *err);
void psti_depot_book_close(psti_depot_book *book); /* NULL is fine */
/* Whether it came from a bucket, so that its etags say what it is anywhere. */
bool psti_depot_book_far(const psti_depot_book *book);
/* user is the book. -ENOENT for a file that is not of the revision. The text is the book's. */
int psti_depot_book_etag(void *user, const char *path, uint64_t size, const char **etag);
int psti_depot_book_sum(void *user, const char *path, uint64_t size, uint32_t *crc);
/* Files that were not asked for since the book was opened and are not there are brought again: how
 * many. Waits. */
int psti_depot_book_complete(psti_depot_book *book, const char *path, pst_error *err);
/* Brings one file of the revision in that folder again, unless it is whole by now. Waits. */
int psti_depot_mend(const char *path, const char *key, pst_error *err);

/* ---- the rule (score.c): pure functions -------------------------------------------------------
 */

/* What is evicted or stays as one: a revision, or a part of a large one. */
typedef struct psti_depot_unit {
    uint64_t bytes;   /* that its going would free */
    double uses;      /* as psti_depot_used counts them */
    int64_t last_s;   /* when that was counted */
    double refetch_s; /* seconds that fetching it again takes, as measured */
    bool held;        /* pinned or in use: stays */
} psti_depot_unit;

/* Uses decay by half every 24 hours; a clock that was set back takes nothing away. */
double psti_depot_decayed(double uses, int64_t last_s, int64_t now_s);
/* The count after one more use. */
double psti_depot_used(double uses, int64_t last_s, int64_t now_s);
double psti_depot_score(const psti_depot_unit *unit, int64_t now_s);
/* Marks what has to go so that at least need bytes become free: the lowest scores first, and then
 * those spared again, the highest first, that need not go after all. Returns the bytes that become
 * free; less than need when all that may go is not enough, and then nothing is marked. order is
 * room for count numbers. */
uint64_t psti_depot_choose(const psti_depot_unit *units, size_t count, uint64_t need, int64_t now_s,
                           uint32_t *order, bool *goes);

#endif
