/* SPDX-License-Identifier: Apache-2.0
 * What every file of the command line shares: exit codes, messages, memory that does not fail
 * quietly, clocks. The command line uses the public header only; nothing here is seen by the
 * library. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "penstock.h"

enum {
    CLI_OK = 0,
    CLI_FAIL = 1,    /* something went wrong; the message is on standard error */
    CLI_USAGE = 2,   /* the command line itself is wrong */
    CLI_SIGNAL = 128 /* plus the signal's number */
};

/* ---- messages (say.c) ---------------------------------------------------------------------- */

/* Each prints "penstock: …" to standard error, over the progress line if there is one. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As say; returns CLI_FAIL. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As say, with a pointer to the command's help; returns CLI_USAGE. */
int fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The library's error in its own words. Interrupted work says nothing. Returns the exit code that
 * fits. */
int fail_error(const pst_error *err);
/* The same for a pipeline: shows the place in the text. */
int fail_pipeline(const char *text, const pst_error *err);
/* For a system failure: "cannot <what> <path>: <reason>". Returns CLI_FAIL. */
int fail_errno(int error, const char *what, const char *path);
/* The command that fail_usage points to. */
void say_command(const char *name);

/* ---- memory (say.c) ------------------------------------------------------------------------ */

/* Out of memory ends the process with a message; nothing is half written at that point. */
void *cli_alloc(size_t bytes); /* zeroed */
void *cli_realloc(void *memory, size_t count, size_t item_bytes);
char *cli_strdup(const char *text);
char *cli_format(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* malloc'ed text */

/* ---- clocks and machine (clock.c) ----------------------------------------------------------- */

int64_t clock_ns(void); /* CLOCK_MONOTONIC */
/* Seconds since the kernel started this process. clock_begin is called first thing in main. */
void clock_begin(void);
double clock_since_start(void);
double clock_cpu(void);         /* CPU seconds of this process, all threads */
uint64_t memory_peak_rss(void); /* VmHWM in bytes; 0 if unknown */
int machine_cpus(void);         /* CPUs that this process may run on */

/* ---- text (text.c) -------------------------------------------------------------------------- */

/* The known word nearest to a mistyped one, or NULL when none is close. words ends with NULL. */
const char *text_nearest(const char *word, const char *const *words);
/* "12,345", "1.25 MiB", "3.1 ms" into the caller's buffer; return it. */
enum { TEXT_SHORT = 32 };
char *text_count(char buf[TEXT_SHORT], uint64_t value);
char *text_bytes(char buf[TEXT_SHORT], uint64_t bytes);
char *text_seconds(char buf[TEXT_SHORT], double seconds);
/* For people who wait: "12 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". */
char *text_duration(char buf[TEXT_SHORT], double seconds);
/* Bytes of the well-formed UTF-8 character at s, 0 if there is none. */
int text_utf8(const char *s);
/* A name as it may be shown on a terminal: bytes that are no text, control characters and those
 * that turn the direction of writing become \\xNN. Cut to cap; returns out. */
char *text_plain(char *out, size_t cap, const char *text);
/* Bytes of the first so many characters. */
size_t text_cut(const char *text, size_t characters);
/* Whole texts to numbers; false when anything is left over or out of range. */
bool text_to_u64(const char *text, uint64_t *out);
bool text_to_i64(const char *text, int64_t *out);
bool text_to_real(const char *text, double *out);
/* "64M", "1.5GiB", "100000": K, M, G, T are powers of 1024, with or without iB; KB, MB, GB powers
 * of 1000. */
bool text_to_bytes(const char *text, uint64_t *out);
void text_hex(const uint8_t *bytes, size_t count, char *out); /* out: 2 * count + 1 */

#endif
