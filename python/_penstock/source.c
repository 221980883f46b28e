/* SPDX-License-Identifier: Apache-2.0
 *
 * Python on the engine's threads: entering and leaving the interpreter, its end, fork,
 * memory that is lent to the engine, exceptions.
 *
 * Each reading thread keeps one thread state from its start to its end, so that threading.local
 * works in the user's code. When the interpreter ends, an atexit function stops further calls and
 * waits, without the GIL, for those under way; nobody enters Python after that, so no thread can be
 * caught in an interpreter that is gone. */
#include "source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FAILURES_KEPT = 64 };

/* ---- making ---------------------------------------------------------------------------------- */

source *source_alloc(size_t size)
{
    source *self = calloc(1, size);
    PyObject *failures = self != NULL ? PyDict_New() : PyErr_NoMemory();
    if (failures == NULL) {
        free(self);
        return NULL;
    }
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->left, NULL);
    self->failures = failures;
    return self;
}

void source_list(source *self, PyObject *module)
{
    module_state *st = PyModule_GetState(module);
    self->module = Py_NewRef(module);
    self->next = st->sources;
    st->sources = self;
}

int source_traverse(const source *self, visitproc visit, void *arg)
{
    Py_VISIT(self->module);
    Py_VISIT(self->object);
    Py_VISIT(self->read);
    Py_VISIT(self->key);
    Py_VISIT(self->failures);
    return 0;
}

/* ---- in and out ------------------------------------------------------------------------------ */

int source_refuse(pst_error *err)
{
    err->code = -ECANCELED;
    PyOS_snprintf(err->message, sizeof(err->message), "the Python interpreter is ending");
    return -ECANCELED;
}

int source_enter(source *self)
{
    atomic_fetch_add(&self->inside, 1);
    if (!atomic_load(&self->over))
        return 1;
    source_leave(self);
    return 0;
}

void source_leave(source *self)
{
    if (atomic_fetch_sub(&self->inside, 1) != 1 || !atomic_load(&self->over))
        return;
    pthread_mutex_lock(&self->lock);
    pthread_cond_broadcast(&self->left);
    pthread_mutex_unlock(&self->lock);
}

typedef struct thread_note {
    PyGILState_STATE gil;
    PyThreadState *state;
} thread_note;

void *source_thread_begin(void *user)
{
    source *self = user;
    if (!source_enter(self))
        return NULL;
    thread_note *note = malloc(sizeof(*note));
    if (note != NULL) {
        note->gil = pyp_gil_take();
        note->state = PyEval_SaveThread();
    }
    source_leave(self);
    return note;
}

void source_thread_end(void *user, void *thread)
{
    source *self = user;
    thread_note *note = thread;
    if (note != NULL && source_enter(self)) {
        PyEval_RestoreThread(note->state);
        PyGILState_Release(note->gil);
        source_leave(self);
    }
    free(note);
}

/* ---- lent memory -------------------------------------------------------------------------------
 */

void source_give_back(void *arg)
{
    lent *one = arg;
    lent *head = atomic_load_explicit(&one->from->done, memory_order_relaxed);
    do
        one->next = head;
    while (!atomic_compare_exchange_weak_explicit(&one->from->done, &head, one,
                                                  memory_order_release, memory_order_relaxed));
}

void source_sweep(source *self)
{
    lent *one = atomic_exchange_explicit(&self->done, NULL, memory_order_acquire);
    while (one != NULL) {
        lent *next = one->next;
        PyBuffer_Release(&one->buffer);
        free(one);
        one = next;
    }
}

/* ---- exceptions ------------------------------------------------------------------------------ */

