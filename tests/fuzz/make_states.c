/* SPDX-License-Identifier: Apache-2.0
 * Writes the seeds of the state corpus: one saved state of each kind, and damaged ones. Run by hand
 * when the format gets a new version; the files are kept.
 *
 *   make_states FOLDER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample/sample.h"

static int put(const char *folder, const char *name, const uint8_t *bytes, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/seed-%s", folder, name);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(bytes, 1, size, out) != size || fclose(out) != 0) {
        fprintf(stderr, "%s: cannot be written\n", path);
        return 1;
    }
    return 0;
}

static int put_state(const char *folder, const char *name, const psti_state *state)
{
    const size_t size = psti_state_size(state);
    uint8_t *bytes = malloc(size + 1);
    if (!bytes || psti_state_encode(state, bytes, size) != size)
        return 1;
    int bad = put(folder, name, bytes, size);
    if (strcmp(name, "strict") == 0) {
        bad |= put(folder, "cut", bytes, size - 5);
        bytes[size] = 0;
        bad |= put(folder, "too-long", bytes, size + 1);
        bytes[size / 2] ^= 0x40;
        bad |= put(folder, "flipped", bytes, size);
    }
    free(bytes);
    return bad;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_states FOLDER\n");
        return 2;
    }
    char text[] = "decode | random_resized_crop(224) | hflip | normalize(imagenet)";
    uint8_t used[13] = {0xff, 0x0f, 0x31};
    int64_t skipped[3] = {4, 9, 77}, given[4] = {3, 1, 1, 0};
    const psti_state base = {.revision = {1, 2},
                             .fingerprint = {3, 4},
                             .source = {5, 6},
                             .seed = 7,
                             .epoch = 2,
                             .length = 100,
                             .order = PST_ORDER_STRICT,
                             .ends = PST_ENDS_PAD,
                             .batch = 8,
                             .world = 1,
                             .merged = true};
    psti_state strict = base, ready = base, rank = base, order = base;
    strict.prefix = 24;
    strict.pipeline = text;
    ready.order = PST_ORDER_READY;
    ready.used = used;
    rank.world = 3;
    rank.rank = 1;
    rank.merged = false;
    rank.per_rank = true;
    rank.share = 16;
    rank.skipped = skipped;
    rank.skipped_count = 3;
    order.length = 4;
    order.given = given;
    order.given_count = 4;
    return put_state(argv[1], "strict", &strict) | put_state(argv[1], "ready", &ready) |
           put_state(argv[1], "rank", &rank) | put_state(argv[1], "given", &order);
}
