/* SPDX-License-Identifier: Apache-2.0
 * Watching: what is slow, and what would help. Part of penstock.h, which includes it. */
#ifndef PENSTOCK_WATCH_H
#define PENSTOCK_WATCH_H

#ifndef PENSTOCK_H
#error "include penstock.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* name of the enum, name in JSON */
#define PST_VERDICT_LIST(X)                                                                        \
    X(PST_VERDICT_STARTING, "starting") /* too early to say */                                     \
    X(PST_VERDICT_IDLE, "idle")         /* nobody asks for batches */                              \
    X(PST_VERDICT_GPU, "gpu")           /* the consumer hardly ever waits */                       \
    X(PST_VERDICT_DECODE, "decode")     /* the workers are busy, with decoding most of all */      \
    X(PST_VERDICT_AUGMENT, "augment")   /* the same with the ops behind it */                      \
    X(PST_VERDICT_READ, "read")         /* the same with getting at the bytes */                   \
    X(PST_VERDICT_SOURCE, "source")     /* the workers wait for bytes from where the data lies */  \
    X(PST_VERDICT_CACHE, "cache")       /* a larger cache would remove the stall */                \
    X(PST_VERDICT_MEMORY, "memory")     /* the budget has no room for what should be ready */      \
    X(PST_VERDICT_STARVED, "starved")   /* other jobs of the engine have the workers */            \
    X(PST_VERDICT_REMOTE, "remote")     /* the remote tier is slow, or does not answer */          \
    X(PST_VERDICT_DISK, "disk")         /* the disk tier is off */                                 \
    X(PST_VERDICT_WORKERS, "workers")   /* cores are idle: more workers would use them */          \
    X(PST_VERDICT_BAD, "bad")           /* many samples cannot be used */

typedef enum pst_verdict_kind {
#define PST_X(name, text) name,
    PST_VERDICT_LIST(PST_X)
#undef PST_X
} pst_verdict_kind;

#define PST_VERDICT_NUMBERS 32
#define PST_VERDICT_HELPS   4

typedef struct pst_verdict_number {
    char name[32];
    double value;
} pst_verdict_number;

/* One thing that would help by itself, everything else as it is. */
typedef struct pst_verdict_help {
    char what[16]; /* "cores", "cache", "source", "workers", "memory" */
    double amount; /* cores, workers, bytes: so much more; source: times as fast */
    char unit[16]; /* "cores", "workers", "bytes", "times" */
    double rate;   /* samples/s of the job then */
    double stall;  /* share of the time that the consumer waits then */
} pst_verdict_help;

typedef struct pst_verdict {
    size_t size; /* sizeof(pst_verdict), set by the caller */
    int kind;    /* pst_verdict_kind */
    char text[384];
    double stall; /* share of the time that the consumer waited, 0..1 */
    int number_count, help_count;
    pst_verdict_number numbers[PST_VERDICT_NUMBERS]; /* what the sentence rests on */
    pst_verdict_help help[PST_VERDICT_HELPS];        /* best first */
} pst_verdict;

/* Over the time since an earlier call, at least a second and a few batches back, or since the
 * first batch. Takes some microseconds and one short look at the engine's books; called more often
 * than once a second it looks further back. 0; -EINVAL for another version's size, PST_ECLOSED,
 * PST_EFORK. Any thread. */
PST_API int pst_job_verdict(pst_job *job, pst_verdict *out);
/* Of the job that waits most; idle where none is open. */
PST_API int pst_engine_verdict(pst_engine *engine, pst_verdict *out);
/* "starting", "gpu", …; NULL for no kind. Static storage. */
PST_API const char *pst_verdict_name(int kind);

#ifdef __cplusplus
}
#endif
#endif
