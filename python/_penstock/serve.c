/* SPDX-License-Identifier: Apache-2.0
 *
 * A daemon in this interpreter's process, for the ranks of one machine: see penstock/_local.py. The
 * GIL is released while it serves. */
#include "binding.h"

#include <unistd.h>

/* From open to close. ready: where a line is written once clients may connect. */
static int serve(const pst_server_options *opts, int ready, pst_error *err)
{
    static const char line[] = "serving\n";
    pst_server *server = NULL;
    int rc = pst_server_open(opts, &server, err);
    if (rc < 0)
        return rc;
    if (write(ready, line, sizeof(line) - 1) == (ssize_t)sizeof(line) - 1)
        rc = pst_server_run(server, err);
    pst_server_close(server);
    return rc;
}

PyObject *pyp_serve(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dir",   "lifeline", "ready", "workers", "memory",
                            "cache", "forms",    "disk",  "remote",  NULL};
    pst_server_options opts;
    pst_error err = {0};
    int ready;
    pst_server_options_init(&opts);
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "s$iiiO&O&(ddd)zz:serve", names, &opts.dir, &opts.lifeline, &ready,
            &opts.engine.workers, pyp_as_u64, &opts.engine.memory_bytes, pyp_as_cache,
            &opts.engine.cache_bytes, &opts.engine.forms[0], &opts.engine.forms[1],
            &opts.engine.forms[2], &opts.engine.disk, &opts.engine.remote))
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    const int rc = serve(&opts, ready, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0)
        return pyp_raise(PyModule_GetState(module), &err, rc);
    Py_RETURN_NONE;
}

PyObject *pyp_served_dir(PyObject *module, PyObject *unused)
{
    (void)unused;
    char dir[4096];
    const int rc = pst_server_find(NULL, dir, sizeof(dir));
    return rc < 0 ? pyp_raise(PyModule_GetState(module), NULL, rc) : PyUnicode_DecodeFSDefault(dir);
}
