/* SPDX-License-Identifier: Apache-2.0
 * The depot from inside. Private.
 *
 *   DIR/.lock                 flock: whoever reserves or evicts
 *   DIR/limit                 capacity and watermarks, as text
 *   DIR/NAME/.pulling         locked by the one who pulls this name
 *   DIR/NAME/.given           its owner says where it comes from, at each start of who keeps it
 *   DIR/NAME/.use.REVISION    how often it was used, and when; stays when it is evicted
 *   DIR/NAME/latest           link to a revision
 *   DIR/NAME/REVISION/        a complete one: data/KEY…, manifest, blocks (checksums of the blocks
 *                             of each object), .complete, .lock (shared by readers), .pin
 *   DIR/NAME/.REVISION/       one that is not complete: the same without .complete, and listing
 *                             (its objects; that it is there reserves their bytes), parts/N (object
 *                             number N so far), boot (of the machine that wrote the parts), done
 *                             (what is known of each object that is there), left (a bit for each
 *                             object that there was no room for; absent = there was for all)
 *   DIR/NAME/.gone.*          on its way out
 *
 * A revision is shown by one rename, .REVISION to REVISION, after everything in it is on the disk,
 * and hidden again by the reverse one before anything is taken away. A part belongs to the etag
 * that its folder's name was hashed from, so it can be gone on with by a Range of that etag. */
#ifndef PSTI_DEPOT_PRIV_H
#define PSTI_DEPOT_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "core/hash.h"
#include "core/keys.h"
#include "core/memory.h"
#include "core/status.h"
#include "depot/depot.h"

enum {
    REVISION_HEX = 32,
    ETAG_MOST = 131,
    CONNECTIONS_AUTO = 16,
    CONNECTIONS_MOST = 256,
};

/* ---- objects (listing.c) ----------------------------------------------------------------------
 */

typedef struct object {
    uint64_t size;
    uint64_t key, etag; /* places in the listing's text */
    uint64_t blocks;    /* number of its first block among those of all objects */
    uint32_t crc;       /* CRC32C of its bytes, where known */
    uint32_t took_us;   /* its share of the time that the pull took */
    uint32_t number;    /* its place in the revision's listing */
    bool known;         /* crc and took_us are set */
    bool shared;        /* another revision has the same file; set by the survey */
    bool left;          /* there is no room for it: not part of what is pulled */
} object;

/* Objects in byte order of their keys. Zeroed is empty. */
typedef struct listing {
    object *objects;
    size_t count, cap;
    char *text;
    size_t text_used, text_cap;
    uint64_t bytes;  /* sum of the sizes */
    uint64_t blocks; /* of all objects */
} listing;

void listing_fini(listing *l);
/* Checks and appends; keys must come in order. */
int listing_add(listing *l, const char *key, size_t key_len, uint64_t size, const char *etag,
                pst_error *err);
static inline const char *object_key(const listing *l, const object *o)
{
    return l->text + o->key;
}
static inline const char *object_etag(const listing *l, const object *o)
{
    return l->text + o->etag;
}
/* Orders objects of two listings by key, and by what they are where keys are equal: 0 = the same
 * bytes. */
int object_compare(const listing *a, const object *x, const listing *b, const object *y);
object *listing_find(const listing *l, const char *key); /* NULL: there is none */
/* Refuses a key that is a file and a folder at once. */
int listing_check(const listing *l, pst_error *err);
void listing_revision(const listing *l, char hex[REVISION_HEX + 1]);
/* To NAME in dir, by way of a temporary name; on the disk when it returns. */
int listing_write(const listing *l, int dir, const char *name, const char *url, pst_error *err);
/* PST_ECORRUPT when the file is not what was written. url has cap bytes, and may be NULL. */
int listing_read(listing *l, int dir, const char *name, char *url, size_t cap, pst_error *err);

/* What is known of objects that are there, a line each, appended as they come; a line that was cut
 * short by the end of a process counts for nothing. */
