/* SPDX-License-Identifier: Apache-2.0
 *
 * Penstock: feeds training samples to GPUs.
 *
 * An engine owns a pool of workers and one byte budget. A dataset is an ordered list of samples. A
 * job reads one dataset through one pipeline and hands out finished batches. Any number of jobs
 * share an engine.
 *
 * Every function that returns int answers 0 or a small positive value on success and a negative
 * code on failure: -errno for system failures, PST_E… for ours. Functions that make an object take
 * an optional pst_error, which is filled on failure and untouched on success. All functions may be
 * called from any thread; one job is driven by one consumer at a time.
 *
 * A process may fork at any moment. The child makes engines of its own; of an engine or a job made
 * before the fork only the _free and _close functions are legal there, the others return PST_EFORK.
 * Batches and datasets may be used on.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PST_API     __attribute__((visibility("default")))
#define PST_VERSION "0.1.0"

/* ---- errors ---------------------------------------------------------------------------------- */

/* name, code, text. Codes below -1000 are ours. */
#define PST_ERROR_LIST(X)                                                                          \
    X(PST_ECORRUPT, -1001, "the sample's bytes are damaged")                                       \
    X(PST_EFORMAT, -1002, "the bytes are not of a format that is read here")                       \
    X(PST_ELIMIT, -1003, "a safety limit was exceeded")                                            \
    X(PST_ECHANGED, -1004, "the data changed since it was listed")                                 \
    X(PST_EPIPELINE, -1005, "the pipeline text is wrong")                                          \
    X(PST_ESTATE, -1006, "the saved state does not fit")                                           \
    X(PST_EBUDGET, -1007, "the memory budget is too small")                                        \
    X(PST_ETOOMANYBAD, -1008, "more samples are bad than the error policy allows")                 \
    X(PST_EFORK, -1009, "the object was made before fork and cannot be used in the child")         \
    X(PST_ECLOSED, -1010, "the object is closed")                                                  \
    X(PST_EDATASET, -1011, "the dataset cannot be used")                                           \
    X(PST_EFIELD, -1012, "a field is missing or has the wrong type")                               \
    X(PST_ECALL, -1013, "a function of the caller's failed")

enum {
#define PST_X(name, code, text) name = code,
    PST_ERROR_LIST(PST_X)
#undef PST_X
};

/* What went wrong, where, and what to do. Plain data: copy it freely. */
typedef struct pst_error {
    int code;          /* negative; 0 = no error */
    int64_t id;        /* sample id, or -1 */
    int64_t offset;    /* byte offset in the sample, file or text, or -1 */
    char stage[32];    /* "read", "decode", an op's name, "pipeline", … */
    char key[256];     /* sample key or path, shortened in the middle if longer */
    char message[512]; /* what happened and what to do, one sentence or two, UTF-8 */
} pst_error;

/* Text for a code; static storage, never NULL. */
PST_API const char *pst_strerror(int code);
/* Version of the library; static storage. */
PST_API const char *pst_version(void);
/* What the library was built with: "jpeg", "png", "webp", "gzip", "deflate", "flac", "uring",
 * "control". index from 0; returns 1 for a part that is there, 0 for one that was left out, -ENOENT
 * past the end. detail says with which library and version. The texts are static. */
PST_API int pst_feature(int index, const char **name, const char **detail);
/* Writes "stage: key at byte N: message" into buf (always terminated). Returns the full length. */
PST_API size_t pst_error_format(const pst_error *err, char *buf, size_t cap);

/* Where the library's own notices go: level 0 = error, 1 = warning, 2 = info. Default: warnings to
 * standard error. fn may be called from any thread; NULL silences. user is passed through and stays
 * the caller's. */
PST_API void pst_log_set(void (*fn)(int level, const char *text, void *user), void *user);

/* ---- fields and batches ---------------------------------------------------------------------- */

typedef enum pst_dtype {
    PST_U8 = 1,
    PST_I8,
    PST_U16,
    PST_I16,
    PST_I32,
    PST_I64,
    PST_F16,
    PST_BF16,
    PST_F32,
    PST_F64,
    PST_BOOL
} pst_dtype;

typedef enum pst_kind {
    PST_IMAGE = 1,
    PST_MASK,
    PST_LABEL,
    PST_BOXES,
    PST_VOLUME,
    PST_AUDIO,
    PST_TEXT,
    PST_BYTES,
    PST_ARRAY,
    PST_META
} pst_kind;

typedef enum pst_layout { PST_LAYOUT_NONE = 0, PST_NHWC, PST_NCHW } pst_layout;

typedef enum pst_packing {
    PST_DENSE = 1, /* every slot has the same shape */
    PST_PADDED,    /* every slot takes the batch's largest shape, rounded up where that was asked
                      for; true shapes beside it, the rest is zero */
    PST_RAGGED     /* slots follow each other, offsets beside them */
} pst_packing;

