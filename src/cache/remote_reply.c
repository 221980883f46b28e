/* SPDX-License-Identifier: Apache-2.0
 * What servers say, within limits. The library splits bytes into items and nests them eight deep at
 * most; here they become replies. A server may be hostile: nothing that it announces is believed
 * before it is there, arrays and the parts of a reply are counted, and texts are cut. Values are
 * never copied into a reply: they go from the library's buffer to where the asker wants them. */
#include "cache/remote_reply.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/memory.h"

enum { CHUNK = 64 };

struct reply_chunk {
    reply_chunk *next; /* older */
    size_t used, cap;
    uint8_t bytes[] __attribute__((aligned(16)));
};

/* Memory of this reply. Ordinary replies fit into the first chunk, which stays. */
static void *part(reply_reader *mine, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    reply_chunk *chunk = mine->chunks;
    if (!chunk || chunk->cap - chunk->used < size) {
        const size_t cap = size > CHUNK * sizeof(reply) ? size : CHUNK * sizeof(reply);
        reply_chunk *more = psti_malloc(PSTI_MEM_CACHE, sizeof *more + cap);
        if (!more)
            return NULL;
        *more = (reply_chunk){chunk, 0, cap};
        mine->chunks = chunk = more;
    }
    void *at = chunk->bytes + chunk->used;
    chunk->used += size;
    return at;
}

static void forget(reply_reader *mine, bool all)
{
    while (mine->chunks && (all || mine->chunks->next)) {
        reply_chunk *next = mine->chunks->next;
        psti_free(mine->chunks);
        mine->chunks = next;
    }
    if (mine->chunks)
        mine->chunks->used = 0;
    mine->parts = 0;
}

static reply *add(const redisReadTask *task, int type)
{
    reply_reader *mine = task->privdata;
    if (++mine->parts > REPLY_NODES_MAX)
        return NULL;
    reply *made = part(mine, sizeof *made);
    if (!made)
        return NULL;
    *made = (reply){.type = type, .text = ""};
    if (task->parent) {
        const reply *parent = task->parent->obj;
        parent->elements[task->idx] = made;
    }
    return made;
}

/* NULL is taken for want of memory, and ends the connection. */
static void *make_string(const redisReadTask *task, char *bytes, size_t size)
{
    reply_reader *mine = task->privdata;
    reply *made = add(task, task->type);
    if (!made)
        return NULL;
    const bool first = !task->parent || (!task->parent->parent && task->idx == 0);
    if (task->type == REDIS_REPLY_STRING && first && mine->take)
        mine->take(mine->user, bytes, size);
    const size_t keep = size < REPLY_TEXT_MAX ? size : REPLY_TEXT_MAX;
    if (task->type == REDIS_REPLY_STRING && !task->parent)
        return made; /* a value, which was taken */
    char *text = part(mine, keep + 1);
    if (!text)
        return NULL;
    memcpy(text, bytes, keep);
    text[keep] = 0;
    made->text = text;
    return made;
}

#if HIREDIS_MAJOR >= 1
static void *make_array(const redisReadTask *task, size_t count)
#else
static void *make_array(const redisReadTask *task, int count)
#endif
{
    reply_reader *mine = task->privdata;
    if (count > REPLY_ARRAY_MAX)
        return NULL;
    reply *made = add(task, REDIS_REPLY_ARRAY);
    if (!made || count == 0)
        return made;
    made->elements = part(mine, (size_t)count * sizeof *made->elements);
    if (!made->elements)
        return NULL;
    mine->parts += (size_t)count / 8; /* what was announced counts, were it never to come */
    memset(made->elements, 0, (size_t)count * sizeof *made->elements);
    made->count = (int)count;
    return made;
}

static void *make_integer(const redisReadTask *task, long long value)
{
    reply *made = add(task, REDIS_REPLY_INTEGER);
    if (made)
        made->integer = value;
    return made;
}

static void *make_nil(const redisReadTask *task)
{
    return add(task, REDIS_REPLY_NIL);
}

/* Parts go together, when the next reply begins. */
static void free_nothing(void *object)
{
    (void)object;
}

/* What was not asked for (doubles, maps: RESP3) has no function, and is then no object. */
static redisReplyObjectFunctions functions = {.createString = make_string,
                                              .createArray = make_array,
                                              .createInteger = make_integer,
                                              .createNil = make_nil,
                                              .freeObject = free_nothing};

void resp_attach(redisReader *reader, reply_reader *mine)
{
    reader->fn = &functions;
    reader->privdata = mine;
    reader->maxbuf = 2 << 20; /* what it keeps when it is empty */
    forget(mine, false);
}

void resp_fini(reply_reader *mine)
{
    forget(mine, true);
}

/* RESP3's kinds, which newer libraries read, come without an object of ours, and so do their
 * elements; a server that speaks it unasked is not listened to. */
static bool understood(const redisReader *reader)
{
    if (reader->pos >= reader->len)
        return true;
    return reader->ridx >= 0 || strchr("+-:$*", reader->buf[reader->pos]) != NULL;
}

int resp_next(redisReader *reader, reply_reader *mine, reply **out)
{
    void *made = NULL;
    if (reader->ridx < 0) /* the last one is whole */
        forget(mine, false);
    if (!understood(reader) || redisReaderGetReply(reader, &made) != REDIS_OK)
        return -EPROTO;
    *out = made;
    if (made)
        return 1;
    return reader->len - reader->pos > mine->most ? -EMSGSIZE : 0;
}
