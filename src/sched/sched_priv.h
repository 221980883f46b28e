/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room share: the structures, and who guards what.
 *
 * One mutex, pool->lock, guards everything below that is not marked otherwise. It is held for
 * bookkeeping only: never while reading, decoding, copying pixels or waiting. A ring's own lock is
 * taken before pool->lock, never after it.
 *
 * The life of a sample: dispatch (a task with its reads), runnable (bytes are there), running (a
 * worker carries the plan out), placed (its slot is known and written) or bad. How it gets its slot
 * depends on the feed's way: FIXED   strict, dense, errors raise: the slot is fixed at dispatch
 *   CLAIM   ready, dense: the next free slot, at the moment the sample is finished
 *   QUEUE   strict with skips, or strict without a fixed shape: in share order, once every earlier
 * sample's fate is known HEAP    ready without a fixed shape: in order of completion With a fixed
 * shape a sample is written straight into its batch when its slot is known in time, else staged in
 * a record. Without one, records wait until the batch is complete and are then written once. */
#ifndef PSTI_SCHED_SCHED_PRIV_H
#define PSTI_SCHED_SCHED_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "cache/cache.h"
#include "cache/disk.h"
#include "core/clock.h"
#include "core/hist.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "sched/predict.h"
#include "sched/sched.h"

typedef struct task task;
typedef struct run run;
typedef struct record record;
typedef struct ring ring;
typedef struct group group;
typedef struct shelf shelf;
typedef struct ahead_entry ahead_entry;
typedef struct worker worker;

typedef enum way { FIXED, CLAIM, QUEUE, HEAP } way;

/* ---- batch blocks (block.c) --------------------------------------------------------------------
 */

/* Memory of a batch, see pages.c. */
typedef struct pages {
    uint8_t *base; /* NULL: none */
    size_t cap;    /* bytes that are there */
    bool used;     /* by an earlier batch: what is not written over is not zero */
} pages;

enum {
    PAGES_KEPT = 4,
    ALWAYS_FIELDS = 3,      /* id, key, valid */
    EXTRA_FIELDS = 4,       /* and where preparations are shared, their numbers */
    RING_MOST = 64 + 64 + 2 /* blocks of a ring: depth, leases, and those being filled */
};

/* Where the fields of a dense batch lie; made once a feed. */
typedef struct layout {
    int fields; /* outputs and what is added to them */
    pst_field field[PSTI_OUTPUTS_MAX + EXTRA_FIELDS];
    size_t bytes; /* of the whole block */
    bool dense;   /* every output has one shape */
} layout;

typedef enum block_state { BLOCK_FREE, BLOCK_FILLING, BLOCK_READY, BLOCK_LEASED } block_state;

struct pst_batch {
    ring *ring; /* NULL: a batch of no feed, see single.c */
    void (*release)(void *user, void *base, size_t bytes); /* a guest's; NULL = none */
    void *user;
    pst_batch *next; /* free list, ready list */
    uint8_t *base;
    size_t bytes, cap; /* of the batch; of the memory it lies in */
    block_state state;
    bool charged; /* its bytes are in the budget: one of feed->members */
    run *run;
    int64_t step;
    int slots;         /* that the batch will have */
    int placed;        /* slots given out */
    int filled;        /* slots written */
    uint64_t gathered; /* bytes of its records */
    int64_t share_end; /* share indices below it are delivered or skipped once this batch is */
    pst_error error;   /* of the lowest bad slot; code 0 = none */
    int error_slot;
    uint64_t epoch; /* once leased: what run->number and run->steps were */
    int64_t steps;
    /* per slot, `batch` of each */
    int64_t *ids, *positions;
    uint64_t *starts;
    uint64_t *numbers; /* of preparations; see group.c */
    uint8_t *valid;
    record **records; /* feeds without a fixed shape */
};

