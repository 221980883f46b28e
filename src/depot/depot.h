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
    int lock;                   /* -1 = nothing is held */
    char path[PST_PATH_BYTES];  /* its folder; empty when something else in it is read */
    bool part;                  /* what was named lies in that folder, and is to be opened itself */
    char below[PST_PATH_BYTES]; /* then: the folder that keys are relative to; "" or ends in '/' */
    char near[PST_PATH_BYTES];  /* of one that is not complete: what there is of it; else empty */
} psti_depot_hold;

/* For penstock://NAME[@REVISION], and for a folder that a pull made: holds it, counts one use if it
 * counts, and tells the folder with its files. Any other path: 0, nothing is held and path is
 * empty. A name whose pull is not complete: 0, nothing is held, and path is the URL where it comes
 * from. -ENOENT: nothing of that name was pulled. */
int psti_depot_hold_path(const char *path, bool counts, psti_depot_hold *out, pst_error *err);
void psti_depot_let_go(psti_depot_hold *hold); /* nothing held is fine */

/* As pst_datasets, without reading the list of every object: bytes_own is an upper bound. */
int psti_depot_list(const char *dir, pst_revision **out, size_t *count, pst_error *err);

/* ---- for whoever keeps a depot for others (tend.c) ---------------------------------------------
 */

/* Makes the folder where it is missing. */
int psti_depot_make(const char *dir, pst_error *err);
/* Makes DIR/NAME, the folder of a dataset, which all may read. */
int psti_depot_make_set(const char *dir, const char *name, pst_error *err);
/* Removes it, unless there is a revision in it or somebody pulls one. */
void psti_depot_drop_set(const char *dir, const char *name);
/* Its owner says where it comes from, each time that whoever keeps the depot is started: noted in
 * the folder, so that nobody takes the environment's word for it meanwhile. */
int psti_depot_mark_given(const char *dir, const char *name, bool given);
bool psti_depot_is_given(const char *dir, const char *name);
/* As pst_datasets_evict, also what is pinned. */
int psti_depot_evict(const char *dir, const char *spec, uint64_t *freed, pst_error *err);
/* Which dataset's folder that is; -ENOENT: none of this depot. */
int psti_depot_name_set(const char *dir, uint64_t device, uint64_t inode,
                        char name[PST_DATASET_NAME_BYTES]);

/* A revision as it can be read at this moment. */
typedef struct psti_depot_choice {
    char revision[PST_REVISION_BYTES];
    bool complete;
    char path[PST_PATH_BYTES]; /* complete: the folder with its files; else that of hold.near */
    char url[1024];            /* where it comes from */
} psti_depot_choice;
/* revision: its hash, or "" = the latest complete one, else the one that is being pulled, else one
 * that is there in part. -ENOENT: there is none. */
int psti_depot_choose_revision(const char *dir, const char *name, const char *revision,
                               psti_depot_choice *out, pst_error *err);
/* Whether an open folder is that of a dataset, and which complete revision in it is meant: the one
 * that $PENSTOCK_REVISION names, if it is there, else the latest. 0; -ENOENT: it is one, and none
 * is complete; -ENOTDIR: it is none. */
int psti_depot_look_in(int set, char revision[PST_REVISION_BYTES]);

/* Objects of such a revision that is not complete, as it was listed: for psti_catalog_use. */
typedef struct psti_depot_catalog psti_depot_catalog;
int psti_depot_catalog_open(const psti_depot_choice *choice, psti_depot_catalog **out,
                            pst_error *err);
void psti_depot_catalog_close(psti_depot_catalog *c); /* NULL is fine */
const struct psti_catalog *psti_depot_catalog_of(const psti_depot_catalog *c);

/* ---- what readers know of its files (keeper.c, mend.c) ----------------------------------------
 */

/* Bytes of a block that has a checksum of its own; the last one of a file may be shorter. */
enum { PSTI_DEPOT_BLOCK = 16 << 10 };

/* A revision that is read: its objects, by their paths below its folder, the checksums of their
 * blocks, and whoever brings again what is gone or damaged. Any thread, but for what is said. */
typedef struct psti_depot_keeper psti_depot_keeper;
/* path: the folder with its files. -EPERM: somebody else could have written it. */
int psti_depot_keeper_open(const char *path, psti_depot_keeper **out, pst_error *err);
void psti_depot_keeper_close(psti_depot_keeper *k); /* NULL is fine */

/* Until psti_depot_keeper_rest its list of objects is there, and what follows may be asked. */
/* Whether it came from a bucket, so that its etags say what it is anywhere. */
bool psti_depot_keeper_far(const psti_depot_keeper *k);
/* Whether its blocks have checksums: those of what was pulled earlier have none. */
bool psti_depot_keeper_has_blocks(const psti_depot_keeper *k);
/* user is the keeper. -ENOENT for a file that is not of the revision. The text is the keeper's. */
int psti_depot_keeper_etag(void *user, const char *path, uint64_t size, const char **etag);
/* Of a whole file; not from several threads. */
int psti_depot_keeper_sum(void *user, const char *path, uint64_t size, uint32_t *crc);
/* Number of its first block, for psti_depot_keeper_blocks. -ENOENT as well: they have none. */
int psti_depot_keeper_first(void *user, const char *path, uint64_t size, uint64_t *first);
/* Files below that folder that were not asked for by their sum and are not there are brought again,
 * and so are those of which whole says that all of it is to be compared, when they are damaged: how
 * many. Waits. Not from several threads. */
int psti_depot_keeper_complete(psti_depot_keeper *k, const char *below,
                               bool (*whole)(const char *path), pst_error *err);
/* The list is let go, until something has to be brought again. */
void psti_depot_keeper_rest(psti_depot_keeper *k);

/* Checksums of blocks that follow each other. */
int psti_depot_keeper_blocks(psti_depot_keeper *k, uint64_t first, size_t count, uint32_t *out);
/* Brings a file again of which that part is gone or damaged, unless it is whole by now: as little
 * of it as is damaged. 1 = something was fetched. Waits. */
int psti_depot_keeper_mend(psti_depot_keeper *k, const char *path, uint64_t offset, uint64_t length,
                           pst_error *err);

/* ---- reading while it is pulled (near.c) -------------------------------------------------------
 */

/* Objects of a revision that is being pulled which are there already. Any thread. */
typedef struct psti_depot_near psti_depot_near;
int psti_depot_near_open(const char *path, psti_depot_near **out); /* path: hold.near */
void psti_depot_near_close(psti_depot_near *n);                    /* NULL is fine */
/* The open folder in which the object's file is, by that path, and the number of its first block.
 * -ENOENT: it is not there yet, or is another one. */
int psti_depot_near_find(psti_depot_near *n, const char *path, uint64_t size, const char *etag,
                         uint64_t *first);
int psti_depot_near_blocks(psti_depot_near *n, uint64_t first, size_t count, uint32_t *out);

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
