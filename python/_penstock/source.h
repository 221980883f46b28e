/* SPDX-License-Identifier: Apache-2.0
 *
 * Python code on the engine's threads: an object that reads samples for a dataset, which lives as
 * long as the dataset's C side and not as long as a Python object; or the functions that a job's
 * pipeline runs (call.c), which live as long as the Job. */
#ifndef PENSTOCK_PYTHON_SOURCE_H
#define PENSTOCK_PYTHON_SOURCE_H

#include <pthread.h>
#include <stdatomic.h>

#include "binding.h"

enum { SOURCE_FIELDS_MAX = 32 };

/* Memory of a Python object that the engine uses. It is let go with the GIL held, so who is done
 * with it only puts it on a list. */
typedef struct lent {
    struct source *from;
    struct lent *next;
    Py_buffer buffer;
} lent;

typedef struct source {
    struct source *next; /* of the module's list; under the GIL */
    PyObject *module;    /* a reference: the state that holds the list */
    PyObject *object, *read,
        *key;           /* of a dataset; of a pipeline: ((name, function), ...), NULL, NULL */
    PyObject *failures; /* {id: exception}: the last ones, for who raises the engine's error */
    pst_field_info fields[SOURCE_FIELDS_MAX];
    int field_count, image, label; /* the fields that bytes and a lone label go to; -1 = none */

    _Atomic(lent *) done; /* to be let go; partner: source_sweep */
    atomic_int inside;    /* calls that are in Python or on their way; partner: over */
    atomic_bool over;     /* the interpreter ends: no call goes in any more; partner: inside */
    pthread_mutex_t lock; /* for left only; used once over is set */
    pthread_cond_t left;  /* inside became 0 */
} source;

/* Storage for a source, zeroed but for what every source has; NULL with an exception. size: of the
 * struct that it is the first member of. */
source *source_alloc(size_t size);
/* Enters it in the module's list, from which it goes by source_destroy. */
void source_list(source *self, PyObject *module);
/* For the tp_traverse of the one object that the source belongs to: loaders in a cycle with what
 * they read or call are collected. */
int source_traverse(const source *self, visitproc visit, void *arg);
/* Fills err and answers its code: the interpreter ends. Without the GIL. */
int source_refuse(pst_error *err);
/* Whether Python may be entered; then leave follows. Without the GIL. */
int source_enter(source *self);
void source_leave(source *self);
/* Lets go of what the engine is done with. With the GIL. */
void source_sweep(source *self);
/* For pst_sink_take: puts a lent on the list. Any thread. */
void source_give_back(void *arg);
/* Turns the exception that is set into err and keeps it. Returns err's code. With the GIL. */
int source_failed(source *self, int64_t id, pst_error *err);
/* pst_custom's thread_begin, thread_end and destroy. */
void *source_thread_begin(void *user);
void source_thread_end(void *user, void *thread);
void source_destroy(void *user);

/* Things that wait for a reading thread must not be done by one: a garbage collection there may
 * drop a loader. Between these two calls of a thread, pyp_later takes them down and the second one
 * has them done elsewhere. */
void source_call_begins(void);
void source_call_ends(void);

#endif
