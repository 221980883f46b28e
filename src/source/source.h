/* SPDX-License-Identifier: Apache-2.0
 * Where bytes come from. A dataset is an ordered manifest of samples; each sample has fields, which
 * are either members (bytes in a file or in a tar shard, read when needed) or values (kept in the
 * manifest: labels, numbers, texts). Ids are dense and in key order (byte-wise ascending for
 * folders; shard order then member order for tar; line order for manifests; the order of image ids
 * for COCO; as given for a list of files). A dataset is shared by reference count and does not
 * change, except that a changed file's record may be renewed. */
#ifndef PSTI_SOURCE_SOURCE_H
#define PSTI_SOURCE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/field.h"
#include "core/hash.h"
#include "penstock.h"

typedef struct psti_dataset psti_dataset;

enum { PSTI_FIELDS_MAX = 32 };

typedef struct psti_source_field {
    pst_field_info info;
    bool member;     /* true: read with psti_dataset_extent; false: psti_dataset_value */
    bool per_object; /* a value for each object in the picture, in the same order */
} psti_source_field;

int psti_dataset_open(const char *path, const pst_dataset_options *opts, psti_dataset **out,
                      pst_error *err);
/* Where a dataset lies: an open directory, and the name of a file in it (NULL = the directory is
 * the dataset). path: what the directory is called; it is not opened, but shown in messages and
 * part of the name under which listings are remembered. */
typedef struct psti_place {
    int root;
    const char *path, *name;
} psti_place;
/* The directory is opened anew; at stays the caller's. */
int psti_dataset_open_at(const psti_place *at, const pst_dataset_options *opts, psti_dataset **out,
                         pst_error *err);
/* root becomes the caller's, path and name are the dataset's; path may be that of the file.
 * -ENOTSUP for datasets that lie in no one place: lists of files, functions. */
int psti_dataset_place(const psti_dataset *data, psti_place *out);
/* Everything is copied. No file is looked at. */
int psti_dataset_files(const pst_files *spec, psti_dataset **out, pst_error *err);
/* 1: the dataset was made from a list with the same entries; 0: not. Negative: what next answered.
 */
int psti_dataset_files_same(const psti_dataset *data, const pst_files *spec, pst_error *err);
psti_dataset *psti_dataset_ref(psti_dataset *data);
void psti_dataset_unref(psti_dataset *data);

int64_t psti_dataset_count(const psti_dataset *data);
const char *psti_dataset_kind(const psti_dataset *data);
/* Owned by the dataset; NULL for an id that there is not, or (list of files) when memory is short.
 */
const char *psti_dataset_key(const psti_dataset *data, int64_t id);
/* The same without keeping anything: points into the dataset or to room, which has
 * psti_dataset_key_max + 1 bytes; *len without the terminator. The id is one that there is. */
const char *psti_dataset_key_in(const psti_dataset *data, int64_t id, char *room, size_t *len);
enum { PSTI_KEY_ROOM = 4097 };                         /* enough for every key */
size_t psti_dataset_key_max(const psti_dataset *data); /* longest key, in bytes */
psti_id128 psti_dataset_identity(const psti_dataset *data, int64_t id);
psti_id128 psti_dataset_revision(psti_dataset *data); /* computed once, then kept */
int psti_dataset_fields(const psti_dataset *data, const psti_source_field **out);
int64_t psti_dataset_classes(const psti_dataset *data);
const char *psti_dataset_class(const psti_dataset *data, int64_t label);
/* Labels of all samples, by id; NULL where some have none or they come with the samples. */
const int64_t *psti_dataset_labels(psti_dataset *data);
int psti_dataset_splits(const psti_dataset *data);
const char *psti_dataset_split_name(const psti_dataset *data, int index);
int psti_dataset_split(const psti_dataset *data, const char *name, const int64_t **ids,
                       int64_t *count);
uint64_t psti_dataset_bytes(const psti_dataset *data); /* memory the manifest holds */

/* A value field. *value points into the dataset: int64_t, double, or UTF-8 text of *bytes; arrays:
 * *bytes of numbers of the field's type. -ENOENT if absent; -EAGAIN when it comes with the sample,
 * see below, and the sample was not read yet: what keeps decoded samples must read this one again.
 */
