/* SPDX-License-Identifier: Apache-2.0
 *
 * The extension module penstock._penstock: its types, exceptions and the functions that need no
 * object. Multi-phase initialisation; all that it owns hangs on the module's state. */
#include "binding.h"

#include <features.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static PyObject *module_version(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(pst_version());
}

/* settings(workers=0, memory=0, cache=0): what an engine would get on this machine */
static PyObject *module_settings(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"workers", "memory", "cache", NULL};
    pst_engine_options opts;
    pst_engine_options_init(&opts);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|iO&O&:settings", names, &opts.workers,
                                     pyp_as_u64, &opts.memory_bytes, pyp_as_cache,
                                     &opts.cache_bytes))
        return NULL;
    pst_settings settings;
    pst_error err = {0};
    const int rc = pst_settings_resolve(&opts, &settings, &err);
    return rc < 0 ? pyp_raise(PyModule_GetState(module), &err, rc) : pyp_settings_dict(&settings);
}

/* check_pipeline(text): its canonical text and fingerprint */
static PyObject *module_check_pipeline(PyObject *module, PyObject *arg)
{
    const char *text = PyUnicode_AsUTF8AndSize(arg, NULL);
    if (text == NULL)
        return NULL;
    char canonical[8192];
    uint8_t fingerprint[16];
    pst_error err = {0};
    const int rc = pst_pipeline_check(text, canonical, sizeof(canonical), fingerprint, &err);
    if (rc < 0)
        return pyp_raise(PyModule_GetState(module), &err, rc);
    return Py_BuildValue("(Ny#)", pyp_text(canonical), fingerprint,
                         (Py_ssize_t)sizeof(fingerprint));
}

/* Borrows the bytes of each item of a tuple of bytes. */
static int borrow_states(PyObject *tuple, const void **states, size_t *sizes)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); i++) {
        char *bytes;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, i), &bytes, &size) < 0)
            return -1;
        states[i] = bytes;
        sizes[i] = (size_t)size;
    }
    return 0;
}

static PyObject *merge(PyObject *module, const void *const *states, const size_t *sizes,
                       size_t count)
{
    void *merged = NULL;
    size_t bytes = 0;
    pst_error err = {0};
    const int rc = pst_state_merge(states, sizes, count, &merged, &bytes, &err);
    if (rc < 0)
        return pyp_raise(PyModule_GetState(module), &err, rc);
    PyObject *result = PyBytes_FromStringAndSize(merged, (Py_ssize_t)bytes);
    pst_free(merged);
    return result;
}

/* merge_states(sequence of bytes): one state from those of all ranks */
static PyObject *module_merge_states(PyObject *module, PyObject *arg)
{
    PyObject *tuple = PySequence_Tuple(arg);
    if (tuple == NULL)
        return NULL;
    const size_t count = (size_t)PyTuple_Size(tuple);
    const void **states = PyMem_Calloc(count + 1, sizeof(*states));
    size_t *sizes = PyMem_Calloc(count + 1, sizeof(*sizes));
    PyObject *result = NULL;
    if (states == NULL || sizes == NULL)
        PyErr_NoMemory();
    else if (borrow_states(tuple, states, sizes) == 0)
        result = merge(module, states, sizes, count);
    PyMem_Free(states);
    PyMem_Free(sizes);
    Py_DECREF(tuple);
    return result;
}

static int add_type(PyObject *module, PyTypeObject **slot, PyType_Spec *spec)
{
    *slot = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *slot == NULL ? -1 : PyModule_AddType(module, *slot);
}

