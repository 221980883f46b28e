/* SPDX-License-Identifier: Apache-2.0
 * The feed protocol: packets of a SOCK_SEQPACKET socket, native byte order (both ends are on one
 * machine), each with a head. A connection is one job:
 *
 *     client                                  daemon
 *     HELLO oldest, newest version        ->
 *                                         <-  WELCOME in the agreed one       or REFUSED
 *     LIST revision + folder (fd)         ->  of a pulled dataset, instead of what follows
 *                                         <-  LISTED + listing (fd)           or REFUSED
 *     OPEN revision + root, spec (fds)    ->
 *                                         <-  SEGMENT id, bytes + memfd, one for each of the ring
 *                                         <-  OPENED                          or REFUSED
 *     RESTART epoch [+ state (fd)]        ->  any time; what was sent before is void
 *     CREDIT n                            ->
 *                                         <-  BATCH segment, offset [+ memfd], SKIP, END, FAILED
 *     RELEASE segment                     ->
 *
 * Either end leaves by closing. HELLO and REFUSED keep their layout in all versions; all that comes
 * after them is in the version that was agreed on, the newest that both speak. Where a version has
 * more in a packet it has it at the end: what an older one leaves out reads as zeros. Private. */
#ifndef PSTI_SERVE_WIRE_H
#define PSTI_SERVE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

#define WIRE_MAGIC 0x46545350u /* "PSTF" */
/* A packet of another layout, or of a new kind, is another WIRE_VERSION; wire_size knows those down
 * to WIRE_OLDEST, which is at least the one before. 6: LIST, LISTED, and OPEN by a set's folder. 7:
 * facts behind a batch's statistics. */
enum {
    WIRE_OLDEST = 5,
    WIRE_VERSION = 7,
    WIRE_SETS = 6,
    WIRE_FACTS = 7,
    WIRE_FDS = 2,
    WIRE_AHEAD = 2
};

typedef struct wire_range { /* versions that one end speaks */
    uint16_t oldest, newest;
} wire_range;

typedef enum wire_kind {
    WIRE_HELLO = 1,
    WIRE_WELCOME,
    WIRE_REFUSED,
    WIRE_OPEN,
    WIRE_SEGMENT,
    WIRE_OPENED,
    WIRE_RESTART,
    WIRE_CREDIT,
    WIRE_BATCH,
    WIRE_SKIP,
    WIRE_END,
    WIRE_FAILED,
    WIRE_RELEASE,
    WIRE_LIST,
    WIRE_LISTED
} wire_kind;

typedef struct wire_head {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t generation; /* counts RESTARTs; packets of an older one are void */
    uint32_t bytes;      /* of the whole packet */
} wire_head;

typedef struct wire_hello { /* HELLO */
    wire_head head;
    uint32_t pid;    /* shown in lists, never relied on */
    uint32_t oldest; /* head.version is the newest that the client speaks; 0 = no other than that */
} wire_hello;

typedef struct wire_refused { /* REFUSED */
    wire_head head;
    int32_t code;     /* 0: of another version */
    uint32_t version; /* the daemon's newest */
    pst_error error;
} wire_refused;

typedef struct wire_welcome { /* WELCOME */
    wire_head head;
    uint32_t workers, cpus, io, io_depth;
    uint64_t memory_bytes, cache_bytes, may_have, disk_bytes;
    char cpu[16];
    char release[16]; /* PST_VERSION */
} wire_welcome;

enum { WIRE_DEPOT_ROOM = 40 }; /* a revision of a pulled dataset, 32 digits; "" = none */

/* LIST; fd: the folder of a dataset in the daemon's depot, open for reading, which is the right to
 * it. revision: the one that is meant; "" = as it comes. */
typedef struct wire_list {
    wire_head head;
    char depot_revision[WIRE_DEPOT_ROOM];
} wire_list;

typedef struct wire_listed { /* LISTED; fd: a dataset as bytes (sealed memfd) */
    wire_head head;
    uint64_t bytes;
    char depot_revision[WIRE_DEPOT_ROOM];
} wire_listed;

typedef struct wire_open { /* OPEN; fds: the dataset's directory, the spec (sealed memfd) */
    wire_head head;
    uint8_t revision[16];
    uint64_t spec_bytes;
    char depot_revision[WIRE_DEPOT_ROOM]; /* not "": the directory is that of a LIST */
} wire_open;

typedef struct wire_segment { /* SEGMENT; fd: a memfd of so many bytes */
    wire_head head;
    uint32_t id, reserved;
    uint64_t bytes;
} wire_segment;

typedef struct wire_opened { /* OPENED */
    wire_head head;
} wire_opened;

typedef struct wire_restart { /* RESTART; fd: a state (sealed memfd) if bytes > 0 */
    wire_head head;
    uint64_t epoch, bytes;
} wire_restart;

typedef struct wire_credit { /* CREDIT: so many more batches may come */
    wire_head head;
    uint32_t count, reserved;
    uint64_t wait_ns; /* that the client waited for the batch that it handed on */
} wire_credit;

enum {
    WIRE_ONCE = 1, /* the segment is gone once it is released */
    WIRE_COPY = 2  /* the client holds all it may: copy out and release at once */
};

