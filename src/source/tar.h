/* SPDX-License-Identifier: Apache-2.0
 * One scanned tar shard: which samples it holds and where their members lie. Private to the source
 * room. */
#ifndef PSTI_SOURCE_TAR_H
#define PSTI_SOURCE_TAR_H

#include <stdint.h>

#include "penstock.h"
#include "source/crew.h"
#include "source/far.h"
#include "source/names.h"
#include "source/pool.h"

typedef struct psti_tar_member {
    uint64_t ext;    /* in names: what follows the first dot, in lower case */
    uint64_t offset; /* of the bytes */
    uint64_t length;
    uint64_t text; /* in names: the content, for cls and json; else PSTI_TAR_NO_TEXT */
} psti_tar_member;
#define PSTI_TAR_NO_TEXT UINT64_MAX

typedef struct psti_tar_sample {
    uint64_t first; /* number of its first member; the others follow */
    uint32_t members;
} psti_tar_sample;

/* Filled by one crew thread, read afterwards. */
typedef struct psti_tar_scan {
    psti_work work;
    int root;                   /* the opener's */
    const char *path;           /* beneath root */
    const struct psti_far *far; /* the opener's; then stamp is set before the scan. NULL: a file */
    char etag[PSTI_ETAG_ROOM];  /* far: as the server gave it */
    const psti_guard *guard;    /* of a pulled shard; or NULL */
    void *guard_user;
    psti_stamp stamp;
    psti_strings names;
    psti_tar_sample *samples;
    uint64_t *stems; /* one a sample, in names */
    size_t sample_count, sample_cap, stem_cap;
    psti_tar_member *members;
    size_t member_count, member_cap;
    uint64_t ignored; /* members without an extension, hidden ones */
} psti_tar_scan;

/* Reads the headers of a shard. 0, or an error that names shard and offset. */
int psti_tar_scan_run(psti_tar_scan *scan, pst_error *err);
void psti_tar_scan_fini(psti_tar_scan *scan);

#endif
