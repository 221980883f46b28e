/* SPDX-License-Identifier: Apache-2.0
 * A look at every sample of a dataset: sizes, formats, and which ones cannot be read. */
#ifndef CLI_SURVEY_H
#define CLI_SURVEY_H

#include <stdint.h>

#include "penstock.h"

enum { SURVEY_WORDS = 24, SURVEY_BAD_KEPT = 100000 };

/* Words with counts: formats, details. Further words than there is room for are counted under the
 * last one. */
typedef struct word_counts {
    char word[SURVEY_WORDS][64];
    int64_t count[SURVEY_WORDS];
    int used;
} word_counts;

/* Numbers, one per sample. */
typedef struct numbers {
    double *values;
    int64_t count;
} numbers;

typedef struct survey {
    int64_t probed;               /* samples looked at */
    uint64_t bytes;               /* of all samples, as stored */
    numbers width, height, size;  /* of the pictures that were read; stored bytes of every sample */
    word_counts formats, details; /* of the main picture or array */
    pst_error *bad;               /* malloc'ed, by id; at most SURVEY_BAD_KEPT of them */
    int64_t bad_kept, bad_count;
} survey;

/* Looks at `most` samples spread evenly (0 = all) with a few threads. Stops early at Ctrl-C. */
void survey_run(const pst_dataset *data, int64_t most, survey *out);
/* Decodes every sample through a job, which finds damage behind the header. Adds to out->bad.
 * Returns an exit code. */
int survey_deep(pst_dataset *data, survey *out);
void survey_fini(survey *s);

void numbers_sort(numbers *n);
/* Quantile of sorted numbers, 0..1; 0 when there are none. */
double numbers_at(const numbers *n, double quantile);

/* Bins of equal, round width over sorted numbers; unit: what is round, 1 or 1024. */
enum { BINS_MAX = 16 };
typedef struct bins {
    double from, width;
    int used;
    int64_t count[BINS_MAX];
} bins;
bins bins_of(const numbers *n, double unit);

#endif
