/* SPDX-License-Identifier: Apache-2.0
 * The list of guarded locks and the handlers that the C library runs around fork. The handlers are
 * registered when the library is loaded, before any thread of ours exists. */
#include "core/fork.h"

#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static psti_fork_guard *guards;

static void before(void)
{
    pthread_mutex_lock(&lock);
    for (psti_fork_guard *g = guards; g; g = g->next)
        pthread_mutex_lock(g->lock);
}

static void in_parent(void)
{
    for (psti_fork_guard *g = guards; g; g = g->next)
        pthread_mutex_unlock(g->lock);
    pthread_mutex_unlock(&lock);
}

/* The thread that is left took the locks, so it may let them go. */
static void in_child(void)
{
    for (psti_fork_guard *g = guards; g; g = g->next) {
        if (g->child)
            g->child(g->arg);
        pthread_mutex_unlock(g->lock);
    }
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void register_handlers(void)
{
    pthread_atfork(before, in_parent, in_child);
}

void psti_fork_guard_add(psti_fork_guard *guard, pthread_mutex_t *guarded, void (*child)(void *),
                         void *arg)
{
    guard->lock = guarded;
    guard->child = child;
    guard->arg = arg;
    guard->prev = NULL;
    pthread_mutex_lock(&lock);
    guard->next = guards;
    if (guards)
        guards->prev = guard;
    guards = guard;
    pthread_mutex_unlock(&lock);
}

void psti_fork_guard_remove(psti_fork_guard *guard)
{
    if (!guard->lock)
        return;
    pthread_mutex_lock(&lock);
    if (guard->prev)
        guard->prev->next = guard->next;
    else
        guards = guard->next;
    if (guard->next)
        guard->next->prev = guard->prev;
    pthread_mutex_unlock(&lock);
    guard->lock = NULL;
}
