/* SPDX-License-Identifier: Apache-2.0
 * Where a pull takes its objects from: a bucket through the net, or a folder. Keys of a bucket lose
 * the prefix that was asked for. Any thread; get waits. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "depot/depot_priv.h"
#include "net/net.h"

/* ---- through the net ----------------------------------------------------------------------------
 */

typedef struct net_get {
    psti_get get;
    struct net_get *next, *prev; /* under net_state.lock */
    relay bytes;
} net_get;

typedef struct net_state {
    psti_bucket *from;
    pthread_mutex_t lock; /* guards what follows; a leaf */
    net_get *running;
    bool stopped;
} net_state;

typedef struct net_listing {
    bucket *b;
    listing *out;
    pst_error *err;
} net_listing;

static int add_listed(void *user, const psti_object *o)
{
    const net_listing *n = user;
    const size_t skip = strlen(n->b->prefix);
    if (n->b->ask && n->out->count % 1000 == 0 && n->b->ask(n->b->user) != 0)
        return psti_fail(n->err, -ECANCELED, "list", NULL, "stopped");
    if (o->key_len < skip || memcmp(o->key, n->b->prefix, skip) != 0)
        return psti_fail(n->err, PST_EDATASET, "list", NULL,
                         "the server lists keys that were not asked for");
    if (o->key_len == skip || o->key[o->key_len - 1] == '/')
        return 0; /* stands for a folder */
    return listing_add(n->out, o->key + skip, o->key_len - skip, o->size, o->etag, n->err);
}

/* One object: the part of its key behind the last slash is its name here. */
static int list_one(bucket *b, listing *out, pst_error *err)
{
    uint64_t size;
    char etag[PSTI_ETAG_ROOM];
    const int rc = psti_net_head(((net_state *)b->state)->from, b->prefix, &size, etag, err);
    if (rc < 0)
        return rc;
    if (size == UINT64_MAX)
        return psti_fail(err, PST_EDATASET, "list", b->prefix,
                         "the server does not say how long it is");
    const char *slash = strrchr(b->prefix, '/');
    const char *name = slash ? slash + 1 : b->prefix;
    b->one = true;
    return listing_add(out, name, strlen(name), size, etag, err);
}

void bucket_is_folder(bucket *b)
{
    if (b->one)
        memcpy(b->prefix + strlen(b->prefix), "/", 2); /* there is room for it */
    b->one = false;
}

static int net_list(bucket *b, listing *out, pst_error *err)
{
    psti_bucket *from = ((net_state *)b->state)->from;
    if (!psti_bucket_lists(from))
        return list_one(b, out, err);
    const size_t len = strlen(b->prefix);
    const bool folder = len == 0 || b->prefix[len - 1] == '/';
    if (!folder) { /* with a slash first: what is below; without: the object of that name */
        b->prefix[len] = '/';
        b->prefix[len + 1] = 0;
    }
    b->one = false;
    net_listing n = {b, out, err};
    int rc = psti_net_list(from, b->prefix, add_listed, &n, err);
    if (rc == 0 && out->count == 0 && !folder) {
        b->prefix[len] = 0;
        rc = list_one(b, out, err);
    }
    return rc;
}

static int hand_on(psti_get *get, uint64_t at, const uint8_t *bytes, size_t count)
{
    net_get *n = get->user;
    (void)at;
    return relay_give(&n->bytes, bytes, count);
}

static void landed(psti_get *get, int status)
{
    net_get *n = get->user;
    relay_end(&n->bytes, status);
}

/* Among those that stop reaches; -ECANCELED when that was before. */
static int enlist(net_state *n, net_get *g)
{
    pthread_mutex_lock(&n->lock);
    const bool stopped = n->stopped;
    g->next = n->running;
    g->prev = NULL; /* it may have been there before */
    if (!stopped && n->running)
        n->running->prev = g;
    if (!stopped)
        n->running = g;
    pthread_mutex_unlock(&n->lock);
    return stopped ? -ECANCELED : 0;
}

static void strike_off(net_state *n, net_get *g)
{
    pthread_mutex_lock(&n->lock);
    if (g->prev)
        g->prev->next = g->next;
    else
        n->running = g->next;
    if (g->next)
        g->next->prev = g->prev;
    pthread_mutex_unlock(&n->lock);
}

static void stop_if_told(net_state *n, net_get *g)
{
    pthread_mutex_lock(&n->lock);
    const bool stopped = n->stopped;
    pthread_mutex_unlock(&n->lock);
    if (stopped)
        psti_net_cancel(&g->get);
}

