/* SPDX-License-Identifier: Apache-2.0
 * Writes the seeds of the state fuzzer into the folder given: one state of each kind, whole
 * and with a section that is unknown. Run by hand. */
#include <stdio.h>

#include "state_maker.h"

static int save(const char *folder, const char *name, int kind, const uint8_t *bytes, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%d", folder, name, kind);
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        return 1;
    }
    const size_t wrote = fwrite(bytes, 1, size, file);
    return fclose(file) != 0 || wrote != size;
}

static int save_kind(const char *folder, int kind)
{
    psti_state s = make_state(kind);
    const size_t size = psti_state_size(&s);
    uint8_t *bytes = calloc(size + 11, 1);
    if (!bytes)
        return 1;
    psti_state_encode(&s, bytes, size);
    int bad = save(folder, "whole", kind, bytes, size);
    memcpy(bytes + size - 4, kind % 2 ? "NOTE\3\0\0\0abc" : "note\3\0\0\0abc", 11);
    bytes[12]++;
    seal(bytes, size + 11);
    bad |= save(folder, "unknown", kind, bytes, size + 11);
    free(bytes);
    psti_state_fini(&s);
    return bad;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_state_corpus FOLDER\n");
        return 2;
    }
    int bad = save(argv[1], "empty", 0, (const uint8_t *)"", 0);
    for (int kind = 0; kind < STATE_KINDS; kind++)
        bad |= save_kind(argv[1], kind);
    return bad;
}
