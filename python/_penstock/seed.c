/* SPDX-License-Identifier: Apache-2.0
 *
 * Seeder: gives Python's, NumPy's and torch's generators the seed of a sample, for workers that
 * take a sample every microsecond. All three are the Mersenne twister; their own seed functions
 * need some 15 us together, since each fills 624 words one from the other. Here the words of a
 * group of samples are made side by side, and seeding is a copy of them into the generators' own
 * memory, which the caller found and compared with what their own functions leave there.
 *
 * NumPy and torch keep a second normal number beside the words. It can only be there if somebody
 * drew since the last seed, and then the words are not those written: their own functions are
 * called in that case. */
#include "binding.h"

#include <stdint.h>
#include <string.h>

enum { WORDS = 624, GROUP = 16 };

#define PYTHON_BYTES (4 + 4 * WORDS)
#define NUMPY_BYTES  (4 * WORDS + 4)
#define TORCH_BYTES  (20 + 4 * WORDS)

/* The generators' states after a seed. `plain` is NumPy's and torch's, `python` is Python's. */
typedef struct slot {
    uint64_t seed;
    uint32_t plain[WORDS], python[WORDS];
} slot;

typedef struct seeder_object {
    PyObject ob_base;
    Py_buffer python;                  /* int next; words */
    Py_buffer numpy;                   /* words; int next */
    Py_buffer torch;                   /* uint64 seed; int left; bool seeded; uint32 next; words */
    PyObject *owner;                   /* the random.Random whose memory `python` is */
    PyObject *gauss_next;              /* the name of its attribute */
    PyObject *seed_numpy, *seed_torch; /* the libraries' own functions */
    void (*fill)(struct seeder_object *); /* for this processor */
    int count;                            /* samples prepared */
    int written;                          /* the slot last written, or -1 */
    slot slots[GROUP + 1];                /* the last: what was written before the group came */
    uint32_t base[WORDS];                 /* where Python's way of seeding starts from */
    uint32_t plain[WORDS * GROUP], python_lanes[WORDS * GROUP];
} seeder_object;

