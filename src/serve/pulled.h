/* SPDX-License-Identifier: Apache-2.0
 * Pulled datasets over the control socket: what is there, pulls that the daemon runs, where they
 * come from, limits, evicting. Called from the control thread. Private. */
#ifndef PSTI_SERVE_PULLED_H
#define PSTI_SERVE_PULLED_H

#include <jansson.h>
#include <stddef.h>

#include "serve/sources.h"

struct pulled;

/* dir: of the depot (NULL = the default); both are the caller's and outlive it. NULL: out of
 * memory. */
struct pulled *pulled_new(const char *dir, sources *from);
/* Stops the pulls that run and waits for them; what came stays. NULL is fine. */
void pulled_free(struct pulled *p);

/* One request below /v1/datasets/. */
typedef struct pulled_request {
    const char *method, *name; /* name: what follows ("" = all) */
    const char *body;          /* in secret memory */
    size_t body_bytes;
} pulled_request;
/* An HTTP status; *out is the answer, or NULL when there is no memory for one, and for 204. */
unsigned pulled_answer(struct pulled *p, const pulled_request *r, json_t **out);
/* {"error", "reason"} */
json_t *pulled_refusal(const char *why, const char *reason);

#endif
