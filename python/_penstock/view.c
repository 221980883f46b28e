/* SPDX-License-Identifier: Apache-2.0
 *
 * View: an array over memory that another object owns, read-only but for the pictures that a
 * pipeline's functions get (call.c). It speaks the buffer protocol,
 * numpy's __array_interface__ and DLPack, so that arrays are made without a copy and without
 * numpy's C API. A view keeps its owner alive; an array keeps the view. Immutable once made: any
 * thread may read it. */
#include "binding.h"

/* Per dtype: our name, the struct module's letter, numpy's type string. bf16 has no numpy type: its
 * bits travel as u16. */
static const struct {
    const char *name, *format, *typestr;
} dtypes[] = {
    [PST_U8] = {"u8", "B", "|u1"},     [PST_I8] = {"i8", "b", "|i1"},
    [PST_U16] = {"u16", "H", "<u2"},   [PST_I16] = {"i16", "h", "<i2"},
    [PST_I32] = {"i32", "i", "<i4"},   [PST_I64] = {"i64", "q", "<i8"},
    [PST_F16] = {"f16", "e", "<f2"},   [PST_BF16] = {"bf16", "H", "<u2"},
    [PST_F32] = {"f32", "f", "<f4"},   [PST_F64] = {"f64", "d", "<f8"},
    [PST_BOOL] = {"bool", "?", "|b1"},
};
enum { DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

const char *pyp_dtype_name(int dtype)
{
    return dtype > 0 && dtype < DTYPES ? dtypes[dtype].name : "?";
}

/* C order from the last dimension to the first; the first one may step further than its contents.
 */
static void fill_strides(view_object *view, size_t first_stride)
{
    Py_ssize_t step = view->item_bytes;
    for (int i = view->ndim - 1; i >= 0; i--) {
        view->strides[i] = step;
        step *= view->shape[i];
    }
    view->bytes = step;
    if (view->ndim > 0 && first_stride != 0)
        view->strides[0] = (Py_ssize_t)first_stride;
}

PyObject *pyp_view_new(const module_state *st, PyObject *owner, const void *data, int dtype,
                       int ndim, const int64_t *shape, size_t first_stride)
{
    if (dtype <= 0 || dtype >= DTYPES || ndim > PST_MAX_RANK + 1)
        return PyErr_Format(PyExc_SystemError, "field of unknown type %d with %d dimensions", dtype,
                            ndim);
    view_object *view = (view_object *)PyType_GenericAlloc(st->view_type, 0);
    if (view == NULL)
        return NULL;
    view->owner = Py_NewRef(owner);
    view->data = data;
    view->dtype = dtype;
    view->ndim = ndim;
    view->item_bytes = (Py_ssize_t)pst_dtype_bytes(dtype);
    for (int i = 0; i < ndim; i++)
        view->shape[i] = (Py_ssize_t)shape[i];
    fill_strides(view, first_stride);
    return (PyObject *)view;
}

static void view_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((view_object *)self)->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Whether the items lie one after the other in C order. Only the first stride can differ. */
static int is_packed(const view_object *view)
{
    if (view->ndim == 0 || view->bytes == 0 || view->shape[0] <= 1)
        return 1;
    return view->strides[0] == view->bytes / view->shape[0];
}

/* Fortran order is the same as C order only with at most one dimension longer than one. */
static int is_fortran(const view_object *view)
{
    int longer = 0;
    for (int i = 0; i < view->ndim; i++)
        longer += view->shape[i] > 1;
    return is_packed(view) && longer <= 1;
}

/* Why a consumer that asks for `flags` cannot be served, or NULL. */
static const char *refusal(const view_object *view, int flags)
{
    if ((flags & PyBUF_WRITABLE) && !view->writable)
        return "batches are read-only; copy the array to change it";
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !is_fortran(view))
        return "the view is not in Fortran order";
    const int needs_packed = (flags & PyBUF_STRIDES) != PyBUF_STRIDES ||
                             (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
                             (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS;
    return needs_packed && !is_packed(view) ? "the view has gaps between its samples" : NULL;
}

static int view_getbuffer(PyObject *self, Py_buffer *out, int flags)
{
    view_object *view = (view_object *)self;
    out->obj = NULL;
    const char *why = refusal(view, flags);
    if (why != NULL) {
        PyErr_SetString(PyExc_BufferError, why);
        return -1;
    }
    out->buf = (void *)view->data; /* whether it may be written to is said below */
    out->len = view->bytes;
    out->itemsize = view->item_bytes;
    out->readonly = !view->writable;
    out->ndim = view->ndim;
    out->format = flags & PyBUF_FORMAT ? (char *)dtypes[view->dtype].format : NULL;
    out->shape = flags & PyBUF_ND ? view->shape : NULL;
    out->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? view->strides : NULL;
    out->suboffsets = NULL;
    out->internal = NULL;
    out->obj = Py_NewRef(self);
    return 0;
}

static PyObject *size_tuple(const Py_ssize_t *values, int count)
{
    PyObject *tuple = PyTuple_New(count);
    if (tuple == NULL)
        return NULL;
    for (int i = 0; i < count; i++) {
        PyObject *value = PyLong_FromSsize_t(values[i]);
        if (value == NULL || PyTuple_SetItem(tuple, i, value) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

static PyObject *view_shape(PyObject *self, void *closure)
{
    (void)closure;
    const view_object *view = (view_object *)self;
    return size_tuple(view->shape, view->ndim);
}

static PyObject *view_strides(PyObject *self, void *closure)
{
    (void)closure;
    const view_object *view = (view_object *)self;
    return size_tuple(view->strides, view->ndim);
}

static PyObject *view_dtype(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(pyp_dtype_name(((view_object *)self)->dtype));
}

static PyObject *view_owner(PyObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef(((view_object *)self)->owner);
}

static PyObject *view_array_interface(PyObject *self, void *closure)
{
    (void)closure;
    const view_object *view = (view_object *)self;
    PyObject *shape = view_shape(self, NULL), *strides = view_strides(self, NULL);
    if (shape == NULL || strides == NULL) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    return Py_BuildValue("{s:N, s:N, s:s, s:(N, O), s:i}", "shape", shape, "strides", strides,
                         "typestr", dtypes[view->dtype].typestr, "data",
                         PyLong_FromVoidPtr((void *)view->data),
                         view->writable ? Py_False : Py_True, "version", 3);
}

static Py_ssize_t view_length(PyObject *self)
{
    const view_object *view = (view_object *)self;
    if (view->ndim > 0)
        return view->shape[0];
    PyErr_SetString(PyExc_TypeError, "a view without dimensions has no length");
    return -1;
}

static PyGetSetDef view_getset[] = {
    {"shape", view_shape, NULL, "Lengths of the dimensions.", NULL},
    {"strides", view_strides, NULL, "Steps of the dimensions in bytes.", NULL},
    {"dtype", view_dtype, NULL, "Name of the element type; bf16 shows up as u16 in numpy.", NULL},
    {"owner", view_owner, NULL, "The object whose memory this is.", NULL},
    {"__array_interface__", view_array_interface, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef view_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))pyp_view_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(stream=None) -> capsule over the same memory"},
    {"__dlpack_device__", pyp_view_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, view_dealloc},
    {Py_tp_methods, view_methods},
    {Py_tp_getset, view_getset},
    {Py_bf_getbuffer, view_getbuffer},
    {Py_sq_length, view_length},
    {Py_tp_doc,
     "An array over a batch's or dataset's own memory, read-only, or over a picture that "
     "a function of the pipeline gets."},
    {0, NULL},
};

PyType_Spec pyp_view_spec = {
    .name = "penstock._penstock.View",
    .basicsize = sizeof(view_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = view_slots,
};
