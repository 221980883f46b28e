/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch: one finished batch. It owns the pst_batch and gives out views of its fields; the memory
 * goes back to the engine when the batch and its last view are gone. Immutable: any thread may read
 * it, also after fork. */
#include "binding.h"

#include <string.h>

static const char *const kind_names[] = {
    [PST_IMAGE] = "image",   [PST_MASK] = "mask",   [PST_LABEL] = "label", [PST_BOXES] = "boxes",
    [PST_VOLUME] = "volume", [PST_AUDIO] = "audio", [PST_TEXT] = "text",   [PST_BYTES] = "bytes",
    [PST_ARRAY] = "array",   [PST_META] = "meta",
};
static const char *const packing_names[] = {
    [PST_DENSE] = "dense", [PST_PADDED] = "padded", [PST_RAGGED] = "ragged"};
static const char *const layout_names[] = {
    [PST_LAYOUT_NONE] = "", [PST_NHWC] = "nhwc", [PST_NCHW] = "nchw"};

#define NAME_OF(table, index)                                                                      \
    ((size_t)(index) < sizeof(table) / sizeof(*(table)) && (table)[index] != NULL ? (table)[index] \
                                                                                  : "?")

const char *pyp_kind_name(int kind)
{
    return NAME_OF(kind_names, kind);
}

const char *pyp_layout_name(int layout)
{
    return NAME_OF(layout_names, layout);
}

PyObject *pyp_batch_take(const module_state *st, pst_batch *batch)
{
    batch_object *self = (batch_object *)PyType_GenericAlloc(st->batch_type, 0);
    if (self == NULL) {
        pst_batch_release(batch);
        return NULL;
    }
    self->batch = batch;
    self->desc = pst_batch_get(batch);
    return (PyObject *)self;
}

static void batch_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    pst_batch_release(((batch_object *)self)->batch);
    PyObject_Free(self);
    Py_DECREF(type);
}

static const pst_batch_desc *desc_of(PyObject *self)
{
    return ((batch_object *)self)->desc;
}

/* The field called `name` (a str), or NULL with KeyError. */
static const pst_field *find_field(PyObject *self, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (text == NULL)
        return NULL;
    const pst_field *field = pst_batch_find(desc_of(self), text);
    if (field == NULL)
        PyErr_SetObject(PyExc_KeyError, name);
    return field;
}