int psti_dataset_value(const psti_dataset *data, int64_t id, int field, const void **value,
                       size_t *bytes);
uint64_t psti_dataset_sample_bytes(const psti_dataset *data, int64_t id);

/* Where a member lies, and what the file must look like when it is opened. */
typedef struct psti_extent {
    int root;         /* directory fd that path is opened beneath; owned by the dataset */
    const char *path; /* relative; owned by the dataset; a shard for tar; NULL with list */
    /* A path of the caller's own list, and its number: links are followed wherever they lead. */
    const struct psti_paths *list;
    int64_t number;
    int shard_fd; /* >= 0: an open shard, owned by the dataset, path is for messages */
    /* In a bucket: root is -1, the object's key is prefix and path. etag: "" = not known; NULL: its
     * digits are in mtime_ns and inode. Owned by the dataset, all of them. */
    struct psti_bucket *bucket; /* NULL: a file */
    const char *prefix, *etag;
    uint64_t offset, length;
    uint64_t file_size;
    int64_t mtime_ns;
    uint64_t inode;
    uint64_t version; /* with list, in place of time and inode; 0: only the size must fit */
    bool loose;       /* only the size must fit: what is in it tells what it is */
    /* Of a pulled file whose blocks have checksums: what is read is compared with them. Else NULL.
     */
    const struct psti_guard *guard;
    void *guard_user;
    uint64_t first_block; /* number of the file's first one */
} psti_extent;
/* -ENOENT if the sample lacks the field; -EAGAIN if its file was not looked at yet. */
int psti_dataset_extent(const psti_dataset *data, int64_t id, int field, psti_extent *out);

/* Whether samples lie in a bucket: then reads wait for a server, never for a disk, and what failed
 * was tried often enough. */
bool psti_dataset_is_far(const psti_dataset *data);
/* Where it lies, for messages; NULL for a list of files or a function. */
const char *psti_dataset_path(const psti_dataset *data);
const char *psti_dataset_url(const psti_dataset *data); /* of such a dataset; else NULL */
/* A dataset of files that were copied from a bucket gets the identities of the objects there: asks
 * for the etag of each file, by its path below the root and its size. 0: set *etag, which is
 * copied; other answers end it and are returned. Before anybody else has the dataset. */
int psti_dataset_take_etags(psti_dataset *data,
                            int (*find)(void *user, const char *path, uint64_t size,
                                        const char **etag),
                            void *user);

/* What is kept of its samples is kept for this dataset alone: its owner chose the server that says
 * what they are, and another one may say the same of other bytes. The revision stays what it is.
 * Before anybody else has the dataset. */
void psti_dataset_keep_apart(psti_dataset *data, const char *name);

/* What was found out about a field since; the revision stays what it is. Before anybody else has
 * the dataset. */
void psti_dataset_know_field(psti_dataset *data, int field, const pst_field_info *info);

/* A dataset as bytes, for another process of this machine: what it is made of, not the files. Not
 * for lists of files and functions (-ENOTSUP). *bytes is psti_malloc'ed. */
int psti_dataset_pack(psti_dataset *data, uint8_t **bytes, size_t *size);
/* Where such a dataset is to be found here: the open folder of a pulled dataset and which revision;
 * both are copied. psti_dataset_folder tells them: folder becomes the caller's; -ENOENT: it has
 * none. */
typedef struct psti_folder {
    int set;
    const char *path, *revision;
} psti_folder;
/* -EPROTO: these are no such bytes, or of another version of the library. */
int psti_dataset_unpack(const uint8_t *bytes, size_t size, const psti_folder *at,
                        psti_dataset **out, pst_error *err);
int psti_dataset_folder(const psti_dataset *data, psti_folder *out);
/* Whether its samples can be read in this process; else only through whoever listed it. */
bool psti_dataset_is_here(const psti_dataset *data);

