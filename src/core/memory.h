/* SPDX-License-Identifier: Apache-2.0
 * All allocation of this library goes through here, with a tag: counts and bytes per tag, every
 * n-th allocation made to fail on demand (PENSTOCK_FAIL_ALLOC=n or psti_mem_fail_at), a leak total.
 * Any thread. */
#ifndef PSTI_CORE_MEMORY_H
#define PSTI_CORE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum psti_tag {
    PSTI_MEM_CORE,
    PSTI_MEM_SOURCE,
    PSTI_MEM_CODEC,
    PSTI_MEM_OP,
    PSTI_MEM_PIPELINE,
    PSTI_MEM_SAMPLE,
    PSTI_MEM_SCHED,
    PSTI_MEM_BATCH,
    PSTI_MEM_CACHE,
    PSTI_MEM_ENGINE,
    PSTI_MEM_SERVE,
    PSTI_MEM_NET,
    PSTI_MEM_DEPOT,
    PSTI_MEM_TAGS
} psti_tag;

/* NULL on failure. Zero bytes give a valid pointer. psti_calloc checks the product. */
void *psti_malloc(psti_tag tag, size_t bytes) __attribute__((malloc, warn_unused_result));
void *psti_calloc(psti_tag tag, size_t count, size_t size)
    __attribute__((malloc, warn_unused_result));
/* Grows or shrinks; old may be NULL; on failure old stays valid. The tag must be the one it was
 * made with. */
void *psti_realloc(psti_tag tag, void *old, size_t count, size_t size)
    __attribute__((warn_unused_result));
char *psti_strdup(psti_tag tag, const char *text) __attribute__((malloc, warn_unused_result));
void psti_free(void *memory);

/* Page-aligned, zero-filled, given back to the system at once when freed: batch blocks and large
 * buffers. */
void *psti_pages_alloc(psti_tag tag, size_t bytes) __attribute__((warn_unused_result));
void psti_pages_free(psti_tag tag, void *memory, size_t bytes);

/* Address space without memory: pages are taken when they are first written, and given back by
 * psti_space_drop, after which they read as zero. Whoever uses it counts its own bytes. */
void *psti_space_reserve(psti_tag tag, size_t bytes) __attribute__((warn_unused_result));
void psti_space_drop(void *at, size_t bytes); /* whole pages */
void psti_space_release(psti_tag tag, void *memory, size_t bytes);

/* A buffer that only grows; contents are not kept when it does. */
typedef struct psti_buf {
    uint8_t *data;
    size_t cap;
} psti_buf;
/* 0 or -ENOMEM; on failure the buffer is empty. At least bytes + 64 are usable: kernels may read
 * past the end. */
int psti_buf_need(psti_tag tag, psti_buf *buf, size_t bytes);
void psti_buf_free(psti_buf *buf);

typedef struct psti_mem_stats {
    uint64_t allocs; /* since start */
    uint64_t live, live_bytes;
} psti_mem_stats;
void psti_mem_stats_get(psti_tag tag, psti_mem_stats *out);
void psti_mem_stats_total(psti_mem_stats *out);
/* Makes the n-th allocation from now fail (n >= 1), and all later ones if persistent. 0 turns it
 * off. */
void psti_mem_fail_at(uint64_t n, bool persistent);

/* Checked sizes: false on overflow. */
static inline bool psti_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool psti_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

#endif
