/* SPDX-License-Identifier: Apache-2.0
 * The tier beyond this machine: entries in Redis or Valkey, one server or a cluster, shared by all
 * engines that name it. Values are opaque here (see cache/envelope.h for what is in them).
 *
 * It may only ever make things faster. Whatever goes wrong, an answer that does not come, an error,
 * a value that is too large, is a miss, told within PSTI_REMOTE_WAIT_NS if anybody has nothing to
 * do meanwhile, or a few times that while answers to others stream in; a node that does not answer
 * for a second is given up, then tried again without any sample waiting for it.
 *
 * Claims: so that of several engines that miss the same entry one makes it, the first that comes to
 * make it sets a mark that runs out by itself, unless it is renewed; the others wait for the value,
 * a bounded time.
 *
 * One thread per tier does all of the talking. Any thread may call; callbacks come from the tier's
 * thread and must not block. After fork the child's calls are misses, and only close is of use. */
#ifndef PSTI_CACHE_REMOTE_H
#define PSTI_CACHE_REMOTE_H

#include "cache/cache.h"
#include "penstock.h"

typedef struct psti_remote psti_remote;

enum { PSTI_REMOTE_WAIT_NS = 50000000 };

typedef struct psti_remote_spec {
    /* redis://[user@]host[:port][,host[:port]...][/db]; rediss:// is the same through TLS. The
     * password is in PENSTOCK_REMOTE_PASSWORD, or in the file that PENSTOCK_REMOTE_PASSWORD_FILE
     * names; never in the URL, which people may see. */
    const char *url;
    size_t value_max; /* bytes of the largest value sent or taken; 0: 64 MiB */
    size_t queue_max; /* bytes that wait to be sent, at most; 0: 32 MiB. As much again is kept */
    int makers; /* values that are made at a time, which is how many are claimed: enough for them to
                   go on with. 0: whatever is missed is claimed */
} psti_remote_spec;

/* Waits a moment for the first node to answer; that none does is no failure. Fails where the URL is
 * wrong, or asks for what this build does not have. */
int psti_remote_open(const psti_remote_spec *spec, psti_remote **out, pst_error *err);
/* Whether the URL could be opened in this build, without opening it. */
int psti_remote_check(const char *url, pst_error *err);
/* What waits to be sent is sent if that goes quickly; requests end with -ECANCELED. NULL is fine.
 */
void psti_remote_close(psti_remote *remote);

/* ---- asking ---------------------------------------------------------------------------------- */

struct psti_remote_line;
struct psti_remote_link {
    struct psti_remote_link *next, *prev;
};
enum { PSTI_REMOTE_KEY_ROOM = 56 };

/* What the tier keeps about a request; its own. */
typedef struct psti_remote_request {
    struct psti_remote_link timed, queued;
    struct psti_remote_line *line; /* sent through, with that number; or NULL */
    uint32_t number;
    uint8_t what, redirects;
    bool asking;        /* the next time behind ASKING */
    bool claiming, won; /* on the way to a claim; the mark is set, the value looked for once more */
    uint16_t slot;
    uint64_t due_ns, lost_ns, sent_ns;
    uint64_t looked_ns;             /* when value and mark were last asked for together */
    struct psti_remote_line *via;   /* queued at, or sent through */
    uint64_t since_ns, since_bytes; /* asked then, when so much had come in there */
    char key[PSTI_REMOTE_KEY_ROOM];
} psti_remote_request;

/* A claim, from when it was won until its value is stored; the tier's own. */
typedef struct psti_remote_claim {
    struct psti_remote_link link;
    uint16_t slot;
    uint64_t won_ns, renew_ns, life_ns;
    char key[PSTI_REMOTE_KEY_ROOM];
} psti_remote_claim;

enum { PSTI_REMOTE_MINE = 1 };

/* In the caller's storage, untouched from psti_remote_get until done; `claim` until the claim was
 * met or released, while the rest may be used for other questions. */
