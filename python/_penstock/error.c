/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns pst_error into Python exceptions, and holds the small conversions every file needs. The
 * exceptions are made when the module is loaded and live in its state. Called with the GIL held. */
#include "binding.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char error_doc[] = "A failure inside Penstock. code is negative (see penstock.CODES, "
                                "or -errno); stage, key, offset and id say where "
                                "it happened, as far as that is known.";

/* Every exception has all attributes, also one that Python code raised itself. */
static PyObject *error_defaults(void)
{
    return Py_BuildValue("{s:i, s:s, s:s, s:O, s:O}", "code", 0, "stage", "", "key", "", "offset",
                         Py_None, "id", Py_None);
}

/* Makes one exception, adds it to the module and gives the reference to *slot. */
static int error_add(PyObject *module, PyObject **slot, const char *name, const char *doc,
                     PyObject *bases)
{
    PyObject *defaults = bases == NULL ? error_defaults() : PyDict_New();
    if (defaults == NULL)
        return -1;
    *slot = PyErr_NewExceptionWithDoc(name, doc, bases, defaults);
    Py_DECREF(defaults);
    if (*slot == NULL)
        return -1;
    return PyModule_AddObjectRef(module, strrchr(name, '.') + 1, *slot);
}

/* A subclass of Error, and of `other` where the standard library has a fitting word. */
static int error_add_sub(PyObject *module, PyObject **slot, const char *name, const char *doc,
                         PyObject *other)
{
    const module_state *st = PyModule_GetState(module);
    PyObject *bases =
        other == NULL ? PyTuple_Pack(1, st->error) : PyTuple_Pack(2, st->error, other);
    if (bases == NULL)
        return -1;
    const int rc = error_add(module, slot, name, doc, bases);
    Py_DECREF(bases);
    return rc;
}

int pyp_errors_add(PyObject *module)
{
    module_state *st = PyModule_GetState(module);
    if (error_add(module, &st->error, "penstock.Error", error_doc, NULL) < 0)
        return -1;
    if (error_add_sub(module, &st->pipeline_error, "penstock.PipelineError",
                      "The pipeline text is wrong.", PyExc_ValueError) < 0)
        return -1;
    if (error_add_sub(module, &st->setting_error, "penstock.SettingError",
                      "A setting is out of its range.", PyExc_ValueError) < 0)
        return -1;
    if (error_add_sub(module, &st->state_error, "penstock.StateError",
                      "A saved state does not fit.", NULL) < 0)
        return -1;
    return error_add_sub(module, &st->data_error, "penstock.DataError",
                         "A dataset or a sample cannot be used.", NULL);
}

static PyObject *error_class(const module_state *st, int code)
{
    switch (code) {
    case PST_EPIPELINE:
        return st->pipeline_error;
    case PST_ESTATE:
        return st->state_error;
    case PST_ECORRUPT:
    case PST_EFORMAT:
    case PST_ELIMIT:
    case PST_ECHANGED:
    case PST_EDATASET:
    case PST_EFIELD:
    case PST_ETOOMANYBAD:
    case PST_ECALL:
    case -ENOENT:
    case -EACCES:
    case -ENOTDIR:
    case -EIO:
        return st->data_error;
    case PST_EBUDGET:
    case -EINVAL:
    case -ERANGE:
        return st->setting_error;
    default:
        return st->error;
    }
}

static int set_attribute(PyObject *object, const char *name, PyObject *value)
{
    if (value == NULL)
        return -1;
    const int rc = PyObject_SetAttrString(object, name, value);
    Py_DECREF(value);
    return rc;
}

static PyObject *number_or_none(int64_t value)
{
    return value < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(value);
}

static PyObject *error_text(const pst_error *err)
{
    char text[sizeof(err->stage) + sizeof(err->key) + sizeof(err->message) + 64];
    pst_error_format(err, text, sizeof(text));
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *pyp_error_object(const module_state *st, const pst_error *err, int code)
{
    pst_error plain = {.code = code, .id = -1, .offset = -1};
    if (err == NULL || err->code == 0) {
        strncpy(plain.message, pst_strerror(code), sizeof(plain.message) - 1);
        err = &plain;
    }
    PyObject *text = error_text(err);
    if (text == NULL)
        return NULL;
    PyObject *exc = PyObject_CallFunctionObjArgs(error_class(st, err->code), text, NULL);
    Py_DECREF(text);
    if (exc == NULL)
        return NULL;
    if (set_attribute(exc, "code", PyLong_FromLong(err->code)) < 0 ||
        set_attribute(exc, "stage", pyp_text(err->stage)) < 0 ||
        set_attribute(exc, "key", pyp_text(err->key)) < 0 ||
        set_attribute(exc, "offset", number_or_none(err->offset)) < 0 ||
        set_attribute(exc, "id", number_or_none(err->id)) < 0)
        Py_CLEAR(exc);
    return exc;
}

PyObject *pyp_raise(const module_state *st, const pst_error *err, int code)
{
    if (code == -ENOMEM)
        return PyErr_NoMemory();
    PyObject *exc = pyp_error_object(st, err, code);
    if (exc == NULL)
        return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
    Py_DECREF(exc);
    return NULL;
}

int pyp_check_pid(const module_state *st, pid_t pid, const char *what)
{
    if (pid == getpid())
        return 0;
    pst_error err = {.code = PST_EFORK, .id = -1, .offset = -1};
    PyOS_snprintf(
        err.message, sizeof(err.message),
        "this %s was made before fork and cannot be used in the child process; make a new one here",
        what);
    pyp_raise(st, &err, PST_EFORK);
    return -1;
}

PyObject *pyp_text(const char *text)
{
    return pyp_text_bytes(text, strlen(text));
}

PyObject *pyp_text_bytes(const void *text, size_t bytes)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "surrogateescape");
}

int pyp_dict_take(PyObject *dict, const char *name, PyObject *value)
{
    if (value == NULL)
        return -1;
    const int rc = PyDict_SetItemString(dict, name, value);
    Py_DECREF(value);
    return rc;
}
