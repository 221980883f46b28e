/* SPDX-License-Identifier: Apache-2.0
 * Output files with temporary name, fsync and rename. Main thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "outfile.h"

static char *temp_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const int folder = slash == NULL ? 0 : (int)(slash - path) + 1;
    return cli_format("%.*s.%s.%ld.tmp", folder, path, path + folder, (long)getpid());
}

int outfile_check(const char *path)
{
    struct stat info;
    if (path[0] == '\0')
        return fail("the name of an output file is empty");
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return fail_errno(EISDIR, "write", path);
        return access(path, W_OK) == 0 ? CLI_OK : fail_errno(errno, "write", path);
    }
    const char *slash = strrchr(path, '/');
    char *folder =
        slash == NULL ? cli_strdup(".") : cli_format("%.*s", (int)(slash - path) + 1, path);
    const int error = access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    free(folder);
    return error == 0 ? CLI_OK : fail_errno(error, "write", path);
}

int outfile_open(outfile *out, const char *path)
{
    struct stat info;
    *out = (outfile){.path = cli_strdup(path)};
    const bool exists = stat(path, &info) == 0;
    int error = 0;
    if (exists && S_ISDIR(info.st_mode))
        error = EISDIR;
    else if (!exists || S_ISREG(info.st_mode))
        out->temp = temp_name(path);
    if (error == 0) {
        out->file = fopen(out->temp ? out->temp : path, "wbe");
        error = out->file == NULL ? errno : 0;
    }
    if (error == 0)
        return CLI_OK;
    free(out->temp);
    out->temp = NULL; /* nothing was made, so nothing is to be removed */
    outfile_drop(out);
    return fail_errno(error, "write", path);
}

int outfile_commit(outfile *out)
{
    int error = 0;
    if (ferror(out->file) || fflush(out->file) != 0)
        error = errno ? errno : EIO;
    if (error == 0 && out->temp != NULL && fsync(fileno(out->file)) != 0)
        error = errno;
    if (fclose(out->file) != 0 && error == 0)
        error = errno;
    out->file = NULL;
    if (error == 0 && out->temp != NULL && rename(out->temp, out->path) != 0)
        error = errno;
    const int exit_code = error == 0 ? CLI_OK : fail_errno(error, "write", out->path);
    if (error == 0) {
        free(out->temp);
        out->temp = NULL;
    }
    outfile_drop(out);
    return exit_code;
}

void outfile_drop(outfile *out)
{
    if (out->file != NULL)
        fclose(out->file);
    if (out->temp != NULL)
        unlink(out->temp);
    free(out->temp);
    free(out->path);
    *out = (outfile){0};
}

int outfile_write(const char *path, const void *bytes, size_t size)
{
    outfile out;
    const int exit_code = outfile_open(&out, path);
    if (exit_code != CLI_OK)
        return exit_code;
    errno = 0;
    fwrite(bytes, 1, size, out.file); /* a failure stays in the stream for commit */
    return outfile_commit(&out);
}

int infile_read(const char *path, void **out, size_t *size)
{
    enum { STEP = 65536 };
    char *bytes = NULL;
    size_t length = 0, got = 0;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return fail_errno(errno, "read", path);
    do {
        bytes = cli_realloc(bytes, length + STEP + 1, 1);
        got = fread(bytes + length, 1, STEP, file);
        length += got;
    } while (got == STEP);
    const int error = ferror(file) ? errno : 0;
    fclose(file);
    if (error != 0) {
        free(bytes);
        return fail_errno(error, "read", path);
    }
    bytes[length] = '\0'; /* so that text files can be walked as a string */
    *out = bytes;
    *size = length;
    return CLI_OK;
}