/* What outlives the feed as long as batches are leased. */
struct ring {
    pthread_mutex_t lock;  /* guards feed; taken before pool->lock */
    psti_feed *feed;       /* NULL once the feed is closed */
    atomic_int refs;       /* the feed and each leased batch; counter, the last one frees */
    pid_t pid;             /* of the process that made it: a forked child leaves it alone */
    psti_feed_hooks hooks; /* fixed */
};

/* ---- records: finished samples that wait for their slot (record.c) ----------------------------
 */

/* An output of a record, and where in the record it lies. */
typedef struct slice {
    psti_parcel parcel;
    size_t offset;
} slice;

struct record {
    record *next;
    psti_buf data;  /* all parcels, one after the other, each 64-aligned */
    pages pages;    /* instead of data: of a batch that has this sample alone where shapes vary; its
                       block takes them over */
    size_t charged; /* bytes counted in pool->staged */
    int64_t id, position, share;
    uint64_t start, number;
    bool valid;
    pst_batch *block; /* where it is to be written */
    int slot;
    slice out[]; /* one an output */
};

/* A share index whose fate is known while an earlier one's is not. */
typedef enum fate { FATE_OPEN = 0, FATE_STAGED, FATE_BAD } fate;
typedef struct cell {
    fate fate;
    record *record;
    pst_error *error; /* malloc'ed; bad samples only */
    int64_t position;
    bool valid;
} cell;

/* ---- run: one epoch of a feed (run.c)
 * ------------------------------------------------------------- */

struct run {
    run *next;
    psti_feed *feed;
    uint64_t number; /* the epoch */
    uint64_t serial; /* of the feed's runs that have begun: an epoch may begin again */
    psti_epoch *epoch;
    psti_deal *deal;
    int64_t steps, share, slots; /* of this rank: steps, real positions, slots to fill (without
                                    short: steps * batch) */
    int64_t base_prefix;         /* a resumed epoch began after [0, base_prefix) … */
    uint8_t *base;               /* … or after the positions of this bitmap */
    int64_t first_step;          /* steps taken before the resume */

    int64_t next_share;     /* next to dispatch */
    int64_t inflight;       /* dispatched, fate not known */
    int64_t outstanding;    /* dispatched, neither delivered nor bad */
    int64_t aside, held;    /* of these: its part of lanes.aside and lanes.held_count */
    int64_t placed;         /* slots given out */
    int64_t bad;            /* of the share's real samples */
    int64_t bad_pads;       /* of the repeats */
    int64_t opened;         /* batches begun */
    pst_batch *open;        /* batch being given out */
    pst_batch *ready;       /* published, not delivered */
    int64_t delivered;      /* batches handed over */
    int64_t consumed_share; /* share indices delivered or skipped with what was handed over */
    int64_t published;
    int refs; /* tasks, blocks and the feed's list */
    bool cancelled;
    psti_share_pick pick; /* feeds of a group: what is sent out next, if anything is picked */
    bool picked;
    uint8_t *others; /* feeds of a group, until the run begins: samples that are not its own, a bit
                        each; NULL: all are */
    pst_error error; /* ends the run once what is ready is handed over; code 0 = none */

    cell *cells; /* QUEUE: ring of cell_count */
    int64_t cell_count, frontier;

    uint8_t *used;    /* ready: positions handed over since */
    int64_t *skipped; /* positions, in order of discovery */
    int64_t *skipped_share;
    int64_t skipped_count, skipped_cap;
    /* Samples that were sent out before their turn, a bit each for the next foresight.ahead; NULL:
     * none are. scout: looked at up to there. */
    uint8_t *early;
    int64_t scout;
    shelf *shelf;  /* HEAP with buckets: finished samples without a slot, else NULL */
    int64_t *rest; /* ready, taken over in mid-epoch: the share indices that are left, else NULL */
    int64_t rest_count;
};

/* ---- what comes from tiers (tiers.c) ----------------------------------------------------------
 */

typedef enum tier { TIER_NONE, TIER_DISK, TIER_REMOTE } tier;

/* Inputs of the feed by their number; the decoded form, which stands for all pictures; and the
 * augmented form that another engine of the group made. */