#define PST_MAX_RANK      8
#define PST_NAME_BYTES    32
#define PST_BATCH_MAGIC   0x42545350u /* "PSTB" */
#define PST_BATCH_VERSION 1u

/* One field of a batch. Offsets count from the first byte of the batch descriptor. */
typedef struct pst_field {
    char name[PST_NAME_BYTES];
    uint8_t kind, dtype, layout, packing;
    uint8_t rank; /* of one sample; the batch has one dimension more */
    uint8_t reserved[3];
    int64_t
        shape[PST_MAX_RANK]; /* of one sample; padded: the largest; ragged: -1 where it varies */
    uint64_t data_offset;    /* aligned to 64 */
    uint64_t data_bytes;
    uint64_t slot_bytes;    /* from slot to slot; 0 when ragged */
    uint64_t shapes_offset; /* padded, ragged: int64[slots][rank], each slot's true shape; else 0 */
    uint64_t offsets_offset; /* ragged: int64[slots + 1], byte offsets into the data; else 0 */
} pst_field;

/* What a batch op (mixup, cutmix) drew for a batch. Every valid slot is mixed with the valid slot
 * before it, the first with the last; slots that are padding are left as they are. */
typedef enum pst_mix_kind { PST_MIX_NONE = 0, PST_MIXUP, PST_CUTMIX } pst_mix_kind;
typedef struct pst_mix {
    int32_t kind;           /* pst_mix_kind; PST_MIX_NONE: nothing was or is to be done */
    int32_t done;           /* 1: values and labels are mixed; 0: left to the caller (leave_mix) */
    double lam;             /* what a slot keeps of its own label, and under mixup of its values */
    int64_t y1, x1, y2, x2; /* cutmix: rows y1..y2-1 and columns x1..x2-1 come from the other */
    int64_t classes;        /* that labels are spread over; 0: the pipeline has no batch op */
} pst_mix;

/* A batch: this header, then `fields` pst_field of `field_bytes` each, then the data. Flat and
 * position-independent: it means the same at any address. Fields `id` (int64), `key` (text) and
 * `valid` (bool) are always there; slots with valid = 0 are padding. */
typedef struct pst_batch_desc {
    uint32_t magic, version;
    uint32_t header_bytes, field_bytes;
    uint32_t fields;
    uint32_t slots;       /* leading dimension */
    uint32_t valid_slots; /* how many of them count */
    uint32_t rank, world;
    uint32_t reserved;
    uint64_t epoch, step;
    uint64_t total_bytes; /* header, fields and data */
    pst_mix mix;
} pst_batch_desc;

/* ---- engine ---------------------------------------------------------------------------------- */

typedef struct pst_engine pst_engine;
typedef struct pst_dataset pst_dataset;
typedef struct pst_job pst_job;
typedef struct pst_batch pst_batch;

typedef enum pst_io { PST_IO_AUTO = 0, PST_IO_URING, PST_IO_THREADS } pst_io;

#define PST_CACHE_AUTO UINT64_MAX /* what rings and samples on their way leave of the budget */

typedef struct pst_engine_options {
    size_t size;           /* sizeof(pst_engine_options) */
    uint64_t memory_bytes; /* budget for everything (16 MiB..; 0 = 25 % of what the process may
                              have, at most 8 GiB; more where cache_bytes asks for it) */
    int workers;  /* (0..1024; 0 = CPU quota, less one for the trainer when there are more than two)
                   */
    int io_depth; /* reads in flight (0..1024; 0 = 32) */
    int io;       /* pst_io (default PST_IO_AUTO) */
    uint64_t cache_bytes; /* of the budget, for samples in the form that is worth most per byte
                             (64 KiB..memory less 16 MiB, or PST_CACHE_AUTO; 0 = none). Without
                             memory_bytes the budget is at least this and what auto would leave
                             beside a cache */
    double forms[3]; /* most of the cache that encoded, decoded and augmented samples may have, each
                        a share (0..1; all 0 = as it is worth) */
    const char *address; /* whose workers: "unix:DIR" = those of the daemon that serves DIR,
                            "unix:" = of this user's default; "auto" = of a daemon of this user if
                            one runs; the rest of the options then holds for what is done here when
                            the daemon cannot do it or dies ("embedded" = this process; NULL = what
                            $PENSTOCK_ENGINE says, else this process) */
    const char *disk;    /* the disk tier: "DIR:BYTES", samples are kept in files there, at most so
                            many bytes (K, M, G, T), and found again by later engines (NULL or "" =
                            none) */
    const char *remote;  /* the remote tier: "redis://HOST[:PORT]", samples are kept there for all
                            engines that name it; never with a password in it (NULL or "" = none) */
    const char *watch;   /* a folder with a socket where this user may look at the engine, made if
                            need be: penstock top, or GET /metrics, /v1/watch and /v1/stream; "auto"
                            = one where penstock top finds it; "off" = none (NULL = what
                            $PENSTOCK_WATCH says, else none) */
    const char *trace;   /* a file that is written with what each thread does when, for
                            ui.perfetto.dev and penstock trace; "" = none (NULL = what
                            $PENSTOCK_TRACE says, else none) */
} pst_engine_options;