/* " (file:line)" of where it was raised, or nothing. */
static void describe_place(PyObject *trace, char *out, size_t cap)
{
    PyObject *last = Py_XNewRef(trace), *frame = NULL, *code = NULL, *file = NULL, *line = NULL;
    out[0] = 0;
    while (last != NULL) {
        PyObject *next = PyObject_GetAttrString(last, "tb_next");
        if (next == NULL || next == Py_None) {
            Py_XDECREF(next);
            break;
        }
        Py_DECREF(last);
        last = next;
    }
    if (last != NULL && (frame = PyObject_GetAttrString(last, "tb_frame")) != NULL &&
        (code = PyObject_GetAttrString(frame, "f_code")) != NULL &&
        (file = PyObject_GetAttrString(code, "co_filename")) != NULL &&
        (line = PyObject_GetAttrString(last, "tb_lineno")) != NULL) {
        const char *text = PyUnicode_AsUTF8AndSize(file, NULL);
        if (text != NULL)
            PyOS_snprintf(out, cap, " (%s:%ld)", text, PyLong_AsLong(line));
    }
    PyErr_Clear();
    Py_XDECREF(line);
    Py_XDECREF(file);
    Py_XDECREF(code);
    Py_XDECREF(frame);
    Py_XDECREF(last);
}

/* An OSError keeps its number, so that the policies for reads know it. */
static int code_of(PyObject *exc)
{
    long number = 0;
    if (PyErr_GivenExceptionMatches(exc, PyExc_OSError)) {
        PyObject *value = PyObject_GetAttrString(exc, "errno");
        if (value != NULL && value != Py_None)
            number = PyLong_AsLong(value);
        Py_XDECREF(value);
        PyErr_Clear();
    }
    return number > 0 && number < 1000 ? -(int)number : PST_ECALL;
}

void pyp_exception_text(PyObject *exc, PyObject *trace, pst_error *err)
{
    char place[256];
    describe_place(trace, place, sizeof(place));
    PyObject *name = PyType_GetName(Py_TYPE(exc)), *text = PyObject_Str(exc);
    const char *word = name != NULL ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const char *what = text != NULL ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    PyErr_Clear();
    PyOS_snprintf(err->message, sizeof(err->message), "%.60s: %.180s%s",
                  word != NULL ? word : "exception", what != NULL ? what : "", place);
    Py_XDECREF(name);
    Py_XDECREF(text);
}

static void keep_failure(source *self, int64_t id, PyObject *exc)
{
    PyObject *key = PyLong_FromLongLong(id), *oldest, *value;
    Py_ssize_t at = 0;
    if (PyDict_Size(self->failures) >= FAILURES_KEPT &&
        PyDict_Next(self->failures, &at, &oldest, &value)) {
        Py_INCREF(oldest);
        PyDict_DelItem(self->failures, oldest);
        Py_DECREF(oldest);
    }
    if (key != NULL)
        PyDict_SetItem(self->failures, key, exc);
    Py_XDECREF(key);
    PyErr_Clear();
}

int source_failed(source *self, int64_t id, pst_error *err)
{
    PyObject *kind, *exc, *trace;
    PyErr_Fetch(&kind, &exc, &trace);
    PyErr_NormalizeException(&kind, &exc, &trace);
    if (trace != NULL)
        PyException_SetTraceback(exc, trace);
    err->code = code_of(exc);
    err->id = id;
    err->offset = -1;
    pyp_exception_text(exc, trace, err);
    keep_failure(self, id, exc);
    Py_XDECREF(kind);
    Py_XDECREF(exc);
    Py_XDECREF(trace);
    return err->code;
}

/* A new reference to the exception behind a failed sample, or NULL. */
static PyObject *failure_of(source *self, const pst_error *err)
{
    if (self == NULL || err->id < 0 || (self->read != NULL && strcmp(err->stage, "read") != 0))
        return NULL;
    PyObject *key = PyLong_FromLongLong(err->id);
    PyObject *exc = key != NULL ? Py_XNewRef(PyDict_GetItemWithError(self->failures, key)) : NULL;
    Py_XDECREF(key);
    PyErr_Clear();
    return exc;
}

PyObject *pyp_raise_from(const module_state *st, source *self, const pst_error *err, int code)
{
    PyObject *why = failure_of(self, err), *kind, *exc, *trace;
    pyp_raise(st, err, code);
    if (why == NULL)
        return NULL;
    PyErr_Fetch(&kind, &exc, &trace);
    PyErr_NormalizeException(&kind, &exc, &trace);
    PyException_SetCause(exc, why);
    PyErr_Restore(kind, exc, trace);
    return NULL;
}

