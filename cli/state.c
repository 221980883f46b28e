/* SPDX-License-Identifier: Apache-2.0
 * Saving and loading states. Main thread, while the job is not being asked for batches. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "outfile.h"
#include "state.h"

int state_save(const pst_job *job, const char *path)
{
    size_t size = 0;
    int rc = pst_job_state(job, NULL, 0, &size);
    if (rc < 0 && rc != -ENOSPC)
        return fail("cannot take the state: %s", pst_strerror(rc));
    void *blob = cli_alloc(size);
    rc = pst_job_state(job, blob, size, &size);
    const int exit_code = rc < 0 ? fail("cannot take the state: %s", pst_strerror(rc))
                                 : outfile_write(path, blob, size);
    free(blob);
    return exit_code;
}

/* The files' contents. */
typedef struct blobs {
    void **bytes;
    size_t *sizes;
    size_t count;
} blobs;

static int read_blob(blobs *b, const char *path)
{
    b->bytes = cli_realloc(b->bytes, b->count + 1, sizeof *b->bytes);
    b->sizes = cli_realloc(b->sizes, b->count + 1, sizeof *b->sizes);
    const int exit_code = infile_read(path, &b->bytes[b->count], &b->sizes[b->count]);
    b->count += exit_code == CLI_OK;
    return exit_code;
}

static int read_blobs(blobs *b, const char *paths)
{
    if (access(paths, F_OK) == 0) /* a file whose name has a comma is one file */
        return read_blob(b, paths);
    char *copy = cli_strdup(paths), *rest = copy, *path = NULL;
    int exit_code = CLI_OK;
    while (exit_code == CLI_OK && (path = strsep(&rest, ",")) != NULL)
        exit_code = read_blob(b, path);
    free(copy);
    return exit_code;
}

static int load_blobs(pst_job *job, const blobs *b)
{
    pst_error err = {0};
    void *merged = NULL;
    const void *blob = b->bytes[0];
    size_t size = b->sizes[0];
    if (b->count > 1) {
        if (pst_state_merge((const void *const *)b->bytes, b->sizes, b->count, &merged, &size,
                            &err) < 0)
            return fail_error(&err);
        blob = merged;
    }
    const int rc = pst_job_load_state(job, blob, size, &err);
    pst_free(merged);
    return rc < 0 ? fail_error(&err) : CLI_OK;
}

int state_load(pst_job *job, const char *paths)
{
    blobs b = {0};
    int exit_code = read_blobs(&b, paths);
    if (exit_code == CLI_OK)
        exit_code = load_blobs(job, &b);
    for (size_t i = 0; i < b.count; i++)
        free(b.bytes[i]);
    free(b.bytes);
    free(b.sizes);
    return exit_code;
}
