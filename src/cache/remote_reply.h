/* SPDX-License-Identifier: Apache-2.0
 * What servers of the remote tier say, read within limits. One reader per connection; no state
 * beside it. */
#ifndef PSTI_CACHE_REMOTE_REPLY_H
#define PSTI_CACHE_REMOTE_REPLY_H

#include <hiredis/hiredis.h>
#include <stddef.h>

enum {
    REPLY_TEXT_MAX = 256,      /* of what is no value: errors, names of hosts */
    REPLY_NODES_MAX = 1 << 18, /* parts of one reply */
    REPLY_ARRAY_MAX = 16385    /* elements of one array: slots, and one */
};

typedef struct reply {
    int type; /* REDIS_REPLY_… */
    long long integer;
    const char *text; /* terminated; cut at REPLY_TEXT_MAX */
    int count;        /* elements of an array */
    struct reply **elements;
} reply;

/* Takes the value that a top-level string, or the first element of a top-level array, may be. The
 * bytes are gone when it returns. */
typedef void take_value(void *user, const char *bytes, size_t size);

typedef struct reply_chunk reply_chunk;
typedef struct reply_reader {
    reply_chunk *chunks; /* the first is kept */
    size_t parts;        /* of the reply that is being read */
    size_t most;         /* bytes that may wait for the rest of a reply */
    take_value *take;
    void *user;
} reply_reader;

/* Makes the library's reader build replies with `mine`, within limits. */
void resp_attach(redisReader *reader, reply_reader *mine);
void resp_fini(reply_reader *mine);
/* The next whole reply: 1, 0 when more bytes are needed, negative when what came is no reply, or
 * passes a limit. It is valid until the next call. */
int resp_next(redisReader *reader, reply_reader *mine, reply **out);

#endif