enum { TIER_FORM = PSTI_FIELDS_MAX, TIER_SHARED, TIER_SLOTS };

/* An envelope that takes the place of what the source has. */
typedef struct tier_part {
    uint8_t from; /* tier */
    psti_cache_key key;
    const uint8_t *packed; /* where it lies once it is read */
    size_t size;
    int dir; /* disk: the file, beneath which directory */
    char name[PSTI_DISK_NAME];
} tier_part;

/* Of a task; made when a tier is first looked at for it, then kept. */
typedef struct tier_load {
    tier_part part[TIER_SLOTS];
    psti_envelope form; /* once opened; the decoded form or the augmented one */
    struct ask *ask;    /* asking.c's own; made and freed there */
} tier_load;

/* What the remote tier is worth to a feed (pays.c). Figures of the last samples, seconds per byte
 * of the decoded form; bytes of one. Under pool->lock but for the verdicts, which are hints. */
enum { LATELY = 15 };
typedef struct lately {
    double last[LATELY];
    uint64_t count; /* of all */
} lately;

/* Of a thread: the clock, its CPU time, how often it was made to leave its core. */
typedef struct pays_clock {
    double s, cpu_s;
    long pushed;
} pays_clock;

/* UNKNOWN: the tier is left alone for a moment, to see what that is like. */
typedef enum pays_verdict { PAYS, PAYS_UNKNOWN, PAYS_NOT } pays_verdict;

typedef struct pays {
    atomic_int form;     /* pays_verdict */
    atomic_bool members; /* stored bytes */
    lately made, plain;  /* from stored bytes to finish: whole and kept; as without tiers */
    lately kept, rest;   /* packing the form, to be sent; from the form to finish */
    double bytes, opened_s;
    double found;     /* of what was asked for, 0..1 */
    double slept;     /* seconds of a sample that the worker waited for something by itself */
    bool rested;      /* whether that is known */
    double made_then; /* at the last verdict */
    bool settled;
    int against, members_against; /* samples in a row that spoke against the verdict */
} pays;

/* ---- task (task.c) ------------------------------------------------------------------------------
 */

