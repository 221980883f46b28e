/* SPDX-License-Identifier: Apache-2.0
 *
 * Prep: a pipeline on single samples, on the calling thread. No engine and no threads, so that
 * forked workers may use it. The GIL is released around the work; a second thread that calls
 * meanwhile is refused. */
#include "binding.h"

#include <stdatomic.h>

typedef struct prep_object {
    PyObject ob_base;
    pst_prep *prep;
    atomic_flag busy; /* set by the thread whose call is under way; stands alone */
} prep_object;

static PyObject *prep_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"pipeline", "seed", NULL};
    const char *pipeline;
    uint64_t seed = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|O&:Prep", names, &pipeline, pyp_as_u64,
                                     &seed))
        return NULL;
    prep_object *self = (prep_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    atomic_flag_clear(&self->busy);
    pst_error err = {0};
    const int rc = pst_prep_new(pipeline, seed, &self->prep, &err);
    if (rc < 0) {
        pyp_raise(PyType_GetModuleState(type), &err, rc);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void prep_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    pst_prep_free(((prep_object *)self)->prep);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* What is to be prepared: bytes in memory, or the path of a file. */
typedef struct prep_source {
    Py_buffer bytes; /* obj is NULL for a path */
    PyObject *path;  /* bytes object, or NULL */
} prep_source;

static int source_take(PyObject *object, prep_source *out)
{
    *out = (prep_source){.path = NULL};
    if (PyObject_CheckBuffer(object))
        return PyObject_GetBuffer(object, &out->bytes, PyBUF_SIMPLE);
    return PyUnicode_FSConverter(object, &out->path) ? 0 : -1;
}

static void source_drop(prep_source *source)
{
    if (source->bytes.obj != NULL)
        PyBuffer_Release(&source->bytes);
    Py_CLEAR(source->path);
}

typedef struct prep_draw {
    uint64_t epoch, occurrence;
    int64_t id;
} prep_draw;

static PyObject *prepare(prep_object *self, const prep_source *source, const prep_draw *d)
{
    pst_batch *batch = NULL;
    pst_error err = {0};
    const char *path = source->path != NULL ? PyBytes_AsString(source->path) : NULL;
    PyThreadState *thread = PyEval_SaveThread();
    const int rc =
        path != NULL
            ? pst_prep_run_file(self->prep, path, d->epoch, d->id, d->occurrence, &batch, &err)
            : pst_prep_run(self->prep, source->bytes.buf, (size_t)source->bytes.len, d->epoch,
                           d->id, d->occurrence, &batch, &err);
    PyEval_RestoreThread(thread);
    const module_state *st = pyp_state((PyObject *)self);
    return rc < 0 ? pyp_raise(st, &err, rc) : pyp_batch_take(st, batch);
}

static PyObject *prep_run(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source", "epoch", "id", "occurrence", NULL};
    prep_object *self = (prep_object *)object;
    PyObject *from;
    prep_draw draw = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&O&O&:run", names, &from, pyp_as_u64,
                                     &draw.epoch, pyp_as_i64, &draw.id, pyp_as_u64,
                                     &draw.occurrence))
        return NULL;
    prep_source source;
    if (source_take(from, &source) < 0)
        return NULL;
    PyObject *result = NULL;
    if (atomic_flag_test_and_set(&self->busy)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this Prep is in use by another thread; make one for each thread");
    } else {
        result = prepare(self, &source, &draw);
        atomic_flag_clear(&self->busy);
    }
    source_drop(&source);
    return result;
}

static PyMethodDef prep_methods[] = {
    {"run", (PyCFunction)(void (*)(void))prep_run, METH_VARARGS | METH_KEYWORDS,
     "run(bytes or path, epoch=0, id=0, occurrence=0) -> Batch of one slot"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot prep_slots[] = {
    {Py_tp_new, prep_new},
    {Py_tp_dealloc, prep_dealloc},
    {Py_tp_methods, prep_methods},
    {Py_tp_doc, "Prep(pipeline, seed=0)\n\nThe pipeline on single samples, on the calling thread: "
                "the bytes are those of a loader with that seed for the same epoch, id and "
                "occurrence."},
    {0, NULL},
};

PyType_Spec pyp_prep_spec = {
    .name = "penstock._penstock.Prep",
    .basicsize = sizeof(prep_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = prep_slots,
};
