/* SPDX-License-Identifier: Apache-2.0
 * A daemon and its clients in one process, as threads, so that sanitizers see both sides of every
 * lock: the same batches, states and errors as embedded; batches kept and released by other
 * threads; restarts; a daemon that ends in mid-epoch; every allocation made to fail in turn. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "core/memory.h"
#include "engine/engine_kit.h"
#include "serve/server.h"

enum { IMAGES = 120, BATCH = 8, CLIENTS = 4 };
static const int64_t patience = 60000000000;

static char *folder, *place;
static pst_dataset *data;

/* ---- a daemon as a thread -------------------------------------------------------------------- */

typedef struct daemon_thread {
    pst_server *server;
    pthread_t thread;
} daemon_thread;

static void *serve(void *arg)
{
    CHECK(pst_server_run(arg, NULL) == 0);
    return NULL;
}

static void start_with(daemon_thread *d, uint64_t cache, const double forms[3])
{
    pst_server_options o;
    pst_error err = {0};
    pst_server_options_init(&o);
    o.dir = place;
    o.engine.cache_bytes = cache;
    memcpy(o.engine.forms, forms, sizeof o.engine.forms);
    o.engine.workers = 2;
    o.engine.memory_bytes = 64u << 20;
    o.client_cap = 1u << 20;
    if (pst_server_open(&o, &d->server, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    CHECK(pthread_create(&d->thread, NULL, serve, d->server) == 0);
}

static void start(daemon_thread *d)
{
    static const double as_it_pays[3];
    start_with(d, 0, as_it_pays);
}

static void stop(daemon_thread *d)
{
    pst_server_stop(d->server);
    pthread_join(d->thread, NULL);
    pst_server_close(d->server);
}

static pst_engine *client(void)
{
    char address[256];
    pst_engine_options o;
    pst_engine *engine = NULL;
    pst_error err = {0};
    pst_engine_options_init(&o);
    snprintf(address, sizeof address, "unix:%s", place);
    o.address = address;
    o.workers = 2;
    o.memory_bytes = 64u << 20;
    if (pst_engine_new(&o, &engine, &err) < 0)
        fprintf(stderr, "%s\n", err.message);
    return engine;
}

static pst_job_options options(int order, uint64_t epochs)
{
    pst_job_options o = kit_options(KIT_PIPELINE, BATCH, 9, epochs);
    o.order = order;
    return o;
}

static bool same(ledger *a, ledger *b, int order)
{
    if (order == PST_ORDER_STRICT)
        return ledger_same_order(a, b);
    ledger_sort(a);
    ledger_sort(b);
    return ledger_same(a, b);
}

static void embedded(const pst_job_options *o, ledger *out)
{
    pst_engine *engine = kit_engine(2, 64u << 20);
    pst_job *job = kit_job(engine, data, o);
    CHECK(kit_collect(job, o->rank, o->epochs, SIZE_MAX, out) == 0);
    pst_job_close(job);
    pst_engine_free(engine);
}

/* ---- clients at the same time ---------------------------------------------------------------- */

typedef struct run {
    pst_job_options o;
    ledger lines;
    pthread_t thread;
} run;

static void *consume(void *arg)
{
    run *r = arg;
    pst_engine *engine = client();
    CHECK(engine != NULL);
    pst_job *job = kit_job(engine, data, &r->o);
    CHECK(kit_collect(job, r->o.rank, r->o.epochs, SIZE_MAX, &r->lines) == 0);
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(job, &s);
    CHECK(s.samples == (r->o.rank ? 56u : 64u) * r->o.epochs && s.bytes_read > 0);
    pst_job_close(job);
    pst_engine_free(engine);
    return NULL;
}

static void several_at_once(void)
{
    daemon_thread d;
    run runs[CLIENTS] = {0};
    start(&d);
    for (int i = 0; i < CLIENTS; i++) {
        runs[i].o = options(i % 2, 3);
        runs[i].o.rank = i / 2;
        runs[i].o.world = 2;
        pthread_create(&runs[i].thread, NULL, consume, &runs[i]);
    }
    for (int i = 0; i < CLIENTS; i++) {
        ledger alone = {0};
        embedded(&runs[i].o, &alone);
        pthread_join(runs[i].thread, NULL);
        CHECK(same(&alone, &runs[i].lines, i % 2));
        ledger_free(&alone);
        ledger_free(&runs[i].lines);
    }
    stop(&d);
}

/* ---- one client ------------------------------------------------------------------------------ */

static pst_batch *next(pst_job *job)
{
    pst_batch *b = NULL;
    int rc;
    while ((rc = pst_job_next(job, patience, &b)) == 0)
        ;
    return rc == 1 ? b : NULL;
}

static void *release_all(void *arg)
{
    pst_batch **held = arg;
    for (int i = 0; held[i]; i++)
        pst_batch_release(held[i]);
    return NULL;
}

static void kept_and_released_elsewhere(void)
{
    enum { KEPT = 300 };
    daemon_thread d;
    pst_batch *held[KEPT + 1] = {0};
    pthread_t other;
    const pst_job_options o = options(PST_ORDER_STRICT, 0);
    start(&d);
    pst_engine *engine = client();
    pst_job *job = kit_job(engine, data, &o);
    uint32_t crc[KEPT];
    for (int i = 0; i < KEPT; i++) {
        held[i] = next(job);
        CHECK(held[i] != NULL);
        const pst_batch_desc *desc = pst_batch_get(held[i]);
        crc[i] = pst_crc32c(0, desc, desc->total_bytes);
    }
    for (int i = 0; i < KEPT; i++) {
        const pst_batch_desc *desc = pst_batch_get(held[i]);
        CHECK(crc[i] == pst_crc32c(0, desc, desc->total_bytes));
    }
    pthread_create(&other, NULL, release_all, held);
    for (int i = 0; i < 30; i++)
        pst_batch_release(next(job));
    pthread_join(other, NULL);
    pst_batch *last = next(job);
    pst_job_close(job);
    pst_engine_free(engine);
    stop(&d);
    CHECK(pst_batch_get(last)->magic == PST_BATCH_MAGIC); /* outlives all of them */
    pst_batch_release(last);
}

static void restarts(void)
{
    daemon_thread d;
    const pst_job_options o = options(PST_ORDER_STRICT, 0);
    start(&d);
    pst_engine *engine = client();
    pst_job *job = kit_job(engine, data, &o);
    for (uint64_t round = 0; round < 40; round++) {
        const uint64_t epoch = round * 7 % 5;
        CHECK(pst_job_set_epoch(job, epoch) == 0 && pst_job_epoch(job) == epoch);
        for (uint64_t i = 0; i < round % 4; i++) {
            pst_batch *b = next(job);
            CHECK(b && pst_batch_get(b)->epoch == epoch && pst_batch_get(b)->step == i);
            pst_batch_release(b);
        }
    }
    CHECK(pst_job_steps(job) == IMAGES / BATCH);
    pst_batch *b;
    pst_job_abort(job);
    CHECK(pst_job_next(job, patience, &b) == -ECANCELED);
    pst_job_close(job);
    pst_engine_free(engine);
    stop(&d);
}

static atomic_int gone_told;
static void count_gone(int level, const char *text, void *user)
{
    (void)user;
    gone_told += level == 1 && strstr(text, "is gone") != NULL;
}

static void daemon_ends_in_mid_epoch(void)
{
    for (int order = 0; order < 2; order++) {
        daemon_thread d;
        ledger alone = {0}, lines = {0};
        pst_job_options o = options(order, 2);
        o.rank = 1;
        o.world = 3;
        embedded(&o, &alone);
        start(&d);
        pst_engine *engine = client();
        pst_job *job = kit_job(engine, data, &o);
        CHECK(kit_collect(job, o.rank, o.epochs, 3, &lines) >= 0);
        gone_told = 0;
        pst_log_set(count_gone, NULL);
        stop(&d);
        CHECK(kit_collect(job, o.rank, o.epochs, SIZE_MAX, &lines) == 0);
        pst_log_set(NULL, NULL);
        CHECK(gone_told == 1);
        CHECK(same(&alone, &lines, order));
        pst_job_close(job);
        pst_engine_free(engine);
        ledger_free(&alone);
        ledger_free(&lines);
    }
}

/* ---- the cache is lost ----------------------------------------------------------------------- */

/* What was in it. */
static uint64_t lose_cache(daemon_thread *d)
{
    psti_cache *cache = psti_engine_cache(d->server->engine);
    psti_cache_stats s;
    psti_cache_stats_get(cache, &s);
    psti_cache_clear(cache);
    return s.entries;
}

static bool each_once(ledger *l, uint64_t epochs)
{
    ledger_sort(l);
    bool once = l->count == epochs * IMAGES;
    for (size_t i = 0; once && i < l->count; i++)
        once = l->at[i].epoch == i / IMAGES && l->at[i].id == (int64_t)(i % IMAGES);
    return once;
}

typedef struct loss {
    double forms[3];
    int order, sampling;
} loss;

/* All of it, after every batch, with two jobs on it. */
static void lose_it_all_the_time(const loss *how)
{
    enum { JOBS = 2, EPOCHS = 3 };
    daemon_thread d;
    ledger alone = {0}, lines[JOBS] = {0};
    pst_job *job[JOBS];
    pst_job_options o = options(how->order, EPOCHS);
    uint64_t lost = 0;
    embedded(&o, &alone);
    o.sampling = how->sampling;
    start_with(&d, 16u << 20, how->forms);
    pst_engine *engine = client();
    for (int j = 0; j < JOBS; j++)
        job[j] = kit_job(engine, data, &o);
    for (size_t count = 0; count < EPOCHS * IMAGES; count += BATCH) {
        for (int j = 0; j < JOBS; j++)
            CHECK(kit_collect(job[j], 0, 2, 1, &lines[j]) == 0);
        lost += lose_cache(&d);
    }
    CHECKF(lost > 0, "order %d, sampling %d", how->order, how->sampling);
    CHECK(pst_engine_check(d.server->engine, NULL) == 0);
    for (int j = 0; j < JOBS; j++) {
        CHECK(how->sampling ? each_once(&lines[j], EPOCHS) : same(&alone, &lines[j], how->order));
        pst_job_close(job[j]);
        ledger_free(&lines[j]);
    }
    pst_engine_free(engine);
    stop(&d);
    ledger_free(&alone);
}

static void cache_lost_in_mid_epoch(void)
{
    static const loss cases[] = {
        {{0, 1, 0}, PST_ORDER_STRICT, PST_SAMPLING_PLAIN},
        {{1, 0, 0}, PST_ORDER_STRICT, PST_SAMPLING_PLAIN},
        {{0, 1, 0}, PST_ORDER_READY, PST_SAMPLING_PLAIN},
        {{0, 0, 1}, PST_ORDER_READY, PST_SAMPLING_OPPORTUNISTIC},
        {{0}, PST_ORDER_READY, PST_SAMPLING_OPPORTUNISTIC},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        lose_it_all_the_time(&cases[i]);
}

/* Neither side may crash, leak or hang, whatever fails on either. */
static void allocations_fail(void)
{
    daemon_thread d;
    const pst_job_options o = options(PST_ORDER_READY, 1);
    pst_log_set(NULL, NULL);
    start(&d);
    for (uint64_t n = 1; n < 400; n += 3) {
        pst_engine *engine = NULL;
        pst_job *job = NULL;
        pst_engine_options e;
        char address[256];
        pst_engine_options_init(&e);
        snprintf(address, sizeof address, "unix:%s", place);
        e.address = address;
        e.workers = 1;
        e.memory_bytes = 64u << 20;
        psti_mem_fail_at(n, false);
        if (pst_engine_new(&e, &engine, NULL) == 0 &&
            pst_job_open(engine, data, &o, &job, NULL) == 0) {
            pst_batch *b;
            int rc;
            while ((rc = pst_job_next(job, patience, &b)) == 1)
                pst_batch_release(b);
            CHECK(rc != -ETIMEDOUT);
        }
        psti_mem_fail_at(0, false);
        pst_job_close(job);
        pst_engine_free(engine);
    }
    stop(&d);
}

static void nothing_is_left(void)
{
    psti_mem_stats s;
    psti_mem_stats_total(&s);
    CHECKF(s.live == 0, "%llu allocations", (unsigned long long)s.live);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    data = kit_dataset(folder);
    place = kit_folder();
    RUN(several_at_once);
    RUN(kept_and_released_elsewhere);
    RUN(restarts);
    RUN(daemon_ends_in_mid_epoch);
    RUN(cache_lost_in_mid_epoch);
    RUN(allocations_fail);
    pst_dataset_close(data);
    kit_remove(place);
    kit_remove(folder);
    RUN(nothing_is_left);
    return check_report();
}
