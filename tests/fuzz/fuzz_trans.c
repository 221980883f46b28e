/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as the transcripts of a folder of recordings. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *prepared_folder(void)
{
    static const char *const files[] = {"1-2-0000.flac", "1-2-0001.flac", "x-2.wav"};
    static const char *folder;
    if (folder)
        return folder;
    folder = fuzz_folder();
    char path[300];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        fuzz_put(path, files[i], strlen(files[i]));
    }
    return folder;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/1-2.trans.txt", prepared_folder());
    fuzz_put(path, data, size);
    fuzz_open(prepared_folder());
    return 0;
}
