/* SPDX-License-Identifier: Apache-2.0
 * Locks that fork must find free: those of objects that a forked child may go on using. Before a
 * fork every guarded lock is taken, so that what it guards is whole in the child; afterwards it is
 * let go in both processes. Guarded locks are leaves among themselves: who holds one takes no other
 * one and does not wait. Any thread. */
#ifndef PSTI_CORE_FORK_H
#define PSTI_CORE_FORK_H

#include <pthread.h>

/* In the storage of the object that has the lock. */
typedef struct psti_fork_guard {
    pthread_mutex_t *lock;
    void (*child)(void *arg); /* in the child, with the lock held; NULL = nothing to do */
    void *arg;
    struct psti_fork_guard *next, *prev; /* the list's own */
} psti_fork_guard;

/* Neither is called with a guarded lock held. */
void psti_fork_guard_add(psti_fork_guard *guard, pthread_mutex_t *lock, void (*child)(void *),
                         void *arg);
/* Never added is fine. */
void psti_fork_guard_remove(psti_fork_guard *guard);

#endif
