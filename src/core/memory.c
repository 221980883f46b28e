/* SPDX-License-Identifier: Apache-2.0
 * Tagged allocation over malloc. Each block carries a 16-byte header with its size and tag. */
#include "core/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct header {
    uint64_t bytes;
    uint32_t tag;
    uint32_t magic;
} header;
_Static_assert(sizeof(header) == 16, "keeps malloc's alignment");

enum { MAGIC = 0x70657373, HUGE_FROM = 4 << 20 };

typedef struct counters {
    _Alignas(64) atomic_uint_fast64_t allocs; /* counter */
    atomic_uint_fast64_t live;                /* counter */
    atomic_uint_fast64_t live_bytes;          /* counter */
} counters;

static counters count_of[PSTI_MEM_TAGS];
static atomic_int_fast64_t fail_in; /* allocations left before one fails; 0 = off; counter */
static atomic_bool fail_persistent; /* read after fail_in reaches its end; partner: fail_in */

void psti_mem_fail_at(uint64_t n, bool persistent)
{
    atomic_store(&fail_persistent, persistent);
    atomic_store(&fail_in, (int_fast64_t)n);
}

static bool must_fail(void)
{
    if (atomic_load_explicit(&fail_in, memory_order_relaxed) == 0)
        return false;
    int_fast64_t left = atomic_load(&fail_in);
    while (left > 0) {
        if (left == 1 && atomic_load(&fail_persistent))
            return true;
        if (atomic_compare_exchange_weak(&fail_in, &left, left - 1))
            return left == 1;
    }
    return false;
}

__attribute__((constructor)) static void from_environment(void)
{
    const char *text = getenv("PENSTOCK_FAIL_ALLOC");
    if (text && *text)
        psti_mem_fail_at(strtoull(text, NULL, 10), false);
}

static void note_alloc(psti_tag tag, size_t bytes)
{
    counters *c = &count_of[tag];
    atomic_fetch_add_explicit(&c->allocs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->live_bytes, bytes, memory_order_relaxed);
}

static void note_free(psti_tag tag, size_t bytes)
{
    counters *c = &count_of[tag];
    atomic_fetch_sub_explicit(&c->live, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&c->live_bytes, bytes, memory_order_relaxed);
}

void *psti_malloc(psti_tag tag, size_t bytes)
{
    size_t total;
    if (!psti_add(bytes, sizeof(header), &total) || must_fail())
        return NULL;
    header *h = malloc(total);
    if (!h)
        return NULL;
    h->bytes = bytes;
    h->tag = tag;
    h->magic = MAGIC;
    note_alloc(tag, bytes);
    return h + 1;
}

void *psti_calloc(psti_tag tag, size_t count, size_t size)
{
    size_t bytes, total;
    if (!psti_mul(count, size, &bytes) || !psti_add(bytes, sizeof(header), &total) || must_fail())
        return NULL;
    header *h = calloc(1, total);
    if (!h)
        return NULL;
    h->bytes = bytes;
    h->tag = tag;
    h->magic = MAGIC;
    note_alloc(tag, bytes);
    return h + 1;
}

void *psti_realloc(psti_tag tag, void *old, size_t count, size_t size)
{
    size_t bytes, total;
    if (!psti_mul(count, size, &bytes) || !psti_add(bytes, sizeof(header), &total))
        return NULL;
    if (!old)
        return psti_malloc(tag, bytes);
    if (must_fail())
        return NULL;
    header *h = (header *)old - 1;
    const size_t before = h->bytes;
    h = realloc(h, total);
    if (!h)
        return NULL;
    h->bytes = bytes;
    note_free(tag, before);
    note_alloc(tag, bytes);
    return h + 1;
}

char *psti_strdup(psti_tag tag, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = psti_malloc(tag, bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void psti_free(void *memory)
{
    if (!memory)
        return;
    header *h = (header *)memory - 1;
    if (h->magic != MAGIC)
        abort();
    h->magic = 0;
    note_free(h->tag, h->bytes);
    free(h);
}

void *psti_pages_alloc(psti_tag tag, size_t bytes)
{
    if (must_fail())
        return NULL;
    void *memory =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_FROM)
        madvise(memory, bytes, MADV_HUGEPAGE); /* fewer faults when it is first written */
    note_alloc(tag, bytes);
    return memory;
}

void psti_pages_free(psti_tag tag, void *memory, size_t bytes)
{
    if (!memory)
        return;
    munmap(memory, bytes ? bytes : 1);
    note_free(tag, bytes);
}

void *psti_space_reserve(psti_tag tag, size_t bytes)
{
    if (must_fail())
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_NOHUGEPAGE); /* its user counts single pages */
    note_alloc(tag, 0);
    return memory;
}

void psti_space_drop(void *at, size_t bytes)
{
    madvise(at, bytes, MADV_DONTNEED);
}

void psti_space_release(psti_tag tag, void *memory, size_t bytes)
{
    if (!memory)
        return;
    munmap(memory, bytes);
    note_free(tag, 0);
}

int psti_buf_need(psti_tag tag, psti_buf *buf, size_t bytes)
{
    size_t want, cap;
    const bool fits = psti_add(bytes, 64, &want) && psti_add(want, want / 8, &cap);
    if (fits && buf->cap >= want)
        return 0;
    psti_buf_free(buf);
    if (!fits)
        return -ENOMEM;
    buf->data = psti_malloc(tag, cap);
    if (!buf->data)
        return -ENOMEM;
    buf->cap = cap;
    return 0;
}

void psti_buf_free(psti_buf *buf)
{
    psti_free(buf->data);
    buf->data = NULL;
    buf->cap = 0;
}

void psti_mem_stats_get(psti_tag tag, psti_mem_stats *out)
{
    const counters *c = &count_of[tag];
    out->allocs = atomic_load(&c->allocs);
    out->live = atomic_load(&c->live);
    out->live_bytes = atomic_load(&c->live_bytes);
}

void psti_mem_stats_total(psti_mem_stats *out)
{
    *out = (psti_mem_stats){0};
    for (int tag = 0; tag < PSTI_MEM_TAGS; tag++) {
        psti_mem_stats one;
        psti_mem_stats_get((psti_tag)tag, &one);
        out->allocs += one.allocs;
        out->live += one.live;
        out->live_bytes += one.live_bytes;
    }
}
