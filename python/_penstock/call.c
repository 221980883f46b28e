/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of Python's that a job's pipeline runs on its pictures: call(name). The engine's
 * workers call them, with the GIL, so one at a time.
 *
 * A function gets a copy of the picture in memory that belongs to the array it sees: it may change
 * it, give it back, or keep it for as long as it likes. The copy is made, and the result fetched
 * where it is that same memory, without the GIL. */
#include <stdlib.h>
#include <string.h>

#include "source.h"

/* A picture's memory: the engine's side and the array's each hold it. */
typedef struct block {
    atomic_int refs; /* counter, the last one frees */
    uint8_t data[];
} block;

typedef struct function {
    struct calls *calls;
    PyObject *callable; /* borrowed from the source's object */
} function;

typedef struct calls {
    source source; /* object: a tuple, which no garbage collection empties, of what it got */
    int count;
    pst_call *table;
    function *functions;
} calls;

/* ---- a picture's memory ---------------------------------------------------------------------- */

static void block_unref(block *b)
{
    if (atomic_fetch_sub(&b->refs, 1) == 1)
        free(b);
}

/* Packed: rows without gaps. */
static block *block_of(const pst_call_in *in)
{
    const size_t row = (size_t)(in->cols * in->channels);
    block *b = malloc(sizeof(*b) + row * (size_t)in->rows);
    if (b == NULL)
        return NULL;
    atomic_init(&b->refs, 1);
    for (int64_t y = 0; y < in->rows; y++)
        memcpy(b->data + (size_t)y * row, in->data + (size_t)y * in->stride, row);
    return b;
}

static void capsule_gone(PyObject *capsule)
{
    block_unref(PyCapsule_GetPointer(capsule, NULL));
}

/* A writable View [rows, columns, channels] that holds the block. */
static PyObject *view_of(const module_state *st, const pst_call_in *in, block *b)
{
    const int64_t shape[3] = {in->rows, in->cols, in->channels};
    PyObject *capsule = PyCapsule_New(b, NULL, capsule_gone);
    if (capsule == NULL)
        return NULL;
    atomic_fetch_add(&b->refs, 1);
    PyObject *view = pyp_view_new(st, capsule, b->data, PST_U8, 3, shape, 0);
    Py_DECREF(capsule);
    if (view != NULL)
        ((view_object *)view)->writable = 1;
    return view;
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* What the function gave, until it is copied. */
typedef struct result {
    uint8_t *to;
    size_t bytes;
    int is_block; /* it is the memory that the function was given */
} result;

/* Looks at what the function gave; copies it unless that can wait. Answers 0, 1 when the size was
 * refused (out knows why), or -1 with an exception. */
static int take_result(PyObject *answer, pst_call_out *out, const block *b, result *r)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(answer, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return -1;
    int rc = -1;
    if (buffer.ndim != 3 || buffer.itemsize != 1 || strcmp(buffer.format, "B") != 0) {
        PyErr_Format(PyExc_TypeError,
                     "the function gave an array with %d dimensions and items of format '%s'; a "
                     "picture is uint8 [rows, columns, channels]",
                     buffer.ndim, buffer.format);
    } else {
        r->to = pst_call_size(out, buffer.shape[0], buffer.shape[1], buffer.shape[2]);
        r->bytes = (size_t)buffer.len;
        r->is_block = buffer.buf == b->data;
        if (r->to != NULL && !r->is_block)
            memcpy(r->to, buffer.buf, r->bytes);
        rc = r->to == NULL;
    }
    PyBuffer_Release(&buffer);
    return rc;
}

static int call_function(const function *f, const pst_call_in *in, block *b, pst_call_out *out,
                         result *r)
{
    const module_state *st = PyModule_GetState(f->calls->source.module);
    PyObject *view = view_of(st, in, b), *answer = NULL;
    PyObject *seed = PyLong_FromUnsignedLongLong(in->seed);
    if (view != NULL && seed != NULL)
        answer = PyObject_CallFunctionObjArgs(f->callable, view, seed, NULL);
    const int rc = answer != NULL ? take_result(answer, out, b, r) : -1;
    Py_XDECREF(answer);
    Py_XDECREF(seed);
    Py_XDECREF(view);
    return rc;
}

/* On a worker of the engine's. */
static int run_call(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    const function *f = user;
    source *self = &f->calls->source;
    result r = {NULL, 0, 0};
    int rc = 0;
    if (!source_enter(self))
        return source_refuse(err);
    block *b = block_of(in);
    if (b == NULL) {
        PyOS_snprintf(err->message, sizeof(err->message), "out of memory for a picture");
        source_leave(self);
        return PST_ECALL;
    }
    source_call_begins();
    const PyGILState_STATE gil = pyp_gil_take();
    if (call_function(f, in, b, out, &r) < 0)
        rc = source_failed(self, in->id, err);
    PyGILState_Release(gil);
    source_call_ends();
    source_leave(self);
    if (rc == 0 && r.to != NULL && r.is_block)
        memcpy(r.to, b->data, r.bytes);
    block_unref(b);
    return rc;
}

/* ---- making ---------------------------------------------------------------------------------- */

static int add_function(calls *self, PyObject *name, PyObject *callable)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (text == NULL)
        return -1;
    if (!PyCallable_Check(callable)) {
        PyErr_Format(PyExc_TypeError, "calls: %R is %R, which cannot be called", name, callable);
        return -1;
    }
    self->functions[self->count] = (function){self, callable};
    self->table[self->count] = (pst_call){text, run_call, &self->functions[self->count]};
    self->count++;
    return 0;
}

calls *pyp_calls_new(PyObject *module, PyObject *functions)
{
    if (!PyDict_Check(functions)) {
        PyErr_Format(PyExc_TypeError, "calls is a dict {name: function}, not %R",
                     (PyObject *)Py_TYPE(functions));
        return NULL;
    }
    calls *self = (calls *)source_alloc(sizeof(*self));
    if (self == NULL)
        return NULL;
    source_list(&self->source, module);
    const size_t most = (size_t)PyDict_Size(functions) + 1;
    self->table = calloc(most, sizeof(*self->table));
    self->functions = calloc(most, sizeof(*self->functions));
    PyObject *items = PyDict_Items(functions);
    self->source.object = items != NULL ? PySequence_Tuple(items) : NULL;
    Py_XDECREF(items);
    int rc = self->source.object != NULL ? 0 : -1;
    if (rc == 0 && (self->table == NULL || self->functions == NULL)) {
        PyErr_NoMemory();
        rc = -1;
    }
    for (Py_ssize_t i = 0; rc == 0 && i < PyTuple_Size(self->source.object); i++) {
        PyObject *item = PyTuple_GetItem(self->source.object, i);
        rc = add_function(self, PyTuple_GetItem(item, 0), PyTuple_GetItem(item, 1));
    }
    if (rc < 0) {
        pyp_calls_free(self);
        return NULL;
    }
    return self;
}

const pst_call *pyp_calls_table(const calls *self, int *count)
{
    *count = self->count;
    return self->table;
}

source *pyp_calls_source(calls *self)
{
    return &self->source;
}

void pyp_calls_drop(calls *self)
{
    Py_CLEAR(self->source.object);
}

void pyp_calls_free(void *user)
{
    calls *self = user;
    free(self->table);
    free(self->functions);
    self->table = NULL;
    self->functions = NULL;
    source_destroy(&self->source);
}
