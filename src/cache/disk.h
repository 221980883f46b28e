/* SPDX-License-Identifier: Apache-2.0
 * The disk tier: entries of the cache as files in a directory, under a quota, found again after a
 * restart. Several processes may share the directory; who deletes a file makes a miss for the
 * others, no more.
 *
 * Finding needs memory alone, reading is whoever asks's own business (an ordinary read of a file,
 * then psti_envelope_open), writing is a thread's. Whatever the disk does, nothing here fails: an
 * error turns the tier off with one message, and after a minute it is tried again; a disk without
 * space is only not written to. Any thread. */
#ifndef PSTI_CACHE_DISK_H
#define PSTI_CACHE_DISK_H

#include "cache/envelope.h"
#include "penstock.h"

typedef struct psti_disk psti_disk;

typedef struct psti_disk_spec {
    char *dir;
    uint64_t bytes;    /* quota: what files take, in whole blocks of 4 KiB */
    uint64_t queue;    /* bytes of memory for what is to be written; larger entries are not kept */
    uint64_t retry_ns; /* after an error it is tried again after so long (0 = a minute) */
} psti_disk_spec;

enum { PSTI_DISK_LEAST = 1 << 20 }; /* bytes of a quota */
/* What is worth keeping: seconds that a byte takes on its way back, copied and compared; and how
 * many times the stored bytes a decoded form may take where they could be kept instead. */
#define PSTI_DISK_READ_BACK_S 0.5e-9
enum { PSTI_DISK_DECODED_TIMES = 3 };
/* "DIR:BYTES" with K, M, G, T (powers of 1024); dir is new memory (psti_free). 0 or -EINVAL. */
int psti_disk_parse(const char *text, psti_disk_spec *out, pst_error *err);
/* Makes the directory if there is none, and reads what is in it. Fails where the user is to decide:
 * a directory of somebody else, or one that others may write to, a name that is no directory, one
 * that cannot be made. Everything else turns the tier off. */
int psti_disk_open(const psti_disk_spec *spec, psti_disk **out, pst_error *err);
/* Writes what is queued; nobody may be using it. NULL is fine. */
void psti_disk_close(psti_disk *disk);

/* ---- finding --------------------------------------------------------------------------------- */

enum { PSTI_DISK_NAME = 64 };
/* A file beneath an open directory, which stays open as long as the tier does. */
typedef struct psti_disk_place {
    int dir;
    char name[PSTI_DISK_NAME];
    uint64_t size;
} psti_disk_place;

/* Whether it is there, as far as is known here. No system call. */
bool psti_disk_find(psti_disk *disk, const psti_cache_key *key, psti_disk_place *out);
/* Whether it is there or about to be written. */
bool psti_disk_has(psti_disk *disk, const psti_cache_key *key);
/* What was found could not be used: -errno of opening or reading it, or what is wrong with its
 * bytes. It is not found any more. */
void psti_disk_failed(psti_disk *disk, const psti_cache_key *key, int status);

/* ---- keeping --------------------------------------------------------------------------------- */

/* Whether putting an entry of so many packed bytes has a chance; cheap. */
bool psti_disk_wants(psti_disk *disk, const psti_cache_key *key, size_t packed);
/* Keeps a copy; the file is written later. What is there already stays. Waits for room in the queue
 * as long as the writer makes progress; else the entry is dropped. owner: entries of owners that
 * nobody uses make way first. */
void psti_disk_put(psti_disk *disk, const psti_cache_key *key, psti_id128 owner,
                   const psti_cache_content *content, const uint8_t *bytes);
/* An owner's entries are in use, or (false) no longer; calls are counted. */
void psti_disk_use(psti_disk *disk, psti_id128 owner, bool used);
/* After so many calls of psti_disk_find all that is in use was asked for: an entry that was not
 * may make way. UINT64_MAX: nobody knows. */
void psti_disk_horizon(psti_disk *disk, uint64_t finds);
/* Waits until what is queued was written or given up. For tests and for the end. */
void psti_disk_flush(psti_disk *disk);

typedef struct psti_disk_stats {
    uint64_t entries, bytes;   /* on the disk, as far as is known here */
    uint64_t limit;            /* the quota */
    uint64_t written, evicted; /* entries, by this process */
    uint64_t dropped;          /* not written: the disk was too slow, or the tier was off */
    uint64_t damaged;          /* found and not usable */
    uint64_t errors;           /* of the system's */
    bool off;
    bool crowded; /* the disk has no space: nothing is written */
} psti_disk_stats;
void psti_disk_stats_get(psti_disk *disk, psti_disk_stats *out);

#endif