/* CODES: {"ECORRUPT": -1001, …}, from the list in penstock.h */
static int add_codes(PyObject *module)
{
    PyObject *codes = PyDict_New();
    if (codes == NULL)
        return -1;
    int rc = PyModule_AddObjectRef(module, "CODES", codes);
#define PYP_X(name, code, text)                                                                    \
    if (rc == 0)                                                                                   \
        rc = pyp_dict_take(codes, &#name[sizeof("PST_") - 1], PyLong_FromLong(code));
    PST_ERROR_LIST(PYP_X)
#undef PYP_X
    Py_DECREF(codes);
    return rc;
}

/* Calls os.register_at_fork(after_in_child=_after_fork) and atexit.register(_end). */
static int add_hooks(PyObject *module)
{
    PyObject *end = PyObject_GetAttrString(module, "_end");
    PyObject *child = PyObject_GetAttrString(module, "_after_fork");
    PyObject *at_exit = PyImport_ImportModule("atexit"), *os = PyImport_ImportModule("os");
    PyObject *none = PyTuple_New(0), *words = PyDict_New();
    PyObject *hook = os != NULL ? PyObject_GetAttrString(os, "register_at_fork") : NULL;
    PyObject *first = NULL, *second = NULL;
    if (end != NULL && child != NULL && at_exit != NULL && none != NULL && words != NULL &&
        hook != NULL && PyDict_SetItemString(words, "after_in_child", child) == 0) {
        first = PyObject_CallMethod(at_exit, "register", "O", end);
        second = first != NULL ? PyObject_Call(hook, none, words) : NULL;
    }
    const int rc = second != NULL ? 0 : -1;
    PyObject *const all[] = {end, child, at_exit, os, none, words, hook, first, second};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        Py_XDECREF(all[i]);
    return rc;
}

static int module_exec(PyObject *module)
{
    module_state *st = PyModule_GetState(module);
    if (pyp_gil_init() < 0 || pyp_errors_add(module) < 0 || pyp_shared_add(module) < 0 ||
        add_codes(module) < 0)
        return -1;
    if (add_type(module, &st->view_type, &pyp_view_spec) < 0 ||
        add_type(module, &st->batch_type, &pyp_batch_spec) < 0 ||
        add_type(module, &st->engine_type, &pyp_engine_spec) < 0 ||
        add_type(module, &st->dataset_type, &pyp_dataset_spec) < 0 ||
        add_type(module, &st->job_type, &pyp_job_spec) < 0 ||
        add_type(module, &st->prep_type, &pyp_prep_spec) < 0 ||
        add_type(module, &st->seeder_type, &pyp_seeder_spec) < 0)
        return -1;
    return add_hooks(module);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    const module_state *st = PyModule_GetState(module);
    Py_VISIT(st->engine_type);
    Py_VISIT(st->dataset_type);
    Py_VISIT(st->job_type);
    Py_VISIT(st->batch_type);
    Py_VISIT(st->view_type);
    Py_VISIT(st->prep_type);
    Py_VISIT(st->seeder_type);
    Py_VISIT(st->error);
    Py_VISIT(st->pipeline_error);
    Py_VISIT(st->state_error);
    Py_VISIT(st->data_error);
    Py_VISIT(st->setting_error);
    return 0;
}

static int module_clear(PyObject *module)
{
    module_state *st = PyModule_GetState(module);
    Py_CLEAR(st->engine_type);
    Py_CLEAR(st->dataset_type);
    Py_CLEAR(st->job_type);
    Py_CLEAR(st->batch_type);
    Py_CLEAR(st->view_type);
    Py_CLEAR(st->prep_type);
    Py_CLEAR(st->seeder_type);
    Py_CLEAR(st->error);
    Py_CLEAR(st->pipeline_error);
    Py_CLEAR(st->state_error);
    Py_CLEAR(st->data_error);
    Py_CLEAR(st->setting_error);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

/* op_help(): [(name, summary, one line per parameter), …] */
static PyObject *module_op_help(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    enum { PARAMS_BYTES = 8192 };
    char *params = PyMem_Malloc(PARAMS_BYTES);
    PyObject *list = params != NULL ? PyList_New(0) : PyErr_NoMemory();
    const char *name, *summary;
    for (int i = 0; list != NULL && pst_op_help(i, &name, &summary, params, PARAMS_BYTES) == 0;
         i++) {
        PyObject *item = Py_BuildValue("(sss)", name, summary, params);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    PyMem_Free(params);
    return list;
}

/* features(): [(name, built in, detail), …] */
static PyObject *module_features(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    const char *name, *detail;
    int built;
    for (int i = 0; list != NULL && (built = pst_feature(i, &name, &detail)) >= 0; i++) {
        PyObject *item = Py_BuildValue("(sNs)", name, PyBool_FromLong(built), detail);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *module_trim(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
#ifdef __GLIBC__
    PyThreadState *thread = PyEval_SaveThread();
    malloc_trim(0);
    PyEval_RestoreThread(thread);
#endif
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"version", module_version, METH_NOARGS, "version() -> str"},
    {"features", module_features, METH_NOARGS,
     "features() -> list of (name, whether it is built in, library and version)"},
    {"settings", (PyCFunction)(void (*)(void))module_settings, METH_VARARGS | METH_KEYWORDS,
     "settings(workers=0, memory=0, cache=0) -> dict: what an engine would get on this machine"},
    {"check_pipeline", module_check_pipeline, METH_O,
     "check_pipeline(text) -> (canonical text, fingerprint)"},
    {"op_help", module_op_help, METH_NOARGS,
     "op_help() -> list of (op, summary, parameters as tab-separated lines)"},
    {"merge_states", module_merge_states, METH_O, "merge_states(sequence of bytes) -> bytes"},
    {"custom", (PyCFunction)(void (*)(void))pyp_custom_dataset, METH_VARARGS | METH_KEYWORDS,
     "custom(object, count, name, *, threads=0, fields, labels=None, key=None, revision=None) -> "
     "Dataset of what object.read(id) gives"},
    {"files", (PyCFunction)(void (*)(void))pyp_files_dataset, METH_VARARGS | METH_KEYWORDS,
     "files(paths, labels=None, classes=None, root=None) -> Dataset of these pictures, in this "
     "order"},
    {"serve", (PyCFunction)(void (*)(void))pyp_serve, METH_VARARGS | METH_KEYWORDS,
     "serve(dir, *, lifeline, ready, workers, memory, cache, forms) -> None, once whoever has the "
     "other end of lifeline is gone"},
    {"served_dir", pyp_served_dir, METH_NOARGS,
     "served_dir() -> the directory of this user's daemon, if there is one"},
    {"pull", (PyCFunction)(void (*)(void))pyp_pull, METH_VARARGS | METH_KEYWORDS,
     "pull(name, url=None, *, dir=None, revision=None, pin=False, check=False, connections=0, "
     "opaque_etags=False, progress=None) -> dict: brings a dataset from a bucket to a local disk"},
    {"datasets", (PyCFunction)(void (*)(void))pyp_datasets, METH_VARARGS | METH_KEYWORDS,
     "datasets(dir=None) -> list of dicts: what was pulled"},
    {"evict", (PyCFunction)(void (*)(void))pyp_evict, METH_VARARGS | METH_KEYWORDS,
     "evict(name=None, *, to_fit=None, dir=None) -> bytes freed"},
    {"trim", module_trim, METH_NOARGS,
     "trim() -> None. Gives memory that was freed back to the system, where the C library can."},
    {"_end", pyp_sources_end, METH_NOARGS, "Called when the interpreter ends."},
    {"_after_fork", pyp_sources_after_fork, METH_NOARGS, "Called in a forked child."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "penstock._penstock",
    .m_doc = "The C side of penstock; use the penstock package.",
    .m_size = sizeof(module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__penstock(void);
PyMODINIT_FUNC PyInit__penstock(void)
{
    return PyModuleDef_Init(&module_def);
}
