/* SPDX-License-Identifier: Apache-2.0
 * Runs to be compared: what feed --json, bench --json, bench/run.py and bench/peers.py wrote. */
#ifndef CLI_RUNS_H
#define CLI_RUNS_H

#include <stddef.h>

enum { RUNS_MOST = 64, RUN_STAGES = 24, RUN_FORMS = 6 };

/* A figure with its spread; what is not known is NaN. */
typedef struct figure {
    double value, low, high;
} figure;

typedef struct run_stage {
    char *name;
    double seconds; /* per sample */
} run_stage;

typedef struct run {
    char *name;                /* of the run, owned, as all texts */
    char *file, *path;         /* where it is from: its name alone, and as given */
    char *pipeline, *verdict;  /* NULL = not known */
    figure rate, cpu_s;        /* samples a second; CPU seconds per sample */
    figure busy, of_synthetic; /* of training: the GPU's time; the rate beside made-up input */
    double stall, wait_p50_s, wait_p99_s;
    double samples, workers, batch;
    double from[RUN_FORMS]; /* shares of samples by what they began from, see run_forms; or NaN */
    run_stage stage[RUN_STAGES];
    int stages;
} run;

extern const char *const run_forms[RUN_FORMS];

typedef struct runs {
    run at[RUNS_MOST];
    int count;
} runs;

/* Of runs with one name each is told by its file as well. */
void runs_tell_apart(runs *all);
/* Adds what a file holds. Prints its own message; returns an exit code. */
int runs_read(runs *all, const char *path);
/* The same of text that is at hand; path: what it is called. */
int runs_take(runs *all, const char *path, const char *bytes, size_t size);
/* The page of penstock report. Prints its own message; returns an exit code. */
int runs_page(const runs *all, const char *out, const char *title);
void runs_fini(runs *all);

#endif
