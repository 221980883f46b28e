/* SPDX-License-Identifier: Apache-2.0
 * Engines: a pool, its jobs, and the one list of bad samples. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "engine/engine_priv.h"

enum { IO_MOST = 128 }; /* reads under way, where the caller leaves it open */

enum { BAD_KEPT = 10000 }; /* beyond that bad samples are only counted, each time they are met */

/* What the pool of this process is made with, perhaps only when the daemon is lost. */
static int keep_texts(pst_engine *engine, const pst_engine_options *opts, pst_error *err)
{
    const char *disk = opts && opts->disk && *opts->disk ? opts->disk : NULL;
    const char *remote = opts && opts->remote && *opts->remote ? opts->remote : NULL;
    engine->disk = disk ? psti_strdup(PSTI_MEM_ENGINE, disk) : NULL;
    engine->remote = remote ? psti_strdup(PSTI_MEM_ENGINE, remote) : NULL;
    if ((disk && !engine->disk) || (remote && !engine->remote))
        return psti_fail(err, -ENOMEM, "engine", NULL, "out of memory while starting the engine");
    return 0;
}

int pst_engine_new(const pst_engine_options *opts, pst_engine **out, pst_error *err)
{
    pst_settings settings;
    int rc = pst_settings_resolve(opts, &settings, err);
    if (rc < 0)
        return rc;
    pst_engine *engine = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *engine);
    if (!engine)
        return psti_fail(err, -ENOMEM, "engine", NULL, "out of memory while starting the engine");
    pthread_mutex_init(&engine->lock, NULL);
    pthread_mutex_init(&engine->local_lock, NULL);
    pthread_mutex_init(&engine->leave_lock, NULL);
    engine->pid = getpid();
    engine->settings = settings;
    engine->started_ns = psti_now_ns();
    rc = keep_texts(engine, opts, err);
    if (rc < 0) {
        pst_engine_free(engine);
        return rc;
    }
    const bool by_itself = opts && opts->cache_bytes == PST_CACHE_AUTO;
    psti_pool_spec spec = {settings.workers,
                           settings.io_depth,
                           settings.io,
                           settings.memory_bytes,
                           by_itself ? PST_CACHE_AUTO : settings.cache_bytes,
                           {settings.forms[0], settings.forms[1], settings.forms[2]},
                           opts && opts->io_depth ? 0 : IO_MOST,
                           engine->disk,
                           engine->remote};
    rc = remote_engine(engine, opts, &spec, err);
    if (rc >= 0) {
        const int traced = trace_open(engine, opts, err);
        rc = traced < 0 ? traced : rc;
        spec.trace = engine->trace;
    }
    if (rc == 0)
        rc = psti_pool_new(&spec, &engine->pool, err);
    if (rc == 0)
        rc = watch_open(engine, opts, err);
    if (rc < 0) {
        pst_engine_free(engine);
        return rc;
    }
    if (!engine->link)
        engine->settings.io = psti_pool_io(engine->pool);
    *out = engine;
    return 0;
}

int pst_engine_check(pst_engine *engine, char **text)
{
    char *lines = NULL;
    size_t bytes;
    FILE *out = text ? open_memstream(&lines, &bytes) : NULL;
    const int wrong = psti_pool_check(engine->pool, out);
    if (out)
        fclose(out);
    if (text) /* a copy that pst_free knows */
        *text = psti_strdup(PSTI_MEM_ENGINE, lines ? lines : "");
    free(lines); /* lint: library memory */
    return wrong;
}

void pst_engine_free(pst_engine *engine)
{
    if (!engine || engine->pid != getpid())
        return; /* in a forked child there are no threads to stop, and the memory is the parent's
                   copy */
    watch_close(engine);
    for (;;) {
        pthread_mutex_lock(&engine->lock);
        pst_job *job = engine->jobs;
        pthread_mutex_unlock(&engine->lock);
        if (!job)
            break;
        job_detach(job);
    }
    remote_engine_free(engine);
    psti_pool_free(engine->pool);
    psti_trace_close(engine->trace);
    psti_free(engine->disk);
    psti_free(engine->remote);
    psti_free(engine->bad);
    pthread_mutex_destroy(&engine->local_lock);
    pthread_mutex_destroy(&engine->leave_lock);
    pthread_mutex_destroy(&engine->lock);
    psti_free(engine);
}