/* What was asked for and what it became on this machine. */
typedef struct pst_settings {
    int cpus;          /* CPU quota: affinity and cgroup */
    uint64_t may_have; /* bytes the process may have: RAM and cgroups */
    int workers, io_depth, io;
    uint64_t memory_bytes;
    uint64_t cache_bytes; /* the most that the cache may come to; 0 = none */
    double forms[3];      /* as asked for */
    char cpu[16];         /* kernels in use: "c", "avx2", "avx512" */
    int served;           /* 1 = an engine's: the numbers are those of the daemon behind it */
    uint64_t disk_bytes;  /* of the disk tier; 0 = none */
    int remote;           /* 1 = there is a remote tier */
} pst_settings;

PST_API void pst_engine_options_init(pst_engine_options *opts);
/* opts may be NULL. The engine starts its threads at once. */
PST_API int pst_engine_new(const pst_engine_options *opts, pst_engine **out, pst_error *err);
/* Looks at everything that the running engine keeps books of; 0, or how much does not agree, each
 * thing told in a line to *text, which is malloc'ed (pst_free) and may be NULL. */
PST_API int pst_engine_check(pst_engine *engine, char **text);
/* Closes every job that is still open (no call on one may be under way), waits for the threads.
 * NULL is fine. Batches still held stay valid. */
PST_API void pst_engine_free(pst_engine *engine);
/* Writes out what the trace has and ends it, for whoever leaves without freeing the engine. Blocks
 * until it is written; any thread; does nothing where there is none. */
PST_API void pst_engine_end_trace(pst_engine *engine);
/* The same of what shows the engine (pst_engine_options.watch): nobody looks any more, and what was
 * made for it is removed. Not while the engine is freed. */
PST_API void pst_engine_end_watch(pst_engine *engine);
/* What the options would become on a machine; needs no engine. */
PST_API int pst_settings_resolve(const pst_engine_options *opts, pst_settings *out, pst_error *err);
PST_API void pst_engine_settings(const pst_engine *engine, pst_settings *out);
/* Samples that failed and were skipped: one list for all jobs of the engine. */
PST_API size_t pst_engine_bad_count(const pst_engine *engine);
PST_API int pst_engine_bad_get(const pst_engine *engine, size_t index, pst_error *out);

/* ---- dataset --------------------------------------------------------------------------------- */

typedef struct pst_dataset_options {
    size_t size;           /* sizeof(pst_dataset_options) */
    const char *index_dir; /* where listings are remembered (NULL = $XDG_CACHE_HOME/penstock; "" =
                              nowhere) */
    int threads;           /* for listing (0..256; 0 = as many as help) */
    int refresh;           /* 1 = list again whatever is remembered (0..1; 0) */
    /* Called now and then while listing, from the calling thread; a non-zero answer stops it
     * (-ECANCELED). */
    int (*progress)(uint64_t found, void *user);
    void *user;
} pst_dataset_options;

typedef struct pst_field_info {
    char name[PST_NAME_BYTES];
    uint8_t kind, dtype, rank;
    uint8_t optional;            /* some samples lack it */
    int64_t shape[PST_MAX_RANK]; /* -1 where it varies or is not known before decoding */
    char format[16]; /* "jpeg", "png", "webp", "npy", "cls", "json", "txt", "tsv", "mixed", … */
} pst_field_info;

typedef struct pst_sample_info {
    const char *key; /* owned by the dataset */
    uint8_t identity[16];
    uint64_t bytes; /* of all its members as stored */
    int64_t label;  /* -1 where there is none */
} pst_sample_info;

PST_API void pst_dataset_options_init(pst_dataset_options *opts);
/* path: a folder, a tar file, a folder or list of tar shards, a manifest (.tsv, .jsonl), one file,
 * the URL of such data (s3://BUCKET/PREFIX; https://… but for folders), or penstock://NAME of what
 * was pulled (penstock/datasets.h). opts may be NULL. */
PST_API int pst_dataset_open(const char *path, const pst_dataset_options *opts, pst_dataset **out,
                             pst_error *err);
/* Jobs hold their own reference: closing while they run is fine. NULL is fine. */
PST_API void pst_dataset_close(pst_dataset *data);
PST_API int64_t pst_dataset_count(const pst_dataset *data);
PST_API int pst_dataset_sample(const pst_dataset *data, int64_t id, pst_sample_info *out);
PST_API int pst_dataset_field_count(const pst_dataset *data);
PST_API int pst_dataset_field(const pst_dataset *data, int index, pst_field_info *out);
/* Class names in label order; NULL past the end. Owned by the dataset. */
PST_API const char *pst_dataset_class(const pst_dataset *data, int64_t label);
PST_API int64_t pst_dataset_class_count(const pst_dataset *data);
PST_API int pst_dataset_split_count(const pst_dataset *data);
PST_API const char *pst_dataset_split_name(const pst_dataset *data, int index);
/* The ids of a split, ascending; owned by the dataset. *ids = NULL means all. Unknown names:
 * -ENOENT. */
