/* SPDX-License-Identifier: Apache-2.0
 * Reading from buckets: turns reads into requests of the net, which has a thread, a depth and
 * patience of its own. Members that lie close together in a shard and are submitted together are
 * one request, whose bytes go straight to where each of them wants its own. What a request needs
 * beside the reads is kept for the next one. submit, plug and cancel are called from any thread,
 * scatter and landed from the net's. */
#include "source/far.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/reader_priv.h"

/* Runs of bytes with less than this between them are asked for as one: a request costs what so many
 * bytes cost. */
enum { GAP_LEAST = 64 << 10 };
/* Of joined reads: bytes of one, bytes of all with what lies between them, which holds a usual run
 * of 16 photos. Longer ones gain little by it, and come sooner over several connections. */
enum { JOIN_EACH = 512 << 10, JOIN_MOST = 2 << 20 };
/* A request of so many bytes does not wait for more. Near to the most, or each run would leave
 * crumbs. */
enum { JOIN_ENOUGH = JOIN_MOST / 16 * 15 };
/* Reads that are looked at together. */
enum { BURST = 128, STREAMS = 8, STEPS_LEAST = 2, PATIENCE = 32 };

/* Reads on their way, in one request. */
typedef struct flight {
    psti_get get;
    psti_read *first; /* by offset; NULL: it has landed; guarded by the reader's lock */
    int count, unwanted;
    psti_read *next_read; /* scatter's: whose bytes come next */
    struct psti_far_reader *owner;
    struct flight *next_free, *next; /* all that there are */
    pst_error error;                 /* of joined reads */
    char etag[PSTI_ETAG_ROOM];
    psti_buf key;
} flight;

struct psti_far_reader {
    psti_refuse refuse; /* fixed, and so is its argument */
    void *arg;
    pthread_mutex_t lock; /* guards what follows; taken before the net's */
    pthread_cond_t rest;  /* the last one has landed */
    flight *flights, *free;
    int busy;
    int plugs;               /* reads are gathered */
    psti_read_list gathered; /* until nobody plugs; or reads that wait for their neighbours */
    struct stream {          /* where requests ended of late: who goes on there reads in order */
        const char *path;
        uint64_t end;
        uint32_t steps; /* how often it went on */
    } streams[STREAMS];
    int next_stream;
    int patience; /* how often unplug may be calm before what waits is sent */
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

/* What a replaced object is called: both etags where the server tells them, else both sizes. What
 * was seen may be the old etag, when the object was replaced behind the first bytes and the server
 * says of the new one only that it is another. */
static void explain(const psti_get *get, int status)
{
    char now[PSTI_ETAG_ROOM + 40] = "another";
    if (!get->err || status != PST_ECHANGED)
        return;
    const bool other = *get->seen_etag && !(get->etag && strcmp(get->seen_etag, get->etag) == 0);
    if (other)
        snprintf(now, sizeof now, "%s", get->seen_etag);
    else if (get->seen_size != UINT64_MAX && get->seen_size != get->size)
        snprintf(now, sizeof now, "another, of %llu bytes", (unsigned long long)get->seen_size);
    psti_fail(get->err, status, "read", get->key,
              "the object was replaced since it was listed: its etag was %s, of %llu bytes, and is "
              "now %s; list the data again",
              get->etag ? get->etag : "not known", (unsigned long long)get->size, now);
}

/* ---- flights --------------------------------------------------------------------------------- */

/* reads: by offset, linked. */
static flight *take(struct psti_far_reader *far, psti_read *reads, int count)
{
    pthread_mutex_lock(&far->lock);
    flight *f = far->free;
    if (f)
        far->free = f->next_free;
    far->busy++;
    pthread_mutex_unlock(&far->lock);
    const bool made = !f;
    if (made)
        f = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *f);
    if (!f)
        return NULL;
    pthread_mutex_lock(&far->lock);
    if (made) {
        f->owner = far;
        f->next = far->flights;
        far->flights = f;
    }
    f->first = reads;
    f->count = count;
    f->unwanted = 0;
    for (psti_read *r = reads; r; r = r->next)
        r->state = f;
    pthread_mutex_unlock(&far->lock);
    return f;
}

