/* SPDX-License-Identifier: Apache-2.0
 * Options to settings: what a machine of this size gets by default, and what is refused. Pure but
 * for reading /proc and /sys. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/remote.h"
#include "core/cpu.h"
#include "core/quota.h"
#include "engine/engine_priv.h"

static const uint64_t MEMORY_LEAST = 16u << 20, MEMORY_MOST = 8ull << 30, CACHE_LEAST = 64u << 10;

void pst_engine_options_init(pst_engine_options *opts)
{
    memset(opts, 0, sizeof *opts);
    opts->size = sizeof *opts;
}

static uint64_t default_memory(uint64_t may_have)
{
    uint64_t memory = may_have / 4;
    if (memory > MEMORY_MOST)
        memory = MEMORY_MOST;
    return memory < MEMORY_LEAST ? MEMORY_LEAST : memory;
}

/* What a cache leaves of a budget for samples on their way and for the rings of jobs. */
static uint64_t beside_cache(uint64_t memory)
{
    return psti_cache_auto_work(memory) + memory / 16;
}

static bool cache_given(const pst_engine_options *o)
{
    return o->cache_bytes != 0 && o->cache_bytes != PST_CACHE_AUTO;
}

/* Who asks for a cache of some size and says nothing of memory wants that cache: the budget grows
 * with it, and everything else has what it would have beside a cache of the default's own. */
static uint64_t resolve_memory(const pst_engine_options *o, uint64_t may_have)
{
    const uint64_t usual = default_memory(may_have);
    uint64_t with_cache;
    if (o->memory_bytes)
        return o->memory_bytes;
    if (!cache_given(o))
        return usual;
    if (__builtin_add_overflow(o->cache_bytes, beside_cache(usual), &with_cache))
        return UINT64_MAX;
    return with_cache > usual ? with_cache : usual;
}

/* auto: what a budget without jobs would leave; their rings make it less. */
static uint64_t resolve_cache(const pst_engine_options *o, uint64_t memory)
{
    if (o->cache_bytes != PST_CACHE_AUTO)
        return o->cache_bytes;
    const uint64_t others = beside_cache(memory);
    return memory > others ? memory - others : 0;
}

static int check_cache(const pst_settings *s, pst_error *err)
{
    if (s->cache_bytes > 0 && s->cache_bytes < CACHE_LEAST)
        return psti_fail(err, -EINVAL, "settings", NULL,
                         "a cache of %llu bytes holds nothing; 0, or at least 64 KiB",
                         (unsigned long long)s->cache_bytes);
    if (s->cache_bytes == 0 || s->cache_bytes <= s->memory_bytes - MEMORY_LEAST)
        return 0;
    return psti_fail(err, PST_EBUDGET, "settings", NULL,
                     "a cache of %.1f MiB leaves less than 16 MiB of the budget of %.1f MiB; give "
                     "more memory, a smaller cache, or auto",
                     (double)s->cache_bytes / 0x1p20, (double)s->memory_bytes / 0x1p20);
}

static int check_forms(const double forms[3], pst_error *err)
{
    for (int i = 0; i < 3; i++)
        if (!(forms[i] >= 0 && forms[i] <= 1))
            return psti_fail(err, -EINVAL, "settings", NULL,
                             "forms are shares of the cache, each from 0 to 1; not %g", forms[i]);
    return 0;
}

static int check(const pst_engine_options *o, const pst_settings *s, pst_error *err)
{
    if (o->size != sizeof *o)
        return psti_fail(err, -EINVAL, "settings", NULL,
                         "options of another version; call pst_engine_options_init");
    if (o->workers < 0 || o->workers > 1024)
        return psti_fail(err, -EINVAL, "settings", NULL, "workers must be 0..1024, not %d",
                         o->workers);
    if (o->io_depth < 0 || o->io_depth > 1024)
        return psti_fail(err, -EINVAL, "settings", NULL, "io_depth must be 0..1024, not %d",
                         o->io_depth);
    if (o->io < PST_IO_AUTO || o->io > PST_IO_THREADS)
        return psti_fail(err, -EINVAL, "settings", NULL, "io must be auto, uring or threads");
    const int rc = check_forms(o->forms, err);
    if (rc < 0)
        return rc;
    if (s->memory_bytes < MEMORY_LEAST)
        return psti_fail(err, PST_EBUDGET, "settings", NULL,
                         "a budget of %.1f MiB is too small; at least 16 MiB",
                         (double)s->memory_bytes / 0x1p20);
    if (s->memory_bytes > s->may_have && !o->memory_bytes && cache_given(o))
        return psti_fail(
            err, PST_EBUDGET, "settings", NULL,
            "a cache of %.1f MiB, and %.1f MiB beside it for batches and samples on their way, are "
            "more than the %.1f MiB that this process may have; take a smaller cache, auto, or say "
            "how much memory there is to be for everything",
            (double)s->cache_bytes / 0x1p20, (double)(s->memory_bytes - s->cache_bytes) / 0x1p20,
            (double)s->may_have / 0x1p20);
    if (s->memory_bytes > s->may_have)
        return psti_fail(
            err, PST_EBUDGET, "settings", NULL,
            "a budget of %.1f MiB is more than the %.1f MiB that this process may have",
            (double)s->memory_bytes / 0x1p20, (double)s->may_have / 0x1p20);
    return o->cache_bytes == PST_CACHE_AUTO ? 0 : check_cache(s, err);
}

static int resolve_tiers(const pst_engine_options *o, pst_settings *s, pst_error *err)
{
    psti_disk_spec disk = {0};
    s->remote = o->remote && *o->remote;
    int rc = s->remote ? psti_remote_check(o->remote, err) : 0;
    if (rc < 0 || !o->disk || !*o->disk)
        return rc;
    rc = psti_disk_parse(o->disk, &disk, err);
    s->disk_bytes = disk.bytes;
    psti_free(disk.dir);
    return rc;
}

int pst_settings_resolve(const pst_engine_options *opts, pst_settings *out, pst_error *err)
{
    pst_engine_options o;
    pst_engine_options_init(&o);
    if (opts)
        o = *opts;
    memset(out, 0, sizeof *out);
    /* PENSTOCK_QUOTA_ROOT: a directory that stands for / when looking at quotas, to see what
     * another machine would get. */
    const char *root = getenv("PENSTOCK_QUOTA_ROOT");
    out->cpus = psti_quota_cpus(root ? root : "");
    out->may_have = psti_quota_memory(root ? root : "");
    out->workers = o.workers ? o.workers : out->cpus > 2 ? out->cpus - 1 : out->cpus;
    out->io_depth = o.io_depth ? o.io_depth : 32;
    out->io = o.io;
    out->memory_bytes = resolve_memory(&o, out->may_have);
    memcpy(out->forms, o.forms, sizeof out->forms);
    out->cache_bytes = resolve_cache(&o, out->memory_bytes);
    snprintf(out->cpu, sizeof out->cpu, "%s", psti_cpu_name(psti_cpu_level()));
    const int rc = check(&o, out, err);
    return rc < 0 ? rc : resolve_tiers(&o, out, err);
}
