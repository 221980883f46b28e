/* SPDX-License-Identifier: Apache-2.0
 * What a dataset from the caller's own list of files keeps in place of keys and members. Such a
 * list may have millions of entries beside the caller's own copy of it, so little is kept for each:
 * its path (paths.h), 4 bytes once its file was looked at, and 8 more where identities are asked
 * for. Private to the source room. */
#ifndef PSTI_SOURCE_LISTED_H
#define PSTI_SOURCE_LISTED_H

#include "source/paths.h"
#include "source/source_priv.h"

/* Labels: a list by folders has few runs of them. */
typedef struct psti_run {
    int64_t first; /* the sample it begins with */
    int64_t label;
} psti_run;

/* Consistency: paths and runs are fixed after building; the rest is guarded by the dataset's lock,
 * but labels, once it is there, does not change and is found without. Arrays begin as untouched
 * zeros, so what is not used costs nothing. */
typedef struct psti_listed {
    psti_paths paths;
    psti_run *run; /* ascending; NULL: labels stand one by one, or there are none */
    size_t runs, run_cap;
    int64_t *_Atomic labels; /* of all samples; NULL: there are none, or nobody asked for them */
    uint32_t *length;        /* bytes of the file + 1; 0: not looked at */
    uint64_t *version; /* of time, inode and size, 0: not known; NULL: nobody asks for identities */
    char **shown;      /* keys that were asked for as text that stays; NULL: none was */
} psti_listed;

/* All paths are there: makes room for what is known of each file. 0 or -ENOMEM. */
int psti_listed_make_room(psti_listed *listed);
void psti_listed_free(psti_listed *listed, int64_t count);
uint64_t psti_listed_bytes(const psti_listed *listed, int64_t count);

/* The label of a sample; there are labels. */
const int64_t *psti_listed_label(const psti_listed *listed, int64_t id);
/* Adds the label of the next sample, number id. 0 or -ENOMEM. */
int psti_listed_add_label(psti_listed *listed, int64_t id, int64_t label);
/* All labels are there: many short runs are written out. 0 or -ENOMEM. */
int psti_listed_settle_labels(psti_listed *listed, int64_t count);

/* All of these: the caller holds the dataset's lock. */
bool psti_listed_seen_locked(const psti_dataset *data, int64_t id);
uint64_t psti_listed_length_locked(const psti_dataset *data, int64_t id); /* 0: not seen */
/* All labels one by one, kept from now on; NULL when memory is short, or there are none. */
const int64_t *psti_listed_labels_locked(psti_dataset *data);
/* The key, kept from now on; NULL when memory is short. */
const char *psti_listed_show_locked(psti_dataset *data, int64_t id);
psti_id128 psti_listed_identity_locked(const psti_dataset *data, int64_t id);
/* -EAGAIN where the file was not looked at. */
int psti_listed_extent_locked(const psti_dataset *data, int64_t id, psti_extent *out);

/* The file as it is now. 0 or -errno; its kind is not looked at. */
int psti_listed_stamp(const psti_dataset *data, int64_t id, psti_stamp *out);
/* Takes a stamp over: 1 = it had changed, 0 = not, -EFBIG. */
int psti_listed_take_locked(psti_dataset *data, int64_t id, const psti_stamp *now);
/* What a version is made of; never 0. */
uint64_t psti_stamp_version(const psti_stamp *stamp);

#endif