/* What is known of the files of a pulled dataset. */
enum { PSTI_GUARD_BLOCK = 16 << 10 }; /* bytes of a block, at most */
typedef struct psti_guard {
    uint32_t block_bytes;
    /* Asked while the dataset is opened only, by its path below the root and its size; -ENOENT: not
     * known. sum: CRC32C of a file, once for each; first: number of its first block, by any thread.
     */
    int (*sum)(void *user, const char *path, uint64_t size, uint32_t *crc);
    int (*first)(void *user, const char *path, uint64_t size, uint64_t *first);
    /* CRC32C of blocks that follow each other; any thread. */
    int (*blocks)(void *user, uint64_t first, size_t count, uint32_t *out);
    /* Brings a file again of which that part is gone or damaged, unless it is whole by now: 1 = it
     * was fetched. Waits; any thread. */
    int (*mend)(void *user, const char *path, uint64_t offset, uint64_t length, pst_error *err);
    void (*free)(void *user); /* with the dataset */
} psti_guard;
/* As psti_dataset_open and psti_dataset_open_at (at, if it is not NULL) for a folder whose files
 * are guarded: what is read of shards to list them is compared, too. psti_dataset_guard is still to
 * be called. */
int psti_dataset_open_guarded(const char *path, const psti_place *at,
                              const pst_dataset_options *opts, const psti_guard *guard, void *user,
                              psti_dataset **out, pst_error *err);
/* guard stays the caller's, and lives for ever; user is taken in any case. Only free need be set:
 * then nothing is known. Before anybody else has the dataset. 0 or -ENOMEM. */
int psti_dataset_guard(psti_dataset *data, const psti_guard *guard, void *user);
/* Whether something is compared: whole files with their checksums, parts with those of blocks. */
bool psti_dataset_is_guarded(const psti_dataset *data);
/* Of such a dataset: whether these are the bytes of that member's file. */
bool psti_dataset_check(const psti_dataset *data, int64_t id, int field, const uint8_t *bytes,
                        uint64_t size);
/* 0: the file was brought again, and its extent may be asked for anew. Waits. */
int psti_dataset_mend(psti_dataset *data, int64_t id, int field, pst_error *err);
/* Reads the first length bytes of a member at once, in the calling thread; of a guarded one only
 * what was compared, mended where need be. */
int psti_dataset_read_now(const psti_dataset *data, int64_t id, int field, uint64_t length,
                          uint8_t *buf);
/* Copies of objects on a local disk, of a dataset that lies in a bucket: what is there is read from
 * them, compared block by block, and from the bucket where that fails. */
typedef struct psti_near {
    psti_guard guard; /* block_bytes, blocks and free */
    /* An open folder in which the object lies under its path, and the number of its first block;
     * -ENOENT: it does not. Any thread; quick. */
    int (*find)(void *user, const char *path, uint64_t size, const char *etag, uint64_t *first);
} psti_near;
/* near lives for ever; user is taken. Before anybody else has the dataset. */
void psti_dataset_set_near(psti_dataset *data, const psti_near *near, void *user);
/* Copies are not what they should be: from now on the bucket alone is read. */
void psti_dataset_leave_near(psti_dataset *data);
/* Files that are read when a dataset is opened: annotations, transcripts, lists of splits. */
bool psti_is_listing_file(const char *path);

/* Keeps from now on what the identities of a list of files need, 8 bytes a sample: files that were
 * looked at before are looked at again. Nothing to do for other datasets. Idempotent. 0 or -ENOMEM.
 */
int psti_dataset_keep_versions(psti_dataset *data);

/* Looks at the files of a sample that nobody looked at before; may wait for a disk. Until then
 * extents answer -EAGAIN, bytes are 0 and the identity is not the final one. 0, or why a file
 * cannot be used. */
int psti_dataset_look(psti_dataset *data, int64_t id);

/* The file behind a sample is not the one that was listed: takes its present size and time into the
 * manifest, so that it is served as what it now is; the identity changes with it. Says so once per
 * dataset. Tar members and vanished files cannot be renewed: negative. */
int psti_dataset_renew(psti_dataset *data, int64_t id, int field, pst_error *err);

/* Starts comparing every file with the manifest in the background (after a start from a remembered
 * listing); changed files are renewed, files that came or went are reported once. Idempotent. Ends
 * by itself or with the dataset. */
void psti_dataset_verify(psti_dataset *data);

/* ---- samples that the caller's function fetches
 * ---------------------------------------------------
 */

