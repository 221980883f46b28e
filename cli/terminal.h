/* SPDX-License-Identifier: Apache-2.0
 * The terminal as a screen: another page of it, keys as they are pressed, and all as it was before
 * when the program ends, however it ends. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Whether standard output is a terminal that can be drawn on. */
bool terminal_can_draw(void);
bool terminal_has_colours(void);
/* Sets the locale's character set; whether it is UTF-8. */
bool terminal_is_utf8(void);
/* Columns and rows; 80 and 24 if nobody knows. */
void terminal_size(int *cols, int *rows);

/* Takes the screen, and signals with it: SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP, SIGCONT come
 * out of terminal_signal. */
void terminal_enter(void);
void terminal_leave(void);
/* The frame in one write. */
void terminal_write(const char *bytes, size_t count);
/* Readable when a signal came. */
int terminal_signal_fd(void);
/* The next signal that came, 0 if there is none. Stopping and going on are seen to here: what comes
 * out is SIGWINCH, as the screen must be drawn anew. */
int terminal_signal(void);

/* A key: a character, or one of these; 0 if there is none. */
enum { KEY_UP = 256, KEY_DOWN, KEY_PAGE_UP, KEY_PAGE_DOWN, KEY_HOME, KEY_END, KEY_GONE };
int terminal_key(void);
int terminal_key_fd(void); /* -1: there are no keys */

#endif
