/* SPDX-License-Identifier: Apache-2.0
 *
 * Job: one run of batches from a dataset through a pipeline. `lock` makes the job have one consumer
 * at a time: it is held, with the GIL released, around every call that may wait, and never while
 * Python code runs, so a signal handler may close the job that it interrupted. `job` changes under
 * the GIL only and is NULL once closed; who closes takes it out first, aborts, and waits for the
 * lock.
 *
 * A turn is one pass over an epoch. It ends when the engine says so or when another begins; next()
 * of a turn that ended answers None, so that threads which share an iterator cannot run into the
 * following epoch. */
#include "source.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long a signal may wait to be seen. */
static const int64_t SLICE_NS = 100 * 1000 * 1000;

/* ---- opening --------------------------------------------------------------------------------- */

/* Each in the order of its enum in penstock.h. */
static const char *const order_words[] = {"strict", "ready", NULL};
static const char *const ends_words[] = {"default", "drop", "pad", "short", NULL};
static const char *const sampler_words[] = {"shuffle",       "sequential", "weighted",
                                            "weighted_once", "given",      NULL};
static const char *const on_error_words[] = {"raise", "skip", NULL};

/* What the constructor borrows from its arguments until the job is open. */
typedef struct job_args {
    PyObject *engine, *dataset, *functions;
    Py_buffer ids, weights, buckets;
    const char *order, *ends, *sampler, *on_error;
    pst_job_options opts;
} job_args;

static int pick_words(job_args *a)
{
    a->opts.order = pyp_pick("order", order_words, a->order);
    a->opts.ends = a->opts.order < 0 ? -1 : pyp_pick("ends", ends_words, a->ends);
    a->opts.sampler = a->opts.ends < 0 ? -1 : pyp_pick("sampler", sampler_words, a->sampler);
    a->opts.on_error = a->opts.sampler < 0 ? -1 : pyp_pick("on_error", on_error_words, a->on_error);
    return a->opts.on_error < 0 ? -1 : 0;
}

static void set_arrays(job_args *a)
{
    a->opts.ids = a->ids.buf;
    a->opts.ids_count = (int64_t)(a->ids.len / (Py_ssize_t)sizeof(int64_t));
    a->opts.weights = a->weights.buf;
    a->opts.weights_count = (int64_t)(a->weights.len / (Py_ssize_t)sizeof(double));
    a->opts.buckets = a->buckets.buf;
    a->opts.buckets_count = (int64_t)(a->buckets.len / (Py_ssize_t)sizeof(int32_t));
}

static int parse_args(const module_state *st, PyObject *args, PyObject *kwargs, job_args *a)
{
    static char *names[] = {"engine",      "dataset",        "pipeline",  "batch",      "split",
                            "fields",      "seed",           "epochs",    "order",      "ends",
                            "rank",        "world",          "sampler",   "ids",        "weights",
                            "draws",       "repeat",         "on_error",  "skip",       "retries",
                            "ready_depth", "reorder_window", "draw_id",   "raw_finish", "leases",
                            "cache",       "calls",          "sampling",  "group",      "schedule",
                            "without",     "buckets",        "bucket_by", "run",        NULL};
    pst_job_options *o = &a->opts;
    /* In the order of pst_sampling. */
    static const char *const sampling_words[] = {"plain", "opportunistic", NULL};
    const char *sampling = "plain";
    /* In the order of pst_schedule. */
    static const char *const schedule_words[] = {"penstock", "plain", "inorder", "batch-per-worker",
                                                 NULL};
    const char *schedule = "penstock";
    int cache = 1;
    pst_job_options_init(o);
    a->order = "strict", a->ends = "default", a->sampler = "shuffle", a->on_error = "raise";
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!O!si|$zzO&O&ssiisz*z*O&isO&iiO&O&pipOszsiz*zi:Job", names,
            st->engine_type, &a->engine, st->dataset_type, &a->dataset, &o->pipeline, &o->batch,
            &o->split, &o->fields, pyp_as_u64, &o->seed, pyp_as_u64, &o->epochs, &a->order,
            &a->ends, &o->rank, &o->world, &a->sampler, &a->ids, &a->weights, pyp_as_i64, &o->draws,
            &o->repeat, &a->on_error, pyp_as_i64, &o->skip_limit, &o->read_retries, &o->ready_depth,
            pyp_as_i64, &o->reorder_window, pyp_as_i64, &o->draw_id, &o->raw_finish, &o->leases,
            &cache, &a->functions, &sampling, &o->group, &schedule, &o->without, &a->buckets,
            &o->bucket_by, &o->run))
        return -1;
    o->sampling = pyp_pick("sampling", sampling_words, sampling);
    if (o->sampling < 0)
        return -1;
    o->schedule = pyp_pick("schedule", schedule_words, schedule);
    if (o->schedule < 0)
        return -1;
    o->no_cache = !cache;
    set_arrays(a);
    return pick_words(a);
}

