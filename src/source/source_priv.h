/* SPDX-License-Identifier: Apache-2.0
 * The dataset object as the files of this room see it, and what they call of each other. */
#ifndef PSTI_SOURCE_SOURCE_PRIV_H
#define PSTI_SOURCE_SOURCE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "core/fork.h"
#include "source/names.h"
#include "source/pool.h"
#include "source/source.h"
#include "source/values.h"

/* Stored in remembered listings: append only. */
typedef enum psti_source_kind {
    PSTI_KIND_FOLDER = 1,
    PSTI_KIND_TAR,
    PSTI_KIND_MANIFEST,
    PSTI_KIND_FILE,
    PSTI_KIND_CUSTOM,
    PSTI_KIND_FILES,
    PSTI_KIND_COCO
} psti_source_kind;

#define PSTI_ABSENT UINT64_MAX

/* A member of a sample: a file, or a stretch of a shard. */
typedef struct psti_member {
    uint64_t length; /* PSTI_ABSENT: the sample lacks it */
    uint64_t place;  /* file: where its path stands in names; tar: number of the shard */
    union {
        int64_t mtime_ns; /* file */
        uint64_t offset;  /* tar */
    };
    uint64_t inode; /* file; tar: 0 */
} psti_member;

typedef struct psti_shard {
    uint64_t path; /* in names */
    psti_stamp stamp;
    uint64_t first_block; /* guarded: number of its first one; UINT64_MAX = none is known */
    int fd;               /* -1 = not open */
    bool tried; /* opening it once is enough: after a failure readers open it by path and say why */
} psti_shard;

typedef struct psti_split {
    char *name;
    int64_t *ids; /* ascending */
    int64_t count;
} psti_split;

/* The background comparison with the file system, see verify.c. */
typedef struct psti_verify {
    pthread_t thread;
    bool started; /* guarded by the dataset's lock */
    bool joined;
    atomic_bool stop; /* set by the last unref, read by the thread; stands alone */
} psti_verify;

/* Consistency: everything but what `lock` guards is written while the dataset is built, by one
 * thread, and never again; so readers need no lock for keys, values, classes and splits. A member's
 * length, time and inode change when a file is renewed; they change together, under the lock.
 * Nothing is ever moved or removed. */
struct psti_dataset {
    atomic_int refs;
    pid_t pid; /* threads of another process are not ours to join */
    psti_source_kind kind;
    char *path; /* absolute, for messages */
    int root;   /* directory fd */
    char *root_path;

    int64_t count;
    psti_strings names; /* keys, paths, class names */
    uint64_t *keys;     /* count offsets into names */
    size_t key_max;
    int fields;
    psti_source_field field[PSTI_FIELDS_MAX];
    uint8_t slot[PSTI_FIELDS_MAX]; /* column of member[] or of column[] */
    int members;                   /* columns of member[] */
    int columns;
    psti_column column[PSTI_FIELDS_MAX];
    int label; /* the field, or -1 */
    int64_t classes;
    uint64_t *class_at; /* offsets into names */
    int splits;
    psti_split *split;
    size_t shards;
    psti_stamp made_from; /* manifest: the file itself; tar folder: the folder; coco: its files */

    pthread_mutex_t
        lock; /* guards what follows, and length, mtime_ns and inode of members of files */
    psti_fork_guard forks; /* a forked child may go on reading */
    psti_member *member;   /* count x members */
    psti_shard *shard;
    int shards_open;
    psti_id128 revision;
    bool revision_known;
    psti_verify verify;

