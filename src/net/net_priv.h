/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room share. Order of reading: secret.c, profile.c, creds.c (who asks),
 * bucket.c, url.c (whom), sign.c (the signature), sums.c (checksums), retry.c (when again),
 * answer.c (whether an answer is what was asked for), transfer.c (one HTTP request), request.c (one
 * get, over its requests), loop.c (the thread), list.c (listings). */
#ifndef PSTI_NET_NET_PRIV_H
#define PSTI_NET_NET_PRIV_H

#include <curl/curl.h>
#include <pthread.h>

#include "core/fork.h"
#include "net/net.h"
#include "net/profile.h"

/* ---- memory that is in no core file (secret.c) ------------------------------------------------
 */

/* Whole pages, filled with noughts; NULL on failure. Wiped when let go. */
void *secret_alloc(size_t bytes);
void secret_free(void *memory, size_t bytes);
void secret_wipe(void *memory, size_t bytes);
/* Leaves out of core files what already lies somewhere, the environment's. */
void secret_hide(const void *memory, size_t bytes);
/* Tells curl to take its memory from such pages too, unless someone else set it up before us. Once
 * in a process; any thread. */
int secret_curl_begin(void);

/* ---- credentials (creds.c) --------------------------------------------------------------------
 */

enum { CREDS_TOKEN_ROOM = 6144 };
/* Lies in secret memory, always. */
typedef struct creds {
    char access_key[256], secret_key[256], token[CREDS_TOKEN_ROOM];
    int64_t expires_s; /* since 1970; 0 = not known */
} creds;

typedef enum creds_kind {
    CREDS_NONE,
    CREDS_ENVIRONMENT,
    CREDS_FILE,
    CREDS_CONTAINER,
    CREDS_GIVEN
} creds_kind;
/* A header must not be ended by what was read. */
bool creds_are_plain(const creds *c);

struct signer; /* sign.c */

typedef struct provider {
    creds_kind kind;
    char uri[512]; /* of the server of credentials */
    pthread_mutex_t lock;
    /* guarded by it */
    creds *now, *fresh; /* fresh: what a refresh brought, until the next signature */
    struct signer *signer;
    bool refreshing, failed;
    uint32_t version;       /* of now */
    int64_t refresh_from_s; /* not before: after a refresh that failed */
    psti_access *access;    /* of those that were given */
    uint32_t access_version;
    psti_fork_guard forks;
} provider;

/* NULL in *out and 0: nobody's requests are unsigned. */
int provider_open(provider **out, pst_error *err);
void provider_close(provider *p);
/* Those that were given; NULL in *out: it has none. */
int provider_open_given(psti_access *access, provider **out, pst_error *err);
/* Where a kind of credentials comes from, once more. 0 or a failure, with a reason. */
int creds_load(creds_kind kind, const char *uri, creds *out, char *reason, size_t room);
/* Whether the bucket's credentials can be used at this second; begins a renewal when they soon
 * cannot. 0, or -EAGAIN: wait for the renewal, which wakes the loop; or a failure. */
int provider_ready(psti_bucket *bucket, int64_t now_s);
/* The server says that they are no longer good: those of `version`, unless they were renewed since.
 * False: they cannot be renewed. */
bool provider_expired(psti_bucket *bucket, uint32_t version);

/* ---- on behalf of somebody (access.c) ---------------------------------------------------------
 */

typedef struct access_place {
    char endpoint[300], region[64]; /* "" = as the environment says */
    bool by_path;
} access_place;
void access_where(psti_access *a, access_place *out);
bool access_signs(psti_access *a);
/* 1: out and *version are newer ones; 0: they are those; -EACCES: there are none any more. */
int access_renew(psti_access *a, uint32_t *version, creds *out);
const psti_catalog *catalog_used(void); /* by the calling thread; NULL = none */

/* ---- signatures (sign.c) ----------------------------------------------------------------------
 */

typedef struct sign_header {
    const char *name, *value; /* the name in lower case; names in byte order */
} sign_header;
typedef struct sign_input {
    const char *method, *path, *query; /* escaped; the query in canonical order */
    const char *region, *service;
    const char *time; /* 20260131T123456Z */
    const char *payload_hash;
    const sign_header *header;
    int headers;
} sign_input;

extern const char sign_empty_hash[65]; /* SHA-256 of nothing */
enum { SIGN_AUTHORIZATION_ROOM = 1024 };

struct signer *signer_new(void);
void signer_free(struct signer *s);
/* The value of the Authorization header. The signing key is kept until day, region or version
 * change. */
int signer_sign(struct signer *s, const creds *c, uint32_t version, const sign_input *in,
                char out[SIGN_AUTHORIZATION_ROOM]);
void sign_time(int64_t now_s, char out[17]);

/* ---- URLs (url.c) -----------------------------------------------------------------------------
 */

/* Appends bytes, escaped but for unreserved ones and, if it is a path, '/'. Returns the new length,
 * or SIZE_MAX when room does not suffice. out is ended with NUL. */
