/* SPDX-License-Identifier: Apache-2.0
 * Replays a fuzz corpus as an ordinary test: every file of the given folders goes through the
 * target once, in memory of exactly its size, so that a sanitizer sees a read of one byte too many.
 * Linked with one fuzz_*.c; one thread. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fail(const char *path)
{
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return -1;
}

/* Returns 1, or -1 when the file cannot be read. */
static int replay_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return fail(path);
    uint8_t *bytes = malloc(size ? size : 1);
    const size_t got = bytes ? fread(bytes, 1, size, file) : 0;
    fclose(file);
    if (got != size) {
        free(bytes);
        errno = EIO;
        return fail(path);
    }
    /* The name comes first, so that a crash says which file did it. */
    printf("%s (%zu bytes)\n", path, size);
    fflush(stdout);
    (void)LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return 1;
}

/* Returns how many files were replayed, or -1. */
static long replay_folder(const char *folder)
{
    struct dirent **names = NULL;
    const int count = scandir(folder, &names, NULL, alphasort);
    if (count < 0)
        return fail(folder);
    long done = 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        struct stat st;
        const int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        free(names[i]);
        if (done < 0 || length >= (int)sizeof path || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        done = replay_file(path, (size_t)st.st_size) < 0 ? -1 : done + 1;
    }
    free(names);
    return done;
}

int main(int argc, char **argv)
{
    long total = 0;
    for (int i = 1; i < argc; i++) {
        const long done = replay_folder(argv[i]);
        if (done < 0)
            return 1;
        total += done;
    }
    printf("%ld files replayed\n", total);
    return total > 0 ? 0 : 1;
}
