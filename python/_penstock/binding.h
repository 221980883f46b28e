/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the extension module share: the module's state, the types' structs and the few
 * helpers that cross files. Everything here runs with the GIL held unless it says otherwise. Only
 * the limited API of CPython 3.11 and penstock.h are used, so one binary serves every later
 * CPython. Interpreters without a GIL have no limited API; the same calls are compiled for each of
 * them, and since the module does not claim to do without the GIL, importing it switches one on. */
#ifndef PENSTOCK_PYTHON_BINDING_H
#define PENSTOCK_PYTHON_BINDING_H

#include <pyconfig.h> /* says whether there is a GIL */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sys/types.h>

#include "penstock.h"

struct source;

/* Everything the module owns; no globals, so that each interpreter has its own. */
typedef struct module_state {
    struct source
        *sources; /* objects that read for datasets, see source.h; each leaves by itself */
    int ends;     /* the interpreter does: their functions are not called any more */
    PyTypeObject *engine_type, *dataset_type, *job_type, *batch_type, *view_type;
    PyTypeObject *prep_type, *seeder_type;
    PyObject *error, *pipeline_error, *state_error, *data_error, *setting_error;
} module_state;

typedef struct job_object job_object;

/* Closing an engine closes its jobs first, by the same way as their owners would. */
typedef struct engine_object {
    PyObject ob_base;
    pst_engine *engine; /* NULL once closed */
    pid_t pid;          /* of the process that made it: objects do not survive fork */
    int opening;        /* jobs being opened with the GIL released; closing is refused meanwhile */
    job_object *jobs;   /* those open, linked by `next`; borrowed, each leaves when it closes */
} engine_object;

struct job_object {
    PyObject ob_base;
    pst_job *job;          /* NULL once closed; changes under the GIL only */
    engine_object *engine; /* a reference, kept until the object goes */
    job_object *next;
    PyObject *dataset;       /* a reference, for what its reading raised */
    struct calls *calls;     /* the functions of its pipeline, or NULL; goes with the object */
    PyThread_type_lock lock; /* held by the consumer */
    pid_t pid;
    uint64_t turn; /* these two are written with the lock and the GIL held */
    int turn_is_over;
};

typedef struct dataset_object {
    PyObject ob_base;
    pst_dataset *data; /* never NULL after construction; freed with the object */
    pid_t pid;
    struct source *source; /* of a dataset that a Python object reads for; owned by data */
} dataset_object;

typedef struct batch_object {
    PyObject ob_base;
    pst_batch *batch;
    const pst_batch_desc *desc;
} batch_object;

/* A possibly strided window on memory that `owner` keeps alive. */
typedef struct view_object {
    PyObject ob_base;
    PyObject *owner;
    const void *data;
    int dtype, ndim;
    int writable;
    Py_ssize_t bytes, item_bytes;
    Py_ssize_t shape[PST_MAX_RANK + 1], strides[PST_MAX_RANK + 1];
} view_object;

