/* SPDX-License-Identifier: Apache-2.0
 *
 * Small converters for arguments: whole numbers with their full range, and words that stand for
 * enum values. Used by the constructors of engine.c and job.c, with the GIL held. */
#include "binding.h"

#include <string.h>

int pyp_as_u64(PyObject *object, void *out)
{
    PyObject *number = PyNumber_Index(object);
    if (number == NULL)
        return 0;
    const unsigned long long value = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (value == (unsigned long long)-1 && PyErr_Occurred())
        return 0;
    *(uint64_t *)out = value;
    return 1;
}

int pyp_as_i64(PyObject *object, void *out)
{
    PyObject *number = PyNumber_Index(object);
    if (number == NULL)
        return 0;
    const long long value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (value == -1 && PyErr_Occurred())
        return 0;
    *(int64_t *)out = value;
    return 1;
}

/* "'a', 'b', 'c'" for a message. */
static PyObject *list_words(const char *const *words)
{
    PyObject *list = PyUnicode_FromFormat("'%s'", words[0]);
    for (int i = 1; list != NULL && words[i] != NULL; i++) {
        PyObject *longer = PyUnicode_FromFormat("%U, '%s'", list, words[i]);
        Py_DECREF(list);
        list = longer;
    }
    return list;
}

int pyp_as_cache(PyObject *object, void *out)
{
    if (!PyUnicode_Check(object))
        return pyp_as_u64(object, out);
    if (PyUnicode_CompareWithASCIIString(object, "auto") != 0) {
        PyErr_Format(PyExc_ValueError, "cache=%R is not known; use bytes, or 'auto'", object);
        return 0;
    }
    *(uint64_t *)out = PST_CACHE_AUTO;
    return 1;
}

int pyp_pick(const char *what, const char *const *words, const char *word)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    PyObject *known = list_words(words);
    if (known != NULL)
        PyErr_Format(PyExc_ValueError, "%s='%s' is not known; use one of %U", what, word, known);
    Py_XDECREF(known);
    return -1;
}
