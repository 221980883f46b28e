/* SPDX-License-Identifier: Apache-2.0
 * Traces: what each thread did when, in a file that ui.perfetto.dev opens (Chrome's JSON trace
 * events).
 *
 * Each producer has a ring of its own and writes 32-byte events into it, without a lock and without
 * memory being asked for; one writer thread turns them into text. A ring that is full loses
 * events, never time: they are counted, and the file and one log line tell how many. A "producer"
 * is a thread, or whoever holds one lock. */
#ifndef PSTI_WATCH_TRACE_H
#define PSTI_WATCH_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "penstock.h"

typedef enum psti_trace_kind {
    PSTI_TRACE_STAGE,  /* slice of the ring's track: stage `what` of sample `id` */
    PSTI_TRACE_SAMPLE, /* slice: a worker's visit to a sample; form it began from; what became of it
                          (psti_trace_end) in `what` */
    PSTI_TRACE_READ,   /* from at, span long: bytes read by others than a worker */
    PSTI_TRACE_SLOW,   /* a sample goes into the slow lane; what: 1 = that was foreseen */
    PSTI_TRACE_ASIDE,  /* a sample is put aside (psti_trace_why in `what`); span: its number */
    PSTI_TRACE_BACK,   /* it is gone on with; span: the same number */
    PSTI_TRACE_BEGUN,  /* a batch; id: psti_trace_step */
    PSTI_TRACE_READY,  /* it is; span: the sample that came last, + 1 */
    PSTI_TRACE_TAKEN,  /* it was handed over */
    PSTI_TRACE_DROPPED, /* nobody wants it */
    PSTI_TRACE_WAIT,    /* the consumer waited; id: for which batch, -1 = not known */
    PSTI_TRACE_COUNT    /* counter `what` (psti_trace_counter) is span */
} psti_trace_kind;

typedef enum psti_trace_form {
    PSTI_FROM_SOURCE, /* stored bytes, read for it */
    PSTI_FROM_ENCODED,
    PSTI_FROM_DECODED,
    PSTI_FROM_AUGMENTED,
    PSTI_FROM_DISK,
    PSTI_FROM_REMOTE,
    PSTI_FROM_UNKNOWN /* it was not found out in this visit */
} psti_trace_form;

/* UNWANTED: its run was given up meanwhile. */
typedef enum psti_trace_end {
    PSTI_END_PLACED,
    PSTI_END_LEFT,
    PSTI_END_BAD,
    PSTI_END_UNWANTED
} psti_trace_end;
typedef enum psti_trace_why {
    PSTI_ASIDE_PARKED,
    PSTI_ASIDE_HELD,
    PSTI_ASIDE_FORESEEN
} psti_trace_why;
typedef enum psti_trace_counter {
    PSTI_COUNT_READY,  /* batches of the job */
    PSTI_COUNT_BUSY,   /* workers */
    PSTI_COUNT_ACTIVE, /* workers that may be */
    PSTI_COUNT_CACHE   /* bytes */
} psti_trace_counter;

/* As `what` of a stage; keep: putting the decoded form into the cache, or on its way to a tier. */
enum { PSTI_TRACE_STAGE_READ = 255, PSTI_TRACE_STAGE_KEEP = 254 };

typedef struct psti_trace_event {
    uint64_t at_ns, span;
    int64_t id;
    uint32_t job; /* psti_trace_job's answer */
    uint8_t kind, what, form, spare;
} psti_trace_event;

/* A batch as an event has it. */
static inline int64_t psti_trace_step(uint64_t epoch, int64_t step)
{
    return (int64_t)((epoch & 0x7fffffff) << 32 | ((uint64_t)step & 0xffffffff));
}

typedef struct psti_trace_ring {
    /* The producer's: */
    _Alignas(64) atomic_uint_fast64_t head; /* events ever put; partner: the writer's acquire */
    uint64_t room_until;                    /* head may go so far before tail is looked at again */
    atomic_uint_fast64_t dropped;           /* counter */
    /* The writer's: */
    _Alignas(64) atomic_uint_fast64_t tail; /* events ever taken; partner: psti_trace_put */
    uint64_t told;                          /* of dropped, what was added up */
    /* Fixed: */
    _Alignas(64) psti_trace_event *at;
    uint64_t mask;
    int track; /* 0: the ring's events have none of their own */
    char name[32];
    struct psti_trace_ring *next;
} psti_trace_ring;

void psti_trace_drop(psti_trace_ring *ring);

/* One producer at a time. */
static inline void psti_trace_put(psti_trace_ring *ring, const psti_trace_event *event)
{
    const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head >= ring->room_until) {
        ring->room_until = atomic_load_explicit(&ring->tail, memory_order_acquire) + ring->mask + 1;
        if (head >= ring->room_until) {
            psti_trace_drop(ring);
            return;
        }
    }
    ring->at[head & ring->mask] = *event;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

typedef struct psti_trace psti_trace;

typedef struct psti_trace_spec {
    const char *path;
    bool elsewhere;       /* where another engine writes there already, FILE.PID.N is taken */
    uint32_t ring_events; /* a power of two; 0 = 32768, 1 MiB for each ring */
    uint64_t pause_ns;    /* between two looks of the writer; 0 = 50 ms */
} psti_trace_spec;

/* Makes the file and starts the writer. */
int psti_trace_open(const psti_trace_spec *spec, psti_trace **out, pst_error *err);
/* A producer's ring; a name makes a track of its own. It lives as long as the trace. NULL: no
 * memory. */
psti_trace_ring *psti_trace_ring_add(psti_trace *trace, const char *name);

/* What events call a job: its number for those who look on, what it feeds, its stages' names. */
typedef struct psti_trace_job {
    uint64_t id;
    const char *dataset, *pipeline;
    int stages;
    const char *stage[PST_STAGES_MAX];
} psti_trace_job;
/* Copies it. 0 = there is no memory, and the job's events have no names. */
uint32_t psti_trace_job_add(psti_trace *trace, const psti_trace_job *job);

/* Writes out what there is and ends the file; later events go nowhere. Any thread, more than once.
 */
void psti_trace_stop(psti_trace *trace);
/* Stops, tells of lost events, frees the rings: nobody may put any more. NULL is fine. */
void psti_trace_close(psti_trace *trace);

#endif
