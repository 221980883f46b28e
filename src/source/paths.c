/* SPDX-License-Identifier: Apache-2.0
 * See paths.h. A path is stored as the bytes it shares with the beginning and with the end of the
 * one before it, and what stands between. Two bytes say how many, where they are small: one for the
 * beginning, half of one each for the end and the middle; else ESCAPE and three numbers. The first
 * path of a block shares nothing, so that a block can be read alone. */
#include "source/paths.h"

#include <errno.h>
#include <string.h>

#include "core/memory.h"
#include "source/pool.h"

enum { BLOCK = 32, ESCAPE = 255, SMALL = 15, HEAD_MAX = 7 };

/* ---- building -------------------------------------------------------------------------------- */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t shared_head(const psti_path_cursor *last, const char *text, size_t len)
{
    const size_t most = min_size(last->len, len);
    size_t n = 0;
    while (n < most && last->text[n] == text[n])
        n++;
    return n;
}

/* Of what is left behind the shared beginning. */
static size_t shared_tail(const psti_path_cursor *last, const char *text, size_t len, size_t head)
{
    const size_t most = min_size(last->len, len) - head;
    size_t n = 0;
    while (n < most && last->text[last->len - 1 - n] == text[len - 1 - n])
        n++;
    return n;
}

static void put_number(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static size_t number(const uint8_t *at)
{
    return at[0] | (size_t)at[1] << 8;
}

static size_t put_head(uint8_t *at, size_t head, size_t tail, size_t middle)
{
    if (head < ESCAPE && tail <= SMALL && middle <= SMALL) {
        at[0] = (uint8_t)head;
        at[1] = (uint8_t)(tail << 4 | middle);
        return 2;
    }
    at[0] = ESCAPE;
    put_number(at + 1, head);
    put_number(at + 3, tail);
    put_number(at + 5, middle);
    return HEAD_MAX;
}

int psti_paths_add(psti_paths *paths, psti_path_cursor *last, const char *text, size_t len)
{
    if (psti_grow(&paths->data, &paths->cap, paths->len + HEAD_MAX + len, 1))
        return -ENOMEM;
    if (paths->count % BLOCK == 0) {
        if (psti_grow(&paths->block, &paths->block_cap, paths->blocks + 1, sizeof *paths->block))
            return -ENOMEM;
        paths->block[paths->blocks++] = paths->len;
        last->len = 0;
    }
    const size_t head = shared_head(last, text, len);
    const size_t tail = shared_tail(last, text, len, head);
    const size_t middle = len - head - tail;
    paths->len += put_head(paths->data + paths->len, head, tail, middle);
    memcpy(paths->data + paths->len, text + head, middle);
    paths->len += middle;
    paths->count++;
    if (len > paths->longest)
        paths->longest = len;
    memcpy(last->text, text, len);
    last->len = len;
    return 0;
}

void psti_paths_trim(psti_paths *paths)
{
    uint8_t *data = psti_realloc(PSTI_MEM_SOURCE, paths->data, paths->len, 1);
    if (data) {
        paths->data = data;
        paths->cap = paths->len;
    }
    uint64_t *block =
        psti_realloc(PSTI_MEM_SOURCE, paths->block, paths->blocks, sizeof *paths->block);
    if (block) {
        paths->block = block;
        paths->block_cap = paths->blocks;
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Turns text, the path before, into the one at `at`; returns where the next one begins. */
static const uint8_t *step(const uint8_t *at, char *text, size_t *len)
{
    size_t head = at[0], tail = at[1] >> 4, middle = at[1] & SMALL;
    if (head == ESCAPE) {
        head = number(at + 1);
        tail = number(at + 3);
        middle = number(at + 5);
        at += HEAD_MAX;
    } else {
        at += 2;
    }
    const size_t now = head + middle + tail;
    if (now != *len)
        memmove(text + head + middle, text + *len - tail, tail);
    memcpy(text + head, at, middle);
    *len = now;
    return at + middle;
}

void psti_path_seek(psti_path_cursor *cursor, const psti_paths *paths, int64_t i)
{
    cursor->paths = paths;
    cursor->len = 0;
    cursor->at = i - i % BLOCK;
    cursor->next = paths->data + paths->block[i / BLOCK];
    while (cursor->at < i)
        psti_path_next(cursor);
}

/* A block's first path shares nothing, so what text held before it does not matter. */
const char *psti_path_next(psti_path_cursor *cursor)
{
    cursor->next = step(cursor->next, cursor->text, &cursor->len);
    cursor->text[cursor->len] = 0;
    cursor->at++;
    return cursor->text;
}

size_t psti_paths_get(const psti_paths *paths, int64_t i, char room[PSTI_PATH_ROOM])
{
    const uint8_t *at = paths->data + paths->block[i / BLOCK];
    size_t len = 0;
    for (int64_t left = i % BLOCK; left >= 0; left--)
        at = step(at, room, &len);
    room[len] = 0;
    return len;
}

size_t psti_paths_bytes(const psti_paths *paths)
{
    return paths->cap + paths->block_cap * sizeof *paths->block;
}

void psti_paths_fini(psti_paths *paths)
{
    psti_free(paths->data);
    psti_free(paths->block);
    *paths = (psti_paths){0};
}
