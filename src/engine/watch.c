/* SPDX-License-Identifier: Apache-2.0
 * Whether an engine of this process shows itself: the option `watch`, or $PENSTOCK_WATCH. What is
 * shown, and how, is the room serve's: it registers itself here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_priv.h"

static const psti_watch_ops *ops; /* set once, before main */

void psti_watch_register(const psti_watch_ops *table)
{
    ops = table;
}

static int open_at(pst_engine *engine, const char *where, pst_error *err)
{
    if (!ops)
        return psti_fail(err, -ENOTSUP, "watch", NULL,
                         "this build was made without libmicrohttpd: it cannot show itself");
    return ops->open(engine, where, &engine->watch, err);
}

int watch_open(pst_engine *engine, const pst_engine_options *opts, pst_error *err)
{
    const char *where = opts ? opts->watch : NULL;
    const char *usual = getenv("PENSTOCK_WATCH");
    if (where)
        return *where && strcmp(where, "off") != 0 ? open_at(engine, where, err) : 0;
    if (!usual || !*usual || strcmp(usual, "off") == 0 || engine->link)
        return 0;
    pst_error why;
    psti_error_clear(&why);
    if (open_at(engine, usual, &why) < 0) /* who did not ask for it himself need not have it */
        psti_log(PSTI_LOG_WARN, "PENSTOCK_WATCH: %s", why.message);
    return 0;
}

void pst_engine_end_watch(pst_engine *engine)
{
    if (engine && engine->pid == getpid())
        watch_close(engine);
}

void watch_close(pst_engine *engine)
{
    if (engine->watch)
        ops->close(engine->watch);
    engine->watch = NULL;
}