struct task {
    task *next;
    psti_feed *feed;
    run *run;
    uint64_t order; /* smaller runs first */
    int64_t share, position, id;
    uint64_t start; /* feed's start number */
    uint32_t occurrence;
    bool valid;
    pst_batch *batch; /* FIXED */
    int slot;
    /* Reads. Written by I/O threads until reads_left is 0; partner: the release decrement in
     * read_done. */
    psti_read *reads;
    int read_cap, read_count;
    int read_field[PSTI_FIELDS_MAX];  /* input, or TIER_FORM */
    int read_result[PSTI_FIELDS_MAX]; /* of reads that have ended; set before reads_left says so */
    uint64_t read_room[PSTI_FIELDS_MAX]; /* bytes of the member, of which the read may be a part */
    /* Parts, see parts.c: inputs of which only the header was read at first, a bit each; those of
     * which all that is used is there or on its way; what was sent for; bytes read. */
    uint32_t part_inputs, part_have;
    psti_span part_span[PSTI_FIELDS_MAX];
    psti_read *part_reads;
    int part_cap, part_count;
    uint64_t part_bytes;
    atomic_int reads_left;
    atomic_int read_status;
    pst_error *read_error; /* far: what the net said of a read that failed; made once a task */
    psti_buf bytes;
    size_t charged;
    ahead_entry *ahead; /* has the bytes of its member, or will; NULL = none */
    /* Feeds whose samples are fetched: this instead of reads and bytes. */
    psti_fetch *fetch;
    uint64_t fetch_charged; /* bytes counted for it: expected, then those that came */
    uint64_t submitted_ns, read_ns;
    uint64_t part_ns; /* of read_ns: by the worker itself, where others had read before */
    uint64_t took_ns; /* from its bytes, or its cached form, to finish; 0 = not known */
    bool read_away;   /* read by others than the worker, which had other work meanwhile */
    bool unread;      /* the worker that takes it tries to read it on the spot */
    bool unseen;      /* its files were not looked at yet: that worker does so first */
    int tries;
    /* Its decoded form, if the cache has it; else whether it should be made. */
    psti_cache_entry *cached; /* pinned */
    psti_cache_key form;
    bool may_cache;
    bool made; /* its decoded form was made and kept */
    /* Tiers, see tiers.c. */
    tier_load *load;      /* NULL: no tier was looked at yet */
    uint8_t form_from;    /* tier: its decoded form comes from there */
    int tier_reads;       /* of its reads, those from the disk tier */
    bool opened;          /* what came from tiers was looked at and is in use */
    bool tiers_off;       /* none is looked at: what one had was of no use */
    bool asks;            /* the remote tier is to be asked before anything is read */
    bool answered;        /* it was */
    bool tier_kept;       /* its decoded form went to a tier */
    size_t form_bytes;    /* of its decoded form, packed; 0 = not known */
    pays_clock clock;     /* when work on it began; then what that took */
    pays_clock kept;      /* what keeping its form in tiers took */
    uint64_t open_ns;     /* looking at what the remote tier brought */
    bool augmented;       /* it is the augmented form that was found */
    bool borrows;         /* asks the remote tier for it, first of all */
    bool adopted;         /* that has it: another engine prepared the sample */
    psti_share_pick pick; /* feeds of a group; kind NONE: it is the feed's own sample */
    uint64_t number;      /* of its preparation, in a group */
    psti_cache_entry *stored[PSTI_FIELDS_MAX]; /* members that the cache has as they are stored */
    int stored_count;
    psti_input inputs[PSTI_FIELDS_MAX];
    uint64_t extra; /* bytes beyond what its worker may keep, out of that part of the budget */
    /* Lanes. Its worker's own while it is worked on, else under the lock. */
    psti_work *work;    /* put aside between two stages; NULL = none */
    uint64_t worked_ns; /* before the present slice of work */
    uint64_t slice_ns;  /* when that began */
    uint64_t late_ns;   /* work done when it passed the cut-off; 0 = it did not */
    int late_stage;     /* the stage that came next then */
    bool slow;          /* in the slow lane */
    bool aside;         /* counted in lanes.aside */
    bool finished;      /* nothing is left but to place it */
    bool busy;          /* sent out, and not at its end */
    bool foretold;      /* was slow before it began */
    bool foreseen;      /* features are there */
    double features[PREDICT_FEATURES_MAX];
};

/* ---- feed (feed.c)
 * -------------------------------------------------------------------------------- */

/* First damaged row of files without an end marker, by (id, field): open addressing, grows. */
typedef struct damage_map {
    struct damage {
        int64_t id;
        int32_t field, used;
        int64_t row;
    } * at;
    size_t cap, count;
} damage_map;

/* What was found in samples, by id (findings.c). */
typedef struct finding_map {
    struct finding {
        int64_t id;
        bool used;
        psti_note *note; /* NULL: forgotten */
    } * at;
    size_t cap, count;
} finding_map;

/* ---- lanes of a feed (lane.c)
 * ---------------------------------------------------------------------------------- */

typedef struct lanes {
    bool on; /* fixed: ready order, and not switched off */
    /* Work after which a sample is slow; UINT64_MAX: there is no slow lane. Written under the
     * lock; workers look at it without, any value will do. */
    atomic_uint_fast64_t cutoff_ns;
    psti_hist costs; /* of recent samples */
    int learned;     /* samples since the cut-off was looked at, and what they took */
    uint64_t learned_ns;
    task *parked; /* slow ones that nobody works on, in order of their start */
    task *held;   /* finished ones for which there is no room yet */
    int parked_count, held_count;
    int running; /* slow ones that are worked on */
    int aside;   /* slow ones that are not placed: they take no part of what may be ready */
    /* Running means: seconds of a slow sample's work between two chances to put it aside, and their
     * squares; seconds in the fast lane for each sample; and seconds that are left when a sample
     * passes the cut-off before a stage, 0 = not known. */
    double slice_s, slice_ss, fast_s, left_s[PST_STAGES_MAX + 1];
    /* Samples a second that the consumer takes: follows up at once, down slowly. */
    double pace;
    uint64_t pace_since_ns, pace_samples;
    double mean_s; /* a sample's work; a running mean */
    bool uneven;   /* much of the work is that of samples that take several times the median */
    uint64_t slow, parks; /* statistics: samples that were slow; times that one was put aside */
} lanes;