/* What only the daemon can count: the fields of pst_job_stats that go over as they are. */
#define WIRE_COUNTS(X)                                                                             \
    X(warnings)                                                                                    \
    X(bytes_read)                                                                                  \
    X(peak_bytes)                                                                                  \
    X(fresh_batches)                                                                               \
    X(cache_hits)                                                                                  \
    X(cache_misses)                                                                                \
    X(cache_bytes)                                                                                 \
    X(cache_entries)                                                                               \
    X(preparations)                                                                                \
    X(shared_hits)                                                                                 \
    X(encoded_hits)                                                                                \
    X(evictions)                                                                                   \
    X(slow_samples)                                                                                \
    X(slow_parked)                                                                                 \
    X(slow_cutoff_ns)                                                                              \
    X(stragglers)                                                                                  \
    X(slow_early)                                                                                  \
    X(active_workers)                                                                              \
    X(prediction_error_ppm)                                                                        \
    X(disk_hits)                                                                                   \
    X(disk_misses)                                                                                 \
    X(disk_read_bytes)                                                                             \
    X(remote_hits)                                                                                 \
    X(remote_misses)                                                                               \
    X(remote_read_bytes)                                                                           \
    X(disk_entries)                                                                                \
    X(disk_bytes)                                                                                  \
    X(disk_written)                                                                                \
    X(disk_evicted)                                                                                \
    X(disk_damaged)                                                                                \
    X(disk_dropped)                                                                                \
    X(disk_errors)                                                                                 \
    X(disk_off)                                                                                    \
    X(remote_errors)                                                                               \
    X(remote_bytes_s)                                                                              \
    X(remote_left)                                                                                 \
    X(adopted)

typedef struct wire_stats {
#define WIRE_COUNT(name) uint64_t name;
    WIRE_COUNTS(WIRE_COUNT)
#undef WIRE_COUNT
    uint64_t form_entries[3], form_bytes[3];
    uint32_t ready_depth, stage_count;
    struct {
        uint64_t runs, total_ns;
    } stage[PST_STAGES_MAX];
    uint64_t read_away_ns; /* from WIRE_FACTS on */
    psti_feed_facts facts; /* the same; of some moment of late */
} wire_stats;

typedef struct wire_batch { /* BATCH; fd: the segment, if it is a new one */
    wire_head head;
    uint32_t segment, flags;
    uint64_t segment_bytes;
    uint64_t offset, bytes;
    uint64_t positions; /* ready order: where int64[slots] stand in the segment; negative: a pad */
    uint64_t epoch;
    int64_t steps, share_end;
    int32_t slots, pads;
    wire_stats stats;
} wire_batch;

typedef struct wire_skip { /* SKIP */
    wire_head head;
    uint64_t epoch;
    int64_t position, share;
    pst_error error;
} wire_skip;

typedef struct wire_end { /* END */
    wire_head head;
    uint64_t epoch;
} wire_end;

typedef struct wire_failed { /* FAILED: the job's error; ends the generation */
    wire_head head;
    pst_error error;
} wire_failed;

typedef struct wire_release { /* RELEASE */
    wire_head head;
    uint32_t segment, reserved;
} wire_release;

typedef union wire_packet {
    wire_head head;
    wire_hello hello;
    wire_refused refused;
    wire_welcome welcome;
    wire_open open;
    wire_list list;
    wire_listed listed;
    wire_segment segment;
    wire_opened opened;
    wire_restart restart;
    wire_credit credit;
    wire_batch batch;
    wire_skip skip;
    wire_end end;
    wire_failed failed;
    wire_release release;
} wire_packet;

/* A packet with the descriptors that came with it. The receiver owns them: wire_drop closes what
 * nobody took (wire_take). */
typedef struct wire_mail {
    wire_packet packet;
    int fds[WIRE_FDS];
    int fd_count;
} wire_mail;

/* What this process speaks. PENSTOCK_WIRE_VERSIONS=OLDEST-NEWEST claims another range: how a peer
 * of another release is tried. */
wire_range wire_speaks(void);
/* The newest that both speak; 0 = there is none. */
uint16_t wire_agree(wire_range mine, wire_range theirs);

size_t wire_size(int kind, uint16_t version); /* of a packet; 0 = there is no such */
void wire_init(wire_packet *packet, uint16_t version, int kind, uint32_t generation);
/* Never blocks and never raises a signal. 0, -EAGAIN, or -errno (-EPIPE: the other end left). */
int wire_send(int sock, const wire_packet *packet, const int *fds, int fd_count);
/* One packet of the version, checked for its form; 0 = none is agreed on yet, so that only a HELLO,
 * WELCOME or REFUSED may come. 0; -EAGAIN when there is none; -EPIPE at the end; -EPROTO when it is
 * none of ours. Descriptors have close-on-exec. */
int wire_receive(int sock, uint16_t version, wire_mail *mail);
/* The index-th descriptor becomes the caller's; -1 when there is none. */
int wire_take(wire_mail *mail, int index);
void wire_drop(wire_mail *mail);

void wire_stats_put(wire_stats *to, const pst_job_stats *from);
/* What the daemon counted takes the place of what stands there; the rest stays. */
void wire_stats_get(const wire_stats *from, pst_job_stats *to);

/* A sealed memfd with a copy of the bytes; an fd or -errno. */
int wire_blob(const char *name, const void *bytes, size_t size);
/* A copy of a sealed memfd's content: *out is psti_malloc'ed. Refuses anything that could change
 * while it is read (-EPROTO) and anything larger than most (-EFBIG). */
int wire_blob_read(int fd, size_t bytes, size_t most, uint8_t **out);

#endif