static int open_job(const module_state *st, job_object *self, const job_args *a)
{
    engine_object *engine = (engine_object *)a->engine;
    dataset_object *dataset = (dataset_object *)a->dataset;
    if (pyp_check_pid(st, engine->pid, "engine") < 0 ||
        pyp_check_pid(st, dataset->pid, "dataset") < 0)
        return -1;
    if (engine->engine == NULL) {
        pyp_raise(st, NULL, PST_ECLOSED);
        return -1;
    }
    pst_error err = {0};
    engine->opening++;
    PyThreadState *thread = PyEval_SaveThread();
    const int rc = pst_job_open(engine->engine, dataset->data, &a->opts, &self->job, &err);
    PyEval_RestoreThread(thread);
    engine->opening--;
    if (rc < 0) {
        pyp_raise(st, &err, rc);
        return -1;
    }
    self->next = engine->jobs;
    engine->jobs = self;
    return 0;
}

/* The functions of the pipeline, if there are any. */
static int take_calls(PyTypeObject *type, job_object *self, job_args *a)
{
    if (a->functions == NULL || a->functions == Py_None)
        return 0;
    self->calls = pyp_calls_new(PyType_GetModule(type), a->functions);
    if (self->calls == NULL)
        return -1;
    a->opts.calls = pyp_calls_table(self->calls, &a->opts.call_count);
    return 0;
}

static PyObject *make_job(PyTypeObject *type, job_args *a)
{
    job_object *self = (job_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->engine = (engine_object *)Py_NewRef(a->engine);
    self->dataset = Py_NewRef(a->dataset);
    self->pid = getpid();
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL)
        PyErr_NoMemory();
    if (self->lock == NULL || take_calls(type, self, a) < 0 ||
        open_job(PyType_GetModuleState(type), self, a) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *job_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    job_args a;
    memset(&a, 0, sizeof(a));
    PyObject *self = NULL;
    if (parse_args(PyType_GetModuleState(type), args, kwargs, &a) == 0)
        self = make_job(type, &a);
    if (a.ids.obj != NULL)
        PyBuffer_Release(&a.ids);
    if (a.weights.obj != NULL)
        PyBuffer_Release(&a.weights);
    if (a.buckets.obj != NULL)
        PyBuffer_Release(&a.buckets);
    return self;
}

/* ---- closing --------------------------------------------------------------------------------- */

static void unlink_job(job_object *self)
{
    job_object **at = &self->engine->jobs;
    while (*at != self)
        at = &(*at)->next;
    *at = self->next;
}

static void close_later(void *job)
{
    pst_job_close(job);
}

/* In a forked child the lock may be held by a thread that does not exist there, so it is left
 * alone. */
void pyp_job_stop(job_object *self)
{
    pst_job *job = self->job;
    if (job == NULL)
        return;
    self->job = NULL;
    unlink_job(self);
    if (self->pid != getpid()) {
        pst_job_close(job);
        return;
    }
    pst_job_abort(job);
    if (pyp_later(close_later, job)) /* collected inside a read: nobody uses it any more */
        return;
    PyThreadState *thread = PyEval_SaveThread();
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    pst_job_close(job);
    PyThread_release_lock(self->lock);
    PyEval_RestoreThread(thread);
    if (self->calls != NULL)
        pyp_calls_drop(self->calls);
}

static PyObject *job_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (pyp_refuse_in_call(pyp_state(self)) < 0)
        return NULL;
    pyp_job_stop((job_object *)self);
    Py_RETURN_NONE;
}

