/* SPDX-License-Identifier: Apache-2.0
 *
 * What Python processes that share memory need and Python does not have: atomic words, and the
 * kernel's word that the parent died. A word is an int64 at an index of a writable buffer (the
 * shared mapping, seen as 64-bit numbers). */
#include "binding.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

/* NULL with IndexError where the buffer has no such word. */
static int64_t *word_at(const Py_buffer *view, Py_ssize_t index)
{
    if (index < 0 || index >= view->len / (Py_ssize_t)sizeof(int64_t) ||
        (uintptr_t)view->buf % sizeof(int64_t) != 0) {
        PyErr_SetString(PyExc_IndexError, "no such word in the shared memory");
        return NULL;
    }
    return (int64_t *)view->buf + index;
}

/* atomic_add(buffer, index, delta): the word's new value; orders all memory accesses around it */
static PyObject *shared_atomic_add(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer view;
    Py_ssize_t index;
    long long delta, result = 0;
    if (!PyArg_ParseTuple(args, "w*nL:atomic_add", &view, &index, &delta))
        return NULL;
    int64_t *word = word_at(&view, index);
    if (word != NULL)
        result = __atomic_add_fetch(word, (int64_t)delta, __ATOMIC_SEQ_CST);
    PyBuffer_Release(&view);
    return word == NULL ? NULL : PyLong_FromLongLong(result);
}

/* atomic_swap_if(buffer, index, expected, wanted): True if the word was `expected` and is now
 * `wanted`; else it is as it was */
static PyObject *shared_atomic_swap_if(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer view;
    Py_ssize_t index;
    long long expected, wanted;
    int done = 0;
    if (!PyArg_ParseTuple(args, "w*nLL:atomic_swap_if", &view, &index, &expected, &wanted))
        return NULL;
    int64_t *word = word_at(&view, index);
    int64_t old = (int64_t)expected;
    if (word != NULL)
        done = __atomic_compare_exchange_n(word, &old, (int64_t)wanted, 0, __ATOMIC_SEQ_CST,
                                           __ATOMIC_SEQ_CST);
    PyBuffer_Release(&view);
    return word == NULL ? NULL : PyBool_FromLong(done);
}

/* die_with_parent(pid): the kernel kills this process when the thread of `pid` that forked it ends;
 * False if it has ended already */
static PyObject *shared_die_with_parent(PyObject *module, PyObject *args)
{
    (void)module;
    long pid;
    if (!PyArg_ParseTuple(args, "l:die_with_parent", &pid))
        return NULL;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyBool_FromLong((long)getppid() == pid);
}

static PyMethodDef shared_methods[] = {
    {"atomic_add", shared_atomic_add, METH_VARARGS,
     "atomic_add(buffer, index, delta) -> the word's new value"},
    {"atomic_swap_if", shared_atomic_swap_if, METH_VARARGS,
     "atomic_swap_if(buffer, index, expected, wanted) -> whether the word was as expected"},
    {"die_with_parent", shared_die_with_parent, METH_VARARGS,
     "die_with_parent(pid) -> whether pid is still the parent"},
    {NULL, NULL, 0, NULL},
};

int pyp_shared_add(PyObject *module)
{
    return PyModule_AddFunctions(module, shared_methods);
}
