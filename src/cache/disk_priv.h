/* SPDX-License-Identifier: Apache-2.0
 * What the files of the disk tier share. */
#ifndef PSTI_CACHE_DISK_PRIV_H
#define PSTI_CACHE_DISK_PRIV_H

#include <pthread.h>
#include <sys/types.h>

#include "cache/disk.h"

/* ---- the index (disk_index.c) ---------------------------------------------------------------- */

/* What is known of a file; all of it is in its name but stamp and ready. 24 bytes, and the table is
 * at least 7/16 full once it has grown: at most 55 bytes an entry. */
typedef struct disk_entry {
    psti_id128 id; /* hash of the key */
    uint64_t size : 36;
    uint64_t tag : 16;   /* of its owner */
    uint64_t stamp : 10; /* the period in which it was last found or put */
    uint64_t found : 1;  /* by this process, so it is of use whatever its tag says */
    uint64_t ready : 1;  /* written */
} disk_entry;

typedef struct disk_index {
    disk_entry *slot; /* open addressing; size 0 = empty */
    size_t slots, count;
    uint64_t bytes; /* in whole blocks */
} disk_index;

static const uint64_t DISK_ENTRY_MOST = ((uint64_t)1 << 36) - 1;
enum { DISK_BLOCK = 4096 };
static inline uint64_t disk_blocks(uint64_t size)
{
    return (size + DISK_BLOCK - 1) & ~(uint64_t)(DISK_BLOCK - 1);
}

psti_id128 disk_id(const psti_cache_key *key);
disk_entry *index_find(const disk_index *index, psti_id128 id);
/* NULL when memory is short. The id is not there yet. */
disk_entry *index_add(disk_index *index, psti_id128 id, uint64_t size, uint16_t tag);
void index_remove(disk_index *index, disk_entry *entry);
/* One drawn at random; NULL when there is none. */
disk_entry *index_draw(const disk_index *index, uint64_t *random);
void index_clear(disk_index *index);

/* ---- files (disk_files.c) ---------------------------------------------------------------------
 */

/* The directory. Nobody but the tier's thread uses it beside removing, except while opening. */
typedef struct disk_files {
    const char *path;
    int dir;              /* what others read beneath; once open it keeps its number */
    int books;            /* DIR/books: bytes in use, of all processes; locked while looked at */
    pthread_mutex_t lock; /* guards the use of books inside this process; a leaf */
    uint64_t next_number; /* of the next temporary name */
} disk_files;

/* "xx/…": everything that is known of the entry. */
void disk_name(const disk_entry *entry, char out[PSTI_DISK_NAME]);
bool disk_name_parse(const char *folder, const char *name, disk_entry *out);
/* 0; -errno; refused: err says why the user is to decide, and the answer is negative. */
int files_open(disk_files *files, bool *refused, pst_error *err);
/* Fills the index from the directory; removes what a killed process left. */
int files_scan(disk_files *files, disk_index *index);
void files_close(disk_files *files);
bool files_gone(const disk_files *files); /* the directory was removed */
/* Sets aside so many bytes of the quota, or gives them back (negative). 0, 1 when the quota has no
 * room (nothing is set aside), or -errno. */
int files_count(disk_files *files, int64_t bytes, uint64_t quota);
/* 0, 1 when the file was there already, or -errno; then nothing is left of it. */
int files_write(disk_files *files, const disk_entry *entry, const uint8_t *packed);
/* Whether it was this call that removed it. */
bool files_remove(disk_files *files, const disk_entry *entry);

/* ---- the queue (disk_queue.c) ------------------------------------------------------------------
 */

/* Entries on their way to the disk, in a ring of memory, in order. The tier's lock guards it;
 * packed bytes are written and read without. */
typedef struct disk_item {
    disk_entry entry;
    size_t room; /* bytes to the next item */
    bool packed; /* its bytes are there */
    bool skip;   /* nothing: the rest of the ring was too short */
} disk_item;

typedef struct disk_queue {
    uint8_t *base;
    size_t bytes;      /* of the ring */
    size_t head, tail; /* the first item; behind the last one */
    size_t count;
} disk_queue;

int queue_init(disk_queue *queue, size_t bytes);
void queue_fini(disk_queue *queue);
/* Whether an entry of so many bytes could ever be queued. */
bool queue_fits(const disk_queue *queue, size_t bytes);
disk_item *queue_push(disk_queue *queue, size_t bytes); /* NULL: not now */
uint8_t *queue_bytes(disk_item *item);
disk_item *queue_first(disk_queue *queue); /* NULL: it is empty */
void queue_pop(disk_queue *queue);
size_t queue_used(const disk_queue *queue);

/* ---- the tier (disk.c) ------------------------------------------------------------------------
 */

enum { DISK_OWNERS = 64, DISK_PERIODS = 4, DISK_DOOMED = 64 };

struct psti_disk {
    psti_disk_spec spec; /* fixed */
    disk_files files;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards what follows; after cache.lock and pool.lock */
    pthread_cond_t work;  /* the thread waits */
    pthread_cond_t room;  /* who puts waits, and who flushes */
    disk_index index;
    disk_queue queue;
    bool stopping;
    bool off, told;      /* told: since it last worked */
    bool crowded;        /* nothing is written: the disk has no space */
    uint64_t crowded_ns; /* when that was last so; 0 = never */
    uint64_t retry_ns;   /* off, crowded: when it is tried again */
    bool behind;         /* somebody waited in vain: nobody waits until half is written */
    bool full;           /* nothing makes way; looked at again when something changes */
    uint64_t random;
    struct {
        uint16_t tag;
        int users;
    } owner[DISK_OWNERS];
    int owners;       /* DISK_OWNERS + 1: too many to tell apart */
    uint64_t horizon; /* finds */
    uint64_t finds, period_finds;
    uint32_t period;
    int bad_reads;                  /* since something was written last */
    uint64_t done;                  /* items that left the queue */
    disk_entry doomed[DISK_DOOMED]; /* files that the thread is to remove */
    int doomed_count;
    bool removing;         /* one of them, now */
    psti_disk_stats stats; /* entries and bytes are the index's */
};

#endif
