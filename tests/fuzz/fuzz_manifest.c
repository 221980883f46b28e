/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a manifest, once as TSV and once as JSON lines. A few files stand beside it, so that
 * good lines are followed to their end. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *prepared_folder(void)
{
    static const char *const files[] = {"a.jpg", "b.jpg",   "c.jpg", "a.png",
                                        "b.png", "b/c.jpg", "d.npy"};
    static const char *folder;
    if (folder)
        return folder;
    folder = fuzz_folder();
    char path[300];
    snprintf(path, sizeof path, "%s/b", folder);
    mkdir(path, 0700);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        fuzz_put(path, files[i], strlen(files[i]));
    }
    return folder;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"m.tsv", "m.jsonl"};
    for (int i = 0; i < 2; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", prepared_folder(), names[i]);
        fuzz_put(path, data, size);
        fuzz_open(path);
    }
    return 0;
}
