/* SPDX-License-Identifier: Apache-2.0
 * Traces without an engine: what is lost is counted, what cannot be written ends them, names do no
 * harm. tests/cli/test_trace.py reads traces of real runs. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "core/memory.h"
#include "watch/trace.h"

static char folder[] = "/tmp/penstock-trace-XXXXXX";
static int told;
static char last_told[512];

static void hear(int level, const char *text, void *user)
{
    (void)level;
    (void)user;
    told++;
    snprintf(last_told, sizeof last_told, "%s", text);
}

static const char *place(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static char *whole(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    char *text = calloc(1, 1 << 24);
    const size_t size = text ? fread(text, 1, (1 << 24) - 1, file) : 0;
    fclose(file);
    if (text)
        text[size] = '\0';
    return text;
}

static int count(const char *text, const char *piece)
{
    int found = 0;
    for (const char *at = text; at && (at = strstr(at, piece)); at++)
        found++;
    return found;
}

static void put(psti_trace_ring *ring, int64_t id)
{
    const psti_trace_event event = {.at_ns = UINT64_MAX / 2,
                                    .span = 1234,
                                    .id = id,
                                    .job = 1,
                                    .kind = PSTI_TRACE_STAGE,
                                    .what = 0};
    psti_trace_put(ring, &event);
}

static uint32_t add_job(psti_trace *trace, const char *name)
{
    const psti_trace_job job = {
        .id = 7, .dataset = name, .pipeline = name, .stages = 1, .stage = {name}};
    return psti_trace_job_add(trace, &job);
}

static const uint64_t AN_HOUR = 3600000000000ull;

static void what_finds_no_room_is_counted(void)
{
    psti_trace *trace = NULL;
    const psti_trace_spec spec = {.path = place("small"), .ring_events = 64, .pause_ns = AN_HOUR};
    CHECK(psti_trace_open(&spec, &trace, NULL) == 0);
    psti_trace_ring *ring = psti_trace_ring_add(trace, "worker 0");
    CHECK(add_job(trace, "decode") == 1);
    for (int64_t i = 0; i < 1000; i++)
        put(ring, i);
    told = 0;
    psti_trace_stop(trace);
    put(ring, 1000); /* goes nowhere */
    psti_trace_stop(trace);
    CHECK(told == 0);
    psti_trace_close(trace);
    CHECKF(told == 1 && strstr(last_told, "936 of 1000"), "%s", last_told);
    char *text = whole(place("small"));
    CHECK(text && strstr(text, "\"events\":64,\"dropped\":936"));
    CHECK(count(text, "\"cat\":\"stage\"") == 64);
    CHECK(text && strstr(text, "\"dur\":1.234,"));
    CHECK(text && strcmp(text + strlen(text) - 3, "\n]\n") == 0);
    free(text);
}

enum { THREADS = 4, EACH = 20000 };

static void *put_many(void *arg)
{
    for (int64_t i = 0; i < EACH; i++)
        put(arg, i);
    return NULL;
}

static void all_that_was_put_is_written_or_counted(void)
{
    psti_trace *trace = NULL;
    const psti_trace_spec spec = {.path = place("many"), .ring_events = 1024, .pause_ns = 1000000};
    pthread_t threads[THREADS];
    CHECK(psti_trace_open(&spec, &trace, NULL) == 0);
    CHECK(add_job(trace, "decode") == 1);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, put_many, psti_trace_ring_add(trace, "worker"));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    psti_trace_close(trace);
    char *text = whole(place("many"));
    const char *end = text ? strstr(text, "\"events\":") : NULL;
    CHECK(end != NULL);
    if (end) {
        const int events = atoi(end + strlen("\"events\":"));
        const int dropped = atoi(strstr(end, "\"dropped\":") + strlen("\"dropped\":"));
        CHECKF(events + dropped == THREADS * EACH, "%d and %d", events, dropped);
        CHECK(count(text, "\"cat\":\"stage\"") == events);
        CHECK(events >= THREADS * 1024);
    }
    free(text);
}

