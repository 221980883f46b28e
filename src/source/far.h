/* SPDX-License-Identifier: Apache-2.0
 * Datasets that lie in a bucket or on a web server. Keys of samples are relative to a prefix, as
 * they are relative to a root directory elsewhere; what the file system says of a file (time and
 * inode) is what the server says of an object: its etag. Private to the source room. */
#ifndef PSTI_SOURCE_FAR_H
#define PSTI_SOURCE_FAR_H

#include "net/net.h"
#include "source/source_priv.h"
#include "source/tree.h"

typedef struct psti_far {
    psti_bucket *bucket;
    char *prefix; /* of every key: "" or ends in '/' */
    size_t top;   /* bytes of it when it was listed: a manifest may name a folder below */
    bool lists;   /* a bucket; a web server cannot be asked what it has */
} psti_far;

/* prefix is copied, bucket referenced. NULL when memory is short. */
psti_far *psti_far_new(psti_bucket *bucket, const char *prefix, size_t len, bool lists);
void psti_far_free(psti_far *far); /* NULL is fine */
/* The prefix of a folder below. 0 or -ENOMEM. */
int psti_far_enter(psti_far *far, const char *folder);

/* Room for prefix and path together. */
enum { PSTI_FAR_KEY = 2 * PSTI_KEY_MAX };

/* Whom a thread asks that opens a dataset and waits for the bucket: the caller's progress, with
 * what was found so far (NULL: nothing is counted). Lives as long as the watch does. */
typedef struct psti_far_watch {
    const pst_dataset_options *opts;
    const uint64_t *found;
} psti_far_watch;
/* Returns whom it asked before, for psti_net_watch_set. */
psti_net_watch psti_far_watch_set(psti_far_watch *watch);

/* ---- etags ----------------------------------------------------------------------------------- */

/* Most are 32 digits in quotes, which take 16 bytes: those stand in the places of time and inode.
 * Others are kept as text, and the second word says so; digits whose second word would be one of
 * these are kept as text, too. */
#define PSTI_ETAG_TEXT   UINT64_MAX       /* at this offset of the names */
#define PSTI_ETAG_LATE   (UINT64_MAX - 1) /* in memory of its own, see psti_late_etag */
#define PSTI_ETAG_UNSEEN (UINT64_MAX - 2) /* nobody asked for it yet */

typedef struct psti_etag {
    uint64_t a, b;
} psti_etag;

/* False: it must be kept as text. */
bool psti_etag_pack(const char *text, psti_etag *out);
/* The same, and text goes to the names. 0 or -ENOMEM. */
int psti_etag_keep(const char *text, psti_strings *names, psti_etag *out);
/* As the server gave it; "" = it gave none. room is used for those that were packed. */
const char *psti_etag_show(const psti_strings *names, psti_etag etag, char room[PSTI_ETAG_ROOM]);

/* The text of two words that hold digits. */
void psti_etag_render(uint64_t a, uint64_t b, char room[PSTI_ETAG_ROOM]);

/* An etag that came after the dataset was built, when its names stay where they are. */
typedef struct psti_late_etag {
    struct psti_late_etag *next;
    char text[];
} psti_late_etag;

/* ---- listing (far_tree.c) -------------------------------------------------------------------- */

/* What the bucket holds below the prefix, as a tree: sample files, tar files, transcripts, and the
 * id lists of splits/. NULL with err filled. */
psti_tree *psti_far_tree(const psti_far *far, const pst_dataset_options *opts, const char *url,
                         pst_error *err);
/* A tree of one file, which lies directly below the prefix, and of what splits/ holds beside it. */
psti_tree *psti_far_tree_of_one(const psti_far *far, const pst_dataset_options *opts,
                                const char *url, const psti_object *file, pst_error *err);
/* NULL: there is none. */
const psti_entry *psti_far_find(const psti_tree *tree, const char *path);
/* Asks what members whose paths are known look like; their etags go to the dataset's names. s3: by
 * one listing; others are looked at when they are read. */
int psti_far_look_all(psti_dataset *data, const psti_far *far, const pst_dataset_options *opts,
                      psti_missing *out, pst_error *err);

/* ---- reading (far.c) ------------------------------------------------------------------------- */

/* The whole of an object that was listed, in new memory with a terminator behind it; at most `most`
 * bytes, else -EFBIG. The error says what happened to it. */
int psti_far_read(const psti_opening *o, const char *path, uint64_t most, char **text, size_t *len,
                  pst_error *err);
/* A stretch of one; path as it was listed. */
int psti_far_read_at(const psti_far *far, const char *path, const char *etag, uint64_t size,
                     uint64_t offset, void *buf, size_t len, pst_error *err);
/* Asks for size and etag of a sample's members that nobody asked for before. 0 or why not. */
int psti_far_see(psti_dataset *data, const psti_far *far, int64_t id);
/* The same for all samples, by a crew. */
int psti_far_see_all(psti_dataset *data, const psti_far *far, const pst_dataset_options *opts,
                     psti_missing *out, pst_error *err);

#endif
