/* SPDX-License-Identifier: Apache-2.0
 * Questions to a running penstock serve. */
#ifndef CLI_CONTROL_H
#define CLI_CONTROL_H

#include <jansson.h>

/* GETs url from the daemon of a directory (NULL = this user's). An exit code; a message was printed
 * unless it is CLI_OK. The answer is the caller's (json_decref). */
int control_ask(const char *socket_dir, const char *url, json_t **out);
/* The answer as one line on standard output. */
void control_print(const json_t *answer);

#endif