/* Everything but threads and functions is copied; user is the dataset's once it stands. */
int psti_dataset_custom(const pst_custom *spec, psti_dataset **out, pst_error *err);
/* Whether samples are fetched (psti_fetch_submit) instead of read (psti_dataset_extent). */
bool psti_dataset_fetches(const psti_dataset *data);
/* Starts the reading threads in this process; nothing to do for other datasets. Idempotent. */
int psti_dataset_start(psti_dataset *data, pst_error *err);

/* What came for one field. */
typedef struct psti_part {
    const uint8_t *bytes; /* may point to small */
    size_t size;
    void (*free_fn)(void *arg); /* NULL: nothing to free */
    void *arg;
    uint64_t small;
    bool there;
} psti_part;

struct pst_sink {
    const psti_dataset *data;
    psti_part part[PSTI_FIELDS_MAX]; /* by the dataset's fields */
    int rc;                          /* of the first thing that was refused */
    pst_error error;
};

/* One sample; caller's storage, zeroed before its first use and not moved while it holds parts. */
typedef struct psti_fetch {
    int64_t id;
    bool (*wanted)(struct psti_fetch *fetch); /* asked before the caller's function is called */
    /* Called once from a reading thread, which holds no lock. Negative: sink.error says why. */
    void (*done)(struct psti_fetch *fetch, int status);
    void *user;
    pst_sink sink;
    uint64_t took_ns;        /* in the caller's function; set before done */
    psti_dataset *data;      /* the queue's own */
    struct psti_fetch *next; /* the queue's own */
} psti_fetch;

/* Never blocks. The dataset was started. Every fetch is done exactly once. */
void psti_fetch_submit(psti_dataset *data, psti_fetch *fetch);
/* The same in the calling thread; id alone need be set. */
int psti_fetch_now(psti_dataset *data, psti_fetch *fetch);
/* Lets go of the parts. Calls the caller's functions: no lock may be held. */
void psti_fetch_clear(psti_fetch *fetch);

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct psti_reader psti_reader;

/* One read; caller's storage, untouched by the caller between submit and done. */
typedef struct psti_read {
    psti_extent at;
    uint8_t *buf; /* at.length bytes */
    /* Called once from an I/O thread; must not block. status: 0, -errno, or PST_ECHANGED when the
     * file is not the one listed. */
    void (*done)(struct psti_read *read, int status);
    void *user;
    pst_error *err;         /* of a read from a bucket: why it failed; may be NULL */
    bool more;              /* what lies behind it will surely be asked for next */
    struct psti_read *next; /* the reader's own */
    void *state;            /* the reader's own */
} psti_read;

/* io: pst_io. depth: reads in flight; more are queued. */
int psti_reader_open(int io, int depth, psti_reader **out, pst_error *err);
/* Which it became: PST_IO_URING or PST_IO_THREADS. */
int psti_reader_kind(const psti_reader *reader);
/* Never blocks. Every accepted read completes exactly once. */
void psti_reader_submit(psti_reader *reader, psti_read *read);
/* Between the two reads from buckets are gathered, and those of members that lie close together in
 * a shard go as one request. calm: there is other work, and the caller will surely unplug again
 * when some of it is done; so reads that go on in a shard where others ended, and those with
 * `more`, may wait for those that follow, until that call or until it is worth a request. Pairs may
 * nest, and never block; NULL is fine. */
void psti_reader_plug(psti_reader *reader);
void psti_reader_unplug(psti_reader *reader, bool calm);
/* Nobody waits for the read any more: if it is on its way to a bucket it may come back with
 * -ECANCELED. Does nothing to others, nor to one that is done. */
void psti_reader_cancel(psti_reader *reader, psti_read *read);
/* Waits for what was submitted; frees. NULL is fine. */
void psti_reader_close(psti_reader *reader);
/* The same read at once, in the calling thread. */
int psti_read_now(const psti_extent *at, uint8_t *buf);
/* The same, but -EAGAIN rather than wait for a disk. */
int psti_read_try(const psti_extent *at, uint8_t *buf);
/* Of an extent only these runs, each to its own place in buf, which has room for all of it. try: as
 * psti_read_try. */
int psti_read_spans(const psti_extent *at, const psti_span *span, bool try, uint8_t *buf);
/* Asks the system to let go of what it holds of the extent in memory, so that the next read comes
 * from where the bytes lie. A wish: it may be ignored. */
int psti_read_forget(const psti_extent *at);

#endif