enum { DONE_LINE = 27 };
int done_append(int fd, const object *o);
bool done_parse(listing *l, const char *line); /* one line; false: it is none */
int done_read(listing *l, int dir);
int done_write(const listing *l, int dir); /* those that are known */

/* Which objects there is no room for (left.c). read: sets left; -ENOENT: there is for all. */
int left_write(const listing *l, int rev);
int left_read(listing *l, int rev);

/* ---- checksums of blocks (blocks.c) ------------------------------------------------------------
 */

typedef struct puller puller;
/* Blocks of an object, the last of which may be shorter. */
uint64_t blocks_of(uint64_t size);
/* The file of a revision, made where it is missing: a descriptor, or -errno. */
int blocks_open(int rev, const listing *l);
/* Those of any blocks by their numbers among all. PST_ECORRUPT when there are less. */
int blocks_get(int fd, uint64_t first, size_t count, uint32_t *out);
/* Room for those of an object, to be let go with psti_free; NULL when memory is short. */
uint32_t *blocks_room(const object *o);
/* Those of an object. PST_ECORRUPT when they do not make up its checksum. */
int blocks_load(int fd, const object *o, uint32_t *sums);
int blocks_put(int fd, const object *o, uint32_t *sums);
/* The same, unless that is what is there. */
int blocks_note(int fd, const object *o, uint32_t *sums);
/* Makes those that are missing of objects that are known, from their files; an object whose file is
 * not what was noted is forgotten. */
int blocks_complete(puller *p);

/* ---- where objects come from (bucket.c, folder.c) ---------------------------------------------
 */

typedef struct bucket bucket;
/* Bytes in order, on the thread that called get; non-zero stops. */
typedef int (*bucket_sink)(void *user, uint64_t at, const uint8_t *bytes, size_t count);

typedef struct stretch {
    uint64_t from, to;
} stretch;

typedef struct bucket_ops {
    /* All objects into an empty listing. */
    int (*list)(bucket *b, listing *out, pst_error *err);
    /* Bytes from..to of an object that must be the one listed (else PST_ECHANGED). Waits; any
     * number of threads. */
    int (*get)(bucket *b, const listing *l, const object *o, stretch part, bucket_sink sink,
               void *user, pst_error *err);
    /* Ends what runs, soon: get answers -ECANCELED. Any thread. */
    void (*stop)(bucket *b);
    void (*close)(bucket *b);
} bucket_ops;

struct bucket {
    const bucket_ops *ops;
    char *prefix; /* before every key; "" or ends in '/' */
    /* Asked now and then while listing; non-zero stops it. NULL = nobody. */
    int (*ask)(void *user);
    void *user;
    bool one;   /* a single object, whose key is the prefix */
    int others; /* threads that get from it at once, beside one */
    void *state;
};

int bucket_open(const char *url, bucket **out, pst_error *err);
void bucket_close(bucket *b); /* NULL is fine */
/* What it was opened with is a prefix, also without a slash at its end: for whoever does not list.
 */
void bucket_is_folder(bucket *b);
/* folder.c: a folder as a bucket; its etags are size and time of change. */
int folder_bucket_open(const char *path, bucket *b, pst_error *err);

/* ---- between receiving and writing (relay.c) ---------------------------------------------------
 */

typedef struct relay {
    uint8_t *bytes;
    size_t cap;
    bool waits;           /* who gives waits for room; else he is told that there is none */
    pthread_mutex_t lock; /* guards what follows; a leaf */
    pthread_cond_t moved;
    uint64_t taken; /* bytes before those that are held */
    size_t held;
    bool full, stopped, ended;
    int status;
} relay;

/* Bytes that one holds at most; tests make it small. */
extern size_t depot_relay_bytes;
/* most: bytes that will come; others: how many there are beside it, with which it shares room. */
int relay_init(relay *r, uint64_t most, int others, bool waits);
void relay_fini(relay *r);
/* Non-zero: not all of it was taken, there must come no more. */
int relay_give(relay *r, const uint8_t *bytes, size_t count);
void relay_end(relay *r, int status); /* nothing follows */
/* Hands on what comes until the end; *at goes along. False: sink wants no more. */
bool relay_take(relay *r, uint64_t *at, bucket_sink sink, void *user);
int relay_wait(relay *r); /* for the end: its status */
/* After the end, when all was taken: may be used again. True: it was full. */
bool relay_again(relay *r);

