/* SPDX-License-Identifier: Apache-2.0
 * Looking at an engine: one view that is filled again and again, its history, and the thread that
 * takes a reading a second while somebody looks. Any thread may ask; looker.lock is taken before
 * the pool's locks and held while a view is taken and written. */
#include "serve/looker.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "watch/metrics.h"

static const uint64_t SECOND = 1000000000, INTEREST = 75 * (uint64_t)1000000000;

struct looker {
    pst_engine *engine;
    bool keeps; /* fixed */
    pthread_t thread;
    bool running; /* the thread was started; the owner's own */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t asked; /* somebody began to look, or it ends */
    bool ending;
    uint64_t asked_ns; /* when somebody last looked; 0 = never */
    looker_listener *listeners;
    psti_view *view;
    psti_history *history;
};

static int take_locked(looker *l)
{
    const int rc = psti_engine_look(l->engine, l->view);
    if (rc < 0)
        return rc;
    psti_history_now(l->history, l->view);
    psti_engine_model(l->engine, l->view);
    psti_engine_judge(l->engine, l->view);
    return 0;
}

static bool listened_locked(const looker *l)
{
    for (looker_listener *who = l->listeners; who; who = who->next)
        if (atomic_load(&who->wanted) > 0)
            return true;
    return false;
}

static bool interested(const looker *l, uint64_t now)
{
    return l->keeps || listened_locked(l) || (l->asked_ns && now - l->asked_ns < INTEREST);
}

/* ---- events ---------------------------------------------------------------------------------- */

void looker_event_unref(looker_event *e)
{
    if (!e || atomic_fetch_sub(&e->refs, 1) > 1)
        return;
    psti_writ_fini(&e->text);
    psti_free(e);
}

static looker_event *event_locked(looker *l, bool first)
{
    looker_event *e = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *e);
    if (!e)
        return NULL;
    psti_json j = {0};
    atomic_init(&e->refs, 1);
    psti_writ_add(&j.text, first ? "retry: 2000\nevent: view\ndata: " : "event: view\ndata: ");
    psti_view_json(l->view, first ? l->history : NULL, &j);
    psti_writ_add(&j.text, "\n\n");
    e->text = j.text;
    if (!e->text.failed)
        return e;
    looker_event_unref(e);
    return NULL;
}

static void reading_locked(looker *l)
{
    if (take_locked(l) < 0)
        return;
    psti_history_add(l->history, l->view);
    looker_event *e = listened_locked(l) ? event_locked(l, false) : NULL;
    for (looker_listener *who = l->listeners; e && who; who = who->next)
        if (atomic_load(&who->wanted) > 0)
            who->told(who->user, e);
    looker_event_unref(e);
}

looker_event *looker_first(looker *l)
{
    pthread_mutex_lock(&l->lock);
    looker_event *e = take_locked(l) < 0 ? NULL : event_locked(l, true);
    pthread_mutex_unlock(&l->lock);
    return e;
}

void looker_listen(looker *l, looker_listener *who)
{
    pthread_mutex_lock(&l->lock);
    who->next = l->listeners;
    l->listeners = who;
    pthread_mutex_unlock(&l->lock);
}

void looker_leave(looker *l, looker_listener *who)
{
    pthread_mutex_lock(&l->lock);
    looker_listener **at = &l->listeners;
    while (*at && *at != who)
        at = &(*at)->next;
    if (*at)
        *at = who->next;
    pthread_mutex_unlock(&l->lock);
}

void looker_wake(looker *l)
{
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->asked);
    pthread_mutex_unlock(&l->lock);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void *look_on(void *user)
{
    looker *l = user;
    pthread_setname_np(pthread_self(), "pst-look");
    uint64_t due = psti_now_ns();
    pthread_mutex_lock(&l->lock);
    while (!l->ending) {
        const uint64_t now = psti_now_ns();
        if (!interested(l, now)) {
            pthread_cond_wait(&l->asked, &l->lock);
            due = psti_now_ns(); /* a reading at once, to compare the next ones with */
        } else if (now < due) {
            const struct timespec until = psti_timespec_ns(due);
            pthread_cond_timedwait(&l->asked, &l->lock, &until);
        } else {
            reading_locked(l);
            due = now - due < SECOND ? due + SECOND : now + SECOND;
        }
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int looker_open(pst_engine *engine, const char *instance, bool keeps, looker **out, pst_error *err)
{
    looker *l = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *l);
    if (!l)
        return psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->asked, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&l->lock, NULL);
    l->engine = engine;
    l->keeps = keeps;
    l->view = psti_view_new();
    l->history = psti_history_new();
    if (l->view && l->history) {
        strncpy(l->view->instance, instance, sizeof l->view->instance - 1);
        sigset_t all, old; /* signals are for threads of the program */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        l->running = pthread_create(&l->thread, NULL, look_on, l) == 0;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    if (!l->running) {
        looker_close(l);
        return psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    }
    *out = l;
    return 0;
}

void looker_close(looker *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->ending = true;
    pthread_cond_broadcast(&l->asked);
    pthread_mutex_unlock(&l->lock);
    if (l->running)
        pthread_join(l->thread, NULL);
    psti_view_free(l->view);
    psti_history_free(l->history);
    pthread_cond_destroy(&l->asked);
    pthread_mutex_destroy(&l->lock);
    psti_free(l);
}

/* Somebody looks: the view is taken for him. */
static int begin_locked(looker *l)
{
    const uint64_t now = psti_now_ns();
    if (!interested(l, now))
        pthread_cond_broadcast(&l->asked);
    l->asked_ns = now;
    return take_locked(l);
}

static int finish(int rc, psti_writ *text, psti_writ *out)
{
    if (rc < 0 || text->failed) {
        psti_writ_fini(text);
        return -ENOMEM;
    }
    *out = *text;
    return 0;
}

int looker_json(looker *l, bool history, psti_writ *out)
{
    psti_json j = {0};
    pthread_mutex_lock(&l->lock);
    const int rc = begin_locked(l);
    if (rc == 0)
        psti_view_json(l->view, history ? l->history : NULL, &j);
    pthread_mutex_unlock(&l->lock);
    return finish(rc, &j.text, out);
}

int looker_metrics(looker *l, psti_writ *out)
{
    psti_writ text = {0};
    pthread_mutex_lock(&l->lock);
    const int rc = begin_locked(l);
    if (rc == 0)
        psti_metrics(l->view, &text);
    pthread_mutex_unlock(&l->lock);
    return finish(rc, &text, out);
}
