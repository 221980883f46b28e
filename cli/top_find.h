/* SPDX-License-Identifier: Apache-2.0
 * Engines that can be looked at. */
#ifndef CLI_TOP_FIND_H
#define CLI_TOP_FIND_H

enum { FOUND_MOST = 64, FOUND_DIR = 4096 };

typedef struct found_engine {
    char dir[FOUND_DIR];
    char what[96]; /* "daemon", "process 1234 (python3)"; safe to show */
} found_engine;

typedef struct found {
    found_engine at[FOUND_MOST];
    int count;
} found;

/* address: of one engine, which is all there is then; NULL: $PENSTOCK_ENGINE, this user's daemon,
 * and the processes of this user whose engines show themselves, as far as somebody listens there.
 * 0, or -EINVAL: that is no address. */
int find_engines(const char *address, found *out);

#endif
