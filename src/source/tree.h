/* SPDX-License-Identifier: Apache-2.0
 * The raw listing of a folder: directories with their usable entries, before anything is made of
 * them. This is what is remembered between starts, so that an unchanged directory need not be read
 * again. */
#ifndef PSTI_SOURCE_TREE_H
#define PSTI_SOURCE_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "penstock.h"
#include "source/crew.h"
#include "source/names.h"
#include "source/pool.h"

/* Entry types: the psti_format of a sample file, or one of these. Stored in remembered listings. */
enum {
    PSTI_ENTRY_DIR = 100,
    PSTI_ENTRY_TAR = 101,
    PSTI_ENTRY_TEXT = 102, /* transcripts */
    PSTI_ENTRY_LIST = 103  /* ids of a split; in listings of buckets alone */
};

typedef struct psti_entry {
    uint32_t name; /* offset into the directory's names */
    uint32_t type;
    union {
        uint64_t size;
        struct psti_dir *child; /* PSTI_ENTRY_DIR */
    };
    int64_t mtime_ns; /* of a bucket's object these two hold its etag, see far.h */
    uint64_t inode;
} psti_entry;

/* A directory is settled by one crew thread, which then hands its children to the crew; afterwards
 * it is read-only. Entries are sorted byte-wise, directories as if their names ended in '/', so
 * that walking the tree gives ascending keys. */
typedef struct psti_dir {
    psti_work work;
    struct psti_tree *tree;
    struct psti_dir *parent;
    char *path; /* relative to the root; "" = the root itself */
    int depth;
    psti_entry *entries;
    uint32_t count;
    uint32_t ignored; /* files of no use here */
    uint32_t outside; /* links that lead out of the root, dangle or loop */
    char *names;
    size_t names_bytes;
    int64_t mtime_ns;
    uint64_t inode, device;
    bool known; /* entries come from a remembered listing */
    bool owns;  /* entries and names were allocated for this directory alone */
} psti_dir;

typedef struct psti_tree {
    int root;         /* the opener's */
    const char *path; /* the opener's, for messages */
    psti_dir *top;
    psti_strings etags;      /* of a bucket, those that are kept as text */
    uint8_t *loaded;         /* a remembered listing that known directories point into */
    int64_t trust_before_ns; /* known directories changed at or after this are read again */
    atomic_uint_fast64_t relisted, reused; /* directories; counters */
} psti_tree;

/* An empty tree over a root fd. NULL when memory is short. */
psti_tree *psti_tree_new(int root, const char *path);
void psti_tree_free(psti_tree *tree);
/* A child directory that is yet to be settled. */
psti_dir *psti_dir_new(psti_tree *tree, psti_dir *parent, const char *name);
void psti_dir_free(psti_dir *dir);
/* Settles the root directory alone, in the calling thread. */
int psti_tree_top(psti_tree *tree, pst_error *err);
/* Settles everything below it. */
int psti_tree_rest(psti_tree *tree, const pst_dataset_options *opts, pst_error *err);

static inline const char *psti_entry_name(const psti_dir *dir, const psti_entry *entry)
{
    return dir->names + entry->name;
}

#endif
