/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as what a Redis server answers: to a GET, and to CLUSTER SLOTS, whole and in pieces.
 * Memory stays within the limits, whatever is announced, and pieces change nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cache/remote_reply.h"
#include "core/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 16 };

typedef struct outcome {
    int replies, refused;
    size_t values, bytes, parts;
} outcome;

static void require(int condition)
{
    if (!condition)
        abort();
}

static void take(void *user, const char *bytes, size_t size)
{
    outcome *o = user;
    uint8_t last = 0;
    for (size_t i = 0; i < size; i++)
        last ^= (uint8_t)bytes[i];
    o->values += 1 + (last & 0);
    o->bytes += size;
}

/* Every part of it is there, or is known not to be. */
static size_t walk(const reply *r, int depth)
{
    size_t parts = 1 + strlen(r->text);
    require(depth < 9 && strlen(r->text) <= REPLY_TEXT_MAX);
    for (int i = 0; i < r->count; i++)
        if (r->elements[i])
            parts += walk(r->elements[i], depth + 1);
    return parts;
}

static outcome read_all(const uint8_t *data, size_t size, size_t piece)
{
    outcome o = {0};
    reply_reader mine = {.most = MOST, .take = take, .user = &o};
    redisReader *reader = redisReaderCreate();
    psti_mem_stats memory;
    require(reader != NULL);
    resp_attach(reader, &mine);
    for (size_t at = 0; at < size && !o.refused; at += piece) {
        reply *made;
        int rc;
        redisReaderFeed(reader, (const char *)data + at, size - at < piece ? size - at : piece);
        while ((rc = resp_next(reader, &mine, &made)) == 1) {
            o.replies++;
            o.parts += walk(made, 0);
        }
        o.refused = rc < 0;
        psti_mem_stats_get(PSTI_MEM_CACHE, &memory);
        require(memory.live_bytes < 64 << 20);
    }
    redisReaderFree(reader);
    resp_fini(&mine);
    psti_mem_stats_get(PSTI_MEM_CACHE, &memory);
    require(memory.live == 0);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MOST)
        return 0;
    const outcome whole = read_all(data, size, size ? size : 1);
    for (size_t piece = 1; piece <= 64; piece *= 4) {
        const outcome pieces = read_all(data, size, piece);
        require(memcmp(&whole, &pieces, sizeof whole) == 0);
    }
    return 0;
}
