/* SPDX-License-Identifier: Apache-2.0
 * The daemon from inside. One thread, the loop, owns the connections and everything that is not
 * marked otherwise: it accepts, receives, sends, and hands ready batches on. What may take long,
 * opening a job (which may list a dataset) and closing one (which waits for its workers), is done
 * by a thread of its own for each, which reports back to the loop. Private. */
#ifndef PSTI_SERVE_SERVER_H
#define PSTI_SERVE_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "serve/looker.h"
#include "serve/rights.h"
#include "serve/sources.h"
#include "serve/spec.h"
#include "serve/where.h"
#include "serve/wire.h"

typedef struct conn conn;
typedef struct segment segment;

/* ---- datasets.c: those that jobs read, each listed once -------------------------------------- */

typedef struct shelf_entry {
    struct shelf_entry *next;
    uint64_t device, inode; /* of the directory */
    char *name;             /* of the file in it; NULL = the directory */
    uint8_t revision[16];
    char depot_revision[PST_REVISION_BYTES]; /* of a dataset in the depot; "" = it is none */
    bool complete;                           /* all of that is on the disk */
    pst_dataset *data;
    char *path;
    int users;
} shelf_entry;

typedef struct shelf {
    pthread_mutex_t lock; /* guards what follows; a leaf, never held while listing */
    shelf_entry *entries;
} shelf;

void shelf_init(shelf *s);
void shelf_fini(shelf *s); /* nobody uses an entry any more */
/* The dataset in the open directory, listed as the client has it: revision. PST_ECHANGED when the
 * daemon sees something else. */
int shelf_take(shelf *s, int root, const job_spec *spec, const uint8_t revision[16],
               shelf_entry **out, pst_error *err);
/* A dataset of the depot, by its open folder: which one that is, and of its revisions the one that
 * is named, or ("") the one that can be read best. */
struct pst_server;
int shelf_take_set(struct pst_server *s, int set, const char *depot_revision, shelf_entry **out,
                   pst_error *err);
void shelf_give(shelf *s, shelf_entry *entry);

/* ---- segments.c: memory that a client has mapped, too ---------------------------------------- */

struct segment {
    uint8_t *base;
    size_t bytes;     /* mapped: the batch, and behind it the positions of its slots */
    size_t batch;     /* of them the batch's */
    int fd;           /* until it was sent; -1 */
    bool once;        /* not of the ring: gone when it is given back */
    bool copied;      /* the client was told to copy it out */
    bool charged;     /* beyond the ring, and counted in the budget while the client has it */
    pst_batch *lease; /* in the client's hands; the loop's own */
};

/* ---- conn.c ---------------------------------------------------------------------------------- */

typedef enum conn_state {
    CONN_NEW,     /* no HELLO yet */
    CONN_HELLO,   /* no OPEN yet */
    CONN_OPENING, /* a thread opens the job */
    CONN_OPEN,
    CONN_CLOSING, /* a thread closes the job */
    CONN_CLOSED   /* may be freed */
} conn_state;

typedef struct skip_note {
    struct skip_note *next;
    uint64_t epoch;
    int64_t position, share;
    pst_error error;
} skip_note;

typedef struct letter { /* a packet that did not fit into the socket */
    struct letter *next;
    wire_packet packet;
    int fd; /* -1 = none */
} letter;

typedef struct conn_text { /* what was asked for; does not change once it is shown */
    char *path, *pipeline, *group;
    int batch, rank, world;
    bool ready, shares;
} conn_text;

typedef struct conn_stats {
    uint64_t batches, samples, skipped, bytes_read, cache_hits, cache_misses;
    uint64_t held; /* batches in the client's hands or on their way */
    uint64_t preparations, hits[PST_FORMS];
} conn_stats;

/* What lists show of a job; written by the loop, read by the control thread, under server.lock. */
typedef struct conn_facts {
    uint64_t id, opened_ns;
    uint32_t pid;
    uid_t uid;
    conn_state state;
    uint64_t waits, wait_ns; /* the client's own */
    conn_stats stats;
    const conn_text *text; /* NULL before the job is open */
} conn_facts;

struct conn {
    pst_server *server;
    conn *next, *prev;
    int sock;         /* -1 once closed */
    uint16_t version; /* that was agreed on; 0 before */
    conn_state state;
    peer who;
    bool foreign; /* another user: his rights are asked for each sample */
    conn_facts facts;
    conn_text text;
    uint64_t held;
    uint32_t generation, credits;
    int64_t sent[WIRE_AHEAD + 1]; /* batches that the consumer has not taken, oldest first … */
    int sent_count;               /* … as traces call them */
    bool finished, failed;        /* nothing more comes in this generation */
    bool watched_out;             /* waiting until the socket takes more */
    letter *letters, *last_letter;
    uint64_t looked_ns;     /* when the client was last told … */
    psti_feed_facts looked; /* … of these */
    uint64_t copies;        /* batches that the client should have copied and released */

