/* SPDX-License-Identifier: Apache-2.0
 *
 * Engine: a pool of workers and a byte budget that loaders share. Starting and stopping it join
 * threads, so the GIL is released there. Every loader's Job holds a reference, so an engine goes
 * only after its jobs. */
#include "binding.h"

#include <unistd.h>

/* In the order of pst_io. */
static const char *const io_words[] = {"auto", "uring", "threads", NULL};

static int parse_options(PyObject *args, PyObject *kwargs, pst_engine_options *opts)
{
    static char *names[] = {"workers", "memory", "cache",  "io_depth", "io",    "forms",
                            "address", "disk",   "remote", "watch",    "trace", NULL};
    const char *io = "auto";
    pst_engine_options_init(opts);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|iO&O&$is(ddd)zzzzz:Engine", names,
                                     &opts->workers, pyp_as_u64, &opts->memory_bytes, pyp_as_cache,
                                     &opts->cache_bytes, &opts->io_depth, &io, &opts->forms[0],
                                     &opts->forms[1], &opts->forms[2], &opts->address, &opts->disk,
                                     &opts->remote, &opts->watch, &opts->trace))
        return -1;
    opts->io = pyp_pick("io", io_words, io);
    return opts->io < 0 ? -1 : 0;
}

static PyObject *engine_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    pst_engine_options opts;
    if (parse_options(args, kwargs, &opts) < 0)
        return NULL;
    engine_object *self = (engine_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->pid = getpid();
    pst_error err = {0};
    PyThreadState *thread = PyEval_SaveThread();
    const int rc = pst_engine_new(&opts, &self->engine, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0) {
        pyp_raise(PyType_GetModuleState(type), &err, rc);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* The pointer leaves the object first, so that no other thread finds it while the GIL is released.
 */
static void free_later(void *engine)
{
    pst_engine_free(engine);
}

static void stop_threads(engine_object *self)
{
    pst_engine *engine = self->engine;
    self->engine = NULL;
    if (pyp_later(free_later, engine))
        return;
    PyThreadState *thread = PyEval_SaveThread();
    pst_engine_free(engine);
    PyEval_RestoreThread(thread);
}

/* Jobs hold references: when the engine's last one goes, no job is open. */
static void engine_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    stop_threads((engine_object *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *engine_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    engine_object *engine = (engine_object *)self;
    if (pyp_refuse_in_call(pyp_state(self)) < 0)
        return NULL;
    while (engine->jobs != NULL) {
        job_object *job = (job_object *)Py_NewRef((PyObject *)engine->jobs);
        pyp_job_stop(job);
        Py_DECREF((PyObject *)job);
    }
    if (engine->opening > 0) {
        PyErr_SetString(pyp_state(self)->error,
                        "another thread is opening a loader on this engine");
        return NULL;
    }
    stop_threads(engine);
    Py_RETURN_NONE;
}

static PyObject *engine_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *engine_exit(PyObject *self, PyObject *args)
{
    (void)args;
    return engine_close(self, NULL);
}

/* The engine, or NULL with an exception when it cannot be used here. */
static pst_engine *usable(PyObject *self)
{
    engine_object *engine = (engine_object *)self;
    if (pyp_check_pid(pyp_state(self), engine->pid, "engine") < 0)
        return NULL;
    if (engine->engine == NULL)
        pyp_raise(pyp_state(self), NULL, PST_ECLOSED);
    return engine->engine;
}

PyObject *pyp_settings_dict(const pst_settings *settings)
{
    return Py_BuildValue(
        "{s:i, s:K, s:i, s:i, s:s, s:K, s:K, s:K, s:s, s:O}", "cpus", settings->cpus, "may_have",
        (unsigned long long)settings->may_have, "workers", settings->workers, "io_depth",
        settings->io_depth, "io", io_words[settings->io], "memory",
        (unsigned long long)settings->memory_bytes, "cache",
        (unsigned long long)settings->cache_bytes, "disk", (unsigned long long)settings->disk_bytes,
        "cpu", settings->cpu, "served", settings->served ? Py_True : Py_False);
}

static PyObject *engine_settings(PyObject *self, void *closure)
{
    (void)closure;
    const pst_engine *engine = usable(self);
    if (engine == NULL)
        return NULL;
    pst_settings settings;
    pst_engine_settings(engine, &settings);
    return pyp_settings_dict(&settings);
}

static PyObject *engine_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((engine_object *)self)->engine == NULL);
}

/* bad(): an Error for each sample that was skipped. The list may grow meanwhile: what there was at
 * the start counts. */
static PyObject *engine_bad(PyObject *self, PyObject *unused)
{
    (void)unused;
    const pst_engine *engine = usable(self);
    if (engine == NULL)
        return NULL;
    PyObject *list = PyList_New(0);
    const size_t count = pst_engine_bad_count(engine);
    for (size_t i = 0; list != NULL && i < count; i++) {
        pst_error err;
        if (pst_engine_bad_get(engine, i, &err) < 0)
            break;
        PyObject *item = pyp_error_object(pyp_state(self), &err, err.code);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyMethodDef engine_methods[] = {
    {"close", engine_close, METH_NOARGS,
     "Stops the threads; loaders still open end with an error."},
    {"bad", engine_bad, METH_NOARGS, "A list with an Error for every sample that was skipped."},
    {"__enter__", engine_enter, METH_NOARGS, NULL},
    {"__exit__", engine_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef engine_getset[] = {
    {"settings", engine_settings, NULL, "What was asked for and what it became on this machine.",
     NULL},
    {"closed", engine_closed, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot engine_slots[] = {
    {Py_tp_new, engine_new},
    {Py_tp_dealloc, engine_dealloc},
    {Py_tp_methods, engine_methods},
    {Py_tp_getset, engine_getset},
    {Py_tp_doc,
     "Engine(workers=0, memory=0, cache=0, *, io_depth=0, io='auto', forms=(0, 0, 0), "
     "address=None, disk=None, remote=None, watch=None, trace=None)\n\n"
     "A pool of workers and one byte budget, shared by the loaders that are given it. 0 = chosen "
     "for "
     "this machine. cache: bytes of the budget for samples kept in memory, or 'auto'; 0 = none. "
     "forms: the most that encoded, decoded and augmented ones may have of it. address: 'unix:DIR' "
     "for the daemon that serves DIR, 'auto' for this user's if one runs; else this process. disk: "
     "'DIR:BYTES', keeps samples in files there, also for later runs. remote: 'redis://HOST', "
     "keeps them on a server for all engines that name it. watch: a folder with a socket where "
     "this "
     "user may look at the engine (penstock top), or 'auto'. trace: a file for ui.perfetto.dev and "
     "penstock trace."},
    {0, NULL},
};

PyType_Spec pyp_engine_spec = {
    .name = "penstock.Engine",
    .basicsize = sizeof(engine_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = engine_slots,
};