/* 64 well-mixed bits: the finaliser of splitmix64 over the three. */
static uint64_t mixed(uint64_t epoch_seed, uint64_t position, uint64_t number)
{
    uint64_t x = epoch_seed + (position + 1) * 0x9E3779B97F4A7C15u + number * 0xD1342543DE82EF95u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline uint32_t folded(uint32_t word)
{
    return word ^ (word >> 30);
}

/* The words of `lanes` samples, those with the same number side by side. */
#define LANES_INLINE static inline __attribute__((always_inline))

/* NumPy and torch: the twister's seeding with one number. */
LANES_INLINE void plain_step(uint32_t *words, uint32_t i, int lanes)
{
    const uint32_t *before = words + (i - 1) * (uint32_t)lanes;
    for (int l = 0; l < lanes; l++)
        words[i * (uint32_t)lanes + (uint32_t)l] = 1812433253u * folded(before[l]) + i;
}

/* Python: its seeding with an array, which goes round the words twice, beginning with the base.
 * key: the array's number that is added, with its place. */
LANES_INLINE void first_round(uint32_t *words, const uint32_t *before, uint32_t base,
                              const uint32_t *key, int lanes)
{
    for (int l = 0; l < lanes; l++)
        words[l] = (base ^ (folded(before[l]) * 1664525u)) + key[l];
}

LANES_INLINE void second_round(uint32_t *words, const uint32_t *before, uint32_t i, int lanes)
{
    for (int l = 0; l < lanes; l++)
        words[l] = (words[l] ^ (folded(before[l]) * 1566083941u)) - i;
}

LANES_INLINE void fill_lanes(uint32_t *plain, uint32_t *python, const uint32_t *base,
                             const uint32_t *low, const uint32_t *high, int lanes)
{
    uint32_t key[2][GROUP]; /* of a number below 2^32 Python makes an array of one */
    for (int l = 0; l < lanes; l++) {
        plain[l] = key[0][l] = low[l];
        key[1][l] = high[l] != 0 ? high[l] + 1 : low[l];
        python[l] = base[0];
    }
    uint32_t *const last = python + (WORDS - 1) * lanes, *const second = python + lanes;
    for (uint32_t i = 1; i < WORDS; i++) { /* together: each word waits for the one before */
        uint32_t *at = python + i * (uint32_t)lanes;
        plain_step(plain, i, lanes);
        first_round(at, at - lanes, base[i], key[(i - 1) & 1], lanes);
    }
    for (int l = 0; l < lanes; l++)
        second[l] = (second[l] ^ (folded(last[l]) * 1664525u)) + key[(WORDS - 1) & 1][l];
    for (uint32_t i = 2; i < WORDS; i++) {
        uint32_t *at = python + i * (uint32_t)lanes;
        second_round(at, at - lanes, i, lanes);
    }
    second_round(second, last, 1, lanes);
    for (int l = 0; l < lanes; l++)
        python[l] = 0x80000000u;
}

typedef uint32_t four __attribute__((vector_size(16)));

/* Four words of four samples from lanes to slots: a word is the same member in each slot. */
LANES_INLINE void spread_four(const uint32_t *from, uint32_t *to)
{
    const size_t next = sizeof(slot) / sizeof(uint32_t);
    four row[4];
    for (int k = 0; k < 4; k++)
        memcpy(&row[k], from + (size_t)k * GROUP, sizeof(four));
    const four a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const four b = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const four c = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const four d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    row[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    row[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    row[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    row[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
    for (int k = 0; k < 4; k++)
        memcpy(to + (size_t)k * next, &row[k], sizeof(four));
}

LANES_INLINE void fill_slots(seeder_object *self)
{
    uint32_t low[GROUP], high[GROUP];
    for (int l = 0; l < GROUP; l++) {
        low[l] = (uint32_t)self->slots[l].seed;
        high[l] = (uint32_t)(self->slots[l].seed >> 32);
    }
    fill_lanes(self->plain, self->python_lanes, self->base, low, high, GROUP);
    for (int i = 0; i < WORDS; i += 4)
        for (int l = 0; l < GROUP; l += 4) {
            spread_four(self->plain + i * GROUP + l, &self->slots[l].plain[i]);
            spread_four(self->python_lanes + i * GROUP + l, &self->slots[l].python[i]);
        }
}

static void fill_one(seeder_object *self)
{
    slot *to = &self->slots[0];
    const uint32_t low = (uint32_t)to->seed, high = (uint32_t)(to->seed >> 32);
    fill_lanes(to->plain, to->python, self->base, &low, &high, 1);
}

static void fill_group(seeder_object *self)
{
    fill_slots(self);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void fill_group_avx2(seeder_object *self)
{
    fill_slots(self);
}
#endif

static int buffer_take(PyObject *object, Py_buffer *out, Py_ssize_t bytes)
{
    if (PyObject_GetBuffer(object, out, PyBUF_WRITABLE) < 0)
        return -1;
    if (out->len == bytes)
        return 0;
    PyErr_SetString(PyExc_ValueError, "a generator's memory has another size");
    return -1;
}

static void seeder_dealloc(PyObject *object)
{
    seeder_object *self = (seeder_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_buffer *const buffers[] = {&self->python, &self->numpy, &self->torch};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(*buffers); i++)
        if (buffers[i]->obj != NULL)
            PyBuffer_Release(buffers[i]);
    Py_XDECREF(self->owner);
    Py_XDECREF(self->gauss_next);
    Py_XDECREF(self->seed_numpy);
    Py_XDECREF(self->seed_torch);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *seeder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"python", "numpy", "torch", "owner", "seed_numpy", "seed_torch", NULL};
    PyObject *python, *numpy, *torch, *owner, *seed_numpy, *seed_torch;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOO:Seeder", names, &python, &numpy, &torch,
                                     &owner, &seed_numpy, &seed_torch))
        return NULL;
    seeder_object *self = (seeder_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->fill = fill_group;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        self->fill = fill_group_avx2;
#endif
    self->written = -1;
    self->owner = Py_NewRef(owner);
    self->gauss_next = PyUnicode_InternFromString("gauss_next");
    self->seed_numpy = Py_NewRef(seed_numpy);
    self->seed_torch = Py_NewRef(seed_torch);
    self->base[0] = 19650218u;
    for (uint32_t i = 1; i < WORDS; i++)
        plain_step(self->base, i, 1);
    if (self->gauss_next == NULL || buffer_take(python, &self->python, PYTHON_BYTES) < 0 ||
        buffer_take(numpy, &self->numpy, NUMPY_BYTES) < 0 ||
        buffer_take(torch, &self->torch, TORCH_BYTES) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* prepare(epoch_seed, position, indices, first): the seeds of indices[first:], as many as one group
 * has; their number. position is that of indices[0]. */
static PyObject *seeder_prepare(PyObject *object, PyObject *args)
{
    seeder_object *self = (seeder_object *)object;
    PyObject *epoch_seed, *indices;
    Py_ssize_t position, first;
    if (!PyArg_ParseTuple(args, "O!nO!n:prepare", &PyLong_Type, &epoch_seed, &position,
                          &PyList_Type, &indices, &first))
        return NULL;
    const Py_ssize_t left = PyList_Size(indices) - first;
    if (first < 0 || left < 1) {
        PyErr_SetString(PyExc_IndexError, "no such sample");
        return NULL;
    }
    if (self->written >= 0) {
        self->slots[GROUP] = self->slots[self->written];
        self->written = GROUP;
    }
    const uint64_t epoch = PyLong_AsUnsignedLongLongMask(epoch_seed);
    self->count = left < GROUP ? (int)left : GROUP;
    for (int l = 0; l < self->count; l++) {
        PyObject *index = PyList_GetItem(indices, first + l);
        const uint64_t number = PyLong_CheckExact(index) ? PyLong_AsUnsignedLongLongMask(index) : 0;
        self->slots[l].seed = mixed(epoch, (uint64_t)(position + first + l), number);
    }
    if (self->count == 1)
        fill_one(self);
    else
        self->fill(self);
    return PyLong_FromLong(self->count);
}

static void write_python(const seeder_object *self, const slot *to)
{
    const int32_t next = WORDS;
    memcpy(self->python.buf, &next, 4);
    memcpy((char *)self->python.buf + 4, to->python, 4 * WORDS);
}

/* Both ends of the words are as `last` has them. After the first draw none is. */
static int words_are(const char *words, const slot *last)
{
    enum { SOME = 8 };
    return memcmp(words, last->plain, 4 * SOME) == 0 &&
           memcmp(words + 4 * (WORDS - SOME), last->plain + WORDS - SOME, 4 * SOME) == 0;
}

/* Whether nobody drew from it since `last` was written. */
static int numpy_is_at(const seeder_object *self, const slot *last)
{
    const int32_t next = WORDS;
    const char *at = self->numpy.buf;
    return memcmp(at + 4 * WORDS, &next, 4) == 0 && words_are(at, last);
}

static int torch_is_at(const seeder_object *self, const slot *last)
{
    const int32_t left = 1;
    const uint32_t next = 0;
    const char *at = self->torch.buf;
    return memcmp(at, &last->seed, 8) == 0 && memcmp(at + 8, &left, 4) == 0 && at[12] == 1 &&
           memcmp(at + 16, &next, 4) == 0 && words_are(at + 20, last);
}

/* Takes over `number`. 0 or -1. */
static int call(PyObject *function, PyObject *number)
{
    PyObject *result = number != NULL ? PyObject_CallFunctionObjArgs(function, number, NULL) : NULL;
    Py_XDECREF(number);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* seed(n): the generators are now those of sample n of the group */
static PyObject *seeder_seed(PyObject *object, PyObject *number)
{
    seeder_object *self = (seeder_object *)object;
    const long n = PyLong_AsLong(number);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (n < 0 || n >= self->count) {
        PyErr_SetString(PyExc_IndexError, "no such sample in the group");
        return NULL;
    }
    const slot *to = &self->slots[n];
    const slot *last = self->written >= 0 ? &self->slots[self->written] : NULL;
    self->written = -1; /* until both are written */
    if (PyObject_SetAttr(self->owner, self->gauss_next, Py_None) < 0)
        return NULL;
    write_python(self, to);
    if (last != NULL && numpy_is_at(self, last))
        memcpy(self->numpy.buf, to->plain, 4 * WORDS);
    else if (call(self->seed_numpy, PyLong_FromUnsignedLong((uint32_t)to->seed)) < 0)
        return NULL;
    if (last != NULL && torch_is_at(self, last)) {
        memcpy(self->torch.buf, &to->seed, 8);
        memcpy((char *)self->torch.buf + 20, to->plain, 4 * WORDS);
    } else if (call(self->seed_torch, PyLong_FromUnsignedLongLong(to->seed)) < 0) {
        return NULL;
    }
    self->written = (int)n;
    Py_RETURN_NONE;
}

static PyMethodDef seeder_methods[] = {
    {"prepare", seeder_prepare, METH_VARARGS,
     "prepare(epoch_seed, position, indices, first) -> how many samples of indices[first:] are "
     "prepared"},
    {"seed", seeder_seed, METH_O, "seed(n): seeds the generators for sample n of those prepared"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot seeder_slots[] = {
    {Py_tp_new, seeder_new},
    {Py_tp_dealloc, seeder_dealloc},
    {Py_tp_methods, seeder_methods},
    {Py_tp_doc, "Seeder(python, numpy, torch, owner, seed_numpy, seed_torch)\n\nSeeds three "
                "generators for samples, through their memory."},
    {0, NULL},
};

PyType_Spec pyp_seeder_spec = {
    .name = "penstock._penstock.Seeder",
    .basicsize = sizeof(seeder_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = seeder_slots,
};