typedef struct psti_remote_op {
    psti_cache_key key;
    /* What it costs to make it, roughly. 0: no claim, a miss is told at once. */
    uint64_t cost_ns;
    /* Where `size` bytes go, 64-aligned if whoever opens them wants that; NULL: no place, so it is
     * a miss. Called once at most before done. */
    uint8_t *(*room)(struct psti_remote_op *op, size_t size);
    /* 0: the value is where room said. PSTI_REMOTE_MINE: it is not there, and the caller has the
     * claim: psti_remote_put_send or psti_remote_release with this op is to follow. -ENOENT: not
     * there, or nobody finished it in time. -EAGAIN: no answer. -ECANCELED: the tier closes, or it
     * is not wanted any more. */
    void (*done)(struct psti_remote_op *op, int status);
    /* Whether a value that another makes is still waited for; NULL: yes. Asked now and then. */
    bool (*wanted)(struct psti_remote_op *op);
    /* Whether anybody has nothing else to do until this is done; NULL: yes. As long as nobody has,
     * an answer that is late is not given up, nor one who takes long to make it. Asked now and
     * then, and after psti_remote_hurry. */
    bool (*pressing)(struct psti_remote_op *op);
    void *user;
    size_t size; /* of the value; set before done(0) */

    psti_remote_claim claim;
    psti_remote_request request;
} psti_remote_op;

/* Whether it makes sense to ask: the node that has the key answers as far as is known, or is only
 * late, so that what is pressing would be told at once. Cheap. */
bool psti_remote_answers(psti_remote *remote, const psti_cache_key *key);
void psti_remote_get(psti_remote *remote, psti_remote_op *op);
/* The same without a claim, and what is found is gone from there: of all that ask, one gets it. */
void psti_remote_take(psti_remote *remote, psti_remote_op *op);
/* Somebody has run out of things to do: what is late may be pressing now. Cheap if nothing is. */
void psti_remote_hurry(psti_remote *remote);
/* Whether the server lets values be taken, and stored for a time: true until it refused. Cheap. */
bool psti_remote_takes(const psti_remote *remote);

/* ---- storing --------------------------------------------------------------------------------- */

typedef struct psti_remote_put psti_remote_put;

/* Room for a value of that size, 64-aligned, to be filled and sent or cancelled. While as much
 * waits as may, the caller is held back, up to PSTI_REMOTE_WAIT_NS. NULL: the tier does not take
 * it. */
psti_remote_put *psti_remote_put_begin(psti_remote *remote, const psti_cache_key *key, size_t size);
uint8_t *psti_remote_put_bytes(psti_remote_put *put);
/* Before it is sent: the value is gone after so long. */
void psti_remote_put_life(psti_remote_put *put, uint64_t ms);
/* claimed: the op that has the claim which this meets; NULL: none. */
void psti_remote_put_send(psti_remote *remote, psti_remote_put *put, psti_remote_op *claimed);
void psti_remote_put_cancel(psti_remote *remote, psti_remote_put *put);
/* The value that was claimed will not come from this engine: whoever waits for it need not. Never
 * blocks. */
void psti_remote_release(psti_remote *remote, psti_remote_op *claimed);

/* ---- figures --------------------------------------------------------------------------------- */

typedef struct psti_remote_stats {
    uint64_t gets, hits, misses; /* answered: found, not there */
    uint64_t unanswered;         /* errors, too slow, refused */
    uint64_t puts, put_failures; /* sent and taken; not taken, or no room to send them */
    uint64_t bytes_got, bytes_put;
    uint64_t claims, waits, waited_hits; /* claims won; lost; lost and then found */
    uint64_t redirects, refreshes;       /* MOVED and ASK followed; topologies asked for */
    uint64_t breaks;                     /* times that a node was given up for a while */
    int nodes, nodes_up;
    double bytes_per_s; /* of values while some were on the way; 0 until measured */
    double handling_s;  /* see psti_remote_handling */
} psti_remote_stats;
void psti_remote_stats_get(psti_remote *remote, psti_remote_stats *out);
double psti_remote_bandwidth(const psti_remote *remote); /* bytes_per_s; cheap */
/* Bytes of the connections' buffers: a value that is coming, pieces of one that goes. One value of
 * the largest size for each node at most, 2 MiB for each when nothing moves. Cheap. */
size_t psti_remote_buffers(const psti_remote *remote);
/* CPU seconds of this machine for a byte that goes or comes: the tier's thread, as measured, and as
 * much again where the server runs on this machine, too. Cheap. */
double psti_remote_handling(const psti_remote *remote);
/* The URL, which has no secret in it. */
const char *psti_remote_name(const psti_remote *remote);

#endif
