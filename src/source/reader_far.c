/* SPDX-License-Identifier: Apache-2.0
 * Reading from buckets: turns reads into requests of the net, which has a thread, a depth and
 * patience of its own. What a request needs beside the read is kept for the next one. submit and
 * cancel are called from any thread, landed from the net's. */
#include "source/far.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/reader_priv.h"

/* Runs of bytes with less than this between them are asked for as one: a request costs what so many
 * bytes cost. */
enum { GAP_LEAST = 64 << 10 };

/* A read on its way. */
typedef struct flight {
    psti_get get;
    psti_read *read; /* NULL: it has landed; guarded by the reader's lock */
    struct psti_far_reader *owner;
    struct flight *next_free, *next; /* all that there are */
    char etag[PSTI_ETAG_ROOM];
    psti_buf key;
} flight;

struct psti_far_reader {
    pthread_mutex_t lock; /* guards what follows; taken before the net's */
    pthread_cond_t rest;  /* the last one has landed */
    flight *flights, *free;
    int busy;
};

/* Where the net answers from within submit, nobody may be told yet: the caller may hold locks. */
static _Thread_local flight *submitting;
static _Thread_local bool refused;

/* The request for a stretch of the extent; etag and key have room. */
static void ask(psti_get *get, const psti_extent *at, const char *key, char etag[PSTI_ETAG_ROOM])
{
    if (!at->etag)
        psti_etag_render((uint64_t)at->mtime_ns, at->inode, etag);
    const char *text = at->etag ? at->etag : etag;
    *get = (psti_get){.bucket = at->bucket,
                      .key = key,
                      .etag = *text ? text : NULL,
                      .size = at->file_size,
                      .offset = at->offset,
                      .length = at->length};
}

/* What a replaced object is called, with both versions. */
static void explain(const psti_get *get, int status)
{
    if (!get->err || status != PST_ECHANGED)
        return;
    psti_fail(get->err, status, "read", get->key,
              "the object was replaced since it was listed: its etag was %s, of %llu bytes, and is "
              "now %s; list the data again",
              get->etag ? get->etag : "not known", (unsigned long long)get->size,
              get->seen_etag[0] ? get->seen_etag : "another");
}

/* ---- flights --------------------------------------------------------------------------------- */

static flight *take(struct psti_far_reader *far, psti_read *read)
{
    pthread_mutex_lock(&far->lock);
    flight *f = far->free;
    if (f)
        far->free = f->next_free;
    far->busy++;
    pthread_mutex_unlock(&far->lock);
    if (!f && (f = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *f))) {
        f->owner = far;
        pthread_mutex_lock(&far->lock);
        f->next = far->flights;
        far->flights = f;
        pthread_mutex_unlock(&far->lock);
    }
    if (f) {
        pthread_mutex_lock(&far->lock);
        f->read = read;
        pthread_mutex_unlock(&far->lock);
    }
    return f;
}

static void give(struct psti_far_reader *far, flight *f)
{
    pthread_mutex_lock(&far->lock);
    if (f) {
        f->read = NULL;
        f->next_free = far->free;
        far->free = f;
    }
    if (--far->busy == 0)
        pthread_cond_broadcast(&far->rest);
    pthread_mutex_unlock(&far->lock);
}

static void landed(psti_get *get, int status)
{
    flight *f = get->user;
    psti_read *read = f->read;
    if (submitting == f) {
        refused = true;
        return;
    }
    explain(get, status);
    pthread_mutex_lock(&f->owner->lock);
    f->read = NULL; /* nobody may cancel it any more */
    pthread_mutex_unlock(&f->owner->lock);
    read->done(read, status);
    give(f->owner, f);
}

