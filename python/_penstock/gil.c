/* SPDX-License-Identifier: Apache-2.0
 *
 * Entering Python from a thread of the engine's so that a fork in another thread is safe.
 *
 * A thread that enters for the first time is given a thread state, and that happens before it has
 * the GIL, under a lock inside the interpreter. CPython before 3.12 forks without a look at that
 * lock: a child that is born while it is held waits for it for ever, inside os.fork. So thread
 * states are made under a lock of ours as well, which fork takes first. It is never held while the
 * GIL is waited for, so the forking thread, which has the GIL, gets it. */
#include "binding.h"

#include <pthread.h>

static PyInterpreterState *home; /* set once, with the GIL */
static pthread_mutex_t births = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
    pthread_mutex_lock(&births);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&births);
}

int pyp_gil_init(void)
{
    if (home != NULL)
        return 0;
    if (pthread_atfork(before_fork, after_fork, after_fork) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    home = PyInterpreterState_Get();
    return 0;
}

/* A new state counts as ensured once, so PyGILState_Release ends it like one of
 * PyGILState_Ensure's. */
PyGILState_STATE pyp_gil_take(void)
{
    PyThreadState *state = NULL;
    if (PyGILState_GetThisThreadState() == NULL) {
        pthread_mutex_lock(&births);
        state = PyThreadState_New(home);
        pthread_mutex_unlock(&births);
    }
    if (state == NULL)
        return PyGILState_Ensure();
    PyEval_RestoreThread(state);
    return PyGILState_UNLOCKED;
}