size_t url_escape(char *out, size_t at, size_t room, const char *bytes, size_t count, bool path);
/* In place; false when an escape is broken or hides a NUL. plus: '+' is a space. */
bool url_unescape(char *text, size_t *len, bool plus);

typedef struct url_parts {
    bool https;
    char host[256];   /* lower case; with brackets if it is an IPv6 address */
    int port;         /* 0 = the usual one */
    const char *path; /* in the text, behind host and port: "" or from the '/' */
} url_parts;
/* http(s)://HOST[:PORT][/PATH]. What is wrong, or NULL. */
const char *url_split(const char *text, url_parts *out);
/* Names and addresses of this machine only. */
bool url_is_loopback(const char *host);

/* ---- when again (retry.c) ---------------------------------------------------------------------
 */

enum {
    RETRY_ATTEMPTS = 10,
    RETRY_LIES = 3,
    RETRY_TOKENS = 500,
    RETRY_COST = 5,
    RETRY_REFILL = 10,
};
#define RETRY_MS 1000000ull
#define RETRY_S  1000000000ull

/* How a bucket is doing. Touched by the net thread only. */
typedef struct retry_gate {
    double tokens;
    double rate; /* successes a second while all is well */
    uint64_t rate_from_ns, rate_count;
    uint64_t success_ns;         /* of the last one; 0 = there was none yet */
    uint64_t probe_ns;           /* while shut: when the next request may go */
    uint64_t opened_ns, started; /* behind an outage: requests since then */
    bool shut;
} retry_gate;

void retry_gate_init(retry_gate *gate);
/* Returns true when it ends an outage: whoever waits may come, a little apart. */
bool retry_success(retry_gate *gate, uint64_t now_ns);
/* 0: go; else how long to wait before asking again. again: it is a retry, which costs tokens. */
uint64_t retry_may(retry_gate *gate, uint64_t now_ns, bool again, uint64_t random);
/* Full jitter: attempt is 1 for the first retry. */
uint64_t retry_pause(uint32_t attempt, bool throttled, uint64_t random);

/* ---- checksums (sums.c) -----------------------------------------------------------------------
 */

enum sum_kind { SUM_NONE, SUM_CRC32C, SUM_CRC32, SUM_CRC64NVME, SUM_SHA1, SUM_SHA256 };

typedef struct psti_sum sum;

/* name: what follows x-amz-checksum-; text: base64. False where it is none that is known, or that
 * of parts. Cheaper kinds win over dearer ones. */
bool sum_expect(sum *s, const char *name, size_t name_len, const char *text, size_t len);
int sum_update(sum *s, const uint8_t *bytes, size_t count);
/* Whether it is as the server said; begins anew. */
bool sum_right(sum *s);
void sum_drop(sum *s);
uint32_t sum_crc32(uint32_t crc, const uint8_t *bytes, size_t count);
uint64_t sum_crc64nvme(uint64_t crc, const uint8_t *bytes, size_t count);

/* ---- buckets (bucket.c) -----------------------------------------------------------------------
 */

enum { TARGET_ROOM = 16384 };

struct psti_bucket {
    atomic_int refs;
    uint64_t serial; /* of this process: a transfer knows by it what it is set up for */
    bool s3, loopback;
    char name[300];
    char url[320];  /* scheme, host, port and '/' */
    char host[300]; /* as the Host header has it */
    char base[600]; /* what stands before a key in a request: "/", "/BUCKET/", … */
    char region[64];
    char ca_file[512]; /* "" = curl's own */
    provider *creds;   /* NULL = unsigned */
    /* The net thread's own. */
    retry_gate gate;
    char trouble[200];  /* the last failure, for those whose patience ended between two attempts */
    int64_t skew_s;     /* the server's clock is ahead by this */
    bool lost;          /* no connection came about: the address may be an old one */
    uint64_t answer_ns; /* time to the first byte: the longest of late, forgotten bit by bit */
};

/* ---- an answer (answer.c) ---------------------------------------------------------------------
 */

typedef enum verdict {
    GOOD,
    AGAIN,     /* may work later */
    THROTTLED, /* the same, and the server asks for quiet */
    LIE,       /* not what was asked for */
    EXPIRED,   /* the credentials */
    SKEWED,    /* the clock */
    FINAL,     /* never will */
} verdict;

enum request_kind { REQUEST_GET, REQUEST_HEAD, REQUEST_LIST };

/* The head of an answer, and what was found out about it. */
typedef struct answer {
    int status;                           /* 0 until there is one */
    uint64_t length;                      /* UINT64_MAX = not said */
    uint64_t first, last, total;          /* of Content-Range; UINT64_MAX = not said */
    bool ranged, chunked, encoded, twice; /* twice: two lengths that differ */
    char etag[PSTI_ETAG_ROOM];
    char region[32];
    char date[64]; /* of the server's clock; "" = not said */
    uint64_t retry_after_s;
    sum sum;
    bool judged, adopted; /* the head was looked at as a whole; its bytes are the ones taken */
    verdict verdict;
    int code;         /* of FINAL */
    char reason[200]; /* never a secret */
    char body[1024];  /* of an error, its beginning */
    size_t body_len;
} answer;