PST_API int pst_dataset_split(const pst_dataset *data, const char *name, const int64_t **ids,
                              int64_t *count);
/* Labels of all samples by id; owned by the dataset. NULL where some samples have none, or they
 * come with the samples. */
PST_API const int64_t *pst_dataset_labels(const pst_dataset *data);
/* The labels of some samples, where the dataset knows them: what pst_dataset_labels gives without
 * keeping memory for all. 0; -ENOENT for an id that there is not, or has no label here. */
PST_API int pst_dataset_labels_of(const pst_dataset *data, const int64_t *ids, int64_t count,
                                  int64_t *out);
PST_API void pst_dataset_revision(const pst_dataset *data, uint8_t out[16]);
/* "folder", "tar", "manifest", "file", "files", "custom"; static storage. */
PST_API const char *pst_dataset_kind(const pst_dataset *data);
/* Reads one field's stored bytes. *out is malloc'ed and becomes the caller's (free with pst_free).
 */
PST_API int pst_dataset_read(const pst_dataset *data, int64_t id, const char *field, void **out,
                             size_t *bytes, pst_error *err);
PST_API void pst_free(void *memory);

/* ---- a list of files --------------------------------------------------------------------------
 */

/* Pictures by the caller's own list: samples in the given order, the id is the place in the list.
 * The list is trusted as the program itself is: links are followed wherever they lead, and a file
 * may stand in it more than once. No file is looked at before it is first read, so a missing one is
 * a bad sample when its turn comes. The revision is that of paths and labels, not of the files. */
typedef struct pst_files {
    size_t size;              /* sizeof(pst_files) */
    int64_t count;            /* (1..) */
    const char *const *paths; /* UTF-8, without control characters; relative ones start from the
                                 working directory of this moment; copied */
    const int64_t *labels;    /* one for each; copied (NULL = no labels) */
    const char *root; /* a folder; paths that begin with it and a slash are kept, shown as keys and
                         hashed without it (NULL = none) */
    const char *const *classes; /* names in label order; copied (NULL = none) */
    int64_t class_count;
    /* Gives the entries one after another, in the calling thread, in place of count, paths and
     * labels: 1 with *path, which is left alone until the next call, and with next_labels *label; 0
     * at the end; negative breaks the listing off with that code. (NULL) */
    int (*next)(void *user, const char **path, int64_t *label);
    void *user;
    int next_labels; /* 1 = next gives labels (0, 1; 0) */
} pst_files;

PST_API void pst_files_init(pst_files *spec);
PST_API int pst_dataset_files(const pst_files *spec, pst_dataset **out, pst_error *err);
/* Whether the dataset was made from the same paths and labels in the same order: 1, 0, or a
 * negative code. Much cheaper than making it anew. Classes are not compared. */
PST_API int pst_dataset_files_same(const pst_dataset *data, const pst_files *spec, pst_error *err);

/* ---- datasets of your own ----------------------------------------------------------------------
 */

/* Where the read function puts what it fetched. Valid during the call. */
typedef struct pst_sink pst_sink;

/* A dataset whose samples a function of the caller's fetches: from an archive, a database, a
 * service. Decoding and everything after it are the engine's. */
typedef struct pst_custom {
    size_t size;                  /* sizeof(pst_custom) */
    int64_t count;                /* samples; ids are 0..count-1 */
    const char *name;             /* required: stands for the data in states and caches; copied */
    const pst_field_info *fields; /* copied: kind IMAGE, MASK, VOLUME and AUDIO (encoded bytes; a
                                     MASK of rank 4 is a volume's), ARRAY with format "npy", or
                                     values: LABEL, ARRAY, META with dtype, rank and shape, TEXT,
                                     BYTES (NULL = "image" and an int64 "label") */
    int field_count;
    const int64_t *labels;   /* of all samples where they are known ahead; copied (NULL = they come
                                with the samples, or not at all: -1) */
    const uint8_t *revision; /* 16 bytes that change when the data does (NULL = from name and count)
                              */
    int threads;             /* reads at once (0..256; 0 = two while they are quick, up to 8) */
    /* Fetches one sample: gives its fields to the sink (pst_sink_…), answers 0; or a negative code
     * and says why in err, which makes it a bad sample or a read to be tried again, as the job's
     * policy says. Called from `threads` threads at once. */
    int (*read)(void *user, int64_t id, pst_sink *sink, pst_error *err);
    /* Writes a sample's key into buf, answers its length or a negative code; called for each sample
     * while the dataset is made (NULL = the id in digits). */
    int (*key)(void *user, int64_t id, char *buf, size_t cap);
    /* Called in each reading thread when it starts and when it ends, with what the first one
     * returned (NULL = not). */
    void *(*thread_begin)(void *user);
    void (*thread_end)(void *user, void *thread);
    /* The last call, once the dataset and its threads are gone; not when pst_dataset_custom failed
     * (NULL = nothing to do). */
    void (*destroy)(void *user);
    void *user;
} pst_custom;

