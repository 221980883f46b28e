/* SPDX-License-Identifier: Apache-2.0
 * Planning: what a cache would bring. Part of penstock.h, which includes it. */
#ifndef PENSTOCK_PLAN_H
#define PENSTOCK_PLAN_H

#ifndef PENSTOCK_H
#error "include penstock.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Measures what single samples of a dataset cost on this machine, and predicts samples a second for
 * any split of a cache between encoded, decoded and augmented samples. No engine is needed. */
enum { PST_FORM_ENCODED = 0, PST_FORM_DECODED, PST_FORM_AUGMENTED, PST_FORMS };
#define PST_PLAN_JOBS 64

typedef struct pst_plan_options {
    size_t size;             /* sizeof(pst_plan_options) */
    const char *pipeline;    /* required */
    const char *fields;      /* as in pst_job_options (NULL = every typed field) */
    uint64_t cache_bytes;    /* (any; 0) */
    int jobs;                /* that read the data at the same time (1..64; 1) */
    const double *consumer;  /* samples/s that each job takes at most, one per job, 0 = all it gets
                                (NULL = all it gets) */
    int cores;               /* (0..1024; 0 = CPU quota) */
    uint64_t source_bytes_s; /* bytes/s that the data comes at (0 = measured) */
    const char *disk; /* a disk tier, DIR:BYTES, as in pst_engine_options; its disk is measured
                         with a file that has no name (NULL = none) */
    /* bytes/s that a remote tier brings which has the decoded form of every sample, or the stored
     * bytes where there is none (0 = there is no tier) */
    uint64_t remote_bytes_s;
    double seconds; /* for measuring (0.05..600; 2) */
    uint64_t seed;  /* which samples, and of their random choices (any; 0) */
    /* Called now and then, from the calling thread, with the share that is done; a non-zero answer
     * stops it (-ECANCELED) (NULL = not). */
    int (*progress)(double done, void *user);
    void *user;
} pst_plan_options;

typedef enum pst_plan_source {
    PST_SOURCE_COLD = 1, /* read from where the data lies */
    PST_SOURCE_WARM, /* it was in memory and could not be driven out: the true source is slower */
    PST_SOURCE_GIVEN /* by the caller */
} pst_plan_source;

/* What was measured, means for one sample. Seconds are CPU seconds of one core, taken while all
 * cores were busy. */
typedef struct pst_plan_inputs {
    size_t size;                    /* sizeof(pst_plan_inputs), set by the caller */
    int64_t samples, measured, bad; /* of the dataset; looked at; of those that could not be used */
    uint64_t cache_bytes;
    int cores, jobs;
    double bytes[PST_FORMS]; /* of an entry in the cache; 0 = there is no such form */
    double out_bytes;
    double read_s;    /* fetching the encoded bytes */
    double crop_s;    /* encoded to augmented, decoding no more than needed */
    double full_s;    /* encoded to decoded, whole and kept */
    double augment_s; /* decoded to augmented */
    double keep_s;    /* keeping an augmented sample */
    double finish_s;  /* augmented to its place in the batch */
    double other_s;   /* the engine's own work: choosing, counting, placing, handing over */
    double source_bytes_s, memory_bytes_s;
    int source; /* pst_plan_source */
    /* The disk tier: bytes that it may take (0 = there is none, or it would keep nothing of these
     * samples), the form that it keeps, bytes of an entry, CPU seconds to get one back, bytes/s (0
     * = could not be measured: it is taken for no limit). */
    uint64_t disk_bytes;
    int disk_form;
    double disk_entry_bytes, disk_read_s, disk_bytes_s;
    double remote_bytes_s; /* as given */
    double consumer[PST_PLAN_JOBS];
} pst_plan_inputs;

typedef enum pst_plan_limit {
    PST_LIMIT_CPU = 0,
    PST_LIMIT_SOURCE,
    PST_LIMIT_MEMORY,
    PST_LIMIT_CONSUMER, /* every job gets all it can take */
    PST_LIMIT_DISK,     /* the disk tier */
    PST_LIMIT_REMOTE    /* the remote tier's line */
} pst_plan_limit;

/* What a split gives. */
typedef struct pst_plan_point {
    size_t size;             /* sizeof(pst_plan_point), set by the caller */
    double share[PST_FORMS]; /* of the cache's bytes */
    double samples_s;        /* of all jobs, once the cache is filled */
    double first_samples_s;  /* while it is filled */
    double capacity_s;       /* if the consumers were as fast as need be */
    double job_s[PST_PLAN_JOBS];
    double preparations; /* per delivery */
    /* Where deliveries begin; they add up to 1. */
    double from[PST_FORMS], from_disk, from_remote, from_source;
    /* Seconds a delivery takes of all cores, source, memory, disk tier, the remote tier's line. */
    double cpu_s, source_s, memory_s, disk_s, remote_s;
    int limit; /* pst_plan_limit */
} pst_plan_point;

typedef struct pst_plan pst_plan;
PST_API void pst_plan_options_init(pst_plan_options *opts);
/* Measures and solves. Takes about `seconds`, and the time of one sample. */
PST_API int pst_plan_new(pst_dataset *data, const pst_plan_options *opts, pst_plan **out,
                         pst_error *err);
PST_API void pst_plan_free(pst_plan *plan); /* NULL is fine */
/* size must be set; -EINVAL for another version's. */
PST_API int pst_plan_measured(const pst_plan *plan, pst_plan_inputs *out);
PST_API int pst_plan_best(const pst_plan *plan, pst_plan_point *out);
/* Any split: shares that are not negative and add up to at most 1, else -EINVAL. */
PST_API int pst_plan_at(const pst_plan *plan, const double share[PST_FORMS], pst_plan_point *out);
/* What a second of all cores, and one of the source, is worth at the best split: together 1. */
PST_API void pst_plan_prices(const pst_plan *plan, double *cpu, double *source);
/* How much faster it would be, 0.1 = 10 %, with so many bytes or cores more, or a source so many
 * times as fast; everything else the same. Not a number for an unknown change. */
enum { PST_MORE_CACHE = 1, PST_MORE_CORES, PST_MORE_SOURCE };
PST_API double pst_plan_gain(const pst_plan *plan, int change, double amount);
/* The split that Seneca's published equations choose for these inputs, and samples a second as they
 * count; what it gives by our count is pst_plan_at of the split. */
PST_API int pst_plan_paper(const pst_plan *plan, double share[PST_FORMS], double *samples_s);

#ifdef __cplusplus
}
#endif
#endif
