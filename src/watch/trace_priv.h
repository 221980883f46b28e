/* SPDX-License-Identifier: Apache-2.0
 * Of traces: what the writer (trace.c) and the text (trace_json.c) share. */
#ifndef PSTI_WATCH_TRACE_PRIV_H
#define PSTI_WATCH_TRACE_PRIV_H

#include "watch/trace.h"

enum { TRACE_NAME = 64, TRACE_PATH = 512, LINE_MOST = 4096 };

typedef struct trace_job {
    uint64_t id;
    int stages;
    char stage[PST_STAGES_MAX][TRACE_NAME]; /* as JSON has them, without the quotes */
    char dataset[TRACE_PATH], pipeline[2 * TRACE_PATH];
} trace_job;

/* Text in the making; whoever appends makes sure that LINE_MOST bytes are free. */
typedef struct trace_text {
    char *data;
    size_t size, cap;
    bool any; /* a line stands before the next one */
    int pid;
    uint64_t zero_ns; /* times are told from here */
    uint64_t reads;   /* numbers given to reads */
} trace_text;

void text_begins(trace_text *t, double wall_s);
void text_ends(trace_text *t, uint64_t events, uint64_t dropped);
void text_track(trace_text *t, int track, const char *name);
void text_job(trace_text *t, uint32_t number, const trace_job *job);
/* job: NULL where it is not known. */
void text_event(trace_text *t, const psti_trace_ring *ring, const psti_trace_event *e,
                const trace_job *job);
/* A text as JSON has it, shortened to fit, always whole characters. */
void text_escape(const char *from, char *to, size_t cap);

#endif
