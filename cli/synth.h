/* SPDX-License-Identifier: Apache-2.0
 * The kinds of made-up data that `penstock synth` knows: one synth_KIND.c each. */
#ifndef CLI_SYNTH_H
#define CLI_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct synth_values {
    const char *kind, *dir, *form;
    int64_t count, classes, jobs;
    uint64_t seed;
    double scale; /* of a sample's size: voxels, pixels, or samples of sound */
    bool force, quiet;
} synth_values;

/* One kind of data. A sample is a function of v->seed and its number alone. */
typedef struct synth_kind {
    const char *name, *things; /* "images"; "photos", as a report counts them */
    const char *const *forms;  /* of files, the usual one first, NULL-terminated; NULL: one only */
    bool scales;               /* v->scale is for this kind */
    /* Makes the folders below v->dir, which is there; main thread. An exit code, after a message.
     */
    int (*folders)(const synth_values *v);
    /* What one thread keeps from sample to sample. */
    void *(*tools_new)(void);
    void (*tools_free)(void *tools);
    /* Writes the files of one sample; 0 or an errno. path, PATH_MAX bytes: the file in hand. Any
     * thread, each with its own tools. */
    int (*make)(const synth_values *v, void *tools, int64_t number, char *path, int64_t *bytes);
    /* What is written once all samples are there, or NULL; main thread. As make. */
    int (*end)(const synth_values *v, char *path, int64_t *bytes);
} synth_kind;

extern const synth_kind synth_images, synth_volumes, synth_detection, synth_speech;

/* 0 or an errno. A file that could not be written whole is removed again. */
int synth_write(const char *path, const unsigned char *bytes, size_t size);
/* Makes the folder if it is not there; an exit code, after a message. */
int synth_folder(const char *path);

#endif