/* ---- files (files.c) --------------------------------------------------------------------------
 */

/* -errno, or a descriptor. Parts of a path are folders, never links. */
int dir_open(int at, const char *name);
int dir_make(int at, const char *name); /* as well when it is there */
/* The folder of a key, made where it is missing if make; *leaf points into key. */
int dir_of_key(int at, const char *key, bool make, const char **leaf);
/* Everything below name, and name. Bytes of files that had no other link are added to *freed (may
 * be NULL). What is not there is fine. */
int tree_remove(int at, const char *name, uint64_t *freed);
/* The same for all names in the folder that begin so: what an earlier process left. */
void sweep(int at, const char *prefix);
/* All of a small file, ended by a zero; length or -errno (-EFBIG when it does not fit). */
ssize_t file_read(int at, const char *name, char *buf, size_t cap);
/* A small file by way of a temporary name; on the disk when it returns. */
int file_write(int at, const char *name, const void *bytes, size_t count);
int write_all(int fd, const void *bytes, size_t count);
int write_at(int fd, const void *bytes, size_t count, uint64_t at); /* blocks.c */
/* A file opened for a lock, made where it is missing. */
int lock_open(int at, const char *name);
/* Locks of open files (the kernel drops them with the last descriptor), which unlike flock can be
 * asked about without being taken. share waits; take does not: -EBUSY when somebody has it. */
int lock_share(int fd);
int lock_take(int fd);
bool lock_is_held(int at, const char *name);

/* ---- the depot (depot.c) ----------------------------------------------------------------------
 */

typedef struct depot {
    char path[PST_PATH_BYTES];
    int dir;
    int lock; /* of .lock; -1 = not taken */
} depot;

/* dir NULL = the default. make: made where it is missing; else -ENOENT. */
int depot_open(depot *d, const char *dir, bool make, pst_error *err);
void depot_close(depot *d);
int depot_lock(depot *d, pst_error *err); /* waits; let go by depot_close or depot_unlock */
void depot_unlock(depot *d);
bool name_ok(const char *name, size_t len);
bool revision_ok(const char *text);
int bad_name(const char *name, pst_error *err);
/* NAME[@REVISION], penstock:// before it or not. revision is empty where none was given. */
int spec_split(const char *spec, char name[PST_DATASET_NAME_BYTES],
               char revision[PST_REVISION_BYTES], pst_error *err);
/* DIR/NAME/FOLDER/data; empty where that is too long. */
void path_join(char out[PST_PATH_BYTES], const char *dir, const char *name, const char *folder);
/* Writes `.REVISION` or `REVISION`. */
const char *rev_folder(char out[REVISION_HEX + 2], const char *revision, bool complete);
/* What .complete holds. */
typedef struct summary {
    uint64_t objects, bytes;
    double refetch_s;
    uint32_t block_bytes; /* of its checksums of blocks; 0 = it has none */
    char url[1024];
} summary;
int summary_write(int dir, const summary *s);
int summary_read(int dir, summary *s);
/* Uses of a revision; nought where nothing is noted. */
void uses_read(int set, const char *revision, double *uses, int64_t *last_s);
void uses_add(int set, const char *revision);
int64_t wall_s(void);
/* Points latest of an open dataset folder to a revision. */
int latest_set(int set, const char *revision);
bool latest_is(int set, const char *revision);

/* ---- all that is there (survey.c) -------------------------------------------------------------
 */

typedef struct held_revision {
    pst_revision shown;
    listing objects;
    bool loaded; /* objects are told: of one that is complete or being pulled all, else those that
                    are there */
    bool made;   /* being made by the caller: not counted, never evicted */
    bool gone;   /* goes as a whole: counted no more */
    uint64_t parts_bytes; /* of objects that are not whole yet, where nobody pulls it */
    uint64_t pending;     /* reserved by whoever pulls it, and not on the disk yet */
} held_revision;