/* ---- look-ahead of a feed (ahead.c)
 * ---------------------------------------------------------------------------------- */

typedef struct lookahead {
    bool on;                          /* fixed */
    int input;                        /* fixed: the member that is read */
    int64_t depth;                    /* samples that are asked for beyond those sent out */
    uint64_t run;                     /* serial of the one it looks at */
    int64_t next;                     /* share index that is looked at next */
    ahead_entry **at;                 /* by share index; made when first needed */
    ahead_entry *all, *spare, *empty; /* spare: free ones with memory, empty: without */
    int64_t spares, reading, ready;   /* entries: spare; on their way; come and not taken */
    int64_t least, least_spares;      /* fewest that were ready, and spare, since looked_ns */
    uint64_t bytes;                   /* counted for them */
    uint64_t grown_ns, waited_ns, looked_ns;
    uint64_t yielded_ns; /* when others needed its bytes; 0 = never */
} lookahead;

/* ---- foresight of a feed (foresight.c)
 * ---------------------------------------------------------------------------------- */

typedef struct foresight {
    bool on, early;   /* fixed */
    int64_t ahead;    /* fixed: share indices that are looked at before their turn */
    atomic_bool keen; /* every sample is looked at; workers ask without the lock, a hint */
    predictor predictor;
    /* Part of the samples called slow that were, and how many were called so; by their features
     * alone, and by their past, which may be right where features tell nothing. */
    struct verdict {
        double trust;
        int judged;
    } verdicts[2];
    uint64_t started_early; /* statistics */
} foresight;

/* ---- what its consumer waits for (waits.c) --------------------------------------------------- */

typedef struct waits {
    bool on;                    /* it waits, and its first batch came */
    uint64_t since_ns;          /* counted up to there; from then on … */
    int own, busy, active;      /* … workers: on this feed, on any, that may work */
    int without;                /* of own: waiting for memory that a large sample takes */
    int idle_for;               /* PSTI_WAIT_…: why the others do nothing for it */
    double spent_s[PSTI_WAITS]; /* of the waits, by what the workers' time went into */
} waits;

