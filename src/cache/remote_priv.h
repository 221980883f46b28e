/* SPDX-License-Identifier: Apache-2.0
 * Inside the remote tier. remote.c: the object, its thread, what callers call. remote_query.c: the
 * way of a request. remote_line.c: connections. remote_slots.c: which node has what.
 * remote_reply.c: what servers say. remote_url.c, remote_name.c: where they are. Everything but
 * `incoming` and the puts' memory belongs to the thread. */
#ifndef PSTI_CACHE_REMOTE_PRIV_H
#define PSTI_CACHE_REMOTE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/remote.h"
#include "cache/remote_reply.h"

enum {
    SLOTS = 16384,
    NODES_MAX = 128,
    SEEDS_MAX = 16,
    HOST_ROOM = 64, /* addresses, and names of seeds */
    REDIRECTS_MAX = 5,
    NO_NODE = 255
};
#define MS           UINT64_C(1000000)
#define BREAK_NS     (1000 * MS) /* a node that failed is not asked for so long */
#define CONNECT_NS   (500 * MS)  /* no sample waits for this */
#define PUT_STALL_NS (500 * MS)
#define MARK_NS      (200 * MS) /* the shortest life of a mark */
#define REFRESH_NS   (1000 * MS)
#define DRAIN_NS     (250 * MS) /* at the end, for what waits to be sent */

/* ---- lists ----------------------------------------------------------------------------------- */

typedef struct psti_remote_link link_t;
#define LINK_OF(type, member, at) ((type *)(void *)((char *)(at)-offsetof(type, member)))

static inline void list_init(link_t *list)
{
    list->next = list->prev = list;
}

static inline bool list_empty(const link_t *list)
{
    return list->next == list;
}

static inline void list_add_before(link_t *at, link_t *link)
{
    link->prev = at->prev;
    link->next = at;
    at->prev->next = link;
    at->prev = link;
}

/* Of no list is fine. */
static inline void list_remove(link_t *link)
{
    if (!link->next)
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = NULL;
}

/* ---- where (remote_url.c) -------------------------------------------------------------------- */

typedef struct place {
    char host[HOST_ROOM];
    int port;
} place;

typedef struct remote_url {
    bool tls;
    char user[64];
    int db;
    int seed_count;
    place seeds[SEEDS_MAX];
} remote_url;

int remote_url_parse(const char *text, remote_url *out, pst_error *err);
/* The address of a host in numbers: 0, or -ENOENT. Looks names up if `names`, which takes time, so
 * that the tier's thread has it done (remote_name.c). */
int host_address(const place *at, bool names, char address[HOST_ROOM]);
/* Its own thread looks; `wake` is written to when it has. NULL: that cannot be. */
typedef struct lookup lookup;
lookup *lookup_start(const place *at, int wake);
bool lookup_done(const lookup *l);
int lookup_take(lookup *l, char address[HOST_ROOM]); /* of one that is done; it is gone then */
void lookup_drop(lookup *l);                         /* nobody wants to know; NULL is fine */
/* Whether an address lies in the network of another: the first 16 bits of IPv4, 48 of IPv6. */
bool host_near(const char *address, const char *other);

/* The AUTH command, ready to be sent, in memory that is in no core file. NULL where there is no
 * password; *rc is negative where it cannot be had. */
typedef struct password password;
password *password_load(const char *user, int *rc, pst_error *err);
const char *password_command(const password *s, size_t *size);
void password_free(password *s);

/* ---- nodes (remote_line.c) ------------------------------------------------------------------- */

typedef enum ask {
    ASK_VALUE,   /* GET */
    ASK_TAKE,    /* GETDEL */
    ASK_CLAIM,   /* SET … NX PX */
    ASK_AGAIN,   /* MGET value claim */
    ASK_STORE,   /* SET, or PSETEX. The mark stays until it runs out: who asked just before would
                    claim anew */
    ASK_RELEASE, /* DEL claim */
    ASK_RENEW,   /* SET claim … XX PX; no request */
    ASK_HELLO,   /* AUTH, SELECT; no request */
    ASK_SLOTS,
    ASK_ASKING
} ask;