/* One request. 1: the writer could not keep up, and the rest is to be asked for anew. */
static int net_part(net_state *n, net_get *g, uint64_t *at, uint64_t to, bucket_sink sink,
                    void *user)
{
    g->get.offset = *at;
    g->get.length = to - *at;
    int rc = enlist(n, g);
    if (rc < 0)
        return rc;
    psti_net_submit(&g->get);
    stop_if_told(n, g); /* what is told before it was submitted is not heard */
    const bool going = relay_take(&g->bytes, at, sink, user);
    if (!going)
        psti_net_cancel(&g->get);
    rc = relay_wait(&g->bytes);
    strike_off(n, g);
    const bool full = relay_again(&g->bytes);
    return !going ? -ECANCELED : full && rc == -ECANCELED ? 1 : rc;
}

/* The net's thread never waits for whoever writes: when too much is under way the request is ended,
 * and once that is written the rest is asked for by its range. Without an etag nothing would say
 * that it is of the same object: then it does wait. */
static int net_fetch(bucket *b, const listing *l, const object *o, stretch part, bucket_sink sink,
                     void *user, pst_error *err)
{
    char key[2 * PSTI_KEY_MAX];
    const char *etag = object_etag(l, o);
    net_state *n = b->state;
    net_get g = {0};
    snprintf(key, sizeof key, "%s%s", b->prefix, b->one ? "" : object_key(l, o));
    g.get = (psti_get){.bucket = n->from,
                       .key = key,
                       .etag = *etag ? etag : NULL,
                       .size = o->size,
                       .sink = hand_on,
                       .done = landed,
                       .user = &g,
                       .err = err};
    int rc = relay_init(&g.bytes, part.to - part.from, b->others, !*etag);
    if (rc < 0)
        return psti_fail(err, rc, "pull", key, "out of memory");
    while ((rc = net_part(n, &g, &part.from, part.to, sink, user)) > 0)
        if (err)
            psti_error_clear(err);
    relay_fini(&g.bytes);
    return rc;
}

static void net_stop(bucket *b)
{
    net_state *n = b->state;
    pthread_mutex_lock(&n->lock);
    n->stopped = true;
    for (net_get *g = n->running; g; g = g->next)
        psti_net_cancel(&g->get);
    pthread_mutex_unlock(&n->lock);
}

static void net_close(bucket *b)
{
    net_state *n = b->state;
    psti_bucket_unref(n->from);
    pthread_mutex_destroy(&n->lock);
    psti_free(n);
}

static const bucket_ops net_ops = {net_list, net_fetch, net_stop, net_close};

static int net_bucket_open(const char *url, bucket *b, pst_error *err)
{
    char *rest = NULL;
    net_state *n = psti_calloc(PSTI_MEM_DEPOT, 1, sizeof *n);
    if (!n)
        return psti_fail(err, -ENOMEM, "pull", NULL, "out of memory");
    const int rc = psti_bucket_open(url, &n->from, &rest, err);
    if (rc < 0) {
        psti_free(n);
        return rc;
    }
    pthread_mutex_init(&n->lock, NULL);
    b->ops = &net_ops;
    b->state = n;
    const size_t len = strlen(rest);
    b->prefix = psti_calloc(PSTI_MEM_DEPOT, len + 2, 1); /* room for a slash */
    if (b->prefix)
        memcpy(b->prefix, rest, len);
    b->one = len > 0 && rest[len - 1] != '/'; /* until it was listed */
    psti_free(rest);
    return b->prefix ? 0 : psti_fail(err, -ENOMEM, "pull", NULL, "out of memory");
}

/* ---- either -------------------------------------------------------------------------------------
 */

int bucket_open(const char *url, bucket **out, pst_error *err)
{
    bucket *b = psti_calloc(PSTI_MEM_DEPOT, 1, sizeof *b);
    if (!b)
        return psti_fail(err, -ENOMEM, "pull", NULL, "out of memory");
    int rc;
    if (psti_is_bucket_url(url))
        rc = net_bucket_open(url, b, err);
    else if (strncmp(url, "file://", 7) == 0)
        rc = folder_bucket_open(url + 7, b, err);
    else if (strstr(url, "://"))
        rc = psti_fail(err, -EINVAL, "pull", url,
                       "it takes s3://BUCKET/PREFIX, http(s)://… or a folder");
    else
        rc = folder_bucket_open(url, b, err);
    if (rc < 0) {
        bucket_close(b);
        return rc;
    }
    *out = b;
    return 0;
}

void bucket_close(bucket *b)
{
    if (!b)
        return;
    if (b->ops)
        b->ops->close(b);
    psti_free(b->prefix);
    psti_free(b);
}