struct psti_feed {
    psti_pool *pool;
    psti_feed *next;
    psti_feed_spec spec; /* data, plan, order: owned */
    const psti_source_field *source;
    const psti_plan_output *out; /* what is delivered; of spec.fields[out[i].input] */
    int outputs;
    bool fetches;       /* the caller's function brings the samples, see fetch.c */
    bool far;           /* samples lie in a bucket: reads are always sent ahead */
    double fetch_bytes; /* of a sample that is fetched, a running mean */
    way way;
    bool cached; /* decoded forms are looked up and kept */
    psti_cache_owner *decoded, *encoded;
    /* Tiers are looked at: at all; for decoded forms; and the stored bytes of members are kept
     * there where decoded forms are not. Fixed. */
    bool tiered, tier_forms, tier_members;
    bool tier_shared;      /* preparations are shared with other engines; fixed */
    psti_id128 tier_owner; /* of stored bytes */
    group *group;          /* NULL: it shares no preparations */
    int member;            /* of group->share */
    /* For worth.c: samples a second, seconds a sample takes from each form, bytes of a form. */
    double rate, from_encoded_s, from_decoded_s, made_decoded_s, encoded_bytes;
    /* Of the two forms that last, the stored bytes are the better use of room. Workers look at it
     * without the lock: a hint, any value will do. */
    atomic_bool keeps_encoded;
    uint32_t part_inputs;          /* that may be read in parts, a bit each; fixed */
    _Atomic double decoded_bytes;  /* of the last one made; written by workers, a hint */
    _Atomic double decode_saves_s; /* by a decoded form; 0 = not known; a hint to workers */
    pays pays;                     /* what the remote tier is worth */
    uint64_t rate_since_ns, rate_since_samples;
    layout layout;
    ring *ring;
    pst_batch *free_blocks;
    pst_batch *members[RING_MOST]; /* dense feeds: the ring's blocks, wherever they are */
    int blocks, blocks_max;        /* charged blocks that exist; that may exist */
    int leased;                    /* batches in the consumer's hands */
    bool fresh_told;
    int depth;
    bool listed;             /* psti_feed_memory was asked: the ring stays as it is */
    uint64_t full_ns;        /* when as much as may be was ready; 0 = not since the ring grew */
    uint64_t slack_ns;       /* the same, for lanes; 0 = never */
    bool wanted;             /* the consumer waits */
    uint64_t stragglers;     /* statistics: see place.c */
    double took_s;           /* by a sample; a running mean */
    uint64_t fixed_most;     /* what fixed_bytes would be if bytes were not short */
    uint64_t fixed_bytes;    /* of the budget's fixed part: ring and listing */
    bool stages;             /* samples may wait in records */
    bool voluminous;         /* it delivers volumes */
    double stage_sample;     /* bytes of a record, a running mean */
    int64_t outstanding_max; /* samples dispatched and not delivered */
    int64_t outstanding;
    run *runs; /* the first is the one being delivered */
    int run_count;
    uint64_t run_serial; /* of the last one that began */
    uint64_t next_epoch, end_epoch;
    atomic_bool resumed; /* counter-like: workers read it without the lock */
    bool closing, started;
    /* What opening an epoch computes can take long, so a worker does it without the lock. Asked
     * for; under way. */
    bool epoch_wanted, epoch_making;
    bool shelf_wanted; /* a worker is to look whether the shelf is stuck */
    int shelf_busy;    /* workers that do */
    int64_t inflight;
    bool asks_ahead;  /* the remote tier was asked for its last sample: the next ones are, too */
    uint64_t refused; /* the last of pool->ahead_rounds in which nothing of it could be sent */
    pst_error error;

    /* ready order: starts not delivered yet, as a ring of flags */
    int64_t window;
    uint64_t start_cells;
    uint64_t *born; /* what had been delivered when a sample was started; UINT64_MAX: it is too */
    uint64_t start_next, start_base; /* base: the oldest that is not delivered */

    lanes lanes;
    foresight foresight;
    lookahead ahead;
    record *free_records;
    pages pages[PAGES_KEPT]; /* of batches of varying shape, for the next ones */
    damage_map damage;
    finding_map findings;
    uint64_t unseen_bytes; /* of the largest sample that had to be looked at first */
    task *runnable;        /* by order */
    task *runnable_last;   /* while there is one */

    uint64_t wait_since; /* the consumer's own: when a wait began that timed out; 0 = none */
    uint64_t notice_ns;  /* after that it is told what for, see stall.c; 0 = never; fixed */
    int stall_told;      /* the consumer's own: how often that was */
    uint64_t asked_ns;   /* when the consumer asked for what is not there yet; 0 = it has not */
    waits waits_for;
    int reads_now,
        asks_now; /* tasks whose bytes are on their way; that the remote tier is asked for */
    atomic_int fetches_now; /* counter: the same of samples that the caller's function brings */
    bool refused_room;      /* the last sample that was to be sent out found no bytes for it */
    atomic_uint wake;       /* consumers wait on it; partner: psti_feed_next */
    atomic_bool aborted;    /* set by psti_feed_abort; partner: psti_feed_next */

