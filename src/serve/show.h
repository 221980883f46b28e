/* SPDX-License-Identifier: Apache-2.0
 * What is shown of an engine over HTTP, the same on the control socket, on TCP and beside an
 * embedded engine: GET /metrics, /v1/watch and /v1/stream. One for each HTTP daemon. Private. */
#ifndef PSTI_SERVE_SHOW_H
#define PSTI_SERVE_SHOW_H

#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

#include "serve/looker.h"

/* Streams at once; on sockets where other things are asked for, too, fewer than connections. */
enum { SHOW_STREAMS = 32, SHOW_STREAMS_BESIDE = 16 };

typedef struct stream stream;
typedef struct show {
    looker *looker;
    looker_listener ear;  /* wanted: streams that are open */
    pthread_mutex_t lock; /* guards what follows; under looker.lock, above the library's own */
    stream *streams;
    int count, most;
    bool ending;
} show;

/* Before an HTTP daemon is started, whose thread has what the caller has: signals are for threads
 * of the program. old: to be set again afterwards. */
void show_no_signals(sigset_t *old);
/* The library closes its listening socket with most of its failures to start, and not with others:
 * closes it if it is still the one that inode was told of. */
ino_t show_inode(int sock);
void show_not_started(int sock, ino_t inode);
void show_init(show *s, looker *l, int streams);
/* Before its HTTP daemon is stopped: no stream waits any more, none is opened. Then, after that. */
void show_end(show *s);
void show_fini(show *s);
/* Answers what is one of its pages: true, and *result is what the library wants to know. */
bool show_answer(show *s, struct MHD_Connection *to, const char *method, const char *url,
                 enum MHD_Result *result);
/* A body of text, copied, with the headers that every answer has. */
enum MHD_Result show_reply(struct MHD_Connection *to, unsigned status, const char *type,
                           const char *body, size_t bytes);
enum MHD_Result show_text(struct MHD_Connection *to, unsigned status, const char *line);
void show_headers(struct MHD_Response *r);

/* stream.c */
enum MHD_Result stream_answer(show *s, struct MHD_Connection *to);
void stream_told(void *user, looker_event *event);
void stream_end_all(show *s);

#endif