static void job_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    job_object *job = (job_object *)self;
    PyObject_GC_UnTrack(self);
    pyp_job_stop(job);
    if (job->lock != NULL)
        PyThread_free_lock(job->lock);
    if (job->calls != NULL && !pyp_later(pyp_calls_free, job->calls)) /* after the job, there too */
        pyp_calls_free(job->calls);
    Py_XDECREF((PyObject *)job->engine);
    Py_XDECREF(job->dataset);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static int job_traverse(PyObject *self, visitproc visit, void *arg)
{
    const job_object *job = (job_object *)self;
    Py_VISIT((PyObject *)Py_TYPE(self));
    Py_VISIT((PyObject *)job->engine);
    Py_VISIT(job->dataset);
    return job->calls != NULL ? source_traverse(pyp_calls_source(job->calls), visit, arg) : 0;
}

/* Of a loader in a cycle, before anything in the cycle is taken apart: nobody reads or calls then.
 */
static void job_finalize(PyObject *self)
{
    PyObject *kind, *exc, *trace;
    PyErr_Fetch(&kind, &exc, &trace);
    pyp_job_stop((job_object *)self);
    PyErr_Restore(kind, exc, trace);
}

/* ---- one consumer at a time ------------------------------------------------------------------ */

pst_job *pyp_job_usable(PyObject *self)
{
    job_object *job = (job_object *)self;
    if (pyp_check_pid(pyp_state(self), job->pid, "loader") < 0)
        return NULL;
    if (job->job == NULL)
        pyp_raise(pyp_state(self), NULL, PST_ECLOSED);
    return job->job;
}

/* Waits to be the consumer. The job, or NULL with an exception and without the lock. */
static pst_job *enter(PyObject *self)
{
    job_object *job = (job_object *)self;
    for (;;) {
        if (pyp_job_usable(self) == NULL)
            return NULL;
        PyLockStatus got = PyThread_acquire_lock_timed(job->lock, 0, 0);
        if (got != PY_LOCK_ACQUIRED) {
            PyThreadState *thread = PyEval_SaveThread();
            got = PyThread_acquire_lock_timed(job->lock, SLICE_NS / 1000, 1);
            PyEval_RestoreThread(thread);
        }
        if (got == PY_LOCK_ACQUIRED)
            break;
        if (PyErr_CheckSignals() < 0)
            return NULL;
    }
    pst_job *found = pyp_job_usable(self); /* it may have been closed meanwhile */
    if (found == NULL)
        PyThread_release_lock(job->lock);
    return found;
}