/* Nobody may cancel its reads any more. */
static psti_read *unload(flight *f)
{
    pthread_mutex_lock(&f->owner->lock);
    psti_read *reads = f->first;
    for (psti_read *r = reads; r; r = r->next)
        r->state = NULL;
    f->first = NULL;
    pthread_mutex_unlock(&f->owner->lock);
    return reads;
}

static void give(struct psti_far_reader *far, flight *f)
{
    pthread_mutex_lock(&far->lock);
    if (f) {
        f->next_free = far->free;
        far->free = f;
    }
    if (--far->busy == 0)
        pthread_cond_broadcast(&far->rest);
    pthread_mutex_unlock(&far->lock);
}

/* The bytes of a joined request, each to its own read; what lies between them to nobody. */
static int scatter(psti_get *get, uint64_t at, const uint8_t *bytes, size_t count)
{
    flight *f = get->user;
    if (at == get->offset)
        f->next_read = f->first;
    while (count && f->next_read) {
        psti_read *r = f->next_read;
        const uint64_t end = r->at.offset + r->at.length;
        const bool between = at < r->at.offset;
        const uint64_t left = (between ? r->at.offset : end) - at;
        const size_t n = count < left ? count : (size_t)left;
        if (!between)
            memcpy(r->buf + (at - r->at.offset), bytes, n);
        at += n;
        bytes += n;
        count -= n;
        if (at == end)
            f->next_read = r->next;
    }
    return 0;
}

static void launch(struct psti_far_reader *far, psti_read *reads, int count);

/* Whether each of the reads may fare better alone: what failed may lie in one of them. Not where
 * the object, the server or the caller is why, nor where nothing came at all. */
static bool worth_parting(const flight *f, int status)
{
    const bool part = status == -EIO || status == -EPROTO || status == -ERANGE ||
                      status == PST_ECORRUPT || (status == -ETIMEDOUT && f->get.request.received);
    return f->count > 1 && part;
}

/* Sends each alone; those that nobody wants are over. */
static void part(flight *f)
{
    struct psti_far_reader *far = f->owner;
    psti_read_list alone = {0}, over = {0};
    pthread_mutex_lock(&far->lock);
    for (psti_read *r = f->first, *next; r; r = next) {
        next = r->next;
        psti_read_list_push(r->state ? &alone : &over, r);
    }
    f->first = NULL;
    pthread_mutex_unlock(&far->lock);
    for (psti_read *r; (r = psti_read_list_pop(&over));)
        r->done(r, -ECANCELED);
    for (psti_read *r; (r = psti_read_list_pop(&alone));) {
        r->next = NULL;
        launch(far, r, 1);
    }
    give(far, f);
}

static void landed(psti_get *get, int status)
{
    flight *f = get->user;
    if (submitting == f) {
        refused = true;
        return;
    }
    if (worth_parting(f, status)) {
        part(f);
        return;
    }
    explain(get, status);
    for (psti_read *r = unload(f), *next; r; r = next) {
        next = r->next; /* done may submit it again */
        if (status < 0 && r->err && r->err != get->err)
            *r->err = *get->err;
        r->done(r, status);
    }
    give(f->owner, f);
}

static void refuse_all(struct psti_far_reader *far, psti_read *reads)
{
    for (psti_read *next; reads; reads = next) {
        next = reads->next;
        far->refuse(far->arg, reads);
    }
}

