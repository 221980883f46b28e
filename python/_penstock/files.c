/* SPDX-License-Identifier: Apache-2.0
 *
 * files(): a Dataset from Python's own list of paths and labels, and what compares it with such a
 * list later. Entries are handed over one by one, with the GIL held: nothing of Python's is kept,
 * and no second copy of a long list is made. */
#include "binding.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

typedef struct entries {
    PyObject *paths, *labels; /* iterators; labels NULL: none */
    PyObject *bytes;          /* the entry's path, until the next one is asked for */
    size_t count;             /* entries so far */
} entries;

/* A new reference to the path as bytes without a terminator inside, or NULL. Plain text is taken as
 * it lies; anything else that names a file goes through os.fspath. A name that is not Unicode comes
 * out as its bytes. */
static PyObject *path_bytes(PyObject *path)
{
    PyObject *bytes = PyUnicode_Check(path) ? PyUnicode_AsUTF8String(path) : NULL;
    if (bytes == NULL) {
        PyErr_Clear(); /* surrogates */
        if (!PyUnicode_FSConverter(path, &bytes))
            return NULL;
    }
    if (memchr(PyBytes_AsString(bytes), 0, (size_t)PyBytes_Size(bytes)) != NULL) {
        PyErr_SetString(PyExc_ValueError, "embedded null byte");
        Py_CLEAR(bytes);
    }
    return bytes;
}

/* Only int itself: what else has a value as an index may mean something else to its owner. */
static int next_label(entries *e, int64_t *label)
{
    PyObject *item = PyIter_Next(e->labels);
    if (item == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int rc = -1;
    if (!PyLong_CheckExact(item)) {
        PyErr_SetString(PyExc_TypeError, "a label is not an int");
    } else {
        *label = PyLong_AsLongLong(item);
        rc = *label == -1 && PyErr_Occurred() ? -1 : 1;
    }
    Py_DECREF(item);
    return rc;
}

/* One of the two has ended: counts what the other still gives, to name both figures. */
static void refuse_uneven(entries *e, bool more_labels)
{
    size_t longer = e->count + 1;
    PyObject *item;
    while ((item = PyIter_Next(more_labels ? e->labels : e->paths)) != NULL) {
        Py_DECREF(item);
        longer++;
    }
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%zu labels for %zu paths", more_labels ? longer : e->count,
                     more_labels ? e->count : longer);
}

static int next_entry(void *user, const char **path, int64_t *label)
{
    entries *e = user;
    PyObject *item = PyIter_Next(e->paths);
    if (item == NULL && PyErr_Occurred())
        return -ECANCELED;
    const bool there = item != NULL;
    const int labelled = e->labels == NULL ? there : next_label(e, label);
    Py_CLEAR(e->bytes);
    e->bytes = !there || labelled < 0 ? NULL : path_bytes(item);
    Py_XDECREF(item);
    if (labelled < 0 || (there && e->bytes == NULL))
        return -ECANCELED;
    if (labelled != there) {
        refuse_uneven(e, labelled);
        return -ECANCELED;
    }
    if (e->bytes == NULL)
        return 0;
    e->count++;
    *path = PyBytes_AsString(e->bytes);
    return 1;
}

static int entries_init(entries *e, pst_files *spec, PyObject *paths, PyObject *labels)
{
    memset(e, 0, sizeof(*e));
    pst_files_init(spec);
    spec->next = next_entry;
    spec->user = e;
    spec->next_labels = labels != Py_None;
    e->paths = PyObject_GetIter(paths);
    if (e->paths != NULL && labels != Py_None)
        e->labels = PyObject_GetIter(labels);
    return e->paths == NULL || (labels != Py_None && e->labels == NULL) ? -1 : 0;
}

static void entries_fini(entries *e)
{
    Py_CLEAR(e->paths);
    Py_CLEAR(e->labels);
    Py_CLEAR(e->bytes);
}

/* What the engine answered as Python's exception: the one that an iterator raised comes first. */
static void raise_listing(const module_state *st, const pst_error *err, int rc)
{
    if (!PyErr_Occurred())
        pyp_raise(st, err, rc);
}

/* ---- class names ----------------------------------------------------------------------------- */

typedef struct names {
    PyObject *held; /* a list of bytes */
    const char **text;
} names;

static int names_init(names *n, PyObject *classes, pst_files *spec)
{
    memset(n, 0, sizeof(*n));
    if (classes == Py_None)
        return 0;
    n->held = PySequence_List(classes);
    const Py_ssize_t count = n->held == NULL ? 0 : PyList_Size(n->held);
    n->text = n->held == NULL ? NULL : PyMem_Calloc((size_t)count + 1, sizeof(*n->text));
    if (n->text == NULL)
        return n->held == NULL ? -1 : (PyErr_NoMemory(), -1);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *bytes = path_bytes(PyList_GetItem(n->held, i));
        if (bytes == NULL || PyList_SetItem(n->held, i, bytes) < 0)
            return -1;
        n->text[i] = PyBytes_AsString(bytes);
    }
    spec->classes = n->text;
    spec->class_count = count;
    return 0;
}

static void names_fini(names *n)
{
    PyMem_Free(n->text);
    Py_CLEAR(n->held);
}

/* ---- making and comparing -------------------------------------------------------------------- */

static PyObject *make_dataset(const module_state *st, const pst_files *spec)
{
    dataset_object *self = (dataset_object *)PyType_GenericAlloc(st->dataset_type, 0);
    pst_error err = {0};
    if (self == NULL)
        return NULL;
    self->pid = getpid();
    const int rc = pst_dataset_files(spec, &self->data, &err);
    if (rc < 0) {
        raise_listing(st, &err, rc);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

PyObject *pyp_files_dataset(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"paths", "labels", "classes", "root", NULL};
    PyObject *paths, *labels = Py_None, *classes = Py_None, *root = Py_None;
    PyObject *root_bytes = NULL, *self = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOO:files", words, &paths, &labels, &classes,
                                     &root))
        return NULL;
    if (root != Py_None && !PyUnicode_FSConverter(root, &root_bytes))
        return NULL;
    entries e;
    names n = {0};
    pst_files spec;
    if (entries_init(&e, &spec, paths, labels) == 0 && names_init(&n, classes, &spec) == 0) {
        spec.root = root_bytes == NULL ? NULL : PyBytes_AsString(root_bytes);
        self = make_dataset(PyModule_GetState(module), &spec);
    }
    names_fini(&n);
    entries_fini(&e);
    Py_XDECREF(root_bytes);
    return self;
}

PyObject *pyp_files_same(PyObject *self, PyObject *args)
{
    PyObject *paths, *labels, *root, *root_bytes = NULL;
    if (!PyArg_ParseTuple(args, "OOO:files_same", &paths, &labels, &root))
        return NULL;
    if (root != Py_None && !PyUnicode_FSConverter(root, &root_bytes))
        return NULL;
    entries e;
    pst_files spec;
    pst_error err = {0};
    int rc = -1;
    if (entries_init(&e, &spec, paths, labels) == 0) {
        spec.root = root_bytes == NULL ? NULL : PyBytes_AsString(root_bytes);
        rc = pst_dataset_files_same(((dataset_object *)self)->data, &spec, &err);
        if (rc < 0)
            raise_listing(pyp_state(self), &err, rc);
    }
    entries_fini(&e);
    Py_XDECREF(root_bytes);
    return rc < 0 ? NULL : PyBool_FromLong(rc);
}