    /* The dataset lies in a bucket: root is -1, and time and inode of members and shards hold
     * etags, see far.h; or NULL. late: etags that came after building. */
    struct psti_far *far;
    struct psti_late_etag *late;
    const psti_guard *guard; /* of pulled files, see guard.c; or NULL */
    void *guard_user;
    const psti_near *near; /* copies of a bucket's objects; or NULL */
    void *near_user;
    atomic_bool near_off;   /* they are not read any more; stands alone */
    uint32_t *sums;         /* theirs, one a member; or NULL */
    uint64_t *first_block;  /* of files that are read in parts, one a member; or NULL */
    bool guarded;           /* something of it is compared */
    struct psti_etag *etag; /* of members of pulled files, for their identity alone; or NULL */
    psti_id128 apart;       /* hashed into identities, not into the revision; nought = nothing is */
    int set;                /* the folder of a pulled dataset that another process listed; -1 */
    char set_revision[PST_REVISION_BYTES];
    struct psti_listed *listed; /* in place of keys and members, see listed.h; or NULL */
    struct psti_custom *custom; /* samples come from the caller's function, see custom.h; or NULL */

    atomic_bool said_changed; /* the one message was given; stands alone */
    bool remembered;          /* opened from a remembered listing; fixed after open */
    char *index_path;         /* NULL = nowhere */
};

/* ---- dataset.c ------------------------------------------------------------------------------- */

/* An empty dataset that the builders fill; root becomes its own. NULL when memory is short (root is
 * closed then). */
psti_dataset *psti_dataset_new(psti_source_kind kind, const char *path, const char *root_path,
                               int root);
const char *psti_kind_name(psti_source_kind kind);
struct psti_opening;
/* The same for what is being opened, whose root it takes over. */
psti_dataset *psti_dataset_begin(struct psti_opening *o, psti_source_kind kind);
/* Adds a field and returns its number, or PST_ELIMIT. slot: its column. */
int psti_dataset_add_field(psti_dataset *data, const pst_field_info *info, bool member, int slot);
int psti_dataset_find_field(const psti_dataset *data, const char *name, size_t len);
/* Allocates keys and members for count samples, all members absent. 0 or -ENOMEM. */
int psti_dataset_make_room(psti_dataset *data, int64_t count, int members);
/* Adds a split and takes the ids over, also on failure. PST_EDATASET when there is one of that
 * name. */
int psti_dataset_add_split(psti_dataset *data, const char *name, int64_t *ids, int64_t count,
                           pst_error *err);
/* Notes longest key and which fields some samples lack. Last step of building. */
void psti_dataset_settle(psti_dataset *data);
static inline psti_member *psti_member_at(const psti_dataset *data, int64_t id, int slot)
{
    return &data->member[(size_t)id * (size_t)data->members + (size_t)slot];
}
static inline const char *psti_text_at(const psti_dataset *data, uint64_t at)
{
    return data->names.data + at;
}

/* What a member field of this name and format looks like. */
pst_field_info psti_member_info(const char *name, size_t len, pst_kind kind, const char *format);
/* The kind of a file format; IMAGE for NONE. */
pst_kind psti_format_kind(psti_format format);
/* What a file that is a sample of its own becomes: one field for each family of formats. */
typedef struct psti_family {
    const char *field;
    pst_kind kind;
    psti_format first, last;
} psti_family;
enum { PSTI_FAMILIES = 4 };
extern const psti_family psti_families[PSTI_FAMILIES];
int psti_family_of(psti_format format); /* 0 for NONE */
/* The format that all files have, "mixed", or NULL where none has one in from..to. formats: files
 * of each. */
const char *psti_format_common(const uint64_t formats[PSTI_FORMATS], int from, int to);
/* Adds the fields of the families that occur; slot: the member column of each. Returns the number
 * of columns. */
int psti_dataset_add_families(psti_dataset *data, const uint64_t formats[PSTI_FORMATS],
                              int slot[PSTI_FAMILIES]);
/* "mask", "seg", …: names whose PNGs hold classes, not colours. */
bool psti_is_mask_name(const char *name, size_t len);

/* ---- look.c --------------------------------------------------------------------------------- */

