/* SPDX-License-Identifier: Apache-2.0
 * One line on standard error that is written over again and again; nothing at all when that is no
 * terminal. Every command that takes time shows its progress through this. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* How far a piece of work is: "synth: 1,200 of 5,000 photos, 410/s, 24 %, 9 s left". */
typedef struct progress_at {
    const char *what;   /* "synth"; the rate is counted anew when it changes */
    const char *things; /* "photos"; NULL = there is nothing to count, "B" = bytes are counted */
    const char *note;   /* said at the end, such as "3/8 objects"; NULL = nothing */
    uint64_t done, all; /* of them; all 0 = not known */
    double share;       /* of the work, 0..1; 0 = done of all */
    double rate;        /* things a second; 0 = as seen here lately */
} progress_at;

/* Silences the line whatever standard error is. */
void progress_quiet(void);
/* Whether a line would be seen: callers that only wait for it can wait longer otherwise. */
bool progress_seen(void);
/* Shows a line, at most ten times a second. One thread. */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with rate, share done and time left, as far as these are known. */
void progress_step(const progress_at *at);
/* Takes the line away; before any other output to the terminal. */
void progress_clear(void);

#endif
