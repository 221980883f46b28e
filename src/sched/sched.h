/* SPDX-License-Identifier: Apache-2.0
 * The scheduler: a pool of workers with one reader and one byte budget, and feeds, each the stream
 * of batches of one job. The engine turns public options into these; nothing here knows the public
 * API's option structs. */
#ifndef PSTI_SCHED_SCHED_H
#define PSTI_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cache/cache.h"
#include "cache/disk.h"
#include "core/budget.h"
#include "pipeline/pipeline.h"
#include "sample/sample.h"
#include "source/source.h"
#include "watch/trace.h"
#include "watch/view.h"

/* ---- pool ------------------------------------------------------------------------------------ */

typedef struct psti_pool psti_pool;
typedef struct psti_pool_spec {
    int workers, io_depth, io; /* no workers: for records alone, see psti_feed_note */
    uint64_t memory_bytes;
    uint64_t cache_bytes; /* of them for cached samples; 0 = none, PST_CACHE_AUTO = what is left */
    double forms[3];      /* most that each form may have of it; all 0 = as it is worth */
    int io_most;          /* io_depth may become so much where that helps; 0 = it stays */
    const char *disk;     /* "DIR:BYTES", the disk tier; NULL = none */
    const char *remote;   /* URL of the remote tier; NULL = none */
    psti_trace *trace;    /* stays the caller's and outlives the pool; NULL = none */
} psti_pool_spec;

/* PST_CACHE_AUTO: what stays for encoded bytes, staged and large samples, whatever the cache holds,
 * so that the verdict on a large sample does not hang on how full the cache is. */
uint64_t psti_cache_auto_work(uint64_t memory_bytes);

int psti_pool_new(const psti_pool_spec *spec, psti_pool **out, pst_error *err);
/* Settings of the C library's memory that a pool makes for the whole process; again does nothing.
 */
void psti_heap_tame(void);
/* CPU seconds of the workers: all, and those that went into samples themselves: reading, stages,
 * writing them into batches; the latter counted from psti_pool_clock on, which takes some system
 * calls a sample. For measuring. */
typedef struct psti_pool_times {
    double cpu_s, samples_s;
} psti_pool_times;
void psti_pool_clock(psti_pool *pool);
void psti_pool_times_get(const psti_pool *pool, psti_pool_times *out);
/* Every feed must be closed. Joins the threads. NULL is fine. */
void psti_pool_free(psti_pool *pool);
psti_budget *psti_pool_budget(psti_pool *pool);
/* Checks what can be checked about its cache and groups, while it runs. See psti_cache_check. */
int psti_pool_check(psti_pool *pool, FILE *out);
psti_cache *psti_pool_cache(psti_pool *pool); /* NULL = none */
psti_disk *psti_pool_disk(psti_pool *pool);   /* NULL = none */
/* From now on feeds keep stored bytes of local files in tiers as they do those of far ones. For
 * tests. */
void psti_pool_keep_members(psti_pool *pool);
int psti_pool_io(
    const psti_pool *pool); /* the backend that reads: PST_IO_URING or PST_IO_THREADS */

/* ---- looking on (look.c) --------------------------------------------------------------------- */

struct psti_model_input;
/* Jobs, running and ended, as one moment has them; cache, tiers, sources of files, bad samples,
 * workers. 0 or -ENOMEM. Takes the pool's lock for some microseconds a job. */
int psti_pool_look(psti_pool *pool, psti_view *out);
/* What the model is asked with: the measured figures of the feed that does most. False: nothing is
 * measured yet. */
bool psti_pool_model(psti_pool *pool, struct psti_model_input *out);

/* ---- feed ------------------------------------------------------------------------------------ */

typedef struct psti_feed psti_feed;

/* A field that the job delivers. */
typedef struct psti_feed_field {
    int source;   /* index among the dataset's fields */
    int packing;  /* pst_packing wanted; 0 = dense where the shape is known, else ragged */
    int multiple; /* padded: sizes are rounded up to multiples of it; 0 = as they are */
    bool hidden;  /* not delivered, but needed: what objects are judged by */
} psti_feed_field;

/* For an owner that hands batches on to another process. Every function may be NULL. They are
 * called from any thread, most of them with the pool's lock held, and must not call back. */