static void leave(PyObject *self)
{
    PyThread_release_lock(((job_object *)self)->lock);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* One bounded wait: as pst_job_next, and 0 when turn `turn` is over. The consumer only. */
static int wait_slice(job_object *self, pst_job *job, uint64_t turn, int64_t ns, pst_batch **batch)
{
    if (turn != self->turn || self->turn_is_over)
        return 0;
    PyThreadState *thread = PyEval_SaveThread();
    const int rc = pst_job_next(job, ns, batch);
    PyEval_RestoreThread(thread);
    self->turn_is_over = rc == 0;
    return rc;
}

static PyObject *raise_error(PyObject *self, const pst_error *err, int code)
{
    const job_object *job = (job_object *)self;
    struct source *from = NULL;
    if (strcmp(err->stage, "read") == 0)
        from = ((dataset_object *)job->dataset)->source;
    else if (err->code == PST_ECALL && job->calls != NULL)
        from = pyp_calls_source(job->calls);
    return pyp_raise_from(pyp_state(self), from, err, code);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Nanoseconds to wait at once; end 0 = no end. */
static int64_t slice_until(double end)
{
    const double left_ns = (end - seconds_now()) * 1e9;
    if (end == 0 || left_ns > (double)SLICE_NS)
        return SLICE_NS;
    return left_ns > 0 ? (int64_t)left_ns : 0;
}

/* The interpreter ends. Only daemon threads are left beside the main one; what such a thread would
 * raise now it would say in the middle of that, which can abort the process. It does not get to. */
static void rest_at_the_end(void)
{
    const struct timespec longer = {.tv_sec = 5};
    if (gettid() == getpid())
        return;
    PyThreadState *thread = PyEval_SaveThread();
    nanosleep(&longer, NULL);
    PyEval_RestoreThread(thread);
}

/* next(turn, timeout=0): a Batch, or None when the turn is over; TimeoutError after so many
 * seconds, 0 = never */
static PyObject *job_next(PyObject *self, PyObject *args)
{
    uint64_t turn;
    double timeout = 0;
    if (!PyArg_ParseTuple(args, "O&|d:next", pyp_as_u64, &turn, &timeout))
        return NULL;
    const double end = timeout > 0 ? seconds_now() + timeout : 0;
    for (;;) {
        pst_job *job = enter(self);
        if (job == NULL)
            return NULL;
        pst_batch *batch = NULL;
        pst_error err = {0};
        const int rc = wait_slice((job_object *)self, job, turn, slice_until(end), &batch);
        if (rc < 0 && rc != -ETIMEDOUT && rc != -ECANCELED)
            pst_job_error(job, &err);
        leave(self);
        if (rc > 0)
            return pyp_batch_take(pyp_state(self), batch);
        if (rc == 0)
            Py_RETURN_NONE;
        if (rc != -ETIMEDOUT && pyp_state(self)->ends)
            rest_at_the_end();
        if (rc != -ETIMEDOUT)
            return raise_error(self, &err, rc == -ECANCELED ? PST_ECLOSED : rc);
        if (PyErr_CheckSignals() < 0)
            return NULL;
        if (end != 0 && seconds_now() >= end) {
            PyErr_SetString(PyExc_TimeoutError, "no batch was ready in time");
            return NULL;
        }
    }
}

/* try_next(turn): a Batch, or None when none is ready or the turn is over */
static PyObject *job_try_next(PyObject *self, PyObject *arg)
{
    uint64_t turn;
    if (!pyp_as_u64(arg, &turn))
        return NULL;
    pst_job *job = enter(self);
    if (job == NULL)
        return NULL;
    pst_batch *batch = NULL;
    job_object *object = (job_object *)self;
    int rc = 0;
    if (turn == object->turn && !object->turn_is_over) {
        rc = pst_job_next(job, 0, &batch);
        object->turn_is_over = rc == 0;
    }
    leave(self);
    if (rc > 0)
        return pyp_batch_take(pyp_state(self), batch);
    Py_RETURN_NONE; /* an error comes again with next() */
}

/* begin(epoch): starts a turn at the beginning of epoch, or with None where the job stands; returns
 * the turn */
static PyObject *job_begin(PyObject *self, PyObject *arg)
{
    uint64_t epoch = 0;
    if (arg != Py_None && !pyp_as_u64(arg, &epoch))
        return NULL;
    pst_job *job = enter(self);
    if (job == NULL)
        return NULL;
    int rc = 0;
    if (arg != Py_None) {
        PyThreadState *thread = PyEval_SaveThread();
        rc = pst_job_set_epoch(job, epoch);
        PyEval_RestoreThread(thread);
    }
    job_object *object = (job_object *)self;
    const uint64_t turn = ++object->turn;
    object->turn_is_over = 0;
    leave(self);
    if (rc < 0)
        return pyp_raise(pyp_state(self), NULL, rc);
    return PyLong_FromUnsignedLongLong(turn);
}

/* ---- state and figures ----------------------------------------------------------------------- */

/* The state may grow between the question for its size and the call that writes it: then it is
 * asked for again. */
static PyObject *job_state(PyObject *self, PyObject *unused)
{
    (void)unused;
    const pst_job *job = pyp_job_usable(self);
    if (job == NULL)
        return NULL;
    char *buf = NULL;
    size_t cap = 0, bytes = 0;
    int rc;
    while ((rc = pst_job_state(job, buf, cap, &bytes)) == -ENOSPC && bytes > cap) {
        PyMem_Free(buf);
        cap = bytes;
        buf = PyMem_Malloc(cap);
        if (buf == NULL)
            return PyErr_NoMemory();
    }
    PyObject *state = rc < 0 ? pyp_raise(pyp_state(self), NULL, rc)
                             : PyBytes_FromStringAndSize(buf, (Py_ssize_t)bytes);
    PyMem_Free(buf);
    return state;
}

static PyObject *job_load_state(PyObject *self, PyObject *arg)
{
    Py_buffer state;
    if (PyObject_GetBuffer(arg, &state, PyBUF_SIMPLE) < 0)
        return NULL;
    pst_error err = {0};
    int rc = -1;
    pst_job *job = enter(self);
    if (job != NULL) {
        PyThreadState *thread = PyEval_SaveThread();
        rc = pst_job_load_state(job, state.buf, (size_t)state.len, &err);
        PyEval_RestoreThread(thread);
        leave(self);
        if (rc < 0)
            pyp_raise(pyp_state(self), &err, rc);
    }
    PyBuffer_Release(&state);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *job_epoch(PyObject *self, void *closure)
{
    (void)closure;
    const pst_job *job = pyp_job_usable(self);
    return job == NULL ? NULL : PyLong_FromUnsignedLongLong(pst_job_epoch(job));
}

static PyObject *job_steps(PyObject *self, void *closure)
{
    (void)closure;
    const pst_job *job = pyp_job_usable(self);
    return job == NULL ? NULL : PyLong_FromLongLong(pst_job_steps(job));
}

static PyObject *job_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((job_object *)self)->job == NULL);
}

static PyMethodDef job_methods[] = {
    {"begin", job_begin, METH_O, "begin(epoch or None) -> turn"},
    {"next", job_next, METH_VARARGS,
     "next(turn, timeout=0) -> Batch, or None when the turn is over; TimeoutError after so many "
     "seconds (0 = never)"},
    {"try_next", job_try_next, METH_O, "try_next(turn) -> Batch, or None when none is ready"},
    {"state", job_state, METH_NOARGS, "state() -> bytes: what was handed out so far"},
    {"load_state", job_load_state, METH_O, "load_state(bytes)"},
    {"stats", pyp_job_stats, METH_NOARGS, "stats() -> dict"},
    {"verdict", pyp_job_verdict, METH_NOARGS,
     "verdict() -> dict: what is slow, and what would help"},
    {"finishes", pyp_job_finishes, METH_NOARGS,
     "finishes() -> {field: what raw_finish left to be done to its pictures}"},
    {"memory", pyp_job_memory, METH_NOARGS, "memory() -> [(address, bytes), ...] of the ring"},
    {"close", job_close, METH_NOARGS,
     "Stops the work; waits for a call that is under way to give up."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef job_getset[] = {
    {"epoch", job_epoch, NULL, "The epoch that the next batch belongs to.", NULL},
    {"steps", job_steps, NULL, "Batches of an epoch for this rank.", NULL},
    {"closed", job_closed, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot job_slots[] = {
    {Py_tp_new, job_new},
    {Py_tp_dealloc, job_dealloc},
    {Py_tp_traverse, job_traverse},
    {Py_tp_finalize, job_finalize},
    {Py_tp_methods, job_methods},
    {Py_tp_getset, job_getset},
    {Py_tp_doc, "One run of batches; penstock.Loader is the front of it."},
    {0, NULL},
};

PyType_Spec pyp_job_spec = {
    .name = "penstock._penstock.Job",
    .basicsize = sizeof(job_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = job_slots,
};
