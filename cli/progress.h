/* SPDX-License-Identifier: Apache-2.0
 * One line on standard error that is written over again and again; nothing at all when that is no
 * terminal. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>

/* Silences the line whatever standard error is. */
void progress_quiet(void);
/* Whether a line would be seen: callers that only wait for it can wait longer otherwise. */
bool progress_seen(void);
/* Shows a line, at most ten times a second. */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Takes the line away; before any other output to the terminal. */
void progress_clear(void);

#endif