typedef struct psti_feed_hooks {
    /* Memory for batches instead of ordinary pages: page-aligned and zero-filled; NULL when there
     * is none. ring: it is kept as long as the feed; else it goes when its batch is released. give:
     * from whoever releases the last batch, so it may outlive the feed. */
    void *(*take)(void *user, size_t bytes, bool ring);
    void (*give)(void *user, void *base, size_t bytes);
    void (*wake)(void *user); /* psti_feed_next may have something new to say; also in signals */
    /* A sample was skipped: what psti_feed_note_skip wants to know, and why. */
    void (*skipped)(void *user, uint64_t epoch, int64_t position, int64_t share,
                    const pst_error *err);
    /* Whether the job may have the sample: 0, or a code that makes it bad. No lock is held. */
    int (*may)(void *user, int64_t id, pst_error *err);
    void *user;
    /* Whose job it is, for those who look on: a number, the other process; where the dataset lies
     * as he says it, looked at while the feed is opened (NULL = as the dataset says). */
    uint64_t id;
    uint32_t pid, uid;
    const char *path;
} psti_feed_hooks;

/* What is shown of a feed beside its numbers. */
typedef struct psti_feed_label {
    uint64_t id;
    uint32_t pid, uid;
    char dataset[256], pipeline[1024]; /* shortened */
    char name[PSTI_VIEW_NAME];         /* the last part of the whole of dataset */
} psti_feed_label;

typedef struct psti_feed_spec {
    psti_dataset *data; /* the feed takes its own reference */
    psti_plan *plan;    /* taken over, also on failure; plan inputs correspond to fields */
    psti_order *order;  /* taken over, also on failure */
    psti_feed_field fields[PSTI_FIELDS_MAX];
    int field_count;
    int batch, rank, world, ends, mode; /* mode: pst_order; ends: resolved */
    uint64_t seed, first_epoch, epochs;
    bool skip;
    int retries, ready_depth;
    bool depth_free;      /* ready_depth may grow where that helps */
    int64_t window;       /* R; 0 = default */
    int64_t draw_id;      /* -1 = the sample's own id */
    int leases;           /* batches that the consumer holds at once, at least 1 */
    bool cache;           /* decoded forms are looked up and kept, if the pool has a cache */
    psti_id128 form;      /* what they are: psti_plan_decoded_form */
    psti_id128 tier_form; /* the same outside this process, where another build may find it */
    bool shares; /* preparations are shared with other feeds of the group: opportunistic sampling */
    psti_id128 augmented;       /* the form that is shared: psti_plan_augmented_form */
    psti_id128 tier_augmented;  /* the same outside this process */
    char group[PST_NAME_BYTES]; /* feeds of another name do not share; "" is a name too */
    int schedule, without;      /* pst_schedule; pst_without */
    /* Told of each bad sample under skip, with the pool's lock held; answers 0 or a code that ends
     * the feed. */
    int (*bad)(void *user, pst_error *err);
    void *user;
    psti_feed_hooks hooks;
    psti_feed_label label;
} psti_feed_spec;

int psti_feed_open(psti_pool *pool, const psti_feed_spec *spec, psti_feed **out, pst_error *err);
void psti_feed_close(psti_feed *feed);
/* 1, 0 at an epoch's end, or negative. */
int psti_feed_next(psti_feed *feed, int64_t timeout_ns, pst_batch **out);
void psti_feed_abort(psti_feed *feed); /* async-signal-safe */
/* After so long a wait the consumer is told what it waits for, told times before; 0 = no more. */
uint64_t psti_feed_notice_ns(const psti_feed *feed, int told);
int psti_feed_set_epoch(psti_feed *feed, uint64_t epoch);
uint64_t psti_feed_epoch(psti_feed *feed);
int64_t psti_feed_steps(psti_feed *feed);
void psti_feed_error(psti_feed *feed, pst_error *out);
void psti_feed_stats(psti_feed *feed, pst_job_stats *out);
/* Of a feed with hooks, whose consumer is in another process: he waited so long for a batch
 * (psti_trace_step; -1 = not known). What psti_feed_next takes is not his time and is not counted.
 */
void psti_feed_waited(psti_feed *feed, int64_t batch, uint64_t wait_ns);
const psti_plan *psti_feed_plan(const psti_feed *feed);

/* What a wait of the consumer was for, by what the workers' time went into meanwhile. */
enum {
    PSTI_WAIT_WORK,   /* samples of this feed */
    PSTI_WAIT_TURN,   /* samples of other feeds */
    PSTI_WAIT_SOURCE, /* nothing: bytes are on their way from the source … */
    PSTI_WAIT_REMOTE, /* … or from the remote tier */
    PSTI_WAIT_ROOM,   /* nothing: there is no room in the budget for another sample's bytes */
    PSTI_WAIT_REST,   /* nothing: nothing more may be begun */
    PSTI_WAITS
};
enum { PSTI_TIER_NONE, PSTI_TIER_UP, PSTI_TIER_DOWN };

/* What tells why a feed is as slow as it is, beside its statistics. Totals and states of one
 * moment; plain data, which goes over to clients as it is. */
