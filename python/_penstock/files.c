/* SPDX-License-Identifier: Apache-2.0
 *
 * files(): a Dataset from Python's own list of paths and labels. They are copied out of the
 * interpreter's objects into plain arrays, once, with the GIL held; nothing of Python's is kept. */
#include "binding.h"

#include <string.h>
#include <unistd.h>

/* Texts one after another, each with its terminator. */
typedef struct texts {
    char *data;
    size_t bytes, cap;
    size_t *at; /* where each begins; bytes move while they are gathered */
    size_t count, at_cap;
} texts;

typedef struct file_args {
    PyObject *paths, *labels, *classes, *root;
    texts path, name;
    int64_t *label;
    size_t labels_given, label_cap;
} file_args;

static int grow(void **memory, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return 0;
    const size_t want = need + need / 2 + 64;
    void *grown = want < SIZE_MAX / size ? PyMem_Realloc(*memory, want * size) : NULL;
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *memory = grown;
    *cap = want;
    return 0;
}

static int add_text(texts *all, const char *text, Py_ssize_t size)
{
    if (memchr(text, 0, (size_t)size) != NULL) {
        PyErr_SetString(PyExc_ValueError, "embedded null byte");
        return -1;
    }
    if (grow((void **)&all->data, &all->cap, all->bytes + (size_t)size + 1, 1) < 0 ||
        grow((void **)&all->at, &all->at_cap, all->count + 1, sizeof(*all->at)) < 0)
        return -1;
    memcpy(all->data + all->bytes, text, (size_t)size);
    all->data[all->bytes + (size_t)size] = 0;
    all->at[all->count++] = all->bytes;
    all->bytes += (size_t)size + 1;
    return 0;
}

/* Plain text is copied as it lies; anything else that names a file goes through os.fspath. A name
 * that is not Unicode comes out as its bytes. */
static int add_path(texts *all, PyObject *path)
{
    if (PyUnicode_Check(path)) {
        Py_ssize_t size;
        PyObject *bytes = PyUnicode_AsUTF8String(path);
        char *text;
        if (bytes != NULL) {
            const int rc =
                PyBytes_AsStringAndSize(bytes, &text, &size) < 0 ? -1 : add_text(all, text, size);
            Py_DECREF(bytes);
            return rc;
        }
        PyErr_Clear(); /* surrogates */
    }
    PyObject *bytes;
    if (!PyUnicode_FSConverter(path, &bytes))
        return -1;
    const int rc = add_text(all, PyBytes_AsString(bytes), PyBytes_Size(bytes));
    Py_DECREF(bytes);
    return rc;
}

/* Only int itself: what else has a value as an index may mean something else to its owner. */
static int add_label(file_args *a, PyObject *label)
{
    if (!PyLong_CheckExact(label)) {
        PyErr_SetString(PyExc_TypeError, "a label is not an int");
        return -1;
    }
    const long long value = PyLong_AsLongLong(label);
    if ((value == -1 && PyErr_Occurred()) ||
        grow((void **)&a->label, &a->label_cap, a->labels_given + 1, sizeof(*a->label)) < 0)
        return -1;
    a->label[a->labels_given++] = value;
    return 0;
}

/* Calls add for everything that an iterable gives; which: 0 paths, 1 labels, 2 class names. */
static int gather(file_args *a, PyObject *iterable, int which)
{
    PyObject *iterator = iterable == Py_None ? NULL : PyObject_GetIter(iterable);
    if (iterator == NULL)
        return iterable == Py_None ? 0 : -1;
    int rc = 0;
    PyObject *item;
    while (rc == 0 && (item = PyIter_Next(iterator)) != NULL) {
        rc = which == 1 ? add_label(a, item) : add_path(which == 0 ? &a->path : &a->name, item);
        Py_DECREF(item);
    }
    Py_DECREF(iterator);
    return rc < 0 || PyErr_Occurred() ? -1 : 0;
}

/* The addresses of gathered texts; PyMem_Free them. */
static const char **addresses(const texts *all)
{
    const char **list = PyMem_Calloc(all->count + 1, sizeof(*list));
    if (list == NULL)
        PyErr_NoMemory();
    for (size_t i = 0; list != NULL && i < all->count; i++)
        list[i] = all->data + all->at[i];
    return list;
}

static int open_files(const module_state *st, dataset_object *self, const pst_files *spec)
{
    pst_error err = {0};
    PyThreadState *thread = PyEval_SaveThread();
    const int rc = pst_dataset_files(spec, &self->data, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0)
        pyp_raise(st, &err, rc);
    return rc;
}

static PyObject *make_dataset(const module_state *st, const file_args *a)
{
    pst_files spec;
    pst_files_init(&spec);
    const char **paths = addresses(&a->path), **names = addresses(&a->name);
    dataset_object *self = NULL;
    if (paths != NULL && names != NULL)
        self = (dataset_object *)PyType_GenericAlloc(st->dataset_type, 0);
    if (self != NULL) {
        spec.count = (int64_t)a->path.count;
        spec.paths = paths;
        spec.labels = a->labels == Py_None ? NULL : a->label;
        spec.root = a->root == NULL ? NULL : PyBytes_AsString(a->root);
        spec.classes = names;
        spec.class_count = (int64_t)a->name.count;
        self->pid = getpid();
        if (open_files(st, self, &spec) < 0)
            Py_CLEAR(self);
    }
    PyMem_Free(paths);
    PyMem_Free(names);
    return (PyObject *)self;
}

static int gather_all(file_args *a)
{
    if (gather(a, a->paths, 0) < 0 || gather(a, a->labels, 1) < 0 || gather(a, a->classes, 2) < 0)
        return -1;
    if (a->labels != Py_None && a->labels_given != a->path.count) {
        PyErr_Format(PyExc_ValueError, "%zu labels for %zu paths", a->labels_given, a->path.count);
        return -1;
    }
    return 0;
}

PyObject *pyp_files_dataset(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"paths", "labels", "classes", "root", NULL};
    file_args a;
    memset(&a, 0, sizeof(a));
    a.labels = a.classes = Py_None;
    PyObject *root = Py_None, *self = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOO:files", names, &a.paths, &a.labels,
                                     &a.classes, &root))
        return NULL;
    if (root != Py_None && !PyUnicode_FSConverter(root, &a.root))
        return NULL;
    if (gather_all(&a) == 0)
        self = make_dataset(PyModule_GetState(module), &a);
    Py_XDECREF(a.root);
    PyMem_Free(a.path.data);
    PyMem_Free(a.path.at);
    PyMem_Free(a.name.data);
    PyMem_Free(a.name.at);
    PyMem_Free(a.label);
    return self;
}