/* reads: of one object, by offset, linked. */
static void launch(struct psti_far_reader *far, psti_read *reads, int count)
{
    const psti_extent *at = &reads->at;
    const size_t size = strlen(at->prefix) + strlen(at->path) + 1;
    flight *f = take(far, reads, count);
    if (!f || psti_buf_need(PSTI_MEM_SOURCE, &f->key, size) < 0) {
        reads = f ? unload(f) : reads;
        refuse_all(far, reads);
        give(far, f);
        return;
    }
    snprintf((char *)f->key.data, size, "%s%s", at->prefix, at->path);
    ask(&f->get, at, (const char *)f->key.data, f->etag);
    if (count == 1) {
        f->get.buf = reads->buf;
        f->get.err = reads->err;
    } else {
        const psti_read *last = reads;
        while (last->next)
            last = last->next;
        f->get.length = last->at.offset + last->at.length - at->offset;
        f->get.sink = scatter;
        f->get.err = &f->error;
        psti_error_clear(&f->error);
    }
    f->get.done = landed;
    f->get.user = f;
    submitting = f;
    refused = false;
    psti_net_submit(&f->get);
    submitting = NULL;
    if (refused) {
        refuse_all(far, unload(f));
        give(far, f);
    }
}

/* ---- joining --------------------------------------------------------------------------------- */

static bool same_object(const psti_extent *a, const psti_extent *b)
{
    return a->bucket == b->bucket && a->prefix == b->prefix && a->path == b->path &&
           a->etag == b->etag && a->mtime_ns == b->mtime_ns && a->inode == b->inode &&
           a->file_size == b->file_size;
}

/* One of a burst. */
typedef struct place {
    psti_read *read;
    int came;  /* when it was submitted; of the first of a run: the earliest of the run's */
    int run;   /* how many are in the run that begins here; 0: it goes with those before it */
    bool full; /* of the first of a run: what comes next is there, and finds no room in it */
} place;

/* Objects in any order, of each its parts by offset. */
static int by_offset(const void *a, const void *b)
{
    const psti_extent *one = &((const place *)a)->read->at, *two = &((const place *)b)->read->at;
    if (one->path != two->path)
        return (uintptr_t)one->path < (uintptr_t)two->path ? -1 : 1;
    return one->offset < two->offset ? -1 : one->offset > two->offset;
}

static bool goes_on(const psti_extent *last, const psti_extent *next)
{
    const uint64_t end = last->offset + last->length;
    return same_object(last, next) && next->offset >= end && next->offset - end < GAP_LEAST;
}

/* Whether next goes into one request with those from first to last. */
static bool fits(const psti_extent *first, const psti_extent *last, const psti_extent *next)
{
    return goes_on(last, next) && first->length <= JOIN_EACH && next->length <= JOIN_EACH &&
           next->offset + next->length - first->offset <= JOIN_MOST;
}

/* Makes runs of what fits together, linked. */
static void join(place *burst, int count)
{
    place *first = burst;
    for (int i = 0; i < count; i++) {
        place *p = &burst[i];
        p->read->next = NULL;
        p->run = 1;
        if (i == 0 || !fits(&first->read->at, &p[-1].read->at, &p->read->at)) {
            first->full = i > 0 && goes_on(&p[-1].read->at, &p->read->at);
            first = p;
            continue;
        }
        p[-1].read->next = p->read;
        p->run = 0;
        first->run++;
        first->came = p->came < first->came ? p->came : first->came;
    }
}

static int by_arrival(const void *a, const void *b)
{
    return ((const place *)a)->came - ((const place *)b)->came;
}

/* Where a run goes on that begins there; NULL: nowhere. */
static struct stream *stream_locked(struct psti_far_reader *far, const psti_extent *at)
{
    for (int i = 0; i < STREAMS; i++) {
        struct stream *s = &far->streams[i];
        if (s->path == at->path && at->offset >= s->end && at->offset - s->end < GAP_LEAST)
            return s;
    }
    return NULL;
}

static void note_locked(struct psti_far_reader *far, const psti_extent *at, uint64_t end)
{
    struct stream *s = stream_locked(far, at);
    if (s) {
        s->end = end;
        s->steps++;
        return;
    }
    far->streams[far->next_stream] = (struct stream){.path = at->path, .end = end};
    far->next_stream = (far->next_stream + 1) % STREAMS;
}

/* Whether a run is to wait for what will be asked for next: whoever asked says so or its shard is
 * read in order, and it is not long enough to be worth a request. Then it is gathered again. In a
 * shuffle neighbours meet by chance, and nobody must wait for the next: so only where it went on
 * more than once. */
