/* SPDX-License-Identifier: Apache-2.0
 *
 * Dataset: a listing of samples. Opening and reading touch the disk and release the GIL; while
 * listing, the progress callback takes it back now and then so that Ctrl-C works. The listing does
 * not change once opened and is freed with the object, so any thread may read it. */
#include "source.h"

#include <errno.h>
#include <unistd.h>

/* Runs on the thread that opens, which left its state in *user when it released the GIL. A signal's
 * exception stays set and stops the listing. */
static int check_signals(uint64_t found, void *user)
{
    (void)found;
    PyThreadState **thread = user;
    PyEval_RestoreThread(*thread);
    const int stop = PyErr_CheckSignals() < 0;
    *thread = PyEval_SaveThread();
    return stop;
}

static int parse_options(PyObject *args, PyObject *kwargs, PyObject **path, PyObject **index,
                         pst_dataset_options *opts)
{
    static char *names[] = {"path", "index_dir", "threads", "refresh", NULL};
    PyObject *index_dir = Py_None;
    pst_dataset_options_init(opts);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|O$ip:Dataset", names, PyUnicode_FSConverter,
                                     path, &index_dir, &opts->threads, &opts->refresh))
        return -1;
    if (index_dir != Py_None && !PyUnicode_FSConverter(index_dir, index))
        return -1;
    opts->index_dir = *index ? PyBytes_AsString(*index) : NULL;
    return 0;
}

