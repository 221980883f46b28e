/* SPDX-License-Identifier: Apache-2.0
 * What the two ways of reading share. Private to the source room. */
#ifndef PSTI_SOURCE_READER_PRIV_H
#define PSTI_SOURCE_READER_PRIV_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/uio.h>

#include "source/source.h"

/* Largest piece of one system call; the kernel's own limit is a little below 2 GiB. */
#define PSTI_READ_PIECE (1u << 30)

/* Opens the extent's file, or takes the open shard, and compares it with the manifest. *fd must be
 * closed with psti_extent_close. 0, -errno or PST_ECHANGED; cached_only: -EAGAIN rather than wait
 * for a disk. */
int psti_extent_open(const psti_extent *at, bool cached_only, int *fd);
/* The fd alone, uncompared. */
int psti_extent_open_path(const psti_extent *at, bool cached_only);
/* The comparison alone, for an fd that was opened elsewhere. */
int psti_extent_check(const psti_extent *at, int fd);
/* Turns what opening answered into what a reader answers: a link where a file was means that it
 * changed. */
int psti_extent_open_error(int rc);
void psti_extent_close(const psti_extent *at, int fd);
/* Not blocking: a FIFO in the file's place must not hang us. */
enum { PSTI_OPEN_FLAGS = O_RDONLY | O_NONBLOCK | O_NOCTTY };

/* What is read for a part of an extent, compare.c: the part, and where the blocks of its file have
 * checksums also what its first and its last block have beside it. */
typedef struct psti_frame {
    uint64_t at; /* in the file */
    uint8_t *buf;
    uint64_t length, lead_bytes, trail_bytes; /* the part; before it; behind it */
    uint8_t *edges; /* room for what is before and behind; set by the caller where there is any */
} psti_frame;
enum { PSTI_EDGES_BYTES = 2 * PSTI_GUARD_BLOCK };
void psti_frame_set(psti_frame *f, const psti_extent *at, uint64_t offset, uint64_t length,
                    uint8_t *buf);
uint64_t psti_frame_bytes(const psti_frame *f);
/* Where the bytes from got on belong, at most cap of them: how many pieces. */
int psti_frame_rest(const psti_frame *f, uint64_t got, uint64_t cap, struct iovec out[3]);
/* Reads and compares. cached_only: -EAGAIN rather than wait for a disk. PST_ECHANGED as well when
 * the file ends before. */
int psti_read_frame(const psti_extent *at, int fd, psti_frame *f, bool cached_only);
/* 0, or PST_ECHANGED when a block is not what was pulled. */
int psti_frame_compare(const psti_frame *f, const psti_extent *at);

/* Buckets: reader_far.c. The part of a reader that sends requests; waits for them when it goes. */
struct psti_far_reader;
/* Takes a read that cannot be sent, since memory is short or there is no thread for it; tells its
 * owner later, from an I/O thread. */
typedef void (*psti_refuse)(void *arg, psti_read *read);
struct psti_far_reader *psti_far_reader_new(psti_refuse refuse, void *arg);
void psti_far_reader_free(struct psti_far_reader *far, bool forked);
void psti_far_submit(struct psti_far_reader *far, psti_read *read);
/* psti_reader_plug and psti_reader_unplug. */
void psti_far_plug(struct psti_far_reader *far);
void psti_far_unplug(struct psti_far_reader *far, bool calm);
void psti_far_cancel(struct psti_far_reader *far, psti_read *read);
/* psti_read_spans of an extent in a bucket; waits. */
int psti_far_spans(const psti_extent *at, const psti_span *span, uint8_t *buf);

/* A first-in, first-out list through psti_read.next. The owner locks. */
typedef struct psti_read_list {
    psti_read *first, *last;
} psti_read_list;
static inline void psti_read_list_push(psti_read_list *list, psti_read *read)
{
    read->next = NULL;
    if (list->last)
        list->last->next = read;
    else
        list->first = read;
    list->last = read;
}
static inline psti_read *psti_read_list_pop(psti_read_list *list)
{
    psti_read *read = list->first;
    if (read) {
        list->first = read->next;
        if (!list->first)
            list->last = NULL;
    }
    return read;
}

/* A backend. open gives NULL and *rc on failure; close drains, joins and frees. */
typedef struct psti_reader_ops {
    void *(*open)(int depth, int *rc);
    void (*submit)(void *self, psti_read *read);
    void (*close)(void *self, bool forked);
} psti_reader_ops;
extern const psti_reader_ops psti_reader_threads;
#ifdef PSTI_HAVE_URING
extern const psti_reader_ops psti_reader_uring;
/* Tests: everything through the ring, also what the kernel has at hand. */
void psti_reader_uring_ring_only(bool only);
#endif

#endif