psti_budget *psti_engine_budget(pst_engine *engine)
{
    return psti_pool_budget(engine->pool);
}

psti_cache *psti_engine_cache(pst_engine *engine)
{
    return psti_pool_cache(engine->pool);
}

psti_pool *psti_engine_pool(pst_engine *engine)
{
    return engine->pool;
}

psti_disk *psti_engine_disk(pst_engine *engine)
{
    return psti_pool_disk(engine->pool);
}

void pst_engine_settings(const pst_engine *engine, pst_settings *out)
{
    *out = engine->settings;
}

/* ---- bad samples -------------------------------------------------------------------------------
 */

static bool known_bad_locked(const pst_engine *engine, const psti_dataset *data, int64_t id)
{
    for (size_t i = 0; i < engine->bad_count; i++)
        if (engine->bad[i].data == data && engine->bad[i].error.id == id)
            return true;
    return false;
}

static int keep_locked(pst_engine *engine, const psti_dataset *data, const pst_error *err)
{
    if (engine->bad_count == engine->bad_cap) {
        const size_t cap = engine->bad_cap ? 2 * engine->bad_cap : 16;
        bad_sample *larger = psti_realloc(PSTI_MEM_ENGINE, engine->bad, cap, sizeof *larger);
        if (!larger)
            return -ENOMEM;
        engine->bad = larger;
        engine->bad_cap = cap;
    }
    engine->bad[engine->bad_count++] = (bad_sample){*err, data};
    return 0;
}

static int64_t count_locked(const pst_engine *engine, const psti_dataset *data)
{
    int64_t count = 0;
    for (size_t i = 0; i < engine->bad_count; i++)
        count += engine->bad[i].data == data;
    return count;
}

/* One list for all jobs; a sample counts once however often it is met. On refusal err tells of the
 * limit. */
int engine_note_bad(pst_engine *engine, const psti_dataset *data, int64_t limit, pst_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&engine->lock);
    if (engine->bad_count >= BAD_KEPT)
        engine->bad_unlisted++;
    else if (!known_bad_locked(engine, data, err->id))
        rc = keep_locked(engine, data, err);
    const int64_t count = count_locked(engine, data) + engine->bad_unlisted;
    pthread_mutex_unlock(&engine->lock);
    if (rc == 0 && count > limit) {
        pst_error limited;
        rc = psti_fail(
            &limited, PST_ETOOMANYBAD, err->stage, NULL,
            "%lld bad samples, more than the %lld that may be skipped; the last one: %.300s",
            (long long)count, (long long)limit, err->message);
        memcpy(limited.key, err->key, sizeof limited.key);
        limited.id = err->id;
        limited.offset = err->offset;
        *err = limited;
    }
    return rc;
}

size_t pst_engine_bad_count(const pst_engine *engine)
{
    if (engine->pid != getpid())
        return 0;
    pthread_mutex_t *lock = (pthread_mutex_t *)&engine->lock;
    pthread_mutex_lock(lock);
    const size_t count = engine->bad_count;
    pthread_mutex_unlock(lock);
    return count;
}

int pst_engine_bad_get(const pst_engine *engine, size_t index, pst_error *out)
{
    if (engine->pid != getpid())
        return PST_EFORK;
    pthread_mutex_t *lock = (pthread_mutex_t *)&engine->lock;
    pthread_mutex_lock(lock);
    const bool there = index < engine->bad_count;
    if (there)
        *out = engine->bad[index].error;
    pthread_mutex_unlock(lock);
    return there ? 0 : -ENOENT;
}
