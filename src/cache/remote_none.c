/* SPDX-License-Identifier: Apache-2.0
 * Built without hiredis: a remote tier is refused, so the rest is never called. */
#include <errno.h>
#include <string.h>

#include "cache/remote.h"
#include "core/status.h"

int psti_remote_check(const char *url, pst_error *err)
{
    (void)url;
    return psti_fail(
        err, -ENOSYS, "remote", NULL,
        "this build has no remote tier: install hiredis (libhiredis-dev on Debian) and "
        "build again, or build with -Dremote=enabled to be told what is missing");
}

int psti_remote_open(const psti_remote_spec *spec, psti_remote **out, pst_error *err)
{
    *out = NULL;
    return psti_remote_check(spec->url, err);
}

void psti_remote_close(psti_remote *remote)
{
    (void)remote;
}

bool psti_remote_answers(psti_remote *remote, const psti_cache_key *key)
{
    (void)remote;
    (void)key;
    return false;
}

void psti_remote_get(psti_remote *remote, psti_remote_op *op)
{
    (void)remote;
    op->done(op, -EAGAIN);
}

void psti_remote_take(psti_remote *remote, psti_remote_op *op)
{
    (void)remote;
    op->done(op, -EAGAIN);
}

void psti_remote_hurry(psti_remote *remote)
{
    (void)remote;
}

bool psti_remote_takes(const psti_remote *remote)
{
    (void)remote;
    return false;
}

psti_remote_put *psti_remote_put_begin(psti_remote *remote, const psti_cache_key *key, size_t size)
{
    (void)remote;
    (void)key;
    (void)size;
    return NULL;
}

uint8_t *psti_remote_put_bytes(psti_remote_put *put)
{
    (void)put;
    return NULL;
}

void psti_remote_put_life(psti_remote_put *put, uint64_t ms)
{
    (void)put;
    (void)ms;
}

void psti_remote_put_send(psti_remote *remote, psti_remote_put *put, psti_remote_op *claimed)
{
    (void)remote;
    (void)put;
    (void)claimed;
}

void psti_remote_put_cancel(psti_remote *remote, psti_remote_put *put)
{
    (void)remote;
    (void)put;
}

void psti_remote_release(psti_remote *remote, psti_remote_op *claimed)
{
    (void)remote;
    (void)claimed;
}

void psti_remote_stats_get(psti_remote *remote, psti_remote_stats *out)
{
    (void)remote;
    memset(out, 0, sizeof *out);
}

double psti_remote_bandwidth(const psti_remote *remote)
{
    (void)remote;
    return 0;
}

size_t psti_remote_buffers(const psti_remote *remote)
{
    (void)remote;
    return 0;
}

double psti_remote_handling(const psti_remote *remote)
{
    (void)remote;
    return 0;
}

const char *psti_remote_name(const psti_remote *remote)
{
    (void)remote;
    return "";
}