typedef struct sent {
    psti_remote_request *request; /* NULL: nobody waits for it */
    uint8_t what;
} sent;

enum { INTAKE = 64 << 10 }; /* bytes read at once */
enum { RING = 1024, WINDOW_MIN = 4, WINDOW_MAX = 256 };

typedef enum line_state { LINE_CLOSED, LINE_CONNECTING, LINE_HELLO, LINE_UP } line_state;

struct node;
typedef struct psti_remote_line {
    psti_remote *remote;
    struct node *node;
    bool puts; /* values go out through a connection of their own: none waits behind them */
    line_state state;
    redisContext *redis;
    reply_reader replies;
    sent ring[RING]; /* requests in the order in which they were sent */
    uint32_t first, next;
    int window;        /* how many may be on the way */
    link_t queue;      /* requests that were not sent yet */
    bool blocked;      /* more to write than the socket took */
    uint64_t moved_ns; /* when it last got something, or began to wait */
    psti_remote_put *streaming;
    size_t streamed;
    uint64_t bytes_in;
    uint64_t half_ns; /* when reading stopped in the middle of a reply; 0: it did not */
    bool took, fits;  /* the value of the reply that is being read was seen; there was room */
} line;

typedef struct node {
    psti_remote *remote;
    bool seed, listed; /* named in the URL; has slots */
    bool stalled;      /* what it was asked is late, and may still come */
    place at;
    char address[HOST_ROOM];
    lookup *lookup;    /* of its name; NULL: none is under way */
    uint64_t until_ns; /* not tried before */
    line get, put;
} node;

void node_init(psti_remote *r, node *n, const place *at);
void node_connect(node *n, uint64_t now);
/* Gives the node up for BREAK_NS; what was asked through it is a miss. */
void node_fail(node *n, uint64_t now, const char *why);
void node_drop(node *n);
/* After poll. */
void line_event(line *l, short events, uint64_t now);
short line_wants(const line *l);
size_t line_buffers(const line *l); /* bytes */
void line_pump(line *l, uint64_t now);
bool line_flush(line *l, uint64_t now); /* false when the connection is gone */
/* Looks at the clock; when to look again, or UINT64_MAX. */
uint64_t node_tick(node *n, uint64_t now);
void line_command(line *l, ask what, psti_remote_request *request, int count,
                  const char *const *words, const size_t *sizes);
void line_forget(psti_remote_request *request); /* its answer concerns nobody any more */

/* ---- slots (remote_slots.c) ------------------------------------------------------------------ */

uint16_t slot_of(const char *tag, size_t size);
void slots_ask(psti_remote *r, uint64_t now);
void slots_taken(psti_remote *r, node *from, const reply *answer, uint64_t now);
/* The node of a redirection, which may be new; NULL where it may not be asked. */
node *slots_node(psti_remote *r, const node *from, const char *host, int port, uint64_t now);
void slots_moved(psti_remote *r, int slot, const node *to);

/* ---- requests (remote_query.c) -----------------------------------------------------------------
 */

struct psti_remote_put {
    psti_remote_request request;
    uint8_t *bytes;
    size_t size, cap;
    uint64_t life_ms;        /* 0: as long as the server keeps it */
    psti_remote_claim claim; /* that it meets; in no list: none */
    size_t counted;          /* in waiting_bytes: the memory, not what of it is used */
    psti_remote_put *next;   /* spare, or incoming */
};

void query_key(psti_remote_request *q, const psti_cache_key *key);
void query_start(psti_remote *r, psti_remote_request *q, uint64_t now);
void query_send(line *l, psti_remote_request *q, uint64_t now);
void query_answered(line *l, const sent *s, const reply *answer, uint64_t now);
void query_failed(psti_remote *r, psti_remote_request *q);
take_value query_value; /* user: the line */
/* Those whose time has come; when the next one's does. */
uint64_t queries_tick(psti_remote *r, uint64_t now);
void queries_cancel(psti_remote *r);
/* Renews the marks of claims that take long; when to look again. */
uint64_t claims_tick(psti_remote *r, uint64_t now);