PST_API void pst_custom_init(pst_custom *spec);
PST_API int pst_dataset_custom(const pst_custom *spec, pst_dataset **out, pst_error *err);
/* field: index among the declared fields. What is refused makes the sample bad; the answer need not
 * be looked at. bytes: copied. take: adopted, free_fn is called once they are no longer needed,
 * from any thread, also when the field is refused. int, real: a number, in the field's type. */
PST_API int pst_sink_bytes(pst_sink *sink, int field, const void *bytes, size_t size);
PST_API int pst_sink_take(pst_sink *sink, int field, const void *bytes, size_t size,
                          void (*free_fn)(void *arg), void *arg);
PST_API int pst_sink_int(pst_sink *sink, int field, int64_t value);
PST_API int pst_sink_real(pst_sink *sink, int field, double value);

/* ---- looking at bytes and pipelines ---------------------------------------------------------- */

typedef struct pst_probe {
    char format[16];       /* "jpeg", "png", "webp", "npy", "wav", … */
    int64_t height, width; /* of a recording: samples of a channel, and 1 */
    int channels, bits;
    char detail[64]; /* "progressive 4:2:0", "palette interlaced", "lossless+alpha", … */
} pst_probe;

/* Reads header facts from encoded bytes; decodes nothing. */
PST_API int pst_probe_bytes(const void *bytes, size_t size, pst_probe *out, pst_error *err);
/* Checks a pipeline text. On success writes its canonical text (terminated, cut at cap) and 16-byte
 * fingerprint; either may be NULL. */
PST_API int pst_pipeline_check(const char *text, char *canonical, size_t cap,
                               uint8_t fingerprint[16], pst_error *err);
/* Help for every op, made from the tables that drive the parser. index from 0; returns 0, or
 * -ENOENT past the end. The texts are static. params has one line per parameter: name, type, range,
 * default, help, tab-separated. */
PST_API int pst_op_help(int index, const char **name, const char **summary, char *params,
                        size_t cap);

/* ---- stages of your own ------------------------------------------------------------------------
 */

/* A picture on its way, as the op call(name) hands it to the caller's function. Valid during the
 * call, read-only. */
typedef struct pst_call_in {
    int64_t id;    /* of the sample */
    uint64_t seed; /* for the function's own draws: the same whenever the sample is drawn with the
                      same job seed, epoch, occurrence and place in the text; call(fixed=true): 0 */
    int64_t rows, cols, channels;
    size_t stride; /* bytes from row to row */
    const uint8_t *data;
} pst_call_in;

/* Where its result goes. Valid during the call. */
typedef struct pst_call_out pst_call_out;
/* Memory for a result of this size, rows * cols * channels bytes without gaps, every one of which
 * the function writes. NULL when the size is not the one that the pipeline declares (the one that
 * came, size=, or with any=true any rows and columns): the sample is bad then, whatever the
 * function answers. */
PST_API uint8_t *pst_call_size(pst_call_out *out, int64_t rows, int64_t cols, int64_t channels);

/* The function behind call(name). Called from the engine's workers, from several at once; it may
 * block, at the cost of that worker. Answers 0 once the result is written; a negative value makes
 * the sample bad (PST_ECALL), and err->message says why. */
typedef struct pst_call {
    const char *name;
    int (*run)(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err);
    void *user;
} pst_call;

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef enum pst_order { PST_ORDER_STRICT = 0, PST_ORDER_READY } pst_order;
typedef enum pst_ends {
    PST_ENDS_DEFAULT = 0,
    PST_ENDS_DROP,
    PST_ENDS_PAD,
    PST_ENDS_SHORT
} pst_ends;
typedef enum pst_on_error { PST_RAISE = 0, PST_SKIP } pst_on_error;

typedef enum pst_sampler {
    PST_SHUFFLE = 0,   /* a keyed permutation each epoch; see `run` */
    PST_SEQUENTIAL,    /* in id order */
    PST_WEIGHTED,      /* with replacement, by weights */
    PST_WEIGHTED_ONCE, /* without replacement, by weights */
    PST_GIVEN          /* `ids` is the order itself, used as it stands */
} pst_sampler;

/* Which of the samples that are left comes next. */
typedef enum pst_sampling {
    PST_SAMPLING_PLAIN = 0, /* the next of the sampler's order */
    /* One that another job of the group has prepared, where there is one: jobs on the same data
     * with the same pipeline do each other's work. Every sample still comes once an epoch, and no
     * preparation twice to one job. Needs ready order and a cache; batches get a field
     * "preparation", and random draws belong to preparations. */
    PST_SAMPLING_OPPORTUNISTIC = 1
} pst_sampling;

