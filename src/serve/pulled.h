/* SPDX-License-Identifier: Apache-2.0
 * Pulled datasets over the control socket: what is there, pulls that the daemon runs, evicting.
 * Called from the control thread. Private. */
#ifndef PSTI_SERVE_PULLED_H
#define PSTI_SERVE_PULLED_H

#include <jansson.h>
#include <stddef.h>

struct pulled;

struct pulled *pulled_new(void); /* NULL: out of memory */
/* Stops the pulls that run and waits for them; what came stays. NULL is fine. */
void pulled_free(struct pulled *p);
/* One request below /v1/datasets/: name is what follows ("" = all), body what came with it. An HTTP
 * status; *out is the answer, or NULL when there is no memory for one. */
unsigned pulled_answer(struct pulled *p, const char *method, const char *name, const char *body,
                       size_t body_bytes, json_t **out);

#endif
