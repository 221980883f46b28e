/* SPDX-License-Identifier: Apache-2.0
 * Whoever shows an engine asks here: the view as text, and what it was like before. While somebody
 * looks, or always where history is kept, a thread takes a reading a second. Private. */
#ifndef PSTI_SERVE_LOOKER_H
#define PSTI_SERVE_LOOKER_H

#include "engine/engine.h"
#include "watch/history.h"
#include "watch/text.h"

typedef struct looker looker;

/* Until it is closed the engine must live. keeps: history from now on, also when nobody looks. */
int looker_open(pst_engine *engine, const char *instance, bool keeps, looker **out, pst_error *err);
void looker_close(looker *l); /* NULL is fine */
/* As GET /v1/watch answers; data is the caller's (psti_free). 0 or -ENOMEM. */
int looker_json(looker *l, bool history, psti_writ *out);

#endif
