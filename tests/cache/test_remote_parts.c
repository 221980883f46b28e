/* SPDX-License-Identifier: Apache-2.0
 * The parts of the remote tier that need no server: replies, however they are cut; limits; slots;
 * addresses. */
#include <stdlib.h>

#include "cache/remote_priv.h"
#include "check.h"
#include "core/memory.h"

static size_t value_size, value_count;

static void take(void *user, const char *bytes, size_t size)
{
    (void)user;
    (void)bytes;
    value_size = size;
    value_count++;
}

typedef struct trial {
    redisReader *reader;
    reply_reader mine;
} trial;

static void trial_init(trial *t)
{
    *t = (trial){.reader = redisReaderCreate(), .mine = {.most = 1 << 20, .take = take}};
    resp_attach(t->reader, &t->mine);
    value_size = value_count = 0;
}

static void trial_fini(trial *t)
{
    redisReaderFree(t->reader);
    resp_fini(&t->mine);
}

/* How many whole replies there are in it when it comes in two pieces; negative: it is refused. */
static int replies(const char *text, size_t size, size_t cut, reply *last)
{
    trial t;
    reply *made;
    int count = 0, rc = 0;
    trial_init(&t);
    for (int piece = 0; piece < 2 && rc >= 0; piece++) {
        redisReaderFeed(t.reader, piece ? text + cut : text, piece ? size - cut : cut);
        while ((rc = resp_next(t.reader, &t.mine, &made)) == 1) {
            count++;
            if (last)
                *last = *made;
        }
    }
    trial_fini(&t);
    return rc < 0 ? rc : count;
}

static void frames_may_be_cut_anywhere(void)
{
    static const char text[] =
        "+OK\r\n$5\r\nhello\r\n$-1\r\n*2\r\n$3\r\nabc\r\n$-1\r\n:42\r\n"
        "-MOVED 1 127.0.0.1:5\r\n*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$1\r\na\r\n:7\r\n"
        "*0\r\n*-1\r\n$0\r\n\r\n";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        CHECK(replies(text, sizeof text - 1, cut, NULL) == 10);
        CHECK(value_count == 3 && value_size == 0);
    }
}

static void limits_hold(void)
{
    static const char *const bad[] = {
        "*9223372036854775807\r\n",
        "*16386\r\n",
        "*2147483647\r\n",
        "$-7\r\n",
        "$x\r\n",
        "hello\r\n",
        "%1\r\n+a\r\n+b\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECKF(replies(bad[i], strlen(bad[i]), 0, NULL) < 0, "%s", bad[i]);
    CHECK(replies("$9000000000000000000\r\n", 22, 0, NULL) == 0); /* may wait; sends no more */
    char *long_line = malloc(2 << 20);
    memset(long_line, 'a', 2 << 20);
    long_line[0] = '+';
    CHECK(replies(long_line, 2 << 20, 0, NULL) < 0);
    memcpy(long_line, "$9000000000000000000\r\n", 22);
    CHECK(replies(long_line, 2 << 20, 100, NULL) < 0);
    free(long_line);
}

/* Arrays that announce what never comes are counted as if it had. */
static void announced_parts_count(void)
{
    trial t;
    reply *made;
    int rc = 0;
    psti_mem_stats before, most, now;
    psti_mem_stats_get(PSTI_MEM_CACHE, &before);
    most = before;
    trial_init(&t);
    redisReaderFeed(t.reader, "*16384\r\n", 8);
    for (int i = 0; i < 16384 && rc == 0; i++) {
        redisReaderFeed(t.reader, "*16384\r\n", 8);
        for (int j = 0; j < 16384 && rc == 0; j++) {
            redisReaderFeed(t.reader, ":1\r\n", 4);
            rc = resp_next(t.reader, &t.mine, &made);
        }
        psti_mem_stats_get(PSTI_MEM_CACHE, &now);
        most = now.live_bytes > most.live_bytes ? now : most;
    }
    CHECK(rc < 0);
    CHECK(most.live_bytes - before.live_bytes < 32 << 20);
    trial_fini(&t);
    psti_mem_stats_get(PSTI_MEM_CACHE, &now);
    CHECK(now.live == before.live);
}

static void slots_are_those_of_redis(void)
{
    CHECK(slot_of("123456789", 9) == 0x31c3 % SLOTS);
    CHECK(slot_of("", 0) == 0);
    psti_remote_request q;
    query_key(&q, &(psti_cache_key){{1, 2}, {3, 4}});
    CHECK(q.slot == slot_of(strchr(q.key, '{') + 1, 32) && strlen(q.key) == 43);
    psti_remote_request other;
    query_key(&other, &(psti_cache_key){{1, 2}, {4, 3}});
    CHECK(strcmp(q.key, other.key) != 0);
}

static void networks(void)
{
    CHECK(host_near("127.0.3.4", "127.0.0.1") && !host_near("127.1.0.1", "127.0.0.1"));
    CHECK(!host_near("10.0.0.1", "::1") && !host_near("", "127.0.0.1") && !host_near("x", "x"));
    CHECK(host_near("fd00:1:2:3::1", "fd00:1:2:9::1") && !host_near("fd00:1:3::1", "fd00:1:2::1"));
    remote_url url;
    CHECK(remote_url_parse("rediss://me@h1,[::1]:7,h3:8/9", &url, NULL) == 0);
    CHECK(url.tls && url.db == 9 && url.seed_count == 3 && strcmp(url.user, "me") == 0);
    CHECK(url.seeds[0].port == 6379 && strcmp(url.seeds[1].host, "::1") == 0);
    CHECK(url.seeds[1].port == 7 && url.seeds[2].port == 8);
}

int main(void)
{
    RUN(frames_may_be_cut_anywhere);
    RUN(limits_hold);
    RUN(announced_parts_count);
    RUN(slots_are_those_of_redis);
    RUN(networks);
    return check_report();
}
