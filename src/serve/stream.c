/* SPDX-License-Identifier: Apache-2.0
 * Server-sent events: the view once a second to whoever keeps a connection open. Between events a
 * connection is put to sleep; the looker's thread hands every one the same event and wakes it. One
 * that does not take its events has the newest only, and is closed by the library's time limit. */
#include <errno.h>
#include <string.h>

#include "core/memory.h"
#include "serve/show.h"

enum { PIECE = 32 << 10 };

struct stream {
    stream *next, *prev;
    show *show;
    struct MHD_Connection *to;
    looker_event *now; /* being sent; `sent` of it are */
    size_t sent;
    looker_event *then; /* to be sent after that */
    bool asleep;        /* the library was told to wait */
};

static void swap_event(looker_event **place, looker_event *e)
{
    looker_event_unref(*place);
    *place = e;
}

static void wake_locked(stream *st)
{
    if (st->asleep)
        MHD_resume_connection(st->to);
    st->asleep = false;
}

void stream_told(void *user, looker_event *event)
{
    show *s = user;
    pthread_mutex_lock(&s->lock);
    for (stream *st = s->streams; st; st = st->next) {
        atomic_fetch_add(&event->refs, 1);
        swap_event(&st->then, event);
        wake_locked(st);
    }
    pthread_mutex_unlock(&s->lock);
}

void stream_end_all(show *s)
{
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    for (stream *st = s->streams; st; st = st->next)
        wake_locked(st);
    pthread_mutex_unlock(&s->lock);
}

static ssize_t read_on(void *user, uint64_t at, char *buf, size_t most)
{
    (void)at;
    stream *st = user;
    show *s = st->show;
    ssize_t count = 0;
    pthread_mutex_lock(&s->lock);
    if (st->now && st->sent == st->now->text.size) {
        swap_event(&st->now, st->then);
        st->then = NULL;
        st->sent = 0;
    }
    if (s->ending) {
        count = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (!st->now && !st->then) {
        st->asleep = true;
        MHD_suspend_connection(st->to);
    } else {
        if (!st->now) {
            st->now = st->then;
            st->then = NULL;
        }
        const size_t left = st->now->text.size - st->sent;
        count = (ssize_t)(left < most ? left : most);
        memcpy(buf, st->now->text.data + st->sent, (size_t)count);
        st->sent += (size_t)count;
    }
    pthread_mutex_unlock(&s->lock);
    return count;
}

static void stream_gone(void *user)
{
    stream *st = user;
    show *s = st->show;
    pthread_mutex_lock(&s->lock);
    if (st->prev)
        st->prev->next = st->next;
    else
        s->streams = st->next;
    if (st->next)
        st->next->prev = st->prev;
    s->count--;
    atomic_fetch_sub(&s->ear.wanted, 1);
    pthread_mutex_unlock(&s->lock);
    looker_event_unref(st->now);
    looker_event_unref(st->then);
    psti_free(st);
}

/* NULL when there are enough of them. */
static stream *stream_new(show *s, struct MHD_Connection *to)
{
    stream *st = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *st);
    if (!st)
        return NULL;
    st->show = s;
    st->to = to;
    st->now = looker_first(s->looker);
    pthread_mutex_lock(&s->lock);
    const bool room = st->now && !s->ending && s->count < s->most;
    if (room) {
        st->next = s->streams;
        if (st->next)
            st->next->prev = st;
        s->streams = st;
        s->count++;
        atomic_fetch_add(&s->ear.wanted, 1);
    }
    pthread_mutex_unlock(&s->lock);
    if (room)
        return st;
    looker_event_unref(st->now);
    psti_free(st);
    return NULL;
}

enum MHD_Result stream_answer(show *s, struct MHD_Connection *to)
{
    stream *st = stream_new(s, to);
    if (!st)
        return show_text(to, MHD_HTTP_SERVICE_UNAVAILABLE, "too many are looking already\n");
    looker_wake(s->looker);
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE, read_on, st, stream_gone);
    if (!r) {
        stream_gone(st);
        return MHD_NO;
    }
    show_headers(r);
    MHD_add_response_header(r, "Content-Type", "text/event-stream");
    const enum MHD_Result ok = MHD_queue_response(to, MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return ok;
}
