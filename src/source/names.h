/* SPDX-License-Identifier: Apache-2.0
 * Names from outside: the only way they become open files. Any thread. */
#ifndef PSTI_SOURCE_NAMES_H
#define PSTI_SOURCE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/keys.h"

/* What a file looks like: the part of its identity that the file system keeps. */
typedef struct psti_stamp {
    uint64_t size;
    int64_t mtime_ns;
    uint64_t inode;
    uint64_t device;
    uint32_t mode;
} psti_stamp;

/* Opens a checked key beneath a directory: neither `..`, nor an absolute link, nor a link that
 * leads out gets past the root. An fd, or -errno; -EINVAL for a bad key. cached_only: -EAGAIN
 * rather than wait for a disk. */
int psti_open_beneath(int root, const char *path, int flags, bool cached_only);
/* The same for a path of the caller's own list, which may lead anywhere: the process's rights are
 * the limit. Nothing that was read from data may come here. */
int psti_open_anywhere(int root, const char *path, int flags, bool cached_only);
/* 0 or -errno. */
int psti_stamp_fd(int fd, psti_stamp *out);
int psti_stamp_beneath(int root, const char *path, psti_stamp *out);
int psti_stamp_anywhere(int root, const char *path, psti_stamp *out);
bool psti_stamp_same(const psti_stamp *a, const psti_stamp *b); /* size, time and inode */

/* Tests: as if the kernel had no openat2. */
void psti_open_beneath_without_openat2(bool without);
bool psti_have_openat2(void);

/* File formats by the end of a name, case-insensitive: those that can be decoded. */
typedef enum psti_format {
    PSTI_FORMAT_NONE = 0,
    PSTI_FORMAT_JPEG,
    PSTI_FORMAT_PNG,
    PSTI_FORMAT_WEBP,
    PSTI_FORMAT_NPY,
    PSTI_FORMAT_NIFTI,
    PSTI_FORMAT_NPZ,
    PSTI_FORMAT_WAV,
    PSTI_FORMAT_FLAC,
    PSTI_FORMATS
} psti_format;
psti_format psti_format_of_name(const char *name, size_t len);
/* The same for the extension alone, without a dot. */
psti_format psti_format_of_ext(const char *ext, size_t len);
const char *psti_format_by_name(psti_format format); /* "jpeg", … */
/* Where the extension of a name begins, behind its dot; nii.gz is one. NULL where there is none. */
const char *psti_ext_of_name(const char *name, size_t len);
/* The endings that count, as one number: what was listed with others is listed anew. */
uint32_t psti_format_endings(void);
/* Whether the name ends in .ext, case-insensitive, with something before the dot. */
bool psti_has_ext(const char *name, size_t len, const char *ext);

#endif
