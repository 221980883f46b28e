/* SPDX-License-Identifier: Apache-2.0
 * The last ten minutes of an engine, a reading a second, and what is "now": over the last two
 * seconds. Whoever owns it serialises access. */
#ifndef PSTI_WATCH_HISTORY_H
#define PSTI_WATCH_HISTORY_H

#include "watch/text.h"
#include "watch/view.h"

typedef struct psti_history psti_history;
enum { PSTI_HISTORY_MOST = 600, PSTI_HISTORY_JOBS = 64 };

psti_history *psti_history_new(void); /* NULL when there is no memory */
void psti_history_free(psti_history *h);
/* Fills in what is now, from the readings before. */
void psti_history_now(const psti_history *h, psti_view *view);
/* Keeps a view whose now is filled in as a reading. */
void psti_history_add(psti_history *h, const psti_view *view);
/* When the last reading was taken, in nanoseconds of the monotonic clock; 0 = there is none. */
uint64_t psti_history_last_ns(const psti_history *h);
/* [{"time", "cpu_share", "jobs": {"ID": [rate, stall, ready]}}], oldest first. */
void psti_history_json(const psti_history *h, psti_json *j);

/* The whole of GET /v1/watch; history NULL: without. */
void psti_view_json(const psti_view *view, const psti_history *history, psti_json *j);

#endif