    pthread_t thread; /* opener or closer */
    atomic_bool done; /* the thread has nothing left to do; partner: conn_tend */
    int root, spec_fd;
    size_t spec_bytes;
    uint8_t revision[16];
    char depot_revision[WIRE_DEPOT_ROOM];
    bool by_set;   /* root is the folder of a dataset of the depot: holding it is the right to it */
    bool lists;    /* wants to know what is in it, no job */
    int listed_fd; /* what is in it; -1 */
    size_t listed_bytes;
    job_spec spec;
    shelf_entry *entry;
    pst_job *job;
    int open_rc;
    pst_error open_error;

    atomic_bool woken; /* there may be a batch; partner: conn_tend */

    pthread_mutex_t lock; /* guards what follows; a leaf, taken under the pool's lock */
    segment **segments;   /* by id; NULL where there is none */
    uint32_t segment_cap;
    size_t extra_bytes; /* of those beyond the ring, and how many there are */
    uint32_t extra_count;
    skip_note *skips, *last_skip;
};

conn *conn_new(pst_server *server, int sock);
/* Something came from the client, or he left. */
void conn_input(conn *c);
/* The socket takes packets again. */
void conn_output(conn *c);
/* A thread finished, or batches may be ready. True when the connection may be freed. */
bool conn_tend(conn *c);
void conn_leave(conn *c); /* ends the connection, whatever it is doing */
void conn_free(conn *c);

/* segments.c: hooks for the feed, and what the loop asks. */
void *segment_take(void *user, size_t bytes, bool ring);
void segment_give(void *user, void *base, size_t bytes);
segment *segment_at(conn *c, uint32_t id);
segment *segment_find(conn *c, const void *base, uint32_t *id);
/* Whether the client may keep a segment that is not of its ring: cap and budget allow it. */
bool segment_charge(conn *c, segment *seg);
uint32_t segment_count(conn *c);
void segment_free_all(conn *c);

/* ---- server.c -------------------------------------------------------------------------------- */

struct control;
struct pst_server {
    char dir[WHERE_BYTES];
    where at;  /* of the feed's socket, and of the control socket where own is not open */
    where own; /* of the control socket, where clients are not to see it */
    wire_range speaks;
    int listener, epoll, event; /* event: an eventfd that wakes the loop */
    int lifeline;               /* the caller's: its end is ours; -1 = none */
    int spare;                  /* a descriptor to let go of when there are no more */
    pst_engine *engine;
    pst_settings settings;
    shelf shelf;
    char *datasets; /* "NAME=URL,…"; NULL = none */
    char *depot;    /* where pulled datasets are kept; NULL = the default, nobody's by descriptor */
    char instance[17]; /* of this start */
    uid_t *allow;
    int allow_count;
    bool allow_any;
    int idle_exit_s;
    uint64_t idle_since; /* nobody is connected since; 0 = somebody is */
    uint64_t client_cap; /* bytes beyond its ring that one client may hold */
    uint64_t next_id, started_ns;
    atomic_bool stop;
    struct control *control;
    looker *looker;
    struct http *http;
    sources sources; /* where its datasets come from */

    pthread_mutex_t lock; /* guards conns and their facts against the control thread, and closers */
    conn *conns;
    int conn_count;
    int closing;         /* threads that close a job */
    uint64_t closed;     /* jobs that were closed */
    pthread_cond_t gone; /* closed went up */
};
void server_wake(pst_server *s); /* async-signal-safe */
bool server_allows(const pst_server *s, uid_t uid);
bool server_is_owner(uid_t uid); /* the daemon's own user, or root */
/* Whether the owner lets this URL be read. */
bool server_offers(const pst_server *s, const char *url);
/* Jobs closed so far; and, for one that found no memory after it asked, whether another was closed
 * since: waits for those under way. */
uint64_t server_closed(pst_server *s);
bool server_await_close(pst_server *s, uint64_t seen);
/* One more is being closed; it is. */
void server_closing(pst_server *s);
void server_close_done(pst_server *s);
/* Watches the socket for more room, too. */
void server_watch(pst_server *s, conn *c, bool out);

/* ---- control.c: HTTP and JSON, on a thread of its own ---------------------------------------- */

int control_open(pst_server *s, struct control **out, pst_error *err);
void control_close(struct control *control);
/* http.c: the same to be looked at over TCP, as the options say. */
int control_http(pst_server *s, const pst_server_options *o, pst_error *err);
void control_http_close(pst_server *s);

#endif
