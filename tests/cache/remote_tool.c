/* SPDX-License-Identifier: Apache-2.0
 * The remote tier by hand, for test_remote.py: opens it, then does what the lines of its input say
 * and answers each with a line of JSON. Values are envelopes whose bytes follow from key and size,
 * so that a value which is not what it should be is seen.
 *
 *     put FIRST COUNT SIZE           stores the keys FIRST, FIRST + 1, ...
 *     get FIRST COUNT WINDOW [EVERY] asks for them, WINDOW at a time, from the start after EVERY
 *     lend FIRST COUNT SIZE MS       stores them for so long
 *     take FIRST COUNT WINDOW        asks for them, and they are gone from there
 *     claim KEY COST_MS              asks for one with a claim
 *     wait FIRST COUNT WINDOW        as get, and nobody presses for the answers
 *     store KEY SIZE                 stores the one that was claimed
 *     release                        gives that claim up, if there is one
 *     stats                          the tier's figures
 *     fork                           asks in a child */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/envelope.h"
#include "cache/remote.h"
#include "core/clock.h"
#include "core/memory.h"

enum { WINDOW_MAX = 1024 };

typedef struct ask {
    psti_remote_op op;
    psti_buf buf;
    uint64_t begun_ns;
    int status;
    enum { FREE, BUSY, ENDED } state;
} ask;

typedef struct tally {
    long hits, misses, mine, unanswered, damaged, wrong;
    double most_ms, total_ms;
} tally;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static ask asks[WINDOW_MAX];
static int busy;
static psti_remote_op *mine; /* has the last claim that was won */
static bool patient;
static tally seen;

static psti_cache_key key_of(long number)
{
    const psti_id128 sample = psti_hash_bytes(&number, sizeof number);
    return (psti_cache_key){sample, {7, 7}};
}

static uint8_t byte_of(const psti_cache_key *key, size_t at)
{
    return (uint8_t)(key->sample.lo >> (at % 8 * 8)) ^ (uint8_t)(at >> 3);
}

static bool is_right(const psti_cache_key *key, const psti_envelope *e)
{
    for (size_t i = 0; i < e->size; i++)
        if (e->bytes[i] != byte_of(key, i))
            return false;
    return e->count == 0;
}

static uint8_t *room(psti_remote_op *op, size_t size)
{
    ask *a = op->user;
    return psti_buf_need(PSTI_MEM_CACHE, &a->buf, size) == 0 ? a->buf.data : NULL;
}

/* On the thread of main: the tier's must not be held up by looking at values. */
static void count(ask *a)
{
    psti_envelope e;
    const int status = a->status;
    if (status == 0 && psti_envelope_open(&a->op.key, a->buf.data, a->op.size, &e) < 0)
        seen.damaged++;
    else if (status == 0)
        *(is_right(&a->op.key, &e) ? &seen.hits : &seen.wrong) += 1;
    else if (status == PSTI_REMOTE_MINE)
        seen.mine++;
    else
        *(status == -ENOENT ? &seen.misses : &seen.unanswered) += 1;
}

static void done(psti_remote_op *op, int status)
{
    ask *a = op->user;
    const double ms = (double)(psti_now_ns() - a->begun_ns) * 1e-6;
    pthread_mutex_lock(&lock);
    a->status = status;
    seen.total_ms += ms;
    if (ms > seen.most_ms)
        seen.most_ms = ms;
    mine = status == PSTI_REMOTE_MINE ? op : mine;
    a->state = ENDED;
    busy--;
    pthread_cond_signal(&change);
    pthread_mutex_unlock(&lock);
}

static bool never(psti_remote_op *op)
{
    (void)op;
    return false;
}

typedef void ask_fn(psti_remote *r, psti_remote_op *op);

static void get(psti_remote *r, ask_fn *how, long number, int window, uint64_t cost_ns)
{
    pthread_mutex_lock(&lock);
    while (busy >= window)
        pthread_cond_wait(&change, &lock);
    ask *a = asks;
    while (a->state == BUSY)
        a++;
    busy++;
    pthread_mutex_unlock(&lock);
    if (a->state == ENDED)
        count(a);
    a->state = BUSY;
    a->op.key = key_of(number);
    a->op.cost_ns = cost_ns;
    a->op.room = room;
    a->op.done = done;
    a->op.pressing = patient ? never : NULL;
    a->op.user = a;
    a->begun_ns = psti_now_ns();
    how(r, &a->op);
}

static void wait_all(void)
{
    pthread_mutex_lock(&lock);
    while (busy)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < WINDOW_MAX; i++) {
        if (asks[i].state == ENDED)
            count(&asks[i]);
        asks[i].state = FREE;
    }
}

static bool put(psti_remote *r, long number, size_t size, psti_remote_op *claimed, uint64_t life_ms)
{
    const psti_cache_key key = key_of(number);
    const psti_cache_content content = {.bytes = size};
    psti_remote_put *p = psti_remote_put_begin(r, &key, psti_envelope_size(&content));
    uint8_t *bytes = p ? malloc(size + 1) : NULL;
    if (!bytes) {
        if (p)
            psti_remote_put_cancel(r, p);
        return false;
    }
    for (size_t i = 0; i < size; i++)
        bytes[i] = byte_of(&key, i);
    psti_envelope_pack(&key, &content, bytes, psti_remote_put_bytes(p));
    free(bytes);
    psti_remote_put_life(p, life_ms);
    psti_remote_put_send(r, p, claimed);
    return true;
}

