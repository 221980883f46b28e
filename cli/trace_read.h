/* SPDX-License-Identifier: Apache-2.0
 * Reading traces that penstock wrote, a line at a time: strict, and in constant memory. */
#ifndef CLI_TRACE_READ_H
#define CLI_TRACE_READ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TRACE_WORD = 96 };

/* One event; what a line does not have is empty or -1. */
typedef struct trace_line {
    char phase;
    int64_t track;
    int64_t at_ns, span_ns;
    char category[TRACE_WORD], name[TRACE_WORD],
        number[TRACE_WORD]; /* number: "id2" of the event */
    /* args */
    int64_t job, id, epoch, step, last, foreseen, events, dropped, format;
    char from[TRACE_WORD], then[TRACE_WORD], why[TRACE_WORD], label[TRACE_WORD];
} trace_line;

typedef struct trace_reader {
    const char *path;
    FILE *file;
    uint64_t line; /* number of the last one */
    bool closed;   /* the closing bracket was read */
    char *text;    /* room for a line */
} trace_reader;

/* All print their own message. Open and rewind return an exit code; the first event has been read
 * and is a trace's. */
int trace_open(trace_reader *r, const char *path);
int trace_rewind(trace_reader *r);
/* 1 and an event, 0 at the end, negative when the file is not what it should be. A file that is cut
 * off ends there, with `closed` not set. */
int trace_next(trace_reader *r, trace_line *out);
void trace_close(trace_reader *r);

#endif