/* How workers are given samples. The others are there to be compared with. */
typedef enum pst_schedule {
    PST_SCHEDULE_PENSTOCK = 0,
    PST_SCHEDULE_PLAIN,           /* one pool: no lanes, no prediction */
    PST_SCHEDULE_INORDER,         /* plain, and strict whatever `order` says */
    PST_SCHEDULE_BATCH_PER_WORKER /* a worker makes a whole batch, one sample after the other */
} pst_schedule;
/* Parts of PST_SCHEDULE_PENSTOCK that can be left out, added up. */
typedef enum pst_without {
    PST_WITHOUT_LANES = 1,      /* slow samples stay with their worker */
    PST_WITHOUT_PREDICTION = 2, /* a sample is slow when it has taken long, not before */
    PST_WITHOUT_EARLY = 4,      /* samples that will be slow wait for their turn like others */
    PST_WITHOUT_PAST = 8,       /* what a sample took in earlier epochs counts for nothing */
    PST_WITHOUT_TUNER = 16      /* workers and reads under way stay as many as they are */
} pst_without;

typedef struct pst_job_options {
    size_t size;          /* sizeof(pst_job_options) */
    const char *pipeline; /* required */
    const char *split;    /* (NULL = the whole dataset) */
    const char *fields;   /* "image,label" or with packing "image=padded", "image=padded(32)" where
                             sizes are to be multiples (1..65536) (NULL = every typed field); views of
                             image come as image_0, image_1, … */
    int batch;            /* samples a batch (1..1048576; 32) */
    uint64_t seed;        /* (any; 0) */
    uint64_t first_epoch; /* (0..2^32-1; 0) */
    uint64_t epochs;      /* stop after so many (0 = no end) */
    int order;            /* pst_order (default strict) */
    int ends;             /* pst_ends (default: pad with several ranks, short with one) */
    int rank, world;      /* (0..world-1; 0), (1..65536; 1) */
    int sampler;          /* pst_sampler (default shuffle) */
    const int64_t
        *ids; /* samples to draw from, copied; for PST_GIVEN the order (NULL = the split) */
    int64_t ids_count;
    const double
        *weights; /* weighted samplers: one per sample of the dataset, copied (>= 0, finite) */
    int64_t weights_count;
    int64_t draws; /* weighted samplers: positions an epoch (0 = as many as samples drawn from) */
    int repeat;    /* each sample so many times in a row, drawn anew each time (1..1024; 1) */
    int on_error;  /* pst_on_error (default raise) */
    int64_t skip_limit; /* PST_SKIP: more bad samples than this raise (0..; 0) */
    int read_retries;   /* reads that fail are tried so often again (0..16; 0) */
    int ready_depth;    /* batches prepared ahead (0..64; 0 = 4, less if bytes are short) */
    int64_t
        reorder_window; /* ready order: R (0 = max(8 batches, 512), at most a tenth of the epoch) */
    int64_t draw_id;    /* id used in random draws instead of the sample's own (-1 = off; -1) */
    int leave_mix; /* 1 = batch ops are drawn but left to the caller, see pst_batch_mix; labels stay
                      numbers (0..1; 0) */
    int raw_finish; /* 1 = images come as they are before finish: u8, nhwc; the receiver does it,
                       see pst_job_finish; batch ops come after it, so leave_mix is on (0..1; 0) */
    int leases;     /* batches that the caller holds at once; more are written to fresh memory
                       (0..64; 0 = 1) */
    int no_cache;   /* 1 = the engine's cache is left alone (0..1; 0) */
    const pst_call *calls; /* the functions that call(...) names, copied; they and what user points
                              to are needed until the job is closed (NULL = none) */
    int call_count;        /* (0..256; 0) */
    int sampling;          /* pst_sampling (default plain) */
    const char *group;     /* opportunistic: jobs of one name share preparations (NULL = "") */
    int schedule;          /* pst_schedule (default penstock) */
    int without;           /* pst_without, added up (0..31; 0) */
    /* Batches hold samples of one bucket, but for the last of an epoch: one for each sample of the
     * dataset, copied (0..62; NULL = none). Or by what the listing knows: "bytes:6" for six of
     * equal size by stored bytes, "FIELD:6" by a field of numbers, "aspect" for wide and high
     * pictures, "aspect:3" with bounds at 2^(i/3), by the fields width and height (NULL = none). */
    const int32_t *buckets;
    int64_t buckets_count;
    const char *bucket_by;
    /* PST_SHUFFLE: so many neighbours in order of ids stay together, in this order, and such runs
     * are shuffled. From shards in a bucket each comes with one request (1..65536; 0 = 1). */
    int run;
} pst_job_options;

typedef struct pst_stage_stats {
    char name[32];
    uint64_t runs;
    uint64_t total_ns;
} pst_stage_stats;