    /* statistics */
    uint64_t samples, batches, skipped, pads, warnings, waits, wait_ns, first_batch_ns, bytes_read,
        opened_ns, first_wait_ns, last_batch_ns;
    uint64_t read_ns, read_away_ns, read_runs, fresh, cache_hits, cache_misses, shared_hits,
        stored_hits, prepared, disk_hits, disk_misses, disk_bytes, remote_hits, remote_misses,
        remote_bytes, adopted;
    uint64_t stage_ns[PST_STAGES_MAX], stage_runs[PST_STAGES_MAX];
    uint64_t delivered_bytes, substitutions;
    psti_hist wait_hist;
    psti_bars stage_bars[PST_STAGES_MAX], read_bars, wait_bars, cost_bars;
    uint32_t trace_job;      /* what traces call it; fixed */
    uint64_t traced_wait_ns; /* the consumer's last wait ended then, as its trace has it */
    int source_kind;         /* psti_view_source; -1: counted by the net, or by nobody; fixed */
    int total;               /* its place in pool->ended; -1: there was no memory for one */
};

/* ---- pool (pool.c)
 * ---------------------------------------------------------------------------------- */

enum {
    KEEP_LEAST = 256 << 10,
    KEEP_MOST = 4 << 20
}; /* bytes that a worker may hold between samples */

/* What a worker does with its sample. */
enum { DOING_BYTES, DOING_MEMORY, DOING_PLACE, DOING_STAGE /* plus the stage's number */ };

struct worker {
    psti_pool *pool;
    task *task; /* that it works on; NULL = none */
    /* Written by the worker, for stall.c: what, and since when. Hints: any value will do. */
    atomic_int doing;
    atomic_uint_fast64_t doing_ns;
    pst_batch *own; /* schedule batch-per-worker: the batch that it fills; NULL = none */
    pthread_t thread;
    bool started;
    atomic_int tid; /* counter-like: the thread's number, 0 = it has not begun */
    psti_kit kit;
    psti_work *work;
    /* Bytes beyond keep that it goes on holding, out of pool->extra; what its samples needed of
     * them, a running mean. The worker's own; see held.c. */
    uint64_t held;
    double large;
    _Atomic double samples_s; /* counter: CPU seconds for samples, where the pool is clocked */
    /* Its trace, NULL = none; and whose stages it is at: the worker's own. */
    psti_trace_ring *ring;
    uint32_t at_job;
    int64_t at_id;
    bool at_bad; /* it came out that the sample is */
};

/* See tuner.c. seen_*: the counters at the last look. */
typedef struct tuner {
    int active;        /* workers that may work at once */
    int busy;          /* that do */
    int least;         /* fewer were too few … */
    uint64_t least_ns; /* … at that time */
    uint64_t short_ns; /* when a consumer had too little ready */
    uint64_t busy_ns, busy_since_ns, looked_ns, seen_busy_ns, seen_read_bytes, seen_starved_ns;
    double rate_before; /* bytes a nanosecond, before more reads were sent out */
    bool tried_reads;
    int rest; /* looks until more reads are tried again */
} tuner;

