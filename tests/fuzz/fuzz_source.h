/* SPDX-License-Identifier: Apache-2.0
 * What the fuzz targets of datasets share: a folder of their own in memory where there is one, and
 * a visit to everything that an opened dataset offers. */
#ifndef PSTI_TESTS_FUZZ_SOURCE_H
#define PSTI_TESTS_FUZZ_SOURCE_H

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source/source.h"

static char fuzz_root[64];

static void fuzz_remove(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char below[400];
        if (d->d_name[0] == '.')
            continue;
        snprintf(below, sizeof below, "%s/%s", path, d->d_name);
        if (unlink(below))
            fuzz_remove(below);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static void fuzz_clean(void)
{
    fuzz_remove(fuzz_root);
}

/* Made once, removed at the end. */
static const char *fuzz_folder(void)
{
    if (fuzz_root[0])
        return fuzz_root;
    snprintf(fuzz_root, sizeof fuzz_root, "/dev/shm/penstock-fuzz-XXXXXX");
    if (!mkdtemp(fuzz_root)) {
        snprintf(fuzz_root, sizeof fuzz_root, "%s/penstock-fuzz-XXXXXX", P_tmpdir);
        if (!mkdtemp(fuzz_root))
            abort();
    }
    atexit(fuzz_clean);
    pst_log_set(NULL, NULL);
    return fuzz_root;
}

static void fuzz_put(const char *path, const void *bytes, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    close(fd);
}

static void fuzz_touch(const void *bytes, size_t size)
{
    static volatile uint8_t sum;
    for (size_t i = 0; i < size; i++)
        sum ^= ((const uint8_t *)bytes)[i];
    (void)sum;
}

static void fuzz_sample(const psti_dataset *data, int64_t id, const psti_source_field *fields,
                        int count)
{
    const char *key = psti_dataset_key(data, id);
    if (!key[0] || strlen(key) > psti_dataset_key_max(data))
        abort();
    psti_dataset_identity(data, id);
    for (int i = 0; i < count; i++) {
        psti_extent extent;
        const void *value;
        size_t bytes;
        if (!fields[i].member && psti_dataset_value(data, id, i, &value, &bytes) == 0)
            fuzz_touch(value, bytes);
        if (!fields[i].member || psti_dataset_extent(data, id, i, &extent))
            continue;
        uint8_t *buf = malloc(extent.length + 1);
        if (!buf || psti_read_now(&extent, buf)) /* what was listed can be read */
            abort();
        fuzz_touch(buf, extent.length);
        free(buf);
    }
}

/* Opens and visits everything; what is refused must say why. */
static void fuzz_open(const char *path)
{
    const pst_dataset_options opts = {.size = sizeof opts, .index_dir = "", .threads = 1};
    psti_dataset *data = NULL;
    pst_error err = {0};
    if (psti_dataset_open(path, &opts, &data, &err)) {
        if (err.code >= 0 || !err.message[0])
            abort();
        return;
    }
    const psti_source_field *fields;
    const int count = psti_dataset_fields(data, &fields);
    for (int64_t id = 0; id < psti_dataset_count(data); id++)
        fuzz_sample(data, id, fields, count);
    psti_dataset_revision(data);
    psti_dataset_unref(data);
}

#endif
