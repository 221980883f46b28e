/* SPDX-License-Identifier: Apache-2.0
 * The decode limit: how many JPEGs a plain loop over libjpeg can crop-decode on this machine. A
 * yardstick; uses nothing of Penstock. */
#ifndef CLI_DECLIMIT_H
#define CLI_DECLIMIT_H

#include <stddef.h>
#include <stdint.h>

/* An encoded file in memory; the bytes stay the caller's. */
typedef struct declimit_file {
    const uint8_t *bytes;
    size_t size;
} declimit_file;

typedef struct declimit_result {
    uint64_t images, failures; /* decoded; not decodable (they count in neither rate) */
    double seconds, cpu_s;     /* of the loop; CPU time of its threads */
} declimit_result;

/* Runs `threads` threads for `seconds`, each over all the files in an order of its own, with a
 * fresh window per picture drawn as random_resized_crop does (scale 0.08 to 1, ratio 3/4 to 4/3).
 * Only the window is decoded, with 8 pixels around it, and decoding stops after its last row.
 * Returns 0 or -errno. */
int declimit_run(const declimit_file *files, size_t count, int threads, double seconds,
                 uint64_t seed, declimit_result *out);
/* Images a second; 0 on failure. */
double decode_limit(const declimit_file *files, size_t count, int threads, double seconds,
                    uint64_t seed);

#endif