/* ---- done elsewhere -------------------------------------------------------------------------- */

typedef struct errand {
    struct errand *next;
    void (*run)(void *);
    void *arg;
} errand;

static _Thread_local int in_call;
static _Thread_local errand *errands, **last_errand;

int pyp_in_call(void)
{
    return in_call;
}

int pyp_refuse_in_call(const module_state *st)
{
    if (!in_call)
        return 0;
    PyErr_SetString(st->error, "a loader or an engine cannot be closed from within its own read() "
                               "or a function of its pipeline");
    return -1;
}

/* Out of memory there is nothing better than to leave it: the threads it would wait for go on. */
int pyp_later(void (*run)(void *), void *arg)
{
    if (!in_call || arg == NULL)
        return 0;
    errand *one = malloc(sizeof(*one));
    if (one != NULL) {
        *one = (errand){NULL, run, arg};
        *(errands != NULL ? last_errand : &errands) = one;
        last_errand = &one->next;
    }
    return 1;
}

static void *run_errands(void *arg)
{
    for (errand *one = arg, *next; one != NULL; one = next) {
        next = one->next;
        one->run(one->arg);
        free(one);
    }
    return NULL;
}

void source_call_begins(void)
{
    in_call++;
}

void source_call_ends(void)
{
    pthread_t thread;
    if (--in_call > 0 || errands == NULL)
        return;
    errand *all = errands;
    errands = NULL;
    if (pthread_create(&thread, NULL, run_errands, all) == 0)
        pthread_detach(thread);
}

/* ---- the interpreter's end, fork ---------------------------------------------------------------
 */

static void wait_for_calls(source *self)
{
    pthread_mutex_lock(&self->lock);
    while (atomic_load(&self->inside) > 0)
        pthread_cond_wait(&self->left, &self->lock);
    pthread_mutex_unlock(&self->lock);
}

/* Sources may go while the GIL is released, but none comes: each is looked up anew. */
PyObject *pyp_sources_end(PyObject *module, PyObject *unused)
{
    (void)unused;
    module_state *st = PyModule_GetState(module);
    st->ends = 1;
    for (source *s = st->sources; s != NULL; s = s->next)
        atomic_store(&s->over, 1);
    for (source *s = st->sources; s != NULL;) {
        if (atomic_load(&s->inside) == 0) {
            s = s->next;
            continue;
        }
        PyThreadState *thread = PyEval_SaveThread();
        wait_for_calls(s);
        PyEval_RestoreThread(thread);
        s = st->sources;
    }
    Py_RETURN_NONE;
}

/* In a forked child: calls that were under way are the parent's. */
PyObject *pyp_sources_after_fork(PyObject *module, PyObject *unused)
{
    (void)unused;
    module_state *st = PyModule_GetState(module);
    for (source *s = st->sources; s != NULL; s = s->next)
        atomic_store(&s->inside, 0);
    Py_RETURN_NONE;
}

static void unlink_source(source *self)
{
    module_state *st = PyModule_GetState(self->module);
    source **at = &st->sources;
    while (*at != NULL && *at != self)
        at = &(*at)->next;
    if (*at != NULL)
        *at = self->next;
}

/* From whichever thread was the last to need it. What is left when the interpreter has ended goes
 * with the process. */
void source_destroy(void *user)
{
    source *self = user;
    if (!source_enter(self))
        return;
    const PyGILState_STATE gil = pyp_gil_take();
    if (atomic_load(&self->over)) { /* the end is waiting for it */
        PyGILState_Release(gil);
        source_leave(self);
        return;
    }
    unlink_source(self);
    source_sweep(self);
    PyObject *module = self->module;
    Py_XDECREF(self->object);
    Py_XDECREF(self->read);
    Py_XDECREF(self->key);
    Py_XDECREF(self->failures);
    pthread_cond_destroy(&self->left);
    pthread_mutex_destroy(&self->lock);
    free(self);
    Py_DECREF(module);
    PyGILState_Release(gil);
}
