/* SPDX-License-Identifier: Apache-2.0
 * How many bytes a second a dataset's source gives with many reads in flight. Files are asked to be
 * forgotten by the page cache first; whether that worked is seen by trying to read without waiting.
 * A dataset whose samples the caller fetches is asked through its own threads. Calling thread. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "core/clock.h"
#include "engine/engine_priv.h"
#include "engine/plan.h"

enum { FLIGHT = 32, SAMPLES_MOST = 512 };
static const uint64_t BYTES_MOST = 64u << 20;

int64_t plan_pick(int64_t count, uint64_t seed, int64_t n)
{
    /* A step near the golden section, with no factor in common with the count. */
    uint64_t step = (uint64_t)((double)count * 0.6180339887498949) | 1, a = step,
             b = (uint64_t)count;
    while (b) { /* greatest common divisor; the next odd step if it is not 1 */
        const uint64_t t = a % b;
        a = b;
        b = t;
        if (!b && a > 1) {
            step += 2;
            a = step;
            b = (uint64_t)count;
        }
    }
    return (int64_t)((seed % (uint64_t)count + (__uint128_t)(uint64_t)n * step) % (uint64_t)count);
}

/* ---- a flight of reads ----------------------------------------------------------------------- */

typedef struct flight {
    pthread_mutex_t lock; /* guards left, failed */
    pthread_cond_t done;
    int left, failed;
    psti_read read[FLIGHT];
    psti_buf buf[FLIGHT];
} flight;

static void landed(psti_read *read, int status)
{
    flight *f = read->user;
    pthread_mutex_lock(&f->lock);
    f->failed += status < 0;
    if (--f->left == 0)
        pthread_cond_signal(&f->done);
    pthread_mutex_unlock(&f->lock);
}