/* The state behind any object of one of the module's types; none of them can be subclassed. */
static inline module_state *pyp_state(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* shared.c: atomic words for processes that share memory */
int pyp_shared_add(PyObject *module);

/* error.c */
int pyp_errors_add(PyObject *module);
/* A new exception object for `err`; code fills in where err has none. */
PyObject *pyp_error_object(const module_state *st, const pst_error *err, int code);
/* Raises it. Always returns NULL. err may be NULL. */
PyObject *pyp_raise(const module_state *st, const pst_error *err, int code);
/* Raises PST_EFORK and returns -1 when this is not the process that made the object. */
int pyp_check_pid(const module_state *st, pid_t pid, const char *what);
/* A str from bytes that should be UTF-8; what is not comes back through os.fsencode. */
PyObject *pyp_text(const char *text);
PyObject *pyp_text_bytes(const void *text, size_t bytes);
/* Puts value (a reference it takes, NULL passes an error on) under name. 0 or -1. */
int pyp_dict_take(PyObject *dict, const char *name, PyObject *value);

/* view.c */
extern PyType_Spec pyp_view_spec;
/* A view of dtype with ndim dimensions; shape is copied, first_stride is the step of the first one
 * in bytes (0 = packed). */
PyObject *pyp_view_new(const module_state *st, PyObject *owner, const void *data, int dtype,
                       int ndim, const int64_t *shape, size_t first_stride);
/* "u8", "f32", …; static storage. */
const char *pyp_dtype_name(int dtype);

/* dlpack.c: methods of View */
PyObject *pyp_view_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *pyp_view_dlpack_device(PyObject *self, PyObject *unused);

/* batch.c */
extern PyType_Spec pyp_batch_spec;
/* Takes over batch, also when it fails. */
PyObject *pyp_batch_take(const module_state *st, pst_batch *batch);
const char *pyp_kind_name(int kind);
const char *pyp_layout_name(int layout);

/* engine.c, dataset.c, job.c, prep.c, seed.c */
extern PyType_Spec pyp_engine_spec, pyp_dataset_spec, pyp_job_spec, pyp_prep_spec, pyp_seeder_spec;
PyObject *pyp_settings_dict(const pst_settings *settings);
/* Closes the job if it is open; a call under way in another thread gives up first. Releases the GIL
 * meanwhile. */
void pyp_job_stop(job_object *self);

/* call.c: functions that a pipeline runs */
/* From {name: function(View, seed)}. NULL with an exception. */
struct calls *pyp_calls_new(PyObject *module, PyObject *functions);
const pst_call *pyp_calls_table(const struct calls *calls, int *count);
struct source *pyp_calls_source(struct calls *calls);
/* Lets go of the functions, once nobody runs them any more; what they raised stays. */
void pyp_calls_drop(struct calls *calls);
void pyp_calls_free(void *calls);
/* job.c: the job that is open, or NULL with an exception */
pst_job *pyp_job_usable(PyObject *self);
/* job_facts.c: methods of Job */
PyObject *pyp_job_stats(PyObject *self, PyObject *unused);
PyObject *pyp_job_verdict(PyObject *self, PyObject *unused);
PyObject *pyp_job_finishes(PyObject *self, PyObject *unused);
PyObject *pyp_job_memory(PyObject *self, PyObject *unused);

/* files.c: a dataset from a list of paths */
PyObject *pyp_files_dataset(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *pyp_files_same(PyObject *self, PyObject *args);

/* custom.c, source.c: datasets that a Python object reads for */
PyObject *pyp_custom_dataset(PyObject *module, PyObject *args, PyObject *kwargs);
/* serve.c */
PyObject *pyp_serve(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *pyp_served_dir(PyObject *module, PyObject *unused);
/* depot.c: pulled datasets */
PyObject *pyp_pull(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *pyp_datasets(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *pyp_evict(PyObject *module, PyObject *args, PyObject *kwargs);
/* "Type: text (file:line)" into err's message. */
void pyp_exception_text(PyObject *exc, PyObject *trace, pst_error *err);
/* As pyp_raise; where the source's code is the reason, from the exception it raised. source may be
 * NULL. */
PyObject *pyp_raise_from(const module_state *st, struct source *source, const pst_error *err,
                         int code);
/* At the interpreter's end and in a forked child: module functions. */
PyObject *pyp_sources_end(PyObject *module, PyObject *unused);
PyObject *pyp_sources_after_fork(PyObject *module, PyObject *unused);
/* The GIL for a thread of any kind; PyGILState_Release gives it back. Safe beside forks, which
 * PyGILState_Ensure is not: see gil.c. init: at import, before any other thread. */
int pyp_gil_init(void);
PyGILState_STATE pyp_gil_take(void);

/* Whether this thread is in Python for the engine, which may be waiting for it: then nothing may be
 * waited for. pyp_later has run(arg) done elsewhere and answers 1; 0 when there is no need. */
int pyp_in_call(void);
/* Raises and returns -1 then. */
int pyp_refuse_in_call(const module_state *st);
int pyp_later(void (*run)(void *), void *arg);

/* parse.c */
/* O& converters: an integer in 0..2^64-1, or in the range of int64_t. */
int pyp_as_u64(PyObject *object, void *out);
int pyp_as_i64(PyObject *object, void *out);
/* The size of a cache: an integer, or "auto". */
int pyp_as_cache(PyObject *object, void *out);
/* The place of `word` in `words` (ended by NULL), or -1 with a ValueError that lists them. */
int pyp_pick(const char *what, const char *const *words, const char *word);

#endif