typedef struct psti_feed_facts {
    double now_s, opened_s,
        first_s;         /* by the monotonic clock; first_s: the first batch, 0 = none */
    double last_s;       /* the last batch that was handed over; 0 = none */
    double first_wait_s; /* of wait_ns: for the first batch */
    double waiting_s;    /* the wait under way, which is not in wait_ns yet; 0 = none */
    double waited_for_s[PSTI_WAITS]; /* without the first batch */
    /* The pool's workers: seconds with a sample in hand, of these on a core, and seconds ready to
     * run without one. */
    double busy_s, cpu_s, queued_s;
    double budget_bytes, cache_bytes; /* cache_bytes: that the cache may have; 0 = there is none */
    double samples;                   /* of an epoch */
    double fixed_bytes, fixed_most;   /* that its batches take; that they would if all had room */
    /* Seconds of a worker for a sample: from stored bytes; from the decoded form; with making it (0
     * = not known). Bytes of the forms (0 = there is none, or not known). */
    double whole_s, part_s, made_s, encoded_bytes, decoded_bytes, out_bytes;
    int32_t workers, active, feeds;
    int32_t reads_most, reads_limit; /* samples under way; that the tuner may make it */
    int32_t reads_tried;             /* 1 = more of them brought no more bytes of late */
    int32_t batch, depth, depth_wanted;
    int32_t ready;                /* 1 = ready order */
    int32_t finished;             /* 1 = all epochs were handed over */
    int32_t keeps, keeps_encoded; /* 1 = a cache would be used; for stored bytes too */
    int32_t disk, remote;         /* PSTI_TIER_… */
    int32_t decoded_stages;       /* leading stages that a decoded form saves */
    uint32_t calls;               /* stages that are functions of the caller's, a bit each */
} psti_feed_facts;
/* Reads a file of the system for each worker: not for a sample's way. */
void psti_feed_facts_get(psti_feed *feed, psti_feed_facts *out);
/* The ring's blocks; makes them. 0, -ENOENT past the end, -ENOMEM. */
int psti_feed_memory(psti_feed *feed, int index, void **base, size_t *bytes);
/* What was handed over in the open epoch: the parts of psti_state that the feed knows. Arrays are
 * new (psti_state_fini). */
int psti_feed_progress(psti_feed *feed, psti_state *out);
/* Goes on from there; before the first batch only. */
int psti_feed_resume(psti_feed *feed, const psti_state *state, pst_error *err);

/* ---- batches --------------------------------------------------------------------------------- */

const pst_batch_desc *psti_batch_desc(const pst_batch *batch);
void psti_batch_release(pst_batch *batch);

/* What a batch that was handed over stands for. Kept apart from the batch's memory, which others
 * may have written to since. */
typedef struct psti_receipt {
    uint64_t epoch;
    int64_t step;      /* of the batch; where another process made it, 0 */
    int64_t steps;     /* of the epoch, as far as is known by now */
    int64_t share_end; /* share indices below it are delivered or skipped */
    int32_t slots;
    const int64_t *positions; /* of each slot; the batch's own */
    const uint8_t *valid;
} psti_receipt;
void psti_batch_receipt(const pst_batch *batch, psti_receipt *out);

/* A batch in memory of somebody else, who is told when it is released. */
typedef struct psti_guest {
    void *base;
    size_t bytes;
    void (*release)(void *user, void *base, size_t bytes);
    void *user;
} psti_guest;
int psti_batch_guest(const psti_guest *from, pst_batch **out);

/* ---- keeping a record ------------------------------------------------------------------------ */

/* A feed of a pool without workers prepares nothing: it keeps the record of batches that another
 * process prepares for the same spec. These do the bookkeeping of psti_feed_next; progress, resume,
 * epochs and statistics are as ever. One thread. */
int psti_feed_note(psti_feed *feed, const psti_receipt *receipt, uint64_t wait_ns);
void psti_feed_note_end(psti_feed *feed, uint64_t epoch); /* of the epoch that is open or next */
int psti_feed_note_skip(psti_feed *feed, uint64_t epoch, int64_t position, int64_t share);
bool psti_feed_at_start(psti_feed *feed, uint64_t epoch); /* nothing of the epoch came yet */
bool psti_feed_finished(psti_feed *feed);                 /* all epochs were handed over */
/* Goes on where a record of the same spec stands, its rank's own share included: feed was just
 * opened, the record is no longer added to. */
int psti_feed_adopt(psti_feed *feed, psti_feed *record, pst_error *err);

/* A batch of one sample, made of a work that is ready for finish. It belongs to no feed. */
typedef struct psti_single {
    const psti_plan *plan;
    psti_work *work;
    psti_kit *kit;
    uint64_t epoch;
    int64_t id;
    const char *key;
} psti_single;
int psti_batch_single(const psti_single *from, pst_batch **out, pst_error *err);

#endif
