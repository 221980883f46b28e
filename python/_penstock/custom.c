/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets whose samples a Python object reads: making one, and what read(id) may answer. The GIL
 * is held while the object's code runs and while its answer is looked at; bytes are lent to the
 * engine, not copied. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "source.h"

/* ---- answers --------------------------------------------------------------------------------- */

static PyObject *wrong_value(const pst_field_info *field, const char *want, PyObject *value)
{
    return PyErr_Format(PyExc_TypeError, "read() gave %R for field '%s', which takes %s",
                        (PyObject *)Py_TYPE(value), field->name, want);
}

/* Lends the memory of value to the engine. */
static int lend(source *self, pst_sink *sink, int field, PyObject *value)
{
    lent *one = malloc(sizeof(*one));
    if (one == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    one->from = self;
    if (PyObject_GetBuffer(value, &one->buffer, PyBUF_SIMPLE) < 0) {
        free(one);
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            wrong_value(&self->fields[field], "bytes", value);
        return -1;
    }
    pst_sink_take(sink, field, one->buffer.buf, (size_t)one->buffer.len, source_give_back, one);
    return 0;
}

static int is_real(int dtype)
{
    return dtype == PST_F16 || dtype == PST_BF16 || dtype == PST_F32 || dtype == PST_F64;
}

/* Arrays are small: they are copied. */
static int give_array(source *self, pst_sink *sink, int field, PyObject *value)
{
    const pst_field_info *info = &self->fields[field];
    Py_buffer buffer;
    if (PyObject_GetBuffer(value, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        wrong_value(info, "a contiguous array", value);
        return -1;
    }
    const char *format = buffer.format != NULL ? buffer.format : "B";
    const int real = strpbrk(format, "efdg") != NULL;
    const int fits = (size_t)buffer.itemsize == pst_dtype_bytes(info->dtype) &&
                     (real == is_real(info->dtype) || info->dtype == PST_BF16);
    if (fits)
        pst_sink_bytes(sink, field, buffer.buf, (size_t)buffer.len);
    else
        PyErr_Format(PyExc_TypeError,
                     "read() gave an array of format '%s' for field '%s', which is %s", format,
                     info->name, pyp_dtype_name(info->dtype));
    PyBuffer_Release(&buffer);
    return fits ? 0 : -1;
}

static int give_text(source *self, pst_sink *sink, int field, PyObject *value)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(value))
        return lend(self, sink, field, value);
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text != NULL)
        pst_sink_bytes(sink, field, text, (size_t)size);
    return text != NULL ? 0 : -1;
}

static int give_number(source *self, pst_sink *sink, int field, PyObject *value)
{
    if (is_real(self->fields[field].dtype)) {
        const double real = PyFloat_AsDouble(value);
        if (real == -1.0 && PyErr_Occurred())
            return -1;
        pst_sink_real(sink, field, real);
        return 0;
    }
    int64_t whole;
    if (!pyp_as_i64(value, &whole)) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            wrong_value(&self->fields[field], "a whole number", value);
        return -1;
    }
    pst_sink_int(sink, field, whole);
    return 0;
}

/* What a sample is about, as bytes for a decoder. */
static int is_encoded(int kind)
{
    return kind == PST_IMAGE || kind == PST_VOLUME || kind == PST_AUDIO;
}

static int give(source *self, pst_sink *sink, int field, PyObject *value)
{
    const pst_field_info *info = &self->fields[field];
    if (value == Py_None)
        return 0;
    if (info->kind == PST_TEXT)
        return give_text(self, sink, field, value);
    if (is_encoded(info->kind) || info->kind == PST_MASK || info->kind == PST_BYTES ||
        strcmp(info->format, "npy") == 0)
        return lend(self, sink, field, value);
    return info->rank > 0 ? give_array(self, sink, field, value)
                          : give_number(self, sink, field, value);
}

static int find_field(const source *self, PyObject *name)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    for (int i = 0; text != NULL && i < self->field_count; i++)
        if (strcmp(self->fields[i].name, text) == 0)
            return i;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_KeyError, "read() gave a field %R that was not declared", name);
    return -1;
}

static int give_fields(source *self, pst_sink *sink, PyObject *fields)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(fields, &at, &name, &value)) {
        const int field = find_field(self, name);
        if (field < 0 || give(self, sink, field, value) < 0)
            return -1;
    }
    return 0;
}