#define PST_STAGES_MAX 24
typedef struct pst_job_stats {
    size_t size;                     /* sizeof(pst_job_stats), set by the caller */
    uint64_t samples, batches, pads; /* handed over */
    uint64_t skipped, warnings;      /* met so far, in what is prepared ahead too */
    uint64_t waits, wait_ns;         /* consumer's time in pst_job_next */
    uint64_t wait_p50_ns, wait_p99_ns;
    uint64_t first_batch_ns; /* from opening the job */
    uint64_t bytes_read;
    uint64_t peak_bytes; /* of the engine's budget */
    uint32_t ready_depth, stage_count;
    pst_stage_stats stages[PST_STAGES_MAX];
    uint64_t fresh_batches;            /* written outside the ring because the caller held it */
    uint64_t cache_hits, cache_misses; /* samples that began from their decoded form, or did not */
    uint64_t cache_bytes, cache_entries; /* of the engine: taken from the budget; samples in it */
    uint64_t read_away_ns; /* of the stage read: while the workers did something else */
    /* Samples met so far, in what is prepared ahead too: that were prepared for this job; that came
     * as others had prepared them. */
    uint64_t preparations, shared_hits;
    uint64_t encoded_hits;                   /* samples that began from their stored bytes */
    uint64_t form_entries[3], form_bytes[3]; /* of the engine: encoded, decoded, augmented */
    uint64_t evictions;                      /* of the engine */
    /* Samples met so far whose work passed the cut-off; how often one was put aside; the cut-off
     * now (0 = none). */
    uint64_t slow_samples, slow_parked, slow_cutoff_ns;
    uint64_t stragglers;           /* strict order: samples that all that may be ready waited for */
    uint64_t slow_early;           /* of slow ones begun before their turn */
    uint64_t active_workers;       /* of the engine: that may work at once, by the tuner */
    uint64_t prediction_error_ppm; /* mean error of predicted work, of the mean work (0 = none) */
    /* Tiers outside RAM. Samples met so far of which something came from the disk tier, or for
     * which nothing was there; bytes that came. The same of the remote tier. */
    uint64_t disk_hits, disk_misses, disk_read_bytes;
    uint64_t remote_hits, remote_misses, remote_read_bytes;
    /* Of the engine: what the disk tier holds; entries it wrote, let go, found damaged, did not get
     * written; errors of the disk; 1 = it is off. Errors of the remote tier. */
    uint64_t disk_entries, disk_bytes, disk_written, disk_evicted, disk_damaged, disk_dropped,
        disk_errors, disk_off;
    uint64_t remote_errors;
    /* Bytes a second that the remote tier was measured to bring (of the engine; 0 = not measured);
     * 1 = this job leaves decoded forms there alone, since they are dearer to get than to make. */
    uint64_t remote_bytes_s, remote_left;
    /* Samples met so far that another engine of the group had prepared, from the remote tier; in
     * neither preparations nor shared_hits. */
    uint64_t adopted;
} pst_job_stats;

/* How an image becomes what the pipeline asks for, once its last op is done. For an element x of
 * channel c: float(x) * scale[c] - bias[c], in float and in this order, then rounded to dtype.
 * dtype u8: x itself. */
typedef struct pst_finish_info {
    size_t size;       /* sizeof(pst_finish_info), set by the caller */
    int raw;           /* 1 = batches carry the image before this step (raw_finish) */
    int normalize;     /* 0 = mean 0, std 1: values are x / 255 */
    int channels;      /* 1..4; 0 = differs from sample to sample */
    int dtype, layout; /* that the pipeline asks for */
    double mean[4], std[4];
    float scale[4], bias[4];
} pst_finish_info;

PST_API void pst_job_options_init(pst_job_options *opts);
/* Takes references on engine and data; both may be freed or closed by their owner afterwards. Work
 * starts at once. */
PST_API int pst_job_open(pst_engine *engine, pst_dataset *data, const pst_job_options *opts,
                         pst_job **out, pst_error *err);
/* Stops the job's work and frees it. Batches still held stay valid. NULL is fine. */
PST_API void pst_job_close(pst_job *job);
/* The next batch. Returns 1 and a batch that the caller owns (pst_batch_release), 0 at the end of
 * an epoch (the next call goes on with the next epoch), or a negative code: see pst_job_error.
 * timeout_ns < 0 waits without end; -ETIMEDOUT otherwise. After `epochs` epochs it keeps returning
 * 0. */
PST_API int pst_job_next(pst_job *job, int64_t timeout_ns, pst_batch **out);
/* Makes pst_job_next return -ECANCELED now and later. Does not block; safe in a signal handler. */
PST_API void pst_job_abort(pst_job *job);
/* Drops what was not delivered and makes `epoch` the next one, from its start. Free when it is next
 * anyway. */