typedef struct survey {
    held_revision *revisions;
    size_t count, cap;
    uint64_t used; /* bytes of all, shared ones once */
} survey;

/* What is there, by name and then the latest first. load: with objects, so that shared files are
 * told apart; else used is an upper bound where a name has several revisions. */
int survey_take(depot *d, bool load, survey *out, pst_error *err);
/* The same for one dataset. */
int survey_dataset(depot *d, const char *name, bool load, survey *out);
void survey_fini(survey *s);
uint64_t survey_parts(int rev); /* bytes in the folder parts */
/* Bytes that are reserved and not on the disk yet. */
uint64_t survey_pending(const survey *s);
/* Fills shared, bytes_own and used; again after a listing was added. */
void survey_share(survey *s);

/* ---- eviction (evict.c) ------------------------------------------------------------------------
 */

/* Locked. Makes room for the objects of a revision that is being pulled, by the watermarks: those
 * that are not known to be there, less bytes that parts of them have already. -ENOSPC when that
 * cannot be, and then nothing is evicted; short_of (may be NULL) gets the figures. partial: then
 * as many of them as there is room for, and the others are left. */
typedef struct room_wish {
    const char *name, *revision;
    listing *wanted;
    uint64_t parts;
    bool partial;
    pst_pull_failure *short_of;
} room_wish;
int depot_make_room(depot *d, const room_wish *wish, pst_error *err);
/* Bytes a unit has at least before a revision is split into several; tests make it small. */
extern uint64_t depot_unit_bytes;
int limits_read(depot *d, pst_datasets_limits *out, pst_error *err);

/* ---- mending (mend.c) --------------------------------------------------------------------------
 */

/* What has to be known of a revision to bring a file of it again. */
typedef struct mending {
    const listing *objects;
    const char *url;
    int data;   /* the folder with its files */
    int blocks; /* their checksums; -1 = there are none */
} mending;
/* Brings an object again, unless that part of it is whole by now: 1 = it was fetched. */
int mend_object(const mending *m, const object *o, stretch part, pst_error *err);
/* All of it is what was noted. */
bool object_is_whole(const mending *m, const object *o);
/* There, and of its length. */
bool object_is_there(const mending *m, const object *o);

/* ---- pulling ------------------------------------------------------------------------------------
 */

/* One pull. Its threads share what is marked. */
struct puller {
    depot d;
    const char *name;
    char url[1024], revision[REVISION_HEX + 1];
    pst_pull_options opts;
    pst_pull_failure failure;
    bool some_left; /* not all of it fits */
    bucket *from;
    listing objects; /* each changed by the one thread that fetches it */
    int set, lock;   /* the dataset's folder; its .pulling */
    int rev, data, parts, done, blocks;
    uint64_t start_ns;

    atomic_size_t next; /* shared: object that is looked at next; counter */
    atomic_bool stop;   /* shared: partner: sink */
    atomic_uint_fast64_t objects_done, bytes_done, bytes_linked, bytes_fetched, bad; /* counters */
    pthread_mutex_t guard; /* guards what follows; a leaf */
    pthread_cond_t ended;
    int running, rc;
    pst_error *err;
};

/* fetch.c: all objects that are not known, by threads. */
int fetch_all(puller *p, pst_error *err);
/* CRC32C of a file's bytes; those of its blocks and its MD5 (32 hex digits; empty where the build
 * has none) if they are asked for. */
int digest_file(int fd, uint64_t size, uint32_t *crc, uint32_t *sums, char md5[33]);
/* look.c: forgets objects whose files are gone, of another length or, with opts.check, of other
 * bytes; links what other revisions have. */
int look_over(puller *p, pst_error *err);
int link_others(puller *p, pst_error *err);
/* Tells how far it is; -ECANCELED when the caller wants no more. */
int pull_tell(puller *p);

#endif