/* ---- the tier (remote.c) --------------------------------------------------------------------- */

typedef enum node_state { NODE_DOWN, NODE_LATE, NODE_UP } node_state;

typedef struct counters {
    atomic_uint_fast64_t gets, hits, misses, unanswered, puts, put_failures, bytes_got, bytes_put;
    atomic_uint_fast64_t claims, waits, waited_hits, redirects, refreshes, breaks;
    _Atomic double bytes_per_s, handled_s; /* the second: of the thread, a byte */
} counters;

struct psti_remote {
    pthread_mutex_t lock; /* guards what stands down to settled_now */
    pthread_cond_t room;  /* something was sent */
    link_t incoming;      /* requests, by `queued` */
    bool closing, awake;
    size_t waiting_bytes; /* of puts from begin to their end */
    uint64_t hurry_ns;    /* until then nobody is held back: it was in vain */
    psti_remote_put *spare;
    size_t spare_bytes;
    link_t held;      /* claims, from when they were won until their values were stored */
    bool settled_now; /* the first try to connect came to an end */

    /* fixed after open */
    char *name;
    remote_url url;
    password *password;
    struct tls *tls;
    size_t value_max, queue_max;
    int makers;
    char token[33];
    pid_t pid;
    int wake;
    pthread_t thread;
    bool started;

    atomic_uchar slot_node[SLOTS];   /* NO_NODE: nobody */
    atomic_uchar node_is[NODES_MAX]; /* node_state; partner: none, a hint for callers */
    atomic_bool tense;               /* something is late; partner: none, a hint */
    atomic_int making;               /* claims without a value yet; a counter */
    atomic_uint_fast64_t making_ns;  /* from a claim to its value, nearly the longest of late */
    atomic_size_t buffers;           /* bytes of the lines' buffers */
    atomic_bool here;                /* the server is on this machine; partner: none, a hint */
    atomic_bool no_taking;           /* it refused; partner: none, a hint */
    counters count;

    /* the thread's own */
    char intake[INTAKE]; /* what was read last */
    node *nodes[NODES_MAX];
    bool cluster, mapped; /* has slots; a topology or a single server is known */
    bool said;            /* that it does not answer */
    bool refresh_wanted, refreshing;
    uint64_t refreshed_ns, puts_off_ns;
    link_t timed;                 /* sent or queued, by due time */
    link_t late;                  /* the same, past that */
    link_t missed;                /* not there, and not claimed yet */
    int claiming;                 /* requests on the way from there to a claim */
    uint64_t renew_ns;            /* when a claim is to be renewed */
    uint64_t looked_ns;           /* when it was asked whether those in `missed` are wanted */
    link_t waiting;               /* for a value that another makes, by due time */
    double wait_ns;               /* what such a wait took lately */
    uint64_t busy_ns, busy_bytes; /* of reading, since the bandwidth was last told */
    double cpu_s, handled_s;      /* of the thread, at the last look; of what follows */
    uint64_t moved, handled;      /* bytes since the last look; since handling was last told */
};

static inline void count_one(atomic_uint_fast64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

void remote_put_done(psti_remote *r, psti_remote_put *put, bool taken);
void remote_node_is(psti_remote *r, const node *n, node_state state);
void remote_lost(psti_remote *r, const node *n, const char *why);
void remote_no_taking(psti_remote *r); /* the server does not let values be taken */

/* ---- TLS (remote_tls.c) ---------------------------------------------------------------------- */

int remote_tls_new(struct tls **out, pst_error *err);
/* On a connected socket; the handshake goes on as bytes come. */
int remote_tls_start(struct tls *tls, redisContext *redis, const place *at, const char *address);
void remote_tls_free(struct tls *tls);

#endif