static PyObject *dataset_open(PyTypeObject *type, const char *path, pst_dataset_options *opts)
{
    dataset_object *self = (dataset_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->pid = getpid();
    pst_error err = {0};
    PyThreadState *thread = PyEval_SaveThread();
    opts->progress = check_signals;
    opts->user = &thread;
    const int rc = pst_dataset_open(path, opts, &self->data, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0) {
        if (!PyErr_Occurred())
            pyp_raise(PyType_GetModuleState(type), &err, rc);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *path = NULL, *index = NULL, *self = NULL;
    pst_dataset_options opts;
    if (parse_options(args, kwargs, &path, &index, &opts) == 0)
        self = dataset_open(type, PyBytes_AsString(path), &opts);
    Py_XDECREF(path);
    Py_XDECREF(index);
    return self;
}

static void close_later(void *data)
{
    pst_dataset_close(data);
}

static void dataset_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    pst_dataset *data = ((dataset_object *)self)->data;
    PyObject_GC_UnTrack(self);
    if (!pyp_later(close_later, data)) {
        PyThreadState *thread = PyEval_SaveThread();
        pst_dataset_close(data);
        PyEval_RestoreThread(thread);
    }
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static int dataset_traverse(PyObject *self, visitproc visit, void *arg)
{
    const source *from = ((dataset_object *)self)->source;
    Py_VISIT((PyObject *)Py_TYPE(self));
    return from != NULL ? source_traverse(from, visit, arg) : 0;
}

static const pst_dataset *data_of(PyObject *self)
{
    return ((dataset_object *)self)->data;
}

static Py_ssize_t dataset_length(PyObject *self)
{
    return (Py_ssize_t)pst_dataset_count(data_of(self));
}

/* sample(id): (key, bytes as stored, label or None, identity) */
static PyObject *dataset_sample(PyObject *self, PyObject *arg)
{
    int64_t id;
    if (!pyp_as_i64(arg, &id))
        return NULL;
    if (id < 0 || id >= pst_dataset_count(data_of(self)))
        return PyErr_Format(PyExc_IndexError, "sample id %lld is not in 0..%lld", (long long)id,
                            (long long)pst_dataset_count(data_of(self)) - 1);
    pst_sample_info info;
    const int rc = pst_dataset_sample(data_of(self), id, &info);
    if (rc < 0)
        return pyp_raise(pyp_state(self), NULL, rc);
    PyObject *key = pyp_text(info.key);
    PyObject *label = info.label < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(info.label);
    return Py_BuildValue("(NKNy#)", key, (unsigned long long)info.bytes, label, info.identity,
                         (Py_ssize_t)sizeof(info.identity));
}

static PyObject *field_tuple(const pst_field_info *info)
{
    PyObject *shape = PyTuple_New(info->rank);
    for (int i = 0; shape != NULL && i < info->rank; i++) {
        PyObject *value = PyLong_FromLongLong(info->shape[i]);
        if (value == NULL || PyTuple_SetItem(shape, i, value) < 0)
            Py_CLEAR(shape);
    }
    return Py_BuildValue("(NssNsN)", pyp_text(info->name), pyp_kind_name(info->kind),
                         pyp_dtype_name(info->dtype), shape, info->format,
                         PyBool_FromLong(info->optional));
}

/* fields: a tuple of (name, kind, dtype, shape, format, optional) */
static PyObject *dataset_fields(PyObject *self, void *closure)
{
    (void)closure;
    const int count = pst_dataset_field_count(data_of(self));
    PyObject *fields = PyTuple_New(count);
    for (int i = 0; fields != NULL && i < count; i++) {
        pst_field_info info;
        const int rc = pst_dataset_field(data_of(self), i, &info);
        PyObject *item = rc < 0 ? pyp_raise(pyp_state(self), NULL, rc) : field_tuple(&info);
        if (item == NULL || PyTuple_SetItem(fields, i, item) < 0)
            Py_CLEAR(fields);
    }
    return fields;
}

static PyObject *dataset_classes(PyObject *self, void *closure)
{
    (void)closure;
    const int64_t count = pst_dataset_class_count(data_of(self));
    PyObject *classes = PyTuple_New((Py_ssize_t)count);
    for (int64_t i = 0; classes != NULL && i < count; i++) {
        const char *name = pst_dataset_class(data_of(self), i);
        PyObject *item = pyp_text(name ? name : "");
        if (item == NULL || PyTuple_SetItem(classes, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(classes);
    }
    return classes;
}

/* labels: a View of all of them, or None */
static PyObject *dataset_labels(PyObject *self, void *closure)
{
    (void)closure;
    const int64_t *labels = pst_dataset_labels(data_of(self));
    const int64_t count = pst_dataset_count(data_of(self));
    if (labels == NULL)
        Py_RETURN_NONE;
    return pyp_view_new(pyp_state(self), self, labels, PST_I64, 1, &count, 0);
}

/* labels_of(ids): their labels as a bytearray of int64, or None */
static PyObject *dataset_labels_of(PyObject *self, PyObject *arg)
{
    Py_buffer ids;
    if (PyObject_GetBuffer(arg, &ids, PyBUF_C_CONTIGUOUS) < 0)
        return NULL;
    PyObject *labels = NULL;
    if (ids.len % (Py_ssize_t)sizeof(int64_t) != 0)
        PyErr_SetString(PyExc_ValueError, "ids are not of int64");
    else
        labels = PyByteArray_FromStringAndSize(NULL, ids.len);
    const int64_t count = (int64_t)(ids.len / (Py_ssize_t)sizeof(int64_t));
    if (labels != NULL && pst_dataset_labels_of(data_of(self), ids.buf, count,
                                                (int64_t *)PyByteArray_AsString(labels)) < 0) {
        Py_DECREF(labels);
        labels = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&ids);
    return labels;
}

static PyObject *dataset_splits(PyObject *self, void *closure)
{
    (void)closure;
    const int count = pst_dataset_split_count(data_of(self));
    PyObject *splits = PyTuple_New(count);
    for (int i = 0; splits != NULL && i < count; i++) {
        PyObject *item = pyp_text(pst_dataset_split_name(data_of(self), i));
        if (item == NULL || PyTuple_SetItem(splits, i, item) < 0)
            Py_CLEAR(splits);
    }
    return splits;
}

/* split(name): a View of the split's ids, or None when it is the whole dataset */
static PyObject *dataset_split(PyObject *self, PyObject *arg)
{
    const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
    if (name == NULL)
        return NULL;
    const int64_t *ids;
    int64_t count;
    const int rc = pst_dataset_split(data_of(self), name, &ids, &count);
    if (rc == -ENOENT) {
        PyErr_SetObject(PyExc_KeyError, arg);
        return NULL;
    }
    if (rc < 0)
        return pyp_raise(pyp_state(self), NULL, rc);
    if (ids == NULL)
        Py_RETURN_NONE;
    return pyp_view_new(pyp_state(self), self, ids, PST_I64, 1, &count, 0);
}

static PyObject *dataset_read(PyObject *self, PyObject *args)
{
    int64_t id;
    const char *field;
    if (!PyArg_ParseTuple(args, "O&s:read", pyp_as_i64, &id, &field))
        return NULL;
    if (pyp_check_pid(pyp_state(self), ((dataset_object *)self)->pid, "dataset") < 0)
        return NULL;
    void *memory = NULL;
    size_t bytes = 0;
    pst_error err = {0};
    PyThreadState *thread = PyEval_SaveThread();
    const int rc = pst_dataset_read(data_of(self), id, field, &memory, &bytes, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0)
        return pyp_raise_from(pyp_state(self), ((dataset_object *)self)->source, &err, rc);
    PyObject *result = PyBytes_FromStringAndSize(memory, (Py_ssize_t)bytes);
    pst_free(memory);
    return result;
}

static PyObject *dataset_revision(PyObject *self, void *closure)
{
    (void)closure;
    uint8_t revision[16];
    pst_dataset_revision(data_of(self), revision);
    return PyBytes_FromStringAndSize((const char *)revision, sizeof(revision));
}

static PyObject *dataset_kind(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(pst_dataset_kind(data_of(self)));
}

static PyMethodDef dataset_methods[] = {
    {"sample", dataset_sample, METH_O, "sample(id) -> (key, bytes, label or None, identity)"},
    {"split", dataset_split, METH_O, "split(name) -> View of its ids, or None for all"},
    {"labels_of", dataset_labels_of, METH_O,
     "labels_of(int64 ids) -> bytearray of int64; None where one has no label here"},
    {"files_same", pyp_files_same, METH_VARARGS,
     "files_same(paths, labels or None, root or None) -> whether files() was given the same"},
    {"read", dataset_read, METH_VARARGS, "read(id, field) -> the stored bytes"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef dataset_getset[] = {
    {"fields", dataset_fields, NULL, "(name, kind, dtype, shape, format, optional) for each field.",
     NULL},
    {"classes", dataset_classes, NULL, "Class names in label order.", NULL},
    {"labels", dataset_labels, NULL,
     "View of all labels by id; None where some have none or they come with the samples.", NULL},
    {"splits", dataset_splits, NULL, "Names of the splits.", NULL},
    {"revision", dataset_revision, NULL, "16 bytes that change when any sample does.", NULL},
    {"kind", dataset_kind, NULL, "'folder', 'tar', 'manifest', 'file', 'files' or 'custom'.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_new, dataset_new},
    {Py_tp_dealloc, dataset_dealloc},
    {Py_tp_traverse, dataset_traverse},
    {Py_tp_methods, dataset_methods},
    {Py_tp_getset, dataset_getset},
    {Py_sq_length, dataset_length},
    {Py_tp_doc, "Dataset(path, index_dir=None, *, threads=0, refresh=False)"},
    {0, NULL},
};

PyType_Spec pyp_dataset_spec = {
    .name = "penstock._penstock.Dataset",
    .basicsize = sizeof(dataset_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = dataset_slots,
};