/* Files that cannot be used, and the first of them. */
typedef struct psti_missing {
    uint64_t count;
    int64_t id;
    int slot, rc;
} psti_missing;
/* Takes length, time and inode of every member that has a path. */
int psti_dataset_look_all(psti_dataset *data, const pst_dataset_options *opts, psti_missing *out,
                          pst_error *err);

/* ---- member.c, verify.c ------------------------------------------------------------------------
 */

/* Takes a member's present stamp over. 1 = it had changed, 0 = it had not, or a negative code. Says
 * nothing. */
int psti_dataset_restamp(psti_dataset *data, int64_t id, int slot);
/* The same of the member's shard, which was put there anew: who has its fd reads the new one. */
int psti_dataset_restamp_shard(psti_dataset *data, const psti_member *m);
/* The one message about changed files. */
void psti_dataset_say_changed(psti_dataset *data, const char *key, uint64_t how_many);
/* Ends the comparison thread and waits for it. */
void psti_verify_stop(psti_dataset *data);
/* Waits until the comparison has come to its end; for tests. */
void psti_verify_wait(psti_dataset *data);

/* ---- builders: each fills *out or err ----------------------------------------------------------
 */

typedef struct psti_opening {
    const char *path;      /* as given */
    const char *real;      /* absolute, links resolved */
    const char *root_path; /* the directory that keys are relative to */
    int root;              /* its fd; a builder that succeeds takes it over and sets -1 */
    const pst_dataset_options *opts;
    char *index_path; /* NULL = nowhere */
    int64_t now_ns;   /* wall clock when listing began, to compare with file times */
    /* In a bucket: where, and what was listed; root is -1. Etags are the dataset's once there is
     * one. */
    struct psti_far *far;
    struct psti_tree *tree;
    const psti_strings *etags; /* where their texts are: the tree's, then the dataset's */
    const psti_guard *guard;   /* of a pulled dataset; or NULL */
    void *guard_user;
} psti_opening;

struct psti_tree;
struct psti_dir;
/* What a file looks like, on disk or as it was listed. 0 or -errno. */
int psti_opening_stamp(const psti_opening *o, const char *path, psti_stamp *out);
int psti_folder_build(psti_opening *o, struct psti_tree *tree, psti_dataset **out, pst_error *err);
int psti_single_build(psti_opening *o, const char *name, psti_dataset **out, pst_error *err);
/* shards: names in the root, sorted. */
int psti_tar_build(psti_opening *o, const char *const *shards, size_t count, psti_dataset **out,
                   pst_error *err);
int psti_manifest_build(psti_opening *o, const char *name, psti_dataset **out, pst_error *err);
/* 1: the folder holds COCO annotations with their images, annotations/instances_NAME.json; 0: it
 * does not; or -ENOMEM. */
int psti_coco_is_root(int root);
/* name: of the annotation file, which may lie in a folder of the root; NULL: the root's own. */
int psti_coco_build(psti_opening *o, const char *name, psti_dataset **out, pst_error *err);
/* What the annotation files look like now, all together. 0 or -errno. */
int psti_coco_stamp(int root, const char *name, psti_stamp *out);
/* Adds what the files splits/NAME.txt in that directory say; none is fine. */
int psti_splits_load(psti_dataset *data, int above, pst_error *err);
/* The same from the listing of a bucket. */
int psti_splits_load_far(psti_dataset *data, const psti_opening *o, pst_error *err);

void psti_guard_free(psti_dataset *data);

/* ---- open_far.c ------------------------------------------------------------------------------ */

int psti_far_open(psti_opening *o, psti_dataset **out, pst_error *err);
/* What open.c and open_far.c share. */
bool psti_is_manifest_name(const char *name);
bool psti_is_tar_folder(const struct psti_dir *top);
int psti_build_tar_folder(psti_opening *o, const struct psti_dir *top, psti_dataset **out,
                          pst_error *err);
int psti_open_complete(psti_opening *o, int above, psti_dataset *data, pst_error *err);

#endif
