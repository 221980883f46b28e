/* SPDX-License-Identifier: Apache-2.0
 *
 * Pulled datasets: bringing them here, listing them, letting them go. The GIL is released while it
 * works; a signal or an exception of the progress function stops a pull. */
#include "binding.h"

#include <errno.h>
#include <string.h>

static PyObject *revision_dict(const pst_revision *r)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL)
        return NULL;
    if (pyp_dict_take(dict, "name", pyp_text(r->name)) < 0 ||
        pyp_dict_take(dict, "revision", pyp_text(r->revision)) < 0 ||
        pyp_dict_take(dict, "url", pyp_text(r->url)) < 0 ||
        pyp_dict_take(dict, "path", PyUnicode_DecodeFSDefault(r->path)) < 0 ||
        pyp_dict_take(dict, "complete", PyBool_FromLong(r->complete)) < 0 ||
        pyp_dict_take(dict, "latest", PyBool_FromLong(r->latest)) < 0 ||
        pyp_dict_take(dict, "pinned", PyBool_FromLong(r->pinned)) < 0 ||
        pyp_dict_take(dict, "in_use", PyBool_FromLong(r->in_use)) < 0 ||
        pyp_dict_take(dict, "pulling", PyBool_FromLong(r->pulling)) < 0 ||
        pyp_dict_take(dict, "objects", PyLong_FromUnsignedLongLong(r->objects)) < 0 ||
        pyp_dict_take(dict, "bytes", PyLong_FromUnsignedLongLong(r->bytes)) < 0 ||
        pyp_dict_take(dict, "refetch_seconds", PyFloat_FromDouble(r->refetch_s)) < 0 ||
        pyp_dict_take(dict, "uses", PyFloat_FromDouble(r->uses)) < 0 ||
        pyp_dict_take(dict, "last_used", PyLong_FromLongLong(r->last_used_s)) < 0) {
        Py_DECREF(dict);
        return NULL;
    }
    return dict;
}

typedef struct watcher {
    PyThreadState *thread;
    PyObject *progress; /* borrowed; NULL = none */
} watcher;

/* On the calling thread. Non-zero with an exception set stops the pull. */
static int watch(const pst_pull_progress *now, void *user)
{
    watcher *w = user;
    PyEval_RestoreThread(w->thread);
    int stop = PyErr_CheckSignals() != 0;
    if (!stop && w->progress != NULL) {
        PyObject *answer = PyObject_CallFunction(
            w->progress, "{s:K,s:K,s:K,s:K,s:K,s:K,s:d,s:s}", "objects",
            (unsigned long long)now->objects, "objects_done", (unsigned long long)now->objects_done,
            "bytes", (unsigned long long)now->bytes, "bytes_done",
            (unsigned long long)now->bytes_done, "bytes_fetched",
            (unsigned long long)now->bytes_fetched, "bytes_linked",
            (unsigned long long)now->bytes_linked, "seconds", now->seconds, "revision",
            now->revision);
        stop = answer == NULL;
        Py_XDECREF(answer);
    }
    w->thread = PyEval_SaveThread();
    return stop;
}

PyObject *pyp_pull(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name",  "url",         "dir",          "revision", "pin",
                            "check", "connections", "opaque_etags", "progress", NULL};
    pst_pull_options opts;
    pst_error err = {0};
    const char *name, *url = NULL;
    PyObject *progress = Py_None;
    pst_pull_options_init(&opts);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|z$zzppipO:pull", names, &name, &url,
                                     &opts.dir, &opts.revision, &opts.pin, &opts.check,
                                     &opts.connections, &opts.opaque_etags, &progress))
        return NULL;
    watcher w = {.progress = progress == Py_None ? NULL : progress};
    opts.progress = watch;
    opts.user = &w;
    pst_revision *r = PyMem_Malloc(sizeof(*r));
    if (r == NULL)
        return PyErr_NoMemory();
    w.thread = PyEval_SaveThread();
    const int rc = pst_pull(name, url, &opts, r, &err);
    PyEval_RestoreThread(w.thread);
    PyObject *out = NULL;
    if (rc == 0)
        out = revision_dict(r);
    else if (PyErr_Occurred() == NULL)
        pyp_raise(PyModule_GetState(module), &err, rc);
    PyMem_Free(r);
    return out;
}

PyObject *pyp_datasets(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dir", NULL};
    const char *dir = NULL;
    pst_error err = {0};
    pst_revision *list = NULL;
    size_t count = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z:datasets", names, &dir))
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    const int rc = pst_datasets(dir, &list, &count, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0)
        return pyp_raise(PyModule_GetState(module), &err, rc);
    PyObject *out = PyList_New(0);
    for (size_t i = 0; out != NULL && i < count; i++) {
        PyObject *one = revision_dict(&list[i]);
        if (one == NULL || PyList_Append(out, one) < 0)
            Py_CLEAR(out);
        Py_XDECREF(one);
    }
    pst_free(list);
    return out;
}

PyObject *pyp_evict(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "to_fit", "dir", NULL};
    const char *name = NULL, *dir = NULL;
    PyObject *to_fit = Py_None;
    pst_error err = {0};
    uint64_t freed = 0, bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z$Oz:evict", names, &name, &to_fit, &dir))
        return NULL;
    if ((name == NULL) == (to_fit == Py_None)) {
        PyErr_SetString(PyExc_TypeError, "evict: either a name or to_fit=");
        return NULL;
    }
    if (to_fit != Py_None && pyp_as_u64(to_fit, &bytes) == 0)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    const int rc = name != NULL ? pst_datasets_evict(dir, name, &freed, &err)
                                : pst_datasets_fit(dir, bytes, &freed, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0)
        return pyp_raise(PyModule_GetState(module), &err, rc);
    return PyLong_FromUnsignedLongLong(freed);
}
