/* SPDX-License-Identifier: Apache-2.0
 * The ledger: one tab-separated line per delivered sample: epoch, step, rank, slot, id, key,
 * crc32c. Lines that start with '#' are comments: the header, padding slots ("# pad", then the same
 * columns) and skipped samples ("# bad", id, key, stage, message). */
#ifndef CLI_LEDGER_H
#define CLI_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "penstock.h"

typedef struct ledger {
    FILE *file;
    const char *path; /* the caller's */
    char *buffer;
    int64_t flushed_ns;
    bool told; /* that it cannot be written */
} ledger;

/* All print their own message and return an exit code. A zeroed ledger swallows everything. */
/* numbered: lines will end with the number of the preparation. */
int ledger_open(ledger *l, const char *path, uint64_t seed, const char *pipeline, bool numbered);
int ledger_batch(ledger *l, const pst_batch_desc *desc);
void ledger_bad(ledger *l, const pst_error *bad);
int ledger_close(ledger *l);

#endif
