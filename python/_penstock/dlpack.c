/* SPDX-License-Identifier: Apache-2.0
 *
 * DLPack for views: hands a view's memory to torch, jax and others without a copy, bf16 included.
 * The structs are the exchange format's own (its unversioned form, which every consumer reads). The
 * capsule holds a reference to the view until the consumer is done with the memory; a consumer may
 * be done on any thread. */
#include "binding.h"

#include <stdlib.h>

typedef struct dl_device {
    int32_t type, id;
} dl_device;
typedef struct dl_dtype {
    uint8_t code, bits;
    uint16_t lanes;
} dl_dtype;
typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t *shape, *strides; /* strides in elements */
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed {
    dl_tensor tensor;
    void *owner;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

enum { DL_CPU = 1 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };
static const char FRESH[] = "dltensor", USED[] = "used_dltensor";

/* One allocation: the struct, then shape and strides. */
typedef struct exported {
    dl_managed managed;
    int64_t shape[PST_MAX_RANK + 1], strides[PST_MAX_RANK + 1];
} exported;

static int code_of(int dtype)
{
    switch (dtype) {
    case PST_U8:
    case PST_U16:
        return DL_UINT;
    case PST_F16:
    case PST_F32:
    case PST_F64:
        return DL_FLOAT;
    case PST_BF16:
        return DL_BFLOAT;
    case PST_BOOL:
        return DL_BOOL;
    default:
        return DL_INT;
    }
}

/* After the interpreter has ended there is nobody left to give the reference to. */
static void let_go(dl_managed *managed)
{
    if (Py_IsInitialized()) {
        const PyGILState_STATE state = pyp_gil_take();
        Py_DECREF((PyObject *)managed->owner);
        PyGILState_Release(state);
    }
    free(managed);
}

/* A capsule that nobody consumed still owns its view. */
static void capsule_gone(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, USED))
        return;
    dl_managed *managed = PyCapsule_GetPointer(capsule, FRESH);
    if (managed == NULL)
        PyErr_WriteUnraisable(capsule);
    else
        managed->deleter(managed);
}

static void describe(exported *e, view_object *view)
{
    for (int i = 0; i < view->ndim; i++) {
        e->shape[i] = view->shape[i];
        e->strides[i] = view->strides[i] / view->item_bytes;
    }
    e->managed.tensor = (dl_tensor){
        .data = (void *)view->data,
        .device = {DL_CPU, 0},
        .ndim = view->ndim,
        .dtype = {(uint8_t)code_of(view->dtype), (uint8_t)(8 * view->item_bytes), 1},
        .shape = e->shape,
        .strides = e->strides,
    };
    e->managed.owner = Py_NewRef((PyObject *)view);
    e->managed.deleter = let_go;
}

/* __dlpack__(stream=None, …): the later keywords of the protocol ask for nothing that matters for
 * memory of the CPU. */
PyObject *pyp_view_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOO:__dlpack__", names, &stream, &version,
                                     &device, &copy))
        return NULL;
    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError, "a view is handed over without a copy; copy the result");
        return NULL;
    }
    exported *e = malloc(sizeof(*e));
    if (e == NULL)
        return PyErr_NoMemory();
    describe(e, (view_object *)self);
    PyObject *capsule = PyCapsule_New(&e->managed, FRESH, capsule_gone);
    if (capsule == NULL)
        let_go(&e->managed);
    return capsule;
}

PyObject *pyp_view_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}
