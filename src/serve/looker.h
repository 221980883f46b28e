/* SPDX-License-Identifier: Apache-2.0
 * Whoever shows an engine asks here: the view as text, and what it was like before. While somebody
 * looks, or always where history is kept, a thread takes a reading a second and tells it to who
 * listens. Private. */
#ifndef PSTI_SERVE_LOOKER_H
#define PSTI_SERVE_LOOKER_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "watch/history.h"
#include "watch/text.h"

typedef struct looker looker;

/* An event of the stream, the same for everybody who listens. */
typedef struct looker_event {
    atomic_int refs; /* counter; the last one frees */
    psti_writ text;
} looker_event;
void looker_event_unref(looker_event *e); /* NULL is fine */

/* Until it is closed the engine must live. keeps: history from now on, also when nobody looks. */
int looker_open(pst_engine *engine, const char *instance, bool keeps, looker **out, pst_error *err);
void looker_close(looker *l); /* nobody listens any more; NULL is fine */
/* As GET /v1/watch and GET /metrics answer; data is the caller's (psti_writ_fini). 0 or -ENOMEM. */
int looker_json(looker *l, bool history, psti_writ *out);
int looker_metrics(looker *l, psti_writ *out);

/* While `wanted` is more than nought, `told` has a new event every second, on the looker's thread
 * and under its lock: it takes a reference if it wants one, does not block and does not ask the
 * looker anything. The storage is the caller's. */
typedef struct looker_listener {
    struct looker_listener *next;
    atomic_int wanted; /* any thread; partner: looker_wake, after it was nought */
    void (*told)(void *user, looker_event *event);
    void *user;
} looker_listener;
void looker_listen(looker *l, looker_listener *who);
void looker_leave(looker *l, looker_listener *who);
void looker_wake(looker *l);
/* The first event of a stream: with history. NULL when there is no memory. */
looker_event *looker_first(looker *l);

#endif