struct psti_pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* workers wait for runnable tasks */
    pthread_cond_t room; /* workers wait for bytes; feeds wait for their tasks to end */
    psti_budget budget;  /* its own lock, innermost */
    size_t keep;         /* bytes that each worker may hold without asking; fixed after start */
    int idle;            /* workers waiting for work */
    int waiting;         /* feeds whose consumers wait; see waits.c */
    bool waking;         /* the next worker that finds work wakes another */
    /* Decoded forms of all feeds; NULL without. cache_limit: bytes set aside for it; with
     * cache_auto it takes what is left. */
    psti_cache *cache;
    bool keeps_encoded; /* asked for in so many words */
    bool cache_auto;    /* these fixed after start */
    uint64_t cache_limit;
    uint64_t augmented_most; /* bytes that the caller lets augmented entries have */
    psti_disk *disk;         /* NULL: none; fixed */
    struct asker *asker;     /* the remote tier, asking.c's own; NULL: none; fixed */
    bool tier_members;       /* stored bytes of local files are kept, too; for tests */
    /* Bytes it has and may have: counters that the cache asks without pool->lock; the second is
     * written under it. */
    atomic_uint_fast64_t cache_taken, cache_allowed;
    /* The budget without the cache in four parts: fixed (rings, listings, what workers keep); of
     * the rest a quarter for encoded bytes (read and not yet decoded), a quarter for staged ones
     * where a feed stages (records, and batches of varying shape that are not handed over yet), and
     * what remains for extra (what single large samples take beyond keep). */
    uint64_t fixed, encoded, staged, extra;
    uint64_t ahead_ending; /* of encoded: look-ahead's, as soon as the net lets go */
    uint64_t extra_aside;  /* of extra: samples that were put aside have it */
    uint64_t extra_held;   /* of extra: workers hold it between samples */
    int stagers;           /* feeds that stage */
    int voluminous;        /* feeds that deliver volumes */
    uint64_t tickets_given, tickets_served; /* asking for extra bytes: first come, first served */
    bool stopping;
    atomic_bool clocked; /* workers look at it without the lock; see psti_pool_clock */
    int opening;         /* feeds waiting for room: nothing is started meanwhile */
    group *groups;
    /* What reading costs (stored.c), and what forms are worth (worth.c). */
    int reading; /* tasks whose bytes are being read by the reader */
    uint64_t reading_since_ns, reading_ns,
        read_bytes;      /* time with any under way; bytes that came */
    uint64_t starved_ns; /* workers' time without work while bytes were being read */
    /* The same of the remote tier (pays.c): tasks that ask, workers' time without work meanwhile,
     * bytes that came; what a second on the way is worth, 0..1; when that was looked at. */
    int asking;
    uint64_t ask_idle_ns, ask_bytes;
    double ask_price;
    uint64_t ask_priced_ns, ask_priced_idle, ask_priced_bytes;
    uint64_t valued_ns; /* when forms were valued last */
    uint64_t priced_ns; /* when reading was, and the figures then */
    uint64_t priced_reading_ns, priced_read_bytes, priced_starved_ns;
    double read_s;   /* per byte */
    double io_price; /* of a second of reading, of one second of work; 0..1 */
    psti_feed *feeds;
    psti_feed *turn; /* whose task is taken next */
    task *tasks, *free_tasks;
    int task_count, inflight;
    tuner tuner;
    int aim_most;      /* that aim_max may become; fixed */
    int aim_max;       /* tasks that may be under way beside those in slow lanes */
    int parked;        /* tasks that nobody works on until there is room or a turn for them */
    int aside;         /* of all feeds: lanes.aside */
    psti_work **spare; /* without buffers, for workers that put theirs aside; task_count places */
    int spare_count;
    uint64_t order_next;
    int cold; /* reads to send ahead before trying again whether bytes are at hand */
    uint64_t ahead_rounds;
    psti_reader *reader;
    worker *workers;
    int worker_count;
    /* Whose samples the workers have in hand, to compare with: a feed may be gone. Not in the
     * workers, which write to theirs all the time. */
    const psti_feed **works_for;
    /* Seconds that workers could have run and did not, as of some moment: what files of the system
     * say. queued_ns is stored after queued_s; partner: all_queued_s. */
    _Atomic double queued_s;
    atomic_uint_fast64_t queued_ns;
    /* For those who look on: reads of local files, jobs that ended, the last bad samples. */
    psti_view_traffic traffic[PSTI_VIEW_SOURCES];
    psti_view_ended *ended;
    int ended_count, ended_room;
    psti_view_bad *bad; /* a ring; made when first needed */
    uint64_t bad_count; /* ever */
    /* What is traced beside what workers do; put to under the lock. NULL = there is no trace. */
    psti_trace_ring *book;
    psti_trace *trace; /* fixed */
};

#include "sched/sched_calls.h"

#endif