/* Bytes, (bytes, label), (bytes, {field: value}) or {field: value}. */
static int give_answer(source *self, pst_sink *sink, PyObject *answer)
{
    if (PyDict_Check(answer))
        return give_fields(self, sink, answer);
    PyObject *bytes = answer, *rest = NULL;
    if (PyTuple_Check(answer)) {
        if (PyTuple_Size(answer) != 2) {
            PyErr_SetString(PyExc_TypeError,
                            "read() must give bytes, (bytes, label) or (bytes, dict of fields)");
            return -1;
        }
        bytes = PyTuple_GetItem(answer, 0);
        rest = PyTuple_GetItem(answer, 1);
    }
    if (self->image >= 0 && give(self, sink, self->image, bytes) < 0)
        return -1;
    if (rest == NULL)
        return 0;
    if (PyDict_Check(rest))
        return give_fields(self, sink, rest);
    if (self->label < 0) {
        PyErr_SetString(PyExc_TypeError,
                        "read() gave a label, but no field of that kind was declared");
        return -1;
    }
    return give(self, sink, self->label, rest);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static int read_sample(void *user, int64_t id, pst_sink *sink, pst_error *err)
{
    source *self = user;
    if (!source_enter(self))
        return source_refuse(err);
    source_call_begins();
    const PyGILState_STATE gil = pyp_gil_take();
    int rc = 0;
    source_sweep(self);
    PyObject *number = PyLong_FromLongLong(id);
    PyObject *answer =
        number != NULL ? PyObject_CallFunctionObjArgs(self->read, number, NULL) : NULL;
    if (answer == NULL || give_answer(self, sink, answer) < 0)
        rc = source_failed(self, id, err);
    Py_XDECREF(answer);
    Py_XDECREF(number);
    PyGILState_Release(gil);
    source_call_ends();
    source_leave(self);
    return rc;
}

/* While the dataset is made, on the thread that makes it: its exception stays set. */
static int read_key(void *user, int64_t id, char *buf, size_t cap)
{
    source *self = user;
    PyObject *number = PyLong_FromLongLong(id);
    PyObject *key = number != NULL ? PyObject_CallFunctionObjArgs(self->key, number, NULL) : NULL;
    PyObject *text = key != NULL ? PyObject_Str(key) : NULL;
    Py_ssize_t size = -1;
    const char *bytes = text != NULL ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    int rc = PST_ECALL;
    if (bytes != NULL && (size_t)size < cap) {
        memcpy(buf, bytes, (size_t)size);
        rc = (int)size;
    } else if (bytes != NULL) {
        rc = PST_ELIMIT;
    }
    Py_XDECREF(text);
    Py_XDECREF(key);
    Py_XDECREF(number);
    return rc;
}

/* ---- making ---------------------------------------------------------------------------------- */

static int kind_of(const char *word)
{
    for (int kind = PST_IMAGE; kind <= PST_META; kind++)
        if (strcmp(pyp_kind_name(kind), word) == 0)
            return kind;
    return 0;
}

static int dtype_of(const char *word)
{
    for (int dtype = PST_U8; dtype <= PST_BOOL; dtype++)
        if (strcmp(pyp_dtype_name(dtype), word) == 0)
            return dtype;
    return 0;
}

static int set_shape(pst_field_info *field, PyObject *shape)
{
    const Py_ssize_t rank = PyTuple_Size(shape);
    if (rank > PST_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "field '%s' has more than %d dimensions", field->name,
                     PST_MAX_RANK);
        return -1;
    }
    field->rank = (uint8_t)rank;
    for (Py_ssize_t i = 0; i < rank; i++)
        if (!pyp_as_i64(PyTuple_GetItem(shape, i), &field->shape[i]))
            return -1;
    return 0;
}

/* (name, kind, dtype, shape, format) */
static int set_field(source *self, PyObject *item)
{
    const char *name, *kind, *dtype, *format;
    PyObject *shape;
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "sssO!s", &name, &kind, &dtype, &PyTuple_Type, &shape, &format)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a field is (name, kind, dtype, shape, format)");
        return -1;
    }
    if (self->field_count == SOURCE_FIELDS_MAX) {
        PyErr_SetString(PyExc_ValueError, "there are more than 32 fields");
        return -1;
    }
    pst_field_info *field = &self->fields[self->field_count];
    field->kind = (uint8_t)kind_of(kind);
    field->dtype = (uint8_t)dtype_of(dtype);
    if (field->kind == 0 || (*dtype && field->dtype == 0)) {
        PyErr_Format(PyExc_ValueError, "field '%s': kind '%s' or type '%s' is not known", name,
                     kind, dtype);
        return -1;
    }
    strncpy(field->name, name, sizeof(field->name) - 1);
    strncpy(field->format, format, sizeof(field->format) - 1);
    if (self->image < 0 && (is_encoded(field->kind) || field->kind == PST_BYTES))
        self->image = self->field_count;
    if (self->label < 0 && field->kind == PST_LABEL)
        self->label = self->field_count;
    self->field_count++;
    return set_shape(field, shape);
}