static void tell(void)
{
    const long total =
        seen.hits + seen.misses + seen.mine + seen.unanswered + seen.damaged + seen.wrong;
    printf("{\"hits\": %ld, \"misses\": %ld, \"mine\": %ld, \"unanswered\": %ld, \"damaged\": %ld, "
           "\"wrong\": %ld, \"most_ms\": %.2f, \"mean_ms\": %.3f}\n",
           seen.hits, seen.misses, seen.mine, seen.unanswered, seen.damaged, seen.wrong,
           seen.most_ms, total ? seen.total_ms / (double)total : 0);
    fflush(stdout);
    seen = (tally){0};
}

static void tell_stats(psti_remote *r)
{
    psti_remote_stats s;
    psti_mem_stats memory;
    psti_remote_stats_get(r, &s);
    psti_mem_stats_total(&memory);
    printf("{\"gets\": %lu, \"hits\": %lu, \"misses\": %lu, \"unanswered\": %lu, \"puts\": %lu, "
           "\"put_failures\": %lu, \"claims\": %lu, \"waits\": %lu, \"waited_hits\": %lu, "
           "\"redirects\": %lu, \"refreshes\": %lu, \"breaks\": %lu, \"nodes\": %d, "
           "\"nodes_up\": %d, \"bytes_per_s\": %.0f, \"allocs\": %lu}\n",
           s.gets, s.hits, s.misses, s.unanswered, s.puts, s.put_failures, s.claims, s.waits,
           s.waited_hits, s.redirects, s.refreshes, s.breaks, s.nodes, s.nodes_up, s.bytes_per_s,
           memory.allocs);
    fflush(stdout);
}

/* A child's calls are misses, and closing does not wait for a thread that is not there. */
static void in_child(psti_remote *r)
{
    const psti_cache_key key = key_of(0);
    const pid_t child = fork();
    if (child == 0) {
        const bool any = psti_remote_answers(r, &key) || psti_remote_put_begin(r, &key, 10);
        get(r, psti_remote_get, 0, 1, 0);
        wait_all();
        psti_remote_close(r);
        _exit(any || seen.unanswered != 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    printf("{\"status\": %d}\n", status);
    fflush(stdout);
}

static bool obey(psti_remote *r, const char *line)
{
    long first, n;
    size_t size;
    int window;
    long every = 0;
    unsigned long life = 0;
    if (sscanf(line, "put %ld %ld %zu", &first, &n, &size) == 3 ||
        sscanf(line, "lend %ld %ld %zu %lu", &first, &n, &size, &life) == 4) {
        long sent = 0;
        for (long i = 0; i < n; i++)
            sent += put(r, first + i, size, NULL, life);
        printf("{\"sent\": %ld}\n", sent);
        fflush(stdout);
    } else if (sscanf(line, "get %ld %ld %d %ld", &first, &n, &window, &every) >= 3 ||
               (patient = sscanf(line, "wait %ld %ld %d", &first, &n, &window) == 3)) {
        for (long i = 0; i < n; i++)
            get(r, psti_remote_get, first + (every ? i % every : i), window, 0);
        wait_all();
        tell();
        patient = false;
    } else if (sscanf(line, "take %ld %ld %d", &first, &n, &window) == 3) {
        for (long i = 0; i < n; i++)
            get(r, psti_remote_take, first + i, window, 0);
        wait_all();
        tell();
    } else if (sscanf(line, "claim %ld %ld", &first, &n) == 2) {
        get(r, psti_remote_get, first, 1, (uint64_t)n * 1000000);
        wait_all();
        tell();
    } else if (sscanf(line, "store %ld %zu", &first, &size) == 2) {
        const bool sent = put(r, first, size, mine, 0);
        mine = sent ? NULL : mine;
        printf("{\"sent\": %d}\n", sent);
        fflush(stdout);
    } else if (strncmp(line, "release", 7) == 0) {
        if (mine)
            psti_remote_release(r, mine);
        mine = NULL;
        printf("{}\n");
        fflush(stdout);
    } else if (strncmp(line, "stats", 5) == 0) {
        tell_stats(r);
    } else if (strncmp(line, "fork", 4) == 0) {
        in_child(r);
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    psti_remote *r;
    pst_error err = {0};
    char line[256];
    const psti_remote_spec spec = {.url = argv[1],
                                   .value_max = argc > 2 ? (size_t)atol(argv[2]) : 0};
    if (argc < 2 || psti_remote_open(&spec, &r, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    printf("{}\n");
    fflush(stdout);
    bool good = true;
    while (good && fgets(line, sizeof line, stdin))
        good = obey(r, line);
    psti_remote_close(r);
    for (int i = 0; i < WINDOW_MAX; i++)
        psti_buf_free(&asks[i].buf);
    psti_mem_stats live;
    psti_mem_stats_total(&live);
    if (live.live)
        fprintf(stderr, "%lu allocations were not given back\n", live.live);
    return good && !live.live ? 0 : 1;
}