static bool waits(struct psti_far_reader *far, psti_read *reads, bool calm)
{
    const psti_read *last = reads;
    while (last->next)
        last = last->next;
    const uint64_t begin = reads->at.offset, end = last->at.offset + last->at.length;
    pthread_mutex_lock(&far->lock);
    const struct stream *s = calm ? stream_locked(far, &reads->at) : NULL;
    const bool expected = (calm && last->more) || (s && s->steps >= STEPS_LEAST);
    const bool wait = expected && end - begin < JOIN_ENOUGH;
    if (!wait)
        note_locked(far, &reads->at, end);
    for (psti_read *r = reads, *next; wait && r; r = next) {
        next = r->next;
        psti_read_list_push(&far->gathered, r);
    }
    pthread_mutex_unlock(&far->lock);
    return wait;
}

static void launch_burst(struct psti_far_reader *far, place *burst, int count, bool calm)
{
    int runs = 0;
    qsort(burst, (size_t)count, sizeof *burst, by_offset);
    join(burst, count);
    for (int i = 0; i < count; i++)
        if (burst[i].run)
            burst[runs++] = burst[i];
    qsort(burst, (size_t)runs, sizeof *burst, by_arrival);
    for (int i = 0; i < runs; i++)
        if (burst[i].full || !waits(far, burst[i].read, calm))
            launch(far, burst[i].read, burst[i].run);
}

static void launch_all(struct psti_far_reader *far, psti_read_list list, bool calm)
{
    place burst[BURST];
    while (list.first) {
        int count = 0;
        while (list.first && count < BURST) {
            burst[count] = (place){.read = psti_read_list_pop(&list), .came = count};
            count++;
        }
        launch_burst(far, burst, count, calm);
    }
}

static psti_read_list take_gathered_locked(struct psti_far_reader *far)
{
    const psti_read_list list = far->gathered;
    far->gathered = (psti_read_list){0};
    return list;
}

/* ---- what readers call ----------------------------------------------------------------------- */

void psti_far_submit(struct psti_far_reader *far, psti_read *read)
{
    pthread_mutex_lock(&far->lock);
    const bool wait = far->plugs > 0;
    read->state = NULL;
    if (wait)
        psti_read_list_push(&far->gathered, read);
    else
        note_locked(far, &read->at, read->at.offset + read->at.length);
    pthread_mutex_unlock(&far->lock);
    if (wait)
        return;
    read->next = NULL;
    launch(far, read, 1);
}

void psti_far_plug(struct psti_far_reader *far)
{
    pthread_mutex_lock(&far->lock);
    far->plugs++;
    pthread_mutex_unlock(&far->lock);
}

void psti_far_unplug(struct psti_far_reader *far, bool calm)
{
    psti_read_list list = {0};
    pthread_mutex_lock(&far->lock);
    if (--far->plugs == 0) {
        list = take_gathered_locked(far);
        far->patience = !list.first || !calm || !far->patience ? PATIENCE : far->patience - 1;
        calm = calm && far->patience < PATIENCE;
    }
    pthread_mutex_unlock(&far->lock);
    launch_all(far, list, calm);
}

/* A request is given up when nobody wants any of its reads. One that waits for its neighbours is
 * sent first: its end is told by the net's thread, as any other. */
void psti_far_cancel(struct psti_far_reader *far, psti_read *read)
{
    pthread_mutex_lock(&far->lock);
    const psti_read *r = read->state ? NULL : far->gathered.first;
    while (r && r != read)
        r = r->next;
    if (r) {
        const psti_read_list list = take_gathered_locked(far);
        pthread_mutex_unlock(&far->lock);
        launch_all(far, list, false);
        pthread_mutex_lock(&far->lock);
    }
    flight *f = read->state;
    read->state = NULL;
    if (f && ++f->unwanted == f->count)
        psti_net_cancel(&f->get);
    pthread_mutex_unlock(&far->lock);
}

struct psti_far_reader *psti_far_reader_new(psti_refuse refuse, void *arg)
{
    struct psti_far_reader *far = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *far);
    if (!far)
        return NULL;
    far->refuse = refuse;
    far->patience = PATIENCE;
    far->arg = arg;
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