static void a_full_disk_ends_it_with_one_message(void)
{
    psti_trace *trace = NULL;
    const psti_trace_spec spec = {.path = "/dev/full", .ring_events = 64, .pause_ns = 1000000};
    told = 0;
    CHECK(psti_trace_open(&spec, &trace, NULL) == 0);
    psti_trace_ring *ring = psti_trace_ring_add(trace, "worker 0");
    for (int64_t i = 0; i < 100000; i++)
        put(ring, i);
    psti_trace_close(trace);
    CHECKF(told == 1 && strstr(last_told, "/dev/full") && strstr(last_told, "No space"), "%d: %s",
           told, last_told);
}

static void two_do_not_write_to_one_file(void)
{
    psti_trace *first = NULL, *second = NULL, *third = NULL;
    char beside[300];
    pst_error err = {0};
    psti_trace_spec spec = {.path = place("one")};
    CHECK(psti_trace_open(&spec, &first, NULL) == 0);
    CHECK(psti_trace_open(&spec, &second, &err) == -EBUSY && strstr(err.message, "another engine"));
    spec.elsewhere = true;
    CHECK(psti_trace_open(&spec, &third, NULL) == 0);
    snprintf(beside, sizeof beside, "%s.%d.1", place("one"), (int)getpid());
    psti_trace_close(first);
    psti_trace_close(third);
    CHECK(access(beside, R_OK) == 0);
}

static void what_is_no_file_is_refused(void)
{
    psti_trace *trace = NULL;
    pst_error err = {0};
    psti_trace_spec spec = {.path = place("no/such/folder")};
    CHECK(psti_trace_open(&spec, &trace, &err) == -ENOENT && strstr(err.message, "no/such"));
    spec.path = folder;
    CHECK(psti_trace_open(&spec, &trace, &err) == -EISDIR);
}

static void names_are_escaped(void)
{
    psti_trace *trace = NULL;
    const psti_trace_spec spec = {.path = place("names")};
    CHECK(psti_trace_open(&spec, &trace, NULL) == 0);
    char lengthy[5000];
    memset(lengthy, '"', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = '\0';
    CHECK(add_job(trace, "a\"b\\c\nd\xff</script>\xc3\xa9") == 1);
    CHECK(add_job(trace, lengthy) == 2);
    psti_trace_close(trace);
    char *text = whole(place("names"));
    CHECK(text && strstr(text, "\"dataset\":\"a\\u0022b\\u005cc?d?\\u003c/script>\xc3\xa9\""));
    for (const char *line = text; line && *line; line = strchr(line, '\n') + 1)
        CHECK(strcspn(line, "\n") < 4096);
    free(text);
}

static void nothing_is_lost_without_memory(void)
{
    for (uint64_t n = 1; n < 12; n++) {
        psti_trace *trace = NULL;
        const psti_trace_spec spec = {.path = place("poor")};
        psti_mem_fail_at(n, false);
        if (psti_trace_open(&spec, &trace, NULL) == 0) {
            psti_trace_ring *ring = psti_trace_ring_add(trace, "worker 0");
            add_job(trace, "decode");
            if (ring)
                put(ring, 1);
            psti_trace_close(trace);
        }
        psti_mem_fail_at(0, false);
    }
    psti_mem_stats stats;
    psti_mem_stats_total(&stats);
    CHECKF(stats.live == 0, "%llu", (unsigned long long)stats.live);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    pst_log_set(hear, NULL);
    RUN(what_finds_no_room_is_counted);
    RUN(all_that_was_put_is_written_or_counted);
    RUN(a_full_disk_ends_it_with_one_message);
    RUN(two_do_not_write_to_one_file);
    RUN(what_is_no_file_is_refused);
    RUN(names_are_escaped);
    RUN(nothing_is_lost_without_memory);
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) | check_report();
}
