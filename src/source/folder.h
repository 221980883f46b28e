/* SPDX-License-Identifier: Apache-2.0
 * A folder dataset while it is made of its listed tree. Private to folder.c, pairs.c, cases.c and
 * librispeech.c; one thread. */
#ifndef PSTI_SOURCE_FOLDER_H
#define PSTI_SOURCE_FOLDER_H

#include "source/source_priv.h"
#include "source/tree.h"

/* One sample file: where it was listed, and its class. */
typedef struct psti_found {
    const psti_dir *dir;
    const psti_entry *entry;
    int64_t label; /* -1 = none */
} psti_found;

typedef struct psti_building {
    psti_opening *o;
    const psti_tree *tree;
    psti_found *files;
    size_t count, cap;
    size_t path_bytes;              /* of all paths with their terminators */
    uint64_t formats[PSTI_FORMATS]; /* files of each */
    const char **classes;           /* byte-wise ascending; names belong to the tree */
    size_t class_count, class_cap;
    struct {
        const char *name;
        size_t begin, end;
    } split[16];
    int splits;
    psti_dataset *data;
} psti_building;

/* Appends every sample file below dir in key order. 0 or -ENOMEM. */
int psti_folder_gather(psti_building *b, const psti_dir *dir, int64_t label);
/* Appends the file's path to the dataset's names, which have room for it. */
int psti_folder_write_path(psti_building *b, const psti_found *f, uint64_t *at, pst_error *err);
void psti_folder_write_member(psti_member *m, const psti_found *f, uint64_t path);
/* Keys and members of the files that were gathered, and the fields of their formats. */
int psti_folder_write_files(psti_building *b, pst_error *err);
int psti_folder_no_memory(const psti_building *b, pst_error *err);
int psti_folder_bad_name(const psti_building *b, const char *path, const char *fault,
                         pst_error *err);
const psti_dir *psti_folder_child(const psti_dir *dir, const char *name);
/* Sample files in the folder and all below it. */
uint64_t psti_folder_samples(const psti_dir *dir);

/* Two folders of which one holds images and the other masks. */
typedef struct psti_pair_names {
    const char *images, *masks;
} psti_pair_names;
/* Which the root's are; NULL when it is no such root. */
const psti_pair_names *psti_folder_pair_root(const psti_dir *top);
/* One sample for each stem. Leaves the dataset empty when either folder is. */
int psti_folder_build_pairs(psti_building *b, const psti_pair_names *names, pst_error *err);

/* 1: the folder holds volumes and their masks, and the dataset has them; 0: it does not. */
int psti_folder_build_cases(psti_building *b, pst_error *err);
/* Adds the fields image, member 0, and mask, member mask_slot, both volumes. */
void psti_folder_volume_fields(psti_building *b, const uint64_t image_formats[PSTI_FORMATS],
                               const uint64_t mask_formats[PSTI_FORMATS], int mask_slot);

/* Whether every folder with samples holds recordings and their transcripts; then these with the
 * fields audio, text, speaker and chapter. */
bool psti_folder_is_speech(const psti_dir *top);
int psti_folder_build_speech(psti_building *b, pst_error *err);

#endif