static PyObject *shape_tuple(const pst_field *field)
{
    PyObject *shape = PyTuple_New(field->rank);
    for (int i = 0; shape != NULL && i < field->rank; i++) {
        PyObject *value = PyLong_FromLongLong(field->shape[i]);
        if (value == NULL || PyTuple_SetItem(shape, i, value) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

/* info(name): (kind, dtype, layout, packing, shape of one sample) */
static PyObject *batch_info(PyObject *self, PyObject *name)
{
    const pst_field *field = find_field(self, name);
    if (field == NULL)
        return NULL;
    PyObject *shape = shape_tuple(field);
    if (shape == NULL)
        return NULL;
    return Py_BuildValue("(ssssN)", pyp_kind_name(field->kind), pyp_dtype_name(field->dtype),
                         pyp_layout_name(field->layout), NAME_OF(packing_names, field->packing),
                         shape);
}

/* view(name): a dense or padded field with its leading dimension */
static PyObject *batch_view(PyObject *self, PyObject *name)
{
    const pst_field *field = find_field(self, name);
    if (field == NULL)
        return NULL;
    if (field->packing == PST_RAGGED)
        return PyErr_Format(PyExc_TypeError, "field %R is ragged; use slots()", name);
    const pst_batch_desc *desc = desc_of(self);
    int64_t shape[PST_MAX_RANK + 1] = {desc->slots};
    memcpy(shape + 1, field->shape, field->rank * sizeof(*shape));
    return pyp_view_new(pyp_state(self), self, pst_batch_data(desc, field), field->dtype,
                        field->rank + 1, shape, field->slot_bytes);
}

static const int64_t *true_shapes(const pst_batch_desc *desc, const pst_field *field)
{
    return (const int64_t *)((const char *)desc + field->shapes_offset);
}

/* shapes(name): each slot's true shape as int64[slots][rank], or None for a dense field */
static PyObject *batch_shapes(PyObject *self, PyObject *name)
{
    const pst_field *field = find_field(self, name);
    if (field == NULL)
        return NULL;
    if (field->shapes_offset == 0)
        Py_RETURN_NONE;
    const pst_batch_desc *desc = desc_of(self);
    const int64_t shape[2] = {desc->slots, field->rank};
    return pyp_view_new(pyp_state(self), self, true_shapes(desc, field), PST_I64, 2, shape, 0);
}

static PyObject *slot_view(PyObject *self, const pst_field *field, uint32_t slot)
{
    const pst_batch_desc *desc = desc_of(self);
    size_t bytes;
    const void *data = pst_batch_slot(desc, field, slot, &bytes);
    const int64_t *shape = field->packing == PST_RAGGED
                               ? true_shapes(desc, field) + (size_t)slot * field->rank
                               : field->shape;
    return pyp_view_new(pyp_state(self), self, data, field->dtype, field->rank, shape, 0);
}

static PyObject *slot_text(PyObject *self, const pst_field *field, uint32_t slot)
{
    size_t bytes;
    const void *text = pst_batch_slot(desc_of(self), field, slot, &bytes);
    return pyp_text_bytes(text, bytes);
}

/* A list with make(slot) for every slot of the field called name. */
static PyObject *slot_list(PyObject *self, PyObject *name,
                           PyObject *(*make)(PyObject *, const pst_field *, uint32_t))
{
    const pst_field *field = find_field(self, name);
    if (field == NULL)
        return NULL;
    const uint32_t slots = desc_of(self)->slots;
    PyObject *list = PyList_New((Py_ssize_t)slots);
    for (uint32_t slot = 0; list != NULL && slot < slots; slot++) {
        PyObject *item = make(self, field, slot);
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)slot, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *batch_slots(PyObject *self, PyObject *name)
{
    return slot_list(self, name, slot_view);
}

static PyObject *batch_texts(PyObject *self, PyObject *name)
{
    return slot_list(self, name, slot_text);
}

static PyObject *batch_names(PyObject *self, void *closure)
{
    (void)closure;
    const pst_batch_desc *desc = desc_of(self);
    PyObject *names = PyTuple_New((Py_ssize_t)desc->fields);
    for (uint32_t i = 0; names != NULL && i < desc->fields; i++) {
        PyObject *name = pyp_text(pst_batch_field(desc, i)->name);
        if (name == NULL || PyTuple_SetItem(names, (Py_ssize_t)i, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

enum number { EPOCH, STEP, SLOTS, VALID_SLOTS, RANK, WORLD, BYTES, ADDRESS };

/* The closure says which number of the descriptor is meant. */
static PyObject *batch_number(PyObject *self, void *closure)
{
    const pst_batch_desc *desc = desc_of(self);
    switch ((enum number)(intptr_t)closure) {
    case EPOCH:
        return PyLong_FromUnsignedLongLong(desc->epoch);
    case STEP:
        return PyLong_FromUnsignedLongLong(desc->step);
    case SLOTS:
        return PyLong_FromUnsignedLong(desc->slots);
    case VALID_SLOTS:
        return PyLong_FromUnsignedLong(desc->valid_slots);
    case RANK:
        return PyLong_FromUnsignedLong(desc->rank);
    case WORLD:
        return PyLong_FromUnsignedLong(desc->world);
    case BYTES:
        return PyLong_FromUnsignedLongLong(desc->total_bytes);
    case ADDRESS:
        break;
    }
    return PyLong_FromVoidPtr((void *)desc);
}

static PyObject *batch_mix(PyObject *self, void *closure)
{
    static const char *const kinds[] = {"none", "mixup", "cutmix"};
    const pst_mix *mix = &desc_of(self)->mix;
    (void)closure;
    if (mix->kind == PST_MIX_NONE)
        Py_RETURN_NONE;
    return Py_BuildValue("(sd(LLLL)N)", kinds[mix->kind], mix->lam, (long long)mix->y1,
                         (long long)mix->x1, (long long)mix->y2, (long long)mix->x2,
                         PyBool_FromLong(mix->done));
}

static PyObject *batch_mix_classes(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(desc_of(self)->mix.classes);
}

static PyMethodDef batch_methods[] = {
    {"info", batch_info, METH_O,
     "info(name) -> (kind, dtype, layout, packing, shape of one sample)"},
    {"view", batch_view, METH_O, "view(name) -> View of a dense or padded field"},
    {"shapes", batch_shapes, METH_O, "shapes(name) -> View of the slots' true shapes, or None"},
    {"slots", batch_slots, METH_O, "slots(name) -> list of one View per slot"},
    {"texts", batch_texts, METH_O, "texts(name) -> list of str, one per slot"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef batch_getset[] = {
    {"names", batch_names, NULL, "Names of all fields.", NULL},
    {"epoch", batch_number, NULL, NULL, (void *)EPOCH},
    {"step", batch_number, NULL, NULL, (void *)STEP},
    {"slot_count", batch_number, NULL, "Leading dimension of every field.", (void *)SLOTS},
    {"valid_count", batch_number, NULL, "Slots that are not padding.", (void *)VALID_SLOTS},
    {"rank", batch_number, NULL, NULL, (void *)RANK},
    {"world", batch_number, NULL, NULL, (void *)WORLD},
    {"nbytes", batch_number, NULL, "Bytes of descriptor and data.", (void *)BYTES},
    {"mix_classes", batch_mix_classes, NULL,
     "Classes that a batch op spreads labels over; 0 where the pipeline has none.", NULL},
    {"mix", batch_mix, NULL,
     "What the batch op drew, (kind, lam, (y1, x1, y2, x2), done), or None where it left the batch "
     "alone.",
     NULL},
    {"address", batch_number, NULL, "Address of the descriptor.", (void *)ADDRESS},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot batch_slots_table[] = {
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_methods, batch_methods},
    {Py_tp_getset, batch_getset},
    {Py_tp_doc, "One finished batch; its views keep it alive."},
    {0, NULL},
};

PyType_Spec pyp_batch_spec = {
    .name = "penstock._penstock.Batch",
    .basicsize = sizeof(batch_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = batch_slots_table,
};
