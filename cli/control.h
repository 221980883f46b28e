/* SPDX-License-Identifier: Apache-2.0
 * Questions to a running penstock serve, or to an engine that shows itself in a folder. */
#ifndef CLI_CONTROL_H
#define CLI_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* GETs url from the daemon of a directory (NULL = this user's). An exit code; a message was printed
 * unless it is CLI_OK. The answer is the caller's (json_decref). */
int control_ask(const char *socket_dir, const char *url, json_t **out);
/* The answer as one line on standard output. */
void control_print(const json_t *answer);

/* A question for callers that have other things to do meanwhile. Nothing here blocks, nothing is
 * printed. */
typedef struct control_question {
    int fd; /* readable when control_take has something to do; -1 = none is under way */
    char *text;
    size_t used, cap;
} control_question;

/* The directory itself, not an address. 0, or -errno: nobody is there. */
int control_begin(const char *dir, const char *url, control_question *q);
/* 1: more is to come. 0: *out is the answer, the caller's. -ENOENT: there is somebody, who does not
 * know the page; other negative codes: no answer. Ends the question unless it is 1. */
int control_take(control_question *q, json_t **out);
void control_drop(control_question *q);
/* Whether anybody listens in the directory; owned: only if it is this user's. */
bool control_listens(const char *dir, bool owned);

#endif
