/* SPDX-License-Identifier: Apache-2.0
 * Looking at an engine: one view that is filled again and again, its history, and the thread that
 * takes a reading a second while somebody looks. Any thread may ask; looker.lock is taken before
 * the pool's locks and held while a view is taken and written. */
#include "serve/looker.h"

#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static const uint64_t SECOND = 1000000000, INTEREST = 15 * (uint64_t)1000000000;

struct looker {
    pst_engine *engine;
    bool keeps; /* fixed */
    pthread_t thread;
    bool running; /* the thread was started; the owner's own */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t asked; /* somebody began to look, or it ends */
    bool ending;
    uint64_t asked_ns; /* when somebody last looked; 0 = never */
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
    return 0;
}

static bool interested(const looker *l, uint64_t now)
{
    return l->keeps || (l->asked_ns && now - l->asked_ns < INTEREST);
}

static void *look_on(void *user)
{
    looker *l = user;
    uint64_t due = psti_now_ns();
    pthread_mutex_lock(&l->lock);
    while (!l->ending) {
        const uint64_t now = psti_now_ns();
        if (!interested(l, now)) {
            pthread_cond_wait(&l->asked, &l->lock);
            due = psti_now_ns();
        } else if (now < due) {
            const struct timespec until = psti_timespec_ns(due);
            pthread_cond_timedwait(&l->asked, &l->lock, &until);
        } else {
            if (take_locked(l) == 0)
                psti_history_add(l->history, l->view);
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
        l->running = pthread_create(&l->thread, NULL, look_on, l) == 0;
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

int looker_json(looker *l, bool history, psti_writ *out)
{
    psti_json j = {0};
    pthread_mutex_lock(&l->lock);
    const uint64_t now = psti_now_ns();
    const bool idle = !interested(l, now);
    l->asked_ns = now;
    const int rc = take_locked(l);
    if (rc == 0)
        psti_view_json(l->view, history ? l->history : NULL, &j);
    if (idle)
        pthread_cond_broadcast(&l->asked);
    pthread_mutex_unlock(&l->lock);
    if (rc < 0 || j.text.failed) {
        psti_writ_fini(&j.text);
        return -ENOMEM;
    }
    *out = j.text;
    return 0;
}
