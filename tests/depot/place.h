/* SPDX-License-Identifier: Apache-2.0
 * A temporary place with a bucket (a folder) and a depot, for tests of the depot. */
#ifndef PSTI_TESTS_DEPOT_PLACE_H
#define PSTI_TESTS_DEPOT_PLACE_H

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "depot/depot_priv.h"

typedef struct place {
    char root[128], bucket[160], depot[160];
} place;

static inline const char *at(const place *p, const char *format, ...)
{
    static char path[4][PATH_MAX];
    static int turn;
    char *out = path[turn++ % 4];
    int len = snprintf(out, PATH_MAX, "%s/", p->root);
    va_list list;
    va_start(list, format);
    vsnprintf(out + len, (size_t)(PATH_MAX - len), format, list);
    va_end(list);
    return out;
}

static inline void place_init(place *p)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(p->root, sizeof p->root, "%s/penstock-depot-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    if (!mkdtemp(p->root)) {
        perror(p->root);
        exit(1);
    }
    snprintf(p->bucket, sizeof p->bucket, "%s/bucket", p->root);
    snprintf(p->depot, sizeof p->depot, "%s/depot", p->root);
    mkdir(p->bucket, 0777);
}

static inline void place_fini(place *p)
{
    CHECK(tree_remove(AT_FDCWD, p->root, NULL) == 0);
}

/* A file of size bytes that depend on seed. */
static inline void put_file(const char *path, size_t size, unsigned seed)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = folder + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        mkdir(folder, 0777);
        *slash = '/';
    }
    unlink(path);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    for (size_t i = 0; f && i < size; i++)
        fputc((int)((seed * 2654435761u + i * 40503u) >> 8 & 255), f);
    if (f)
        fclose(f);
}

static inline bool same_files(const char *a, const char *b)
{
    FILE *f = fopen(a, "r"), *g = fopen(b, "r");
    bool same = f && g;
    for (int c = 0; same && c != EOF;)
        same = (c = fgetc(f)) == fgetc(g);
    if (f)
        fclose(f);
    if (g)
        fclose(g);
    return same;
}

/* Another byte there; the file may be written afterwards. */
static inline void flip(const char *path, off_t where)
{
    unsigned char byte = 0;
    chmod(path, 0644);
    const int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, where) == 1);
    byte ^= 4;
    CHECK(pwrite(fd, &byte, 1, where) == 1);
    close(fd);
}

static inline ino_t inode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static inline bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Pulls; the revision, or its code is in r->complete's place. */
static inline int pull_now(const place *p, const char *name, const char *from, pst_revision *r,
                           pst_pull_options *opts, pst_error *err)
{
    pst_pull_options o;
    pst_pull_options_init(&o);
    if (opts)
        o = *opts;
    o.dir = p->depot;
    return pst_pull(name, from, &o, r, err);
}

#endif
