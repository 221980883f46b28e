/* SPDX-License-Identifier: Apache-2.0
 * Whether an engine is traced: the option `trace`, or $PENSTOCK_TRACE. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine_priv.h"

int trace_open(pst_engine *engine, const pst_engine_options *opts, pst_error *err)
{
    const char *path = opts ? opts->trace : NULL;
    const char *usual = getenv("PENSTOCK_TRACE");
    if (path && *path && engine->link)
        return psti_fail(err, -EINVAL, "trace", NULL,
                         "the daemon does the work, so it is traced there: penstock serve --trace "
                         "FILE");
    if (path)
        return *path ? psti_trace_open(&(psti_trace_spec){.path = path}, &engine->trace, err) : 0;
    if (!usual || !*usual || engine->link)
        return 0;
    pst_error why;
    psti_error_clear(&why);
    const psti_trace_spec spec = {.path = usual, .elsewhere = true};
    if (psti_trace_open(&spec, &engine->trace, &why) < 0) /* as with PENSTOCK_WATCH */
        psti_log(PSTI_LOG_WARN, "PENSTOCK_TRACE: %s", why.message);
    return 0;
}

void pst_engine_end_trace(pst_engine *engine)
{
    if (engine && engine->pid == getpid() && engine->trace)
        psti_trace_stop(engine->trace);
}