PST_API int pst_job_set_epoch(pst_job *job, uint64_t epoch);
/* The epoch that the next batch belongs to, and the steps of an epoch for this rank. */
PST_API uint64_t pst_job_epoch(const pst_job *job);
PST_API int64_t pst_job_steps(const pst_job *job);
/* The last error of pst_job_next. */
PST_API void pst_job_error(const pst_job *job, pst_error *out);
PST_API void pst_job_stats_get(const pst_job *job, pst_job_stats *out);
/* The fields that the job delivers, as in its batches; shapes that vary are -1, format is empty.
 * index from 0; -ENOENT past the end. */
PST_API int pst_job_field(const pst_job *job, int index, pst_field_info *out);
/* What finish does, or leaves to the receiver, for an image or mask of the job. -ENOENT when the
 * job has no such field, PST_EFIELD when it is no picture. */
PST_API int pst_job_finish(const pst_job *job, const char *field, pst_finish_info *out);
/* The blocks that batches lie in, for who wants to register them with a device: page-aligned, the
 * same as long as the job is open. index from 0; -ENOENT past the end, and at once for a job whose
 * batches have no fixed size. The first call makes those that did not exist yet. Undo the
 * registration before pst_job_close; a block that is leased then lives on until it is released.
 * Batches beyond the ring (fresh_batches) are in none of them. */
PST_API int pst_job_memory(const pst_job *job, int index, void **base, size_t *bytes);

/* What was handed to the caller so far. Writes at most cap bytes and sets *bytes to what it wrote.
 * If cap is less than needed: -ENOSPC, and *bytes is a size that will do. */
PST_API int pst_job_state(const pst_job *job, void *buf, size_t cap, size_t *bytes);
/* Goes on where a state was taken. Before the first pst_job_next only. Refused (PST_ESTATE, both
 * values named) when dataset, pipeline, seed, sampler or order differ; world and batch may differ,
 * but not the batch where there are buckets. */
PST_API int pst_job_load_state(pst_job *job, const void *state, size_t bytes, pst_error *err);
/* Joins the states of all ranks into one. *out is malloc'ed and becomes the caller's (pst_free). */
PST_API int pst_state_merge(const void *const *states, const size_t *bytes, size_t count,
                            void **out, size_t *out_bytes, pst_error *err);

/* ---- batches --------------------------------------------------------------------------------- */

/* The descriptor; valid until pst_batch_release. Read-only. */
PST_API const pst_batch_desc *pst_batch_get(const pst_batch *batch);
/* Field by index or by name (NULL when there is none), and its data. */
PST_API const pst_field *pst_batch_field(const pst_batch_desc *desc, uint32_t index);
PST_API const pst_field *pst_batch_find(const pst_batch_desc *desc, const char *name);
PST_API const void *pst_batch_data(const pst_batch_desc *desc, const pst_field *field);
/* One slot of a field: its bytes and size. */
PST_API const void *pst_batch_slot(const pst_batch_desc *desc, const pst_field *field,
                                   uint32_t slot, size_t *bytes);
/* What the pipeline's batch op drew for this batch: 1, or 0 when it left the batch alone or there
 * is none. */
PST_API int pst_batch_mix(const pst_batch *batch, pst_mix *out);
/* Gives the batch back; its memory may be reused at once. NULL is fine. A batch may be kept for any
 * time: while the ring is held, further ones are written to fresh memory beyond the budget, which
 * is freed on release. */
PST_API void pst_batch_release(pst_batch *batch);

/* ---- one sample at a time ---------------------------------------------------------------------
 */

/* The pipeline on single samples, on the calling thread: no engine, no threads, no budget. For
 * processes that run code of their own on each sample after a native part. One thread at a time per
 * prep; one made before fork may be used in the child unless a call was under way then. */
typedef struct pst_prep pst_prep;
/* A pipeline with call(...) is refused: run the function on what the prep gives. */
PST_API int pst_prep_new(const char *pipeline, uint64_t seed, pst_prep **out, pst_error *err);
/* Encoded bytes to a batch of one slot, the caller's (pst_batch_release), with what the pipeline
 * makes of the field `image`; always dense. The bytes are those that a job gives for the same seed,
 * epoch, sample id and occurrence in the epoch. */
PST_API int pst_prep_run(pst_prep *prep, const void *bytes, size_t size, uint64_t epoch, int64_t id,
                         uint64_t occurrence, pst_batch **out, pst_error *err);
/* The same of a regular file, whose path becomes the key. */
PST_API int pst_prep_run_file(pst_prep *prep, const char *path, uint64_t epoch, int64_t id,
                              uint64_t occurrence, pst_batch **out, pst_error *err);
/* NULL is fine. */
PST_API void pst_prep_free(pst_prep *prep);

PST_API size_t pst_dtype_bytes(int dtype);
/* CRC32C, as used in ledgers. Start with 0; chainable. */
PST_API uint32_t pst_crc32c(uint32_t crc, const void *bytes, size_t size);

#ifdef __cplusplus
}
#endif

#include "penstock/datasets.h"
#include "penstock/plan.h"
#include "penstock/serve.h"
#include "penstock/watch.h"
#endif