static int set_fields(source *self, PyObject *fields)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(fields); i++)
        if (set_field(self, PyTuple_GetItem(fields, i)) < 0)
            return -1;
    return 0;
}

/* Not on the module's list yet, and without a reference to it. */
static source *source_new(PyObject *object, PyObject *key, PyObject *fields)
{
    source *self = source_alloc(sizeof(*self));
    if (self == NULL)
        return NULL;
    self->image = self->label = -1;
    self->object = Py_NewRef(object);
    self->key = Py_NewRef(key);
    self->read = PyObject_GetAttrString(object, "read");
    if (self->read == NULL || set_fields(self, fields) < 0) {
        Py_DECREF(self->object);
        Py_DECREF(self->key);
        Py_XDECREF(self->read);
        Py_DECREF(self->failures);
        free(self);
        return NULL;
    }
    return self;
}

typedef struct custom_args {
    PyObject *object, *key, *fields;
    Py_buffer labels;
    const char *revision;
    Py_ssize_t revision_bytes;
    pst_custom spec;
} custom_args;

static int parse_args(PyObject *args, PyObject *kwargs, custom_args *a)
{
    static char *names[] = {"object", "count", "name",     "threads", "fields",
                            "labels", "key",   "revision", NULL};
    pst_custom_init(&a->spec);
    a->key = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&s|$iO!z*Oz#:custom", names, &a->object,
                                     pyp_as_i64, &a->spec.count, &a->spec.name, &a->spec.threads,
                                     &PyTuple_Type, &a->fields, &a->labels, &a->key, &a->revision,
                                     &a->revision_bytes))
        return -1;
    if (a->revision != NULL && a->revision_bytes != 16) {
        PyErr_SetString(PyExc_ValueError, "a revision is 16 bytes");
        return -1;
    }
    if (a->labels.obj != NULL &&
        (uint64_t)a->labels.len != (uint64_t)a->spec.count * sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "labels must be one int64 for each sample");
        return -1;
    }
    a->spec.revision = (const uint8_t *)a->revision;
    a->spec.labels = a->labels.buf;
    return 0;
}

/* Keys are asked for meanwhile, so the GIL stays. */
static int open_custom(const module_state *st, dataset_object *self, source *from, custom_args *a)
{
    a->spec.fields = from->fields;
    a->spec.field_count = from->field_count;
    a->spec.read = read_sample;
    a->spec.key = from->key != Py_None ? read_key : NULL;
    a->spec.thread_begin = source_thread_begin;
    a->spec.thread_end = source_thread_end;
    a->spec.destroy = source_destroy;
    a->spec.user = from;
    pst_error err = {0};
    const int rc = pst_dataset_custom(&a->spec, &self->data, &err);
    if (rc < 0 && !PyErr_Occurred())
        pyp_raise(st, &err, rc);
    return rc;
}

static PyObject *make_dataset(PyObject *module, custom_args *a)
{
    module_state *st = PyModule_GetState(module);
    source *from = source_new(a->object, a->key, a->fields);
    if (from == NULL)
        return NULL;
    source_list(from, module);
    dataset_object *self = (dataset_object *)PyType_GenericAlloc(st->dataset_type, 0);
    if (self != NULL) {
        self->pid = getpid();
        if (open_custom(st, self, from, a) < 0)
            Py_CLEAR(self);
    }
    if (self != NULL)
        self->source = from;
    else
        source_destroy(from); /* no dataset does it */
    return (PyObject *)self;
}

PyObject *pyp_custom_dataset(PyObject *module, PyObject *args, PyObject *kwargs)
{
    custom_args a;
    memset(&a, 0, sizeof(a));
    PyObject *self = NULL;
    if (parse_args(args, kwargs, &a) == 0) {
        if (a.fields == NULL)
            PyErr_SetString(PyExc_TypeError, "fields are needed");
        else
            self = make_dataset(module, &a);
    }
    if (a.labels.obj != NULL)
        PyBuffer_Release(&a.labels);
    return self;
}