void answer_clear(answer *a);
/* One line of the head, without its end. */
void answer_line(answer *a, const char *line, size_t len);
/* Seconds since 1970 by the server's clock; -1 = not said. */
int64_t answer_time(const answer *a);
/* The head is whole: is it what get asked for from byte `from` on? */
void answer_judge(answer *a, const psti_get *get, uint64_t from);
/* Whether get wants an object from its first byte to its last, so that no range is asked for. */
bool get_is_whole(const psti_get *get, uint64_t from);
/* What an answer's etag must be; NULL = any. */
const char *get_etag(const psti_get *get);
/* An answer of 300 and more, with the beginning of its body. */
void answer_judge_error(answer *a, const psti_get *get);
/* The request failed below HTTP. */
void answer_judge_curl(answer *a, const psti_get *get, CURLcode code, const char *detail);
__attribute__((format(printf, 4, 5))) void answer_say(answer *a, verdict v, int code,
                                                      const char *fmt, ...);
bool etag_same(const char *a, const char *b);

/* ---- one HTTP request (transfer.c) ------------------------------------------------------------
 */

typedef struct psti_transfer {
    struct psti_transfer *next; /* in the pool, or among those to be ended */
    CURL *easy;
    psti_get *get;                         /* NULL: to be ended, nobody waits for it */
    uint64_t serial;                       /* of the bucket it is set up for */
    uint64_t from;                         /* offset of the first byte it asked for */
    uint64_t speed_ns, speed_bytes, bytes; /* bytes of body so far, and some time ago */
    uint64_t head_bytes;
    uint64_t added_ns; /* when it was sent */
    uint32_t creds_version;
    bool head_only, fresh, lost, body_begun;
    answer answer;
    struct curl_slist line[12];
    char detail[CURL_ERROR_SIZE];
    char target[TARGET_ROOM];
    char head[CREDS_TOKEN_ROOM + 4096];
} psti_transfer;

psti_transfer *transfer_new(void);
void transfer_free(psti_transfer *t);
/* Makes it ready to be added to the multi handle. 0; -EAGAIN: waits for credentials; a failure,
 * with the answer's reason. */
int transfer_prepare(psti_transfer *t, psti_get *get, bool fresh, int64_t now_s);
bool transfer_is_connected(const psti_transfer *t);
/* What there is to say of one that brings nothing. */
void transfer_silence(const psti_transfer *t, char *out, size_t cap);

/* ---- one get (request.c), on the net thread ----------------------------------------------------
 */

enum request_state {
    REQUEST_IDLE,
    REQUEST_QUEUED,
    REQUEST_RUNNING,
    REQUEST_PAUSED,
    REQUEST_SIGNING
};

/* What a request does with body bytes of its transfer t. False: it is over, the answer says why. */
bool request_take(psti_transfer *t, const uint8_t *bytes, size_t count);
/* Ends it at once where nothing is to be asked. */
void request_begin(psti_get *get, uint64_t now_ns);
/* A transfer of it came to its end. */
void request_end_transfer(psti_transfer *t, CURLcode code, uint64_t now_ns);
/* Its time has come, or it is to be ended. */
void request_due(psti_get *get, uint64_t now_ns);
void request_finish(psti_get *get, int status);

/* ---- the thread (loop.c) ------------------------------------------------------------------------
 */

/* On the net thread. */
int loop_add(psti_transfer *t);     /* to the multi handle */
void loop_drop(psti_transfer *t);   /* from it, and into the pool; at once or a little later */
void loop_keep(psti_transfer *t);   /* into the pool, was not added */
psti_transfer *loop_transfer(void); /* from the pool; NULL = no memory */
void loop_forget(psti_get *get, int status); /* it is done, and done is called */
void loop_place(psti_get *get, bool takes);  /* whether it counts against the depth */
void loop_answered(uint64_t after_ns); /* the first bytes of an answer came so long after asking */
void loop_due(uint64_t at_ns);         /* something is due then */
void loop_release(psti_bucket *bucket, uint64_t now_ns); /* an outage is over */
uint64_t loop_random(void);
uint64_t loop_now(void); /* when the thread last woke */
/* Any other thread: a get of this kind, waited for. */
int loop_ask(psti_get *get, uint8_t kind, const char *query);
/* Any thread: a renewal of credentials ended. */
void loop_wake(void);
bool loop_is_mine(void); /* whether this is the net thread */

typedef struct net_counts {
    atomic_ullong requests, lists, retries, resumed, hedges, throttled, errors, bytes, connections;
} net_counts;
extern net_counts net_count;
/* The same by scheme: of http(s):// and of s3://. */
typedef struct net_kind {
    atomic_ullong requests, retries, errors, bytes;
} net_kind;
extern net_kind net_kinds[2];
static inline void count_up(atomic_ullong *count, uint64_t by)
{
    atomic_fetch_add_explicit(count, by, memory_order_relaxed);
}
uint64_t net_patience_ns(void); /* how long a get may be without a byte */

#endif