bool psti_far_submit(struct psti_far_reader *far, psti_read *read)
{
    const psti_extent *at = &read->at;
    const size_t size = strlen(at->prefix) + strlen(at->path) + 1;
    flight *f = take(far, read);
    if (!f || psti_buf_need(PSTI_MEM_SOURCE, &f->key, size) < 0) {
        give(far, f);
        return false;
    }
    snprintf((char *)f->key.data, size, "%s%s", at->prefix, at->path);
    ask(&f->get, at, (const char *)f->key.data, f->etag);
    f->get.buf = read->buf;
    f->get.done = landed;
    f->get.user = f;
    f->get.err = read->err;
    submitting = f;
    refused = false;
    psti_net_submit(&f->get);
    submitting = NULL;
    if (refused)
        give(far, f);
    return !refused;
}

void psti_far_cancel(struct psti_far_reader *far, const psti_read *read)
{
    pthread_mutex_lock(&far->lock);
    for (flight *f = far->flights; f; f = f->next)
        if (f->read == read)
            psti_net_cancel(&f->get);
    pthread_mutex_unlock(&far->lock);
}

struct psti_far_reader *psti_far_reader_new(void)
{
    struct psti_far_reader *far = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *far);
    if (!far)
        return NULL;
    pthread_mutex_init(&far->lock, NULL);
    pthread_cond_init(&far->rest, NULL);
    return far;
}

void psti_far_reader_free(struct psti_far_reader *far, bool forked)
{
    if (!far)
        return;
    if (!forked) {
        pthread_mutex_lock(&far->lock);
        while (far->busy)
            pthread_cond_wait(&far->rest, &far->lock);
        pthread_mutex_unlock(&far->lock);
        pthread_cond_destroy(&far->rest);
        pthread_mutex_destroy(&far->lock);
    }
    while (far->flights) {
        flight *f = far->flights;
        far->flights = f->next;
        psti_buf_free(&f->key);
        psti_free(f);
    }
    psti_free(far);
}

/* ---- while the caller waits ------------------------------------------------------------------ */

/* Requests of one caller who waits for all of them. */
typedef struct party {
    pthread_mutex_t lock; /* guards left and rc */
    pthread_cond_t done;
    int64_t left;
    int rc;
} party;

static void arrived(psti_get *get, int status)
{
    party *p = get->user;
    pthread_mutex_lock(&p->lock);
    if (status < 0 && !p->rc)
        p->rc = status;
    if (--p->left == 0)
        pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

/* All of them at once. */
static int get_all(psti_get *gets, int64_t count)
{
    party p = {.left = count};
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.done, NULL);
    for (int64_t i = 0; i < count; i++) {
        gets[i].done = arrived;
        gets[i].user = &p;
        psti_net_submit(&gets[i]);
    }
    pthread_mutex_lock(&p.lock);
    while (p.left > 0)
        pthread_cond_wait(&p.done, &p.lock);
    pthread_mutex_unlock(&p.lock);
    pthread_cond_destroy(&p.done);
    pthread_mutex_destroy(&p.lock);
    return p.rc;
}

int psti_far_spans(const psti_extent *at, const psti_span *span, uint8_t *buf)
{
    char key[PSTI_FAR_KEY], etag[PSTI_ETAG_ROOM];
    psti_span whole = *span;
    if (span->count > 1 && span->step < span->length + GAP_LEAST)
        whole = (psti_span){.offset = span->offset,
                            .length = span->step * (uint64_t)(span->count - 1) + span->length,
                            .count = 1};
    const uint64_t last = whole.offset + (uint64_t)(whole.count - 1) * whole.step;
    if (whole.count < 1 || whole.length == 0)
        return 0;
    if (last > at->length || whole.length > at->length - last)
        return -ERANGE;
    if (snprintf(key, sizeof key, "%s%s", at->prefix, at->path) >= (int)sizeof key)
        return -ENAMETOOLONG;
    psti_get *gets = psti_calloc(PSTI_MEM_SOURCE, (size_t)whole.count, sizeof *gets);
    if (!gets)
        return -ENOMEM;
    for (int64_t i = 0; i < whole.count; i++) {
        const uint64_t first = whole.offset + (uint64_t)i * whole.step;
        ask(&gets[i], at, key, etag);
        gets[i].offset += first;
        gets[i].length = whole.length;
        gets[i].buf = buf + first;
    }
    const int rc = get_all(gets, whole.count);
    psti_free(gets);
    return rc;
}
