/* SPDX-License-Identifier: Apache-2.0
 * A client's connection for one job, with the segments that it has mapped. next, handed and restart
 * are the consumer's; batches are released by any thread; abort may come in a signal. Private. */
#ifndef PSTI_SERVE_CHANNEL_H
#define PSTI_SERVE_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/fork.h"
#include "engine/engine.h"
#include "serve/wire.h"

typedef struct mapped {
    uint8_t *base;
    size_t bytes;
    bool once;
} mapped;

/* Lives until the job is closed and its last batch is released. */
typedef struct channel {
    pid_t pid;
    int sock, event;     /* event: an eventfd that abort writes to */
    uint16_t version;    /* that was agreed on; 0 before */
    atomic_bool aborted; /* partner: channel_next */
    uint32_t generation;
    bool begun;         /* the first batches were asked for */
    int64_t *positions; /* of the batch that came last, in ready order */
    uint8_t *valid;
    int batch;
    bool ready;

    pthread_mutex_t lock; /* guards what follows; a leaf */
    psti_fork_guard forks;
    int refs; /* the job and each batch */
    bool gone;
    mapped *segments; /* by id */
    uint32_t segment_cap;
    uint32_t *unsent; /* releases that the socket did not take */
    uint32_t unsent_count, unsent_cap;
    wire_stats stats;
} channel;

/* sock becomes its own, also on failure. */
channel *channel_new(int sock);
void channel_free(channel *ch);
/* Ends the connection; the memory goes with the last batch. */
void channel_close(void *job);
/* The next packet; PSTI_LINK_GONE for everything that ends the connection, -ETIMEDOUT, -ECANCELED.
 */
int channel_receive(channel *ch, int64_t timeout_ns, wire_mail *mail);
int channel_map(channel *ch, uint32_t id, int fd, size_t bytes, bool once);

/* As in psti_link_ops. */
int channel_next(void *job, int64_t timeout_ns, psti_link_event *out);
void channel_handed(void *job, uint64_t wait_ns);
void channel_abort(void *job);
int channel_restart(void *job, uint64_t epoch, const void *state, size_t bytes);
void channel_stats(void *job, pst_job_stats *out);
bool channel_facts(void *job, psti_feed_facts *out);
int channel_memory(void *job, int index, void **base, size_t *bytes);

#endif
