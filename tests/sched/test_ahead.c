/* SPDX-License-Identifier: Apache-2.0
 * Look-ahead over a bucket, seen from inside: its buffers, its place in the epoch and what it has
 * on its way. The server is in this process and answers when the test lets it. */
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "net/server.h" /* first: the kit has a type of a name that it uses */

#include "check.h"
#include "engine/engine.h"
#include "engine/engine_kit.h"
#include "sched/sched_priv.h"

enum { OBJECTS = 400, BATCH = 4, DEPTH = 64, SIZE = 20000 };
#define MIB ((uint64_t)1 << 20)

static uint8_t picture[SIZE];
static atomic_bool held; /* objects are not answered */
static server *there;

/* ---- the server ------------------------------------------------------------------------------ */

static bool answer_list(const request *r)
{
    static char body[OBJECTS * 200];
    size_t len = (size_t)snprintf(body, sizeof body, "<ListBucketResult>");
    for (int i = 0; i < OBJECTS; i++)
        len += (size_t)snprintf(body + len, sizeof body - len,
                                "<Contents><Key>d/c%d/%04d.jpg</Key><Size>%d</Size>"
                                "<ETag>&quot;%032x&quot;</ETag></Contents>",
                                i * 4 / OBJECTS, i, SIZE, (unsigned)i + 1);
    len += (size_t)snprintf(body + len, sizeof body - len, "</ListBucketResult>");
    return send_text(r, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", len) &&
           send_bytes(r, body, len);
}

/* Until it may be answered; false when the other end went away. */
static bool let_go(const request *r)
{
    while (atomic_load(&held)) {
        struct pollfd end = {.fd = r->fd, .events = POLLRDHUP};
        if (poll(&end, 1, 5) > 0)
            return false;
    }
    return true;
}

static bool answer(request *r)
{
    if (strstr(r->target, "list-type"))
        return answer_list(r);
    const char *name = strrchr(r->target, '/');
    const int number = name ? atoi(name + 1) : 0;
    return let_go(r) &&
           send_text(r, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: \"%032x\"\r\n\r\n", SIZE,
                     (unsigned)number + 1) &&
           send_bytes(r, picture, SIZE);
}

/* ---- a job over it --------------------------------------------------------------------------- */

typedef struct rig {
    pst_engine *engine;
    pst_dataset *data;
    pst_job *job;
    psti_feed *feed;
    psti_pool *pool;
} rig;

static pst_job_options options(uint64_t epochs)
{
    pst_job_options o = kit_options("decode | resize(16) | center_crop(16)", BATCH, 7, epochs);
    o.ready_depth = 2;
    return o;
}

/* How far it looks is the test's to say from now on. */
static void look_locked(psti_feed *feed, int64_t depth)
{
    feed->spec.without |= PST_WITHOUT_TUNER;
    feed->ahead.depth = depth;
    feed->ahead.waited_ns = psti_now_ns();
    pool_pump_locked(feed->pool);
}

static void look(const rig *g, int64_t depth)
{
    pthread_mutex_lock(&g->pool->lock);
    look_locked(g->feed, depth);
    pthread_mutex_unlock(&g->pool->lock);
}

static rig begin(const char *url, const pst_job_options *o, uint64_t memory)
{
    rig g = {.engine = kit_engine(2, memory), .data = kit_dataset(url)};
    g.job = kit_job(g.engine, g.data, o);
    g.pool = psti_engine_pool(g.engine);
    g.feed = g.pool->feeds;
    CHECK(g.feed->ahead.on);
    return g;
}

static void end(rig *g)
{
    pst_job_close(g->job);
    pthread_mutex_lock(&g->pool->lock);
    task_shed_locked(g->pool, NULL); /* what idle tasks keep */
    CHECKF(g->pool->encoded == 0 && g->pool->ahead_ending == 0, "%llu, %llu",
           (unsigned long long)g->pool->encoded, (unsigned long long)g->pool->ahead_ending);
    pthread_mutex_unlock(&g->pool->lock);
    CHECK(pst_engine_check(g->engine, NULL) == 0);
    pst_engine_free(g->engine);
    pst_dataset_close(g->data);
}

/* looks: with each batch it is seen to what is of no use. */
static void take_looking(const rig *g, int batches, bool looks)
{
    for (int i = 0; i < batches; i++) {
        pst_batch *b = NULL;
        pthread_mutex_lock(&g->pool->lock);
        g->feed->ahead.waited_ns = psti_now_ns(); /* the depth is not taken back */
        g->feed->ahead.looked_ns = looks ? 0 : psti_now_ns();
        pthread_mutex_unlock(&g->pool->lock);
        const int rc = pst_job_next(g->job, 20000000000, &b);
        CHECKF(rc == 1, "%d at batch %d", rc, i);
        if (rc == 1)
            pst_batch_release(b);
    }
}

static void take(const rig *g, int batches)
{
    take_looking(g, batches, false);
}

/* Whether it comes to that, in any time that a test may take. */
static bool comes_to(const rig *g, bool (*that)(const rig *g))
{
    const uint64_t until = psti_now_ns() + 10000000000u;
    for (;;) {
        pthread_mutex_lock(&g->pool->lock);
        const bool so = that(g);
        pthread_mutex_unlock(&g->pool->lock);
        if (so || psti_now_ns() > until)
            return so;
        const struct timespec little = {0, 1000000};
        nanosleep(&little, NULL);
    }
}

static uint64_t bytes_held(const rig *g)
{
    pthread_mutex_lock(&g->pool->lock);
    const uint64_t bytes = g->feed->ahead.bytes;
    pthread_mutex_unlock(&g->pool->lock);
    return bytes;
}

static uint64_t part_for_reading(const rig *g)
{
    pthread_mutex_lock(&g->pool->lock);
    const uint64_t bytes = pool_encoded_max_locked(g->pool);
    pthread_mutex_unlock(&g->pool->lock);
    return bytes;
}

static bool all_has_come(const rig *g)
{
    return g->feed->ahead.reading == 0 && g->feed->ahead.ready > 0 && g->feed->inflight == 0;
}

/* ---- behaviours ------------------------------------------------------------------------------ */

static void buffers_are_used_again_when_it_looks_less_far(void)
{
    const pst_job_options o = options(1);
    rig g = begin("s3://b/d", &o, 64 * MIB);
    psti_mem_stats before, after;
    look(&g, DEPTH);
    take(&g, 10);
    CHECK(comes_to(&g, all_has_come));
    const uint64_t most = bytes_held(&g);
    look(&g, DEPTH / 8);
    take_looking(&g, 30, true); /* what was asked for beyond that is used up */
    take(&g, 5);
    CHECK(comes_to(&g, all_has_come));
    CHECKF(bytes_held(&g) < most / 2, "%llu of %llu", (unsigned long long)bytes_held(&g),
           (unsigned long long)most);
    psti_mem_stats_get(PSTI_MEM_SCHED, &before);
    take(&g, 20);
    psti_mem_stats_get(PSTI_MEM_SCHED, &after);
    CHECKF(after.allocs - before.allocs <= BATCH, "%d buffers for %d samples",
           (int)(after.allocs - before.allocs), 20 * BATCH);
    end(&g);
}

static void bytes_are_counted_once(void)
{
    const pst_job_options o = options(1);
    rig g = begin("s3://b/d", &o, 64 * MIB);
    ledger l = {0};
    look(&g, DEPTH);
    CHECK(kit_collect(g.job, 0, 1, SIZE_MAX, &l) == 0 && l.count == OBJECTS);
    CHECKF(g.pool->read_bytes == (uint64_t)OBJECTS * SIZE, "%.3f of what there is",
           (double)g.pool->read_bytes / OBJECTS / SIZE);
    ledger_free(&l);
    end(&g);
}

/* What comes next is asked for, and nothing beyond it was left out. */
static bool looks_at_what_comes_next(const rig *g)
{
    const lookahead *a = &g->feed->ahead;
    const run *r = g->feed->runs;
    if (!r || !a->at || a->next != r->next_share + a->depth)
        return false;
    for (int64_t share = r->next_share; share < a->next; share++)
        if (!a->at[share % 2048])
            return false;
    return true;
}

static void an_epoch_that_begins_again_is_looked_at_from_its_beginning(void)
{
    const pst_job_options o = options(2);
    rig g = begin("s3://b/d", &o, 64 * MIB);
    ledger l = {0};
    for (int round = 0; round < 3; round++) {
        look(&g, DEPTH);
        take(&g, 10 + 7 * round);
        CHECK(comes_to(&g, looks_at_what_comes_next));
        atomic_store(&held, true);
        pst_job_set_epoch(g.job, 0);
        CHECKF(comes_to(&g, looks_at_what_comes_next), "it goes on from %d",
               (int)g.feed->ahead.next);
        atomic_store(&held, false);
    }
    CHECK(kit_collect(g.job, 0, 1, SIZE_MAX, &l) == 0);
    CHECK(l.count == OBJECTS);
    ledger_free(&l);
    end(&g);
}

static void a_state_is_gone_on_from_where_it_stands(void)
{
    const pst_job_options o = options(1);
    uint8_t state[16384];
    size_t size;
    pst_error err = {0};
    rig g = begin("s3://b/d", &o, 64 * MIB);
    take(&g, 20);
    CHECK(pst_job_state(g.job, state, sizeof state, &size) == 0);
    end(&g);
    g = begin("s3://b/d", &o, 64 * MIB);
    look(&g, 2 * DEPTH);
    CHECK(comes_to(&g, looks_at_what_comes_next));
    look(&g, DEPTH / 2);
    CHECKF(pst_job_load_state(g.job, state, size, &err) == 0, "%s", err.message);
    CHECKF(comes_to(&g, looks_at_what_comes_next), "it goes on from %d", (int)g.feed->ahead.next);
    ledger l = {0};
    CHECK(kit_collect(g.job, 0, 1, SIZE_MAX, &l) == 0);
    CHECKF(l.count == OBJECTS - 20 * BATCH, "%zu", l.count);
    ledger_free(&l);
    end(&g);
}

static int64_t one_less; /* reads that are left when one was given up */
static bool one_was_given_up(const rig *g)
{
    return g->feed->ahead.reading <= one_less;
}

/* As a task does whose bytes came from elsewhere while they were on their way. */
static void what_a_task_does_without_is_cancelled(void)
{
    const pst_job_options o = options(1);
    atomic_store(&held, true);
    rig g = begin("s3://b/d", &o, 64 * MIB);
    look(&g, DEPTH);
    CHECK(comes_to(&g, looks_at_what_comes_next));
    pthread_mutex_lock(&g.pool->lock);
    run *r = g.feed->runs;
    task t = {.feed = g.feed, .run = r, .share = r->next_share};
    bool valid;
    psti_epoch_at(r->epoch, run_position(r, t.share, &valid), &t.id, &t.occurrence);
    one_less = g.feed->ahead.reading - 1;
    CHECK(ahead_find_locked(&t, g.feed->ahead.input) && t.ahead);
    ahead_end_locked(&t);
    CHECK(!t.ahead);
    pthread_mutex_unlock(&g.pool->lock);
    const bool given_up = comes_to(&g, one_was_given_up);
    CHECK(given_up);
    if (!given_up)
        atomic_store(&held, false); /* closing would wait for it */
    end(&g);
    atomic_store(&held, false);
}

/* A task for which there is no room is tried again: its bytes are not fetched twice. */
static void what_a_task_cannot_take_yet_stays(void)
{
    const pst_job_options o = options(1);
    rig g = begin("s3://b/d", &o, 64 * MIB);
    look(&g, DEPTH);
    CHECK(comes_to(&g, all_has_come));
    pthread_mutex_lock(&g.pool->lock);
    run *r = g.feed->runs;
    const int64_t ready = g.feed->ahead.ready;
    task t = {.feed = g.feed, .run = r, .share = r->next_share};
    bool valid;
    psti_epoch_at(r->epoch, run_position(r, t.share, &valid), &t.id, &t.occurrence);
    CHECK(ahead_find_locked(&t, g.feed->ahead.input) && g.feed->ahead.ready == ready - 1);
    ahead_back_locked(&t);
    CHECK(!t.ahead && g.feed->ahead.ready == ready);
    CHECK(ahead_find_locked(&t, g.feed->ahead.input));
    ahead_back_locked(&t);
    pthread_mutex_unlock(&g.pool->lock);
    end(&g);
}

static bool looks_into_the_next_epoch(const rig *g)
{
    const run *next = g->feed->runs ? g->feed->runs->next : NULL;
    return next && g->feed->ahead.run == next->serial && all_has_come(g);
}

/* A sample that makes up for a bad one is due when the next epoch has begun; what that has asked
 * for is not dropped for it. */
static void a_bad_sample_costs_no_read_of_the_next_epoch(void)
{
    pst_job_options o = options(2);
    o.on_error = PST_SKIP;
    o.skip_limit = 1;
    o.ends = PST_ENDS_PAD;
    rig g = begin("s3://b/d", &o, 64 * MIB);
    look(&g, DEPTH);
    take(&g, OBJECTS / BATCH - 2);
    CHECK(comes_to(&g, looks_into_the_next_epoch));
    pthread_mutex_lock(&g.pool->lock);
    run *r = g.feed->runs;
    const int64_t ready = g.feed->ahead.ready;
    CHECK(run_dispatched_all(r));
    r->placed--; /* as when the last one is bad */
    CHECK(!run_dispatched_all(r));
    ahead_pump_locked(g.feed);
    CHECKF(g.feed->ahead.ready == ready, "%d of %d are left", (int)g.feed->ahead.ready, (int)ready);
    r->placed++;
    pthread_mutex_unlock(&g.pool->lock);
    end(&g);
}

/* ---- short of memory ------------------------------------------------------------------------- */

static rig *watched;
static atomic_uint_fast64_t most_encoded;

static int watch(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    (void)user;
    (void)err;
    pthread_mutex_lock(&watched->pool->lock);
    if (watched->pool->encoded > atomic_load(&most_encoded))
        atomic_store(&most_encoded, watched->pool->encoded);
    pthread_mutex_unlock(&watched->pool->lock);
    const size_t row = (size_t)(in->cols * in->channels);
    uint8_t *to = pst_call_size(out, in->rows, in->cols, in->channels);
    for (int64_t y = 0; to && y < in->rows; y++)
        memcpy(to + (size_t)y * row, in->data + (size_t)y * in->stride, row);
    return to ? 0 : PST_ECALL;
}

/* Files that take three quarters of what may be read, beside a look-ahead that has half of it. */
static void samples_come_before_look_ahead(void)
{
    enum { FILES = 12 };
    const pst_job_options o = options(1);
    rig g = begin("s3://b/d", &o, 32 * MIB);
    look(&g, 1024);
    CHECK(comes_to(&g, all_has_come));
    const uint64_t part = part_for_reading(&g), had = bytes_held(&g);
    CHECKF(had > part / 3, "%llu of %llu", (unsigned long long)had, (unsigned long long)part);
    char *folder = kit_folder();
    const size_t size = part / 8 * 5;
    uint8_t *large = calloc(1, size);
    memcpy(large, picture, SIZE);
    for (int i = 0; i < FILES; i++) {
        char name[64];
        kit_name(i, 2, name);
        kit_write(folder, name, large, size);
    }
    pst_dataset *data = kit_dataset(folder);
    const pst_call call = {.name = "watch", .run = watch};
    pst_job_options other = kit_options("decode | call(watch) | center_crop(16)", 1, 3, 1);
    other.ready_depth = 1;
    other.calls = &call;
    other.call_count = 1;
    watched = &g;
    atomic_store(&most_encoded, 0);
    pst_job *job = kit_job(g.engine, data, &other);
    ledger l = {0};
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &l) == 0 && l.count == FILES);
    const uint64_t now = part_for_reading(&g);
    CHECKF(atomic_load(&most_encoded) <= now, "%llu bytes were held where %llu may be",
           (unsigned long long)atomic_load(&most_encoded), (unsigned long long)now);
    CHECK(bytes_held(&g) < had);
    ledger_free(&l);
    pst_job_close(job);
    CHECK(kit_collect(g.job, 0, 1, SIZE_MAX, &l) == 0 && l.count == OBJECTS);
    ledger_free(&l);
    pst_dataset_close(data);
    free(large);
    kit_remove(folder);
    end(&g);
}

