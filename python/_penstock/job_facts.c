/* SPDX-License-Identifier: Apache-2.0
 *
 * What a Job tells of itself as Python objects: figures, what is left to be done to raw pictures,
 * and where its ring lies. */
#include "binding.h"

#include <errno.h>

/* [(name, runs, seconds), …] in pipeline order. */
static PyObject *stages_list(const pst_job_stats *stats)
{
    const Py_ssize_t count =
        stats->stage_count < PST_STAGES_MAX ? stats->stage_count : PST_STAGES_MAX;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        const pst_stage_stats *stage = &stats->stages[i];
        PyObject *item = Py_BuildValue("(sKd)", stage->name, (unsigned long long)stage->runs,
                                       (double)stage->total_ns * 1e-9);
        if (item == NULL || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *number(uint64_t value)
{
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *seconds(uint64_t ns)
{
    return PyFloat_FromDouble((double)ns * 1e-9);
}

/* What batches and samples that are kept come to. */
static int add_memory_stats(PyObject *dict, const pst_job_stats *s)
{
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"fresh_batches", s->fresh_batches},
        {"cache_hits", s->cache_hits},
        {"cache_misses", s->cache_misses},
        {"cache_bytes", s->cache_bytes},
        {"cache_entries", s->cache_entries},
        {"preparations", s->preparations},
        {"encoded_hits", s->encoded_hits},
        {"decoded_hits", s->cache_hits},
        {"augmented_hits", s->shared_hits},
        {"evictions", s->evictions},
        {"slow_samples", s->slow_samples},
        {"slow_parked", s->slow_parked},
        {"active_workers", s->active_workers},
        {"stragglers", s->stragglers},
        {"slow_early", s->slow_early},
        {"prediction_error_ppm", s->prediction_error_ppm},
        {"disk_hits", s->disk_hits},
        {"disk_misses", s->disk_misses},
        {"disk_read_bytes", s->disk_read_bytes},
        {"disk_entries", s->disk_entries},
        {"disk_bytes", s->disk_bytes},
        {"disk_written", s->disk_written},
        {"disk_evicted", s->disk_evicted},
        {"disk_dropped", s->disk_dropped},
        {"disk_damaged", s->disk_damaged},
        {"disk_errors", s->disk_errors},
        {"disk_off", s->disk_off},
        {"remote_hits", s->remote_hits},
        {"remote_misses", s->remote_misses},
        {"remote_read_bytes", s->remote_read_bytes},
        {"remote_errors", s->remote_errors},
        {"remote_bytes_s", s->remote_bytes_s},
        {"remote_left", s->remote_left},
        {"adopted", s->adopted},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (pyp_dict_take(dict, all[i].name, number(all[i].value)) < 0)
            return -1;
    return 0;
}

PyObject *pyp_job_stats(PyObject *self, PyObject *unused)
{
    (void)unused;
    const pst_job *job = pyp_job_usable(self);
    if (job == NULL)
        return NULL;
    pst_job_stats s = {.size = sizeof(s)};
    pst_job_stats_get(job, &s);
    PyObject *dict = Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N}", "samples", number(s.samples),
        "batches", number(s.batches), "skipped", number(s.skipped), "pads", number(s.pads),
        "warnings", number(s.warnings), "waits", number(s.waits), "wait_s", seconds(s.wait_ns),
        "wait_p50_s", seconds(s.wait_p50_ns), "wait_p99_s", seconds(s.wait_p99_ns), "first_batch_s",
        seconds(s.first_batch_ns), "bytes_read", number(s.bytes_read), "peak_bytes",
        number(s.peak_bytes), "ready_depth", number(s.ready_depth), "stages", stages_list(&s));
    if (dict != NULL && (add_memory_stats(dict, &s) < 0 ||
                         pyp_dict_take(dict, "read_away_s", seconds(s.read_away_ns)) < 0))
        Py_CLEAR(dict);
    return dict;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static PyObject *numbers_dict(const pst_verdict *v)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < v->number_count; i++)
        if (pyp_dict_take(dict, v->numbers[i].name, PyFloat_FromDouble(v->numbers[i].value)) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *help_list(const pst_verdict *v)
{
    PyObject *list = PyList_New(v->help_count);
    for (int i = 0; list != NULL && i < v->help_count; i++) {
        const pst_verdict_help *h = &v->help[i];
        PyObject *item =
            Py_BuildValue("{s:s,s:d,s:s,s:d,s:d}", "what", h->what, "amount", h->amount, "unit",
                          h->unit, "rate", h->rate, "stall", h->stall);
        if (item == NULL || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *pyp_job_verdict(PyObject *self, PyObject *unused)
{
    (void)unused;
    pst_job *job = pyp_job_usable(self);
    if (job == NULL)
        return NULL;
    pst_verdict v = {.size = sizeof(v)};
    const int rc = pst_job_verdict(job, &v);
    if (rc < 0) {
        pyp_raise(pyp_state(self), NULL, rc);
        return NULL;
    }
    return Py_BuildValue("{s:s,s:s,s:d,s:N,s:N}", "kind", pst_verdict_name(v.kind), "text", v.text,
                         "stall", v.stall, "numbers", numbers_dict(&v), "help", help_list(&v));
}

static PyObject *four_doubles(const double v[4])
{
    return Py_BuildValue("(dddd)", v[0], v[1], v[2], v[3]);
}

static PyObject *four_floats(const float v[4])
{
    const double wide[4] = {(double)v[0], (double)v[1], (double)v[2], (double)v[3]};
    return four_doubles(wide);
}

static PyObject *finish_dict(const pst_finish_info *f)
{
    return Py_BuildValue("{s:O,s:i,s:s,s:s,s:N,s:N,s:N,s:N}", "normalize",
                         f->normalize ? Py_True : Py_False, "channels", f->channels, "dtype",
                         pyp_dtype_name(f->dtype), "layout", pyp_layout_name(f->layout), "mean",
                         four_doubles(f->mean), "std", four_doubles(f->std), "scale",
                         four_floats(f->scale), "bias", four_floats(f->bias));
}

/* finishes(): {field: what is left to do to its pictures} for raw_finish; else empty */
PyObject *pyp_job_finishes(PyObject *self, PyObject *unused)
{
    (void)unused;
    const pst_job *job = pyp_job_usable(self);
    PyObject *all = job == NULL ? NULL : PyDict_New();
    pst_field_info field;
    for (int i = 0; all != NULL && pst_job_field(job, i, &field) == 0; i++) {
        pst_finish_info f = {.size = sizeof(f)};
        if (pst_job_finish(job, field.name, &f) < 0 || !f.raw)
            continue;
        if (pyp_dict_take(all, field.name, finish_dict(&f)) < 0)
            Py_CLEAR(all);
    }
    return all;
}

/* memory(): [(address, bytes), ...] of the ring's blocks */
PyObject *pyp_job_memory(PyObject *self, PyObject *unused)
{
    (void)unused;
    const pst_job *job = pyp_job_usable(self);
    PyObject *list = job == NULL ? NULL : PyList_New(0);
    void *base;
    size_t bytes;
    int rc = 0;
    for (int i = 0; list != NULL && (rc = pst_job_memory(job, i, &base, &bytes)) == 0; i++) {
        PyObject *item = Py_BuildValue("(NN)", PyLong_FromVoidPtr(base), PyLong_FromSize_t(bytes));
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    if (list != NULL && rc != -ENOENT) {
        Py_CLEAR(list);
        pyp_raise(pyp_state(self), NULL, rc);
    }
    return list;
}
