/* SPDX-License-Identifier: Apache-2.0
 * Where datasets of the daemon's depot come from and with whose credentials, as its owner said
 * since it was started: in memory alone. Any thread. Private. */
#ifndef PSTI_SERVE_SOURCES_H
#define PSTI_SERVE_SOURCES_H

#include <pthread.h>
#include <stdbool.h>

#include "net/net.h"

typedef struct source source;
typedef struct sources {
    pthread_mutex_t lock; /* guards what follows; a leaf but for that of an access */
    source *list;
} sources;

void sources_init(sources *s);
void sources_fini(sources *s); /* what was given is wiped */
/* Takes what is said of a dataset in JSON, which lies in secret memory; whoever uses what was said
 * before uses this from his next request on. */
int sources_put(sources *s, const char *name, const char *json, size_t bytes, pst_error *err);
bool sources_drop(sources *s, const char *name); /* false: there was none */
/* A reference, and the URL; NULL: nothing was said. */
psti_access *sources_find(sources *s, const char *name, char url[1024]);
/* A reference to what will be said: until then requests with it fail. NULL: no memory. */
psti_access *sources_await(sources *s, const char *name);

#endif
