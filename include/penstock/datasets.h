/* SPDX-License-Identifier: Apache-2.0
 * Datasets that were pulled from a bucket onto a local disk, with revisions. Part of penstock.h,
 * which includes it. dir is where they are kept; NULL = $PENSTOCK_DATASETS, or
 * $XDG_DATA_HOME/penstock/datasets. A dataset is opened by pst_dataset_open("penstock://NAME"),
 * or penstock://NAME@REVISION. */
#ifndef PENSTOCK_DATASETS_H
#define PENSTOCK_DATASETS_H

#ifndef PENSTOCK_H
#error "include penstock.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { PST_DATASET_NAME_BYTES = 65, PST_REVISION_BYTES = 33, PST_PATH_BYTES = 4096 };

/* One revision of a pulled dataset: a hash over the keys, sizes and etags of its objects. */
typedef struct pst_revision {
    char name[PST_DATASET_NAME_BYTES];
    char revision[PST_REVISION_BYTES];
    char url[1024];            /* where it came from */
    char path[PST_PATH_BYTES]; /* the folder with its files */
    uint8_t complete;          /* 0: a pull was begun and not finished, or parts were evicted */
    uint8_t latest;            /* what the name alone means */
    uint8_t pinned;            /* never evicted */
    uint8_t in_use;            /* some process has it open */
    uint8_t pulling;           /* a pull of it runs */
    uint8_t partial;           /* not complete: as much of it as there was room for */
    uint64_t objects, objects_done;
    uint64_t bytes;      /* of all its objects */
    uint64_t bytes_here; /* of them, those of objects that are there */
    uint64_t bytes_own;  /* of them, those that no other revision shares by hard links */
    double refetch_s;    /* measured seconds that pulling it again would take */
    double uses;         /* how often it was opened, halved every 24 hours */
    int64_t last_used_s; /* since 1970; 0 = never */
} pst_revision;

typedef struct pst_pull_progress {
    uint64_t objects, objects_done;
    uint64_t bytes, bytes_done; /* of all objects; there, in whatever way */
    uint64_t bytes_linked;      /* of bytes_done: from another revision, by hard links */
    uint64_t bytes_fetched;     /* by this call */
    uint64_t objects_bad;       /* found damaged or gone, and fetched again */
    double seconds;
    char revision[PST_REVISION_BYTES];
} pst_pull_progress;

/* Why a pull failed, for programs. */
typedef struct pst_pull_failure {
    char reason[16]; /* no_space, credentials, not_found, unreachable, changing, gone (the bucket
                        holds another revision than was asked for), empty, damaged, io, stopped,
                        other; "" when it did not fail */
    uint64_t needed_bytes, free_bytes; /* no_space: needed, and free without evicting anything */
} pst_pull_failure;

typedef struct pst_pull_options {
    size_t size;          /* sizeof(pst_pull_options) */
    const char *dir;      /* (NULL = the default) */
    const char *revision; /* "latest", or the hash of one, or its first 8 digits and more (NULL =
                             latest) */
    int pin;              /* 1 = never evict it (0..1; 0) */
    int connections;      /* objects fetched at a time (1..256; 0 = 16) */
    int check;            /* 1 = compare the bytes of every file that is there already with the
                             checksum that was noted when it came (0..1; 0 = sizes only) */
    int opaque_etags;     /* 1 = etags of 32 hex digits are no MD5 of the content, as in buckets
                             that encrypt with keys of their own (0..1; 0) */
    int dry;     /* 1 = list and name the revision, fetch nothing; needs no room (0..1; 0) */
    int partial; /* 1 = when not all of it fits, as many whole objects as do; the others are read
                    from the bucket (0..1; 0) */
    pst_pull_failure *failure; /* gets why it failed (NULL = not asked for) */
    /* Called several times a second while it runs, from the calling thread; a non-zero answer
     * stops it (-ECANCELED). What came stays for the next time. */
    int (*progress)(const pst_pull_progress *now, void *user);
    void *user;
} pst_pull_options;

PST_API void pst_pull_options_init(pst_pull_options *opts);
/* Brings a copy of what lies below url (s3://…, one object of http(s)://…, a folder) to
 * DIR/NAME/REVISION/data. url NULL = where it came from before. Resumes what an earlier call left,
 * links what another revision has, makes room first, verifies, and shows the revision when all of
 * it is there. A complete one is looked over: what is missing or damaged is fetched again. opts
 * and out may be NULL. -EBUSY when another pull of that name runs, -ENOSPC when there is no room,
 * PST_ECHANGED when the bucket holds another revision than was asked for. */
PST_API int pst_pull(const char *name, const char *url, const pst_pull_options *opts,
                     pst_revision *out, pst_error *err);

/* All revisions, by name, newest first; *out is malloc'ed (pst_free). */
PST_API int pst_datasets(const char *dir, pst_revision **out, size_t *count, pst_error *err);
/* One of them: NAME, NAME@REVISION or penstock:// before either. Complete ones only. */
PST_API int pst_datasets_find(const char *dir, const char *spec, pst_revision *out, pst_error *err);
/* Removes NAME@REVISION, or all revisions of NAME. -EBUSY for what is pinned, in use or being
 * pulled. *freed: bytes (may be NULL). */
PST_API int pst_datasets_evict(const char *dir, const char *spec, uint64_t *freed, pst_error *err);
/* Evicts what is worth least, until at most bytes are taken: uses times the seconds that fetching
 * it again takes. Never what is pinned or in use; -EBUSY when that is too much. */
PST_API int pst_datasets_fit(const char *dir, uint64_t bytes, uint64_t *freed, pst_error *err);
PST_API int pst_datasets_pin(const char *dir, const char *spec, int pin, pst_error *err);

typedef struct pst_datasets_limits {
    uint64_t capacity; /* bytes that all datasets may take (0 = what the file system has) */
    double high;       /* a pull that would bring them above this share evicts … (0..1; 0.95) */
    double low;        /* … until they are at this one, if it can (0..high; 0.85) */
    uint64_t used;     /* bytes taken now, reserved ones included; not set by the caller */
    uint64_t total;    /* capacity, or what the file system has where that is less; not set … */
    uint64_t free;     /* that one more pull could have without evicting anything; not set … */
} pst_datasets_limits;
/* set may be NULL: nothing is changed. out may be NULL. */
PST_API int pst_datasets_limit(const char *dir, const pst_datasets_limits *set,
                               pst_datasets_limits *out, pst_error *err);

#ifdef __cplusplus
}
#endif
#endif