/* Idle buffers and what lies ahead go where a job is to be opened, also what is on its way. */
static void all_of_it_is_given_back(void)
{
    const pst_job_options o = options(1);
    for (int on_its_way = 0; on_its_way < 2; on_its_way++) {
        atomic_store(&held, on_its_way == 1);
        rig g = begin("s3://b/d", &o, 64 * MIB);
        look(&g, DEPTH);
        CHECK(comes_to(&g, on_its_way ? looks_at_what_comes_next : all_has_come));
        pthread_mutex_lock(&g.pool->lock);
        g.pool->opening++;
        while (ahead_yield_locked(g.pool, true))
            continue;
        CHECK(g.feed->ahead.ready == 0 && g.feed->ahead.bytes == g.pool->ahead_ending);
        while (g.pool->ahead_ending) /* who opens a job waits like this */
            pthread_cond_wait(&g.pool->room, &g.pool->lock);
        while (ahead_yield_locked(g.pool, true))
            continue;
        CHECK(g.feed->ahead.bytes == 0);
        g.pool->opening--;
        pthread_mutex_unlock(&g.pool->lock);
        atomic_store(&held, false);
        look(&g, DEPTH);
        CHECK(comes_to(&g, looks_at_what_comes_next));
        ledger l = {0};
        CHECK(kit_collect(g.job, 0, 1, SIZE_MAX, &l) == 0 && l.count == OBJECTS);
        ledger_free(&l);
        end(&g);
    }
}

static void serve(void)
{
    char url[64];
    size_t size;
    uint8_t *bytes = kit_jpeg(48, 48, 5, false, &size);
    CHECK(size < SIZE);
    memcpy(picture, bytes, size < SIZE ? size : SIZE);
    free(bytes);
    there = server_open(answer, NULL);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", there->port);
    setenv("AWS_ENDPOINT_URL_S3", url, 1);
    setenv("AWS_REGION", "us-east-1", 1);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    setenv("AWS_ACCESS_KEY_ID", "someone", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "something", 1);
}

int main(void)
{
    serve();
    RUN(buffers_are_used_again_when_it_looks_less_far);
    RUN(bytes_are_counted_once);
    RUN(an_epoch_that_begins_again_is_looked_at_from_its_beginning);
    RUN(a_state_is_gone_on_from_where_it_stands);
    RUN(what_a_task_does_without_is_cancelled);
    RUN(what_a_task_cannot_take_yet_stays);
    RUN(a_bad_sample_costs_no_read_of_the_next_epoch);
    RUN(samples_come_before_look_ahead);
    RUN(all_of_it_is_given_back);
    server_close(there);
    return check_report();
}