static void wait_all(flight *f)
{
    pthread_mutex_lock(&f->lock);
    while (f->left > 0)
        pthread_cond_wait(&f->done, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

/* The first member of the sample that is read; false when there is none. */
static bool first_extent(psti_dataset *data, const field_choice *choice, int64_t id,
                         psti_extent *at)
{
    const psti_source_field *fields;
    psti_dataset_fields(data, &fields);
    if (psti_dataset_look(data, id) < 0)
        return false;
    for (int i = 0; i < choice->count; i++)
        if (fields[choice->field[i].source].member &&
            psti_dataset_extent(data, id, choice->field[i].source, at) == 0)
            return at->length > 0;
    return false;
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct tally {
    int64_t next; /* of plan_pick */
    uint64_t bytes;
    uint64_t ns;
    int reads, cold;
} tally;

/* Fills a flight with samples and has their bytes forgotten; how many there are. */
static int load_flight(psti_dataset *data, const field_choice *choice, uint64_t seed, flight *f,
                       tally *t)
{
    const int64_t count = psti_dataset_count(data);
    int n = 0;
    for (int tries = 0; n < FLIGHT && tries < 2 * FLIGHT && t->next < count; tries++) {
        psti_read *read = &f->read[n];
        const int64_t id = plan_pick(count, seed, t->next++);
        if (!first_extent(data, choice, id, &read->at) || read->at.length > BYTES_MOST / 2 ||
            psti_buf_need(PSTI_MEM_ENGINE, &f->buf[n], (size_t)read->at.length) < 0)
            continue;
        psti_read_forget(&read->at);
        t->cold += psti_read_try(&read->at, f->buf[n].data) == -EAGAIN;
        read->buf = f->buf[n].data;
        read->done = landed;
        read->user = f;
        n++;
    }
    return n;
}

static void fly(psti_reader *reader, flight *f, int n, tally *t)
{
    f->left = n;
    const uint64_t since = psti_now_ns();
    for (int i = 0; i < n; i++)
        psti_reader_submit(reader, &f->read[i]);
    wait_all(f);
    t->ns += psti_now_ns() - since;
    for (int i = 0; i < n; i++)
        t->bytes += f->read[i].at.length;
    t->reads += n;
}

static int measure_files(psti_dataset *data, const field_choice *choice, uint64_t seed,
                         double seconds, flight *f, tally *t, pst_error *err)
{
    psti_reader *reader;
    int rc = psti_reader_open(PST_IO_AUTO, FLIGHT, &reader, err);
    if (rc < 0)
        return rc;
    int n = 0;
    do {
        n = load_flight(data, choice, seed, f, t);
        if (n > 0)
            fly(reader, f, n, t);
    } while (n > 0 && t->reads < SAMPLES_MOST && t->bytes < BYTES_MOST &&
             (double)t->ns * 1e-9 < seconds);
    psti_reader_close(reader);
    return 0;
}

/* ---- samples that the caller fetches --------------------------------------------------------- */

typedef struct fetching {
    flight *flight;
    psti_fetch fetch[FLIGHT];
} fetching;

static bool always(psti_fetch *fetch)
{
    (void)fetch;
    return true;
}

static void fetched(psti_fetch *fetch, int status)
{
    psti_read as_read = {.user = fetch->user};
    landed(&as_read, status);
}

static uint64_t fetched_bytes(const psti_fetch *fetch)
{
    uint64_t bytes = 0;
    for (int i = 0; i < PSTI_FIELDS_MAX; i++)
        bytes += fetch->sink.part[i].there ? fetch->sink.part[i].size : 0;
    return bytes;
}

static void fetch_flight(psti_dataset *data, uint64_t seed, fetching *g, tally *t)
{
    const int64_t count = psti_dataset_count(data), left = count - t->next;
    const int n = left < FLIGHT ? (int)left : FLIGHT;
    g->flight->left = n;
    const uint64_t since = psti_now_ns();
    for (int i = 0; i < n; i++) {
        psti_fetch *fetch = &g->fetch[i];
        fetch->id = plan_pick(count, seed, t->next++);
        fetch->wanted = always;
        fetch->done = fetched;
        fetch->user = g->flight;
        psti_fetch_submit(data, fetch);
    }
    wait_all(g->flight);
    t->ns += psti_now_ns() - since;
    for (int i = 0; i < n; i++) {
        t->bytes += fetched_bytes(&g->fetch[i]);
        psti_fetch_clear(&g->fetch[i]);
    }
    t->reads += n;
    t->cold += n;
}

static int measure_fetches(psti_dataset *data, uint64_t seed, double seconds, flight *f, tally *t,
                           pst_error *err)
{
    int rc = psti_dataset_start(data, err);
    if (rc < 0)
        return rc;
    fetching *g = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *g);
    if (!g)
        return psti_fail(err, -ENOMEM, "plan", NULL, "out of memory");
    g->flight = f;
    do
        fetch_flight(data, seed, g, t);
    while (t->next < psti_dataset_count(data) && t->reads < SAMPLES_MOST && t->bytes < BYTES_MOST &&
           (double)t->ns * 1e-9 < seconds);
    psti_free(g);
    return 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

int source_measure(psti_dataset *data, const field_choice *choice, uint64_t seed, double seconds,
                   source_rate *out, pst_error *err)
{
    flight *f = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *f);
    tally t = {0};
    if (!f)
        return psti_fail(err, -ENOMEM, "plan", NULL, "out of memory");
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->done, NULL);
    const int rc = psti_dataset_fetches(data)
                       ? measure_fetches(data, seed, seconds, f, &t, err)
                       : measure_files(data, choice, seed, seconds, f, &t, err);
    *out = (source_rate){.bytes_s = t.ns ? (double)t.bytes / ((double)t.ns * 1e-9) : 0,
                         .cold = t.reads > 0 && t.cold * 10 >= t.reads * 9};
    for (int i = 0; i < FLIGHT; i++)
        psti_buf_free(&f->buf[i]);
    pthread_cond_destroy(&f->done);
    pthread_mutex_destroy(&f->lock);
    psti_free(f);
    return rc;
}
